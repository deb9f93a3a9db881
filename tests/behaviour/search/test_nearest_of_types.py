"""`nearest` over a variable of several types: one ranking of all of them, as if they were one type."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.ranking import ranked_rows
from omnigraph.errors import CompilerError
from support.subtests import each_case

SCHEMA = """
interface Seen { key: String  kind: String?  vec: Vector(4)? }
node Bird implements Seen { key: String @key  kind: String?  size: I32?  vec: Vector(4)? }
node Fish implements Seen { key: String @key  kind: String?  size: I32?  vec: Vector(4)? }
node Stone { key: String @key  vec: Vector(8)? }
edge Eats: Bird -> Fish
edge Meets: Bird -> Bird
"""
COUNT = 120
ZERO = [0.0, 0.0, 0.0, 0.0]
#: Entities by type, key and distance from zero.
Found = list[tuple[str, str]]


@pytest.fixture(scope="module")
def stored() -> dict[tuple[str, str], np.ndarray]:
    """The vectors of both types; every tenth vector is one of the other type too, and some nodes have none."""
    random = np.random.default_rng(7)
    birds, fish = random.normal(size=(2, COUNT, 4)).astype(np.float32)
    fish[::10] = birds[::10]
    names = [f"k{number:03}" for number in random.permutation(COUNT)]
    found = {("Bird", name): vector for name, vector in zip(names, birds, strict=True)}
    return found | {("Fish", name): vector for name, vector in zip(reversed(names), reversed(fish), strict=True)}


@pytest.fixture(scope="module")
def graph(stored: dict[tuple[str, str], np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("types")
    made = Graph.init(str(folder / "seen.omni"), SCHEMA)
    records = [
        {"type": type_name, "data": {"key": key, "kind": key[-1], "size": int(key[1:]), "vec": vector.tolist()}}
        for (type_name, key), vector in stored.items()
    ]
    records += [{"type": type_name, "data": {"key": "none"}} for type_name in ("Bird", "Fish")]
    records += [{"edge": "Eats", "from": f"k{n:03}", "to": f"k{(7 * n) % COUNT:03}"} for n in range(COUNT)]
    (folder / "seen.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    made.load(str(folder / "seen.jsonl"), mode="append")
    return made


def expected(stored: dict[tuple[str, str], np.ndarray], wanted: Any = lambda _: True) -> Found:
    """What brute force finds: by distance, then by id, then by type."""
    distances = {item: float(np.sqrt((vector.astype(np.float64) ** 2).sum())) for item, vector in stored.items()}
    return sorted((item for item in stored if wanted(item)), key=lambda item: (distances[item], item[1], item[0]))


def found(graph: Graph, match: str, limit: int, keys: str = "") -> Found:
    text = f"match {{ {match} }} return {{ $x.@type as t, $x.key as k }} order {{ nearest($x.vec, {ZERO}){keys} }}"
    rows = graph.query(f"{text} limit {limit}").to_pylist()
    return [(row["t"], row["k"]) for row in rows]


@each_case("limit", [1, 7, 50, 239, 240, 1000])
def test_decision_54_nearest_ranks_nodes_of_several_types_together(graph: Graph, stored: Any, limit: int) -> None:
    for types in ("Bird | Fish", "Seen"):
        assert found(graph, f"$x: {types}", limit) == expected(stored)[:limit]


def test_filters_come_before_the_limit(graph: Graph, stored: Any) -> None:
    wanted = expected(stored, lambda item: int(item[1][1:]) < 30)
    assert found(graph, "$x: Bird | Fish  $x.size < 30", 12) == wanted[:12]
    wanted = expected(stored, lambda item: item[0] == "Fish")
    assert found(graph, '$x: Bird | Fish  $x.@type = "Fish"', 12) == wanted[:12]
    wanted = expected(stored, lambda item: item[1][-1] == "3")
    assert found(graph, '$x: Bird | Fish  upper($x.kind) = "3"', 12) == wanted[:12]


@each_case("most", [1 << 15, 8])
def test_what_the_match_drops_is_made_up_for(graph: Graph, stored: Any, monkeypatch: Any, most: int) -> None:
    """Also where the match is run as a whole, since too few of the candidates survive."""
    monkeypatch.setattr(ranked_rows, "_MAX_CANDIDATES", most)
    match = "$x: Bird | Fish  exists { $b: Bird  $b eats $x  $b.size < 17 }"
    eaten = {f"k{(7 * n) % COUNT:03}" for n in range(17)}
    wanted = expected(stored, lambda item: item[0] == "Fish" and item[1] in eaten)
    assert found(graph, match, 9) == wanted[:9]


def test_a_variable_that_a_traversal_introduces_is_ranked(graph: Graph, stored: Any) -> None:
    wanted = expected(stored, lambda item: item[0] == "Fish" and item[1] in ("k007", "k014", "k021"))
    assert found(graph, "$b: Bird  $x: Bird | Fish  $b (eats | meets) $x  $b.size in [1, 2, 3]", 5) == wanted


def test_further_keys_order_equal_distances(graph: Graph, stored: Any) -> None:
    ordered = expected(stored)
    distances = {item: float(np.sqrt((stored[item].astype(np.float64) ** 2).sum())) for item in ordered}
    by_type = sorted(ordered, key=lambda item: (distances[item], [-ord(letter) for letter in item[1]], item[0]))
    assert found(graph, "$x: Bird | Fish", 40, ", $x.key desc") == by_type[:40]


def test_distances_and_groups(graph: Graph, stored: Any) -> None:
    (first, *_) = expected(stored)
    text = f"match {{ $x: Seen }} return {{ $x.key as k, nearest($x.vec, {ZERO}) as d }} order {{ d }} limit 1"
    (row,) = graph.query(text).to_pylist()
    assert row == {"k": first[1], "d": pytest.approx(float(np.linalg.norm(stored[first].astype(np.float64))))}
    text = (
        f"match {{ $x: Seen }} return {{ $x.@type as t, count(*) as n }} order {{ nearest($x.vec, {ZERO}) }} limit 25"
    )
    counts = {row["t"]: row["n"] for row in graph.query(text).to_pylist()}
    types = [type_name for type_name, _ in expected(stored)[:25]]
    assert counts == {name: types.count(name) for name in ("Bird", "Fish")}


def test_the_plan_says_how_each_type_is_searched(graph: Graph) -> None:
    text = f"match {{ $x: Seen }} return {{ $x.key }} order {{ nearest($x.vec, {ZERO}) }} limit 3"
    ways = r"\(nearest vec: Bird: exact scan of .*, recall 1, Fish: exact scan of .*, recall 1\)"
    assert re.search(f"best candidates first {ways}", graph.explain(text))
    match = "$b: Bird  $x: Bird | Fish  $b (eats | meets) $x"
    text = f"match {{ {match} }} return {{ $x.key }} order {{ nearest($x.vec, {ZERO}) }} limit 3"
    assert re.search(f"after the match {ways}", graph.explain(text))


def test_a_text_is_embedded_for_each_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "1")
    schema = """
        node Post { key: String @key  text: String?  vec: Vector(8)? @embed("text") }
        node Note { key: String @key  text: String?  vec: Vector(8)? @embed("text") }
    """
    graph = Graph.init(str(tmp_path / "texts.omni"), schema)
    graph.mutate('insert Post { key: "p", text: "apples" } insert Note { key: "n", text: "pears" }')
    for text, key in (("apples", "p"), ("pears", "n")):
        query = "match { $x: Post | Note } return { $x.key as k } order { nearest($x.vec, $text) } limit 1"
        assert graph.query(f"query q($text: String) {{ {query} }}", {"text": text}).to_pylist() == [{"k": key}]


@each_case(
    ("rank", "code"),
    [
        ("bm25($x.kind, $text)", "T20"),
        ("rrf(nearest($x.vec, [0.0, 0.0, 0.0, 0.0]), nearest($x.vec, [1.0, 0.0, 0.0, 0.0]))", "T21"),
    ],
)
def test_decision_54_relevance_and_fusion_are_of_one_type(graph: Graph, rank: str, code: str) -> None:
    text = f"query q($text: String) {{ match {{ $x: Seen }} return {{ $x.key }} order {{ {rank} }} limit 3 }}"
    with pytest.raises(CompilerError) as caught:
        graph.query(text, {"text": "a"})
    assert set(caught.value.codes) == {code}


def test_vectors_of_different_lengths_are_not_one_property(graph: Graph) -> None:
    with pytest.raises(CompilerError, match=r"Vector\(4\)\? in `Bird` and Vector\(8\)\? in `Stone`"):
        graph.query("match { $x: Bird | Stone } return { $x.key } order { nearest($x.vec, [0.0]) } limit 3")
