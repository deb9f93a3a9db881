"""Which fragments are written anew: little work, few fragments, and nothing left to do afterwards."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.storage.datasets.compaction import FragmentFacts, choose_fold, choose_rewrites

TARGET = 1000


def fact(number: int, rows: int, *, deleted: int = 0, is_indexed: bool = False) -> FragmentFacts:
    return FragmentFacts(
        number=number, rows=rows, deleted=deleted, size_bytes=rows * 10, is_indexed=is_indexed
    )


def rewritten(fragments: list[FragmentFacts], *, target_rows: int = TARGET) -> list[FragmentFacts]:
    """The table after the rewrites that are chosen, with indexes over everything."""
    groups = choose_rewrites(fragments, target_rows=target_rows)
    member = {number: group for group in groups for number in group}
    after: list[FragmentFacts] = []
    for item in fragments:
        group = member.get(item.number)
        if group is None:
            after.append(item)
        elif item.number == group[0]:
            rows = sum(other.rows for other in fragments if other.number in group)
            after.append(fact(10_000 + item.number, rows))
    return [replace(item, is_indexed=True) for item in after]


def tables() -> st.SearchStrategy[list[FragmentFacts]]:
    parts = st.tuples(st.integers(1, 1200), st.integers(0, 200), st.booleans())
    return st.lists(parts, max_size=30).map(
        lambda drawn: [
            fact(number, rows, deleted=deleted, is_indexed=indexed)
            for number, (rows, deleted, indexed) in enumerate(drawn)
        ]
    )


@given(tables())
def test_a_second_run_has_nothing_to_do(fragments: list[FragmentFacts]) -> None:
    after = rewritten(fragments)
    assert sum(item.rows for item in after) == sum(item.rows for item in fragments)
    assert choose_rewrites(after, target_rows=TARGET) == []


@given(tables())
def test_groups_are_neighbours_and_no_larger_than_the_target(
    fragments: list[FragmentFacts],
) -> None:
    rows = {item.number: item.rows for item in fragments}
    for group in choose_rewrites(fragments, target_rows=TARGET):
        assert list(group) == list(range(group[0], group[-1] + 1))
        assert len(group) == 1 or sum(rows[number] for number in group) <= TARGET


def test_a_small_table_becomes_one_fragment() -> None:
    fragments = [fact(0, 90, is_indexed=True), fact(1, 5), fact(2, 5)]
    assert choose_rewrites(fragments) == [(0, 1, 2)]


def test_a_large_table_keeps_its_indexed_fragments_until_there_are_many() -> None:
    large = [fact(0, 900, is_indexed=True), fact(1, 900, is_indexed=True)]
    some = [*large, fact(2, 10, is_indexed=True), fact(3, 5), fact(4, 5)]
    assert choose_rewrites(some, target_rows=TARGET) == [(3, 4)]
    many = [*large, *(fact(n, 10, is_indexed=True) for n in range(2, 9)), fact(9, 5)]
    assert choose_rewrites(many, target_rows=TARGET) == [tuple(range(2, 10))]


def test_a_worn_fragment_is_written_anew_alone() -> None:
    fragments = [fact(0, 900, deleted=100), fact(1, 950)]
    assert choose_rewrites(fragments, target_rows=TARGET) == [(0,)]
    assert choose_rewrites([fact(0, 901, deleted=99)], target_rows=TARGET) == []


def fold(fragments: list[FragmentFacts], **limits: int) -> tuple[int, ...]:
    given = {"more_than": 4, "max_rows": 1000, "max_bytes": 100_000} | limits
    return choose_fold(fragments, **given)


def test_a_fold_takes_the_newest_fragments_without_indexes() -> None:
    assert fold([fact(n, 1) for n in range(4)]) == ()
    assert fold([fact(n, 1) for n in range(5)]) == (0, 1, 2, 3, 4)
    behind = [fact(0, 1, is_indexed=True), *(fact(n, 1) for n in range(1, 6))]
    assert fold(behind) == (1, 2, 3, 4, 5)
    assert fold([*behind[1:], behind[0]]) == (), "an index covers the newest one"


def test_a_fold_is_bounded() -> None:
    assert fold([fact(n, 300) for n in range(9)]) == ()
    assert fold([fact(0, 990), *(fact(n, 3) for n in range(1, 6))]) == (1, 2, 3, 4, 5)
    assert fold([fact(n, 10) for n in range(9)], max_bytes=600) == (3, 4, 5, 6, 7, 8)


def test_many_small_writes_cost_little_and_leave_few_fragments() -> None:
    fragments: list[FragmentFacts] = []
    written = most = 0
    writes = 5_000
    for number in range(writes):
        fragments.append(fact(number, 1))
        chosen = choose_fold(fragments, more_than=64, max_rows=100_000, max_bytes=10**9)
        if chosen:
            rows = sum(item.rows for item in fragments if item.number in chosen)
            fragments = [item for item in fragments if item.number not in chosen]
            fragments.append(fact(number, rows))
            written += rows
        most = max(most, len(fragments))
    assert most <= 80
    assert written <= 20 * writes
