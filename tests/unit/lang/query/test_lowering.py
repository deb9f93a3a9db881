from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.source import MAX_PATTERNS, SourceText
from omnigraph.errors import CompilerError
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries
from omnigraph.lang.query.syntax.printing import print_queries
from support.subtests import each_case, named_cases


def pipeline(clauses: str, reading, params: str = "") -> tuple[ir.Op, ...]:
    text = f"query q({params}) {{ match {{ {clauses} }} return {{ 1 as one }} }}"
    return compile_query(text, reading).ir.pipeline


@each_case(
    ("binding", "traversal", "source", "target", "direction", "type_"),
    [
        ("$p: Paper", "$p appearsAt $v", "p", "v", "out", "Venue"),
        ("$p: Paper", "$v appearsAt $p", "p", "v", "out", "Venue"),
        ("$v: Venue", "$p appearsAt $v", "v", "p", "in", "Paper"),
        ("$v: Venue", "$v appearsAt $p", "v", "p", "in", "Paper"),
        ("$p: Paper", "$p cites $q", "p", "q", "out", "Paper"),
        ("$p: Paper", "$q cites $p", "p", "q", "in", "Paper"),
        ("$p: Paper", "$p <cites> $q", "p", "q", "both", "Paper"),
        ("$p: Paper", "$q <cites> $p", "p", "q", "both", "Paper"),
        ("$a: Author", "$a wrote $p", "a", "p", "out", "Paper"),
        ("$p: Paper", "$a wrote $p", "p", "a", "in", "Author"),
        ("$p: Paper", "$p wrote $a", "p", "a", "in", "Author"),
    ],
)
def test_a_traversal_is_expanded_from_its_bound_end_also_inside_not(
    binding, traversal, source, target, direction, type_, reading
):
    _, plain = pipeline(f"{binding} {traversal}", reading)
    _, anti = pipeline(f"{binding} not {{ {traversal} }}", reading)

    for expand in (plain, *anti.pipeline):
        found = (expand.source, expand.target, str(expand.direction), expand.target_type)
        assert found == (source, target, direction, type_)


def test_a_single_variable_filter_rides_on_the_operator_that_introduces_it(reading):
    scan, expand = pipeline("$p: Paper $p $c:cites $q $q.year > 1 $c.weight > 0.5 $p.year > 2", reading)

    assert [item.left.variable for item in scan.filters] == ["p"]
    assert [item.left.variable for item in expand.filters] == ["q"]
    assert [item.left.variable for item in expand.edge_filters] == ["c"]


@named_cases(
    ("clauses", "look", "expected"),
    {
        "a filter on two variables runs on joined rows": (
            "$p: Paper $p cites $q $p.year > $q.year",
            lambda *ops: [type(op) for op in ops],
            [ir.NodeScan, ir.Expand, ir.Filter],
        ),
        "binding a variable twice is one scan with both conditions": (
            '$p: Paper { year: 2020 } $p: Paper { stage: "accepted" }',
            lambda scan: [item.left.property for item in scan.filters],
            ["year", "stage"],
        ),
        "anonymous ends are different hidden variables": (
            "$p: Paper $p cites $_ $p cites $_",
            lambda _, one, two: (one.target != two.target, one.target[0], two.target[0]),
            (True, "~", "~"),
        ),
        "a traversal without bound ends scans the source type": (
            "$p appearsAt $v",
            lambda scan, expand: (scan.variable, scan.node_type, expand.target),
            ("p", "Paper", "v"),
        ),
        "unconnected bindings are a cross product": (
            "$p: Paper $v: Venue",
            lambda *ops: [(type(op), op.variable) for op in ops],
            [(ir.NodeScan, "p"), (ir.NodeScan, "v")],
        ),
        "bounds ride on the expand": (
            "$p: Paper $p cites{2,4} $q",
            lambda _, expand: (expand.low, expand.high),
            (2, 4),
        ),
        "a list match means membership": (
            '$p: Paper { topics: "x" }',
            lambda scan: [item.op for item in scan.filters],
            [ir.CompareOp.CONTAINS],
        ),
        "text conditions are all kept": (
            '$p: Paper search($p.title, "a") search($p.title, "b") fuzzy($p.title, "c")',
            lambda scan: [str(item.kind) for item in scan.filters],
            ["search", "search", "fuzzy"],
        ),
        "a text condition on a traversed variable is kept": (
            '$p: Paper $p cites $q match_text($q.title, "a")',
            lambda _, expand: [str(item.kind) for item in expand.filters],
            ["match_text"],
        ),
        "a text condition over an outer variable inside not is kept": (
            '$p: Paper not { search($p.title, "a") }',
            lambda _, anti: type(anti.pipeline[0].predicate),
            ir.TextMatch,
        ),
        "fuzzy tolerates two edits unless told otherwise": (
            '$p: Paper fuzzy($p.title, "a") fuzzy($p.title, "a", 0)',
            lambda scan: [item.edits.value for item in scan.filters],
            [2, 0],
        ),
        "not does not change what is bound after it": (
            "$p: Paper not { $p cites $q } not { $p appearsAt $q }",
            lambda _, *ops: [op.pipeline[0].target_type for op in ops],
            ["Paper", "Venue"],
        ),
        "negations come after everything else": (
            "not { $p appearsAt $_ } $p: Paper $p cites $q $p.year > $q.year",
            lambda *ops: type(ops[-1]),
            ir.AntiJoin,
        ),
        "negations keep the order of the text": (
            "$p: Paper not { $p appearsAt $_ } not { $p cites $_ }",
            lambda _, *ops: [op.pipeline[0].edge_type for op in ops],
            ["AppearsAt", "Cites"],
        ),
        "now becomes the reserved parameter": (
            "$p: Paper { submitted: now() }",
            lambda scan: scan.filters[0].right,
            ir.ParamRef("__now", ir.INSTANT_TYPE),
        ),
    },
)
def test_the_operators_of_a_pattern(clauses, look, expected, reading):
    assert look(*pipeline(clauses, reading)) == expected


