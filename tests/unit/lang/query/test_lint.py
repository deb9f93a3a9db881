from __future__ import annotations

import json

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import MAX_DIAGNOSTICS
from omnigraph.lang.query.lint import LintReport, LintStatus, lint_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

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
    assert (finding.code, finding.query_names, report.status) == (
        "Q101",
        ("papers",),
        LintStatus.ERROR,
    )


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
    assert (finding["severity"], finding["code"], finding["query_names"]) == (
        "warning",
        None,
        ["add"],
    )
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
def test_patterns_that_nothing_joins_are_a_warning(
    notes: Catalog, match: str, is_joined: bool
) -> None:
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
