"""What the query benchmark asks: workloads, their inputs, their targets, and when two answers are the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from comparison import edge_questions
from comparison.contract import SEEDS, TOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from comparison.contract import Inputs
    from graphs.folder import Dataset

    Rows = Sequence[Sequence[object]]

_SEED = 7
_STARTS = 20
_SEARCHES = 10


class Sameness(StrEnum):
    """When two engines gave the same answer."""

    #: The same rows in the same order.
    ORDERED = "ordered"
    #: The same rows in any order.
    SET = "set"
    #: The same rows in any order, floats within a billionth.
    CLOSE = "close"
    #: Approximate ranking: the overlap of the first columns is reported, nothing is required.
    RANKED = "ranked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """At most `factor` times the fastest of these engines."""

    factor: float
    baselines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One question, asked to every engine with the same inputs."""

    name: str
    title: str
    #: The members of one input; empty for a question about the whole graph.
    takes: tuple[str, ...]
    sameness: Sameness
    target: Target | None


_LANCE = Target(factor=1.5, baselines=("lance",))
_LADYBUG = Target(factor=1.5, baselines=("ladybug",))
_LADYBUG_TWICE = Target(factor=2.0, baselines=("ladybug",))
_BEST_TWICE = Target(factor=2.0, baselines=("ladybug", "duckdb", "lancedb"))
_BEST_HALF = Target(factor=0.5, baselines=("ladybug", "duckdb"))
_DUCKDB = Target(factor=0.7, baselines=("duckdb",))
_LANCEDB = Target(factor=1.3, baselines=("lancedb",))


def _graph_peers(factor: float) -> Target:
    return Target(factor=factor, baselines=("ladybug", "duckdb"))


def _workload(name: str, title: str, takes: str, sameness: Sameness, target: Target | None) -> Workload:
    return Workload(name=name, title=title, takes=tuple(takes.split()), sameness=sameness, target=target)


WORKLOADS = (
    _workload("point", "person by key, 3 properties", "pid", Sameness.SET, _LANCE),
    *(_workload(f"walk-{n}", f"count of {n}-hop walks", "pid", Sameness.SET, _LADYBUG) for n in (1, 2, 3)),
    *(_workload(f"reach-{n}", f"count of persons in 1..{n} hops", "pid", Sameness.SET, _LADYBUG) for n in (1, 2, 3)),
    *(_workload(f"neighbours-{n}", f"keys of persons in 1..{n} hops", "pid", Sameness.SET, _LADYBUG) for n in (1, 2)),
    _workload("top-degree", "top-10 out-degree", "", Sameness.ORDERED, _BEST_HALF),
    _workload("two-paths", "count of all two-paths", "", Sameness.SET, _LADYBUG_TWICE),
    _workload("anti-join", "persons without acquaintances", "", Sameness.SET, _BEST_TWICE),
    *(
        _workload(name, title, "", Sameness.CLOSE if name in edge_questions.SUMS else Sameness.SET, _DUCKDB)
        for name, title in edge_questions.TITLES.items()
    ),
    _workload("triangles", "count of triangles", "", Sameness.SET, _graph_peers(0.15)),
    _workload("triangles-ends", "triangles, two ends filtered", "", Sameness.SET, _graph_peers(0.15)),
    _workload("triangles-rows", "triangles as rows", "", Sameness.SET, _graph_peers(0.7)),
    _workload("four-cycle", f"four-cycles of {SEEDS} persons", "", Sameness.SET, _graph_peers(0.1)),
    _workload("mutual", "edges in both directions", "", Sameness.SET, _graph_peers(0.3)),
    _workload("fan-out", "top-10 by two-paths", "", Sameness.ORDERED, _graph_peers(0.7)),
    _workload("spread", f"persons 1..3 hops from {SEEDS}", "", Sameness.SET, _graph_peers(0.2)),
    _workload("spread-each", f"persons 1..3 hops of {SEEDS} each", "", Sameness.SET, _graph_peers(0.2)),
    _workload("bm25", "BM25 top-10", "text", Sameness.RANKED, _LANCEDB),
    _workload("vector", "vector top-10", "vector", Sameness.RANKED, _LANCEDB),
    _workload("vector-post", "vector top-10 of posts", "vector", Sameness.RANKED, _LANCEDB),
    _workload("rrf", "BM25 and vector fused, top-10", "vector text", Sameness.RANKED, _LANCEDB),
    _workload("vector-hops", "two hops after vector search", "vector", Sameness.RANKED, None),
)


