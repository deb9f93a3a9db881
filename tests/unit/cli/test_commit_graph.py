"""Drawings of histories: exact ones of the shapes that people meet, and random ones read back into edges."""

from __future__ import annotations

import random
from collections import defaultdict
from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.rendering import COMMIT_MARK, draw_commits
from omnigraph.commit.rows import GraphCommit
from support.subtests import named_cases

#: Who a commit id stands for: (id, parent, merged parent), newest first.
History = list[tuple[str, str | None, str | None]]


def history(text: str) -> History:
    """Commits from words like `merge<left+right`: an id, its parent and its merged parent."""
    commits: History = []
    for word in text.split():
        commit_id, _, parents = word.partition("<")
        parent, _, merged_parent = parents.partition("+")
        commits.append((commit_id, parent or None, merged_parent or None))
    return commits


def draw(commits: History, heads: dict[str, list[str]] | None = None) -> list[str]:
    drawn = [
        GraphCommit(
            commit_id=commit_id,
            graph_version=len(commits) - position,
            branch="main",
            parent_id=parent,
            merged_parent_id=merged_parent,
            created_at=0,
            kind="load",
            operation_id="",
            schema_hash="",
        )
        for position, (commit_id, parent, merged_parent) in enumerate(commits)
    ]
    return list(draw_commits(drawn, heads or {}, lambda commit: commit.commit_id))


SHAPES = {
    "linear": (
        "c<b b<a a",
        """
        ● c
        ● b
        ● a
        """,
    ),
    "one branch, merged": (
        "merge<ours+theirs ours<base theirs<base base",
        """
        ● merge
        ├─╮
        ● │ ours
        │ ● theirs
        ├─╯
        ● base
        """,
    ),
    "one branch, merged, its commit made last": (
        "merge<ours+theirs theirs<base ours<base base",
        """
        ● merge
        ├─╮
        │ ● theirs
        ● │ ours
        ├─╯
        ● base
        """,
    ),
    "a fast-forward with two parents": (
        "merge<base+second second<first first<base base",
        """
        ● merge
        ├─╮
        │ ● second
        │ ● first
        ├─╯
        ● base
        """,
    ),
    "two branches of one commit, both merged": (
        "right-merge<left-merge+right left-merge<base+left right<base left<base base",
        """
        ● right-merge
        ├─╮
        ● │ left-merge
        ├─│─╮
        │ ● │ right
        ├─╯ │
        │   ● left
        ├───╯
        ● base
        """,
    ),
    "two branches of one commit, none merged": (
        "right<base left<base main<base base",
        """
        ● right
        │ ● left
        ├─╯
        │ ● main
        ├─╯
        ● base
        """,
    ),
    "criss-cross": (
        "left-merge<left+right right-merge<right+left right<base left<base base",
        """
        ● left-merge
        ├─╮
        │ │ ● right-merge
        ├─│─┤
        │ ├─╯
        │ ● right
        ● │ left
        ├─╯
        ● base
        """,
    ),
    "a branch that takes main in twice": (
        "b3<b2+m2 m2<m1 b2<b1+m1 m1<base b1<base base",
        """
        ● b3
        ├─╮
        │ ● m2
        ● │ b2
        ├─┤
        │ ● m1
        ● │ b1
        ├─╯
        ● base
        """,
    ),
    "a merge into the right lane": (
        "main<m1 branch<b1+m1 b1<base m1<base base",
        """
        ● main
        │ ● branch
        ├─┤
        │ ● b1
        ● │ m1
        ├─╯
        ● base
        """,
    ),
    "a free lane on the left is used again": (
        "other topic<start root-of-other merge<start+side side<start start",
        """
        ● other
          ● topic
        ● │ root-of-other
          │ ● merge
        ╭─│─┤
        │ ├─╯
        ● │ side
        ├─╯
        ● start
        """,
    ),
    "a merge opens a lane on the left": (
        "root main<merge merge<start+side side<start start",
        """
        ● root
          ● main
          ● merge
        ╭─┤
        ● │ side
        ├─╯
        ● start
        """,
    ),
    "several roots": (
        "b2<b1 b1 a2<a1 a1",
        """
        ● b2
        ● b1
          ● a2
          ● a1
        """,
    ),
    "a root beside a lane": (
        "main<base stray base",
        """
        ● main
        │ ● stray
        ● base
        """,
    ),
    "a parent that is cut off": (
        "c<b b<a",
        """
        ● c
        ● b
        ┆
        """,
    ),
    "the parent of a branch that is cut off": (
        "main<base branch<lost base",
        """
        ● main
        │ ● branch
        │ ┆
        ● base
        """,
    ),
    "a merged parent that is cut off": (
        "main<a merge<a+lost a",
        """
        ● main
        │ ● merge
        │ ├┄
        ├─╯
        ● a
        """,
    ),
    "a cut-off merged parent beside another lane": (
        "merge<base+side upper<base+lost side<base base",
        """
        ● merge
        ├─╮
        │ │ ● upper
        │ │ ├┄
        ├─│─╯
        │ ● side
        ├─╯
        ● base
        """,
    ),
    "a first parent that is cut off": (
        "merge<lost+side side",
        """
        ● merge
        ├┄
        ● side
        """,
    ),
    "both parents cut off": (
        "merge<lost+gone",
        """
        ● merge
        ┆
        """,
    ),
    "one parent given twice": (
        "merge<base+base base",
        """
        ● merge
        ● base
        """,
    ),
}


@named_cases(("commits", "drawing"), SHAPES)
def test_a_history_is_drawn_as_people_expect(commits: str, drawing: str) -> None:
    assert draw(history(commits)) == dedent(drawing).strip("\n").splitlines()


