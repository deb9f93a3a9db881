from __future__ import annotations

import json

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, Diagnostic
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.describe.lint import LintReport, LintStatus, lint_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case, named_cases


def read(clauses: str, tail: str = "return { $p.title }", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $p: Paper {clauses} }} {tail} }}"


def write(statement: str, params: str = "") -> str:
    return f"query q({params}) {{ {statement} }}"


def nearest(order: str, returned: str, tail: str = "limit 3") -> str:
    return read("", f"return {{ {returned} }} order {{ {order} }} {tail}", "$v: Vector(8)")


def bare(clauses: str, returned: str) -> str:
    return f"query q() {{ match {{ {clauses} }} return {{ {returned} }} }}"


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


@named_cases(
    ("codes_", "text"),
    {
        "unknown type used everywhere": (
            "T1",
            read(
                "$q: Papr $p cites $q $q.year > 1 search($q.title, $t)",
                "return { $q.title, $q, count($q.year) as n } order { n }",
                "$t: String",
            ),
        ),
        "unknown edge used everywhere": (
            "T4",
            read("$p $c:citess $q $c.x = 1 $q.y = 2", "return { $c.x, $q.y as z } order { z }"),
        ),
        "one variable as both ends of an edge between types": ("T5", bare("$x wrote $x", "$x")),
        "a wrong column that is an order key too": (
            "T6",
            read("", "return { $p.yeer as y, $p.year } order { y desc }"),
        ),
        "a misspelt outer variable inside not": ("T6", read("not { $q.year > 2000 }")),
        "the null of a filter is an alias": ("T7", read("$p.abstract = null")),
        "a parameter is no outer variable": ("T9", read("not { $q: Paper { year: $y } }", params="$y: I32")),
        "an unknown type hides the rest": ("T10", write("insert Papr { doi: 5, doi: $x }")),
        "a required property with a spelling mistake": ("T11", write('insert Author { full_nam: "R. Ito" }')),
        "an update of an edge with other mistakes": ("T16", write("update Cites set { from: 5 } where true")),
        "a distance without limit that is returned too": (
            "T17",
            read("", "return { nearest($p.vec, $v) as d } order { d }", "$v: Vector(8)"),
        ),
        "a wrong ranking that is returned too": (
            "T20",
            read("", "return { bm25($p.year, $t) as s } order { s desc }", "$t: String"),
        ),
        "a taken edge name whose property is returned": (
            "T23",
            read("$q: Paper $p $q:cites $r", "return { $q.context }"),
        ),
        "a blob that is a key too": ("T24", read("", "return { $p.scan as s } order { s }")),
        "a parameter as an end whose property is returned": (
            "Q104",
            read("$p cites $q", "return { $q.title }", "$q: String"),
        ),
        "a parameter as an edge whose property is returned": (
            "Q104",
            read("$p $c:cites $q", "return { $c.context }", "$c: String"),
        ),
        "parameters as the ends of an operator": (
            "Q104",
            read("$ss <contains> $s", params="$ss: [String], $s: String"),
        ),
        "a parameter of a wrong type used everywhere": (
            "Q105",
            read("$p.title = $a", "return { $a as x }", "$a: Strng"),
        ),
        "a variable of two types whose property is returned": ("Q106", read("$p: Venue", "return { $p.city }")),
        "the variables of not are invisible outside": ("Q107", read("not { $p cites $q }", "return { $q }")),
        "now is not read as its reserved parameter": ("Q107", read("$p.submitted < $__now")),
        "nearest takes no direction asc": ("Q113", nearest("nearest($p.vec, $v) asc", "$p.title")),
        "nearest takes no direction desc": ("Q113", nearest("nearest($p.vec, $v) desc", "$p.title")),
        "a column returned again": ("Q117", read("", "return { $p.title as name, name }")),
        "independent mistakes": (
            "Q114 T1 T19 T4 T6 T6 T7 T8 T9",
            read(
                '$q: Papr $p.yeer > 1 $p.title > 5 not { $a: Author } $p citess $r search($p.year, "x")',
                "return { $p.title as t, $p.doi as t, sum($p.title) as s, 5 as five } order { nope }",
            ),
        ),
    },
)
def test_every_mistake_gives_one_error(text, codes_, codes):
    assert sorted(codes(text)) == codes_.split()


