"""Values, commits, changes, receipts and conflicts as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from omnigraph.cli.tables import counted, fit, text_table
from omnigraph.core.ids import short_id
from omnigraph.errors.text import one_line
from omnigraph.errors.writes import usable_strategies

if TYPE_CHECKING:
    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.api.results import ExampleChange, MutationResult
    from omnigraph.branches.changes import Cause, Change
    from omnigraph.branches.diffs import Diff, NetChange
    from omnigraph.commit.rows import GraphCommit, TypeChanges
    from omnigraph.errors import MergeConflict


# ---- Values side by side


#: Longest value in a line or a cell that holds several.
VALUE_WIDTH = 32


def value_text(value: object) -> str:
    """A value as JSON spells it: null, "null" and "" are three different things."""
    return json.dumps(value, ensure_ascii=False)


def compared(texts: Sequence[str], width: int = VALUE_WIDTH) -> list[str]:
    """Texts that differ, fitted: long ones begin shortly before the first difference between them."""
    long = [text for text in texts if len(text) > width]
    if len(set(long)) > 1:
        shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*long, strict=False))
        begin = sum(1 for _ in shared) - width // 3
        if begin > 1:
            texts = [f"…{text[begin:]}" if len(text) > width else text for text in texts]
    return [fit(text, width) for text in texts]


def image_values(image: Mapping[str, object]) -> dict[str, str]:
    """The values of a row image, by name and as text: the ends of an edge, then the properties."""
    parts = (image.get("endpoints"), image["properties"])
    return {name: value_text(value) for part in parts if isinstance(part, dict) for name, value in part.items()}


# ---- The history graph
#
# A lane is a column that waits for one commit, and no two lanes wait for the same one: they join as soon as they
# would. So a drawing is at most one column wider than its history has open ends::
#
#     ●   a merge opens a lane to its merged parent (├─╮),
#     ├─╮
#     │ │ ●   or is linked to the lane that waits for it already (├─│─┤),
#     ├─│─┤
#     │ ├─╯   and lanes to the same parent join (├─╯)
#     │ ●
#     ● │
#     ├─╯
#     ●
#
# A horizontal line passes behind a vertical one (`─│─`) without touching it. Parents that are not in the drawing are
# dotted: `┆` under a commit that has no other, `├┄` beside the lane to the one that is.


COMMIT_MARK = "●"
_LANE = "│"
_FREE = " "


def draw_commits(
    commits: Sequence[GraphCommit], heads: Mapping[str, Sequence[str]], describe: Callable[[GraphCommit], str]
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
        yield f"{_row(lanes, {column: COMMIT_MARK})} {_described(commit, heads, describe)}"

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


def _described(commit: GraphCommit, heads: Mapping[str, Sequence[str]], describe: Callable[[GraphCommit], str]) -> str:
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


def _connector(lanes: list[str | None], left: int, right: int, left_end: str, right_end: str) -> str:
    row = _row(lanes, {left: left_end, right: right_end})
    start, end = 2 * left + 1, 2 * right
    return row[:start] + row[start:end].replace(_FREE, "─") + row[end:]


def _row(lanes: list[str | None], marks: Mapping[int, str]) -> str:
    """A line of lanes, two cells wide each, with other characters than `│` in some columns."""
    cells = (marks.get(column, _FREE if awaited is None else _LANE) for column, awaited in enumerate(lanes))
    return " ".join(cells).rstrip()


# ---- Commits as lines


#: Room for the name of a branch: lines of commits with short ones stand in columns.
BRANCH_WIDTH = 8
#: Longest beginning of a message behind its commit.
_MESSAGE_WIDTH = 72


def commit_text(commit_id: str) -> str:
    """A commit id in a text for people: on a terminal its end, which every command takes too; otherwise in full."""
    return short_id(commit_id) if is_shown_on_a_terminal() else commit_id


def is_shown_on_a_terminal() -> bool:
    """Whether what is printed is for the eyes of a person."""
    return sys.stdout.isatty()


def commit_line(commit: GraphCommit, *, branch: str | None = None, branch_width: int = BRANCH_WIDTH) -> str:
    """One commit as a line; `branch` is what is said about its branch, if that is not the name alone."""
    name, actor = one_line(branch or commit.branch), one_line(commit.actor or "-")
    when = time_text(commit.created_at)
    line = f"{commit_text(commit.commit_id)}  {when}  {name:<{branch_width}} {commit.kind:<14} {actor}"
    return line if commit.message is None else f"{line}  {first_line(commit.message)}"


def first_line(message: str) -> str:
    """The beginning of a message, as a list of commits shows it."""
    line, *others = message.splitlines()
    return fit(one_line(f"{line} …" if others else line), _MESSAGE_WIDTH)


def cause_line(cause: Cause) -> str:
    """The commit behind a block of changes as a line."""
    merged, actor = cause.merged_parent_commit_id, cause.actor_id
    provenance = "" if merged is None else f", merged {commit_text(merged)}"
    author = "" if actor is None else f" by {one_line(actor)}"
    when = time_text(cause.authored_at)
    reason = "" if cause.message is None else f"  {first_line(cause.message)}"
    return f"commit {commit_text(cause.graph_commit_id)}  {when}  {cause.authored_branch}{author}{provenance}{reason}"


def time_text(microseconds: int) -> str:
    """A moment, to the second."""
    return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"


# ---- Changes of entities as lines


_MARKS = {"insert": "+", "update": "~", "delete": "-"}
#: Longest text of an inserted or deleted entity. Of an updated one, every change is shown.
_ROW_WIDTH = 100


def type_changes_line(changes: TypeChanges, *, width: int) -> str:
    """The numbers of changes in a type: `node:Person  +1 ~2 -0`."""
    counts = f"+{changes.inserted:,} ~{changes.updated:,} -{changes.deleted:,}"
    return f"  {changes.type_key:<{width}}  {counts}"


def change_line(change: Change | ExampleChange) -> str:
    """A change with what it did: `~ node Person 'Alice'  age: 30 → 31`."""
    line = _entity(change.op, change.kind, change.type_name, change.id)
    before, after = change.before, change.after
    row = after if after is not None else before
    if row is None:
        return line
    ends = row.get("endpoints")
    if isinstance(ends, dict):
        line += _ends(ends["from"], ends["to"])
    if before is not None and after is not None:
        told = _differences(image_values(before), image_values(after))
    else:
        told = fit(_properties(row), _ROW_WIDTH)
    return f"{line}  {told}" if told else line


def net_change_line(change: NetChange) -> str:
    """A difference: `~ node Person 'Alice'`, of an edge with its ends."""
    line = _entity(change.op, change.kind, change.type_name, change.id)
    ends = change.endpoints
    return line if ends is None else line + _ends(ends["from"], ends["to"])


def diff_lines(diff: Diff | ReportedDiff, one: str, other: str) -> Iterator[str]:
    """The differences between two states, and the number of them."""
    yield from map(net_change_line, diff)
    yield diff_summary(diff, one, other)


def diff_summary(diff: Diff | ReportedDiff, one: str, other: str) -> str:
    """The number of differences between two states, in a line."""
    names = f"from {one} to {other}"
    stats = diff.stats
    if not len(diff):
        return f"no differences {names}"
    types = counted(len(stats.types_affected), "type", form="d")
    return f"{stats.inserts:,} inserted, {stats.updates:,} updated, {stats.deletes:,} deleted in {types} {names}"


def _entity(op: str, kind: str, type_name: str, entity_id: str) -> str:
    return f"{_MARKS[op]} {kind} {type_name} '{one_line(entity_id)}'"


def _ends(source: str, target: str) -> str:
    return f" ({one_line(source)} → {one_line(target)})"


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    told = []
    for name in {**before, **after}:
        old, new = before.get(name, "null"), after.get(name, "null")
        if old != new:
            told.append(f"{name}: {' → '.join(compared([old, new]))}")
    return ", ".join(told)


def _properties(row: Mapping[str, object]) -> str:
    values = image_values({"properties": row["properties"]})
    present = {name: text for name, text in values.items() if text != "null"}
    return ", ".join(f"{name}: {fit(text, VALUE_WIDTH)}" for name, text in present.items())


# ---- Receipts of mutations


#: What statements about branches have done, by the names that they have in receipts; no query has such a name.
_BRANCH_STATEMENTS = {
    "branch create": "created branch",
    "branch delete": "deleted branch",
    "branch merge": "merged into",
}


def receipt_lines(result: MutationResult) -> Iterator[str]:
    """The receipt as a person reads it, or what would change."""
    nodes, edges = counted(result.affected_nodes, "node"), counted(result.affected_edges, "edge")
    if result.dry_run:
        yield f"{nodes}, {edges} would change on {result.branch}; nothing was written"
        yield from _preview_lines(result)
    elif result.query_name in _BRANCH_STATEMENTS:
        done = _BRANCH_STATEMENTS[result.query_name]
        commit = "" if result.commit is None else f" in commit {commit_text(result.commit.commit_id)}"
        yield f"{done} {result.branch}{commit}"
    elif result.commit is None:
        yield "nothing matched, nothing changed"
    else:
        yield f"{nodes}, {edges} in commit {commit_text(result.commit.commit_id)} on {result.branch}"
    if result.embedded:
        yield f"{counted(result.embedded, 'text')} {'would be embedded' if result.dry_run else 'embedded'}"
    yield from (value_text(dict(row)) for row in result.rows or ())


def _preview_lines(result: MutationResult) -> Iterator[str]:
    """The numbers of every type, and under them a few of its changes."""
    for change in result.changes:
        yield type_changes_line(change, width=max(len(item.type_key) for item in result.changes))
        examples = [item for item in result.examples if item.type_key == change.type_key]
        yield from (f"    {change_line(item)}" for item in examples)
        rest = change.inserted + change.updated + change.deleted - len(examples)
        if rest:
            yield f"    … and {rest:,} more"


# ---- Merge conflicts as tables


#: Conflicts that are shown; the rest is counted.
MAX_SHOWN = 50
_ID_WIDTH = 40
_ABSENT = "(none)"
_DELETED = "(deleted)"


def conflict_lines(source: str, target: str, conflicts: Sequence[MergeConflict], total: int) -> Iterator[str]:
    """Why a merge is not possible, the conflicts, and what to do about them."""
    yield f"{source} cannot be merged into {target}, nothing was changed: {counted(total, 'conflict')}"
    about_rows = [conflict for conflict in conflicts if conflict.kind.is_about_a_row][:MAX_SHOWN]
    others = [conflict for conflict in conflicts if not conflict.kind.is_about_a_row][:MAX_SHOWN]
    sides = (f"ours ({target})", f"theirs ({source})")
    yield from text_table(
        ("kind", "type", "id", "property", "base", *sides),
        [row for conflict in about_rows for row in _side_by_side(conflict)],
    )
    depends = any(conflict.with_strategy for conflict in others)
    yield from text_table(
        ("kind", "type", "id", "message", *(("arises with",) if depends else ())),
        [
            (*_names(conflict), fit(conflict.message, 2 * _ID_WIDTH), *((_condition(conflict),) if depends else ()))
            for conflict in others
        ],
    )
    if more := total - len(about_rows) - len(others):
        yield f"… and {more:,} more"
    if usable := " or ".join(usable_strategies(conflicts)):
        yield f"change one of the branches, or decide all of them with --strategy {usable}"
    else:
        yield "change one of the branches and merge again"


def _names(conflict: MergeConflict) -> tuple[str, str, str]:
    return str(conflict.kind), conflict.type_key, fit(conflict.entity_id or "-", _ID_WIDTH)


def _condition(conflict: MergeConflict) -> str:
    return "any decision" if conflict.with_strategy is None else f"--strategy {conflict.with_strategy}"


def _side_by_side(conflict: MergeConflict) -> Iterator[tuple[str, ...]]:
    """A row per property that differs; only the first of them names the conflict."""
    names = _names(conflict)
    for line in _differing(conflict) or [("-", *_of_sides(conflict, None))]:
        yield (*names, *line)
        names = ("", "", "")


def _differing(conflict: MergeConflict) -> list[tuple[str, ...]]:
    images = [image_values(row) for row in _rows(conflict) if row is not None]
    properties = {name: None for image in images for name in image}
    return [
        (name, *_of_sides(conflict, name))
        for name in properties
        if len({image.get(name, "null") for image in images}) > 1
    ]


def _of_sides(conflict: MergeConflict, name: str | None) -> list[str]:
    """One property at the base and on both sides, or the words for a side that has no row."""
    gone = _ABSENT if conflict.base is None else _DELETED
    rows = _rows(conflict)
    texts = ["" if name is None else image_values(row).get(name, "null") for row in rows if row is not None]
    shown = iter(compared(texts))
    return [gone if row is None else next(shown) for row in rows]


def _rows(conflict: MergeConflict) -> tuple[Mapping[str, object] | None, ...]:
    return conflict.base, conflict.ours, conflict.theirs
