"""`nearest` through a vector index: as good as an exact search, with exact distances, and never behind the data.

Few vectors would all be compared: here the index is asked however few they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.tables.wanted_indexes import VECTOR_INDEX_MIN_ROWS
from support.search_graphs import (
    append,
    dataset_of,
    doc_row,
    index_names,
    new_graph,
    ranked,
    rows,
    scored,
    segments,
    write,
)
from support.subtests import each_case

COUNT = 12_000
#: The year of every 400th document, and of the outliers.
RARE, OUTLYING = 7, 99
OUTLIERS = 30
TWINS = 300
TWIN = [4.0, 4.0, 4.0, 4.0]


@pytest.fixture(scope="module", autouse=True)
def _asks_the_index() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_EXACT_VECTOR_VALUES", "0")
        yield


def slug(number: int) -> str:
    return f"s{number:05}"


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    """A cloud around the origin; the last ones are outliers, and before them are many equal ones."""
    cloud = np.random.default_rng(1).normal(size=(COUNT, 4)).astype(np.float32)
    cloud[-OUTLIERS:, 0] += 50
    cloud[-OUTLIERS - TWINS : -OUTLIERS] = TWIN
    return cloud


def documents(stored: np.ndarray, numbers: Any) -> list[dict[str, Any]]:
    first_outlier = len(stored) - OUTLIERS
    return [
        doc_row(slug(n), vec=stored[n].tolist(), year=OUTLYING if n >= first_outlier else RARE if n % 400 == 0 else 1)
        for n in numbers
    ]


@pytest.fixture(scope="module")
def indexed(stored: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    graph = new_graph(tmp_path_factory.mktemp("indexed"))
    shuffled = [int(n) for n in np.random.default_rng(2).permutation(COUNT)]
    append(graph, Doc=documents(stored, shuffled))
    graph.ensure_indices()
    yield graph
    graph.close()


@pytest.fixture(scope="module")
def grown(stored: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a graph with an index, for tests that write to a copy."""
    with new_graph(tmp_path_factory.mktemp("grown")) as graph:
        append(graph, Doc=documents(stored, range(COUNT)))
        graph.ensure_indices()
        return Path(graph.uri)


@pytest.fixture
def growing(grown: Path, tmp_path: Path) -> Iterator[Graph]:
    with Graph.open(shutil.copytree(grown, tmp_path / "g.omni")) as graph:
        yield graph


