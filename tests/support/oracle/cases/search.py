"""Cases of the search functions."""

from __future__ import annotations

from math import sqrt

from support.oracle.cases.case import Case
from support.oracle.graphs import build, edge, edges, person, place

DOCUMENTS = build(
    person("a", bio="graph lance", motto="lance", vec=[0.0, 0.0, 0.0, 0.0]),
    person("b", bio="Lance, GRAPH!", motto="graph tensor", vec=[3.0, 4.0, 0.0, 0.0]),
    person("c", bio="vector tensor", vec=[1.0, 0.0, 0.0, 0.0]),
    person("d", vec=[0.0, 1.0, 0.0, 0.0]),
    person("e", bio=""),
    person("f", bio="tensor graphs", vec=[1.0, 0.0, 0.0, 0.0]),
    place("p", city="vector"),
    place("q"),
    edge("LivesIn", "a", "q"),
    edge("LivesIn", "a", "p"),
    edge("LivesIn", "c", "p"),
    edges("Knows", "a-b a-c c-d c-f e-f"),
)
#: Sixty in a row: more than an arm of a fusion yields.
ROW = build(*(person(f"p{n:02}", vec=[float(n), 0.0, 0.0, 0.0]) for n in range(60)))
ZERO = "[0.0, 0.0, 0.0, 0.0]"
CORNER = "[3.0, 4.0, 0.0, 0.0]"


def finds(condition: str, names: str, declared: str = "", **params: object) -> Case:
    """People for whom a text condition holds."""
    body = f"match {{ $p: Person  {condition} }} return {{ $p.name }}"
    title = f"{condition} {params}" if params else condition
    return Case(title, DOCUMENTS, body, list(names), declared, params)


CONDITIONS = [
    finds('search($p.bio, "graph")', "abf"),
    finds('search($p.bio, "GRAPHS")', "abf"),
    finds('search($p.bio, "lance tensor")', "abcf"),
    finds('search($p.bio, "the graph")', "abf"),
    finds('search($p.bio, "the")', ""),
    finds('search($p.bio, "grap")', ""),
    finds('search($p.bio, "")', ""),
    finds("search($p.bio, $x)", "c", "$x: String", x="vector"),
    finds("search($p.bio, $x)", "", "$x: String?"),
    finds('search($p.motto, "lance")', "a"),
    finds('search($p.name, "f")', "f"),
    finds('match_text($p.bio, "graph lance")', "a"),
    finds('match_text($p.bio, "lance graph")', "b"),
    finds('match_text($p.bio, "Tensor graph")', "f"),
    finds('match_text($p.bio, "graph")', "abf"),
    finds('match_text($p.bio, "graph vector")', ""),
    finds('match_text($p.motto, "graph tensor")', "b"),
    finds("match_text($p.bio, $x)", "", "$x: String?", x=None),
    finds('fuzzy($p.bio, "grap")', "abf"),
    finds('fuzzy($p.bio, "grap", 1)', "ab"),
    finds('fuzzy($p.bio, "graph", 0)', "ab"),
    finds('fuzzy($p.bio, "grpah", 1)', ""),
    finds('fuzzy($p.bio, "grpah")', "ab"),
    finds('fuzzy($p.bio, "lanc", 0)', ""),
    finds('fuzzy($p.bio, "tensr vectr")', "cf"),
    finds('fuzzy($p.motto, "lanse", $n)', "a", "$n: I32", n=1),
    finds("fuzzy($p.bio, $x)", "", "$x: String?"),
    finds('search($p.bio, "graph")  search($p.bio, "tensor")', "f"),
    finds('search($p.bio, "graph")  fuzzy($p.bio, "lanse")', "ab"),
    finds('search($p.bio, "graph")  $p.name != "a"', "bf"),
    finds('not { search($p.bio, "graph") }', "cde"),
    finds('not { $p knows $q  search($q.bio, "graph") }', "bdf"),
    finds('$p knows $q  search($q.bio, "vector graph")', "aace"),
    finds('$p livesIn $v  search($v.city, "vectors")', "ac"),
]

