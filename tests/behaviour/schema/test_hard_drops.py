"""What readers of the past are told after a type was dropped with its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoricalVersionReclaimedError, StorageError

BOTH = "node Kept { name: String @key }\nnode Dropped { name: String @key }"
ONE = "node Kept { name: String @key }"
KEPT = "query q() { match { $k: Kept } return { $k.name } }"
DROPPED = "query q() { match { $d: Dropped } return { $d.name } }"


@pytest.fixture
def dropped(tmp_path: Path) -> tuple[Path, str]:
    """A graph that lost a type with its data, and a commit in which both types had rows."""
    root = tmp_path / "g.omni"
    with Graph.init(root, BOTH) as graph:
        graph.mutate('query q() { insert Dropped { name: "d" } insert Kept { name: "a" } }')
        commit_id = graph.snapshot().commit_id
        graph.mutate('query q() { insert Kept { name: "b" } }')
        graph.apply_schema(ONE, allow_data_loss=True)
    return root, commit_id


def test_the_other_type_stays_readable(dropped: tuple[Path, str]) -> None:
    root, commit_id = dropped
    with Graph.open(root) as graph:
        assert [*graph.query(KEPT, snapshot=commit_id).json_rows()] == [{"k.name": "a"}]
        with pytest.raises(HistoricalVersionReclaimedError) as caught:
            list(graph.query(DROPPED, snapshot=commit_id).json_rows())
        assert caught.value.table_key == "node:Dropped"


def test_a_reader_of_another_type_is_not_told_about_the_dropped_one(
    dropped: tuple[Path, str],
) -> None:
    root, commit_id = dropped
    with Graph.open(root) as graph:
        pin = graph.snapshot(snapshot=commit_id).pins["node:Kept"]
    for file in (root / pin.location / "data").iterdir():
        file.unlink()
    with Graph.open(root) as graph, pytest.raises(StorageError) as caught:
        list(graph.query(KEPT, snapshot=commit_id).json_rows())
    assert pin.location in caught.value.message
    assert "Dropped" not in caught.value.message
