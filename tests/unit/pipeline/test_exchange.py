"""Rows reach their bucket, whatever read them."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime
from itertools import combinations, pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_type
from omnigraph.core.budget import Budget, bounded, finishing
from omnigraph.core.types import EnumType, ListType, Scalar, ScalarType, VectorType
from omnigraph.errors import QueryCancelledError, QueryTimeoutError
from omnigraph.pipeline import deltas, exchange
from omnigraph.pipeline.compare import DELTA, DIGEST, operation_codes, operation_counts, row_digests
from omnigraph.pipeline.deltas import DeltaPart, FiledDelta, HeldDelta
from omnigraph.pipeline.exchange import (
    BUCKET,
    Exchange,
    Scratch,
    ScratchPlace,
    buckets_of,
    hash_buckets,
    run_exchange,
    text_hashes,
)
from omnigraph.pipeline.workers import LocalWorkers, Silent, advance, failure_message, raise_failure
from omnigraph.spark.tasks import RowTally
from omnigraph.storage.answers import write_answer
from omnigraph.storage.location import parse_location
from support.examples import examples
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
def test_every_row_reaches_its_bucket_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_rows: int) -> None:
    monkeypatch.setattr(exchange, "RUN_ROWS", run_rows)
    wanted = Exchange(
        stage="gather", items=[range(8), range(0), range(20, 31)], read=numbers, schema=SCHEMA, buckets=7, handle=kept
    )
    with answer_folder(parse_location(tmp_path)) as folder:
        answers = run_exchange(wanted, LocalWorkers(Silent()), folder)
    assert [answer[BUCKET] for answer in answers] == [0, 1, 2, 3, 4]
    assert Counter(n for answer in answers for n in answer["numbers"]) == Counter([*range(8), *range(20, 31)])


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


# ---- Differences in files are read like those in memory


IDS = st.text("abcz é\U0001f600", max_size=4)
CODES = st.sampled_from([0, 1, 2])
#: What happened to some ids, and where the files that hold it begin.
CASES = st.tuples(st.dictionaries(IDS, CODES, max_size=24), st.sets(st.integers(0, 24)), st.integers(1, 5))


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
        part = DeltaPart(name=name, bucket=number, counts=operation_counts(some), first_id=some["id"][0].as_py())
        parts.append(part)
    return FiledDelta(folder=folder, scratch=scratch, parts=tuple(parts))


def read(delta: deltas.Delta, *stretch: int) -> list[dict[str, Any]]:
    return [row for rows in delta.batches(*stretch) for row in rows.to_pylist()]


@given(CASES)
def test_every_look_at_them_gives_the_same(tmp_path_factory: pytest.TempPathFactory, case: Any) -> None:
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


# ---- Tasks of this process: what they answer, what they show, and how they stop


class Figures:
    """Progress that remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int]] = []

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[Figures]:
        yield self

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        self.shown.append((tasks, rows))

    def tell(self, detail: str) -> None: ...

    def note(self, fact: str) -> None: ...


def counted(item: int) -> dict[str, Any]:
    advance(3)
    advance(item)
    return {"rows": 3 + item}


def test_rows_are_shown_while_a_task_runs() -> None:
    figures = Figures()
    LocalWorkers(figures).run("work", counted, [4, 5])
    assert figures.shown == [(0, 3), (0, 7), (1, 7), (1, 10), (1, 15), (2, 15)]
    # Nothing listens beside a stage.
    advance(1)
    assert figures.shown[-1] == (2, 15)


def test_batches_show_their_rows_too() -> None:
    figures = Figures()

    def task(_part: int, batches: Any) -> Any:
        for batch in batches:
            advance(batch.num_rows)
        return [{"rows": 200_000}]

    LocalWorkers(figures).run_batches("work", task, pa.table({"n": range(200_000)}))
    assert figures.shown == [(0, 131_072), (0, 200_000), (1, 200_000)]


