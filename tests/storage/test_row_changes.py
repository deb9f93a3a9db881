"""Which rows two states do not share: never too few, and few where little changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omnigraph.storage import (
    GraphLocation,
    Table,
    commit_staged,
    create_fork,
    parse_location,
    stage_append,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.row_changes import RowSet, differing_rows, follows, scan_row_set
from storage.tables import compact, delete, make_table, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    return make_table(location, specs=())


def ids(found: RowSet) -> list[str]:
    read = [text for batch in scan_row_set(found, ["id"]) for text in batch.column(0).to_pylist()]
    assert len(read) == found.row_count
    return sorted(map(str, read))


def update(table: Table, first: int, count: int) -> Table:
    return commit_staged(stage_upsert(table, rows(first, count)))


def names(first: int, count: int) -> list[str]:
    return sorted(map(str, rows(first, count)["id"].to_pylist()))


def test_equal_states_share_all_rows(table: Table) -> None:
    old, new = differing_rows(table, table)
    assert (old.row_count, new.row_count) == (0, 0)


def test_an_append_is_its_own_rows(table: Table) -> None:
    old, new = differing_rows(table, commit_staged(stage_append(table, rows(5000, 3))))
    assert (ids(old), ids(new)) == ([], names(5000, 3))


def test_an_update_is_the_rows_that_it_wrote_on_both_sides(table: Table) -> None:
    old, new = differing_rows(table, update(table, 14, 4))
    assert ids(old) == ids(new) == names(14, 4)


def test_a_deletion_is_the_rows_that_went(table: Table) -> None:
    old, new = differing_rows(table, delete(table, *names(20, 2)))
    assert (ids(old), ids(new)) == (names(20, 2), [])


def test_the_other_way_round_the_sides_change_places(table: Table) -> None:
    later = delete(update(table, 14, 4), *names(20, 2))
    old, new = differing_rows(later, table)
    assert (ids(old), ids(new)) == (names(14, 4), sorted([*names(14, 4), *names(20, 2)]))


@pytest.mark.parametrize("is_forward", [True, False], ids=["forward", "backward"])
def test_a_compaction_hides_no_change_and_adds_none(table: Table, is_forward: bool) -> None:
    """It writes every row again; row lineage tells which of them changed."""
    later = compact(delete(update(table, 14, 4), *names(20, 2)))
    assert later.fragment_count() < table.fragment_count()
    if is_forward:
        old, new = differing_rows(table, later)
    else:
        new, old = differing_rows(later, table)
    assert ids(old) == sorted([*names(14, 4), *names(20, 2)])
    assert ids(new) == names(14, 4)


def test_states_on_two_forks_share_what_they_have_in_common(
    location: GraphLocation, table: Table
) -> None:
    one = update(create_fork(location, table, "one"), 14, 2)
    other = delete(create_fork(location, table, "other"), *names(30, 1))
    old, new = differing_rows(one, other)
    assert ids(old) == sorted([*names(14, 2), *names(30, 1)])
    assert ids(new) == names(14, 2)


def test_an_overwrite_shares_nothing(table: Table) -> None:
    old, new = differing_rows(table, commit_staged(stage_overwrite(table, rows(0, 5))))
    assert old.row_count == table.row_count
    assert ids(new) == names(0, 5)


def test_what_was_undone_leaves_no_difference(table: Table) -> None:
    undone = commit_staged(stage_restore(update(table, 14, 4), table.version))
    old, new = differing_rows(table, undone)
    assert (old.row_count, new.row_count) == (0, 0)


def test_rows_are_cut_into_parts_without_loss(table: Table) -> None:
    old, _ = differing_rows(table, delete(table, *names(20, 5)))
    parts = old.parts(2)
    assert [part.row_count for part in parts] == [2, 2, 1]
    assert sorted(text for part in parts for text in ids(part)) == ids(old)


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
