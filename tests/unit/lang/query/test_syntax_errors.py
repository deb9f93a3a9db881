from __future__ import annotations

import pytest

from omnigraph.core.source import MAX_NESTING, SourceText
from omnigraph.errors import CompilerError, Diagnostic
from omnigraph.lang.query.parser import parse_queries
from support.subtests import each_case


def problems(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompilerError) as failure:
        parse_queries(SourceText(text, "test.gq"))
    return failure.value.diagnostics


def read(clauses: str, tail: str = "return { $p }", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $p: Paper {clauses} }} {tail} }}"


def write(statement: str) -> str:
    return f"query q() {{ {statement} }}"


@each_case(
    ("text", "fragment"),
    [
        pytest.param(read("$p.a > -5"), "negative", id="negative literal"),
        pytest.param(read("$p.a > 1e6"), "exponent", id="exponent"),
        pytest.param(read("$p.a > 1."), "digit", id="float without digits"),
        pytest.param(read("$p.a = 1 or $p.a = 2"), "no `or`", id="or"),
        pytest.param(read("$p.a = 1 and $p.a = 2"), "no `and`", id="and"),
        pytest.param(read("$p.a == 1"), "written `=`", id="double equals"),
        pytest.param(read("optional { $p cites $q }"), "no `optional`", id="optional"),
        pytest.param(read("", "return { $p } limit 3 offset 4"), "no `offset`", id="offset"),
        pytest.param(read("", "return { $p } limit $n", "$n: I64"), "not a parameter", id="limit"),
        pytest.param(
            read("", "return { $p } limit 3 order { $p.a }"),
            "match, return, order, limit",
            id="order after limit",
        ),
        pytest.param(read("", "return { count(*) }"), "count($p)", id="count star"),
        pytest.param(read("", params="$s: enum(a, b)"), "String", id="enum parameter"),
        pytest.param(read("$p Cites $q"), "`cites`", id="upper-case edge word"),
        pytest.param(read("$p.t = 'x'"), "double quotes", id="single quotes"),
        pytest.param(read("# x"), "`//`", id="hash comment"),
        pytest.param(read("$q: Paper { }"), "empty", id="empty braces"),
        pytest.param(read("$q: Paper { a: null }"), "null", id="null in a match"),
        pytest.param(write("insert Paper { a: null }"), "null", id="null in an insert"),
        pytest.param(
            write("update Paper set { a: null } where b = 1"), "null", id="null in an update"
        ),
        pytest.param(
            write('delete Paper where t contains "x"'), "= != < <= > >=", id="where contains"
        ),
        pytest.param("mutation q() { delete Paper where a = 1 }", "no `mutation`", id="mutation"),
        pytest.param("query Q() { match { $p: Paper } return { $p } }", "lower", id="query name"),
        pytest.param(read("$p.t = \"\\q\""), '\\"', id="unknown escape"),
    ],
)  # fmt: skip
def test_a_usual_mistake_gets_a_hint_with_the_way_out(text, fragment):
    (problem,) = problems(text)

    assert fragment in (problem.hint or "")


def test_the_hint_for_a_negative_limit_does_not_suggest_a_parameter():
    (problem,) = problems(read("", "return { $p } limit -1"))

    assert "parameter" not in (problem.hint or "")


def test_the_hint_for_and_in_a_where_does_not_suggest_a_second_condition():
    (problem,) = problems(write("delete Paper where a = 1 and b = 2"))

    assert "one after the other" not in (problem.hint or "")


def test_a_number_is_not_what_is_expected_where_a_number_was_found():
    (problem,) = problems(read("$p.a > 1."))

    assert "found `1`, expected" not in problem.message


@each_case(
    ("text", "line", "column", "caret"),
    [
        pytest.param("query q() {\n  match { }\n}", 2, 11, "^", id="first column of a word"),
        pytest.param('query q() {\n\tmatch { $p.t = "x', 2, 17, "^", id="after a tab"),
        pytest.param('query q() { match { $p.t = "漢字" or', 1, 35, "^", id="end of the text"),
        pytest.param("query q() @tool(1)", 1, 11, "^^^^^", id="a whole word is marked"),
    ],
)
def test_a_syntax_error_points_at_its_place(text, line, column, caret):
    (problem,) = problems(text)

    assert (problem.line, problem.column) == (line, column)
    assert problem.excerpt.splitlines()[1].split("|")[1].strip() == caret


def test_the_caret_stands_below_the_word_behind_wide_characters():
    (problem,) = problems('query q() { match { $p.t = "漢字" $x Cites $y } return { $p } }')

    shown, marks = problem.excerpt.splitlines()
    cells = len(shown.split("Cites")[0]) + len("漢字")

    assert marks.index("^") == cells


def test_every_broken_query_is_reported_once_and_in_order():
    text = """
    query a() { match { } return { $p } }
    query fine() { match { $p: Paper } return { $p } }
    query b() { match { $p: Paper } return { $p } limit $n }
    query c() { insert Paper { } }
    """

    found = problems(text)

    assert [problem.line for problem in found] == [2, 4, 5]


def test_a_query_inside_a_string_or_comment_is_no_declaration():
    text = """
    // query a() {
    query b() { match { $p: Paper { t: "query c() {" } /* query d() { */ } return { } }
    """

    assert [(problem.line, problem.code) for problem in problems(text)] == [(3, "Q000")]


def test_a_missing_brace_does_not_swallow_the_next_query():
    text = "query a() { match { $p: Paper } return { $p }\n\nquery b() { match { $p: Paper } return { $p } }"

    (problem,) = problems(text)

    assert "the end of the declaration" in problem.message


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 5000])
def test_deep_nesting_is_refused_and_not_a_crash(depth):
    text = "query q() { match { $p: Paper " + "not { " * depth + "$p cites $q" + " }" * depth

    (problem,) = problems(text)

    assert "nest" in problem.message


def test_a_nul_character_is_refused():
    (problem,) = problems("query q() { match { $p: Paper \0 } return { $p } }")

    assert "NUL" in problem.message


def test_a_very_long_number_is_no_crash(reading):
    from omnigraph.lang.query.compiler import compile_query

    text = read(f"$p.year = {'9' * 10_000}")

    with pytest.raises(CompilerError) as failure:
        compile_query(text, reading)

    assert failure.value.codes == ("Q109",)
