"""What tasks of a load know: the types that may appear, how ids are made, how strict the input is. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.pipeline.external import ExternalRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.ids import TableKey
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.identity import Identities
    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.types.kinds import BaseType
    from omnigraph.writes.columns import TypeDef
    from omnigraph.writes.rules import TableRules, ValueRule


class Grammar(StrEnum):
    """How forgiving the reading of JSONL is."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndType:
    """The type at one end of an edge, as far as its ids are concerned."""

    name: str
    #: Key members in id order with their types; empty for a type whose ids are not derived.
    members: tuple[tuple[str, BaseType], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityShape:
    """One type as tasks know it."""

    definition: TypeDef
    #: Key members in id order; empty when ids are given or generated.
    key_members: tuple[str, ...]
    value_rules: tuple[ValueRule, ...]
    #: Source and target of an edge type.
    ends: tuple[EndType, EndType] | None = None

    @property
    def key(self) -> TableKey:
        """The table key of the type."""
        return self.definition.table_key

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.definition.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Everything that stays the same over all tasks of one load."""

    shapes: Mapping[TableKey, EntityShape]
    #: Lower-case names of edge types: the format does not care about their case.
    edge_words: Mapping[str, TableKey]
    grammar: Grammar
    #: The first 16 characters of every generated id; see `ids`.
    id_prefix: str
    #: Where fragments go; a type that is not here must not appear.
    targets: Mapping[TableKey, TableAddress] = field(default_factory=dict)
    #: Old spellings of ids → canonical ids, per node type (compatible grammar only).
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    external: ExternalRule = field(default_factory=ExternalRule)
    #: Where tasks note which files they have written.
    ledgers: AnswerFolder | None = None

    @property
    def is_strict(self) -> bool:
        """Whether anything unusual is an error."""
        return self.grammar is Grammar.STRICT


def shapes_of(
    catalog: Catalog, identities: Identities, rules: Mapping[TableKey, TableRules]
) -> dict[TableKey, EntityShape]:
    """The shapes of all types of a schema."""

    def end(name: str) -> EndType:
        node = catalog.nodes[name]
        members = identities.key_members(node)
        return EndType(name=name, members=tuple((m, node.properties[m].type.base) for m in members))

    found: dict[TableKey, EntityShape] = {}
    for node in catalog.nodes.values():
        found[node.table_key] = EntityShape(
            definition=node,
            key_members=identities.key_members(node),
            value_rules=rules[node.table_key].values,
        )
    for edge in catalog.edges.values():
        found[edge.table_key] = EntityShape(
            definition=edge,
            key_members=(),
            value_rules=rules[edge.table_key].values,
            ends=(end(edge.source), end(edge.target)),
        )
    return found
