from __future__ import annotations

import pytest

from omnigraph.errors import CompilerError, Diagnostic
from omnigraph.lang.query.compiler import compile_query
from support.subtests import each_case


def read(clauses: str, tail: str = "return { $p.title }", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $p: Paper {clauses} }} {tail} }}"


def write(statement: str, params: str = "") -> str:
    return f"query q({params}) {{ {statement} }}"


@pytest.fixture
def problems(reading):
    def collect(text: str) -> tuple[Diagnostic, ...]:
        with pytest.raises(CompilerError) as failure:
            compile_query(text, reading)
        return failure.value.diagnostics

    return collect


@pytest.fixture
def codes(problems):
    return lambda text: [problem.code for problem in problems(text)]


@each_case(
    ("text", "code"),
    [
        pytest.param(
            read(
                "$q: Papr $p cites $q $q.year > 1 search($q.title, $t)",
                "return { $q.title, $q, count($q.year) as n } order { n }",
                "$t: String",
            ),
            "T1",
            id="T1 unknown type used everywhere",
        ),
        pytest.param(
            read("$p $c:citess $q $c.x = 1 $q.y = 2", "return { $c.x, $q.y as z } order { z }"),
            "T4",
            id="T4 unknown edge used everywhere",
        ),
        pytest.param(
            read("", "return { $p.yeer as y, $p.year } order { y desc }"),
            "T6",
            id="T6 a wrong column that is an order key too",
        ),
        pytest.param(
            read("not { $q.year > 2000 }"), "T6", id="T6 a misspelt outer variable inside not"
        ),
        pytest.param(
            read("", "return { bm25($p.year, $t) as s } order { s desc }", "$t: String"),
            "T20",
            id="T20 a wrong ranking that is returned too",
        ),
        pytest.param(
            read("", "return { nearest($p.vec, $v) as d } order { d }", "$v: Vector(8)"),
            "T17",
            id="T17 a distance without limit that is returned too",
        ),
        pytest.param(
            read("", "return { $p.scan as s } order { s }"),
            "T24",
            id="T24 a blob that is a key too",
        ),
        pytest.param(
            read("$p.title = $a", "return { $a as x }", "$a: Strng"),
            "Q105",
            id="Q105 a parameter of a wrong type used everywhere",
        ),
        pytest.param(
            read("$p cites $q", "return { $q.title }", "$q: String"),
            "Q104",
            id="Q104 a parameter as an end whose property is returned",
        ),
        pytest.param(
            read("$p $c:cites $q", "return { $c.context }", "$c: String"),
            "Q104",
            id="Q104 a parameter as an edge whose property is returned",
        ),
        pytest.param(
            read("$p: Venue", "return { $p.city }"),
            "Q106",
            id="Q106 a variable of two types whose property is returned",
        ),
        pytest.param(
            read("$q: Paper $p $q:cites $r", "return { $q.context }"),
            "T23",
            id="T23 a taken edge name whose property is returned",
        ),
        pytest.param(
            read("$ss contains $s", params="$ss: [String], $s: String"),
            "Q104",
            id="Q104 a list parameter left of contains",
        ),
        pytest.param(
            read("", "return { $p.title as name, name }"), "Q117", id="Q117 a column returned again"
        ),
        pytest.param(
            write('insert Author { full_nam: "R. Ito" }'),
            "T11",
            id="T11 a required property with a spelling mistake",
        ),
        pytest.param(
            write('update Cites set { kontext: 5 } where form = "a"'),
            "T16",
            id="T16 an update of an edge with other mistakes",
        ),
        pytest.param(
            write("insert Papr { doi: 5, doi: $x }"), "T10", id="T10 an unknown type hides the rest"
        ),
    ],
)
def test_one_mistake_gives_one_error(text, code, codes):
    assert codes(text) == [code]


def test_independent_mistakes_are_all_reported(codes):
    text = read(
        '$q: Papr $p.yeer > 1 $p.title > 5 not { $a: Author } $p citess $r search($p.year, "x")',
        "return { $p.title as t, $p.doi as t, sum($p.title) as s, 5 as five } order { nope }",
    )

    assert sorted(codes(text)) == ["Q114", "T1", "T19", "T4", "T6", "T6", "T7", "T8", "T9", "T9"]


