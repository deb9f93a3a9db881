"""An index built by many tasks is the index that one task would have built."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.maintenance.optimize import build_indexes
from omnigraph.pipeline.workers import Item, LocalWorkers, Message, Silent, Workers
from omnigraph.storage.datasets.indexes import (
    IndexPartTask,
    IndexSpec,
    list_indexes,
    plan_builds,
    plan_index_parts,
    stage_indices,
)
from omnigraph.storage.datasets.staged import StagedWrite, commit_staged, stage_append, stage_upsert
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.tables import (
    DIMENSION,
    ID,
    NUMBER,
    SPECS,
    VECTOR,
    delete,
    make_table,
    rows,
    vector_hits,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ManyWorkers(LocalWorkers):
    """Cuts stages as if tasks ran side by side, and remembers them."""

    parallelism = 4

    def __init__(self) -> None:
        super().__init__(Silent())
        self.tasks: list[object] = []

    def run(
        self, stage: str, task: Callable[[Item], Message], items: Sequence[Item]
    ) -> list[Message]:
        self.tasks += items
        return super().run(stage, task, items)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def build(table: Table, specs: Sequence[IndexSpec], workers: Workers | None = None) -> StagedWrite:
    (staged,) = build_indexes(workers or ManyWorkers(), [(table, specs)], min_part_rows=1)
    assert staged is not None
    return staged


def answers(table: Table) -> dict[str, object]:
    """What queries through the indexes give: by value, by distance over all partitions."""
    dataset = table._dataset
    conditions = ["id = 'k77'", "id = 'k11'", "n = 3", "n in (1, 5)", "n is null", "id >= 'k5'"]
    found: dict[str, object] = {
        text: sorted(dataset.to_table(columns=["id"], filter=text)["id"].to_pylist())
        for text in conditions
    }
    chance = random.Random(5)
    for number in range(5):
        point = [chance.random() for _ in range(DIMENSION)]
        found[f"near {number}"] = vector_hits(dataset, point, k=7)
    return found


def coverage(table: Table) -> dict[str, tuple[frozenset[int], int]]:
    return {
        known.name: (known.covered_fragments, known.missing_rows)
        for known in list_indexes(table).values()
    }


def check_same(location: GraphLocation, workers: Workers | None = None) -> None:
    usual = make_table(location, path="nodes/a", rows_each=40)
    spread = make_table(location, path="nodes/b", rows_each=40)
    staged = stage_indices(usual, SPECS)
    assert staged is not None
    usual = commit_staged(staged)
    spread = commit_staged(build(spread, SPECS, workers))
    assert spread.version == usual.version
    assert coverage(spread) == coverage(usual)
    plan = spread._dataset.scanner(columns=["id"], filter="id = 'k77'").explain_plan()
    assert "ScalarIndexQuery" in plan, "the answers below come from the index"
    assert answers(spread) == answers(usual)


def test_all_kinds_answer_as_if_built_at_once(location: GraphLocation) -> None:
    check_same(location)


def test_all_kinds_answer_the_same_when_built_on_spark(
    location: GraphLocation, spark: SparkSession
) -> None:
    from omnigraph.spark.workers import SparkWorkers

    check_same(location, SparkWorkers(spark, Silent()))


def test_a_stage_is_cut_by_rows_and_every_fragment_is_in_one_part(location: GraphLocation) -> None:
    table = make_table(location, fragments=8, rows_each=10)
    workers = ManyWorkers()
    build(table, [ID], workers)
    tasks = [task for task in workers.tasks if isinstance(task, IndexPartTask)]
    assert 4 <= len(tasks) <= 5
    assert sorted(number for task in tasks for number in task.fragments) == list(range(8))
    assert sum(task.rows for task in tasks) == table.row_count


def test_small_tables_are_one_task(location: GraphLocation) -> None:
    table = make_table(location)
    workers = ManyWorkers()
    build_indexes(workers, [(table, [ID, NUMBER])])
    assert len(workers.tasks) == 2


def test_the_inputs_of_a_merge_are_removed(location: GraphLocation) -> None:
    table = make_table(location, rows_each=40)
    staged = build(table, SPECS)
    stored = {it.name for it in (location.path / table.path / "_indices").iterdir()}
    named = {str(index.uuid) for index in staged._transaction.operation.new_indices}
    assert stored == named
    assert len(named) == len(SPECS)


def test_appended_rows_get_a_further_segment(location: GraphLocation) -> None:
    table = commit_staged(build(make_table(location, lost=()), [NUMBER]))
    table = commit_staged(stage_append(table, rows(500, 10)))
    table = commit_staged(stage_append(table, rows(600, 10)))
    (planned,) = plan_builds(table, [NUMBER])
    assert (planned.fragments, planned.replaces) == ((6, 7), False)
    staged = build(table, [NUMBER])
    assert not staged._transaction.operation.removed_indices
    table = commit_staged(staged)
    assert coverage(table)["n_btree"] == (frozenset(range(8)), 0)
    assert build_indexes(ManyWorkers(), [(table, [NUMBER])]) == [None]


@pytest.mark.parametrize("spec", [ID, NUMBER], ids=lambda spec: spec.name)
def test_an_index_whose_rows_moved_is_replaced(location: GraphLocation, spec: IndexSpec) -> None:
    table = commit_staged(build(make_table(location), [spec]))
    table = commit_staged(stage_upsert(table, rows(0, 15).set_column(1, "n", rows(7, 15)["n"])))
    (planned,) = plan_builds(table, [spec])
    assert planned.replaces
    staged = build(table, [spec])
    assert len(staged._transaction.operation.removed_indices) == 1
    table = commit_staged(staged)
    (index,) = table._dataset.describe_indices()
    assert len(index.segments) == 1
    assert coverage(table)[spec.name][1] == 0
    assert table._dataset.to_table(filter="id = 'k3'").num_rows == 1


def test_a_vector_index_is_always_built_anew(location: GraphLocation) -> None:
    table = commit_staged(build(make_table(location, rows_each=40), [VECTOR]))
    table = commit_staged(stage_append(table, rows(500, 100)))
    (planned,) = plan_builds(table, [VECTOR])
    assert planned.replaces
    assert planned.fragments == tuple(range(7))


def test_parts_of_a_vector_index_share_what_was_trained(location: GraphLocation) -> None:
    table = make_table(location, rows_each=40)
    (planned,) = plan_builds(table, [VECTOR])
    tasks = plan_index_parts(table, planned, parts=4, min_rows=1)
    assert len(tasks) > 1
    assert len({id(task.centroids) for task in tasks}) == 1, "pickled once for all"
    (whole,) = plan_index_parts(table, planned, parts=4, min_rows=10_000)
    assert whole.centroids is None, "one task trains by itself"


def test_tables_with_nothing_missing_give_nothing(location: GraphLocation) -> None:
    done = commit_staged(build(make_table(location, path="nodes/a"), [ID]))
    other = make_table(location, path="nodes/b")
    first, second = build_indexes(ManyWorkers(), [(done, [ID]), (other, [ID])])
    assert first is None
    assert second is not None
    assert second.table is other
    assert done.latest_version == done.version
    assert delete(other, "k3").row_count == other.row_count - 1, "nothing has moved"
