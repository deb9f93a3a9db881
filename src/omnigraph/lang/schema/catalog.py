"""The resolved schema: what every other part of the system knows about types.

Interfaces are already folded into the nodes that implement them. All values are frozen; mappings keep the column
order of storage (declared properties first, then injected ones).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.lazy_exports import late_types
from omnigraph.core.source import Span
from omnigraph.core.types import BaseType, EnumType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.display.text import counted, fitted
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.display.drawings import Drawing
    from omnigraph.display.pictures import Picture
else:
    globals().update(late_types({"omnigraph.display.drawings": "Drawing", "omnigraph.display.pictures": "Picture"}))

#: Properties that name a node for people; the best come first.
_LABELS = ("title", "name", "full_name", "label", "display_name", "headline", "subject")
#: Longest line of a type as text.
_WIDTH = 120
_LABEL_WORDS = ("name", "title", "label")
#: The columns of the ends of an edge.
EDGE_ENDS = ("src", "dst")


class TypeKind(StrEnum):
    """The three kinds of declarations; nodes and edges own a dataset each."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


class Provenance(StrEnum):
    """The form in which a constraint was written: after a property, or as a member of the body."""

    PROPERTY = "property"
    BODY = "body"


class IndexKind(StrEnum):
    """The physical index that an intent becomes."""

    BTREE = "btree"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True, order=True)
class OpaqueAnnotation:
    """An annotation without meaning to the system, kept for its readers."""

    name: str
    value: str | None = None
    keywords: tuple[tuple[str, str], ...] = ()


@frozen
class RenameHint:
    """`@rename_from`: the accepted name that a declaration continues. Never stored, never part of the shape."""

    name: str
    span: Span


@frozen(kw_only=True)
class Embedding:
    """`@embed`: the String property whose text a vector represents, and the model if one is recorded."""

    source: str
    model: str | None = None


@frozen(kw_only=True)
class PropertyDef:
    """One property of a type."""

    name: str
    type: PropertyType
    #: True when an interface contributed the property and the node does not spell it out.
    injected: bool = False
    embedding: Embedding | None = None
    description: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()
    renamed_from: RenameHint | None = field(default=None, compare=False)


@frozen(kw_only=True)
class MemberSet:
    """The members of a `@key`, `@unique` or `@index`, in source order."""

    members: tuple[str, ...]
    provenance: Provenance


@frozen(kw_only=True)
class RangeRule:
    """`@range`: inclusive bounds, open on the side that is None."""

    property: str
    low: int | float | None
    high: int | float | None


@frozen(kw_only=True)
class CheckRule:
    """`@check`: an RE2 pattern that must occur somewhere in the value."""

    property: str
    pattern: str


