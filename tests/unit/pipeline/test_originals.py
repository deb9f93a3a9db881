"""Records are copied as they stand: lines of every part and length, and records of CSV as Arrow tells them apart."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from omnigraph.pipeline.sources import originals
from omnigraph.pipeline.sources.originals import copied_lines, csv_records

NUMBERS = st.sets(st.integers(1, 8))
TEXTS = st.lists(st.sampled_from([b"", b"a", b"bb\r", b"\xff", "é".encode(), b"x" * 40]), max_size=8)


@given(
    lines=TEXTS,
    numbers=st.sets(st.integers(1, 8)),
    ends=st.booleans(),
    begin=st.integers(0, 60),
    block=st.integers(1, 50),
)
def test_lines_of_a_part_are_copied_as_they_stand(
    lines: list[bytes], numbers: set[int], ends: bool, begin: int, block: int
) -> None:
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    begin = min(begin, len(text))
    stream = io.BytesIO(text)
    stream.seek(max(begin - 1, 0))
    # What begins in the part: behind the first line break that is not before it.
    behind = text[begin:] if not begin or text[begin - 1 : begin] == b"\n" else text[begin:].partition(b"\n")[2]
    expected = behind.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    wanted = np.array(sorted(number for number in numbers if number <= len(expected)), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(originals, "_BLOCK_BYTES", block)
        copied = b"".join(copied_lines(stream, begin, wanted))
    assert copied == b"".join(expected[number - 1] + b"\n" for number in wanted)


def as_arrow_reads(text: bytes) -> tuple[list[list[str | None]], list[int]]:
    """The values of good records, and the numbers of bad ones."""
    refused: list[int] = []

    def refuse(row: csv.InvalidRow) -> str:
        refused.append(row.number or 0)
        return "skip"

    names = ["a", "b"]
    reader = csv.open_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(column_names=names, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.utf8()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    rows: list[Any] = [list(row.values()) for batch in reader for row in batch.to_pylist()]
    return rows, refused


PIECES = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"bc", b'"a\nb"', b'"x""y"']), max_size=14
)


@given(pieces=PIECES, block=st.integers(1, 12))
def test_records_of_csv_are_those_of_arrow(pieces: list[bytes], block: int) -> None:
    """Each record by itself has the same values; no record is lost, and none is made."""
    text = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(originals, "_BLOCK_BYTES", block)
        records = list(csv_records(io.BytesIO(text), b","))
    try:
        rows, refused = as_arrow_reads(b"1,2\n" + text)
    except pa.ArrowInvalid:
        return
    assert len(records) == len(rows) - 1 + len(refused)
    good = [record for number, record in enumerate(records, start=2) if number not in refused]
    assert [as_arrow_reads(b"1,2\n" + record + b"\n")[0][1] for record in good] == rows[1:]
