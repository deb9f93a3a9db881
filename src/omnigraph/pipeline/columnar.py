"""Columnar files of a load (Parquet, ORC) as batches of bounded size, however little space their rows take in the file.

One value of a dictionary can stand for a million rows, and a run of equal values for a billion: neither the size of a
file nor the number of its rows says how much memory a batch takes. What a file says about itself is checked before its
rows are read, and what comes out of it is counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as _arrow
import pyarrow.compute as _compute
import pyarrow.orc as _orc
import pyarrow.parquet as _parquet

from omnigraph.errors import InputFileError
from omnigraph.pipeline.inputs import open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.pipeline.inputs import InputFile

#: The published stubs of pyarrow describe older functions.
pa: Any = _arrow
pc: Any = _compute
orc: Any = _orc
parquet: Any = _parquet

_BATCH_ROWS = 131_072
#: About how much memory the columns of a batch may take.
_BATCH_BYTES = 32 * 1024 * 1024
#: Deeper than any type that a property may have, and far from what a parser of schemas survives.
_MAX_SCHEMA_DEPTH = 64
#: The least that eight values take in memory, where nearly all of them may be null.
_LEAST_BYTES_PER_8_VALUES = 4


class ColumnarTable(Protocol):
    """An open file of columns."""

    #: Its columns, as Arrow reads them.
    schema: Any

    def group_rows(self) -> list[int]:
        """The rows of each of its groups, which tasks read.

        Raises:
            ResourceLimitError: by its own account the file holds too much.
        """
        ...

    def batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Any]:
        """Some columns of some groups, in bounded pieces; `address.city` is a member of a struct.

        Raises:
            ResourceLimitError: they hold too much.
        """
        ...


@contextmanager
def open_table(file: InputFile, *, is_parquet: bool) -> Iterator[ColumnarTable]:
    """A Parquet or an ORC file.

    Raises:
        InputFileError: it is damaged; so do the methods of what this gives.
    """
    with open_bytes(file) as stream:
        with _damage(file):
            table: ColumnarTable = _Parquet(file, stream) if is_parquet else _Orc(file, stream)
        yield table


@contextmanager
def _damage(file: InputFile) -> Iterator[None]:
    """What readers of Arrow raise besides its own errors when parts of a file contradict each other."""
    try:
        yield
    except (KeyError, IndexError, OverflowError, UnicodeDecodeError, RecursionError) as error:
        reason = f"parts of it contradict each other ({type(error).__name__})"
        raise InputFileError(file.path, f"it is damaged: {reason}") from error


class _Parquet:
    def __init__(self, file: InputFile, stream: Any) -> None:
        self._input = file
        self._stream = stream
        self._table = parquet.ParquetFile(stream, schema_depth_limit=_MAX_SCHEMA_DEPTH)
        self._metadata = self._table.metadata
        self.schema = self._table.schema_arrow

    def group_rows(self) -> list[int]:
        groups = range(self._metadata.num_row_groups)
        with _damage(self._input):
            leaves = [leaf for group in groups for leaf in self._leaves(group)]
            rows = [self._metadata.row_group(group).num_rows for group in groups]
            declared = [
                max(leaf.total_uncompressed_size, leaf.num_values * _LEAST_BYTES_PER_8_VALUES // 8)
                for leaf in leaves
            ]
        self._input.check_content(sum(declared))
        return rows

    def batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Any]:
        with _damage(self._input):
            yield from self._batches(groups, columns)

    def _batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Any]:
        content_bytes = 0
        for group in groups:
            longest = self._longest_values(group, columns)
            self._check_lists(group, columns, longest)
            size = self._batch_rows(group, columns, longest)
            for batch in self._table.iter_batches(size, row_groups=[group], columns=columns):
                content_bytes += batch.nbytes
                self._input.check_content(content_bytes)
                yield batch

    def _leaves(self, group: int, columns: list[str] | None = None) -> Iterator[Any]:
        """What a row group says about each of its stored columns; a column of lists is stored as its items."""
        known, wanted = self._metadata.row_group(group), set(columns or ())
        for number in range(known.num_columns):
            leaf = known.column(number)
            if columns is None or not wanted.isdisjoint(_beginnings(leaf.path_in_schema)):
                yield leaf

    def _check_lists(self, group: int, columns: list[str], longest: dict[str, int]) -> None:
        """Count what lists of texts hold, where it may be too much: a batch is at least one row, however long.

        Raises:
            ResourceLimitError: it is too much.
        """
        rows = self._metadata.row_group(group).num_rows
        for leaf in self._leaves(group, columns):
            length = longest.get(leaf.path_in_schema, 0)
            if leaf.num_values <= rows or leaf.num_values * length <= _BATCH_BYTES:
                continue
            path, content_bytes = leaf.path_in_schema, 0
            probe = self._with_dictionaries([path])
            for batch in probe.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[path]):
                for values in _dictionary_arrays(batch.column(0)):
                    lengths = pc.binary_length(values.dictionary).cast(pa.int64())
                    content_bytes += pc.sum(lengths.take(values.indices)).as_py() or 0
                    self._input.check_content(content_bytes)

    def _batch_rows(self, group: int, columns: list[str], longest: dict[str, int]) -> int:
        """How many rows of a group fit into a batch."""
        rows = max(self._metadata.row_group(group).num_rows, 1)
        row_bytes = 0.0
        for leaf in self._leaves(group, columns):
            per_row = max(leaf.num_values, 1) / rows
            stored = max(leaf.total_uncompressed_size, 0) / rows
            row_bytes += max(stored, per_row * longest.get(leaf.path_in_schema, 0))
        return int(min(max(_BATCH_BYTES / max(row_bytes, 1), 1), _BATCH_ROWS))

    def _longest_values(self, group: int, columns: list[str]) -> dict[str, int]:
        """Per stored column of texts that has a dictionary: the length of its longest value.

        The first row of a group brings the whole dictionary, and the dictionary is never larger than the file says.
        """
        paths = {
            leaf.path_in_schema: leaf
            for leaf in self._leaves(group, columns)
            if leaf.physical_type == "BYTE_ARRAY" and leaf.has_dictionary_page
        }
        if not paths:
            return {}
        found: dict[str, int] = {}
        probe = self._with_dictionaries(list(paths))
        for batch in probe.iter_batches(1, row_groups=[group], columns=list(paths)):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for values in _dictionary_arrays(column):
                    longest = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
                    for path in paths:
                        if name in _beginnings(path):
                            found[path] = max(found.get(path, 0), longest)
            break
        return found

    def _with_dictionaries(self, paths: list[str]) -> Any:
        """The same file; texts of these stored columns stay places in a dictionary."""
        return parquet.ParquetFile(
            self._stream, metadata=self._metadata, read_dictionary=paths, pre_buffer=False
        )


def _beginnings(path: str) -> Iterator[str]:
    """A path and the columns that it is inside of."""
    steps = path.split(".")
    for count in range(1, len(steps) + 1):
        yield ".".join(steps[:count])


def _dictionary_arrays(column: Any) -> Iterator[Any]:
    """The arrays with a dictionary inside of a column."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        yield column
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        yield from _dictionary_arrays(column.values)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _dictionary_arrays(column.field(number))


class _Orc:
    def __init__(self, file: InputFile, stream: Any) -> None:
        self._input = file
        self._table = orc.ORCFile(stream)
        self.schema = self._table.schema

    def group_rows(self) -> list[int]:
        self._input.check_content(
            self._table.nrows * len(self.schema.names) * _LEAST_BYTES_PER_8_VALUES // 8
        )
        # The length of a stripe is known only by reading it: one column is enough.
        with _damage(self._input):
            stripes = range(self._table.nstripes)
            return [self._table.read_stripe(number, columns=[0]).num_rows for number in stripes]

    def batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Any]:
        content_bytes = 0
        for group in groups:
            with _damage(self._input):
                # Without columns a stripe has no rows either, and each one is a record.
                chosen: list[str] | list[int] = columns or [0]
                stripe = self._table.read_stripe(group, columns=chosen)
            content_bytes += stripe.nbytes
            self._input.check_content(content_bytes)
            rows = min(max(_BATCH_BYTES * stripe.num_rows // max(stripe.nbytes, 1), 1), _BATCH_ROWS)
            yield from pa.Table.from_batches([stripe]).to_batches(max_chunksize=rows)
