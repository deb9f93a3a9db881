"""Statements use what the match knows: blocks and paths as values, and conditions between rows and the match."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, IntegerOverflowError, ReadSetConflictError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.tables import Table
from support.graphs import interrupted, new_graph, refused, rows_of, run
from support.subtests import each_case

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    rank: I64?
    weight: F32?
    height: F64?
    born: Date?
    seen: DateTime?
    city: enum(Oslo, Rome)?
    route: [String]?
    known: Bool?
}
node Town { name: String @key  size: I64?  area: F64?  width: F32?  since: Date?  at: DateTime?  big: U64?  hit: I32? photo: Blob? }
node Village { name: String @key  size: I64?  hit: I32? }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
edge LivesIn: Person -> Town { @key(src, dst) }
"""  # noqa: E501  # one type per line
ROWS = """
insert Person { name: "ann", age: 3, rank: 9007199254740993, weight: 0.1, height: 2.0, born: date("2020-01-02"),
  seen: datetime("2020-01-02T00:00:00Z"), city: "Rome" }
insert Person { name: "bob", age: 7, rank: 9223372036854775807, weight: 2.5, height: 0.1, city: "Oslo" }
insert Person { name: "cy", height: 9007199254740992.0 }
insert Town { name: "Rome", size: 3, area: 3.0, width: 0.1, since: date("2020-01-02"),
  at: datetime("2020-01-02T00:00:00Z"), big: 18446744073709551615, photo: "base64:aGk=" }
insert Town { name: "Oslo", size: 7, area: 0.1, width: 2.5, since: date("1999-12-31"), big: 9007199254740993 }
insert Town { name: "Nice" }
insert Town { name: "ann", size: 9007199254740992, width: 2.0 }
insert Knows { from: "ann", to: "bob", since: 1 }
insert Knows { from: "bob", to: "cy" }
insert Knows { from: "ann", to: "cy" }
insert LivesIn { from: "cy", to: "Rome" }
insert LivesIn { from: "ann", to: "Rome" }
"""


@pytest.fixture
def people(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, SCHEMA)
    graph.mutate(ROWS)
    graph.mutate("match { $t: Town } insert Village { name: $t.name, size: $t.size }")
    return graph


def of(graph: Graph, name: str) -> dict[str, Any]:
    return {row["name"]: row[name] for row in rows_of(graph, "node:Person")}


# ---- blocks and paths


def test_decision_85_a_block_in_a_statement_has_its_value_at_the_match(people: Graph) -> None:
    run(
        people,
        """
        match { $p: Person }
        insert Knows { from: $p, to: "ann" }
        update $p set { rank: count { $p knows $x } * 10 + coalesce(age, 0) }
        """,
    )
    assert of(people, "rank") == {"ann": 23, "bob": 17, "cy": 0}


@each_case(
    ("statement", "name", "expected"),
    [
        pytest.param("{ known: exists { $p knows $x  $x.age > 5 } }", "known", [True, False, False], id="exists"),
        pytest.param("{ known: not { $p knows $_ } }", "known", [False, False, True], id="not"),
        pytest.param("{ route: collect($x.name) { $p knows $x } }", "route", [["bob", "cy"], ["cy"], []], id="collect"),
        pytest.param("{ height: avg($x.age) { $p <knows> $x } }", "height", [7.0, 3.0, 5.0], id="both ways"),
        pytest.param(
            "{ rank: case when count { $p knows $x } > 1 then age else count { $x: Person  $x knows $p } end }",
            "rank",
            [3, 1, 2],
            id="beside a value of the row",
        ),
    ],
)
def test_blocks_are_values_of_statements(people: Graph, statement: str, name: str, expected: list[object]) -> None:
    people.create_branch("here")
    people.mutate(f"match {{ $p: Person }} update $p set {statement}", branch="here")
    found = people.query(f"match {{ $p: Person }} return {{ $p.{name} as v }} order {{ $p.name }}", branch="here")
    assert [row["v"] for row in found.to_pylist()] == expected
    people.delete_branch("here")


