"""Direct reads: a few rows that begin at one key, answered out of memory without a pipeline.

The pipeline makes itself ready for tables of any size: operators, generators, budgets of batches. Where an answer is
one row, or a count over some neighbours, that takes several times as long as the answer. So the shapes that people ask
again and again are recognised here, and answered from what the pipeline keeps in memory: dictionaries of keys, whole
columns, traversal indexes and masks. Nothing is read and nothing is kept here. Where something is not in memory, or
where the answer would be large, there is no direct answer, and the pipeline gives the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from omnigraph.core.arrow import Array, Batch, pa
from omnigraph.core.ids import node_table_key
from omnigraph.core.values import StoredValue
from omnigraph.engine.operators.expand import COLLAPSE_MIN_PAIRS
from omnigraph.engine.predicates import ID, constant_text
from omnigraph.engine.results.projection import result_schema, shown
from omnigraph.engine.rows import BoolArray, IntArray, Numbers
from omnigraph.engine.tables.context import Context, EngineCaches, counts_rows
from omnigraph.engine.tables.entities import FEW_ROWS
from omnigraph.engine.tables.kept_columns import KeptColumn
from omnigraph.engine.tables.numberings import Numbering
from omnigraph.engine.tables.runs import ranges
from omnigraph.engine.tables.traversal_index import adjacency_key
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import Catalog

#: Neighbours that are met on the way to a count: with more of them the pipeline counts per target.
_MOST_COUNTED = 1 << 15
#: Those on the way to rows: with more of them the pipeline has another order.
_MOST_MET = COLLAPSE_MIN_PAIRS - 1


@frozen
class DirectShape:
    """A read that begins at one key, follows edges hop by hop, and counts what it finds or shows its properties."""

    scan: ir.NodeScan
    key: str
    value: ir.Value
    hops: tuple[ir.Expand, ...]
    #: The stored columns of the last variable that are shown; None where rows are counted.
    shown: tuple[str, ...] | None


def direct_shape(query: ir.ReadIR, catalog: Catalog) -> DirectShape | None:
    """The shape of a read, if it is one that has direct answers."""
    if query.rank is not None or query.order or query.per or query.having is not None:
        return None
    if query.limit is not None or query.offset is not None or not query.pipeline:
        return None
    scan, *rest = query.pipeline
    hops = tuple(op for op in rest if isinstance(op, ir.Expand))
    if not isinstance(scan, ir.NodeScan) or len(hops) < len(rest):
        return None
    match scan.filters:
        case (ir.Comparison(ir.PropertyRef(of, key), ir.CompareOp.EQ, (ir.ParamRef() | ir.Constant()) as value),):
            pass
        case _:
            return None
    known = catalog.nodes[scan.node_type].key
    if known is None or known.members != (key,) or of != scan.variable:
        return None
    last = scan.variable
    for hop in hops:
        if hop.source != last or not _is_plain(hop):
            return None
        last = hop.target
    expressions = [item.expression for item in query.projections]
    counted = [item for item in expressions if isinstance(item, ir.Aggregate) and counts_rows(item)]
    named = [name for item in expressions if (name := _stored_name(item, last)) is not None]
    if query.grouped:
        return DirectShape(scan, key, value, hops, None) if len(counted) == len(expressions) else None
    return DirectShape(scan, key, value, hops, tuple(named)) if len(named) == len(expressions) else None


def _stored_name(expression: ir.Expression | ir.Rank, variable: str) -> str | None:
    """The stored column of a variable that an expression is."""
    match expression:
        case ir.PropertyRef() if expression.variable == variable:
            return expression.property
        case ir.EntityRef() if expression.variable == variable:
            return ID
    return None


def _is_plain(hop: ir.Expand) -> bool:
    """Whether a hop is one edge that has no name, to nodes whose conditions hold or not for ever."""
    if hop.low != 1 or hop.high != 1 or hop.edge_variable is not None or hop.edge_filters:
        return False
    return not hop.filters or constant_text(hop.filters, hop.target) is not None


class _KeptTable:
    """The rows of a type at one snapshot, as far as they are in memory: by key, by number, and by condition."""

    __slots__ = ("_caches", "_fingerprint")

    def __init__(self, caches: EngineCaches, fingerprint: str) -> None:
        self._caches = caches
        self._fingerprint = fingerprint

    def numbering(self) -> Numbering | None:
        """What the numbers mean."""
        found = self._caches.numberings.get(self._fingerprint)
        if found is not None:
            found.is_read = True
        return found

    def number_of(self, numbering: Numbering, key: str, value: object) -> tuple[bool, int | None]:
        """Whether keys are in memory, and the number of the row with this key, if there is one."""
        return self._caches.known_number(numbering, key, value)

    def column(self, numbering: Numbering, name: str) -> KeptColumn | None:
        """A column by number."""
        return self._caches.columns.get(numbering, name)

    def mask(self, numbering: Numbering, text: str) -> BoolArray | None:
        """Per number, whether the row satisfies conditions of this text."""
        return self._caches.masks.get((numbering, text))


@frozen
class _Way:
    """One hop: where its traversal index is kept, and the conditions of the nodes at its end."""

    adjacency: tuple[str, str, str]
    direction: ir.Direction
    end: _KeptTable
    conditions: str | None


class DirectRead:
    """A read of a direct shape at one snapshot: the places where what it needs is kept, and nothing of that."""

    def __init__(self, context: Context, query: ir.ReadIR, shape: DirectShape) -> None:
        def kept(node_type: str) -> _KeptTable:
            return _KeptTable(context.caches, context.type_entities(node_table_key(node_type)).fingerprint)

        self._caches = context.caches
        self._key, self._value = shape.key, shape.value
        self._start = self._last = kept(shape.scan.node_type)
        ways = []
        for hop in shape.hops:
            key = adjacency_key(context, context.catalog.edges[hop.edge_type])
            text = constant_text(hop.filters, hop.target) if hop.filters else None
            self._last = kept(hop.target_type)
            ways.append(_Way(key, hop.direction, self._last, text))
        self._ways = tuple(ways)
        self._schema = result_schema(query.projections)
        self._types = tuple(item.type.base for item in query.projections)
        #: The names of the properties that are shown; None where rows are counted.
        self._shown = shape.shown

    def answer(self, values: Mapping[str, StoredValue]) -> tuple[Batch, ...] | None:
        """The batches of the result for some parameters; None where the pipeline has to be asked."""
        value = ir.value_of(self._value, values)
        start = self._start.numbering()
        if start is None or value is None:
            return None
        is_known, number = self._start.number_of(start, self._key, value)
        if not is_known:
            return None
        if self._shown is None:
            count = self._count(start, number)
            return None if count is None else self._batch([pa.array((count,), pa.int64())] * len(self._types))
        return () if number is None else self._rows(start, number, self._shown)

    def _batch(self, columns: Sequence[Array]) -> tuple[Batch, ...]:
        """Stored columns as the one batch of the result."""
        made = map(shown, columns, self._types, self._schema.types)
        return (pa.RecordBatch.from_arrays(list(made), schema=self._schema),)

    def _count(self, start: Numbering, number: int | None) -> int | None:
        if not self._ways or number is None:
            # Also where traversals are not in memory: from nothing nothing is reached.
            return 0 if number is None else 1
        *before, last = self._ways
        if last.conditions is not None:
            ends = self._ends(start, number, self._ways, _MOST_COUNTED)
            return None if ends is None else len(ends.numbers)
        nodes = self._ends(start, number, before, _MOST_COUNTED)
        if nodes is None or not len(nodes.numbers):
            return None if nodes is None else 0
        near = self._near(last, nodes)
        return None if near is None else int(np.add.reduce(near.counts))

    def _rows(self, start: Numbering, number: int, names: Sequence[str]) -> tuple[Batch, ...] | None:
        ends = self._ends(start, number, self._ways, _MOST_MET)
        if ends is None or len(ends.numbers) > FEW_ROWS:
            return None
        if not len(ends.numbers):
            return ()
        columns: list[Array] = []
        for name in names:
            column = self._last.column(ends.numbering, name)
            if column is None:
                return None
            columns.append(column.take(ends.numbers) if self._ways else column.value(number))
        return self._batch(columns)

    # ---- neighbours, as dense numbers, in the order of the pipeline: by source, then by number

    def _near(self, way: _Way, nodes: _Nodes) -> _Near | None:
        """The neighbours of nodes, every one once; None where they are not in memory."""
        known = self._caches.adjacencies.get(way.adjacency)
        side = None if known is None else known.known_sides().get(way.direction)
        if known is None or side is None or known.numberings is None:
            return None
        begin, end = known.numberings if way.direction is not ir.Direction.IN else known.numberings[::-1]
        # Numbers of another life of the same state may be others.
        if begin is not nodes.numbering or end is not way.end.numbering():
            return None
        known.is_read = True
        places, offsets, targets, _ = side.among(nodes.numbers, distinct=True)
        starts = offsets.take(places)
        return _Near(starts, offsets[1:].take(places) - starts, targets, end)

    def _ends(self, start: Numbering, number: int, ways: Sequence[_Way], most: int) -> _Nodes | None:
        """The nodes at the end of some hops, once per way to them; None where they are many, or not in memory."""
        numbers, numbering = np.array((number,)), start
        for way in ways:
            if not len(numbers):
                # What nothing leads to was never asked for, so that it is not in memory.
                return _Nodes(numbering, numbers)
            near = self._near(way, _Nodes(numbering, numbers))
            if near is None:
                return None
            numbering = near.numbering
            mask = None if way.conditions is None else way.end.mask(numbering, way.conditions)
            met = int(np.add.reduce(near.counts))
            if met > most or (mask is None and way.conditions is not None):
                return None
            first = int(near.starts[0])
            found = slice(first, first + met) if len(numbers) == 1 else ranges(near.starts, near.counts)
            numbers = near.targets[found]
            if mask is not None:
                numbers = numbers[mask[numbers]]
        return _Nodes(numbering, numbers)


class _Nodes(NamedTuple):
    """Nodes of one type, as dense numbers."""

    numbering: Numbering
    numbers: IntArray | Numbers


class _Near(NamedTuple):
    """The neighbours of nodes: where those of each begin among `targets`, and how many there are."""

    starts: IntArray
    counts: IntArray
    targets: Numbers
    numbering: Numbering
