from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.core.source import MAX_PATTERNS, SourceText
from omnigraph.errors import CompilerError
from omnigraph.lang.query import ir
from omnigraph.lang.query.ast import print_queries
from omnigraph.lang.query.compiler import compile_file, compile_query
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.compiler import compile_schema_file
from support.subtests import each_case


def pipeline(clauses: str, reading, params: str = "") -> tuple[ir.Op, ...]:
    text = f"query q({params}) {{ match {{ {clauses} }} return {{ 1 as one }} }}"
    return compile_query(text, reading).ir.pipeline


DIRECTIONS = [
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
]


@each_case(
    ("binding", "traversal", "source", "target", "direction", "type_"),
    DIRECTIONS,
    ids=[f"{item[0]} {item[1]}" for item in DIRECTIONS],
)
def test_a_traversal_is_expanded_from_its_bound_end(binding, traversal, source, target, direction, type_, reading):
    _, expand = pipeline(f"{binding} {traversal}", reading)

    assert (expand.source, expand.target, str(expand.direction), expand.target_type) == (
        source,
        target,
        direction,
        type_,
    )


@each_case(
    ("binding", "traversal", "source", "target", "direction", "type_"),
    DIRECTIONS,
    ids=[f"{item[0]} {item[1]}" for item in DIRECTIONS],
)
def test_a_traversal_inside_not_keeps_its_direction(binding, traversal, source, target, direction, type_, reading):
    _, anti = pipeline(f"{binding} not {{ {traversal} }}", reading)

    (expand,) = anti.pipeline
    assert (expand.source, expand.target, str(expand.direction), expand.target_type) == (
        source,
        target,
        direction,
        type_,
    )


def test_a_single_variable_filter_rides_on_the_operator_that_introduces_it(reading):
    scan, expand = pipeline("$p: Paper $p $c:cites $q $q.year > 1 $c.weight > 0.5 $p.year > 2", reading)

    assert [item.left.variable for item in scan.filters] == ["p"]
    assert [item.left.variable for item in expand.filters] == ["q"]
    assert [item.left.variable for item in expand.edge_filters] == ["c"]


def test_a_filter_on_two_variables_runs_on_joined_rows(reading):
    ops = pipeline("$p: Paper $p cites $q $p.year > $q.year", reading)

    assert [type(op) for op in ops] == [ir.NodeScan, ir.Expand, ir.Filter]


def test_inline_and_standalone_spellings_of_a_condition_agree(reading):
    inline = pipeline('$p: Paper { stage: "accepted" } $p cites $q', reading)
    standalone = pipeline('$p: Paper $p.stage = "accepted" $p cites $q', reading)

    assert inline == standalone


def test_the_order_of_clauses_does_not_change_the_plan_of_a_chain(reading):
    one = pipeline('$p: Paper $p cites $q $q appearsAt $v $v.city = "x"', reading)
    two = pipeline('$v.city = "x" $q appearsAt $v $p cites $q $p: Paper', reading)

    assert one == two


def test_binding_a_variable_twice_is_one_scan_with_both_conditions(reading):
    (scan,) = pipeline('$p: Paper { year: 2020 } $p: Paper { stage: "accepted" }', reading)

    assert [item.left.property for item in scan.filters] == ["year", "stage"]


def test_binding_a_variable_twice_with_one_type_is_the_same_as_once(reading):
    assert pipeline("$p: Paper $p: Paper", reading) == pipeline("$p: Paper", reading)


def test_a_traversal_between_bound_ends_expands_to_a_hidden_variable(reading):
    *_, expand, check = pipeline("$p: Paper $p cites $q $q cites $p", reading)

    assert expand.target.startswith("~")
    assert check.predicate == ir.Comparison(
        ir.EntityRef(expand.target, "Paper"), ir.CompareOp.EQ, ir.EntityRef("p", "Paper")
    )


def test_anonymous_ends_are_different_hidden_variables(reading):
    _, first, second = pipeline("$p: Paper $p cites $_ $p cites $_", reading)

    assert first.target != second.target
    assert first.target.startswith("~")


def test_an_anonymous_edge_binds_nothing(reading):
    assert pipeline("$p: Paper $p $_:cites $q", reading) == pipeline("$p: Paper $p cites $q", reading)


