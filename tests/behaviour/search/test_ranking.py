"""`rrf`: fusion of two rankings, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError, OmniError
from support.search_graphs import (
    ZERO,
    State,
    append,
    ask,
    cites,
    doc,
    doc_row,
    in_each_state,
    in_states,
    new_graph,
    ranked,
    rows,
    scored,
    table,
    tag,
    tagged,
    write,
)
from support.subtests import each_case

VEC, FAR = f"nearest($d.vec, {ZERO})", f"nearest($d.far, {ZERO})"


def at(distance: float | None) -> list[float] | None:
    return None if distance is None else [float(distance), 0.0, 0.0, 0.0]


def arranged(first: str, second: str) -> list[str]:
    """One document per letter; `vec` ranks the letters of `first` in that order, `far` those of `second`."""
    places = {letter: [None, None] for letter in sorted({*first, *second})}
    for arm, letters in enumerate((first, second)):
        for place, letter in enumerate(letters):
            places[letter][arm] = at(place)
    return [doc(letter, vec=vec, far=far) for letter, (vec, far) in places.items()]


def fused(first: Sequence[str], second: Sequence[str], *, k: int = 60, limit: int) -> list[str]:
    """What the steps of the specification give."""
    depth = max(5 * limit, 50)
    arms = [list(arm)[:depth] for arm in (first, second)]
    scores = {
        entity: sum(1 / (k + arm.index(entity) + 1) for arm in arms if entity in arm) for entity in {*arms[0], *arms[1]}
    }

    def place(arm: list[str], entity: str) -> int:
        return arm.index(entity) if entity in arm else len(scores)

    return sorted(scores, key=lambda e: (-scores[e], place(arms[0], e), place(arms[1], e), e))[:limit]


def rrf(first: str = VEC, second: str = FAR, k: object = None) -> str:
    return f"rrf({first}, {second})" if k is None else f"rrf({first}, {second}, {k})"


# ---- scores and ties


def test_the_score_is_the_sum_over_the_arms_that_have_the_entity(tmp_path: Path):
    with new_graph(tmp_path, *arranged("abcde", "caf")) as graph:
        assert scored(graph, rrf()) == [
            ("a", pytest.approx(1 / 61 + 1 / 62)),
            ("c", pytest.approx(1 / 63 + 1 / 61)),
            ("b", pytest.approx(1 / 62)),
            ("f", pytest.approx(1 / 63)),
            ("d", pytest.approx(1 / 64)),
            ("e", pytest.approx(1 / 65)),
        ]


def test_k_decides_how_much_the_tops_count(tmp_path: Path):
    # `a` and `e` are first once; `b` is fourth twice.
    with new_graph(tmp_path, *arranged("acdb", "efgb")) as graph:
        assert scored(graph, rrf(k=1), limit=3) == [
            ("a", pytest.approx(1 / 2)),
            ("e", pytest.approx(1 / 2)),
            ("b", pytest.approx(1 / 5 + 1 / 5)),
        ]
        assert scored(graph, rrf(k=60), limit=3) == [
            ("b", pytest.approx(1 / 64 + 1 / 64)),
            ("a", pytest.approx(1 / 61)),
            ("e", pytest.approx(1 / 61)),
        ]
        assert scored(graph, rrf(k=60)) == scored(graph, rrf())


@pytest.mark.parametrize("k", [1, 7, 60, 1000])
def test_k_may_be_a_parameter(tmp_path: Path, k: int):
    with new_graph(tmp_path, *arranged("abxy", "yxbz")) as graph:
        literal = scored(graph, rrf(k=k))
        for type_ in ("I32", "I64", "U32", "U64"):
            assert scored(graph, rrf(k="$k"), declared=f"$k: {type_}", k=k) == literal


@pytest.mark.parametrize("k", [0, -1, -60, None])
def test_a_k_that_is_not_above_zero_is_refused_as_a_parameter_too(tmp_path: Path, k: int | None):
    with new_graph(tmp_path, *arranged("ab", "ba")) as graph, pytest.raises(OmniError):
        ranked(graph, rrf(k="$k"), declared="$k: I32?", k=k)


def test_ties_keep_the_order_of_the_first_arm(tmp_path: Path):
    with new_graph(tmp_path, *arranged("ba", "ab")) as graph:
        assert ranked(graph, rrf(VEC, FAR)) == ["b", "a"]
        assert ranked(graph, rrf(FAR, VEC)) == ["a", "b"]


def test_between_equals_whoever_is_in_the_first_arm_comes_first(tmp_path: Path):
    with new_graph(tmp_path, *arranged("xy", "ab")) as graph:
        assert ranked(graph, rrf(VEC, FAR)) == ["x", "a", "y", "b"]
        assert ranked(graph, rrf(FAR, VEC)) == ["a", "x", "b", "y"]
        assert ranked(graph, rrf(VEC, FAR), limit=3) == ["x", "a", "y"]


def test_equal_distances_inside_an_arm_are_ranked_by_id(tmp_path: Path):
    documents = [doc(name, vec=at(1), far=at(2)) for name in "cab"]
    with new_graph(tmp_path, *documents) as graph:
        assert scored(graph, rrf()) == [(name, pytest.approx(2 / (61 + place))) for place, name in enumerate("abc")]


def test_every_pair_of_orders_of_three_fuses_as_the_steps_say(tmp_path: Path):
    orders = ["".join(letters) for n in (2, 3) for letters in itertools.permutations("abc", n)]
    pairs = list(itertools.product(orders[3:], orders[:8:2]))
    statements = [
        line.replace('slug: "', f'year: {number}, slug: "{number}-')
        for number, (first, second) in enumerate(pairs)
        for line in arranged(first, second)
    ]
    with new_graph(tmp_path, *statements) as graph:
        for number, (first, second) in enumerate(pairs):
            got = ranked(graph, rrf(k=2), f"$d.year = {number}")
            assert got == [f"{number}-{name}" for name in fused(first, second, k=2, limit=10)]


# ---- depth


@pytest.mark.parametrize("limit", [1, 10, 11, 12, 20, 30])
def test_each_arm_yields_five_times_the_limit_but_at_least_fifty(tmp_path: Path, limit: int):
    names = [f"p{n:02}" for n in range(60)]
    with new_graph(tmp_path) as graph:
        append(graph, Doc=[doc_row(name, vec=at(n), far=at(59 - n)) for n, name in enumerate(names)])
        expected = fused(names, names[::-1], limit=limit)
        assert expected[0] == {1: "p10", 10: "p10", 11: "p05", 12: "p00", 20: "p00", 30: "p00"}[limit]
        assert ranked(graph, rrf(), limit=limit) == expected
        text = f"query q() {{ match {{ $d: Doc }} return {{ $d }} order {{ {rrf()} }} limit {limit} }}"
        assert f"depth {max(5 * limit, 50)}" in graph.explain(text)


def test_the_depth_counts_entities_that_satisfy_the_match(tmp_path: Path):
    names = [f"p{n:03}" for n in range(120)]
    with new_graph(tmp_path, tag("t")) as graph:
        append(
            graph,
            Doc=[doc_row(name, vec=at(n), far=at(119 - n), year=n % 2) for n, name in enumerate(names)],
            Tagged=[{"id": f"e{name}", "src": name, "dst": "t"} for n, name in enumerate(names) if n % 2],
        )
        odd = [name for n, name in enumerate(names) if n % 2]
        expected = fused(odd, odd[::-1], limit=4)
        assert ranked(graph, rrf(), "$d.year = 1", limit=4) == expected
        assert ranked(graph, rrf(), "$d tagged $t", limit=4) == expected
        assert ranked(graph, rrf(), "not { $d.year = 0 }", limit=4) == expected


# ---- arms


@pytest.fixture(scope="module")
def hybrids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[State, Graph]]:
    """`vec` ranks a, b, c, e and `far` e, d, c; the bodies rank b, c, d and the titles d, a."""

    def first(graph: Graph) -> None:
        write(
            graph,
            doc("a", "nothing", title="owl here", vec=at(1), year=1),
            doc("b", "fox fox fox", title="other", vec=at(2), year=2),
        )

    def then(graph: Graph) -> None:
        write(
            graph,
            doc("c", "fox", vec=at(3), far=at(3), year=1),
            doc("d", "fox and a lot of other words", title="owl owl owl", far=at(2), year=2),
            doc("e", vec=at(4), far=at(1), year=1),
        )

    yield from in_states(tmp_path_factory.mktemp("hybrids"), first, then)


hybrid = in_each_state("hybrids")


BODY, TITLE = 'bm25($d.body, "fox")', 'bm25($d.title, "owl")'
ARMS = {VEC: "abce", FAR: "edc", BODY: "bcd", TITLE: "da"}


@each_case("arm", ARMS)
def test_the_arms_alone_rank_as_the_fusions_below_expect(hybrids: dict[State, Graph], arm: str):
    for state in (State.NONE, State.FULL):
        assert ranked(hybrids[state], arm) == list(ARMS[arm])
    # A half covered index scores by other statistics.
    assert sorted(ranked(hybrids[State.HALF], arm)) == sorted(ARMS[arm])


@pytest.fixture
def alone(hybrid: Graph) -> dict[str, list[str]]:
    return {arm: ranked(hybrid, arm) for arm in ARMS}


@each_case(("first", "second"), list(itertools.product(ARMS, ARMS)))
@each_case("limit", [1, 3, 10])
def test_any_two_rankings_fuse_in_either_order(
    hybrid: Graph, alone: dict[str, list[str]], first: str, second: str, limit: int
):
    assert ranked(hybrid, rrf(first, second), limit=limit) == fused(alone[first], alone[second], limit=limit)


def test_an_entity_that_no_arm_has_is_absent(hybrid: Graph):
    assert sorted(ranked(hybrid, rrf(BODY, TITLE))) == list("abcd")
    assert ranked(hybrid, rrf(BODY, 'bm25($d.title, "unicorn")')) == list("bcd")


def test_an_arm_without_a_query_adds_nothing(hybrid: Graph):
    declared = "$v: Vector(4)?, $q: String?"
    null_vector, null_text = "nearest($d.vec, $v)", "bm25($d.body, $q)"
    assert ranked(hybrid, rrf(null_vector, BODY), declared=declared) == list("bcd")
    assert ranked(hybrid, rrf(BODY, null_vector), declared=declared) == list("bcd")
    assert ranked(hybrid, rrf(null_text, VEC), declared=declared) == list("abce")
    assert ranked(hybrid, rrf(null_vector, null_text), declared=declared) == []
    assert ranked(hybrid, rrf('bm25($d.body, "the")', VEC)) == list("abce")


def test_filters_restrict_both_arms(hybrid: Graph):
    expected = fused("ace", "c", limit=10)
    assert ranked(hybrid, rrf(VEC, BODY), "$d.year = 1") == expected
    assert ranked(hybrid, rrf(VEC, BODY), "$d.year < 2") == expected
    inline = rows(
        hybrid, f"match {{ $d: Doc {{ year: 1 }} }} return {{ $d.slug as s }} order {{ {rrf(VEC, BODY)} }} limit 10"
    )
    assert [row["s"] for row in inline] == expected
    text_too = ranked(hybrid, rrf(VEC, FAR), 'search($d.body, "fox")')
    assert text_too == fused("bc", "dc", limit=10)


def test_a_direction_after_rrf_is_accepted_and_means_nothing(hybrid: Graph):
    text = "match {{ $d: Doc }} return {{ $d.slug as s }} order {{ {} {} }} limit 4"
    first, *others = (rows(hybrid, text.format(rrf(VEC, BODY, 60), way)) for way in ("", "asc", "desc"))
    assert others == [first, first]


def test_the_score_may_be_returned_and_ordered_by_its_name(hybrid: Graph):
    rank = rrf(VEC, BODY)
    got = rows(hybrid, f"match {{ $d: Doc }} return {{ {rank} as score, $d.slug as s }} order {{ score }} limit 10")
    assert [(row["s"], row["score"]) for row in got] == scored(hybrid, rank)


def test_limit_zero_is_no_row(hybrid: Graph):
    assert ranked(hybrid, rrf(VEC, BODY), limit=0) == []


# ---- rows of entities


@pytest.fixture(scope="module")
def fanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """`vec` ranks a, b, c; `far` ranks c, a, d. All but b have several tags or citations."""
    graph = new_graph(
        tmp_path_factory.mktemp("fanned"),
        *arranged("abc", "cad"),
        *(tag(name) for name in "tuv"),
        *(tagged(source, target) for source, target in ("au", "at", "bt", "cv", "cu", "ct", "dv")),
        cites("a", "b", "x"),
        cites("a", "b", "y"),
        cites("c", "b"),
        cites("b", "d"),
    )
    yield graph
    graph.close()


ENTITIES = ["a", "c", "b", "d"]
FANNED = [("a", "t"), ("a", "u"), ("c", "t"), ("c", "u"), ("c", "v"), ("b", "t"), ("d", "v")]


def test_rows_fanned_out_consume_no_ranks(fanned: Graph):
    assert ranked(fanned, rrf()) == ENTITIES == fused("abc", "cad", limit=10)
    got = table(
        fanned,
        f"match {{ $d: Doc  $d tagged $t }} return {{ $d.slug as d, $t.name as t, {rrf()} as s }}"
        f" order {{ {rrf()} }} limit 50",
    )
    assert [(d, t) for d, t, _ in got] == FANNED
    scores = dict(scored(fanned, rrf()))
    assert [score for _, _, score in got] == [scores[d] for d, _ in FANNED]


@each_case("limit", range(1, 9))
def test_the_first_entities_are_kept_and_their_rows_cut_to_the_limit(fanned: Graph, limit: int):
    got = table(
        fanned,
        f"match {{ $d: Doc  $d tagged $t }} return {{ $d.slug as d, $t.name as t }} order {{ {rrf()} }} limit {limit}",
    )
    kept = ENTITIES[:limit]
    assert got == [row for row in FANNED if row[0] in kept][:limit]


def test_parallel_edges_stay_distinct(fanned: Graph):
    got = table(
        fanned,
        "match { $d: Doc  $d $c:cites $e } return { $d.slug as d, $e.slug as e, $c.why as w }"
        f" order {{ {rrf()}, $c.why desc }} limit 10",
    )
    assert got == [("a", "b", "y"), ("a", "b", "x"), ("c", "b", None), ("b", "d", None)]


def test_a_variable_that_a_traversal_introduces_is_fused(fanned: Graph):
    rank = rrf(VEC.replace("$d", "$e"), FAR.replace("$d", "$e"))
    got = table(
        fanned,
        "match { $d: Doc  $d $c:cites $e } return { $e.slug as e, $d.slug as d, $c.why as w }"
        f" order {{ {rank}, $c.why }} limit 10",
    )
    # `b` is first in one arm, `d` in the other: a tie, which the second key breaks; then `b` is in the first arm.
    assert got == [("b", "c", None), ("d", "b", None), ("b", "a", "x"), ("b", "a", "y")]


def test_arms_on_two_variables_rank_the_entities_of_the_first(tmp_path: Path):
    statements = [
        *(doc(name, vec=at(place)) for place, name in enumerate("abc")),
        tag("t", "owl"),
        tag("u", "owl owl owl"),
        *(tagged(source, target) for source, target in ("at", "bt", "bu", "cu")),
    ]
    rank = rrf(VEC, 'bm25($t.about, "owl")')
    with new_graph(tmp_path, *statements) as graph:
        got = table(
            graph,
            f"match {{ $d: Doc  $d tagged $t }} return {{ $d.slug as d, $t.name as t }} order {{ {rank} }} limit 10",
        )
    # By tag the documents appear in the order b, c, a.
    assert fused("abc", "bca", limit=10) == ["b", "a", "c"]
    assert got == [("b", "t"), ("b", "u"), ("a", "t"), ("c", "u")]


# ---- refusals


@each_case(
    ("order", "code"),
    [
        (f"rrf({VEC}, {FAR})", "T21"),
        (f"rrf({VEC}) limit", "T21"),
        (f"rrf({VEC}, {FAR}, 0) limit", "T21"),
        (f"rrf({VEC}, {FAR}, 1.5) limit", "T21"),
        (f'rrf({VEC}, {FAR}, "60") limit', "T21"),
        (f"rrf({VEC}, {FAR}, 60, 1) limit", "T21"),
        (f"rrf({VEC}, $d.year) limit", "T21"),
        (f'rrf({VEC}, search($d.body, "x")) limit', "T21"),
        (f"rrf({VEC}, rrf({VEC}, {FAR})) limit", "T21"),
        ("rrf(nearest($d.vec, [1.0]), bm25($d.body, 3)) limit", "T15"),
        ('rrf(nearest($d.body, "x"), bm25($d.body, "x")) limit', "T15"),
        (f"rrf({VEC}, bm25($d.year, 3)) limit", "T20"),
    ],
)
def test_a_fusion_that_makes_no_sense_is_a_compile_error(hybrids: dict[State, Graph], order: str, code: str):
    key, has_limit, _ = order.partition(" limit")
    cut = "limit 3" if has_limit else ""
    text = f"query q() {{ match {{ $d: Doc }} return {{ $d }} order {{ {key} }} {cut} }}"
    with pytest.raises(CompilerError) as caught:
        ask(hybrids[State.NONE], text)
    assert code in [item.code for item in caught.value.diagnostics]


def test_a_fusion_under_the_name_of_its_column_needs_a_limit_too(hybrids: dict[State, Graph]):
    text = f"query q() {{ match {{ $d: Doc }} return {{ {rrf()} as s }} order {{ s }} }}"
    with pytest.raises(CompilerError) as caught:
        ask(hybrids[State.NONE], text)
    assert [item.code for item in caught.value.diagnostics] == ["T21"]


# ---- Further order keys break the ties of a score before any limit cuts


RANKS = {
    "bm25": 'bm25($d.body, "fox")',
    "nearest": "nearest($d.vec, [0.0, 0.0, 0.0, 0.0])",
    # Entities take places in the arms by id, so the first of one is the last of the other.
    "rrf": "rrf(nearest($d.vec, [0.0, 0.0, 0.0, 0.0]), nearest($d.far, [0.0, 0.0, 0.0, 0.0]))",
}
COUNT = 300


@pytest.fixture(scope="module", params=["none", "half", "full"])
def tied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Three hundred documents of one score, years against the order of names, each citing the next one."""
    with new_graph(tmp_path_factory.mktemp("tied")) as graph:
        slugs = [f"d{number:03}" for number in range(COUNT)]
        docs = [
            doc_row(slug, body="red fox", year=COUNT - number, vec=[1.0] * 4, far=[float(COUNT - number)] * 4)
            for number, slug in enumerate(slugs)
        ]
        append(graph, Doc=docs[: COUNT // 2])
        if request.param == "half":
            graph.ensure_indices()
        append(graph, Doc=docs[COUNT // 2 :])
        cites = [
            {"id": f"c{number}", "src": slugs[number], "dst": slugs[(number * 7 + 1) % COUNT], "why": f"w{number:03}"}
            for number in range(COUNT)
        ]
        append(graph, Cites=cites)
        if request.param == "full":
            graph.ensure_indices()
        yield graph


def slugs(graph: Graph, text: str) -> list[str]:
    return [row["s"] for row in rows(graph, text)]


@each_case("rank", ["bm25", "nearest"])
@each_case("limit", [1, 7, 64, 65, COUNT, COUNT + 1])
def test_the_first_by_the_second_key_are_returned(tied: Graph, rank: str, limit: int):
    body = f"match {{ $d: Doc }} return {{ $d.slug as s }} order {{ {RANKS[rank]}, $d.year }} limit {limit}"
    expected = [f"d{number:03}" for number in reversed(range(COUNT))]
    assert slugs(tied, body) == expected[:limit]
    assert slugs(tied, body.replace("$d.year }", "$d.year desc }")) == expected[::-1][:limit]


@each_case("rank", ["bm25", "nearest"])
@each_case("limit", [1, 7, 65])
def test_without_a_second_key_ids_break_ties(tied: Graph, rank: str, limit: int):
    body = f"match {{ $d: Doc }} return {{ $d.slug as s }} order {{ {RANKS[rank]} }} limit {limit}"
    assert slugs(tied, body) == [f"d{number:03}" for number in range(limit)]


@each_case("rank", ["bm25", "nearest"])
@each_case("key", ["$c.why desc", "$e.year", "$d.year"])
@each_case("limit", [1, 7, 65])
def test_keys_of_other_variables_break_ties_over_all_entities(tied: Graph, rank: str, key: str, limit: int):
    clauses = '$d: Doc { body: "red fox" }  $d $c:cites $e  $d.year > 10'
    body = f"match {{ {clauses} }} return {{ $d.slug as s, $c.why as w, $e.slug as e }}"
    everything = rows(tied, f"{body} order {{ {key}, $d.slug }}")
    got = rows(tied, f"{body} order {{ {RANKS[rank]}, {key} }} limit {limit}")
    assert got == everything[:limit]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_ties_of_a_fusion_are_broken_by_the_second_key_then_by_the_arms(tmp_path: Path, limit: int):
    docs = [
        doc_row("a", vec=[1.0] * 4, far=[2.0] * 4, year=1),
        doc_row("b", vec=[2.0] * 4, far=[1.0] * 4, year=2),
        doc_row("c", vec=[9.0] * 4, far=[9.0] * 4, year=9),
    ]
    with new_graph(tmp_path) as graph:
        append(graph, Doc=docs)
        for keys, expected in (("", "abc"), (", $d.year", "abc"), (", $d.year desc", "bac")):
            body = f"match {{ $d: Doc }} return {{ $d.slug as s }} order {{ {RANKS['rrf']}{keys} }} limit {limit}"
            assert slugs(graph, body) == list(expected)[:limit]
