"""The columns that a source has: their names, and the members of those that hold several values at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.core.arrow import pa
from omnigraph.pipeline.load.columns import is_list_type
from omnigraph.pipeline.violations import shown

#: How many members a message names.
_SHOWN_MEMBERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """A column with values inside of its values: a struct with members, a map, or a list of such."""

    #: As a message calls it.
    kind: str
    #: The members of a struct; None for one that holds a single value.
    members: Mapping[str, Nested | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumns:
    """The columns of a file or a frame. A member of a struct has a path: `address.city`."""

    names: tuple[str, ...]
    nested: Mapping[str, Nested] = field(default_factory=dict)
    #: Columns that have one text, or null, in all records: they are in the names of folders.
    constants: Mapping[str, str | None] = field(default_factory=dict)
    #: The names of the index of a pandas frame, which is not read.
    index: tuple[str, ...] = ()
    #: Whether records may have further columns than these, as objects of JSON may.
    is_open: bool = False

    def with_partitions(self, partitions: Sequence[tuple[str, str | None]]) -> SourceColumns:
        """These columns and those of folders; what is in the file itself goes first."""
        more = {name: value for name, value in partitions if name not in self.names}
        return replace(self, names=(*self.names, *more), constants=more) if more else self

    def index_hint(self, names: Sequence[str]) -> str:
        """The hint for missing columns that are the index of a pandas frame."""
        found = next((name for name in names if name in self.index), None)
        if found is None:
            return ""
        return f"; `{shown(found)}` is the index of the frame: give `frame.reset_index()`"

    @property
    def paths(self) -> list[str]:
        """All columns, and the members of structs."""
        return [path for name in self.names for path in _paths(name, self.nested.get(name))]

    def find(self, path: str) -> tuple[str, ...] | None:
        """The steps to a column or a member; the name of a column goes before the path of a member."""
        return _find({name: self.nested.get(name) for name in self.names}, path)

    def nested_at(self, steps: Sequence[str]) -> Nested | None:
        """The columns nested in the values of a path; None for single values."""
        found = self.nested.get(steps[0])
        for step in steps[1:]:
            found = None if found is None else found.members.get(step)
        return found

    def text_about(self, path: str, nested: Nested) -> str:
        """The violation text of a nested column used as a value, with the two ways to fix it."""
        beside = next((name for name in self.names if name not in self.nested), None)
        chosen = [] if beside is None else [f'"{shown(beside)}"']
        text = f"the column `{shown(path)}` is a {nested.kind}, and a property holds one value"
        if not nested.members:
            inside = f'F.col("{path}")["key"]' if nested.kind == _MAP else f'F.col("{path}.member")'
            chosen.append(f'{inside}.alias("name")')
            return f"{text}: select what you need before, as in df.select({', '.join(chosen)})"
        leaf = next(iter(_leaves(path, nested)))
        name = leaf.rpartition(".")[2]
        members = [shown(member) for member in nested.members]
        some = ", ".join(members[:_SHOWN_MEMBERS]) + (", …" if len(members) > _SHOWN_MEMBERS else "")
        chosen.append(f'F.col("{leaf}").alias("{name}")')
        return (
            f"{text}. Its members are {some}: name them in the mapping, as in `columns: {{{leaf}: {name}}}`, "
            f"or select them before, as in df.select({', '.join(chosen)})"
        )


_STRUCT, _MAP = "struct", "map"


def plain_columns(names: Sequence[str]) -> SourceColumns:
    """Columns of single values, or of values that nothing is known about."""
    return SourceColumns(names=tuple(names))


def arrow_columns(schema: Any) -> SourceColumns:
    """The columns of Arrow data."""
    found = {item.name: _nested_arrow(item.type) for item in schema}
    return _columns(schema.names, found)


def spark_columns(schema: Any) -> SourceColumns:
    """The columns of a Spark frame."""
    found = {item.name: _nested_spark(item.dataType) for item in schema.fields}
    return _columns(schema.names, found)


def _columns(names: Sequence[str], found: Mapping[str, Nested | None]) -> SourceColumns:
    nested = {name: item for name, item in found.items() if item is not None}
    return SourceColumns(names=tuple(names), nested=nested)


def _nested_arrow(kind: Any) -> Nested | None:
    if pa.types.is_struct(kind):
        return Nested(kind=_STRUCT, members={item.name: _nested_arrow(item.type) for item in kind})
    if pa.types.is_map(kind):
        return Nested(kind=_MAP)
    inner = _nested_arrow(kind.value_type) if is_list_type(kind) else None
    return None if inner is None else Nested(kind=f"list of {inner.kind}s")


def _nested_spark(kind: Any) -> Nested | None:
    match kind.typeName():
        case "struct":
            members = {item.name: _nested_spark(item.dataType) for item in kind.fields}
            return Nested(kind=_STRUCT, members=members)
        case "map":
            return Nested(kind=_MAP)
        case "array":
            inner = _nested_spark(kind.elementType)
            return None if inner is None else Nested(kind=f"list of {inner.kind}s")
    return None


def _find(members: Mapping[str, Nested | None], path: str) -> tuple[str, ...] | None:
    if path in members:
        return (path,)
    for name, inner in members.items():
        if inner is not None and path.startswith(f"{name}."):
            rest = _find(inner.members, path.removeprefix(f"{name}."))
            if rest is not None:
                return (name, *rest)
    return None


def _paths(path: str, nested: Nested | None) -> Iterator[str]:
    yield path
    for name, inner in ({} if nested is None else nested.members).items():
        yield from _paths(f"{path}.{name}", inner)


def _leaves(path: str, nested: Nested | None) -> Iterator[str]:
    """The paths of single values."""
    if nested is None or not nested.members:
        yield path
        return
    for name, inner in nested.members.items():
        yield from _leaves(f"{path}.{name}", inner)
