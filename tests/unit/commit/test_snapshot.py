from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.branches.truth_table import ABSENT, UNDECIDED, base_rows, find_base
from omnigraph.commit.lineage import base_commits, base_steps, distances, first_parents, merge_bases, parents
from omnigraph.commit.rows import GraphCommit, PublishedVersion, Tombstone
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
    return Tombstone(table_key=key, incarnation=incarnation, version=at, graph_version=graph_version)


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
    [("c1", {PAPER: 1, CITES: 1}), ("c2", {PAPER: 2, CITES: 1}), ("c3", {PAPER: 3, CITES: 2})],
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
    [commit("c1", 1), commit("d1", 3, "c1", "dev"), commit("c2", 5, "c1"), commit("d2", 7, "c2", "dev")],
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
    ("commit_id", "incarnation", "expected"), [("d1", 2, {PAPER: 1, CITES: 8}), ("d2", 6, {PAPER: 3, CITES: 1})]
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
    [("c1", {PAPER: 5, CITES: 1}), ("c2", {CITES: 1}), ("c3", {PAPER: 1, CITES: 1}), ("c4", {PAPER: 2, CITES: 1})],
)
def test_a_name_dropped_and_added_again_starts_anew_and_is_visible(commit_id, expected):
    assert versions_at(DROPPED, commit_id) == expected


RENAMED = history(
    [commit("c1", 1), commit("c2", 2, "c1"), commit("c3", 3, "c2")],
    [version(pin(PAPER, 4), 1), version(pin(ARTICLE, 4), 2), version(pin(ARTICLE, 5), 3)],
    [head("main", 1, 3, "c3")],
    [stone(PAPER, 4, 2)],
)


@pytest.mark.parametrize(("commit_id", "expected"), [("c1", {PAPER: 4}), ("c2", {ARTICLE: 4}), ("c3", {ARTICLE: 5})])
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
        [commit("c1", 1), commit("c2", 4, "c1"), commit("c3", 5, "c2")], versions, [head("main", 1, 5, "c3")], stones
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


# ---- Ancestors and merge bases on commit graphs that are written down by hand


def commit_graph(text: str) -> dict[str, GraphCommit]:
    """Commits as `name` or `name:parent` or `name:parent+merged`; their order is that of their graph versions."""
    commits = {}
    for version, word in enumerate(text.split(), start=1):
        name, _, line = word.partition(":")
        parent, _, merged = line.partition("+")
        commits[name] = GraphCommit(
            commit_id=name,
            graph_version=version,
            branch="main",
            parent_id=parent or None,
            merged_parent_id=merged or None,
            created_at=version,
            kind="mutation",
            operation_id=name,
            schema_hash="sha256:one",
        )
    return commits


LINEAR = commit_graph("a b:a c:b d:c")
FORK = commit_graph("a b:a m:b s:b n:m t:s")
#: The branch `t` was merged into the line of `m`, which went on.
MERGED = commit_graph("a b:a m:b s:b t:s n:m+t o:n u:t")
#: Both lines merged the head that the other one had.
CRISS_CROSS = commit_graph("a m:a s:a n:m+s t:s+m o:n u:t")
#: Both lines merged the same third branch.
THIRD = commit_graph("a f:a m:a g:a n:m+f h:g+f o:n i:h")
#: Two criss-crosses, one behind the other.
TWICE = commit_graph("a m1:a s1:a m2:m1+s1 s2:s1+m1 m3:m2+s2 s3:s2+m2")
#: Three lines that all took over each other.
THREE = commit_graph("a x:a y:a z:a x1:x+y x2:x1+z y1:y+z y2:y1+x")

