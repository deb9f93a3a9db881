"""Laws that tie printing and parsing together, for both languages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.source import SourceText
from omnigraph.errors import CompilerError
from omnigraph.lang.query.ast import print_queries
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.ast import print_schema
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.parser import parse_schema
from support.strategies import (
    QUERY_WORDS,
    comments,
    gaps,
    query_trees,
    schema_trees,
    tokens_of,
    valid_schemas,
)
from support.subtests import each_case


def _schema(text: str):
    return parse_schema(SourceText(text))


def _queries(text: str):
    return parse_queries(SourceText(text))


def _respaced(draw: st.DrawFn, text: str) -> str:
    """The same tokens with other invisible text between them."""
    result = draw(st.just("") | gaps)
    for token in tokens_of(text):
        result += token
        result += draw(gaps)
    return result


respaced = st.composite(_respaced)


@settings(max_examples=80)
@given(schema_trees)
def test_a_printed_schema_parses_to_the_same_tree(tree) -> None:
    assert _schema(print_schema(tree)) == tree


@settings(max_examples=80)
@given(query_trees)
def test_a_printed_query_file_parses_to_the_same_tree(tree) -> None:
    assert _queries(print_queries(tree)) == tree


@settings(max_examples=50)
@given(schema_trees)
def test_printing_a_parsed_schema_again_changes_nothing(tree) -> None:
    text = print_schema(tree)
    assert print_schema(_schema(text)) == text


@settings(max_examples=80)
@given(query_trees)
def test_printing_a_parsed_query_file_again_changes_nothing(tree) -> None:
    text = print_queries(tree)
    assert print_queries(_queries(text)) == text


@settings(max_examples=60)
@given(st.data(), schema_trees)
def test_spaces_and_comments_between_the_tokens_of_a_schema_mean_nothing(data, tree) -> None:
    text = data.draw(respaced(print_schema(tree)))
    assert _schema(text) == tree


@settings(max_examples=60)
@given(st.data(), query_trees)
def test_spaces_and_comments_between_the_tokens_of_a_query_mean_nothing(data, tree) -> None:
    text = data.draw(respaced(print_queries(tree)))
    assert _queries(text) == tree


@settings(max_examples=40)
@given(comments)
def test_a_comment_may_stand_before_the_parenthesis_of_an_enum(comment) -> None:
    assert _schema(f"node A {{ x: enum{comment}(a, b) }}") == _schema("node A { x: enum(a, b) }")


@settings(max_examples=40)
@given(comments)
def test_a_comment_may_stand_before_the_parenthesis_of_a_vector(comment) -> None:
    assert _schema(f"node A {{ x: Vector{comment}(8)? }}") == _schema("node A { x: Vector(8)? }")


@settings(max_examples=40)
@given(comments)
def test_a_comment_may_stand_before_the_parenthesis_of_a_vector_parameter(comment) -> None:
    body = "{ match { $p: Paper } return { $p } }"
    expected = _queries(f"query q($v: Vector(8)) {body}")
    assert _queries(f"query q($v: Vector{comment}(8)) {body}") == expected


@pytest.mark.parametrize("mark", ["key", "unique", "index"])
@settings(max_examples=40)
@given(comment=comments)
def test_a_comment_may_stand_between_a_constraint_and_its_members(mark, comment) -> None:
    expected = _schema(f"node A {{ x: String @{mark}(x) }}")
    assert _schema(f"node A {{ x: String @{mark}{comment}(x) }}") == expected


@each_case("mark", ["key", "x"])
@each_case(
    "comment",
    ["// the id (normalised)\n", "/* (a, b) */", "// a\n// (b)\n", "/**/ // (\n", "//(\n"],
)
def test_a_parenthesis_in_a_comment_behind_an_annotation_is_no_argument(mark, comment) -> None:
    expected = _schema(f"node A {{ x: String @{mark} y: I32 }}")
    assert _schema(f"node A {{ x: String @{mark} {comment} y: I32 }}") == expected


_RULERS = {
    "slashes": "/" * 80 + "\n",
    "openings": "// " * 40 + "\n",
    "blocks": "/**/" * 40,
    "lines": "// =\n" * 2000,
}


@pytest.mark.timeout(10, func_only=True)
@each_case("ruler", _RULERS.values(), ids=_RULERS)
def test_a_ruler_of_comments_behind_a_constraint_word_costs_nothing(ruler) -> None:
    expected = _schema("node A { x: String @key y: I32 }")
    assert _schema(f"node A {{ x: String @key {ruler} y: I32 }}") == expected


@settings(max_examples=40)
@given(valid_schemas())
def test_every_valid_schema_compiles_again_from_its_print_to_the_same_shape(tree) -> None:
    first = compile_schema(print_schema(tree))
    again = compile_schema(print_schema(first.tree))
    assert again.catalog == first.catalog


@settings(max_examples=60)
@given(query_trees)
def test_windows_line_endings_do_not_change_the_tree(tree) -> None:
    text = print_queries(tree)
    assert _queries(text.replace("\n", "\r\n")) == tree


@pytest.mark.parametrize("word", ["interface", "node", "edge"])
def test_declaration_keywords_of_a_schema_are_whole_words(word) -> None:
    rest = {"interface": "A {}", "node": "A {}", "edge": "A: A -> A"}[word]
    assert _schema(f"{word} {rest}").declarations
    with pytest.raises(CompilerError):
        _schema(word + rest)


def test_implements_is_a_whole_word() -> None:
    with pytest.raises(CompilerError):
        _schema("interface B {} node A implementsB {}")


@each_case("word", ["node", "edge", "interface", "implements", "enum", "true", "false"])
def test_a_property_may_be_called_like_a_keyword_wherever_it_is_named(word) -> None:
    schema = compile_schema(f"node A {{ {word}: I32  @range({word}, 0..9)  @index({word}) }}")
    assert schema.catalog.nodes["A"].indexes[0].members == (word,)


@each_case("word", ["node", "edge", "interface", "implements", "enum", "true", "false"])
@each_case("mark", ["", "?", " @index", ' @x("a")', " @unique(a)"])
def test_a_property_behind_another_may_be_called_like_a_keyword(word, mark) -> None:
    schema = compile_schema(f"node A {{ a: String{mark} {word}: I32 }}")
    assert list(schema.catalog.nodes["A"].properties) == ["a", word]


@each_case("word", QUERY_WORDS)
def test_an_assignment_may_name_a_property_like_a_keyword_with_and_without_commas(word) -> None:
    plain = _queries(f"query q($x: I32) {{ insert A {{ a: $x, {word}: $x, b: 1 }} }}")
    assert _queries(f"query q($x: I32) {{ insert A {{ a: $x {word}: $x b: 1 }} }}") == plain


def test_not_is_the_one_word_that_no_edge_can_have() -> None:
    catalog = compile_schema("node P {} edge Not: P -> P").catalog
    with pytest.raises(CompilerError):
        compile_file("query q() { match { $p: P  $p not $q } return { $p } }", catalog)


def test_an_edge_word_may_begin_with_not() -> None:
    catalog = compile_schema("node P {} edge Not_yet: P -> P").catalog
    assert compile_file("query q() { match { $p: P  $p not_yet $q } return { $p } }", catalog)


@each_case("zeros", [1, 39, 40, 200])
def test_leading_zeros_never_change_a_number(zeros, reading) -> None:
    text = "query q() { match { $p: Paper } return { $p } limit %s7 }" % ("0" * zeros)
    assert compile_file(text, reading)[0].ir.limit == 7


@each_case("zeros", [1, 39, 40, 200])
def test_leading_zeros_never_change_a_vector_dimension(zeros) -> None:
    catalog = compile_schema(f"node A {{ v: Vector({'0' * zeros}7) }}").catalog
    assert str(catalog.nodes["A"].properties["v"].type) == "Vector(7)"