def test_a_named_block_is_the_block(people: Graph) -> None:
    run(people, "match { $p: Person  let $n = count { $p knows $x } } update $p set { rank: $n } where $n > 0")
    assert of(people, "rank") == {"ann": 2, "bob": 1, "cy": None}


def test_blocks_in_conditions_and_in_new_rows(people: Graph) -> None:
    run(people, "match { $p: Person } update $p set { rank: 1 } where not { $p livesIn $_ } and age = 7")
    assert of(people, "rank") == {"ann": 9007199254740993, "bob": 1, "cy": None}
    run(
        people,
        """
        match { $p: Person  $p knows $_ }
        insert Town { name: concat($p.name, "ville"), size: count { $p knows $x } } as $t
        insert LivesIn { from: $p, to: $t }
        """,
    )
    sizes = {row["name"]: row["size"] for row in rows_of(people, "node:Town")}
    assert (sizes["annville"], sizes["bobville"]) == (2, 1)


def test_a_block_beyond_64_bits_is_refused_as_a_value_and_unknown_in_a_condition(people: Graph) -> None:
    beyond = "sum($x.rank + 1) { $p knows $x }"
    with refused(people, IntegerOverflowError, "ann"):
        run(people, f"match {{ $p: Person }} update $p set {{ height: {beyond} }}")
    run(people, f"match {{ $p: Person }} update $p set {{ known: true }} where {beyond} is null")
    assert of(people, "known") == {"ann": None, "bob": True, "cy": True}


def test_decision_85_a_path_of_the_match_is_a_value_of_statements(people: Graph) -> None:
    result = people.mutate(
        """
        match { $p: Person { name: "ann" }  path $w = shortest $p knows{1,3} $q }
        update $q set { rank: length($w), route: nodes($w) }
        return { $q.name as name, length($w) as far }
        """
    )
    assert of(people, "rank") == {"ann": 9007199254740993, "bob": 1, "cy": 1}
    assert of(people, "route") == {"ann": None, "bob": ["ann", "bob"], "cy": ["ann", "cy"]}
    assert result.rows is not None
    assert sorted(result.rows, key=str) == [{"name": "bob", "far": 1}, {"name": "cy", "far": 1}]


def test_decision_86_a_statement_runs_once_for_each_path_that_it_mentions(people: Graph) -> None:
    paths = 'match { $p: Person { name: "ann" }  path $w = all $p knows{1,3} $q }'
    assert run(people, f'{paths} insert Town {{ name: concat("t", element(edges($w), 1)) }}').affected_nodes == 2
    assert run(people, f'{paths} insert Village {{ name: concat("v", $q.name) }}').affected_nodes == 2
    longest = 'concat("w", string(length($w)), $q.name)'
    assert run(people, f"{paths} insert Village {{ name: {longest} }}").affected_nodes == 3
    with refused(people, BadRequestError, "different values"):
        run(people, f"{paths} update $q set {{ rank: length($w) }}")


def test_a_block_may_use_a_path(people: Graph) -> None:
    text = """
        match { $p: Person { name: "ann" }  path $w = all $p knows{1,3} $q }
        update $p set { known: true } where count { $q livesIn $t  length($w) > 1 } > 0
    """
    run(people, text)
    assert of(people, "known") == {"ann": True, "bob": None, "cy": None}


