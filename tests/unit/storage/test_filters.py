"""What filters match: by exact value, never null, and alike on disk and in memory."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.core.arrow import arrow_type
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.storage.datasets.filters import (
    AllOf,
    AnyOf,
    Compare,
    Filter,
    IsNull,
    OneOf,
    quote_name,
    to_sql,
)
from omnigraph.storage.datasets.reads import scan_with_pending, select_rows
from omnigraph.storage.datasets.staged import commit_staged, create_table, stage_append
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from support.subtests import each_case

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS: list[int | float] = [
    *(-(2**63), -(2**53) - 1, -(2**31) - 1, -(2**31), -3, -1, 0, 1, 2, 3, 16777217),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1),
    *(-1e300, -2.5, -0.5, -0.0, 0.0, 0.1, 0.10000000149011612, 2.0, 2.7, 2.0**31, 2.0**53),
    *(2.0**63, 2.0**64, 1e300, 1e-300, 5e-324, 3.5e38, 1e-45, 1e-7, 1e16),
]
TEXTS = ["", "a", "A", "it's", "''", "`", "``", '"', "\\", "\\'", "' OR 1=1 --", "\n", "\x00", "🦉"]
TEXTS += ["e\u0301", "\u00e9", "%", "_", "null", "x" * 70_000]
STORED: dict[Scalar, list[Any]] = {
    Scalar.STRING: TEXTS,
    Scalar.BOOL: [True, False],
    Scalar.I32: [-(2**31), -3, -1, 0, 2, 3, 2**31 - 1],
    Scalar.I64: [-(2**63), -(2**53) - 1, -1, 0, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [0, 2, 3, 2**32 - 1],
    Scalar.U64: [0, 2, 3, 2**53 + 1, 2**63 - 1, 2**64 - 1],
    Scalar.F32: [-1.5, -0.0, 0.0, 0.10000000149011612, 0.5, 2.0, 16777216.0, 3.4028234663852886e38],
    Scalar.F64: [-1.5, -0.0, 0.0, 0.1, 0.10000000149011612, 2.0, 2.0**53, 1e300, 5e-324],
    Scalar.DATE: [-719162, -1, 0, 18321, 2932896],
    Scalar.DATETIME: [-62135596800000, -1, 0, 1582977600001, 253402300799999],
}
ASKED: dict[Scalar, list[Any]] = {
    scalar: NUMBERS if scalar.value[0] in "IUF" else values for scalar, values in STORED.items()
}


def exact(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bool) else Fraction(value)


def rows_of(scalar: Scalar) -> pa.Table:
    type_ = arrow_type(ScalarType(scalar))
    raw = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(scalar, type_)
    values = pa.array([*STORED[scalar], None], raw).cast(type_)
    names = [str(number) for number in range(len(values))]
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("camelCase", type_)])
    return pa.table([pa.array(names), values], schema=schema)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[Scalar, Table]:
    location = parse_location(tmp_path_factory.mktemp("filters"))
    found = {}
    for scalar in STORED:
        rows = rows_of(scalar)
        empty = create_table(location, str(scalar), rows.schema)
        found[scalar] = commit_staged(stage_append(empty, rows))
    return found


@each_case("op", OPERATORS)
@each_case("scalar", STORED)
def test_a_comparison_matches_by_exact_value(
    tables: dict[Scalar, Table], scalar: Scalar, op: str
) -> None:
    wrong: dict[str, Any] = {}
    for value in ASKED[scalar]:
        wanted = {
            str(number)
            for number, held in enumerate(STORED[scalar])
            if OPERATORS[op](exact(held), exact(value))
        }
        filter_ = Compare("camelCase", ScalarType(scalar), op, value)
        try:
            found: Any = set(tables[scalar].read(["id"], filter_)["id"].to_pylist())
        except Exception as error:  # noqa: BLE001  # every value is tried, the report names all of them
            found = str(error)[:80]
        if found != wanted:
            wrong[repr(value)] = (found, wanted)
    assert wrong == {}


@each_case("op", OPERATORS)
@each_case("scalar", STORED)
def test_memory_and_disk_filter_alike(tables: dict[Scalar, Table], scalar: Scalar, op: str) -> None:
    rows = rows_of(scalar)
    for value in [STORED[scalar][-1], STORED[scalar][0 if scalar is not Scalar.I64 else 1], None]:
        filter_ = Compare("camelCase", ScalarType(scalar), op, value)
        disk = tables[scalar].read(["id"], filter_)["id"].to_pylist()
        assert select_rows(rows, filter_)["id"].to_pylist() == disk
        assert tables[scalar].count_rows(filter_) == len(disk)
        if value is None:
            assert disk == []


S, I32 = ScalarType(Scalar.STRING), ScalarType(Scalar.I32)


@each_case(
    ("filter_", "sql"),
    [
        (Compare("a", S, "=", "it's"), "`a` = 'it''s'"),
        (Compare("a`b", S, "!=", ""), "`a``b` != ''"),
        (Compare("a", S, "=", None), "false"),
        (Compare("a", I32, "=", 2.5), "false"),
        (Compare("a", I32, "!=", 2.5), "`a` IS NOT NULL"),
        (Compare("a", I32, "<", 2.5), "`a` <= 2"),
        (Compare("a", I32, ">=", 2.5), "`a` >= 3"),
        (Compare("a", I32, "<", 2**40), "`a` IS NOT NULL"),
        (Compare("a", I32, ">", 2**40), "false"),
        (Compare("a", I32, "=", -(2**40)), "false"),
        (Compare("a", I32, ">=", -(2**40)), "`a` IS NOT NULL"),
        (Compare("a", ScalarType(Scalar.F32), "=", 0.1), "cast(`a` as double) = 0.1"),
        (Compare("a", ScalarType(Scalar.BOOL), "=", True), "`a` = true"),
        (OneOf("a", []), "false"),
        (OneOf("a", ["x", "y'"]), "`a` IN ('x', 'y''')"),
        (AnyOf(()), "false"),
        (AllOf(()), "true"),
        (IsNull("a"), "`a` IS NULL"),
        (AllOf((IsNull("a"), AnyOf((IsNull("b"),)))), "(`a` IS NULL AND `b` IS NULL)"),
    ],
)
def test_a_filter_is_spelled_for_lance(filter_: Filter, sql: str) -> None:
    assert to_sql(filter_) == sql


def test_an_unknown_operator_is_refused() -> None:
    for op in ("==", "; --", "LIKE", ""):
        with pytest.raises(ValueError, match="not a comparison"):
            Compare("a", S, op, "x")
    assert quote_name("a`; drop") == "`a``; drop`"


@pytest.mark.parametrize("size", [100, 8192])
def test_a_filter_over_many_values_is_evaluated(tables: dict[Scalar, Table], size: int) -> None:
    base = ScalarType(Scalar.I64)
    numbers = range(2, size + 2)
    filter_ = AnyOf(tuple(Compare("camelCase", base, "=", number) for number in numbers))
    table = tables[Scalar.I64]
    assert set(table.read(["id"], filter_)["id"].to_pylist()) == {"4", "5"}
    assert table.count_rows(OneOf("id", [str(number) for number in numbers])) == 8


def test_a_pending_row_shadows_the_committed_one(tables: dict[Scalar, Table]) -> None:
    table = tables[Scalar.I32]
    stored = rows_of(Scalar.I32)
    column = stored.schema.names[1]
    pending = pa.table(
        {"id": ["3", "new"], column: pa.array([2, 0], pa.int32())}, schema=stored.schema
    )
    found = scan_with_pending(table, pending, Compare(column, I32, "=", 2))
    assert sorted(found["id"].to_pylist()) == ["3", "4"]
    none = scan_with_pending(table, pending, Compare(column, I32, "=", 0))
    assert none["id"].to_pylist() == ["new"], "the committed 0 of row 3 is shadowed"
