"""Compiles a schema: text, checked tree, catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from omnigraph.core.source import SourceText, read_source
from omnigraph.errors import Diagnostic
from omnigraph.frozen import frozen
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.accepted import schema_shape, shape_hash
from omnigraph.lang.schema.catalog import (
    Cardinality,
    Catalog,
    CheckRule,
    EdgeDef,
    Embedding,
    InterfaceDef,
    MemberSet,
    NodeDef,
    OpaqueAnnotation,
    PropertyDef,
    Provenance,
    RangeRule,
    RenameHint,
    TypeMetadata,
)
from omnigraph.lang.schema.checks import check_schema, effective_properties, resolve_type
from omnigraph.lang.schema.parser import SYNTAX_ERROR, parse_schema_all

# ---- A checked syntax tree → the catalog


T = TypeVar("T", InterfaceDef, NodeDef, EdgeDef)
R = TypeVar("R", RangeRule, CheckRule)

_MEANINGFUL = frozenset({"key", "unique", "index", "embed", "description", "instruction", "rename_from"})


def build_catalog(schema: ast.Schema) -> Catalog:
    """The catalog of a schema that passed every check."""
    interfaces = [d for d in schema.declarations if isinstance(d, ast.InterfaceDecl)]
    by_name = {interface.name.text: interface for interface in interfaces}
    interface_defs = _sorted(_interface(item) for item in interfaces)
    node_defs = _sorted(_node(item, by_name) for item in schema.declarations if isinstance(item, ast.NodeDecl))
    edge_defs = _sorted(_edge(item) for item in schema.declarations if isinstance(item, ast.EdgeDecl))
    shape = schema_shape(interface_defs.values(), node_defs.values(), edge_defs.values())
    return Catalog(interfaces=interface_defs, nodes=node_defs, edges=edge_defs, schema_hash=shape_hash(shape))


def _sorted(definitions: Iterable[T]) -> dict[str, T]:
    return {item.name: item for item in sorted(definitions, key=lambda item: item.name)}


def _interface(interface: ast.InterfaceDecl) -> InterfaceDef:
    return InterfaceDef(
        name=interface.name.text,
        properties={p.name.text: _property(p, injected=False) for p in interface.properties},
        constraints={
            p.name.text: tuple(a.name for a in p.annotations if a.name in ("key", "unique", "index"))
            for p in interface.properties
        },
    )


def _node(node: ast.NodeDecl, interfaces: Mapping[str, ast.InterfaceDecl]) -> NodeDef:
    properties = effective_properties(node, interfaces)
    sources = [prop for prop, _ in properties.values()]
    constraints = ast.constraints_of(node.members)
    annotations = ast.annotations_of(node.headers)
    keys = _member_sets("key", sources, constraints)
    return NodeDef(
        name=node.name.text,
        properties={
            name: _property(prop, injected=interface is not None) for name, (prop, interface) in properties.items()
        },
        implements=tuple(sorted({name.text for name in node.implements})),
        key=keys[0] if keys else None,
        uniques=_member_sets("unique", sources, constraints),
        indexes=_member_sets("index", sources, constraints),
        ranges=_distinct(
            RangeRule(property=c.property.text, low=_bound(c.low), high=_bound(c.high))
            for c in constraints
            if isinstance(c, ast.RangeConstraint)
        ),
        checks=_distinct(
            CheckRule(property=c.property.text, pattern=c.pattern)
            for c in constraints
            if isinstance(c, ast.CheckConstraint)
        ),
        metadata=_metadata(annotations),
        renamed_from=_rename_hint(annotations),
    )


def _distinct(rules: Iterable[R]) -> tuple[R, ...]:
    # A rule that is written twice says nothing new.
    return tuple(dict.fromkeys(rules))


def _bound(number: ast.Number | None) -> int | float | None:
    """The value of a bound: `1` and `1.0` are the same one."""
    if number is None:
        return None
    value = number.value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _edge(edge: ast.EdgeDecl) -> EdgeDef:
    properties = ast.properties_of(edge.members)
    constraints = ast.constraints_of(edge.members)
    annotations = ast.annotations_of(edge.headers)
    card = edge.card
    keys = _member_sets("key", (), constraints)
    return EdgeDef(
        name=edge.name.text,
        source=edge.source.text,
        target=edge.target.text,
        properties={p.name.text: _property(p, injected=False) for p in properties},
        cardinality=Cardinality(low=int(card.low.value), high=int(card.high.value) if card.high else None)
        if card
        else Cardinality(),
        key=keys[0] if keys else None,
        uniques=_member_sets("unique", properties, constraints),
        indexes=_member_sets("index", properties, constraints),
        metadata=_metadata(annotations),
        renamed_from=_rename_hint(annotations),
    )


def _property(prop: ast.Property, *, injected: bool) -> PropertyDef:
    type_ = resolve_type(prop.type)
    assert type_ is not None, "the checks let only known types through"
    return PropertyDef(
        name=prop.name.text,
        type=type_,
        injected=injected,
        embedding=_embedding(prop.annotations),
        description=_text_of("description", prop.annotations),
        annotations=_opaque(prop.annotations),
        renamed_from=_rename_hint(prop.annotations),
    )


def _embedding(annotations: Iterable[ast.Annotation]) -> Embedding | None:
    for annotation in annotations:
        if annotation.name == "embed":
            models = (str(value.value) for name, value in annotation.keywords if name.text == "model")
            return Embedding(source=str(annotation.values[0].value), model=next(models, None))
    return None


def _member_sets(
    kind: str, properties: Iterable[ast.Property], constraints: Iterable[ast.Constraint]
) -> tuple[MemberSet, ...]:
    on_properties = (
        MemberSet(members=(prop.name.text,), provenance=Provenance.PROPERTY)
        for prop in properties
        if any(annotation.name == kind for annotation in prop.annotations)
    )
    in_body = (
        MemberSet(members=tuple(m.name for m in c.members), provenance=Provenance.BODY)
        for c in constraints
        if isinstance(c, ast.MemberConstraint) and c.kind == kind
    )
    # A set that is written twice in the same way says nothing new, whatever the order of its members.
    distinct = {(s.provenance, frozenset(s.members)): s for s in (*on_properties, *in_body)}
    return tuple(distinct.values())


def _metadata(annotations: Iterable[ast.Annotation]) -> TypeMetadata:
    annotations = tuple(annotations)
    return TypeMetadata(
        description=_text_of("description", annotations),
        instruction=_text_of("instruction", annotations),
        annotations=_opaque(annotations),
    )


def _text_of(name: str, annotations: Iterable[ast.Annotation]) -> str | None:
    return next((str(a.values[0].value) for a in annotations if a.name == name and a.values), None)


def _rename_hint(annotations: Iterable[ast.Annotation]) -> RenameHint | None:
    hints = (a for a in annotations if a.name == "rename_from")
    return next((RenameHint(str(a.values[0].value), a.span) for a in hints), None)


def _opaque(annotations: Iterable[ast.Annotation]) -> tuple[OpaqueAnnotation, ...]:
    return tuple(
        sorted(
            (
                OpaqueAnnotation(
                    a.name,
                    _argument_text(a.values[0]) if a.values else None,
                    tuple(sorted((key.text, _argument_text(value)) for key, value in a.keywords)),
                )
                for a in annotations
                if a.name not in _MEANINGFUL
            ),
            key=lambda item: (item.name, item.value or "", item.keywords),
        )
    )


def _argument_text(value: ast.Value) -> str:
    return str(value.value) if isinstance(value.value, str) else value.text


# ---- Compiling a schema to a catalog


@frozen(kw_only=True)
class CompiledSchema:
    """A schema that passed every check."""

    source: SourceText
    tree: ast.Schema
    catalog: Catalog
    #: What the schema says without effect, in the order of the text.
    warnings: tuple[Diagnostic, ...] = ()


def compile_schema(source: SourceText | str, *, accepted: bool = False) -> CompiledSchema:
    """Parse, check and resolve a schema.

    `accepted=True` re-reads the contract of an existing graph, which tolerates one shape that new input may not have.

    >>> compile_schema("node Paper { doi: String @key }").catalog.nodes["Paper"].key.members
    ('doi',)

    Raises:
        CompilerError: with every finding: the first syntax error of each broken declaration, and every rule that the
            other declarations break.
    """
    if isinstance(source, str):
        source = SourceText(source, "<schema>")
    tree, findings = parse_schema_all(source)
    check_schema(tree, findings, complete=not findings.error_count, accepted=accepted)
    findings.items.sort(key=lambda item: (item.line, item.column))
    findings.raise_errors()
    return CompiledSchema(source=source, tree=tree, catalog=build_catalog(tree), warnings=findings.warnings)


def as_compiled(schema: str | Path | CompiledSchema) -> CompiledSchema:
    """A schema as callers give it: the path of a `.pg` file, schema text, or a compiled schema.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: as `compile_schema`.
    """
    if isinstance(schema, CompiledSchema):
        return schema
    is_path = isinstance(schema, Path) or "{" not in schema
    return compile_schema_file(schema) if is_path else compile_schema(str(schema))


def compile_schema_file(path: str | Path) -> CompiledSchema:
    """Read and compile a `.pg` file.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: as `compile_schema`, or the file is not UTF-8.
    """
    return compile_schema(read_source(path, code=SYNTAX_ERROR))


# ---- Stable codes of schema findings


SCHEMA_CODES: dict[str, str] = {
    "S-01": "syntax, unknown type word, or too many values in an annotation",
    "S-02": "unknown escape in a string",
    "S-03": "reserved property name",
    "S-04": "vector dimension out of range",
    "S-05": "list of Blob",
    "S-06": "enum value listed twice",
    "S-07": "`@card` bounds",
    "S-08": "unknown interface",
    "S-09": "property type differs from the interface's",
    "S-10": "two interfaces contribute one property with different meanings",
    "S-11": "rule on the declaration instead of a property or the body",
    "S-12": "rule given twice on one property, or with a value",
    "S-13": "rule on a list property",
    "S-14": "`@key` or `@unique` on a vector",
    "S-15": "rule on a Blob",
    "S-16": "`@key` or `@embed` on an edge property",
    "S-17": "`@embed` on the wrong type, or with wrong arguments",
    "S-18": "`@description` or `@instruction` misplaced, blank or repeated",
    "S-19": "malformed `@rename_from`",
    "S-20": "body constraint names an unknown property",
    "S-21": "more than one key",
    "S-22": "key member that may be null, or has no order",
    "S-23": "`@range` or `@check` on an edge, or a `@key` of an edge without both ends",
    "S-24": "`@range` on a non-number, `@check` on a non-String",
    "S-25": "declared twice",
    "S-26": "edge endpoint is not a node type",
    "S-27": "edge names differ only in case",
    "S-28": "empty range, bad pattern, `@unique` over a list or vector, repeated member",
    "S-29": "`@rename_from` names nothing, or has no effect",
    "S-30": "`@rename_from` on a property points outside its type",
    "S-31": "two declarations continue the same accepted one",
    "S-32": "warning: `@index` that is recorded and not built",
}
