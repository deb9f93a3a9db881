"""Cases of patterns over several types, of what may be missing, and of paths."""

from __future__ import annotations

from support.oracle.cases.case import Case
from support.oracle.cases.matching import CHAIN, DIAMOND, LOOPS, MIXED, PARALLEL
from support.oracle.graphs import build, edge, edges, f32, person, place, thing

#: People who live in one town, and a town that bears the name of a person.
TOWNS = build(
    person("ann", level="low", age=30),
    person("bob", level="mid"),
    person("cid"),
    place("oslo", level="low"),
    place("bob", level="zzz", size=3),
    thing(1, title="first"),
    edges("LivesIn", "ann-oslo bob-oslo cid-bob"),
    edge("Knows", "ann", "bob", since=2001),
    edge("Knows", "bob", "cid", since=1990),
    edge("Owns", "ann", "1", share=f32(0.1)),
    edge("Wants", "ann", "1", share=f32(0.2)),
    edge("Wants", "bob", "1", share=f32(0.1)),
    edge("KeptAt", "1", "oslo", id='["1","oslo"]'),
)

UNIONS = [
    Case(
        "a variable of several types has the nodes of each",
        TOWNS,
        'match { $x: Person | Place  $x.name contains "o" } return { $x, $x.@type } order { $x }',
        [("bob", "Person"), ("bob", "Place"), ("oslo", "Place")],
    ),
    Case(
        "an interface stands for the types that implement it",
        TOWNS,
        "match { $x: Named } return { count($x) as n, count(distinct $x) as d, count(distinct $x.name) as names }",
        [(5, 5, 4)],
    ),
    Case("an interface that nothing implements", TOWNS, "match { $x: Unused } return { count(*) as n }", [0]),
    Case(
        "an enum beside a text is a text",
        TOWNS,
        'match { $x: Named  $x.level in ["low", "zzz"] } return { $x, $x.level } order { $x.level, $x }',
        [("ann", "low"), ("oslo", "low"), ("bob", "zzz")],
    ),
    Case(
        "nodes of two types are two, whatever their ids",
        TOWNS,
        "match { $x: Named  $y: Named  $x = $y } return { count(*) as n }",
        [5],
    ),
    Case(
        "nodes of two types are two groups",
        TOWNS,
        'match { $x: Named { name: "bob" } } return { $x, count(*) as n }',
        [("bob", 1), ("bob", 1)],
    ),
    Case(
        "nodes of two types are distinct beside an aggregate too",
        TOWNS,
        'match { $x: Named { name: "bob" } } return distinct { $x, count(*) as n }',
        [("bob", 1), ("bob", 1)],
    ),
    Case(
        "nodes of two types are two in a list of distinct ones",
        TOWNS,
        "match { $x: Named  $y: Person } return { collect(distinct $x) as c, count(distinct $x) as n }",
        [(["ann", "bob", "bob", "cid", "oslo"], 5)],
    ),
    Case(
        "nodes of two types are two in the list of a block",
        TOWNS,
        'match { $p: Person { name: "ann" } } return { collect(distinct $x) { $p livesIn $_  $x: Named } as c }',
        [(["ann", "bob", "bob", "cid", "oslo"],)],
    ),
    Case(
        "nodes of two types are two groups of a limit",
        TOWNS,
        "match { $x: Named } return { $x } order { $x } limit 1 per { $x }",
        ["ann", "bob", "bob", "cid", "oslo"],
    ),
    Case(
        "several edge types give the edges of each",
        TOWNS,
        "match { $p: Person  $p $e:(owns | wants) $t } return { $p, $e.@type, $e.share > 0.15 as much } "
        "order { $p, $e.@type }",
        [("ann", "Owns", False), ("ann", "Wants", True), ("bob", "Wants", False)],
    ),
    Case(
        "several edge types give each far node once",
        TOWNS,
        "match { $p: Person  $p (owns | wants) $t } return { $p, $t } order { $p }",
        [("ann", "1"), ("bob", "1")],
    ),
    Case(
        "every edge that fits the ends",
        TOWNS,
        "match { $p: Person  $p * $x: Thing | Place } return { $p, $x } order { $p, $x }",
        [("ann", "1"), ("ann", "oslo"), ("bob", "1"), ("bob", "oslo"), ("cid", "bob")],
    ),
    Case(
        "one search over several edge types",
        TOWNS,
        'match { $p: Person { name: "ann" }  $p (wants | keptAt | livesIn){1,3} $x } '
        "return { $x, $x.@type } order { $x }",
        [("1", "Thing"), ("oslo", "Place")],
    ),
    Case(
        "the second hop leads over another type",
        TOWNS,
        'match { $p: Person { name: "ann" }  $p (wants | keptAt){2,3} $x } return { $x }',
        ["oslo"],
    ),
    Case(
        "both ways over an edge between two types",
        TOWNS,
        "match { $p: Person  $t: Place  $p <livesIn> $t  $t <livesIn> $p } return { $p, $t } order { $p }",
        [("ann", "oslo"), ("bob", "oslo"), ("cid", "bob")],
    ),
    Case(
        "through nodes of another type",
        TOWNS,
        "match { $p: Person  $p <wants>{1,4} $q: Person } return { $p, $q } order { $p }",
        [("ann", "bob"), ("bob", "ann")],
    ),
    Case(
        "conditions of a hop hold at every hop",
        TOWNS,
        "match { $p: Person  $p (knows where since > 2000){1,2} $q } return { $p, $q }",
        [("ann", "bob")],
    ),
    Case(
        "a literal beside a 32-bit property of a hop is rounded",
        TOWNS,
        "match { $p: Person  $p (wants where share = 0.1) $t } return { $p }",
        ["bob"],
    ),
    Case(
        "conditions of a hop both ways",
        TOWNS,
        "match { $p: Person  $p <(owns | wants where share < 0.15)>{1,2} $q: Person } return { $p, $q } order { $p }",
        [("ann", "bob"), ("bob", "ann")],
    ),
]

