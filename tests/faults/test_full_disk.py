"""A disk that takes no more bytes: typed refusal, nothing half-written, and work goes on when there is room again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from omnigraph.graph.graph import Graph

SCHEMA = "node Paper { doi: String @key }\nedge Cites: Paper -> Paper"

#: A limit on the size of files stands in for the full disk: every write beyond it fails, as on a full disk.
CHILD = """
import resource, sys
from omnigraph.errors import StorageError
from omnigraph.graph.graph import Graph
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


#: Sizes at which the disk is full in another phase each: new columns, tables, the sidecar, audit rows, the catalog.
LIMITS = (64, 400, 3000, 3800, 5000)
CHANGE = """
import resource, shutil, sys
from omnigraph.errors import OmniError
from omnigraph.graph.graph import Graph
base, *limits = sys.argv[1:]
schema = 'node Paper { doi: String @key  lang: String } node Tag { word: String @key } edge Cites: Paper -> Paper'
told = []
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in limits:
    root = shutil.copytree(base, f"{base}.{limit}")
    with Graph.open(root) as graph:
        change = lambda: graph.apply_schema(schema, backfill={"Paper.lang": '"en"'}, engine="local")
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
        try:
            change()
        except OmniError as error:
            told.append(error.kind)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        graph.refresh()
        assert graph.pending_recoveries() == []
        change()
        rows = graph.query("query all() { match { $p: Paper } return { $p.lang as lang } }")
        assert rows.to_pylist() == [{"lang": "en"}]
print(*told)
"""


def test_a_schema_change_without_room_in_any_phase_is_refused_or_settled_when_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate('query q() { insert Paper { doi: "a" } }')
    words = [sys.executable, "-c", CHANGE, str(root), *map(str, LIMITS)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [*["storage"] * 3, *["recovery_required"] * 2]
    for limit in LIMITS:
        changed = tmp_path / f"g.omni.{limit}"
        assert list(changed.glob("*.staging")) == []
        assert len(list((changed / "nodes").iterdir())) == 2
