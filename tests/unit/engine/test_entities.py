"""Rows by row id, in a table whose row ids have gaps and come unsorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.core.arrow import arrow_type
from omnigraph.core.budget import Budget
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType
from omnigraph.engine.predicates import push_down
from omnigraph.engine.tables import entities as module
from omnigraph.engine.tables.context import EngineCaches
from omnigraph.engine.tables.entities import Entities, row_id_array
from omnigraph.engine.tables.numberings import Numbering
from omnigraph.lang.query.ir import (
    CompareOp,
    Comparison,
    Constant,
    EntityRef,
    Expression,
    Operand,
    ParamRef,
    PropertyRef,
    TextKind,
    TextMatch,
)
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, HasItem, HasText
from omnigraph.storage.datasets.reads import read_rows
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.engine_tables import append, column, delete, new_caches, stored, upsert
from support.subtests import each_case

TAGS = arrow_type(ListType(Scalar.STRING))
SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("number", pa.int32()),
        pa.field("day", pa.date32()),
        pa.field("tags", TAGS),
    ]
)


def rows_of(ids: str, number: Callable[[str], int] = ord) -> pa.Table:
    """A row per letter; every value tells its letter."""
    numbers = [number(letter) for letter in ids]
    days = pa.array(numbers, pa.int32()).cast(pa.date32())
    tags = column(ListType(Scalar.STRING), [(letter, None) for letter in ids])
    return pa.table([pa.array(list(ids), pa.utf8()), pa.array(numbers, pa.int32()), days, tags], schema=SCHEMA)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> GraphLocation:
    return parse_location(tmp_path_factory.mktemp("entities"))


@pytest.fixture(scope="module")
def gappy(location: GraphLocation) -> Table:
    """Rows that were deleted leave gaps, rows that were replaced keep their ids and move to the end."""
    table = stored(location, "nodes/gappy", rows_of("abcd"), rows_of("efgh"))
    table = delete(table, ["b", "g"])
    table = upsert(table, rows_of("ca", lambda letter: -ord(letter)))
    return append(table, rows_of("xyz"))


@pytest.fixture(scope="module")
def dense(location: GraphLocation) -> Table:
    return stored(location, "nodes/dense", rows_of("abc"), rows_of("de"))


@pytest.fixture(scope="module")
def empty(location: GraphLocation) -> Table:
    return stored(location, "nodes/empty", rows_of(""))


@pytest.fixture
def caches(location: GraphLocation) -> EngineCaches:
    return new_caches(location)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Every read of the module under test: what kind, and of what."""
    found: list[tuple[str, Any]] = []
    scan, take = module.read_rows, module.take_rows

    def noted_scan(table: Table, columns: Any = (), *more: Any, **options: Any) -> pa.Table:
        found.append(("scan", tuple(columns)))
        return scan(table, columns, *more, **options)

    def noted_take(table: Table, row_ids: Any, columns: Any) -> pa.Table:
        found.append(("take", len(row_ids)))
        return take(table, row_ids, columns)

    monkeypatch.setattr(module, "read_rows", noted_scan)
    monkeypatch.setattr(module, "take_rows", noted_take)
    return found


def places(table: Table) -> dict[str, int]:
    """The row id of every letter, read past the code under test."""
    rows = read_rows(table, ("id",))
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def row_ids(table: Table, letters: str) -> np.ndarray:
    known = places(table)
    return np.array([known[letter] for letter in letters], np.int64)


def letters(table: Table) -> str:
    """All rows by row id."""
    known = places(table)
    return "".join(sorted(known, key=lambda letter: known[letter]))


