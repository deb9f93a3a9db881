"""The rewrites of all tables run as one stage; each table is committed on its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import StorageError
from omnigraph.maintenance.optimize import COMPACT_STAGE, compact_tables
from omnigraph.pipeline.workers import LocalWorkers, Silent, StageProgress, Workers
from omnigraph.storage.datasets.compaction import choose_rewrites, fragment_facts
from omnigraph.storage.datasets.staged import commit_staged
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.tables import ID, content, make_table, with_text_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def groups(table: Table, target_rows: int = 1000) -> list[tuple[int, ...]]:
    return choose_rewrites(fragment_facts(table), target_rows=target_rows)


def check(workers: Workers, location: GraphLocation) -> None:
    first = with_text_index(make_table(location, path="nodes/a", specs=(ID,)))
    idle = make_table(location, path="nodes/b", fragments=1, rows_each=20, lost=())
    last = make_table(location, path="edges/c", fragments=9, specs=(ID,))
    before = {table.path: content(table._dataset) for table in (first, last)}
    work = [(table, groups(table, 50)) for table in (first, idle, last)]
    rewritten = compact_tables(workers, work)
    assert [item.table for item in rewritten] == [first, last], "what needs nothing is left out"
    assert [item.rows for item in rewritten] == [48, 88], (
        "the last fragment of the first stays alone"
    )
    assert first.latest_version == first.version, "nothing has moved yet"
    for item in rewritten:
        table = commit_staged(item.staged)
        assert table.fragment_count() == 2
        assert content(table._dataset) == before[table.path]
    assert compact_tables(workers, []) == []


def test_tables_are_rewritten_together_in_this_process(location: GraphLocation) -> None:
    check(LocalWorkers(Silent()), location)


def test_tables_are_rewritten_together_on_spark(
    location: GraphLocation, spark: SparkSession
) -> None:
    from omnigraph.spark.workers import SparkWorkers

    check(SparkWorkers(spark, Silent()), location)


def test_rows_count_as_progress(location: GraphLocation) -> None:
    seen: list[tuple[int, int]] = []

    class Watcher:
        def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
            seen.append((tasks, rows))

    class Watched:
        @contextmanager
        def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
            assert (name, tasks) == (COMPACT_STAGE, 1)
            yield Watcher()

    table = make_table(location)
    compact_tables(LocalWorkers(Watched()), [(table, groups(table))])
    assert seen == [(1, 58)]


def test_a_failed_task_is_a_storage_error_and_moves_nothing(location: GraphLocation) -> None:
    table = make_table(location)
    for file in (location.path / table.path / "data").glob("*.lance"):
        file.unlink()
    with pytest.raises(StorageError):
        compact_tables(LocalWorkers(Silent()), [(table, groups(table))])
    assert table.latest_version == table.version
