"""The canonical shape of a schema and its hash.

Two schemas have equal shapes exactly when they mean the same: order, comments and rename hints do not count; the
spelling of a constraint (after a property or in the body) and whether a property was injected do, because the accepted
contract records them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph.schema.catalog import (
        EdgeDef,
        InterfaceDef,
        MemberSet,
        NodeDef,
        OpaqueAnnotation,
        PropertyDef,
        TypeMetadata,
    )

Json = dict[str, object]

_Declared = TypeVar("_Declared", "InterfaceDef", "NodeDef", "EdgeDef")


def schema_shape(
    interfaces: Iterable[InterfaceDef], nodes: Iterable[NodeDef], edges: Iterable[EdgeDef]
) -> Json:
    """The whole shape as JSON data in canonical order."""
    return {
        "interfaces": [interface_shape(item) for item in _by_name(interfaces)],
        "nodes": [node_shape(item) for item in _by_name(nodes)],
        "edges": [edge_shape(item) for item in _by_name(edges)],
    }


def shape_hash(shape: Json) -> str:
    """`sha256:` over the canonical JSON text of a shape."""
    text = json.dumps(shape, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def interface_shape(interface: InterfaceDef) -> Json:
    """The shape of one interface."""
    constraints = {
        name: sorted(kinds) for name, kinds in sorted(interface.constraints.items()) if kinds
    }
    return {
        "name": interface.name,
        "properties": _properties(interface.properties),
        "constraints": constraints,
    }


def node_shape(node: NodeDef) -> Json:
    """The shape of one node type."""
    return {
        "name": node.name,
        "implements": sorted(node.implements),
        "properties": _properties(node.properties),
        "key": _members(node.key) if node.key else None,
        "uniques": _member_sets(node.uniques),
        "indexes": _member_sets(node.indexes),
        "ranges": sorted(
            ({"property": r.property, "low": r.low, "high": r.high} for r in node.ranges), key=_text
        ),
        "checks": sorted(
            ({"property": c.property, "pattern": c.pattern} for c in node.checks), key=_text
        ),
        "metadata": _metadata(node.metadata),
    }


def edge_shape(edge: EdgeDef) -> Json:
    """The shape of one edge type."""
    return {
        "name": edge.name,
        "source": edge.source,
        "target": edge.target,
        "cardinality": str(edge.cardinality),
        "properties": _properties(edge.properties),
        "uniques": _member_sets(edge.uniques),
        "indexes": _member_sets(edge.indexes),
        "metadata": _metadata(edge.metadata),
    }


def property_shape(definition: PropertyDef) -> Json:
    """The shape of one property."""
    embedding = definition.embedding
    return {
        "name": definition.name,
        "type": str(definition.type),
        "injected": definition.injected,
        "embedding": {"source": embedding.source, "model": embedding.model} if embedding else None,
        "description": definition.description,
        "annotations": _annotations(definition.annotations),
    }


def _properties(properties: Mapping[str, PropertyDef]) -> list[Json]:
    return [property_shape(properties[name]) for name in sorted(properties)]


def _member_sets(sets: Iterable[MemberSet]) -> list[Json]:
    return sorted((_members(item) for item in sets), key=_text)


def _members(item: MemberSet) -> Json:
    return {"members": sorted(item.members), "provenance": str(item.provenance)}


def _metadata(metadata: TypeMetadata) -> Json:
    return {
        "description": metadata.description,
        "instruction": metadata.instruction,
        "annotations": _annotations(metadata.annotations),
    }


def _annotations(annotations: Iterable[OpaqueAnnotation]) -> list[Json]:
    shapes: list[Json] = [
        {"name": a.name, "value": a.value, "keywords": [list(pair) for pair in sorted(a.keywords)]}
        for a in annotations
    ]
    return sorted(shapes, key=_text)


def _by_name(items: Iterable[_Declared]) -> list[_Declared]:
    return sorted(items, key=lambda item: item.name)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
