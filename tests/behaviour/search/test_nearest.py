"""`nearest`: exact distances, ties, nulls and limits, without a vector index."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError, ParameterError
from support.search_graphs import (
    ZERO,
    append,
    ask,
    cites,
    doc,
    doc_row,
    index_names,
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

RANK = "nearest($d.vec, $v)"
DECLARED = "$v: Vector(4)"
COUNT = 300


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


def slug(number: int) -> str:
    return f"s{number:03}"


def exact(stored: np.ndarray, query: np.ndarray) -> list[tuple[str, float]]:
    """Slugs and distances by brute force."""
    distances = np.sqrt(((stored.astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1))
    order = np.lexsort((np.arange(len(stored)), distances))
    return [(slug(number), float(distances[number])) for number in order]


def nearest(graph: Graph, query: Any, clauses: str = "", limit: int = 10) -> list[tuple[str, float]]:
    vector = [float(part) for part in query]
    return scored(graph, RANK, clauses, limit, DECLARED, v=vector)


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    return vectors(COUNT, 1)


@pytest.fixture(scope="module", params=["unindexed", "indexed", "half indexed"])
def cloud(
    request: pytest.FixtureRequest, stored: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Graph]:
    """300 random vectors in a random order of ids, and 10 documents without one."""
    graph = new_graph(tmp_path_factory.mktemp("cloud"))
    shuffled = np.random.default_rng(2).permutation(COUNT)
    documents = [doc_row(slug(n), vec=stored[n].tolist(), far=stored[n].tolist(), year=int(n) % 10) for n in shuffled]
    documents += [doc_row(f"null{n}", year=n) for n in range(10)]
    append(graph, Doc=documents[:150])
    if request.param == "half indexed":
        graph.ensure_indices()
    append(graph, Doc=documents[150:])
    if request.param == "indexed":
        graph.ensure_indices()
    yield graph
    graph.close()


# ---- distances


@each_case("limit", [1, 2, 10, 299, 300, 400])
def test_the_nearest_come_first_with_their_exact_distances(cloud: Graph, stored: np.ndarray, limit: int):
    for query in vectors(4, 3):
        expected = exact(stored, query)[:limit]
        got = nearest(cloud, query, limit=limit)
        assert [s for s, _ in got] == [s for s, _ in expected]
        assert [d for _, d in got] == pytest.approx([d for _, d in expected], rel=1e-12)


def test_an_exact_match_is_first_at_distance_zero(cloud: Graph, stored: np.ndarray):
    for number in (0, 17, 299):
        assert nearest(cloud, stored[number], limit=1) == [(slug(number), 0.0)]


def test_a_property_without_an_index_is_searched_alike(cloud: Graph, stored: np.ndarray):
    query = vectors(1, 5)[0]
    far = scored(cloud, "nearest($d.far, $v)", "", 10, DECLARED, v=[float(part) for part in query])
    assert far == nearest(cloud, query)


def test_filters_come_before_the_limit(cloud: Graph, stored: np.ndarray):
    query = vectors(1, 6)[0]
    for clauses, keeps in (
        ("$d.year = 3", lambda year: year == 3),
        ("$d.year >= 8", lambda year: year >= 8),
        ("$d.year != 0  $d.year < 3", lambda year: year in (1, 2)),
    ):
        expected = [s for s, _ in exact(stored, query) if keeps(int(s[1:]) % 10)]
        assert [s for s, _ in nearest(cloud, query, clauses, limit=25)] == expected[:25]
    inline = rows(
        cloud,
        f"match {{ $d: Doc {{ year: 3 }} }} return {{ $d.slug as s }} order {{ {RANK} }} limit 25",
        DECLARED,
        v=[float(part) for part in query],
    )
    assert [row["s"] for row in inline] == [s for s, _ in exact(stored, query) if int(s[1:]) % 10 == 3][:25]


def test_rows_without_a_vector_never_appear(cloud: Graph):
    got = nearest(cloud, [0.0] * 4, limit=1000)
    assert len(got) == COUNT
    assert not any(s.startswith("null") for s, _ in got)
    assert nearest(cloud, [0.0] * 4, '$d.slug starts_with "null"', limit=5) == []


def test_few_vectors_get_no_index_and_wait_for_none(cloud: Graph):
    assert "vec_vector" not in index_names(cloud, "node:Doc")
    assert all(item.property != "vec" for item in cloud.pending_indexes())


@each_case("declared", ["$v: Vector(4)?", "$v: String?"])
def test_a_null_query_ranks_nothing(cloud: Graph, declared: str):
    assert ranked(cloud, RANK, declared=declared) == []
    assert ranked(cloud, RANK, declared=declared, v=None) == []
    assert ranked(cloud, RANK, "not { $d cites $_ }", declared=declared) == []


def test_limit_zero_is_no_row(cloud: Graph):
    assert nearest(cloud, [0.0] * 4, limit=0) == []


def test_the_distance_may_be_returned_and_ordered_by_its_name(cloud: Graph):
    text = f"match {{ $d: Doc }} return {{ {RANK} as far, $d.slug as s }} order {{ far }} limit 7"
    expected = nearest(cloud, [0.5, 0.0, 0.0, 0.0], limit=7)
    got = rows(cloud, text, DECLARED, v=[0.5, 0.0, 0.0, 0.0])
    assert [(row["s"], row["far"]) for row in got] == expected
    upwards = rows(cloud, text.replace("far }", "far asc }"), DECLARED, v=[0.5, 0.0, 0.0, 0.0])
    assert upwards == got


def test_the_query_may_be_a_list_of_numbers_whole_or_not(cloud: Graph):
    by_param = [s for s, _ in nearest(cloud, [1.0, 0.5, 0.0, 2.0])]
    assert ranked(cloud, "nearest($d.vec, [1.0, 0.5, 0.0, 2.0])") == by_param
    whole = [s for s, _ in nearest(cloud, [1.0, 0.0, 0.0, 2.0])]
    assert ranked(cloud, "nearest($d.vec, [1, 0, 0, 2])") == whole


# ---- ties


@pytest.fixture(scope="module")
def ties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """3 nearer ones, 500 at one distance in a random order of ids and in two directions, 20 further away."""
    graph = new_graph(tmp_path_factory.mktemp("ties"))
    shuffled = np.random.default_rng(4).permutation(500)
    documents = [doc_row(f"t{n:03}", vec=[0.0, 1.0, 0.0, 0.0] if n % 2 else [0.0, 0.0, 0.0, -1.0]) for n in shuffled]
    documents += [doc_row(f"z{n}", vec=[0.5, 0.0, 0.0, 0.0]) for n in range(3)]
    documents += [doc_row(f"a{n:02}", vec=[5.0 + n, 0.0, 0.0, 0.0]) for n in range(20)]
    append(graph, Doc=documents)
    yield graph
    graph.close()


@each_case("limit", [1, 3, 4, 10, 11, 12, 100, 502, 503, 504, 523, 600])
def test_equal_distances_are_ordered_by_id_across_the_limit(ties: Graph, limit: int):
    expected = [f"z{n}" for n in range(3)] + [f"t{n:03}" for n in range(500)]
    expected += [f"a{n:02}" for n in range(20)]
    assert ranked(ties, f"nearest($d.vec, {ZERO})", limit=limit) == expected[:limit]


def test_equal_distances_are_ordered_by_id_behind_a_filter(ties: Graph):
    got = ranked(ties, f"nearest($d.vec, {ZERO})", '$d.slug > "t1"  $d.slug < "z"', limit=4)
    assert got == ["t100", "t101", "t102", "t103"]


@pytest.mark.parametrize("way", ["too large", "too close"])
def test_the_order_is_exact_where_32_bits_do_not_tell_distances_apart(tmp_path: Path, way: str):
    shuffled = [int(n) for n in np.random.default_rng(0).permutation(200)]
    component = {
        "too large": lambda n: float(np.float32(1e25 * (n + 1))),
        "too close": lambda n: -float(np.float32(1e-6 * n)),
    }[way]
    query = {"too large": 0.0, "too close": 30000.0}[way]
    with new_graph(tmp_path) as graph:
        append(graph, Doc=[doc_row(slug(n), vec=[component(n), 0.0, 0.0, 0.0]) for n in shuffled])
        got = [s for s, _ in nearest(graph, [query, 0.0, 0.0, 0.0], limit=5)]
    assert got == [slug(n) for n in range(5)]


# ---- traversals


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    graph = new_graph(
        tmp_path_factory.mktemp("linked"),
        doc("a", vec=[3.0, 0.0, 0.0, 0.0]),
        doc("b", vec=[1.0, 0.0, 0.0, 0.0]),
        doc("c", vec=[2.0, 0.0, 0.0, 0.0]),
        doc("d"),
        tag("t"),
        tag("u"),
        cites("a", "b", "x"),
        cites("a", "b", "y"),
        cites("a", "c"),
        cites("b", "c"),
        cites("c", "d"),
        cites("d", "a"),
        tagged("a", "u"),
        tagged("a", "t"),
        tagged("d", "t"),
    )
    yield graph
    graph.close()


def test_rows_fanned_out_keep_the_rank_of_their_entity_and_the_limit_cuts_rows(linked: Graph):
    text = (
        "match { $d: Doc  $d $c:cites $e } return { $d.slug as d, $e.slug as e, $c.why as w }"
        f" order {{ nearest($d.vec, {ZERO}), $c.why desc }}"
    )
    everything = [("b", "c", None), ("c", "d", None), ("a", "b", "y"), ("a", "b", "x"), ("a", "c", None)]
    for limit in range(7):
        assert table(linked, f"{text} limit {limit}") == everything[:limit]


def test_a_variable_that_a_traversal_introduces_is_ranked(linked: Graph):
    got = table(
        linked,
        "match { $d: Doc  $d cites $e } return { $e.slug as e, $d.slug as d,"
        f" nearest($e.vec, {ZERO}) as far }} order {{ nearest($e.vec, {ZERO}) }} limit 10",
    )
    assert got == [("b", "a", 1.0), ("c", "a", 2.0), ("c", "b", 2.0), ("a", "d", 3.0)]


def test_whoever_reaches_no_vector_is_not_ranked(linked: Graph):
    text = "match {{ $d: Doc  $d cites $e }} return {{ $d.slug as d }} order {{ nearest({}, {}) }} limit 10"
    assert table(linked, text.format("$e.vec", ZERO)) == [("a",), ("a",), ("b",), ("d",)]
    assert table(linked, text.format("$d.vec", ZERO)) == [("b",), ("c",), ("a",), ("a",)]


def test_negations_are_scope_and_come_before_the_limit(linked: Graph):
    assert ranked(linked, f"nearest($d.vec, {ZERO})", "not { $d tagged $_ }", limit=1) == ["b"]
    assert ranked(linked, f"nearest($d.vec, {ZERO})", "$d tagged $t", limit=1) == ["a"]


# ---- freshness


def test_vectors_are_found_as_they_are_now(tmp_path: Path):
    def move(graph: Graph, name: str, vector: list[float] | None) -> None:
        graph.mutate(
            "query w($s: String, $v: Vector(4)?) { update Doc set { vec: $v } where slug = $s }",
            {"s": name, "v": vector},
        )

    rank = f"nearest($d.vec, {ZERO})"
    with new_graph(tmp_path, doc("a", vec=[1.0] * 4), doc("b")) as graph:
        assert ranked(graph, rank) == ["a"], "right after the load, without any index"
        graph.ensure_indices()
        move(graph, "b", [0.5] * 4)
        assert scored(graph, rank) == [("b", 1.0), ("a", 2.0)]
        move(graph, "b", [-2.0] * 4)
        assert scored(graph, rank) == [("a", 2.0), ("b", 4.0)]
        move(graph, "a", None)
        assert ranked(graph, rank) == ["b"]
        write(graph, 'delete Doc where slug = "b"')
        assert ranked(graph, rank) == []
        write(graph, doc("b", vec=[0.0] * 4))
        assert scored(graph, rank) == [("b", 0.0)]


def test_nobody_has_a_vector_in_an_empty_graph(tmp_path: Path):
    with new_graph(tmp_path) as graph:
        assert ranked(graph, f"nearest($d.vec, {ZERO})") == []
        assert ranked(graph, f"nearest($d.vec, {ZERO})", "$d cites $e") == []


def test_distances_do_not_overflow_where_32_bits_would(tmp_path: Path):
    with new_graph(tmp_path) as graph:
        append(graph, Doc=[doc_row("a", vec=[1e30, 0.0, 0.0, 0.0])])
        ((_, far),) = scored(graph, f"nearest($d.vec, {ZERO})")
    assert math.isfinite(far)
    assert far == pytest.approx(float(np.float32(1e30)))


# ---- refusals


@each_case(
    ("text", "code"),
    [
        (f"match {{ $d: Doc }} return {{ $d }} order {{ nearest($d.vec, {ZERO}) }}", "T17"),
        (f"match {{ $d: Doc }} return {{ nearest($d.vec, {ZERO}) as far }} order {{ far }}", "T17"),
        ("match { $d: Doc } return { $d } order { nearest($d.vec, [1.0, 2.0]) } limit 3", "T15"),
        (f"match {{ $d: Doc }} return {{ $d }} order {{ nearest($d.body, {ZERO}) }} limit 3", "T15"),
        ("match { $d: Doc } return { $d } order { nearest($d.vec, 3) } limit 3", "T15"),
        ("match { $d: Doc } return { $d } order { nearest($d.vec, $w) } limit 3", "T15"),
        ("match { $d: Doc } return { $d } order { nearest($d.vec, $n) } limit 3", "T15"),
        (f"match {{ $d: Doc }} return {{ $d }} order {{ nearest($d.vec, {ZERO}) desc }} limit 3", "Q113"),
        (f"match {{ $d: Doc }} return {{ nearest($d.vec, {ZERO}) as far }} limit 3", "Q112"),
    ],
)
def test_a_ranking_that_makes_no_sense_is_a_compile_error(linked: Graph, text: str, code: str):
    with pytest.raises(CompilerError) as caught:
        ask(linked, f"query q($w: Vector(3), $n: I64) {{ {text} }}")
    assert code in [item.code for item in caught.value.diagnostics]


@each_case("vector", [[1.0], [1.0] * 5, [1.0, 2.0, 3.0, None], [1.0, 2.0, 3.0, "4"], "text", [math.nan] * 4])
def test_a_query_vector_that_does_not_fit_is_refused(linked: Graph, vector: object):
    with pytest.raises(ParameterError):
        ranked(linked, RANK, declared=DECLARED, v=vector)


def test_a_query_vector_that_is_missing_is_refused(linked: Graph):
    with pytest.raises(ParameterError):
        ranked(linked, RANK, declared=DECLARED)