#: The rules of expressions: code, clauses of a match, and what stands behind it.
RULES = {
    "a block needs an outer variable": ("T39", "exists { $q: Paper }", ""),
    "a parameter is no outer variable of a value": ("T39", "count { $q: Paper { year: $y } } > 1", ""),
    "`not` keeps its own code": ("T9", "not { $q: Paper }", ""),
    "a number is no condition": ("T41", "$p.year", ""),
    "nor under `not`": ("T41", "not $p.year", ""),
    "nor beside `or`": ("T41", "$p.open or $p.year", ""),
    "nor in `case`": ("T41", "", "return { case when $p.title then 1 end as n }"),
    "nor in `having`": ("T41", "", "return { count($p) as n } having { n }"),
    "nor is a node": ("T41", "$p", ""),
    "a count is compared": ("T41", "count { $p cites $q }", ""),
    "an order key is returned": ("T42", "", "return { $p.title } order { $p.year + 1 }"),
    "equal expressions have equal trees": ("T42", "", "return { $p.year + 1 as n } order { 1 + $p.year }"),
    "an order key of groups is returned": ("T42", "", "return { $p.stage, count($p) as n } order { $p.year }"),
    "an order key of distinct rows is returned": ("T42", "", "return distinct { $p.stage } order { $p.year }"),
    "an order key differs between rows": ("T42", "", "return { $p.title } order { $y }"),
    "so does a key of `per`": ("T42", "", "return { $p.title } order { $p.year } limit 1 per { 1 }"),
    "a computed column has a name": ("T43", "", "return { $p.year + 1 }"),
    "so has a condition": ("T43", "", "return { $p.year > 1 }"),
    "so has a block": ("T43", "", "return { count { $p cites $q } }"),
    "a wrong column needs none": ("T7", "", "return { $p.title + 1 }"),
    "an inline match takes constants": ("T45", "$q: Paper { year: $p.year }", ""),
    "no aggregate": ("T45", "$q: Paper { year: count($p) }", ""),
    "a list holds constants": ("T45", "$p.year in [1, $p.pages]", ""),
    "`having` reads columns": ("T45", "", "return { count($p) as n } having { $p.year > 1 }"),
    "and no other aggregates": ("T45", "", "return { count($p) as n } having { sum($p.year) > 1 }"),
    "an unknown column of `having`": ("T6", "", "return { count($p) as n } having { m > 1 }"),
    "a text is found in `match` only": ("Q111", "", 'return { search($p.title, "a") as n }'),
    "not in `having`": ("Q111", "", 'return { count($p) as n } having { search($p.title, "a") }'),
    "not under a name either": ("Q111", 'let $s = search($p.title, "a")', "return { $s as n }"),
    "`offset` needs an order": ("Q119", "", "return { $p.title } offset 1"),
    "`per` needs an order": ("Q119", "", "return { $p.title } limit 1 per { $p.stage }"),
    "`per` takes no offset": ("Q119", "", "return { $p.title } order { $p.year } offset 1 limit 1 per { $p.stage }"),
    "a number of rows is never null": ("Q119", "", "return { $p.title } limit $m"),
    "a number of rows is an integer": ("Q119", "", "return { $p.title } order { $p.year } offset $f"),
    "null has no type": ("Q120", "", "return { null as n }"),
    "nor has a case of nulls": ("Q120", "", "return { case when true then null else null end as n }"),
    "nor is null an operand": ("Q120", "$p.year + null > 1", ""),
    "null is not compared": ("T7", "$p.abstract = null", ""),
    "not on the left": ("T7", "null != $p.abstract", ""),
    "not in a list": ("T7", "$p.year in [1, null]", ""),
    "not as a list": ("T7", "$p.year in null", ""),
    "not by an inline match": ("T7", "$q: Paper { abstract: null }", ""),
    "a value has a name of its own": ("Q122", "let $p = 1", ""),
    "not that of a parameter": ("Q122", "let $y = 1", ""),
    "a value is no circle": ("Q122", "let $a = $a + 1", ""),
    "a value of an outer block is no node": ("Q122", "let $a = 1  exists { $p cites $a }", ""),
    "a value is no aggregate": ("T7", "let $a = count($p)", ""),
    "a value is no node": ("T7", "let $a = $p", ""),
    "a wrong value is wrong once": ("T7", "let $a = $p.title + 1", "return { $a, $a as b } order { $a }"),
    "integers are not texts": ("T7", "$p.title > 5", ""),
    "days are not moments": ("T7", "$p.released = $p.submitted", ""),
    "texts are not added": ("T7", 'concat($p.title + "a") = "a"', ""),
    "truths are not counted": ("T7", "$p.open + 1 = 2", ""),
    "lists are not compared": ("T7", "$p.topics = $p.topics", ""),
    "vectors are not compared": ("T7", "$p.vec = $p.vec", ""),
    "blobs are not tested": ("T7", "$p.scan is null", ""),
    "nodes have no order": ("T7", "$p < $p", ""),
    "nodes of two types are never one": ("T7", "$a: Author  $a = $p", ""),
    "a text is no list": ("T7", '"a" in $p.title', ""),
    "branches have one type": ("T7", "", 'return { case when $p.open then 1 else "a" end as n }'),
    "so have arguments of `coalesce`": ("T7", "", 'return { coalesce($p.score, "a") as n }'),
    "an overflow of literals": ("Q109", "9223372036854775807 + 1 > $p.year", ""),
    "a literal below 64 bits": ("Q109", "$p.year > -9223372036854775809", ""),
    "a day that never was": ("Q109", '$p.released = date("2023-02-29")', ""),
    "digits of `round` are a literal": ("Q109", "round($p.score, $p.year) > 1.0", ""),
    "an unknown unit": ("Q109", 'truncate($p.released, "fortnight") = $p.released', ""),
    "too few arguments": ("Q110", 'substring($p.title) = "a"', ""),
    "no function takes `distinct`": ("Q110", "", "return { lower(distinct $p.title) as n }"),
    "no function takes a block": ("Q110", "lower { $p cites $q } = 1", ""),
    "`$p.*` takes no name": ("Q110", "", "return { $p.* as n }"),
    "a pattern is not made of expressions": ("T7", "matches($p.title, $p.abstract)", ""),
    "columns are not made of columns": ("Q117", "", "return { $p.year as n, n + 1 as m }"),
    "`$p.*` and one of its properties": ("Q114", "", "return { $p.*, $p.title }"),
    "aggregates stand alone": ("T8", "", "return { sum(count($p)) as n }"),
    "only `collect` takes an order": ("T8", "", "return { count($p.title order { $p.year }) as n }"),
    "lists are not collected": ("T8", "", "return { collect($p.topics) as n }"),
    "a block needs what it sums": ("T8", "sum { $p cites $q } > 1", ""),
    "the rest of an aggregate is returned": ("T9", "", "return { $p.year + count($p) as n }"),
    "vectors make no groups": ("T9", "", "return { $p.vec, count($p) as n }"),
    "vectors are never distinct": ("T9", "", "return distinct { $p.vec }"),
    "an unknown system field": ("T6", '$p.@src = "a"', ""),
    "a value has no properties": ("T6", "let $a = 1  $a.title = 1", ""),
}


