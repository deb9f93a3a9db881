"""Cursors and page tokens as text: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import json
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.branches.changes import (
    MAX_TOKEN_BYTES,
    TOKEN_VERSION,
    Position,
    check_binding,
    decode_token,
    encode_token,
)
from omnigraph.branches.truth_table import ABSENT, CONFLICTS, TRUTH, UNDECIDED, Choice, Side, choose, virtual_base
from omnigraph.errors import ChangeCursorRejectedError, ConflictKind, ResourceLimitError
from support.subtests import each_case

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=40), st.lists(st.text(max_size=5)))
BODIES = st.dictionaries(st.text(max_size=5).filter(lambda name: name != "v"), VALUES, max_size=5)
#: JSON cannot spell halves of surrogate pairs in a way that every reader takes.
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=400)


@given(BODIES)
def test_a_token_holds_what_was_put_into_it(body: dict[str, object]):
    assert decode_token(encode_token(body)) == {"v": TOKEN_VERSION, **body}


@given(BODIES)
def test_a_token_is_safe_in_urls_and_files(body: dict[str, object]):
    token = encode_token(body)
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")


def test_the_same_values_give_the_same_token():
    assert encode_token({"a": 1, "b": 2}) == encode_token({"b": 2, "a": 1})


def test_a_token_of_the_largest_size_is_taken_and_a_larger_one_refused():
    size = next(n for n in range(1, 5_000) if _is_too_large(n))
    token = encode_token({"x": "y" * (size - 1)})
    assert len(token) <= MAX_TOKEN_BYTES
    assert decode_token(token)["x"] == "y" * (size - 1)
    with pytest.raises(ResourceLimitError) as caught:
        encode_token({"x": "y" * size})
    assert caught.value.limit == MAX_TOKEN_BYTES
    assert caught.value.actual > MAX_TOKEN_BYTES


def _is_too_large(size: int) -> bool:
    try:
        encode_token({"x": "y" * size})
    except ResourceLimitError:
        return True
    return False


@given(st.text(max_size=60))
def test_what_never_was_a_token_is_rejected(text: str):
    with pytest.raises(ChangeCursorRejectedError):
        decode_token(text)


@given(st.binary(max_size=60))
def test_bytes_without_the_right_checksum_are_rejected(raw: bytes):
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        decode_token(urlsafe_b64encode(raw).decode().rstrip("="))


@given(BODIES, st.data())
def test_a_changed_byte_is_noticed(body: dict[str, object], data: st.DataObject):
    token = encode_token(body)
    raw = bytearray(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        decode_token(urlsafe_b64encode(raw).decode().rstrip("="))


@given(BODIES, st.data())
def test_a_changed_character_is_noticed(body: dict[str, object], data: st.DataObject):
    token = encode_token(body)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        decode_token(token[:place] + other + token[place + 1 :])


@each_case("size", range(6))
@each_case("junk", ["=", "==", "!!!!", "\n\n\n\n", "A"])
def test_a_token_is_spelled_in_one_way_only(size: int, junk: str):
    token = encode_token({"x": "y" * size})
    for place in (0, 8, len(token)):
        with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
            decode_token(token[:place] + junk + token[place:])


@given(BODIES, st.integers(1, 30))
def test_a_cut_token_is_rejected(body: dict[str, object], cut: int):
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        decode_token(encode_token(body)[:-cut])


def test_a_token_of_another_release_is_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("omnigraph.branches.changes.TOKEN_VERSION", TOKEN_VERSION + 1)
    newer = encode_token({"a": 1})
    monkeypatch.undo()
    with pytest.raises(ChangeCursorRejectedError, match="another release made it"):
        decode_token(newer)


def test_a_token_that_is_too_long_is_rejected_before_it_is_decoded():
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        decode_token("A" * (MAX_TOKEN_BYTES + 1))


# ---- binding


def test_a_binding_names_the_first_member_that_differs():
    body = decode_token(encode_token({"a": 1, "b": 2}))
    check_binding(body, {"a": (1, "wrong a"), "b": (2, "wrong b")})
    with pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: wrong b$"):
        check_binding(body, {"a": (1, "wrong a"), "b": (3, "wrong b")})
    with pytest.raises(ChangeCursorRejectedError, match="wrong c"):
        check_binding(body, {"c": (4, "wrong c")})


# ---- positions


@given(IDS)
def test_a_position_survives_a_token(entity_id: str):
    position = Position.of("7", entity_id)
    body = decode_token(encode_token({"p": position.to_json()}))
    assert Position.from_json(body["p"]) == position


@pytest.mark.parametrize(("entity_id", "is_exact"), [("k" * 256, True), ("k" * 257, False)])
def test_ids_above_256_bytes_are_represented_by_a_hash(entity_id: str, is_exact: bool):
    position = Position.of("7", entity_id)
    assert position.is_exact is is_exact
    assert (position.entity == entity_id) is is_exact


def test_the_length_of_an_id_is_counted_in_bytes():
    assert Position.of("7", "é" * 128).is_exact
    assert not Position.of("7", "é" * 129).is_exact


def test_a_cut_inside_of_a_character_does_no_harm():
    position = Position.of("7", "k" * 63 + "é" * 200)
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


@given(IDS, IDS)
def test_a_position_is_behind_its_own_entity_only(one: str, other: str):
    one, other = one.ljust(257, "x"), other.ljust(257, "x")
    assert Position.of("7", one).is_behind(one)
    assert Position.of("7", one).is_behind(other) == (one == other)


def test_a_long_id_gives_a_short_token():
    position = Position.of("7", "\U0001f600" * 100_000)
    assert len(encode_token({"p": position.to_json()})) < 500  # far below the limit


@each_case("body", [None, [], "x", 7, {}, ["7"], ["7", "a"], [7, "a", True]])
def test_what_is_no_position_is_rejected(body: object):
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        Position.from_json(body)


# ---- Every row of the truth table of a merge, and of what several bases agree on


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
        (True, source, target) for source, target in product(Side, Side) if not source == target != Side.DIFFERS
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
