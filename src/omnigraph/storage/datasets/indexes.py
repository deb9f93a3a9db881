"""Secondary indexes, built whole or in parts."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from math import ceil
from typing import Any

import pyarrow as pa
from lance import LanceOperation
from lance.dataset import Index
from lance.indices import IndicesBuilder

from omnigraph.core.budget import work_steps
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.filters import CREATED_AT, ROW_ID
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.staged import StagedWrite, staged_write
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import delete_files, list_files

# ---- Secondary indexes: built aside, committed like any other staged write
#
# An index never changes a result: rows that it does not cover are still found by scanning them.


#: A vector index is rebuilt when one row in this number is outside of it.
_VECTOR_SHARE = 10


class PhysicalIndex(StrEnum):
    """The index structures that tables get.

    Tables of earlier releases may have inverted ones too: they are carried along until their fragments are rewritten,
    and no query asks them.
    """

    BTREE = "BTREE"
    IVF_FLAT = "IVF_FLAT"


@frozen(kw_only=True)
class IndexSpec:
    """One index that a table should have. `settings` go to Lance as they are."""

    name: str
    column: str
    kind: PhysicalIndex
    settings: tuple[tuple[str, object], ...] = ()


@frozen(kw_only=True)
class IndexCoverage:
    """How much of a table an existing index covers."""

    name: str
    covered_fragments: frozenset[int]
    missing_fragments: frozenset[int]
    #: Fragments that it covers and that are gone: all of their rows moved or were deleted.
    lost_fragments: frozenset[int]
    #: Rows in the missing fragments.
    missing_rows: int
    #: The version of the table that its newest segment was built on.
    built_version: int
    #: The identities of its segments: what was measured on an index holds as long as these stay.
    segments: tuple[str, ...] = ()


def list_indexes(table: Table) -> dict[str, IndexCoverage]:
    """The indexes of a table by name, with their coverage."""
    with translated(f"looking at the indexes of {table.path}"):
        rows = {item.fragment_id: item.metadata.num_rows for item in table._dataset.get_fragments()}
        found: dict[str, IndexCoverage] = {}
        for index in table._dataset.describe_indices():
            covered = {number for segment in index.segments for number in segment.fragment_ids}
            missing = rows.keys() - covered
            found[index.name] = IndexCoverage(
                name=index.name,
                covered_fragments=frozenset(covered & rows.keys()),
                missing_fragments=frozenset(missing),
                lost_fragments=frozenset(covered - rows.keys()),
                missing_rows=sum(rows[number] for number in missing),
                built_version=max((int(item.dataset_version_at_last_update) for item in index.segments), default=0),
                segments=tuple(sorted(str(segment.uuid) for segment in index.segments)),
            )
        return found


def has_index(table: Table, column: str) -> bool:
    """Whether values of a column are found without a scan, in most rows of the table."""
    with translated(f"looking at the indexes of {table.path}"):
        rows = {item.fragment_id: item.metadata.num_rows for item in table._dataset.get_fragments()}
        for index in table._dataset.describe_indices():
            if index.index_type.upper() == PhysicalIndex.BTREE and index.field_names == [column]:
                covered = {number for segment in index.segments for number in segment.fragment_ids}
                outside = sum(count for number, count in rows.items() if number not in covered)
                return 2 * outside < sum(rows.values())
    return False


def needs_work(spec: IndexSpec, coverage: IndexCoverage | None, rows: int) -> bool:
    """Whether an index is missing, or lacks enough rows to be worth extending.

    A vector index is worth it when a tenth of the rows is outside: until then those are compared one by one.
    """
    if coverage is None:
        return True
    if spec.kind is PhysicalIndex.IVF_FLAT:
        return coverage.missing_rows * _VECTOR_SHARE >= rows
    return bool(coverage.missing_fragments)


@frozen(kw_only=True)
class IndexBuild:
    """One segment of an index that has to be built, and what becomes of the existing ones."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    #: Whether the segment takes the place of all existing ones; otherwise it stands beside them.
    replaces: bool


