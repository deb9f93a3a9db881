"""Syntax tree of a schema, as written: nothing resolved, nothing checked.

Spans never take part in equality, so two trees are equal when their texts mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from omnigraph.syntax.source import Span, span_field

#: Longer digit strings are out of range for every number of the language.
MAX_DIGITS = 40


@dataclass(frozen=True, slots=True)
class Name:
    """A name and where it stands."""

    text: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An argument: a literal, or a bare name when `bare` is set. Numbers keep their spelling in `text`."""

    value: str | int | float | bool
    text: str
    bare: bool = False
    span: Span = span_field()

    @property
    def name(self) -> str:
        """The property that the argument names, in a list of properties: `true` may be one."""
        return self.text if isinstance(self.value, bool) else str(self.value)

    @property
    def meaning(self) -> tuple[str, str | int | float | bool, bool]:
        """What the argument says; `1`, `1.0` and `true` are three different things."""
        return type(self.value).__name__, self.value, self.bare

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.meaning == other.meaning

    def __hash__(self) -> int:
        return hash(self.meaning)


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name`, `@name(value)` or `@name(value, key=value)`."""

    name: str
    values: tuple[Value, ...] = ()
    keywords: tuple[tuple[Name, Value], ...] = ()
    span: Span = span_field()


TypeForm = Literal["scalar", "list", "enum", "vector"]


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """A type as written. `name` is the scalar of a scalar or list type; it may not exist."""

    form: TypeForm
    nullable: bool
    name: str = ""
    values: tuple[str, ...] = ()
    dimension: int = 0
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Property:
    """`name: Type @annotation …`."""

    name: Name
    type: TypeExpr
    annotations: tuple[Annotation, ...] = ()
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class MemberConstraint:
    """Body form of `@key`, `@unique` or `@index`; members that are no bare names are an error found later."""

    kind: Literal["key", "unique", "index"]
    members: tuple[Value, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Number:
    """A bound of `@range` or `@card`, with its spelling."""

    text: str
    span: Span = span_field()

    @property
    def value(self) -> int | float:
        """The number itself: an integer when it is written as one. Check `is_reasonable` first."""
        if "." in self.text:
            return float(self.text)
        digits = self.text.removeprefix("-").lstrip("0")[:MAX_DIGITS] or "0"
        return -int(digits) if self.text.startswith("-") else int(digits)

    @property
    def is_reasonable(self) -> bool:
        """Whether the number fits 64 bits, or is at least a finite float."""
        if "." in self.text:
            return isfinite(float(self.text))
        return len(self.text.removeprefix("-").lstrip("0")) <= MAX_DIGITS


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """`@range(property, low..high)`, open on the side that is None."""

    property: Name
    low: Number | None
    high: Number | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`@check(property, "regex")`."""

    property: Name
    pattern: str
    span: Span = span_field()


Constraint = MemberConstraint | RangeConstraint | CheckConstraint
Header = Annotation | Constraint
Member = Property | Constraint


@dataclass(frozen=True, slots=True)
class Card:
    """`@card(min..max)`; no maximum when `high` is None."""

    low: Number
    high: Number | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class InterfaceDecl:
    """A contract of properties."""

    name: Name
    properties: tuple[Property, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class NodeDecl:
    """A node type. `headers` stand before the body; constraints among them are an error found later."""

    name: Name
    headers: tuple[Header, ...]
    implements: tuple[Name, ...]
    members: tuple[Member, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class EdgeDecl:
    """An edge type between two node types."""

    name: Name
    source: Name
    target: Name
    card: Card | None
    headers: tuple[Header, ...]
    members: tuple[Member, ...]
    span: Span = span_field()


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True, slots=True)
class Schema:
    """All declarations of one text, in source order."""

    declarations: tuple[Declaration, ...]


def annotations_of(headers: tuple[Header, ...]) -> tuple[Annotation, ...]:
    """The annotations among the headers of a declaration."""
    return tuple(item for item in headers if isinstance(item, Annotation))


def properties_of(members: tuple[Member, ...]) -> tuple[Property, ...]:
    """The properties of a body."""
    return tuple(item for item in members if isinstance(item, Property))


def constraints_of(members: tuple[Member, ...]) -> tuple[Constraint, ...]:
    """The body constraints of a body."""
    return tuple(item for item in members if not isinstance(item, Property))
