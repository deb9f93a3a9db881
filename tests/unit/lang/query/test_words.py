from __future__ import annotations

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import CompilerError
from omnigraph.lang.query import ast as tree
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_file, compile_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

KEYWORDS = [
    *("query", "match", "return", "order", "limit", "not", "as", "asc", "desc", "true", "false"),
    *("insert", "update", "delete", "set", "where", "from", "to", "contains", "starts_with"),
    *("now", "date", "datetime", "count", "sum", "nearest", "search", "rrf"),
]
EDGE_WORDS = [word for word in KEYWORDS if word != "not"]


@pytest.fixture(scope="module")
def keyword_catalog() -> Catalog:
    """A graph whose properties and edges are called like the words of the language."""
    properties = "\n".join(f"  {word}: I32?" for word in KEYWORDS)
    edges = "\n".join(f"edge {word.capitalize()}: Thing -> Thing" for word in [*KEYWORDS, "not_x"])
    return compile_schema(f"node Thing {{\n{properties}\n}}\n{edges}\n").catalog


def parse(text: str) -> tree.QueryFile:
    return parse_queries(SourceText(text, "test.gq"))


def body(text: str) -> tree.ReadBody:
    found = parse(f"query q() {{ {text} }}").queries[0].body
    assert isinstance(found, tree.ReadBody)
    return found


def projections(text: str) -> list[tree.Projection]:
    return list(body(f"match {{ $p: Paper }} return {{ {text} }}").projections)


def clauses(text: str) -> list[tree.Clause]:
    return list(body(f"match {{ {text} }} return {{ 1 }}").clauses)


def codes(text: str, catalog: Catalog) -> tuple[str, ...]:
    with pytest.raises(CompilerError) as failure:
        compile_file(text, catalog)
    return failure.value.codes


def test_as_is_a_whole_word_so_assets_is_a_second_projection():
    first, second = projections("$p.a assets")

    assert (first.alias, second.expression) == (None, tree.Alias("assets"))


def test_as_before_a_word_is_an_alias():
    (only,) = projections("$p.a as sets")

    assert only.alias == "sets"


def test_desc_is_a_whole_word_so_descent_is_no_direction():
    with pytest.raises(CompilerError):
        body("match { $p: Paper } return { $p.a } order { $p.a descent }")


@each_case(
    "text",
    [
        pytest.param("queryq() { match { $p: Paper } return { $p } }", id="query"),
        pytest.param("query q() { matched { $p: Paper } return { $p } }", id="match"),
        pytest.param("query q() { match { $p: Paper } returned { $p } }", id="return"),
        pytest.param("query q() { match { $p: Paper } return { $p } limit5 }", id="limit"),
        pytest.param("query q() { match { $p: Paper } return { $p } limit 5x }", id="number"),
        pytest.param(
            "query q() { match { $p: Paper } return { $p } ordered { $p.a } }", id="order"
        ),
        pytest.param(
            "query q() { match { $p: Paper nothing { $p cites $q } } return { $p } }", id="not"
        ),
        pytest.param("query q() { insertPaper { a: 1 } }", id="insert"),
        pytest.param("query q() { delete Paper whereas a = 1 }", id="where"),
        pytest.param("query q() { update Paper settle { a: 1 } where a = 1 }", id="set"),
        pytest.param("query q() { match { $p: Paper { a: truer } } return { $p } }", id="true"),
        pytest.param(
            'query q() @descriptions("x") { match { $p: Paper } return { $p } }', id="@description"
        ),
    ],
)
def test_a_keyword_is_a_whole_word(text):
    with pytest.raises(CompilerError) as failure:
        parse(text)

    assert set(failure.value.codes) == {"Q000"}


def test_no_space_is_needed_around_punctuation():
    query = parse(
        "query q($a:I32,$b:[String]?){match{$p:Paper{a:$a}$p cites{1,2}$q}return{$p.a}limit 5}"
    )

    assert (len(query.queries[0].params), body_of(query).limit) == (2, tree.Limit(5))


def body_of(file: tree.QueryFile) -> tree.ReadBody:
    found = file.queries[0].body
    assert isinstance(found, tree.ReadBody)
    return found


@each_case("word", KEYWORDS)
def test_a_property_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"""
    query r($v: I32) {{
      match {{ $t: Thing {{ {word}: $v }}  $t.{word} >= $t.{word} }}
      return {{ $t.{word} as x }}
      order {{ $t.{word} desc }}
    }}
    query w($v: I32) {{
      insert Thing {{ {word}: $v }}
      update Thing set {{ {word}: $v }} where {word} = $v
    }}
    """

    compiled = compile_file(text, keyword_catalog)

    assert compiled[0].ir.projections[0].expression.property == word


@each_case("word", [word for word in KEYWORDS if word not in ("true", "false")])
def test_a_column_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"query r() {{ match {{ $t: Thing }} return {{ $t.count as {word} }} order {{ {word} desc }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert compiled.ir.order == (ir.OrderKey(ir.ColumnRef(word), True),)


@each_case("word", KEYWORDS)
def test_a_query_and_a_parameter_may_be_called_like_a_keyword(word, keyword_catalog):
    text = f"query {word}(${word}: I32) {{ match {{ $t: Thing }} return {{ ${word} }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert (compiled.name, compiled.ir.params[0].name) == (word, word)


@each_case("word", [*EDGE_WORDS, "not_x"])
def test_an_edge_word_may_be_a_keyword(word, keyword_catalog):
    text = f"query r() {{ match {{ $a: Thing  $a {word} $b  $a <{word}> $c  $a $w:{word} $d }} return {{ $b }} }}"

    compiled = compile_query(text, keyword_catalog)

    assert [op.edge_type for op in compiled.ir.pipeline[1:]] == [word.capitalize()] * 3


