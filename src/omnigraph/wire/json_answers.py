"""Results on the wire as one JSON document, made batch by batch: no more than its text is held."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omnigraph.types.json_values import json_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from omnigraph.wire.answer import Result

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
    columns = [
        json_column(column, type_.base)
        for column, type_ in zip(batch.columns, result.types, strict=True)
    ]
    names = result.columns
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return _text(rows)[1:-1].encode()


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
