"""A graph with branches is copied from disk to an object store, inside of it, and back: it reads the same."""

from __future__ import annotations

from pathlib import Path

import obstore
from obstore.store import LocalStore, from_url

from omnigraph.graph.graph import Graph
from support.portable_folders import add, build, everything

#: A fork of a fork: it reads files of everything below.
DEEPEST = ("draft-2/deep",)


def copy(source: str, target: str) -> None:
    """As a tool that knows nothing about graphs."""
    stores = [
        from_url(place) if place.startswith("s3://") else LocalStore(place, mkdir=True)
        for place in (source, target)
    ]
    for batch in obstore.list(stores[0]):
        for meta in batch:
            obstore.put(
                stores[1], meta["path"], bytes(obstore.get(stores[0], meta["path"]).bytes())
            )


def test_a_graph_travels_between_disk_and_object_store(s3_root: str, tmp_path: Path) -> None:
    disk, back = str(tmp_path / "g.omni"), str(tmp_path / "back.omni")
    build(disk, tmp_path / "outside.bin")
    with Graph.open(disk, read_only=True) as graph:
        expected = everything(graph, DEEPEST)
    copy(disk, s3_root)
    with Graph.open(s3_root, read_only=True) as graph:
        assert everything(graph, DEEPEST) == expected
    with Graph.open(s3_root) as graph:
        add(graph, "s3", "draft-2/deep")
        expected = everything(graph, DEEPEST)
    copy(s3_root, f"{s3_root}.copy")
    copy(s3_root, back)
    for place in (f"{s3_root}.copy", back):
        with Graph.open(place, read_only=True) as graph:
            assert everything(graph, DEEPEST) == expected
    with Graph.open(back) as graph:
        add(graph, "back", "draft-2/deep")
        graph.cleanup(keep=3, confirm=True)
        assert graph.doctor().is_healthy
