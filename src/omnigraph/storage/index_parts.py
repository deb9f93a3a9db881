"""One index built by many tasks: parts over groups of fragments, merged into one segment.

All three kinds can be built like this, and the merged segment answers as one that was built at once: the same rows, the
same text scores (they count words over all parts), the same neighbours (all parts share the partitions that were
trained before).
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance.indices import IndicesBuilder

from omnigraph.storage.failures import translated
from omnigraph.storage.indexes import IndexBuild, PhysicalIndex, stage_segments
from omnigraph.storage.listing import delete_files, list_files
from omnigraph.storage.location import parse_location
from omnigraph.storage.opening import open_dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance.dataset import Index

    from omnigraph.storage.indexes import IndexSpec
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table

#: Vectors per partition from which the partitions are trained, as Lance takes them by itself.
_SAMPLE_RATE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
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


def plan_index_parts(
    table: Table, build: IndexBuild, *, parts: int, min_rows: int
) -> list[IndexPartTask]:
    """The tasks of one build: about so many parts of neighbouring fragments, fewer if they had less than `min_rows`.

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
    settings: dict[str, Any] = dict(task.spec.settings)
    if task.centroids is not None:
        settings["ivf_centroids"] = pa.ipc.open_stream(task.centroids).read_all()["v"].chunk(0)
    with translated(f"building a part of index {task.spec.name} of {task.uri}"):
        dataset = open_dataset(task.uri, task.version)
        part = dataset.create_index_uncommitted(
            task.spec.column,
            str(task.spec.kind),
            name=task.spec.name,
            fragment_ids=list(task.fragments),
            replace=True,
            **settings,
        )
    return base64.b64encode(pickle.dumps(part)).decode()


def stage_index_parts(
    table: Table, built: Sequence[tuple[IndexBuild, Sequence[str]]]
) -> StagedWrite | None:
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
    """Neighbouring fragments, so many that they reach `part_rows` rows; one group when there is nothing to cut."""
    groups: list[list[int]] = [[]]
    held = 0
    for number, rows in fragments:
        if groups[-1] and held + rows > part_rows:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += rows
    return groups
