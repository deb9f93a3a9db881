"""Rows of JSON: the members of objects, and of the objects inside of them, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from omnigraph.pipeline.sources.column_map import ColumnMap, Nested, SourceColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NotAnObjectError(Exception):
    """A path leads through a value that has no members; never leaves the room."""

    def __init__(self, path: str, value: object) -> None:
        super().__init__(f"it has no `{path}`: the way there leads through a value that is not an object")
        self.value = value


#: Members of objects, by name, down to values.
_Members: TypeAlias = "dict[str, _Members]"


def json_columns(present: Sequence[str], wanted: Iterable[str]) -> SourceColumns:
    """The columns of some objects: the members that any of them has, and those that a mapping names."""
    names = dict.fromkeys(present)
    nested: dict[str, _Members] = {}
    for path in wanted:
        top, *rest = path.split(".")
        if path in names or top not in names or not rest:
            names.setdefault(path)
            continue
        inner = nested.setdefault(top, {})
        for step in rest:
            inner = inner.setdefault(step, {})
    found = {name: _struct(members) for name, members in nested.items()}
    return SourceColumns(names=tuple(names), nested=found, is_open=True)


def _struct(members: _Members) -> Nested:
    inner = {name: _struct(some) if some else None for name, some in members.items()}
    return Nested(kind="struct", members=inner)


def has_member(row: Mapping[str, object], path: str) -> bool:
    """Whether an object, or the objects inside of it, has a member, be it null."""
    if path in row or "." not in path:
        return path in row
    found: object = row
    for step in path.split("."):
        if not isinstance(found, dict) or step not in found:
            return False
        found = found[step]
    return True


def json_member(row: Mapping[str, object], path: str) -> object:
    """The member of an object, or of the objects inside of it; null when it is missing.

    Raises:
        NotAnObjectError: a value on the way is not an object.
    """
    if path in row or "." not in path:
        return row.get(path)
    found: object = row
    for step in path.split("."):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise NotAnObjectError(path, found)
        found = found.get(step)
    return found


def present_members(rows: Sequence[Mapping[str, object]], chosen: ColumnMap) -> dict[str, NDArray[np.bool_]]:
    """Of each property, which objects have a member that feeds it; without those that all objects have."""
    found: dict[str, NDArray[np.bool_]] = {}
    for name, source in chosen.properties.items():
        columns = [column for column in source.columns if column not in chosen.constants]
        mask = np.array([not columns or any(column in row for column in columns) for row in rows], dtype=bool)
        if not mask.all():
            found[name] = mask
    return found
