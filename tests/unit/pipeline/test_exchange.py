"""Rows reach their bucket, whatever read them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from omnigraph.pipeline import exchange as exchanges
from omnigraph.pipeline.buckets import BUCKET, Exchange, buckets_of
from omnigraph.pipeline.exchange import run_exchange
from omnigraph.pipeline.load_engine import make_engine
from omnigraph.pipeline.progress import Silent
from omnigraph.pipeline.scratch import Scratch, ScratchPlace
from omnigraph.storage import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = pa.schema([(BUCKET, pa.int32()), ("number", pa.int64())])


def numbers(item: range) -> Iterator[Any]:
    for begin in range(item.start, item.stop, 3):
        some = list(range(begin, min(begin + 3, item.stop)))
        yield pa.RecordBatch.from_pydict({BUCKET: [n % 5 for n in some], "number": some}, SCHEMA)


def kept(bucket: int, rows: Any) -> dict[str, Any]:
    assert rows[BUCKET].unique().to_pylist() == [bucket]
    return {"numbers": rows["number"].to_pylist()}


@pytest.mark.parametrize("run_rows", [1, 4, 1_000])
def test_every_row_reaches_its_bucket_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_rows: int
) -> None:
    monkeypatch.setattr(exchanges, "_RUN_ROWS", run_rows)
    wanted = Exchange(
        stage="gather",
        items=[range(8), range(0), range(20, 31)],
        read=numbers,
        schema=SCHEMA,
        buckets=7,
        handle=kept,
    )
    engine = make_engine("local", None, Silent(), 0)
    with closing(Scratch(ScratchPlace(root=parse_location(tmp_path), is_writer=True))) as scratch:
        answers = run_exchange(wanted, engine, scratch)
    assert [answer[BUCKET] for answer in answers] == [0, 1, 2, 3, 4]
    assert Counter(n for answer in answers for n in answer["numbers"]) == Counter(
        [*range(8), *range(20, 31)]
    )


def test_a_bucket_begins_at_its_splitter() -> None:
    ids = pa.chunked_array([["", "a"], ["b", "bb", "c", "é"]])
    assert buckets_of(pa.array(["b", "c"]), ids).to_pylist() == [0, 0, 1, 1, 2, 2]
    assert buckets_of(pa.array([], pa.utf8()), ids).to_pylist() == [0] * 6
