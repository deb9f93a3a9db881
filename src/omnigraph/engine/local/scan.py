"""NodeScan: the nodes of a type that satisfy its filters."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.engine.local.conditions import keep_true
from omnigraph.engine.local.entities import row_id_array
from omnigraph.engine.local.project import entity_columns
from omnigraph.engine.local.pushdown import push_down, value_of
from omnigraph.engine.local.rows import BATCH_ROWS, Rows, concat_rows
from omnigraph.engine.local.text import text_matches
from omnigraph.query.ir import (
    CompareOp,
    Comparison,
    Constant,
    ParamRef,
    PropertyRef,
    TextMatch,
)
from omnigraph.storage import scan_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.entities import Entities
    from omnigraph.query.ir import NodeScan, Predicate
    from omnigraph.types import StoredValue

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

    def run(self, batches: Iterator[Rows]) -> Iterator[Rows]:
        """Scan, or combine with what is there."""
        nodes: Rows | None = None
        for rows in batches:
            if rows.count == 1 and not rows.variables and rows.weights is None:
                yield from (part for part in self.nodes() if part.count)
                continue
            if nodes is None:
                nodes = concat_rows(self.nodes())
            yield from _cross(rows.only(self._live), nodes)

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
                total = entities.table.count_rows(pushed.filter)
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
            yield self._filtered_in_memory(entities)
            return
        batches = scan_rows(
            entities.table,
            self._columns,
            pushed.filter,
            limit=None if pushed.rest else self._limit,
            batch_rows=_VALUE_ROWS if self._columns else _SCAN_ROWS,
        )
        for batch in batches:
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

    def _filtered_in_memory(self, entities: Entities) -> Rows:
        op = self._op
        rows = Rows(
            count=entities.row_count,
            variables={op.variable: entities.numbering().all_row_ids},
            columns={
                (op.variable, name): entities.whole_column(name)
                for name in self._filtered_columns()
            },
        )
        return keep_true(self._context, rows, op.filters).only(self._live)

    def _matching(self, conditions: Sequence[TextMatch]) -> Rows:
        """The nodes that match all text conditions, then all other predicates."""
        op, context = self._op, self._context
        others: list[Predicate] = [item for item in op.filters if item not in conditions]
        filter_ = push_down(others, context.values).filter
        matches = [text_matches(context, condition, filter_) for condition in conditions]
        row_ids = reduce(np.intersect1d, matches)
        rows = Rows(count=len(row_ids), variables={op.variable: row_ids})
        return keep_true(context, rows, others).only(self._live)


def _cross(rows: Rows, nodes: Rows) -> Iterator[Rows]:
    """Every pair of a row and a node, in batches."""
    if not rows.count or not nodes.count:
        return
    if not nodes.variables:
        yield rows.multiplied(nodes.total)
        return
    width = max(1, BATCH_ROWS // nodes.count)
    for start in range(0, rows.count, width):
        part = rows.slice(start, start + width)
        index = np.repeat(np.arange(part.count), nodes.count)
        other = nodes.take(np.tile(np.arange(nodes.count), part.count))
        pairs = part.take(index).attach(other.columns)
        for variable, row_ids in other.variables.items():
            pairs = pairs.bind(variable, row_ids)
        yield pairs if other.weights is None else pairs.multiplied(other.weights)
