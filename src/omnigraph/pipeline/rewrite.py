"""Table changes of a migration: new columns and backfills as tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, assert_never

import numpy as np

from omnigraph.core.arrow import Array, Batch, Field, pa, pc, stored_array
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.types import is_wider
from omnigraph.frozen import frozen
from omnigraph.lang.schema.backfill import Call, Constant, Expression, PropertyValue, used_properties
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, TypeKind
from omnigraph.lang.schema.plan import MigrationPlan
from omnigraph.lang.schema.rules import Pattern, Range, TableRules, derive_rules
from omnigraph.lang.schema.steps import AddConstraint, DropMode, DropProperty, DropType, TightenNullability
from omnigraph.pipeline.violations import ViolationCounts, required
from omnigraph.pipeline.workers import Message, Workers, raise_failure
from omnigraph.storage.datasets.column_changes import (
    NewColumn,
    needs_values,
    stage_columns,
    stage_table,
    write_columns,
    write_table,
)
from omnigraph.storage.datasets.fragments import fragment_sizes, remove_written
from omnigraph.storage.datasets.partitions import TableAddress, list_fragment_groups, table_address
from omnigraph.storage.datasets.staged import StagedWrite
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.columns import blob_columns, table_schema
from omnigraph.writes.rules import check_values

if TYPE_CHECKING:
    import pyarrow


# ---- The interpreter of backfill expressions


_TEXT_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "concat": lambda *columns: pc.binary_join_element_wise(*columns, ""),
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "trim": pc.utf8_trim_whitespace,
}


def evaluate(expression: Expression, batch: Batch, field: Field) -> Array:
    """The values of an expression for every row, as a column of a field's type; null where it has none."""
    match expression:
        case Constant(value):
            return stored_array(field.type, [value]).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        case PropertyValue(name):
            column = batch.column(name)
            return column if column.type == field.type else column.cast(field.type)
        case Call("coalesce", arguments):
            found: Array = pc.coalesce(*(evaluate(item, batch, field) for item in arguments))
            return found
        case Call(function, arguments):
            text = pa.field(field.name, pa.utf8())
            return _TEXT_FUNCTIONS[function](*(evaluate(item, batch, text) for item in arguments))
        case _:
            assert_never(expression)


# ---- Rewriting columns in tasks
#
# Nothing moves here: what comes out is staged, and the caller commits it under the commit protocol. A change
# without new values needs no task at all, whatever the size of the table.


@frozen(kw_only=True)
class ColumnChange:
    """One column of the table as it will be, and where its values come from.

    The values of `origin`, in the type of the field; where they are null, those of `backfill`.
    """

    field: Field
    origin: str | None = None
    backfill: Expression | None = None
    is_widened: bool = False
    is_blob: bool = False

    @property
    def target(self) -> NewColumn:
        """The column as storage sees it."""
        return NewColumn(
            field=self.field,
            origin=self.origin,
            is_written=self.backfill is not None or self.is_widened,
            is_blob=self.is_blob,
        )

    @property
    def reads(self) -> frozenset[str]:
        """The present columns that its values come from."""
        used = frozenset() if self.backfill is None else used_properties(self.backfill)
        return used | ({self.origin} if self.origin is not None else set())


@frozen(kw_only=True)
class TableChange:
    """All columns of a table as they will be, in their order."""

    columns: tuple[ColumnChange, ...]
    #: Every row is written anew, so that nothing of a dropped column is left.
    is_rewritten: bool = False


@frozen(kw_only=True)
class Reshaped:
    """A staged change, and the rows that lack a required value."""

    staged: StagedWrite
    nulls: ViolationCounts = field(default_factory=ViolationCounts)


@frozen(kw_only=True)
class _Item:
    address: TableAddress
    key: TableKey
    fragments: tuple[int, ...]
    columns: tuple[ColumnChange, ...]


def reshape_table(table: Table, key: TableKey, change: TableChange, workers: Workers) -> Reshaped:
    """Write what is new and stage the change; `key` is the one that the table will have.

    When it fails, its files are gone.
    """
    targets = [column.target for column in change.columns]
    needed = needs_values(table, targets)
    # Blobs lie partly outside the columns, so that their values cannot be written beside existing rows.
    is_rewritten = change.is_rewritten or any(item.is_blob for item in needed)
    if is_rewritten and table.row_count:
        return _rewritten(table, key, change, workers)
    written = {item.field.name for item in needed}
    columns = tuple(column for column in change.columns if column.field.name in written)
    sizes = fragment_sizes(table)
    if not columns or not sizes:
        return Reshaped(staged=stage_columns(table, targets))
    address = table_address(table)
    items = [_Item(address=address, key=key, fragments=(one,), columns=columns) for one in sizes]
    answers = _run(table, workers, "write columns", _write_columns, items)
    staged = stage_columns(table, targets, [answer["fragments"][0] for answer in answers])
    return _reshaped(staged, answers)