def test_every_statement_of_a_mutation_is_checked_in_order(codes):
    text = write(
        'insert Papr { a: 1 } update Cites set { context: "x" } where from = "a" delete Paper where nope = 1'
    )

    assert codes(text) == ["T10", "T16", "T11"]


RANK_ORDER = {
    "T21-limit before T9": (
        read(
            "",
            'return { 1 as one, count($p) as n } order { rrf(bm25($p.title, "a"), bm25($p.title, "b")) }',
        ),
        ["T21", "T9"],
    ),
    "T17 before T18": (
        read("", "return { $p.title as t } order { nearest($p.vec, $v), t }", "$v: Vector(8)"),
        ["T17", "T18"],
    ),
    "T17 before T18 before T9": (
        read(
            "",
            "return { 1 as one, count($p) as n } order { nearest($p.vec, $v), n }",
            "$v: Vector(8)",
        ),
        ["T17", "T18", "T9"],
    ),
    "T18 before T9": (
        read(
            "",
            "return { 1 as one, count($p) as n } order { nearest($p.vec, $v), n } limit 3",
            "$v: Vector(8)",
        ),
        ["T18", "T9"],
    ),
}


@each_case(("text", "expected"), RANK_ORDER.values(), ids=RANK_ORDER.keys())
def test_the_checks_of_ranking_come_before_those_of_grouping(text, expected, codes):
    assert [code for code in codes(text) if code.startswith("T")] == expected


@each_case(("text", "expected"), RANK_ORDER.values(), ids=RANK_ORDER.keys())
def test_the_first_error_is_the_first_check_of_the_specification(text, expected, codes):
    assert codes(text)[0] == expected[0]


@pytest.mark.parametrize(
    "order",
    ["nearest($p.vec, $v), name", "name, nearest($p.vec, $v)", "$p.year, nearest($p.vec, $v), name"],
    ids=["after", "before", "both sides"],
)  # fmt: skip
def test_t18_nearest_stands_with_no_column_as_key(order, codes):
    text = read("", f"return {{ $p.title as name }} order {{ {order} }} limit 3", "$v: Vector(8)")

    assert "T18" in codes(text)


def test_t18_nearest_may_stand_with_a_property_as_second_key(reading):
    text = read(
        "", "return { $p.title } order { nearest($p.vec, $v), $p.year } limit 3", "$v: Vector(8)"
    )

    assert len(compile_query(text, reading).ir.order) == 1


def test_t21_bm25_needs_no_limit(reading):
    text = read("", 'return { $p.title } order { bm25($p.title, "x") }')

    assert compile_query(text, reading).ir.limit is None


@each_case("direction", ["", "asc", "desc"])
@each_case("call", ['bm25($p.title, "x")', 'rrf(bm25($p.title, "x"), bm25($p.abstract, "y"))'])
def test_a_direction_after_bm25_or_rrf_changes_nothing(call, direction, reading):
    plain = compile_query(read("", f"return {{ $p.title }} order {{ {call} }} limit 3"), reading)
    directed = compile_query(
        read("", f"return {{ $p.title }} order {{ {call} {direction} }} limit 3"), reading
    )

    assert directed.ir == plain.ir


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_nearest_takes_no_direction(direction, codes):
    text = read(
        "",
        f"return {{ $p.title }} order {{ nearest($p.vec, $v) {direction} }} limit 3",
        "$v: Vector(8)",
    )

    assert codes(text) == ["Q113"]


def test_t5_one_variable_cannot_be_both_ends_of_an_edge_between_types(codes):
    text = "query q() { match { $x wrote $x } return { $x } }"

    assert codes(text) == ["T5"]


def test_a_pair_of_traversals_may_name_its_ends_in_either_order(reading):
    text = "query q() { match { $x wrote $y  $y wrote $x } return { $x } }"

    scan, first, second, _ = compile_query(text, reading).ir.pipeline

    assert (scan.node_type, first.direction, second.direction) == ("Author", "out", "in")


@pytest.mark.parametrize(
    "bound", ["99999999999999999999", "9" * 60], ids=["20 digits", "60 digits"]
)
def test_t15_a_bound_beyond_64_bits_is_refused(bound, problems):
    (problem,) = problems(read(f"$p cites{{1,{bound}}} $q"))

    assert problem.code in ("T15", "Q109")