@each_case("rule", list(RULES))
def test_a_rule_of_expressions_is_one_error(rule, codes):
    code, clauses, tail = RULES[rule]
    assert codes(read(clauses, tail or "return { $p.title }", "$y: I32, $m: I64?, $f: F64")) == [code]


@named_cases(
    "text",
    {
        "a filter of three-valued logic": read("not ($p.open and ($p.year > 1 or $p.abstract is not null))"),
        "a bare property and a parameter": read("$p.open or $y", params="$y: Bool"),
        "blocks among operators": read("$p.year > 2000 or not { $p cites $_ }"),
        "a block as a column": read("", "return { exists { $p cites $_ } as cited, count { $_ cites $p } as n }"),
        "a block inside an aggregate": read("", "return { max(count { $p cites $q }) as most }"),
        "search under operators": read('not search($p.title, "a") or fuzzy($p.title, "b") = true'),
        "constants beside aggregates": read("", 'return { "all" as what, now() as at, count(*) as n }'),
        "arithmetic with aggregates": read("", "return { $p.year, $p.year + sum($p.pages) / count($p) as n }"),
        "a returned expression as order key": read("", "return { $p.year + 1 as n } order { ($p.year + 1) desc }"),
        "a value with a name as order key": read("let $n = $p.year + 1", "return { $n as n } order { $p.year + 1 }"),
        "a returned aggregate in having": read("", "return { $p.stage, count($p) as n } having { count($p) > 1 }"),
        "the best of every group": read("", "return { $p.title } order { $p.year desc } limit 3 per { $p.stage }"),
        "numbers of rows": read("", "return { $p.title } order { $p.title } offset $n limit $n", "$n: U32"),
        "the largest of truths and moments": read("", "return { max($p.open) as a, min($p.submitted) as b }"),
        "the same node": read("$p cites $q  $p != $q"),
        "the smallest integer": read("$p.year > -9223372036854775808"),
        "null among alternatives": read("", "return { case when $p.open then $p.year else null end as n }"),
        "null of a nullable parameter": read("$p.year = $y", params="$y: I32? = null"),
        "a day among defaults": read("$p.released = $d", params='$d: Date = date("2024-05-01")'),
        "an empty list": read("$p.year in []"),
        "any list": read('$p.title in split("a,b", ",") and $p.year in collect($q.year) { $p cites $q }'),
        "constants of an inline match": read('$q: Paper { year: 1 + 1, title: lower("A") }'),
    },
)
def test_what_the_second_edition_allows_compiles(text, reading):
    assert compile_query(text, reading).ir.projections