BASES = [
    pytest.param(LINEAR, "d", "b", ["b"], id="an ancestor is its own base"),
    pytest.param(LINEAR, "b", "d", ["b"], id="from the other side too"),
    pytest.param(LINEAR, "c", "c", ["c"], id="a commit and itself"),
    pytest.param(LINEAR, "a", "a", ["a"], id="the first commit and itself"),
    pytest.param(FORK, "n", "t", ["b"], id="where a branch began"),
    pytest.param(FORK, "m", "s", ["b"], id="its first commits"),
    pytest.param(MERGED, "n", "t", ["t"], id="what was merged is common"),
    pytest.param(MERGED, "o", "u", ["t"], id="and stays the base when both go on"),
    pytest.param(CRISS_CROSS, "n", "t", ["s", "m"], id="a criss-cross has two, the newer first"),
    pytest.param(CRISS_CROSS, "o", "u", ["s", "m"], id="also later"),
    pytest.param(CRISS_CROSS, "n", "s", ["s"], id="one side of it only"),
    pytest.param(THIRD, "o", "i", ["f"], id="a branch that both merged"),
    pytest.param(TWICE, "m3", "s3", ["s2", "m2"], id="the nearer criss-cross"),
    pytest.param(THREE, "x2", "y2", ["z", "x", "y"], id="three bases"),
]


@each_case(("commits", "one", "other", "expected"), BASES)
def test_merge_bases(commits: dict[str, GraphCommit], one: str, other: str, expected: list[str]) -> None:
    assert merge_bases(commits, [one], [other]) == expected
    assert merge_bases(commits, [other], [one]) == expected


def test_a_common_ancestor_behind_another_is_never_a_base() -> None:
    """The old commit is as near as the new one, by way of a merge that skips most of the line."""
    commits = commit_graph("old a:old b:a base:b left:base+old right:base+old")
    assert distances(commits, "left")["old"] == distances(commits, "left")["base"] == 1
    assert merge_bases(commits, ["left"], ["right"]) == ["base"]


def test_the_nearest_base_comes_first_even_if_it_is_older() -> None:
    commits = commit_graph("a near:a far:a left:near far2:far left2:left+far2 right:far right2:right+near")
    found = distances(commits, "left2"), distances(commits, "right2")
    near, far = (sum(part[name] for part in found) for name in ("near", "far"))
    assert (near, far) == (3, 4)
    assert commits["near"].graph_version < commits["far"].graph_version
    assert merge_bases(commits, ["left2"], ["right2"]) == ["near", "far"]


def test_a_tie_goes_to_the_higher_graph_version() -> None:
    for text, expected in (("a x:a y:a l:x+y r:y+x", ["y", "x"]), ("a y:a x:a l:x+y r:y+x", ["x", "y"])):
        assert merge_bases(commit_graph(text), ["l"], ["r"]) == expected


def test_unrelated_commits_have_no_base() -> None:
    assert merge_bases(commit_graph("a b"), ["a"], ["b"]) == []


def test_a_line_of_several_commits_knows_what_each_of_them_knows() -> None:
    assert merge_bases(CRISS_CROSS, ["m", "s"], ["n"]) == ["s", "m"]
    assert merge_bases(THREE, ["x", "y"], ["z"]) == ["a"]


def test_the_first_parents_of_a_merge_leave_out_what_was_merged() -> None:
    assert [item.commit_id for item in first_parents(MERGED, "o")] == ["o", "n", "m", "b", "a"]
    assert [item.commit_id for item in first_parents(LINEAR, "a")] == ["a"]


def test_distances_are_the_fewest_steps_over_both_parents() -> None:
    assert distances(MERGED, "o") == {"o": 0, "n": 1, "m": 2, "t": 2, "b": 3, "s": 3, "a": 4}
    assert distances(MERGED, "m", "t") == {"m": 0, "t": 0, "b": 1, "s": 1, "a": 2}


def test_a_commit_has_none_one_or_two_parents() -> None:
    assert [parents(MERGED[name]) for name in ("a", "b", "n")] == [(), ("a",), ("m", "t")]


# ---- what a merge has to look at

NEEDED = [
    pytest.param(LINEAR, "d", "b", {"b"}, id="an ancestor"),
    pytest.param(FORK, "n", "t", {"b"}, id="a fork"),
    pytest.param(CRISS_CROSS, "o", "u", {"s", "m", "a"}, id="two bases and where they began"),
    pytest.param(TWICE, "m3", "s3", {"s2", "m2", "s1", "m1", "a"}, id="bases of bases"),
    pytest.param(THREE, "x2", "y2", {"x", "y", "z", "a"}, id="three bases"),
]


