"""Cases of patterns: bindings, traversals, negation."""

from __future__ import annotations

from support.oracle.cases.case import Case
from support.oracle.graphs import build, edge, edges, note, person, place, thing

#: a → b → c → d, and e alone.
CHAIN = build(*map(person, "abcde"), edges("Knows", "a-b b-c c-d"))
#: a → b → c → a.
RING = build(*map(person, "abc"), edges("Knows", "a-b b-c c-a"))
#: Self-loops on a and b, a → b → c.
LOOPS = build(*map(person, "abc"), edges("Knows", "a-a a-b b-b b-c"))
#: Two ways of equal length from a to d, and a shortcut from x to z.
DIAMOND = build(*map(person, "abcdxyz"), edges("Knows", "a-b a-c b-d c-d x-y y-z x-z"))
#: Parallel edges in both directions, and a self-loop.
PARALLEL = build(
    *map(person, "abc"),
    edge("Knows", "a", "b", how="work", since=2001),
    edge("Knows", "a", "b", how="school", since=1990),
    edge("Knows", "b", "a", how="work"),
    edge("Knows", "c", "c", how="mirror", since=0),
    edge("Follows", "a", "b"),
)
#: Every type has a node with the id 1.
MIXED = build(
    person("1", age=10),
    person("2", age=20),
    person("3"),
    thing(1, small=1, title="first"),
    thing(2, small=2, title="second"),
    place("1", size=1),
    place("2", size=2),
    note("1", rank=1),
    edge("Owns", "1", "1", share=0.5),
    edge("Owns", "1", "2"),
    edge("Owns", "2", "2", share=0.25),
    edge("Wants", "1", "2"),
    edge("Wants", "3", "1", level="much"),
    edge("KeptAt", "1", "1"),
    edge("KeptAt", "2", "1"),
    edge("LivesIn", "1", "2"),
    edge("LivesIn", "2", "1"),
    edge("PartOf", "2", "1", amount=3),
    edge("About", "1", "3"),
)
EMPTY = build()

