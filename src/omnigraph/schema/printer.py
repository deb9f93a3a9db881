"""Syntax tree → canonical schema text; parsing the text gives an equal tree."""

from __future__ import annotations

from typing import assert_never

from omnigraph.schema import ast
from omnigraph.types.values import quote

_INDENT = "    "


def print_schema(schema: ast.Schema) -> str:
    """The text of a schema, one member per line."""
    return "\n".join(_declaration(item) for item in schema.declarations)


def _declaration(declaration: ast.Declaration) -> str:
    match declaration:
        case ast.InterfaceDecl(name, properties):
            return f"interface {name.text} {_body(properties)}"
        case ast.NodeDecl(name, headers, implements, members):
            words = ["node", name.text, *map(_header, headers)]
            if implements:
                words.append("implements " + ", ".join(item.text for item in implements))
            return f"{' '.join(words)} {_body(members)}"
        case ast.EdgeDecl(name, source, target, card, headers, members):
            words = ["edge", f"{name.text}:", source.text, "->", target.text]
            if card:
                high = card.high.text if card.high else ""
                words.append(f"@card({card.low.text}..{high})")
            words.extend(map(_header, headers))
            text = " ".join(words)
            return f"{text} {_body(members)}" if members else f"{text}\n"
        case _:
            assert_never(declaration)


def _body(members: tuple[ast.Member, ...]) -> str:
    return "{\n" + "".join(f"{_INDENT}{_member(item)}\n" for item in members) + "}\n"


def _member(member: ast.Member) -> str:
    if isinstance(member, ast.Property):
        annotations = "".join(f" {_annotation(item)}" for item in member.annotations)
        return f"{member.name.text}: {_type(member.type)}{annotations}"
    return _constraint(member)


def _header(header: ast.Header) -> str:
    return _annotation(header) if isinstance(header, ast.Annotation) else _constraint(header)


def _constraint(constraint: ast.Constraint) -> str:
    match constraint:
        case ast.MemberConstraint(kind, members):
            return f"@{kind}({', '.join(map(_value, members))})"
        case ast.RangeConstraint(name, low, high):
            bounds = f"{low.text if low else ''}..{high.text if high else ''}"
            return f"@range({name.text}, {bounds})"
        case ast.CheckConstraint(name, pattern):
            return f"@check({name.text}, {quote(pattern)})"
        case _:
            assert_never(constraint)


def _annotation(annotation: ast.Annotation) -> str:
    arguments = [_value(item) for item in annotation.values]
    arguments += [f"{name.text}={_value(value)}" for name, value in annotation.keywords]
    return f"@{annotation.name}({', '.join(arguments)})" if arguments else f"@{annotation.name}"


def _value(value: ast.Value) -> str:
    return quote(value.value) if isinstance(value.value, str) and not value.bare else value.text


def _type(type_: ast.TypeExpr) -> str:
    match type_.form:
        case "scalar":
            text = type_.name
        case "list":
            text = f"[{type_.name}]"
        case "enum":
            text = f"enum({', '.join(type_.values)})"
        case "vector":
            text = f"Vector({type_.dimension})"
    return f"{text}?" if type_.nullable else text