class SocialInputs:
    """Inputs drawn from a social graph, the same in every run."""

    def __init__(self, dataset: Dataset) -> None:
        rng = np.random.default_rng(_SEED)
        sources = pq.read_table(dataset.edge_path("Knows"), columns=["from"])["from"].to_numpy()
        columns = ["mid", "kind", "content", "embedding"]
        messages = pq.read_table(dataset.node_path("Message"), columns=columns)
        self._vectors = messages["embedding"].combine_chunks().flatten().to_numpy()
        self._vectors = self._vectors.reshape(messages.num_rows, -1)
        self._is_post = np.array(messages["kind"].to_pylist()) == "post"
        self._starts = [{"pid": pid} for pid in persons_of_mixed_degree(sources)]
        self._searches = [
            {"text": " ".join(messages["content"][row].as_py().split()[:3]), "vector": near(rng, self._vectors[row])}
            for row in rng.integers(0, messages.num_rows, _SEARCHES).tolist()
        ]

    def of(self, workload: Workload) -> list[Inputs]:
        """The inputs of a workload; one empty input when it takes none."""
        if not workload.takes:
            return [{}]
        known = self._starts if workload.takes == ("pid",) else self._searches
        return [{name: item[name] for name in workload.takes} for item in known]

    def exact(self, workload: Workload) -> list[Rows] | None:
        """The right answers of a vector search, found by brute force; None for other workloads."""
        match workload.name:
            case "vector":
                rows = np.arange(len(self._vectors))
            case "vector-post":
                rows = np.flatnonzero(self._is_post)
            case _:
                return None
        candidates = self._vectors[rows]
        answers: list[Rows] = []
        for item in self._searches:
            distance = ((candidates - np.float32(item["vector"])) ** 2).sum(axis=1)
            nearest = rows[np.argsort(distance, kind="stable")[:TOP]]
            answers.append([[mid] for mid in nearest.tolist()])
        return answers


def persons_of_mixed_degree(sources: np.ndarray) -> list[int]:
    """Persons at even steps through the order by out-degree, without those who know nobody."""
    degree = np.bincount(sources)
    order = np.argsort(degree, kind="stable")
    order = order[degree[order] > 0]
    places = np.linspace(0.02, 0.998, _STARTS) * (len(order) - 1)
    return order[places.astype(int)].tolist()


def near(rng: np.random.Generator, vector: np.ndarray) -> list[float]:
    """A unit vector close to another one."""
    moved = vector + 0.05 * rng.standard_normal(len(vector))
    return np.float32(moved / np.linalg.norm(moved)).tolist()


def is_same(sameness: Sameness, left: Sequence[Rows], right: Sequence[Rows]) -> bool:
    """Whether two lists of answers say the same."""
    if sameness is Sameness.SET:
        return [sorted(rows) for rows in left] == [sorted(rows) for rows in right]
    if sameness is Sameness.CLOSE:
        pairs = list(zip(left, right, strict=True))
        return all(len(mine) == len(theirs) for mine, theirs in pairs) and all(
            is_close(mine, theirs)
            for one, other in pairs
            for mine, theirs in zip(sorted(one), sorted(other), strict=True)
        )
    return list(left) == list(right)


def is_close(mine: Sequence[object], theirs: Sequence[object]) -> bool:
    """Whether two rows are equal but for the last digits of floats."""
    return len(mine) == len(theirs) and all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(mine, theirs, strict=True)
    )


def overlap(left: Sequence[Rows], right: Sequence[Rows]) -> float:
    """The mean share of rows that two rankings have in common, by their first column."""
    shares = []
    for mine, theirs in zip(left, right, strict=True):
        a, b = {row[0] for row in mine}, {row[0] for row in theirs}
        shares.append(len(a & b) / max(len(a), len(b), 1))
    return sum(shares) / len(shares)
