"""Files of patch records: the new values of some properties, kept until the rows that they are about are known.

A file has a column for each property that any of its records brings, and says for each record which of them it brings:
a property that is left out stays as it is, one that is null becomes null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa, pc
from omnigraph.frozen import frozen
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What a record lacks to be a row of its own: required properties, and the ends of an edge.
LACKS = "@lacks"
_BROUGHT = "?"
#: Rows of a batch, as one is read.
_BATCH_ROWS = 65_536
_OFFSET_BITS = 32
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


def brought_column(name: str) -> str:
    """The column that says which records bring a property."""
    return f"{_BROUGHT}{name}"


@frozen(kw_only=True)
class PatchFile:
    """One file, as tasks and the driver know it. Plain values."""

    name: str
    rows: int
    size_bytes: int
    #: The properties that any of its records brings.
    properties: tuple[str, ...]

    def to_message(self) -> Message:
        """The file as plain JSON values."""
        return {"name": self.name, "rows": self.rows, "bytes": self.size_bytes, "properties": list(self.properties)}

    @staticmethod
    def from_message(body: Message) -> PatchFile:
        """The inverse of `to_message`."""
        properties = tuple(map(str, body["properties"]))
        return PatchFile(
            name=str(body["name"]), rows=int(body["rows"]), size_bytes=int(body["bytes"]), properties=properties
        )


def write_patch(folder: AnswerFolder, part: int, batches: Sequence[Batch]) -> PatchFile:
    """Write records that were shaped together or one after the other; what some of them lack is not brought."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
    properties = [name.removeprefix(_BROUGHT) for name in rows.column_names if name.startswith(_BROUGHT)]
    for name in map(brought_column, properties):
        rows = rows.set_column(rows.column_names.index(name), name, pc.fill_null(rows[name], False))
    written = write_answer(folder, attempt_name("patch", part), rows.schema, rows.to_batches(max_chunksize=_BATCH_ROWS))
    return PatchFile(
        name=written.name, rows=written.rows, size_bytes=written.size_bytes, properties=tuple(sorted(properties))
    )


def read_patch(folder: AnswerFolder, file: PatchFile) -> Rows:
    """All records of a file."""
    rows: Rows = pa.Table.from_batches(list(read_answer(folder, file.name)))
    return rows


def patch_keys(folder: AnswerFolder, number: int, file: PatchFile) -> Iterator[Rows]:
    """The ids and addresses of the records of a file, with `src`, `dst` and `@lacks` where there are any.

    The address of a record is the number of its file and its place in there.
    """
    first = number << _OFFSET_BITS
    for batch in read_answer(folder, file.name):
        names = [name for name in ("src", "dst", LACKS) if name in batch.schema.names]
        addresses = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        columns = [batch.column("id"), addresses, *(batch.column(name) for name in names)]
        yield pa.table(columns, names=["key", "address", *names])
        first += batch.num_rows


def file_numbers(addresses: NDArray[np.int64]) -> NDArray[np.int32]:
    """The number of the file of each record."""
    return (addresses >> _OFFSET_BITS).astype(np.int32)


def places(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each record in its file."""
    return addresses & _OFFSET_MASK


def addresses_of_ids(folder: AnswerFolder, files: Sequence[PatchFile], ids: Sequence[str]) -> dict[str, int]:
    """The addresses of the records of some ids."""
    wanted = pa.array(ids, pa.utf8())
    found: dict[str, int] = {}
    for number, file in enumerate(files):
        for keys in patch_keys(folder, number, file):
            some = keys.select(["key", "address"]).filter(pc.is_in(keys["key"], wanted))
            found |= {str(row["key"]): int(row["address"]) for row in some.to_pylist()}
    return found


def overlaid(old: Batch | Rows, new: Rows, properties: Iterable[str]) -> dict[str, Column]:
    """The columns of rows with the values that records bring instead; both in the same order."""
    found: dict[str, Column] = {name: old.column(name) for name in old.schema.names}
    for name in properties:
        if name not in found or name not in new.column_names:
            continue
        brought: Array = new[brought_column(name)].combine_chunks()
        values = new[name].combine_chunks()
        if not pc.all(brought).as_py():
            values = pc.if_else(brought, values, _whole(found[name]))
        found[name] = values
    return found


def _whole(column: Column) -> Column:
    chunked = getattr(column, "combine_chunks", None)
    return column if chunked is None else chunked()
