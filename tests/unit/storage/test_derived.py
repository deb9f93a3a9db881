"""Arrays that can be built again: kept whole or not at all, and never in the way."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph.storage.derived import DERIVED_FOLDER, DerivedArrays
from omnigraph.storage.location import parse_location

ARRAYS = {
    "counts": np.array([3, 4]),
    "out-targets": np.array([1, 2, 2**32 - 1], np.uint32),
    "none": np.zeros(0, np.int64),
}


@pytest.fixture
def derived(tmp_path: Path) -> DerivedArrays:
    return DerivedArrays(parse_location(tmp_path))


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "omnigraph.storage.derived")


def contents(folder: Path) -> list[str]:
    """Everything below a folder, hidden files included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_equal(found: dict[str, Any] | None, expected: dict[str, Any] = ARRAYS) -> None:
    assert found is not None
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].tolist() == array.tolist()


def test_what_was_kept_is_mapped_by_another_process(tmp_path: Path, derived: DerivedArrays) -> None:
    assert derived.save("edges", "one", ARRAYS)
    other = DerivedArrays(parse_location(tmp_path))
    assert other.has("edges", "one")
    found = other.load("edges", "one")
    assert_equal(found)
    assert found is not None
    assert all(isinstance(array, np.memmap) for array in found.values())
    with pytest.raises(ValueError, match="read-only"):
        found["counts"][0] = 7
    assert contents(tmp_path / DERIVED_FOLDER) == [
        "edges",
        "edges/one",
        *sorted(["edges/one/contents.json", *(f"edges/one/{name}.npy" for name in ARRAYS)]),
    ]


def test_what_is_not_there_is_none_and_nobody_is_told(derived: DerivedArrays, caplog: pytest.LogCaptureFixture) -> None:
    assert derived.load("edges", "one") is None
    derived.save("edges", "one", ARRAYS)
    assert derived.load("edges", "two") is None
    assert derived.load("nodes", "one") is None
    assert not derived.has("edges", "two")
    assert not derived.has("nodes", "one")
    assert caplog.records == []


def test_a_newer_set_drops_the_older_ones_of_its_group(tmp_path: Path, derived: DerivedArrays) -> None:
    derived.save("edges", "one", ARRAYS)
    derived.save("other", "one", ARRAYS)
    # Who has mapped a set keeps it.
    mapped = derived.load("edges", "one")
    newer = {"counts": np.array([9])}
    assert derived.save("edges", "two", newer)
    assert not derived.has("edges", "one")
    assert_equal(derived.load("edges", "two"), newer)
    assert_equal(derived.load("other", "one"))
    assert_equal(mapped)


def test_a_set_whose_removal_is_cut_short_is_gone_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, derived: DerivedArrays
) -> None:
    """What is left of it lacks arrays, and must not be taken for a set that never had them."""
    derived.save("edges", "one", ARRAYS)

    def killed(folder: Path, **_: Any) -> None:
        next(file for file in folder.iterdir() if file.is_file()).unlink()

    monkeypatch.setattr(shutil, "rmtree", killed)
    derived.save("edges", "two", ARRAYS)
    assert not derived.has("edges", "one")
    assert derived.load("edges", "one") is None
    assert_equal(derived.load("edges", "two"))


def test_the_draft_of_another_process_is_left_alone(tmp_path: Path, derived: DerivedArrays) -> None:
    draft = tmp_path / DERIVED_FOLDER / "edges" / ".draft"
    draft.mkdir(parents=True)
    derived.save("edges", "one", ARRAYS)
    assert draft.is_dir()
    assert_equal(derived.load("edges", "one"))


def test_the_first_of_two_equal_sets_stays(tmp_path: Path, derived: DerivedArrays) -> None:
    derived.save("edges", "one", ARRAYS)
    before = contents(tmp_path)
    assert not derived.save("edges", "one", {"counts": np.array([0])})
    assert_equal(derived.load("edges", "one"))
    assert contents(tmp_path) == before


