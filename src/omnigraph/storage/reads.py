"""Reads by row id: scans, point reads, text search and nearest neighbours.

A row id identifies a row of one dataset for its whole life; updates and compaction keep it. It is how everything above
refers to rows until their values are needed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance.query import MatchQuery, PhraseQuery

from omnigraph.storage.failures import translated
from omnigraph.storage.filters import Filter, to_sql
from omnigraph.storage.row_columns import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lance

    from omnigraph.storage.tables import Table

SCORE = "_score"
DISTANCE = "_distance"
#: How the inverted index analyses text. The same settings wherever one is built, so that matches never differ.
TEXT_ANALYSIS: dict[str, Any] = {"with_position": True}


class TextQuery(StrEnum):
    """What a full-text search asks for: any of the words, or all of them adjacent and in order."""

    ANY_WORD = "any_word"
    PHRASE = "phrase"


def scan_rows(
    table: Table,
    columns: Sequence[str] = (),
    filter_: Filter | None = None,
    *,
    limit: int | None = None,
    batch_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Row ids with some columns, as a stream of batches in no particular order."""
    with translated(f"scanning {table.path}"):
        yield from table._dataset.scanner(
            columns=[*columns, ROW_ID],
            filter=to_sql(filter_) if filter_ else None,
            limit=limit,
            batch_size=batch_rows,
        ).to_batches()


def read_rows(
    table: Table,
    columns: Sequence[str] = (),
    filter_: Filter | None = None,
    *,
    limit: int | None = None,
) -> pa.Table:
    """As `scan_rows`, as one table."""
    with translated(f"reading {table.path}"):
        return table._dataset.to_table(
            columns=[*columns, ROW_ID], filter=to_sql(filter_) if filter_ else None, limit=limit
        )


def take_rows(table: Table, row_ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Columns of the rows with these ids, in their order. Every id has to exist."""
    with translated(f"reading rows of {table.path}"):
        found = table._dataset._take_rows(list(row_ids), columns=list(columns))
        if found.num_rows != len(row_ids):
            raise RuntimeError(f"{len(row_ids) - found.num_rows} rows do not exist")
        return found


def search_rows(
    table: Table,
    column: str,
    text: str,
    query: TextQuery,
    *,
    filter_: Filter | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Row ids and scores of the rows that match a text, best first. Needs an inverted index."""
    with translated(f"searching {table.path}"):
        wanted = [ROW_ID, SCORE]
        return search_dataset(
            table._dataset, column, text, query, wanted, filter_=filter_, limit=limit
        )


def nearest_rows(
    table: Table,
    column: str,
    vector: Sequence[float],
    count: int,
    filter_: Filter | None = None,
    *,
    probes: int | None = None,
) -> pa.Table:
    """Row ids and squared distances of the `count` nearest rows that satisfy a filter, nearest first.

    Exact without an index. With one, at least `probes` partitions of it are looked at, and more until there are
    `count` rows.
    """
    nearest: dict[str, object] = {
        "column": column,
        "q": pa.array(vector, pa.float32()),
        "k": count,
        "metric": "l2",
    }
    if probes is not None:
        nearest["minimum_nprobes"] = probes
    with translated(f"searching {table.path}"):
        return table._dataset.to_table(
            columns=[ROW_ID, DISTANCE],
            nearest=nearest,
            filter=to_sql(filter_) if filter_ else None,
            prefilter=True,
        )


def search_dataset(
    dataset: lance.LanceDataset,
    column: str,
    text: str,
    query: TextQuery,
    columns: list[str],
    *,
    filter_: Filter | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Columns of the rows of a Lance dataset that match a text, best first. Stays inside this room."""
    kind = MatchQuery if query is TextQuery.ANY_WORD else PhraseQuery
    return dataset.to_table(
        columns=columns,
        full_text_query=kind(text, column),
        filter=to_sql(filter_) if filter_ else None,
        prefilter=True,
        limit=limit,
    )
