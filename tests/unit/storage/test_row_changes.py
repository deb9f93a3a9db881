"""Which rows two states do not share: never too few, and few where little changed.

However they are found: named by their row ids, or by tasks that look for them.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from omnigraph.pipeline import compare
from omnigraph.pipeline.compare import find_parts, listed_parts
from omnigraph.pipeline.scratch import Scratch, ScratchPlace
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.worker_choice import make_engine
from omnigraph.storage.datasets.forks import create_fork
from omnigraph.storage.datasets.row_changes import (
    RowSet,
    _RowIdSet,
    differing_rows,
    follows,
    scan_row_set,
)
from omnigraph.storage.datasets.staged import (
    commit_staged,
    stage_append,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.location import GraphLocation, parse_location
from support.tables import compact, delete, make_table, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnigraph.storage.datasets.tables import Table

    Differing = Callable[[Table, Table], tuple[list[str], list[str]]]

#: More rows than any table here has.
MANY = 1_000_000


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    return make_table(location, specs=())


@pytest.fixture(params=["named", "by tasks"])
def differing(request: pytest.FixtureRequest, location: GraphLocation) -> Differing:
    """The ids of the rows that may differ, of the old and of the new state."""

    def by_name(old: Table, new: Table) -> tuple[list[str], list[str]]:
        named = differing_rows(old, new, MANY)
        assert named is not None
        return ids(named[0]), ids(named[1])

    def by_tasks(old: Table, new: Table) -> tuple[list[str], list[str]]:
        engine = make_engine("local", None, Silent(), 0)
        with closing(Scratch(ScratchPlace(root=location, is_writer=True))) as scratch:
            both = find_parts(old, new, engine, scratch)
            gone, come = (
                sorted(text for part in parts for text in ids(part.resolved())) for parts in both
            )
        assert not (location.path / "__staging").exists()
        return gone, come

    return by_name if request.param == "named" else by_tasks


def ids(found: RowSet) -> list[str]:
    read = [text for batch in scan_row_set(found, ["id"]) for text in batch.column(0).to_pylist()]
    assert len(read) == found.row_count
    return sorted(map(str, read))


def update(table: Table, first: int, count: int) -> Table:
    return commit_staged(stage_upsert(table, rows(first, count)))


def names(first: int, count: int) -> list[str]:
    return sorted(map(str, rows(first, count)["id"].to_pylist()))


def every(table: Table) -> list[str]:
    return sorted(map(str, table._dataset.to_table(columns=["id"])["id"].to_pylist()))


def test_equal_states_share_all_rows(table: Table, differing: Differing) -> None:
    assert differing(table, table) == ([], [])


def test_an_append_is_its_own_rows(table: Table, differing: Differing) -> None:
    later = commit_staged(stage_append(table, rows(5000, 3)))
    assert differing(table, later) == ([], names(5000, 3))


def test_an_update_is_the_rows_that_it_wrote_on_both_sides(
    table: Table, differing: Differing
) -> None:
    old, new = differing(table, update(table, 14, 4))
    assert old == new == names(14, 4)


def test_a_deletion_is_the_rows_that_went(table: Table, differing: Differing) -> None:
    assert differing(table, delete(table, *names(20, 2))) == (names(20, 2), [])


def test_the_other_way_round_the_sides_change_places(table: Table, differing: Differing) -> None:
    later = delete(update(table, 14, 4), *names(20, 2))
    old, new = differing(later, table)
    assert (old, new) == (names(14, 4), sorted([*names(14, 4), *names(20, 2)]))


@pytest.mark.parametrize("is_forward", [True, False], ids=["forward", "backward"])
def test_a_compaction_hides_no_change_and_adds_none(
    table: Table, differing: Differing, is_forward: bool
) -> None:
    """It writes every row again; row lineage tells which of them changed."""
    later = compact(delete(update(table, 14, 4), *names(20, 2)))
    assert later.fragment_count() < table.fragment_count()
    if is_forward:
        old, new = differing(table, later)
    else:
        new, old = differing(later, table)
    assert old == sorted([*names(14, 4), *names(20, 2)])
    assert new == names(14, 4)


def test_states_on_two_forks_share_what_they_have_in_common(
    location: GraphLocation, table: Table, differing: Differing
) -> None:
    one = update(create_fork(location, table, "one"), 14, 2)
    other = delete(create_fork(location, table, "other"), *names(30, 1))
    old, new = differing(one, other)
    assert old == sorted([*names(14, 2), *names(30, 1)])
    assert new == names(14, 2)


def test_an_overwrite_shares_nothing(table: Table, differing: Differing) -> None:
    later = commit_staged(stage_overwrite(table, rows(0, 5)))
    assert differing(table, later) == (every(table), names(0, 5))


def test_what_was_undone_leaves_no_difference(table: Table, differing: Differing) -> None:
    undone = commit_staged(stage_restore(update(table, 14, 4), table.version))
    assert differing(table, undone) == ([], [])


def test_too_many_rows_are_not_named(table: Table) -> None:
    hidden = delete(table, *names(20, 5))
    assert differing_rows(table, hidden, 4) is None
    named = differing_rows(table, hidden, 5)
    assert named is not None
    assert named[0].row_count == 5
    compacted = compact(update(hidden, 14, 4))
    rows_of_both = table.row_count + compacted.row_count
    # Few differ, and all rows have to be looked at to find them.
    assert differing_rows(hidden, compacted, rows_of_both // 8 - 1) is None
    assert differing_rows(hidden, compacted, rows_of_both) is not None


def test_row_ids_that_leave_many_numbers_out_are_told_apart() -> None:
    known = _RowIdSet(most=100)
    known.add(np.array([3, 99, 2**60], dtype=np.uint64))
    known.add(np.array([100, 2**50], dtype=np.uint64))
    asked = np.array([3, 4, 99, 100, 101, 2**50, 2**60, 2**61], dtype=np.uint64)
    assert known.has(asked).tolist() == [True, False, True, True, False, True, True, False]


def test_rows_are_listed_in_parts_without_loss(
    table: Table, location: GraphLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "TASK_ROWS", 2)
    named = differing_rows(table, delete(table, *names(20, 5)), MANY)
    assert named is not None
    with closing(Scratch(ScratchPlace(root=location, is_writer=True))) as scratch:
        parts = listed_parts(named[0], scratch.folder(None))
        assert [part.row_count for part in parts] == [2, 2, 1]
        assert sorted(text for part in parts for text in ids(part.resolved())) == names(20, 5)


def test_a_state_follows_those_below_it_on_its_branch_and_below_its_fork(
    location: GraphLocation, table: Table
) -> None:
    later = update(table, 10, 1)
    fork = update(create_fork(location, later, "one"), 10, 1)
    nested = update(create_fork(location, fork, "two"), 10, 1)
    after = update(later, 11, 1)
    assert follows(nested, table)
    assert follows(nested, fork)
    assert follows(later, table)
    assert not follows(table, later)
    assert not follows(nested, after)
    assert not follows(fork, nested)
