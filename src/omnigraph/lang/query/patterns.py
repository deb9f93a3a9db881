"""Checks of `match`: bindings, traversals, filters, conditions, negations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from omnigraph.core.source import Hint, did_you_mean
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.frozen import frozen
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.expressions import (
    CONSTANT,
    IN_MATCH,
    check_enum_value,
    compared,
    condition,
    is_comparable,
    moment_hint,
    value,
)
from omnigraph.lang.query.lowering import CheckedPattern, CheckedTraversal, in_known_order, lower_pattern
from omnigraph.lang.query.scope import Block, Context, EdgeVariable, Nested, NodeVariable, Scope
from omnigraph.lang.query.slips import without_slips
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef

_MAX_HOPS = 2**63 - 1
_WORD_OPERATORS = ("contains", "starts_with")


def check_pattern(context: Context, clauses: Iterable[ast.Clause], scope: Scope) -> CheckedPattern:
    """Resolve one block; `scope` gains its variables.

    Clauses are conjunctive, so their order does not matter: bindings are resolved first, then traversals as far as the
    types of their ends become known, then everything that uses variables.
    """
    pattern = CheckedPattern()
    clauses = without_slips(context, clauses)
    bindings = [binding for clause in clauses for binding in _bindings(clause)]
    names = [_bind(context, scope, pattern, binding) for binding in bindings]
    _check_traversals(context, scope, pattern, clauses)
    for clause in clauses:
        if isinstance(clause, ast.Let):
            _name_value(context, scope, clause)
    for name, binding in zip(names, bindings, strict=True):
        bound = scope.bound[name]
        if isinstance(bound, NodeVariable) and bound.definition is not None:
            for match in binding.matches:
                _check_match(context, pattern, name, bound.definition, match)
    for clause in clauses:
        match clause:
            case ast.Condition(expression):
                _check_condition(context, scope, pattern, expression)
            case ast.Let():
                _check_let(context, scope, clause)
            case ast.Optional() | ast.Path():
                context.error("Q000", clause.span, "`optional` and `path` are not in this edition")
            case _:
                pass
    return pattern


def _bindings(clause: ast.Clause) -> Iterator[ast.Binding]:
    match clause:
        case ast.Binding():
            yield clause
        case ast.Traversal(binding=ast.Binding() as binding):
            yield binding
        case _:
            pass


def _name_value(context: Context, scope: Scope, let: ast.Let) -> None:
    name = let.variable.name
    if name == ast.ANONYMOUS:
        context.error("Q122", let.variable.span, "`$_` cannot name a value")
    elif name in context.params or name in scope.bound or name in scope.lets:
        what = "a parameter" if name in context.params else "a variable" if name in scope.bound else "defined"
        message = f"`${name}` is {what} already"
        context.error("Q122", let.variable.span, message, "give the value another name")
    else:
        scope.lets[name] = let


def _check_let(context: Context, scope: Scope, let: ast.Let) -> None:
    """Report what is wrong with a value, also where nothing uses it; its uses stay silent about it."""
    name = let.variable.name
    if scope.lets.get(name) is not let:
        return
    expression = let.expression
    if isinstance(expression, ast.Variable) and expression.name in scope.bound:
        message = f"`${expression.name}` has a name already"
        context.error("T7", expression.span, message, "name one of its properties, as in `$p.age`")
        return
    before = context.findings.error_count
    scope.resolving.add(name)
    found = value(context, scope, expression, IN_MATCH)
    scope.resolving.discard(name)
    if found is None and context.findings.error_count == before:
        context.error("Q122", let.span, f"`${name}` is defined by itself")


def _check_condition(context: Context, scope: Scope, pattern: CheckedPattern, expression: ast.Expression) -> None:
    if isinstance(expression, ast.Variable) and expression.name in scope.bound:
        what = "an edge" if isinstance(scope.bound[expression.name], EdgeVariable) else "a node"
        message = f"a condition is true or false, `${expression.name}` is {what}"
        hint = f"compare a property, as in `${expression.name}.name = $name`, or write an edge and a variable behind it"
        context.error("T41", expression.span, message, hint)
        return
    found = condition(context, scope, expression, IN_MATCH)
    if found is not None:
        pattern.predicates.extend(_conjuncts(found))


def _conjuncts(predicate: ir.Expression) -> Iterator[ir.Expression]:
    """Only true keeps a row, so a condition of several that all have to hold is each of them."""
    if isinstance(predicate, ir.Logical) and predicate.connective is ir.Connective.AND:
        for operand in predicate.operands:
            yield from _conjuncts(operand)
    else:
        yield predicate


def _bind(context: Context, scope: Scope, pattern: CheckedPattern, binding: ast.Binding) -> str:
    """Bind one variable; returns its name, a hidden one for `$_`."""
    name = binding.variable.name
    type_name, *others = binding.types
    definition = context.catalog.nodes.get(type_name.name)
    if definition is None:
        _report_unknown_node_type(context, type_name)
    elif others:
        context.error("Q000", binding.type_span, "several types are not in this edition")
    if name == ast.ANONYMOUS or _is_named_value(context, scope, binding.variable):
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


def _report_unknown_node_type(context: Context, type_name: ast.TypeName) -> None:
    name = type_name.name
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
    context.error("T1", type_name.span, message, hint)


def _is_named_value(context: Context, scope: Scope, variable: ast.Variable) -> bool:
    """Whether a name stands for a value, which is reported: it cannot be a node or an edge too (Q122)."""
    if variable.name not in scope.lets:
        return False
    message = f"`${variable.name}` names a value and cannot be a node or an edge too"
    context.error("Q122", variable.span, message, "give one of them another name")
    return True


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
    if len(clause.hop.words) != 1 or clause.hop.condition is not None:
        context.error("Q000", clause.hop.span, "several edge types are not in this edition")
        return None
    word = clause.hop.words[0].name
    ends = (clause.left.name, clause.right.name)
    edge = context.catalog.edge(word)
    if edge is None and word in _WORD_OPERATORS and all(end in context.params for end in ends):
        message = f"`{word}` between two variables is a traversal, and both of these are parameters"
        context.error("Q104", clause.span, message, f"compare a property: `$p.name {word} $text`")
        return None
    if edge is None:
        words = [name[0].lower() + name[1:] for name in context.catalog.edges]
        message = f"there is no edge `{word}`"
        context.error("T4", clause.hop.span, message, partial(did_you_mean, word, words))
    elif clause.hop.undirected and edge.source != edge.target:
        message = f"`<{word}>` follows both directions, but `{edge.name}` runs {edge.source} -> {edge.target}"
        context.error("T22", clause.hop.span, message, "write it without `<` and `>`")
    return edge


def _end_name(context: Context, scope: Scope, end: ast.Variable) -> str:
    if end.name == ast.ANONYMOUS or _is_named_value(context, scope, end):
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
    if variable is None or variable.name == ast.ANONYMOUS or _is_named_value(context, scope, variable):
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
    if isinstance(match.value, ast.Null):
        context.error(
            "T7",
            match.value.span,
            f"`{match.property}: null` is never true",
            f"write `${variable}.{match.property} is null`",
        )
        return
    given = value(context, Scope(), match.value, CONSTANT)
    if given is None or not _check_match_types(context, prop.type, given, match):
        return
    op = ir.CompareOp.CONTAINS if isinstance(prop.type.base, ListType) else ir.CompareOp.EQ
    field = ir.PropertyRef(variable, prop.name, prop.type)
    pattern.predicates.append(compared(field, op, given))


def _check_match_types(context: Context, type_: PropertyType, value: ir.Expression, match: ast.PropertyMatch) -> bool:
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


# ---- nested blocks


def check_block(context: Context, scope: Scope, block: Block) -> Nested | None:
    """The operators of a nested block; None when something in it is wrong."""
    mentioned = set(_mentions(block.clauses))
    mentioned |= {name for let in _used_lets(scope, mentioned) for name in let}
    outer = tuple(name for name in scope.bound if name in mentioned)
    before = context.findings.error_count
    inside = scope.child()
    pattern = check_pattern(context, block.clauses, inside)
    if context.findings.error_count > before:
        # Silent about what follows: a misspelt outer variable looks as if there were none.
        return None
    if not outer:
        message = f"`{block.word}` mentions no variable from outside, so it says nothing about the rows"
        code = "T9" if block.word == "not" else "T39"
        context.error(code, block.span, message, "use a variable of the surrounding match in it")
        return None
    return Nested(outer, lower_pattern(context, pattern, outer), inside)


def _used_lets(scope: Scope, mentioned: Iterable[str]) -> Iterator[Iterable[str]]:
    """The variables behind the values that a block names, whatever they are made from."""
    waiting, seen = list(mentioned), set[str]()
    while waiting:
        let = scope.lets.get(waiting.pop())
        if let is None or let.variable.name in seen:
            continue
        seen.add(let.variable.name)
        found = list(_expression_variables(let.expression))
        waiting.extend(found)
        yield found


def _mentions(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    for clause in clauses:
        match clause:
            case ast.Binding(variable, _, matches):
                yield variable.name
                for match in matches:
                    yield from _expression_variables(match.value)
            case ast.Traversal():
                yield from _traversal_variables(clause)
            case ast.Path(_, _, traversal):
                yield from _traversal_variables(traversal)
            case ast.Let(_, expression) | ast.Condition(expression):
                yield from _expression_variables(expression)
            case ast.Optional(inner):
                yield from _mentions(inner)


def _traversal_variables(traversal: ast.Traversal) -> Iterator[str]:
    yield traversal.left.name
    yield traversal.right.name
    if traversal.edge is not None:
        yield traversal.edge.name


def _expression_variables(expression: ast.Expression) -> Iterator[str]:
    for found in ast.walk(expression):
        if isinstance(found, ast.Variable):
            yield found.name
        yield from _mentions(ast.block_of(found))
