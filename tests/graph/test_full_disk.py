"""A disk that takes no more bytes: typed refusal, nothing half-written, and work goes on when there is room again."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from omnigraph.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "node Paper { doi: String @key }\nedge Cites: Paper -> Paper"

#: A limit on the size of files stands in for the full disk: every write beyond it fails, as on a full disk.
CHILD = """
import resource, sys
from omnigraph.errors import StorageError
from omnigraph.graph import Graph
root, limit = sys.argv[1], int(sys.argv[2])
text = 'query q($d: String) { insert Paper { doi: $d } insert Cites { from: $d, to: $d } }'
with Graph.open(root) as graph:
    before = graph.snapshot()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        graph.mutate(text, {"d": "x"})
    except StorageError as error:
        print("refused", error.kind)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    graph.refresh()
    assert graph.snapshot().pins == before.pins, "something became visible"
    graph.mutate(text, {"d": "y"})
    print("went on")
"""


def _run(root: Path, limit: int) -> str:
    words = [sys.executable, "-c", CHILD, str(root), str(limit)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_write_without_room_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    Graph.init(root, SCHEMA).close()
    assert _run(root, limit=64) == "refused storage\nwent on\n"
    with Graph.open(root) as graph:
        counts = {key: pin.row_count for key, pin in graph.snapshot().pins.items()}
        assert counts == {"node:Paper": 1, "edge:Cites": 1}
        assert graph.pending_recoveries() == []