def exact(stored: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers by distance, then by number, and the distance of every number."""
    distances = np.sqrt(((stored.astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1))
    return np.lexsort((np.arange(len(stored)), distances)), distances


def nearest(graph: Graph, query: Any, clauses: str = "", limit: int = 10) -> list[tuple[str, float]]:
    vector = [float(part) for part in query]
    return scored(graph, "nearest($d.vec, $v)", clauses, limit, "$v: Vector(4)", v=vector)


def in_order(graph: Graph, query: Any, clauses: str = "", limit: int = 10) -> list[str]:
    """Without asking for the distance."""
    vector = [float(part) for part in query]
    return ranked(graph, "nearest($d.vec, $v)", clauses, limit=limit, declared="$v: Vector(4)", v=vector)


def queries(count: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


# ---- the index


def test_many_vectors_get_an_index_whose_partitions_follow_their_number(indexed: Graph):
    dataset = dataset_of(indexed, indexed.snapshot(), "node:Doc")
    assert "vec_vector" in index_names(indexed, "node:Doc")
    (part,) = dataset.stats.index_stats("vec_vector")["indices"]
    assert part["index_type"] == "IVF_FLAT"
    assert part["metric_type"].lower() == "l2"
    assert part["num_partitions"] == 109  # the root of 12,000
    assert indexed.pending_indexes() == []
    text = "query q($v: Vector(4)) { match { $d: Doc } return { $d } order { nearest($d.vec, $v) } limit 3 }"
    assert "vector index" in indexed.explain(text, {"v": [0.0] * 4})


@pytest.mark.parametrize(("count", "is_indexed"), [(-1, False), (0, True)])
def test_the_number_of_vectors_decides_not_the_number_of_rows(tmp_path: Path, count: int, is_indexed: bool):
    rng = np.random.default_rng(5)
    filled = VECTOR_INDEX_MIN_ROWS + count
    with new_graph(tmp_path) as graph:
        vectors = rng.normal(size=(filled, 4)).astype(np.float32).tolist()
        rows_ = [doc_row(slug(n), vec=vector) for n, vector in enumerate(vectors)]
        append(graph, Doc=[*rows_, *(doc_row(f"null{n}") for n in range(50))])
        report = graph.ensure_indices()
        assert ("vec_vector" in index_names(graph, "node:Doc")) == is_indexed
        assert report.pending == ()
        assert graph.ensure_indices().commit is None
        got = nearest(graph, vectors[17], limit=3)
        assert got[0] == (slug(17), 0.0)


# ---- quality


def test_recall_is_high_and_distances_are_exact(indexed: Graph, stored: np.ndarray):
    hits = 0
    for query in queries(30):
        order, distances = exact(stored, query)
        got = nearest(indexed, query)
        assert len(got) == 10
        hits += len({s for s, _ in got} & {slug(n) for n in order[:10]})
        for name, distance in got:
            assert distance == pytest.approx(distances[int(name[1:])], rel=1e-12)
        assert got == sorted(got, key=lambda item: (item[1], item[0]))
        assert in_order(indexed, query) == [name for name, _ in got]
    assert hits >= 0.97 * 300


def test_an_exact_match_is_always_first(indexed: Graph, stored: np.ndarray):
    for number in range(0, COUNT - OUTLIERS - TWINS, 997):
        assert nearest(indexed, stored[number], limit=1) == [(slug(number), 0.0)]


def test_the_global_order_holds_for_a_large_limit(indexed: Graph, stored: np.ndarray):
    query = queries(1)[0]
    order, distances = exact(stored, query)
    got = nearest(indexed, query, limit=5000)
    assert len({name for name, _ in got}) == 5000
    assert got == sorted(got, key=lambda item: (item[1], item[0]))
    assert [d for _, d in got[:100]] == pytest.approx(distances[order[:100]].tolist(), rel=1e-12)
    everything = nearest(indexed, query, limit=COUNT + 5)
    assert [name for name, _ in everything] == [slug(n) for n in order]


def test_a_selective_filter_does_not_starve_the_result(indexed: Graph, stored: np.ndarray):
    hits = 0
    for query in queries(10):
        order, _ = exact(stored, query)
        expected = [slug(n) for n in order if n % 400 == 0 and n < COUNT - OUTLIERS]
        everybody = nearest(indexed, query, f"$d.year = {RARE}", limit=100)
        assert [name for name, _ in everybody] == expected
        got = nearest(indexed, query, f"$d.year = {RARE}", limit=5)
        assert len(got) == 5
        hits += len({name for name, _ in got} & set(expected[:5]))
    assert hits >= 0.9 * 50


def test_rows_far_from_the_query_are_found_when_only_they_satisfy_the_filter(indexed: Graph, stored: np.ndarray):
    order, _ = exact(stored, np.zeros(4, np.float32))
    expected = [slug(n) for n in order if n >= COUNT - OUTLIERS]
    for clauses in (f"$d.year = {OUTLYING}", f"$d.year > {RARE}", "not { $d.year < 50 }"):
        got = nearest(indexed, [0.0] * 4, clauses, limit=5)
        assert len(got) == 5
        assert set(got) <= set(nearest(indexed, [0.0] * 4, clauses, limit=100))
        assert [name for name, _ in nearest(indexed, [0.0] * 4, clauses, limit=100)] == expected


def test_fewer_matches_than_the_limit_are_in_order_when_nobody_asks_for_their_distances(
    indexed: Graph, stored: np.ndarray
):
    order, _ = exact(stored, np.zeros(4, np.float32))
    expected = [slug(n) for n in order if n >= COUNT - OUTLIERS]
    inline = rows(
        indexed,
        f"match {{ $d: Doc {{ year: {OUTLYING} }} }} return {{ $d.slug as s }}"
        " order { nearest($d.vec, [0.0, 0.0, 0.0, 0.0]) } limit 100",
    )
    assert [row["s"] for row in inline] == expected
    assert in_order(indexed, [0.0] * 4, f"$d.year = {OUTLYING}", limit=40) == expected


@each_case("limit", [1, 10, 299, 300])
def test_equal_vectors_are_ordered_by_id_across_the_limit(indexed: Graph, limit: int):
    first = COUNT - OUTLIERS - TWINS
    got = nearest(indexed, TWIN, limit=limit)
    assert got == [(slug(n), 0.0) for n in range(first, first + limit)]


# ---- freshness


def move(graph: Graph, number: int, vector: list[float] | None) -> None:
    graph.mutate(
        "query w($s: String, $v: Vector(4)?) { update Doc set { vec: $v } where slug = $s }",
        {"s": slug(number), "v": vector},
    )


def check_changes(graph: Graph, stored: np.ndarray) -> None:
    """After `change`: what was added, moved, cleared and deleted is where it is now, once."""
    assert nearest(graph, [-30.0] * 4, limit=3) == [("new0", 0.0), ("new1", 2.0), ("new2", 4.0)]
    assert nearest(graph, [30.0] * 4, limit=1) == [(slug(5), 0.0)]
    for number in (5, 6, 7):
        got = [name for name, _ in nearest(graph, stored[number], limit=20)]
        assert slug(number) not in got
    everybody = [name for name, _ in nearest(graph, [0.0] * 4, limit=2 * COUNT)]
    assert len(everybody) == len(set(everybody))
    assert slug(5) in everybody
    assert not {slug(6), slug(7)} & set(everybody)


def change(graph: Graph, added: int) -> None:
    """Add documents, move 5, clear 6, delete 7."""
    append(graph, Doc=[doc_row(f"new{n}", vec=[n - 30.0] * 4) for n in range(min(added, 10))])
    if added > 10:
        more = np.random.default_rng(8).normal(size=(added, 4)).astype(np.float32).tolist()
        append(graph, Doc=[doc_row(f"more{n:04}", vec=vector) for n, vector in enumerate(more)])
    move(graph, 5, [30.0] * 4)
    move(graph, 6, None)
    write(graph, f'delete Doc where slug = "{slug(7)}"')


def test_what_was_written_after_the_index_is_found_where_it_is_now(growing: Graph, stored: np.ndarray):
    change(growing, added=10)
    check_changes(growing, stored)
    assert {item.property for item in growing.pending_indexes()} >= {"vec"}


def test_an_index_that_caught_up_with_many_vectors_finds_them_where_they_are_now(growing: Graph, stored: np.ndarray):
    change(growing, added=1500)
    growing.ensure_indices()
    assert growing.pending_indexes() == []
    assert len(segments(growing, "node:Doc")["vec_vector"]) >= 1
    check_changes(growing, stored)


def outside(graph: Graph) -> list[str]:
    return [item.reason for item in graph.pending_indexes() if item.property == "vec"]


def test_an_index_waits_for_more_than_a_few_vectors(growing: Graph, stored: np.ndarray):
    """Building it anew for a few rows costs more than comparing them one by one."""
    before = segments(growing, "node:Doc")["vec_vector"]
    change(growing, added=10)
    growing.ensure_indices()
    assert segments(growing, "node:Doc")["vec_vector"] == before
    (reason,) = outside(growing)
    assert "12 rows are outside" in reason
    check_changes(growing, stored)


def test_a_row_without_a_vector_outside_of_the_index_changes_nothing(growing: Graph, stored: np.ndarray):
    append(growing, Doc=[doc_row("empty")])
    growing.ensure_indices()
    (reason,) = outside(growing)
    assert "1 row is outside" in reason
    assert nearest(growing, stored[3], limit=1) == [(slug(3), 0.0)]
