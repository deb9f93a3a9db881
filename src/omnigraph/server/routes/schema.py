"""Routes of schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.answers import SchemaAnswer, SchemaProperty, SchemaType
from omnigraph.api.models import SchemaApplyBody
from omnigraph.api.operations import Operation
from omnigraph.api.protocol import JSON
from omnigraph.commit.rows import MAIN
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.policy.rules import Action
from omnigraph.server.calls import enter_graph
from omnigraph.server.http_input import read_json
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.server.routing import handles

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, PropertyDef
    from omnigraph.server.stored_queries import RegistryFinding


# ---- A schema as JSON, for programs that draw or list it


def types_of(catalog: Catalog) -> dict[str, list[SchemaType]]:
    """All node and edge types with their properties."""
    return {
        "nodes": [_type(node) for node in catalog.nodes.values()],
        "edges": [
            replace(_type(edge), source=edge.source, target=edge.target, cardinality=str(edge.cardinality))
            for edge in catalog.edges.values()
        ],
    }


def _type(definition: NodeDef | EdgeDef) -> SchemaType:
    return SchemaType(
        name=definition.name,
        description=definition.metadata.description,
        properties=[
            SchemaProperty(
                name=item.name,
                type=str(item.type.base),
                nullable=item.type.nullable,
                description=item.description,
                annotations=list(_annotations(definition, item)),
            )
            for item in definition.properties.values()
        ],
    )


def _annotations(definition: NodeDef | EdgeDef, item: PropertyDef) -> Iterator[str]:
    """The annotations of a property, as they are written."""
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


# ---- Reading and changing the schema


@handles("get_schema")
async def _get_schema(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize(Action.READ, branch=MAIN)

    def work() -> bytes:
        source = call.graph.schema
        types = types_of(compile_schema(source).catalog)
        return json_bytes(SchemaAnswer(schema_source=source, types=types).document())

    return Response(await call.read(work), media_type=JSON)


@handles("apply_schema")
async def _apply_schema(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize(Action.SCHEMA_APPLY, target=MAIN)
    body, size = await read_json(request, SchemaApplyBody, call.settings)

    def check_queries(catalog: Catalog) -> None:
        report = call.served.queries.check(catalog)
        if report.breakages:
            listing = "; ".join(map(_finding_text, report.breakages))
            raise BadRequestError(f"stored queries would break, nothing happened: {listing}")

    with call.admitted(size):
        result = await call.write(
            lambda: call.graph.apply_schema(
                compile_schema(body.schema_source),
                allow_data_loss=body.allow_data_loss,
                backfill=body.backfill,
                actor=call.actor,
                engine="local",
                validate=check_queries,
            )
        )
    call.count_commit(result.commit)
    return json_response(replace(result, uri=call.served.address).document())


def _finding_text(finding: RegistryFinding) -> str:
    """A finding for callers, who should not learn where the files of the server are."""
    found = finding.diagnostic
    return f"`{finding.query}`, line {found.line}, column {found.column}: {found.message}"
