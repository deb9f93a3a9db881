"""The syntax tree of a schema and its canonical text."""

from __future__ import annotations

from math import isfinite
from typing import ClassVar, Literal, assert_never

from omnigraph.core.source import Span, span_field
from omnigraph.core.values import quote
from omnigraph.frozen import frozen
from omnigraph.lang import parsing
from omnigraph.lang.parsing import MAX_DIGITS, Literal_

# ---- The syntax tree of a schema
#
# Spans never take part in equality, so two trees are equal when their texts mean the same.


#: An argument: a literal, or a bare name.
Value = Literal_
TypeExpr = parsing.TypeExpr


@frozen
class Name:
    """A name and where it stands."""

    text: str
    span: Span = span_field()


@frozen
class Annotation:
    """`@name`, `@name(value)` or `@name(value, key=value)`."""

    name: str
    values: tuple[Value, ...] = ()
    keywords: tuple[tuple[Name, Value], ...] = ()
    span: Span = span_field()


@frozen
class Property:
    """`name: Type @annotation …`."""

    name: Name
    type: TypeExpr
    annotations: tuple[Annotation, ...] = ()
    span: Span = span_field()


@frozen
class MemberConstraint:
    """Body form of `@key`, `@unique` or `@index`; members other than bare names are refused later.

    An end of an edge is `src` or `@src` in the text, and the name `src` here.
    """

    kind: Literal["key", "unique", "index"]
    members: tuple[Value, ...]
    span: Span = span_field()


@frozen
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


@frozen
class RangeConstraint:
    """`@range(property, low..high)`, open on the side that is None."""

    kind: ClassVar = "range"
    property: Name
    low: Number | None
    high: Number | None
    span: Span = span_field()


@frozen
class CheckConstraint:
    """`@check(property, "regex")`."""

    kind: ClassVar = "check"
    property: Name
    pattern: str
    span: Span = span_field()


Constraint = MemberConstraint | RangeConstraint | CheckConstraint
Header = Annotation | Constraint
Member = Property | Constraint


@frozen
class Card:
    """`@card(min..max)`; no maximum when `high` is None."""

    low: Number
    high: Number | None
    span: Span = span_field()


@frozen
class InterfaceDecl:
    """A contract of properties."""

    name: Name
    properties: tuple[Property, ...]
    span: Span = span_field()


@frozen
class NodeDecl:
    """A node type. `headers` stand before the body; constraints among them are an error found later."""

    name: Name
    headers: tuple[Header, ...]
    implements: tuple[Name, ...]
    members: tuple[Member, ...]
    span: Span = span_field()


@frozen
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


@frozen
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


# ---- Printing a tree as canonical text


_INDENT = "    "


def print_schema(schema: Schema) -> str:
    """The text of a schema, one member per line."""
    return "\n".join(_declaration(item) for item in schema.declarations)


def _declaration(declaration: Declaration) -> str:
    match declaration:
        case InterfaceDecl(name, properties):
            return f"interface {name.text} {_body(properties)}"
        case NodeDecl(name, headers, implements, members):
            words = ["node", name.text, *map(_header, headers)]
            if implements:
                words.append("implements " + ", ".join(item.text for item in implements))
            return f"{' '.join(words)} {_body(members)}"
        case EdgeDecl(name, source, target, card, headers, members):
            words = ["edge", f"{name.text}:", source.text, "->", target.text]
            if card:
                high = card.high.text if card.high else ""
                words.append(f"@card({card.low.text}..{high})")
            words.extend(map(_header, headers))
            text = " ".join(words)
            return f"{text} {_body(members)}" if members else f"{text}\n"
        case _:
            assert_never(declaration)


def _body(members: tuple[Member, ...]) -> str:
    return "{\n" + "".join(f"{_INDENT}{_member(item)}\n" for item in members) + "}\n"


def _member(member: Member) -> str:
    if isinstance(member, Property):
        annotations = "".join(f" {_annotation(item)}" for item in member.annotations)
        return f"{member.name.text}: {member.type}{annotations}"
    return _constraint(member)


def _header(header: Header) -> str:
    return _annotation(header) if isinstance(header, Annotation) else _constraint(header)


def _constraint(constraint: Constraint) -> str:
    match constraint:
        case MemberConstraint(kind, members):
            return f"@{kind}({', '.join(map(_value, members))})"
        case RangeConstraint(name, low, high):
            bounds = f"{low.text if low else ''}..{high.text if high else ''}"
            return f"@range({name.text}, {bounds})"
        case CheckConstraint(name, pattern):
            return f"@check({name.text}, {quote(pattern)})"
        case _:
            assert_never(constraint)


def _annotation(annotation: Annotation) -> str:
    arguments = [_value(item) for item in annotation.values]
    arguments += [f"{name.text}={_value(value)}" for name, value in annotation.keywords]
    return f"@{annotation.name}({', '.join(arguments)})" if arguments else f"@{annotation.name}"


def _value(value: Value) -> str:
    return quote(value.value) if isinstance(value.value, str) and not value.bare else value.text
