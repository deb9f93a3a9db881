"""Ctrl-C and SIGTERM during a load, seen from outside: the process ends, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from omnigraph import Graph

SCHEMA = "node Paper { doi: String @key  title: String }"
ROWS = 400_000


@pytest.mark.slow  # a JVM of its own; jobs that an interrupt ends are in `test_jobs`
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_an_interrupted_load_ends_with_130_and_leaves_nothing(
    tmp_path: Path, as_json: bool, times: int
) -> None:
    process, rest, out = interrupted_load(tmp_path, signal.SIGINT, as_json=as_json, times=times)
    assert process.returncode == 130, rest
    if as_json:
        assert json.loads(out)["kind"] == "interrupted"
        assert json.loads(out)["error"] == "interrupted; nothing was written"
    else:
        assert "interrupted; nothing was written" in rest.splitlines()


@pytest.mark.slow  # a JVM of its own
def test_a_terminated_load_ends_with_143_and_leaves_nothing(tmp_path: Path) -> None:
    process, rest, _ = interrupted_load(tmp_path, signal.SIGTERM)
    assert process.returncode == 143, rest
    assert "ended by SIGTERM; nothing was written" in rest.splitlines()


def interrupted_load(
    tmp_path: Path, sent: signal.Signals, *, as_json: bool = False, times: int = 1
) -> tuple[subprocess.Popen[str], str, str]:
    """A load that a signal ends while Spark works; what it printed to stderr after that, and to stdout."""
    root = tmp_path / "papers.omni"
    Graph.init(root, SCHEMA).close()
    before = files(root)
    lines = tmp_path / "papers.jsonl"
    with lines.open("w", encoding="utf-8") as out:
        for number in range(ROWS):
            data = {"doi": f"10.1/{number}", "title": f"number {number}"}
            out.write(json.dumps({"type": "Paper", "data": data}) + "\n")
    command = [sys.executable, "-m", "omnigraph", "load", str(root), "--data", str(lines)]
    command += ["--mode", "append", *(["--json"] if as_json else [])]
    process = subprocess.Popen(
        command,
        env=os.environ | {"OMNIGRAPH_SPARK_ARCHIVE": "off", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As a shell does with Ctrl-C: it goes to the whole group, so to the JVM and its workers as well.
        start_new_session=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("start Spark:"):
            break
    for _ in range(times):
        if sent is signal.SIGINT:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        # Signals that come together count once; the job takes longer to end than this.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
    out, rest = process.communicate(timeout=120)
    rest = "".join([*said, rest])
    assert "Traceback" not in rest
    assert files(root) == before
    assert (
        Graph.open(root).query("query q() { match { $p: Paper } return { $p.doi } }").row_count == 0
    )
    assert list(tmp_path.glob("omnigraph-spark-*")) == []
    return process, rest, out


def files(root: Path) -> set[str]:
    """Everything in the graph but its locks."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }
