"""Clauses that parse, and mean something else than what was probably meant: each is reported once, and repaired.

Clauses stand one after the other without signs between them, so that a traversal with a slip reads as conditions on
its words. What is wrong is said where it stands; the repaired clause keeps what follows free of errors about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.core.source import Span
from omnigraph.frozen import frozen
from omnigraph.lang.query.check.scope import Context
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.advice import ALONE, FOREIGN_WORDS, JOINED, SUBSCRIPT
from omnigraph.lang.query.syntax.printing import print_clause, print_expression


@frozen
class _Repair:
    """How many clauses a slip takes, and what stands for them."""

    taken: int
    clauses: tuple[ast.Clause, ...] = ()


_INFIX = frozenset({"contains", "starts_with", "ends_with"})
_WORD_OPERATORS = frozenset({ast.Operator.AND, ast.Operator.OR, ast.Operator.IN})


def without_slips(context: Context, clauses: Iterable[ast.Clause]) -> tuple[ast.Clause, ...]:
    """The clauses of a block, with slips reported and repaired."""
    waiting, kept = tuple(clauses), list[ast.Clause]()
    while waiting:
        for look in (
            _misspelt_traversal,
            _reserved_word,
            _repeated_hop,
            _foreign_word,
            _split_call,
            _subscript,
            _prose,
        ):
            repair = look(context, kept, waiting)
            if repair is not None:
                kept.extend(repair.clauses)
                waiting = waiting[repair.taken :]
                break
        else:
            kept.append(waiting[0])
            waiting = waiting[1:]
    return tuple(kept)


def is_subscript(before: Span, expression: ast.Expression) -> bool:
    """Whether an expression begins with brackets directly behind another, as in `x[i]`."""
    while isinstance(expression, ast.Binary | ast.NullTest):
        expression = expression.left if isinstance(expression, ast.Binary) else expression.operand
    return isinstance(expression, ast.ListLiteral) and expression.span.start == before.end


def report_subscript(context: Context, expression: ast.Expression) -> None:
    """Record that nothing can be taken out of a value with brackets."""
    context.error("Q000", expression.span, "`x[i]` is not in this edition", SUBSCRIPT)


def _expression(clauses: Sequence[ast.Clause], index: int) -> ast.Expression | None:
    clause = clauses[index] if index < len(clauses) else None
    return clause.expression if isinstance(clause, ast.Condition) else None


def _misspelt_traversal(context: Context, _: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """An edge between two names: joined with a condition, behind `not`, or with the type of the edge for its word."""
    if len(clauses) < 2:
        return None
    left, is_negated, joined = _last_operand(_expression(clauses, 0))
    if not isinstance(left, ast.Variable | ast.Alias):
        return None
    edge: ast.Variable | None = None
    match clauses[1]:
        case ast.Condition(ast.Alias(name, span)):
            word = ast.TypeName(name, span)
        case ast.Binding(variable, (type_,), ()) if type_.name in context.catalog.edges:
            word, edge = _word(type_), variable
        case _:
            return None
    if context.catalog.edge(word.name) is None:
        return None
    right, operator = _first_operand(_expression(clauses, 2))
    joined = joined or operator
    end = right.variable if isinstance(right, ast.PropertyAccess) else right
    if end is None:
        return _unended(context, left, word)
    span = Span(left.span.start, end.span.end)
    hop = ast.Hop((word,), undirected=False, bounds=None, span=word.span)
    source, target = (ast.Variable(name.name, name.span) for name in (left, end))
    traversal = ast.Traversal(source, edge, hop, target, span=span)
    text = print_clause(traversal)
    if is_negated:
        context.error("Q000", span, "a pattern that is not there stands in braces", f"write `not {{ {text} }}`")
    elif joined is ast.Operator.OR:
        context.error("Q000", span, "a pattern is no condition", f"write `exists {{ {text} }}`")
    elif joined is not None:
        context.error("Q000", span, "a pattern is no condition", f"write `{text}` as a clause of its own; {ALONE}")
    elif isinstance(clauses[1], ast.Binding):
        message = f"`{clauses[1].types[0].name}` is an edge type, not a node type"
        context.error("T1", clauses[1].type_span, message, f"the word of an edge begins in lower case: `{text}`")
    else:
        unknown = left if isinstance(left, ast.Alias) else end
        context.error("Q000", unknown.span, f"`{unknown.name}` is no variable", f"write `{text}`")
    taken = 3
    while _continues(context, clauses[taken - 1 : taken + 2]):
        taken += 2
    return _Repair(taken, (traversal,) if joined is not ast.Operator.OR and not is_negated else ())


_JOINS = frozenset({ast.Operator.AND, ast.Operator.OR})


def _last_operand(expression: ast.Expression | None) -> tuple[ast.Expression | None, bool, ast.Operator | None]:
    """What stands last in a condition, whether `not` stands before it, and what joins it with the rest."""
    joined: ast.Operator | None = None
    while isinstance(expression, ast.Binary) and expression.operator in _JOINS:
        joined, expression = expression.operator, expression.right
    if isinstance(expression, ast.Unary) and expression.operator == "not":
        return expression.operand, True, joined
    return expression, False, joined


def _first_operand(
    expression: ast.Expression | None,
) -> tuple[ast.Variable | ast.Alias | ast.PropertyAccess | None, ast.Operator | None]:
    """The name that a condition begins with, and the operator behind it."""
    joined: ast.Operator | None = None
    while isinstance(expression, ast.Binary):
        joined, expression = expression.operator, expression.left
    return (expression if isinstance(expression, ast.Variable | ast.Alias | ast.PropertyAccess) else None), joined


def _continues(context: Context, clauses: Sequence[ast.Clause]) -> bool:
    """Whether one more pattern follows a condition that ends with its first variable."""
    last, _, joined = _last_operand(_expression(clauses, 0))
    word, end = _expression(clauses, 1), _expression(clauses, 2)
    is_edge = isinstance(word, ast.Alias) and context.catalog.edge(word.name) is not None
    return joined is not None and isinstance(last, ast.Variable) and is_edge and end is not None


def _unended(context: Context, left: ast.Variable | ast.Alias, word: ast.TypeName) -> _Repair | None:
    """`$p knows` with nothing behind it."""
    if isinstance(left, ast.Alias):
        return None
    hint = f"write `${left.name} {word.name} $x`, or `$_` for whatever is there"
    context.error("Q000", Span(left.span.start, word.span.end), "a traversal has two ends", hint)
    return _Repair(2)


def _word(type_: ast.TypeName) -> ast.TypeName:
    return ast.TypeName(f"{type_.name[0].lower()}{type_.name[1:]}", type_.span)


def _reserved_word(context: Context, _: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """An edge called `and`, `or`, `not`, `in` or `null`, which reads as an operator or a value."""
    match _expression(clauses, 0), _expression(clauses, 1):
        case ast.Variable() as left, ast.Unary("not", ast.Variable() as right):
            taken, word = 2, "not"
        case ast.Binary(ast.Variable() as left, operator, ast.Variable() as right), _ if operator in _WORD_OPERATORS:
            taken, word = 1, operator.value
        case ast.Variable() as left, ast.Null():
            last = _expression(clauses, 2)
            if not isinstance(last, ast.Variable):
                return None
            taken, word, right = 3, "null", last
        case _:
            return None
    if word == "in" and context.catalog.edge(word) is None:
        return None
    if left.name in context.params or right.name in context.params:
        return None
    span = Span(left.span.start, right.span.end)
    hop = ast.Hop((ast.TypeName(word, span),), undirected=False, bounds=None, span=span)
    traversal = ast.Traversal(left, None, hop, right, span=span)
    if context.catalog.edge(word) is None:
        hint = f"a pattern that is not there is `not {{ ${left.name} knows ${right.name} }}`"
        context.error("Q000", span, f"`{word}` is no edge", hint if word == "not" else JOINED)
        return _Repair(taken)
    hint = f"the edge is written in quotes: `{print_clause(traversal)}`"
    context.error("Q000", span, f"`{word}` is a reserved word", hint)
    return _Repair(taken, (traversal,))


def _repeated_hop(context: Context, _: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """`$a knows* $b`."""
    match _expression(clauses, 0), _expression(clauses, 1):
        case ast.Variable() as left, ast.Binary(ast.Alias(name, span), ast.Operator.MULTIPLY, ast.Variable() as right):
            context.error("T15", span, f"`{name}*` has no bounds", f"write `${left.name} {name}{{1,5}} ${right.name}`")
            hop = ast.Hop((ast.TypeName(name, span),), undirected=False, bounds=None, span=span)
            return _Repair(2, (ast.Traversal(left, None, hop, right, span=Span(left.span.start, right.span.end)),))
    return None


def _foreign_word(context: Context, kept: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """An operator of another language between its operands, which stand as conditions of their own."""
    word = _expression(clauses, 0)
    if isinstance(word, ast.Unary):
        word = word.operand
    if not isinstance(word, ast.Alias) or word.name not in FOREIGN_WORDS:
        return None
    context.error("Q000", word.span, f"there is no `{word.name}` in `match`", FOREIGN_WORDS[word.name])
    if word.name == "where":
        return _Repair(1)
    if kept and isinstance(_expression(kept, -1), ast.PropertyAccess | ast.Variable | ast.Call):
        kept.pop()
    return _Repair(2 if _expression(clauses, 1) is not None else 1)


def _split_call(context: Context, _: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """`$p.title contains ("a")`, where the parenthesis makes a call of the operator."""
    text, call = _expression(clauses, 0), _expression(clauses, 1)
    if text is None or not isinstance(call, ast.Call) or call.function not in _INFIX or len(call.arguments) != 1:
        return None
    left, right = print_expression(text), print_expression(call.arguments[0])
    hint = f"write `{left} {call.function} {right}` or `{call.function}({left}, {right})`"
    context.error("Q000", call.span, f"`{call.function}(` begins a call", hint)
    return _Repair(2)


def _subscript(context: Context, kept: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """`$p.tags[1] = "a"`."""
    list_, brackets = _expression(clauses, 0), _expression(clauses, 1)
    if list_ is None or brackets is None or not is_subscript(list_.span, brackets):
        return None
    report_subscript(context, brackets)
    return _Repair(2)


def _prose(context: Context, kept: list[ast.Clause], clauses: Sequence[ast.Clause]) -> _Repair | None:
    """Bare words one after the other: the first says what is wrong with all of them."""
    if not kept or not isinstance(_expression(clauses, 0), ast.Alias):
        return None
    last = _expression(kept, -1)
    while isinstance(last, ast.Unary):
        last = last.operand
    return _Repair(1) if isinstance(last, ast.Alias) else None