NEAREST = [
    Case(
        "the nearest first, ties by id, without a vector never",
        DOCUMENTS,
        f"match {{ $p: Person }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 10",
        ["a", "c", "d", "f", "b"],
    ),
    Case(
        "the limit cuts inside a tie",
        DOCUMENTS,
        f"match {{ $p: Person }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 3",
        ["a", "c", "d"],
    ),
    Case(
        "limit 0", DOCUMENTS, f"match {{ $p: Person }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 0", []
    ),
    Case(
        "whole numbers are a vector",
        DOCUMENTS,
        "match { $p: Person } return { $p } order { nearest($p.vec, [3, 4, 0, 0]) } limit 1",
        ["b"],
    ),
    Case(
        "the query as a parameter",
        DOCUMENTS,
        "match { $p: Person } return { $p } order { nearest($p.vec, $v) } limit 2",
        ["b", "d"],
        "$v: Vector(4)",
        {"v": [3, 4.0, 0, 0]},
    ),
    Case(
        "a null query ranks nothing",
        DOCUMENTS,
        "match { $p: Person } return { $p } order { nearest($p.vec, $v) } limit 2",
        [],
        "$v: Vector(4)?",
    ),
    Case(
        "the distance as a column",
        DOCUMENTS,
        f"match {{ $p: Person }} return {{ $p, nearest($p.vec, {CORNER}) as far }}"
        f" order {{ nearest($p.vec, {CORNER}) }} limit 10",
        [("b", 0.0), ("d", sqrt(18)), ("c", sqrt(20)), ("f", sqrt(20)), ("a", 5.0)],
    ),
    Case(
        "ordered by the name of that column",
        DOCUMENTS,
        f"match {{ $p: Person }} return {{ nearest($p.vec, {ZERO}) as far, $p }} order {{ far }} limit 2",
        [(0.0, "a"), (1.0, "c")],
    ),
    Case(
        "conditions come before the limit",
        DOCUMENTS,
        f'match {{ $p: Person {{ name: "b" }} }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 1',
        ["b"],
    ),
    Case(
        "filters come before the limit",
        DOCUMENTS,
        f'match {{ $p: Person  $p.name > "d" }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 1',
        ["f"],
    ),
    Case(
        "text conditions come before the limit",
        DOCUMENTS,
        f'match {{ $p: Person  search($p.bio, "tensor") }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 1',
        ["c"],
    ),
    Case(
        "negations come before the limit",
        DOCUMENTS,
        f"match {{ $p: Person  not {{ $p livesIn $_ }} }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 2",
        ["d", "f"],
    ),
    Case(
        "traversals come before the limit",
        DOCUMENTS,
        "match { $p: Person  $p livesIn $v } return { $p, $v } order { nearest($p.vec, [1, 0, 0, 0]) } limit 3",
        [("c", "p"), ("a", "p"), ("a", "q")],
    ),
    Case(
        "the limit counts rows, not entities",
        DOCUMENTS,
        "match { $p: Person  $p livesIn $v } return { $p, $v } order { nearest($p.vec, [1, 0, 0, 0]) } limit 2",
        [("c", "p"), ("a", "p")],
    ),
    Case(
        "further keys order the rows of one entity",
        DOCUMENTS,
        "match { $p: Person  $p livesIn $v } return { $p, $v }"
        " order { nearest($p.vec, [1, 0, 0, 0]), $v.name desc } limit 3",
        [("c", "p"), ("a", "q"), ("a", "p")],
    ),
    Case(
        "a variable that a traversal introduces",
        DOCUMENTS,
        f"match {{ $q: Person  $q knows $p }} return {{ $q, $p }} order {{ nearest($p.vec, {ZERO}) }} limit 10",
        [("a", "c"), ("c", "d"), ("c", "f"), ("e", "f"), ("a", "b")],
    ),
    Case(
        "nobody",
        build(person("a")),
        f"match {{ $p: Person }} return {{ $p }} order {{ nearest($p.vec, {ZERO}) }} limit 5",
        [],
    ),
    Case(
        "many",
        ROW,
        "match { $p: Person } return { $p } order { nearest($p.vec, [31, 0, 0, 0]) } limit 5",
        ["p31", "p30", "p32", "p29", "p33"],
    ),
]