def test_every_statement_of_a_mutation_is_checked_in_order(codes):
    text = write('insert Papr { a: 1 } update Cites set { from: "x" } where from = "a" delete Paper where nope = 1')

    assert codes(text) == ["T10", "T16", "T11"]


@named_cases(
    ("text", "expected"),
    {
        "T21-limit before T9": (
            read("", 'return { $p.vec, count($p) as n } order { rrf(bm25($p.title, "a"), bm25($p.title, "b")) }'),
            ["T21", "T9"],
        ),
        "T17 before T9": (nearest("nearest($p.vec, $v), n", "$p.vec, count($p) as n", ""), ["T17", "T9"]),
        "T17 before T42": (nearest("nearest($p.vec, $v), $p.year", "count($p) as n", ""), ["T17", "T42"]),
    },
)
def test_the_checks_of_ranking_come_before_those_of_grouping(text, expected, codes):
    found = codes(text)

    assert found[0] == expected[0]
    assert [code for code in found if code.startswith("T")] == expected


@each_case("order", ["name, nearest($p.vec, $v)", "$p.year, nearest($p.vec, $v), name"])
def test_a_rank_is_the_first_order_key(order, codes):
    assert codes(nearest(order, "$p.title as name")) == ["Q112"]


@named_cases(
    ("text", "look", "expected"),
    {
        "nearest with a property and a column behind it": (
            nearest("nearest($p.vec, $v), $p.year, name", "$p.title as name"),
            lambda it: len(it.order),
            2,
        ),
        "aggregates beside a rank": (
            nearest("nearest($p.vec, $v), n", "$p.stage, count($p) as n"),
            lambda it: len(it.order),
            1,
        ),
        "bm25 without a limit": (
            read("", 'return { $p.title } order { bm25($p.title, "x") }'),
            lambda it: it.limit,
            None,
        ),
        "the variables of a nested not": (
            read("not { $a: Author not { $a wrote $p } }"),
            lambda it: it.pipeline[1].outer,
            ("p",),
        ),
        "an enum value that the schema does not know, in a filter": (
            read('$p.stage = "unheard of"'),
            lambda it: it.pipeline[0].filters[0].right.value,
            "unheard of",
        ),
        "the largest limit": (
            read("", f"return {{ $p.title }} limit {2**63 - 1}"),
            lambda it: it.limit.value,
            2**63 - 1,
        ),
        "a name with one leading underscore": (
            read("", "return { $_a }", "$_a: String"),
            lambda it: it.params[0].name,
            "_a",
        ),
        "two traversals that name their ends in either order": (
            bare("$x wrote $y  $y wrote $x", "$x"),
            lambda it: (it.pipeline[0].node_type, *(op.direction for op in it.pipeline[1:3])),
            ("Author", "out", "in"),
        ),
    },
)
def test_what_is_close_to_a_mistake_is_accepted(text, look, expected, reading):
    assert look(compile_query(text, reading).ir) == expected


