"""Single blob cells, whole or in ranges, with the preconditions of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import BlobChangedError, BlobRangeError
from omnigraph.server.blob_conditions import (
    fails_if_match,
    is_not_modified,
    may_use_range,
    read_range,
)
from omnigraph.server.bodies import parse_query
from omnigraph.server.calls import enter_graph
from omnigraph.server.operations import GRAPH, operation
from omnigraph.server.requests import BlobParams
from omnigraph.server.streams import pulled
from omnigraph.server.targets import arguments_of, target_of
from omnigraph.wire.blobs import BLOB_RANGE_BYTES, BlobKind
from omnigraph.wire.protocol import OCTETS, SNAPSHOT_ID, TYPE_KEY

if TYPE_CHECKING:
    from omnigraph.graph.blobs import BlobReader
    from omnigraph.server.calls import GraphCall
    from omnigraph.wire.blobs import BlobInfo

router = APIRouter()
_PATH = f"{GRAPH}/blob"
#: What an address may hold as it is; everything else cannot stand in a header.
_ADDRESS_SIGNS = "!#$%&'()*+,-./:;=?@[]_~"
_ALSO = {302: "it is external, and this is its address", 304: "the caller has it already"}


@operation(
    router,
    "GET",
    _PATH,
    id="get_blob",
    tag="blobs",
    query=BlobParams,
    returns=OCTETS,
    also=_ALSO | {206: "a range of it"},
    errors=(412, 416),
)
async def get_blob(request: Request) -> Response:
    """The bytes of one blob, or a range of them; an external one is answered by its address."""
    return await _answer(request, has_body=True)


@operation(
    router,
    "HEAD",
    _PATH,
    id="head_blob",
    tag="blobs",
    query=BlobParams,
    returns=None,
    also=_ALSO,
    errors=(412,),
)
async def head_blob(request: Request) -> Response:
    """What one blob is, without its bytes."""
    return await _answer(request, has_body=False)


async def _answer(request: Request, *, has_body: bool) -> Response:
    call = enter_graph(request)
    params = parse_query(request, BlobParams)
    target = target_of(params)
    await call.authorize_target(target)

    def look() -> tuple[BlobReader, BlobInfo]:
        blob = call.graph.open_blob(
            f"{params.entity}:{params.type}", params.id, params.property, **arguments_of(target)
        )
        return blob, blob.info

    blob, info = await call.read(look)
    if info.kind is BlobKind.EXTERNAL:
        location = quote(info.uri or "", safe=_ADDRESS_SIGNS)
        address = {"Location": location, "Cache-Control": "no-store"}
        return Response(status_code=302, headers=_facts(info) | address)
    etag = quoted(info.etag or "")
    if fails_if_match(request.headers, etag):
        raise BlobChangedError("the blob is another one by now: read it again")
    facts = _facts(info) | {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "no-cache"}
    if is_not_modified(request.headers, etag):
        return Response(status_code=304, headers=facts)
    size = info.size or 0
    if not has_body:
        return Response(headers=facts | {"Content-Length": str(size)}, media_type=OCTETS)
    wanted = read_range(request.headers, size) if may_use_range(request.headers, etag) else None
    if wanted is None:
        return await _bytes(call, blob, 0, size, facts, status=200)
    begin, end = wanted
    if begin >= size:
        raise BlobRangeError(begin, end, size)
    facts["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    return await _bytes(call, blob, begin, end, facts, status=206)


async def _bytes(
    call: GraphCall, blob: BlobReader, begin: int, end: int, facts: dict[str, str], *, status: int
) -> Response:
    length = end - begin
    if length <= BLOB_RANGE_BYTES:
        content = await call.read(lambda: blob.read(begin, length) if length else b"")
        return Response(content, status_code=status, headers=facts, media_type=OCTETS)

    return pulled(
        call.service,
        blob.chunks(begin, length),
        media_type=OCTETS,
        headers=facts | {"Content-Length": str(length)},
        status=status,
    )


def _facts(info: BlobInfo) -> dict[str, str]:
    return {SNAPSHOT_ID: info.snapshot_id, TYPE_KEY: info.cell.type_key}


def quoted(etag: str) -> str:
    """A tag as headers carry it."""
    return etag if etag.startswith('"') else f'"{etag}"'