def test_a_traversal_without_bound_ends_scans_the_source_type(reading):
    scan, expand = pipeline("$p appearsAt $v", reading)

    assert (scan.variable, scan.node_type, expand.target) == ("p", "Paper", "v")


def test_unconnected_bindings_are_a_cross_product(reading):
    ops = pipeline("$p: Paper $v: Venue", reading)

    assert [(type(op), op.variable) for op in ops] == [(ir.NodeScan, "p"), (ir.NodeScan, "v")]


def test_bounds_ride_on_the_expand(reading):
    _, expand = pipeline("$p: Paper $p cites{2,4} $q", reading)

    assert (expand.low, expand.high) == (2, 4)


def test_a_list_match_means_membership(reading):
    (scan,) = pipeline('$p: Paper { topics: "x" }', reading)

    assert scan.filters[0].op is ir.CompareOp.CONTAINS


def test_text_conditions_are_all_kept(reading):
    (scan,) = pipeline('$p: Paper search($p.title, "a") search($p.title, "b") fuzzy($p.title, "c")', reading)

    assert [str(item.kind) for item in scan.filters] == ["search", "search", "fuzzy"]


def test_a_text_condition_on_a_traversed_variable_is_kept(reading):
    _, expand = pipeline('$p: Paper $p cites $q match_text($q.title, "a")', reading)

    assert str(expand.filters[0].kind) == "match_text"


def test_a_text_condition_over_an_outer_variable_inside_not_is_kept(reading):
    _, anti = pipeline('$p: Paper not { search($p.title, "a") }', reading)

    assert isinstance(anti.pipeline[0].predicate, ir.TextMatch)


def test_fuzzy_tolerates_two_edits_unless_told_otherwise(reading):
    (scan,) = pipeline('$p: Paper fuzzy($p.title, "a") fuzzy($p.title, "a", 0)', reading)

    assert [item.edits.value for item in scan.filters] == [2, 0]


def test_not_does_not_change_what_is_bound_after_it(reading):
    ops = pipeline("$p: Paper not { $p cites $q } not { $p appearsAt $q }", reading)

    assert [op.pipeline[0].target_type for op in ops[1:]] == ["Paper", "Venue"]


def test_negations_come_after_everything_else(reading):
    ops = pipeline("not { $p appearsAt $_ } $p: Paper $p cites $q $p.year > $q.year", reading)

    assert type(ops[-1]) is ir.AntiJoin


def test_negations_keep_the_order_of_the_text(reading):
    ops = pipeline("$p: Paper not { $p appearsAt $_ } not { $p cites $_ }", reading)

    assert [op.pipeline[0].edge_type for op in ops[1:]] == ["AppearsAt", "Cites"]


def test_now_becomes_the_reserved_parameter(reading):
    (scan,) = pipeline("$p: Paper { submitted: now() }", reading)

    assert scan.filters[0].right == ir.ParamRef("__now", ir.INSTANT_TYPE)


def test_a_pattern_of_many_traversals_compiles(reading):
    chain = " ".join(f"$p{i} cites $p{i + 1}" for i in range(MAX_PATTERNS - 1))

    ops = pipeline(f"$p0: Paper {chain}", reading)

    assert len(ops) == MAX_PATTERNS


GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = sorted((GOLDEN / "plans").glob("*.gq"))

PROGRAM = """
import sys
from pathlib import Path
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.schema.compiler import compile_schema_file
golden = Path(sys.argv[1])
catalog = compile_schema_file(golden / "reading.pg").catalog
for path in sorted((golden / "plans").glob("*.gq")):
    for query in compile_file(path.read_text(encoding="utf-8"), catalog):
        sys.stdout.write(explain_ir(query.ir))
"""


def explain_all(catalog) -> str:
    return "".join(
        explain_ir(query.ir) for path in PLANS for query in compile_file(path.read_text(encoding="utf-8"), catalog)
    )


@each_case("path", PLANS, ids=lambda path: path.stem)
def test_two_compilations_give_the_same_plan(path, reading):
    text = path.read_text(encoding="utf-8")
    fresh = compile_schema_file(GOLDEN / "reading.pg").catalog

    first = [explain_ir(query.ir) for query in compile_file(text, reading)]
    second = [explain_ir(query.ir) for query in compile_file(text, fresh)]

    assert first == second


