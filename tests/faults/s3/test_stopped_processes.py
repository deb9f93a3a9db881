"""Real processes that are stopped at random moments for longer than their leases, and go on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_PAPER, SCHEMA, values
from support.stalled_writers import check_whole

LEASE_S = 0.6
CHILD = Path(__file__).parents[2] / "support" / "children" / "stopped_child.py"


def start(uri: str, who: str, writes: int, said: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PYTHONPATH": str(CHILD.parents[2]),
        # Leases of a moment, so that a stop of a moment loses them.
        "OMNIGRAPH_LOCK_LEASE_MS": str(int(LEASE_S * 1000)),
    }
    with said.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, str(CHILD), uri, who, str(writes)],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def stop_at_random(children: list[subprocess.Popen[bytes]], chance: random.Random) -> None:
    """Stop one child after the other for longer than a lease, until all have ended."""
    while any(child.poll() is None for child in children):
        child = chance.choice(children)
        time.sleep(chance.uniform(0.01, 0.3))  # the moment of the stop is what is tried
        if child.poll() is None:
            child.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.5, 2.5) * LEASE_S)  # shorter and longer than a lease
            child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("seed", "writes"),
    [
        (1, 3),
        *(pytest.param(seed, 12, marks=pytest.mark.slow) for seed in range(2, 12)),
    ],
)
def test_processes_that_are_stopped_tear_nothing(
    s3_root: str, tmp_path: Path, seed: int, writes: int
) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    files = [tmp_path / who for who in ("x", "y")]
    children = [start(s3_root, file.name, writes, file) for file in files]
    try:
        while not all(file.stat().st_size for file in files):
            time.sleep(0.02)  # the time until a process has begun is none of what is tried
            assert all(child.poll() is None for child in children), [
                file.read_text() for file in files
            ]
        stop_at_random(children, random.Random(seed))
    finally:
        for child in children:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()
    lines = [line.split(maxsplit=1) for file in files for line in file.read_text().splitlines()]
    told: dict[str, set[str]] = {}
    for what, doi in lines:
        told.setdefault(what, set()).add(doi)
    assert "failed" not in told, told["failed"]
    assert len(told["begin"]) == 2 * writes, lines
    with Graph.open(s3_root) as graph:
        papers = set(values(graph, "node:Paper", "doi")) - {"a"}
        edges = set(values(graph, "edge:Cites", "src"))
    assert papers == edges
    assert told.get("done", set()) <= papers <= told.get("done", set()) | told.get("unknown", set())
    check_whole(s3_root)