def test_heads_are_named_behind_their_commit() -> None:
    commits = history("main<base side<base base")
    heads = {"main": ["main", "review"], "side": ["side"], "elsewhere": ["old"], "base": []}
    assert draw(commits, heads) == ["● main (main, review)", "│ ● side (side)", "├─╯", "● base"]


def test_no_commits_are_no_lines() -> None:
    assert draw([]) == []


@st.composite
def histories(draw_from: st.DrawFn) -> History:
    """Any graph of commits with up to two parents each, some of them roots, tips or children of unknown commits."""
    count = draw_from(st.integers(1, 24))
    reach = draw_from(st.integers(1, count))
    commits: History = []
    for position in range(count):
        older = range(position + 1, min(position + 1 + reach, count))
        parent = st.sampled_from([None, "lost", *map(str, older)])
        # Most commits have a parent in the history; a plain choice would mostly draw roots at its end.
        likely = st.sampled_from(list(map(str, older))) if older else parent
        first = draw_from(likely | likely | likely | parent)
        commits.append((str(position), first, draw_from(st.none() | parent)))
    return commits


@given(histories())
def test_every_commit_is_drawn_once_in_the_given_order(commits: History) -> None:
    lines = [line for line in draw(commits) if COMMIT_MARK in line]
    assert [line.rsplit(" ", 1)[1] for line in lines] == [commit_id for commit_id, *_ in commits]
    assert all(line.count(COMMIT_MARK) == 1 for line in lines)
    assert all(line.index(COMMIT_MARK) % 2 == 0 for line in lines)


@given(histories())
def test_the_drawn_edges_are_the_parents(commits: History) -> None:
    assert edges_of_drawing(draw(commits)) == edges_of(commits)


@given(histories())
def test_a_drawing_is_no_wider_than_its_open_ends(commits: History) -> None:
    assert width(draw(commits)) <= most_open_ends(commits) + 1


@given(histories())
def test_no_line_ends_with_a_blank(commits: History) -> None:
    assert all(line and line == line.rstrip() for line in draw(commits))


def test_a_large_history_stays_narrow_and_whole() -> None:
    commits = branches_that_merge(commits=2_000, branches=30)
    lines = draw(commits)
    assert edges_of_drawing(lines) == edges_of(commits)
    assert width(lines) <= most_open_ends(commits) + 1
    # At most one line leads to each parent.
    assert len(lines) <= 3 * len(commits)


def branches_that_merge(*, commits: int, branches: int) -> History:
    chance = random.Random(7)
    heads = dict.fromkeys(range(branches), "0")
    made: History = [("0", None, None)]
    for number in range(1, commits):
        branch = chance.randrange(branches)
        merged = heads[chance.randrange(branches)] if chance.random() < 0.2 else None
        made.append((str(number), heads[branch], merged))
        heads[branch] = str(number)
    return made[::-1]


def edges_of(commits: History) -> set[tuple[str, str]]:
    drawn = {commit_id for commit_id, *_ in commits}
    return {(child, str(parent)) for child, *both in commits for parent in both if parent in drawn}


def most_open_ends(commits: History) -> int:
    """The most commits that any line has to lead to, together with the commit of that line."""
    drawn = {commit_id for commit_id, *_ in commits}
    awaited: set[str] = set()
    most = 0
    for commit_id, *parents in commits:
        most = max(most, len(awaited | {commit_id}))
        awaited.discard(commit_id)
        awaited |= {parent for parent in parents if parent in drawn}
        # While its connectors are drawn, the lane of a commit is still open.
        most = max(most, len(awaited) + 1)
    return most


def width(lines: list[str]) -> int:
    """Columns of the widest line."""
    return max((len(lanes(line)) + 1) // 2 for line in lines)


def lanes(line: str) -> str:
    """A line without the text of its commit."""
    return line.rsplit(" ", 1)[0] if COMMIT_MARK in line else line


def edges_of_drawing(lines: list[str]) -> set[tuple[str, str]]:
    """The edges that somebody sees who follows the characters downwards, from child to parent.

    Knows the strokes of the characters and one rule: only a commit right above a connector line takes its turning,
    whoever else passes goes straight on.
    """
    edges: set[tuple[str, str]] = set()
    #: The commits whose edges leave the line above, by position in the line.
    arriving: dict[int, set[str]] = {}
    above = ""
    for line in lines:
        strokes = lanes(line)
        assert all(position < len(strokes) for position in arriving if is_continued(above, position))
        leaving: dict[int, set[str]] = defaultdict(set)
        ends = [position for position, stroke in enumerate(strokes) if stroke in "├┤╭╮╯"]
        for position, stroke in enumerate(strokes):
            came = arriving.get(position, set())
            if stroke == COMMIT_MARK:
                commit_id = line.rsplit(" ", 1)[1]
                edges |= {(child, commit_id) for child in came}
                leaving[position] = {commit_id}
            elif stroke == "╯":
                leaving[ends[0]] |= came
            elif stroke in "│├┤":
                assert came, f"{stroke} hangs in the air: {line}"
                leaving[position] |= came
                if stroke != "│" and above[position] == COMMIT_MARK and len(ends) == 2:
                    other = ends[0] + ends[1] - position
                    if strokes[other] != "╯":
                        leaving[other] |= came
            elif stroke == " ":
                assert not is_continued(above, position), f"a lane breaks off: {line}"
        arriving, above = leaving, strokes
    return edges


def is_continued(strokes: str, position: int) -> bool:
    """Whether a character must have something under it; a commit may be a root."""
    return position < len(strokes) and strokes[position] in "│├┤╭╮"