def _rewritten(table: Table, key: TableKey, change: TableChange, workers: Workers) -> Reshaped:
    address = table_address(table)
    items = [
        _Item(address=address, key=key, fragments=group.fragment_ids, columns=change.columns)
        for group in list_fragment_groups(table)
    ]
    answers = _run(table, workers, "write rows", _write_rows, items)
    fragments = [text for answer in answers for text in answer["fragments"]]
    targets = [column.target for column in change.columns]
    return _reshaped(stage_table(table, targets, fragments), answers)


def _run(
    table: Table, workers: Workers, stage: str, task: Callable[[_Item], Message], items: Sequence[_Item]
) -> list[Message]:
    answers: list[Message] = []
    try:
        answers = workers.run(stage, task, items, keep_failures=True)
        for answer in answers:
            raise_failure(answer)
    except BaseException:
        # Also after an interrupt: nothing else knows these files.
        fragments = [text for answer in answers for text in answer.get("fragments", ())]
        remove_written(table, fragments)
        raise
    return answers


def _reshaped(staged: StagedWrite, answers: Sequence[Message]) -> Reshaped:
    nulls = ViolationCounts()
    for answer in answers:
        nulls.merge(ViolationCounts.from_message(answer["nulls"]))
    return Reshaped(staged=staged, nulls=nulls)


class _Values:
    """Computes columns batch by batch, and counts the rows that lack a required value."""

    def __init__(self, item: _Item) -> None:
        self._key = item.key
        self._columns = item.columns
        self.reads = sorted({"id"}.union(*(column.reads for column in item.columns)))
        self.nulls = ViolationCounts()

    def compute(self, batch: Batch) -> list[Array]:
        return [self._column(column, batch) for column in self._columns]

    def _column(self, column: ColumnChange, batch: Batch) -> Array:
        field_ = column.field
        values = None
        if column.origin is not None:
            values = batch.column(column.origin)
            # Blobs come as bytes and are encoded where they are written.
            values = values if column.is_blob or values.type == field_.type else values.cast(field_.type)
        if column.backfill is not None:
            filled = evaluate(column.backfill, batch, field_)
            values = filled if values is None else pc.coalesce(values, filled)
        if values is None:
            values = pa.nulls(batch.num_rows, field_.type)
        if not field_.nullable and values.null_count:
            rows = pa.table({"id": batch.column("id"), field_.name: values})
            for violation in check_values(self._key, [required(self._key, field_.name)], rows):
                self.nulls.add_all(violation)
        return values


def _write_columns(item: _Item) -> Message:
    values = _Values(item)
    fields = [column.field for column in item.columns]
    text = write_columns(item.address, item.fragments[0], values.reads, values.compute, fields)
    return {"fragments": [text], "nulls": values.nulls.to_message()}


def _write_rows(item: _Item) -> Message:
    values = _Values(item)
    targets = [column.target for column in item.columns]
    written = write_table(item.address, item.fragments, values.reads, values.compute, targets)
    return {"fragments": written, "nulls": values.nulls.to_message()}


# ---- Table changes of a migration plan


_KEYS = {TypeKind.NODE: node_table_key, TypeKind.EDGE: edge_table_key}


@frozen(kw_only=True)
class TableMigration:
    """One table that goes on: what becomes of its columns, and what its rows have to satisfy from now on."""

    #: The table under its present name, and under the one it will have.
    old_key: TableKey
    new_key: TableKey
    definition: NodeDef | EdgeDef
    change: TableChange
    rules: TableRules = field(default_factory=TableRules)
    #: Present columns that become required as they are, with the names they will have.
    required: Mapping[str, str] = field(default_factory=dict)

    def moves(self, present: pyarrow.Schema) -> bool:
        """Whether the columns are not what they are now."""
        wanted = [
            (column.origin, column.field.name, column.field.nullable, column.target.is_written)
            for column in self.change.columns
        ]
        now = [(item.name, item.name, item.nullable, False) for item in present]
        return self.change.is_rewritten or wanted != now


