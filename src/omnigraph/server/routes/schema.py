"""The schema: what it is, and making another one the accepted one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BadRequestError
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.schema.compiler import compile_schema
from omnigraph.server import answers
from omnigraph.server.bodies import read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, operation
from omnigraph.server.requests import SchemaApplyBody
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.server.schema_types import types_json
from omnigraph.wire.protocol import JSON

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.serving.stored import RegistryFinding

router = APIRouter()


@operation(
    router,
    "GET",
    f"{GRAPH}/schema",
    id="get_schema",
    tag="schema",
    returns=answers.SchemaAnswer,
)
async def get_schema(request: Request) -> Response:
    """The accepted schema: its text, and its types for programs."""
    call = enter_graph(request)
    call.authorize(Action.READ, branch=MAIN)

    def work() -> bytes:
        source = call.graph.schema
        types = types_json(compile_schema(source).catalog)
        return json_bytes({"schema_source": source, "types": types})

    return Response(await call.read(work), media_type=JSON)


@operation(
    router,
    "POST",
    f"{GRAPH}/schema/apply",
    id="apply_schema",
    tag="schema",
    body=SchemaApplyBody,
    returns=answers.SchemaApplied,
    writes=True,
)
async def apply_schema(request: Request) -> Response:
    """Make another schema the accepted one, in one commit; stored queries must still fit it."""
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
    return json_response({"uri": call.served.address, **result.document()})


def _finding_text(finding: RegistryFinding) -> str:
    """A finding for callers, who should not learn where the files of the server are."""
    found = finding.diagnostic
    return f"`{finding.query}`, line {found.line}, column {found.column}: {found.message}"
