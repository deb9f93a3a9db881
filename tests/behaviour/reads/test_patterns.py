# ruff: noqa: E501 - a query and its rows stand in one line each
"""Patterns over several types, and what may be missing: from the text of a query to the rows that come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError, ResourceLimitError
from support.subtests import each_case

SCHEMA = """
interface Named { key: String }
interface Unused { key: String }
node Town implements Named { key: String @key  size: I64? }
node Person implements Named { key: String @key  age: I32?  size: I32? }
edge Knows: Person -> Person { since: I32? }
edge Follows: Person -> Person
edge Likes: Person -> Town { since: I32? }
"""
DATA = """
insert Person { key: "ann", age: 30 }
insert Person { key: "bob", age: 40 }
insert Person { key: "cid" }
insert Person { key: "dan", age: 41 }
insert Town { key: "oslo", size: 5 }
insert Town { key: "rome", size: 9 }
insert Town { key: "bob", size: 1 }
insert Knows { from: "ann", to: "bob", since: 2001 }
insert Knows { from: "ann", to: "dan", since: 2005 }
insert Knows { from: "bob", to: "cid" }
insert Knows { from: "dan", to: "ann", since: 2010 }
insert Follows { from: "cid", to: "dan" }
insert Likes { from: "ann", to: "oslo", since: 1999 }
insert Likes { from: "ann", to: "rome" }
insert Likes { from: "dan", to: "rome" }
insert Likes { from: "bob", to: "bob" }
"""


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(str(tmp_path_factory.mktemp("patterns") / "towns.omni"), SCHEMA)
    graph.mutate(DATA)
    return graph


def rows_of(graph: Graph, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in graph.query(text).to_arrow().to_pylist()]


@each_case(
    ("text", "expected"),
    [
        # An outer join: a row without a solution stays.
        (
            "match { $p: Person  optional { $p knows $q  $q.age > 35 } } return { $p.key as p, $q.key as q, $q as node } "
            "order { p, q }",
            [
                ("ann", "bob", "bob"),
                ("ann", "dan", "dan"),
                ("bob", None, None),
                ("cid", None, None),
                ("dan", None, None),
            ],
        ),
        # Conditions outside apply behind it, wherever they stand.
        (
            "match { $p: Person  $q is null  optional { $p knows $q  $q.age > 35 } } return { $p.key as p } order { p }",
            [("bob",), ("cid",), ("dan",)],
        ),
        (
            "match { $p: Person  optional { $p knows $q }  optional { $q knows $r } } "
            "return { $p.key as p, $q.key as q, $r.key as r } order { p, q, r }",
            [
                ("ann", "bob", "cid"),
                ("ann", "dan", "ann"),
                ("bob", "cid", None),
                ("cid", None, None),
                ("dan", "ann", "bob"),
                ("dan", "ann", "dan"),
            ],
        ),
        (
            "match { $p: Person  optional { $p knows $q  $q.age > 35 } } "
            "return { $p.key as p, count($q) as n, count(*) as rows, collect($q.key) as all } order { p }",
            [("ann", 2, 2, ["bob", "dan"]), ("bob", 0, 1, []), ("cid", 0, 1, []), ("dan", 0, 1, [])],
        ),
        # A value of the block is null where the block has no solution, whatever it is.
        (
            "match { $p: Person  optional { $p likes $t  let $x = coalesce($t.size, 0) + 1 } } "
            "return { $p.key as p, $x as x } order { p, x }",
            [("ann", 6), ("ann", 10), ("bob", 2), ("cid", None), ("dan", 10)],
        ),
        (
            "match { $p: Person  optional { $p likes $t } } return distinct { $t } order { $t nulls last }",
            [("bob",), ("oslo",), ("rome",), (None,)],
        ),
        (
            "match { $p: Person  optional { $p knows $q }  count { $q likes $t } = 0 } return { $p.key as p } order { p }",
            [("bob",), ("cid",)],
        ),
        # Several types: identity is type and id.
        (
            'match { $x: Person | Town  $x.key = "bob" } return { $x, $x.@type } order { $x }',
            [("bob", "Person"), ("bob", "Town")],
        ),
        (
            'match { $x: Named  $x.key contains "o" } return { $x.@type as t, count($x) as n } order { t }',
            [("Person", 1), ("Town", 3)],
        ),
        ("match { $x: Unused } return { count($x) as n }", [(0,)]),
        ("match { $x: Person | Town  $y: Person | Town  $x = $y } return { count(*) as n }", [(7,)]),
        ("match { $x: Person | Town } return { count(distinct $x) as n, count(distinct $x.key) as k }", [(7, 6)]),
        (
            "match { $p: Person  $p (knows | likes) $x } return { $p.key as p, $x.key as x, $x.@type as t } order { p, x }",
            [
                ("ann", "bob", "Person"),
                ("ann", "dan", "Person"),
                ("ann", "oslo", "Town"),
                ("ann", "rome", "Town"),
                ("bob", "bob", "Town"),
                ("bob", "cid", "Person"),
                ("dan", "ann", "Person"),
                ("dan", "rome", "Town"),
            ],
        ),
        (
            "match { $p: Person  $p $e:(knows | likes) $x: Person | Town  $e.since < 2002 } "
            "return { $p.key as p, $x.key as x, $e.@type as t, $e.since as s } order { s }",
            [("ann", "oslo", "Likes", 1999), ("ann", "bob", "Knows", 2001)],
        ),
        (
            "match { $p: Person  $t: Town  $p * $t } return { $p.key as p, $t.key as t } order { p, t }",
            [("ann", "oslo"), ("ann", "rome"), ("bob", "bob"), ("dan", "rome")],
        ),
        (
            'match { $p: Person { key: "ann" }  $p (knows | follows){1,3} $q } return { $q.key as k } order { k }',
            [("bob",), ("cid",), ("dan",)],
        ),
        ('match { $p: Person { key: "ann" }  $p (knows | follows){3,3} $q } return { $q.key as k }', []),
        # Both ways over an edge between two types: who likes the same towns.
        ('match { $p: Person { key: "ann" }  $p <likes>{1,4} $q: Person } return { $q.key as k }', [("dan",)]),
        ('match { $t: Town { key: "rome" }  $t <likes> $x } return { $x.key as k } order { k }', [("ann",), ("dan",)]),
        # A condition of a hop holds at every hop.
        (
            'match { $p: Person { key: "ann" }  $p (knows where since > 2003){1,2} $q } return { $q.key as k }',
            [("dan",)],
        ),
        (
            "match { $p: Person  $p $e:(knows where since > 2003) $q } return { $p.key as p, $e.since as s } order { s }",
            [("ann", 2005), ("dan", 2010)],
        ),
        (
            "match { $a: Person | Town  $b: Person | Town  $a likes $b } return { $a.age as age, $b.size as s } order { s }",
            [(40, 1), (30, 5), (30, 9), (41, 9)],
        ),
        ("match { $p: Person  not { $p (likes | follows) $_ } } return { $p.key as p }", []),
        (
            "match { $p: Person } return { $p.key as p, count { $p (knows | likes) $_ } as n } order { n desc, p } limit 2",
            [("ann", 4), ("bob", 2)],
        ),
    ],
)
def test_rows_of_a_pattern(towns: Graph, text: str, expected: list[tuple[object, ...]]) -> None:
    assert rows_of(towns, text) == expected


@each_case(
    ("text", "expected"),
    [
        (
            'match { $p: Person { key: "ann" }  path $w = shortest $p knows{1,4} $q } '
            "return { $q.key as q, length($w) as l, nodes($w) as n } order { q }",
            [("bob", 1, ["ann", "bob"]), ("cid", 2, ["ann", "bob", "cid"]), ("dan", 1, ["ann", "dan"])],
        ),
        # Both ends given, several edge types: the shortest over all of them.
        (
            'match { $p: Person  path $w = shortest $p (knows | follows){1,4} $q: Person { key: "dan" } } '
            "return { $p.key as p, nodes($w) as n } order { p }",
            [("ann", ["ann", "dan"]), ("bob", ["bob", "cid", "dan"]), ("cid", ["cid", "dan"])],
        ),
        # Through towns: nodes between may be of any type.
        (
            "match { $p: Person  path $w = shortest $p <likes>{1,6} $q: Person } "
            "return { $p.key as p, $q.key as q, nodes($w) as n } order { p, q }",
            [("ann", "dan", ["ann", "rome", "dan"]), ("dan", "ann", ["dan", "rome", "ann"])],
        ),
        # Trails: the source again, but no edge twice.
        (
            'match { $p: Person { key: "ann" }  path $w = all $p knows{1,4} $q } return { length($w) as l, nodes($w) as n } order { l }',
            [
                (1, ["ann", "bob"]),
                (1, ["ann", "dan"]),
                (2, ["ann", "dan", "ann"]),
                (2, ["ann", "bob", "cid"]),
                (3, ["ann", "dan", "ann", "bob"]),
                (4, ["ann", "dan", "ann", "bob", "cid"]),
            ],
        ),
        (
            'match { $p: Person { key: "ann" }  path $w = all $p knows{1,4} $q } return { length($w) as l, count(*) as n } order { l }',
            [(1, 2), (2, 2), (3, 1), (4, 1)],
        ),
        (
            "match { $p: Person  path $w = shortest $p knows{1,4} $q } return { max(length($w)) as far, count($w) as n }",
            [(3, 7)],
        ),
        (
            "match { $p: Person  path $w = shortest $p knows{1,4} $q  length($w) > 1 } return { $p.key as p, $q.key as q } order { p, q }",
            [("ann", "cid"), ("dan", "bob"), ("dan", "cid")],
        ),
        (
            "match { $p: Person  optional { path $w = shortest $p follows $t } } "
            "return { $p.key as p, $w is null as none, nodes($w) as n } order { none, p } limit 2",
            [("cid", False, ["cid", "dan"]), ("ann", True, None)],
        ),
        (
            "match { $p: Person  path $w = shortest $p (knows where since > 2003){1,3} $q } return { nodes($w) as n } order { $p, $q }",
            [(["ann", "dan"],), (["dan", "ann"],)],
        ),
        (
            "match { $p: Person  exists { path $w = shortest $p knows{1,4} $q  length($w) = 3 } } return { $p.key as p }",
            [("dan",)],
        ),
        # A path is seen by every block inside of it, and is a group by what is made of it.
        (
            "match { $p: Person  path $w = all $p knows{1,2} $q  exists { $q likes $t  $t.size > length($w) + 3 } } "
            "return { nodes($w) as n } order { $w }",
            [(["ann", "dan"],), (["ann", "dan", "ann"],), (["dan", "ann"],), (["dan", "ann", "dan"],)],
        ),
        (
            "match { $p: Person  path $w = all $p knows{1,2} $q } "
            "return { count { $q likes $t  $t.size > length($w) } as c, count(*) as n } order { c }",
            [(0, 4), (1, 2), (2, 2)],
        ),
        (
            "match { $p: Person  path $w = all $p knows{1,2} $q  optional { $q likes $t  $t.size > 4 * length($w) } } "
            "return { $p.key as p, length($w) as l, $t.key as t, count($t) + length($w) as n } order { p, l, t }",
            [
                ("ann", 1, None, 1),
                ("ann", 1, "rome", 2),
                ("ann", 2, None, 2),
                ("ann", 2, "rome", 3),
                ("bob", 1, None, 1),
                ("dan", 1, "oslo", 2),
                ("dan", 1, "rome", 2),
                ("dan", 2, None, 2),
                ("dan", 2, "rome", 3),
            ],
        ),
        (
            'match { $p: Person { key: "ann" }  path $w = all $p knows{1,2} $q } '
            "return { collect($q.key order { length($w) desc, $q.key }) as k }",
            [(["ann", "cid", "bob", "dan"],)],
        ),
        (
            "match { $p: Person } return { $p.key as p, max(length($w)) { path $w = all $p knows{1,3} $q } as l, "
            "count { path $w = all $p knows{1,3} $q } as n } order { p }",
            [("ann", 3, 5), ("bob", 1, 1), ("cid", None, 0), ("dan", 3, 4)],
        ),
        # Paths are ordered by their edges, one by one; what is not there comes first.
        (
            "match { $p: Person  optional { path $w = all $p follows{1,2} $q } } return { $p.key as p, nodes($w) as n } "
            "order { $w desc nulls last } limit 2 per { $w }",
            [("cid", ["cid", "dan"]), ("ann", None), ("bob", None)],
        ),
    ],
)
def test_paths(towns: Graph, text: str, expected: list[tuple[object, ...]]) -> None:
    assert rows_of(towns, text) == expected


def test_equally_short_paths_give_the_one_with_the_smallest_edge_ids(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "ties.omni"), "node N { key: String @key }\nedge E: N -> N { @key(src, dst) }")
    pairs = [("a", "z"), ("a", "b"), ("b", "d"), ("z", "d"), ("d", "e")]
    nodes = "".join(f'insert N {{ key: "{key}" }} ' for key in "abdez")
    graph.mutate(nodes + "".join(f'insert E {{ from: "{a}", to: "{b}" }} ' for a, b in pairs))
    text = 'match { $a: N { key: "a" }  path $w = shortest $a e{1,5} $b } return { $b.key as b, nodes($w) as n } order { b }'
    assert rows_of(graph, text)[1:3] == [("d", ["a", "b", "d"]), ("e", ["a", "b", "d", "e"])]


def test_a_list_in_order_breaks_ties_by_paths_too(tmp_path: Path) -> None:
    """Ends are equal, so the edges decide; by value the order would be the other one."""
    graph = Graph.init(str(tmp_path / "ties.omni"), "node N { key: String @key }\nedge E: N -> N { @key(src, dst) }")
    nodes = "".join(f'insert N {{ key: "{key}" }} ' for key in "abdz")
    graph.mutate(nodes + "".join(f'insert E {{ from: "{a}", to: "{b}" }} ' for a, b in ("ab", "az", "bd", "zd")))
    value = 'case when "b" in nodes($w) then 9 else 1 end'
    text = f"""match {{ $a: N {{ key: "a" }}  path $w = all $a e{{1,3}} $d: N {{ key: "d" }} }}
    return {{ collect({value} order {{ $a.key }}) as v }}"""
    assert rows_of(graph, text) == [([9, 1],)]


def test_too_many_paths_are_refused(towns: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_PATH_LIMIT", "3")
    graph = Graph.open(towns.uri)
    with pytest.raises(ResourceLimitError, match="OMNIGRAPH_PATH_LIMIT") as caught:
        rows_of(graph, "match { $p: Person  path $w = all $p knows{1,4} $q } return { nodes($w) as n }")
    assert (caught.value.resource, caught.value.limit) == ("paths", 3)


@each_case(
    ("clauses", "code"),
    [
        ("$p: Person  optional { $p knows $q }  $q knows $r", "Q123"),
        ("$p: Person  optional { $p.age > 3 }", "Q123"),
        ("$p: Person  optional { $q: Town }", "T39"),
        ("$p: Person | Town  $p.age > 3", "T6"),
        ("$p: Person | Town  $p.size > 3", "T6"),
        ("$p: Person | Nobody", "T1"),
        ("$p: Person  $p: Person | Town", "Q106"),
        ("$p: Person  $p * $q", "T5"),
        ("$p: Town  $q: Town  $p * $q", "T5"),
        ("$p: Person  $p <likes>{1,3} $q", "T5"),
        ("$p: Town  $p <knows>{1,3} $q: Person", "T5"),
        ("$p: Person  exists { $p knows $_  $t: Town  $t <knows>{1,3} $p }", "T5"),
        ("$p: Person  $p (knows where nobody > 3) $q", "T6"),
        ("$p: Person  $p (knows where since) $q", "T41"),
        ("$p: Person  path $w = all $p knows{1,11} $q", "T15"),
        ("$p: Person  path $p = shortest $p knows $q", "Q121"),
        ("$p: Person  path $w = shortest $p $e:knows $q", "Q121"),
        ('$p: Person  path $w = shortest $p knows $q  upper($w) = "x"', "Q121"),
        ("$p: Person  path $w = shortest $p knows $q  $w.length > 3", "Q121"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_a_compile_error(towns: Graph, clauses: str, code: str) -> None:
    with pytest.raises(CompilerError) as caught:
        towns.query(f"match {{ {clauses} }} return {{ $p.key as k }}")
    assert caught.value.codes == (code,)


@each_case("projections", ["length($w) + count(*) as n", "concat($q.@type, string(count(*))) as t"])
def test_what_differs_from_row_to_row_does_not_stand_beside_an_aggregate(towns: Graph, projections: str) -> None:
    with pytest.raises(CompilerError) as caught:
        towns.query(f"match {{ $p: Person  path $w = all $p (knows | likes){{1,2}} $q }} return {{ {projections} }}")
    assert caught.value.codes == ("T9",)


@each_case(
    ("text", "params", "expected"),
    [
        ("match { $p: Person  $p (knows where since > $y) $q } return { $q.key as k } order { k }", {"y": 2004}, "ad"),
        ("match { $p: Person  path $w = all $p knows $q: Person { age: $a } } return { $p.key as k }", {"a": 30}, "d"),
        ("match { $x: Named { key: $k } } return { $x.key as k }", {"k": "bob"}, "bb"),
        ("match { $p: Person  $all } return { $p.key as k } order { k }", {"all": True}, "abcd"),
        ("match { $p: Person  sum($q.age + $n) { $p knows $q } > 50 } return { $p.key as k }", {"n": 1}, "a"),
        ("match { $p: Person } return { $p.key as k, $p.age as a } having { a > $n } order { k }", {"n": 35}, "bd"),
        ("match { $p: Person } return { min($p.key) as k, collect($p.key limit $n) as l }", {"n": 2}, "a"),
    ],
)
def test_types_of_parameters_follow_from_every_clause(
    towns: Graph, text: str, params: dict[str, object], expected: str
) -> None:
    rows = towns.query(text, params).to_arrow().to_pylist()
    assert "".join(row["k"][0] for row in rows) == expected
