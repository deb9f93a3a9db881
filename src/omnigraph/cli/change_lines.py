"""Changes of entities as lines: `+` came, `~` changed, `-` went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.tables import fit
from omnigraph.cli.values import VALUE_WIDTH, compared, image_values
from omnigraph.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.branches.changes import Change
    from omnigraph.branches.diffs import Diff, NetChange
    from omnigraph.wire.diffs import ReportedDiff

_MARKS = {"insert": "+", "update": "~", "delete": "-"}
#: Longest text about an entity that came or went. Of one that changed, every change is told.
_ROW_WIDTH = 100


def change_line(change: Change) -> str:
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


def diff_summary(diff: Diff | ReportedDiff, one: str, other: str) -> str:
    """How much differs between two states, in a line."""
    names = f"from {one} to {other}"
    stats = diff.stats
    if not len(diff):
        return f"no differences {names}"
    count = len(stats.types_affected)
    types = "1 type" if count == 1 else f"{count} types"
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