@each_case("direction", ["", "asc", "desc"])
@each_case("call", ['bm25($p.title, "x")', 'rrf(bm25($p.title, "x"), bm25($p.abstract, "y"))'])
def test_a_direction_after_bm25_or_rrf_changes_nothing(call, direction, reading):
    plain = compile_query(read("", f"return {{ $p.title }} order {{ {call} }} limit 3"), reading)
    directed = compile_query(read("", f"return {{ $p.title }} order {{ {call} {direction} }} limit 3"), reading)

    assert directed.ir == plain.ir


@each_case("bound", ["99999999999999999999", "9" * 60], ids=["20 digits", "60 digits"])
def test_t15_a_bound_beyond_64_bits_is_refused(bound, problems):
    (problem,) = problems(read(f"$p cites{{1,{bound}}} $q"))

    assert problem.code in ("T15", "Q109")


@named_cases(
    ("text", "word", "is_said"),
    {
        "a comparison is not told of `contains` again": (read("$p.title = 5"), "with `contains`", False),
        "a list is not told of `contains` again": (read("$p.topics contains 5"), "with `contains`", False),
        "nor is a list beside a list": (read('$p.counts contains ["a"]'), "with `contains`", False),
        "a word that is not a column is not called one": (read("", "return { title }"), "again", False),
    },
)
def test_a_message_speaks_of_the_mistake_at_hand(text, word, is_said, problems):
    (problem,) = problems(text)

    assert (word in (problem.hint or "")) is is_said
    assert is_said or word not in problem.message


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


def test_a_compiler_error_is_a_bad_request_with_every_finding(reading):
    with pytest.raises(CompilerError) as failure:
        compile_query(read("$p.yeer > 1 $p.titel = $p.doi"), reading)

    body = failure.value.to_json()
    assert str(failure.value).count("error T6") == 2
    assert (failure.value.http_status, body["code"]) == (400, "bad_request")
    assert [item["code"] for item in body["diagnostics"]] == ["T6", "T6"]


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
    return [
        (item.type_name, name) for item in report.findings if item.code == code for name in item.properties or [None]
    ]


def test_a_clean_file_is_reported_in_full(reading):
    body = lint(READ, reading).to_json()

    field = {"name": "p.title", "kind": "string", "nullable": False}
    operation = {"result": [field], "reads": [{"kind": "node", "type_name": "Paper"}], "writes": []}
    assert list(body.items()) == [
        ("status", "ok"),
        ("schema_source", "schema.pg"),
        ("query_path", "queries.gq"),
        ("queries_processed", 1),
        ("errors", 0),
        ("warnings", 0),
        ("infos", 0),
        ("results", [{"name": "papers", "kind": "read", "status": "ok", "warnings": [], "operation": operation}]),
        ("findings", []),
    ]


def test_a_wrong_query_has_an_error_and_does_not_hide_the_others(reading):
    report = lint(f"{WRONG} {READ}", reading)

    wrong, sound = report.to_json()["results"]
    assert set(wrong) == {"name", "kind", "status", "warnings", "error", "diagnostics"}
    assert wrong["error"].startswith("T1: there is no node type `Papr`")
    assert (wrong["status"], sound["status"]) == ("error", "ok")
    assert (report.errors, report.status) == (1, LintStatus.ERROR)
    assert json.loads(json.dumps(report.to_json())) == report.to_json()


