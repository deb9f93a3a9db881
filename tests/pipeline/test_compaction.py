"""The rewrites of all tables run as one stage; each table is committed on its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import StorageError
from omnigraph.pipeline.compaction import STAGE, compact_tables
from omnigraph.pipeline.progress import Silent
from omnigraph.pipeline.workers import LocalWorkers
from omnigraph.storage import commit_compaction, list_indexes, parse_location
from storage.tables import ID, TEXT, content, make_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from omnigraph.pipeline.progress import StageProgress
    from omnigraph.pipeline.workers import Workers
    from omnigraph.storage import GraphLocation


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def check(workers: Workers, location: GraphLocation) -> None:
    first = make_table(location, path="nodes/a", specs=(ID, TEXT))
    idle = make_table(location, path="nodes/b", fragments=1, rows_each=20)
    last = make_table(location, path="edges/c", fragments=9, specs=(ID,))
    before = {table.path: content(table._dataset) for table in (first, last)}
    rewritten = compact_tables(workers, [first, idle, last], target_rows=20)
    assert [item.table for item in rewritten] == [first, last], "what needs nothing is left out"
    assert [item.rows for item in rewritten] == [58, 88]
    assert first.latest_version == first.version, "nothing has moved yet"
    for item in rewritten:
        table = commit_compaction(item.table, item.results)
        assert table.fragment_count() < item.table.fragment_count()
        assert content(table._dataset) == before[table.path]
        for coverage in list_indexes(table).values():
            assert not coverage.missing_fragments
    assert compact_tables(workers, [], target_rows=20) == []


def test_tables_are_rewritten_together_in_this_process(location: GraphLocation) -> None:
    check(LocalWorkers(Silent()), location)


def test_tables_are_rewritten_together_on_spark(
    location: GraphLocation, spark: SparkSession
) -> None:
    from omnigraph.pipeline.spark_workers import SparkWorkers

    check(SparkWorkers(spark, Silent()), location)


def test_rows_count_as_progress(location: GraphLocation) -> None:
    seen: list[tuple[int, int]] = []

    class Watcher:
        def update(self, tasks: int, rows: int) -> None:
            seen.append((tasks, rows))

    class Watched:
        @contextmanager
        def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
            assert (name, tasks) == (STAGE, 1)
            yield Watcher()

    compact_tables(LocalWorkers(Watched()), [make_table(location)], target_rows=100)
    assert seen == [(1, 58)]


def test_a_failed_task_is_a_storage_error_and_moves_nothing(location: GraphLocation) -> None:
    table = make_table(location)
    for file in (location.path / table.path / "data").glob("*.lance"):
        file.unlink()
    with pytest.raises(StorageError):
        compact_tables(LocalWorkers(Silent()), [table], target_rows=100)
    assert table.latest_version == table.version