@frozen(kw_only=True)
class Cardinality:
    """The number of edges one source node may have; no upper bound when `high` is None."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


@frozen(kw_only=True)
class TypeMetadata:
    """The description, instruction and other annotations of a declaration."""

    description: str | None = None
    instruction: str | None = None
    annotations: tuple[OpaqueAnnotation, ...] = ()


@frozen(kw_only=True)
class InterfaceDef:
    """A contract of properties; owns no dataset and cannot be matched."""

    name: str
    properties: Mapping[str, PropertyDef]
    #: Index and key intents that the interface gives to its implementers, per property.
    constraints: Mapping[str, tuple[str, ...]]


@frozen(kw_only=True)
class NodeDef:
    """A node type and its rules."""

    name: str
    properties: Mapping[str, PropertyDef]
    implements: tuple[str, ...] = ()
    key: MemberSet | None = None
    uniques: tuple[MemberSet, ...] = ()
    indexes: tuple[MemberSet, ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    metadata: TypeMetadata = TypeMetadata()
    renamed_from: RenameHint | None = field(default=None, compare=False)

    @property
    def table_key(self) -> TableKey:
        """The key of the dataset of this type."""
        return node_table_key(self.name)

    @property
    def label(self) -> str | None:
        """The property that names a node for people; None where only its id does."""
        texts = [item.name for item in self.properties.values() if item.type.base == ScalarType(Scalar.STRING)]
        key = () if self.key is None else self.key.members
        ranked = [
            *(name for name in _LABELS if name in texts),
            *(name for name in texts if any(word in name for word in _LABEL_WORDS)),
            *(name for name in texts if name in key),
            *texts,
        ]
        return ranked[0] if ranked else None


@frozen(kw_only=True)
class EdgeDef:
    """An edge type between two node types and its rules."""

    name: str
    source: str
    target: str
    properties: Mapping[str, PropertyDef]
    cardinality: Cardinality = Cardinality()
    #: Both ends and, where parallel edges are told apart, properties.
    key: MemberSet | None = None
    uniques: tuple[MemberSet, ...] = ()
    indexes: tuple[MemberSet, ...] = ()
    metadata: TypeMetadata = TypeMetadata()
    renamed_from: RenameHint | None = field(default=None, compare=False)

    @property
    def table_key(self) -> TableKey:
        """The key of the dataset of this type."""
        return edge_table_key(self.name)


@frozen(kw_only=True)
class EmbeddedVector:
    """A `Vector(N) @embed("source")` property: the vector of a text that the same entity has."""

    type_name: str
    property: str
    source: str
    dimension: int
    #: The model that the schema records, if it does.
    model: str | None
    is_nullable: bool

    def __str__(self) -> str:
        return f"{self.type_name}.{self.property}"


def embedded_vectors(definition: NodeDef | EdgeDef) -> tuple[EmbeddedVector, ...]:
    """The properties of a type that are vectors of its texts."""
    return tuple(
        EmbeddedVector(
            type_name=definition.name,
            property=item.name,
            source=item.embedding.source,
            dimension=item.type.base.dimension,
            model=item.embedding.model,
            is_nullable=item.type.nullable,
        )
        for item in definition.properties.values()
        if item.embedding is not None and isinstance(item.type.base, VectorType)
    )


@frozen(kw_only=True, slots=False, repr=False)
class Catalog:
    """All types of one schema, name-sorted, with the hash of their shape."""

    interfaces: Mapping[str, InterfaceDef]
    nodes: Mapping[str, NodeDef]
    edges: Mapping[str, EdgeDef]
    #: `sha256:` over the canonical shape; equal for schemas that mean the same.
    schema_hash: str

    @cached_property
    def types(self) -> Mapping[TableKey, NodeDef | EdgeDef]:
        """Every type that owns a dataset by its table key, nodes before edges."""
        nodes = {node.table_key: node for node in self.nodes.values()}
        return nodes | {edge.table_key: edge for edge in self.edges.values()}

    def keys_named(self, name: str) -> list[TableKey]:
        """The types that a name, or a table key, means: two where a node and an edge type have one name."""
        return [key for key in self.types if name in (key, key.name)]

    @cached_property
    def _edges_by_word(self) -> dict[str, EdgeDef]:
        return {name.casefold(): edge for name, edge in self.edges.items()}

    def edge(self, word: str) -> EdgeDef | None:
        """The edge type of a word, whatever its case."""
        return self._edges_by_word.get(word.casefold())

    # ---- how it is shown

    def show(self, *, title: str = "schema") -> Picture:
        """A picture of the types: notebooks show it, and `save` writes it to a file."""
        from omnigraph.display.pictures import Picture

        return Picture(title=title, drawing=self.drawing(title))

    def drawing(self, title: str, counts: Mapping[TableKey, int] | None = None) -> Drawing:
        """A box per node type and a line per edge type, with numbers of entities where they are known."""
        # Lazy: the compilers draw nothing.
        from omnigraph.display.drawings import EdgeType, NodeType, draw_schema

        counts = counts or {}
        nodes = [
            NodeType(
                name=node.name,
                colour=number,
                properties=[(item.name, str(item.type)) for item in node.properties.values()],
                count=counts.get(node.table_key),
            )
            for number, node in enumerate(self.nodes.values())
        ]
        edges = [
            EdgeType(name=edge.name, source=edge.source, target=edge.target, count=counts.get(edge.table_key))
            for edge in self.edges.values()
        ]
        return draw_schema(nodes, edges, title=title)

    def __repr__(self) -> str:
        nodes, edges = counted(len(self.nodes), "node type"), counted(len(self.edges), "edge type")
        return "\n".join([f"Catalog: {nodes}, {edges}", *map(_line, self.types.values())])

    def _repr_html_(self) -> str:
        return self.drawing("schema").svg().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)

    def incident_edges(self, node_type: str) -> Iterator[EdgeDef]:
        """Every edge type that begins or ends at `node_type`, name-sorted."""
        return (edge for edge in self.edges.values() if node_type in (edge.source, edge.target))


def _line(definition: NodeDef | EdgeDef) -> str:
    """A type in one line of text."""
    names = ", ".join(f"{item.name}: {item.type}" for item in definition.properties.values())
    if isinstance(definition, EdgeDef):
        names = f"{definition.source} -> {definition.target}" + (f" {{ {names} }}" if names else "")
        return fitted(f"  edge {definition.name}: {names}", _WIDTH)
    return fitted(f"  node {definition.name} {{ {names} }}", _WIDTH)


def member_base(definition: NodeDef | EdgeDef, name: str) -> BaseType:
    """The type of a member of a key or constraint: a property, or an end of an edge."""
    if isinstance(definition, EdgeDef) and name in EDGE_ENDS:
        return ScalarType(Scalar.STRING)
    return definition.properties[name].type.base


def index_kinds(type_: PropertyType) -> tuple[IndexKind, ...]:
    """The physical indexes that a single-property `@index` or `@key` on `type_` becomes, none for lists and blobs."""
    match type_.base:
        case VectorType():
            return (IndexKind.VECTOR,)
        case EnumType():
            return (IndexKind.BTREE,)
        case ScalarType(scalar) if scalar is not Scalar.BLOB:
            return (IndexKind.BTREE,)
        case _:
            return ()


def unbuilt_index_reason(members: Sequence[str], types: Mapping[str, PropertyType], *, on_edge: bool) -> str | None:
    """Why an `@index` over these properties is recorded and not built; None for one that is."""
    if on_edge:
        is_end = len(members) == 1 and members[0] in EDGE_ENDS
        return None if is_end else "the indexes of an edge are those of its ends, `src` and `dst`"
    if len(members) != 1:
        return "an index covers one property"
    if not index_kinds(types[members[0]]):
        return f"there is no index on {types[members[0]]}"
    return None


def unbuilt_indexes(definition: NodeDef | EdgeDef) -> Iterator[tuple[str, str]]:
    """Every `@index` of a type that is recorded and not built, as it is written in a body, and why."""
    types = {name: prop.type for name, prop in definition.properties.items()}
    for declared in definition.indexes:
        on_edge = isinstance(definition, EdgeDef)
        if reason := unbuilt_index_reason(declared.members, types, on_edge=on_edge):
            yield f"@index({', '.join(declared.members)})", reason