@frozen(kw_only=True)
class TableMigrations:
    """Everything that a plan does to tables."""

    continued: tuple[TableMigration, ...]
    created: tuple[NodeDef | EdgeDef, ...]
    dropped: tuple[TableKey, ...]
    #: Present keys of tables whose past is destroyed.
    purged: tuple[TableKey, ...]

    @property
    def renamed(self) -> dict[TableKey, TableKey]:
        """Present key → the one it goes on under."""
        return {item.old_key: item.new_key for item in self.continued if item.old_key != item.new_key}


def plan_tables(plan: MigrationPlan, accepted: Catalog, wanted: Catalog) -> TableMigrations:
    """The tables of a supported plan."""
    rules = derive_rules(wanted)
    continued: list[TableMigration] = []
    created: list[NodeDef | EdgeDef] = []
    definitions: list[tuple[TypeKind, NodeDef | EdgeDef]] = [
        *((TypeKind.NODE, node) for node in wanted.nodes.values()),
        *((TypeKind.EDGE, edge) for edge in wanted.edges.values()),
    ]
    for kind, definition in definitions:
        origin = plan.resolution.type_origins.get((kind, definition.name))
        if origin is None:
            created.append(definition)
            continue
        before = accepted.nodes[origin] if kind is TypeKind.NODE else accepted.edges[origin]
        continued.append(
            TableMigration(
                old_key=before.table_key,
                new_key=definition.table_key,
                definition=definition,
                change=_table_change(plan, kind, before, definition),
                rules=_new_rules(plan, kind, definition.name, rules[definition.table_key]),
                required=_required(plan, kind, definition.name),
            )
        )
    hard = [item.old_key for item in continued if item.change.is_rewritten]
    drops = [step for step in plan.steps if isinstance(step, DropType)]
    dropped = tuple(_KEYS[step.type_kind](step.type_name) for step in drops)
    gone = [_KEYS[step.type_kind](step.type_name) for step in drops if step.mode is DropMode.HARD]
    return TableMigrations(continued=tuple(continued), created=tuple(created), dropped=dropped, purged=(*hard, *gone))


def _table_change(
    plan: MigrationPlan, kind: TypeKind, before: NodeDef | EdgeDef, after: NodeDef | EdgeDef
) -> TableChange:
    origins = plan.resolution.property_origins[kind, after.name]
    blobs = blob_columns(after)
    columns = []
    for item in table_schema(after):
        name = item.name
        if name not in after.properties:
            columns.append(ColumnChange(field=item, origin=name))
            continue
        origin = origins.get(name)
        backfill = plan.backfills.get((kind, after.name, name))
        old = None if origin is None else before.properties[origin].type.base
        new = after.properties[name].type.base
        columns.append(
            ColumnChange(
                field=item,
                origin=origin,
                backfill=None if backfill is None else backfill.expression,
                is_widened=old is not None and is_wider(new, old),
                is_blob=name in blobs,
            )
        )
    is_rewritten = any(
        isinstance(step, DropProperty)
        and (step.type_kind, step.type_name, step.mode) == (kind, after.name, DropMode.HARD)
        for step in plan.steps
    )
    return TableChange(columns=tuple(columns), is_rewritten=is_rewritten)


def _new_rules(plan: MigrationPlan, kind: TypeKind, name: str, rules: TableRules) -> TableRules:
    """Those rules of a table that its rows have not been held against yet: new ones, and those of filled columns."""
    steps = [
        step
        for step in plan.steps
        if isinstance(step, AddConstraint) and step.validate and (step.type_kind, step.type_name) == (kind, name)
    ]
    members = {(step.constraint, step.members) for step in steps}
    filled = {prop for owner_kind, owner, prop in plan.backfills if (owner_kind, owner) == (kind, name)}
    return TableRules(
        values=tuple(
            rule
            for rule in rules.values
            if (isinstance(rule, Range) and ("range", (rule.property,)) in members)
            or (isinstance(rule, Pattern) and ("check", (rule.property,)) in members)
            or (isinstance(rule, Range | Pattern) and rule.property in filled)
        ),
        uniques=tuple(
            rule
            for rule in rules.uniques
            if ("unique", tuple(sorted(rule.members))) in members or filled & {*rule.members}
        ),
        per_source=rules.per_source if ("card", ()) in members else None,
    )


def _required(plan: MigrationPlan, kind: TypeKind, name: str) -> dict[str, str]:
    origins = plan.resolution.property_origins[kind, name]
    return {
        origins[step.property_name]: step.property_name
        for step in plan.steps
        if isinstance(step, TightenNullability)
        and (step.type_kind, step.type_name) == (kind, name)
        and step.backfill is None
    }
