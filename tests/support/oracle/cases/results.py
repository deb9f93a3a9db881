"""Cases of results: what is returned, aggregates, order, limit."""

from __future__ import annotations

from datetime import UTC, date, datetime

from support.oracle.cases.case import Case
from support.oracle.cases.matching import EMPTY, MIXED, PARALLEL
from support.oracle.cases.values import NUMBERS
from support.oracle.graphs import build, edge, f32, person, place, thing

BIG = 2**53
#: Ties and nulls in every column.
TEAM = build(
    person("d", age=30, score=1.5, active=True, level="top", nick="x", born=date(2000, 1, 1)),
    person("b", age=30, score=0.5, active=False, level="low", nick="X", born=date(1999, 1, 1)),
    person("a", age=20, active=True, level="low", nick="é", tags=["t", None]),
    person("c", score=-2.0, level="mid", nick="～"),
    person("e", age=-1, active=False, nick="😀", marks=[]),
    place("p"),
    place("q", city="x"),
    edge("LivesIn", "d", "q"),
    edge("LivesIn", "a", "p"),
    edge("LivesIn", "b", "p"),
    edge("Knows", "b", "a", since=1, id="k2"),
    edge("Knows", "b", "a", since=1, id="k1"),
    edge("Knows", "a", "b", since=2, id="k0"),
)
TYPED = build(
    person(
        "a",
        nick="ä😀",
        motto="m",
        age=-(2**31),
        score=0.1,
        active=True,
        level="mid",
        born=date(1969, 12, 31),
        seen=datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        tags=["x", None, ""],
        marks=[2**63 - 1, -(2**63)],
        vec=[0.5, -1.0, 0.0, 3.0],
        photo=b"bytes",
    ),
    thing(
        -(2**63),
        small=1,
        wide=BIG + 1,
        count=2**32 - 1,
        huge=2**64 - 1,
        ratio=f32(0.1),
        weight=1e300,
        fragile=True,
        made=date(9999, 12, 31),
        stamped=datetime(1600, 1, 1, tzinfo=UTC),
        days=[date(1, 1, 1), None],
        sizes=[0.5],
        spot=[1.0, 2.0, 3.0, 4.0],
    ),
)