def test_tasks_of_other_processes_count_in_files(tmp_path: Path) -> None:
    tally = RowTally(str(tmp_path))
    assert tally.rows() == 0
    for task, rows in ((0, 5), (1, 7), (1, 8)):
        with tally.counting(task):
            advance(rows)
    assert tally.rows() == 5 + 8, "a task that ran again counts once"


def test_rows_that_cannot_be_counted_do_not_fail_a_task(tmp_path: Path) -> None:
    tally = RowTally(str(tmp_path / "gone"))
    with tally.counting(0):
        advance(5)
    assert tally.rows() == 0
    (tmp_path / "1").mkdir()  # cannot be opened as a file, whoever runs the test
    tally = RowTally(str(tmp_path))
    with tally.counting(1):
        advance(5)
    with tally.counting(2):
        advance(7)
    assert tally.rows() == 7


def test_no_task_begins_after_the_work_was_stopped() -> None:
    stop = Event()
    begun: list[int] = []

    def task(item: int) -> dict[str, Any]:
        begun.append(item)
        if item == 1:
            stop.set()
        return {"rows": 1}

    workers = LocalWorkers(Silent())
    with bounded(Budget(cancel=stop), "Load"), pytest.raises(QueryCancelledError):
        workers.run("work", task, range(4))
    assert begun == [0, 1]
    # Where failures are kept, what other tasks wrote is known from their answers.
    stop.clear()
    with bounded(Budget(cancel=stop), "Load"):
        answers = workers.run("work", task, range(4), keep_failures=True)
    assert answers[:2] == [{"rows": 1}] * 2
    for answer in answers[2:]:
        with pytest.raises(QueryCancelledError):
            raise_failure(answer)


def test_batches_stop_on_the_way() -> None:
    stop = Event()
    seen: list[int] = []

    def task(_part: int, batches: Any) -> Any:
        for batch in batches:
            seen.append(batch.num_rows)
            stop.set()
        return [{}]

    rows = pa.table({"n": range(300_000)})
    with bounded(Budget(cancel=stop), "Load"), pytest.raises(QueryCancelledError):
        LocalWorkers(Silent()).run_batches("work", task, rows)
    assert len(seen) == 1


@pytest.mark.parametrize("error", [QueryTimeoutError(2.5, "Merge"), QueryCancelledError("Merge")], ids=lambda e: e.kind)
def test_what_stopped_a_task_travels_as_a_message(error: QueryTimeoutError | QueryCancelledError) -> None:
    with pytest.raises(type(error)) as caught:
        raise_failure(failure_message(error))
    assert caught.value.details() == error.details()


def test_what_has_to_be_finished_is() -> None:
    stop = Event()
    workers = LocalWorkers(Silent())
    with bounded(Budget(cancel=stop), "Load"):
        stop.set()
        with finishing():
            assert workers.run("work", lambda item: {"item": item}, [1]) == [{"item": 1}]
        with pytest.raises(QueryCancelledError):
            workers.run("work", lambda item: {"item": item}, [1])


# ---- Digests are equal exactly when all typed values of two rows are


TEXT, NUMBER = pa.utf8(), pa.int64()
TEXTS = pa.list_(TEXT)
#: Arrow stores every NaN as it comes; these two have different bits.
QUIET, OTHER = struct.unpack("<dd", struct.pack("<QQ", 0x7FF8 << 48, 0xFFF8 << 48 | 1))


