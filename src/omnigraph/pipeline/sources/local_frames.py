"""Frames of this process as Arrow rows: of pandas and polars, lists of records, and all that Arrow can stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias

import pyarrow

from omnigraph.core.arrow import Batch, Column, Rows, Schema, pa
from omnigraph.core.budget import work_steps
from omnigraph.core.parameters import PlainValue, plain_value
from omnigraph.errors import BadRequestError

# ---- Rows of this process


#: Rows of a stream that stay in memory; more of them are in a file until the load is over.
STREAM_MEMORY_BYTES = 64 * 1024 * 1024


class StreamedRows:
    """The rows of a stream, which can be read once, kept so that a load may read them again.

    Memory is bounded: rows beyond it are in a temporary file, which goes with the object.
    """

    def __init__(self, batches: Iterable[Batch], schema: Schema, *, memory_bytes: int = STREAM_MEMORY_BYTES) -> None:
        self.schema = schema
        #: The size of all rows.
        self.nbytes = 0
        self._kept: list[Batch] = []
        self._file: IO[bytes] | None = None
        for batch in (stream := work_steps(batches)):
            self._kept.append(batch)
            self.nbytes += batch.nbytes
            if self.nbytes > memory_bytes:
                self._file = self._spilled(stream)
                break

    def _spilled(self, rest: Iterator[Batch]) -> IO[bytes]:
        file: IO[bytes] = TemporaryFile(prefix="omnigraph-frame-")  # noqa: SIM115  # it lives as long as the rows
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), self.schema) as writer:
            for batch in self._kept:
                writer.write_batch(batch)
            self._kept.clear()
            for batch in rest:
                self.nbytes += batch.nbytes
                writer.write_batch(batch)
        return file

    def to_batches(self, max_chunksize: int) -> Iterator[Batch]:
        """The rows in order, at most so many at a time."""
        for batch in self._kept if self._file is None else self._from_file(self._file):
            for begin in range(0, batch.num_rows, max_chunksize):
                yield batch.slice(begin, max_chunksize)

    @staticmethod
    def _from_file(file: IO[bytes]) -> Iterator[Batch]:
        file.seek(0)
        yield from pa.ipc.open_stream(pa.PythonFile(file, mode="r"))

    def close(self) -> None:
        """Remove the file."""
        self._kept.clear()
        if self._file is not None:
            self._file.close()


LocalRows: TypeAlias = Rows | StreamedRows


def local_rows(name: str, given: object) -> LocalRows | None:
    """The rows of a frame in this process; None for what is not such a frame.

    Frames that are in memory are taken as they are, without a copy where Arrow needs none. A stream is read to its end.

    Raises:
        BadRequestError: it cannot be read as columns; the message names the column and the row.
    """
    module = type(given).__module__.partition(".")[0]
    try:
        if isinstance(given, pyarrow.Table):
            return given
        if module == "pandas":
            return _of_pandas(name, given) if hasattr(given, "columns") else None
        if hasattr(given, "__arrow_c_array__") and not isinstance(given, type):
            return pyarrow.Table.from_batches([pa.record_batch(given)])
        if hasattr(given, "__arrow_c_stream__") and not isinstance(given, type):
            reader = pa.RecordBatchReader.from_stream(given)
            # A frame of polars is in memory already; others may be far larger than it.
            return pyarrow.Table.from_batches(reader, reader.schema) if module == "polars" else _streamed(reader)
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        # Arrow puts the traceback of a source in Python behind the first line.
        raise BadRequestError(f"frame `{name}` cannot be read: {str(error).partition('. Detail:')[0]}") from error
    if isinstance(given, Mapping):
        return _of_columns(name, {str(column): values for column, values in given.items()})
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray):
        return _of_records(name, given)
    return None


def _streamed(reader: Any) -> StreamedRows:
    with reader:
        return StreamedRows(reader, reader.schema)


# ---- Columns of frames, records and lists


def _of_pandas(name: str, frame: Any) -> Rows:
    if not frame.columns.is_unique:
        raise ValueError(f"two columns have one name: {', '.join(map(str, frame.columns))}")
    return _of_columns(name, {str(column): frame[column] for column in frame.columns})


def _of_records(name: str, records: Sequence[object]) -> Rows:
    """The rows of a list of dictionaries. A member that a record lacks is null."""
    members: dict[str, list[object]] = {}
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise BadRequestError(
                f"frame `{name}`, record {number + 1} is a {type(record).__name__}: give a list of dictionaries"
            )
        for key, value in record.items():
            members.setdefault(str(key), [None] * len(records))[number] = value
    return _of_columns(name, members)


def _of_columns(name: str, columns: Mapping[str, Any]) -> Rows:
    made = {column: _column(values, f"frame `{name}`, column `{column}`") for column, values in columns.items()}
    try:
        return pyarrow.table(made)
    except pa.ArrowInvalid as error:
        raise BadRequestError(f"frame `{name}` cannot be read: {error}") from error


def _column(given: Any, where: str) -> Column:
    """A column of any library, or a list, in the one Arrow type that all of its values have."""
    module, kind = type(given).__module__.partition(".")[0], getattr(getattr(given, "dtype", None), "kind", None)
    if isinstance(given, pyarrow.Array | pyarrow.ChunkedArray):
        return given
    if module == "pandas" and kind != "O":
        return _arrow(given, where, from_pandas=True)
    if module == "pandas":
        # Objects: what is missing may be any of several values.
        given = given.where(given.notna(), None).tolist()
    elif module == "numpy" and given.ndim == 1 and kind in tuple("biufM"):
        return _arrow(given, where)
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise BadRequestError(f"{where} is a {type(given).__name__}: give a list of values")
    return _of_objects(list(given), where)


def _arrow(values: Any, where: str, **options: Any) -> Column:
    try:
        array: Column = pa.array(values, **options)
        return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadRequestError(f"{where} cannot be read: {error}") from error


# ---- Python objects as a column
#
# Arrow would choose the type by the first values, and cut later ones to it: a time becomes a day, nanoseconds vanish.


_MISSING = type(None)
#: The types that Arrow stores without loss when a column holds nothing else, beside null.
_ALONE = frozenset({str, bool, float, bytes, date, Decimal})
_LARGEST_I64 = 2**63 - 1


def _of_objects(values: list[Any], where: str) -> Column:
    kinds = set(map(type, values)) - {_MISSING}
    if len(kinds) == 1 and _are_vectors(values):
        return _arrow(values, where)
    if any(issubclass(kind, Mapping) for kind in kinds):
        # Structs: their members are what Arrow makes of them.
        return _arrow(values, where)
    if not kinds <= _ALONE | {int, datetime}:
        values = [_plain(value, where, number) for number, value in enumerate(values, start=1)]
        kinds = set(map(type, values)) - {_MISSING}
    match kinds:
        case _ if not kinds or (len(kinds) == 1 and kinds <= _ALONE) or kinds <= {int, Decimal}:
            is_unsigned = kinds == {int} and max(value for value in values if value is not None) > _LARGEST_I64
            return _arrow(values, where, type=pa.uint64() if is_unsigned else None)
        case _ if kinds == {int, float}:
            return _arrow(values, where, type=pa.float64())
        case _ if kinds == {datetime}:
            moments = [None if value is None else _in_utc(value) for value in values]
            return _arrow(moments, where, type=pa.timestamp("us", tz="UTC"))
        case _ if kinds == {list}:
            return _lists(values, where)
    raise BadRequestError(f"{where} holds values of several types, {_mixture(values)}: give them one type")


def _are_vectors(values: list[Any]) -> bool:
    """Whether all values are arrays of numbers of one type, which Arrow takes as they are."""
    found = {
        (value.dtype.char, value.ndim) if type(value).__module__ == "numpy" else None
        for value in values
        if value is not None
    }
    return len(found) == 1 and found <= {(char, 1) for char in "bhilqBHILQfd"}


def _lists(values: list[Any], where: str) -> Column:
    offsets = list(accumulate((len(value or ()) for value in values), initial=0))
    items = _of_objects([item for value in values for item in value or ()], f"{where}, items of the lists")
    mask = pa.array([value is None for value in values])
    lists: Column = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items, mask=mask)
    return lists


def _plain(value: object, where: str, number: int) -> PlainValue:
    try:
        return plain_value(value)
    except ValueError as problem:
        raise BadRequestError(f"{where}, row {number}: {problem}") from problem


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _mixture(values: list[Any]) -> str:
    """The first two types that a column holds, and their rows."""
    first: dict[str, int] = {}
    for number, value in enumerate(values, start=1):
        if value is not None:
            first.setdefault(type(value).__name__, number)
    (one, row), (other, later), *_ = first.items()
    return f"`{one}` in row {row} and `{other}` in row {later}"
