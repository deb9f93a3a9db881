"""Differences in files are read like those in memory."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.pipeline import deltas
from omnigraph.pipeline.compare import DELTA, operation_codes, operation_counts
from omnigraph.pipeline.deltas import DeltaPart, FiledDelta, HeldDelta
from omnigraph.pipeline.scratch import Scratch, ScratchPlace
from omnigraph.storage.answers import write_answer
from omnigraph.storage.location import parse_location

IDS = st.text("abcz é\U0001f600", max_size=4)
CODES = st.sampled_from([0, 1, 2])
#: What happened to some ids, and where the files that hold it begin.
CASES = st.tuples(
    st.dictionaries(IDS, CODES, max_size=24), st.sets(st.integers(0, 24)), st.integers(1, 5)
)


def delta_table(happened: dict[str, int]) -> Any:
    """In the order of ids, as Arrow orders texts."""
    ids = sorted(happened)
    digest = b"0123456789abcdef"
    return pa.table(
        {
            "id": ids,
            "old": [None if happened[name] == 0 else digest for name in ids],
            "new": [None if happened[name] == 2 else digest[::-1] for name in ids],
            "old_row": [None if happened[name] == 0 else place for place, name in enumerate(ids)],
            "new_row": [None if happened[name] == 2 else place for place, name in enumerate(ids)],
            "src": [None for _ in ids],
            "dst": [None for _ in ids],
        },
        schema=DELTA,
    )


def filed(rows: Any, cuts: set[int], scratch: Scratch, batch_rows: int) -> FiledDelta:
    """The same rows in several files."""
    folder = scratch.folder(None)
    places = sorted({0, *(cut for cut in cuts if cut < rows.num_rows), rows.num_rows})
    parts = []
    for number, (begin, end) in enumerate(pairwise(places)):
        some = rows.slice(begin, end - begin).combine_chunks()
        name = f"part-{number}"
        write_answer(folder, name, DELTA, some.to_batches(max_chunksize=batch_rows))
        part = DeltaPart(
            name=name, bucket=number, counts=operation_counts(some), first_id=some["id"][0].as_py()
        )
        parts.append(part)
    return FiledDelta(folder=folder, scratch=scratch, parts=tuple(parts))


def read(delta: deltas.Delta, *stretch: int) -> list[dict[str, Any]]:
    return [row for rows in delta.batches(*stretch) for row in rows.to_pylist()]


@given(CASES)
def test_every_look_at_them_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, case: Any
) -> None:
    happened, cuts, batch_rows = case
    rows = delta_table(happened)
    root: Path = tmp_path_factory.mktemp("deltas")
    place = ScratchPlace(root=parse_location(root), is_writer=True)
    with pytest.MonkeyPatch.context() as patch, closing(Scratch(place)) as scratch:
        patch.setattr(deltas, "BATCH_ROWS", batch_rows)
        held, in_files = HeldDelta(rows), filed(rows, cuts, scratch, batch_rows)
        for codes in ((0, 1, 2), (1,), (0, 2), ()):
            one, other = held.only(codes), in_files.only(codes)
            assert (one.counts, len(one)) == (other.counts, len(other))
            assert read(one) == read(other)
            assert len(read(one)) == len(one)
            for begin in range(len(one) + 2):
                for end in (0, begin, begin + 1, begin + 3, len(one) + 1):
                    assert read(one, begin, end) == read(other, begin, end)
            for name in ["", "b", "zzzzz", *happened]:
                assert one.place_behind(name) == other.place_behind(name)
    assert list(root.iterdir()) == []


def test_codes_say_what_happened() -> None:
    assert operation_codes(delta_table({"a": 0, "b": 1, "c": 2})).tolist() == [0, 1, 2]
    assert operation_counts(delta_table({"a": 0, "b": 2, "c": 2})) == (1, 0, 2)
