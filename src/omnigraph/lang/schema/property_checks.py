"""Checks of one property, and the resolution of written types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Literal

from omnigraph.core.source import Findings, did_you_mean
from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.lang.parsing import SCALARS
from omnigraph.lang.schema import ast

# ---- Checks of properties and annotations


Owner = Literal["interface", "node", "edge"]

#: Columns that Lance adds to every row; a property of the same name would hide them.
VIRTUAL_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
_EDGE_RESERVED = frozenset({"src", "dst", "from", "to"})
_RULES = ("key", "unique", "index", "embed")
_TEXTS = ("description", "instruction")


def check_property(prop: ast.Property, type_: PropertyType | None, findings: Findings, *, owner: Owner) -> None:
    """Record what is wrong with one property; `type_` is None when its type is wrong already."""
    _check_reserved(prop, findings, owner)
    _check_repeated_rules(prop, findings)
    _check_texts(prop.annotations, findings, on_property=True)
    _check_rename(prop.annotations, findings)
    _check_single_values(prop.annotations, findings)
    for annotation in prop.annotations:
        if annotation.name not in _RULES:
            continue
        if owner == "edge" and annotation.name in ("key", "embed"):
            message = f"`@{annotation.name}` belongs to node types, not to a property of an edge"
            findings.error("S-16", annotation.span, message)
        elif type_ is not None:
            _check_rule_type(annotation, prop, type_, findings)
        if annotation.name == "embed":
            _check_embed_arguments(annotation, findings)


def check_header_annotations(headers: tuple[ast.Header, ...], findings: Findings) -> None:
    """Record what is wrong with the annotations of a declaration."""
    for header in headers:
        name = header.name if isinstance(header, ast.Annotation) else _constraint_word(header)
        if name in _RULES or not isinstance(header, ast.Annotation):
            message = f"`@{name}` belongs to a property or into the body, not on the declaration"
            findings.error("S-11", header.span, message)
    annotations = ast.annotations_of(headers)
    _check_texts(annotations, findings, on_property=False)
    _check_rename(annotations, findings)
    _check_single_values(annotations, findings)


def semantics_of(prop: ast.Property) -> tuple[object, ...]:
    """The meaning of a property, for comparing the contributions of two interfaces."""
    annotations = sorted(
        (a.name, [repr(v.meaning) for v in a.values], [(k.text, repr(v.meaning)) for k, v in a.keywords])
        for a in prop.annotations
        if a.name != "rename_from"
    )
    type_ = prop.type
    return (type_.form, type_.nullable, type_.name, sorted(type_.values), type_.dimension, annotations)


def _constraint_word(constraint: ast.Constraint) -> str:
    match constraint:
        case ast.MemberConstraint(kind):
            return kind
        case ast.RangeConstraint():
            return "range"
        case ast.CheckConstraint():
            return "check"


def _check_reserved(prop: ast.Property, findings: Findings, owner: Owner) -> None:
    name = prop.name.text
    if name in VIRTUAL_COLUMNS:
        findings.error("S-03", prop.name.span, f"`{name}` is a column of the storage layer")
    elif name == "id":
        hint = "the id of an entity is derived from its `@key`, or generated"
        findings.error("S-03", prop.name.span, "`id` is reserved: every entity has one", hint)
    elif owner == "edge" and name in _EDGE_RESERVED:
        findings.error("S-03", prop.name.span, f"`{name}` is reserved: it names an end of the edge")


def _check_repeated_rules(prop: ast.Property, findings: Findings) -> None:
    seen: set[str] = set()
    for annotation in prop.annotations:
        if annotation.name not in _RULES:
            continue
        if annotation.name in seen:
            findings.error("S-12", annotation.span, f"`@{annotation.name}` stands twice on `{prop.name.text}`")
        seen.add(annotation.name)


def _check_rule_type(annotation: ast.Annotation, prop: ast.Property, type_: PropertyType, findings: Findings) -> None:
    name, text = annotation.name, prop.name.text
    match type_.base:
        case ListType():
            findings.error("S-13", annotation.span, f"`@{name}` cannot stand on the list `{text}`")
        case VectorType() if name in ("key", "unique"):
            findings.error("S-14", annotation.span, f"`@{name}` cannot stand on the vector `{text}`")
        case ScalarType(Scalar.BLOB):
            findings.error("S-15", annotation.span, f"`@{name}` cannot stand on the Blob `{text}`")
        case VectorType():
            pass
        case _ if name == "embed":
            findings.error("S-17", annotation.span, f"`@embed` needs a vector, `{text}` is {type_}")


def _check_embed_arguments(annotation: ast.Annotation, findings: Findings) -> None:
    hint = 'write `@embed("source")` or `@embed("source", model="name")`'
    if not annotation.values or not str(annotation.values[0].value).strip():
        findings.error("S-17", annotation.span, "`@embed` names no source property", hint)
    elif not isinstance(annotation.values[0].value, str):
        findings.error("S-17", annotation.values[0].span, "`@embed` needs a property name", hint)
    for extra in annotation.values[1:]:
        findings.error("S-17", extra.span, "`@embed` takes one source", hint)
    for keyword, value in annotation.keywords:
        if keyword.text != "model":
            findings.error("S-17", keyword.span, f"`@embed` has no setting `{keyword.text}`", hint)
        elif not isinstance(value.value, str) or not value.value.strip():
            findings.error("S-17", value.span, "`model` is a non-empty string", hint)
    for keyword in _repeated(keyword for keyword, _ in annotation.keywords):
        findings.error("S-17", keyword.span, f"`{keyword.text}` is given twice", hint)


def _check_texts(annotations: Iterable[ast.Annotation], findings: Findings, *, on_property: bool) -> None:
    seen: Counter[str] = Counter()
    for annotation in annotations:
        if annotation.name not in _TEXTS:
            continue
        seen[annotation.name] += 1
        if on_property and annotation.name == "instruction":
            findings.error("S-18", annotation.span, "`@instruction` belongs to a node or edge, not to a property")
        elif seen[annotation.name] > 1:
            findings.error("S-18", annotation.span, f"`@{annotation.name}` is given twice")
        elif not _is_one_text(annotation):
            findings.error("S-18", annotation.span, f"`@{annotation.name}` needs one non-blank string")


def _check_rename(annotations: Iterable[ast.Annotation], findings: Findings) -> None:
    hints = [annotation for annotation in annotations if annotation.name == "rename_from"]
    for annotation in hints[1:]:
        findings.error("S-19", annotation.span, "`@rename_from` is given twice")
    for annotation in hints[:1]:
        if not _is_one_text(annotation):
            message = "`@rename_from` needs one non-blank name and nothing else"
            findings.error("S-19", annotation.span, message, 'write `@rename_from("OldName")`')


def _check_single_values(annotations: Iterable[ast.Annotation], findings: Findings) -> None:
    known = {*_RULES, *_TEXTS, "rename_from"}
    for annotation in annotations:
        for _, value in annotation.keywords:
            if value.bare:
                findings.error("S-01", value.span, "the value of a key is a literal", 'write `key="value"`')
        if annotation.name in known:
            continue
        first_key = annotation.keywords[0][0].span.start if annotation.keywords else None
        is_ordered = first_key is None or (len(annotation.values) == 1 and annotation.values[0].span.start < first_key)
        if len(annotation.values) > 1 or not is_ordered:
            findings.error("S-01", annotation.span, f"`@{annotation.name}` takes one value and then `key=value` pairs")


def _is_one_text(annotation: ast.Annotation) -> bool:
    if len(annotation.values) != 1 or annotation.keywords:
        return False
    value = annotation.values[0].value
    return isinstance(value, str) and bool(value.strip())


def _repeated(names: Iterable[ast.Name]) -> list[ast.Name]:
    seen: set[str] = set()
    again: list[ast.Name] = []
    for name in names:
        if name.text in seen:
            again.append(name)
        seen.add(name.text)
    return again


# ---- Resolution of written types


_TYPE_CODES = {"unknown": "S-01", "vector": "S-04", "list": "S-05", "enum": "S-06"}
_TYPE_WORDS = [*SCALARS, "Vector", "enum"]


def resolve_type(expr: ast.TypeExpr, findings: Findings | None = None) -> PropertyType | None:
    """The type of an expression, or None when it is wrong; why it is wrong goes to `findings`."""
    type_ = expr.resolved()
    if isinstance(type_, PropertyType):
        return type_
    if findings and type_.kind == "unknown":
        hint = partial(did_you_mean, expr.name, _TYPE_WORDS)
        findings.error("S-01", expr.span, f"found `{expr.name}`, expected a type", hint)
    elif findings:
        findings.error(_TYPE_CODES[type_.kind], expr.span, type_.message)
    return None
