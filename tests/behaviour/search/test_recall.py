"""The share of the nearest that `nearest` finds: all where vectors are compared, the wanted one through an index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.tables import vector_search
from omnigraph.errors import BadRequestError, CompilerError
from omnigraph.maintenance.findings import Health
from omnigraph.storage.derived import DERIVED_FOLDER
from support.search_graphs import append
from support.subtests import each_case

ROWS, DIMENSION, QUERIES = 12_000, 16, 30
#: Of a thousand rows, so many pass the filter.
SHARES = (1, 10, 100)
SCHEMA = f"""
node Point {{
    slug: String @key
    part: I32
    text: String?
    vec: Vector({DIMENSION})? @index
}}
node Group {{ name: String @key }}
edge Member: Point -> Group
"""
EXACT = "OMNIGRAPH_EXACT_VECTOR_VALUES"
KINDS = ("normal", "sphere", "clustered")


def points(kind: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, DIMENSION))
    if kind == "sphere":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if kind == "clustered":
        centres = np.random.default_rng(5).normal(size=(40, DIMENSION)) * 3
        vectors = centres[rng.integers(0, len(centres), count)] + vectors * 0.4
    return vectors.astype(np.float32)


class World:
    """A graph and what it holds."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.vectors = points(kind, ROWS, 1)
        self.parts = np.random.default_rng(2).permutation(ROWS) % 1000
        self.queries = points(kind, QUERIES, 3)

    def make(self) -> None:
        """Write it, with its index."""
        rows = [
            {"id": name(n), "slug": name(n), "part": int(self.parts[n]), "text": "red" if n % 3 else "blue", "vec": v}
            for n, v in enumerate(self.vectors.tolist())
        ]
        with Graph.init(self.folder, SCHEMA) as graph:
            append(graph, Point=rows)
            graph.ensure_indices()

    def best(self, query: np.ndarray, below: int = 1000, count: int = 10) -> list[str]:
        """The exact answer, by distance and id."""
        members = np.flatnonzero(self.parts < below)
        distances = np.sqrt(((self.vectors[members].astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1))
        return [name(int(n)) for n in members[np.lexsort((members, distances))][:count]]

    def recalls(self, graph: Graph, below: int = 1000, recall: float | None = None) -> np.ndarray:
        """Per query, the share of the ten nearest that is found."""
        shares = []
        for query in self.queries:
            wanted = set(self.best(query, below))
            got = ask(graph, query, below=below, recall=recall)
            assert len(got) == len(set(got)) == min(10, len(wanted))
            shares.append(len(wanted & set(got)) / len(wanted))
        return np.array(shares)


def name(number: int) -> str:
    return f"p{number:05}"


def text_of(below: int = 1000, recall: float | None = None, clauses: str = "", limit: int = 10) -> str:
    where = "" if below == 1000 else f"$p.part < {below}"
    wanted = "" if recall is None else f", recall: {recall}"
    return (
        f"query q($v: Vector({DIMENSION})) {{ match {{ $p: Point {where} {clauses} }} return {{ $p.slug as s }}"
        f" order {{ nearest($p.vec, $v{wanted}) }} limit {limit} }}"
    )


def ask(graph: Graph, query: np.ndarray, *, branch: str = "main", **given: Any) -> list[str]:
    text = text_of(**given)
    return [row["s"] for row in graph.query(text, {"v": [float(x) for x in query]}, branch=branch).to_pylist()]


def plan(graph: Graph, **given: Any) -> str:
    return graph.explain(text_of(**given)).splitlines()[-1]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """Graphs whose indexes are asked, however few vectors there are."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EXACT, "0")
        for kind in KINDS:
            found[kind] = World(tmp_path_factory.mktemp("recall") / f"{kind}.omni", kind)
            found[kind].make()
    return found


@pytest.fixture
def asks_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXACT, "0")


@pytest.fixture
def copied(worlds: dict[str, World], tmp_path: Path, asks_index: None) -> Iterator[tuple[Graph, World]]:
    """A graph to write to."""
    world = worlds["normal"]
    with Graph.open(shutil.copytree(world.folder, tmp_path / "g.omni")) as graph:
        yield graph, world


# ---- recall


@pytest.mark.parametrize("kind", KINDS)
def test_below_the_budget_every_answer_is_exact(worlds: dict[str, World], kind: str):
    world = worlds[kind]
    with Graph.open(world.folder) as graph:
        assert f"exact scan of {ROWS} rows, recall 1" in plan(graph)
        for below in (*SHARES, 1000):
            for query in world.queries[:10]:
                assert ask(graph, query, below=below) == world.best(query, below)


@pytest.mark.parametrize("kind", KINDS)
def test_through_the_index_the_wanted_recall_is_reached(worlds: dict[str, World], kind: str, asks_index: None):
    world = worlds[kind]
    with Graph.open(world.folder) as graph:
        assert "vector index" in plan(graph)
        assert world.recalls(graph).mean() >= 0.92
        assert world.recalls(graph, recall=0.99).mean() >= 0.97
        for below in SHARES:
            assert world.recalls(graph, below).mean() >= 0.92


def test_a_higher_recall_looks_at_more_partitions_and_all_of_it_at_every_vector(
    worlds: dict[str, World], asks_index: None
):
    world = worlds["normal"]

    def partitions(line: str) -> int:
        return int(line.partition("vector index, ")[2].partition(" ")[0])

    with Graph.open(world.folder) as graph:
        low, usual, high = (plan(graph, recall=recall) for recall in (0.5, None, 0.99))
        assert partitions(low) < partitions(usual) < partitions(high)
        assert 0.5 <= float(low.rpartition("expected recall ")[2].rstrip(")")) < 1
        assert "recall 1" in plan(graph, recall=1)
        assert world.recalls(graph, recall=0.3).mean() < world.recalls(graph, recall=0.99).mean()
        for query in world.queries[:5]:
            assert ask(graph, query, recall=1) == world.best(query)


def test_the_settings_decide_where_the_query_does_not(
    worlds: dict[str, World], asks_index: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_VECTOR_RECALL", "0.4, Point.vec=1")
    with Graph.open(worlds["normal"].folder) as graph:
        assert "recall 1" in plan(graph)
        assert "vector index" in plan(graph, recall=0.5)
        text = text_of().replace("$v)", "$v, recall: $r)").replace("(16)) {", "(16), $r: F64?) {")
        vector = [0.0] * DIMENSION
        assert "recall 1" in graph.explain(text, {"v": vector, "r": None})
        assert "vector index" in graph.explain(text, {"v": vector, "r": 0.5})
        for wrong in (0.0, 1.5, -1.0):
            with pytest.raises(BadRequestError, match="above 0 and up to 1"):
                graph.query(text, {"v": vector, "r": wrong}).to_pylist()


def test_more_rows_than_were_measured_are_compared(worlds: dict[str, World], asks_index: None):
    world = worlds["normal"]
    with Graph.open(world.folder) as graph:
        assert "exact scan" in plan(graph, limit=5000)
        query = world.queries[0]
        assert ask(graph, query, limit=5000) == world.best(query, count=5000)


def test_without_room_in_memory_vectors_are_compared_as_they_are_read(
    worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
):
    """Both where few are left by a filter, and where all are compared."""
    world = worlds["sphere"]
    monkeypatch.setenv("OMNIGRAPH_COLUMN_CACHE_BYTES", "100000")
    with Graph.open(world.folder) as graph:
        for below in (*SHARES, 1000):
            assert ask(graph, world.queries[1], below=below) == world.best(world.queries[1], below)
        assert ask(graph, world.queries[1], recall=1) == world.best(world.queries[1])


# ---- the match around the ranked variable


def test_traversals_are_ranked_exactly_before_and_behind_the_candidates(copied: tuple[Graph, World]):
    graph, world = copied
    chosen = np.random.default_rng(9).permutation(ROWS)[:40]
    graph.mutate('query w() { insert Group { name: "few" } }')
    members = [{"id": f"in{n}", "src": name(int(n)), "dst": "few"} for n in chosen]
    append(graph, Member=members)
    few = np.zeros(ROWS, np.bool_)
    few[chosen] = True
    for query in world.queries[:5]:
        distances = np.sqrt(((world.vectors.astype(np.float64) - query.astype(np.float64)) ** 2).sum(axis=1))
        expected = [name(int(n)) for n in np.lexsort((np.arange(ROWS), distances)) if few[n]][:10]
        for pattern in ("$p: Point $p member $g", '$g: Group { name: "few" } $p member $g'):
            text = (
                f"query q($v: Vector({DIMENSION})) {{ match {{ {pattern} }} return {{ $p.slug as s }}"
                " order { nearest($p.vec, $v) } limit 10 }"
            )
            got = graph.query(text, {"v": query.tolist()}).to_pylist()
            assert [row["s"] for row in got] == expected


def test_both_arms_of_a_fusion_take_the_recall(worlds: dict[str, World], asks_index: None):
    world = worlds["normal"]
    text = (
        f"query q($v: Vector({DIMENSION}), $w: Vector({DIMENSION})) {{ match {{ $p: Point }} return {{ $p.slug as s }}"
        " order { rrf(nearest($p.vec, $v RECALL), nearest($p.vec, $w RECALL)) } limit 10 }"
    )
    params = {"v": world.queries[0].tolist(), "w": world.queries[1].tolist()}
    with Graph.open(world.folder) as graph:
        exact = graph.query(text.replace(" RECALL", ", recall: 1"), params).to_pylist()
        some = graph.query(text.replace(" RECALL", ", recall: 0.99"), params).to_pylist()
        shown = graph.explain(text.replace(" RECALL", ", recall: 0.99"), params)
    assert shown.count("vector index") == 2
    assert len({row["s"] for row in exact} & {row["s"] for row in some}) >= 8


# ---- after writes


def test_what_was_written_after_the_index_is_found(copied: tuple[Graph, World]):
    graph, world = copied
    query = world.queries[0]
    before = graph.snapshot().commit_id
    first, second, third = world.best(query, count=3)
    vector = json.dumps([float(x) for x in query])
    graph.create_branch("side")
    graph.mutate(f'query w() {{ insert Point {{ slug: "new", part: 0, vec: {vector} }} }}', branch="side")
    graph.mutate(f'query w() {{ delete Point where slug = "{first}" }}', branch="side")
    graph.mutate(f'query w() {{ update Point set {{ vec: null }} where slug = "{second}" }}', branch="side")
    assert "vector index" in plan(graph)
    got = ask(graph, query, branch="side")
    assert got[0] == "new"
    assert not {first, second} & set(got)
    assert third in got
    assert ask(graph, query)[:1] == [first]
    old = graph.query(text_of(), {"v": query.tolist()}, snapshot=before).to_pylist()
    assert first in [row["s"] for row in old]
    # Compared one by one, the same.
    assert ask(graph, query, branch="side", recall=1)[:2] == ["new", third]


def test_a_branch_asks_the_index_of_main_as_it_was_measured(copied: tuple[Graph, World]):
    graph, _ = copied
    graph.create_branch("side")
    graph.mutate('query w() { delete Point where slug = "p00001" }', branch="side")
    assert "vector index" in graph.explain(text_of(), branch="side")


# ---- what was measured


def kept(graph: Graph) -> list[Path]:
    return list((Path(graph.uri) / DERIVED_FOLDER).glob("nodes-*/recall-*"))


def test_it_is_measured_once_and_kept(worlds: dict[str, World], asks_index: None, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was measured again")

    monkeypatch.setattr(vector_search, "measure_recall", never)
    with Graph.open(worlds["normal"].folder) as graph:
        assert len(kept(graph)) == 1
        assert "vector index" in plan(graph)
        graph.ensure_indices()


def test_nothing_is_measured_where_every_vector_is_compared(tmp_path: Path):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        vectors = points("normal", 10_000, 4).tolist()
        append(graph, Point=[{"id": name(n), "slug": name(n), "part": 0, "vec": v} for n, v in enumerate(vectors)])
        graph.ensure_indices()
        assert kept(graph) == []


@each_case("how", ["torn", "other", "gone"])
def test_damage_means_exact_answers_until_it_is_measured_again(worlds: dict[str, World], tmp_path: Path, how: str):
    world = worlds["normal"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EXACT, "0")
        folder = shutil.copytree(world.folder, tmp_path / f"{how}.omni")
        (measured,) = folder.glob(f"{DERIVED_FOLDER}/nodes-*/recall-*")
        match how:
            case "torn":
                file = measured / "recalls.npy"
                file.write_bytes(file.read_bytes()[:-3] + b"xyz")
            case "other":
                (measured / "contents.json").write_text("{}", encoding="utf-8")
            case "gone":
                shutil.rmtree(measured)
        with Graph.open(folder) as graph:
            assert "the index is not measured" in plan(graph)
            assert ask(graph, world.queries[0]) == world.best(world.queries[0])
            found = findings(graph)
            assert [item.severity for item in found] == [Health.WARNING]
            assert "compares all vectors" in found[0].message
            graph.ensure_indices()
            assert "vector index" in plan(graph)
            assert findings(graph)[0].severity is Health.OK


# ---- doctor


def findings(graph: Graph) -> list[Any]:
    return [item for item in graph.doctor().findings if item.check == "recall"]


def test_the_doctor_measures_again(copied: tuple[Graph, World]):
    graph, _ = copied
    (finding,) = findings(graph)
    assert finding.severity is Health.OK
    assert "Point.vec" in finding.message


def test_the_doctor_tells_when_less_is_found_than_is_wanted(copied: tuple[Graph, World]):
    graph, _ = copied
    (measured,) = kept(graph)
    arrays = {file.stem: np.load(file) for file in measured.glob("*.npy")}
    promised = np.ones_like(arrays["recalls"])
    derived = graph._core.caches.derived
    derived.forget(measured.parent.name, measured.name)
    derived.save(measured.parent.name, measured.name, arrays | {"recalls": promised}, replaces=lambda _: False)
    (finding,) = findings(graph)
    assert finding.severity is Health.WARNING
    assert "0.95 are wanted" in finding.message
    assert "optimize" in (finding.action or "")


def test_the_doctor_measures_nothing_where_every_vector_is_compared(worlds: dict[str, World]):
    with Graph.open(worlds["normal"].folder) as graph:
        (finding,) = findings(graph)
    assert (finding.severity, finding.message) == (Health.OK, "every `nearest` compares all vectors")


def test_an_index_is_measured_again_when_the_number_of_rows_changed(copied: tuple[Graph, World]):
    graph, world = copied
    before = np.load(kept(graph)[0] / "rows.npy")
    graph.mutate("query w() { delete Point where part < 300 }")
    graph.ensure_indices()
    (measured,) = kept(graph)
    assert (int(before[0]), int(np.load(measured / "rows.npy")[0])) == (ROWS, int((world.parts >= 300).sum()))


# ---- language


def test_a_misplaced_recall_is_an_error(worlds: dict[str, World]):
    with Graph.open(worlds["normal"].folder) as graph:
        for call in ("nearest($p.vec, $v, recall: 2)", "nearest($p.vec, recall: 0.5)", "bm25($p.text, recall: 0.5)"):
            with pytest.raises(CompilerError):
                graph.query(text_of().replace("nearest($p.vec, $v)", call), {"v": [0.0] * DIMENSION})


def test_the_type_of_a_recall_follows_from_its_place(worlds: dict[str, World]):
    vector = json.dumps([float(x) for x in worlds["normal"].queries[0]])
    bare = f"match {{ $p: Point }} return {{ $p.slug as s }} order {{ nearest($p.vec, {vector}, recall: $r) }} limit 3"
    with Graph.open(worlds["normal"].folder) as graph:
        got = graph.query(bare, {"r": 1.0}).to_pylist()
    assert [row["s"] for row in got] == worlds["normal"].best(worlds["normal"].queries[0], count=3)
