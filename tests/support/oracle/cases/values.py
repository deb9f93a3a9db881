"""Cases of the operators, of null, of numbers of different types and of parameters."""

from __future__ import annotations

from datetime import UTC, date, datetime

from support.oracle.cases.case import Case
from support.oracle.graphs import build, edge, f32, person, thing

BIG = 2**53
#: Numbers of every type around the places where doubles and 32-bit floats lose digits.
NUMBERS = build(
    thing(1, small=1, wide=BIG, count=1, huge=BIG, ratio=0.5, weight=0.5),
    thing(2, small=2, wide=BIG + 1, count=2, huge=BIG + 1, ratio=f32(0.1), weight=0.1),
    thing(3, small=-3, wide=-BIG - 1, count=2**32 - 1, huge=2**64 - 1, ratio=2.0, weight=2.0**53),
    thing(4, small=2**31 - 1, wide=2**63 - 1, huge=2**63 - 1, ratio=-0.0, weight=2.0**63),
    thing(5, small=-(2**31), wide=-(2**63), huge=0, ratio=f32(16777217), weight=-(2.0**63)),
    thing(6, small=0, weight=-0.0),
)
#: Words with everything that a pattern language would trip over.
STRINGS = build(
    person("1", nick="abc"),
    person("2", nick="aBc"),
    person("3", nick="a%c"),
    person("4", nick="a_c"),
    person("5", nick=""),
    person("6"),
    person("7", nick="ä😀～"),
    person("8", nick="a\u0308"),
    person("9", nick='it\'s "so" \\ \n'),
)
MOMENTS = build(
    person("1", born=date(1969, 12, 31), seen=datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    person("2", born=date(1970, 1, 1), seen=datetime(1970, 1, 1, tzinfo=UTC)),
    person("3", born=date(2024, 2, 29), seen=datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)),
    person("4", born=date(9999, 12, 31), seen=datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)),
    person("5", born=date(1, 1, 1), seen=datetime(1, 1, 1, tzinfo=UTC)),
    person("6"),
)
MEMBERS = build(
    person("1", tags=["a", "b"], marks=[1, BIG + 1]),
    person("2", tags=["ab", None], marks=[None, 2]),
    person("3", tags=[], marks=[]),
    person("4"),
    thing(1, small=1, title="a", days=[date(2024, 2, 29)], sizes=[0.5, 2.0, 0.1], grains=[f32(0.1), 2.0]),
    thing(2, small=2, title="b", sizes=[2.0**53], grains=[None, f32(0.2)]),
)
FLAGS = build(
    person("1", active=True, level="low", nick="low"),
    person("2", active=False, level="mid", nick="low"),
    person("3", level="top", nick="a"),
    person("4", active=False),
)
#: More kinds of numbers on edges.
SHARES = build(
    person("1"),
    thing(1, small=1, ratio=f32(0.1)),
    edge("Owns", "1", "1", share=1.0),
    edge("Owns", "1", "1", share=f32(0.1)),
    edge("Owns", "1", "1"),
)


def things(where: str, numbers: list[int], declared: str = "", **params: object) -> Case:
    """Things for which a condition holds."""
    body = f"match {{ $t: Thing  {where} }} return {{ $t.number }}"
    title = f"{where} {params}" if params else where
    return Case(title, NUMBERS, body, numbers, declared, params)


def people(world: dict, where: str, names: str, declared: str = "", **params: object) -> Case:
    """People for whom a condition holds."""
    body = f"match {{ $p: Person  {where} }} return {{ $p.name }}"
    title = f"{where} {params}" if params else where
    return Case(title, world, body, list(names), declared, params)