def batch(**columns: tuple[pa.DataType, list[Any]]) -> pa.RecordBatch:
    arrays = {name: pa.array(values, type_) for name, (type_, values) in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def digests(type_: pa.DataType, values: list[Any]) -> list[bytes]:
    found = row_digests(batch(x=(type_, values)), ["x"])
    assert found.type == DIGEST
    return found.to_pylist()


def assert_all_differ(found: list[bytes]) -> None:
    for (one, first), (other, second) in combinations(enumerate(found), 2):
        assert first != second, f"rows {one} and {other}"


# ---- what differs

DIFFERENT = [
    pytest.param(TEXT, [None, "", " ", "a", "A", "\u00e1", "a\u0301", "\0", "\0\0"], id="texts"),
    pytest.param(pa.large_binary(), [None, b"", b"\0", b"\0\0", b"\1"], id="bytes"),
    pytest.param(
        TEXTS,
        [None, [], [None], [""], ["", ""], ["a"], ["a", "b"], ["b", "a"], ["ab"], ["a", None]],
        id="lists of texts",
    ),
    pytest.param(TEXTS, [["a,b"], ["a", "b"], ["a,", "b"], ['a","b']], id="joined texts"),
    pytest.param(
        pa.list_(NUMBER), [None, [], [0], [None], [0, 0], [0, None], [None, 0], [1, 2], [2, 1]], id="lists of numbers"
    ),
    pytest.param(pa.list_(pa.float32(), 2), [None, [0, 0], [0, None], [None, 0], [0, 1], [1, 0]], id="vectors"),
    pytest.param(pa.bool_(), [None, False, True], id="truth"),
    pytest.param(pa.float64(), [None, 0.0, math.nan, math.inf, -math.inf, 5e-324], id="floats"),
    pytest.param(pa.uint64(), [None, 0, 1, 2**64 - 1], id="large numbers"),
    pytest.param(NUMBER, [None, 0, -1, 2**63 - 1, -(2**63)], id="signed numbers"),
    pytest.param(pa.date32(), [None, date(1970, 1, 1), date(1969, 12, 31)], id="days"),
    pytest.param(pa.date64(), [None, datetime(1970, 1, 1), datetime(1970, 1, 2), datetime(1969, 12, 31)], id="moments"),
]


@each_case(("type_", "values"), DIFFERENT)
def test_different_values_have_different_digests(type_: pa.DataType, values: list[Any]) -> None:
    assert_all_differ(digests(type_, values))


@each_case(("type_", "values"), DIFFERENT)
def test_equal_values_have_equal_digests(type_: pa.DataType, values: list[Any]) -> None:
    """Wherever they stand, and whatever stands beside them."""
    alone = [digests(type_, [value])[0] for value in values]
    assert digests(type_, values) == alone
    assert digests(type_, values[::-1]) == alone[::-1]


def test_a_moment_is_compared_to_the_millisecond() -> None:
    moments = pa.array([0, 1, 86_400_000], pa.int64()).cast(pa.timestamp("ms")).cast(pa.int64())
    column = pa.Array.from_buffers(pa.date64(), 3, moments.buffers())
    found = row_digests(pa.RecordBatch.from_arrays([column], names=["x"]), ["x"])
    assert_all_differ(found.to_pylist())


@pytest.mark.parametrize("type_", [pa.float64(), pa.list_(pa.float64()), pa.list_(pa.float64(), 1)])
def test_a_nan_equals_every_nan(type_: pa.DataType) -> None:
    assert struct.pack("<d", QUIET) != struct.pack("<d", OTHER)
    values = [QUIET, OTHER] if type_ == pa.float64() else [[QUIET], [OTHER]]
    first, second = digests(type_, values)
    assert first == second


# ---- columns


def test_values_do_not_move_between_columns() -> None:
    rows = batch(x=(TEXT, ["ab", "a", "", None]), y=(TEXT, ["", "b", "ab", "ab"]))
    assert_all_differ(row_digests(rows, ["x", "y"]).to_pylist())


def test_the_order_in_which_columns_are_stored_is_irrelevant() -> None:
    one = batch(x=(TEXT, ["a"]), y=(NUMBER, [1]))
    other = batch(y=(NUMBER, [1]), x=(TEXT, ["a"]))
    assert row_digests(one, ["x", "y"]) == row_digests(other, ["x", "y"])


def test_columns_that_nobody_asks_for_do_not_count() -> None:
    one = batch(x=(TEXT, ["a"]), _rowid=(NUMBER, [1]))
    other = batch(x=(TEXT, ["a"]), _rowid=(NUMBER, [2]))
    assert row_digests(one, ["x"]) == row_digests(other, ["x"])
    assert row_digests(one, ["x", "_rowid"]) != row_digests(other, ["x", "_rowid"])


@each_case("type_", [TEXT, NUMBER, TEXTS, pa.list_(pa.float32(), 2), pa.bool_()])
def test_a_missing_column_is_null(type_: pa.DataType) -> None:
    with_nulls = batch(x=(TEXT, ["a", "b"]), y=(type_, [None, None]), z=(NUMBER, [1, 2]))
    without = batch(x=(TEXT, ["a", "b"]), z=(NUMBER, [1, 2]))
    names = ["x", "y", "z"]
    assert row_digests(with_nulls, names) == row_digests(without, names)


def test_no_rows_have_no_digests() -> None:
    for type_ in (TEXT, NUMBER, TEXTS, pa.list_(pa.float32(), 2), pa.bool_()):
        assert digests(type_, []) == []


# ---- every stored type

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(max_size=3),
    Scalar.BLOB: st.binary(max_size=3),
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-(2**63), 2**63 - 1),
    Scalar.U32: st.integers(0, 2**32 - 1),
    Scalar.U64: st.integers(0, 2**64 - 1),
    Scalar.F32: st.floats(width=32),
    Scalar.F64: st.floats(),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: st.dates(date(1700, 1, 1), date(2200, 1, 1)).map(
        lambda day: datetime(day.year, day.month, day.day)
    ),
}
SCALARS = [ScalarType(scalar) for scalar in Scalar]
TYPES: list[Any] = [
    *SCALARS,
    EnumType(("draft", "final")),
    *(ListType(scalar) for scalar in Scalar if scalar is not Scalar.BLOB),
    VectorType(3),
]


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    match type_:
        case ScalarType(scalar):
            found: st.SearchStrategy[Any] = VALUES[scalar]
        case EnumType(names):
            found = st.sampled_from(names)
        case ListType(item):
            found = st.lists(st.none() | VALUES[item], max_size=3)
        case VectorType(dimension):
            items = st.none() | VALUES[Scalar.F32]
            found = st.lists(items, min_size=dimension, max_size=dimension)
    return st.none() | found


