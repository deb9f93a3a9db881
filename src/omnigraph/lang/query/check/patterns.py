"""Checks of `match`: bindings, traversals, filters, conditions, negations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from omnigraph.core.source import Hint, did_you_mean
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.comparisons import check_enum_value, compared, is_comparable, moment_hint
from omnigraph.lang.query.check.expressions import condition, value
from omnigraph.lang.query.check.lowering import CheckedPattern, lower_pattern
from omnigraph.lang.query.check.places import CONSTANT, IN_MATCH
from omnigraph.lang.query.check.scope import Block, Context, EdgeVariable, Nested, NodeVariable, Scope
from omnigraph.lang.query.check.slips import without_slips
from omnigraph.lang.query.check.traversals import check_traversals, is_named_value
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.schema.catalog import NodeDef

#: Operators that are words: between two variables they are read as edges.
_WORD_OPERATORS = frozenset({"contains", "starts_with", "ends_with"})


def check_pattern(context: Context, clauses: Iterable[ast.Clause], scope: Scope) -> CheckedPattern:
    """Resolve one block; `scope` gains its variables.

    Clauses are conjunctive, so their order does not matter: bindings are resolved first, then traversals as far as the
    types of their ends become known, then everything that uses variables.
    """
    pattern = CheckedPattern()
    clauses = without_slips(context, _with_comparisons(context, scope, tuple(clauses)))
    is_right = _check_optional_names(context, clauses)
    bindings = [binding for clause in clauses for binding in _bindings(clause)]
    names = [_bind(context, scope, pattern, binding) for binding in bindings]
    typed_ends = {id(binding): name for name, binding in zip(names, bindings, strict=True)}
    traversals = [clause for clause in clauses if isinstance(clause, ast.Traversal | ast.Path)]
    check_traversals(context, scope, pattern, traversals, typed_ends)
    for clause in clauses:
        if isinstance(clause, ast.Let):
            _name_value(context, scope, clause)
    for name, binding in zip(names, bindings, strict=True):
        bound = scope.bound[name]
        if isinstance(bound, NodeVariable) and bound.members is not None:
            for match in binding.matches:
                _check_match(context, pattern, name, bound, match)
    for clause in clauses:
        if isinstance(clause, ast.Optional):
            _check_optional(context, scope, pattern, clause, is_right=is_right)
    for clause in clauses:
        match clause:
            case ast.Condition(expression):
                _check_condition(context, scope, pattern, expression)
            case ast.Let():
                _check_let(context, scope, clause)
            case _:
                pass
    pattern.types = {name: bound.names for name, bound in scope.bound.items() if isinstance(bound, NodeVariable)}
    pattern.optional = frozenset(scope.optional)
    return pattern


def _with_comparisons(context: Context, scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[ast.Clause, ...]:
    """The clauses with `$a contains $b` as a comparison where `$a` is a value: values are no ends of traversals."""
    values = {
        *context.params,
        *scope.lets,
        *(clause.variable.name for clause in clauses if isinstance(clause, ast.Let)),
    }

    def read(clause: ast.Clause) -> ast.Clause:
        match clause:
            case ast.Traversal(left, None, ast.Hop((word,), False, None, None), right, None, span=span) if (
                word.name in _WORD_OPERATORS and left.name in values
            ):
                return ast.Condition(ast.Binary(left, ast.Operator(word.name), right, span), span)
            case _:
                return clause

    return tuple(map(read, clauses))


def _bindings(clause: ast.Clause) -> Iterator[ast.Binding]:
    match clause:
        case ast.Binding():
            yield clause
        case ast.Traversal(binding=ast.Binding() as binding):
            yield binding
        case ast.Path(traversal=ast.Traversal(binding=ast.Binding() as binding)):
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
    members = _members(context, binding)
    if name == ast.ANONYMOUS or is_named_value(context, scope, binding.variable):
        name = context.hidden_variable()
    elif name in context.params:
        message = f"`${name}` is a parameter and a variable at once"
        context.error("Q104", binding.variable.span, message, "give one of them another name")
    known = scope.bound.get(name)
    match known:
        case EdgeVariable():
            context.error("T23", binding.variable.span, f"`${name}` is bound to an edge and cannot be a node too")
            return name
        case NodeVariable(other) if (
            other is not None and members is not None and set(known.names) != set(NodeVariable(members).names)
        ):
            found = NodeVariable(members)
            message = f"`${name}` is bound to `{known.type_name}` and cannot be `{found.type_name}` too"
            context.error("Q106", binding.variable.span, message)
            scope.bound[name] = NodeVariable(None)
            return name
        case NodeVariable(other) if other is not None:
            return name
    scope.bound[name] = NodeVariable(members)
    if members is not None:
        pattern.bindings[name] = None
    return name


def _members(context: Context, binding: ast.Binding) -> tuple[NodeDef, ...] | None:
    """The node types that the names of a binding stand for, by name; None when one of them is wrong.

    An interface stands for the types that implement it; a node type wins over an interface of its name.
    """
    nodes = context.catalog.nodes
    found: set[str] = set()
    for type_name in binding.types:
        if type_name.name in nodes:
            found.add(type_name.name)
        elif type_name.name in context.catalog.interfaces:
            found |= {node.name for node in nodes.values() if type_name.name in node.implements}
        else:
            _report_unknown_node_type(context, type_name)
            return None
    return tuple(nodes[name] for name in sorted(found))


def _report_unknown_node_type(context: Context, type_name: ast.TypeName) -> None:
    name = type_name.name
    hint: Hint
    if name in context.catalog.edges:
        word = name[0].lower() + name[1:]
        message = f"`{name}` is an edge type, not a node type"
        hint = f"traverse it: `$a {word} $b`"
    else:
        message = f"there is no node type `{name}`"
        hint = partial(did_you_mean, name, context.catalog.nodes)
    context.error("T1", type_name.span, message, hint)


# ---- inline matches and filters


def _check_match(
    context: Context, pattern: CheckedPattern, variable: str, bound: NodeVariable, match: ast.PropertyMatch
) -> None:
    type_ = bound.property_type(match.property)
    if type_ is None:
        if not bound.members:
            return
        word = "type" if len(bound.members) == 1 else "types"
        verb = "has" if len(bound.members) == 1 else "share"
        message = f"node {word} `{bound.type_name}` {verb} no property `{match.property}`"
        context.error("T2", match.span, message, partial(did_you_mean, match.property, bound.property_names()))
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
    if given is None or not _check_match_types(context, type_, given, match):
        return
    op = ir.CompareOp.CONTAINS if isinstance(type_.base, ListType) else ir.CompareOp.EQ
    field = ir.PropertyRef(variable, match.property, type_)
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


# ---- optional blocks


def _check_optional_names(context: Context, clauses: tuple[ast.Clause, ...]) -> bool:
    """What an optional block names first is optional: nothing that has to be there may be reached from it."""
    mandatory: set[str] = set()
    optional: dict[str, ast.Optional] = {}
    is_right = True
    for clause in clauses:
        if isinstance(clause, ast.Optional):
            for name in _bound_in(clause.clauses):
                if name not in mandatory:
                    optional.setdefault(name, clause)
            continue
        for variable in _bound_by(clause):
            if variable.name in optional:
                message = f"`${variable.name}` is optional: what has to be there cannot begin or end at it"
                context.error("Q123", variable.span, message, "put this into an `optional { … }` block too")
                is_right = False
            mandatory.add(variable.name)
    return is_right


def _bound_by(clause: ast.Clause) -> Iterator[ast.Variable]:
    """The variables that a clause binds, without those of blocks and `$_`."""
    match clause:
        case ast.Binding(variable):
            found = [variable]
        case ast.Traversal(left, edge, _, right):
            found = [left, right, *([] if edge is None else [edge])]
        case ast.Path(_, _, traversal):
            found = [clause.variable, traversal.left, traversal.right]
        case _:
            found = []
    return (variable for variable in found if variable.name != ast.ANONYMOUS)


def _bound_in(clauses: Iterable[ast.Clause]) -> Iterator[str]:
    for clause in clauses:
        if isinstance(clause, ast.Optional):
            yield from _bound_in(clause.clauses)
        else:
            yield from (variable.name for variable in _bound_by(clause))


def _check_optional(
    context: Context, scope: Scope, pattern: CheckedPattern, clause: ast.Optional, *, is_right: bool
) -> None:
    mentioned = _mentioned(scope, clause.clauses)
    outer = tuple(name for name in scope.bound if name in mentioned)
    before = context.findings.error_count
    inside = scope.child()
    inner = check_pattern(context, clause.clauses, inside)
    binds = tuple(name for name in inside.bound if name not in scope.bound)
    named = [name for name in binds if not name.startswith("~")]
    if context.findings.error_count == before:
        if not outer:
            message = "`optional` mentions no variable from outside, so it says nothing about the rows"
            context.error("T39", clause.span, message, "use a variable of the surrounding match in it")
        elif not named and is_right:
            message = "`optional` binds no variable, so it changes nothing"
            context.error("Q123", clause.span, message, "give what it finds a name, as in `optional { $p knows $q }`")
        elif named:
            pattern.optionals.append((inner, outer, binds))
    scope.bound |= {name: inside.bound[name] for name in binds}
    scope.optional |= {*binds, *inside.optional}
    for name, let in inside.lets.items():
        if name not in scope.lets and named:
            # Without a solution there is no value, whatever the expression is.
            found = ast.NullTest(ast.Variable(named[0], let.span), True, let.span)
            value_of = ast.Case((ast.When(found, let.expression, let.span),), None, let.span)
            scope.lets[name] = ast.Let(let.variable, value_of, let.span)


# ---- nested blocks


def check_block(context: Context, scope: Scope, block: Block) -> Nested | None:
    """The operators of a nested block; None when something in it is wrong."""
    mentioned = _mentioned(scope, block.clauses)
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


def _mentioned(scope: Scope, clauses: Iterable[ast.Clause]) -> set[str]:
    """The names in a block, those behind the values that it names included."""
    mentioned = set(_mentions(clauses))
    return mentioned | {name for let in _used_lets(scope, mentioned) for name in let}


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
                for match in () if clause.binding is None else clause.binding.matches:
                    yield from _expression_variables(match.value)
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
