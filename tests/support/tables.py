"""Tables with everything that a compaction, an index build or a cleanup has to keep."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph.storage.answers import AnswerFolder, new_answer_folder, remove_answers
from omnigraph.storage.datasets.compaction import (
    choose_rewrites,
    fragment_facts,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
    with_indexes,
)
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.staged import StagedWrite, commit_staged, create_table, open_private, stage_append
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation

DIMENSION = 8
WORDS = [f"word{number}" for number in range(40)]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("text", pa.utf8()),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
        pa.field("scan", pa.large_binary()),
    ]
)
ID = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)
NUMBER = IndexSpec(name="n_btree", column="n", kind=PhysicalIndex.BTREE)


@contextmanager
def answer_folder(root: GraphLocation) -> Iterator[AnswerFolder]:
    """A folder for the answers of one operation; it goes with the block."""
    folder = new_answer_folder(root)
    try:
        yield folder
    finally:
        remove_answers(folder)


VECTOR = IndexSpec(
    name="vector_vector",
    column="vector",
    kind=PhysicalIndex.IVF_FLAT,
    settings=(("num_partitions", 4), ("metric", "l2")),
)
SPECS = (ID, NUMBER, VECTOR)
#: The inverted index that tables of earlier releases have.
TEXT_INDEX = "text_text"
#: Larger than what Lance keeps inside of a data file.
LARGE_BLOB = 100_000


def rows(first: int, count: int) -> pa.Table:
    """So many rows, the same at every call; some values are null, every fifth blob lies in a file of its own."""
    numbers = range(first, first + count)
    chance = random.Random(first)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "n": [None if number % 11 == 0 else number % 7 for number in numbers],
            "text": [
                None if number % 13 == 0 else " ".join(chance.choices(WORDS, k=1 + number % 9)) for number in numbers
            ],
            "vector": [None if number % 17 == 0 else [chance.random() for _ in range(DIMENSION)] for number in numbers],
            "scan": [f"{number}".encode() * (LARGE_BLOB // 2 if number % 5 == 0 else 1) for number in numbers],
        },
        schema=SCHEMA,
    )


def make_table(
    location: GraphLocation,
    *,
    fragments: int = 6,
    rows_each: int = 10,
    specs: Sequence[IndexSpec] = (),
    path: str = "nodes/t",
    lost: Sequence[str] = ("k11", "k12"),
) -> Table:
    """A table of small fragments, one of which has lost rows."""
    table = create_table(location, path, SCHEMA, blobs=frozenset({"scan"}))
    for number in range(fragments):
        table = commit_staged(stage_append(table, rows(number * rows_each, rows_each)))
    if lost:
        table = delete(table, *lost)
    staged = stage_indices(table, specs)
    return table if staged is None else commit_staged(staged)


def with_text_index(table: Table) -> Table:
    """The table with an inverted index of Lance, as earlier releases built it."""
    table._dataset.create_scalar_index("text", "INVERTED", name=TEXT_INDEX, with_position=True)
    return Table(lance.dataset(table._dataset.uri), table.path, table.branch)


def delete(table: Table, *ids: str) -> Table:
    wanted = ", ".join(f"'{name}'" for name in ids)
    found = table._dataset.to_table(columns=["_rowaddr"], filter=f"id in ({wanted})")
    staged = stage_delete(table, found["_rowaddr"].to_pylist())
    assert staged is not None
    return commit_staged(staged)


def rewrite(table: Table, target_rows: int = 1000) -> list[str]:
    """The new fragments of everything that is worth it, written and nothing more."""
    groups = choose_rewrites(fragment_facts(table), target_rows=target_rows)
    tasks = plan_compaction(table, groups)
    return [run_compaction_task(pickle.loads(pickle.dumps(task))) for task in tasks]


def compact(table: Table, target_rows: int = 1000) -> Table:
    """The table with fewer fragments, and without indexes that covered them."""
    staged = stage_compaction(table, rewrite(table, target_rows))
    return table if staged is None else commit_staged(staged)


def stage_optimized(table: Table, specs: Sequence[IndexSpec]) -> StagedWrite:
    """Fewer fragments and complete indexes as one write."""
    exchange = stage_compaction(table, rewrite(table))
    assert exchange is not None
    image = open_private(exchange)
    return with_indexes(exchange, image.table, stage_indices(image.table, specs))


def content(dataset: LanceDataset) -> list[dict[str, Any]]:
    """Everything that a reader can see of the rows, in the order of their ids."""
    system = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = dataset.to_table(columns=[*SCHEMA.names, *system], blob_handling="all_binary")
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


def vector_hits(dataset: LanceDataset, point: Sequence[float], *, k: int = 5, nprobes: int = 4) -> dict[str, Any]:
    """The ids nearest to a point, best first, each with its distance.

    Lance computes distances with the instructions that a processor has, and over as many rows at once as a fragment
    holds: the last bits of one distance differ between processors, and before and after a compaction.
    """
    nearest = {"column": "vector", "q": list(point), "k": k, "nprobes": nprobes}
    return _hits(dataset, "_distance", nearest=nearest)


def text_hits(dataset: LanceDataset, query: Any, *, limit: int = 10_000) -> dict[str, Any]:
    """The ids that a text query finds, best first, each with its score."""
    return _hits(dataset, "_score", full_text_query=query, limit=limit)


def _hits(dataset: LanceDataset, computed: str, **asked: Any) -> dict[str, Any]:
    """Two results are equal when the ids are, and the computed values but for their last bits."""
    found = dataset.to_table(columns=["id", computed], **asked).to_pylist()
    return {row["id"]: pytest.approx(row[computed], rel=1e-5, abs=1e-6) for row in found}


def every_version(root: str) -> Iterator[tuple[str, int, LanceDataset]]:
    """All versions on all branches of a dataset."""
    branches = [None, *lance.dataset(root).branches.list()]
    for branch in branches:
        uri = root if branch is None else f"{root}/tree/{branch}"
        for version in lance.dataset(uri).versions():
            number = int(version["version"])
            yield uri, number, lance.dataset(uri, version=number)


def everything(root: str) -> dict[tuple[str, int], tuple[list[dict[str, Any]], set[str]]]:
    """The content of all versions on all branches, with one row found through every index of theirs."""
    found = {}
    for uri, version, dataset in every_version(root):
        indexed = {index.name for index in dataset.describe_indices()}
        if ID.name in indexed:
            dataset.to_table(columns=["id"], filter="id = 'k3'")
        if TEXT_INDEX in indexed:
            text_hits(dataset, "word3")
        found[uri, version] = (content(dataset), indexed)
    return found
