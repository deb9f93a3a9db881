"""Expressions of queries, from their text to the rows that come back."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError, IntegerOverflowError, ParameterError, ResourceLimitError
from support.subtests import each_case

SCHEMA = """
node Person {
  key: String @key
  age: I32?
  score: F32?
  tags: [String]?
  born: Date?
  city: String?
  big: I64?
  active: Bool?
  place: Vector(2)?
}
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = """
insert Person { key: "ann", age: 30, score: 0.1, tags: ["x", "y"], born: date("2000-01-02"), city: "Rome", big: 9223372036854775807, active: true, place: [0.0, 0.0] }
insert Person { key: "bob", age: 40, score: 2.5, city: "Oslo", big: 5, active: false, place: [1.0, 0.0] }
insert Person { key: "cid", tags: [], born: date("1999-12-31") }
insert Person { key: "dan", age: 41, score: 0.5, tags: ["z"], born: date("2001-05-05"), city: "Rome", big: 7, active: true, place: [2.0, 0.0] }
insert Knows { from: "ann", to: "bob", since: 2001 }
insert Knows { from: "ann", to: "dan", since: 2005 }
insert Knows { from: "bob", to: "cid" }
insert Knows { from: "dan", to: "ann", since: 2010 }
"""  # noqa: E501  # one person per line


#: The F32 that 0.1 is stored as.
STORED_TENTH = 0.10000000149011612


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(str(tmp_path_factory.mktemp("expressions") / "people.omni"), SCHEMA)
    graph.mutate(PEOPLE)
    return graph


def rows_of(graph: Graph, text: str, params: dict[str, object] | None = None) -> list[dict[str, object]]:
    return graph.query(text, params).to_arrow().to_pylist()


def keys(graph: Graph, condition: str, **params: object) -> str:
    """The first letters of the people for whom a condition is true."""
    found = rows_of(graph, f"match {{ $p: Person  {condition} }} return {{ $p.key as k }} order {{ k }}", params)
    return "".join(row["k"][0] for row in found)


@each_case(
    ("condition", "expected"),
    [
        ('$p.age > 35 or $p.city = "Rome"', "abd"),
        # Unknown is neither true nor, under `not`, true.
        ("not ($p.age > 35)", "a"),
        ("$p.age is null", "c"),
        ("$p.age is not null and not $p.active", "b"),
        ("$p.active", "ad"),
        ("$p.age in [30, 41]", "ad"),
        ("$p.age in [30, 40.0, 41.5]", "ab"),
        ('$p.city not in ["Rome"]', "b"),
        ('"x" in $p.tags', "a"),
        ('not ($p.tags contains "x")', "cd"),
        ("$p.age * 2 - 1 >= 79", "bd"),
        ("-$p.age < -40", "d"),
        ("$p.score = 0.1", "a"),
        ("$p.age / 4 = 7.5", "a"),
        ("$p.age % 10 = 0", "ab"),
        # Beyond 64 bits a condition is unknown.
        ("$p.big + 1 > 0", "bd"),
        # Also in the blocks of a condition, all of which is unknown then.
        ("sum($q.big + 1) { $p knows $q } > 0", "a"),
        ("not (sum($q.big + 1) { $p knows $q } > 0)", ""),
        ("count(distinct $q.big + 1) { $p knows $q } >= 0", "abc"),
        ("sum(max($r.big + 1) { $q knows $r }) { $p knows $q } > 0", "d"),
        ('$p.city contains "om" and ends_with($p.key, "n")', "ad"),
        ('$p.key ends_with "b"', "b"),
        ('matches($p.key, "^[ab]")', "ab"),
        ("year($p.born) = 2000", "a"),
        ("coalesce($p.age, 0) = 0", "c"),
        ('case when $p.age > 35 then "old" else "young" end = "old"', "bd"),
        ("exists { $p knows $q  $q.age > 35 }", "a"),
        ("not { $p knows $_ }", "c"),
        ("$p.age > 40 or not { $p knows $_ }", "cd"),
        ("count { $p knows $q } > 1", "a"),
        ("max($q.age) { $p knows $q } = 41", "a"),
        ("$p knows $q  $q knows $p", "ad"),
        ("$p knows $q  $q knows $r  $r != $p", "ad"),
        ("$p knows $q  $q knows $r  $r = $p", "ad"),
        ("let $x = $p.age + 10  $x > 45", "bd"),
        ('$p.@id = "bob"', "b"),
        ('$p $e:knows $q  $e.@dst = "ann"', "d"),
        ("true", "abcd"),
    ],
)
def test_a_condition_keeps_the_rows_for_which_it_is_true(people: Graph, condition: str, expected: str) -> None:
    assert "".join(dict.fromkeys(keys(people, condition))) == expected


