"""Texts that are no programs: whatever comes in, only typed errors with a good place come out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.core.source import SourceText
from omnigraph.errors import CompilerError, Diagnostic, OmniError
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.describe.lint import lint_queries
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from support.examples import examples
from support.strategies import QUERY_TOKENS, SCHEMA_TOKENS, attempt, mutated_texts, token_soups
from support.subtests import each_case

GOLDEN = Path(__file__).parents[1] / "unit" / "lang" / "golden"
READING = compile_schema_file(GOLDEN / "reading.pg").catalog

GOOD_SCHEMAS = [
    (GOLDEN / "reading.pg").read_text(encoding="utf-8"),
    'interface I { x: String @embed(y) }\nnode N @rename_from("M") implements I { y: [F32]? }\n'
    'edge E: N -> N @card(0..3) @description("d\\n") { p: enum(a-b, 1c) @unique(src, p) }',
    'node A { x: I32 @key y: Vector(3)? @range(x, -1.5..) @check(z, "^a") z: String }',
]
GOOD_QUERIES = [
    """query hybrid($text: String, $v: Vector(8)) @description("d") {
  match { $p: Paper { stage: "accepted", year: 2020, }  $p $c:cites $q  $p <cites> $r
    $a wrote{1,3} $p  not { $q appearsAt $_  not { $q.year < 3 } }  $c.context contains "x%"
    search($p.title, $text)  $p.released >= date("2024-05-01")  $p.submitted < now() }
  return { $p.doi, $p.title as t, count($q) as n }
  order { n desc, t }
  limit 5
}""",
    """query ranked($v: Vector(8)?, $n: [String]) {
  match { $p: Paper }
  return { $p rrf(nearest($p.vec, $v), bm25($p.abstract, "a"), 60) as score, }
  order { rrf(nearest($p.vec, $v), bm25($p.abstract, "a"), 60) } limit 3 }""",
    """query write($doi: String, $w: F32?) {
  insert Paper { doi: $doi, title: "t" year: 2000 stage: "preprint" submitted: now() vec: [1, 2, 3, 4, 5, 6, 7, 8.5] }
  insert Cites { from: $doi, to: $doi, weight: $w }
  update Paper set { open: true } where year >= 1999
}
query drop() { delete Paper where doi = "x" delete Cites where from = "y" }""",
]

soups = st.text(max_size=60) | st.text("{}()[]<>$@:\"'/*\\\n \t#-.,=?aA0", max_size=60)


def _check_place(found: Diagnostic, text: str) -> None:
    lines = text.split("\n")
    assert found.message.strip()
    assert found.code.strip()
    assert 1 <= found.line <= len(lines)
    assert 1 <= found.column <= len(lines[found.line - 1]) + 1
    assert found.render().count("\n") <= 3


def _check_failure(failure: OmniError | None, text: str) -> None:
    if failure is not None:
        assert failure.message
    if isinstance(failure, CompilerError):
        for found in failure.diagnostics:
            _check_place(found, text)


def _compile_schema(text: str) -> None:
    _, failure = attempt(OmniError, compile_schema, text)
    _check_failure(failure, text)


def _compile_queries(text: str) -> None:
    _, failure = attempt(OmniError, compile_file, text, READING)
    _check_failure(failure, text)
    failed = failure is not None
    report = lint_queries(SourceText(text), READING, "reading.pg")
    assert bool(report.errors) is failed
    for result in report.results:
        for found in result.diagnostics:
            _check_place(found, text)
    for finding in report.findings:
        assert finding.message.strip()
        if finding.diagnostic is not None:
            _check_place(finding.diagnostic, text)
    assert report.to_json()["status"] == ("error" if failed else "ok")


@examples(100, thorough=250)
@given(token_soups(SCHEMA_TOKENS))
def test_schema_tokens_in_any_order_give_typed_errors_only(text) -> None:
    _compile_schema(text)


@examples(100, thorough=250)
@given(soups)
@example("")
@example("﻿node A {}")
@example("\x85node A {}")
@example("node A {} ")
def test_any_text_as_a_schema_gives_typed_errors_only(text) -> None:
    _compile_schema(text)


@examples(60, thorough=150)
@given(mutated_texts(GOOD_SCHEMAS))
def test_a_damaged_schema_gives_typed_errors_only(text) -> None:
    _compile_schema(text)


@examples(100, thorough=250)
@given(token_soups(QUERY_TOKENS))
def test_query_tokens_in_any_order_give_typed_errors_only(text) -> None:
    _compile_queries(text)


@examples(80, thorough=200)
@given(soups)
@example("")
@example("query q() { match { $p: Paper } return { $p } limit 9.}")
def test_any_text_as_a_query_gives_typed_errors_only(text) -> None:
    _compile_queries(text)


@examples(50, thorough=120)
@given(mutated_texts(GOOD_QUERIES))
def test_a_damaged_query_gives_typed_errors_only(text) -> None:
    _compile_queries(text)


_CLAUSES = st.lists(st.sampled_from(QUERY_TOKENS), max_size=12).map(" ".join)


@examples(80, thorough=200)
@given(_CLAUSES, _CLAUSES, _CLAUSES)
def test_soup_inside_the_braces_of_a_query_gives_typed_errors_only(match, result, order) -> None:
    _compile_queries(
        f"query q($x: I32) {{ match {{ $p: Paper {match} }} return {{ $p {result} }}"
        f" order {{ $p.year {order} }} limit 3 }}"
    )


_EXPRESSIONS = st.recursive(
    st.sampled_from(
        [
            *("$p", "$q", "$e", "$_", "$x", "$v", "$p.year", "$p.vec", "$p.scan", "$p.title", "$p.topics"),
            *("$e.weight", "$e.proof", "$x.a", "nope", "1", "2.5", "true", '"a"', "[]", "[1]", '["a",1]', "[[1]]"),
            *("[now()]", "n"),
        ]
    ),
    lambda inner: st.builds(
        lambda name, parts: f"{name}({', '.join(parts)})",
        st.sampled_from(
            [
                *("now", "date", "datetime", "count", "sum", "avg", "min", "max", "search", "fuzzy", "match_text"),
                *("nearest", "bm25", "rrf", "f"),
            ]
        ),
        st.lists(inner, max_size=3),
    ),
    max_leaves=4,
)


@examples(120, thorough=300)
@given(
    st.lists(_EXPRESSIONS, min_size=2, max_size=6),
    st.sampled_from(["=", "!=", "<", "contains", "starts_with"]),
    st.sampled_from(["", " limit 0", " limit 5"]),
)
def test_any_expression_anywhere_gives_typed_errors_only(parts, operator, limit) -> None:
    first, second, *rest = parts
    condition = rest[0] if rest and rest[0].endswith(")") else "search($p.title, $x)"
    columns = ", ".join(rest) or "$p"
    _compile_queries(
        f"query q($x: String, $v: Vector(8)) {{ match {{ $p: Paper $p $e:cites $q"
        f" {first} {operator} {second} {condition} not {{ {second} = {first} }} }}"
        f" return {{ {columns}, {first} as n }} order {{ {second}, {first} desc, n }}{limit} }}"
    )


_VALUES = st.sampled_from(
    [
        *("1", "0", "2.5", "99999999999999999999", "true", '"a"', '"accepted"', '"2024-05-01"', "[]", "[1]"),
        *('["a"]', "[true,1]", "[[1]]", "$x", "$y", "$z", "now()", "now(1)", 'date("2024-05-01")', 'date("x")'),
        *('datetime("2024-05-01T00:00:00Z")', '[date("2024-05-01")]', "[1,2,3,4,5,6,7,8]", "f()", "count($x)"),
    ]
)
_COLUMNS = st.sampled_from(
    [
        *("doi", "title", "abstract", "year", "pages", "score", "open", "stage", "topics", "counts", "released"),
        *("submitted", "scan", "vec", "from", "to", "position", "context", "weight", "proof", "nope", "id", "src"),
    ]
)
_TYPES = st.sampled_from(["Paper", "Venue", "Author", "Wrote", "Cites", "AppearsAt", "Titled", "Nope"])
_ASSIGNS = st.lists(st.builds("{}: {}".format, _COLUMNS, _VALUES), min_size=1, max_size=4).map(" ".join)
_WHERES = st.builds("{} {} {}".format, _COLUMNS, st.sampled_from(["=", "<", "!="]), _VALUES)
_STATEMENTS = st.one_of(
    st.builds("insert {} {{ {} }}".format, _TYPES, _ASSIGNS),
    st.builds("update {} set {{ {} }} where {}".format, _TYPES, _ASSIGNS, _WHERES),
    st.builds("delete {} where {}".format, _TYPES, _WHERES),
)


@examples(120, thorough=300)
@given(st.lists(_STATEMENTS, min_size=1, max_size=3))
def test_any_mutation_gives_typed_errors_only(statements) -> None:
    _compile_queries(f"query q($x: String, $y: I32?) {{ {' '.join(statements)} }}")


_MARKS = st.sampled_from(
    [
        *("@key", "@unique", "@index", "@embed", "@embed(a)", '@embed("a",model="m")', "@embed(1)"),
        *('@description("d")', "@description", '@instruction("i")', '@rename_from("a")', "@rename_from", "@x"),
        *("@x(1)", '@y("a")', "@z(1,k=2)", "@x(a,b)", "@unique(a)", "@key(a,b)", "@index(a,a)", "@range(a,0..1)"),
        *("@range(b,2..1)", '@check(a,"[")', '@check(b,"a")', "@card(0..1)", "@unique(src,dst)", "@key(1)"),
    ]
)
_TYPE_TEXTS = st.sampled_from(
    [
        *("String", "String?", "I32", "F64?", "Bool", "Date", "Blob", "Blob?", "[String]", "[Blob]", "[I32]?"),
        *("enum(a,b)", "enum(a,a)", "Vector(3)", "Vector(0)", "Vector(9999999999)?", "Nope", "nope"),
    ]
)
_PROPERTIES = st.builds(
    lambda name, type_, marks: f"{name}: {type_} {' '.join(marks)}",
    st.sampled_from(["a", "b", "c", "id", "src", "_rowid"]),
    _TYPE_TEXTS,
    st.lists(_MARKS, max_size=2),
)
_BODIES = st.lists(_PROPERTIES, max_size=3).map("\n  ".join)
_HEADS = st.lists(_MARKS, max_size=1).map(" ".join)


@examples(120, thorough=300)
@given(
    st.lists(
        st.one_of(
            st.builds("interface {} {{ {} }}".format, st.sampled_from("IJ"), _BODIES),
            st.builds(
                "node {} {} {} {{ {} }}".format,
                st.sampled_from("MN"),
                _HEADS,
                st.sampled_from(["", "implements I", "implements I, J", "implements J, Z"]),
                _BODIES,
            ),
            st.builds(
                "edge {}: {} -> {} {} {{ {} }}".format,
                st.sampled_from(["E", "e".upper() + "x", "EX"]),
                st.sampled_from("MNIZ"),
                st.sampled_from("MN"),
                _HEADS,
                _BODIES,
            ),
        ),
        max_size=5,
    ).map("\n".join)
)
def test_any_combination_of_declarations_gives_typed_errors_only(text) -> None:
    _compile_schema(text)


def test_interfaces_that_repeat_an_annotation_with_values_of_several_types_are_compared() -> None:
    body = '{ x: String @mark(1) @mark("a") }'
    schema = compile_schema(f"interface I {body} interface J {body} node N implements I, J {{}}")
    assert schema.catalog.nodes["N"].properties["x"].injected


@each_case(
    "text",
    [
        'node A @description("\ud800") {}',
        'node A { x: String @check(x, "\udfff") }',
        'node A { x: String @ui("\ud83d") }',
        "node A { x: String } // \ud800",
    ],
)
def test_a_lone_surrogate_in_a_schema_gives_a_typed_error_or_nothing(text) -> None:
    _compile_schema(text)


def test_a_lone_surrogate_in_a_query_string_is_a_typed_error() -> None:
    text = 'query q() { match { $p: Paper { title: "\ud800" } } return { $p } }'
    with pytest.raises(CompilerError):
        compile_file(text, READING)