def test_a_finding_has_exactly_the_members_of_the_contract(notes):
    text = 'query up($s: String) { update Note set { title: "x" } where slug = $s }'

    (finding,) = lint(text, notes).to_json()["findings"]

    assert finding == {
        "severity": "warning",
        "code": "L201",
        "message": finding["message"],
        "type_name": "Note",
        "properties": ["mood"],
        "query_names": ["up"],
        "line": 1,
        "column": 31,
    }


def test_every_error_of_a_query_is_in_its_text(reading):
    text = "query q() { match { $p: Paper $p.yeer = 1 $p.titel = $p.doi } return { $p } }"

    (result,) = lint(text, reading).to_json()["results"]

    assert result["error"].count("T6: ") == 2


def test_q000_is_one_finding_with_its_place_and_without_results(reading):
    report = lint(f"{READ} query broken() {{ match {{ }} }}", reading)

    (finding,) = report.to_json()["findings"]
    assert set(finding) == {"severity", "code", "message", "query_names", "line", "column"}
    assert (finding["code"], finding["severity"]) == ("Q000", "error")
    assert (report.results, report.errors, report.to_json()["queries_processed"]) == ((), 1, 0)


def test_q101_a_repeated_name_is_an_error_of_the_file_at_its_second_declaration(reading):
    report = lint(f"{READ}\n{READ}", reading)

    (finding,) = report.findings
    assert (finding.code, finding.query_names, report.status) == ("Q101", ("papers",), LintStatus.ERROR)
    assert (finding.line, finding.column) == (2, 7)


def update(body: str, name: str = "q") -> str:
    return f"query {name}($s: String) {{ update {body} }}\n"


@named_cases(
    ("text", "named"),
    {
        "every nullable property that no update sets": (
            update("Note set { body: $s } where slug = $s"),
            [("Note", "title"), ("Note", "mood")],
        ),
        "no key, required property or embedding": (
            update("Note set { title: $s } where slug = $s"),
            [("Note", "mood")],
        ),
        "nothing without an update of the type": (
            "query add($s: String) { insert Note { slug: $s, body: $s } }"
            "query drop($s: String) { delete Tag where label = $s }",
            [],
        ),
        "an insert sets nothing": (
            "query add($s: String) { insert Note { slug: $s, body: $s, title: $s, mood: $s } }"
            + update("Note set { body: $s } where slug = $s"),
            [("Note", "title"), ("Note", "mood")],
        ),
        "all updates of the file count together": (
            update("Note set { title: $s } where slug = $s", "a")
            + update("Note set { mood: $s } where slug = $s", "b"),
            [],
        ),
        "an invalid update neither triggers nor sets": (
            update("Note set { title: $s } where slug = $s", "valid")
            + update("Note set { mood: $s, nope: $s } where slug = $s", "invalid")
            + update("Tag set { label: 5 } where label = $s", "also_invalid"),
            [("Note", "mood")],
        ),
        "a mixed mutation is not a valid update": (
            update("Note set { title: $s } where slug = $s delete Tag where label = $s"),
            [],
        ),
    },
)
def test_l201_names_the_properties_that_only_an_update_could_set(text, named, notes):
    assert findings(lint(text, notes), "L201") == named


def test_l201_names_the_queries_that_update_the_type_and_points_at_the_first(notes):
    note = "Note set { title: $s } where slug = $s"
    text = update(note, "z") + update(note, "a") + update("Tag set { label: $s, colour: $s } where label = $s", "other")

    (finding,) = lint("query add($s: String) { insert Note { slug: $s, body: $s } }\n" + text, notes).findings

    assert (finding.query_names, finding.line, finding.column) == (("a", "z"), 2, 30)


