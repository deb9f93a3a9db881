"""Conflicts of a merge as tables: what the branches disagree about, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.tables import fit, text_table
from omnigraph.cli.values import compared, image_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from omnigraph.errors import MergeConflict

#: Conflicts that are shown; the rest is counted.
MAX_SHOWN = 50
_ID_WIDTH = 40
_ABSENT = "(none)"
_DELETED = "(deleted)"


def conflict_lines(
    source: str, target: str, conflicts: Sequence[MergeConflict], total: int
) -> Iterator[str]:
    """Why a merge is not possible, the conflicts, and what to do about them."""
    count = "1 conflict" if total == 1 else f"{total:,} conflicts"
    yield f"{source} cannot be merged into {target}, nothing was changed: {count}"
    shown = conflicts[:MAX_SHOWN]
    about_rows = [conflict for conflict in shown if conflict.kind.is_about_a_row]
    others = [conflict for conflict in shown if not conflict.kind.is_about_a_row]
    sides = (f"ours ({target})", f"theirs ({source})")
    yield from text_table(
        ("kind", "type", "id", "property", "base", *sides),
        [row for conflict in about_rows for row in _side_by_side(conflict)],
    )
    yield from text_table(
        ("kind", "type", "id", "message"),
        [(*_names(conflict), fit(conflict.message, 2 * _ID_WIDTH)) for conflict in others],
    )
    if total > len(shown):
        yield f"… and {total - len(shown):,} more"
    if others:
        yield "change one of the branches and merge again"
    else:
        yield "change one of the branches, or decide all of them with --strategy ours or theirs"


def _names(conflict: MergeConflict) -> tuple[str, str, str]:
    return str(conflict.kind), conflict.type_key, fit(conflict.entity_id or "-", _ID_WIDTH)


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
    texts = [
        "" if name is None else image_values(row).get(name, "null")
        for row in rows
        if row is not None
    ]
    shown = iter(compared(texts))
    return [gone if row is None else next(shown) for row in rows]


def _rows(conflict: MergeConflict) -> tuple[Mapping[str, object] | None, ...]:
    return conflict.base, conflict.ours, conflict.theirs