@named_cases(
    ("one", "two"),
    {
        "a condition inline and standing alone": (
            '$p: Paper { stage: "accepted" } $p cites $q',
            '$p: Paper $p.stage = "accepted" $p cites $q',
        ),
        "the clauses of a chain in any order": (
            '$p: Paper $p cites $q $q appearsAt $v $v.city = "x"',
            '$v.city = "x" $q appearsAt $v $p cites $q $p: Paper',
        ),
        "a variable bound twice with one type": ("$p: Paper $p: Paper", "$p: Paper"),
        "an anonymous edge binds nothing": ("$p: Paper $p $_:cites $q", "$p: Paper $p cites $q"),
    },
)
def test_two_spellings_have_one_plan(one, two, reading):
    assert pipeline(one, reading) == pipeline(two, reading)


def test_a_traversal_between_bound_ends_expands_to_a_hidden_variable(reading):
    *_, expand, check = pipeline("$p: Paper $p cites $q $q cites $p", reading)

    assert expand.target.startswith("~")
    assert check.predicate == ir.Comparison(
        ir.EntityRef(expand.target, "Paper"), ir.CompareOp.EQ, ir.EntityRef("p", "Paper")
    )


def test_a_pattern_of_many_traversals_compiles(reading):
    chain = " ".join(f"$p{i} cites $p{i + 1}" for i in range(MAX_PATTERNS - 1))

    ops = pipeline(f"$p0: Paper {chain}", reading)

    assert len(ops) == MAX_PATTERNS


GOLDEN = Path(__file__).parents[1] / "golden"


def fused(limit: int) -> str:
    ranking = "rrf(bm25($p.title, $x), bm25($p.abstract, $x))"
    return f"query q($x: String) {{ match {{ $p: Paper }} return {{ $p.title }} order {{ {ranking} }} limit {limit} }}"


def weighed(value: str) -> str:
    return f"query q($x: F64) {{ match {{ $a $c:cites $b  $c.weight = {value} }} return {{ $a }} }}"


@named_cases(
    ("text", "shown"),
    {
        "the depth of fusion is at least 50": (fused(10), "depth 50"),
        "the depth of fusion is five times the limit": (fused(11), "depth 55"),
        "the depth of fusion has no other bound": (fused(1000), "depth 5000"),
        "the default k of fusion": (fused(3), "k=60"),
        "values are spelled as literals of the language": (
            'query q() { match { $p: Paper { title: "a\\"\\n\\\\b" } } return { $p } }',
            '"a\\"\\n\\\\b"',
        ),
        "a float beside an F32": (weighed("0.1"), "$c.weight = 0.1"),
        "an integer beside an F32 is shown as it is compared": (weighed("16777217"), "$c.weight = 16777216"),
        "a parameter beside an F32": (weighed("$x"), "$c.weight = param(x)"),
        "an exact float beside an F32": (weighed("0.5"), "$c.weight = 0.5"),
    },
)
def test_a_plan_shows_what_is_done_and_ends_with_one_line_break(text, shown, reading):
    plan = explain_ir(compile_query(text, reading).ir)

    assert shown in plan
    assert plan == plan.rstrip("\n") + "\n"


FILES = [
    path
    for folder in ("plans", "query_errors")
    for path in sorted((GOLDEN / folder).glob("*.gq"))
    if not path.name.startswith("Q000-")
]


