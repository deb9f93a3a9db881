"""How much one query lists, and the refusal of what is beyond the limits of the language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.query import ast
from omnigraph.syntax.limits import MAX_PARTS, MAX_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.syntax.source import Findings

_PATTERNS = (ast.Binding, ast.Traversal, ast.Negation)


def check_size(query: ast.Query, findings: Findings) -> bool:
    """Whether a query is within the limits (Q118).

    Checked before anything else: every later pass takes time and memory in proportion to what is counted here, and
    the rows of each pattern are held while the query runs.
    """
    clauses = list(_clauses(query.body.clauses)) if isinstance(query.body, ast.ReadBody) else []
    patterns = sum(isinstance(clause, _PATTERNS) for clause in clauses)
    if patterns > MAX_PATTERNS:
        message = (
            f"query `{query.name}` has {patterns:,} bindings, traversals and `not` blocks: "
            f"at most {MAX_PATTERNS:,} are allowed"
        )
        hint = "follow one edge type over many hops with bounds, `$a knows{1,9} $b`, or run several queries"
        findings.error("Q118", query.name_span, message, hint)
        return False
    parts = len(query.params) + sum(_parts(query.body, clauses))
    if parts > MAX_PARTS:
        message = (
            f"query `{query.name}` lists {parts:,} clauses, columns, order keys, parameters, statements and "
            f"assignments: at most {MAX_PARTS:,} are allowed"
        )
        is_read = isinstance(query.body, ast.ReadBody)
        hint = (
            "compare with a list parameter instead of one condition per value"
            if is_read
            else "load records instead of inserting them one by one, or run several mutations"
        )
        findings.error("Q118", query.name_span, message, hint)
        return False
    return True


def _clauses(clauses: Iterable[ast.Clause]) -> Iterator[ast.Clause]:
    """Every clause, those of nested blocks included; brackets nest within `MAX_NESTING`."""
    for clause in clauses:
        yield clause
        if isinstance(clause, ast.Negation):
            yield from _clauses(clause.clauses)


def _parts(body: ast.ReadBody | ast.MutationBody, clauses: Iterable[ast.Clause]) -> Iterator[int]:
    match body:
        case ast.ReadBody():
            yield len(body.projections) + len(body.order)
            for clause in clauses:
                yield 1 + len(clause.matches) if isinstance(clause, ast.Binding) else 1
        case ast.MutationBody(statements):
            for statement in statements:
                yield 1 if isinstance(statement, ast.Delete) else 1 + len(statement.assignments)