OVERFLOWS = [
    things("$t.wide + 1 > 0", [1, 2]),
    things("not ($t.wide + 1 > 0)", [3, 5]),
    things("($t.wide + 1) is null", [6]),
    things("$t.wide + 1 > 0 or $t.small > 5", [1, 2, 4]),
    things("coalesce($t.wide + 1, 0) >= 0", [1, 2, 6]),
    things("case when $t.wide < 10 then $t.wide - 1 else 0 end = 0", [1, 2, 4, 6]),
    things("-$t.wide < 0", [1, 2, 4]),
    things("$t.huge + 0 >= 0", [1, 2, 4, 5]),
    things("$t.huge >= 0", [1, 2, 3, 4, 5]),
]

COMPARISONS = [
    things("$t.small = 2", [2]),
    things("$t.small != 2", [1, 3, 4, 5, 6]),
    things("$t.small < 1", [3, 5, 6]),
    things("$t.small <= 1", [1, 3, 5, 6]),
    things("$t.small > 1", [2, 4]),
    things("$t.small >= 1", [1, 2, 4]),
    things("1 < $t.small", [2, 4]),
    things("$t.count != 1", [2, 3]),
    things("not { $t.count != 1 }", [1, 4, 5, 6]),
    things("$t.count = $t.small", [1, 2]),
    things("$t.count > $t.small", [3]),
    things("$t.wide = $t.huge", [1, 2, 4]),
    things("$t.wide < $t.huge", [3, 5]),
    things("$t.number = $t.small", [1, 2]),
]