OPTIONALS = [
    Case(
        "a row without a solution stays",
        TOWNS,
        "match { $p: Person  optional { $p knows $q  $q.age is null } } return { $p, $q } order { $p }",
        [("ann", "bob"), ("bob", "cid"), ("cid", None)],
    ),
    Case(
        "conditions outside of an optional block apply behind it",
        TOWNS,
        "match { $q is null  $p: Person  optional { $p knows $q } } return { $p }",
        ["cid"],
    ),
    Case(
        "a second optional block goes on from the first",
        TOWNS,
        "match { $p: Person  optional { $p owns $t }  optional { $t keptAt $x } } return { $p, $t, $x } order { $p }",
        [("ann", "1", "oslo"), ("bob", None, None), ("cid", None, None)],
    ),
    Case(
        "a value of an optional block is null without a solution",
        TOWNS,
        'match { $p: Person  optional { $p knows $q  let $v = coalesce($q.nick, "none") } } '
        "return { $p, $v } order { $p }",
        [("ann", "none"), ("bob", "none"), ("cid", None)],
    ),
    Case(
        "blocks from a variable without a node have no solution",
        TOWNS,
        "match { $p: Person  optional { $p knows $q } } return { $p, count { $q wants $_ } as n, "
        "not { $q wants $_ } as none } order { $p }",
        [("ann", 1, False), ("bob", 0, True), ("cid", 0, True)],
    ),
    Case(
        "an optional variable counts where it is there",
        TOWNS,
        "match { $p: Person  optional { $p wants $t } } return { count($t) as n, count(*) as rows }",
        [(2, 3)],
    ),
    Case(
        "an optional part inside of a block",
        TOWNS,
        "match { $p: Person } return { $p, count { $p livesIn $x  optional { $y: Thing  $p wants $y } } as rows, "
        "collect($y.@id) { $p livesIn $x  optional { $p wants $y } } as found } order { $p }",
        [("ann", 1, ["1"]), ("bob", 1, ["1"]), ("cid", 1, [])],
    ),
]

