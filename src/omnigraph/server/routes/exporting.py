"""Exports: every entity of one state as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BadRequestError
from omnigraph.policy.rules import Action
from omnigraph.server.bodies import read_json
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, STOPPED, operation
from omnigraph.server.requests import ExportBody
from omnigraph.server.streams import produced, reserve
from omnigraph.server.targets import arguments_of, target_of
from omnigraph.wire.protocol import EXPORTED_TYPES, NDJSON, SNAPSHOT_ID

if TYPE_CHECKING:
    from omnigraph.server.streams import Sink

router = APIRouter()


@operation(
    router,
    "POST",
    f"{GRAPH}/export",
    errors=STOPPED,
    id="export",
    tag="snapshots",
    body=ExportBody,
    returns=NDJSON,
)
async def export(request: Request) -> Response:
    """Every entity of a branch, now or at any point, or of a commit, as JSON lines that a load reads back."""
    call = enter_graph(request)
    call.authorize_some(Action.EXPORT)
    body, _ = await read_json(request, ExportBody, call.settings)
    target = target_of(body)
    timeout_s = call.settings.stream_timeout_s(body.timeout_s)
    if body.type_names == []:
        raise BadRequestError("type_names is empty: leave it out for all types")
    await call.authorize_target(target, Action.EXPORT)
    # A branch moves; what is exported is the commit that it is at now.
    found = await call.read(lambda: call.graph.snapshot(**arguments_of(target)))
    wanted = None if body.type_names is None else {name.casefold() for name in body.type_names}
    types = [key for key in sorted(found.pins) if wanted is None or _is_in(key, wanted)]

    signal = call.new_signal()

    def produce(sink: Sink) -> None:
        call.graph.export(
            sink,
            snapshot=found.commit_id,
            types=body.type_names,
            timeout_s=timeout_s,
            cancel=signal,
        )

    release = await reserve(call)
    return await produced(
        call.service,
        produce,
        media_type=NDJSON,
        headers={SNAPSHOT_ID: found.commit_id, EXPORTED_TYPES: " ".join(types)},
        release=release,
        signal=signal,
    )


def _is_in(table_key: str, names: set[str]) -> bool:
    key = table_key.casefold()
    return key in names or key.partition(":")[2] in names