def test_plans_do_not_depend_on_the_hash_seed_of_the_process(reading):
    def run(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(GOLDEN)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=120,
        ).stdout

    assert run("1") == run("2") == explain_all(reading)


def test_a_plan_names_the_depth_of_fusion(reading):
    def plan(limit: int) -> str:
        text = f"""
        query q($t: String) {{
          match {{ $p: Paper }}
          return {{ $p.title }}
          order {{ rrf(bm25($p.title, $t), bm25($p.abstract, $t)) }}
          limit {limit}
        }}
        """
        return explain_ir(compile_query(text, reading).ir)

    assert ["depth 50" in plan(10), "depth 55" in plan(11), "depth 5000" in plan(1000)] == [True] * 3


def test_the_default_k_of_fusion_is_60(reading):
    text = """
    query q($t: String) {
      match { $p: Paper } return { $p }
      order { rrf(bm25($p.title, $t), bm25($p.abstract, $t)) } limit 3
    }
    """

    assert "k=60" in explain_ir(compile_query(text, reading).ir)


def test_a_plan_ends_with_one_line_break(reading):
    plan = explain_ir(compile_query("query q() { match { $p: Paper } return { $p } }", reading).ir)

    assert plan.endswith("\n")
    assert not plan.endswith("\n\n")


def test_values_in_a_plan_are_spelled_as_literals_of_the_language(reading):
    text = 'query q() { match { $p: Paper { title: "a\\"\\n\\\\b" } } return { $p } }'

    assert '"a\\"\\n\\\\b"' in explain_ir(compile_query(text, reading).ir)


def test_two_queries_that_differ_have_different_plans(reading):
    one, two = (
        explain_ir(compile_query(f"query q() {{ match {{ $p: Paper $p {hop} $q }} return {{ $q }} }}", reading).ir)
        for hop in ("cites", "<cites>")
    )

    assert one != two


@each_case(("written", "shown"), [("0.1", "0.1"), ("16777217", "16777216"), ("$x", "param(x)"), ("0.5", "0.5")])
def test_a_number_beside_an_f32_is_shown_as_it_is_compared(reading, written, shown):
    text = f"query q($x: F64) {{ match {{ $a $c:cites $b  $c.weight = {written} }} return {{ $a }} }}"
    plan = explain_ir(compile_query(text, reading).ir)
    assert f"$c.weight = {shown}" in plan


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


@each_case("path", FILES, ids=lambda path: path.stem)
def test_printing_is_idempotent(path):
    printed = print_queries(parse(path.read_text(encoding="utf-8")))

    assert print_queries(parse(printed)) == printed


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
        "    not {\n"
        "      $r appearsAt $_\n"
        '      $r.title = "a\\"b"\n'
        "    }\n"
        '    search($p.title, "t")\n'
        "  }\n"
        "  return { $p.title as t, $p, count($q) }\n"
        "  order { t desc, $p.year }\n"
        "  limit 7\n"
        "}\n"
    )


def test_the_canonical_form_of_a_mutation():
    text = (
        "query q(){insert A{x:1 y:[1,2.50]}update A set{x:now()y:true}"
        'where x>=date("2024-05-01")delete B where from!="a"}'
    )

    assert print_queries(parse(text)) == (
        "query q() {\n"
        "  insert A { x: 1, y: [1, 2.50] }\n"
        '  update A set { x: now(), y: true } where x >= date("2024-05-01")\n'
        '  delete B where from != "a"\n'
        "}\n"
    )


def test_queries_are_separated_by_a_blank_line():
    text = "query a() { delete A where x = 1 } query b() { delete A where x = 2 }"

    assert "}\n\nquery b" in print_queries(parse(text))


@each_case("value", ['"', "\\", "\n", "\t", "\r", "ä漢🜁", "", "// /* */", "\\n"])
def test_every_string_survives_printing(value):
    from omnigraph.lang.query import ast

    literal = ast.Literal_(value, "")
    query = ast.Query("q", (), (), ast.MutationBody((ast.Insert("A", (ast.Assignment("x", literal),)),)))
    tree = ast.QueryFile((query,))

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
    ("projection", "grouped"), [("$p.title", False), ("count($p)", True), ("$p.title, count($p)", True)]
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
