"""The signature of a query: what it takes and returns, and the binding of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, assert_never

from omnigraph.codec import OMIT_NONE, Document
from omnigraph.core.parameters import check_params, plain_value
from omnigraph.core.source import did_you_mean
from omnigraph.core.types import (
    INTEGERS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
    record_fields,
)
from omnigraph.core.values import StoredValue, coerce_json, parse_decimal_integer
from omnigraph.errors import ParameterError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import Catalog

# ---- Signatures of operations


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
    RECORD = "record"


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


@frozen(kw_only=True)
class FieldDescriptor(Document):
    """A result column or a parameter. `fields` are those of a record, or of the records of a list."""

    name: str
    kind: ValueKind
    nullable: bool
    item_kind: Annotated[ValueKind | None, OMIT_NONE] = None
    vector_dim: Annotated[int | None, OMIT_NONE] = None
    fields: Annotated[tuple[FieldDescriptor, ...] | None, OMIT_NONE] = None


@dataclass(frozen=True, slots=True, order=True)
class TypeRef(Document):
    """A node or edge type that an operation touches."""

    kind: str
    type_name: str


@frozen(kw_only=True)
class Operation(Document):
    """The descriptor of one query. `reads` and `writes` are sorted and distinct; `result` holds what is returned."""

    result: tuple[FieldDescriptor, ...]
    reads: tuple[TypeRef, ...]
    writes: tuple[TypeRef, ...]


def describe_field(name: str, type_: PropertyType) -> FieldDescriptor:
    """The descriptor of a value of `type_`."""
    kind, item, dimension = _kind(type_.base)
    fields = tuple(describe_field(*field) for field in record_fields(type_.base))
    return FieldDescriptor(
        name=name, kind=kind, nullable=type_.nullable, item_kind=item, vector_dim=dimension, fields=fields or None
    )


def describe(query: ir.QueryIR, catalog: Catalog) -> Operation:
    """The descriptor of a query."""
    match query:
        case ir.ReadIR():
            reads = set(_read_effects(query, catalog))
            return Operation(result=_columns(query.projections), reads=tuple(sorted(reads)), writes=())
        case ir.MutationIR():
            reads, writes = _mutation_effects(query, catalog)
            return Operation(result=_columns(query.returns), reads=tuple(sorted(reads)), writes=tuple(sorted(writes)))


def _columns(projections: Iterable[ir.Projection]) -> tuple[FieldDescriptor, ...]:
    return tuple(
        describe_field(
            item.name,
            # Aggregates are described as nullable whatever they can return.
            PropertyType(item.type.base, item.type.nullable or isinstance(item.expression, ir.Aggregate)),
        )
        for item in projections
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
        case RecordType():
            return ValueKind.RECORD, None, None
        case RecordListType():
            return ValueKind.LIST, ValueKind.RECORD, None
        case _:
            assert_never(base)


def _read_effects(query: ir.ReadIR, catalog: Catalog) -> Iterator[TypeRef]:
    yield from matched_types(query.pipeline, catalog)
    for item in query.projections:
        if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            yield from _block_reads(item.expression, catalog)


def matched_types(pipeline: tuple[ir.Op, ...], catalog: Catalog) -> Iterator[TypeRef]:
    """The types whose rows a match looks at, those of its blocks included; a type may come more than once."""
    for op in pipeline:
        match op:
            case ir.NodeScan(_, node_type, filters):
                yield TypeRef("node", node_type)
                yield from _blocks_read(filters, catalog)
            case ir.Expand():
                edge = catalog.edges[op.edge_type]
                yield TypeRef("edge", edge.name)
                yield TypeRef("node", edge.source)
                yield TypeRef("node", edge.target)
                yield from _blocks_read((*op.filters, *op.edge_filters), catalog)
            case ir.UnionScan(_, node_types, filters):
                yield from (TypeRef("node", node_type) for node_type in node_types)
                yield from _blocks_read(filters, catalog)
            case ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                for step in op.search.steps if isinstance(op, ir.PathSearch) else op.steps:
                    yield TypeRef("edge", step.edge_type)
                    yield TypeRef("node", step.source_type)
                    yield TypeRef("node", step.target_type)
            case ir.AntiJoin(_, inner) | ir.SemiJoin(_, inner) | ir.OptionalJoin(_, inner):
                yield from matched_types(inner, catalog)
            case ir.Filter(predicate):
                yield from _block_reads(predicate, catalog)
            case _:
                assert_never(op)


def _blocks_read(expressions: Iterable[ir.Expression], catalog: Catalog) -> Iterator[TypeRef]:
    for expression in expressions:
        yield from _block_reads(expression, catalog)


def _block_reads(expression: ir.Expression, catalog: Catalog) -> Iterator[TypeRef]:
    """What the blocks inside of an expression read."""
    for found in ir.walk(expression):
        match found:
            case ir.Exists(_, pipeline):
                yield from matched_types(pipeline, catalog)
            case ir.BlockValue(aggregate, _, pipeline):
                yield from matched_types(pipeline, catalog)
                yield from _block_reads(aggregate, catalog)
            case _:
                pass


def types_of_match(query: ir.MutationIR, catalog: Catalog) -> set[TypeRef]:
    """The types whose rows the match of a mutation looks at, for its blocks in statements too."""
    reads = set(matched_types(query.match or (), catalog))
    for statement in query.statements:
        reads.update(_blocks_read(ir.statement_expressions(statement), catalog))
    return reads


def _mutation_effects(query: ir.MutationIR, catalog: Catalog) -> tuple[set[TypeRef], set[TypeRef]]:
    reads = types_of_match(query, catalog)
    writes: set[TypeRef] = set()
    for statement in query.statements:
        match statement:
            case ir.InsertNode(node_type):
                writes.add(TypeRef("node", node_type))
            case ir.InsertEdge(edge_type):
                edge = catalog.edges[edge_type]
                writes.add(TypeRef("edge", edge_type))
                reads |= {TypeRef("node", edge.source), TypeRef("node", edge.target)}
            case ir.UpdateRows(key):
                writes.add(TypeRef(key.kind, key.name))
            case ir.DeleteNode(node_type, _, cascades):
                writes.add(TypeRef("node", node_type))
                writes |= {TypeRef("edge", name) for name in cascades}
            case ir.DeleteEdge(edge_type):
                writes.add(TypeRef("edge", edge_type))
            case _:
                assert_never(statement)
    return reads | writes, writes


# ---- Parameters: values as callers give them → typed values, all problems at once


#: Largest integer that JavaScript carries exactly.
MAX_SAFE_INTEGER = 2**53 - 1


def bind_params(
    query: ir.QueryIR, given: Mapping[str, object] | None, *, javascript: bool = False
) -> dict[str, StoredValue]:
    """Typed values for all declared parameters; an omitted nullable one is null.

    `javascript=True` reads numbers as a JavaScript client sends them: integers beyond ±(2^53-1) are refused, because
    they were rounded on the way, and integral floats stand for integers.

    >>> from omnigraph.lang.query.compiler import compile_query
    >>> from omnigraph.lang.schema.compiler import compile_schema
    >>> catalog = compile_schema("node Paper { year: I32 }").catalog
    >>> query = compile_query("query q($y: I32) { match { $p: Paper { year: $y } } return { $p } }", catalog)
    >>> bind_params(query.ir, {"y": "2024"})
    {'y': 2024}

    Raises:
        ParameterError: names every parameter that is missing, unknown or does not fit.
        BadRequestError: they are not a mapping.
    """
    given = check_params(given)
    declared = {parameter.name: parameter.type for parameter in query.params}
    defaults = {parameter.name: parameter.default for parameter in query.params if parameter.has_default}
    problems: dict[str, str] = {}
    for name in given:
        if name not in declared:
            hint = did_you_mean(name, declared)
            problems[name] = f"`{name}` is not declared" + (f" ({hint})" if hint else "")
    values: dict[str, StoredValue] = {}
    for name, type_ in declared.items():
        if name not in given and name in defaults:
            values[name] = defaults[name]
            continue
        if name not in given and not type_.nullable:
            problems[name] = f"`{name}` is missing: it is {type_}"
            continue
        try:
            plain = plain_value(given.get(name))
        except ValueError as problem:
            problems[name] = f"`{name}`: {problem}, and {type_} is needed"
            continue
        try:
            values[name] = _convert(type_, plain, javascript=javascript)
        except ValueError as problem:
            problems[name] = f"`{name}`: {problem}"
    for parameter in query.params:
        pattern = values.get(parameter.name) if parameter.is_pattern else None
        if isinstance(pattern, str) and (wrong := _pattern_problem(pattern)):
            problems[parameter.name] = f"`{parameter.name}` is no regular expression: {wrong}"
    if problems:
        raise ParameterError(query.name, problems)
    return values


def _pattern_problem(pattern: str) -> str | None:
    # Late: what describes operations has no use for the parser.
    from omnigraph.lang.parsing import pattern_problem

    return pattern_problem(pattern)


def _convert(type_: PropertyType, value: object, *, javascript: bool) -> StoredValue:
    match type_.base:
        case ScalarType(scalar) if value is not None:
            value = _prepare(scalar, value, javascript=javascript)
        case ListType(item) if isinstance(value, list | tuple):
            value = [None if part is None else _prepare(item, part, javascript=javascript) for part in value]
        case _:
            pass
    return coerce_json(type_, value)


def _prepare(scalar: Scalar, value: object, *, javascript: bool) -> object:
    """Decimal strings become integers, and the limits of the wire are enforced, before the type judges the value."""
    if scalar not in INTEGERS:
        return value
    if isinstance(value, str):
        value = parse_decimal_integer(value)
    elif isinstance(value, float) and not (javascript and value.is_integer()):
        raise ValueError(f"{value} is a float, {scalar} needs an integer")
    elif javascript and isinstance(value, int | float) and abs(value) > MAX_SAFE_INTEGER:
        raise ValueError(f"{int(value)} is beyond ±(2^53-1): pass it as a decimal string")
    return value
