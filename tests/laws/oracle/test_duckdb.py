"""Expressions and aggregates over one table, here and in DuckDB, where both mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from omnigraph import Graph
from support.oracle.engines import IndexState, Workshop
from support.oracle.graphs import World, build, thing
from support.subtests import each_case

WORDS = ("Abc", "a,b", "", "zoë", "a b c", "ABC")
WORLD: World = build(
    [
        thing(
            number,
            small=(number * 7) % 11 - 5,
            wide=None if number % 5 == 0 else number * 1_000_003,
            weight=number * 0.37 - 2,
            title=WORDS[number % 6],
            fragile=number % 3 == 0,
            made=date(2024, 1 + number % 12, 1 + number),
        )
        for number in range(1, 25)
    ]
)
COLUMNS = {
    "number": pa.int64(),
    "small": pa.int32(),
    "wide": pa.int64(),
    "weight": pa.float64(),
    "title": pa.utf8(),
    "fragile": pa.bool_(),
    "made": pa.date32(),
}

#: What is written here with `$t.` before every column, and what DuckDB calls it where that differs.
VALUES: dict[str, str | None] = {
    "{small} + {wide} * 2 - 1": None,
    "{small} % 3": None,
    "-{small}": None,
    "{small} / 4": None,
    "{wide} / {small}": "{wide} / nullif({small}, 0)",
    "div({number}, 5)": "{number} // 5",
    "{weight} * {small} + 0.5": None,
    "abs({weight})": None,
    "floor({weight})": None,
    "ceil({weight})": None,
    "round({weight})": None,
    "round({small})": None,
    "sqrt({number})": None,
    "coalesce({wide}, {small}, 0)": None,
    "least({small}, 2, {number})": None,
    "greatest({weight}, 1.5)": None,
    "case when {small} > 0 then 1 when {wide} is null then 2 else 3 end": None,
    "case when {fragile} then {wide} end": None,
    "{small} > 0 and {wide} > 5000000 or {fragile}": None,
    "not ({wide} > 5000000)": None,
    "{wide} is not null": None,
    "{small} in [1, 2, 3]": "{small} in (1, 2, 3)",
    "{wide} not in [1000003, 7]": "{wide} not in (1000003, 7)",
    "length({title})": None,
    'concat(lower({title}), "-", upper({title}))': "lower({title}) || '-' || upper({title})",
    "substring({title}, 2, 2)": None,
    'replace({title}, "b", "xx")': "replace({title}, 'b', 'xx')",
    'size(split({title}, ","))': "len(string_split({title}, ','))",
    'contains({title}, "b")': "contains({title}, 'b')",
    '{title} starts_with "a"': "starts_with({title}, 'a')",
    'matches({title}, "^[A-Z]")': "regexp_matches({title}, '^[A-Z]')",
    "year({made}) * 100 + month({made}) + day({made})": None,
    'truncate({made}, "week")': "date_trunc('week', {made})::date",
    'truncate({made}, "month")': "date_trunc('month', {made})::date",
    "add_days({made}, {small})": "({made} + {small})::date",
    "add_months({made}, 1)": "({made} + interval 1 month)::date",
    'days_between({made}, date("2024-07-01"))': "datediff('day', {made}, date '2024-07-01')",
    "string({number})": "{number}::varchar",
    "i64({weight})": "trunc({weight})::bigint",
}
AGGREGATES: dict[str, str | None] = {
    "count(*)": None,
    "count({wide})": None,
    "count(distinct {small})": None,
    "sum({wide})": "sum({wide})::double",
    "avg({weight})": None,
    "min({title})": None,
    "max({made})": None,
    "stddev({weight})": "stddev_samp({weight})",
    "median({small})": None,
    "sum({weight}) / count({weight})": None,
    "collect({small})": "list({small} order by {small})",
    "collect(distinct {small})": "list(distinct {small} order by {small})",
}


@pytest.fixture(scope="module")
def graph(workshop: Workshop) -> Iterator[Graph]:
    with Graph.open(workshop.store(WORLD, IndexState.NONE), read_only=True) as graph:
        yield graph


def in_duckdb(query: str) -> list[list[Any]]:
    columns = {name: pa.array([row[name] for row in WORLD["Thing"]], type_) for name, type_ in COLUMNS.items()}
    with duckdb.connect() as connection:
        connection.register("things", pa.table(columns))
        return [list(row) for row in connection.execute(query).fetchall()]


def both(expressions: dict[str, str | None], written: str) -> tuple[str, str]:
    plain, ours = ({name: form.format(name) for name in COLUMNS} for form in ("{}", "$t.{}"))
    return written.format(**ours), (expressions[written] or written).format(**plain)


def almost(rows: list[list[Any]]) -> list[list[Any]]:
    return [[pytest.approx(cell, rel=1e-9) if isinstance(cell, float) else cell for cell in row] for row in rows]


@each_case("written", VALUES)
def test_an_expression_has_the_value_that_it_has_in_duckdb(graph: Graph, written: str) -> None:
    ours, theirs = both(VALUES, written)
    found = graph.query(
        f"query q() {{ match {{ $t: Thing }} return {{ $t.number, ({ours}) as value }} order {{ $t.number }} }}"
    )
    rows = [list(row.values()) for row in found.to_pylist()]
    assert rows == almost(in_duckdb(f"select number, {theirs} from things order by number"))


@each_case("written", AGGREGATES)
def test_an_aggregate_has_the_value_that_it_has_in_duckdb(graph: Graph, written: str) -> None:
    ours, theirs = both(AGGREGATES, written)
    found = graph.query(
        f"query q() {{ match {{ $t: Thing }} return {{ $t.fragile, ({ours}) as value }} order {{ $t.fragile }} }}"
    )
    rows = [list(row.values()) for row in found.to_pylist()]
    assert rows == almost(in_duckdb(f"select fragile, {theirs} from things group by fragile order by fragile"))
