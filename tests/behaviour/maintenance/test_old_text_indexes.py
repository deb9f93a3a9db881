"""Graphs of earlier releases, whose tables have inverted indexes of Lance: they live on as any other graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance import LanceOperation
from lance.dataset import Transaction as LanceTransaction

from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import Transaction
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.indexes import list_indexes
from omnigraph.storage.datasets.staged import StagedWrite, StageKind
from support.worn_graphs import (
    DOC,
    add,
    answers,
    change,
    drop,
    fragments,
    one_by_one,
    run,
    stored,
    worn_graph,
)

pytestmark = pytest.mark.usefixtures("_few_vectors")
TEXT_INDEX = "body_text"


def with_text_index(graph: Graph, branch: str = "main") -> None:
    """Build an inverted index and publish it, in the way of the release that had them."""
    write = Transaction(graph._environment, branch, kind=WriterKind.ENSURE_INDICES)
    pin = write.snapshot.pins[DOC]
    table = graph._open(pin)
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
    staged = StagedWrite(table=table, kind=StageKind.INDEX, _transaction=transaction)
    write.stage(pin, staged)
    write.commit()


def indexes(graph: Graph) -> set[str]:
    return set(list_indexes(graph._open(graph.snapshot().pins[DOC])))


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
    dataset = graph._open(graph.snapshot().pins[DOC])._dataset
    return {
        str(part.uuid)
        for index in dataset.describe_indices()
        for part in index.segments
        if name in (None, index.name)
    }


def folders(graph: Graph) -> set[str]:
    """The segments that are on disk."""
    pin = graph.snapshot().pins[DOC]
    return {path.name for path in Path(graph.uri).glob(f"{pin.location}/_indices/*")}
