"""The result of a read: batches first, tables and frames of other libraries on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.api.patterns import NOTHING, ResultPattern
from omnigraph.api.read_ahead import ReadAhead
from omnigraph.commit.read_target import Target
from omnigraph.core.arrow import Array, Batch, Schema, json_column, pc
from omnigraph.core.arrow import pa as _pa
from omnigraph.core.budget import Budget
from omnigraph.core.extras import need
from omnigraph.core.lazy_exports import LateModule, late_types
from omnigraph.core.types import NUMERICS, ListType, PropertyType, RecordListType, Scalar, VectorType, scalar_of
from omnigraph.display.tables import Column, Table
from omnigraph.display.text import SHOWN_ITEMS, SHOWN_LENGTH, Shown, counted, short_text
from omnigraph.errors import BadRequestError, OmniError

if TYPE_CHECKING:
    import networkx
    import pandas as pd
    import polars as pl

    from omnigraph.api.row_graphs import SparseGraph
    from omnigraph.display.pictures import Picture
else:
    networkx, pd, pl = LateModule("networkx"), LateModule("pandas"), LateModule("polars")
    globals().update(late_types({"omnigraph.api.row_graphs": "SparseGraph", "omnigraph.display.pictures": "Picture"}))


#: Rows that are shown in a notebook, and as text.
_SHOWN_ROWS = 20
_TEXT_ROWS = 10
#: Rows that are read ahead to be counted.
_COUNTED_ROWS = 10_000


class Result:
    """Rows of a read, at one snapshot. Iterate over it for Arrow batches, or take all rows at once.

    Iteration streams: a large result never has to fit into memory. Asking for all rows, or for their number, keeps
    them. Looking at it, as notebooks and terminals do, reads the first rows and takes none. Not thread-safe.

    polars, duckdb, pandas and everything else that knows the Arrow stream protocol reads a result without a copy, as in
    `polars.DataFrame(result)` and `duckdb.sql("select … from result")`. Up to 64 MiB can be read so any number of
    times, a larger result once.
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
        budget: Callable[[], Budget] = Budget,
        pattern: Callable[[], ResultPattern] = lambda: NOTHING,
    ) -> None:
        self.query_name = query_name
        self.target = target
        #: The commit whose snapshot was read; usable as `if_commit` of a later write.
        self.commit_id = commit_id
        self.schema = schema
        #: The type of each column in the languages of the graph.
        self.types = types
        # Both are asked once at most: few results are drawn, and what is small needs no account.
        self._budget = budget
        self._pattern = pattern
        self._rows = ReadAhead(batches)
        self._table: pa.Table | None = None
        # The first batch is made now, so that a failure belongs to the call of `query`.
        self._rows.pull()

    @cached_property
    def pattern(self) -> ResultPattern:
        """The nodes and edges in its rows."""
        return self._pattern()

    @cached_property
    def budget(self) -> Budget:
        """What the read may use; everything that is held for its answer is accounted here."""
        return self._budget()

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
        yield from self._rows.take()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for another library; they are read as it asks for them, from the same snapshot."""
        reader = _pa.RecordBatchReader.from_batches(self.schema, self._rows.replay())
        capsule: object = reader.__arrow_c_stream__(requested_schema)
        return capsule

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        if self._table is None:
            self._table = pa.Table.from_batches(self._rows.all(), schema=self.schema)
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars frame, without a copy where polars needs none.

        Raises:
            MissingPackageError: polars is not installed.
        """
        need("polars", "`to_polars`")
        import polars as pl

        return pl.DataFrame(self)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        need("pandas", "`to_pandas`")
        # Without this, integers beside a null become floats, and large ones lose digits.
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """The nodes and edges in the rows as a graph of networkx; every column of theirs is an attribute.

        A node is its id, or a pair of type and id where the result has nodes of several types; `type` and `id` are
        attributes of each. Edges are those of the pattern between returned nodes, and `type` is an attribute of each;
        of paths of several edges nothing is known but their ends, and they are left out.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(
        ...     tempfile.mkdtemp() + "/people.omni", "node Person { name: String @key } edge Knows: Person -> Person"
        ... )
        >>> add = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'
        >>> receipt = graph.mutate(add)
        >>> found = graph.query("match { $a: Person  $a knows $b } return { $a, $b }").to_networkx()
        >>> list(found.edges(data="type"))
        [('ada', 'bo', 'Knows')]

        Raises:
            BadRequestError: no column holds nodes.
            MissingPackageError: networkx is not installed.
        """
        from omnigraph.api.row_graphs import graph_of_rows, networkx_of

        return networkx_of(graph_of_rows(self.pattern, self.to_arrow(), self.types))

    def to_scipy(self, weight: str | None = None) -> SparseGraph:
        """The nodes and edges in the rows as a sparse matrix of scipy, with the ids and types of its nodes.

        An entry of the matrix counts the edges from the node of its row to the node of its column, or is the sum of
        their `weight`, a property of the edges; edges without a value are left out. Nodes and edges are those of
        `to_networkx`; an edge whose direction the pattern leaves open counts in both.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(
        ...     tempfile.mkdtemp() + "/people.omni", "node Person { name: String @key } edge Knows: Person -> Person"
        ... )
        >>> add = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'
        >>> receipt = graph.mutate(add)
        >>> matrix, ids, types = graph.query("match { $a: Person  $a knows $b } return { $a, $b }").to_scipy()
        >>> matrix.toarray().tolist(), ids.tolist()
        ([[0, 1], [0, 0]], ['ada', 'bo'])

        Raises:
            BadRequestError: no column holds nodes, or the edges have no such number.
            MissingPackageError: scipy is not installed.
        """
        from omnigraph.api.row_graphs import graph_of_rows, sparse_of_rows

        need("scipy", "`to_scipy`")
        return sparse_of_rows(graph_of_rows(self.pattern, self.to_arrow(), self.types), weight)

    def show(self, *, title: str | None = None, limit: int = 100) -> Picture:
        """A picture of the nodes and edges in the first rows, which takes none of them; `save` writes it to a file.

        Nodes are seen where they are returned, as in `return { $a, $b }`, edges where both of their ends are.

        Raises:
            BadRequestError: no column holds nodes, or the limit is wrong.
        """
        from omnigraph.api.row_graphs import graph_of_rows, picture_of_rows

        found = self._rows.peek(_COUNTED_ROWS)
        if found is None:
            raise BadRequestError("the rows were streamed already: show a result before you iterate, or query again")
        batches, is_all = found
        table = pa.Table.from_batches(batches, schema=self.schema)
        rows = graph_of_rows(self.pattern, table, self.types, as_json=True)
        return picture_of_rows(
            rows, title=title or self.query_name, note="" if is_all else "of the first rows", limit=limit
        )

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries; dates and instants are Python objects."""
        names = self.columns
        batches = self._rows.all()
        columns = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        return [dict(zip(names, values, strict=True)) for rows in columns for values in rows]

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

    # ---- looking at it: the first rows are read and stay where they are

    def __repr__(self) -> str:
        try:
            return "\n".join(self._shown(_TEXT_ROWS, f"Result of {self.query_name}").lines())
        except OmniError as failure:
            # Whatever prints the object did not ask for rows; the next reader of them gets the failure.
            return f"<Result of {self.query_name}: {failure}>"

    def _repr_html_(self) -> str:
        """A table of the first rows, for notebooks."""
        return self._shown(_SHOWN_ROWS).html()

    def _shown(self, most: int, title: str = "") -> Table:
        found = self._rows.peek(_COUNTED_ROWS)
        if found is None:
            names = ", ".join(self.columns)
            return Table(columns=(), title=title, note=f"columns {names}; its rows were streamed already")
        batches, is_all = found
        rows = pa.Table.from_batches(batches, schema=self.schema)
        count = rows.num_rows
        note = counted(count, "row") if is_all else f"more than {counted(count, 'row')}"
        if count > most:
            note = f"first {most} of {note}"
        columns = map(_shown_column, rows.slice(0, most).itercolumns(), self.columns, self.types)
        return Table(columns=list(columns), title=title, note=note)


# ---- Columns for people


def _shown_column(column: pa.ChunkedArray[Any], name: str, type_: PropertyType) -> Column:
    """A column of a table for people; long values are cut before anything is made of them."""
    array, base = column.combine_chunks(), type_.base
    values: Sequence[object]
    if isinstance(base, ListType | VectorType | RecordListType):
        values = [*map(_shown_list, json_column(_first_items(array), base), pc.list_value_length(array).to_pylist())]
    elif scalar_of(base) is Scalar.STRING:
        values = [*map(_shown_text, _beginnings(array).to_pylist(), pc.utf8_length(array).to_pylist())]
    else:
        values = json_column(array, base)
    return Column(name=name, kind=str(type_), values=values, is_number=scalar_of(base) in NUMERICS)


def _beginnings(texts: Array) -> Array:
    """What is shown of texts, and one character more."""
    cut: Array = pc.utf8_slice_codeunits(texts, 0, SHOWN_LENGTH + 1)
    return cut


def _shown_text(beginning: str | None, length: int | None) -> object:
    if beginning is None or length is None or length <= SHOWN_LENGTH:
        return beginning
    return Shown(f"{beginning[:SHOWN_LENGTH]}… ({length:,} characters)")


def _first_items(lists: Array) -> Array:
    some: Any = pc.list_slice(lists, 0, SHOWN_ITEMS)
    if not _pa.types.is_string(some.type.value_type):
        plain: Array = some
        return plain
    cut: Array = _pa.ListArray.from_arrays(some.offsets, _beginnings(some.values), mask=some.is_null())
    return cut


def _shown_list(items: object, length: int | None) -> object:
    if not isinstance(items, list) or length is None or length <= SHOWN_ITEMS:
        return items
    return Shown(f"{short_text(items)[:-1]}, … {length - SHOWN_ITEMS:,} more]")