@each_case(
    ("result", "expected"),
    [
        ("{ $p.key as k, $p.age + 1 as n } order { k }", [("ann", 31), ("bob", 41), ("cid", None), ("dan", 42)]),
        ("distinct { $p.city as c } order { c nulls last }", [("Oslo",), ("Rome",), (None,)]),
        ("{ $p.city as c, count(*) as n } having { n > 1 }", [("Rome", 2)]),
        # A column that shows a property is compared as the property is.
        (
            "{ $p.key as k, $p.score } having { $p.score in [0.1, 0.5] } order { k }",
            [("ann", STORED_TENTH), ("dan", 0.5)],
        ),
        ("{ $p.score as s, count(*) as n } having { s = 0.1 }", [(STORED_TENTH, 1)]),
        ("{ min($p.score) as s } having { s = 0.1 }", []),
        ('{ $p.key as k } having { k > "b" } order { k }', [("bob",), ("cid",), ("dan",)]),
        ("{ $p.key } order { $p.key } offset 1 limit 2", [("bob",), ("cid",)]),
        ("{ $p.key } order { $p.key } offset 9 limit 2", []),
        ("{ $p.city as c, count(*) as n } order { c } offset 9", []),
        ("{ $p.key as k } order { nearest($p.place, [2.0, 0.0]) } offset 9 limit 2", []),
        (
            "{ $p.city as c, $p.key as k } order { $p.age desc } limit 1 per { c }",
            [("Rome", "dan"), ("Oslo", "bob"), (None, "cid")],
        ),
        (
            "{ sum($p.age) / count($p.age) as mean, min($p.active) as m, max($p.born) as b }",
            [(37.0, False, date(2001, 5, 5))],
        ),
        ("{ count(distinct $p.city) as n, collect(distinct $p.city) as all }", [(2, ["Oslo", "Rome"])]),
        ("{ collect($p.key order { $p.age desc } limit 2) as k }", [(["dan", "bob"],)]),
        ("{ median($p.age) as m }", [(40.0,)]),
        # A key is a value of its group wherever it stands, also inside of other expressions.
        (
            "{ $p.age + 1 as a, count(*) + ($p.age + 1) as n, "
            "case when $p.age + 1 > 35 then 1 else 0 end * count(*) as o } order { a desc } limit 2",
            [(42, 43, 1), (41, 42, 1)],
        ),
        ("{ sum($p.big) as s }", [(9.223372036854775807e18 + 12,)]),
        (
            "{ $p.key as k, count { $p knows $q } as n, collect($q.key) { $p knows $q } as all } order { n desc, k }",
            [("ann", 2, ["bob", "dan"]), ("bob", 1, ["cid"]), ("dan", 1, ["ann"]), ("cid", 0, [])],
        ),
        ("{ max(count { $p knows $q }) as n }", [(2,)]),
        ("{ $p.@id, $p.@type } order { $p } limit 1", [("ann", "Person")]),
        ('{ "x" as t, count(*) as n }', [("x", 4)]),
        ("{ $p.key as k } order { nearest($p.place, [2.0, 0.0]), $p.age } limit 2", [("dan",), ("bob",)]),
        ("{ count(*) as n, max($p.age) as oldest } order { nearest($p.place, [0.0, 0.0]) } limit 2", [(2, 40)]),
        # The rank chooses the rows, the keys behind it order their groups.
        (
            "{ $p.city as c, count(*) as n } order { nearest($p.place, [0.0, 0.0]), n desc, c } limit 3",
            [("Rome", 2), ("Oslo", 1)],
        ),
        (
            "{ $p.city as c, max($p.age) + 1 as m } having { m > 0 } "
            "order { nearest($p.place, [0.0, 0.0]), m } limit 2",
            [("Rome", 31), ("Oslo", 41)],
        ),
    ],
)
def test_what_is_returned(people: Graph, result: str, expected: list[tuple[object, ...]]) -> None:
    rows = rows_of(people, f"match {{ $p: Person }} return {result}")
    assert [tuple(row.values()) for row in rows] == expected


