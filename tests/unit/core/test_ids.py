from __future__ import annotations

import pytest

from omnigraph.core.ids import (
    derive_id,
    directory_name,
    edge_table_key,
    fnv1a64,
    is_ulid,
    new_ulid,
    node_table_key,
    split_id,
)
from support.subtests import each_case, named_cases


@each_case(
    ("spellings", "entity_id"),
    [
        (["10.5/a1"], "10.5/a1"),
        ([""], ""),
        (['["a"]'], '["a"]'),
        (["2024", "ICML"], '["2024","ICML"]'),
        (["naïve", "知识"], '["naïve","知识"]'),
        (['a"b', "c\\d"], '["a\\"b","c\\\\d"]'),
        (["a\n", "\x01"], '["a\\n","\\u0001"]'),
        (["", "", ""], '["","",""]'),
        (["a,b", "c"], '["a,b","c"]'),
        (["a", "b,c"], '["a","b,c"]'),
    ],
)
def test_an_id_is_derived_from_the_spellings_of_a_key_and_split_again(spellings: list[str], entity_id: str) -> None:
    assert derive_id(spellings) == entity_id
    assert split_id(entity_id, len(spellings)) == tuple(spellings)


def test_an_id_needs_a_member() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        derive_id([])


@named_cases(
    "entity_id",
    {
        "empty": "",
        "no JSON": "x",
        "a number": "5",
        "an object": '{"a":"b"}',
        "too few": '["a"]',
        "too many": '["a","b","c"]',
        "a number inside": '["a",1]',
        "null inside": '["a",null]',
        "not compact": '["a", "b"]',
        "needless escape": '["\\u0061","b"]',
        "deep nest": "[" * 100_000,
    },
)
def test_a_text_that_is_no_derived_id_is_refused(entity_id: str) -> None:
    with pytest.raises(ValueError):
        split_id(entity_id, 2)


def test_table_keys_name_kind_and_type() -> None:
    assert (node_table_key("Paper"), edge_table_key("Paper")) == ("node:Paper", "edge:Paper")


@each_case(("data", "value"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)])
def test_the_hash_is_fnv_1a_of_64_bits(data: bytes, value: int) -> None:
    assert fnv1a64(data) == value


def test_a_directory_name_is_sixteen_hexadecimal_digits() -> None:
    assert directory_name("a") == "af63dc4c8601ec8c"
    assert directory_name("Paper") == "da89d00e1b71df59"


def test_a_short_hash_is_padded() -> None:
    names = [directory_name(f"T{number}") for number in range(300)]

    assert {len(name) for name in names} == {16}
    assert any(name.startswith("0") for name in names)


def test_a_name_that_returns_has_another_directory() -> None:
    assert directory_name("a", 7) == "af63dc4c8601ec8c-7"
    assert directory_name("a", 7) != directory_name("a", 8)


def test_new_ulids_are_canonical_and_fresh_and_sort_in_the_order_they_were_made() -> None:
    made = [new_ulid() for _ in range(1000)]

    assert all(is_ulid(text) and len(text) == 26 for text in made)
    assert made == sorted(set(made))


@pytest.mark.parametrize("text", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "0" * 26, "7" + "Z" * 25])
def test_a_canonical_ulid_is_recognised(text: str) -> None:
    assert is_ulid(text)


@named_cases(
    "text",
    {
        "empty": "",
        "too short": "01ARZ3NDEKTSV4RRFFQ69G5FA",
        "too long": "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
        "lower case": "01arz3ndektsv4rrffq69g5fav",
        "letter I": "01ARZ3NDEKTSV4RRFFQ69G5FAI",
        "letter U": "01ARZ3NDEKTSV4RRFFQ69G5FAU",
        "beyond 128 bits": "8" + "Z" * 25,
        "not ASCII": "é" * 26,
        "space": " 1ARZ3NDEKTSV4RRFFQ69G5FAV",
    },
)
def test_any_other_text_is_no_ulid(text: str) -> None:
    assert not is_ulid(text)
