"""A text that is one query without a name: what it means, and the types of its parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.core.parameters import check_params
from omnigraph.core.source import UNNAMED, SourceText
from omnigraph.errors import BadRequestError, CompilerError, MixedMutationError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.syntax.parser import parse_queries_all
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

CATALOG = compile_schema("""
node Person {
    name: String @key
    age: I32?
    size: I64?
    stage: enum(draft, final)?
    tags: [String]?
    years: [I32]?
    bio: String? @index
    like: Vector(2)? @index
    born: Date?
    scan: Blob?
}
edge Knows: Person -> Person { since: DateTime? }
""").catalog


@each_case(
    ("text", "params"),
    [
        ("match { $p: Person } return { $p.name }", ""),
        (
            "match { $p: Person { name: $n, stage: $s, tags: $t } } return { $p.name }",
            "$n: String, $s: String, $t: String",
        ),
        ("match { $p: Person  $p.age > $low  $high > $p.age } return { $p.name }", "$low: I32, $high: I32"),
        ("match { $p: Person  $p.years contains $y } return { $p.name }", "$y: I32"),
        ("match { $p: Person  $p knows $q  $q.born = $b } return { $p.name }", "$b: Date"),
        ("match { $p: Person  $p $e:knows $q  $e.since < $at } return { $p.name }", "$at: DateTime"),
        ("match { $p: Person  not { $p knows $q  $q.age = $a } } return { $p.name, $a }", "$a: I32"),
        ("match { $p: Person  fuzzy($p.bio, $t, $k) } return { $p.name }", "$t: String, $k: I64"),
        (
            "match { $p: Person } return { $p } order { rrf(bm25($p.bio, $t), nearest($p.like, [1, 2]), $k) } limit 3",
            "$t: String, $k: I64",
        ),
        ("match { $p: Person  $p.age = $a  $p.age < $a } return { $p.name }", "$a: I32"),
        (
            "insert Person { name: $n, tags: $t, like: $v, scan: $s, stage: $e }",
            "$n: String, $t: [String], $v: Vector(2), $s: Blob, $e: String",
        ),
        ("update Person set { age: $a } where name = $n", "$a: I32, $n: String"),
        ("insert Knows { from: $a, to: $b, since: $at }", "$a: String, $b: String, $at: DateTime"),
        ("delete Knows where to = $b", "$b: String"),
    ],
)
def test_a_text_without_a_name_is_the_query_with_the_parameters_that_its_properties_need(
    text: str, params: str
) -> None:
    bare = compile_query(text, CATALOG)
    declared = compile_query(f"query q({params}) {{ {text} }}", CATALOG)
    assert bare.ir == replace(declared.ir, name=UNNAMED)
    assert bare.operation == declared.operation


_DECLARE = "declare it, as in `query name($x: {}) {{ … }}`"


@each_case(
    ("text", "code", "hint"),
    [
        (
            "match { $p: Person  $p.age = $x  $p.size = $x } return { $p.name }",
            "Q107",
            f"it is used as I32 and as I64: {_DECLARE.format('I32')}",
        ),
        ("insert Person { name: $x, age: $x }", "T14", f"it is used as I32 and as String: {_DECLARE.format('I32')}"),
        ("match { $p: Person } return { $x }", "Q107", f"its use does not say its type: {_DECLARE.format('Type')}"),
        (
            "match { $p: Person } return { $p.name } order { nearest($p.like, $x) } limit 3",
            "Q107",
            f"its use does not say its type: {_DECLARE.format('Type')}",
        ),
        ("match { $person: Person } return { $persn }", "Q107", "did you mean `$person`?"),
        ("match { $p: Person  $q.age = $p.age } return { $p.name }", "T6", "known here: `$p`"),
        ("match { $p: Person { name: $p } } return { $p.name }", "T14", "declare it: `query name($x: Type)`"),
    ],
)
def test_a_variable_whose_type_does_not_follow_is_told_how_to_declare_it(text: str, code: str, hint: str) -> None:
    with pytest.raises(CompilerError) as caught:
        compile_query(text, CATALOG)
    found = caught.value.diagnostics[0]
    assert (found.code, found.hint) == (code, hint)
    assert found.column == text.index("$q" if "$q" in text else "$x" if "$x" in text else text[found.column - 1 :]) + 1


@each_case(
    "text",
    [
        "match { $p: Person } return { $p.name } match { $p: Person } return { $p.name }",
        'query q() { match { $p: Person } return { $p.name } } insert Person { name: "a" }',
        'insert Person { name: "a" } query q() { match { $p: Person } return { $p.name } }',
    ],
)
def test_a_text_without_a_name_is_one_query_alone(text: str) -> None:
    with pytest.raises(CompilerError, match="Q000"):
        compile_query(text, CATALOG)


def test_statements_of_a_text_either_write_or_delete() -> None:
    with pytest.raises(MixedMutationError):
        compile_query('insert Person { name: "a" } delete Person where name = "b"', CATALOG)


def test_what_is_not_a_text_or_has_odd_names_is_refused() -> None:
    for source in (None, 3, ["match"]):
        with pytest.raises(BadRequestError, match="a query is a text, not "):
            compile_query(source, CATALOG)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(BadRequestError, match="the names of params are texts, not int: 1"):
        check_params({1: 2})


def test_a_stored_query_has_a_name() -> None:
    tree, findings = parse_queries_all(SourceText("\n  match { $p: Person } return { $p.name }", "people.gq"))
    assert tree.queries == ()
    (found,) = findings.errors
    assert (found.line, found.column, found.message) == (2, 3, "this query has no name")
    assert found.hint == "write `query name(…) { … }` around it"