def test_t9_a_parameter_beside_an_aggregate_is_no_group_key(codes):
    assert codes(read("", "return { $y, count($p) as n }", "$y: I32")) == ["T9"]


def test_t9_counts_the_variables_of_a_nested_not(reading):
    compiled = compile_query(read("not { $a: Author not { $a wrote $p } }"), reading)

    assert compiled.ir.pipeline[1].outer == ("p",)


def test_t9_a_parameter_is_no_outer_variable(codes):
    text = read("not { $q: Paper { year: $y } }", params="$y: I32")

    assert codes(text) == ["T9"]


def test_the_variables_of_not_are_invisible_outside(codes):
    assert codes(read("not { $p cites $q }", "return { $q }")) == ["Q107"]


def test_t3_enum_values_are_not_checked_in_filters(reading):
    compiled = compile_query(read('$p.stage = "unheard of"'), reading)

    assert compiled.ir.pipeline[0].filters[0].right.value == "unheard of"


def test_t7_the_null_of_a_filter_is_an_alias(codes):
    assert codes(read("$p.abstract = null")) == ["T7"]


def test_now_cannot_be_read_as_its_reserved_parameter(codes):
    assert codes(read("$p.submitted < $__now")) == ["Q107"]


@pytest.mark.parametrize(
    "text", ["$p.title = 5", "$p.topics contains 5", '$p.counts contains ["a"]']
)
def test_the_hint_of_a_refused_comparison_is_no_repetition(text, problems):
    (problem,) = problems(read(text))

    assert "with `contains`" not in (problem.hint or "")


def test_q117_a_word_that_is_no_column_is_not_called_one(problems):
    (problem,) = problems(read("", "return { title }"))

    assert "again" not in problem.message


def test_q117_distinct_is_explained(problems):
    (problem,) = problems(read("", "return { distinct $p.title }"))

    assert "distinct" in (problem.hint or "")


def test_q109_a_limit_too_large_is_shown_at_the_limit(problems):
    (problem,) = problems(
        "query q() {\n match { $p: Paper }\n return { $p }\n limit 9223372036854775808 }"
    )

    assert (problem.line, problem.column) == (4, 8)


def test_q109_the_largest_limit_is_accepted(reading):
    text = read("", "return { $p.title } limit 9223372036854775807")

    assert compile_query(text, reading).ir.limit == 2**63 - 1


@each_case(
    ("params", "code"),
    [
        ("$a: String, $a: String", "Q102"),
        ("$__x: String", "Q103"),
        ("$_: String", "Q103"),
        ("$p: String", "Q104"),
        ("$a: Text", "Q105"),
        ("$a: Vector(0)", "Q105"),
        ("$a: [Blob]", "Q105"),
    ],
)
def test_a_wrong_declaration_of_a_parameter_is_refused(params, code, codes):
    assert codes(read("", "return { $p.title }", params)) == [code]


def test_names_with_one_leading_underscore_are_not_reserved(reading):
    compiled = compile_query(read("", "return { $_a }", "$_a: String"), reading)

    assert compiled.ir.params[0].name == "_a"


def test_string_contains_is_resolved_from_the_type_of_the_left_side(reading):
    text = read(
        '$p.topics contains "x" $p.title contains "x" $p.stage contains "x" $s contains "x" $l contains "x"',
        params="$s: String, $l: [String]",
    )

    pipeline = compile_query(text, reading).ir.pipeline
    used = {
        getattr(f.left, "property", None) or f.left.name: str(f.op)
        for op in pipeline
        for f in (getattr(op, "filters", None) or [op.predicate])
    }

    assert used == {
        "topics": "contains",
        "title": "string_contains",
        "stage": "string_contains",
        "s": "string_contains",
        "l": "contains",
    }


def test_a_compiler_error_shows_every_finding_in_its_text(problems, reading):
    text = read("$p.yeer > 1 $p.titel = $p.doi")

    with pytest.raises(CompilerError) as failure:
        compile_query(text, reading)

    assert str(failure.value).count("error T6") == 2


def test_a_compiler_error_is_a_bad_request_with_diagnostics(reading):
    with pytest.raises(CompilerError) as failure:
        compile_query(read("$p.yeer > 1"), reading)

    body = failure.value.to_json()
    assert (failure.value.http_status, body["code"], body["diagnostics"][0]["code"]) == (
        400,
        "bad_request",
        "T6",
    )
