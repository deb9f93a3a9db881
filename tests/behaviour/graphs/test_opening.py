"""Creating and opening: every way in which a root can be wrong has its own clear answer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.core.budget import CancelSignal
from omnigraph.errors import (
    AlreadyInitializedError,
    BadRequestError,
    CompilerError,
    InitializationClaimedError,
    InputFileError,
    NotFoundError,
    OmniError,
    QueryCancelledError,
    QueryTimeoutError,
    StorageError,
    StorageFailure,
    StorageFormatError,
)
from omnigraph.graph.graph import Graph
from omnigraph.spark import worker_choice
from omnigraph.storage.locks import held_file
from support.graphs import ids_of, new_graph, run, stopped_everywhere
from support.loads import files_of
from support.subtests import each_case

SCHEMA = "node N { k: String @key }"
INSERT = 'insert N { k: "a" }'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    graph = new_graph(tmp_path, SCHEMA)
    run(graph, INSERT)
    return Path(graph.uri)


def restamp(root: Path, value: str | None) -> None:
    """Give the catalog another storage-format stamp."""
    dataset = lance.dataset(str(root / "__manifest"))
    table = dataset.to_table()
    metadata = {} if value is None else {"omnigraph:internal_schema_version": value}
    lance.write_dataset(table.replace_schema_metadata(metadata), str(root / "__manifest"), mode="overwrite")


# ---- opening


@pytest.mark.parametrize("read_only", [True, False])
def test_opening_nothing_says_so_and_leaves_no_trace(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty", "missing/below"):
        with pytest.raises(NotFoundError, match=r"there is no graph at .*omnigraph init"):
            Graph.open(tmp_path / name, read_only=read_only)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty"]


def test_opening_a_file_says_that_there_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(OmniError, match="there is no graph at"):
        Graph.open(tmp_path / "file")


@pytest.mark.parametrize(("stamp", "advice"), [("5", "upgrade"), ("99", "upgrade"), ("3", "export"), (None, "export")])
def test_another_storage_format_is_refused_with_advice(root: Path, stamp: str | None, advice: str) -> None:
    restamp(root, stamp)
    for read_only in (True, False):
        with pytest.raises(StorageFormatError, match=advice) as caught:
            Graph.open(root, read_only=read_only)
        assert caught.value.supported == 4


@pytest.mark.parametrize("size", [0, 10])
def test_a_truncated_catalog_is_damaged(root: Path, size: int) -> None:
    for path in (root / "__manifest" / "_versions").iterdir():
        os.truncate(path, size)
    with pytest.raises(StorageError, match="damaged") as caught:
        Graph.open(root)
    assert caught.value.failure is StorageFailure.PERMANENT


def test_a_catalog_without_its_data_files_is_a_storage_failure(root: Path) -> None:
    shutil.rmtree(root / "__manifest" / "data")
    with pytest.raises(StorageError):
        Graph.open(root)


def test_a_lost_version_at_the_head_is_damage_and_was_not_cleaned_up(root: Path) -> None:
    with Graph.open(root) as graph:
        pin = graph.snapshot().pins["node:N"]
    (root / pin.location / "_versions" / f"{2**64 - 1 - pin.version}.manifest").unlink()
    with Graph.open(root, read_only=True) as graph, pytest.raises(StorageError, match="not exist"):
        graph.query("query q() { match { $n: N } return { $n.k as k } }").to_pylist()


def test_a_missing_dataset_is_reported_and_nothing_is_made_up(root: Path) -> None:
    shutil.rmtree(root / "nodes")
    graph = Graph.open(root)
    with pytest.raises(StorageError) as caught:
        run(graph, INSERT)
    assert caught.value.failure is StorageFailure.NOT_FOUND
    assert "nodes/" in caught.value.message
    assert not (root / "nodes").exists()


@pytest.mark.parametrize("name", ["_schema.pg", "_schema.ir.json", "__schema_state.json"])
def test_a_missing_schema_file_is_not_found(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(NotFoundError, match=name):
        Graph.open(root)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("_schema.pg", b"node N { k: String @key extra: I32? }"),
        ("_schema.pg", b"node M { k: String @key }"),
        ("_schema.pg", b"not a schema"),
        ("_schema.pg", b""),
        ("_schema.pg", b"\xff\xfe"),
        ("_schema.ir.json", b""),
        ("_schema.ir.json", b"{"),
        ("_schema.ir.json", b"[]"),
        ("_schema.ir.json", b"{}"),
        ("_schema.ir.json", b"\xff"),
    ],
)
def test_an_edited_schema_file_is_refused_by_name(root: Path, name: str, content: bytes) -> None:
    (root / name).write_bytes(content)
    with pytest.raises(OmniError, match="schema"):
        Graph.open(root)


def test_a_comment_in_the_schema_source_changes_nothing(root: Path) -> None:
    text = (root / "_schema.pg").read_text()
    (root / "_schema.pg").write_text(f"// by hand\n{text}")
    assert ids_of(Graph.open(root), "node:N") == {"a"}


def test_a_root_that_cannot_be_written_fails_with_its_reason(root: Path) -> None:
    graph = Graph.open(root)
    # A directory where the lock file should be: works for root users too.
    (root / "__lock").unlink(missing_ok=True)
    (root / "__lock").mkdir()
    with pytest.raises(StorageError, match="__lock"):
        run(graph, 'insert N { k: "b" }')
    (root / "__lock").rmdir()
    run(graph, 'insert N { k: "b" }')
    assert ids_of(graph, "node:N") == {"a", "b"}


def test_a_sidecar_folder_that_is_a_file_fails_and_nothing_is_visible(root: Path) -> None:
    graph = Graph.open(root)
    shutil.rmtree(root / "__recovery", ignore_errors=True)
    (root / "__recovery").write_text("")
    with pytest.raises(StorageError, match="__recovery"):
        run(graph, 'insert N { k: "b" }')
    (root / "__recovery").unlink()
    assert ids_of(graph, "node:N") == {"a"}
    run(graph, 'insert N { k: "b" }')
    assert ids_of(graph, "node:N") == {"a", "b"}


@each_case(
    ("uri", "words"),
    [
        ("", "no graph is named"),
        ("   ", "no graph is named"),
        ("http://host/graph", "http:// is not supported"),
        ("gs://bucket/graph", "gs:// is not supported"),
        ("s3://", "s3://bucket/prefix"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("s3://bucket", "s3://bucket/prefix"),
        ("s3://bucket/", "s3://bucket/prefix"),
        ("s3://key:secret@bucket/graph", "AWS_"),
        ("file://host/path", "file:///path"),
        ("file://", "file:///path"),
    ],
)
def test_a_bad_uri_is_refused_without_showing_secrets(uri: str, words: str) -> None:
    for act in (lambda: Graph.open(uri), lambda: Graph.init(uri, SCHEMA)):
        with pytest.raises(BadRequestError) as caught:
            act()
        assert words in caught.value.message
        assert "secret" not in caught.value.message


def test_a_file_uri_and_a_path_are_the_same_graph(root: Path) -> None:
    assert ids_of(Graph.open(f"file://{root}"), "node:N") == {"a"}
    assert Graph.open(f"{root}/").uri == str(root)


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c%20d é'"
    graph = new_graph(folder, SCHEMA)
    run(graph, INSERT)
    graph.create_branch("side")
    run(graph, 'insert N { k: "b" }', "side")
    again = Graph.open(graph.uri)
    assert (ids_of(again, "node:N"), ids_of(again, "node:N", "side")) == ({"a"}, {"a", "b"})


# ---- creating


@pytest.mark.parametrize("force", [False, True])
def test_a_graph_is_never_created_twice(root: Path, force: bool) -> None:
    with pytest.raises(AlreadyInitializedError, match="it holds a graph of"):
        Graph.init(root, "node Other { k: String @key }", force=force)
    assert ids_of(Graph.open(root), "node:N") == {"a"}


@pytest.mark.parametrize("force", [False, True])
def test_data_of_a_graph_that_lost_its_catalog_is_never_replaced(root: Path, force: bool) -> None:
    shutil.rmtree(root / "__manifest")
    before = sorted(root.rglob("*"))
    with pytest.raises(AlreadyInitializedError, match="restore the manifest"):
        Graph.init(root, SCHEMA, force=force)
    assert sorted(root.rglob("*")) == before


def test_orphan_schema_files_are_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "_schema.pg").write_text("node Old { k: String @key }")
    with pytest.raises(AlreadyInitializedError, match="force"):
        Graph.init(tmp_path, SCHEMA)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_schema.pg"]
    graph = Graph.init(tmp_path, SCHEMA, force=True)
    assert run(graph, INSERT).affected_nodes == 1
    assert Graph.open(tmp_path).schema == SCHEMA


@pytest.mark.parametrize("schema", ["node N {", "node N { k: Strng }", "node N { } node N { }"])
def test_a_bad_schema_creates_nothing(tmp_path: Path, schema: str) -> None:
    with pytest.raises(CompilerError):
        Graph.init(tmp_path / "g", schema)
    assert not (tmp_path / "g").exists()


def test_a_schema_file_that_is_missing_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"nope\.pg"):
        Graph.init(tmp_path / "g", "nope.pg")
    assert not (tmp_path / "g").exists()


def test_a_schema_is_read_from_a_path(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    for name, schema in (("a", tmp_path / "s.pg"), ("b", str(tmp_path / "s.pg"))):
        assert Graph.init(tmp_path / name, schema).schema == SCHEMA


def test_a_claimed_root_is_left_to_its_owner(tmp_path: Path) -> None:
    with held_file(tmp_path / "__init_claim.json"):
        with pytest.raises(InitializationClaimedError, match="another process is creating"):
            Graph.init(tmp_path, SCHEMA)
        assert [path.name for path in tmp_path.iterdir()] == ["__init_claim.json"]
    assert run(Graph.init(tmp_path, SCHEMA), INSERT).affected_nodes == 1


def test_a_failed_init_gives_its_claim_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("init_after_claim", "init_after_tables", "init_after_schema"):
        monkeypatch.setenv("OMNIGRAPH_FAILPOINT", f"{place}=raise")
        with pytest.raises(RuntimeError):
            Graph.init(tmp_path / place, SCHEMA)
        monkeypatch.delenv("OMNIGRAPH_FAILPOINT")
        assert not (tmp_path / place / "__init_claim.json").exists(), place
        graph = Graph.init(tmp_path / place, SCHEMA, force=True)
        assert run(graph, INSERT).affected_nodes == 1


def test_init_below_a_file_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file", "file/below"):
        with pytest.raises(StorageError):
            Graph.init(tmp_path / name, SCHEMA)
    assert (tmp_path / "file").read_text() == "x"


def test_a_new_graph_holds_every_type_empty_and_one_commit(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA + " edge E: N -> N", actor="me")
    assert {key: pin.row_count for key, pin in graph.snapshot().pins.items()} == {"node:N": 0, "edge:E": 0}
    (genesis,) = graph.commits()
    assert (genesis.actor, genesis.parent_id, genesis.graph_version) == ("me", None, 1)
    assert graph.branches() == ["main"]
    assert graph.recoveries() == []
    for pin in graph.snapshot().pins.values():
        dataset = lance.dataset(f"{graph.uri}/{pin.location}")
        assert dataset.schema.field("id").type == pa.utf8()
        assert dataset.has_stable_row_ids


# ---- Bulk work that is stopped on the way, at every point where it looks: nothing is left, and the next write works


STOPPED_WORK_SCHEMA = """
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
    graph = Graph.init(tmp_path / "g.omni", STOPPED_WORK_SCHEMA)
    people = [person(f"p{number}", number) for number in range(20)]
    edges = [{"edge": "Knows", "from": f"p{n}", "to": "p0", "data": {"since": n}} for n in range(9)]
    graph.load(lines(tmp_path, *people, *edges), mode="append", engine="local")
    return graph


