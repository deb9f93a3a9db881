"""Statements of a mutation: what they find, and the rows that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from omnigraph.core.arrow import (
    Array,
    Rows,
    arrow_field,
    arrow_type,
    json_column,
    one_array,
    pa,
    stored_array,
    stored_values,
)
from omnigraph.core.ids import derive_id, new_ulid
from omnigraph.core.types import BaseType
from omnigraph.core.values import StoredValue, canonical_spelling
from omnigraph.engine.rows import IntArray
from omnigraph.engine.values.comparisons import as_array
from omnigraph.engine.values.expressions import evaluate
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.accepted import Identities
from omnigraph.lang.schema.catalog import EDGE_ENDS, Catalog, EdgeDef, embedded_vectors, member_base
from omnigraph.lang.schema.rules import EndGiven, Example, Required, violation_text
from omnigraph.storage.datasets.filters import AnyOf, Filter, OneOf
from omnigraph.writes.columns import PROBE_CHUNK, CommittedRows, TypeDef, table_schema, texts
from omnigraph.writes.current import CurrentRows
from omnigraph.writes.embedding import UnembeddedRows
from omnigraph.writes.matched import TYPE, MatchedRows, Tuples
from omnigraph.writes.pairs import PairCondition
from omnigraph.writes.pending import ExternalIntake, PendingRows
from omnigraph.writes.values import StatementRows, assigned_value, computed_column, refuse_overflow

_END_NAMES = {"src": "from", "dst": "to"}


@dataclass(slots=True)
class Affected:
    """The number of entities that a mutation touched."""

    nodes: int = 0
    edges: int = 0

    def count(self, definition: TypeDef, number: int) -> None:
        """Count entities of a type."""
        if isinstance(definition, EdgeDef):
            self.edges += number
        else:
            self.nodes += number


@frozen
class _Found:
    """Rows that a statement writes, and the combination of match variables that each was found for."""

    own: Rows
    numbers: IntArray
    tuples: Tuples


@dataclass(slots=True, kw_only=True)
class StatementRunner:
    """Runs statements in order; each sees what the earlier ones did."""

    catalog: Catalog
    identities: Identities
    committed: CommittedRows
    pending: PendingRows
    params: Mapping[str, StoredValue]
    external: ExternalIntake
    matched: MatchedRows
    unembedded: UnembeddedRows
    affected: Affected = field(default_factory=Affected)

    @property
    def _current(self) -> CurrentRows:
        return CurrentRows(self.committed, self.pending, self.params)

    def run(self, statement: ir.Statement) -> None:
        """Run one statement for all rows of the match.

        Raises:
            BadRequestError: a value does not fit.
        """
        if not self.matched.count:
            # What is wrong with a value is told even where nothing is written.
            if isinstance(statement, ir.InsertNode | ir.InsertEdge | ir.UpdateRows):
                self._fixed(self._definition(statement), statement.assignments)
            return
        match statement:
            case ir.InsertNode():
                self._insert_nodes(statement)
            case ir.InsertEdge():
                self._insert_edges(statement)
            case ir.UpdateRows():
                self._update(statement)
            case ir.DeleteNode():
                self._delete_nodes(statement)
            case ir.DeleteEdge():
                edge = self.catalog.edges[statement.edge_type]
                for filter_, predicate in self._to_delete(edge, statement):
                    self.affected.edges += self._delete_edges(edge, filter_, predicate)
            case _:
                assert_never(statement)

    def _definition(self, statement: ir.InsertNode | ir.InsertEdge | ir.UpdateRows) -> TypeDef:
        match statement:
            case ir.InsertNode(node_type):
                return self.catalog.nodes[node_type]
            case ir.InsertEdge(edge_type):
                return self.catalog.edges[edge_type]
            case ir.UpdateRows(key):
                return self.catalog.types[key]

    # ---- inserts and upserts

    def _insert_nodes(self, statement: ir.InsertNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        fixed = self._fixed(node, statement.assignments)
        tuples = self.matched.distinct(ir.statement_expressions(statement))
        rows = self._new_rows(node, statement.assignments, fixed, tuples)
        table = self._put(node, rows, tuples.count, keeps_rest=statement.keeps_rest)
        if statement.variable is not None:
            self.matched.add(statement.variable, node.name, table, tuples)

    def _insert_edges(self, statement: ir.InsertEdge) -> None:
        edge = self.catalog.edges[statement.edge_type]
        fixed = self._fixed(edge, statement.assignments)
        tuples = self.matched.distinct(ir.statement_expressions(statement))
        rows = self._new_rows(edge, statement.assignments, fixed, tuples)
        source = StatementRows(count=tuples.count, values=self.params, matched=tuples.columns)
        ends = zip(EDGE_ENDS, (statement.source, statement.target), (edge.source, edge.target), strict=True)
        for column, expression, node_type in ends:
            values = as_array(evaluate(expression, source).side, tuples.count)
            is_missing = values.null_count > 0
            if isinstance(expression, ir.ParamRef | ir.Constant):
                is_missing = ir.value_of(expression, self.params) is None
            if is_missing:
                rule = EndGiven(edge_type=edge.name, end=_END_NAMES[column], node_type=node_type)
                raise BadRequestError(violation_text(rule, Example(None)))
            rows[column] = values
        self._put(edge, rows, tuples.count, keeps_rest=statement.keeps_rest)

    def _fixed(self, definition: TypeDef, assignments: Iterable[ir.Assignment]) -> dict[str, StoredValue]:
        """The assigned literals and parameters.

        Before any row is looked for: whether a value is refused must not depend on what is stored.
        """
        return {
            item.property: assigned_value(
                definition.name,
                item.property,
                definition.properties[item.property].type,
                item.value,
                self.params,
                external=self.external,
            )
            for item in assignments
            if isinstance(item.value, ir.ParamRef | ir.Constant)
        }

    def _new_rows(
        self,
        definition: TypeDef,
        assignments: Iterable[ir.Assignment],
        fixed: Mapping[str, StoredValue],
        tuples: Tuples,
    ) -> dict[str, Array]:
        source = StatementRows(count=tuples.count, values=self.params, matched=tuples.columns)
        return _assigned_columns(definition, assignments, fixed, source, tuples.label)

    def _put(self, definition: TypeDef, columns: dict[str, Array], count: int, *, keeps_rest: bool) -> Rows:
        """Add rows under the ids that their keys make, or under new ones."""
        members = self.identities.key_members(definition)
        ids = _key_ids(definition, members, columns, count) if members else [new_ulid() for _ in range(count)]
        columns["id"] = pa.array(ids, pa.utf8())
        assigned = frozenset(columns)
        before = self._keep_rest(definition, columns, ids) if keeps_rest else None
        schema = table_schema(definition)
        arrays = [columns[item.name] if item.name in columns else pa.nulls(count, item.type) for item in schema]
        table: Rows = pa.Table.from_arrays(arrays, schema=schema)
        if count:
            self.unembedded.note(definition, assigned, before, table)
            self.pending.put(definition, table, may_replace=bool(members))
        self.affected.count(definition, len(set(ids)))
        return table

    def _keep_rest(self, definition: TypeDef, columns: dict[str, Array], ids: Sequence[str]) -> dict[str, Array]:
        """Fill the columns that are not assigned with what existing rows hold there; the texts that these have."""
        existing = self._current.with_ids(definition, ids)
        place_of = {entity_id: place for place, entity_id in enumerate(texts(existing["id"]))}
        places = pa.array([place_of.get(entity_id) for entity_id in ids], pa.int64())
        made = self.unembedded.to_fill(definition, columns.keys())
        for prop in definition.properties.values():
            if prop.name in columns:
                continue
            if not prop.type.nullable and places.null_count and prop.name not in made:
                new = next(entity_id for entity_id in ids if entity_id not in place_of)
                rule = Required(type_name=definition.name, property=prop.name)
                raise BadRequestError(violation_text(rule, Example(None, ids=(new,))))
            columns[prop.name] = one_array(existing[prop.name]).take(places)
        return {item.source: one_array(existing[item.source]).take(places) for item in embedded_vectors(definition)}

    # ---- what updates and deletes are about

    def _found(self, definition: TypeDef, statement: ir.UpdateRows | ir.DeleteNode | ir.DeleteEdge) -> _Found:
        """The rows of a statement: those of its variable, or those of its type for which its condition is true."""
        predicate = statement.predicate
        tuples = self.matched.distinct(ir.statement_expressions(statement), (statement.variable,))
        if statement.variable is not None:
            bound = tuples.bound(statement.variable, definition.name)
            rows = self._current.with_ids(definition, {entity_id for _, entity_id in bound})
            place_of = {entity_id: place for place, entity_id in enumerate(texts(rows["id"]))}
            numbers = np.array([number for number, _ in bound], np.int64)
            own = rows.take(pa.array([place_of[entity_id] for _, entity_id in bound], pa.int64()))
            if predicate is not None:
                source = self._rows_of(own, numbers, tuples)
                kept = source.holds(predicate)
                own, numbers = own.filter(pa.array(kept)), numbers[kept]
            return _Found(own, numbers, tuples)
        assert predicate is not None, "a statement about a type has a condition"
        if tuples.names:
            return _Found(*self._current.whole_pairs(definition, self._paired(predicate, tuples)), tuples)
        own = self._current.where(definition, predicate)
        return _Found(own, np.zeros(own.num_rows, np.int64), tuples)

    def _paired(self, predicate: ir.Expression, tuples: Tuples) -> PairCondition:
        return PairCondition(predicate, tuples, self.params)

    def _rows_of(self, own: Rows, numbers: IntArray, tuples: Tuples) -> StatementRows:
        wanted = pa.array(numbers)
        matched = {column: values.take(wanted) for column, values in tuples.columns.items()}
        return StatementRows(count=own.num_rows, values=self.params, own=own, matched=matched)

    # ---- updates

    def _update(self, statement: ir.UpdateRows) -> None:
        definition = self.catalog.types[statement.type_key]
        fixed = self._fixed(definition, statement.assignments)
        found = self._found(definition, statement)
        if not found.own.num_rows:
            return
        ids = texts(found.own["id"])
        source = self._rows_of(found.own, found.numbers, found.tuples)
        columns = _assigned_columns(
            definition, statement.assignments, fixed, source, lambda place: f"{definition.name} {ids[place]!r}"
        )
        rows = found.own
        for name, column in columns.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), column)
        self.unembedded.note(definition, columns.keys(), found.own, rows)
        if found.tuples.names:
            # Only rows of a match find an entity more than once.
            rows = _one_per_id(definition, rows, ids, columns)
        self.pending.put(definition, rows, may_replace=True)
        self.affected.count(definition, rows.num_rows)

    # ---- deletes

    def _to_delete(
        self, definition: TypeDef, statement: ir.DeleteNode | ir.DeleteEdge
    ) -> Iterator[tuple[Filter | None, ir.Expression | None]]:
        """What to look for among committed rows: parts of what a statement deletes."""
        tuples = self.matched.distinct(ir.statement_expressions(statement), (statement.variable,))
        if statement.variable is None:
            assert statement.predicate is not None, "a statement about a type has a condition"
            if not tuples.names:
                yield None, statement.predicate
                return
            pairs = self._current.paired(definition, self._paired(statement.predicate, tuples), ["id"])
            ids = [entity_id for rows, _ in pairs for entity_id in texts(rows["id"])]
        elif statement.predicate is None:
            ids = [entity_id for _, entity_id in tuples.bound(statement.variable, definition.name)]
        else:
            ids = texts(self._found(definition, statement).own["id"])
        for chunk in _chunks(sorted(set(ids))):
            yield OneOf("id", chunk), None

    def _delete_nodes(self, statement: ir.DeleteNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        delta = self.pending.delta(node)
        gone: list[str] = []
        for filter_, predicate in self._to_delete(node, statement):
            for rows in self._current.committed_where(node, predicate, ["id", "_rowaddr"], filter_):
                for entity_id, address in zip(*_columns(rows, "id", "_rowaddr"), strict=True):
                    if entity_id not in delta.deleted:
                        delta.deleted[entity_id] = address
                        gone.append(entity_id)
        # Its rows were looked at even when there are none: one that arrives meanwhile is not deleted.
        self.committed.is_empty(node.table_key)
        self.affected.nodes += len(gone)
        for name in statement.cascades:
            # Looked at even when nothing matched: an edge that arrives meanwhile must not dangle.
            edge = self.catalog.edges[name]
            self.committed.is_empty(edge.table_key)
            for chunk in _chunks(gone):
                ends = [
                    OneOf(column, chunk)
                    for column, end in (("src", edge.source), ("dst", edge.target))
                    if end == node.name
                ]
                self.affected.edges += self._delete_edges(edge, AnyOf(tuple(ends)), None)

    def _delete_edges(self, edge: EdgeDef, filter_: Filter | None, predicate: ir.Expression | None) -> int:
        """Record matching committed edges as deleted; how many of them are new."""
        delta = self.pending.delta(edge)
        columns = ["id", "src", "dst", "_rowaddr"]
        before = len(delta.deleted)
        for rows in self._current.committed_where(edge, predicate, columns, filter_):
            for entity_id, source, target, address in zip(*_columns(rows, *columns), strict=True):
                delta.deleted[entity_id] = address
                delta.deleted_ends[entity_id] = (source, target)
        return len(delta.deleted) - before

    # ---- what is returned

    def returned(self, columns: Sequence[ir.Projection]) -> tuple[Mapping[str, object], ...]:
        """The rows behind the statements: one for each row of the match, with the values that entities have now."""
        if not self.matched.count:
            return ()
        made: dict[str, list[object]] = {}
        rows = StatementRows(count=self.matched.count, values=self.params, matched=self._now(columns))
        for column in columns:
            assert not isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf), "statements rank nothing"
            found = evaluate(column.expression, rows)
            refuse_overflow(found, lambda place: f"row {place + 1}")
            made[column.name] = json_column(as_array(found.side, rows.count), column.type.base)
        return tuple(dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True))

    def _now(self, columns: Sequence[ir.Projection]) -> dict[tuple[str, str], Array]:
        """The columns of all variables that are returned, as they are after the statements."""
        wanted: dict[str, dict[str, BaseType]] = {}
        paths: dict[tuple[str, str], Array] = {}
        for column in columns:
            assert not isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf), "statements rank nothing"
            for part in ir.walk(column.expression):
                if isinstance(part, ir.PathRef):
                    paths[part.path, part.part] = self.matched.columns[part.path, part.part]
                elif isinstance(part, ir.PropertyRef | ir.EntityRef | ir.TypeOf):
                    name = part.property if isinstance(part, ir.PropertyRef) else "id"
                    wanted.setdefault(part.variable, {})[name] = part.type.base
        found: dict[tuple[str, str], Array] = paths
        for variable, names in wanted.items():
            found[variable, TYPE] = self.matched.columns[variable, TYPE]
            found |= {(variable, name): column for name, column in self._values_now(variable, names).items()}
        return found

    def _values_now(self, variable: str, names: Mapping[str, BaseType]) -> dict[str, Array]:
        """The columns of one variable, which may be of several types or bound to nothing."""
        ids = stored_values(self.matched.columns[variable, "id"])
        types = stored_values(self.matched.columns[variable, TYPE])
        parts: dict[str, list[Array]] = {name: [pa.nulls(0, arrow_type(base))] for name, base in names.items()}
        place_of: dict[tuple[StoredValue, StoredValue], int] = {}
        kind = self.matched.kinds[variable]
        for definition in self.catalog.types.values():
            type_name = definition.name
            own = {str(entity_id) for entity_id, name in zip(ids, types, strict=True) if name == type_name}
            if not own or definition.table_key.kind != kind:
                continue
            rows = self._current.with_ids(definition, own)
            begin = len(place_of)
            place_of |= {(item, type_name): begin + place for place, item in enumerate(texts(rows["id"]))}
            for name, columns in parts.items():
                columns.append(one_array(rows[name]))
        places = pa.array([place_of.get(key) for key in zip(ids, types, strict=True)], pa.int64())
        return {name: pa.concat_arrays(columns).take(places) for name, columns in parts.items()}


def _assigned_columns(
    definition: TypeDef,
    assignments: Iterable[ir.Assignment],
    fixed: Mapping[str, StoredValue],
    source: StatementRows,
    label: Callable[[int], str],
) -> dict[str, Array]:
    """What is assigned, as a column for every property."""
    columns: dict[str, Array] = {}
    for item in assignments:
        name = item.property
        if name in fixed:
            one = stored_array(arrow_field(name, definition.properties[name].type).type, [fixed[name]])
            columns[name] = one.take(pa.array(np.zeros(source.count, np.int64)))
        else:
            columns[name] = computed_column(definition, name, item.value, source, label)
    return columns


def _key_ids(definition: TypeDef, members: Sequence[str], columns: Mapping[str, Array], count: int) -> list[str]:
    bases = [member_base(definition, name) for name in members]
    values = [stored_values(columns[name]) for name in members]
    rows = (zip(*values, strict=True)) if count else ()
    return [derive_id(list(map(canonical_spelling, bases, row))) for row in rows]


def _one_per_id(definition: TypeDef, rows: Rows, ids: Sequence[str], columns: Mapping[str, Array]) -> Rows:
    """Updated rows, one for each entity.

    Raises:
        BadRequestError: rows of the match give one property of one entity different values.
    """
    first: dict[str, int] = {}
    repeated = [
        (place, entity_id) for place, entity_id in enumerate(ids) if first.setdefault(entity_id, place) != place
    ]
    if not repeated:
        return rows
    for name, column in columns.items():
        values = stored_values(column)
        for place, entity_id in repeated:
            one, other = values[first[entity_id]], values[place]
            if one != other:
                raise BadRequestError(
                    f"`{name}` of {definition.name} {entity_id!r} gets different values from the match, such as "
                    f"{one!r} and {other!r}: let the match find one row for each"
                )
    return rows.take(pa.array(list(first.values()), pa.int64()))


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[begin : begin + PROBE_CHUNK] for begin in range(0, len(ids), PROBE_CHUNK))


def _columns(rows: Rows, *names: str) -> list[list]:  # type: ignore[type-arg]  # values of several types
    return [rows[name].to_pylist() for name in names]