BINDINGS = [
    Case("a binding gives all nodes of the type", MIXED, "match { $p: Person } return { $p.name }", ["1", "2", "3"]),
    Case("an empty table gives nothing", EMPTY, "match { $p: Person } return { $p.name }", []),
    Case(
        "inline matches are a conjunction",
        MIXED,
        'match { $t: Thing { small: 2, title: "second" } } return { $t.number }',
        [2],
    ),
    Case(
        "inline matches that contradict each other give nothing",
        MIXED,
        'match { $t: Thing { small: 1, title: "second" } } return { $t.number }',
        [],
    ),
    Case(
        "an inline match never finds null",
        MIXED,
        "match { $p: Person { age: $x } } return { $p }",
        [],
        declared="$x: I32?",
    ),
    Case(
        "a variable bound twice with one type is a conjunction",
        MIXED,
        "match { $t: Thing { small: 2 }  $t: Thing { number: 2 } } return { $t }",
        ["2"],
    ),
    Case(
        "a variable bound twice gives each node once", MIXED, "match { $t: Thing  $t: Thing } return { $t }", ["1", "2"]
    ),
    Case(
        "unconnected bindings form a cross product",
        MIXED,
        "match { $t: Thing  $v: Place } return { $t, $v }",
        [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")],
    ),
    Case(
        "an anonymous binding multiplies the rows",
        MIXED,
        "match { $t: Thing  $_: Person } return { $t }",
        ["1", "1", "1", "2", "2", "2"],
    ),
    Case("a cross product with an empty table is empty", CHAIN, "match { $p: Person  $t: Thing } return { $p }", []),
    Case(
        "a list is matched by one of its members",
        build(
            person("a", tags=["x", "y"]),
            person("b", tags=["xy"]),
            person("c", tags=[]),
            person("d"),
            person("e", tags=[None, "y"]),
        ),
        'match { $p: Person { tags: "y" } } return { $p }',
        ["a", "e"],
    ),
    Case(
        "an enum is matched by its value",
        build(person("a", level="low"), person("b", level="top"), person("c")),
        'match { $p: Person { level: "low" } } return { $p }',
        ["a"],
    ),
]

FROM_A = 'match { $a: Person { name: "a" }  $a knows%s $b } return { $b }'
TO_D = 'match { $b: Person { name: "d" }  $a knows%s $b } return { $a }'

TRAVERSALS = [
    Case(
        "one hop follows the stored direction",
        CHAIN,
        "match { $a: Person  $a knows $b } return { $a, $b }",
        [("a", "b"), ("b", "c"), ("c", "d")],
    ),
    Case(
        "with only the right end bound the edge is followed backward",
        CHAIN,
        'match { $b: Person { name: "c" }  $a knows $b } return { $a }',
        ["b"],
    ),
    Case(
        "with neither end bound both are typed from the edge",
        MIXED,
        "match { $x owns $y } return { $x.age, $y.small }",
        [(10, 1), (10, 2), (20, 2)],
    ),
    Case(
        "across types the direction is inferred from the left end",
        MIXED,
        "match { $t: Thing  $t owns $p } return { $t.number, $p.name }",
        [(1, "1"), (2, "1"), (2, "2")],
    ),
    Case(
        "across types the direction is inferred from the right end",
        MIXED,
        "match { $p: Person  $t owns $p } return { $t.number, $p.name }",
        [(1, "1"), (2, "1"), (2, "2")],
    ),
    Case(
        "the case of an edge word does not matter",
        MIXED,
        "match { $p livesin $v  $p livesIn $v  $p lIVESIN $v } return { $p, $v }",
        [("1", "2"), ("2", "1")],
    ),
    Case(
        "two edge types between the same ends are apart",
        MIXED,
        "match { $p wants $t } return { $p, $t }",
        [("1", "2"), ("3", "1")],
    ),
    Case(
        "ids are compared inside their type",
        MIXED,
        "match { $p: Person  $p owns $t  $t keptAt $v } return { $p, $t, $v }",
        [("1", "1", "1"), ("1", "2", "1"), ("2", "2", "1")],
    ),
    Case("{1,2} reaches one and two hops", CHAIN, FROM_A % "{1,2}", ["b", "c"]),
    Case("{2,2} leaves out the nearer ones", CHAIN, FROM_A % "{2,2}", ["c"]),
    Case("{2,4} ends where the edges end", CHAIN, FROM_A % "{2,4}", ["c", "d"]),
    Case("{4,9} reaches nothing", CHAIN, FROM_A % "{4,9}", []),
    Case("bounds hold backward", CHAIN, TO_D % "{2,2}", ["b"]),
    Case("all hops backward", CHAIN, TO_D % "{1,9}", ["a", "b", "c"]),
    Case("a cycle does not return to its source", RING, FROM_A % "{1,5}", ["b", "c"]),
    Case("a cycle is not walked twice", RING, FROM_A % "{3,6}", []),
    Case("a self-loop emits the source at hop one", LOOPS, FROM_A % "", ["a", "b"]),
    Case("a self-loop counts among further hops", LOOPS, FROM_A % "{1,3}", ["a", "b", "c"]),
    Case("a self-loop is not there from two hops on", LOOPS, FROM_A % "{2,3}", ["c"]),
    Case(
        "a self-loop on another node adds nothing",
        LOOPS,
        'match { $a: Person { name: "b" }  $x knows{1,2} $a } return { $x }',
        ["a", "b"],
    ),
    Case("two ways to one node give it once", DIAMOND, FROM_A % "{2,2}", ["d"]),
    Case(
        "a node counts at its first reach",
        DIAMOND,
        'match { $x: Person { name: "x" }  $x knows{2,3} $z } return { $z }',
        [],
    ),
    Case(
        "parallel edges collapse",
        PARALLEL,
        "match { $a knows $b } return { $a, $b }",
        [("a", "b"), ("b", "a"), ("c", "c")],
    ),
    Case(
        "rows of one source are told apart by their other variables",
        MIXED,
        "match { $v: Place  $p: Person  $p owns $t } return { $v, $t }",
        [("1", "1"), ("1", "2"), ("1", "2"), ("2", "1"), ("2", "2"), ("2", "2")],
    ),
    Case(
        "across types more hops add nothing",
        MIXED,
        "match { $p owns{1,3} $t } return { $p, $t }",
        [("1", "1"), ("1", "2"), ("2", "2")],
    ),
    Case("across types there is no second hop", MIXED, "match { $p owns{2,3} $t } return { $p, $t }", []),
    Case(
        "inside one type an id of another type is no way on",
        MIXED,
        "match { $s partOf{1,3} $t } return { $s, $t }",
        [("2", "1")],
    ),
    Case(
        "filters on the destination apply",
        MIXED,
        "match { $p: Person  $p owns $t  $t: Thing { small: 2 } } return { $p }",
        ["1", "2"],
    ),
    Case(
        "a filter does not stop the walk",
        CHAIN,
        'match { $a: Person { name: "a" }  $a knows{1,3} $b  $b.name != "b" } return { $b }',
        ["c", "d"],
    ),
]

UNDIRECTED = [
    Case("both directions", CHAIN, 'match { $a: Person { name: "b" }  $a <knows> $b } return { $b }', ["a", "c"]),
    Case(
        "both directions over two hops",
        CHAIN,
        'match { $a: Person { name: "b" }  $a <knows>{2,2} $b } return { $b }',
        ["d"],
    ),
    Case(
        "both directions, from the right end",
        CHAIN,
        'match { $b: Person { name: "b" }  $a <knows>{1,2} $b } return { $a }',
        ["a", "c", "d"],
    ),
    Case(
        "each pair once, whatever lies between",
        PARALLEL,
        "match { $a <knows> $b } return { $a, $b }",
        [("a", "b"), ("b", "a"), ("c", "c")],
    ),
    Case(
        "back and forth is no way to the source",
        PARALLEL,
        'match { $a: Person { name: "a" }  $a <knows>{2,4} $b } return { $b }',
        [],
    ),
    Case(
        "a bound edge is found from both of its ends",
        PARALLEL,
        "match { $a $w:<knows> $b } return { $a, $b, $w.how }",
        [
            ("a", "b", "work"),
            ("a", "b", "school"),
            ("a", "b", "work"),
            ("b", "a", "work"),
            ("b", "a", "school"),
            ("b", "a", "work"),
            ("c", "c", "mirror"),
        ],
    ),
]

BOUND_EDGES = [
    Case(
        "one row per stored edge",
        PARALLEL,
        "match { $a $w:knows $b } return { $a, $b, $w.how }",
        [("a", "b", "work"), ("a", "b", "school"), ("b", "a", "work"), ("c", "c", "mirror")],
    ),
    Case(
        "without its properties the edge still counts",
        PARALLEL,
        "match { $a $w:knows $b } return { $a, count($b) as n } order { a }",
        [("a", 2), ("b", 1), ("c", 1)],
    ),
    Case(
        "an anonymous edge is no edge variable",
        PARALLEL,
        "match { $a $_:knows $b } return { $a, $b }",
        [("a", "b"), ("b", "a"), ("c", "c")],
    ),
    Case(
        "its properties can be compared",
        PARALLEL,
        'match { $a $w:knows $b  $w.how = "work" } return { $a, $b, $w.since }',
        [("a", "b", 2001), ("b", "a", None)],
    ),
    Case(
        "null properties never match",
        PARALLEL,
        "match { $a $w:knows $b  $w.since >= 0 } return { $w.how }",
        ["work", "school", "mirror"],
    ),
    Case(
        "backward from the right end",
        PARALLEL,
        'match { $b: Person { name: "b" }  $a $w:knows $b } return { $w.how }',
        ["work", "school"],
    ),
    Case(
        "across types and backward",
        MIXED,
        "match { $t: Thing  $t $w:owns $p } return { $t, $p, $w.share }",
        [("1", "1", 0.5), ("2", "1", None), ("2", "2", 0.25)],
    ),
    Case(
        "between two bound ends",
        PARALLEL,
        'match { $a: Person { name: "a" }  $b: Person  $a follows $b  $a $w:knows $b } return { $w.how }',
        ["work", "school"],
    ),
    Case(
        "two bound edges multiply",
        PARALLEL,
        "match { $a $v:knows $b  $b $w:knows $a } return { $a, $v.how, $w.how }",
        [
            ("a", "work", "work"),
            ("a", "school", "work"),
            ("b", "work", "work"),
            ("b", "work", "school"),
            ("c", "mirror", "mirror"),
        ],
    ),
    Case(
        "edges are compared with nodes",
        MIXED,
        "match { $p $w:owns $t  $w.share < $t.small } return { $p, $t }",
        [("1", "1"), ("2", "2")],
    ),
]

PATTERNS = [
    Case(
        "a triangle is found from each of its corners",
        RING,
        "match { $a knows $b  $b knows $c  $c knows $a } return { $a, $b, $c }",
        [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")],
    ),
    Case(
        "a triangle that is not closed is none",
        CHAIN,
        "match { $a knows $b  $b knows $c  $c knows $a } return { $a }",
        [],
    ),
    Case("one variable at both ends is a self-loop", LOOPS, "match { $a knows $a } return { $a }", ["a", "b"]),
    Case("a self-loop is one hop long", LOOPS, "match { $a knows{2,5} $a } return { $a }", []),
    Case(
        "two edge types between the same two variables",
        MIXED,
        "match { $p owns $t  $p wants $t } return { $p, $t }",
        [("1", "2")],
    ),
    Case(
        "a traversal written twice changes nothing",
        PARALLEL,
        "match { $a knows $b  $a knows $b } return { $a, $b }",
        [("a", "b"), ("b", "a"), ("c", "c")],
    ),
    Case(
        "both ends bound and several hops",
        CHAIN,
        'match { $a: Person { name: "a" }  $d: Person { name: "d" }  $a knows{2,3} $d } return { $a, $d }',
        [("a", "d")],
    ),
    Case(
        "an anonymous end gives a row per neighbour",
        DIAMOND,
        'match { $a: Person { name: "a" }  $a knows $_ } return { $a }',
        ["a", "a"],
    ),
    Case(
        "anonymous ends are independent of each other",
        DIAMOND,
        'match { $a: Person { name: "a" }  $a knows $_  $a knows $_ } return { $a }',
        ["a", "a", "a", "a"],
    ),
    Case("two anonymous ends", MIXED, "match { $v: Place { size: 2 }  $_ wants $_ } return { $v }", ["2", "2"]),
    Case(
        "a chain over three types",
        MIXED,
        "match { $n about $p  $p wants $t  $t keptAt $v } return { $n, $p, $t, $v }",
        [("1", "3", "1", "1")],
    ),
    Case(
        "the order of the clauses does not matter",
        MIXED,
        "match { $t.small = 2  $t keptAt $v  $p owns $t  $v: Place  $p: Person { age: 20 } } return { $p, $t, $v }",
        [("2", "2", "1")],
    ),
    Case(
        "a filter over two variables joins them",
        MIXED,
        "match { $t: Thing  $v: Place  $t.small = $v.size } return { $t, $v }",
        [("1", "1"), ("2", "2")],
    ),
]

NEGATIONS = [
    Case("without any", MIXED, "match { $p: Person  not { $p owns $_ } } return { $p }", ["3"]),
    Case(
        "directions inside are inferred as outside",
        MIXED,
        "match { $t: Thing  not { $t wants $x  $x.age = 10 } } return { $t }",
        ["1"],
    ),
    Case(
        "a block without solutions keeps everything",
        MIXED,
        "match { $t: Thing  not { $t wants $x  $x.age > 100 } } return { $t }",
        ["1", "2"],
    ),
    Case("unknown inside is no solution", MIXED, "match { $p: Person  not { $p.age > 0 } } return { $p }", ["3"]),
    Case(
        "an equality with null inside is no solution",
        MIXED,
        "match { $p: Person  not { $p.age = $x } } return { $p }",
        ["1", "2", "3"],
        declared="$x: I32?",
        params={"x": None},
    ),
    Case(
        "a block over two outer variables",
        MIXED,
        "match { $p: Person  $t: Thing  not { $p owns $t } } return { $p, $t }",
        [("2", "1"), ("3", "1"), ("3", "2")],
    ),
    Case(
        "a block with a scan of its own",
        MIXED,
        "match { $t: Thing  not { $v: Place  $v.size > $t.small } } return { $t }",
        ["2"],
    ),
    Case(
        "a block with a scan of an empty type",
        CHAIN,
        "match { $p: Person  not { $t: Thing  $t.title = $p.name } } return { $p }",
        ["a", "b", "c", "d", "e"],
    ),
    Case(
        "several hops inside",
        CHAIN,
        'match { $p: Person  not { $p knows{1,3} $q  $q.name = "d" } } return { $p }',
        ["d", "e"],
    ),
    Case(
        "a bound edge inside",
        PARALLEL,
        'match { $p: Person  not { $p $w:knows $_  $w.how = "work" } } return { $p }',
        ["c"],
    ),
    Case(
        "an outer edge inside",
        PARALLEL,
        "match { $a $w:knows $b  not { $w.since > 2000 } } return { $a, $w.how }",
        [("a", "school"), ("b", "work"), ("c", "mirror")],
    ),
    Case(
        "not inside not",
        MIXED,
        # Everyone all of whose things are wanted by somebody.
        "match { $p: Person  not { $p owns $t  not { $_ wants $t } } } return { $p }",
        ["1", "2", "3"],
    ),
    Case(
        "not inside not, with an outer variable in the middle",
        MIXED,
        # People without a thing that they do not want.
        "match { $p: Person  not { $p owns $t  not { $p wants $t } } } return { $p }",
        ["3"],
    ),
    Case(
        "blocks side by side have variables of their own",
        MIXED,
        "match { $p: Person  not { $p wants $x  $x.small = 1 }  not { $x about $p } } return { $p }",
        ["1", "2"],
    ),
    Case(
        "a binding inside narrows an outer variable",
        MIXED,
        "match { $t: Thing  not { $t: Thing { small: 1 } } } return { $t }",
        ["2"],
    ),
    Case(
        "a block comes before what it mentions",
        MIXED,
        "match { not { $p owns $t }  $t: Thing { small: 1 }  $p: Person } return { $p }",
        ["2", "3"],
    ),
    Case(
        "rows that the block does not know stay as often as they were",
        DIAMOND,
        'match { $a: Person { name: "a" }  $a knows $_  not { $a knows $x  $x.name = "z" } } return { $a }',
        ["a", "a"],
    ),
    Case(
        "a condition about parameters only",
        CHAIN,
        'match { $p: Person { name: "a" }  not { $p.name = "a"  $x > $y } } return { $p }',
        ["a"],
        declared="$x: I32, $y: F64",
        params={"x": 1, "y": 1.5},
    ),
    Case(
        "the other end is excluded",
        RING,
        "match { $a: Person  $b: Person  not { $a <knows>{1,2} $b } } return { $a, $b }",
        [("a", "a"), ("b", "b"), ("c", "c")],
    ),
]

CASES = [*BINDINGS, *TRAVERSALS, *UNDIRECTED, *BOUND_EDGES, *PATTERNS, *NEGATIONS]
