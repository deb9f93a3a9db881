"""Results on the wire: an Arrow IPC stream, so that a client gets the same columns, batches and types.

What a result knows beside its rows travels in the metadata of the schema. A failure behind the first row travels as an
empty batch with the error body in its metadata; whoever reads the stream with another library sees it end without the
mark of its end, as after a lost connection.
"""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.errors import OmniError, UnexpectedAnswerError
from omnigraph.manifest.targets import Target
from omnigraph.types.kinds import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.wire.answer import Result
from omnigraph.wire.failures import error_from_body

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

#: The published stubs of pyarrow lack the parts that take metadata.
pa: Any = _arrow

#: Largest piece of a body that is made at once.
PIECE_BYTES = 256 * 1024
_RESULT = b"omnigraph.result"
_ERROR = b"omnigraph.error"


# ---- the sending end


def encode_result(result: Result) -> Generator[bytes]:
    """The body of a result, in pieces of bounded size; reads the result as it goes.

    A typed failure while rows are made is written into the stream and then raised: the sender has to break off.
    """
    facts = {
        "query_name": result.query_name,
        "target": result.target.to_json(),
        "graph_commit_id": result.commit_id,
        "types": [_type_json(type_) for type_ in result.types],
    }
    known = result.schema.metadata or {}
    schema = result.schema.with_metadata({**known, _RESULT: json.dumps(facts).encode()})
    sink = _Pieces()
    writer = pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema)
    yield from sink.take()
    try:
        for batch in result:
            writer.write_batch(batch)
            yield from sink.take()
    except OmniError as error:
        failure = {"status": error.http_status, "body": error.to_json()}
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        writer.write_batch(nothing, custom_metadata={_ERROR: json.dumps(failure).encode()})
        yield from sink.take()
        raise
    writer.close()
    yield from sink.take()


class _Pieces:
    """A file that only keeps what was written to it, until somebody takes it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> Iterator[bytes]:
        whole = memoryview(b"".join(self._parts))
        self._parts.clear()
        for begin in range(0, len(whole), PIECE_BYTES):
            yield bytes(whole[begin : begin + PIECE_BYTES])


# ---- the receiving end


def decode_result(
    pieces: Iterable[bytes],
    *,
    target: Target | None = None,
    close: Callable[[], None] = lambda: None,
) -> Result:
    """The result in a body. Rows arrive as they are asked for.

    `close` is called once: when there are no more, or when nobody asks for them. `target` is what the caller asked for;
    without it the result shows what the sender understood.

    Raises:
        OmniError: the failure that the sender met before its first row, as it is raised there.
        UnexpectedAnswerError: the body is no result, or it ends before its end. Later rows raise both as well.
    """
    source = _Source(iter(pieces))
    connection = ExitStack()
    connection.callback(close)
    try:
        reader = _readable(lambda: pa.ipc.open_stream(pa.PythonFile(source, mode="r")))
        facts, schema = _facts(reader.schema)
        if target is None:
            target = target_from_json(facts["target"])
        return Result(
            _Arriving(schema, _batches(reader, source, schema, connection)),
            query_name=facts["query_name"],
            target=target,
            commit_id=facts["graph_commit_id"],
            types=tuple(map(_type_from_json, facts["types"])),
        )
    except BaseException:  # also after an interrupt: nobody else gives the connection back
        connection.close()
        raise


@dataclass(frozen=True, slots=True)
class _Arriving:
    schema: Any
    batches: Iterator[Any]


class _Source(io.RawIOBase):
    """Pieces as a file. Knows whether somebody asked for more than there is."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.is_exhausted = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(wanted):
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    self.is_exhausted = True
                    break
                self._rest = memoryview(piece)
                continue
            some = self._rest[: len(wanted) - filled]
            wanted[filled : filled + len(some)] = some
            self._rest = self._rest[len(some) :]
            filled += len(some)
        return filled


def _batches(reader: Any, source: _Source, schema: Any, connection: ExitStack) -> Iterator[Any]:
    try:
        while True:
            try:
                read = _readable(reader.read_next_batch_with_custom_metadata)
            except StopIteration:
                break
            batch, metadata = read
            if metadata is not None and _ERROR in metadata:
                failure = json.loads(metadata[_ERROR])
                raise error_from_body(failure["status"], failure["body"])
            yield batch.replace_schema_metadata(schema.metadata)
        if source.is_exhausted:
            # Arrow takes the end of a file for the end of the rows.
            raise _cut_short("the mark of its end is missing")
    finally:
        connection.close()


def _readable(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (_arrow.ArrowException, OSError, EOFError) as error:
        raise _cut_short(str(error).partition("\n")[0]) from error


def _cut_short(reason: str) -> UnexpectedAnswerError:
    return UnexpectedAnswerError(
        f"the rows of the server ended too early, what has arrived is not the whole result ({reason}): ask again"
    )


def _facts(schema: Any) -> tuple[dict[str, Any], Any]:
    """What a result knows beside its rows, and the schema that it had before it was sent."""
    metadata = dict(schema.metadata or {})
    text = metadata.pop(_RESULT, None)
    if text is None:
        raise UnexpectedAnswerError("the answer is an Arrow stream, but no result of a graph")
    return json.loads(text), schema.with_metadata(
        metadata
    ) if metadata else schema.remove_metadata()


# ---- targets and types


def target_from_json(body: Mapping[str, Any]) -> Target:
    """The inverse of `Target.to_json`."""
    if "snapshot" in body:
        return Target(snapshot=body["snapshot"])
    return Target(branch=body["branch"], version=body.get("graph_version"), as_of=body.get("as_of"))


def _type_json(type_: PropertyType) -> dict[str, object]:
    nullable = type_.nullable
    match type_.base:
        case ScalarType(scalar):
            return {"scalar": str(scalar), "nullable": nullable}
        case EnumType(values):
            return {"enum": list(values), "nullable": nullable}
        case ListType(item):
            return {"list": str(item), "nullable": nullable}
        case VectorType(dimension):
            return {"vector": dimension, "nullable": nullable}


def _type_from_json(body: Mapping[str, Any]) -> PropertyType:
    base: BaseType
    match body:
        case {"scalar": scalar}:
            base = ScalarType(Scalar(scalar))
        case {"enum": values}:
            base = EnumType(tuple(values))
        case {"list": item}:
            base = ListType(Scalar(item))
        case _:
            base = VectorType(body["vector"])
    return PropertyType(base, body["nullable"])
