from __future__ import annotations

import json

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, Diagnostic
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.lint import LintReport, LintStatus, lint_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
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
        pytest.param(read("not { $q.year > 2000 }"), "T6", id="T6 a misspelt outer variable inside not"),
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
        pytest.param(read("", "return { $p.scan as s } order { s }"), "T24", id="T24 a blob that is a key too"),
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
        pytest.param(read("", "return { $p.title as name, name }"), "Q117", id="Q117 a column returned again"),
        pytest.param(
            write('insert Author { full_nam: "R. Ito" }'), "T11", id="T11 a required property with a spelling mistake"
        ),
        pytest.param(
            write('update Cites set { kontext: 5 } where form = "a"'),
            "T16",
            id="T16 an update of an edge with other mistakes",
        ),
        pytest.param(write("insert Papr { doi: 5, doi: $x }"), "T10", id="T10 an unknown type hides the rest"),
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
    text = write('insert Papr { a: 1 } update Cites set { context: "x" } where from = "a" delete Paper where nope = 1')

    assert codes(text) == ["T10", "T16", "T11"]


RANK_ORDER = {
    "T21-limit before T9": (
        read("", 'return { 1 as one, count($p) as n } order { rrf(bm25($p.title, "a"), bm25($p.title, "b")) }'),
        ["T21", "T9"],
    ),
    "T17 before T18": (
        read("", "return { $p.title as t } order { nearest($p.vec, $v), t }", "$v: Vector(8)"),
        ["T17", "T18"],
    ),
    "T17 before T18 before T9": (
        read("", "return { 1 as one, count($p) as n } order { nearest($p.vec, $v), n }", "$v: Vector(8)"),
        ["T17", "T18", "T9"],
    ),
    "T18 before T9": (
        read("", "return { 1 as one, count($p) as n } order { nearest($p.vec, $v), n } limit 3", "$v: Vector(8)"),
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
    text = read("", "return { $p.title } order { nearest($p.vec, $v), $p.year } limit 3", "$v: Vector(8)")

    assert len(compile_query(text, reading).ir.order) == 1


def test_t21_bm25_needs_no_limit(reading):
    text = read("", 'return { $p.title } order { bm25($p.title, "x") }')

    assert compile_query(text, reading).ir.limit is None


@each_case("direction", ["", "asc", "desc"])
@each_case("call", ['bm25($p.title, "x")', 'rrf(bm25($p.title, "x"), bm25($p.abstract, "y"))'])
def test_a_direction_after_bm25_or_rrf_changes_nothing(call, direction, reading):
    plain = compile_query(read("", f"return {{ $p.title }} order {{ {call} }} limit 3"), reading)
    directed = compile_query(read("", f"return {{ $p.title }} order {{ {call} {direction} }} limit 3"), reading)

    assert directed.ir == plain.ir


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_nearest_takes_no_direction(direction, codes):
    text = read("", f"return {{ $p.title }} order {{ nearest($p.vec, $v) {direction} }} limit 3", "$v: Vector(8)")

    assert codes(text) == ["Q113"]


def test_t5_one_variable_cannot_be_both_ends_of_an_edge_between_types(codes):
    text = "query q() { match { $x wrote $x } return { $x } }"

    assert codes(text) == ["T5"]


def test_a_pair_of_traversals_may_name_its_ends_in_either_order(reading):
    text = "query q() { match { $x wrote $y  $y wrote $x } return { $x } }"

    scan, first, second, _ = compile_query(text, reading).ir.pipeline

    assert (scan.node_type, first.direction, second.direction) == ("Author", "out", "in")


@pytest.mark.parametrize("bound", ["99999999999999999999", "9" * 60], ids=["20 digits", "60 digits"])
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


@pytest.mark.parametrize("text", ["$p.title = 5", "$p.topics contains 5", '$p.counts contains ["a"]'])
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
    (problem,) = problems("query q() {\n match { $p: Paper }\n return { $p }\n limit 9223372036854775808 }")

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
    assert (failure.value.http_status, body["code"], body["diagnostics"][0]["code"]) == (400, "bad_request", "T6")


READ = "query papers() { match { $p: Paper } return { $p.title } }"
WRONG = "query wrong() { match { $p: Papr } return { $p.title } }"


@pytest.fixture(scope="module")
def notes() -> Catalog:
    """Two node types with nullable, required, key and embedded properties."""
    return compile_schema(
        """
        node Note {
          slug: String @key
          body: String
          title: String?
          mood: String?
          vec: Vector(4)? @embed("body", model="mock-4")
        }
        node Tag { label: String? colour: String? }
        edge About: Note -> Tag { why: String? }
        """
    ).catalog


def lint(text: str, catalog: Catalog) -> LintReport:
    return lint_queries(SourceText(text, "queries.gq"), catalog, "schema.pg")


def findings(report: LintReport, code: str | None) -> list[tuple[str | None, str | None]]:
    return [(item.type_name, item.property) for item in report.findings if item.code == code]


def test_the_report_has_exactly_the_members_of_the_contract(reading):
    body = lint(READ, reading).to_json()

    assert list(body) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
    ]


def test_a_clean_file_is_reported_in_full(reading):
    body = lint(READ, reading).to_json()

    assert body == {
        "status": "ok",
        "schema_source": "schema.pg",
        "query_path": "queries.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "papers",
                "kind": "read",
                "status": "ok",
                "warnings": [],
                "operation": {
                    "result": [{"name": "p.title", "kind": "string", "nullable": False}],
                    "reads": [{"kind": "node", "type_name": "Paper"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_the_report_is_plain_json(reading):
    body = lint(f"{READ} {WRONG}", reading).to_json()

    assert json.loads(json.dumps(body)) == body


def test_a_wrong_query_has_an_error_and_no_operation(reading):
    (result,) = lint(WRONG, reading).to_json()["results"]

    assert result["status"] == "error"
    assert result["error"].startswith("T1: there is no node type `Papr`")
    assert "operation" not in result


def test_a_wrong_result_has_the_members_of_the_contract_and_its_diagnostics(reading):
    (result,) = lint(WRONG, reading).to_json()["results"]

    assert set(result) == {"name", "kind", "status", "warnings", "error", "diagnostics"}


def test_a_finding_has_exactly_the_members_of_the_contract(notes):
    text = 'query up($s: String) { update Note set { title: "x" } where slug = $s }'

    (finding,) = lint(text, notes).to_json()["findings"]

    assert finding == {
        "severity": "warning",
        "code": "L201",
        "message": finding["message"],
        "type_name": "Note",
        "property": "mood",
        "query_names": ["up"],
        "line": 1,
        "column": 31,
    }


def test_a_syntax_finding_has_the_members_of_the_contract_and_its_place(reading):
    (finding,) = lint("query broken() { match { } }", reading).to_json()["findings"]

    assert set(finding) == {"severity", "code", "message", "query_names", "line", "column"}


def test_one_wrong_query_does_not_hide_the_others(reading):
    report = lint(f"{WRONG} {READ}", reading)

    assert [str(result.status) for result in report.results] == ["error", "ok"]
    assert (report.errors, report.status) == (1, LintStatus.ERROR)


def test_every_error_of_a_query_is_in_its_text(reading):
    text = "query q() { match { $p: Paper $p.yeer = 1 $p.titel = $p.doi } return { $p } }"

    (result,) = lint(text, reading).to_json()["results"]

    assert result["error"].count("T6: ") == 2


def test_q000_is_one_finding_without_results(reading):
    report = lint(f"{READ} query broken() {{ match {{ }} }}", reading)

    assert [(item.code, str(item.severity)) for item in report.findings] == [("Q000", "error")]
    assert (report.results, report.errors, report.to_json()["queries_processed"]) == ((), 1, 0)


def test_q101_a_repeated_name_is_an_error_of_the_file(reading):
    report = lint(f"{READ}\n{READ}", reading)

    (finding,) = report.findings
    assert (finding.code, finding.query_names, report.status) == ("Q101", ("papers",), LintStatus.ERROR)


def test_q101_says_where_the_second_declaration_is(reading):
    (finding,) = lint(f"{READ}\n{READ}", reading).findings

    assert (finding.line, finding.column) == (2, 7)


def test_d2_is_an_error_of_its_query(reading):
    text = 'query q() { insert Author { full_name: "x" } delete Author where full_name = "y" }'

    (result,) = lint(text, reading).results

    assert [item.code for item in result.diagnostics] == ["D2"]


def test_l201_names_every_nullable_property_that_no_update_sets(notes):
    text = "query up($s: String, $b: String) { update Note set { body: $b } where slug = $s }"

    assert findings(lint(text, notes), "L201") == [("Note", "mood"), ("Note", "title")]


@pytest.mark.parametrize("name", ["slug", "body", "vec"])
def test_l201_leaves_out_keys_required_properties_and_embeddings(name, notes):
    text = "query up($s: String, $b: String) { update Note set { title: $b } where slug = $s }"

    assert ("Note", name) not in findings(lint(text, notes), "L201")


def test_l201_is_silent_without_an_update_of_the_type(notes):
    text = """
    query add($s: String) { insert Note { slug: $s, body: $s } }
    query drop($s: String) { delete Tag where label = $s }
    """

    assert findings(lint(text, notes), "L201") == []


def test_l201_an_insert_sets_nothing(notes):
    text = """
    query add($s: String) { insert Note { slug: $s, body: $s, title: $s, mood: $s } }
    query up($s: String) { update Note set { body: $s } where slug = $s }
    """

    assert findings(lint(text, notes), "L201") == [("Note", "mood"), ("Note", "title")]


def test_l201_all_updates_of_the_file_count_together(notes):
    text = """
    query a($s: String) { update Note set { title: $s } where slug = $s }
    query b($s: String) { update Note set { mood: $s } where slug = $s }
    """

    assert findings(lint(text, notes), "L201") == []


def test_l201_an_invalid_update_neither_triggers_nor_sets(notes):
    text = """
    query valid($s: String) { update Note set { title: $s } where slug = $s }
    query invalid($s: String) { update Note set { mood: $s, nope: $s } where slug = $s }
    query also_invalid($s: String) { update Tag set { label: 5 } where label = $s }
    """

    assert findings(lint(text, notes), "L201") == [("Note", "mood")]


def test_l201_a_mixed_mutation_is_no_valid_update(notes):
    text = "query q($s: String) { update Note set { title: $s } where slug = $s delete Tag where label = $s }"

    assert findings(lint(text, notes), "L201") == []


def test_l201_names_the_queries_that_update_the_type_sorted(notes):
    text = """
    query z($s: String) { update Note set { title: $s } where slug = $s }
    query a($s: String) { update Note set { title: $s } where slug = $s }
    query other($s: String) { update Tag set { label: $s, colour: $s } where label = $s }
    """

    (finding,) = lint(text, notes).findings

    assert finding.query_names == ("a", "z")


def test_warnings_do_not_fail_a_file(notes):
    text = 'query up() { update Note set { title: "x" } where slug = "y" }'

    report = lint(text, notes)

    assert (report.status, report.errors, report.warnings) == (LintStatus.OK, 0, 2)


def test_a_mutation_without_parameters_is_a_warning_without_code(notes):
    text = 'query add() { insert Tag { label: "x" } }'

    report = lint(text, notes)

    (finding,) = report.to_json()["findings"]
    assert (finding["severity"], finding["code"], finding["query_names"]) == ("warning", None, ["add"])
    assert report.results[0].warnings == (finding["message"],)


@pytest.mark.parametrize(
    "text",
    ["query add($s: String) { insert Tag { label: $s } }", "query all() { match { $t: Tag } return { $t } }"],
    ids=["with parameters", "a read"],
)  # fmt: skip
def test_only_mutations_without_parameters_are_warned_about(text, notes):
    assert lint(text, notes).warnings == 0


def test_findings_are_sorted_by_severity_type_property_and_message(notes):
    text = """
    query b() { update Tag set { label: "x" } where label = "y" }
    query a() { update Note set { body: "x" } where slug = "y" }
    query b() { match { $t: Tag } return { $t } }
    """

    report = lint(text, notes)

    order = [(str(item.severity), item.type_name, item.property) for item in report.findings]
    assert order == [
        ("error", None, None),
        ("warning", None, None),
        ("warning", None, None),
        ("warning", "Note", "mood"),
        ("warning", "Note", "title"),
        ("warning", "Tag", "colour"),
    ]
    assert ["`a`" in report.findings[1].message, "`b`" in report.findings[2].message] == [True] * 2


def test_an_empty_file_is_clean(reading):
    body = lint("", reading).to_json()

    assert (body["status"], body["queries_processed"]) == ("ok", 0)


def test_kinds_of_results_are_read_and_mutation(notes):
    text = "query r() { match { $t: Tag } return { $t } } query m($s: String) { insert Tag { label: $s } }"

    assert [result.kind for result in lint(text, notes).results] == ["read", "mutation"]


@each_case(
    ("match", "is_joined"),
    [
        ("$a: Note $b: Note", False),
        ("$a: Note $a about $t $b: Note", False),
        ("$a: Note $a about $b", True),
        ("$a: Note $b: Note $a.title = $b.mood", True),
        ('$a: Note $b: Note { slug: "one" }', True),
        ("$a: Note not { $a about $b }", True),
    ],
)
def test_patterns_that_nothing_joins_are_a_warning(notes: Catalog, match: str, is_joined: bool) -> None:
    report = lint(f"query q() {{ match {{ {match} }} return {{ $a.slug }} }}", notes)

    assert report.status is LintStatus.OK
    assert [item.code for item in report.findings] == ([] if is_joined else ["L202"])


def place(report: LintReport) -> tuple[int, int]:
    (finding,) = report.to_json()["findings"]
    return finding["line"], finding["column"]


def test_l202_points_at_the_first_variable_that_nothing_joins(notes: Catalog) -> None:
    text = "query q() {\n  match { $a: Note  $a about $t\n    $b: Note }\n  return { $a.slug }\n}"

    assert place(lint(text, notes)) == (3, 5)


def test_l202_points_at_a_traversal_that_begins_nowhere(notes: Catalog) -> None:
    text = "query q() {\n  match { $a: Note\n    $b about $t }\n  return { $a.slug }\n}"

    assert place(lint(text, notes)) == (3, 5)


def test_l201_points_at_the_first_update_of_the_type(notes: Catalog) -> None:
    text = """query add($s: String) { insert Note { slug: $s, body: $s } }
query up($s: String) { update Note set { title: $s } where slug = $s }
query again($s: String) { update Note set { title: $s } where slug = $s }"""

    assert place(lint(text, notes)) == (2, 31)


def test_a_mutation_without_parameters_is_shown_at_its_name(notes: Catalog) -> None:
    assert place(lint('\nquery add() { insert Tag { label: "x" } }', notes)) == (2, 7)


def test_very_many_syntax_errors_are_all_counted(notes: Catalog) -> None:
    report = lint("query q() { match }\n" * (MAX_DIAGNOSTICS + 7), notes)

    assert (len(report.findings), report.errors) == (MAX_DIAGNOSTICS, MAX_DIAGNOSTICS + 7)


def test_very_many_errors_of_one_query_are_all_counted(notes: Catalog) -> None:
    wrong = " ".join(f"$a.nothing{number} = 1" for number in range(MAX_DIAGNOSTICS + 7))

    (result,) = lint(f"query q() {{ match {{ $a: Note {wrong} }} return {{ $a }} }}", notes).results

    assert len(result.diagnostics) == MAX_DIAGNOSTICS
    assert result.to_json()["diagnostic_total"] == MAX_DIAGNOSTICS + 7