RETURNED = [
    Case(
        "every type of a node comes back as it was stored",
        TYPED,
        "match { $p: Person } return { $p.name, $p.nick, $p.motto, $p.age, $p.score, $p.active,"
        " $p.level, $p.born, $p.seen, $p.tags, $p.marks, $p.vec }",
        [
            (
                *("a", "ä😀", "m", -(2**31), 0.1, True, "mid"),
                *(date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
                *(["x", None, ""], [2**63 - 1, -(2**63)], [0.5, -1.0, 0.0, 3.0]),
            )
        ],
    ),
    Case(
        "the other types too",
        TYPED,
        "match { $t: Thing } return { $t.number, $t.small, $t.wide, $t.count, $t.huge, $t.ratio,"
        " $t.weight, $t.fragile, $t.kind, $t.made, $t.stamped, $t.days, $t.sizes, $t.spot }",
        [
            (
                *(-(2**63), 1, BIG + 1, 2**32 - 1, 2**64 - 1, f32(0.1)),
                *(1e300, True, "box", date(9999, 12, 31), datetime(1600, 1, 1, tzinfo=UTC)),
                *([date(1, 1, 1), None], [0.5], [1.0, 2.0, 3.0, 4.0]),
            )
        ],
    ),
    Case(
        "nulls of every type",
        build(person("a"), thing(1)),
        "match { $p: Person  $t: Thing } return { $p.nick, $p.age, $p.score, $p.active, $p.level,"
        " $p.born, $p.seen, $p.tags, $p.marks, $p.vec, $t.wide, $t.count, $t.huge, $t.ratio,"
        " $t.stamped, $t.days }",
        [(None,) * 16],
    ),
    Case(
        "a bare variable is the id",
        MIXED,
        "match { $t: Thing  $v: Place { size: 1 } } return { $t, $v }",
        [("1", "1"), ("2", "1")],
    ),
    Case(
        "names of columns",
        build(person("a", age=3)),
        'match { $p: Person } return { $p.age, $p, $x, "text", $p.age as years }',
        [(3, "a", 7, "text", 3)],
        "$x: I32",
        {"x": 7},
    ),
    Case(
        "constants are repeated for every row",
        MIXED,
        'match { $v: Place } return { 1, 2.5 as half, true as yes, "s" as word,'
        ' date("2024-05-01") as day, datetime("2024-05-01T12:00:00Z") as moment,'
        " [1, 2] as whole, [1, 2.5] as mixed, [] as none }",
        [(*(1, 2.5, True, "s", date(2024, 5, 1), datetime(2024, 5, 1, 12, tzinfo=UTC)), *([1, 2], [1.0, 2.5], []))] * 2,
    ),
    Case(
        "parameters of every type",
        build(place("p")),
        "match { $v: Place } return { $s, $b, $i, $l, $u, $w, $f, $g, $d, $t, $many, $vec, $no }",
        [
            (
                *("ä", False, -1, -(2**63), 1, 2**63 - 1, f32(0.1), 0.1),
                *(date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)),
                *(["a", None], [1.0, f32(0.1)], None),
            )
        ],
        "$s: String, $b: Bool, $i: I32, $l: I64, $u: U32, $w: U64, $f: F32, $g: F64, $d: Date,"
        " $t: DateTime, $many: [String], $vec: Vector(2), $no: I32?",
        {
            **{"s": "ä", "b": False, "i": -1, "l": str(-(2**63)), "u": 1, "w": 2**63 - 1},
            **{"f": 0.1, "g": 0.1, "d": "2024-02-29", "t": "2024-02-29T13:00:00.001+01:00"},
            **{"many": ["a", None], "vec": [1, 0.1]},
        },
    ),
    Case(
        "rows are not made distinct",
        TEAM,
        "match { $p: Person } return { $p.active }",
        [True, True, False, False, None],
    ),
    Case("an edge property", PARALLEL, "match { $a $w:knows $b } return { $w.since }", [2001, 1990, None, 0]),
    Case("no rows keep their columns", EMPTY, "match { $p: Person } return { $p.age, $p }", []),
]

