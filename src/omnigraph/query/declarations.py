"""Checks of a declaration that need no schema: parameters and annotations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.query import ast, ir
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.types.kinds import (
    MAX_VECTOR_DIMENSION,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from omnigraph.syntax.source import Findings

_SCALARS = {scalar.value: scalar for scalar in Scalar}


def check_declaration(
    query: ast.Query, findings: Findings, types: dict[str, PropertyType | None] | None = None
) -> tuple[ir.Parameter, ...]:
    """The parameters of a query; what is wrong with them or with the annotations goes to `findings`.

    `types` gets the type of every parameter name, None where the type is wrong.
    """
    types = {} if types is None else types
    params: list[ir.Parameter] = []
    for param in query.params:
        base = _param_type(findings, param)
        if param.name.startswith("__"):
            message = f"`${param.name}`: names that begin with `$__` are reserved"
            findings.error("Q103", param.span, message)
        elif param.name == ast.ANONYMOUS:
            findings.error("Q103", param.span, "`$_` is the anonymous variable, not a parameter")
        elif param.name in types:
            findings.error("Q102", param.span, f"parameter `${param.name}` is declared twice")
            continue
        type_ = None if base is None else PropertyType(base, param.nullable)
        types[param.name] = type_
        if type_ is not None:
            params.append(ir.Parameter(name=param.name, type=type_))
    _check_notes(findings, query)
    return tuple(params)


def _param_type(findings: Findings, param: ast.Param) -> BaseType | None:
    written = param.type
    if written.form == "vector":
        if 1 <= written.dimension <= MAX_VECTOR_DIMENSION:
            return VectorType(written.dimension)
        message = f"a vector has 1 to {MAX_VECTOR_DIMENSION} dimensions"
        findings.error("Q105", written.span, message)
        return None
    scalar = _SCALARS.get(written.name)
    if scalar is None:
        hint = partial(did_you_mean, written.name, [*_SCALARS, "Vector"])
        findings.error("Q105", written.span, f"`{written.name}` is not a parameter type", hint)
        return None
    if written.form == "scalar":
        return ScalarType(scalar)
    if scalar is Scalar.BLOB:
        findings.error("Q105", written.span, "there is no list of Blob")
        return None
    return ListType(scalar)


def _check_notes(findings: Findings, query: ast.Query) -> None:
    seen: set[str] = set()
    for note in query.notes:
        if note.kind in seen:
            findings.error("Q116", note.span, f"`@{note.kind}` is given twice")
        elif not note.text.strip():
            findings.error("Q116", note.span, f"`@{note.kind}` is blank")
        seen.add(note.kind)
