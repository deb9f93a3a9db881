"""Ancestors and merge bases on commit graphs that are written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.branches.truth_table import ABSENT, UNDECIDED, base_rows, find_base
from omnigraph.commit.lineage import (
    base_commits,
    base_steps,
    distances,
    first_parents,
    merge_bases,
    parents,
)
from omnigraph.commit.rows import GraphCommit
from support.subtests import each_case


def history(text: str) -> dict[str, GraphCommit]:
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


LINEAR = history("a b:a c:b d:c")
FORK = history("a b:a m:b s:b n:m t:s")
#: The branch `t` was merged into the line of `m`, which went on.
MERGED = history("a b:a m:b s:b t:s n:m+t o:n u:t")
#: Both lines merged the head that the other one had.
CRISS_CROSS = history("a m:a s:a n:m+s t:s+m o:n u:t")
#: Both lines merged the same third branch.
THIRD = history("a f:a m:a g:a n:m+f h:g+f o:n i:h")
#: Two criss-crosses, one behind the other.
TWICE = history("a m1:a s1:a m2:m1+s1 s2:s1+m1 m3:m2+s2 s3:s2+m2")
#: Three lines that all took over each other.
THREE = history("a x:a y:a z:a x1:x+y x2:x1+z y1:y+z y2:y1+x")

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
def test_merge_bases(
    commits: dict[str, GraphCommit], one: str, other: str, expected: list[str]
) -> None:
    assert merge_bases(commits, [one], [other]) == expected
    assert merge_bases(commits, [other], [one]) == expected


def test_a_common_ancestor_behind_another_is_never_a_base() -> None:
    """The old commit is as near as the new one, by way of a merge that skips most of the line."""
    commits = history("old a:old b:a base:b left:base+old right:base+old")
    assert distances(commits, "left")["old"] == distances(commits, "left")["base"] == 1
    assert merge_bases(commits, ["left"], ["right"]) == ["base"]


def test_the_nearest_base_comes_first_even_if_it_is_older() -> None:
    commits = history(
        "a near:a far:a left:near far2:far left2:left+far2 right:far right2:right+near"
    )
    found = distances(commits, "left2"), distances(commits, "right2")
    near, far = (sum(part[name] for part in found) for name in ("near", "far"))
    assert (near, far) == (3, 4)
    assert commits["near"].graph_version < commits["far"].graph_version
    assert merge_bases(commits, ["left2"], ["right2"]) == ["near", "far"]


def test_a_tie_goes_to_the_higher_graph_version() -> None:
    for text, expected in (
        ("a x:a y:a l:x+y r:y+x", ["y", "x"]),
        ("a y:a x:a l:x+y r:y+x", ["x", "y"]),
    ):
        assert merge_bases(history(text), ["l"], ["r"]) == expected


def test_unrelated_commits_have_no_base() -> None:
    assert merge_bases(history("a b"), ["a"], ["b"]) == []


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
    commits = history(" ".join(words))
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
    return history(" ".join(words))


@given(graphs(), st.data())
def test_bases_are_exactly_the_common_ancestors_with_none_above_them(
    commits: dict[str, GraphCommit], data: st.DataObject
) -> None:
    names = st.sampled_from(sorted(commits))
    one, other = data.draw(names), data.draw(names)
    ancestors = {name: _ancestors(commits, name) for name in commits}
    common = ancestors[one] & ancestors[other]
    lowest = {
        name for name in common if not any(name in ancestors[higher] for higher in common - {name})
    }
    found = merge_bases(commits, [one], [other])
    assert set(found) == lowest
    assert len(found) == len(lowest)
    assert found == merge_bases(commits, [other], [one])
    assert set(find_base(commits, one, other).commits) == set(
        base_commits(base_steps(commits, one, other))
    )


def _ancestors(commits: dict[str, GraphCommit], name: str) -> set[str]:
    found = {name}
    for parent in parents(commits[name]):
        found |= _ancestors(commits, parent)
    return found
