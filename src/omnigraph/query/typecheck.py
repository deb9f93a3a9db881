"""Type-check of one query: syntax tree and catalog in, intermediate representation and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.query import ast, ir
from omnigraph.query.declarations import check_declaration
from omnigraph.query.lower import lower_pattern
from omnigraph.query.mutations import check_statement
from omnigraph.query.patterns import check_pattern
from omnigraph.query.results import check_result
from omnigraph.query.scope import Context, Scope
from omnigraph.query.size import check_size

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.syntax.source import Findings


def check_query(query: ast.Query, catalog: Catalog, findings: Findings) -> ir.QueryIR | None:
    """The meaning of a query, or None when it is wrong; why goes to `findings`.

    The rule that one mutation either writes or deletes (D2) is the last to be checked.
    """
    if not check_size(query, findings):
        return None
    context = Context(catalog, findings, {})
    before = findings.error_count
    params = check_declaration(query, findings, context.params)
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