AGGREGATES = [
    Case("count of a variable counts rows", TEAM, "match { $p: Person } return { count($p) }", [5]),
    Case(
        "count of a property counts values",
        TEAM,
        "match { $p: Person } return { count($p.age) as n, count($p.nick) as all,"
        " count($p.tags) as lists, count($p.vec) as vectors }",
        [(4, 5, 1, 0)],
    ),
    Case(
        "count of a constant counts rows",
        TEAM,
        "match { $p: Person } return { count(1) as ones, count($x) as nulls, count(now()) as nows }",
        [(5, 0, 5)],
        "$x: I32?",
    ),
    Case(
        "sum and avg are floats and leave out null",
        TEAM,
        "match { $p: Person } return { sum($p.age) as s, avg($p.age) as a, sum($p.score) as f, avg($p.score) as g }",
        [(79.0, 19.75, 0.0, 0.0)],
    ),
    Case(
        "min and max have the type of their argument",
        TEAM,
        "match { $p: Person } return { min($p.age) as a, max($p.age) as b, min($p.score) as c,"
        " max($p.score) as d, min($p.nick) as e, max($p.nick) as f, min($p.level) as g,"
        " max($p.level) as h }",
        [(-1, 30, -2.0, 1.5, "X", "😀", "low", "top")],
    ),
    Case(
        "min and max keep large integers",
        NUMBERS,
        "match { $t: Thing } return { min($t.wide) as a, max($t.wide) as b, max($t.huge) as c,"
        " max($t.ratio) as d, min($t.weight) as e }",
        [(-(2**63), 2**63 - 1, 2**64 - 1, 16777216.0, -(2.0**63))],
    ),
    Case(
        "a sum does not overflow",
        build(*(thing(n, wide=2**63 - 1, huge=2**64 - 1) for n in range(4))),
        "match { $t: Thing } return { sum($t.wide) as s, avg($t.wide) as a, sum($t.huge) as u }",
        [(2.0**65, 2.0**63, 2.0**66)],
    ),
    Case(
        "aggregates of constants",
        TEAM,
        'match { $p: Person } return { sum(2) as s, avg(2.5) as a, min("x") as m, max($x) as n, sum($x) as o }',
        [(10.0, 2.5, "x", None, None)],
        "$x: F32?",
    ),
    Case(
        "nothing but nulls",
        build(person("a"), person("b")),
        "match { $p: Person } return { count($p.age) as n, sum($p.age) as s, avg($p.age) as a,"
        " min($p.age) as b, max($p.nick) as c }",
        [(0, None, None, None, None)],
    ),
    Case(
        "nothing at all gives one row without group columns",
        EMPTY,
        "match { $p: Person } return { count($p), count($p.age) as n, sum($p.age), avg($p.age),"
        " min($p.nick), max($p.age) }",
        [(0, 0, None, None, None, None)],
    ),
    Case(
        "nothing at all gives no row with group columns", EMPTY, "match { $p: Person } return { $p.age, count($p) }", []
    ),
    Case(
        "groups, null being one of them",
        TEAM,
        "match { $p: Person } return { $p.active, count($p) as n, sum($p.age) as s }",
        [(True, 2, 50.0), (False, 2, 29.0), (None, 1, None)],
    ),
    Case(
        "groups of two columns",
        TEAM,
        "match { $p: Person } return { $p.active, $p.level, count($p) as n }",
        [*((True, "top", 1), (False, "low", 1), (True, "low", 1)), *((None, "mid", 1), (False, None, 1))],
    ),
    Case(
        "a group column may stand behind the aggregate",
        TEAM,
        "match { $p: Person } return { count($p) as n, $p.age as years }",
        [(2, 30), (1, 20), (1, None), (1, -1)],
    ),
    Case(
        "groups of variables",
        MIXED,
        "match { $p: Person  $p owns $t } return { $p, count($t) as n, max($t.title) as last }",
        [("1", 2, "second"), ("2", 1, "second")],
    ),
    Case(
        "rows, not entities, are counted", MIXED, "match { $p: Person  $p owns $t } return { count($p) as rows }", [3]
    ),
    Case(
        "equal values of different nodes are one group",
        NUMBERS,
        "match { $t: Thing } return { $t.kind, count($t) as n }",
        [("box", 6)],
    ),
    Case(
        "groups of a list",
        build(
            person("a", tags=["x", None]), person("b", tags=["x", None]), person("c", tags=[]), person("d"), person("e")
        ),
        "match { $p: Person } return { $p.tags, count($p) as n }",
        [(["x", None], 2), ([], 1), (None, 2)],
    ),
    Case(
        "groups of a list, ordered by an aggregate",
        build(person("a", tags=["x", None]), person("b", tags=["x", None]), person("c", tags=[]), *map(person, "def")),
        "match { $p: Person } return { $p.tags, count($p) as n } order { n desc }",
        [(None, 3), (["x", None], 2), ([], 1)],
    ),
    Case(
        "groups of a day and of a moment",
        build(
            person("a", born=date(1, 1, 1), seen=datetime(1, 1, 1, tzinfo=UTC)),
            person("b", born=date(1, 1, 1), seen=datetime(1, 1, 1, tzinfo=UTC)),
            person("c"),
        ),
        "match { $p: Person } return { $p.born, $p.seen, count($p) as n }",
        [(date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC), 2), (None, None, 1)],
    ),
    Case(
        "zero is one group, whatever its sign",
        build(thing(1, weight=0.0), thing(2, weight=-0.0), thing(3, weight=1.0)),
        "match { $t: Thing } return { $t.weight, count($t) as n } order { n desc }",
        [(0.0, 2), (1.0, 1)],
    ),
    Case(
        "an edge property is aggregated and grouped",
        PARALLEL,
        "match { $a $w:knows $b } return { $w.how, count($w.since) as n, max($w.since) as last }",
        [("work", 1, 2001), ("school", 1, 1990), ("mirror", 1, 0)],
    ),
]