def parse(text: str):
    return parse_queries(SourceText(text, "test.gq"))


@each_case("path", FILES, ids=lambda path: path.stem)
def test_printing_and_parsing_gives_the_same_tree(path):
    tree = parse(path.read_text(encoding="utf-8"))

    assert parse(print_queries(tree)) == tree


def test_the_canonical_form_of_a_read():
    text = (
        'query q($a:I32,$b:[String]?,$v:Vector(8)) @description("x") {match{$p:Paper{year:$a,}$p $c:<cites>$q '
        '$q cites{1,3}$r not{$r appearsAt $_ $r.title="a\\"b"}search($p.title,"t")}return{$p.title as t $p '
        "count($q)} order{t desc,$p.year} limit 007}"
    )

    assert print_queries(parse(text)) == (
        'query q($a: I32, $b: [String]?, $v: Vector(8)) @description("x") {\n'
        "  match {\n"
        "    $p: Paper { year: $a }\n"
        "    $p $c:<cites> $q\n"
        "    $q cites{1,3} $r\n"
        '    not { $r appearsAt $_  $r.title = "a\\"b" }\n'
        '    search($p.title, "t")\n'
        "  }\n"
        "  return { $p.title as t, $p, count($q) }\n"
        "  order { t desc, $p.year }\n"
        "  limit 7\n"
        "}\n"
    )


def test_the_canonical_form_of_mutations():
    text = (
        "query q(){insert A{x:1 y:[1,2.50]}update A set{x:now()y:true}"
        'where x>=date("2024-05-01")delete B where from!="a"} query r() { delete A where x = 2 }'
    )

    assert print_queries(parse(text)) == (
        "query q() {\n"
        "  insert A { x: 1, y: [1, 2.50] }\n"
        '  update A set { x: now(), y: true } where x >= date("2024-05-01")\n'
        '  delete B where from != "a"\n'
        "}\n\n"
        "query r() {\n"
        "  delete A where x = 2\n"
        "}\n"
    )


@each_case("value", ['"', "\\", "\n", "\t", "\r", "ä漢🜁", "", "// /* */", "\\n"])
def test_every_string_survives_printing(value):
    assignment = ast.Assignment("x", ast.Literal_(value, ""))
    tree = ast.QueryFile((ast.Query("q", (), (), ast.MutationBody((ast.Insert("A", (assignment,)),))),))

    assert parse(print_queries(tree)) == tree


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
    query = compiled(projection, reading)

    (column,) = query.ir.projections
    (field,) = query.operation.result
    assert (column.name, field.name, str(column.type)) == (name, name, type_)


@each_case(
    ("call", "tail", "name"),
    [
        ("bm25($p.title, $t)", "order { bm25($p.title, $t) }", "p._score"),
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


@each_case(
    ("projections", "names"),
    [("$p.year, $p.title as a, count($p)", ["p.year", "a", "count"]), ("$p.title, $q.title", ["p.title", "q.title"])],
)
def test_the_columns_keep_the_order_of_the_text(projections, names, reading):
    assert [column.name for column in compiled(projections, reading).ir.projections] == names


@each_case(
    "projections",
    ["$p.title, $p.title", "$p.title as a, $p.year as a", "1, 2", "count($p), count($q)", "$p, $q as p",
     '$p.title as t, $t', "now(), 5 as now", '5, date("2024-05-01")'],
)  # fmt: skip
def test_q114_two_columns_never_share_a_name(projections, reading):
    with pytest.raises(CompilerError) as failure:
        compiled(projections, reading)

    assert failure.value.codes == ("Q114",)


@each_case(("projection", "grouped"), [("$p.title", False), ("count($p)", True), ("$p.title, count($p)", True)])
def test_one_aggregate_makes_the_query_grouped(projection, grouped, reading):
    assert compiled(projection, reading).ir.grouped is grouped


@each_case("key", ["literal", "t", "n"])
def test_an_order_key_names_a_column_by_a_plain_name(key, reading):
    (order,) = compiled('$p.title, $t, $n, "x"', reading, f"order {{ {key} }}").ir.order

    assert order.expression.name == key


@each_case(("key", "code"), [("p.title", "Q000"), ("title", "T6")])
def test_a_property_without_its_variable_is_not_an_order_key(key, code, reading):
    with pytest.raises(CompilerError) as failure:
        compiled('$p.title, $t, $n, "x"', reading, f"order {{ {key} }}")

    assert failure.value.codes == (code,)


@each_case(("direction", "descending"), [("", False), ("asc", False), ("desc", True)])
def test_an_order_key_is_ascending_unless_it_says_desc(direction, descending, reading):
    (key,) = compiled("$p.title", reading, f"order {{ $p.title {direction} }}").ir.order

    assert key.descending is descending