PATHS = [
    Case(
        "the shortest path to every node",
        DIAMOND,
        'match { $p: Person { name: "x" }  path $w = shortest $p knows{1,3} $q } '
        "return { $q, nodes($w) as n, length($w) as l } order { $q }",
        [("y", ["x", "y"], 1), ("z", ["x", "z"], 1)],
    ),
    Case(
        "of equally short paths the one with the smallest edges",
        DIAMOND,
        'match { $p: Person { name: "a" }  path $w = shortest $p knows{2,3} $q } return { $q, edges($w) as e }',
        [("d", ["knows0", "knows2"])],
    ),
    Case(
        "all trails, also back to the start",
        PARALLEL,
        'match { $p: Person { name: "b" }  path $w = all $p knows{2,3} $q } return { $q, nodes($w) as n } order { $w }',
        [("b", ["b", "a", "b"]), ("b", ["b", "a", "b"])],
    ),
    Case(
        "a loop that may be followed both ways is one trail",
        PARALLEL,
        'match { $p: Person { name: "c" }  path $w = all $p <knows>{1,2} $q } return { nodes($w) as n }',
        [(["c", "c"],)],
    ),
    Case(
        "trails back to the start over several edge types",
        MIXED,
        "match { $p: Person  path $w = all $p <owns | wants>{1,2} $p } return { $p, edges($w) as e } order { $w }",
        [("1", ["owns1", "wants0"]), ("1", ["wants0", "owns1"])],
    ),
    Case(
        "no shortest path leads back to the start but over a loop",
        LOOPS,
        "match { $p: Person  path $w = shortest $p knows{1,3} $p } return { $p, length($w) as l } order { $p }",
        [("a", 1), ("b", 1)],
    ),
    Case(
        "a search that comes back to its start finds nothing new",
        MIXED,
        "match { $p: Person  $p <owns | wants>{1,2} $p } return { $p }",
        [],
    ),
    Case(
        "a path that is not there is null",
        CHAIN,
        "match { $p: Person  optional { path $w = shortest $p knows{3,3} $q } } return { $p, $w is null as none, "
        "length($w) as l } order { $p }",
        [("a", False, 3), ("b", True, None), ("c", True, None), ("d", True, None), ("e", True, None)],
    ),
    Case(
        "the longest path of a block",
        CHAIN,
        "match { $p: Person  max(length($w)) { path $w = all $p knows{1,5} $_ } >= 2 } return { $p } order { $p }",
        ["a", "b"],
    ),
]

RANKED_GROUPS = [
    Case(
        "a window of nothing is one group of nothing",
        MIXED,
        "match { $t: Thing } return { count(*) as n } order { nearest($t.spot, $v) } limit 0",
        [0],
        declared="$v: Vector(4)",
        params={"v": [0.0, 0.0, 0.0, 0.0]},
    ),
    Case(
        "a window counts rows, also those that are equal",
        MIXED,
        "match { $_ owns $t } return { collect($t) as c } order { nearest($t.spot, $v) } limit 2",
        [(["1", "2"],)],
        declared="$v: Vector(4)",
        params={"v": [0.0, 0.0, 0.0, 0.0]},
    ),
    Case(
        "groups of a ranking come in the order of their columns",
        MIXED,
        "match { $t: Thing } return { $t.small, count(*) as n } order { nearest($t.spot, $v) } limit 5",
        [(1, 1), (2, 1)],
        declared="$v: Vector(4)",
        params={"v": [0.0, 0.0, 0.0, 0.0]},
    ),
    Case(
        "a ranking chooses what is grouped",
        MIXED,
        "match { $t: Thing } return { max($t.number) as most } order { nearest($t.spot, $v) } limit 1",
        [1],
        declared="$v: Vector(4)",
        params={"v": [0.0, 0.0, 0.0, 0.0]},
    ),
]

CASES = [*UNIONS, *OPTIONALS, *PATHS, *RANKED_GROUPS]
