"""Lists that notebooks and terminals show as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from omnigraph.display.tables import Column, Table
from omnigraph.display.text import counted

Item = TypeVar("Item")
#: Items that are shown.
_SHOWN = 20


class Listing(list[Item]):
    """A list as any other; only its look differs. Parts and copies of it are plain lists."""

    def __init__(self, items: Iterable[Item], columns: Callable[[Sequence[Item]], Sequence[Column]], name: str) -> None:
        super().__init__(items)
        self._columns = columns
        self._name = name

    def _table(self) -> Table:
        note = counted(len(self), self._name, f"{self._name}es" if self._name.endswith("h") else None)
        if len(self) > _SHOWN:
            note = f"first {_SHOWN} of {note}"
        return Table(columns=self._columns(list(self[:_SHOWN])), note=note)

    def __repr__(self) -> str:
        return "\n".join(self._table().lines())

    def _repr_html_(self) -> str:
        return self._table().html()
