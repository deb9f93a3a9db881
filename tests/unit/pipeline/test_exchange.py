"""Rows reach their bucket, whatever read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.pipeline import exchange
from omnigraph.pipeline.exchange import (
    BUCKET,
    Exchange,
    buckets_of,
    hash_buckets,
    run_exchange,
    text_hashes,
)
from omnigraph.pipeline.workers import LocalWorkers, Silent
from omnigraph.storage.location import parse_location
from support.subtests import each_case
from support.tables import answer_folder

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
    monkeypatch.setattr(exchange, "RUN_ROWS", run_rows)
    wanted = Exchange(
        stage="gather",
        items=[range(8), range(0), range(20, 31)],
        read=numbers,
        schema=SCHEMA,
        buckets=7,
        handle=kept,
    )
    with answer_folder(parse_location(tmp_path)) as folder:
        answers = run_exchange(wanted, LocalWorkers(Silent()), folder)
    assert [answer[BUCKET] for answer in answers] == [0, 1, 2, 3, 4]
    assert Counter(n for answer in answers for n in answer["numbers"]) == Counter(
        [*range(8), *range(20, 31)]
    )


def test_a_bucket_begins_at_its_splitter() -> None:
    ids = pa.chunked_array([["", "a"], ["b", "bb", "c", "é"]])
    assert buckets_of(pa.array(["b", "c"]), ids).to_pylist() == [0, 0, 1, 1, 2, 2]
    assert buckets_of(pa.array([], pa.utf8()), ids).to_pylist() == [0] * 6


def test_equal_texts_have_equal_hashes_wherever_they_lie() -> None:
    texts = [
        "",
        "a",
        "ab",
        "é",
        "x" * 7,
        "x" * 8,
        "x" * 9,
        "x" * 300,
        "x" * 299 + "y",
        "x" * 270 + "y" + "x" * 29,
        "x" * 5_000,
        "x" * 4_999 + "y",
        "\0",
        "\0\0",
    ]
    together = text_hashes(pa.array(texts))
    assert len(set(together.tolist())) == len(texts)
    sliced = text_hashes(pa.array(["before", *texts, "behind"]).slice(1, len(texts)))
    alone = [text_hashes(pa.array([text]))[0] for text in texts]
    assert together.tolist() == sliced.tolist() == alone
    assert text_hashes(pa.array([], pa.utf8())).tolist() == []


@each_case("form", ["n{}", "{}-of-the-same-end", "https://example.org/{:09}/", "{:x}"])
def test_hashes_fill_all_buckets_alike(form: str) -> None:
    texts = pa.array([form.format(number) for number in range(20_000)])
    counts = Counter(hash_buckets(text_hashes(texts), 16).to_pylist())
    assert len(counts) == 16
    assert max(counts.values()) < 2 * min(counts.values())
