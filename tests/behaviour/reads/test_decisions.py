# ruff: noqa: E501 - a query and its rows stand in one line each
"""The numbered decisions about the second edition of the language, one by one: what each of them says, on data.

Every number has examples here, or stands in `ELSEWHERE` with the test that shows it, or in `NOT_SHOWN` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError, OmniError
from support.graphs import new_graph
from support.subtests import each_case

ROOT = Path(__file__).parents[3]

SCHEMA = """
interface Named { key: String }
interface Unused { key: String }
node Person implements Named {
    key: String @key
    age: I32?
    score: F32?
    big: I64?
    tags: [String]?
    born: Date?
    city: String?
    mood: enum(glad, sad)?
    active: Bool?
    bio: String? @index
    vec: Vector(2)?
    photo: Blob?
}
node Town implements Named {
    key: String @key
    size: I64?
    age: I64?
    bio: String? @index
    vec: Vector(2)?
}
node Note { text: String?  contains: String? }
edge Knows: Person -> Person { since: I32?  weight: F64? }
edge Likes: Person -> Person { since: I32? }
edge Visits: Person -> Town { since: I32? }
edge Path: Person -> Person
edge In: Person -> Town
edge About: Note -> Person
edge Rates: Person -> Town { stars: I32  ratio: F64?  @key(src, dst, stars) }
"""
DATA = """
insert Person { key: "ann", age: 30, score: 0.1, big: 9223372036854775807, tags: ["x", "y"], born: date("2000-01-02"), city: "Rome", mood: "glad", active: true, bio: "a graph of things", vec: [0.0, 0.0] }
insert Person { key: "bob", age: 40, score: 2.5, big: 5, city: "rome", mood: "sad", active: false, bio: "a lance", vec: [1.0, 0.0] }
insert Person { key: "cid", tags: [], born: date("1999-12-31"), vec: [3.0, 4.0] }
insert Person { key: "dan", age: 41, score: 0.5, big: 7, tags: ["z"], born: date("2001-05-05"), city: "Rome", active: true }
insert Town { key: "oslo", size: 5, bio: "a graph" }
insert Town { key: "ann", size: 9 }
insert Knows { from: "ann", to: "bob", since: 2001, weight: 0.5 }
insert Knows { from: "ann", to: "dan", since: 2005, weight: 1.5 }
insert Knows { from: "bob", to: "cid" }
insert Knows { from: "dan", to: "ann", since: 2010, weight: 2.5 }
insert Likes { from: "ann", to: "bob", since: 1999 }
insert Likes { from: "cid", to: "cid" }
insert Visits { from: "ann", to: "oslo", since: 2001 }
insert Visits { from: "bob", to: "oslo" }
insert Visits { from: "bob", to: "ann" }
insert In { from: "dan", to: "oslo" }
insert Rates { from: "ann", to: "oslo", stars: 1, ratio: -0.0 }
"""


@dataclass(frozen=True)
class Gives:
    """A query and its rows; one value of a row may stand alone."""

    text: str
    rows: Sequence[Any]
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fails:
    """A text that is refused, with its code or the kind of the error, and words of the message."""

    text: str
    code: str
    words: str = ""
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """A mutation of a graph of its own, and the rows of a query afterwards; of the receipt where there is none."""

    text: str
    then: str
    rows: Sequence[Any]


@dataclass(frozen=True)
class Refuses:
    """A mutation that is refused."""

    text: str
    code: str
    words: str = ""


Example = Gives | Fails | Changes | Refuses
P = "match { $p: Person } return "


def keys(condition: str, *rows: str) -> Gives:
    """The people for whom a condition is true."""
    return Gives(f"match {{ $p: Person  {condition} }} return {{ $p.key as k }} order {{ k }}", rows)


def value(expression: str, *rows: Any) -> Gives:
    """What an expression is for the people in the order of their keys."""
    return Gives(f"match {{ $p: Person }} return {{ {expression} as v }} order {{ $p }}", rows)


def constant(expression: str, found: Any) -> Gives:
    """What an expression is for ann."""
    return Gives(f'match {{ $p: Person {{ key: "ann" }} }} return {{ {expression} as v }}', [found])


def wrong(condition: str, code: str, words: str = "") -> Fails:
    """A condition about people that is refused."""
    return Fails(f"match {{ $p: Person  {condition} }} return {{ $p.key }}", code, words)


def bad(expression: str, code: str, words: str = "") -> Fails:
    """A returned expression that is refused."""
    return Fails(f"match {{ $p: Person }} return {{ {expression} as v }}", code, words)


ALL = ("ann", "bob", "cid", "dan")
PEOPLE_LEFT = "match { $p: Person } return { $p.key as k, $p.age } order { k }"
NEAR = "query q($v: Vector(2) = [0.0, 0.0]) { match { $p: Person } return "

DECISIONS: dict[int, tuple[Example, ...]] = {
    1: (
        Fails("match { $p: Person  optional { $p knows $q }  $q knows $r } return { $r }", "Q123", "optional"),
        Fails(P + "{ $p.key } offset 1", "Q119", "order"),
        bad("null", "Q120"),
        Fails("match { $p: Person  let $v = $v + 1 } return { $p }", "Q122"),
    ),
    2: (
        bad("case else 1 end", "Q000"),
        bad("case $p.age when 30 then 1 end", "Q000", "case when"),
        value("case when $p.age > 35 then 1 end", None, 1, None, 1),
    ),
    3: (
        keys("$p.age > 40 or not { $p knows $_ }", "cid", "dan"),
        value("exists { $p knows $_ }", True, True, False, True),
    ),
    4: (
        keys('$p.key in split("ann,cid", ",")', "ann", "cid"),
        keys("$p.key in collect($q.key) { $q: Person  $q knows $p }"),
        Gives(
            'query q($a: String) { match { $p: Person  $p.key in [$a, "bob"] } return { $p.key } order { $p } }',
            ["bob", "dan"],
            {"a": "dan"},
        ),
        Gives('match { $p: Person  path $w = shortest $p knows $q  "cid" in nodes($w) } return { $p.key }', ["bob"]),
    ),
    5: (
        Gives(
            "match { $p $e:(knows | likes) $q: Person { age: 40 } } return { $p.key, $e.@type as t } order { t }",
            [("ann", "Knows"), ("ann", "Likes")],
        ),
    ),
    6: (
        keys('contains($p.city, "om")', "ann", "bob", "dan"),
        keys('ends_with($p.city, "e") and starts_with($p.city, "r")', "bob"),
        wrong('contains($p.tags, "x")', "T7", "in"),
    ),
    7: (
        keys('search($p.bio, "graph") = true', "ann"),
        keys('not search($p.bio, "graph")', "bob"),
        keys('search($p.bio, "")'),
        keys('let $f = search($p.bio, "lance")  $f', "bob"),
    ),
    8: (
        Gives(NEAR + "{ count(*) as n, max($p.key) as m } order { nearest($p.vec, $v) } limit 2 }", [(2, "bob")]),
        Gives(NEAR + "{ count(*) as n } order { nearest($p.vec, $v) } offset 1 limit 5 }", [2]),
        Gives(
            P + '{ $p.active as a, count(*) as n } order { bm25($p.bio, "graph lance"), a } offset 1 limit 1',
            [(True, 1)],
        ),
    ),
    9: (
        Gives(
            NEAR + "{ $p.key, nearest($p.vec, $v) } order { nearest($p.vec, $v), $p.age } limit 2 }",
            [("ann", 0.0), ("bob", 1.0)],
        ),
    ),
    10: (
        Gives(P + "{ min($p.born) as a, max($p.active) as b }", [(date(1999, 12, 31), True)]),
        Refuses('update Knows set { from: "bob" } where true', "T16"),
        Refuses('update Person set { key: "x" } where true', "Q115"),
    ),
    13: (
        bad("$p.age as in, 1", "Q000", "`in` is a reserved word"),
        Gives("query q($in: String) { match { $p: Person { key: $in } } return { $p.age } }", [30], {"in": "ann"}),
        Gives('match { $p: Person  $p "in" $t } return { $p.key }', ["dan"]),
    ),
    14: (Gives(P + "{ count(*) as n }", [4]), Gives("query named() { " + P + "{ count(*) as n } }", [4])),
    15: (keys("$p.age  -1 > 38", "bob", "dan"),),
    16: (keys("not ($p.age > 35)", "ann"), wrong("unknown($p.age)", "Q110")),
    17: (
        Gives("match { $p: Person  $p (knows | likes) $q } return { count(*) as n }", [5]),
        keys("$p.age * $p.age > 1000", "bob", "dan"),
        Gives("match { $a: Person  $b: Town  $a * $b } return { count(*) as n }", [4]),
        Gives("match { $n: Note  $n.contains contains $n.text } return { count(*) as n }", [0]),
    ),
    18: (keys("$p.active  not { $p knows $_ }"), keys("$p.age not in [30, 40]", "dan")),
    19: (
        Gives("match { $p: Person  $p path $q } return { $p }", []),
        Gives(P + "{ $p.key as distinct } order { distinct } limit 1", ["ann"]),
    ),
    20: (Gives(P + "{ $p.key as limit, $p.age as end } order { limit } limit 1", [("ann", 30)]),),
    21: (
        Gives(
            "query q($a: String) { match { $p: Person  let $k = $p.key  $a contains $k } return { $p.key } }",
            ["ann"],
            {"a": "hanna, annie"},
        ),
    ),
    22: (bad("upper { $p knows $q }", "Q110", "block"), bad("lower($p.key) { $p knows $q }", "Q110", "block")),
    23: (
        Fails(P + "{ $p.key } limit 1 offset 1", "Q000", "offset"),
        constant("2.5E-3 * 1e3", 2.5),
        constant("-9223372036854775808", -(2**63)),
    ),
    24: (Fails(P + "{ $p.key } match { $q: Person } return { $q }", "Q000"), bad("$p.tags[0]", "Q000")),
    25: (keys("$p.age > 35", "bob", "dan"), value("$p.age > 35", False, True, None, True)),
    26: (
        keys('"x" in $p.tags', "ann"),
        keys('not ("x" in $p.tags)', "cid", "dan"),
        keys("$p.age not in [30]", "bob", "dan"),
        Gives("query q($l: [I64]) { match { $p: Person  $p.age not in $l } return { $p.key } }", [], {"l": [1, None]}),
        keys("$p.age in []"),
        keys("not ($p.age in [])", "ann", "bob", "dan"),
    ),
    27: (
        wrong("$p.age = null", "T7", "is null"),
        wrong("$p.age in [null]", "T7", "is null"),
        bad("coalesce(null, null)", "Q120"),
        value("coalesce($p.age, null)", 30, 40, None, 41),
    ),
    28: (constant("1e308 * 10", None), constant("ln(0)", None), constant("sqrt(-1)", None), constant("exp(1e9)", None)),
    29: (
        constant("-0.0 = 0.0", True),
        constant("string(-0.0 * 1)", "0"),
        Gives("match { $a $e:rates $b } return { $e.@id }", ['["ann","oslo","1"]']),
    ),
    30: (constant("9007199254740993 = 9007199254740992.0", False), keys("$p.big > 9223372036854775806.0")),
    31: (
        constant("-7 % 3", -1),
        constant("7 % -3", 1),
        constant("div(-7, 2)", -3),
        constant("div(7, 0)", None),
        constant("7 / 2", 3.5),
    ),
    32: (
        Fails(P + "{ $p.big + 1 as v }", "IntegerOverflowError", "ann"),
        Gives(P + "{ $p.big + 1 as v } order { $p } offset 1 limit 1", [6]),
        keys("$p.big + 1 > 0", "bob", "dan"),
        keys("not exists { $p knows $q  $p.big + 1 > 0 }", "ann", "cid"),
        bad("9223372036854775807 + 1", "Q109"),
    ),
    33: (
        value("case when $p.big < 10 then $p.big + 1 else 0 end", 0, 6, 0, 8),
        value("coalesce(0, $p.big + 1)", 0, 0, 0, 0),
    ),
    34: (keys("$p.score = 0.1", "ann"), keys("$p.score * 2 = 0.2"), keys("$p.score in [0.1, 7.0]", "ann")),
    35: (
        value("coalesce($p.age, 0.5)", 30.0, 40.0, 0.5, 41.0),
        value("coalesce($p.mood, $p.key)", "glad", "sad", "cid", "dan"),
        bad('coalesce($p.age, "x")', "T7"),
    ),
    36: (
        bad('$p.key + "a"', "T7", "concat"),
        bad("$p.born + 1", "T7", "add_days"),
        wrong('$p.born = datetime("2000-01-01T00:00:00Z")', "T7", "date"),
        bad("$p.active + 1", "T7"),
        wrong("$p.key = 3", "T7"),
    ),
    37: (
        keys('$p.city < "a"', "ann", "dan"),
        wrong("$p.tags = $p.tags", "T7"),
        keys("$p.active > false", "ann", "dan"),
    ),
    38: (
        Gives(
            "match { $p: Person  $p.tags is not null } return { count(*) as n, count(distinct $p.tags) as d }", [(3, 3)]
        ),
        Gives("match { $x: Named } return { count(distinct $x) as n, count(distinct $x.key) as k }", [(6, 5)]),
        Gives("match { $p: Person } return distinct { $p.mood } order { $p.mood }", [None, "glad", "sad"]),
    ),
    39: (value("least($p.age, 35)", 30, 35, None, 35), constant("length($p.key) + 0", 3)),
    40: (
        constant('substring("abc", 0, 2)', "a"),
        constant('substring("abc", 9)', ""),
        constant('substring("abc", 1, -1)', None),
        constant('length("zoë")', 3),
    ),
    41: (
        constant('split("", ",")', [""]),
        constant('split("a", "")', None),
        constant('replace("aaa", "", "b")', "aaa"),
        constant('trim("\\t a ")', "a"),
    ),
    42: (
        keys('matches($p.city, "^[rR]om")', "ann", "bob", "dan"),
        wrong('matches($p.city, "(")', "Q109"),
        wrong("matches($p.city, $p.key)", "T7"),
    ),
    43: (
        constant("round(2.5)", 3.0),
        constant("round(-2.5)", -3.0),
        constant("round(1234.5678, -2)", 1200.0),
        constant("round(7, -1)", 7),
        bad("round(1.5, 16)", "Q109"),
    ),
    44: (
        constant("i64(2.9)", 2),
        constant("i64(1e300)", None),
        constant('i64(" 1")', None),
        constant("string(1.0)", "1"),
        value("string($p.score)", "0.1", "2.5", None, "0.5"),
        constant('f64("-1e2")', -100.0),
    ),
    45: (
        bad('date("2000-13-01")', "Q109"),
        constant('date(concat("2000-13", "-01"))', None),
        constant('string(datetime(date("2000-01-01")))', "2000-01-01T00:00:00.000Z"),
    ),
    46: (
        constant('days_between(date("2000-01-01"), date("2000-03-01"))', 60),
        constant('add_months(date("2000-01-31"), 1)', date(2000, 2, 29)),
        constant('add_days(date("9999-12-31"), 1)', None),
        constant('truncate(date("2024-03-03"), "week")', date(2024, 2, 26)),
        bad("hour($p.born)", "T7"),
    ),
    47: (
        value("l2($p.vec, $p.vec)", 0.0, 0.0, 0.0, None),
        value("cosine($p.vec, $p.vec)", None, 1.0, 1.0, None),
        constant("element($p.tags, 3)", None),
        constant("element($p.tags, 2)", "y"),
    ),
    48: (
        Gives(
            "match { $q.age > 35  $p knows $q  $p: Person } return { $p.key, $q.key } order { $p, $q }",
            [("ann", "bob"), ("ann", "dan")],
        ),
        Gives("match { $p: Person  exists { $p knows $x }  exists { $p likes $x } } return { $p.key }", ["ann"]),
        Fails("query q($p: String) { match { $p: Person } return { $p.key } }", "Q104", "", {"p": "x"}),
    ),
    49: (value("count { $p knows $x  $x knows $_ }", 2, 0, 0, 2), value("count { $p $e:visits $t }", 1, 2, 0, 0)),
    50: (
        wrong("not { $q: Town }", "T9"),
        wrong("exists { $q: Town }", "T39"),
        keys("exists { $p.age > 40 }", "dan"),
        wrong("count { $q: Town  exists { $q visits $_ } } > 0", "T39"),
    ),
    51: (
        value("sum($e.weight) { $p $e:knows $_ }", 2.0, None, None, 2.5),
        value("count(distinct $q.city) { $p knows $q }", 2, 0, 0, 1),
        Gives(P + "{ max(count { $p knows $x }) as m }", [2]),
        value("collect($q.key) { $p knows $q }", ["bob", "dan"], ["cid"], [], ["ann"]),
        bad("sum(count($q)) { $p knows $q }", "T8"),
    ),
    52: (
        Gives(
            "match { $p: Person  optional { $p likes $q } } return { $p.key, count { $q knows $_ } as n, exists { $q knows $_ } as e } order { $p }",
            [("ann", 1, True), ("bob", 0, False), ("cid", 0, False), ("dan", 0, False)],
        ),
    ),
    53: (
        Fails("match { $x: Person | Town  $x.age > 3 } return { $x }", "T6", "I64"),
        Gives("match { $x: Unused } return { count(*) as n }", [0]),
        Fails("match { $x: Person | Town  $x: Person } return { $x }", "Q106"),
        Gives('match { $x: Town | Person { key: "ann" } } return { $x.@type } order { $x.@type }', ["Person", "Town"]),
    ),
    54: (
        Gives(
            'match { $x: Named { key: "ann" } } return { $x, $x.@type } order { $x }',
            [("ann", "Person"), ("ann", "Town")],
        ),
        Gives('match { $x: Named  search($x.bio, "graph") } return { $x } order { $x }', ["ann", "oslo"]),
        Fails('match { $x: Named } return { $x } order { bm25($x.bio, "graph") } limit 1', "T20"),
    ),
    55: (
        Gives(
            "match { $t: Town  $t visits $p } return { $t, $p } order { $t, $p }",
            [("ann", "bob"), ("oslo", "ann"), ("oslo", "bob")],
        ),
        Gives(
            "match { $x: Named  $x visits $y } return { $x, $y.size } order { $x, $y }",
            [("ann", 5), ("bob", 9), ("bob", 5)],
        ),
        Fails("match { $t: Town  $t knows $p } return { $t }", "T5"),
        Fails("match { $a (knows | visits) $b } return { $a }", "T5"),
    ),
    56: (
        Gives(
            'match { $p: Person { key: "dan" }  $p (knows | visits){2,2} $x } return { $x, $x.@type as t } order { $x }',
            [("bob", "Person"), ("oslo", "Town")],
        ),
        Gives(
            'match { $t: Town { key: "oslo" }  $t (visits | "in"){1,2} $x } return { $x } order { $x }',
            ["ann", "bob", "dan"],
        ),
        Fails("match { $p: Person  $p (knows | about){1,2} $x } return { $x }", "T15", "one way"),
    ),
    57: (
        Gives("match { $a: Person  $b: Person  $a != $b } return { count(*) as n }", [12]),
        Fails("match { $a: Person  $b: Town  $a = $b } return { $a }", "T7"),
        Fails("match { $a: Person  $b: Person  $a < $b } return { $a }", "T7"),
        Fails("match { $a $e:knows $b } return { $e }", "T23", "$e.@id"),
        Gives('match { $a: Person { key: "cid" }  $a $e:<likes> $b } return { $e.@src, $e.@dst }', [("cid", "cid")]),
    ),
    58: (
        Gives(
            'match { $a $e:likes $b: Person { key: "bob" } } return { $a.@id, $a.@type, $e.@src, $e.@dst, $e.@type }',
            [("ann", "Person", "ann", "bob", "Likes")],
        ),
        wrong('$p.@src = "x"', "T6", "@id"),
        Refuses('insert Person { @id: "x" }', "Q000"),
    ),
    59: (
        Gives(
            "match { $p: Person  optional { $p likes $q }  optional { $p visits $t } } return { $p.key, $q.key as q, $t.key as t } order { $p, $t }",
            [
                ("ann", "bob", "oslo"),
                ("bob", None, "ann"),
                ("bob", None, "oslo"),
                ("cid", "cid", None),
                ("dan", None, None),
            ],
        ),
        Gives(
            "match { $q is null  $p: Person  optional { $p likes $q } } return { $p.key } order { $p }", ["bob", "dan"]
        ),
        Fails("match { $p: Person  optional { $p.age > 3 } } return { $p }", "Q123"),
    ),
    60: (
        Gives(
            "match { $p: Person  optional { $p likes $q } } return { count($q) as q, count($p) as p, count(*) as n }",
            [(2, 4, 4)],
        ),
    ),
    61: (
        Fails(
            "match { $p: Person  optional { $p likes $q } } return { $q } order { nearest($q.vec, [0.0, 0.0]) } limit 1",
            "Q123",
        ),
    ),
    62: (
        wrong("$p.age", "T41", "I32"),
        Fails("match { $p: Person { age: $p.age } } return { $p }", "T45"),
        Gives("match { $p: Person { age: 20 + 10 } } return { $p.key }", ["ann"]),
    ),
    63: (
        Gives(
            "match { $n > 70  let $n = $p.age * 2  $p: Person } return { $p.key, $n } order { $n }",
            [("bob", 80), ("dan", 82)],
        ),
        Fails("match { $p: Person  let $a = $b  let $b = $a } return { $p }", "Q122"),
        Fails("match { $p: Person  let $a = count($p) } return { $a }", "T7", "having"),
        Fails("match { $p: Person  let $a = $p } return { $a }", "T7"),
        Gives(
            "match { $p: Person  optional { $p likes $q  let $v = 1 } } return { $p.key, $v } order { $p }",
            [("ann", 1), ("bob", None), ("cid", 1), ("dan", None)],
        ),
    ),
    64: (Gives(P + "distinct { $p.city as c } having { c is not null } order { c desc } offset 1 limit 1", ["Rome"]),),
    65: (
        Gives('match { $p: Person { key: "nobody" } } return { "x" as t, count(*) as n }', [("x", 0)]),
        Fails(P + "{ $p.vec, count(*) as n }", "T9"),
        Fails("match { $p: Person  path $w = shortest $p knows $q } return distinct { $w as w }", ""),
    ),
    66: (
        bad("$p.age + count(*)", "T9", "$p.age"),
        Gives(P + "{ $p.age, $p.age + count(*) as v } order { $p.age } limit 2", [(None, None), (30, 31)]),
    ),
    67: (
        Gives(
            'match { $p: Person { key: "nobody" } } return { count(*) as n, sum($p.age) as s, collect($p.key) as c, count(*) + 1 as m }',
            [(0, None, [], 1)],
        ),
    ),
    68: (
        Gives(
            P + "{ sum($p.age) as s, avg($p.age) as a, median($p.age) as m, stddev($p.age) as d }",
            [(111.0, 37.0, 40.0, pytest.approx(6.0827625303))],
        ),
        Gives(
            'match { $p: Person { key: "ann" } } return { stddev($p.age) as d, sum($p.big) as s }',
            [(None, 9.223372036854775807e18)],
        ),
    ),
    69: (
        Gives(
            P + "{ collect($p.age) as c, collect($p.key order { $p.age desc } limit 2) as o }",
            [([30, 40, 41], ["dan", "bob"])],
        ),
        Gives(P + "{ collect($p) as c, collect(distinct $p.city) as d }", [(list(ALL), ["Rome", "rome"])]),
    ),
    70: (
        Gives(P + "{ $p.city as c, count(*) as n } having { n > 1 and c is not null }", [("Rome", 2)]),
        Gives(P + '{ $p.key as k } having { k != "ann" } order { k } limit 1', ["bob"]),
    ),
    71: (
        Fails(P + "{ $p.age as a, a + 1 as b }", "Q117", "let"),
        Gives(
            P + "{ $p.city as c, $p.key as k } order { c, k } limit 1 per { c }",
            [(None, "cid"), ("Rome", "ann"), ("rome", "bob")],
        ),
    ),
    72: (
        Gives(P + "{ $p.age + 1 as b } order { ($p.age + 1) desc } limit 1", [42]),
        Fails(P + "{ $p.age + 1 as b } order { 1 + $p.age }", "T42"),
        Fails(P + "{ $p.city, count(*) as n } order { $p.age }", "T42", "$p.age"),
        Gives(P + "{ $p.key } order { $p.@id desc } limit 1", ["dan"]),
    ),
    73: (
        Gives('match { $t: Town { key: "ann" } } return { $t.* }', [("ann", 9, None, None)]),
        Fails(P + "{ $p.*, $p.age }", "Q114"),
    ),
    74: (
        Gives(P + "{ $p.key } order { $p.age } limit 1", ["cid"]),
        Gives(P + "{ $p.key } order { $p.age desc nulls first } limit 2", ["cid", "dan"]),
        Gives(P + "{ $p.key } order { $p desc } limit 1", ["dan"]),
    ),
    75: (
        Gives(
            "match { $b: Person  $a: Person  $a knows $b } return { $a.key, $b.key } order { $a.active }",
            [("bob", "cid"), ("ann", "bob"), ("ann", "dan"), ("dan", "ann")],
        ),
    ),
    76: (Gives(P + "{ $p.city as c, count(*) as n } order { n }", [(None, 1), ("rome", 1), ("Rome", 2)]),),
    77: (
        Gives(
            P + "{ $p.city as c, $p.key } order { $p.age desc } limit 1 per { c }",
            [("Rome", "dan"), ("rome", "bob"), (None, "cid")],
        ),
        Fails(P + "{ $p.key } limit 1 per { $p.city }", "Q119"),
        Fails(P + "{ $p.key } order { $p } offset 1 limit 1 per { $p.city }", "Q119"),
    ),
    78: (
        Gives("query q($n: I32) { " + P + "{ $p.key } order { $p } offset $n limit $n }", ["bob"], {"n": 1}),
        Fails("query q($n: I32) { " + P + "{ $p.key } order { $p } limit $n }", "parameters", "limit", {"n": -1}),
        Fails("query q($n: I32?) { " + P + "{ $p.key } order { $p } limit $n }", "Q119", "", {"n": 1}),
    ),
    79: (
        Gives(
            'query q($n: I32 = -5 , $d: Date = date("2000-01-02")) { match { $p: Person  $p.born = $d  $p.age > $n } return { $p.key } }',
            ["ann"],
        ),
        Gives(
            'query q($n: I32? = 3) { match { $p: Person { key: "ann" } } return { $n is null as v } }',
            [True],
            {"n": None},
        ),
        Fails("query q($n: I32 = 3) { " + P + "{ $n } }", "parameters", "n", {"n": None}),
    ),
    80: (
        Gives(
            'match { $p: Person { key: "ann" }  path $w = shortest $p knows{2,4} $q } return { $q.key, length($w) as l }',
            [("cid", 2)],
        ),
        Gives(
            'match { $p: Person { key: "ann" }  path $w = shortest $p knows $q } return { nodes($w) as n } order { $q }',
            [["ann", "bob"], ["ann", "dan"]],
        ),
    ),
    81: (
        Gives(
            'match { $p: Person { key: "ann" }  path $w = all $p knows{1,5} $p } return { nodes($w) as n }',
            [["ann", "dan", "ann"]],
        ),
        Fails("match { $p: Person  path $w = all $p knows{1,11} $q } return { $q }", "T15"),
    ),
    82: (
        wrong("$p.age > 3  path $w = shortest $p knows $q  $w = $w", "Q121"),
        Gives(
            "match { $p: Person  optional { path $w = shortest $p likes $q } } return { $p.key, $w is null as n } order { $p }",
            [("ann", False), ("bob", True), ("cid", False), ("dan", True)],
        ),
    ),
    83: (
        Changes(
            'insert Rates { from: "bob", to: "oslo", stars: 5 }',
            "match { $a $e:rates $b } return { $e.@id } order { $e.@id }",
            ['["ann","oslo","1"]', '["bob","oslo","5"]'],
        ),
    ),
    85: (
        Changes(
            "update Person set { age: age + 1 } where age > 35",
            PEOPLE_LEFT,
            [("ann", 30), ("bob", 41), ("cid", None), ("dan", 42)],
        ),
        Changes(
            'match { $p: Person { key: "ann" } } update Person set { age: $p.age } where key = "cid"',
            PEOPLE_LEFT,
            [("ann", 30), ("bob", 40), ("cid", 30), ("dan", 41)],
        ),
        Refuses("insert Town { key: age }", "T45"),
    ),
    86: (
        Changes(
            "match { $p: Person  $p visits $t } insert Note { text: $p.key }",
            "match { $n: Note } return { $n.text } order { $n.text }",
            ["ann", "bob"],
        ),
        Changes(
            'match { $p: Person } insert Note { text: "once" }', "match { $n: Note } return { count(*) as n }", [1]
        ),
    ),
    87: (
        Changes(
            'insert Town { key: "rome" } as $t  insert In { from: "ann", to: $t }',
            'match { $p "in" $t } return { $p.key, $t.key } order { $p }',
            [("ann", "rome"), ("dan", "oslo")],
        ),
        Refuses('insert Town { key: "rome" } as $t  insert In { from: $t, to: "oslo" }', "T5"),
    ),
    88: (
        Changes(
            'match { $p: Person  $p knows $q } update $p set { city: "x" }',
            'match { $p: Person { city: "x" } } return { $p.key } order { $p }',
            ["ann", "bob", "dan"],
        ),
        Refuses("match { $p: Person  $p knows $q } update $p set { age: $q.age }", "", "ann"),
        Changes("match { $p: Person  optional { $p likes $q } } delete $q", PEOPLE_LEFT, [("ann", 30), ("dan", 41)]),
    ),
    89: (
        Changes(
            'match { $p: Person { key: "none" } } update $p set { age: 1 }',
            PEOPLE_LEFT,
            [("ann", 30), ("bob", 40), ("cid", None), ("dan", 41)],
        ),
    ),
    90: (
        Changes(
            'upsert Person { key: "ann", city: "x" }',
            'match { $p: Person { key: "ann" } } return { $p.city, $p.age }',
            [("x", 30)],
        ),
        Changes(
            'insert Person { key: "ann", city: "x" }',
            'match { $p: Person { key: "ann" } } return { $p.city, $p.age }',
            [("x", None)],
        ),
        Refuses('upsert Note { text: "x" }', "", "has no key"),
        Refuses("upsert Person { age: 3 }", "T12"),
    ),
    91: (
        Changes(
            'update Person set { age: 6 / 2, score: 0.3 } where key = "ann"',
            'match { $p: Person { key: "ann" } } return { $p.age, $p.score = 0.3 as s }',
            [(3, True)],
        ),
        Refuses('update Person set { age: 7 / 2 } where key = "ann"', ""),
        Refuses('update Person set { age: big } where key = "ann"', ""),
    ),
    92: (
        Refuses("delete Person", "Q000", "where true"),
        Changes(
            'delete Knows where @src = "ann" and to = "bob"', "match { $a knows $b } return { count(*) as n }", [3]
        ),
    ),
    93: (
        Gives("set engine = local; reset merge_lineage; " + P + "{ count(*) as n };", [4]),
        Fails("set colour = 1; " + P + "{ $p }", "Q000"),
        Fails("show engine; " + P + "{ $p }", "Q000"),
    ),
    94: (Gives(P + "{ $p, count($p) } order { $p } limit 1", [("ann", 1)]),),
    96: (
        Fails("MATCH { $p: Person } RETURN { $p }", "Q000"),
        wrong("$p.age <> 3", "Q000", "!="),
        wrong("$p.age == 3", "Q000", "="),
        wrong("$p.agee = 3", "T6", "age"),
        wrong("$p.key = 'ann'", "Q000"),
    ),
    97: (
        Fails("match { (p:Person)-[:KNOWS]->(q) } return { $p }", "Q000"),
        Fails(P + "$p.key", "Q000"),
        Fails(P + "{ $p.key } skip 3", "Q000", "offset"),
    ),
    98: (
        wrong("1 < $p.age < 3", "Q000", "chain"),
        wrong("not $p knows $_", "Q000"),
        wrong("$p.age = null", "T7", "is null"),
    ),
    102: (
        Gives(
            'match { $p: Person { key: "dan" }  $p (knows where since > 2003 and weight >= 1){1,3} $q } return { $q.key } order { $q }',
            ["ann"],
        ),
        wrong("$p (knows where $p.age > 3) $q", "T45"),
        Gives(
            "match { $p: Person  $p (knows | likes where since < 2002) $q } return { $p.key, $q.key }", [("ann", "bob")]
        ),
    ),
    103: (
        Changes('insert Note { text: "a" } as $n return { $n.text as t }', "", ["a"]),
        Refuses('insert Note { text: "a" } as $n return { count(*) as t }', "T44"),
    ),
    104: (
        Gives(
            'match { $p: Person { key: "ann" }  path $w = shortest $p <visits>{1,4} $q: Person } return { $q.key, nodes($w) as n }',
            [("bob", ["ann", "oslo", "bob"])],
        ),
        Gives('match { $t: Town { key: "oslo" }  $t <visits> $x } return { $x.key } order { $x }', ["ann", "bob"]),
        Fails("match { $p: Person  $p <visits>{1,2} $q } return { $q }", "T5", "$q"),
    ),
}
#: Decisions that another test shows.
ELSEWHERE: dict[int, str] = {
    11: "laws/oracle/test_oracle.py::test_the_engine_agrees_with_the_oracle",
    12: "behaviour/embedding/test_graph.py",
    84: "unit/lang/golden/schema_errors/S-22-*.pg",
    95: "laws/test_language_laws.py",
    101: "laws/engine/test_function_laws.py",
}
#: Decisions that say nothing about what a graph does.
NOT_SHOWN: dict[int, str] = {99: "what the language does not have", 100: "how it could have it later"}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return made(tmp_path_factory.mktemp("decisions"))


def made(folder: Path) -> Graph:
    graph = new_graph(folder, SCHEMA)
    graph.mutate(DATA)
    return graph


def tuples(rows: Sequence[dict[str, Any]]) -> list[Any]:
    cells = [tuple(row.values()) for row in rows]
    return [row[0] if len(row) == 1 else row for row in cells]


def check_refused(run: Callable[[], object], code: str, words: str) -> None:
    with pytest.raises(OmniError) as caught:
        run()
    error = caught.value
    codes = error.codes if isinstance(error, CompilerError) else (error.to_json().get("kind"), type(error).__name__)
    assert code == "" or code in codes or (code == "parameters"), (codes, str(error))
    assert words in str(error)


@each_case(
    ("number", "example"),
    [(number, item) for number, found in DECISIONS.items() for item in found if isinstance(item, Gives | Fails)],
)
def test_what_a_decision_says_about_reading(people: Graph, number: int, example: Gives | Fails) -> None:
    if isinstance(example, Gives):
        assert tuples(people.query(example.text, example.params).to_pylist()) == list(example.rows)
    else:
        check_refused(lambda: people.query(example.text, example.params).to_pylist(), example.code, example.words)


@each_case(
    ("number", "example"),
    [(number, item) for number, found in DECISIONS.items() for item in found if isinstance(item, Changes | Refuses)],
)
def test_what_a_decision_says_about_writing(
    tmp_path_factory: pytest.TempPathFactory, number: int, example: Changes | Refuses
) -> None:
    graph = made(tmp_path_factory.mktemp(f"decision{number}"))
    if isinstance(example, Refuses):
        check_refused(lambda: graph.mutate(example.text), example.code, example.words)
        return
    receipt = graph.mutate(example.text)
    found = graph.query(example.then).to_pylist() if example.then else receipt.rows
    assert tuples(found) == list(example.rows)


def test_every_decision_is_shown_once() -> None:
    numbers = [*DECISIONS, *ELSEWHERE, *NOT_SHOWN]
    assert sorted(numbers) == list(range(1, 105))
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        found = list((ROOT / "tests").glob(file))
        assert found, place
        assert not name or any(f"def {name}(" in path.read_text(encoding="utf-8") for path in found), place


def test_every_code_of_the_checks_has_a_golden() -> None:
    written = (path.read_text(encoding="utf-8") for path in (ROOT / "src/omnigraph/lang/query").rglob("*.py"))
    codes = {code for text in written for code in re.findall(r'"([TQLD]\d{1,3})"', text)}
    goldens = (ROOT / "tests/unit/lang/golden/query_errors").glob("*.gq")
    assert codes == {path.name.partition("-")[0] for path in goldens}
