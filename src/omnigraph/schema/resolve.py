"""Types as written → types of the system, with the findings of the type rules."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from omnigraph.syntax.suggest import did_you_mean
from omnigraph.types.kinds import (
    MAX_VECTOR_DIMENSION,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from omnigraph.schema import ast
    from omnigraph.syntax.source import Findings

_SCALARS = {scalar.value: scalar for scalar in Scalar}
_TYPE_WORDS = [*_SCALARS, "Vector", "enum"]


def resolve_type(expr: ast.TypeExpr, findings: Findings | None = None) -> PropertyType | None:
    """The type of an expression, or None when it is wrong; why it is wrong goes to `findings`."""
    base: BaseType | None
    match expr.form:
        case "enum":
            base = _enum(expr, findings)
        case "vector":
            base = _vector(expr, findings)
        case "list":
            base = _list(expr, findings)
        case "scalar":
            scalar = _scalar(expr, findings)
            base = None if scalar is None else ScalarType(scalar)
    return None if base is None else PropertyType(base, expr.nullable)


def _enum(expr: ast.TypeExpr, findings: Findings | None) -> EnumType | None:
    values = sorted(expr.values)
    repeated = next((value for value, after in pairwise(values) if value == after), None)
    if repeated is not None:
        if findings:
            findings.error("S-06", expr.span, f"enum value `{repeated}` is listed twice")
        return None
    return EnumType(tuple(values))


def _vector(expr: ast.TypeExpr, findings: Findings | None) -> VectorType | None:
    if not 1 <= expr.dimension <= MAX_VECTOR_DIMENSION:
        if findings:
            message = f"a vector has 1 to {MAX_VECTOR_DIMENSION} dimensions"
            findings.error("S-04", expr.span, message)
        return None
    return VectorType(expr.dimension)


def _list(expr: ast.TypeExpr, findings: Findings | None) -> ListType | None:
    scalar = _scalar(expr, findings)
    if scalar is Scalar.BLOB:
        if findings:
            findings.error("S-05", expr.span, "there is no list of Blob")
        return None
    return None if scalar is None else ListType(scalar)


def _scalar(expr: ast.TypeExpr, findings: Findings | None) -> Scalar | None:
    scalar = _SCALARS.get(expr.name)
    if scalar is None and findings:
        hint = partial(did_you_mean, expr.name, _TYPE_WORDS)
        findings.error("S-01", expr.span, f"found `{expr.name}`, expected a type", hint)
    return scalar