def exact(value: Any) -> Any:
    """A value that equals another one exactly when a user could not tell them apart."""
    if isinstance(value, list):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


@pytest.mark.parametrize("type_", TYPES, ids=str)
@examples(10, thorough=25)
@given(data=st.data())
def test_digests_are_equal_exactly_when_the_values_are(type_: Any, data: st.DataObject) -> None:
    # Few values, so that equal rows are not rare.
    pool = data.draw(st.lists(values_of(type_), min_size=1, max_size=4))
    values = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=8))
    stored = pa.array(values, arrow_type(type_))
    found = row_digests(pa.RecordBatch.from_arrays([stored], names=["x"]), ["x"]).to_pylist()
    for one, other in combinations(range(len(values)), 2):
        is_equal = exact(values[one]) == exact(values[other])
        assert (found[one] == found[other]) is is_equal, (values[one], values[other])


@pytest.mark.parametrize("type_", TYPES, ids=str)
@examples(10, thorough=25)
@given(data=st.data())
def test_a_slice_has_the_digests_of_its_rows(type_: Any, data: st.DataObject) -> None:
    """Arrow hands out slices that share buffers with rows before and behind them."""
    values = data.draw(st.lists(values_of(type_), min_size=1, max_size=6))
    stored = pa.array(values, arrow_type(type_))
    rows = pa.RecordBatch.from_arrays([stored], names=["x"])
    begin = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - begin))
    expected = row_digests(rows, ["x"]).to_pylist()[begin : begin + length]
    assert row_digests(rows.slice(begin, length), ["x"]).to_pylist() == expected
    chunked = pa.Table.from_batches([rows.slice(begin, length), rows.slice(0, begin)])
    combined = expected + row_digests(rows, ["x"]).to_pylist()[:begin]
    assert row_digests(chunked, ["x"]).to_pylist() == combined


def test_every_stored_type_is_tested() -> None:
    assert set(VALUES) == set(Scalar)
