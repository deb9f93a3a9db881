from __future__ import annotations

import pytest

from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import compile_query
from support.subtests import each_case

PARAMS = "$v: Vector(8), $t: String, $n: I32?"

COLUMNS = [
    ("$p.title", "p.title", "String"),
    ("$p.title as name", "name", "String"),
    ("$p.abstract", "p.abstract", "String?"),
    ("$p.year", "p.year", "I32"),
    ("$p.pages", "p.pages", "U32?"),
    ("$p.score", "p.score", "F64?"),
    ("$p.open", "p.open", "Bool?"),
    ("$p.stage", "p.stage", "enum(accepted, preprint, retracted)"),
    ("$p.topics", "p.topics", "[String]?"),
    ("$p.released", "p.released", "Date?"),
    ("$p.submitted", "p.submitted", "DateTime?"),
    ("$p.vec", "p.vec", "Vector(8)?"),
    ("$c.weight", "c.weight", "F32?"),
    ("$p", "p", "String"),
    ("$p as node", "node", "String"),
    ("$t", "t", "String"),
    ("$n", "n", "I32?"),
    ("$v", "v", "Vector(8)"),
    ("now()", "now", "DateTime"),
    ("5", "literal", "I64"),
    ("2.5", "literal", "F64"),
    ("true", "literal", "Bool"),
    ('"x"', "literal", "String"),
    ('["x"]', "literal", "[String]"),
    ("[]", "literal", "[String]"),
    ("[1, 2]", "literal", "[I64]"),
    ("[1.5]", "literal", "[F64]"),
    ('date("2024-05-01")', "literal", "Date"),
    ('datetime("2024-05-01T00:00:00Z")', "literal", "DateTime"),
    ("count($p)", "count", "I64"),
    ("count($p.abstract)", "count", "I64"),
    ("count($c.context)", "count", "I64"),
    ("sum($p.year)", "sum", "F64?"),
    ("sum($p.score)", "sum", "F64?"),
    ("avg($p.pages)", "avg", "F64?"),
    ("min($p.year)", "min", "I32?"),
    ("max($c.weight)", "max", "F32?"),
    ("min($p.title)", "min", "String?"),
    ("max($p.stage)", "max", "enum(accepted, preprint, retracted)?"),
    ("count($p) as n", "n", "I64"),
]


def compiled(projection: str, reading, tail: str = ""):
    text = f"query q({PARAMS}) {{ match {{ $p: Paper  $p $c:cites $q }} return {{ {projection} }} {tail} }}"
    return compile_query(text, reading)


@each_case(("projection", "name", "type_"), COLUMNS, ids=[item[0] for item in COLUMNS])
def test_a_column_has_the_name_and_type_of_its_expression(projection, name, type_, reading):
    (column,) = compiled(projection, reading).ir.projections

    assert (column.name, str(column.type)) == (name, type_)


@each_case(("projection", "name", "type_"), COLUMNS, ids=[item[0] for item in COLUMNS])
def test_the_descriptor_names_the_column_as_the_result_does(projection, name, type_, reading):
    (field,) = compiled(projection, reading).operation.result

    assert field.name == name


@each_case(
    ("call", "tail", "name"),
    [
        ("bm25($p.title, $t)", "order { bm25($p.title, $t) }", "bm25"),
        ("bm25($p.title, $t) as score", "order { score desc }", "score"),
        ("nearest($p.vec, $v) as d", "order { d } limit 3", "d"),
        ("nearest($p.vec, $v) as d", "order { d asc } limit 3", "d"),
        (
            "rrf(nearest($p.vec, $v), bm25($p.title, $t)) as f",
            "order { rrf(nearest($p.vec, $v), bm25($p.title, $t)) } limit 3",
            "f",
        ),
    ],
)
def test_a_projected_ranking_is_a_score(call, tail, name, reading):
    (column,) = compiled(call, reading, tail).ir.projections

    assert (column.name, str(column.type)) == (name, "F64")


def test_the_columns_keep_the_order_of_the_text(reading):
    query = compiled("$p.year, $p.title as a, count($p)", reading)

    assert [column.name for column in query.ir.projections] == ["p.year", "a", "count"]


@each_case(
    "projections",
    ["$p.title, $p.title", "$p.title as a, $p.year as a", "1, 2", "count($p), count($q)", "$p, $q as p",
     '$p.title as t, $t', "now(), 5 as now", '5, date("2024-05-01")'],
)  # fmt: skip
def test_q114_two_columns_never_share_a_name(projections, reading):
    with pytest.raises(CompilerError) as failure:
        compiled(projections, reading)

    assert failure.value.codes == ("Q114",)


def test_q114_equal_property_names_of_two_variables_are_two_columns(reading):
    query = compiled("$p.title, $q.title", reading)

    assert [column.name for column in query.ir.projections] == ["p.title", "q.title"]


@pytest.mark.parametrize(
    ("projection", "grouped"),
    [("$p.title", False), ("count($p)", True), ("$p.title, count($p)", True)],
)
def test_one_aggregate_makes_the_query_grouped(projection, grouped, reading):
    assert compiled(projection, reading).ir.grouped is grouped


@each_case("key", ["literal", "t", "n", "p.title"])
def test_an_order_key_names_a_column_by_a_plain_name(key, reading):
    text = '$p.title, $t, $n, "x"'
    if key == "p.title":
        with pytest.raises(CompilerError):
            compiled(text, reading, f"order {{ {key} }}")
        return

    (order,) = compiled(text, reading, f"order {{ {key} }}").ir.order

    assert order.expression.name == key


def test_t6_a_property_name_alone_is_no_column(reading):
    with pytest.raises(CompilerError) as failure:
        compiled("$p.title", reading, "order { title }")

    assert failure.value.codes == ("T6",)


@pytest.mark.parametrize(("direction", "descending"), [("", False), ("asc", False), ("desc", True)])
def test_an_order_key_is_ascending_unless_it_says_desc(direction, descending, reading):
    (key,) = compiled("$p.title", reading, f"order {{ $p.title {direction} }}").ir.order

    assert key.descending is descending
