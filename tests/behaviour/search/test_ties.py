"""Further order keys break the ties of a score before any limit cuts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from support.search_graphs import append, doc_row, new_graph, rows
from support.subtests import each_case

RANKS = {
    "bm25": 'bm25($d.body, "fox")',
    "nearest": "nearest($d.vec, [0.0, 0.0, 0.0, 0.0])",
    # Entities take places in the arms by id, so the first of one is the last of the other.
    "rrf": "rrf(nearest($d.vec, [0.0, 0.0, 0.0, 0.0]), nearest($d.far, [0.0, 0.0, 0.0, 0.0]))",
}
COUNT = 300


@pytest.fixture(scope="module", params=["none", "half", "full"])
def tied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Graph]:
    """Three hundred documents of one score, years against the order of names, each citing the next one."""
    with new_graph(tmp_path_factory.mktemp("tied")) as graph:
        slugs = [f"d{number:03}" for number in range(COUNT)]
        docs = [
            doc_row(
                slug,
                body="red fox",
                year=COUNT - number,
                vec=[1.0] * 4,
                far=[float(COUNT - number)] * 4,
            )
            for number, slug in enumerate(slugs)
        ]
        append(graph, Doc=docs[: COUNT // 2])
        if request.param == "half":
            graph.ensure_indices()
        append(graph, Doc=docs[COUNT // 2 :])
        cites = [
            {
                "id": f"c{number}",
                "src": slugs[number],
                "dst": slugs[(number * 7 + 1) % COUNT],
                "why": f"w{number:03}",
            }
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
def test_keys_of_other_variables_break_ties_over_all_entities(
    tied: Graph, rank: str, key: str, limit: int
):
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
