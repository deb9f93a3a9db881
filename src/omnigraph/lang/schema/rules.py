"""Integrity rules as data, derived from the catalog once; interpreters only execute them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.core.types import BaseType, EnumType

if TYPE_CHECKING:
    from omnigraph.core.ids import TableKey
    from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumValues:
    """A value is one of a closed set; null is exempt."""

    type_name: str
    property: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A number lies between inclusive bounds; null is exempt."""

    type_name: str
    property: str
    low: int | float | None
    high: int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """An RE2 pattern occurs in a string; null is exempt."""

    type_name: str
    property: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two rows have equal values in all members; a null member exempts the row."""

    type_name: str
    members: tuple[str, ...]
    #: The types of the members, for one typed meaning of equality.
    bases: tuple[BaseType, ...]

    def __str__(self) -> str:
        inner = self.members[0] if len(self.members) == 1 else f"({', '.join(self.members)})"
        return f"{self.type_name}.{inner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Both ends of an edge exist as nodes of the declared types."""

    edge_type: str
    source: TableKey
    source_type: str
    target: TableKey
    target_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesPerSource:
    """How many edges a source node may have, once it has one."""

    edge_type: str
    low: int
    high: int | None


ValueRule = EnumValues | Range | Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """All rules of one table, in the order in which they are checked."""

    values: tuple[ValueRule, ...] = ()
    uniques: tuple[Unique, ...] = ()
    endpoints: Endpoints | None = None
    per_source: EdgesPerSource | None = None


def derive_rules(catalog: Catalog) -> Mapping[TableKey, TableRules]:
    """The rules of every table of a schema."""
    rules = {node.table_key: _node_rules(node) for node in catalog.nodes.values()}
    return rules | {edge.table_key: _edge_rules(edge, catalog) for edge in catalog.edges.values()}


def _node_rules(node: NodeDef) -> TableRules:
    values: list[ValueRule] = _enum_rules(node)
    values += [
        Range(type_name=node.name, property=rule.property, low=rule.low, high=rule.high)
        for rule in node.ranges
    ]
    values += [
        Pattern(type_name=node.name, property=rule.property, pattern=rule.pattern)
        for rule in node.checks
    ]
    return TableRules(values=tuple(values), uniques=_unique_rules(node))


def _edge_rules(edge: EdgeDef, catalog: Catalog) -> TableRules:
    low, high = edge.cardinality.low, edge.cardinality.high
    bounded = low > 0 or high is not None
    return TableRules(
        values=tuple(_enum_rules(edge)),
        uniques=_unique_rules(edge),
        endpoints=Endpoints(
            edge_type=edge.name,
            source=catalog.nodes[edge.source].table_key,
            source_type=edge.source,
            target=catalog.nodes[edge.target].table_key,
            target_type=edge.target,
        ),
        per_source=EdgesPerSource(edge_type=edge.name, low=low, high=high) if bounded else None,
    )


def _enum_rules(definition: NodeDef | EdgeDef) -> list[ValueRule]:
    return [
        EnumValues(type_name=definition.name, property=name, values=prop.type.base.values)
        for name, prop in definition.properties.items()
        if isinstance(prop.type.base, EnumType)
    ]


def _unique_rules(definition: NodeDef | EdgeDef) -> tuple[Unique, ...]:
    from omnigraph.core.types import Scalar, ScalarType

    ends: BaseType = ScalarType(Scalar.STRING)
    return tuple(
        Unique(
            type_name=definition.name,
            members=item.members,
            bases=tuple(
                definition.properties[name].type.base if name in definition.properties else ends
                for name in item.members
            ),
        )
        for item in definition.uniques
    )
