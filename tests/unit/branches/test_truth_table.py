"""Every row of the truth table of a merge, and of what several bases agree on."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from omnigraph.branches.truth_table import (
    ABSENT,
    CONFLICTS,
    TRUTH,
    UNDECIDED,
    Choice,
    Side,
    choose,
    virtual_base,
)
from omnigraph.errors import ConflictKind
from support.subtests import each_case

B, X, Y = 0, 1, 2

#: base, source, target, what happens.
ROWS = [
    pytest.param(ABSENT, X, ABSENT, Choice.TAKE, id="inserted by the source"),
    pytest.param(ABSENT, ABSENT, X, Choice.KEEP, id="inserted by the target"),
    pytest.param(ABSENT, X, X, Choice.KEEP, id="inserted alike"),
    pytest.param(ABSENT, X, Y, Choice.DIVERGENT_INSERT, id="inserted differently"),
    pytest.param(B, B, B, Choice.KEEP, id="untouched"),
    pytest.param(B, X, B, Choice.TAKE, id="updated by the source"),
    pytest.param(B, B, X, Choice.KEEP, id="updated by the target"),
    pytest.param(B, X, X, Choice.KEEP, id="updated alike"),
    pytest.param(B, X, Y, Choice.DIVERGENT_UPDATE, id="updated differently"),
    pytest.param(B, ABSENT, B, Choice.TAKE, id="deleted by the source"),
    pytest.param(B, B, ABSENT, Choice.KEEP, id="deleted by the target"),
    pytest.param(B, ABSENT, ABSENT, Choice.KEEP, id="deleted by both"),
    pytest.param(B, ABSENT, X, Choice.DELETE_VS_UPDATE, id="deleted and updated"),
    pytest.param(B, X, ABSENT, Choice.DELETE_VS_UPDATE, id="updated and deleted"),
    pytest.param(ABSENT, ABSENT, ABSENT, Choice.KEEP, id="nowhere"),
]

#: Bases that disagree are a row that equals neither side: whoever differs from the other is in conflict with it.
UNDECIDED_ROWS = [
    pytest.param(UNDECIDED, X, Y, Choice.DIVERGENT_UPDATE, id="different rows"),
    pytest.param(UNDECIDED, X, X, Choice.KEEP, id="the same row"),
    pytest.param(UNDECIDED, ABSENT, ABSENT, Choice.KEEP, id="no row"),
    pytest.param(UNDECIDED, ABSENT, X, Choice.DELETE_VS_UPDATE, id="only on the target"),
    pytest.param(UNDECIDED, X, ABSENT, Choice.DELETE_VS_UPDATE, id="only on the source"),
]


def column(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def chosen(base: int, source: int, target: int) -> Choice:
    (choice,) = choose(column(base), column(source), column(target)).tolist()
    return Choice(choice)


@each_case(("base", "source", "target", "choice"), ROWS)
def test_a_row_of_the_truth_table(base: int, source: int, target: int, choice: Choice) -> None:
    assert chosen(base, source, target) is choice


@each_case(("base", "source", "target", "choice"), UNDECIDED_ROWS)
def test_a_row_over_an_undecided_base(base: int, source: int, target: int, choice: Choice) -> None:
    assert chosen(base, source, target) is choice


def test_a_whole_column_is_decided_row_by_row() -> None:
    values = [item.values for item in (*ROWS, *UNDECIDED_ROWS)]
    base, source, target, choices = (column(*part) for part in zip(*values, strict=True))
    assert choose(base, source, target).tolist() == choices.tolist()


def test_no_rows_need_no_decision() -> None:
    assert choose(column(), column(), column()).tolist() == []


def test_every_combination_of_sides_is_in_the_table() -> None:
    """Where the sides agree the table is not asked, and a row that the base lacks equals nothing."""
    with_base = {
        (True, source, target)
        for source, target in product(Side, Side)
        if not source == target != Side.DIFFERS
    }
    without = {
        (False, source, target)
        for source, target in product((Side.DIFFERS, Side.ABSENT), repeat=2)
        if not source == target == Side.ABSENT
    }
    assert set(TRUTH) == with_base | without


def test_a_conflict_is_the_same_from_both_sides() -> None:
    states = (ABSENT, UNDECIDED, B, X, Y)
    for base, source, target in product(states, (ABSENT, B, X, Y), (ABSENT, B, X, Y)):
        one, other = chosen(base, source, target), chosen(base, target, source)
        if one > Choice.TAKE or other > Choice.TAKE:
            assert one is other
        elif source != target:
            assert {one, other} == {Choice.KEEP, Choice.TAKE}


def test_every_conflict_has_a_name() -> None:
    assert {choice: CONFLICTS[choice] for choice in Choice if choice > Choice.TAKE} == {
        Choice.DIVERGENT_INSERT: ConflictKind.DIVERGENT_INSERT,
        Choice.DIVERGENT_UPDATE: ConflictKind.DIVERGENT_UPDATE,
        Choice.DELETE_VS_UPDATE: ConflictKind.DELETE_VS_UPDATE,
    }


# ---- several bases

VIRTUAL = [
    pytest.param(B, B, B, B, id="untouched in both"),
    pytest.param(B, X, B, X, id="changed in one"),
    pytest.param(B, B, X, X, id="changed in the other"),
    pytest.param(B, X, X, X, id="changed alike"),
    pytest.param(B, X, Y, UNDECIDED, id="changed differently"),
    pytest.param(B, ABSENT, B, ABSENT, id="deleted in one"),
    pytest.param(B, B, ABSENT, ABSENT, id="deleted in the other"),
    pytest.param(B, ABSENT, ABSENT, ABSENT, id="deleted in both"),
    pytest.param(B, ABSENT, X, UNDECIDED, id="deleted and changed"),
    pytest.param(B, X, ABSENT, UNDECIDED, id="changed and deleted"),
    pytest.param(ABSENT, X, ABSENT, X, id="inserted in one"),
    pytest.param(ABSENT, ABSENT, X, X, id="inserted in the other"),
    pytest.param(ABSENT, X, X, X, id="inserted alike"),
    pytest.param(ABSENT, X, Y, UNDECIDED, id="inserted differently"),
    pytest.param(ABSENT, ABSENT, ABSENT, ABSENT, id="in none"),
    pytest.param(UNDECIDED, X, X, X, id="undecided before, the same now"),
    pytest.param(UNDECIDED, X, Y, UNDECIDED, id="still undecided"),
    pytest.param(B, UNDECIDED, B, UNDECIDED, id="one of them undecided"),
    pytest.param(B, B, UNDECIDED, UNDECIDED, id="the other undecided"),
    pytest.param(B, UNDECIDED, UNDECIDED, UNDECIDED, id="both undecided"),
    pytest.param(B, UNDECIDED, X, UNDECIDED, id="undecided against a change"),
    pytest.param(B, UNDECIDED, ABSENT, UNDECIDED, id="undecided against a deletion"),
]


@each_case(("base", "one", "other", "merged"), VIRTUAL)
def test_bases_are_merged_into_a_virtual_one(base: int, one: int, other: int, merged: int) -> None:
    assert virtual_base(column(base), column(one), column(other)).tolist() == [merged]


def test_the_order_of_two_bases_does_not_matter() -> None:
    states = (ABSENT, UNDECIDED, B, X, Y)
    base, one, other = (column(*part) for part in zip(*product(states, repeat=3), strict=True))
    assert virtual_base(base, one, other).tolist() == virtual_base(base, other, one).tolist()


def test_what_is_undecided_equals_nothing_not_even_itself() -> None:
    undecided = np.array([UNDECIDED, UNDECIDED])
    assert virtual_base(undecided, undecided, np.array([5, ABSENT])).tolist() == [UNDECIDED] * 2
