"""The history of a graph as a drawing: a line per commit, and lanes that lead down to its parents.

A lane is a column that waits for one commit, and no two lanes wait for the same one: they join as soon as they would.
So a drawing is at most one column wider than its history has open ends::

    ●   a merge opens a lane to its merged parent (├─╮),
    ├─╮
    │ │ ●   or is linked to the lane that waits for it already (├─│─┤),
    ├─│─┤
    │ ├─╯   and lanes to the same parent join (├─╯)
    │ ●
    ● │
    ├─╯
    ●

A horizontal line passes behind a vertical one (`─│─`) without touching it. Parents that are not in the drawing are
dotted: `┆` under a commit that has no other, `├┄` beside the lane to the one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from omnigraph.manifest.rows import GraphCommit

COMMIT_MARK = "●"
_LANE = "│"
_FREE = " "


def draw_commits(
    commits: Sequence[GraphCommit],
    heads: Mapping[str, Sequence[str]],
    describe: Callable[[GraphCommit], str],
) -> Iterator[str]:
    """The lines of the drawing, made one by one; time grows with commits × lanes.

    Args:
        commits: newest first, every commit before its parents. Parents that are not among them are drawn as cut off.
        heads: the branches whose head a commit is, by commit id; printed behind its text, in the given order.
        describe: the text of a commit, in one line.
    """
    #: The commit that each column waits for; None where a column is free.
    lanes: list[str | None] = []
    undrawn = {commit.commit_id for commit in commits}
    ended_column: int | None = None
    for commit in commits:
        undrawn.discard(commit.commit_id)
        column = _column_of(commit, lanes, ended_column)
        lanes[column] = commit.commit_id
        yield f"{_row(lanes, {column: COMMIT_MARK})} {_text(commit, heads, describe)}"

        parents = _parents(commit)
        drawn_later = [parent for parent in parents if parent in undrawn]
        if len(drawn_later) < len(parents):
            yield _cut_off(lanes, column, is_last=not drawn_later)
        if len(drawn_later) == 2:  # the merged parent first: the lane itself goes on to the parent
            yield _lead_to_merged_parent(lanes, column, drawn_later[1])
        if not drawn_later:
            lanes[column] = None
        elif drawn_later[0] in lanes:
            yield _join(lanes, column, lanes.index(drawn_later[0]))
        else:
            lanes[column] = drawn_later[0]
        ended_column = None if drawn_later else column
        while lanes and lanes[-1] is None:
            lanes.pop()


def _parents(commit: GraphCommit) -> list[str]:
    both = dict.fromkeys((commit.parent_id, commit.merged_parent_id))
    return [parent for parent in both if parent is not None]


def _text(
    commit: GraphCommit,
    heads: Mapping[str, Sequence[str]],
    describe: Callable[[GraphCommit], str],
) -> str:
    branches = heads.get(commit.commit_id)
    return f"{describe(commit)} ({', '.join(branches)})" if branches else describe(commit)


def _column_of(commit: GraphCommit, lanes: list[str | None], ended_column: int | None) -> int:
    """The column that waits for a commit, or a free one when nothing above leads to it."""
    if commit.commit_id in lanes:
        return lanes.index(commit.commit_id)
    # Right under a commit whose lane ended, it would look like the parent.
    free = (column for column in _free_columns(lanes) if column != ended_column)
    column = next(free, len(lanes))
    if column == ended_column:
        column += 1
    lanes.extend([None] * (column + 1 - len(lanes)))
    return column


def _free_columns(lanes: list[str | None]) -> Iterator[int]:
    return (column for column, awaited in enumerate(lanes) if awaited is None)


def _lead_to_merged_parent(lanes: list[str | None], column: int, merged_parent: str) -> str:
    """Link a merge to the lane of its merged parent; opens that lane in the nearest free column if there is none."""
    is_new = merged_parent not in lanes
    if is_new:
        if None not in lanes:
            lanes.append(None)
        # The nearest, because it crosses the fewest lanes; of two, the right one.
        other = min(_free_columns(lanes), key=lambda free: (abs(free - column), free < column))
        lanes[other] = merged_parent
    else:
        other = lanes.index(merged_parent)
    if other > column:
        return _connector(lanes, column, other, "├", "╮" if is_new else "┤")
    return _connector(lanes, other, column, "╭" if is_new else "├", "┤")


def _join(lanes: list[str | None], column: int, other: int) -> str:
    """Close the right one of two lanes that lead to the same commit, which is what `other` waits for."""
    left, right = sorted((column, other))
    line = _connector(lanes, left, right, "├", "╯")
    lanes[left], lanes[right] = lanes[other], None
    return line


def _cut_off(lanes: list[str | None], column: int, *, is_last: bool) -> str:
    if is_last:
        return _row(lanes, {column: "┆"})
    cells = list(_row(lanes, {column: "├"}).ljust(2 * column + 2))
    cells[2 * column + 1] = "┄"
    return "".join(cells)


def _connector(
    lanes: list[str | None], left: int, right: int, left_end: str, right_end: str
) -> str:
    row = _row(lanes, {left: left_end, right: right_end})
    start, end = 2 * left + 1, 2 * right
    return row[:start] + row[start:end].replace(_FREE, "─") + row[end:]


def _row(lanes: list[str | None], marks: Mapping[int, str]) -> str:
    """A line of lanes, two cells wide each, with other characters than `│` in some columns."""
    cells = (
        marks.get(column, _FREE if awaited is None else _LANE)
        for column, awaited in enumerate(lanes)
    )
    return " ".join(cells).rstrip()
