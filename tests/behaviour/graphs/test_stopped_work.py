"""Bulk work that is stopped on the way, at every point where it looks: nothing is left, and the next write works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from omnigraph.core.budget import CancelSignal
from omnigraph.errors import BadRequestError, QueryCancelledError, QueryTimeoutError
from omnigraph.graph.graph import Graph
from omnigraph.spark import worker_choice
from support.loads import files_of
from support.stopping import stopped_everywhere

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String? @index }
node Place { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""


def lines(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


def person(name: str, age: int) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age, "bio": f"is {age}"}}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    people = [person(f"p{number}", number) for number in range(20)]
    edges = [{"edge": "Knows", "from": f"p{n}", "to": "p0", "data": {"since": n}} for n in range(9)]
    graph.load(lines(tmp_path, *people, *edges), mode="append", engine="local")
    return graph


def ages(graph: Graph, branch: str = "main") -> dict[str, int]:
    found = graph.query(
        "query q() { match { $p: Person } return { $p.name as n, $p.age as a } }", branch=branch
    )
    return {row["n"]: row["a"] for row in found.to_pylist()}


def diverge(graph: Graph, tmp_path: Path, target: str) -> None:
    """A branch with rows of every kind that a merge takes over, and a target that moved on."""
    graph.create_branch("review")
    if target != "main":
        graph.create_branch(target)
    graph.load(
        lines(tmp_path, person("p1", 101), person("new", 1)),
        mode="merge",
        branch="review",
        engine="local",
    )
    graph.mutate('query q() { delete Person where name = "p15" }', branch="review")
    graph.mutate('query q() { insert Place { name: "here" } }', branch=target)


# ---- every operation, at every look


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_load_leaves_nothing(graph: Graph, tmp_path: Path, mode: str) -> None:
    rows = [person("new", 1)] if mode == "append" else [person(f"p{n}", n + 100) for n in range(20)]
    path = lines(tmp_path, *rows)
    looks = stopped_everywhere(
        graph.uri, lambda signal: graph.load(path, mode=mode, engine="local", cancel=signal)
    )
    assert looks > 2
    assert ages(graph)["new" if mode == "append" else "p1"] == (1 if mode == "append" else 101)


def test_a_load_that_makes_its_branch_leaves_none(graph: Graph, tmp_path: Path) -> None:
    path = lines(tmp_path, person("new", 1))

    def load(signal: CancelSignal) -> None:
        assert graph.branches() == ["main"]
        graph.load(path, mode="merge", branch="draft", base="main", engine="local", cancel=signal)

    assert stopped_everywhere(graph.uri, load) > 2
    assert ages(graph, "draft")["new"] == 1


@pytest.mark.parametrize("target", ["main", "other"])
@pytest.mark.parametrize("small_rows", [None, 0], ids=["in memory", "in files"])
def test_a_merge_leaves_nothing(
    graph: Graph,
    tmp_path: Path,
    target: str,
    small_rows: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if small_rows is not None:
        monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", small_rows)
    diverge(graph, tmp_path, target)
    looks = stopped_everywhere(
        graph.uri, lambda signal: graph.merge("review", target, engine="local", cancel=signal)
    )
    assert looks > 5
    merged = ages(graph, target)
    assert (merged["p1"], merged["new"], "p15" in merged) == (101, 1, False)


def test_an_optimization_leaves_nothing(graph: Graph) -> None:
    for number in range(3):
        graph.mutate(f'query q() {{ insert Person {{ name: "x{number}", bio: "y" }} }}')
    before = ages(graph)
    looks = stopped_everywhere(
        graph.uri, lambda signal: graph.optimize(engine="local", cancel=signal)
    )
    assert looks > 3
    assert ages(graph) == before
    assert graph.pending_indexes() == []


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_an_index_build_leaves_nothing(graph: Graph, branch: str) -> None:
    if branch != "main":
        graph.create_branch(branch)
    looks = stopped_everywhere(
        graph.uri, lambda signal: graph.ensure_indices(branch, cancel=signal)
    )
    assert looks > 3
    assert graph.pending_indexes(branch) == []


@pytest.mark.parametrize("small_rows", [None, 0], ids=["in memory", "in files"])
def test_a_diff_leaves_nothing(
    graph: Graph, tmp_path: Path, small_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small_rows is not None:
        monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", small_rows)
    diverge(graph, tmp_path, "main")
    # Small answers are remembered, so every try needs a handle of its own.
    looks = stopped_everywhere(
        graph.uri,
        lambda signal: (
            Graph.open(graph.uri, read_only=True)
            .diff("main", "review", engine="local", cancel=signal)
            .close()
        ),
    )
    assert looks > 3


def test_an_export_leaves_nothing(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def export(signal: CancelSignal) -> None:
        assert list(folder.iterdir()) == []
        graph.export(folder / "rows.jsonl", engine="local", cancel=signal)

    assert stopped_everywhere(graph.uri, export) > 3
    assert (folder / "rows.jsonl").exists()


# ---- what stopped work says


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("load", "the load took longer than 1e-09 s and was stopped, nothing was written"),
        ("merge", "the merge took longer than 1e-09 s and was stopped, nothing was written"),
        ("optimize", "the optimization took longer"),
        ("ensure_indices", "the index build took longer"),
        ("diff", "the diff took longer"),
    ],
)
def test_the_time_of_bulk_work_is_bounded(
    graph: Graph, tmp_path: Path, name: str, sentence: str
) -> None:
    diverge(graph, tmp_path, "main")
    arguments: dict[str, tuple[Any, ...]] = {
        "load": (lines(tmp_path, person("new", 1)),),
        "merge": ("review",),
        "diff": ("main", "review"),
    }
    options = {"mode": "merge", "engine": "local"} if name == "load" else {}
    before = files_of(Path(graph.uri))
    with pytest.raises(QueryTimeoutError) as stopped:
        getattr(graph, name)(*arguments.get(name, ()), timeout_s=1e-9, **options)
    assert sentence in stopped.value.message
    assert "--timeout" in stopped.value.message
    assert files_of(Path(graph.uri)) == before
    with pytest.raises(BadRequestError, match="timeout_s is 0"):
        getattr(graph, name)(*arguments.get(name, ()), timeout_s=0, **options)


def test_a_commit_that_has_begun_is_finished(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.commit import attempt

    stop = Event()
    write_sidecar = attempt.write_sidecar

    def write_and_stop(*arguments: Any) -> None:
        write_sidecar(*arguments)
        stop.set()

    monkeypatch.setattr(attempt, "write_sidecar", write_and_stop)
    diverge(graph, tmp_path, "main")
    stop.clear()
    assert graph.merge("review", cancel=stop).commit is not None
    stop.clear()
    path = lines(tmp_path, person("late", 3))
    assert graph.load(path, mode="append", engine="local", cancel=stop).commit is not None
    stop.clear()
    assert graph.optimize(cancel=stop).commit is not None
    assert ages(graph)["late"] == 3


@pytest.mark.parametrize("name", ["load", "merge", "optimize"])
def test_an_interrupt_says_that_nothing_was_written(
    graph: Graph, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.commit import transaction
    from omnigraph.graph import branches
    from omnigraph.maintenance import optimize

    def interrupt(*_arguments: Any, **_rest: Any) -> None:
        raise KeyboardInterrupt

    diverge(graph, tmp_path, "main")
    before = files_of(Path(graph.uri))
    monkeypatch.setattr(transaction, "run_phases", interrupt)
    monkeypatch.setattr(branches.MergeJob, "check", interrupt)
    monkeypatch.setattr(optimize, "plan_builds", interrupt)
    path = lines(tmp_path, person("new", 1))
    work: dict[str, Callable[[], object]] = {
        "load": lambda: graph.load(path, mode="merge", engine="local"),
        "merge": lambda: graph.merge("review"),
        "optimize": graph.optimize,
    }
    with pytest.raises(KeyboardInterrupt) as interrupted:
        work[name]()
    assert interrupted.value.__notes__ == ["nothing was written"]
    assert files_of(Path(graph.uri)) == before


def test_work_without_bounds_looks_at_nothing(graph: Graph) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(QueryCancelledError):
        graph.optimize(cancel=stop)
    # The signal of one call is not that of the next.
    assert graph.optimize().commit is not None
