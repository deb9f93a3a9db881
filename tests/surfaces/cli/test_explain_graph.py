"""`omnigraph explain` with a graph: what a query means, how it would run there, and how it ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.cli_graphs import History, Outcome, Run

SCHEMA = """
node Person { name: String @key  age: I32? @index  bio: String? @index  vec: Vector(2)? @index }
node Place { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> Place
"""
#: Ada knows Bob and Cid, Bob knows Cid; Ada and Bob live somewhere.
DATA = """
query fill() {
  insert Person { name: "ada", age: 30, bio: "plays chess", vec: [0.0, 1.0] }
  insert Person { name: "bob", age: 40, bio: "plays go", vec: [1.0, 0.0] }
  insert Person { name: "cid", bio: "sleeps", vec: [1.0, 1.0] }
  insert Person { name: "dan", age: 50 }
  insert Place { name: "rome" }
  insert Knows { from: "ada", to: "bob" }
  insert Knows { from: "ada", to: "cid" }
  insert Knows { from: "bob", to: "cid" }
  insert LivesIn { from: "ada", to: "rome" }
  insert LivesIn { from: "bob", to: "rome" }
}
"""
FRIENDS = """
query friends($name: String) {
  match {
    $p: Person { name: $name }
    $p knows $q
    not { $q livesIn $_ }
  }
  return { $p.name as who, $q.name as friend }
  order { friend }
  limit 5
}
"""
ADULTS = "query adults() { match { $p: Person $p.age > 35 } return { $p.name as name } order { name } }"
PAIRS = """
query pairs() {
  match { $p: Person $q: Person $p.age < $q.age }
  return { $p.name, $q.name }
  order { $p.name, $q.name }
}
"""
COUNTS = "query counts() { match { $p: Person $p knows $q } return { $p.name as who, count($q) as n } order { who } }"
NEAREST = """
query close($v: Vector(2)) {
  match { $p: Person  $p knows $q }
  return { $p.name as who, $q.name as whom }
  order { nearest($p.vec, $v) }
  limit 10
}
"""
LONELY = """
query lonely($text: String) {
  match { $p: Person  not { $p knows $_ } }
  return { $p.name as who }
  order { bm25($p.bio, $text) }
}
"""
WRITE = 'query add($n: String) { insert Person { name: $n } update Person set { age: 1 } where name = "ada" }'

ESTIMATE = re.compile(r"^ +(NodeScan|Expand|Filter|AntiJoin)\b.* · about \d+ rows?$")
MEASURE = re.compile(
    r"^ +(?P<op>NodeScan|Expand|Filter|AntiJoin)\b.*? · about \d+ rows?"
    r" · (?P<rows>\d+) rows?(?: via [a-z ]+)? in \d+\.\d\d ms$"
)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small graph; tests only read it."""
    with Graph.init(tmp_path_factory.mktemp("people") / "people.omni", SCHEMA) as graph:
        graph.mutate(DATA)
        return graph.uri


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same graph with its indexes."""
    with Graph.init(tmp_path_factory.mktemp("indexed") / "people.omni", SCHEMA) as graph:
        graph.mutate(DATA)
        graph.ensure_indices()
        return graph.uri


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "people.pg"
    path.write_text(SCHEMA, encoding="utf-8")
    return str(path)


def plan_of(outcome: Outcome) -> list[str]:
    """The lines of the plan section."""
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    return lines[lines.index("plan") + 1 :]


def measured(outcome: Outcome) -> list[tuple[str, int]]:
    """Operators with the rows that they made."""
    found = [MEASURE.match(line) for line in plan_of(outcome)]
    return [(match["op"], int(match["rows"])) for match in found if match]


# ---- without running


@pytest.mark.parametrize("text", [FRIENDS, ADULTS, PAIRS, COUNTS, NEAREST, LONELY])
def test_the_meaning_stands_above_the_plan(og: Run, people: str, schema_file: str, text: str) -> None:
    """With a graph the same text as with a schema file alone, then the physical choices; no values are needed."""
    meaning = og("explain", "--schema", schema_file, "-e", text)
    assert meaning.code == 0
    assert "plan" not in meaning.out.splitlines()
    physical = og("explain", "--store", people, "-e", text)
    assert physical.code == 0
    assert physical.err == ""
    assert physical.out.startswith(f"{meaning.out}plan\n")
    lines = plan_of(physical)
    operators = [line for line in lines if not line.startswith("  Rank ")]
    assert operators
    assert [line for line in operators if not ESTIMATE.match(line)] == []
    assert " ms" not in physical.out


def test_the_plan_names_an_operator_per_line_with_its_path(og: Run, people: str) -> None:
    lines = plan_of(og("explain", "--store", people, "-e", FRIENDS))
    assert [line.split("·")[0].rstrip() for line in lines] == [
        "  NodeScan $p: by a scan with a filter",
        "  Expand $p -Knows-> $q: edge scan",
        "  AntiJoin, once for all outer rows",
        "    Expand $q -LivesIn-> $_: edge scan",
    ]


def test_estimates_know_how_large_the_types_are(og: Run, people: str) -> None:
    everyone = "query q() { match { $p: Person } return { $p.name } }"
    pairs = "query q() { match { $p: Person $q: Person } return { $p.name, $q.name } }"
    places = "query q() { match { $p: Place } return { $p.name } }"
    assert plan_of(og("explain", "--store", people, "-e", everyone)) == ["  NodeScan $p: all rows · about 4 rows"]
    assert plan_of(og("explain", "--store", people, "-e", pairs))[-1].endswith(" · about 16 rows")
    (line,) = plan_of(og("explain", "--store", people, "-e", places))
    assert re.fullmatch(r"  NodeScan \$p: all rows · about 1 rows?", line)


def test_indexes_appear_in_the_plan_when_they_exist(og: Run, people: str, indexed: str) -> None:
    def lines(store: str, text: str) -> str:
        return "\n".join(plan_of(og("explain", "--store", store, "-e", text)))

    assert "by a scan with a filter" in lines(people, ADULTS)
    assert "with age_btree" in lines(indexed, ADULTS)
    assert "exact scan" in lines(people, NEAREST)
    assert "bm25 bio: its text index" in lines(people, LONELY)
    assert "bm25 bio: its text index, ready" in lines(indexed, LONELY)


def test_the_plan_is_of_the_branch(og: Run, past: History) -> None:
    text = "query keys() { match { $i: Item } return { $i.k } }"
    main = plan_of(og("explain", "--store", past.uri, "-e", text))
    side = plan_of(og("explain", "--store", past.uri, "-e", text, "--branch", "side"))
    assert re.fullmatch(r"  NodeScan \$i: all rows · about 1 rows?", main[0])
    assert side == ["  NodeScan $i: all rows · about 3 rows"]


def test_values_are_checked_when_they_are_given(og: Run, people: str) -> None:
    words = ("explain", "--store", people, "-e", FRIENDS)
    without, right = og(*words), og(*words, "--params", '{"name": "ada"}')
    assert without.code == right.code == 0
    wrong = og(*words, "--params", '{"nam": "ada"}')
    assert (wrong.code, wrong.out) == (1, "")
    assert "`nam` is not declared (did you mean `name`?)" in wrong.err


# ---- running


def test_analyze_shows_rows_and_time_of_every_operator(og: Run, people: str) -> None:
    words = ("explain", "--store", people, "-e", FRIENDS, "--params", '{"name": "ada"}')
    outcome = og(*words, "--analyze")
    assert measured(outcome) == [("NodeScan", 1), ("Expand", 2), ("AntiJoin", 1), ("Expand", 1)]
    assert re.search(r"^  Project: 1 rows? in \d+\.\d\d ms$", outcome.out, re.MULTILINE)
    plain = og(*words).out
    meaning = plain.partition("plan\n")[0]
    assert outcome.out.startswith(f"{meaning}plan\n")


def test_analyze_counts_rows_behind_filters_and_products(og: Run, people: str) -> None:
    assert measured(og("explain", "--store", people, "-e", ADULTS, "--analyze")) == [("NodeScan", 2)]
    assert measured(og("explain", "--store", people, "-e", PAIRS, "--analyze")) == [
        ("NodeScan", 4),
        ("NodeScan", 16),
        ("Filter", 3),
    ]
    assert measured(og("explain", "--store", people, "-e", COUNTS, "--analyze")) == [("NodeScan", 4), ("Expand", 3)]


def test_analyze_estimates_what_was_known_before_the_run(og: Run, people: str) -> None:
    """What the run itself prepared must not appear as if it had been there."""
    text = FRIENDS.replace("livesIn", "knows")
    words = ("explain", "--store", people, "-e", text, "--params", '{"name": "ada"}')
    before = [line.split(" · ")[0] for line in plan_of(og(*words))]
    after = [line.split(" · ")[0] for line in plan_of(og(*words, "--analyze"))]
    assert after[: len(before)] == before


def test_analyze_of_a_ranked_query_measures_what_is_behind_the_ranking(og: Run, people: str) -> None:
    words = ("explain", "--store", people, "--analyze")
    close = og(*words, "-e", NEAREST, "--params", '{"v": [0.0, 1.0]}')
    assert "  Rank $p best candidates first (" in close.out
    assert ("Expand", 3) in measured(close)
    lonely = og(*words, "-e", LONELY, "--params", '{"text": "plays sleeps"}')
    behind = [item for item in measured(lonely) if item[0] != "NodeScan"]
    assert [name for name, _ in behind] == ["AntiJoin", "Expand"]
    assert behind[0] == ("AntiJoin", 1), "of three candidates, only cid knows nobody"
    assert behind[1][1] >= 2, "ada and bob know somebody"


def test_analyze_of_an_empty_graph_says_zero(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        uri = graph.uri
    assert measured(og("explain", "--store", uri, "-e", COUNTS, "--analyze")) == [("NodeScan", 0), ("Expand", 0)]


def test_analyze_needs_the_values(og: Run, people: str) -> None:
    outcome = og("explain", "--store", people, "-e", FRIENDS, "--analyze")
    assert (outcome.code, outcome.out) == (1, "")
    assert "`name` is missing: it is String" in outcome.err
    body = og("explain", "--store", people, "-e", FRIENDS, "--analyze", "--json")
    assert (body.code, body.json()["kind"]) == (1, "bad_request")


# ---- mutations


def test_a_mutation_is_explained_and_never_run(og: Run, people: str, schema_file: str) -> None:
    before = og("snapshot", people).out
    outcome = og("explain", "--store", people, "-e", WRITE)
    assert outcome.code == 0
    assert outcome.out == og("explain", "--schema", schema_file, "-e", WRITE).out
    assert outcome.out.startswith("mutation add($n: String)\n  InsertNode Person { name: param(n) }\n")
    og("explain", "--store", people, "-e", WRITE, "--analyze", "--params", '{"n": "eve"}')
    assert og("snapshot", people).out == before


# ---- JSON and command lines


@pytest.mark.parametrize("text", [FRIENDS, WRITE], ids=["read", "mutation"])
def test_json_has_the_plan_as_lines(og: Run, people: str, text: str) -> None:
    plain = og("explain", "--store", people, "-e", text)
    body = og("explain", "--store", people, "-e", text, "--json").json()
    assert list(body) == ["query_name", "kind", "plan", "operation"]
    assert body["plan"] == plain.out.splitlines()
    assert set(body["operation"]) == {"result", "reads", "writes"}
    assert body["kind"] == ("read" if text is FRIENDS else "mutation")


def test_json_with_analyze_has_the_numbers(og: Run, people: str) -> None:
    body = og("explain", "--store", people, "-e", ADULTS, "--analyze", "--json").json()
    assert [line for line in body["plan"] if MEASURE.match(line)] != []
    assert body["operation"]["result"] == [{"name": "name", "kind": "string", "nullable": False}]


def test_the_schema_form_needs_no_graph(og: Run, schema_file: str) -> None:
    outcome = og("explain", "--schema", schema_file, "-e", ADULTS)
    assert outcome.out == (
        "read adults()\n"
        "  NodeScan $p: Person where $p.age > 35\n"
        "  Project\n"
        "    name: String = $p.name\n"
        "  Order name asc\n"
    )


def test_a_name_selects_among_several_queries(og: Run, people: str) -> None:
    text = f"{ADULTS}\n{COUNTS}"
    named = og("explain", "counts", "--store", people, "-e", text)
    assert named.out.startswith("read counts()\n")
    unnamed = og("explain", "--store", people, "-e", text)
    assert unnamed.code == 1
    assert "holds 2 queries" in unnamed.err
