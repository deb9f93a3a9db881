"""What has to hold after every race, whoever won it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import lance

from omnigraph.commit.snapshot import snapshot_at
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.location import parse_location
from support.races.jobs import Outcome, table_rows


def acknowledged(reports: Iterable[Iterable[Outcome]]) -> list[Outcome]:
    """The receipts with a commit, of all writers."""
    return [outcome for report in reports for outcome in report if outcome.get("commit")]


def lost(reports: Iterable[Iterable[Outcome]]) -> list[Outcome]:
    """The submissions that were lost."""
    return [outcome for report in reports for outcome in report if outcome.get("lost")]


def failed(reports: Iterable[Iterable[Outcome]]) -> list[Outcome]:
    """Everything that was neither acknowledged nor lost."""
    return [outcome for report in reports for outcome in report if "error" in outcome and not outcome["lost"]]


def check_all_acknowledged(reports: Sequence[Iterable[Outcome]]) -> None:
    """What only inserts, or is prepared again, succeeds whoever wins."""
    assert lost(reports) == []
    assert failed(reports) == []


def check_graph(root: Path, receipts: list[Outcome], earlier: Iterable[str] = ()) -> None:
    """History, catalog, datasets and control files fit together and hold exactly what was acknowledged.

    `earlier` are the commits from before the race.
    """
    with Graph.open(root, read_only=True) as graph:
        _check_histories(graph, receipts, set(earlier))
        _check_heads(graph)
        assert graph.pending_recoveries() == []
        assert graph.recoveries() == [], "a living writer was recovered"
    assert list((root / "__recovery").glob("*")) == []
    assert not (root / "__init_claim.json").exists()
    catalog = lance.dataset(str(root / "__manifest")).to_table(["object_id"])["object_id"]
    assert len(catalog) == len(set(catalog.to_pylist())), "a catalog row is there twice"


def _check_histories(graph: Graph, receipts: list[Outcome], earlier: set[str]) -> None:
    seen: dict[str, int] = {}
    versions: list[int] = []
    for branch in graph.branches():
        history = graph.commits(branch)[::-1]
        ids = [commit.commit_id for commit in history]
        assert len(ids) == len(set(ids))
        assert [commit.parent_id for commit in history] == [None, *ids[:-1]]
        numbers = [commit.graph_version for commit in history]
        assert numbers == sorted(set(numbers))
        for commit in history:
            if commit.branch == branch:
                seen[commit.commit_id] = commit.graph_version
                versions.append(commit.graph_version)
        if branch != "main":
            versions.append(graph.snapshot(branch).incarnation)
    # Every publish took the next number: a commit, or the creation of a branch.
    assert sorted(versions) == list(range(1, len(versions) + 1))
    told = [receipt["commit"] for receipt in receipts]
    assert len(told) == len(set(told)), "one commit was acknowledged twice"
    genesis = graph.commits()[-1].commit_id
    assert set(seen) == {genesis, *earlier, *told}
    for receipt in receipts:
        commit = graph.commit(receipt["commit"])
        assert commit.graph_version == receipt["graph_version"]
        assert commit.parent_id == receipt["parent"]
        assert commit.branch == receipt["branch"]


def _check_heads(graph: Graph) -> None:
    store = TableStore(parse_location(graph.uri))
    for branch in graph.branches():
        own = None if branch == "main" else branch
        for key, pin in graph.snapshot(branch).pins.items():
            at_pin = store.open(pin.location, pin.branch, pin.version)
            assert at_pin.count_rows() == pin.row_count, key
            if pin.branch == own:
                assert at_pin.latest_version == pin.version, f"{key} on {branch} has drifted"


def check_every_snapshot_is_closed(root: Path) -> int:
    """No edge of any published snapshot lacks an end; how many snapshots there are."""
    with Graph.open(root, read_only=True) as graph:
        history = graph._core.environment.manifest.history()
        for commit_id in history.commits:
            snapshot = snapshot_at(history, commit_id)
            people = {row["id"] for row in table_rows(graph, snapshot, "node:Person", ["id"])}
            for edge in table_rows(graph, snapshot, "edge:Knows", ["src", "dst"]):
                assert {edge["src"], edge["dst"]} <= people, f"dangling at {commit_id}"
        return len(history.commits)