MIXED_NUMBERS = [
    things("$t.small = 2.7", []),
    things("$t.small < 2.7", [1, 2, 3, 5, 6]),
    things("$t.small = 2.0", [2]),
    things("2.5 > $t.count", [1, 2]),
    things("$t.small = $x", [2], "$x: F64", x=2.0),
    things("$t.small = $x", [], "$x: F64", x=2.0000001),
    things("$t.small >= $x", [1, 2, 4], "$x: F64", x=0.5),
    things("$t.small > $x", [1, 2, 4, 6], "$x: F32", x=-2.5),
    things("$t.wide = 9007199254740993", [2]),
    things("$t.wide = 9007199254740992", [1]),
    things("$t.wide = 9007199254740992.0", [1]),
    things("$t.wide > 9007199254740992.0", [2, 4]),
    things("$t.wide <= $x", [1, 3, 5], "$x: F64", x=2.0**53),
    things("$t.wide = $x", [2], "$x: I64", x=str(BIG + 1)),
    things("$t.wide = $x", [5], "$x: I64", x=-(2**63)),
    things("$t.wide < $x", [1, 2, 3, 4, 5], "$x: F64", x=2.0**63),
    things("$t.wide >= $x", [1, 2, 3, 4, 5], "$x: F64", x=-(2.0**63)),
    things("$t.wide > $x", [1, 2, 3, 4], "$x: F64", x=-(2.0**63)),
    things("$t.huge > $x", [3, 4], "$x: F64", x=2.0**62),
    things("$t.huge > $x", [3], "$x: U64", x=2**63 - 1),
    things("$t.huge > $x", [1, 2, 3, 4, 5], "$x: I32", x=-1),
    things("$t.huge < $x", [], "$x: I64", x=-5),
    things("$t.huge = 9007199254740993", [2]),
    things("$t.huge >= $t.weight", [1, 2, 3, 5]),
    things("$t.wide = $t.weight", [5]),
    things("$t.wide < $t.weight", [3, 4]),
    things("$t.ratio = 0.5", [1]),
    things("$t.ratio = 0.1", [2]),
    things("$t.ratio != 0.1", [1, 3, 4, 5]),
    things("$t.ratio > 0.1", [1, 3, 5]),
    things("$t.ratio >= 0.1", [1, 2, 3, 5]),
    things("$t.ratio <= 0.1", [2, 4]),
    things("0.1 = $t.ratio", [2]),
    things("$t.ratio = 0.10000000149011612", [2]),
    things("$t.ratio < $x", [1, 2, 3, 4, 5], "$x: F64", x=1e300),
    things("$t.ratio >= $x", [], "$x: F64", x=1e300),
    things("$t.ratio != $x", [1, 2, 3, 4, 5], "$x: F64", x=-1e300),
    things("$t.ratio > $x", [1, 2, 3, 4, 5], "$x: F64", x=-1e300),
    things("[0.1, 2] contains $t.ratio", [2, 3]),
    things("$x = 0.1", [], "$x: F32", x=0.1),
    things("$x = $y", [], "$x: F32, $y: F64", x=0.1, y=0.1),
    things("$x contains 0.1", [], "$x: [F32]", x=[0.1]),
    things("$x = $t.weight", [], "$x: F32", x=0.1),
    things("$t.weight = 0.1", [2]),
    things("$t.ratio = $x", [2], "$x: F32", x=0.1),
    things("$t.ratio = $x", [], "$x: F64", x=0.1),
    things("$t.ratio > $t.weight", [2, 5]),
    things("$t.ratio = $t.weight", [1]),
    things("$t.ratio = 16777216", [5]),
    things("$t.ratio = 16777217", [5]),
    things("$t.ratio = 0", [4]),
    things("$t.ratio = 0.0", [4]),
    things("$t.weight = 0", [6]),
    things("$t.weight >= 0.0", [1, 2, 3, 4, 6]),
    things("$t.count = 4294967295", [3]),
    things("$t.count < $x", [], "$x: I64", x=-1),
    things("$t.small < $x", [3, 5], "$x: I64", x=-1),
    Case("an inline match does not narrow either", NUMBERS, "match { $t: Thing { small: 2.7 } } return { $t }", []),
    Case(
        "an inline match compares by value",
        NUMBERS,
        "match { $t: Thing { wide: 9007199254740992.0 } } return { $t }",
        ["1"],
    ),
    Case(
        "an inline match on a narrow column with a wide value",
        NUMBERS,
        "match { $t: Thing { small: $x } } return { $t }",
        [],
        "$x: I64",
        {"x": 2**40},
    ),
    Case(
        "an inline match of a 32-bit float with a double",
        NUMBERS,
        "match { $t: Thing { ratio: 0.1 } } return { $t }",
        ["2"],
    ),
    Case(
        "a traversal to a node with a 32-bit float", SHARES, "match { $p owns $t  $t.ratio = 0.1 } return { $t }", ["1"]
    ),
    Case(
        "an edge property that is a 32-bit float beside a literal",
        SHARES,
        "match { $p $w:owns $t  $w.share = 0.1 } return { $w.share }",
        [f32(0.1)],
    ),
    Case(
        "an edge property that is not the 32-bit float of a literal",
        SHARES,
        "match { $p $w:owns $t  $w.share != 0.1 } return { $w.share }",
        [1.0],
    ),
    Case(
        "an edge property that is a 32-bit float",
        SHARES,
        "match { $p $w:owns $t  $w.share = $t.small } return { $w.share }",
        [1.0],
    ),
]

NULLS = [
    people(STRINGS, "$p.nick = $x", "", "$x: String?"),
    people(STRINGS, "$p.nick != $x", "", "$x: String?", x=None),
    people(STRINGS, '$p.nick != "abc"', "2345789"),
    people(STRINGS, "$p.nick = $p.nick", "12345789"),
    people(STRINGS, "not { $p.nick = $p.nick }", "6"),
    people(STRINGS, "$p.nick contains $x", "", "$x: String?", x=None),
    people(STRINGS, "$p.nick starts_with $x", "", "$x: String?"),
    people(STRINGS, "$x = $y", "", "$x: I32?, $y: I32?"),
    people(STRINGS, "$x = 1", "123456789", "$x: I32?", x=1),
    people(STRINGS, "1 = 1", "123456789"),
    people(STRINGS, "1 = 2", ""),
    people(STRINGS, "1 < 1.5", "123456789"),
]

