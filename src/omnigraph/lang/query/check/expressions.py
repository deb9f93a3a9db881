"""Expressions of a query as typed expressions of the representation.

Every function records what is wrong and returns None for it; a None from below is already reported and stays silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from omnigraph.core.source import Hint
from omnigraph.core.types import NUMERICS, ListType, PropertyType, RecordListType, Scalar, ScalarType, scalar_of
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.aggregates import aggregate_type, check_sortable, count_value, order_key
from omnigraph.lang.query.check.calls import (
    argument_of,
    folded,
    function_of_path,
    object_of,
    path_of,
    report_misplaced_rank,
    report_misplaced_text,
    report_misuse,
    with_minus_explained,
)
from omnigraph.lang.query.check.comparisons import (
    are_texts,
    compare_op,
    compared,
    entities_compared,
    is_comparable,
    moment_hint,
    report_incomparable,
    report_node_in,
    report_null,
)
from omnigraph.lang.query.check.operands import (
    BOOL,
    MAX_I64,
    MIN_I64,
    STRING,
    check_arity,
    literal,
    moment_of_literal,
    now,
    parameter,
    property_ref,
    system_field,
    variable_ref,
)
from omnigraph.lang.query.check.places import (
    AGGREGATES,
    ENTITY_FUNCTIONS,
    FUNCTIONS,
    IN_MATCH,
    RANK_FUNCTIONS,
    TEXT_FUNCTIONS,
    Place,
    allows_blocks,
    bare_name,
    is_of_rows,
    report_not_returned,
)
from omnigraph.lang.query.check.scope import Block, Context, EdgeVariable, PathVariable, Scope
from omnigraph.lang.query.check.search import text_condition
from omnigraph.lang.query.functions import table as functions
from omnigraph.lang.query.functions.arguments import Misuse
from omnigraph.lang.query.functions.operand_types import arithmetic_type, common_type, negate_type
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.advice import BOUNDS, COMMENT, TRAVERSAL, function_advice, name_advice
from omnigraph.lang.query.syntax.printing import print_expression

_BLOB = ScalarType(Scalar.BLOB)


def check(context: Context, scope: Scope, expression: ast.Expression, place: Place) -> ir.Expression | None:
    """The meaning of an expression, whatever its type; a node stands for its id."""
    match expression:
        case ast.Literal_() | ast.ListLiteral():
            return literal(context, expression)
        case ast.Null():
            message = "`null` has no type here: it stands in assignments, in `case` and in `coalesce`"
            context.error("Q120", expression.span, message, "test for it with `is null`")
        case ast.Variable():
            return _variable(context, scope, expression, place)
        case ast.PropertyAccess():
            return property_ref(context, scope, expression) if is_of_rows(context, place, expression) else None
        case ast.SystemField():
            return system_field(context, scope, expression) if is_of_rows(context, place, expression) else None
        case ast.AllProperties() | ast.Star():
            message = f"`{print_expression(expression)}` is not one value"
            context.error("T7", expression.span, message, "name the property, as in `$p.name`")
        case ast.NamedArgument(name):
            message = f"`{name}:` is an argument of `nearest` only"
            context.error("Q110", expression.span, message)
        case ast.Alias():
            return bare_name(context, expression, place)
        case ast.MetaName(name):
            found = place.meta_names.get(name)
            if found is None:
                known = [f"@{known}" for known in place.meta_names]
                message = f"`@{name}` says nothing here" if not known else f"there is no `@{name}`"
                hint: Hint = f"write `$x.@{name}`" if not known else f"there are {' and '.join(known)}"
                context.error("T6" if not known else "T11", expression.span, message, hint)
            return found
        case ast.Unary("not", operand):
            inner = condition(context, scope, operand, place)
            return None if inner is None else ir.Not(inner)
        case ast.Unary():
            return _negative(context, scope, expression, place)
        case ast.Binary():
            return _binary(context, scope, expression, place)
        case ast.NullTest():
            return _null_test(context, scope, expression, place)
        case ast.Case():
            return _case(context, scope, expression, place)
        case ast.Exists():
            return _exists(context, scope, expression, place)
        case ast.Call():
            return _call(context, scope, expression, place)
    return None


def value(context: Context, scope: Scope, expression: ast.Expression, place: Place) -> ir.Expression | None:
    """An expression that has a value by itself: no bare node."""
    found = check(context, scope, expression, place)
    if isinstance(found, ir.EntityRef):
        message = f"`{print_expression(expression)}` is a node: compare one of its properties"
        context.error("T7", expression.span, message, f"its id is `${found.variable}.@id`")
        return None
    return found


def condition(context: Context, scope: Scope, expression: ast.Expression, place: Place) -> ir.Expression | None:
    """An expression of type Bool (T41)."""
    if isinstance(expression, ast.Alias) and place.names is None and expression.name in ("true", "false"):
        return literal(context, ast.Literal_(expression.name == "true", expression.name, span=expression.span))
    found = value(context, scope, expression, place)
    if found is None or found.type.base == BOOL.base:
        return found
    message = f"a condition is true or false, this is {found.type}"
    text = print_expression(expression)
    if found.type.nullable:
        hint = f"compare it, or test it: `{text} is not null`"
    elif scalar_of(found.type.base) in NUMERICS:
        hint = f"compare it: `{text} > 0`"
    else:
        hint = f'compare it, as in `{text} = "a"`' if found.type.base == STRING.base else "compare it"
    context.error("T41", expression.span, message, hint)
    return None


# ---- names


def _variable(context: Context, scope: Scope, variable: ast.Variable, place: Place) -> ir.Expression | None:
    let = scope.lets.get(variable.name)
    if let is not None:
        return _let(context, scope, variable, let, place)
    if not place.has_rows or (place.name == "statement" and variable.name not in scope.bound):
        return parameter(context, variable)
    return variable_ref(context, scope, variable)


def _let(context: Context, scope: Scope, variable: ast.Variable, let: ast.Let, place: Place) -> ir.Expression | None:
    """What a name stands for; exactly as if its expression stood here. What is wrong is reported at its definition."""
    if variable.name in scope.resolving:
        return None
    before = context.findings.mark()
    scope.resolving.add(variable.name)
    found = check(context, scope, let.expression, replace(IN_MATCH, texts=place.texts))
    is_condition = found is None and not place.texts and check(context, scope, let.expression, IN_MATCH) is not None
    scope.resolving.discard(variable.name)
    context.findings.forget(before)
    if is_condition:
        context.error("Q111", variable.span, f"`${variable.name}` searches a text: it belongs into `match`")
    return found


# ---- comparisons


_LOGICAL = {ast.Operator.AND: ir.Connective.AND, ast.Operator.OR: ir.Connective.OR}
_ARITHMETIC = {operator.value: operator for operator in ir.ArithmeticOp}


def _binary(context: Context, scope: Scope, expression: ast.Binary, place: Place) -> ir.Expression | None:
    operator = expression.operator
    if operator in _LOGICAL:
        return _logical(context, scope, expression, place)
    if operator in ast.COMPARISONS:
        return _comparison(context, scope, expression, place)
    return _arithmetic(context, scope, expression, place)


def _logical(context: Context, scope: Scope, expression: ast.Binary, place: Place) -> ir.Logical | None:
    connective = _LOGICAL[expression.operator]
    operands: list[ir.Expression] = []
    complete = True
    for operand in _joined(expression, expression.operator):
        found = condition(context, scope, operand, place)
        if found is None:
            complete = False
        elif isinstance(found, ir.Logical) and found.connective is connective:
            operands.extend(found.operands)
        else:
            operands.append(found)
    return ir.Logical(connective, tuple(operands)) if complete else None


def _joined(expression: ast.Expression, operator: ast.Operator) -> list[ast.Expression]:
    """The operands of a chain of `and` or `or`; a chain of thousands takes no stack."""
    operands: list[ast.Expression] = []
    while isinstance(expression, ast.Binary) and expression.operator is operator:
        operands.append(expression.right)
        expression = expression.left
    return [expression, *reversed(operands)]


def _comparison(context: Context, scope: Scope, expression: ast.Binary, place: Place) -> ir.Expression | None:
    operator = expression.operator
    for side in (expression.left, expression.right):
        if isinstance(side, ast.Null):
            report_null(context, side, operator)
            return None
    if operator in (ast.Operator.IN, ast.Operator.NOT_IN):
        return _membership(context, scope, expression, place)
    left = _compared_side(context, scope, expression.left, place)
    if operator is ast.Operator.LT and isinstance(left, ir.EntityRef) and _begins_with_minus(expression.right):
        context.error("Q000", expression.span, "`<-` is no edge", TRAVERSAL)
        return None
    right = _compared_side(context, scope, expression.right, place)
    if left is None or right is None:
        return None
    if isinstance(left, ir.EntityRef) or isinstance(right, ir.EntityRef):
        return entities_compared(context, expression, left, right)
    op = compare_op(operator, left.type.base, right.type.base)
    if op is None:
        report_incomparable(context, expression, left, right)
        return None
    return compared(left, op, right)


def _begins_with_minus(expression: ast.Expression) -> bool:
    while isinstance(expression, ast.Binary):
        expression = expression.left
    return isinstance(expression, ast.Unary) and expression.operator == "-"


def _compared_side(
    context: Context, scope: Scope, expression: ast.Expression, place: Place, *, of_null: bool = False
) -> ir.Expression | None:
    """One side of a comparison; an edge stands for its id."""
    if isinstance(expression, ast.Variable) and expression.name not in scope.lets and place.has_rows:
        bound = scope.bound.get(expression.name)
        if isinstance(bound, PathVariable) and of_null:
            return ir.PathRef(expression.name, ir.PathPart.EDGES, expression.name in scope.optional)
        if isinstance(bound, EdgeVariable) and bound.members is not None:
            return ir.EntityRef(expression.name, bound.type_name, expression.name in scope.optional)
    return check(context, scope, expression, place)


def _membership(context: Context, scope: Scope, expression: ast.Binary, place: Place) -> ir.Expression | None:
    left = _compared_side(context, scope, expression.left, place)
    if isinstance(left, ir.EntityRef):
        report_node_in(context, scope, expression)
        return None
    found = _members(context, scope, expression, left, place)
    if found is None:
        return None
    return ir.Not(found) if expression.operator is ast.Operator.NOT_IN else found


def _members(
    context: Context, scope: Scope, expression: ast.Binary, left: ir.Expression | None, place: Place
) -> ir.Expression | None:
    """`left in list`. A literal whose elements differ in kind becomes one equality for each of them."""
    right = expression.right
    if isinstance(right, ast.ListLiteral):
        items = [_element(context, scope, item, place) for item in right.items]
        if left is None or any(item is None for item in items):
            return None
        elements = [item for item in items if item is not None]
        for item, written in zip(elements, right.items, strict=True):
            if not is_comparable(left.type.base, item.type.base):
                message = f"`{print_expression(written)}` is {item.type}, which {left.type} is never"
                context.error("T7", written.span, message, moment_hint(left.type.base, item))
                return None
        bases = {item.type.base for item in elements}
        if len(bases) == 1 and all(isinstance(item, ir.Constant) for item in elements):
            (base,) = bases
            scalar = scalar_of(base)
            assert scalar is not None, "elements of a list literal are scalars"
            values = tuple(item.value for item in elements if isinstance(item, ir.Constant))
            constant = ir.Constant(values, PropertyType(ListType(scalar)))
            return compared(constant, ir.CompareOp.CONTAINS, left)
        if not elements:
            return compared(ir.Constant((), PropertyType(ListType(Scalar.STRING))), ir.CompareOp.CONTAINS, left)
        equalities = tuple(compared(left, ir.CompareOp.EQ, item) for item in elements)
        return equalities[0] if len(equalities) == 1 else ir.Logical(ir.Connective.OR, equalities)
    list_ = value(context, scope, right, place)
    if left is None or list_ is None:
        return None
    if isinstance(list_.type.base, RecordListType):
        report_incomparable(context, expression, left, list_)
        return None
    if not isinstance(list_.type.base, ListType):
        message = f"`in` needs a list on its right, found {list_.type}"
        hint = "write the values in brackets: `in [1, 2]`"
        if are_texts(left.type.base, list_.type.base):
            part, text = print_expression(expression.left), print_expression(right)
            hint = f"a part of a text is found by `{text} contains {part}`"
        context.error("T7", right.span, message, hint)
        return None
    if not is_comparable(left.type.base, ScalarType(list_.type.base.item)):
        context.error("T7", expression.span, f"`in` cannot find {left.type} in {list_.type}")
        return None
    return compared(list_, ir.CompareOp.CONTAINS, left)


def _element(context: Context, scope: Scope, item: ast.Expression, place: Place) -> ir.Expression | None:
    if isinstance(item, ast.Null):
        context.error("T7", item.span, "null equals nothing, so it is never found", "write `… or x is null`")
        return None
    if isinstance(item, ast.ListLiteral):
        context.error("Q108", item.span, "lists do not nest")
        return None
    found = check(context, scope, item, replace(place, has_rows=False, names=None, is_listed=True))
    if found is not None and scalar_of(found.type.base) is None:
        context.error("Q108", item.span, f"a list holds single values, found {found.type}")
        return None
    return found


def _null_test(context: Context, scope: Scope, expression: ast.NullTest, place: Place) -> ir.Expression | None:
    operand = _compared_side(context, scope, expression.operand, place, of_null=True)
    if operand is None:
        return None
    if operand.type.base == _BLOB:
        context.error("T7", expression.span, "a Blob is read as a cell, a query cannot test it")
        return None
    test = ir.IsNull(operand)
    return ir.Not(test) if expression.negated else test


# ---- arithmetic, case and functions


def _arithmetic(context: Context, scope: Scope, expression: ast.Binary, place: Place) -> ir.Expression | None:
    left = value(context, scope, expression.left, place)
    right = value(context, scope, expression.right, place)
    if left is None or right is None:
        return None
    operator = _ARITHMETIC[expression.operator.value]
    try:
        type_ = arithmetic_type(operator.value, argument_of(left), argument_of(right))
    except Misuse as misuse:
        report_misuse(
            context, with_minus_explained(context, misuse, expression), expression, (expression.left, expression.right)
        )
        return None
    if isinstance(left, ir.Constant) and isinstance(right, ir.Constant):
        number = folded(operator, left.value, right.value)
        if number is not None and not MIN_I64 <= number <= MAX_I64:
            text = print_expression(expression)
            context.error("Q109", expression.span, f"`{text}` is beyond 64 bits")
            return None
        if number is not None:
            return ir.Constant(number, type_)
    return ir.Arithmetic(left, operator, right, type_)


def _negative(context: Context, scope: Scope, expression: ast.Unary, place: Place) -> ir.Expression | None:
    if place.name == "match" and isinstance(expression.operand, ast.Alias):
        hint = f"{COMMENT}; {name_advice(expression.operand.name)}"
        context.error("T7", expression.span, f"`{print_expression(expression)}` is not a value", hint)
        return None
    operand = value(context, scope, expression.operand, place)
    if operand is None:
        return None
    try:
        type_ = negate_type(argument_of(operand))
    except Misuse as misuse:
        report_misuse(context, misuse, expression, (expression.operand,))
        return None
    return ir.Negative(operand, type_)


def _case(context: Context, scope: Scope, expression: ast.Case, place: Place) -> ir.Expression | None:
    conditions = [condition(context, scope, branch.condition, place) for branch in expression.branches]
    written = [branch.value for branch in expression.branches]
    if expression.otherwise is not None:
        written.append(expression.otherwise)
    found = _alternatives(context, scope, expression, written, place)
    if found is None or any(item is None for item in conditions):
        return None
    values, type_ = found
    otherwise = values[-1] if expression.otherwise is not None else None
    if otherwise is None:
        type_ = replace(type_, nullable=True)
    tests = [item for item in conditions if item is not None]
    return ir.Case(tuple(zip(tests, values[: len(tests)], strict=True)), otherwise, type_)


def _alternatives(
    context: Context, scope: Scope, whole: ast.Expression, written: Sequence[ast.Expression], place: Place
) -> tuple[list[ir.Expression], PropertyType] | None:
    """Values of which one is taken, with the type that they have together; `null` takes the type of the others."""
    checked = [None if isinstance(item, ast.Null) else value(context, scope, item, place) for item in written]
    nulls = [isinstance(item, ast.Null) for item in written]
    if any(item is None and not is_null for item, is_null in zip(checked, nulls, strict=True)):
        return None
    present = [item for item in checked if item is not None]
    if not present:
        context.error("Q120", whole.span, f"`{print_expression(whole)}` is always null, so it has no type")
        return None
    try:
        type_ = common_type([argument_of(item) for item in present])
    except Misuse as misuse:
        places = [item for item, is_null in zip(written, nulls, strict=True) if not is_null]
        report_misuse(context, misuse, whole, places)
        return None
    type_ = replace(type_, nullable=any(nulls) or any(item.type.nullable for item in present))
    null = ir.Constant(None, replace(type_, nullable=True))
    return [null if item is None else item for item in checked], type_


def _call(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Expression | None:
    name = call.function
    if call.clauses is not None:
        return block_value(context, scope, call, place)
    if name in AGGREGATES:
        return check_aggregate(context, scope, call, place)
    if call.distinct or call.order or call.limit is not None:
        context.error("Q110", call.span, f"`{name}` takes no `distinct`, `order` or `limit`: aggregates do")
        return None
    if any(isinstance(argument, ast.Star) for argument in call.arguments):
        context.error("Q110", call.span, f"`*` is an argument of `count` only, not of `{name}`")
        return None
    if name in TEXT_FUNCTIONS:
        if place.texts:
            return text_condition(context, scope, call)
        report_misplaced_text(context, call, place)
        return None
    if name in RANK_FUNCTIONS:
        report_misplaced_rank(context, call, place)
        return None
    if name == "now":
        return now(context, call)
    if name in ENTITY_FUNCTIONS:
        return object_of(context, scope, call, place)
    if (path := path_of(scope, call)) is not None:
        return function_of_path(context, scope, call, path)
    if name in ("date", "datetime") and len(call.arguments) == 1:
        (argument,) = call.arguments
        if isinstance(argument, ast.Literal_) and isinstance(argument.value, str):
            return moment_of_literal(context, call, argument)
    return _function(context, scope, call, place)


def _function(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Expression | None:
    function = functions.function_named(call.function)
    if function is None:
        hint = partial(function_advice, call.function, FUNCTIONS)
        context.error("Q110", call.span, f"there is no function `{call.function}`", hint)
        return None
    if not check_arity(context, call, function.least, function.most, "Q110"):
        return None
    if call.function == "coalesce":
        found = _alternatives(context, scope, call, call.arguments, place)
        if found is None:
            return None
        values, type_ = found
        is_null = all(item.type.nullable for item in values)
        return ir.Function("coalesce", tuple(values), replace(type_, nullable=is_null))
    checked = [value(context, scope, argument, place) for argument in call.arguments]
    arguments = [item for item in checked if item is not None]
    if len(arguments) < len(checked):
        return None
    try:
        type_ = function.result([argument_of(item) for item in arguments])
    except Misuse as misuse:
        report_misuse(context, misuse, call, call.arguments)
        return None
    if call.function == "matches" and isinstance(arguments[1], ir.ParamRef):
        context.patterns.add(arguments[1].name)
    return ir.Function(call.function, tuple(arguments), type_)


# ---- aggregates and blocks


def check_aggregate(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Aggregate | None:
    """An aggregate over the rows of a group."""
    if not place.aggregates:
        if place.name == "match":
            hint = f"write `{call.function} {{ … }}` for a value of a pattern, or `having` behind `return`"
            context.error("T7", call.span, f"`{call.function}` cannot stand in `match`", hint)
        elif place.name == "aggregate":
            context.error("T8", call.span, f"an aggregate cannot aggregate `{call.function}`")
        elif place.name == "column":
            report_not_returned(context, call)
        else:
            code = "T45" if place.name == "a constant" else "T44"
            context.error(code, call.span, f"`{call.function}` needs the rows of a match and cannot stand here")
        return None
    inside = replace(place, name="aggregate", aggregates=False)
    return aggregate(context, scope, call, inside)


def aggregate(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Aggregate | None:
    """An aggregate with its argument, order and limit; `place` is that of the argument."""
    function = ir.AggregateFunction(call.function)
    if function is ir.AggregateFunction.COUNT and call.arguments and isinstance(call.arguments[0], ast.Star):
        if len(call.arguments) > 1 or call.distinct:
            context.error("T8", call.span, "`count(*)` counts rows and takes nothing else")
            return None
        return ir.Aggregate(function, None, ir.COUNT_TYPE)
    if not call.arguments and function is ir.AggregateFunction.COUNT:
        context.error("T8", call.span, "`count` takes 1 argument, found 0", "rows are counted by `count(*)`")
        return None
    if not check_arity(context, call, 1, 1, "T8"):
        return None
    if function is not ir.AggregateFunction.COLLECT and (call.order or call.limit is not None):
        context.error("T8", call.span, f"`{call.function}` takes no `order` or `limit`: `collect` does")
        return None
    (inner,) = call.arguments
    is_count = function is ir.AggregateFunction.COUNT
    argument = _compared_side(context, scope, inner, place, of_null=is_count)
    if argument is None:
        return None
    if argument.type.base == _BLOB:
        context.error("T24", inner.span, "a Blob cannot be aggregated")
        return None
    type_ = aggregate_type(context, function, argument, inner)
    if type_ is None:
        return None
    order = tuple(key for sort in call.order if (key := inner_key(context, scope, sort, place)) is not None)
    limit = None if call.limit is None else count_value(context, call.limit)
    if len(order) < len(call.order) or (call.limit is not None and limit is None):
        return None
    return ir.Aggregate(function, argument, type_, call.distinct, order, limit)


def inner_key(context: Context, scope: Scope, sort: ast.Sort, place: Place) -> ir.OrderKey | None:
    """An order key inside an aggregate."""
    found = check(context, scope, sort.expression, place)
    if found is None or not check_sortable(context, sort.expression, found.type):
        return None
    return order_key(found, sort)


def _exists(context: Context, scope: Scope, expression: ast.Exists, place: Place) -> ir.Expression | None:
    if not allows_blocks(context, place, expression):
        return None
    word = "not" if expression.negated else "exists"
    nested = context.block(context, scope, Block(word, expression.clauses, expression.span))
    if nested is None:
        return None
    found = ir.Exists(nested.outer, nested.pipeline)
    return ir.Not(found) if expression.negated else found


def block_value(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Expression | None:
    """`count { … }` and its like: an aggregate over what a block finds for the row."""
    if not allows_blocks(context, place, call):
        return None
    assert call.clauses is not None, "a block has clauses"
    if call.function not in AGGREGATES:
        is_edge = context.catalog.edge(call.function) is not None
        hint = BOUNDS if is_edge and not call.arguments else "aggregates do, as in `count { … }`"
        context.error("Q110", call.span, f"`{call.function}` takes no block", hint)
        return None
    if not call.arguments and call.function != "count":
        message = f"`{call.function} {{ … }}` needs what it is made over"
        context.error("T8", call.span, message, f"write `{call.function}($x.property) {{ … }}`")
        return None
    nested = context.block(context, scope, Block(call.function, call.clauses, call.span))
    if nested is None:
        return None
    if not call.arguments:
        made: ir.Aggregate | None = ir.Aggregate(ir.AggregateFunction.COUNT, None, ir.COUNT_TYPE)
    else:
        made = aggregate(context, nested.scope, call, Place("aggregate"))
    if made is None:
        return None
    read = (name for name in ir.variables(made) if name in scope.bound)
    used = dict.fromkeys((*nested.outer, *read))
    return ir.BlockValue(made, tuple(used), nested.pipeline)
