"""A schema as JSON, for programs that draw or list it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef, PropertyDef


def types_json(catalog: Catalog) -> dict[str, object]:
    """All node and edge types with their properties."""
    return {
        "nodes": [_type(node) for node in catalog.nodes.values()],
        "edges": [
            _type(edge)
            | {
                "from": edge.source,
                "to": edge.target,
                "cardinality": str(edge.cardinality),
            }
            for edge in catalog.edges.values()
        ],
    }


def _type(definition: NodeDef | EdgeDef) -> dict[str, object]:
    return {
        "name": definition.name,
        "description": definition.metadata.description,
        "properties": [_property(definition, item) for item in definition.properties.values()],
    }


def _property(definition: NodeDef | EdgeDef, item: PropertyDef) -> dict[str, object]:
    return {
        "name": item.name,
        "type": str(item.type.base),
        "nullable": item.type.nullable,
        "description": item.description,
        "annotations": list(_annotations(definition, item)),
    }


def _annotations(definition: NodeDef | EdgeDef, item: PropertyDef) -> Iterator[str]:
    """What the schema says about a property, as it is written there."""
    key = getattr(definition, "key", None)
    if key is not None and item.name in key.members:
        yield "@key"
    if any(rule.members == (item.name,) for rule in definition.uniques):
        yield "@unique"
    if any(rule.members == (item.name,) for rule in definition.indexes):
        yield "@index"
    for rule in getattr(definition, "ranges", ()):
        if rule.property == item.name:
            low, high = ("" if bound is None else bound for bound in (rule.low, rule.high))
            yield f"@range({low}..{high})"
    for rule in getattr(definition, "checks", ()):
        if rule.property == item.name:
            yield "@check"
    if item.embedding is not None:
        yield f"@embed({item.embedding.source})"
