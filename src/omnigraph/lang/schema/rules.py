"""Integrity rules as data, derived from the catalog once, and the one text of every violation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType, EnumType
from omnigraph.errors import KeyConflictError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, member_base

# ---- Rules of one value


@frozen(kw_only=True)
class Required:
    """A value is not null. Tables enforce it; loads and schema changes report it."""

    type_name: str
    property: str
    #: The code of the schema step that brings the rule.
    code: str | None = None


@frozen(kw_only=True)
class EnumValues:
    """A value is one of a closed set; null is exempt."""

    type_name: str
    property: str
    values: tuple[str, ...]


@frozen(kw_only=True)
class Range:
    """A number lies between inclusive bounds; null is exempt."""

    type_name: str
    property: str
    low: int | float | None
    high: int | float | None


@frozen(kw_only=True)
class Pattern:
    """An RE2 pattern occurs in a string; null is exempt."""

    type_name: str
    property: str
    pattern: str


ValueRule = Required | EnumValues | Range | Pattern


@frozen(kw_only=True)
class EndGiven:
    """An edge names its end, `from` or `to`."""

    edge_type: str
    end: str
    node_type: str


# ---- Rules between rows


@frozen(kw_only=True)
class DistinctIds:
    """No two rows of a write have the same id."""

    type_name: str


@frozen(kw_only=True)
class NewIds:
    """No row of a write has an id that exists."""

    kind: str
    type_name: str


@frozen(kw_only=True)
class RowExists:
    """The row that a record of a patch names exists."""

    kind: str
    type_name: str


@frozen(kw_only=True)
class SameEnds:
    """An edge goes from where it went before a patch to where it went."""

    edge_type: str


@frozen(kw_only=True)
class Unique:
    """No two rows have equal values in all members; a null member exempts the row."""

    type_name: str
    members: tuple[str, ...]
    #: The types of the members, for one typed meaning of equality.
    bases: tuple[BaseType, ...]

    def __str__(self) -> str:
        inner = self.members[0] if len(self.members) == 1 else f"({', '.join(self.members)})"
        return f"{self.type_name}.{inner}"


@frozen(kw_only=True)
class End:
    """One end of an edge, in the column `src` or `dst`, exists as a node of the declared type."""

    edge_type: str
    column: str
    node: TableKey
    node_type: str


@frozen(kw_only=True)
class EndRefused:
    """One end of an edge is a node that a load brings, and whose own record is wrong."""

    edge_type: str
    column: str
    node_type: str


@frozen(kw_only=True)
class EdgesPerSource:
    """The number of edges a source node may have, once it has one."""

    edge_type: str
    #: The type of the sources.
    node: TableKey
    low: int
    high: int | None


RowRule = DistinctIds | NewIds | Unique | End | EdgesPerSource
Rule = ValueRule | EndGiven | EndRefused | RowExists | SameEnds | RowRule


# ---- Rules as text


@frozen
class Example:
    """One value that violates a rule, the rows that have it, how many there are, and the entities that they are."""

    value: object
    addresses: tuple[int, ...] = ()
    count: int = 0
    #: Empty where the entities have no ids that a person knows.
    ids: tuple[str, ...] = ()


def rule_name(rule: Rule) -> str:
    """The stable name of a rule, which reports count by."""
    match rule:
        case Required():
            code = "" if rule.code is None else f"[{rule.code}] "
            return f"{code}missing value for {rule.type_name}.{rule.property}"
        case EnumValues():
            return f"invalid enum value for {rule.type_name}.{rule.property}"
        case Range():
            return f"@range violation on {rule.type_name}.{rule.property}"
        case Pattern():
            return f"@check violation on {rule.type_name}.{rule.property}"
        case EndGiven():
            return f"missing `{rule.end}` of {rule.edge_type}"
        case DistinctIds():
            return f"duplicate id of {rule.type_name}"
        case NewIds():
            return f"{KeyConflictError.kind} of {rule.type_name}"
        case RowExists():
            return f"unknown id of {rule.type_name}"
        case SameEnds():
            return f"other ends of {rule.edge_type}"
        case Unique():
            return f"@unique violation on {rule}"
        case End():
            return f"{rule.column} of {rule.edge_type} not found in {rule.node_type}"
        case EndRefused():
            return f"{rule.column} of {rule.edge_type} is a bad record of {rule.node_type}"
        case EdgesPerSource():
            return f"@card violation on edge {rule.edge_type}"
        case _:
            assert_never(rule)


def violation_text(rule: Rule, example: Example) -> str:
    """The sentence about one violation."""
    name, value = rule_name(rule), repr(example.value)
    owner = f" of {example.ids[0]!r}" if example.ids else ""
    match rule:
        case Required():
            return f"{name}{owner}: it may not be null"
        case EnumValues():
            return f"{name}: {value}{owner} is not one of {', '.join(rule.values)}"
        case Range():
            return f"{name}: {value}{owner} is outside {_bounds(rule)}"
        case Pattern():
            return f"{name}: {value}{owner} does not match {rule.pattern}"
        case EndGiven():
            return f"{name}: an edge needs the id of a {rule.node_type}"
        case DistinctIds():
            return f"the id {value} of {rule.type_name} is given {example.count:,} times"
        case NewIds():
            return KeyConflictError(rule.kind, rule.type_name, str(example.value)).message
        case RowExists():
            return f"{name}: there is no {rule.kind} {value}; `--upsert` (upsert=True) inserts it"
        case SameEnds():
            return f"{name}: the edge {value} has other ends, which a patch does not change: leave `from` and `to` out"
        case Unique():
            return f"{name}: {value} belongs to {example.ids[0]!r} and to {example.ids[1]!r}"
        case End():
            edge = " ".join([rule.edge_type, *map(repr, example.ids)])
            return f"edge {edge}: {rule.column} {value} not found in {rule.node_type}"
        case EndRefused():
            edge = " ".join([rule.edge_type, *map(repr, example.ids)])
            return f"edge {edge}: {rule.column} {value} is a bad record of {rule.node_type}"
        case EdgesPerSource():
            return f"{name}: {value} has {example.count} edges, allowed are {_bounds(rule)}"
        case _:
            assert_never(rule)


def rule_field(rule: Rule) -> str:
    """The field that a report names for a violation."""
    match rule:
        case EndGiven():
            return rule.end
        case DistinctIds() | NewIds() | RowExists():
            return "id"
        case SameEnds():
            return "from"
        case Unique():
            return ", ".join(rule.members)
        case End() | EndRefused() | EdgesPerSource():
            return "to" if not isinstance(rule, EdgesPerSource) and rule.column == "dst" else "from"
        case _:
            return rule.property


def rule_topic(rule: RowRule) -> str:
    """The topic that progress shows while a rule is checked."""
    match rule:
        case DistinctIds() | NewIds():
            return f"ids of {rule.type_name}"
        case Unique():
            return f"{rule} is unique"
        case End():
            return f"ends of {rule.edge_type}"
        case EdgesPerSource():
            return f"edges per source of {rule.edge_type}"
        case _:
            assert_never(rule)


def _bounds(rule: Range | EdgesPerSource) -> str:
    return f"{'' if rule.low is None else rule.low}..{'' if rule.high is None else rule.high}"


# ---- The rules of a schema


@frozen(kw_only=True)
class TableRules:
    """All rules of one table, in the order in which they are checked."""

    values: tuple[ValueRule, ...] = ()
    uniques: tuple[Unique, ...] = ()
    #: `src` and `dst` of an edge type.
    ends: tuple[End, ...] = ()
    per_source: EdgesPerSource | None = None


def derive_rules(catalog: Catalog) -> Mapping[TableKey, TableRules]:
    """The rules of every table of a schema."""
    rules = {node.table_key: _node_rules(node) for node in catalog.nodes.values()}
    return rules | {edge.table_key: _edge_rules(edge, catalog) for edge in catalog.edges.values()}


def _node_rules(node: NodeDef) -> TableRules:
    values: list[ValueRule] = _enum_rules(node)
    values += [Range(type_name=node.name, property=rule.property, low=rule.low, high=rule.high) for rule in node.ranges]
    values += [Pattern(type_name=node.name, property=rule.property, pattern=rule.pattern) for rule in node.checks]
    return TableRules(values=tuple(values), uniques=_unique_rules(node))


def _edge_rules(edge: EdgeDef, catalog: Catalog) -> TableRules:
    source = catalog.nodes[edge.source].table_key
    low, high = edge.cardinality.low, edge.cardinality.high
    per_source = EdgesPerSource(edge_type=edge.name, node=source, low=low, high=high)
    return TableRules(
        values=tuple(_enum_rules(edge)),
        uniques=_unique_rules(edge),
        ends=tuple(
            End(edge_type=edge.name, column=column, node=catalog.nodes[name].table_key, node_type=name)
            for column, name in (("src", edge.source), ("dst", edge.target))
        ),
        per_source=per_source if low > 0 or high is not None else None,
    )


def _enum_rules(definition: NodeDef | EdgeDef) -> list[ValueRule]:
    return [
        EnumValues(type_name=definition.name, property=name, values=prop.type.base.values)
        for name, prop in definition.properties.items()
        if isinstance(prop.type.base, EnumType)
    ]


def _unique_rules(definition: NodeDef | EdgeDef) -> tuple[Unique, ...]:
    """The rules of `@unique`, without those that the key makes true: rows with equal values there have one id."""
    key = None if definition.key is None else frozenset(definition.key.members)
    return tuple(
        Unique(
            type_name=definition.name,
            members=item.members,
            bases=tuple(member_base(definition, name) for name in item.members),
        )
        for item in definition.uniques
        if key is None or not key.issubset(item.members)
    )
