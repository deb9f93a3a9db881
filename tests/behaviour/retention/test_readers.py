"""Readers and writers beside a cleanup: nobody loses what it reads, nobody waits."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from omnigraph.errors import OmniError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.storage.manifest_table import CatalogView
from support.histories import NAMES, add, lines, people, people_at, readable, unused_files


def is_read(graph: Graph) -> bool:
    return graph._environment.reading.has_readers()


def test_a_result_holds_the_lock_until_its_last_row(graph: Graph):
    assert not is_read(graph)
    result = graph.query(NAMES)
    assert is_read(graph)
    assert len(result.to_arrow()) == 8
    assert not is_read(graph)


@pytest.mark.parametrize("ends", [list, lambda result: next(iter(result))])
def test_iterating_gives_the_lock_back(graph: Graph, ends: Callable[[object], object]):
    result = graph.query(NAMES)
    ends(result)
    del result
    gc.collect()
    assert not is_read(graph)


def test_a_result_that_nobody_wants_gives_it_back(graph: Graph):
    graph.query(NAMES)
    gc.collect()
    assert not is_read(graph)


def test_a_read_that_fails_gives_it_back(graph: Graph):
    for text in ("query q(", "query q() { match { $p: Nobody } return { $p } }"):
        with pytest.raises(OmniError):
            graph.query(text)
    with pytest.raises(OmniError):
        graph.query(NAMES, branch="nowhere")
    assert not is_read(graph)


def test_reads_of_one_graph_share_the_lock(graph: Graph):
    one, other = graph.query(NAMES), graph.query(NAMES)
    one.to_arrow()
    assert is_read(graph)
    other.to_arrow()
    assert not is_read(graph)


def test_while_somebody_reads_the_states_of_the_last_hour_stay(graph: Graph):
    with Graph.open(graph.uri, read_only=True) as reader:
        result = reader.query(NAMES)
        report = graph.cleanup(keep=3, confirm=True)
        assert report.kept_because["reader"] == 9
        assert any("a reader or writer may be at work" in note for note in report.notes)
        assert readable(graph) == [True] * 9
        assert len(result) == 8
    graph.cleanup(keep=3, confirm=True)
    assert readable(graph) == [True] * 3 + [False] * 6


def test_the_grace_of_readers_is_a_setting(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_READER_GRACE", "0s")
    result = graph.query(NAMES)
    assert graph.cleanup(keep=3, confirm=True).kept_because["reader"] == 1
    assert len(result) == 8


def test_a_branch_that_is_deleted_under_a_reader_keeps_its_forks_until_nobody_reads(graph: Graph):
    graph.create_branch("dev")
    add(graph, "only here", "dev")
    pin = graph.snapshot("dev").pins["node:Person"]
    result = graph.query(NAMES, branch="dev")
    graph.delete_branch("dev")
    assert (pin.location, "dev") in lines(graph.uri)
    assert len(result) == 9
    graph.cleanup(keep=3, confirm=True)
    assert (pin.location, "dev") not in lines(graph.uri)


def test_a_head_that_is_missing_is_damaged_and_not_cleaned_up(graph: Graph):
    shutil.rmtree(Path(graph.uri) / graph.snapshot().pins["node:Person"].location)
    with Graph.open(graph.uri, read_only=True) as reader, pytest.raises(StorageError):
        reader.query(NAMES)


def test_exports_and_merges_hold_the_lock(graph: Graph):
    seen = []

    class Watching:
        def write(self, text: str) -> None:
            seen.append(is_read(graph))

    graph.export(Watching())
    assert seen
    assert all(seen)
    assert not is_read(graph)


def test_without_a_lock_file_reads_go_on(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """As on a disk that cannot be written: root may write everywhere, so opening is what fails here."""
    opened = os.open

    def refuse(path: object, *more: object) -> int:
        if str(path).endswith("__reading.lock"):
            raise PermissionError(13, "read-only file system")
        return opened(path, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert len(graph.query(NAMES)) == 8
    assert is_read(graph), "nobody can tell"


def test_a_catalog_that_is_cleaned_up_while_it_is_read_is_read_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
):
    commits = graph.commits()
    reads = CatalogView.read_rows
    cleaned = []

    def clean_first(view: CatalogView, object_type: str) -> list[dict[str, Any]]:
        if not cleaned:
            cleaned.append(True)
            with Graph.open(graph.uri) as other:
                add(other, "meanwhile")
                report = other.cleanup(keep=5, commits=True, confirm=True)
                assert report.catalog_versions_removed > 0
        return reads(view, object_type)

    with Graph.open(graph.uri, read_only=True) as reader:
        monkeypatch.setattr(CatalogView, "read_rows", clean_first)
        known = reader._environment.manifest.commits()
        assert cleaned
        assert known.keys() >= {commit.commit_id for commit in commits[:4]}
        assert commits[5].commit_id not in known
        assert reader.commits() == graph.commits()


def test_writers_and_readers_go_on_while_graphs_are_cleaned_up(graph: Graph):
    """Threads write on two branches and read heads; cleanups run beside them."""
    graph.create_branch("dev")
    failures: list[BaseException] = []

    def work(branch: str) -> None:
        try:
            with Graph.open(graph.uri) as own:
                for number in range(8):
                    add(own, f"{branch}{number}", branch)
                    assert f"{branch}{number}" in people(own, branch)
        except BaseException as error:  # noqa: BLE001  # told to the test below
            failures.append(error)

    threads = [Thread(target=work, args=(branch,)) for branch in ("main", "dev")]
    for thread in threads:
        thread.start()
    runs = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_READER_GRACE", "0s")
        while any(thread.is_alive() for thread in threads) or not runs:
            report = graph.cleanup(keep=3, commits=bool(runs % 2), confirm=True)
            assert report.errors == ()
            runs += 1
    for thread in threads:
        thread.join()
    assert failures == []
    graph.cleanup(keep=3, confirm=True)
    assert unused_files(graph.uri) == set()
    assert {f"main{n}" for n in range(8)} <= people(graph).keys()
    assert {f"dev{n}" for n in range(8)} <= people(graph, "dev").keys()
    assert graph.merge("dev").outcome == "merged"


def test_a_branch_that_is_made_at_an_old_commit_meanwhile_keeps_it(graph: Graph):
    old = graph.commits()[6].commit_id
    rows = people_at(graph, old)
    from omnigraph.maintenance import cleanup as room

    planned = room.plan_cleanup
    calls = []

    def plan_and_branch(*arguments: object, **more: object) -> object:
        found = planned(*arguments, **more)
        if not calls:
            graph.create_branch("late", base=old)
        calls.append(1)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "plan_cleanup", plan_and_branch)
        graph.cleanup(keep=3, confirm=True)
    assert len(calls) == 2, "planned again"
    assert people(graph, "late") == rows
    pin = graph.snapshot("late").pins["node:Person"]
    assert pin.version in lines(graph.uri)[pin.location, None]
