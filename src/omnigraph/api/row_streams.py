"""Results as a stream of Arrow batches and as one JSON document, as servers send them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Buffer

from omnigraph.api.patterns import ResultPattern
from omnigraph.api.rows import Result
from omnigraph.commit.read_target import Target
from omnigraph.core.arrow import Batch, Schema, json_column
from omnigraph.core.arrow import pa as _pa
from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
    record_fields,
)
from omnigraph.errors import OmniError, UnexpectedAnswerError
from omnigraph.errors.bodies import error_from_body

if TYPE_CHECKING:
    import pyarrow as pa

# ---- Results as an Arrow IPC stream
#
# What a result knows beside its rows travels in the metadata of the schema. A failure behind the first row travels as
# an empty batch with the error body in its metadata; in another library the stream ends
# without its end marker, as after a lost connection.


#: Largest piece of a body that is made at once.
PIECE_BYTES = 256 * 1024
_RESULT = b"omnigraph.result"
_ERROR = b"omnigraph.error"
_Read = TypeVar("_Read")


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
        "pattern": result.pattern.document(),
    }
    known = result.schema.metadata or {}
    schema = result.schema.with_metadata({**known, _RESULT: json.dumps(facts).encode()})
    sink = _Pieces()
    writer = _pa.ipc.new_stream(_pa.PythonFile(sink, mode="w"), schema)
    yield from sink.take()
    try:
        for batch in result:
            writer.write_batch(batch)
            yield from sink.take()
    except OmniError as error:
        failure = {"status": error.http_status, "body": error.to_json()}
        nothing = _pa.RecordBatch.from_pylist([], schema=schema)
        writer.write_batch(nothing, custom_metadata={_ERROR: json.dumps(failure).encode()})
        yield from sink.take()
        raise
    writer.close()
    yield from sink.take()


class _Pieces:
    """A file that keeps what was written to it until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: Buffer) -> int:
        piece = bytes(data)
        self._parts.append(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: no bytes are held back."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> Iterator[bytes]:
        whole = memoryview(b"".join(self._parts))
        self._parts.clear()
        for begin in range(0, len(whole), PIECE_BYTES):
            yield bytes(whole[begin : begin + PIECE_BYTES])


# ---- the receiving end


def decode_result(
    pieces: Iterable[bytes], *, target: Target | None = None, close: Callable[[], None] = lambda: None
) -> Result:
    """The result in a body. Rows arrive as they are asked for.

    `close` is called once: when there are no more, or when the result is closed. `target` is what the caller asked for;
    without it the result shows what the sender understood.

    Raises:
        OmniError: the failure that the sender met before its first row, as it is raised there.
        UnexpectedAnswerError: the body is not a result, or is truncated. Later rows raise both as well.
    """
    source = _Source(iter(pieces))
    connection = ExitStack()
    connection.callback(close)
    try:
        reader = _readable(lambda: _pa.ipc.open_stream(_pa.PythonFile(source, mode="r")))
        facts, schema = _facts(reader.schema)
        if target is None:
            target = target_from_json(facts["target"])
        pattern = ResultPattern.from_json(facts["pattern"])
        return Result(
            schema,
            _batches(reader, source, schema, connection),
            query_name=facts["query_name"],
            target=target,
            commit_id=facts["graph_commit_id"],
            types=tuple(map(_type_from_json, facts["types"])),
            pattern=lambda: pattern,
        )
    except BaseException:  # also after an interrupt: only this returns the connection
        connection.close()
        raise


class _Source(io.RawIOBase):
    """Pieces as a file. Knows whether a read went beyond its end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.is_exhausted = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
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


def _batches(
    reader: pa.ipc.RecordBatchStreamReader, source: _Source, schema: Schema, connection: ExitStack
) -> Iterator[Batch]:
    try:
        while True:
            try:
                read = _readable(reader.read_next_batch_with_custom_metadata)
            except StopIteration:
                break
            batch, metadata = read
            if metadata and _ERROR in metadata:
                failure = json.loads(metadata[_ERROR])
                raise error_from_body(failure["status"], failure["body"])
            yield batch.replace_schema_metadata(schema.metadata)
        if source.is_exhausted:
            # Arrow takes the end of a file for the end of the rows.
            raise _cut_short("the mark of its end is missing")
    finally:
        connection.close()


def _readable(read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except (_pa.ArrowException, OSError, EOFError) as error:
        raise _cut_short(str(error).partition("\n")[0]) from error


def _cut_short(reason: str) -> UnexpectedAnswerError:
    return UnexpectedAnswerError(
        f"the rows of the server ended too early, what has arrived is not the whole result ({reason}): ask again"
    )


def _facts(schema: Schema) -> tuple[dict[str, Any], Schema]:
    """The facts of a result beside its rows, and the schema that it had before it was sent."""
    metadata = dict(schema.metadata or {})
    text = metadata.pop(_RESULT, None)
    if text is None:
        raise UnexpectedAnswerError("the answer is an Arrow stream, but no result of a graph")
    return json.loads(text), schema.with_metadata(metadata) if metadata else schema.remove_metadata()


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
        case RecordType():
            return {"record": _fields_json(type_.base), "nullable": nullable}
        case RecordListType():
            return {"records": _fields_json(type_.base), "nullable": nullable}


def _fields_json(base: BaseType) -> list[object]:
    return [[name, _type_json(type_)] for name, type_ in record_fields(base)]


def _type_from_json(body: Mapping[str, Any]) -> PropertyType:
    base: BaseType
    match body:
        case {"scalar": scalar}:
            base = ScalarType(Scalar(scalar))
        case {"enum": values}:
            base = EnumType(tuple(values))
        case {"list": item}:
            base = ListType(Scalar(item))
        case {"record": fields}:
            base = _record(fields)
        case {"records": fields}:
            base = RecordListType(_record(fields))
        case _:
            base = VectorType(body["vector"])
    return PropertyType(base, body["nullable"])


def _record(fields: Iterable[tuple[str, Mapping[str, Any]]]) -> RecordType:
    return RecordType(tuple((name, _type_from_json(body)) for name, body in fields))


# ---- Results as one JSON document


#: Rows that are written at once.
_PART_ROWS = 1 << 12


def encode_answer(result: Result, *, first: int | None = None, names_commit: bool = True) -> bytes:
    """The read envelope, as `Result.to_json` has it; the time and the memory that its text takes belong to the read.

    With `first` it has only so many rows, and `truncated` says whether there are more.
    """
    result.budget.counts_pauses = True
    parts: list[bytes] = []
    count, is_cut = 0, False
    for batch in _parts(result):
        wanted = batch if first is None else batch.slice(0, first - count)
        count += wanted.num_rows
        if wanted.num_rows:
            parts.append(_rows_text(result, wanted))
            result.budget.hold(len(parts[-1]))
        if wanted.num_rows < batch.num_rows:
            is_cut = True
            break
    head = {
        "query_name": result.query_name,
        "target": result.target.to_json(),
        "row_count": count,
        "columns": result.columns,
    }
    tail: dict[str, object] = {"graph_commit_id": result.commit_id} if names_commit else {}
    if first is not None:
        tail["truncated"] = is_cut
    end = f",{_text(tail)[1:]}" if tail else "}"
    opening = f'{_text(head)[:-1]},"rows":['
    return b"".join([opening.encode(), b",".join(parts), b"]", end.encode()])


def _parts(result: Result) -> Iterator[pa.RecordBatch]:
    """The rows in parts that take little time each."""
    for batch in result:
        for start in range(0, batch.num_rows, _PART_ROWS):
            result.budget.check()
            yield batch.slice(start, _PART_ROWS)


def _rows_text(result: Result, batch: pa.RecordBatch) -> bytes:
    columns = [json_column(column, type_.base) for column, type_ in zip(batch.columns, result.types, strict=True)]
    names = result.columns
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return _text(rows)[1:-1].encode()


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
