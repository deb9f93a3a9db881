"""Where vectors come from, and what their indexes are known to find."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from math import isqrt

import numpy as np

from omnigraph.engine.rows import FloatArray, IntArray, read_batches
from omnigraph.engine.tables.context import Context, EngineCaches
from omnigraph.engine.tables.entities import WHOLE_COLUMN_RATIO, Entities, row_id_array
from omnigraph.engine.tables.vector_columns import VectorColumn, VectorPart, make_part
from omnigraph.engine.tables.vector_ways import RecallCurve
from omnigraph.engine.tables.wanted_indexes import vector_index_name
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.reads import (
    DISTANCE,
    ColumnPart,
    column_parts,
    nearest_rows,
    part_row_ids,
    scan_column_part,
    scan_rows,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.derived import group_name

#: Rows that are read at once.
_SCAN_ROWS = 1 << 14
#: Vectors that are read from storage a few at a time so often are worth being kept.
_USES_BEFORE_KEPT = 16

# ---- Sources of the vectors: memory, or one scan per fragment


def find_vector_column(context: Context, entities: Entities, name: str, *, wanted: int) -> VectorColumn | None:
    """The vectors of a property in memory, where `wanted` of them are worth reading all.

    None where they take more than half of the column cache, or where so few are asked for, and were so seldom, that
    these are read from storage.
    """
    caches = context.caches
    key = (entities.fingerprint, name)
    known = caches.vector_columns.get(key)
    if known is not None:
        return known
    dimension = dimension_of(entities, name)
    parts = column_parts(entities.table, name)
    if 4 * dimension * sum(part.physical_rows for part in parts) * 2 > context.settings.column_cache_bytes:
        return None
    if not _is_worth_reading(context, entities, name, parts, wanted):
        return None
    return caches.vector_columns.get_or_build(
        key, lambda: _assemble(context, entities, name, parts), context.budget.check
    )


def dimension_of(entities: Entities, name: str) -> int:
    """How many numbers a vector of a property has."""
    return int(entities.table.schema.field(name).type.list_size)


def _is_worth_reading(
    context: Context, entities: Entities, name: str, parts: Sequence[ColumnPart], wanted: int
) -> bool:
    caches = context.caches
    missing = sum(part.physical_rows for part in parts if caches.vector_parts.get(part.values) is None)
    if missing <= wanted * WHOLE_COLUMN_RATIO:
        return True
    place = (entities.table.path, entities.table.branch, name, "vectors")
    uses = (caches.column_uses.get(place) or 0) + 1
    caches.column_uses.put(place, uses)
    return uses > _USES_BEFORE_KEPT


def _assemble(context: Context, entities: Entities, name: str, parts: Sequence[ColumnPart]) -> VectorColumn:
    caches, budget = context.caches, context.budget
    found: list[tuple[VectorPart, IntArray]] = []
    for part in budget.steps(parts):
        vectors = caches.vector_parts.get_or_build(
            part.values, partial(_read, context, entities, name, part), budget.check
        )
        read = partial(part_row_ids, entities.table, part)
        row_ids = caches.part_rows.get_or_build(
            part.rows, partial(budget.patiently, read, part.physical_rows), budget.check
        )
        found.append((vectors, row_ids))
    return VectorColumn(found, dimension_of(entities, name))


def _read(context: Context, entities: Entities, name: str, part: ColumnPart) -> VectorPart:
    scanned = scan_column_part(entities.table, name, part, _SCAN_ROWS)
    arrays = [batch.column(0) for batch in read_batches(context.budget, scanned, part.physical_rows)]
    dimension = dimension_of(entities, name)
    return context.budget.patiently(lambda: make_part(arrays, dimension), part.physical_rows)


# ---- The recall of an index: measured when it is built, with vectors of the table itself as queries
#
# It holds as long as the segments of the index stay: rows that came later are outside of it and always compared.


#: Queries per depth. Deep ones give more figures each.
_FEW_QUERIES = 24
_QUERIES = {10: 3 * _FEW_QUERIES, 100: _FEW_QUERIES, 1000: _FEW_QUERIES}
#: A depth is measured when there are at least so many rows for each of its places.
_ROWS_PER_PLACE = 10
#: Each measurement looks at so many times the partitions of the one before it.
_STEP = 1.4
#: Above this recall no more partitions are tried.
_ENOUGH = 0.9995
#: Relative difference of distances that 32 bits do not tell apart.
_NEAR = 1e-5
_TINY = float(np.finfo(np.float32).tiny)
_SEED = 20
#: It is measured again when the number of rows changed by one in this number.
_CHANGED_SHARE = 10


def find_recall(caches: EngineCaches, table: Table, name: str) -> RecallCurve | None:
    """What was measured on the index of a property; None without an index, or where nothing is kept of it."""
    segments = index_segments(caches, table, name)
    if not segments:
        return None
    known = caches.recalls.get(segments)
    if known is None:
        known = _load(caches, table, name, segments)
        if known is not None:
            caches.recalls.put(segments, known)
    return known


def keep_recall(caches: EngineCaches, entities: Entities, name: str) -> None:
    """Measure the recall of the index of a property and keep it, unless that was done with about as many rows.

    Where all vectors are compared anyway, nothing asks for it.
    """
    segments = index_segments(caches, entities.table, name)
    if not segments or entities.row_count * dimension_of(entities, name) <= caches.settings.exact_vector_values:
        return
    known = find_recall(caches, entities.table, name)
    if known is not None and abs(known.rows - entities.row_count) * _CHANGED_SHARE < known.rows:
        return
    measured = measure_recall(entities, name)
    if measured is None:
        return
    caches.recalls.put(segments, measured)
    own, *_ = _groups(entities.table)
    kept = _set_name(name, segments)
    caches.derived.forget(own, kept)
    caches.derived.save(own, kept, measured.pack(), replaces=lambda other: other.startswith(_prefix(name)))


def index_segments(caches: EngineCaches, table: Table, name: str) -> tuple[str, ...]:
    """The identities of the segments of the index of a property; empty without one."""
    coverage = caches.indexes(table).get(vector_index_name(name))
    return () if coverage is None else coverage.segments


def measure_recall(
    entities: Entities,
    name: str,
    *,
    seed: int = _SEED,
    probes: Sequence[int] | None = None,
    depths: Sequence[int] | None = None,
) -> RecallCurve | None:
    """Searches through the index against exact ones; None when there are too few vectors.

    Without `probes` more and more partitions are looked at, until nearly everything is found.
    """
    if depths is None:
        depths = [depth for depth in _QUERIES if depth * _ROWS_PER_PLACE <= entities.row_count]
    sample = _sample(entities, name, seed)
    if not depths or not len(sample.row_ids):
        return None
    bounds = sample.bounds(depths)
    tried: list[int] = []
    columns: list[list[FloatArray]] = []
    for number in entities.budget.steps(probes if probes is not None else _steps(entities.row_count)):
        found = [
            before if before is not None and float(before.mean()) >= _ENOUGH else sample.shares(depth, some, number)
            for depth, some, before in zip(
                depths, bounds, columns[-1] if columns else [None] * len(depths), strict=True
            )
        ]
        tried.append(number)
        columns.append(found)
        if probes is None and all(float(shares.mean()) >= _ENOUGH for shares in found):
            break
    rows = list(zip(*columns, strict=True))
    recalls = np.array([[float(shares.mean()) for shares in row] for row in rows])
    errors = np.array([[float(shares.std() / np.sqrt(len(shares))) for shares in row] for row in rows])
    probed, deep = np.array(tried, np.int64), np.array(depths, np.int64)
    return RecallCurve(probed, deep, recalls, errors, entities.row_count)


@frozen
class _Sample:
    """Rows whose vectors are the queries of a measurement."""

    entities: Entities
    name: str
    row_ids: IntArray
    vectors: FloatArray

    def bounds(self, depths: Sequence[int]) -> list[FloatArray]:
        """Per depth, the squared distances up to which a row is among the nearest of each query; one scan of all."""
        deepest = max(depths)
        queries = self.vectors.astype(np.float32)
        nearest = np.full((len(queries), 0), np.inf, np.float32)
        scanned = scan_rows(self.entities.table, (self.name,), batch_rows=_SCAN_ROWS)
        for batch in read_batches(self.entities.budget, scanned, self.entities.row_count):
            part = make_part([batch.column(0)], queries.shape[1])
            squares = part.norms - 2 * (queries @ part.vectors.T)
            nearest = np.concatenate([nearest, squares], axis=1)
            if nearest.shape[1] > deepest + 1:
                # Each query is a row of the table itself, which is not counted.
                nearest = np.partition(nearest, deepest, axis=1)[:, : deepest + 1]
        nearest = np.sort(nearest, axis=1)
        lengths = (self.vectors**2).sum(axis=1)
        last = nearest.shape[1] - 1
        return [nearest[:, min(depth, last)] + lengths for depth in depths]

    def shares(self, depth: int, bounds: FloatArray, probes: int) -> FloatArray:
        """Per query, the share of the nearest that a search through some partitions finds."""
        count = min(_QUERIES.get(depth, _FEW_QUERIES), len(self.row_ids))
        shares = np.empty(count)
        for number in self.entities.budget.steps(range(count)):
            vector = self.vectors[number]
            # A filter leaves a deep search with few rows per partition: here it must not go on for want of rows.
            rows = nearest_rows(self.entities.table, self.name, vector.tolist(), depth + 1, probes=probes, no_more=True)
            squares = np.asarray(rows[DISTANCE].to_numpy())[row_id_array(rows) != self.row_ids[number]]
            # Rows as far as the last one are as good as it, whichever of them was found.
            tolerance = _NEAR * (bounds[number] + float(vector @ vector)) + _TINY
            shares[number] = min(1.0, np.count_nonzero(squares <= bounds[number] + tolerance) / depth)
        return shares


def _sample(entities: Entities, name: str, seed: int) -> _Sample:
    """Some rows with a vector."""
    count = max(_QUERIES.values())
    # More than enough, where some have none.
    chosen = np.random.default_rng(seed).permutation(entities.numbering().all_row_ids)[: 4 * count]
    column = entities.column(chosen, name)
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))[:count]
    vectors = np.array(column.take(present).to_pylist(), np.float64)
    return _Sample(entities, name, chosen[present], vectors)


def _steps(rows: int) -> list[int]:
    """Numbers of partitions, up to all that an index over so many rows has."""
    most = isqrt(rows) + 1
    steps = [1]
    while steps[-1] < most:
        steps.append(min(most, max(steps[-1] + 1, round(steps[-1] * _STEP))))
    return steps


def _load(caches: EngineCaches, table: Table, name: str, segments: tuple[str, ...]) -> RecallCurve | None:
    derived, kept = caches.derived, _set_name(name, segments)
    for group in _groups(table):
        arrays = derived.load(group, kept)
        if arrays is None:
            continue
        found = RecallCurve.unpack(arrays)
        if found is not None:
            return found
        # Its checksums are right: something else than a measurement wrote it.
        derived.forget(group, kept)
    return None


def _groups(table: Table) -> list[str]:
    """The groups that may know an index: that of the table, and for a fork that of the main line as well."""
    return [group_name(table.path, name) for name in dict.fromkeys((table.branch, None))]


def _prefix(name: str) -> str:
    return f"recall-{sha256(name.encode()).hexdigest()[:12]}-"


def _set_name(name: str, segments: tuple[str, ...]) -> str:
    return f"{_prefix(name)}{sha256('/'.join(segments).encode()).hexdigest()[:24]}"
