"""Rows that exist only in memory, filtered with exactly the meaning that stored rows have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

from omnigraph.ids import new_ulid
from omnigraph.storage.failures import translated
from omnigraph.storage.filters import Filter, to_sql

if TYPE_CHECKING:
    from omnigraph.storage.tables import Table


def select_rows(rows: pa.Table, filter_: Filter) -> pa.Table:
    """The rows of an Arrow table that satisfy a filter.

    The filter runs in Lance on a private in-memory dataset: one evaluator for pending and committed rows.
    """
    if rows.num_rows == 0:
        return rows
    with translated("filtering pending rows"):
        positions = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.append_column("__position", positions)
        found = _in_memory(numbered).to_table(columns=["__position"], filter=to_sql(filter_))
        return rows.take(found["__position"])


def scan_with_pending(
    table: Table, pending: pa.Table, filter_: Filter, key: str = "id"
) -> pa.Table:
    """Committed rows and pending rows that satisfy a filter; a pending row shadows the committed one with its key."""
    committed = table.read(pending.column_names, filter_)
    shadowed = pa.compute.is_in(committed[key], pending[key].combine_chunks())
    visible = committed.filter(pa.compute.invert(shadowed)).cast(pending.schema)
    return pa.concat_tables([select_rows(pending, filter_), visible])


def text_pairs_match(
    texts: pa.Array[Any], parts: pa.Array[Any], *, at_start: bool
) -> pa.Array[Any]:
    """Per pair, whether the text contains the part or begins with it; null when either is null."""
    function = "starts_with" if at_start else "contains"
    with translated("comparing texts"):
        pairs = pa.table({"text": texts, "part": parts})
        found = _in_memory(pairs).to_table(columns={"holds": f"{function}(text, part)"})
        return found["holds"].combine_chunks()


def _in_memory(rows: pa.Table) -> lance.LanceDataset:
    """A private dataset that no file belongs to."""
    return lance.write_dataset(rows, f"memory://{new_ulid()}")
