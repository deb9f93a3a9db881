"""Unreferenced files on an object store: found in listings, removed by age, with forks that read their base."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.commit.attempt import StagedTable, discard_staged
from omnigraph.commit.environment import open_environment
from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.core.failpoints import Failpoint
from omnigraph.core.ids import TableKey
from omnigraph.errors import LoadKeyConflictError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.doctor import _check_leftovers
from omnigraph.maintenance.findings import Inspection
from omnigraph.pipeline.load import job as stages
from omnigraph.storage.answers import new_answer_folder, write_answer
from omnigraph.storage.datasets.compaction import stage_compaction
from omnigraph.storage.datasets.forks import create_fork
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.staged import commit_staged, stage_append, stage_delete
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.datasets.versions import find_orphans, list_dataset, remove_files
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import GraphLocation, parse_location
from support.s3_graphs import ADD_PAPER, ADD_SCAN, SCHEMA, check_graph, values
from support.tables import compact, rewrite

DAY_S = 86_400.0
ID = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)


def names(location: GraphLocation, path: str) -> set[str]:
    return {file.name for file in list_files(location, path)}


def test_abandoned_writes_are_removed_and_forks_stay_readable(root: str) -> None:
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        graph.mutate(ADD_SCAN, {"doi": "d", "scan": "base64:" + "AAAA" * 50_000})
        path = graph.snapshot().pins[TableKey("node:Paper")].location
    location = parse_location(root)
    table = TableStore(location).open(path)
    fork = create_fork(location, table, "feature/x")
    fork = commit_staged(stage_append(fork, table.read().slice(0, 1)))
    before, rows = names(location, path), fork.read()
    for staged in (table, fork):
        stage_append(staged, staged.read())
        stage_delete(staged, [0])
        stage_indices(staged, [ID])
        rewrite(staged)
    added = names(location, path) - before
    listing = list_dataset(location, path)
    leftovers = find_orphans(location, listing)
    assert {file.name for file in leftovers.files} == added
    assert len(added) >= 10
    assert find_orphans(location, listing, time.time() - DAY_S).files == ()
    later = find_orphans(location, listing, time.time() + DAY_S)
    assert later == leftovers
    remove_files(location, leftovers)
    assert names(location, path) == before
    again = TableStore(location).open(path, "feature/x")
    assert again.read() == rows


def test_a_compaction_is_committed_or_discarded(root: str) -> None:
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        pin = graph.snapshot().pins[TableKey("node:Paper")]
    environment = open_environment(parse_location(root), durable=False)
    table = environment.tables.open(pin.location)
    before = names(environment.location, pin.location)
    discarded = stage_compaction(table, rewrite(table))
    assert discarded is not None
    assert names(environment.location, pin.location) - before
    discard_staged(
        environment,
        [StagedTable(table_key=pin.table_key, incarnation=pin.incarnation, staged=discarded)],
    )
    assert names(environment.location, pin.location) == before
    compacted = compact(table)
    assert compacted.version == table.version + 1
    assert compacted.fragment_count() == 1
    assert compacted.read(["doi"]).num_rows == 3


def test_an_object_store_removes_by_age_only(s3_root: str) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        path = graph.snapshot().pins[TableKey("node:Paper")].location
    environment = open_environment(parse_location(s3_root), durable=False)
    table = environment.tables.open(path)
    before = names(environment.location, path)
    stage_append(table, table.read())
    done = reclaim_staged_files(environment, [path], DAY_S)
    assert (done.file_count, done.is_complete) == (0, False)
    later = replace(environment, clock=lambda: int((time.time() + 2 * DAY_S) * 1_000_000))
    assert reclaim_staged_files(later, [path], DAY_S, preview=True).file_count == 1
    assert reclaim_staged_files(later, [path], DAY_S).file_count == 1
    assert names(environment.location, path) == before
    check_graph(s3_root)
    with Graph.open(s3_root) as graph:
        graph.mutate(ADD_PAPER, {"doi": "b", "title": "B"})
        assert values(graph, "node:Paper", "doi") == ["a", "b"]


def test_a_load_that_fails_leaves_nothing_in_an_object_store(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There no lock tells who is at work: only the ledgers do."""
    source = tmp_path / "in.jsonl"
    lines = [{"type": "Paper", "data": {"doi": doi, "title": doi}} for doi in ("a", "b")]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def interrupt(place: Failpoint) -> None:
        if place is Failpoint.LOAD_CHECKED:
            raise KeyboardInterrupt

    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        location = graph._environment.location
        before = names(location, "")
        for mode in ("append", "merge"):
            with monkeypatch.context() as patch:
                patch.setattr(stages, "reach", interrupt)
                with pytest.raises((KeyboardInterrupt, LoadKeyConflictError)):
                    graph.load(source, mode=mode, engine="local")
            assert names(location, "") == before
        graph.load(source, mode="merge", engine="local")
        assert not [name for name in names(location, "") if name.startswith("__staging")]
        assert values(graph, "node:Paper", "doi") == ["a", "b"]


def test_doctor_cannot_tell_young_files_in_an_object_store(s3_root: str) -> None:
    with Graph.init(s3_root, SCHEMA) as graph:
        graph.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
        table = graph._open(graph.snapshot().pins[TableKey("node:Paper")])
        stage_append(table, table.read())
        folder = new_answer_folder(graph._environment.location)
        rows = pa.RecordBatch.from_pydict({"n": [1]})
        write_answer(folder, "part-0", rows.schema, [rows])
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
        assert found.severity == "info"
        assert "2 files" in found.message
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 0
        later = replace(
            graph._environment, clock=lambda: int((time.time() + 8 * DAY_S) * 1_000_000)
        )
        (found,) = _check_leftovers(Inspection(later))
        assert found.severity == "warning"
        assert found.action == f"omnigraph cleanup {graph.uri} --keep 10 --confirm"
        assert reclaim_staged_files(later, [table.path], 7 * DAY_S).file_count == 2
        assert not [name for name in names(later.location, "") if name.startswith("__staging")]
