"""`omnigraph blob get` and `stat`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.papers_with_blobs import SIZES, content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnigraph.graph.graph import Graph
    from support.cli_graphs import Outcome

    Command = Callable[..., Outcome]


def test_get_writes_raw_bytes_to_stdout(og: Command, library: Graph) -> None:
    seen = og("blob", "get", "node", "Paper", "large", "scan", "--store", library.uri)
    assert seen.code == 0
    assert seen.out.encode("latin-1") == content(SIZES["large"])
    assert seen.err == ""


def test_get_writes_a_range_to_a_file(og: Command, library: Graph, tmp_path: Path) -> None:
    out = tmp_path / "page.bin"
    out.write_bytes(b"old")
    words = ("edge", "cites", "packed", "page", "--offset", "4", "--length", "8")
    seen = og("blob", "get", *words, "--out", str(out), "--store", library.uri)
    assert (seen.code, seen.out) == (0, "")
    assert out.read_bytes() == content(12)[4:]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "words",
    [
        ("node", "Paper", "small", "scan", "--offset", "5"),
        ("node", "Paper", "small", "scan", "--length", "0"),
        ("node", "Paper", "small", "scan", "--offset", str(2**64)),
        ("node", "Paper", "none", "scan"),
        ("node", "Paper", "small", "title"),
    ],
)
def test_a_get_that_fails_leaves_the_file_untouched(
    og: Command, library: Graph, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "kept"
    out.write_bytes(b"kept")
    seen = og("blob", "get", *words, "--out", str(out), "--store", library.uri)
    assert (seen.code, seen.out) == (1, "")
    assert seen.err.strip()
    assert out.read_bytes() == b"kept"
    assert list(tmp_path.iterdir()) == [out]


def test_get_into_a_folder_is_refused(og: Command, library: Graph, tmp_path: Path) -> None:
    words = ("node", "Paper", "small", "scan", "--store", library.uri)
    assert "is no file" in og("blob", "get", *words, "--out", str(tmp_path)).err
    missing = tmp_path / "no" / "folder"
    assert "cannot be written" in og("blob", "get", *words, "--out", str(missing)).err


def test_only_nodes_and_edges_have_cells(og: Command, library: Graph) -> None:
    words = ("thing", "Paper", "small", "scan", "--store", library.uri)
    assert og("blob", "get", *words).code == 2


def test_stat_shows_what_a_blob_is(og: Command, library: Graph) -> None:
    words = ("blob", "stat", "node", "Paper", "packed", "scan", "--store", library.uri)
    info = library.stat_blob("node:Paper", "packed", "scan")
    assert json.loads(og(*words, "--json").out) == info.to_json()
    text = og(*words).out
    assert "managed" in text
    assert "100,000 bytes" in text
    assert str(info.etag) in text
    at = ("--snapshot", info.snapshot_id)
    assert json.loads(og(*words, *at, "--json").out)["target"]["snapshot"] == info.snapshot_id
    assert og(*words, *at, "--branch", "main").code == 2