def ages(graph: Graph, branch: str = "main") -> dict[str, int]:
    found = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as a } }", branch=branch)
    return {row["n"]: row["a"] for row in found.to_pylist()}


def diverge(graph: Graph, tmp_path: Path, target: str) -> None:
    """A branch with rows of every kind that a merge takes over, and a target that moved on."""
    graph.create_branch("review")
    if target != "main":
        graph.create_branch(target)
    graph.load(lines(tmp_path, person("p1", 101), person("new", 1)), mode="merge", branch="review", engine="local")
    graph.mutate('query q() { delete Person where name = "p15" }', branch="review")
    graph.mutate('query q() { insert Place { name: "here" } }', branch=target)


# ---- every operation, at every look


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_load_leaves_nothing(graph: Graph, tmp_path: Path, mode: str) -> None:
    rows = [person("new", 1)] if mode == "append" else [person(f"p{n}", n + 100) for n in range(20)]
    path = lines(tmp_path, *rows)
    looks = stopped_everywhere(graph.uri, lambda signal: graph.load(path, mode=mode, engine="local", cancel=signal))
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
    graph: Graph, tmp_path: Path, target: str, small_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small_rows is not None:
        monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", small_rows)
    diverge(graph, tmp_path, target)
    looks = stopped_everywhere(graph.uri, lambda signal: graph.merge("review", target, engine="local", cancel=signal))
    assert looks > 5
    merged = ages(graph, target)
    assert (merged["p1"], merged["new"], "p15" in merged) == (101, 1, False)


def test_an_optimization_leaves_nothing(graph: Graph) -> None:
    for number in range(3):
        graph.mutate(f'query q() {{ insert Person {{ name: "x{number}", bio: "y" }} }}')
    before = ages(graph)
    looks = stopped_everywhere(graph.uri, lambda signal: graph.optimize(engine="local", cancel=signal))
    assert looks > 3
    assert ages(graph) == before
    assert graph.pending_indexes() == []


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_an_index_build_leaves_nothing(graph: Graph, branch: str) -> None:
    if branch != "main":
        graph.create_branch(branch)
    looks = stopped_everywhere(graph.uri, lambda signal: graph.ensure_indices(branch, cancel=signal))
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
            Graph.open(graph.uri, read_only=True).diff("main", "review", engine="local", cancel=signal).close()
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
def test_the_time_of_bulk_work_is_bounded(graph: Graph, tmp_path: Path, name: str, sentence: str) -> None:
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


def test_a_commit_that_has_begun_is_finished(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