ORDERED = [
    Case(
        "ascending, null first, ties by id",
        TEAM,
        "match { $p: Person } return { $p.name } order { $p.age }",
        ["c", "e", "a", "b", "d"],
    ),
    Case(
        "descending, null last, ties by id ascending",
        TEAM,
        "match { $p: Person } return { $p.name } order { $p.age desc }",
        ["b", "d", "a", "e", "c"],
    ),
    Case(
        "two keys",
        TEAM,
        "match { $p: Person } return { $p.name } order { $p.age desc, $p.score asc }",
        ["b", "d", "a", "e", "c"],
    ),
    Case(
        "two keys, both descending",
        TEAM,
        "match { $p: Person } return { $p.name } order { $p.active desc, $p.age desc }",
        ["d", "a", "b", "e", "c"],
    ),
    Case(
        "strings by code point",
        TEAM,
        "match { $p: Person } return { $p.nick } order { $p.nick asc }",
        ["X", "x", "é", "～", "😀"],
    ),
    Case(
        "strings by code point, descending",
        TEAM,
        "match { $p: Person } return { $p.nick } order { $p.nick desc }",
        ["😀", "～", "é", "x", "X"],
    ),
    Case(
        "false before true",
        TEAM,
        "match { $p: Person } return { $p.name, $p.active } order { $p.active }",
        [("c", None), ("b", False), ("e", False), ("a", True), ("d", True)],
    ),
    Case(
        "enums as strings",
        TEAM,
        "match { $p: Person } return { $p.level } order { $p.level desc }",
        ["top", "mid", "low", "low", None],
    ),
    Case("days", TEAM, "match { $p: Person } return { $p.name } order { $p.born }", ["a", "c", "e", "b", "d"]),
    Case(
        "large integers are not rounded",
        NUMBERS,
        "match { $t: Thing } return { $t.number } order { $t.wide desc }",
        [4, 2, 1, 3, 5, 6],
    ),
    Case(
        "ids are strings also when the key is a number",
        build(*(thing(n) for n in (10, 9, -1, 2, 1))),
        "match { $t: Thing } return { $t.number } order { $t.title }",
        [-1, 1, 10, 2, 9],
    ),
    Case(
        "a key that is not returned",
        TEAM,
        "match { $p: Person } return { $p.level } order { $p.name desc }",
        [None, "top", "mid", "low", "low"],
    ),
    Case(
        "a column by its alias",
        TEAM,
        "match { $p: Person } return { $p.score as points, $p.name } order { points desc }",
        [(1.5, "d"), (0.5, "b"), (-2.0, "c"), (None, "a"), (None, "e")],
    ),
    Case("a variable by its column", TEAM, "match { $p: Person } return { $p } order { p desc } limit 2", ["e", "d"]),
    Case(
        "ties by the ids of all variables, in the order of their names",
        TEAM,
        "match { $z: Place  $y: Person  $y.age = 30 } return { $z, $y } order { $y.age }",
        [("p", "b"), ("q", "b"), ("p", "d"), ("q", "d")],
    ),
    Case(
        "ties between edges by their hidden ids",
        TEAM,
        "match { $a $w:knows $b } return { $a, $w.since } order { $w.since desc }",
        [("a", 2), ("b", 1), ("b", 1)],
    ),
    Case(
        "a constant orders nothing",
        TEAM,
        "match { $p: Person } return { 1 as one, $p } order { one desc }",
        [(1, "a"), (1, "b"), (1, "c"), (1, "d"), (1, "e")],
    ),
    Case(
        "groups by an aggregate",
        TEAM,
        "match { $p: Person } return { $p.age, count($p) as n } order { n desc, $p.age asc }",
        [(30, 2), (None, 1), (-1, 1), (20, 1)],
    ),
    Case(
        "groups that tie by their columns",
        TEAM,
        "match { $p: Person } return { $p.age, count($p) as n } order { n desc }",
        [(30, 2), (None, 1), (-1, 1), (20, 1)],
    ),
    Case(
        "groups by an aggregate that is null",
        TEAM,
        "match { $p: Person } return { $p.active, sum($p.age) as s } order { s }",
        [(None, None), (False, 29.0), (True, 50.0)],
    ),
    Case(
        "groups by an unaliased aggregate",
        TEAM,
        "match { $p: Person  $p livesIn $v } return { $v, count($p) } order { count desc }",
        [("p", 2), ("q", 1)],
    ),
    Case(
        "groups by a returned property",
        TEAM,
        "match { $p: Person } return { $p.active, min($p.name) as first } order { $p.active desc }",
        [(True, "a"), (False, "b"), (None, "c")],
    ),
    Case(
        "the days of the year 1 and 9999",
        build(
            person("a", seen=datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)),
            person("b", seen=datetime(1, 1, 1, tzinfo=UTC)),
            person("c"),
            person("d", seen=datetime(1970, 1, 1, tzinfo=UTC)),
        ),
        "match { $p: Person } return { $p } order { $p.seen desc }",
        ["a", "d", "b", "c"],
    ),
]