def test_what_only_a_block_of_a_statement_read_is_fenced(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtake() -> None:
        run(people, 'insert LivesIn { from: "bob", to: "Nice" }')

    text = "match { $p: Person } update $p set { rank: count { $p livesIn $x } }"
    with interrupted(monkeypatch, overtake), pytest.raises(ReadSetConflictError):
        run(people, text)
    assert of(people, "rank")["bob"] == 9223372036854775807


# ---- conditions between rows and the match


CONDITIONS = [
    "{t}name = $p.name",
    "{t}name != $p.name",
    "{t}name starts_with $p.name",
    "{t}size = $p.age",
    "{t}size = $p.age + 4",
    "$p.age = {t}size",
    "{t}size = $p.rank",
    "{t}size = $p.height",
    "{t}area = $p.age",
    "{t}area = $p.height",
    "{t}width = $p.weight",
    "{t}width = $p.height",
    "{t}since = $p.born",
    "{t}at = $p.seen",
    "{t}big = $p.rank",
    "{t}name = $p.city",
    "lower({t}name) = lower($p.city)",
    "{t}size > $p.age",
    "{t}size > $p.age and {t}size < 8",
    "{t}size = $p.age and {t}area > 1",
    "{t}size = $p.age and {t}name = $p.city",
    "{t}size = $p.age or {t}name = $p.city",
    "not ({t}size = $p.age)",
    "{t}size = $p.age and $p.name = \"ann\"",
    "$p.age is null and {t}size = 7",
    "{t}size is null and $p.age is null",
    "{t}name in [\"Rome\"] and {t}size = $p.age",
    "{t}size = coalesce($p.age, 7)",
    "{t}size * 2 = $p.age * 2",
    "{t}name in split($p.city, \",\")",
    "{t}@id = $p.city",
]  # fmt: skip


@each_case("condition", CONDITIONS)
def test_a_condition_on_rows_and_the_match_finds_what_a_read_finds(people: Graph, condition: str) -> None:
    """Committed rows and rows of the same mutation, in a type with blobs and in one without."""
    read = condition.format(t="$t.")
    found = people.query(f"match {{ $p: Person  $t: Town  {read} }} return distinct {{ $t.name as name }}").to_pylist()
    expected = {row["name"] for row in found}
    matched, where = "match { $p: Person }", f"where {condition.format(t='')}"
    is_shared = not any(name in condition for name in ("{t}area", "{t}width", "{t}since", "{t}at", "{t}big"))
    for type_name in ["Town", "Village"] if is_shared else ["Town"]:
        people.create_branch("here")
        update = f"update {type_name} set {{ hit: 1 }} {where}"
        people.mutate(f"{matched} {update}", branch="here")
        assert hits(people, type_name) == expected
        # Now every row is one of the same mutation.
        people.mutate(f"{matched} update {type_name} set {{ hit: 2 }} where true {update}", branch="here")
        assert hits(people, type_name) == expected
        deleted = people.mutate(f"{matched} delete {type_name} {where}", branch="here")
        assert deleted.affected_nodes == len(expected)
        people.delete_branch("here")


def hits(graph: Graph, type_name: str) -> set[str]:
    text = f"match {{ $t: {type_name}  $t.hit = 1 }} return {{ $t.name as name }}"
    return {row["name"] for row in graph.query(text, branch="here").to_pylist()}


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each table was scanned."""
    counted: Counter[str] = Counter()
    original = Table.scan

    def counting(self: Table, *given: Any) -> Any:
        counted[self.path.rsplit("/", 1)[-1]] += 1
        return original(self, *given)

    monkeypatch.setattr(Table, "scan", counting)
    return counted


def test_rows_are_looked_for_once_for_all_combinations(tmp_path: Path, scans: Counter[str]) -> None:
    types = "node Note { name: String @key  size: I64 } node Village { name: String @key  size: I64?  hit: I32? }"
    graph = new_graph(tmp_path, types)
    graph.mutate("".join(f'insert Note {{ name: "v{n}", size: {n} }} ' for n in range(40)))
    graph.mutate("".join(f'insert Village {{ name: "v{n}", size: {n} }} ' for n in range(50)))
    for statement, count in (
        ("update Village set { hit: 1 } where name = $n.name", 40),
        ("update Village set { hit: 1 } where size > $n.size", 49),
        ("delete Village where name = $n.name", 40),
    ):
        scans.clear()
        assert graph.mutate(f"match {{ $n: Note }} {statement}", dry_run=True).affected_nodes == count
        assert sum(scans.values()) < 10