TEXTS = [
    people(STRINGS, '$p.nick contains "b"', "1"),
    people(STRINGS, '$p.nick contains "%"', "3"),
    people(STRINGS, '$p.nick contains "_"', "4"),
    people(STRINGS, '$p.nick contains ""', "12345789"),
    people(STRINGS, '$p.nick contains "abcd"', ""),
    people(STRINGS, '$p.nick contains "😀"', "7"),
    people(STRINGS, '$p.nick contains "\\n"', "9"),
    people(STRINGS, '$p.nick contains "s \\"so\\" \\\\"', "9"),
    people(STRINGS, '$p.nick starts_with "a"', "12348"),
    people(STRINGS, '$p.nick starts_with "A"', ""),
    people(STRINGS, '$p.nick starts_with "a%"', "3"),
    people(STRINGS, '$p.nick starts_with "a_"', "4"),
    people(STRINGS, '$p.nick starts_with ""', "12345789"),
    people(STRINGS, '$p.nick starts_with "ä"', "7"),
    people(STRINGS, '$p.nick starts_with "it\'s"', "9"),
    people(STRINGS, '"abcdef" contains $p.nick', "15"),
    people(STRINGS, '"abcdef" starts_with $p.nick', "15"),
    people(STRINGS, '$x contains "b"', "123456789", "$x: String", x="abc"),
    people(STRINGS, '$x contains "b"', "", "$x: String", x="ABC"),
    people(STRINGS, "$p.nick contains $p.nick", "12345789"),
    people(STRINGS, '$p.nick > "a"', "1234789"),
    people(STRINGS, '$p.nick < "ab"', "2345"),
    people(STRINGS, '$p.nick >= "ä"', "7"),
    people(FLAGS, '$p.level contains "o"', "13"),
    people(FLAGS, '$p.level starts_with "t"', "3"),
]

KINDS = [
    people(FLAGS, "$p.active = true", "1"),
    people(FLAGS, "$p.active != true", "24"),
    people(FLAGS, "$p.active < true", "24"),
    people(FLAGS, "$p.active >= false", "124"),
    people(FLAGS, "$p.active = $x", "24", "$x: Bool", x=False),
    people(FLAGS, '$p.level = "mid"', "2"),
    people(FLAGS, '$p.level = "other"', ""),
    people(FLAGS, '$p.level != "other"', "123"),
    people(FLAGS, '$p.level > "low"', "23"),
    people(FLAGS, "$p.level = $p.nick", "1"),
    people(FLAGS, "$p.level = $x", "3", "$x: String", x="top"),
    people(MOMENTS, '$p.born = date("1970-01-01")', "2"),
    people(MOMENTS, '$p.born < date("1970-01-01")', "15"),
    people(MOMENTS, '$p.born != date("2024-02-29")', "1245"),
    people(MOMENTS, "$p.born >= $x", "34", "$x: Date", x="2024-02-29"),
    people(MOMENTS, '$p.seen = datetime("1970-01-01T00:00:00Z")', "2"),
    people(MOMENTS, '$p.seen = datetime("1970-01-01T01:00:00+01:00")', "2"),
    people(MOMENTS, '$p.seen < datetime("1970-01-01T00:00:00.000Z")', "15"),
    people(MOMENTS, '$p.seen > datetime("2024-02-29T12:00:00Z")', "34"),
    people(MOMENTS, "$p.seen <= $x", "1235", "$x: DateTime", x="2024-02-29T12:00:00.001Z"),
    people(MOMENTS, "$p.seen < now()", "1235"),
    people(MOMENTS, "now() < $p.seen", "4"),
    people(MOMENTS, "now() = now()", "123456"),
    Case("a DateTime is never now", MOMENTS, "match { $p: Person { seen: now() } } return { $p }", []),
    Case(
        "an inline match of a Date",
        MOMENTS,
        'match { $p: Person { born: date("9999-12-31") } } return { $p.born, $p.seen }',
        [(date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC))],
    ),
]