LIMITED = [
    Case(
        "the first of an order",
        TEAM,
        "match { $p: Person } return { $p } order { $p.age desc } limit 3",
        ["b", "d", "a"],
    ),
    Case("limit 0", TEAM, "match { $p: Person } return { $p } limit 0", []),
    Case("limit 0 of an order", TEAM, "match { $p: Person } return { $p } order { $p.age } limit 0", []),
    Case("limit 0 of one group", TEAM, "match { $p: Person } return { count($p) } limit 0", []),
    Case(
        "a limit beyond the rows",
        TEAM,
        "match { $p: Person } return { $p } order { $p.name } limit 100",
        ["a", "b", "c", "d", "e"],
    ),
    Case(
        "a limit cuts groups, not rows",
        TEAM,
        "match { $p: Person } return { $p.active, count($p) as n } order { $p.active desc } limit 2",
        [(True, 2), (False, 2)],
    ),
    Case("without an order any rows do", TEAM, "match { $p: Person } return { $p } limit 2", ["a", "e"]),
    Case(
        "a limit that ends inside a tie",
        TEAM,
        "match { $p: Person  $v: Place } return { $p, $v } order { $p.age desc } limit 3",
        [("b", "p"), ("b", "q"), ("d", "p")],
    ),
]

COMPUTED = [
    Case(
        "the extremes of moments keep their time of day",
        TYPED,
        "match { $p: Person } return { min($p.seen) as first, max($p.born) as last }",
        [(datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), date(1969, 12, 31))],
    ),
    Case(
        "the extremes of no moments",
        EMPTY,
        "match { $p: Person } return { min($p.seen) as first, max($p.born) as last, min($p.active) as any }",
        [(None, None, None)],
    ),
    Case("distinct constants of no rows", EMPTY, "match { $p: Person } return distinct { [] as x }", []),
    Case("distinct constants", TEAM, "match { $p: Person } return distinct { [] as x, 1 as y }", [([], 1)]),
    Case(
        "a constant that is computed is no group",
        EMPTY,
        "match { $p: Person } return { 1 + 1 as two, count(*) as n }",
        [(2, 0)],
    ),
    Case("an offset behind the last row", TEAM, "match { $p: Person } return { $p } order { p } offset 9 limit 3", []),
    Case(
        "the first of each of no rows",
        EMPTY,
        "match { $p: Person } return { $p } order { p } limit 1 per { $p.age }",
        [],
    ),
    Case(
        "the first of each",
        TEAM,
        "match { $p: Person } return { $p } order { $p.score desc } limit 1 per { $p.age }",
        ["d", "c", "a", "e"],
    ),
    Case(
        "the ties of groups are broken by columns from left to right",
        TEAM,
        "match { $p: Person } return { $p.active, count($p) as n } order { n desc }",
        [(False, 2), (True, 2), (None, 1)],
    ),
]

CASES = [*RETURNED, *AGGREGATES, *ORDERED, *LIMITED, *COMPUTED]