def plan_builds(table: Table, specs: Iterable[IndexSpec]) -> list[IndexBuild]:
    """What has to be built so that no index lacks rows.

    An index gets a further segment over the fragments that it does not cover, as long as all rows there came after it
    was built. A row that was there before keeps its row id wherever it moves, and the old segment would go on answering
    for it with the old value: then the index is rebuilt. So is a vector index, whose partitions follow all vectors.
    """
    builds: list[IndexBuild] = []
    with translated(f"planning the indexes of {table.path}"):
        existing = list_indexes(table)
        every = tuple(fragment.fragment_id for fragment in table._dataset.get_fragments())
        for spec in specs:
            known = existing.get(spec.name)
            if not needs_work(spec, known, table.row_count):
                continue
            if (
                known is None
                or not known.covered_fragments
                or spec.kind is PhysicalIndex.IVF_FLAT
                or _knows_rows_in(table, known.built_version, known.missing_fragments)
            ):
                builds.append(IndexBuild(spec=spec, fragments=every, replaces=known is not None))
            else:
                missing = tuple(sorted(known.missing_fragments))
                builds.append(IndexBuild(spec=spec, fragments=missing, replaces=False))
    return builds


def _knows_rows_in(table: Table, built_version: int, fragments: Collection[int]) -> bool:
    """Whether an index that was built on a version may know a row that now lies in one of these fragments."""
    scanner = table._dataset.scanner(
        columns=[ROW_ID],
        filter=f"{CREATED_AT} <= {built_version}",
        fragments=[item for item in table._dataset.get_fragments() if item.fragment_id in fragments],
        limit=1,
    )
    return bool(scanner.to_table().num_rows)


def stage_indices(table: Table, specs: Iterable[IndexSpec]) -> StagedWrite | None:
    """All indexes that are missing or lack rows, as one transaction; None when there is none."""
    with translated(f"building indexes of {table.path}"):
        builds = plan_builds(table, specs)
        return stage_segments(
            table,
            [
                (build, _build(table._dataset.uri, table.version, build.spec, build.fragments))
                for build in work_steps(builds)
            ],
        )


def stage_segments(table: Table, built: Sequence[tuple[IndexBuild, Index]]) -> StagedWrite | None:
    """Finished segments as one transaction; None when there is none."""
    if not built:
        return None
    removed = [segment for build, _ in built if build.replaces for segment in _segments(table, build.spec.name)]
    operation = LanceOperation.CreateIndex([segment for _, segment in built], removed)
    return staged_write(table, operation)


def index_segments(table: Table, columns: Collection[str]) -> list[Index]:
    """The stored segments of every index on one of these columns."""
    names = [
        index.name for index in table._dataset.describe_indices() if not set(index.field_names).isdisjoint(columns)
    ]
    return [segment for name in names for segment in _segments(table, name)]


def stage_index_removal(table: Table, fragments: Collection[int]) -> StagedWrite | None:
    """The removal of every index that covers one of these fragments; None when there is none."""
    covering = [
        index.name
        for index in table._dataset.describe_indices()
        if any(not set(segment.fragment_ids).isdisjoint(fragments) for segment in index.segments)
    ]
    if not covering:
        return None
    removed = [segment for name in covering for segment in _segments(table, name)]
    return staged_write(table, LanceOperation.CreateIndex([], removed))


def _segments(table: Table, name: str) -> list[Index]:
    """The stored segments of an index, as a transaction names them."""
    return [
        Index(
            uuid=segment.uuid,
            name=index.name,
            fields=index.fields,
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
            created_at=segment.created_at,
            base_id=segment.base_id,
        )
        for index in table._dataset.describe_indices()
        if index.name == name
        for segment in index.segments
    ]


def _build(uri: str, version: int, spec: IndexSpec, fragments: Sequence[int], **more: object) -> Index:
    settings: dict[str, Any] = dict(spec.settings) | more
    # Lance locks a handle while it builds: a handle that readers share would fail them, or fail because of them.
    return open_dataset(uri, version).create_index_uncommitted(
        spec.column, str(spec.kind), name=spec.name, fragment_ids=list(fragments), replace=True, **settings
    )


# ---- One index built by many tasks: parts over groups of fragments, merged into one segment
#
# All three kinds can be built like this, and the merged segment answers as one that was built at once: the same rows,
# the same text scores (they count words over all parts), the same neighbours (all parts share the partitions that
# were trained before).


