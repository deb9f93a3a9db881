"""A link that is put into the path of an external blob while it is read leads nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import ExternalBlobPolicyError, ExternalBlobSourceError
from omnigraph.graph.graph import Graph
from omnigraph.storage import external
from omnigraph.storage.external import fetch, normal_form, policy_of, probe
from support.papers_with_blobs import SCHEMA, add_paper


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A base with a file, and a secret of the same name outside of it."""
    for name, data in (("open", b"scan"), ("shut", b"secret")):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / "file").write_bytes(data)
    return tmp_path


def swap_folder(world: Path) -> None:
    (world / "open" / "folder").rename(world / "was")
    (world / "open" / "folder").symlink_to(world / "shut" / "folder")


def swap_file(world: Path) -> None:
    (world / "open" / "folder" / "file").unlink()
    (world / "open" / "folder" / "file").symlink_to(world / "shut" / "folder" / "file")


SWAPS = pytest.mark.parametrize("swap", [swap_folder, swap_file])


@SWAPS
@pytest.mark.parametrize("read", [probe, lambda uri: fetch(uri, 100)], ids=["probe", "fetch"])
def test_a_link_after_the_check_is_refused(
    world: Path, swap: Callable[[Path], None], read: Callable[..., object]
) -> None:
    policy = policy_of([(world / "open").as_uri()])
    allowed = policy.check((world / "open" / "folder" / "file").as_uri())
    swap(world)
    with pytest.raises(ExternalBlobPolicyError, match="none of the allowed bases"):
        read(allowed)


@SWAPS
def test_a_link_between_the_look_and_the_opening_is_not_followed(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of([(world / "open").as_uri()])
    allowed = policy.check((world / "open" / "folder" / "file").as_uri())
    look = external.real_parts

    def look_then_swap(uri: object) -> tuple[str, ...]:
        parts = look(uri)
        monkeypatch.setattr(external, "real_parts", look)
        swap(world)
        return parts

    monkeypatch.setattr(external, "real_parts", look_then_swap)
    with pytest.raises(ExternalBlobSourceError, match="changed while it was opened"):
        fetch(allowed, 100)


@SWAPS
def test_a_link_after_the_opening_changes_nothing(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = policy_of([(world / "open").as_uri()]).check(
        (world / "open" / "folder" / "file").as_uri()
    )
    status = os.fstat

    def swap_then_status(descriptor: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", status)
        swap(world)
        return status(descriptor)

    monkeypatch.setattr(os, "fstat", swap_then_status)
    assert fetch(allowed, 100) == b"scan"


def test_an_address_that_no_policy_allowed_is_not_opened(world: Path) -> None:
    with pytest.raises(ExternalBlobPolicyError):
        fetch(normal_form((world / "open" / "folder" / "file").as_uri()), 100)


def test_links_that_stay_below_the_base_are_followed(world: Path) -> None:
    (world / "open" / "alias").symlink_to(world / "open" / "folder")
    (world / "base").symlink_to(world / "open")
    for base in ("open", "base"):
        policy = policy_of([(world / base).as_uri()])
        assert fetch(policy.check((world / "base" / "alias" / "file").as_uri()), 100) == b"scan"


def test_a_folder_or_a_missing_file_is_told(world: Path) -> None:
    policy = policy_of([(world / "open").as_uri()])
    for name, message in (
        ("folder", "is not a file"),
        ("folder/none", "No such file"),
        ("folder/file/more", "Not a directory"),
    ):
        with pytest.raises(ExternalBlobSourceError, match=message):
            fetch(policy.check((world / "open" / name).as_uri()), 100)


@SWAPS
def test_a_mutation_takes_nothing_from_behind_the_link(
    world: Path, swap: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = (world / "open").as_uri()
    with Graph.init(world / "g.omni", SCHEMA, external_blobs=[base]) as graph:
        opened = external._open_parts

        def swap_then_open(*args: object) -> int:
            monkeypatch.setattr(external, "_open_parts", opened)
            swap(world)
            return opened(*args)

        monkeypatch.setattr(external, "_open_parts", swap_then_open)
        with pytest.raises(ExternalBlobSourceError):
            add_paper(graph, "10.1", (world / "open" / "folder" / "file").as_uri())
        assert (
            graph.query("query q() { match { $p: Paper } return { $p.doi as d } }").to_pylist()
            == []
        )