RELEVANCE = [
    Case(
        "only what matches a word",
        DOCUMENTS,
        'match { $p: Person } return { $p } order { bm25($p.bio, "graph") }',
        ["a", "b", "f"],
    ),
    Case(
        "the direction is accepted and means nothing",
        DOCUMENTS,
        'match { $p: Person } return { $p } order { bm25($p.bio, "vector") desc } limit 5',
        ["c"],
    ),
    Case(
        "a null query ranks nothing by relevance",
        DOCUMENTS,
        "match { $p: Person } return { $p } order { bm25($p.bio, $x) }",
        [],
        "$x: String?",
    ),
    Case(
        "a condition and a ranking on one property",
        DOCUMENTS,
        'match { $p: Person  search($p.bio, "tensor") } return { $p } order { bm25($p.bio, "graph") }',
        ["f"],
    ),
    Case(
        "a property without an index",
        DOCUMENTS,
        'match { $p: Person } return { $p } order { bm25($p.motto, "lance tensor") } limit 5',
        ["a", "b"],
    ),
    Case(
        "every row of an entity",
        DOCUMENTS,
        'match { $p livesIn $v } return { $p, $v } order { bm25($p.bio, "lance"), $v.name desc }',
        [("a", "q"), ("a", "p")],
    ),
]

FUSION = [
    Case(
        "two rankings",
        DOCUMENTS,
        "match { $p: Person } return { $p }"
        f" order {{ rrf(nearest($p.vec, {ZERO}), nearest($p.vec, {CORNER})) }} limit 10",
        ["c", "d", "a", "b", "f"],
    ),
    Case(
        "a small k prefers the tops",
        DOCUMENTS,
        f"match {{ $p: Person }} return {{ $p, rrf(nearest($p.vec, {ZERO}), nearest($p.vec, {CORNER}), 1) as s }}"
        f" order {{ rrf(nearest($p.vec, {ZERO}), nearest($p.vec, {CORNER}), 1) desc }} limit 10",
        [("a", 2 / 3), ("b", 2 / 3), ("c", 7 / 12), ("d", 7 / 12), ("f", 0.4)],
    ),
    Case(
        "k as a parameter, and a limit",
        DOCUMENTS,
        "match { $p: Person } return { $p }"
        f" order {{ rrf(nearest($p.vec, {ZERO}), nearest($p.vec, {CORNER}), $k) }} limit 2",
        ["a", "b"],
        "$k: I32",
        {"k": 1},
    ),
    Case(
        "every row of a kept entity, cut to the limit",
        DOCUMENTS,
        "match { $p livesIn $v } return { $p, $v }"
        f" order {{ rrf(nearest($p.vec, {ZERO}), nearest($p.vec, {ZERO})) }} limit 2",
        [("a", "p"), ("a", "q")],
    ),
    Case(
        "an arm without a query adds nothing",
        DOCUMENTS,
        "match { $p: Person } return { $p }"
        f" order {{ rrf(nearest($p.vec, $v), nearest($p.vec, {CORNER})) }} limit 3",
        ["b", "d", "c"],
        "$v: Vector(4)?",
    ),
    Case(
        "an arm yields its best fifty",
        ROW,
        "match { $p: Person } return { $p }"
        f" order {{ rrf(nearest($p.vec, {ZERO}), nearest($p.vec, [59, 0, 0, 0])) }} limit 1",
        ["p10"],
    ),
    Case(
        # An arm orders rows; the entities of the first arm's variable rank by their first appearance.
        "arms may rank different variables",
        DOCUMENTS,
        "match { $q knows $p } return { $q, $p }"
        f" order {{ rrf(nearest($q.vec, {ZERO}), nearest($p.vec, {CORNER})) }} limit 10",
        [("a", "b"), ("a", "c"), ("c", "d"), ("c", "f"), ("e", "f")],
    ),
    Case(
        "who is in either arm",
        DOCUMENTS,
        'match { $p: Person  $p.name != "b" } return { $p }'
        f' order {{ rrf(bm25($p.bio, "graph"), nearest($p.vec, {ZERO})) }} limit 10',
        ["a", "f", "c", "d"],
    ),
    Case(
        "two rankings by relevance",
        DOCUMENTS,
        "match { $p: Person } return { $p }"
        ' order { rrf(bm25($p.bio, "graph"), bm25($p.motto, "tensor"), 10) } limit 10',
        ["b", "a", "f"],
    ),
]

CASES = [*CONDITIONS, *NEAREST, *RELEVANCE, *FUSION]
