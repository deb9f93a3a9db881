"""The rows of a type as a statement finds them: rows written earlier in the mutation shadow committed ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from omnigraph.core.arrow import Rows, pa, pc
from omnigraph.core.values import StoredValue
from omnigraph.engine.predicates import push_down
from omnigraph.engine.rows import IntArray
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.storage.datasets.blobs import blob_bytes
from omnigraph.storage.datasets.filters import AllOf, Filter, OneOf
from omnigraph.writes.columns import PROBE_CHUNK, CommittedRows, TypeDef, blob_columns, table_schema, texts
from omnigraph.writes.pairs import PairCondition
from omnigraph.writes.pending import PendingRows
from omnigraph.writes.values import StatementRows

_EVERYTHING = AllOf(())


@frozen
class CurrentRows:
    """Finds rows for statements. The same expressions have the same meaning in storage and in memory."""

    committed: CommittedRows
    pending: PendingRows
    params: Mapping[str, StoredValue]

    def where(self, definition: TypeDef, predicate: ir.Expression) -> Rows:
        """The whole rows for which a condition is true."""
        pending = self.pending.delta(definition).rows
        found = [self._true(pending, (predicate,))]
        for rows in self._whole(definition, predicate):
            found.append(self._not_in(rows, pending))
        return _joined(found)

    def with_ids(self, definition: TypeDef, ids: Collection[str]) -> Rows:
        """The whole rows with these ids, as far as there are any."""
        pending = self.pending.delta(definition).rows
        wanted = set(ids)
        known = pending.filter(pc.is_in(pending["id"], pa.array(sorted(wanted), pa.utf8())))
        found = [known]
        rest = sorted(wanted - set(texts(known["id"])))
        for rows in self._by_id(definition, rest):
            found.append(rows.cast(known.schema))
        return _joined(found)

    def committed_where(
        self, definition: TypeDef, predicate: ir.Expression | None, columns: Sequence[str], only: Filter | None = None
    ) -> Iterator[Rows]:
        """Columns of the committed rows for which a condition is true, and of these only those that a filter keeps."""
        if self.committed.is_empty(definition.table_key):
            return
        filter_, rest = self._pushed(predicate, only)
        wanted = [*dict.fromkeys([*columns, *_own_columns(rest)])]
        for batch in self.committed.table(definition.table_key).scan(wanted, filter_):
            rows = pa.Table.from_batches([batch])
            if rows.num_rows:
                yield self._true(rows, rest).select(list(columns))

    def paired(
        self, definition: TypeDef, condition: PairCondition, columns: Sequence[str]
    ) -> Iterator[tuple[Rows, IntArray]]:
        """Columns of committed rows, each beside the combination of the match that it fits; from one scan."""
        wanted = [*dict.fromkeys([*columns, *condition.columns])]
        for rows in self.committed_where(definition, condition.alone, wanted):
            places, numbers = condition.pairs(rows)
            yield rows.select(list(columns)).take(pa.array(places)), numbers

    def whole_pairs(self, definition: TypeDef, condition: PairCondition) -> tuple[Rows, IntArray]:
        """The whole rows, each beside the combination of the match that it fits, in the order of the combinations."""
        pending = self.pending.delta(definition).rows
        mine = self._true(pending, [*ir.conjuncts(condition.alone)])
        places, numbers = condition.pairs(mine)
        found = [(mine.take(pa.array(places)), numbers)]
        names = table_schema(definition).names
        # Blobs are read only of the rows that are found.
        columns = ["id"] if blob_columns(definition) else names
        for rows, numbers in self.paired(definition, condition, columns):
            kept = pc.invert(pc.is_in(rows["id"], pending["id"].combine_chunks()))
            found.append((rows.filter(kept), numbers[np.asarray(kept.to_numpy(), np.bool_)]))
        if columns != names:
            ids = dict.fromkeys(entity_id for rows, _ in found[1:] for entity_id in texts(rows["id"]))
            whole = _joined([pending.slice(0, 0), *self._by_id(definition, list(ids))])
            place_of = {entity_id: place for place, entity_id in enumerate(texts(whole["id"]))}
            found[1:] = [
                (whole.take(pa.array([place_of[entity_id] for entity_id in texts(rows["id"])], pa.int64())), numbers)
                for rows, numbers in found[1:]
            ]
        numbers = np.concatenate([part for _, part in found])
        order = np.argsort(numbers, kind="stable")
        return _joined([rows.cast(pending.schema) for rows, _ in found]).take(pa.array(order)), numbers[order]

    def _whole(self, definition: TypeDef, predicate: ir.Expression) -> Iterator[Rows]:
        """The committed rows for which a condition is true."""
        key = definition.table_key
        if self.committed.is_empty(key):
            return
        filter_, rest = self._pushed(predicate, None)
        if not rest:
            self._reserve_blobs(definition, filter_)
            yield self.committed.select(key, table_schema(definition).names, filter_)
        elif blob_columns(definition):
            # Blobs are read only of the rows that are found.
            ids = [item for rows in self.committed_where(definition, predicate, ["id"]) for item in texts(rows["id"])]
            yield from self._by_id(definition, ids)
        else:
            yield from self.committed_where(definition, predicate, table_schema(definition).names)

    def _by_id(self, definition: TypeDef, ids: Sequence[str]) -> Iterator[Rows]:
        for begin in range(0, len(ids), PROBE_CHUNK):
            self._reserve_blobs(definition, OneOf("id", ids[begin : begin + PROBE_CHUNK]))
        yield from self.committed.probe(definition.table_key, "id", ids, table_schema(definition).names)

    def _pushed(self, predicate: ir.Expression | None, only: Filter | None) -> tuple[Filter, tuple[ir.Expression, ...]]:
        pushed = push_down(() if predicate is None else ir.conjuncts(predicate), self.params)
        filters = tuple(item for item in (only, pushed.filter) if item is not None)
        return (filters[0] if len(filters) == 1 else AllOf(filters)), pushed.rest

    def _true(self, rows: Rows, predicates: Sequence[ir.Expression]) -> Rows:
        for predicate in predicates:
            if rows.num_rows:
                source = StatementRows(count=rows.num_rows, values=self.params, own=rows, matched={})
                rows = rows.filter(pa.array(source.holds(predicate)))
        return rows

    def _not_in(self, rows: Rows, pending: Rows) -> Rows:
        """Committed rows that no pending one shadows."""
        shadowed = pc.is_in(rows["id"], pending["id"].combine_chunks())
        return rows.filter(pc.invert(shadowed)).cast(pending.schema)

    def _reserve_blobs(self, definition: TypeDef, filter_: Filter) -> None:
        """Blobs that an update carries are refused before they are in memory, when they are too many."""
        if (columns := sorted(blob_columns(definition))) and not self.committed.is_empty(definition.table_key):
            self.pending.check_bytes(blob_bytes(self.committed.table(definition.table_key), columns, filter_))


def _own_columns(predicates: Sequence[ir.Expression]) -> Iterator[str]:
    for predicate in predicates:
        for part in ir.walk(predicate):
            if isinstance(part, ir.PropertyRef):
                yield part.property


def _joined(parts: Sequence[Rows]) -> Rows:
    joined: Rows = pa.concat_tables(parts)
    return joined