@named_cases(
    ("text", "kinds", "warnings"),
    {
        "no query": ("", [], 0),
        "a read and a mutation with parameters": (
            "query r() { match { $t: Tag } return { $t } } query m($s: String) { insert Tag { label: $s } }",
            ["read", "mutation"],
            0,
        ),
        "an update without parameters, of one of two properties": (
            'query up() { update Note set { title: "x" } where slug = "y" }',
            ["mutation"],
            2,
        ),
    },
)
def test_warnings_do_not_fail_a_file(text, kinds, warnings, notes):
    report = lint(text, notes)

    assert (report.status, report.errors, report.warnings) == (LintStatus.OK, 0, warnings)
    assert [result.kind for result in report.results] == kinds
    assert report.to_json()["queries_processed"] == len(kinds)


def test_a_mutation_without_parameters_is_a_warning_without_code_at_its_name(notes):
    report = lint('\nquery add() { insert Tag { label: "x" } }', notes)

    (finding,) = report.to_json()["findings"]
    assert (finding["severity"], finding["code"], finding["query_names"]) == ("warning", None, ["add"])
    assert (finding["line"], finding["column"]) == (2, 7)
    assert report.results[0].warnings == (finding["message"],)


def test_findings_are_sorted_by_severity_type_and_message(notes):
    text = """
    query b() { update Tag set { label: "x" } where label = "y" }
    query a() { update Note set { body: "x" } where slug = "y" }
    query b() { match { $t: Tag } return { $t } }
    """

    report = lint(text, notes)

    order = [(str(item.severity), item.type_name) for item in report.findings]
    assert order == [("error", None), ("warning", None), ("warning", None), ("warning", "Note"), ("warning", "Tag")]
    assert ["`a`" in report.findings[1].message, "`b`" in report.findings[2].message] == [True] * 2


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


@each_case("second", ["$a about $t\n    $b: Note", "\n    $b about $t"], ids=["a variable", "a traversal"])
def test_l202_points_at_the_first_pattern_that_nothing_joins(notes: Catalog, second: str) -> None:
    text = f"query q() {{\n  match {{ $a: Note  {second} }}\n  return {{ $a.slug }}\n}}"

    (finding,) = lint(text, notes).findings

    assert (finding.line, finding.column) == (3, 5)


def test_very_many_errors_are_all_counted(notes: Catalog) -> None:
    broken = lint("query q() { match }\n" * (MAX_DIAGNOSTICS + 7), notes)
    wrong = " ".join(f"$a.nothing{number} = 1" for number in range(MAX_DIAGNOSTICS + 7))
    (result,) = lint(f"query q() {{ match {{ $a: Note {wrong} }} return {{ $a }} }}", notes).results

    assert (len(broken.findings), broken.errors) == (MAX_DIAGNOSTICS, MAX_DIAGNOSTICS + 7)
    assert len(result.diagnostics) == MAX_DIAGNOSTICS
    assert result.to_json()["diagnostic_total"] == MAX_DIAGNOSTICS + 7


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ('insert Note { slug: "a", body: "x" }', "stays null"),
        ('insert Must { slug: "a", body: "x" }', "must not be null"),
        ('upsert Note { slug: "a", body: "x" }', "stays as it is"),
        ('update Note set { body: "x" } where slug = "a"', "stays as it is"),
        ('match { $n: Note } update $n set { body: "x" }', "stays as it is"),
        ('update Note set { body: "x", vec: $vec } where slug = "a"', None),
        ('update Note set { slug2: "x" } where slug = "a"', None),
    ],
)
def test_l203_a_text_without_its_vector_where_nothing_embeds(statement: str, outcome: str | None) -> None:
    schema = """
    node Note { slug: String @key  slug2: String?  body: String?  vec: Vector(4)? @embed("body") }
    node Must { slug: String @key  body: String?  vec: Vector(4) @embed("body") }
    """
    catalog = compile_schema(schema).catalog
    source = SourceText(f"query q($vec: Vector(4)) {{ {statement} }}", "queries.gq")
    report = lint_queries(source, catalog, "schema.pg", no_embedding="no key is set")
    messages = [item.message for item in report.findings if item.code == "L203"]
    assert [text.partition(", which ")[2] for text in messages] == ([f"{outcome}: no key is set"] if outcome else [])
    assert not findings(lint_queries(source, catalog, "schema.pg"), "L203")
