"""Columns and rows of mapped sources → records of a type: what feeds what is known, and nothing is read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.null_texts import refuse_null_texts
from omnigraph.pipeline.shaping import RawRecords
from omnigraph.pipeline.source_columns import Nested, SourceColumns
from omnigraph.pipeline.transforms import MappedColumn
from omnigraph.pipeline.value_sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.pipeline.column_map import ColumnMap
    from omnigraph.pipeline.plan import EntityShape

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute


def raw_records(
    shape: EntityShape, batch: Any, chosen: ColumnMap, numbers: Any, *, is_text: bool = False
) -> RawRecords:
    """Mapped columns of a batch, or of a dictionary of lists, as records of a type.

    Raises:
        BadRequestError: the texts for null of a value cannot be values of its column.
    """
    names = set(batch if isinstance(batch, dict) else batch.schema.names)

    def column(path: str) -> Any:
        if path in chosen.constants:
            return pa.repeat(pa.scalar(chosen.constants[path], pa.utf8()), len(numbers))
        steps = () if path in names else chosen.steps[path]
        found = batch[steps[0] if steps else path]
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return pc.struct_field(found, list(steps[1:])) if steps else found

    def values(source: ValueSource) -> Any:
        is_constant = bool(source.columns) and chosen.constants.keys() >= set(source.columns)
        if source.plain_column is not None and not is_constant:
            return column(source.plain_column)
        columns = {name: column(name) for name in source.columns}
        for name, found in columns.items():
            if not isinstance(found, list):
                refuse_null_texts(source, name, found.type, shape.name)
        return MappedColumn(
            source=source,
            columns=columns,
            count=len(numbers),
            # The names of folders have no types either.
            is_text=is_text or is_constant,
        )

    def ids(source: ValueSource) -> Any:
        found = values(source)
        if not isinstance(found, list):
            return found
        # Numbers are ids in tables, whatever format they are written in.
        return [str(item) if type(item) is int else item for item in found]

    ends: Any = None
    if chosen.ends is not None:
        ends = tuple(
            ids(end)
            if isinstance(end, ValueSource)
            else {member: values(source) for member, source in end.items()}
            for end in chosen.ends
        )
    plain = {name: source.only_column for name, source in chosen.properties.items()}
    for side, end in zip(("from", "to"), chosen.ends or (), strict=False):
        if not isinstance(end, ValueSource):
            plain |= {f"{side}.{member}": source.only_column for member, source in end.items()}
    return RawRecords(
        shape=shape,
        columns={name: values(source) for name, source in chosen.properties.items()},
        ids=None if chosen.id is None else ids(chosen.id),
        ends=ends,
        lines=numbers,
        is_text=is_text,
        timestamps=chosen.timestamps,
        plain={name: found for name, found in plain.items() if found is not None},
    )


# ---- rows of JSON


class NotAnObjectError(Exception):
    """A path leads through a value that has no members; never leaves the room."""

    def __init__(self, path: str, value: object) -> None:
        super().__init__(
            f"it has no `{path}`: the way there leads through a value that is not an object"
        )
        self.value = value


def json_columns(present: Sequence[str], wanted: Iterable[str]) -> SourceColumns:
    """The columns of some objects: the members that any of them has, and those that a mapping names."""
    names = dict.fromkeys(present)
    nested: dict[str, dict[str, Any]] = {}
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


def _struct(members: dict[str, Any]) -> Nested:
    inner = {name: _struct(some) if some else None for name, some in members.items()}
    return Nested(kind="struct", members=inner)


def json_member(row: dict[str, Any], path: str) -> Any:
    """The member of an object, or of the objects inside of it; null when it is missing.

    Raises:
        NotAnObjectError: a value on the way is not an object.
    """
    if path in row or "." not in path:
        return row.get(path)
    found: Any = row
    for step in path.split("."):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise NotAnObjectError(path, found)
        found = found.get(step)
    return found