LISTS = [
    people(MEMBERS, '$p.tags contains "a"', "1"),
    people(MEMBERS, '$p.tags contains "ab"', "2"),
    people(MEMBERS, '$p.tags contains ""', ""),
    people(MEMBERS, '$p.tags contains "A"', ""),
    people(MEMBERS, 'not { $p.tags contains "a" }', "234"),
    people(MEMBERS, "$p.tags contains $x", "", "$x: String?", x=None),
    people(MEMBERS, "$p.marks contains 1", "1"),
    people(MEMBERS, "$p.marks contains 2.0", "2"),
    people(MEMBERS, "$p.marks contains 1.5", ""),
    people(MEMBERS, "$p.marks contains 9007199254740993", "1"),
    people(MEMBERS, "$p.marks contains $x", "", "$x: F64", x=2.0**53),
    people(MEMBERS, "[1, 2] contains 2", "1234"),
    people(MEMBERS, "[1, 2] contains 3", ""),
    people(MEMBERS, "$x contains 3", "1234", "$x: [I64]", x=[None, 3]),
    people(MEMBERS, "$x contains 3", "", "$x: [I64]", x=[]),
    people(MEMBERS, "$x contains 3", "", "$x: [I64]?"),
    Case(
        "a list of floats contains a whole number",
        MEMBERS,
        "match { $t: Thing  $t.sizes contains 2 } return { $t.number }",
        [1],
    ),
    Case(
        "a list of floats contains a float",
        MEMBERS,
        "match { $t: Thing  $t.sizes contains 0.1 } return { $t.number }",
        [1],
    ),
    Case(
        "a list of floats does not contain what a float would round to it",
        MEMBERS,
        "match { $t: Thing  $t.sizes contains 9007199254740993 } return { $t.number }",
        [],
    ),
    Case(
        "a list of 32-bit floats contains a decimal",
        MEMBERS,
        "match { $t: Thing  $t.grains contains 0.1 } return { $t.number }",
        [1],
    ),
    Case(
        "an inline match of a list of 32-bit floats",
        MEMBERS,
        "match { $t: Thing { grains: $x } } return { $t.number }",
        [2],
        "$x: F32",
        {"x": 0.2},
    ),
    Case(
        "a list of days contains a day",
        MEMBERS,
        'match { $t: Thing  $t.days contains date("2024-02-29") } return { $t.days }',
        [([date(2024, 2, 29)],)],
    ),
    Case(
        "a list literal contains a property",
        MEMBERS,
        "match { $t: Thing  [1, 5] contains $t.small } return { $t.number }",
        [1],
    ),
    Case(
        "a list of one variable contains a property of another",
        MEMBERS,
        "match { $p: Person  $t: Thing  $p.tags contains $t.title } return { $p, $t }",
        [("1", "1"), ("1", "2")],
    ),
    Case(
        "an inline match of a list with a number of another type",
        MEMBERS,
        "match { $p: Person { marks: 2.0 } } return { $p }",
        ["2"],
    ),
]

PARAMETERS = [
    things("$t.small = $x", [2], "$x: I32?", x=2),
    things("$t.small = $x", [], "$x: I32?"),
    things("$t.small = $x", [2], "$x: I32", x="2"),
    things("$t.wide = $x", [4], "$x: U64", x=str(2**63 - 1)),
    things("$x < $y", [1, 2, 3, 4, 5, 6], "$x: I32, $y: F64", x=1, y=1.5),
    Case(
        "a parameter serves several places",
        NUMBERS,
        "match { $t: Thing { small: $x }  $t.count = $x  $t.number >= $x } return { $t, $x }",
        [("2", 2)],
        "$x: I64, $unused: Date?",
        {"x": 2},
    ),
]

CASES = [*OVERFLOWS, *COMPARISONS, *MIXED_NUMBERS, *NULLS, *TEXTS, *KINDS, *LISTS, *PARAMETERS]
