"""What an operation returns, reads and writes: known before it runs, and the same for every surface."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from omnigraph.query import ir
from omnigraph.types.kinds import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.schema.catalog import Catalog


class ValueKind(StrEnum):
    """The kinds of values on the wire."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    BLOB = "blob"
    VECTOR = "vector"
    LIST = "list"


_SCALAR_KINDS = {
    Scalar.STRING: ValueKind.STRING,
    Scalar.BLOB: ValueKind.BLOB,
    Scalar.BOOL: ValueKind.BOOL,
    Scalar.I32: ValueKind.INT,
    Scalar.U32: ValueKind.INT,
    Scalar.I64: ValueKind.BIGINT,
    Scalar.U64: ValueKind.BIGINT,
    Scalar.F32: ValueKind.FLOAT,
    Scalar.F64: ValueKind.FLOAT,
    Scalar.DATE: ValueKind.DATE,
    Scalar.DATETIME: ValueKind.DATETIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescriptor:
    """A result column or a parameter."""

    name: str
    kind: ValueKind
    nullable: bool
    item_kind: ValueKind | None = None
    vector_dim: int | None = None

    def to_json(self) -> dict[str, object]:
        """The descriptor as JSON; `item_kind` and `vector_dim` only where they apply."""
        body: dict[str, object] = {
            "name": self.name,
            "kind": str(self.kind),
            "nullable": self.nullable,
        }
        if self.item_kind is not None:
            body["item_kind"] = str(self.item_kind)
        if self.vector_dim is not None:
            body["vector_dim"] = self.vector_dim
        return body


@dataclass(frozen=True, slots=True, order=True)
class TypeRef:
    """A node or edge type that an operation touches."""

    kind: str
    type_name: str

    def to_json(self) -> dict[str, object]:
        """`{kind, type_name}`."""
        return {"kind": self.kind, "type_name": self.type_name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The descriptor of one query. `reads` and `writes` are sorted and distinct; `result` is empty for a mutation."""

    result: tuple[FieldDescriptor, ...]
    reads: tuple[TypeRef, ...]
    writes: tuple[TypeRef, ...]

    def to_json(self) -> dict[str, object]:
        """`{result, reads, writes}`."""
        return {
            "result": [item.to_json() for item in self.result],
            "reads": [item.to_json() for item in self.reads],
            "writes": [item.to_json() for item in self.writes],
        }


def describe_field(name: str, type_: PropertyType) -> FieldDescriptor:
    """The descriptor of a value of `type_`."""
    kind, item, dimension = _kind(type_.base)
    return FieldDescriptor(
        name=name, kind=kind, nullable=type_.nullable, item_kind=item, vector_dim=dimension
    )


def describe(query: ir.QueryIR, catalog: Catalog) -> Operation:
    """The descriptor of a query."""
    match query:
        case ir.ReadIR():
            reads = set(_pipeline_reads(query.pipeline, catalog))
            return Operation(result=_columns(query), reads=tuple(sorted(reads)), writes=())
        case ir.MutationIR():
            reads, writes = _mutation_effects(query, catalog)
            return Operation(result=(), reads=tuple(sorted(reads)), writes=tuple(sorted(writes)))


def _columns(query: ir.ReadIR) -> tuple[FieldDescriptor, ...]:
    return tuple(
        describe_field(
            item.name,
            # Aggregates are described as nullable whatever they can return.
            PropertyType(
                item.type.base, item.type.nullable or isinstance(item.expression, ir.Aggregate)
            ),
        )
        for item in query.projections
    )


def _kind(base: BaseType) -> tuple[ValueKind, ValueKind | None, int | None]:
    match base:
        case ScalarType(scalar):
            return _SCALAR_KINDS[scalar], None, None
        case EnumType():
            return ValueKind.STRING, None, None
        case ListType(item):
            return ValueKind.LIST, _SCALAR_KINDS[item], None
        case VectorType(dimension):
            return ValueKind.VECTOR, None, dimension
        case _:
            assert_never(base)


def _pipeline_reads(pipeline: tuple[ir.Op, ...], catalog: Catalog) -> Iterator[TypeRef]:
    for op in pipeline:
        match op:
            case ir.NodeScan(_, node_type):
                yield TypeRef("node", node_type)
            case ir.Expand():
                edge = catalog.edges[op.edge_type]
                yield TypeRef("edge", edge.name)
                yield TypeRef("node", edge.source)
                yield TypeRef("node", edge.target)
            case ir.AntiJoin(_, inner):
                yield from _pipeline_reads(inner, catalog)
            case ir.Filter():
                pass
            case _:
                assert_never(op)


def _mutation_effects(query: ir.MutationIR, catalog: Catalog) -> tuple[set[TypeRef], set[TypeRef]]:
    reads: set[TypeRef] = set()
    writes: set[TypeRef] = set()
    for statement in query.statements:
        match statement:
            case ir.InsertNode(node_type) | ir.UpdateNode(node_type):
                writes.add(TypeRef("node", node_type))
            case ir.InsertEdge(edge_type):
                edge = catalog.edges[edge_type]
                writes.add(TypeRef("edge", edge_type))
                reads |= {TypeRef("node", edge.source), TypeRef("node", edge.target)}
            case ir.DeleteNode(node_type, _, cascades):
                writes.add(TypeRef("node", node_type))
                writes |= {TypeRef("edge", name) for name in cascades}
            case ir.DeleteEdge(edge_type):
                writes.add(TypeRef("edge", edge_type))
            case _:
                assert_never(statement)
    return reads | writes, writes
