from __future__ import annotations

import pytest

from omnigraph.commit.rows import PublishedVersion, Tombstone
from omnigraph.commit.snapshot import History, branch_of, newest_heads, snapshot_at, snapshot_of
from omnigraph.core.ids import TableKey
from omnigraph.errors import DamageError
from support.manifests import CITES, PAPER, commit, head, pin
from support.subtests import each_case

ARTICLE = TableKey("node:Article")


def version(item, graph_version: int, branch_key: str = "main") -> PublishedVersion:
    return PublishedVersion(pin=item, branch_key=branch_key, graph_version=graph_version)


def history(commits, versions, heads, tombstones=()) -> History:
    return History(
        commits={item.commit_id: item for item in commits},
        versions=tuple(versions),
        tombstones=tuple(tombstones),
        heads=tuple(heads),
    )


def versions_at(past: History, commit_id: str) -> dict[str, int]:
    return {key: item.version for key, item in snapshot_at(past, commit_id).pins.items()}


def stone(key: TableKey, at: int, graph_version: int, incarnation: int = 1) -> Tombstone:
    return Tombstone(
        table_key=key, incarnation=incarnation, version=at, graph_version=graph_version
    )


LINE = history(
    [commit("c1", 1), commit("c2", 2, "c1"), commit("c3", 4, "c2")],
    [
        version(pin(PAPER, 1), 1),
        version(pin(CITES, 1), 1),
        version(pin(PAPER, 2), 2),
        version(pin(CITES, 2), 4),
        version(pin(PAPER, 3), 4),
    ],
    [head("main", 1, 4, "c3")],
)


@pytest.mark.parametrize(
    ("commit_id", "expected"),
    [
        ("c1", {PAPER: 1, CITES: 1}),
        ("c2", {PAPER: 2, CITES: 1}),
        ("c3", {PAPER: 3, CITES: 2}),
    ],
)
def test_the_state_at_a_commit_is_the_newest_version_of_each_table_until_then(commit_id, expected):
    assert versions_at(LINE, commit_id) == expected


def test_the_state_at_a_commit_carries_its_place_in_the_graph():
    found = snapshot_at(LINE, "c2")
    assert (found.branch, found.incarnation, found.graph_version) == ("main", 1, 2)
    assert (found.commit_id, found.schema_hash) == ("c2", "sha256:one")


def test_an_unknown_commit_has_no_state():
    with pytest.raises(KeyError):
        snapshot_at(LINE, "c9")


BRANCHED = history(
    [
        commit("c1", 1),
        commit("c2", 3, "c1"),
        commit("d1", 4, "c1", "dev"),
        commit("c3", 5, "c2"),
        commit("e1", 7, "d1", "exp"),
    ],
    [
        version(pin(PAPER, 1), 1),
        version(pin(CITES, 1), 1),
        version(pin(PAPER, 2), 3),
        version(pin(PAPER, 2, branch="dev"), 4, "dev~2"),
        version(pin(CITES, 2), 5),
        version(pin(CITES, 2, branch="exp"), 7, "exp~6"),
    ],
    [
        head("main", 1, 5, "c3"),
        head("dev", 2, 4, "d1", fork_commit_id="c1"),
        head("exp", 6, 7, "e1", fork_commit_id="d1"),
    ],
)


@each_case(
    ("commit_id", "paper", "cites"),
    [
        ("c2", (None, 2), (None, 1)),
        ("d1", ("dev", 2), (None, 1)),
        ("c3", (None, 2), (None, 2)),
        ("e1", ("dev", 2), ("exp", 2)),
    ],
)
def test_a_branch_reads_its_own_versions_and_else_those_of_its_fork(commit_id, paper, cites):
    pins = snapshot_at(BRANCHED, commit_id).pins
    assert (pins[PAPER].branch, pins[PAPER].version) == paper
    assert (pins[CITES].branch, pins[CITES].version) == cites


RECREATED = history(
    [
        commit("c1", 1),
        commit("d1", 3, "c1", "dev"),
        commit("c2", 5, "c1"),
        commit("d2", 7, "c2", "dev"),
    ],
    [
        version(pin(PAPER, 1), 1),
        version(pin(CITES, 1), 1),
        version(pin(CITES, 8, branch="dev"), 3, "dev~2"),
        version(pin(PAPER, 2), 5),
        version(pin(PAPER, 3, branch="dev"), 7, "dev~6"),
    ],
    [
        head("main", 1, 5, "c2"),
        head("dev", 2, 4, "d1", fork_commit_id="c1", deleted=True),
        head("dev", 6, 7, "d2", fork_commit_id="c2"),
    ],
)


