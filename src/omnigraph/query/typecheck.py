"""Type-check of one query: syntax tree and catalog in, intermediate representation and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.query import ast, ir
from omnigraph.query.lower import lower_pattern
from omnigraph.query.mutations import check_statement
from omnigraph.query.patterns import check_pattern
from omnigraph.query.results import check_result
from omnigraph.query.scope import Context, Scope
from omnigraph.syntax import did_you_mean
from omnigraph.types import (
    MAX_VECTOR_DIMENSION,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)

if TYPE_CHECKING:
    from omnigraph.schema import Catalog
    from omnigraph.syntax import Findings

_SCALARS = {scalar.value: scalar for scalar in Scalar}


def check_query(query: ast.Query, catalog: Catalog, findings: Findings) -> ir.QueryIR | None:
    """The meaning of a query, or None when it is wrong; why goes to `findings`.

    The rule that one mutation either writes or deletes (D2) is the last to be checked.
    """
    context = Context(catalog, findings, {})
    before = findings.error_count
    params = _check_params(context, query)
    _check_notes(context, query)
    result: ir.QueryIR | None
    match query.body:
        case ast.ReadBody():
            result = _check_read(context, query, query.body, params)
        case ast.MutationBody(statements):
            checked = [check_statement(context, statement) for statement in statements]
            result = ir.MutationIR(
                name=query.name,
                params=params,
                statements=tuple(item for item in checked if item is not None),
            )
            if findings.error_count == before and is_mixed(query):
                _report_mixed(context, query, statements)
    return result if findings.error_count == before else None


def _check_read(
    context: Context, query: ast.Query, body: ast.ReadBody, params: tuple[ir.Parameter, ...]
) -> ir.ReadIR | None:
    scope = Scope()
    before = context.findings.error_count
    pattern = check_pattern(context, body.clauses, scope)
    result = check_result(context, scope, body)
    if context.findings.error_count > before:
        return None
    return ir.ReadIR(
        name=query.name,
        params=params,
        pipeline=lower_pattern(context, pattern),
        projections=result.projections,
        grouped=result.grouped,
        rank=result.rank,
        order=result.order,
        limit=result.limit,
    )


def _check_params(context: Context, query: ast.Query) -> tuple[ir.Parameter, ...]:
    params: list[ir.Parameter] = []
    for param in query.params:
        base = _param_type(context, param)
        if param.name.startswith("__"):
            message = f"`${param.name}`: names that begin with `$__` are reserved"
            context.error("Q103", param.span, message)
        elif param.name == ast.ANONYMOUS:
            context.error("Q103", param.span, "`$_` is the anonymous variable, not a parameter")
        elif param.name in context.params:
            context.error("Q102", param.span, f"parameter `${param.name}` is declared twice")
            continue
        type_ = None if base is None else PropertyType(base, param.nullable)
        context.params[param.name] = type_
        if type_ is not None:
            params.append(ir.Parameter(name=param.name, type=type_))
    return tuple(params)


def _param_type(context: Context, param: ast.Param) -> BaseType | None:
    written = param.type
    if written.form == "vector":
        if 1 <= written.dimension <= MAX_VECTOR_DIMENSION:
            return VectorType(written.dimension)
        message = f"a vector has 1 to {MAX_VECTOR_DIMENSION} dimensions"
        context.error("Q105", written.span, message)
        return None
    scalar = _SCALARS.get(written.name)
    if scalar is None:
        hint = did_you_mean(written.name, [*_SCALARS, "Vector"])
        context.error("Q105", written.span, f"`{written.name}` is not a parameter type", hint)
        return None
    if written.form == "scalar":
        return ScalarType(scalar)
    if scalar is Scalar.BLOB:
        context.error("Q105", written.span, "there is no list of Blob")
        return None
    return ListType(scalar)


def _check_notes(context: Context, query: ast.Query) -> None:
    seen: set[str] = set()
    for note in query.notes:
        if note.kind in seen:
            context.error("Q116", note.span, f"`@{note.kind}` is given twice")
        elif not note.text.strip():
            context.error("Q116", note.span, f"`@{note.kind}` is blank")
        seen.add(note.kind)


def is_mixed(query: ast.Query) -> bool:
    """Whether a mutation both writes and deletes (D2)."""
    if not isinstance(query.body, ast.MutationBody):
        return False
    deletes = {isinstance(statement, ast.Delete) for statement in query.body.statements}
    return len(deletes) == 2


def _report_mixed(
    context: Context, query: ast.Query, statements: tuple[ast.Statement, ...]
) -> None:
    first = next(statement for statement in statements if isinstance(statement, ast.Delete))
    message = f"mutation `{query.name}` mixes insert/update with delete"
    hint = "split it: inserts and updates first, deletes second; or use a branch and merge it"
    context.error("D2", first.span, message, hint)
