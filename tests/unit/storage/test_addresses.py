"""Addresses inside manifests: what counts of them, and how they are changed without touching anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import OutsideRootError, StorageError
from omnigraph.storage.datasets.opening import (
    dataset_of,
    open_dataset,
    rebased,
    with_bases,
    with_bases_in_file,
)
from support.subtests import each_case

D = "nodes/da89d00e1b71df59"


@each_case(
    ("uri", "dataset"),
    [
        (f"/g/{D}", f"/g/{D}"),
        (f"/g/{D}/tree/draft", f"/g/{D}"),
        (f"/tree/g/{D}", f"/tree/g/{D}"),
        (f"/tree/g/{D}/tree/a/b", f"/tree/g/{D}"),
        (f"/g/{D}/tree/{D}", f"/g/{D}"),
        (f"s3://b/g/{D}-7/tree/a", f"s3://b/g/{D}-7"),
    ],
)
def test_a_fork_belongs_to_its_dataset(uri: str, dataset: str) -> None:
    assert dataset_of(uri) == dataset


@each_case("old", ["/old", "s3://b/old", "file:///old", "/with space/ü", ""])
@each_case("end", ["", "/tree/draft", "/tree/a/b.2", f"/tree/{D}"])
def test_a_base_lies_in_the_dataset_whatever_root_was_recorded(old: str, end: str) -> None:
    for root in ("/new", "s3://bucket/new"):
        assert rebased(f"{old}/{D}{end}", f"{root}/{D}/tree/x") == f"{root}/{D}{end}"


@each_case(
    "recorded",
    [
        "",
        "/",
        "/etc",
        "/old/nodes/0000000000000000",
        f"/old/{D}-2",
        f"/old/{D}/data",
        f"/old/{D}/tree/",
        f"/old/{D}/tree/../../..",
        f"/old/{D}/tree/a/../b",
        f"/old/{D}/../../etc",
        f"/old/{D}/",
        f"/old/x{D}",
    ],
)
def test_another_address_is_refused_and_named(recorded: str) -> None:
    with pytest.raises(OutsideRootError) as failure:
        rebased(recorded, f"/new/{D}/tree/x")
    assert recorded in failure.value.message


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A fork of a dataset, by Lance alone."""
    root = tmp_path / "g" / D
    dataset = lance.write_dataset(pa.table({"id": ["a", "b"]}), str(root))
    dataset.create_branch("draft", 1)
    lance.write_dataset(pa.table({"id": ["c"]}), str(root / "tree" / "draft"), mode="append")
    return root / "tree" / "draft"


def test_a_manifest_is_changed_as_lance_reads_it(fork: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "g", moved)
    line = moved / D / "tree" / "draft"
    # In memory, and nothing is written.
    assert open_dataset(str(line)).to_table()["id"].to_pylist() == ["a", "b", "c"]
    for path in (line / "_versions").glob("*.manifest"):
        data = path.read_bytes()
        assert with_bases_in_file(data, lambda base: base) == data, "the layout is as it was"
        path.write_bytes(with_bases_in_file(data, lambda base: rebased(base, str(line))))
    for version in (1, 2):
        dataset = lance.dataset(str(line), version=version)
        assert [base.path for base in dataset.base_paths().values()] == [str(moved / D)]
        assert dataset.to_table()["id"].to_pylist()[:2] == ["a", "b"]


def test_a_commit_on_a_moved_fork_holds_the_new_address(fork: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(tmp_path / "g", tmp_path / "copy")
    shutil.rmtree(tmp_path / "g")
    line = str(moved / D / "tree" / "draft")
    open_dataset(line).delete("id = 'a'")
    assert [base.path for base in lance.dataset(line).base_paths().values()] == [str(moved / D)]
    assert lance.dataset(line).to_table()["id"].to_pylist() == ["b", "c"]


@given(st.data())
def test_damaged_bytes_are_refused_or_stay_as_they_are(data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200))
    for change in (with_bases, with_bases_in_file):
        try:
            assert change(raw, lambda base: base) == raw
        except StorageError:
            continue


def test_every_cut_of_a_manifest_is_refused(fork: Path) -> None:
    whole = next((fork / "_versions").glob("*.manifest")).read_bytes()
    for end in range(len(whole)):
        with pytest.raises(StorageError):
            with_bases_in_file(whole[:end], lambda base: base)
