"""Checks of `match`: bindings, traversals, filters, conditions, negations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from omnigraph.core.source import Hint, did_you_mean
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType, scalar_of
from omnigraph.core.values import render_value
from omnigraph.frozen import frozen
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.expressions import (
    Context,
    EdgeVariable,
    NodeVariable,
    Scope,
    compared,
    filter_operand,
    is_comparable,
    plain_value,
    text_condition,
)
from omnigraph.lang.query.lowering import CheckedPattern, CheckedTraversal, in_known_order
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef

_MAX_HOPS = 2**63 - 1
_WORD_OPERATORS = ("contains", "starts_with")


def check_pattern(context: Context, clauses: Iterable[ast.Clause], scope: Scope) -> CheckedPattern:
    """Resolve one block; `scope` gains its variables.

    Clauses are conjunctive, so their order does not matter: bindings are resolved first, then traversals as far as the
    types of their ends become known, then everything that uses variables.
    """
    pattern = CheckedPattern()
    clauses = tuple(clauses)
    bindings = [clause for clause in clauses if isinstance(clause, ast.Binding)]
    names = [_bind(context, scope, pattern, binding) for binding in bindings]
    _check_traversals(context, scope, pattern, clauses)
    for name, binding in zip(names, bindings, strict=True):
        bound = scope.bound[name]
        if isinstance(bound, NodeVariable) and bound.definition is not None:
            for match in binding.matches:
                _check_match(context, pattern, name, bound.definition, match)
    for clause in clauses:
        match clause:
            case ast.Filter():
                _check_filter(context, scope, pattern, clause)
            case ast.Condition(call):
                condition = text_condition(context, scope, call)
                if condition:
                    pattern.predicates.append(condition)
            case ast.Negation():
                _check_negation(context, scope, pattern, clause)
            case _:
                pass
    return pattern


def _bind(context: Context, scope: Scope, pattern: CheckedPattern, binding: ast.Binding) -> str:
    """Bind one variable; returns its name, a hidden one for `$_`."""
    name = binding.variable.name
    definition = context.catalog.nodes.get(binding.type_name)
    if definition is None:
        _report_unknown_node_type(context, binding)
    if name == ast.ANONYMOUS:
        name = context.hidden_variable()
    elif name in context.params:
        message = f"`${name}` is a parameter and a variable at once"
        context.error("Q104", binding.variable.span, message, "give one of them another name")
    known = scope.bound.get(name)
    match known:
        case EdgeVariable():
            context.error("T23", binding.variable.span, f"`${name}` is bound to an edge and cannot be a node too")
            return name
        case NodeVariable(other) if other and definition and other.name != definition.name:
            message = f"`${name}` is bound to `{other.name}` and cannot be `{definition.name}` too"
            context.error("Q106", binding.variable.span, message)
            scope.bound[name] = NodeVariable(None)
            return name
        case NodeVariable(other) if other is not None:
            return name
    scope.bound[name] = NodeVariable(definition)
    if definition is not None:
        pattern.bindings[name] = definition.name
    return name


def _report_unknown_node_type(context: Context, binding: ast.Binding) -> None:
    name = binding.type_name
    if name in context.catalog.interfaces:
        message = f"`{name}` is an interface: only node types can be matched"
        hint: Hint = None
    elif name in context.catalog.edges:
        word = name[0].lower() + name[1:]
        message = f"`{name}` is an edge type, not a node type"
        hint = f"traverse it: `$a {word} $b`"
    else:
        message = f"there is no node type `{name}`"
        hint = partial(did_you_mean, name, context.catalog.nodes)
    context.error("T1", binding.type_span, message, hint)


# ---- traversals


@frozen
class _Resolvable:
    """A traversal over a known edge, with the names of its ends."""

    clause: ast.Traversal
    edge: EdgeDef
    left: str
    right: str


def _check_traversals(context: Context, scope: Scope, pattern: CheckedPattern, clauses: Iterable[ast.Clause]) -> None:
    resolvable: list[_Resolvable] = []
    for clause in clauses:
        if not isinstance(clause, ast.Traversal):
            continue
        edge = _edge_of(context, clause)
        if edge is None:
            # Unknown edge: its variables are bound, but nothing is known about them.
            for variable in (clause.left, clause.right):
                scope.bound.setdefault(variable.name, NodeVariable(None))
            if clause.edge is not None:
                scope.bound.setdefault(clause.edge.name, EdgeVariable(None))
            continue
        left, right = (_end_name(context, scope, end) for end in (clause.left, clause.right))
        _bind_edge(context, scope, clause, edge)
        resolvable.append(_Resolvable(clause, edge, left, right))
    for item in in_known_order(resolvable, scope.bound):
        _resolve_traversal(context, scope, pattern, item)


def _edge_of(context: Context, clause: ast.Traversal) -> EdgeDef | None:
    word = clause.hop.edge_word
    ends = (clause.left.name, clause.right.name)
    if word == "not":
        context.error("Q000", clause.hop.span, "`not` is not an edge word", "write `not { … }`")
        return None
    edge = context.catalog.edge(word)
    if edge is None and word in _WORD_OPERATORS and all(end in context.params for end in ends):
        message = f"`{word}` between two variables is a traversal, and both of these are parameters"
        context.error("Q104", clause.span, message, f"compare a property: `$p.name {word} $text`")
        return None
    if edge is None:
        words = [name[0].lower() + name[1:] for name in context.catalog.edges]
        message = f"there is no edge `{clause.hop.edge_word}`"
        context.error("T4", clause.hop.span, message, partial(did_you_mean, word, words))
    elif clause.hop.undirected and edge.source != edge.target:
        message = (
            f"`<{clause.hop.edge_word}>` follows both directions, but `{edge.name}` runs {edge.source} -> {edge.target}"
        )
        context.error("T22", clause.hop.span, message, "write it without `<` and `>`")
    return edge


def _end_name(context: Context, scope: Scope, end: ast.Variable) -> str:
    if end.name == ast.ANONYMOUS:
        return context.hidden_variable()
    if end.name in context.params:
        message = f"`${end.name}` is a parameter, the ends of a traversal are variables"
        context.error("Q104", end.span, message, f"bind a node first, for example `$n: Type {{ key: ${end.name} }}`")
        scope.bound[end.name] = NodeVariable(None)
        return context.hidden_variable()
    if isinstance(scope.bound.get(end.name), EdgeVariable):
        context.error("T23", end.span, f"`${end.name}` is an edge and cannot be an end of a traversal")
        return context.hidden_variable()
    return end.name


def _bind_edge(context: Context, scope: Scope, clause: ast.Traversal, edge: EdgeDef) -> None:
    variable = clause.edge
    if variable is None or variable.name == ast.ANONYMOUS:
        return
    name = variable.name
    if clause.hop.bounds is not None:
        context.error("T23", clause.hop.bounds.span, f"`${name}` binds one edge, so the traversal takes no hop bounds")
    if name in (clause.left.name, clause.right.name):
        context.error("T23", variable.span, f"`${name}` is an end of the traversal and its edge at once")
    elif name in scope.bound:
        context.error("T23", variable.span, f"`${name}` is bound already")
        scope.bound[name] = NodeVariable(None)
    elif name in context.params:
        context.error("Q104", variable.span, f"`${name}` is a parameter and a variable at once")
        scope.bound[name] = EdgeVariable(None)
    else:
        scope.bound[name] = EdgeVariable(edge)


def _resolve_traversal(context: Context, scope: Scope, pattern: CheckedPattern, item: _Resolvable) -> None:
    clause, edge, left, right = item.clause, item.edge, item.left, item.right
    types = [_node_type(scope, name) for name in (left, right)]
    forward = _direction(edge, types[0], types[1])
    if left == right and edge.source != edge.target:
        forward = None
        types = [types[0] or edge.source] * 2
    if forward is None:
        _report_endpoint(context, clause, edge, types)
        forward = True
    low, high = _bounds(context, clause)
    traversal = CheckedTraversal(
        left=left,
        right=right,
        edge=edge,
        forward=forward,
        undirected=clause.hop.undirected,
        low=low,
        high=high,
        edge_variable=None if clause.edge is None or clause.edge.name == ast.ANONYMOUS else clause.edge.name,
    )
    for name, is_left in ((left, True), (right, False)):
        if name not in scope.bound:
            definition = context.catalog.nodes[traversal.end_type(is_left)]
            scope.bound[name] = NodeVariable(definition)
    pattern.traversals.append(traversal)


def _node_type(scope: Scope, name: str) -> str | None:
    bound = scope.bound.get(name)
    if isinstance(bound, NodeVariable) and bound.definition is not None:
        return bound.definition.name
    return None


def _direction(edge: EdgeDef, left: str | None, right: str | None) -> bool | None:
    """Forward if the known types allow it, else backward, else None."""
    if left in (None, edge.source) and right in (None, edge.target):
        return True
    if left in (None, edge.target) and right in (None, edge.source):
        return False
    return None


def _report_endpoint(context: Context, clause: ast.Traversal, edge: EdgeDef, types: list[str | None]) -> None:
    ends = (edge.source, edge.target)
    for variable, type_ in zip((clause.left, clause.right), types, strict=True):
        if type_ is not None and type_ not in ends:
            message = f"`${variable.name}` is a `{type_}`, but edge `{edge.name}` runs {edge.source} -> {edge.target}"
            context.error("T5", variable.span, message)
            return
    message = (
        f"`${clause.left.name}` and `${clause.right.name}` are both `{types[0]}`, "
        f"but edge `{edge.name}` runs {edge.source} -> {edge.target}"
    )
    context.error("T5", clause.span, message)


def _bounds(context: Context, clause: ast.Traversal) -> tuple[int, int]:
    bounds = clause.hop.bounds
    if bounds is None:
        return 1, 1
    if bounds.high is None:
        message = "a bounded traversal needs its maximum"
        context.error("T15", bounds.span, message, f"write `{{{bounds.low},5}}` for up to 5 hops")
    elif bounds.low < 1:
        context.error("T15", bounds.span, "a traversal has at least 1 hop")
    elif bounds.high > _MAX_HOPS:
        context.error("T15", bounds.span, "so many hops are beyond 64 bits")
    elif bounds.high < bounds.low:
        context.error("T15", bounds.span, f"the maximum {bounds.high} is below the minimum {bounds.low}")
    else:
        return bounds.low, bounds.high
    return 1, 1


# ---- inline matches and filters


def _check_match(
    context: Context, pattern: CheckedPattern, variable: str, definition: NodeDef, match: ast.PropertyMatch
) -> None:
    prop = definition.properties.get(match.property)
    if prop is None:
        message = f"node type `{definition.name}` has no property `{match.property}`"
        context.error("T2", match.span, message, partial(did_you_mean, match.property, definition.properties))
        return
    value = plain_value(context, match.value)
    if value is None or not _check_match_types(context, prop.type, value, match):
        return
    op = ir.CompareOp.CONTAINS if isinstance(prop.type.base, ListType) else ir.CompareOp.EQ
    field = ir.PropertyRef(variable, prop.name, prop.type)
    pattern.predicates.append(compared(field, op, value))


def _check_match_types(context: Context, type_: PropertyType, value: ir.Value, match: ast.PropertyMatch) -> bool:
    name, span = match.property, match.value.span
    wanted: BaseType = type_.base
    if isinstance(wanted, ListType):
        wanted = ScalarType(wanted.item)
    if isinstance(wanted, VectorType) or wanted == ScalarType(Scalar.BLOB):
        context.error("T3", match.span, f"`{name}` is {type_} and cannot be matched by value")
        return False
    if isinstance(value.type.base, ListType | VectorType):
        what = "membership of one value" if isinstance(type_.base, ListType) else "one value"
        context.error("T3", span, f"`{name}` is matched by {what}, not by a list")
        return False
    if not is_comparable(wanted, value.type.base):
        code = "T3" if isinstance(value, ir.Constant) else "T7"
        context.error(code, span, f"{value.type} does not fit `{name}`, which is {type_}", moment_hint(wanted, value))
        return False
    if isinstance(wanted, EnumType) and isinstance(value, ir.Constant):
        return check_enum_value(context, wanted, value, name, match.value)
    return True


def moment_hint(wanted: BaseType, value: ir.Operand) -> str | None:
    """A hint for strings where a moment is meant."""
    if value.type.base != ScalarType(Scalar.STRING):
        return None
    match scalar_of(wanted):
        case Scalar.DATE:
            return 'write `date("2024-05-01")`, or pass a Date parameter'
        case Scalar.DATETIME:
            return 'write `datetime("2024-05-01T12:00:00Z")`, or pass a DateTime parameter'
    return None


def check_enum_value(context: Context, enum: EnumType, value: ir.Constant, name: str, expression: ast.Value) -> bool:
    """Whether a literal is one of the values of an enum property (T3)."""
    if value.value in enum.values:
        return True
    message = f"{render_value(value.type.base, value.value)} is not a value of `{name}`"
    context.error("T3", expression.span, message, partial(did_you_mean, str(value.value), enum.values))
    return False


def _check_filter(context: Context, scope: Scope, pattern: CheckedPattern, clause: ast.Filter) -> None:
    left = filter_operand(context, scope, clause.left)
    right = filter_operand(context, scope, clause.right)
    if left is None or right is None:
        return
    for operand, expression in ((left, clause.left), (right, clause.right)):
        if isinstance(operand, ir.EntityRef):
            context.error("T7", expression.span, f"`${operand.variable}` is a node: compare one of its properties")
            return
    op = _compare_op(clause.operator, left.type.base, right.type.base)
    if op is None:
        _report_incomparable(context, clause, left, right)
        return
    pattern.predicates.append(compared(left, op, right))


def _compare_op(operator: ast.Operator, left: BaseType, right: BaseType) -> ir.CompareOp | None:
    """The operator with its meaning for these types; None when it has none."""
    if operator is ast.Operator.CONTAINS:
        if isinstance(left, ListType):
            return ir.CompareOp.CONTAINS if is_comparable(ScalarType(left.item), right) else None
        return ir.CompareOp.STRING_CONTAINS if _both_strings(left, right) else None
    if operator is ast.Operator.STARTS_WITH:
        return ir.CompareOp.STARTS_WITH if _both_strings(left, right) else None
    return ir.CompareOp(operator.value) if is_comparable(left, right) else None


def _both_strings(left: BaseType, right: BaseType) -> bool:
    return scalar_of(left) is Scalar.STRING and scalar_of(right) is Scalar.STRING


def _report_incomparable(context: Context, clause: ast.Filter, left: ir.Operand, right: ir.Operand) -> None:
    message = f"`{clause.operator}` cannot compare {left.type} with {right.type}"
    hint = moment_hint(left.type.base, right) or moment_hint(right.type.base, left)
    is_membership = clause.operator is ast.Operator.CONTAINS
    if hint is None and isinstance(left.type.base, ListType) and not is_membership:
        hint = "test membership with `contains`"
    context.error("T7", clause.span, message, hint)


# ---- negation


def _check_negation(context: Context, scope: Scope, pattern: CheckedPattern, clause: ast.Negation) -> None:
    mentioned = set(_variables(clause.clauses))
    outer = tuple(name for name in scope.bound if name in mentioned)
    before = context.findings.error_count
    inner = check_pattern(context, clause.clauses, scope.child())
    if not outer and context.findings.error_count == before:
        # After another finding inside it stays silent: a misspelt outer variable looks the same.
        message = "`not` mentions no variable from outside, so it says nothing about the rows"
        context.error("T9", clause.span, message, "use a variable of the surrounding match in it")
    inner.outer = outer
    pattern.negations.append(inner)


def _variables(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    for clause in clauses:
        match clause:
            case ast.Binding(variable):
                yield variable.name
            case ast.Traversal(left, edge, _, right):
                yield left.name
                yield right.name
                if edge is not None:
                    yield edge.name
            case ast.Filter(left, _, right):
                yield from _expression_variables(left)
                yield from _expression_variables(right)
            case ast.Condition(call):
                yield from _expression_variables(call)
            case ast.Negation(inner):
                yield from _variables(inner)


def _expression_variables(expression: ast.Expression) -> Iterator[str]:
    match expression:
        case ast.Variable(name):
            yield name
        case ast.PropertyAccess(variable):
            yield variable.name
        case ast.Call(_, arguments):
            for argument in arguments:
                yield from _expression_variables(argument)
        case _:
            pass
