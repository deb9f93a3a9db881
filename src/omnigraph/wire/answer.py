"""The result of a read: a stream of Arrow batches first, everything else on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from omnigraph.budget import Budget
from omnigraph.types.json_values import json_column
from omnigraph.wire.rendering import html_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from omnigraph.manifest.targets import Target
    from omnigraph.types.kinds import PropertyType

_SHOWN_ROWS = 20


class BatchStream(Protocol):
    """The columns of a result, and its rows as they are made or as they arrive."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        ...

    @property
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; taken once."""
        ...


class Result:
    """Rows of a read, at one snapshot. Iterate over it for Arrow batches, or take all rows at once.

    Iteration streams: a large result never has to fit into memory. Asking for all rows, or for their number, keeps
    them. Not thread-safe.
    """

    def __init__(
        self,
        stream: BatchStream,
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
        self.schema: pa.Schema = stream.schema
        #: The type of each column in the languages of the graph.
        self.types = types
        #: What the read may use; everything that is held for its answer is accounted here.
        self.budget = Budget() if budget is None else budget
        self._batches: Iterator[pa.RecordBatch] | None = stream.batches
        self._table: pa.Table | None = None
        # The first batch is made now, so that a failure belongs to the call of `query`.
        self._first = next(stream.batches, None)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the projection."""
        return list(self.schema.names)

    @property
    def row_count(self) -> int:
        """How many rows there are."""
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
        """All rows as a pandas frame."""
        # Without this, integers beside a null become floats, and large ones lose digits.
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries; dates and instants are Python objects."""
        return self.to_arrow().to_pylist()

    def json_rows(self) -> Iterator[dict[str, object]]:
        """The rows as JSON values, streaming: see the reference of results for the form of each type."""
        names = self.columns
        for batch in self:
            columns = [
                json_column(column, type_.base)
                for column, type_ in zip(batch.columns, self.types, strict=True)
            ]
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