def test_the_table_has_gaps_and_comes_unsorted(gappy: Table, dense: Table) -> None:
    """Otherwise the tests below would prove little."""
    scanned = row_id_array(read_rows(gappy)).tolist()
    assert scanned != sorted(scanned)
    assert max(scanned) >= len(scanned)
    assert sorted(places(gappy)) == list("acdefhxyz")
    assert row_id_array(read_rows(dense)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("which", ["gappy", "dense", "empty"])
def test_rows_are_numbered_in_the_order_of_their_ids(
    request: pytest.FixtureRequest, caches: EngineCaches, which: str
) -> None:
    table = request.getfixturevalue(which)
    numbering = caches.entities(table, Budget()).numbering()
    expected = sorted(places(table).values())
    assert numbering.count == len(expected)
    assert numbering.all_row_ids.tolist() == expected
    everyone = np.arange(len(expected))
    assert numbering.row_ids(everyone).tolist() == expected
    backwards = numbering.all_row_ids[::-1]
    assert numbering.numbers(backwards).tolist() == everyone[::-1].tolist()
    assert (numbering.sorted_ids is None) is (which != "gappy"), "no array where none is needed"


def test_numbers_and_row_ids_are_inverse_with_repeats() -> None:
    numbering = Numbering(3, np.array([4, 9, 70]))
    assert numbering.numbers(np.array([70, 4, 4, 9])).tolist() == [2, 0, 0, 1]
    assert numbering.row_ids(np.array([2, 0, 0, 1])).tolist() == [70, 4, 4, 9]


BUDGETS = pytest.mark.parametrize("budget", [0, 1 << 20], ids=["points", "whole"])


@BUDGETS
@pytest.mark.parametrize("asked", ["a", "zxa", "ccac", "hfedcazyx", "acdefhxyz" * 3])
def test_columns_come_in_the_order_of_the_question(
    location: GraphLocation, gappy: Table, reads: list[Any], asked: str, budget: int
) -> None:
    entities = new_caches(location, column_cache_bytes=budget).entities(gappy, Budget())
    found = entities.columns(row_ids(gappy, asked), ["tags", "id", "number", "day", "id"])
    sign = {letter: -1 if letter in "ac" else 1 for letter in asked}
    numbers = [sign[letter] * ord(letter) for letter in asked]
    assert found["id"].to_pylist() == list(asked)
    assert found["number"].to_pylist() == numbers
    assert found["day"].cast(pa.int32()).to_pylist() == numbers
    assert found["tags"].to_pylist() == [[letter, None] for letter in asked]
    assert set(found) == {"id", "number", "day", "tags"}
    assert all(isinstance(array, pa.Array) for array in found.values())
    distinct = len(set(asked))
    expected = [("scan", ("tags", "id", "number", "day"))] if budget else [("take", distinct)]
    assert reads == expected, "one read, whatever is asked for"


@BUDGETS
def test_no_rows_have_columns_of_the_right_type(
    location: GraphLocation, gappy: Table, empty: Table, budget: int
) -> None:
    nobody = np.zeros(0, np.int64)
    for table in (gappy, empty):
        entities = new_caches(location, column_cache_bytes=budget).entities(table, Budget())
        found = entities.columns(nobody, ["id", "tags", "day"])
        assert {name: array.type for name, array in found.items()} == {
            "id": pa.utf8(),
            "tags": TAGS,
            "day": pa.date32(),
        }
        assert all(len(array) == 0 for array in found.values())


def test_a_whole_column_is_in_the_order_of_the_numbers(caches: EngineCaches, gappy: Table) -> None:
    entities = caches.entities(gappy, Budget())
    assert "".join(entities.whole_column("id").to_pylist()) == letters(gappy)
    assert letters(gappy)[0] == "a", "the replaced row kept its place"
    numbers = entities.numbering().numbers(row_ids(gappy, "zac"))
    assert entities.whole_column("id").take(pa.array(numbers)).to_pylist() == ["z", "a", "c"]


def test_a_column_is_read_once_for_all_handles_of_the_same_rows(
    caches: EngineCaches, gappy: Table, reads: list[Any]
) -> None:
    first = caches.entities(gappy, Budget()).whole_column("number")
    again = caches.entities(gappy, Budget())
    assert again.whole_column("number") is first
    assert again.column(row_ids(gappy, "da"), "number").to_pylist() == [ord("d"), -ord("a")]
    again.numbering()
    assert reads == [("scan", ("number",))], "the first scan told the numbers too"


def test_only_missing_columns_are_read(caches: EngineCaches, gappy: Table, reads: list[Any]) -> None:
    entities = caches.entities(gappy, Budget())
    entities.whole_column("number")
    found = entities.columns(row_ids(gappy, "xa"), ["id", "number"])
    assert found["id"].to_pylist() == ["x", "a"]
    assert found["number"].to_pylist() == [ord("x"), -ord("a")]
    assert reads == [("scan", ("number",)), ("scan", ("id",))]


def test_another_state_of_the_table_is_made_from_the_one_before(
    location: GraphLocation, caches: EngineCaches, reads: list[Any]
) -> None:
    before = stored(location, "nodes/moving", rows_of("abc"))
    assert caches.entities(before, Budget()).whole_column("id").to_pylist() == ["a", "b", "c"]
    after = delete(before, ["b"])
    assert caches.entities(after, Budget()).whole_column("id").to_pylist() == ["a", "c"]
    assert caches.entities(before, Budget()).whole_column("id").to_pylist() == ["a", "b", "c"]
    assert reads == [("scan", ("id",))]


def few_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one row of nine count as a small part of the table."""
    monkeypatch.setattr(module, "WHOLE_COLUMN_RATIO", 1)


def test_a_column_asked_for_in_small_parts_is_kept_after_sixteen_times(
    monkeypatch, caches: EngineCaches, gappy: Table, reads: list[Any]
) -> None:
    few_of_many(monkeypatch)
    entities, one = caches.entities(gappy, Budget()), row_ids(gappy, "c")
    for _ in range(20):
        assert entities.column(one, "number").to_pylist() == [-ord("c")]
    assert reads == [("take", 1)] * 16 + [("scan", ("number",))]


def test_a_large_part_is_read_whole_at_once(monkeypatch, caches: EngineCaches, gappy: Table, reads: list[Any]) -> None:
    few_of_many(monkeypatch)
    entities = caches.entities(gappy, Budget())
    assert entities.column(row_ids(gappy, "acdefhxyz"), "number")[2].as_py() == ord("d")
    assert reads == [("scan", ("number",))]


def test_uses_are_counted_per_column_and_state(caches: EngineCaches, gappy: Table, dense: Table) -> None:
    answers = [caches.entities(gappy, Budget()).is_worth_keeping("id") for _ in range(18)]
    assert answers == [False] * 16 + [True] * 2
    assert not caches.entities(gappy, Budget()).is_worth_keeping("number")
    assert not caches.entities(dense, Budget()).is_worth_keeping("id")


def test_a_column_in_memory_is_worth_keeping_at_once(caches: EngineCaches, gappy: Table) -> None:
    entities = caches.entities(gappy, Budget())
    entities.whole_column("id")
    assert entities.is_worth_keeping("id")
    assert not entities.is_worth_keeping("number")


def test_columns_of_large_tables_are_never_worth_keeping_for_points(
    monkeypatch, caches: EngineCaches, gappy: Table
) -> None:
    monkeypatch.setattr(module, "_POINT_ROWS", 8)
    assert [caches.entities(gappy, Budget()).is_worth_keeping("id") for _ in range(20)] == [False] * 20
    monkeypatch.setattr(module, "_POINT_ROWS", 9)
    assert [caches.entities(gappy, Budget()).is_worth_keeping("id") for _ in range(17)][-1]


def test_what_does_not_fit_is_never_worth_keeping(location: GraphLocation, gappy: Table) -> None:
    entities = new_caches(location, column_cache_bytes=4 * 4 * 9).entities(gappy, Budget())
    assert [entities.is_worth_keeping("id") for _ in range(20)] == [False] * 20
    assert [entities.is_worth_keeping("number") for _ in range(20)][-1]


@pytest.mark.parametrize(
    ("type_", "width"),
    [
        (pa.bool_(), 1),
        (pa.int32(), 4),
        (pa.uint64(), 8),
        (pa.float32(), 4),
        (pa.date32(), 4),
        (pa.date64(), 8),
        (pa.utf8(), 48),
        (TAGS, 48),
        (pa.list_(pa.float32(), 6), 24),
    ],
    ids=str,
)
def test_a_column_may_take_a_quarter_of_the_memory(
    location: GraphLocation, tmp_path, type_: pa.DataType, width: int
) -> None:
    schema = pa.schema([pa.field("id", pa.utf8()), pa.field("x", type_)])
    rows = pa.table([pa.array(list("abc")), pa.nulls(3, type_)], schema=schema)
    table = stored(parse_location(tmp_path), "nodes/x", rows)
    fits = new_caches(location, column_cache_bytes=4 * 3 * width).entities(table, Budget())
    assert fits.is_keepable("x")
    tight = new_caches(location, column_cache_bytes=4 * 3 * width - 1).entities(table, Budget())
    assert not tight.is_keepable("x")


# ---- keys


def found_by_key(entities: Entities, name: str, value: object) -> list[int]:
    found = entities.row_of_key(name, value)
    assert found.dtype == np.int64
    return found.tolist()


def test_the_row_of_a_key_is_found_by_value(caches: EngineCaches, gappy: Table, reads: list[Any]) -> None:
    entities, known = caches.entities(gappy, Budget()), places(gappy)
    for letter, row_id in known.items():
        assert found_by_key(entities, "id", letter) == [row_id]
    for missing in ("b", "", None, 7):
        assert found_by_key(entities, "id", missing) == []
    assert reads == [("scan", ("id",))]


def test_a_key_of_numbers_or_days_is_found_by_mathematical_value(caches: EngineCaches, gappy: Table) -> None:
    entities, known = caches.entities(gappy, Budget()), places(gappy)
    assert found_by_key(entities, "number", -97) == [known["a"]]
    assert found_by_key(entities, "number", 101.0) == [known["e"]]
    assert found_by_key(entities, "number", 101.5) == []
    assert found_by_key(entities, "number", 97) == []
    assert found_by_key(entities, "day", ord("x")) == [known["x"]], "days are their number"


def test_keys_are_looked_up_in_memory_after_sixteen_questions(caches: EngineCaches, gappy: Table) -> None:
    answers = [caches.entities(gappy, Budget()).has_key_lookup("id") for _ in range(18)]
    assert answers == [False] * 16 + [True] * 2


def test_a_lookup_that_exists_is_used_even_when_its_column_is_gone(caches: EngineCaches, gappy: Table) -> None:
    entities = caches.entities(gappy, Budget())
    entities.row_of_key("id", "a")
    caches.columns.clear()
    assert entities.has_key_lookup("id")


def test_large_tables_have_no_lookup(monkeypatch, caches: EngineCaches, gappy: Table) -> None:
    monkeypatch.setattr(module, "_LOOKUP_ROWS", 8)
    assert [caches.entities(gappy, Budget()).has_key_lookup("id") for _ in range(20)] == [False] * 20


# ---- Which predicates storage evaluates, in which form, and which stay with the engine


ENUM = EnumType(("draft", "final"))
S, I32, I64, F64 = (ScalarType(scalar) for scalar in (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.F64))
#: What `$null` and `$two` are.
VALUES = {"null": None, "two": 2, "ab": ("a", None, "b")}


def field(base: BaseType, name: str = "x") -> PropertyRef:
    return PropertyRef("n", name, PropertyType(base, nullable=True))


def constant(base: BaseType, value: Any) -> Constant:
    return Constant(value, PropertyType(base))


def param(base: BaseType, name: str) -> ParamRef:
    return ParamRef(name, PropertyType(base, nullable=True))


def case(left: Operand, op: CompareOp, right: Operand) -> Comparison:
    return Comparison(left, op, right)


@each_case(
    ("predicate", "expected"),
    [
        (case(field(I32), CompareOp.EQ, constant(F64, 2.7)), Compare("x", I32, "=", 2.7)),
        (case(field(I32), CompareOp.LT, param(I64, "two")), Compare("x", I32, "<", 2)),
        (case(field(S), CompareOp.NE, param(S, "null")), Compare("x", S, "!=", None)),
        (case(field(ENUM), CompareOp.EQ, constant(S, "final")), Compare("x", ENUM, "=", "final")),
        # The property on the right turns the comparison round.
        (case(constant(I64, 5), CompareOp.LT, field(I64)), Compare("x", I64, ">", 5)),
        (case(constant(I64, 5), CompareOp.LE, field(I64)), Compare("x", I64, ">=", 5)),
        (case(constant(I64, 5), CompareOp.GT, field(I64)), Compare("x", I64, "<", 5)),
        (case(constant(I64, 5), CompareOp.GE, field(I64)), Compare("x", I64, "<=", 5)),
        (case(constant(I64, 5), CompareOp.EQ, field(I64)), Compare("x", I64, "=", 5)),
        (case(constant(I64, 5), CompareOp.NE, field(I64)), Compare("x", I64, "!=", 5)),
        # Parts of texts.
        (case(field(S), CompareOp.STRING_CONTAINS, constant(S, "a%")), HasText("x", "a%")),
        (case(field(S), CompareOp.STARTS_WITH, constant(S, "_")), HasText("x", "_", at_start=True)),
        # Members of lists.
        (case(field(ListType(Scalar.STRING)), CompareOp.CONTAINS, constant(S, "a")), HasItem("x", Scalar.STRING, "a")),
        (case(field(ListType(Scalar.I32)), CompareOp.CONTAINS, param(I64, "two")), HasItem("x", Scalar.I32, 2)),
        # Members of a given list, without its nulls.
        (
            case(param(ListType(Scalar.STRING), "ab"), CompareOp.CONTAINS, field(ENUM)),
            AnyOf((Compare("x", ENUM, "=", "a"), Compare("x", ENUM, "=", "b"))),
        ),
        (case(constant(ListType(Scalar.I64), ()), CompareOp.CONTAINS, field(I32)), AnyOf(())),
    ],
)
def test_a_comparison_with_a_known_value_goes_to_storage(predicate: Expression, expected: Filter) -> None:
    pushed = push_down([predicate], VALUES)
    assert pushed.filter == expected
    assert pushed.rest == ()


LONG = constant(ListType(Scalar.I64), tuple(range(1001)))


@each_case(
    "predicate",
    [
        # Storage would narrow the value to the width of the items, or drop its fraction.
        case(field(ListType(Scalar.F32)), CompareOp.CONTAINS, constant(F64, 0.1)),
        case(field(ListType(Scalar.F64)), CompareOp.CONTAINS, constant(F64, 0.1)),
        case(field(ListType(Scalar.I64)), CompareOp.CONTAINS, constant(F64, 2.5)),
        # Null never matches, and the engine knows.
        case(field(S), CompareOp.STARTS_WITH, param(S, "null")),
        case(param(ListType(Scalar.I64), "null"), CompareOp.CONTAINS, field(I64)),
        # No value is known before the rows are.
        case(field(I64), CompareOp.EQ, field(I64, "y")),
        case(field(I64), CompareOp.EQ, PropertyRef("m", "x", PropertyType(I64))),
        case(EntityRef("n", "Paper"), CompareOp.EQ, EntityRef("m", "Paper")),
        case(constant(S, "abc"), CompareOp.STRING_CONTAINS, field(S)),
        case(constant(S, "abc"), CompareOp.STARTS_WITH, field(S)),
        case(field(ListType(Scalar.I64)), CompareOp.CONTAINS, field(I64, "y")),
        case(constant(I64, 1), CompareOp.EQ, constant(I64, 1)),
        case(LONG, CompareOp.CONTAINS, field(I64)),
        TextMatch(TextKind.SEARCH, field(S), constant(S, "word")),
    ],
)
def test_what_storage_would_judge_differently_or_not_at_all_stays(predicate: Expression) -> None:
    pushed = push_down([predicate], VALUES)
    assert pushed.filter is None
    assert pushed.rest == (predicate,)


def test_predicates_are_divided_and_the_rest_keeps_its_order() -> None:
    first = case(field(I64), CompareOp.GT, constant(I64, 1))
    second = case(field(S, "y"), CompareOp.EQ, constant(S, "a"))
    text = TextMatch(TextKind.SEARCH, field(S), constant(S, "word"))
    pair = case(field(I64), CompareOp.EQ, field(I64, "y"))
    pushed = push_down([text, first, pair, second], {})
    assert pushed.filter == AllOf((Compare("x", I64, ">", 1), Compare("y", S, "=", "a")))
    assert pushed.rest == (text, pair)
    assert push_down([], {}).filter is None


def test_a_list_of_a_thousand_still_goes_to_storage() -> None:
    listed = constant(ListType(Scalar.I64), tuple(range(1000)))
    pushed = push_down([case(listed, CompareOp.CONTAINS, field(I64))], {})
    assert isinstance(pushed.filter, AnyOf)
    assert len(pushed.filter.filters) == 1000
