"""The persisted contract of a graph: typed shape with stable ids (`_schema.ir.json`) and its hashes.

The accepted source text is the authority; the contract adds the identities and proves that the text was not edited.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

from omnigraph.errors import BadRequestError
from omnigraph.ids import is_ulid
from omnigraph.schema.accepted import AcceptedSchema
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.identity import Identities, TypeIdentity, TypeName
from omnigraph.schema.shape import schema_shape, shape_hash

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog

IR_VERSION = 2

_GROUPS = {"interfaces": TypeKind.INTERFACE, "nodes": TypeKind.NODE, "edges": TypeKind.EDGE}

Json = dict[str, object]


def write_contract(accepted: AcceptedSchema) -> Json:
    """The body of `_schema.ir.json`."""
    catalog, identities = accepted.catalog, accepted.identities
    shape = schema_shape(
        catalog.interfaces.values(), catalog.nodes.values(), catalog.edges.values()
    )
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
        raise BadRequestError(
            f"the schema contract has version {found}, this release reads {IR_VERSION}"
        )
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
        raise ValueError("the identity domain is no ULID")
    return Identities(domain=domain, next_id=cast("int", contract["next_identity_id"]), types=types)
