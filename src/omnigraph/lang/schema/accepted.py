"""An accepted schema: stable identities, canonical shape and hash, and the documents in which both are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar, cast

from omnigraph.core.ids import is_ulid
from omnigraph.core.source import Findings, SourceText, did_you_mean
from omnigraph.errors import BadRequestError, Diagnostic
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import (
    EDGE_ENDS,
    Catalog,
    EdgeDef,
    InterfaceDef,
    MemberSet,
    NodeDef,
    OpaqueAnnotation,
    PropertyDef,
    RenameHint,
    TypeKind,
    TypeMetadata,
)

# ---- The schema that a graph has accepted


@frozen(kw_only=True)
class AcceptedSchema:
    """The schema of an existing graph: its catalog and its stable identities."""

    catalog: Catalog
    identities: Identities


# ---- Stable ids of types and properties
#
# Every type, property and dataset incarnation of a graph has a number that is never used twice. Names may change, the
# number stays; a name that is dropped and added again gets a new one. Pure functions; the identity domain comes in as
# an argument.


TypeName = tuple[TypeKind, str]


@frozen(kw_only=True)
class TypeIdentity:
    """The numbers of one type. `incarnation` is None for an interface, which owns no dataset."""

    type_id: int
    incarnation: int | None
    properties: Mapping[str, int]

    def numbers(self) -> Iterator[int]:
        """Every number of the type."""
        yield self.type_id
        if self.incarnation is not None:
            yield self.incarnation
        yield from self.properties.values()


@frozen(kw_only=True)
class Identities:
    """All numbers of one schema. `next_id` exceeds every number ever given out in this domain."""

    domain: str
    next_id: int
    types: Mapping[TypeName, TypeIdentity]

    def __post_init__(self) -> None:
        used = [number for identity in self.types.values() for number in identity.numbers()]
        if any(type(number) is not int or number < 1 for number in used):
            raise ValueError("identities are whole numbers from 1")
        if any(number >= self.next_id for number in used):
            raise ValueError("next_id must exceed every allocated identity")
        if len(used) != len(set(used)):
            raise ValueError("an identity is allocated twice")

    def key_members(self, definition: NodeDef | EdgeDef) -> tuple[str, ...]:
        """The members of a key in id order, which is the order inside derived ids: the ends of an edge come first."""
        if definition.key is None:
            return ()
        is_edge = isinstance(definition, EdgeDef)
        numbers = self.types[TypeKind.EDGE if is_edge else TypeKind.NODE, definition.name].properties
        ends = EDGE_ENDS if is_edge else ()
        return (*ends, *sorted(set(definition.key.members).difference(ends), key=numbers.__getitem__))


@frozen(kw_only=True)
class Resolution:
    """The relation of a wanted schema to the accepted one."""

    identities: Identities
    #: Wanted type → the accepted name it continues; new types are absent.
    type_origins: Mapping[TypeName, str]
    #: Wanted type → wanted property → the accepted property name; new properties are absent.
    property_origins: Mapping[TypeName, Mapping[str, str]]
    #: Rename hints that have no effect.
    warnings: tuple[Diagnostic, ...]


def fresh_identities(catalog: Catalog, domain: str, source: SourceText) -> Resolution:
    """Identities of a schema without predecessor; rename hints are inert and come back as warnings."""
    findings = Findings(source)
    for (_, name), declared in declared_types(catalog):
        hints = {name: getattr(declared, "renamed_from", None)}
        hints |= {p.name: p.renamed_from for p in declared.properties.values() if not p.injected}
        for hinted, hint in hints.items():
            if hint is not None:
                message = f"`@rename_from` on `{hinted}` has no effect: there is no earlier schema"
                findings.warning("S-29", hint.span, message)
    empty = Identities(domain=domain, next_id=1, types={})
    return Resolution(
        identities=_allocate(empty, catalog, {}, {}),
        type_origins={},
        property_origins={},
        warnings=tuple(findings.items),
    )


def resolve_identities(accepted: Identities, wanted: Catalog, source: SourceText) -> Resolution:
    """Match the declarations of `wanted` with the accepted ones.

    Raises:
        CompilerError: a rename hint is wrong, or two declarations continue the same accepted one.
    """
    findings = Findings(source)
    types = _match_types(accepted, wanted, findings)
    properties = _match_properties(accepted, wanted, types, findings)
    findings.raise_errors()
    return Resolution(
        identities=_allocate(accepted, wanted, types, properties),
        type_origins=types,
        property_origins=properties,
        warnings=tuple(findings.items),
    )


def match_accepted(accepted: Identities, later: Identities) -> Resolution:
    """Relate two accepted schemas of one graph by their stable ids, independent of names."""
    names = {(kind, item.type_id): name for (kind, name), item in accepted.types.items()}
    types: dict[TypeName, str] = {}
    properties: dict[TypeName, dict[str, str]] = {}
    for key, identity in later.types.items():
        origin = names.get((key[0], identity.type_id))
        if origin is None:
            continue
        types[key] = origin
        known = {number: name for name, number in accepted.types[key[0], origin].properties.items()}
        properties[key] = {name: known[number] for name, number in identity.properties.items() if number in known}
    return Resolution(identities=later, type_origins=types, property_origins=properties, warnings=())


def declared_types(catalog: Catalog) -> Iterator[tuple[TypeName, InterfaceDef | NodeDef | EdgeDef]]:
    """Every declaration with its kind and name: interfaces, nodes, edges, each name-sorted."""
    for name in sorted(catalog.interfaces):
        yield (TypeKind.INTERFACE, name), catalog.interfaces[name]
    for name in sorted(catalog.nodes):
        yield (TypeKind.NODE, name), catalog.nodes[name]
    for name in sorted(catalog.edges):
        yield (TypeKind.EDGE, name), catalog.edges[name]


def _match_types(accepted: Identities, wanted: Catalog, findings: Findings) -> dict[TypeName, str]:
    origins: dict[TypeName, str] = {}
    renames: list[tuple[TypeName, RenameHint]] = []
    for key, declared in declared_types(wanted):
        hint: RenameHint | None = getattr(declared, "renamed_from", None)
        if key in accepted.types:
            origins[key] = key[1]
            if hint:
                message = f"`@rename_from` on `{key[1]}` is ignored: a {key[0]} of that name exists already"
                findings.warning("S-29", hint.span, message)
        elif hint:
            renames.append((key, hint))
    consumed = {(kind, origin): name for (kind, name), origin in origins.items()}
    for (kind, name), hint in renames:
        known = [other for other_kind, other in accepted.types if other_kind is kind]
        if hint.name not in known:
            message = f"`@rename_from` names `{hint.name}`: the accepted schema has no {kind} of that name"
            findings.error("S-29", hint.span, message, partial(did_you_mean, hint.name, known))
        elif (kind, hint.name) in consumed:
            other = consumed[kind, hint.name]
            findings.error("S-31", hint.span, f"`{other}` and `{name}` both continue the accepted {kind} `{hint.name}`")
        else:
            consumed[kind, hint.name] = name
            origins[kind, name] = hint.name
    return origins


def _match_properties(
    accepted: Identities, wanted: Catalog, type_origins: Mapping[TypeName, str], findings: Findings
) -> dict[TypeName, dict[str, str]]:
    matched: dict[TypeName, dict[str, str]] = {}
    for key, declared in declared_types(wanted):
        origin = type_origins.get(key)
        if origin is None:
            _refuse_hints_on_new_type(key, declared, findings)
            continue
        known = accepted.types[key[0], origin].properties
        origins = {name: name for name in declared.properties if name in known}
        consumed = {name: name for name in origins}
        for name, prop in declared.properties.items():
            hint = prop.renamed_from
            if hint is None:
                continue
            if prop.injected and (name in known or hint.name not in known):
                # Wrong or idle on the interface that contributes it, and reported there.
                continue
            if name in known:
                message = f"`@rename_from` on `{name}` is ignored: the property exists already"
                findings.warning("S-29", hint.span, message)
            elif hint.name not in known:
                message = f"`@rename_from` names `{hint.name}`, which `{origin}` does not have"
                findings.error("S-30", hint.span, message, partial(did_you_mean, hint.name, known))
            elif hint.name in consumed:
                message = f"`{consumed[hint.name]}` and `{name}` both continue the property `{hint.name}`"
                findings.error("S-31", hint.span, message)
            else:
                consumed[hint.name] = name
                origins[name] = hint.name
        matched[key] = origins
    return matched


def _refuse_hints_on_new_type(key: TypeName, declared: InterfaceDef | NodeDef | EdgeDef, findings: Findings) -> None:
    for prop in declared.properties.values():
        if prop.renamed_from and not prop.injected:
            message = f"`{key[1]}` is new: its property `{prop.name}` cannot continue an accepted one"
            findings.error("S-30", prop.renamed_from.span, message)


def _allocate(
    accepted: Identities,
    wanted: Catalog,
    type_origins: Mapping[TypeName, str],
    property_origins: Mapping[TypeName, Mapping[str, str]],
) -> Identities:
    """Numbers for everything new, in the order that the contract fixes."""
    counter = accepted.next_id
    type_ids: dict[TypeName, int] = {}
    for key, _ in declared_types(wanted):
        origin = type_origins.get(key)
        if origin is not None:
            type_ids[key] = accepted.types[key[0], origin].type_id
        else:
            type_ids[key] = counter
            counter += 1
    by_id = sorted(declared_types(wanted), key=lambda item: type_ids[item[0]])
    property_ids: dict[TypeName, dict[str, int]] = {}
    for key, declared in by_id:
        origins = property_origins.get(key, {})
        known = accepted.types[key[0], type_origins[key]].properties if key in type_origins else {}
        numbers = {name: known[origin] for name, origin in origins.items()}
        for name in sorted(set(declared.properties) - set(numbers)):
            numbers[name] = counter
            counter += 1
        property_ids[key] = numbers
    types: dict[TypeName, TypeIdentity] = {}
    for key, _ in by_id:
        incarnation: int | None = None
        if key in type_origins:
            incarnation = accepted.types[key[0], type_origins[key]].incarnation
        elif key[0] is not TypeKind.INTERFACE:
            incarnation = counter
            counter += 1
        types[key] = TypeIdentity(type_id=type_ids[key], incarnation=incarnation, properties=property_ids[key])
    return Identities(domain=accepted.domain, next_id=counter, types=types)


# ---- The canonical shape of a schema and its hash
#
# Two schemas have equal shapes exactly when they mean the same: order, comments and rename hints do not count; the
# spelling of a constraint (after a property or in the body) and whether a property was injected do, because the
# accepted contract records them.


Json = dict[str, object]

_Declared = TypeVar("_Declared", "InterfaceDef", "NodeDef", "EdgeDef")


def schema_shape(interfaces: Iterable[InterfaceDef], nodes: Iterable[NodeDef], edges: Iterable[EdgeDef]) -> Json:
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
    constraints = {name: sorted(kinds) for name, kinds in sorted(interface.constraints.items()) if kinds}
    return {"name": interface.name, "properties": _properties(interface.properties), "constraints": constraints}


def node_shape(node: NodeDef) -> Json:
    """The shape of one node type."""
    return {
        "name": node.name,
        "implements": sorted(node.implements),
        "properties": _properties(node.properties),
        "key": _members(node.key) if node.key else None,
        "uniques": _member_sets(node.uniques),
        "indexes": _member_sets(node.indexes),
        "ranges": sorted(({"property": r.property, "low": r.low, "high": r.high} for r in node.ranges), key=_text),
        "checks": sorted(({"property": c.property, "pattern": c.pattern} for c in node.checks), key=_text),
        "metadata": _metadata(node.metadata),
    }


def edge_shape(edge: EdgeDef) -> Json:
    """The shape of one edge type; contracts of releases without keyed edges name no key."""
    key: Json = {"key": _members(edge.key)} if edge.key else {}
    return key | {
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
        {"name": a.name, "value": a.value, "keywords": [list(pair) for pair in sorted(a.keywords)]} for a in annotations
    ]
    return sorted(shapes, key=_text)


def _by_name(items: Iterable[_Declared]) -> list[_Declared]:
    return sorted(items, key=lambda item: item.name)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


# ---- The persisted schema contract (`_schema.ir.json`)
#
# The accepted source text is the authority; the contract adds the identities and proves that the text was not edited.


IR_VERSION = 2

_GROUPS = {"interfaces": TypeKind.INTERFACE, "nodes": TypeKind.NODE, "edges": TypeKind.EDGE}


def write_contract(accepted: AcceptedSchema) -> Json:
    """The body of `_schema.ir.json`."""
    catalog, identities = accepted.catalog, accepted.identities
    shape = schema_shape(catalog.interfaces.values(), catalog.nodes.values(), catalog.edges.values())
    for group, kind in _GROUPS.items():
        for declared in cast("list[Json]", shape[group]):
            identity = identities.types[kind, cast("str", declared["name"])]
            declared["id"] = identity.type_id
            if identity.incarnation is not None:
                declared["incarnation"] = identity.incarnation
            for prop in cast("list[Json]", declared["properties"]):
                prop["id"] = identity.properties[cast("str", prop["name"])]
    return {
        "ir_version": IR_VERSION,
        "identity_domain": identities.domain,
        "next_identity_id": identities.next_id,
        **shape,
    }


def write_state(accepted: AcceptedSchema, source_text: str) -> Json:
    """The body of `__schema_state.json`: hashes of the accepted source and of its shape with ids."""
    return {
        "source_hash": f"sha256:{hashlib.sha256(source_text.encode()).hexdigest()}",
        "schema_hash": accepted.catalog.schema_hash,
        "contract_hash": shape_hash(write_contract(accepted)),
    }


def read_contract(contract: Json, catalog: Catalog) -> AcceptedSchema:
    """The accepted schema of a graph, from its contract and the catalog of its accepted source.

    Raises:
        BadRequestError: the contract is of another version, is damaged, or does not describe this source.
    """
    if contract.get("ir_version") != IR_VERSION:
        found = contract.get("ir_version")
        raise BadRequestError(f"the schema contract has version {found}, this release reads {IR_VERSION}")
    try:
        accepted = AcceptedSchema(catalog=catalog, identities=_read_identities(contract))
        is_same = write_contract(accepted) == contract
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise BadRequestError(f"the schema contract is damaged: {cause}") from cause
    if not is_same:
        raise BadRequestError(
            "_schema.pg does not describe the accepted schema any more: restore the accepted text and change "
            "the schema with `omnigraph schema apply`"
        )
    return accepted


def _read_identities(contract: Json) -> Identities:
    types: dict[TypeName, TypeIdentity] = {}
    for group, kind in _GROUPS.items():
        for declared in cast("list[Json]", contract[group]):
            properties = cast("list[Json]", declared["properties"])
            if (kind is TypeKind.INTERFACE) == ("incarnation" in declared):
                raise ValueError(f"{kind} {declared['name']} has a wrong incarnation")
            types[kind, cast("str", declared["name"])] = TypeIdentity(
                type_id=cast("int", declared["id"]),
                incarnation=cast("int | None", declared.get("incarnation")),
                properties={cast("str", p["name"]): cast("int", p["id"]) for p in properties},
            )
    domain = cast("str", contract["identity_domain"])
    if not is_ulid(domain):
        raise ValueError("the identity domain is not a ULID")
    return Identities(domain=domain, next_id=cast("int", contract["next_identity_id"]), types=types)
