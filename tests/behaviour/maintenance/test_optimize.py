"""Optimize: fewer fragments, complete indexes, one commit, and every answer as before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance import LanceOperation
from lance.dataset import Transaction as LanceTransaction

from omnigraph.commit.environment import GraphSettings
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import Transaction
from omnigraph.errors import (
    BadRequestError,
    ConflictError,
    ExpectedVersionMismatchError,
    RecoveryRequiredError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from omnigraph.maintenance import optimize as optimizing
from omnigraph.storage.datasets.indexes import list_indexes
from omnigraph.storage.datasets.staged import StagedWrite
from omnigraph.storage.manifest_table import ManifestView
from support.races.jobs import overtaken
from support.worn_graphs import (
    CITES,
    DOC,
    add,
    answers,
    change,
    cite,
    dataset,
    drop,
    fragments,
    new_graph,
    one_by_one,
    run,
    stored,
    worn_graph,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("_few_vectors")


@pytest.mark.parametrize("indexed", [False, True])
def test_no_row_and_no_answer_changes(tmp_path: Path, indexed: bool) -> None:
    graph = worn_graph(tmp_path, indexed=indexed)
    before = answers(graph), stored(graph, DOC), stored(graph, CITES)
    report = graph.optimize(actor="act-night")
    assert report.commit is not None
    assert (report.commit.kind, report.commit.actor) == ("optimize", "act-night")
    assert (answers(graph), stored(graph, DOC), stored(graph, CITES)) == before
    with Graph.open(graph.uri, read_only=True) as reader:
        assert answers(reader) == before[0]
    assert fragments(graph, DOC) == fragments(graph, CITES) == 1


def test_every_index_covers_every_row_afterwards(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    graph.optimize()
    assert graph.pending_indexes() == []
    for key, names in ((DOC, {"vec_vector", "body_btree", "id_btree"}), (CITES, {"src_btree"})):
        known = list_indexes(graph._core.open_table(graph.snapshot().pins[key]))
        assert names <= known.keys()
        for coverage in known.values():
            assert len(coverage.covered_fragments) == 1
            assert not coverage.missing_fragments | coverage.lost_fragments


def test_the_report_names_what_was_done(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    before = fragments(graph, DOC), fragments(graph, CITES)
    body = graph.optimize().to_json()
    head = graph.snapshot()
    assert body["branch"] == "main"
    assert body["graph_commit_id"] == head.commit_id
    cites, docs = body["datasets"]
    assert (cites["type_key"], docs["type_key"]) == (CITES, DOC)
    assert (docs["fragments_removed"], cites["fragments_removed"]) == before
    assert (docs["fragments_added"], cites["fragments_added"]) == (1, 1)
    assert {"slug_btree", "body_btree", "vec_vector"} <= set(docs["built_indexes"])
    for item in (cites, docs):
        assert item["committed"] is True
        assert item["skipped"] is None
        assert item["published_dataset_version"] == head.pins[item["type_key"]].version
        assert item["lance_head_version"] == item["published_dataset_version"]
        assert item["pending_indexes"] == []
    assert body["manifest"]["fragments_added"] == 1


def test_a_second_run_commits_nothing(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    graph.optimize()
    state = graph._core.environment.manifest.state()
    again = graph.optimize()
    assert again.commit is None
    assert not any(table.committed or table.fragments_removed for table in again.tables)
    assert graph._core.environment.manifest.state() == state


def test_an_empty_graph_is_optimal(tmp_path: Path) -> None:
    assert new_graph(tmp_path).optimize().commit is None


def test_what_waits_for_vectors_is_pending(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    run(graph, 'insert Doc { slug: "a" }')
    (docs,) = [table for table in graph.optimize().tables if table.type_key == DOC]
    assert [(item.property, item.reason) for item in docs.pending_indexes] == [("vec", "no row has a vector yet")]


def test_blobs_stay_and_deleted_rows_go(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    text = "query w($s: String, $b: Blob) { insert Doc { slug: $s, scan: $b } }"
    for name in ("a", "b", "c"):
        graph.mutate(text, {"s": name, "b": "base64:" + "QUJD" * 30_000})
    run(graph, 'delete Doc where slug = "b"')
    before = stored(graph, DOC)
    graph.optimize()
    assert stored(graph, DOC) == before
    (fragment,) = dataset(graph, DOC).get_fragments()
    assert (fragment.metadata.num_deletions, fragment.metadata.physical_rows) == (0, 2)


def test_the_past_and_the_branches_read_as_before(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    graph.create_branch("dev")
    run(graph, add(40), branch="dev")
    commits = graph.commits()
    past = {commit.commit_id: answers(graph, snapshot=commit.commit_id) for commit in commits[:4]}
    dev = answers(graph, "dev")
    made = graph.optimize().commit
    assert made is not None
    assert graph.commits() == [made, *commits]
    for commit_id, found in past.items():
        assert answers(graph, snapshot=commit_id) == found
    assert answers(graph, "dev") == dev
    assert graph.diff(commits[0].commit_id, made.commit_id).changes == []
    assert graph.merge("dev").outcome == "merged"
    assert "d40" in "".join(answers(graph)["all"])


def test_the_catalog_is_folded_and_its_history_stays(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    reader = Graph.open(graph.uri, read_only=True)
    before = answers(reader)
    one_by_one(graph, [add(number) for number in range(25)])
    known = graph.commits()
    report = graph.optimize()
    catalog = lance.dataset(f"{graph.uri}/__manifest")
    assert len(catalog.get_fragments()) == 1
    assert len(catalog.versions()) <= 10
    assert report.catalog.fragments_removed > 20
    assert report.catalog.versions_removed > 10
    assert graph.commits()[1:] == known
    oldest = known[-1].commit_id
    assert answers(reader, snapshot=oldest) == before
    assert len(answers(reader)["all"]) == 25


def test_a_reader_whose_view_was_removed_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = worn_graph(tmp_path)
    known = graph._core.environment.manifest.commits()
    failures = iter([True, False])
    read_rows = ManifestView.read_rows

    def removed_once(view: ManifestView, object_type: str) -> object:
        if next(failures, False):
            raise StorageError("the file is gone")
        return read_rows(view, object_type)

    monkeypatch.setattr(ManifestView, "read_rows", removed_once)
    monkeypatch.setattr(ManifestView, "is_current", lambda _: False)
    with Graph.open(graph.uri, read_only=True) as reader:
        assert reader._core.environment.manifest.commits() == known


def test_a_damaged_catalog_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = new_graph(tmp_path)
    reads = []

    def damaged(_: ManifestView, object_type: str) -> object:
        reads.append(object_type)
        raise StorageError("damaged")

    monkeypatch.setattr(ManifestView, "read_rows", damaged)
    with pytest.raises(StorageError, match="damaged"):
        graph.commits()
    assert len(reads) == 1


# ---- drift


def test_a_table_with_drift_is_skipped_and_the_others_are_not(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    dataset(graph, DOC).delete("slug = 'd1'")
    rows = stored(graph, DOC)
    report = graph.optimize()
    by_key = {table.type_key: table for table in report.tables}
    assert by_key[DOC].skipped == "drift_needs_repair"
    assert by_key[DOC].lance_head_version == by_key[DOC].published_dataset_version + 1
    assert not by_key[DOC].committed
    assert by_key[CITES].committed
    assert stored(graph, DOC) == rows


def test_an_unreadable_sidecar_stops_the_run(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    folder = tmp_path / "g.omni" / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / "01J00000000000000000000000.json").write_text("?")
    state = graph._core.environment.manifest.state()
    with pytest.raises(RecoveryRequiredError):
        graph.optimize()
    assert graph._core.environment.manifest.state() == state


def test_a_reader_optimizes_nothing(tmp_path: Path) -> None:
    uri = worn_graph(tmp_path).uri
    with Graph.open(uri, read_only=True) as reader, pytest.raises(BadRequestError):
        reader.optimize()


# ---- races


def test_a_table_that_a_writer_moved_is_prepared_again(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    late = overtaken(graph, lambda other: run(other, add(50)))
    report = late.optimize()
    assert report.commit is not None
    assert set(report.commit.tables) == {DOC, CITES}
    assert fragments(graph, DOC) == 1
    assert "d50" in "".join(answers(graph)["all"])
    assert graph.optimize().commit is None


def test_a_table_that_keeps_moving_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "POLICY", replace(optimizing.POLICY, tries=2, outside=1))
    monkeypatch.setattr("omnigraph.maintenance.optimize.WINDOW_ROWS", 0)
    graph = worn_graph(tmp_path)
    late = overtaken(graph, lambda other: run(other, add(50)))
    report = late.optimize()
    by_key = {table.type_key: table for table in report.tables}
    assert (by_key[DOC].skipped, by_key[DOC].committed) == ("moved", False)
    assert by_key[CITES].committed
    assert report.commit is not None
    assert report.commit.tables == (CITES,)


@pytest.mark.parametrize("statement", [change(1, 2030), drop(1), add(1, 2030), cite(1, 2)])
def test_a_writer_that_lost_to_an_optimize_is_prepared_again(tmp_path: Path, statement: str) -> None:
    graph = worn_graph(tmp_path)
    late = overtaken(graph, lambda other: other.optimize())
    seen = graph.snapshot().commit_id
    receipt = run(late, statement, if_commit=seen)
    assert receipt.commit is not None
    assert [commit.kind for commit in graph.commits()][:2] == ["mutation", "optimize"]


def test_an_update_that_lost_to_a_write_and_an_optimize_is_a_conflict(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)

    def overtake(other: Graph) -> None:
        run(other, change(1, 2031))
        other.optimize()

    late = overtaken(graph, overtake)
    with pytest.raises(ExpectedVersionMismatchError):
        run(late, change(1, 2030))


def test_an_overwrite_that_lost_to_an_optimize_is_prepared_again(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    lines = tmp_path / "new.jsonl"
    lines.write_text('{"type": "Doc", "data": {"slug": "only"}}\n{"edge": "Cites", "from": "only", "to": "only"}')
    late = overtaken(graph, lambda other: other.optimize())
    late.load(lines, mode="overwrite", engine="local")
    assert len(answers(graph)["all"]) == 1


def test_writers_a_reader_and_an_optimizer_get_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FOLD_FRAGMENTS", "3")
    monkeypatch.setattr(optimizing, "POLICY", replace(optimizing.POLICY, tries=3, outside=2))
    uri = worn_graph(tmp_path).uri
    before = len(answers(Graph.open(uri))["all"])
    writing = Event()
    writing.set()

    def insert(first: int) -> None:
        with Graph.open(uri) as graph:
            one_by_one(graph, [add(number) for number in range(first, first + 5)])

    def optimize() -> int:
        with Graph.open(uri) as graph:
            return sum(graph.optimize().commit is not None for _ in range(2))

    def read() -> list[int]:
        counts = []
        with Graph.open(uri, read_only=True) as graph:
            while not counts or (writing.is_set() and len(counts) < 40):
                counts.append(len(graph.query(ALL).to_pylist()))
        return counts

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        writers = [pool.submit(insert, 100), pool.submit(insert, 200)]
        optimizer = pool.submit(optimize)
        try:
            for writer in writers:
                writer.result()
            assert optimizer.result() >= 1
        finally:
            writing.clear()
        counts = reader.result()
    assert counts == sorted(counts), "no row is ever missing"
    with Graph.open(uri) as graph:
        assert len(answers(graph)["all"]) == before + 10
        kinds = [commit.kind for commit in graph.commits()]
        assert kinds.count("mutation") == 11 + 10
        assert graph.recoveries() == []
        graph.optimize()
        assert fragments(graph, DOC) == 1


ALL = "query q() { match { $d: Doc } return { $d.slug as s } }"


def test_spark_does_the_same(tmp_path: Path, spark: SparkSession) -> None:
    graph = worn_graph(tmp_path)
    before = answers(graph), stored(graph, DOC)
    report = graph.optimize(engine="spark", spark=spark)
    assert report.commit is not None
    assert (answers(graph), stored(graph, DOC)) == before
    assert graph.pending_indexes() == []
    assert fragments(graph, DOC) == 1


TWO = "node A { k: String @key }\nnode B { k: String @key }\n"
BOTH = "query q($k: String) { insert A { k: $k } insert B { k: $k } }"


def _between_two_looks(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """Act after a run has opened its first table, and before it opens the second."""
    opened = []
    look = Transaction.open

    def open_and_act(transaction, pin):
        opened.append(pin)
        if len(opened) == 2:
            act()
        return look(transaction, pin)

    monkeypatch.setattr(Transaction, "open", open_and_act)


def test_a_write_between_two_looks_is_no_drift(tmp_path, monkeypatch) -> None:
    with Graph.init(tmp_path / "g", TWO) as graph, Graph.open(tmp_path / "g") as other:
        for number in range(3):
            graph.mutate(BOTH, {"k": str(number)})
        _between_two_looks(monkeypatch, lambda: other.mutate(BOTH, {"k": "meanwhile"}))
        report = graph.optimize()
        assert report.commit is not None
        assert {table.type_key: table.committed for table in report.tables} == {"node:A": True, "node:B": True}
        assert graph.snapshot().pins["node:A"].row_count == 4


def test_a_schema_change_between_two_looks_is_a_conflict(tmp_path, monkeypatch) -> None:
    with Graph.init(tmp_path / "g", TWO) as graph, Graph.open(tmp_path / "g") as other:
        for number in range(3):
            graph.mutate(BOTH, {"k": str(number)})

        def change() -> None:
            other.mutate(BOTH, {"k": "meanwhile"})
            other.apply_schema("node A { k: String @key }")

        _between_two_looks(monkeypatch, change)
        with pytest.raises(ConflictError):
            graph.optimize()


def test_a_table_that_writers_keep_moving_is_optimized_while_they_wait(tmp_path, monkeypatch) -> None:
    with Graph.init(tmp_path / "g", TWO) as graph, Graph.open(tmp_path / "g") as other:
        for number in range(3):
            graph.mutate(BOTH, {"k": str(number)})
        prepare = optimizing._Run._prepare
        writes = []

        def prepare_and_lose(run, keys):
            prepare(run, keys)
            if not run._transaction.is_alone:
                writes.append(other.mutate(BOTH, {"k": f"w{len(writes)}"}))

        monkeypatch.setattr(optimizing._Run, "_prepare", prepare_and_lose)
        report = graph.optimize()
        assert len(writes) == optimizing.POLICY.outside
        assert report.commit is not None
        assert graph.snapshot().pins["node:B"].row_count == 3 + len(writes)


# ---- Whatever was written in whatever order: after an optimize every question has the same answer


NUMBERS = st.integers(0, 9)
STEPS = st.one_of(
    st.builds(lambda first, count: [add(n) for n in range(first, first + count)], NUMBERS, st.integers(1, 9)),
    st.builds(lambda number, year: [change(number, 1990 + year)], NUMBERS, NUMBERS),
    st.builds(lambda number: [drop(number)], NUMBERS),
    st.builds(lambda a, b: [add(a), add(b), cite(a, b)], NUMBERS, NUMBERS),
    st.sampled_from(["optimize", "ensure_indices"]),
)


@given(steps=st.lists(STEPS, min_size=3, max_size=12), fold=st.integers(1, 6))
@settings(max_examples=6)
def test_no_history_of_writes_and_maintenance_changes_an_answer(steps: list[list[str] | str], fold: int) -> None:
    """Folds happen on the way, and indexes are built and extended at any moment."""
    with TemporaryDirectory() as folder:
        graph = new_graph(Path(folder))
        graph._core.settings = GraphSettings(durable=False, fold_fragments=fold)
        plain = Path(folder) / "plain"
        plain.mkdir()
        # The same writes without any maintenance; edges have random ids, which no question shows.
        twin = new_graph(plain)
        twin._core.settings = GraphSettings(durable=False, folds=False)
        for step in steps:
            if isinstance(step, str):
                getattr(graph, step)()
            else:
                run(graph, *step)
                run(twin, *step)
        expected = answers(twin)
        assert answers(graph) == expected
        rows = stored(graph, DOC), stored(graph, CITES)
        graph.optimize()
        assert answers(graph) == expected
        assert (stored(graph, DOC), stored(graph, CITES)) == rows
        assert graph.optimize().commit is None


# ---- Graphs of earlier releases, whose tables have inverted indexes of Lance: they live on as any other graph


TEXT_INDEX = "body_text"


def with_text_index(graph: Graph, branch: str = "main") -> None:
    """Build an inverted index and publish it, in the way of the release that had them."""
    write = Transaction(graph._core.environment, branch, kind=WriterKind.ENSURE_INDICES)
    pin = write.snapshot.pins[DOC]
    table = graph._core.open_table(pin)
    dataset = table._dataset
    part = dataset.create_index_uncommitted(
        "body",
        "INVERTED",
        name=TEXT_INDEX,
        fragment_ids=[item.fragment_id for item in dataset.get_fragments()],
        with_position=True,
    )
    segment = dataset.merge_existing_index_segments([part])
    transaction = LanceTransaction(table.version, LanceOperation.CreateIndex([segment], []))
    staged = StagedWrite(table=table, _transaction=transaction)
    write.stage(pin, staged)
    write.commit()


def indexes(graph: Graph) -> set[str]:
    return set(list_indexes(graph._core.open_table(graph.snapshot().pins[DOC])))


@pytest.fixture
def old(tmp_path: Path) -> Graph:
    graph = worn_graph(tmp_path, indexed=True)
    with_text_index(graph)
    graph.close()
    return Graph.open(graph.uri)


def test_it_opens_and_answers(old: Graph, tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    same = worn_graph(tmp_path / "same", indexed=True)
    assert TEXT_INDEX in indexes(old)
    assert answers(old) == answers(same)
    with Graph.open(old.uri, read_only=True) as reader:
        assert answers(reader) == answers(same)


def test_it_is_written_to_and_branched(old: Graph, tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    same = worn_graph(tmp_path / "same", indexed=True)
    for graph in (old, same):
        one_by_one(graph, [add(901), change(901, 2020), add(902), drop(902)])
        graph.create_branch("draft")
        run(graph, change(901, 2021), branch="draft")
        graph.merge("draft")
    assert answers(old) == answers(same)


def test_it_is_optimized_and_loses_the_index_with_the_fragments_that_it_covered(old: Graph) -> None:
    before = answers(old), stored(old, DOC)
    assert old.optimize().commit is not None
    assert (answers(old), stored(old, DOC)) == before
    assert fragments(old, DOC) == 1
    assert TEXT_INDEX not in indexes(old)
    assert old.pending_indexes() == []
    assert old.optimize().commit is None, "nothing is left to do"


def test_indexes_are_completed_beside_it(old: Graph) -> None:
    run(old, add(903))
    before = answers(old)
    old.ensure_indices()
    assert TEXT_INDEX in indexes(old)
    assert answers(old) == before
    assert old.pending_indexes() == []


def test_it_is_cleaned_up_with_and_without_the_index(old: Graph) -> None:
    before = answers(old)
    old.cleanup(keep=1, confirm=True, commits=True)
    assert answers(old) == before
    assert folders(old) == segments(old), "the input of its merge is gone"
    inverted = segments(old, TEXT_INDEX)
    old.optimize()
    # Commits beyond what cleanup keeps in any case.
    one_by_one(old, [add(number) for number in range(910, 914)])
    before = answers(old)
    old.cleanup(keep=1, confirm=True, commits=True)
    assert not inverted & folders(old)
    with Graph.open(old.uri) as again:
        assert answers(again) == before
        assert again.doctor(deep=True).is_healthy


def segments(graph: Graph, name: str | None = None) -> set[str]:
    """The segments of the indexes that the head has, or of one of them."""
    dataset = graph._core.open_table(graph.snapshot().pins[DOC])._dataset
    return {
        str(part.uuid) for index in dataset.describe_indices() for part in index.segments if name in (None, index.name)
    }


def folders(graph: Graph) -> set[str]:
    """The segments that are on disk."""
    pin = graph.snapshot().pins[DOC]
    return {path.name for path in Path(graph.uri).glob(f"{pin.location}/_indices/*")}


def test_a_manifest_that_cannot_be_folded_hides_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are optimized by then; only a run that published nothing fails."""
    graph = worn_graph(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the store is gone", StorageFailure.TRANSIENT)

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.commit.publisher.Manifest.fold", fail)
        report = graph.optimize(engine="local")
        assert report.commit == graph.commits()[0]
        assert report.to_json()["manifest_error"] == "the store is gone"
        with pytest.raises(StorageError, match="the store is gone"):
            graph.optimize(engine="local")
    again = graph.optimize(engine="local")
    assert (again.commit, again.manifest_error) == (None, None)
