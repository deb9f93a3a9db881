"""Where values come from and how they are read, as a mapping says it; `transforms` does what is described here.

Plain values: they travel to tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.pipeline.date_formats import DateFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolWords:
    """The texts that stand for true and for false; the case of letters counts."""

    true: tuple[str, ...]
    false: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberForm:
    """How numbers are written: the decimal separator, and the one between groups of three digits, if any."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def pattern(self) -> str:
        """All of its numbers, in the syntax of RE2."""
        digits = "[0-9]+"
        if self.thousands is not None:
            digits = f"(?:[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        return f"^-?{digits}(?:{re.escape(self.decimal)}[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

    @property
    def description(self) -> str:
        """The form as a message shows it."""
        text = f"a number with the decimal separator {self.decimal!r}"
        return text if self.thousands is None else f"{text} and {self.thousands!r} every 3 digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The steps of one value."""

    trim: bool = False
    #: Texts that stand for null.
    null: tuple[str, ...] = ()
    #: What separates the items of a list.
    split: str | None = None
    words: BoolWords | None = None
    date_formats: tuple[DateFormat, ...] = ()
    number: NumberForm | None = None

    @property
    def is_typed(self) -> bool:
        """Whether a step makes something else of texts: a truth value, a date, a number."""
        return self.words is not None or bool(self.date_formats) or self.number is not None


def notation(value: bool | int) -> str:
    """A truth value or a whole number as CSV writes it, with all of its digits."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class FixedText:
    """A text that is the same in all records."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Where a value comes from, and how it is read: a column, several that are joined, or a fixed text."""

    #: Columns by name, or by the path of a member of a struct. Empty: the column that has the name of the property.
    parts: tuple[str | FixedText, ...]
    separator: str = ""
    transforms: Transforms = Transforms()
    #: Whether a text is made of the parts, also of a single one.
    is_joined: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(part for part in self.parts if isinstance(part, str))

    @property
    def plain_column(self) -> str | None:
        """The column whose values are taken as they are, if that is all."""
        return self.only_column if self.transforms == Transforms() else None

    @property
    def only_column(self) -> str | None:
        """The column, where there is one and no text is made of it."""
        is_single = len(self.parts) == 1 and not self.is_joined
        return self.parts[0] if is_single and isinstance(self.parts[0], str) else None


def column_source(name: str) -> ValueSource:
    """The values of a column as they are."""
    return ValueSource(parts=(name,))


#: What feeds an end of an edge: ids, or the members of a key by name.
EndSource = ValueSource | Mapping[str, ValueSource]
