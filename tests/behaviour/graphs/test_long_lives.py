"""A process that writes for a long time: its memory and its threads do not follow the number of its commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCHEMA = "node Paper { doi: String @key  year: I64? }\nedge Cites: Paper -> Paper"

#: Writes and reads back; tells after the first commits and after the last ones what the process holds.
CHILD = """
import ctypes, gc, json, os, sys
from pathlib import Path
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.opening import session
root, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
write = 'query q($d: String) { insert Paper { doi: $d } insert Cites { from: $d, to: $d } }'
read = 'query q($d: String) { match { $p: Paper { doi: $d }  $p cites $q } return { $q.doi as d } }'

def holds(graph):
    gc.collect()
    # What is free already and only not given back says nothing about what is held.
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "bytes": int(status["VmRSS"].split()[0]) * 1024,
        "threads": int(status["Threads"]),
        "objects": len(gc.get_objects()),
        "handles": graph._core.environment.tables._cache.used,
        "cached": session().size_bytes(),
    }

with Graph.open(root) as graph:
    for number in range(last):
        key = f"10.1/{number}"
        graph.mutate(write, {"d": key})
        assert graph.query(read, {"d": key}).to_pylist() == [{"d": key}]
        if number + 1 == first:
            before = holds(graph)
    print(json.dumps([before, holds(graph)]))
"""


def check(root: Path, *, first: int, last: int, cache_bytes: int | None, grown_bytes: int) -> None:
    from omnigraph.graph.graph import Graph

    Graph.init(root, SCHEMA).close()
    settings = {} if cache_bytes is None else {"OMNIGRAPH_METADATA_CACHE_BYTES": str(cache_bytes)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), str(first), str(last)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    # Caches of the engine have room for some thousand small values, a handful per commit.
    assert after["objects"] - before["objects"] < min(10 * (last - first), 10_000), (before, after)
    assert after["handles"] <= 64
    limit = cache_bytes or 32 * 1024 * 1024
    # Lance may be above the limit for a moment, and counts parts of indexes as well.
    assert after["cached"] <= 1.5 * limit + 1_000_000, (before, after)
    assert after["threads"] - before["threads"] <= 64, (before, after)
    assert after["bytes"] - before["bytes"] <= grown_bytes, (before, after)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells about a process")
def test_memory_does_not_follow_the_number_of_commits(tmp_path: Path) -> None:
    check(tmp_path / "g.omni", first=80, last=200, cache_bytes=1_000_000, grown_bytes=12_000_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells about a process")
def test_memory_is_flat_over_two_thousand_commits(tmp_path: Path) -> None:
    """With the settings of a user; by the first thousand commits the caches are full."""
    check(tmp_path / "g.omni", first=1000, last=3000, cache_bytes=None, grown_bytes=40_000_000)