def header(text: bytes) -> bytes:
    """An array file with this header and nothing behind it."""
    padded = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"nothing of the kind",
        lambda good: good[:5],
        lambda good: good[:60],
        lambda good: good[:-1],
        lambda _: header(b"{'descr': '<i8', 'fortran_order': False, 'shape': (5,"),
        lambda _: header(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"),
        lambda _: header(b"{'descr': '<i8', 'shape': (1,), }"),
        lambda good: good.replace(b"'<i8'", b"',i8'"),
    ],
    ids=[
        *("empty", "text", "cut in the magic", "cut in the header", "cut in the data", "open header", "objects"),
        *("half a header", "no type"),
    ],
)
def test_a_damaged_file_is_as_good_as_none_and_somebody_is_told(
    tmp_path: Path, derived: DerivedArrays, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    derived.save("edges", "one", ARRAYS)
    file = tmp_path / DERIVED_FOLDER / "edges" / "one" / "counts.npy"
    file.write_bytes(damage(file.read_bytes()))
    assert derived.load("edges", "one") is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "built again" in record.getMessage()


def test_a_file_where_the_set_should_be_is_as_good_as_none(
    tmp_path: Path, derived: DerivedArrays, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / DERIVED_FOLDER / "edges"
    folder.mkdir(parents=True)
    (folder / "one").write_text("in the way")
    assert derived.load("edges", "one") is None
    assert not derived.has("edges", "one")
    assert len(caplog.records) == 1


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_fails(
    tmp_path: Path, derived: DerivedArrays, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in the place of the folder refuses every write, whoever runs the test."""
    (tmp_path / DERIVED_FOLDER).write_text("in the way")
    assert not derived.save("edges", "one", ARRAYS)
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "not kept" in caplog.text
    assert not derived.has("edges", "one")
    assert derived.load("edges", "one") is None
    assert contents(tmp_path) == [DERIVED_FOLDER]


def test_a_graph_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    derived = DerivedArrays(parse_location(gone))
    assert not derived.save("edges", "one", ARRAYS)
    assert not gone.exists()


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_set_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, derived: DerivedArrays, fails_at: int
) -> None:
    derived.save("edges", "old", ARRAYS)
    before = contents(tmp_path)
    save, calls = np.save, []

    def failing(file: Any, array: Any, **options: Any) -> None:
        calls.append(file)
        if len(calls) > fails_at:
            file.write_bytes(b"half an array")
            raise OSError(errno.ENOSPC, "no space left")
        save(file, array, **options)

    monkeypatch.setattr(np, "save", failing)
    assert not derived.save("edges", "new", ARRAYS)
    assert len(calls) == fails_at + 1
    assert contents(tmp_path) == before, "neither a draft nor a part of it"
    assert_equal(derived.load("edges", "old"))


def test_a_set_does_not_appear_before_its_last_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, derived: DerivedArrays
) -> None:
    save, seen = np.save, []

    def watched(file: Any, array: Any, **options: Any) -> None:
        seen.append((derived.has("edges", "one"), derived.load("edges", "one")))
        save(file, array, **options)

    monkeypatch.setattr(np, "save", watched)
    assert derived.save("edges", "one", ARRAYS)
    assert seen == [(False, None)] * len(ARRAYS)
    assert derived.has("edges", "one")


@pytest.mark.parametrize("where", ["s3://bucket/graph", None], ids=["object store", "read only"])
def test_where_arrays_are_not_kept_every_question_is_answered_with_no(tmp_path: Path, where: str | None) -> None:
    location = parse_location(where or tmp_path)
    derived = DerivedArrays(location, writable=where is not None)
    assert not derived.save("edges", "one", ARRAYS)
    assert not derived.has("edges", "one")
    assert derived.load("edges", "one") is None
    assert contents(tmp_path) == []


def test_a_reader_uses_what_is_kept_and_leaves_what_is_damaged(tmp_path: Path, derived: DerivedArrays) -> None:
    derived.save("edges", "one", ARRAYS)
    reader = DerivedArrays(parse_location(tmp_path), writable=False)
    assert_equal(reader.load("edges", "one"))
    (tmp_path / DERIVED_FOLDER / "edges" / "one" / "counts.npy").write_bytes(b"")
    before = contents(tmp_path)
    assert reader.load("edges", "one") is None
    assert contents(tmp_path) == before
