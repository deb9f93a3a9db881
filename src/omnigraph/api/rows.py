"""Results of queries: batches first, text and HTML on top, Arrow and JSON on the wire."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from typing_extensions import Buffer

from omnigraph.commit.targets import Target
from omnigraph.core.arrow import Batch, Schema, json_column
from omnigraph.core.arrow import pa as _pa
from omnigraph.core.budget import Budget
from omnigraph.core.extras import need
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import OmniError, UnexpectedAnswerError
from omnigraph.errors.bodies import error_from_body

if TYPE_CHECKING:
    import pandas as pd


# ---- Values of results as text


def text_value(value: object) -> str:
    """A JSON value as people read it in a table: text bare, everything else in JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def html_table(names: Sequence[str], columns: Sequence[Sequence[object]], *, total: int) -> str:
    """A table for notebooks; `total` rows exist, the columns hold the first of them."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text_value(value))}</td>" for value in row) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    shown = len(columns[0]) if columns else 0
    note = f"{total} row{'' if total == 1 else 's'}"
    if shown < total:
        note += f", first {shown} shown"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{html.escape(note)}</p>"


# ---- The result of a read


_SHOWN_ROWS = 20


class Result:
    """Rows of a read, at one snapshot. Iterate over it for Arrow batches, or take all rows at once.

    Iteration streams: a large result never has to fit into memory. Asking for all rows, or for their number, keeps
    them. Not thread-safe.
    """

    def __init__(
        self,
        schema: Schema,
        batches: Iterator[Batch],
        *,
        query_name: str,
        target: Target,
        commit_id: str,
        types: tuple[PropertyType, ...],
        budget: Budget | None = None,
    ) -> None:
        self.query_name = query_name
        self.target = target
        #: The commit whose snapshot was read; usable as `if_commit` of a later write.
        self.commit_id = commit_id
        self.schema = schema
        #: The type of each column in the languages of the graph.
        self.types = types
        #: What the read may use; everything that is held for its answer is accounted here.
        self.budget = Budget() if budget is None else budget
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._table: pa.Table | None = None
        # The first batch is made now, so that a failure belongs to the call of `query`.
        self._first = next(batches, None)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the projection."""
        return list(self.schema.names)

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self.to_arrow().num_rows

    def __len__(self) -> int:
        return self.row_count

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches in order. Streams once; a second iteration needs `to_arrow` first."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        yield from self._stream()

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        if self._table is None:
            self._table = pa.Table.from_batches(list(self._stream()), schema=self.schema)
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        need("pandas", "`to_pandas`")
        # Without this, integers beside a null become floats, and large ones lose digits.
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries; dates and instants are Python objects."""
        return self.to_arrow().to_pylist()

    def json_rows(self) -> Iterator[dict[str, object]]:
        """The rows as JSON values, streaming: see the reference of results for the form of each type."""
        names = self.columns
        for batch in self:
            columns = [json_column(column, type_.base) for column, type_ in zip(batch.columns, self.types, strict=True)]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))

    def to_json(self) -> dict[str, object]:
        """The read envelope."""
        return {
            "query_name": self.query_name,
            "target": self.target.to_json(),
            "row_count": self.row_count,
            "columns": self.columns,
            "rows": list(self.json_rows()),
            "graph_commit_id": self.commit_id,
        }

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        if self._table is None:
            return f"<Result of {self.query_name}: rows of {columns}>"
        count = self._table.num_rows
        return f"<Result of {self.query_name}: {count} row{'' if count == 1 else 's'} of {columns}>"

    def _repr_html_(self) -> str:
        """A table of the first rows, for notebooks."""
        table = self.to_arrow()
        shown = table.slice(0, _SHOWN_ROWS)
        columns: list[list[object]] = [
            json_column(column.combine_chunks(), type_.base)
            for column, type_ in zip(shown.columns, self.types, strict=True)
        ]
        return html_table(self.columns, columns, total=table.num_rows)

    def _stream(self) -> Iterator[pa.RecordBatch]:
        batches, self._batches = self._batches, None
        if batches is None:
            raise RuntimeError("the rows were streamed already: call to_arrow() before iterating")
        first, self._first = self._first, None
        if first is not None:
            yield first
            yield from batches


# ---- Results as an Arrow IPC stream
#
# What a result knows beside its rows travels in the metadata of the schema. A failure behind the first row travels as
# an empty batch with the error body in its metadata; in another library the stream ends
# without its end marker, as after a lost connection.


#: The published stubs of pyarrow lack the parts that take metadata.

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
        return Result(
            schema,
            _batches(reader, source, schema, connection),
            query_name=facts["query_name"],
            target=target,
            commit_id=facts["graph_commit_id"],
            types=tuple(map(_type_from_json, facts["types"])),
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
