"""Routes of queries, plans, snapshots, exports, blobs and schemas."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.answers import Plan, SchemaAnswer, SchemaProperty, SchemaType
from omnigraph.api.models import BlobParams, ExplainBody, ExportBody, QueryBody, ReadBody, SchemaApplyBody
from omnigraph.api.operation import ARROW_STREAM, EXPORTED_TYPES, JSON, NDJSON, OCTETS, SNAPSHOT_ID, TYPE_KEY, Operation
from omnigraph.api.results import BLOB_RANGE_BYTES, BlobInfo, BlobKind, BlobStream
from omnigraph.api.row_streams import encode_answer, encode_result
from omnigraph.api.rows import Result
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN
from omnigraph.core.budget import CancelSignal, LinkedSignal
from omnigraph.core.source import SourceText
from omnigraph.errors import BadRequestError, BlobChangedError, BlobRangeError
from omnigraph.graph.reads import text_result
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.syntax.commands import Verb, command_of
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, PropertyDef
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.policy.rules import Action
from omnigraph.server.calls import GraphCall, enter_graph
from omnigraph.server.http_input import (
    arguments_of,
    fails_if_match,
    is_not_modified,
    may_use_range,
    parse_query,
    read_json,
    read_range,
    target_of,
)
from omnigraph.server.responses import json_bytes, json_response
from omnigraph.server.routing import handles
from omnigraph.server.stored_queries import RegistryFinding
from omnigraph.server.streams import Sink, produced, pulled

# ---- Reads: queries, plans, single entities, snapshots


#: Results up to this size are sent in one piece.
_SMALL_BYTES = 1024 * 1024


@handles("query")
async def _query(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, QueryBody, call.settings)
    target = target_of(vars(body))
    return await answer_query(
        call, body.query, body.params, body.name, target, timeout_s=body.timeout_s, first=body.first
    )


@handles("read")
async def _read(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, ReadBody, call.settings)
    target = await call.authorize_target(target_of(vars(body)))
    timeout_s, signal = call.settings.timeout_s(body.timeout_s), call.new_signal()

    def work() -> bytes:
        result = _queried(
            call, body.query_source, body.params, body.query_name, target=target, timeout_s=timeout_s, signal=signal
        )
        return encode_answer(result, names_commit=False)

    content = await call.stoppable(work, signal)
    return Response(content, media_type=JSON)


def _queried(
    call: GraphCall,
    source: str | SourceText,
    params: Mapping[str, object] | None,
    name: str | None,
    *,
    target: Target,
    timeout_s: float | None,
    signal: CancelSignal,
) -> Result:
    """The rows of a read; `branch list` names the branches that the caller may read."""
    command = command_of(source)
    if command is not None and command.verb is Verb.LIST:
        commit_id = call.graph.snapshot(**arguments_of(target)).commit_id
        return text_result("branch", call.visible_branches(), command, target, commit_id)
    return call.graph.query(source, params, name=name, timeout_s=timeout_s, cancel=signal, **arguments_of(target))


async def answer_query(
    call: GraphCall,
    source: str | SourceText,
    params: Mapping[str, object] | None,
    name: str | None,
    target: Target,
    *,
    timeout_s: float | None = None,
    first: int | None = None,
) -> Response:
    """The rows of a read that the caller may make, as JSON or as Arrow.

    With `first` an answer in JSON has only so many rows, and says whether there are more.
    """
    target = await call.authorize_target(target)
    allowed_s, signal = call.settings.timeout_s(timeout_s), call.new_signal()

    def run() -> Result:
        return _queried(call, source, params, name, target=target, timeout_s=allowed_s, signal=signal)

    if ARROW_STREAM in call.request.headers.get("accept", ""):
        if first is not None:
            raise BadRequestError("`first` goes with JSON: take as many rows of the Arrow stream as you want")
        return await _arrow_answer(call, run, signal)
    content = await call.stoppable(lambda: encode_answer(run(), first=first), signal)
    return Response(content, media_type=JSON)


async def _arrow_answer(call: GraphCall, run: Callable[[], Result], signal: LinkedSignal) -> Response:
    """Rows as Arrow: at once when they are few, otherwise as they are made."""

    def begin() -> tuple[list[bytes], Generator[bytes] | None]:
        pieces, size = [], 0
        rest = encode_result(run())
        for piece in rest:
            pieces.append(piece)
            size += len(piece)
            if size > _SMALL_BYTES:
                return pieces, rest
        return pieces, None

    pieces, rest = await call.stoppable(begin, signal)
    if rest is None:
        return Response(b"".join(pieces), media_type=ARROW_STREAM)
    return pulled(call.service, _joined(pieces, rest), media_type=ARROW_STREAM, signal=signal)


def _joined(pieces: list[bytes], rest: Generator[bytes]) -> Generator[bytes]:
    """Yields buffered bytes, then the stream, which is closed with it."""
    with closing(rest):
        yield from pieces
        yield from rest


@handles("explain")
async def _explain(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.READ)
    body, _ = await read_json(request, ExplainBody, call.settings)
    branch = MAIN if body.branch is None else body.branch
    call.authorize(Action.READ, branch=branch)
    timeout_s, signal = call.settings.timeout_s(body.timeout_s), call.new_signal()

    def work() -> bytes:
        text = call.graph.explain(
            body.query,
            body.params,
            name=body.name,
            branch=branch,
            analyze=body.analyze,
            timeout_s=timeout_s,
            cancel=signal,
        )
        compiled = compile_query(body.query, call.graph.catalog(), body.name)
        plan = Plan(
            query_name=compiled.name,
            kind="mutation" if compiled.is_mutation else "read",
            plan=text.splitlines(),
            operation=compiled.operation,
            text=text,
        )
        return json_bytes(plan.document())

    return Response(await call.stoppable(work, signal), media_type=JSON)


# ---- Exports: every entity of one state as a stream


@handles("export")
async def _export(request: Request, _operation: Operation) -> Response:
    call = enter_graph(request)
    call.authorize_some(Action.EXPORT)
    body, _ = await read_json(request, ExportBody, call.settings)
    target = target_of(vars(body))
    timeout_s = call.settings.stream_timeout_s(body.timeout_s)
    if body.type_names == []:
        raise BadRequestError("type_names is empty: leave it out for all types")
    target = await call.authorize_target(target, Action.EXPORT)
    # A branch moves; what is exported is the commit that it is at now.
    found = await call.read(lambda: call.graph.snapshot(**arguments_of(target)))
    wanted = None if body.type_names is None else {name.casefold() for name in body.type_names}
    types = [key for key in sorted(found.pins) if wanted is None or _is_in(key, wanted)]

    signal = call.new_signal()

    def produce(sink: Sink) -> None:
        call.graph.export(sink, snapshot=found.commit_id, types=body.type_names, timeout_s=timeout_s, cancel=signal)

    headers = {SNAPSHOT_ID: found.commit_id, EXPORTED_TYPES: " ".join(types)}
    return await produced(call, produce, media_type=NDJSON, headers=headers, signal=signal)


def _is_in(table_key: str, names: set[str]) -> bool:
    key = table_key.casefold()
    return key in names or key.partition(":")[2] in names


# ---- Blob cells


#: What an address may hold as it is; everything else cannot stand in a header.
_ADDRESS_SIGNS = "!#$%&'()*+,-./:;=?@[]_~"


@handles("get_blob", "head_blob")
async def _blob(request: Request, operation: Operation) -> Response:
    call = enter_graph(request)
    params = parse_query(request, BlobParams)
    target = await call.authorize_target(target_of(vars(params)))

    def look() -> tuple[BlobStream, BlobInfo]:
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
        raise BlobChangedError("the blob was changed meanwhile: read it again")
    facts = _facts(info) | {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "no-cache"}
    if is_not_modified(request.headers, etag):
        return Response(status_code=304, headers=facts)
    size = info.size or 0
    if operation.method == "HEAD":
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
    call: GraphCall, blob: BlobStream, begin: int, end: int, facts: dict[str, str], *, status: int
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


# ---- A schema as JSON, for programs that draw or list it


def types_of(catalog: Catalog) -> dict[str, list[SchemaType]]:
    """All node and edge types with their properties."""
    return {
        "nodes": [_type(node) for node in catalog.nodes.values()],
        "edges": [
            replace(
                _type(edge),
                source=edge.source,
                target=edge.target,
                cardinality=str(edge.cardinality),
                key=None if edge.key is None else list(edge.key.members),
            )
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
    if definition.key is not None and item.name in definition.key.members:
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
                message=body.message,
                metadata=body.metadata,
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
