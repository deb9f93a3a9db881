"""Files that the disk cut short are found before anything refers to them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.commit import attempt
from omnigraph.errors import StorageError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import (
    StagedWrite,
    check_written,
    commit_staged,
    create_table,
    new_files,
    stage_append,
    stage_delete,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location

COLUMNS = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])
#: So many deleted rows that they are kept as a bitmap instead of a list.
MANY = 20_000


def rows(numbers: range) -> pa.Table:
    return pa.table({"id": [str(n) for n in numbers], "n": list(numbers)}, schema=COLUMNS)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    made = create_table(location, "nodes/1", COLUMNS)
    return commit_staged(stage_append(made, rows(range(MANY))))


def cut(location: GraphLocation, staged: StagedWrite, ending: str, by: int) -> None:
    """Take bytes from the end of a staged file, as a full disk does."""
    (path,) = [location.path / name for name in new_files(staged) if name.endswith(ending)]
    os.truncate(path, path.stat().st_size - by)


STAGED = {
    "appended rows": (lambda table: stage_append(table, rows(range(MANY, MANY + 9))), ".lance"),
    "replaced rows": (lambda table: stage_upsert(table, rows(range(9))), ".lance"),
    "a few deleted rows": (lambda table: stage_delete(table, range(0, 90, 9)), ".arrow"),
    "many deleted rows": (lambda table: stage_delete(table, range(0, MANY, 2)), ".bin"),
}


@pytest.mark.parametrize("by", [1, 100])
@pytest.mark.parametrize(("stage", "ending"), STAGED.values(), ids=STAGED)
def test_a_staged_file_that_was_cut_short_is_refused(
    location: GraphLocation, table: Table, stage, ending: str, by: int
):
    staged = stage(table)
    check_written(location, staged)
    cut(location, staged, ending, by)
    with pytest.raises(StorageError, match=r"not written completely.*is the disk full"):
        check_written(location, staged)


def test_a_write_whose_file_was_cut_short_has_no_effect_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "graph"
    insert = "query add($doi: String) { insert Paper { doi: $doi } }"

    def cut_and_check(location: GraphLocation, staged: StagedWrite) -> None:
        cut(location, staged, ".lance", by=1)
        check_written(location, staged)

    with Graph.init(root, "node Paper { doi: String @key }") as graph:
        graph.mutate(insert, {"doi": "a"})
        before = graph.snapshot()
        files = {path for path in root.rglob("*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr(attempt, "check_written", cut_and_check)
            with pytest.raises(StorageError, match="not written completely"):
                graph.mutate(insert, {"doi": "b"})
        assert graph.snapshot() == before
        assert graph.recoveries() == []
        assert {path for path in root.rglob("*") if path.is_file()} == files
        assert graph.mutate(insert, {"doi": "b"}).commit is not None


def test_a_publish_whose_rows_were_cut_short_never_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from omnigraph.storage import manifest_table

    insert = "query add($doi: String) { insert Paper { doi: $doi } }"
    write, cuts = manifest_table.write_fragments, iter((True,))

    def write_cut(*arguments, **options):
        fragments = write(*arguments, **options)
        if next(cuts, False):
            path = tmp_path / "graph/__manifest/data" / fragments[0].files[0].path
            os.truncate(path, path.stat().st_size - 1)
        return fragments

    with Graph.init(tmp_path / "graph", "node Paper { doi: String @key }") as graph:
        with monkeypatch.context() as patch:
            patch.setattr(manifest_table, "write_fragments", write_cut)
            # There is room again, so that the writer completes what it began.
            assert graph.mutate(insert, {"doi": "a"}).commit is not None
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
        found = graph.query("query all() { match { $p: Paper } return { $p.doi as doi } }")
        assert found.to_pylist() == [{"doi": "a"}]