@pytest.mark.parametrize(
    ("commit_id", "incarnation", "expected"),
    [("d1", 2, {PAPER: 1, CITES: 8}), ("d2", 6, {PAPER: 3, CITES: 1})],
)
def test_a_branch_made_again_never_sees_rows_of_its_predecessor(commit_id, incarnation, expected):
    assert versions_at(RECREATED, commit_id) == expected
    assert snapshot_at(RECREATED, commit_id).incarnation == incarnation


DROPPED = history(
    [commit("c1", 1), commit("c2", 2, "c1"), commit("c3", 3, "c2"), commit("c4", 4, "c3")],
    [
        version(pin(PAPER, 5), 1),
        version(pin(CITES, 1), 1),
        version(pin(PAPER, 1, incarnation=2), 3),
        version(pin(PAPER, 2, incarnation=2), 4),
    ],
    [head("main", 1, 4, "c4")],
    [stone(PAPER, 5, 2)],
)


@each_case(
    ("commit_id", "expected"),
    [
        ("c1", {PAPER: 5, CITES: 1}),
        ("c2", {CITES: 1}),
        ("c3", {PAPER: 1, CITES: 1}),
        ("c4", {PAPER: 2, CITES: 1}),
    ],
)
def test_a_name_dropped_and_added_again_starts_anew_and_is_visible(commit_id, expected):
    assert versions_at(DROPPED, commit_id) == expected


RENAMED = history(
    [commit("c1", 1), commit("c2", 2, "c1"), commit("c3", 3, "c2")],
    [version(pin(PAPER, 4), 1), version(pin(ARTICLE, 4), 2), version(pin(ARTICLE, 5), 3)],
    [head("main", 1, 3, "c3")],
    [stone(PAPER, 4, 2)],
)


@pytest.mark.parametrize(
    ("commit_id", "expected"), [("c1", {PAPER: 4}), ("c2", {ARTICLE: 4}), ("c3", {ARTICLE: 5})]
)
def test_a_renamed_type_is_visible_under_the_name_of_its_time(commit_id, expected):
    assert versions_at(RENAMED, commit_id) == expected
    (item,) = snapshot_at(RENAMED, commit_id).pins.values()
    assert item.location == "nodes/0000000000000001", "a rename keeps the dataset"


def test_a_type_renamed_and_renamed_back_is_visible_under_its_first_name():
    past = history(
        [commit("c1", 1), commit("c2", 2, "c1"), commit("c3", 3, "c2")],
        [version(pin(PAPER, 4), 1), version(pin(ARTICLE, 4), 2), version(pin(PAPER, 4), 3)],
        [head("main", 1, 3, "c3")],
        [stone(PAPER, 4, 2), stone(ARTICLE, 4, 3)],
    )
    assert versions_at(past, "c3") == {PAPER: 4}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_the_rows_does_not_matter(reverse):
    stones = [stone(PAPER, 4, 2), stone(ARTICLE, 4, 3), stone(PAPER, 6, 5)]
    versions = [
        version(pin(PAPER, 4), 1),
        version(pin(ARTICLE, 4), 2),
        version(pin(PAPER, 5), 3),
        version(pin(PAPER, 6), 4),
    ]
    if reverse:
        stones.reverse()
        versions.reverse()
    past = history(
        [commit("c1", 1), commit("c2", 4, "c1"), commit("c3", 5, "c2")],
        versions,
        [head("main", 1, 5, "c3")],
        stones,
    )
    assert versions_at(past, "c1") == {PAPER: 4}
    assert versions_at(past, "c2") == {PAPER: 6}
    assert versions_at(past, "c3") == {}


@each_case(
    ("heads", "expected"),
    [
        ([], {}),
        ([head("main", 1, 1), head("main", 1, 3), head("main", 1, 2)], {"main": 3}),
        ([head("main", 1, 1), head("dev", 2, 2)], {"main": 1, "dev": 2}),
        ([head("dev", 2, 5, deleted=True), head("dev", 2, 2)], {}),
        ([head("dev", 2, 3, deleted=True), head("dev", 4, 4)], {"dev": 4}),
        ([head("dev", 4, 4), head("dev", 2, 3, deleted=True)], {"dev": 4}),
    ],
)
def test_the_newest_head_of_each_name_counts_unless_it_is_deleted(heads, expected):
    found = newest_heads(heads)
    assert {name: item.graph_version for name, item in found.items()} == expected


def test_the_snapshot_of_a_head_is_the_head():
    item = head("dev", 2, 4, "d1", pins={PAPER: pin(PAPER, 3)})
    found = snapshot_of(item)
    assert (found.branch, found.incarnation, found.graph_version) == ("dev", 2, 4)
    assert (found.commit_id, found.pins) == ("d1", {PAPER: pin(PAPER, 3)})


def test_a_commit_of_an_unknown_branch_is_damage():
    with pytest.raises(DamageError, match="has no branch 'gone'"):
        branch_of([], commit("c1", 1, branch="gone"))