@each_case(
    "clauses",
    [
        "$p knows $q",  # rows that stand for several
        '$p knows $q  $q.key = "none"',
    ],
)
def test_an_offset_beyond_the_last_row_leaves_none(people: Graph, clauses: str) -> None:
    for projection in ("$p.key", "1 as one"):
        text = f"match {{ $p: Person  {clauses} }} return {{ {projection} }} order {{ $p.key }} offset 20 limit 10"
        assert rows_of(people, text) == []


@each_case("key", ["nearest($p.place, [0.0, 0.0])", 'bm25($p.city, "rome")'])
def test_groups_of_a_ranking_of_nothing(people: Graph, key: str) -> None:
    nobody = f'match {{ $p: Person {{ key: "none" }} }} return {{ %s }} order {{ {key} }} limit 2'
    assert rows_of(people, nobody % "$p.city as c, count(*) as n") == []
    assert rows_of(people, nobody % "count(*) as n, max($p.age) as a, collect($p.key) as k") == [
        {"n": 0, "a": None, "k": []}
    ]


def test_all_properties_are_columns(people: Graph) -> None:
    rows = people.query('match { $p: Person { key: "bob" } } return { $p.* }').to_arrow()
    assert rows.column_names == ["p.key", "p.age", "p.score", "p.tags", "p.born", "p.city", "p.big", "p.active"]


def test_an_overflow_names_its_rows(people: Graph) -> None:
    with pytest.raises(IntegerOverflowError, match="ann") as caught:
        rows_of(people, "match { $p: Person } return { $p.big + 1 as n }")
    assert (caught.value.kind, caught.value.total) == ("query", 1)
    with pytest.raises(IntegerOverflowError, match="dan"):
        rows_of(people, "match { $p: Person } return { sum($q.big + 1) { $p knows $q } as n }")
    # What the limit leaves out is nobody's problem.
    text = "match { $p: Person } return { $p.big + 1 as n } order { $p.age desc } limit 2"
    assert [row["n"] for row in rows_of(people, text)] == [8, 6]
    safe = "case when $p.big < 10 then $p.big + 1 else 0 end"
    assert sum(row["n"] for row in rows_of(people, f"match {{ $p: Person }} return {{ {safe} as n }}")) == 14


BEYOND = "sum($q.big + 1) { $p knows $q }"


@each_case(
    ("condition", "found"),
    [
        # The neighbour of dan is beyond 64 bits; that of bob has no number, and cid has none: both are null.
        pytest.param(f"{BEYOND} is null", "bc", id="null"),
        pytest.param(f"{BEYOND} is not null", "a", id="a value"),
        pytest.param(f"not ({BEYOND} is null)", "a", id="not null"),
        pytest.param(f"{BEYOND} > 0", "a", id="compared"),
        pytest.param(f"not ({BEYOND} > 0)", "", id="compared and negated"),
        pytest.param(f"coalesce({BEYOND}, 1.0) = 1.0", "bc", id="alternatives"),
        pytest.param(f'{BEYOND} is null or $p.key = "dan"', "bcd", id="or"),
        pytest.param(f"size(collect($q.big + 1) {{ $p knows $q }}) = 0 or {BEYOND} is null", "bc", id="lists"),
        pytest.param(f"max({BEYOND}) {{ $x knows $p }} is null", "bc", id="a block in a block"),
    ],
)
def test_decision_32_an_overflow_in_a_block_is_unknown_in_a_condition(
    people: Graph, condition: str, found: str
) -> None:
    assert keys(people, condition) == found


