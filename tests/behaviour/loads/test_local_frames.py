"""Frames of this process, of any library: all of them load the same rows, and what would lose something is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.sources import local_frames
from omnigraph.pipeline.sources.local_frames import StreamedRows
from support.graphs import refused, rows_of
from support.subtests import each_case, named_cases

SCHEMA = """
node Item {
    name: String @key  born: Date?  seen: DateTime?  price: F64?  count: I64?  tags: [String]?  vec: Vector(2)?
    done: Bool?  data: Blob?
}
"""
KEY = UUID(int=5)
SEEN = datetime(2024, 2, 29, 12, 30, 0, 250_000, tzinfo=UTC)
RECORDS: list[dict[str, Any]] = [
    {
        "name": "a",
        "born": date(1815, 12, 10),
        "seen": SEEN,
        "price": 1.5,
        "count": 2**53 + 1,
        "tags": ["x", "y"],
        "vec": [0.5, -1.0],
        "done": True,
        "data": b"\x00\xff",
    },
    {"name": str(KEY), "born": None, "seen": None, "price": None, "count": None, "tags": None, "vec": None}
    | {"done": None, "data": None},
]
TABLE = pa.Table.from_pylist(RECORDS)


class Name(Enum):
    A = "a"


class Stream:
    """Has the Arrow stream protocol and nothing else; it can be read once."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = iter(table.to_batches(max_chunksize=1))
        self._schema = table.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches).__arrow_c_stream__(requested_schema)


def objects() -> pd.DataFrame:
    """Columns of objects, as notebooks collect them."""
    rows = [
        {
            **RECORDS[0],
            "name": Name.A,
            "price": Decimal("1.5"),
            "vec": np.array([0.5, -1.0]),
            "seen": pd.Timestamp(SEEN),
            "tags": ("x", np.str_("y")),
        },
        {**RECORDS[1], "name": KEY, "born": pd.NaT, "price": float("nan"), "count": pd.NA},
    ]
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in rows[0]})


FRAMES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame(TABLE),
    "pandas": lambda: TABLE.to_pandas(integer_object_nulls=True),
    "pandas of objects": objects,
    "a record batch": lambda: TABLE.to_batches()[0],
    "a reader": TABLE.to_reader,
    "the stream protocol": lambda: Stream(TABLE),
    "a relation of duckdb": lambda: duckdb.connect().from_arrow(TABLE),
    "a list of dictionaries": lambda: [RECORDS[0], {"name": KEY}],
    "a dictionary of columns": lambda: {name: [row[name] for row in RECORDS] for name in TABLE.schema.names},
    "a dictionary of arrays": lambda: {name: TABLE[name] for name in TABLE.schema.names},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("frames") / "g.omni", SCHEMA) as graph:
        yield graph


def load(graph: Graph, frame: Any) -> None:
    graph.load(frames={"Item": frame}, mode="overwrite", engine="local")


@pytest.fixture(scope="module")
def expected(graph: Graph) -> list[dict[str, Any]]:
    load(graph, TABLE)
    return sorted(rows_of(graph, "node:Item"), key=lambda row: row["name"])


@named_cases("make", FRAMES)
def test_every_frame_loads_the_same_rows(graph: Graph, expected: Any, make: Callable[[], Any]) -> None:
    load(graph, make())
    assert sorted(rows_of(graph, "node:Item"), key=lambda row: row["name"]) == expected


def column(*values: Any) -> list[dict[str, Any]]:
    return [{"name": f"n{number}", "value": value} for number, value in enumerate(values)]


@each_case(
    ("frame", "text"),
    [
        (column(date(2024, 1, 1), datetime(2024, 1, 1, 5)), "`date` in row 1 and `datetime` in row 2: give them one"),
        (column("a", 1), "column `value` holds values of several types, `str` in row 1 and `int` in row 2"),
        (column(None, True, 1), "`bool` in row 2 and `int` in row 3"),
        (column(1.5, 2**60 + 1), "column `value` cannot be read: Integer value 1152921504606846977 is outside"),
        (column(2**70), "column `value` cannot be read"),
        (column([1, "a"]), "column `value`, items of the lists holds values of several types"),
        (column("a", {1, 2}), "column `value`, row 2: an object of type `set` is not a value"),
        (column(pd.Timestamp(1)), "row 1: 1970-01-01 00:00:00.000000001 is finer than milliseconds"),
        ([{"name": "a"}, ("b",)], "frame `Item`, record 2 is a tuple: give a list of dictionaries"),
        ({"name": ["a", "b"], "count": [1]}, "frame `Item` cannot be read"),
        ({"name": "ab"}, "column `name` is a str: give a list of values"),
        (pl.LazyFrame({"name": ["a"]}), "is a LazyFrame: give `frame.collect()`"),
        (pl.Series("name", ["a"]), "frame `Item` cannot be read"),
    ],
    ids=str,
)
def test_what_would_lose_something_is_refused_with_its_place(graph: Graph, frame: Any, text: str) -> None:
    with refused(graph, BadRequestError, text):
        load(graph, frame)


def test_a_large_stream_waits_in_a_file(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Any] = []
    make = local_frames.TemporaryFile
    monkeypatch.setattr(local_frames, "TemporaryFile", lambda **given: files.append(make(**given)) or files[-1])
    batches = pa.table({"n": pa.array(range(1000))}).to_batches(max_chunksize=100)
    rows = StreamedRows(batches, batches[0].schema, memory_bytes=2000)
    assert rows.nbytes == 8000
    for _ in range(2):
        found = list(rows.to_batches(max_chunksize=64))
        assert {batch.num_rows for batch in found} == {64, 36}
        assert [value for batch in found for value in batch["n"].to_pylist()] == list(range(1000))
    rows.close()
    assert [file.closed for file in files] == [True]


def test_a_stream_that_fails_leaves_the_graph_as_it_is(graph: Graph) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise OSError("the source went away")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with refused(graph, BadRequestError, "frame `Item` cannot be read: IOError: the source went away"):
        load(graph, reader)


def test_a_load_closes_what_it_streamed(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        closed: list[bool] = []
        original = StreamedRows.close
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamedRows, "close", lambda rows: (closed.append(True), original(rows)))
            load(graph, TABLE.to_reader())
            with pytest.raises(BadRequestError):
                load(graph, pa.table({"nam": ["a"]}).to_reader())
    assert closed == [True, True]
