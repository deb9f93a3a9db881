"""Checksums and `verify` of a graph in an object store."""

from __future__ import annotations

import obstore
from obstore.store import from_url

from omnigraph import Graph
from omnigraph.maintenance.verify import FileStatus

SCHEMA = "node A { k: String @key  n: I64? @index }"


def test_objects_are_recorded_and_compared(s3_root: str) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate('query q() { insert A { k: "x", n: 1 } }')
        graph.create_branch("side")
        graph.mutate('query q() { insert A { k: "y", n: 2 } }', branch="side")
        graph.ensure_indices()
    report = Graph.verify_at(s3_root)
    assert report.is_sound, report.problems
    assert report.counts()[FileStatus.UNRECORDED] == 0

    store = from_url(s3_root)
    # Not one of the catalog, which may become unreadable as a whole.
    files = [item.name for item in report.files if item.name.startswith("nodes/")]
    name = next(name for name in files if name.endswith(".lance"))
    data = bytearray(bytes(obstore.get(store, name).bytes()))
    data[len(data) // 2] ^= 1
    obstore.put(store, name, bytes(data))
    assert [(item.name, item.status) for item in Graph.verify_at(s3_root).problems] == [
        (name, FileStatus.MISMATCH)
    ]