def test_an_edge_word_is_never_not(keyword_catalog):
    text = "query r() { match { $a: Thing  $a not $b } return { $b } }"

    assert codes(text, keyword_catalog) == ("Q000",)


def test_a_bare_variable_left_of_contains_is_a_traversal():
    (clause,) = clauses("$a contains $b")

    assert clause == tree.Traversal(
        tree.Variable("a"), None, tree.Hop("contains", False, None), tree.Variable("b")
    )


def test_a_bare_variable_left_of_contains_and_a_literal_is_a_filter():
    (clause,) = clauses('$a contains "x"')

    assert clause == tree.Filter(
        tree.Variable("a"), tree.Operator.CONTAINS, tree.Literal_("x", '"x"')
    )


def test_less_than_and_an_undirected_hop_are_told_apart():
    hop, comparison, other = clauses("$a <cites> $b  $x < $y  $z <= 3")

    assert (type(hop), type(comparison), type(other)) == (tree.Traversal, tree.Filter, tree.Filter)


@pytest.mark.parametrize("word", ["cites", "cITES", "ciTes"])
def test_an_edge_word_matches_its_type_in_any_case(word, reading):
    text = f"query q() {{ match {{ $p: Paper  $p {word} $q }} return {{ $q }} }}"

    compiled = compile_query(text, reading)

    assert compiled.ir.pipeline[1].edge_type == "Cites"


def test_an_edge_word_begins_in_lower_case(reading):
    text = "query q() { match { $p: Paper  $p Cites $q } return { $q } }"

    assert codes(text, reading) == ("Q000",)


@each_case(
    "text",
    [
        "// a line\nquery q() { match { $p: Paper } return { $p } }",
        "query q() { /* a\nblock */ match { $p: Paper /* in it */ } return { $p } } // the end",
        "query q() { match { $p: Paper } return { $p } } // no line break at the end",
        "/* one /* not nested */ query q() { match { $p: Paper } return { $p } }",
        "query /**/ q /**/ () { match { $p: Paper } return { $p } }",
        "query q($v: Vector /* size */ (8)) { match { $p: Paper } return { $p } }",
    ],
    ids=["line", "block", "at the end", "not nested", "between tokens", "inside a vector type"],
)
def test_comments_are_blank(text):
    assert [query.name for query in parse(text).queries] == ["q"]


@each_case(
    ("literal", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"a\nb\rc\td"', "a\nb\rc\td"),
        ('"two\nlines"', "two\nlines"),
        ('""', ""),
        ('"// no comment /* here */"', "// no comment /* here */"),
        ('"Ätherwellen 🜁"', "Ätherwellen 🜁"),
        ('"query q() { }"', "query q() { }"),
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("2.50", 2.5),
        ("true", True),
        ("false", False),
    ],
)
def test_a_literal_has_the_value_it_spells(literal, value):
    (only,) = projections(f"{literal} as x")

    assert only.expression == tree.Literal_(value, literal)
    assert type(only.expression.value) is type(value)


@each_case(
    "literal",
    ["-1", "1e6", "1.5e3", "1.", ".5", "0x10", "1_000", "'a'", r'"\u0041"', r'"\x"', "5m"],
)
def test_what_is_no_literal_does_not_parse(literal):
    with pytest.raises(CompilerError) as failure:
        projections(f"{literal} as x")

    assert failure.value.codes == ("Q000",)


@each_case(
    ("text", "count"),
    [
        ("$p.a, $p.b", 2),
        ("$p.a $p.b", 2),
        ("$p.a, $p.b,", 2),
        ("$p.a as x $p.b as y, count($p)", 3),
    ],
)
def test_commas_between_projections_are_optional(text, count):
    assert len(projections(text)) == count


def test_commas_between_assignments_are_optional():
    text = (
        "query q() { insert Paper { a: 1 b: 2, c: 3, } update Paper set { a: 1 b: 2 } where c = 3 }"
    )

    insert, update = parse(text).queries[0].body.statements

    assert [len(insert.assignments), len(update.assignments)] == [3, 2]


def test_an_inline_match_may_end_with_a_comma():
    (clause,) = clauses("$p: Paper { a: 1, b: 2, }")

    assert [match.property for match in clause.matches] == ["a", "b"]


@each_case(
    "text",
    ["match { } return { $p }", "match { $p: Paper { } } return { $p }", "match { not { } } return { $p }",
     "match { $p: Paper } return { }", "match { $p: Paper } return { $p } order { }"],
    ids=["match", "inline match", "not", "return", "order"],
)  # fmt: skip
def test_empty_braces_do_not_parse(text):
    with pytest.raises(CompilerError) as failure:
        body(text)

    assert failure.value.codes == ("Q000",)


def test_a_file_may_hold_no_query(reading):
    assert compile_file("// nothing yet\n", reading) == ()


def test_clauses_are_tried_in_the_order_of_the_grammar():
    text = '$p: Paper $p cites $q $q.a = 1 search($q.t, "x") not { $q cites $p }'

    assert [type(clause) for clause in clauses(text)] == [
        tree.Binding,
        tree.Traversal,
        tree.Filter,
        tree.Condition,
        tree.Negation,
    ]


def test_both_annotations_are_kept(reading):
    text = 'query q() @instruction("use it") @description("what it is") { match { $p: Paper } return { $p } }'

    compiled = compile_query(text, reading)

    assert (compiled.description, compiled.instruction) == ("what it is", "use it")


def test_annotations_are_optional(reading):
    compiled = compile_query("query q() { match { $p: Paper } return { $p } }", reading)

    assert (compiled.description, compiled.instruction) == (None, None)
