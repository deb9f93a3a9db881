"""Random histories with branches, merges and deletions, then random retention.

Everything that was promised reads as before, every pair of branches merges as before, everything else is a typed error,
and no file stays that nothing refers to.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.commit.lineage import lasting_bases
from omnigraph.commit.snapshot import snapshot_at
from omnigraph.errors import HistoricalVersionReclaimedError, OmniError
from omnigraph.graph.graph import Graph
from support.histories import SCHEMA, add, lines, people_at, remove, set_age, unused_files

BRANCHES = ("main", "a", "b")
_names = st.sampled_from(["x", "y", "z"])
_branches = st.sampled_from(BRANCHES)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), _branches, _names),
    st.tuples(st.just("set"), _branches, _names),
    st.tuples(st.just("remove"), _branches, _names),
    st.tuples(st.just("place"), _branches, _names),
    st.tuples(st.just("branch"), st.sampled_from(BRANCHES[1:]), _branches),
    st.tuples(st.just("back"), st.sampled_from(BRANCHES[1:]), st.integers(0, 9)),
    st.tuples(st.just("merge"), _branches, _branches),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:]), st.none()),
    st.tuples(st.just("index"), _branches, st.none()),
    st.tuples(st.just("optimize"), st.just("main"), st.none()),
)


def apply(graph: Graph, number: int, operation: tuple) -> None:
    """Do it, if it can be done."""
    kind, branch, other = operation
    try:
        match kind:
            case "add":
                add(graph, other, branch, number)
            case "set":
                set_age(graph, other, number, branch)
            case "remove":
                remove(graph, other, branch)
            case "place":
                graph.mutate(f'query q() {{ insert Place {{ name: "{other}" }} }}', branch=branch)
            case "branch":
                graph.create_branch(branch, base=other)
            case "back":
                line = graph.commits()
                graph.create_branch(branch, base=line[other % len(line)].commit_id)
            case "merge":
                graph.merge(branch, other, strategy="theirs")
            case "delete":
                graph.delete_branch(branch)
            case "optimize":
                graph.optimize(engine="local")
            case "index":
                graph.ensure_indices(branch)
    except HistoricalVersionReclaimedError:
        raise
    except OmniError:
        # There is no such branch, it exists, or nothing is to be done: the history is random.
        return


def outcomes(graph: Graph) -> dict[tuple[str, str], tuple[str, int]]:
    """What a merge of every two branches would do."""
    found = {}
    for one in graph.branches():
        for other in graph.branches():
            if one != other:
                result = graph.merge(one, other, dry_run=True, engine="local")
                found[one, other] = (str(result.outcome), result.conflict_total)
    return found


def promised_versions(graph: Graph, keep: int) -> dict[tuple[str, str | None], set[int]]:
    """The versions that have to be there after a cleanup, from the description of the policy."""
    history = graph._core.environment.manifest.history()
    heads = [head for head in history.heads if not head.deleted]
    kept = {c.commit_id for b in graph.branches() for c in graph.commits(b)[:keep]}
    kept |= lasting_bases(history.commits, [head.commit_id for head in heads], 1_000)
    waiting = list(kept) + [head.fork_commit_id for head in heads if head.fork_commit_id]
    while waiting:
        commit = history.commits[waiting.pop()]
        kept.add(commit.commit_id)
        own = [h for h in history.heads if h.branch == commit.branch]
        own = [h for h in own if h.incarnation <= commit.graph_version]
        fork = max(own, key=lambda h: h.incarnation).fork_commit_id
        if fork is not None and fork not in kept:
            waiting.append(fork)
    found: dict[tuple[str, str | None], set[int]] = {}
    for commit_id in kept:
        for pin in snapshot_at(history, commit_id).pins.values():
            found.setdefault((pin.location, pin.branch), set()).add(pin.version)
    return found


def check_cleanup(graph: Graph, keep: int, *, forget: bool) -> None:
    lineage = {branch: graph.commits(branch) for branch in graph.branches()}
    states = {c.commit_id: people_at(graph, c.commit_id) for b in lineage for c in lineage[b]}
    before = outcomes(graph)
    promised = promised_versions(graph, keep)
    report = graph.cleanup(keep=keep, commits=forget, confirm=True)
    assert report.errors == ()
    assert report.notes == ()
    with Graph.open(graph.uri) as again:
        for branch, line in lineage.items():
            assert again.commits(branch) == line[: len(again.commits(branch))]
            for place, commit in enumerate(line):
                if place < keep:
                    assert people_at(again, commit.commit_id) == states[commit.commit_id]
                elif commit.commit_id in again._core.environment.manifest.commits():
                    assert people_at(again, commit.commit_id) in (None, states[commit.commit_id])
        assert outcomes(again) == before
    on_disk = lines(graph.uri)
    for line, versions in promised.items():
        assert versions <= on_disk[line]
    heads = {line: max(versions) for line, versions in on_disk.items()}
    extra = {line: on_disk[line] - promised.get(line, set()) - {heads[line]} for line in on_disk}
    forks = {
        (path, None): {min(on_disk[fork]) for fork in on_disk if fork[0] == path and fork[1]} for path, _ in on_disk
    }
    # Beside what was promised: HEAD, and where a fork begins, which Lance itself refers to.
    assert all(not versions or line in forks or line[1] for line, versions in extra.items())
    assert sum(map(len, extra.values())) <= sum(1 for _, fork in on_disk if fork is not None)
    assert unused_files(graph.uri) == set()


def run(operations: list[tuple], later: list[tuple], keep: int, forget: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, Graph.init(Path(folder) / "g.omni", SCHEMA) as graph:
        add(graph, "x")
        graph.create_branch("a")
        for number, operation in enumerate(operations):
            apply(graph, number, operation)
        check_cleanup(graph, keep, forget=forget)
        for number, operation in enumerate(later, start=100):
            if operation[0] != "back":
                apply(graph, number, operation)
        check_cleanup(graph, 3, forget=not forget)


WORLDS = {
    "operations": st.lists(OPERATIONS, min_size=8, max_size=16),
    "later": st.lists(OPERATIONS, min_size=2, max_size=6),
    "keep": st.integers(3, 5),
    "forget": st.booleans(),
}


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(**WORLDS)
def test_a_cleanup_of_any_history_keeps_its_promise(operations, later, keep, forget):
    run(operations, later, keep, forget)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@settings(max_examples=300, derandomize=False, suppress_health_check=list(HealthCheck))
@given(**WORLDS)
def test_a_cleanup_of_many_histories_keeps_its_promise(operations, later, keep, forget):
    run(operations, later, keep, forget)