@each_case(("commits", "one", "other", "expected"), NEEDED)
def test_base_commits_are_the_bases_and_their_bases(
    commits: dict[str, GraphCommit], one: str, other: str, expected: set[str]
) -> None:
    assert set(base_commits(base_steps(commits, one, other))) == expected


@each_case(("commits", "one", "other", "expected"), NEEDED)
def test_a_merge_looks_at_the_base_commits_and_no_others(
    commits: dict[str, GraphCommit], one: str, other: str, expected: set[str]
) -> None:
    found = find_base(commits, one, other).commits
    assert set(found) == expected
    assert len(found) == len(expected), "each of them once"
    assert found[0] == merge_bases(commits, [one], [other])[0], "the best one first"


def test_one_base_is_a_commit() -> None:
    base = find_base(FORK, "n", "t")
    assert len(base.steps) == 1
    assert base_rows(base, {"b": rows(1, 2)}).tolist() == [1, 2]


def test_two_bases_are_merged_over_where_they_began() -> None:
    base = find_base(CRISS_CROSS, "o", "u")
    assert len(base.steps) == 2
    states = {"a": rows(1, 1, 1, 1), "m": rows(2, 1, 2, ABSENT), "s": rows(1, 3, 3, 1)}
    assert base_rows(base, states).tolist() == [2, 3, UNDECIDED, ABSENT]


def test_three_bases_are_merged_one_after_the_other() -> None:
    base = find_base(THREE, "x2", "y2")
    states = {name: rows(1, 1, 1, 1) for name in "axyz"}
    for place, name in enumerate("xyz"):
        states[name][place] = 5 + place
        states[name][3] = 5 + place
    assert base_rows(base, states).tolist() == [5, 6, 7, UNDECIDED]


def test_bases_of_bases_are_merged_from_the_oldest_on() -> None:
    """The first criss-cross is decided before the second one asks about it."""
    base = find_base(TWICE, "m3", "s3")
    states = {"a": rows(1, 1), "m1": rows(2, 1), "s1": rows(1, 3)}
    states |= {"m2": rows(2, 3), "s2": rows(2, 4)}
    assert base_rows(base, states).tolist() == [2, 4]


def test_many_mutual_merges_are_looked_at_once_each() -> None:
    """Three branches that take each other over, again and again: the bases of bases repeat."""
    rounds = 25
    words = ["a", "x0:a", "y0:a", "z0:a"]
    for number in range(rounds):
        for one, two, three in ("xyz", "yzx", "zxy"):
            words.append(f"{one}{number}b:{one}{number}+{two}{number}")
            words.append(f"{one}{number + 1}:{one}{number}b+{three}{number}")
    commits = commit_graph(" ".join(words))
    found = find_base(commits, f"x{rounds}", f"y{rounds}").commits
    assert len(found) == len(set(found)) == 3 * rounds + 1
    assert set(base_commits(base_steps(commits, f"x{rounds}", f"y{rounds}"))) == set(found)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, GraphCommit]:
    """Any graph of commits with one beginning, each of which has one or two older ones as parents."""
    words = ["0"]
    for number in range(1, draw(st.integers(2, 14))):
        older = st.integers(0, number - 1)
        first, second = draw(older), draw(older)
        words.append(f"{number}:{first}" if first == second else f"{number}:{first}+{second}")
    return commit_graph(" ".join(words))


@given(graphs(), st.data())
def test_bases_are_exactly_the_common_ancestors_with_none_above_them(
    commits: dict[str, GraphCommit], data: st.DataObject
) -> None:
    names = st.sampled_from(sorted(commits))
    one, other = data.draw(names), data.draw(names)
    ancestors = {name: _ancestors(commits, name) for name in commits}
    common = ancestors[one] & ancestors[other]
    lowest = {name for name in common if not any(name in ancestors[higher] for higher in common - {name})}
    found = merge_bases(commits, [one], [other])
    assert set(found) == lowest
    assert len(found) == len(lowest)
    assert found == merge_bases(commits, [other], [one])
    assert set(find_base(commits, one, other).commits) == set(base_commits(base_steps(commits, one, other)))


def _ancestors(commits: dict[str, GraphCommit], name: str) -> set[str]:
    found = {name}
    for parent in parents(commits[name]):
        found |= _ancestors(commits, parent)
    return found