def test_decision_33_a_branch_that_is_not_taken_never_overflows(people: Graph) -> None:
    value = f'case when $p.key = "dan" then -1.0 else {BEYOND} end'
    rows = rows_of(people, f"match {{ $p: Person }} return {{ $p.key, {value} as n }} order {{ $p.key }}")
    assert [row["n"] for row in rows] == [14.0, None, None, -1.0]


def test_numbers_of_rows_are_parameters(people: Graph) -> None:
    text = (
        "query q($n: I64, $o: I64 = 1) { match { $p: Person } return { $p.key as k } order { k } offset $o limit $n }"
    )
    assert [row["k"] for row in rows_of(people, text, {"n": 2})] == ["bob", "cid"]
    assert [row["k"] for row in rows_of(people, text, {"n": 2, "o": 3})] == ["dan"]
    assert [row["k"] for row in rows_of(people, text, {"n": 0})] == []
    with pytest.raises(ParameterError, match=r"`o` is the `offset` and cannot be negative"):
        rows_of(people, text, {"n": 2, "o": -1})


def test_types_of_parameters_follow_from_expressions(people: Graph) -> None:
    assert keys(people, "$p.age + $n > 45 or $p.city in $cities", n=5, cities=["Rome"]) == "ad"


def test_both_zeros_are_one_group_that_is_shown_as_zero(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "zeros.omni"), "node N { key: String @key  w: F64?  l: [F64]? }")
    graph.mutate(
        'insert N { key: "a", w: -0.0, l: [-0.0] } insert N { key: "b", w: 0.0, l: [0.0] } insert N { key: "c" }'
    )
    for result in ("{ $n.w as w, $n.l as l, count(*) as n }", "distinct { $n.w as w, $n.l as l }"):
        rows = rows_of(graph, f"match {{ $n: N }} return {result} order {{ w }}")
        assert [str(row["w"]) for row in rows] == ["None", "0.0"]
        assert [str(row["l"]) for row in rows] == ["None", "[0.0]"]


def test_rows_that_stand_for_many_are_not_written_out(people: Graph) -> None:
    others = "  ".join(f"$x{number}: Person" for number in range(16))
    text = f"match {{ $p: Person  {others} }} return {{ %s }}"
    rows = rows_of(
        people, text % "count(*) as n, median($p.age) as m, stddev($p.age) as s, collect($p.key limit 2) as c"
    )
    assert [(row["n"], row["m"], row["c"]) for row in rows] == [(4**17, 40.0, ["ann", "ann"])]
    # The deviation of very many is that of the population: sqrt(74 / 3).
    assert rows[0]["s"] == pytest.approx((74 / 3) ** 0.5)
    with pytest.raises(ResourceLimitError, match="memory"):
        rows_of(people, text % "collect($p.key) as c")


@each_case("aggregate", ["median($p.age)", "stddev($p.age)", "median($p.score)", "collect($p.key)"])
def test_rows_that_stand_for_several_count_as_often(people: Graph, aggregate: str) -> None:
    text = "match {{ $p: Person  $p {edge}knows $q }} return {{ $p.city as c, {value} as v }} order {{ c }}"
    weighted = rows_of(people, text.format(edge="", value=aggregate))
    assert weighted == [
        {"c": row["c"], "v": row["v"]}
        for row in rows_of(people, text.format(edge="$e:", value=f"count(distinct $e) as n, {aggregate}"))
    ]


def test_a_bad_regular_expression_is_refused_before_anything_runs(people: Graph) -> None:
    with pytest.raises(CompilerError, match="is no regular expression") as caught:
        rows_of(people, 'match { $p: Person  matches($p.key, "[") } return { $p.key }')
    assert caught.value.codes == ("Q109",)
    # Also where no row would ever come to it.
    text = 'match { $p: Person { key: "none" }  not { $p knows $q  matches($q.key, $text) } } return { $p.key }'
    with pytest.raises(ParameterError, match="`text` is no regular expression"):
        rows_of(people, text, {"text": "(a"})
    assert rows_of(people, text, {"text": "^a"}) == []
