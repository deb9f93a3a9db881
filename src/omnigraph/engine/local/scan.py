"""NodeScan: the nodes of a type that satisfy its filters."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.entities import row_id_array
from omnigraph.engine.local.project import entity_columns
from omnigraph.engine.local.pushdown import push_down, value_of
from omnigraph.engine.local.reading import gathered, read_batches
from omnigraph.engine.local.rows import BATCH_ROWS, Rows, batch_rows
from omnigraph.engine.local.text import text_matches
from omnigraph.query.ir import CompareOp, Comparison, Constant, ParamRef, PropertyRef, TextMatch
from omnigraph.storage.reads import scan_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.entities import Entities
    from omnigraph.query.ir import NodeScan, Predicate
    from omnigraph.types.values import StoredValue

_SCAN_ROWS = 1 << 17
#: Rows of one batch when whole values are read with them.
_VALUE_ROWS = 1 << 13
#: Larger tables are streamed instead of being numbered first.
_NUMBERED_ROWS = 10_000_000


class ScanOperator:
    """Combines each row with each node; the nodes are read once.

    `columns` are read together with the nodes, because nearly all of them will be asked for. `limit` is how many
    nodes suffice, if the caller knows.
    """

    def __init__(
        self,
        context: Context,
        op: NodeScan,
        live: frozenset[str],
        columns: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self._context = context
        self._op = op
        self._live = live
        self._columns = tuple(columns)
        self._limit = limit
        #: The nodes, once they are combined with rows; the memory is accounted until the query ends.
        self._nodes: Rows | None = None

    def apply(self, rows: Rows) -> Iterator[Rows]:
        """Scan, or combine with what is there."""
        if rows.count == 1 and not rows.variables and rows.weights is None:
            yield from self.nodes()
            return
        if self._nodes is None:
            self._nodes = gathered(self._context.budget, self.nodes())
        yield from _cross(self._context, rows.only(self._live), self._nodes)

    def nodes(self) -> Iterator[Rows]:
        """The nodes alone."""
        op, context = self._op, self._context
        conditions = [item for item in op.filters if isinstance(item, TextMatch)]
        if conditions:
            yield self._matching(conditions)
            return
        pushed = push_down(op.filters, context.values)
        entities = context.entities(op.variable)
        if op.variable not in self._live and not pushed.rest:
            total = entities.row_count
            if pushed.filter is not None:
                filter_ = pushed.filter
                total = context.budget.patiently(
                    lambda: entities.table.count_rows(filter_), entities.row_count
                )
            yield Rows(count=1).multiplied(total)
            return
        if pushed.filter is None and not self._columns and entities.row_count <= _NUMBERED_ROWS:
            row_ids = entities.numbering().all_row_ids
            for start in range(0, len(row_ids), BATCH_ROWS):
                part = row_ids[start : start + BATCH_ROWS]
                rows = Rows(count=len(part), variables={op.variable: part})
                yield keep_true(context, rows, pushed.rest).only(self._live)
            return
        key = self._key_value()
        if key is not None and entities.has_key_lookup(key[0]):
            found = entities.row_of_key(*key)
            rows = Rows(count=len(found), variables={op.variable: found})
            yield keep_true(context, rows, op.filters[1:]).only(self._live)
            return
        if pushed.filter is not None and self._is_filtered_in_memory(entities):
            yield from self._filtered_in_memory(entities)
            return
        batches = scan_rows(
            entities.table,
            self._columns,
            pushed.filter,
            limit=None if pushed.rest else self._limit,
            batch_rows=_VALUE_ROWS if self._columns else _SCAN_ROWS,
        )
        for batch in read_batches(context.budget, batches, entities.row_count):
            columns = {
                (op.variable, name): batch.column(place) for place, name in enumerate(self._columns)
            }
            rows = Rows(
                count=batch.num_rows,
                variables={op.variable: row_id_array(batch)},
                columns=columns,
            )
            yield keep_true(context, rows, pushed.rest).only(self._live)

    def _key_value(self) -> tuple[str, StoredValue] | None:
        """The key property and its value, when the first filter asks for one key."""
        op = self._op
        key = self._context.catalog.nodes[op.node_type].key
        if key is None or len(key.members) != 1 or not op.filters:
            return None
        match op.filters[0]:
            case Comparison(PropertyRef(_, name), CompareOp.EQ, (ParamRef() | Constant()) as value):
                if name == key.members[0]:
                    return name, value_of(value, self._context.values)
        return None

    def _is_filtered_in_memory(self, entities: Entities) -> bool:
        """Whether the filtered columns are in memory, or were asked for often enough to be read into it."""
        worth_keeping = [entities.is_worth_keeping(name) for name in self._filtered_columns()]
        return all(worth_keeping)

    def _filtered_columns(self) -> list[str]:
        columns = entity_columns(
            operand
            for item in self._op.filters
            if isinstance(item, Comparison)
            for operand in (item.left, item.right)
        )
        return list(dict.fromkeys(name for _, name in columns))

    def _filtered_in_memory(self, entities: Entities) -> Iterator[Rows]:
        op = self._op
        row_ids = entities.numbering().all_row_ids
        columns = {
            (op.variable, name): entities.whole_column(name) for name in self._filtered_columns()
        }
        whole = Rows(count=len(row_ids), variables={op.variable: row_ids}, columns=columns)
        for start in range(0, whole.count, BATCH_ROWS):
            part = whole.slice(start, start + BATCH_ROWS)
            yield keep_true(self._context, part, op.filters).only(self._live)

    def _matching(self, conditions: Sequence[TextMatch]) -> Rows:
        """The nodes that match all text conditions, then all other predicates."""
        op, context = self._op, self._context
        others: list[Predicate] = [item for item in op.filters if item not in conditions]
        matches = [text_matches(context, condition) for condition in conditions]
        row_ids = reduce(np.intersect1d, matches)
        rows = Rows(count=len(row_ids), variables={op.variable: row_ids})
        return keep_true(context, rows, others).only(self._live)


def _cross(context: Context, rows: Rows, nodes: Rows) -> Iterator[Rows]:
    """Every pair of a row and a node, in batches that are made as they are asked for."""
    if not rows.count or not nodes.count:
        return
    if not nodes.variables:
        yield rows.multiplied(nodes.total)
        return
    most = batch_rows(rows.width + nodes.width)
    for begin in range(0, nodes.count, most):
        some = nodes.slice(begin, begin + most)
        height = max(1, most // some.count)
        for start in range(0, rows.count, height):
            part = rows.slice(start, start + height)
            pairs = part.count * some.count
            context.budget.allow(part.taken_bytes(pairs) + some.taken_bytes(pairs))
            yield _pairs(part, some)


def _pairs(rows: Rows, nodes: Rows) -> Rows:
    index = np.repeat(np.arange(rows.count), nodes.count)
    other = nodes.take(np.tile(np.arange(nodes.count), rows.count))
    pairs = rows.take(index).attach(other.columns)
    for variable, row_ids in other.variables.items():
        pairs = pairs.bind(variable, row_ids)
    return pairs if other.weights is None else pairs.multiplied(other.weights)