#: Vectors per partition from which the partitions are trained, as Lance takes them by itself.
_SAMPLE_RATE = 256


@frozen(kw_only=True)
class IndexPartTask:
    """One part of one index to be built. Plain values: it travels to any process."""

    uri: str
    version: int
    spec: IndexSpec
    fragments: tuple[int, ...]
    rows: int
    #: The trained partitions of a vector index as an Arrow stream. All parts of an index hold the same object, so that
    #: pickling many tasks together stores it once.
    centroids: bytes | None


def plan_index_parts(table: Table, build: IndexBuild, *, parts: int, min_rows: int) -> list[IndexPartTask]:
    """The tasks of one build: about `parts` groups of neighbouring fragments, fewer if they had less than `min_rows`.

    Trains the partitions of a vector index, which reads a sample of the vectors.
    """
    with translated(f"planning index {build.spec.name} of {table.path}"):
        rows = {item.fragment_id: item.metadata.num_rows for item in table._dataset.get_fragments()}
        fragments = [(number, rows[number]) for number in build.fragments]
        part_rows = ceil(sum(count for _, count in fragments) / parts)
        groups = _groups(fragments, max(part_rows, min_rows))
        centroids = _train(table, build) if len(groups) > 1 else None
    return [
        IndexPartTask(
            uri=table._dataset.uri,
            version=table.version,
            spec=build.spec,
            fragments=tuple(group),
            rows=sum(rows[number] for number in group),
            centroids=centroids,
        )
        for group in groups
    ]


def build_index_part(task: IndexPartTask) -> str:
    """Build one part aside; the part as text for `stage_index_parts`. Moves nothing."""
    more: dict[str, object] = {}
    if task.centroids is not None:
        more["ivf_centroids"] = pa.ipc.open_stream(task.centroids).read_all()["v"].chunk(0)
    with translated(f"building a part of index {task.spec.name} of {task.uri}"):
        part = _build(task.uri, task.version, task.spec, task.fragments, **more)
    return base64.b64encode(pickle.dumps(part)).decode()


def stage_index_parts(table: Table, built: Sequence[tuple[IndexBuild, Sequence[str]]]) -> StagedWrite | None:
    """Merge the parts of every build and stage the segments as one transaction; None when there is none."""
    with translated(f"merging index parts of {table.path}"):
        return stage_segments(table, [(build, _merge(table, parts)) for build, parts in built])


def _merge(table: Table, texts: Sequence[str]) -> Index:
    parts: list[Index] = [pickle.loads(base64.b64decode(text)) for text in texts]
    if len(parts) == 1:
        return parts[0]
    # Lance locks a handle meanwhile, so readers must not share it.
    dataset = open_dataset(table._dataset.uri, table.version)
    merged = dataset.merge_existing_index_segments(parts)
    location = parse_location(table._dataset.uri)
    for part in parts:
        if part.uuid != merged.uuid:
            # Listed, because a part does not name all of its files.
            files = list_files(location, f"_indices/{part.uuid}")
            delete_files(location, [file.name for file in files])
    return merged


def _train(table: Table, build: IndexBuild) -> bytes | None:
    """The partitions that all parts of a vector index have in common; None for other kinds."""
    if build.spec.kind is not PhysicalIndex.IVF_FLAT:
        return None
    settings: dict[str, Any] = dict(build.spec.settings)
    partitions = int(settings["num_partitions"])
    # Lance takes what there is when it trains by itself, but refuses here to train on less than it is asked for.
    rate = max(2, min(_SAMPLE_RATE, table.row_count // partitions))
    dataset = open_dataset(table._dataset.uri, table.version)
    model = IndicesBuilder(dataset, build.spec.column).train_ivf(
        partitions, distance_type=str(settings["metric"]), sample_rate=rate
    )
    vectors = pa.table({"v": model.centroids})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, vectors.schema) as writer:
        writer.write_table(vectors)
    return bytes(sink.getvalue().to_pybytes())


def _groups(fragments: list[tuple[int, int]], part_rows: int) -> list[list[int]]:
    """Neighbouring fragments in groups of about `part_rows` rows; one group when there is nothing to cut."""
    groups: list[list[int]] = [[]]
    held = 0
    for number, rows in fragments:
        if groups[-1] and held + rows > part_rows:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += rows
    return groups
