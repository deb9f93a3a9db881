"""What a migration plan means for the tables: their new columns, and the rules that their rows are held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.ids import TableKey, edge_table_key, node_table_key
from omnigraph.pipeline.reshaping import ColumnChange, TableChange
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.steps import (
    AddConstraint,
    DropMode,
    DropProperty,
    DropType,
    TightenNullability,
)
from omnigraph.types.kinds import is_wider
from omnigraph.writes.columns import blob_columns, table_schema
from omnigraph.writes.rules import Pattern, Range, TableRules, derive_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef
    from omnigraph.schema.plan import MigrationPlan

_KEYS = {TypeKind.NODE: node_table_key, TypeKind.EDGE: edge_table_key}


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def moves(self, present: pa.Schema) -> bool:
        """Whether the columns are not what they are now."""
        wanted = [
            (column.origin, column.field.name, column.field.nullable, column.target.is_written)
            for column in self.change.columns
        ]
        now = [(item.name, item.name, item.nullable, False) for item in present]
        return self.change.is_rewritten or wanted != now


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return {
            item.old_key: item.new_key for item in self.continued if item.old_key != item.new_key
        }


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
    return TableMigrations(
        continued=tuple(continued),
        created=tuple(created),
        dropped=dropped,
        purged=(*hard, *gone),
    )


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
        if isinstance(step, AddConstraint)
        and step.validate
        and (step.type_kind, step.type_name) == (kind, name)
    ]
    members = {(step.constraint, step.members) for step in steps}
    filled = {
        prop for owner_kind, owner, prop in plan.backfills if (owner_kind, owner) == (kind, name)
    }
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
