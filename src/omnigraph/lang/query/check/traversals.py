"""Checks of traversals: edge types, directions, the types of their ends, hops and the conditions of hops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from omnigraph.core.source import did_you_mean
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.expressions import condition
from omnigraph.lang.query.check.lowering import CheckedPattern, CheckedTraversal, in_known_order
from omnigraph.lang.query.check.operands import BOOL
from omnigraph.lang.query.check.places import Place
from omnigraph.lang.query.check.scope import Context, EdgeVariable, NodeVariable, PathVariable, Scope
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.schema.catalog import EdgeDef

_MAX_HOPS = 2**63 - 1
#: Trails grow with every hop as fast as the graph branches.
MAX_TRAIL_HOPS = 10
_WORD_OPERATORS = ("contains", "starts_with", "ends_with")


@frozen
class _Resolvable:
    """A traversal over known edges, with the names of its ends."""

    clause: ast.Traversal
    edges: tuple[EdgeDef, ...]
    left: str
    right: str
    path: ast.Path | None = None


def check_traversals(
    context: Context,
    scope: Scope,
    pattern: CheckedPattern,
    clauses: Iterable[ast.Traversal | ast.Path],
    typed_ends: dict[int, str],
) -> None:
    """Resolve the traversals of a block; `typed_ends` has the names of right ends by the identity of their binding."""
    outer = frozenset(scope.bound) - pattern.bindings.keys()
    resolvable: list[_Resolvable] = []
    for written in clauses:
        path = written if isinstance(written, ast.Path) else None
        clause = written.traversal if isinstance(written, ast.Path) else written
        if path is not None:
            _bind_path(context, scope, path)
        edges = _edges_of(context, clause)
        if not edges:
            # Unknown edge: its variables are bound, but nothing is known about them.
            for variable in (clause.left, clause.right):
                scope.bound.setdefault(variable.name, NodeVariable(None))
            if clause.edge is not None:
                scope.bound.setdefault(clause.edge.name, EdgeVariable(None))
            continue
        left = _end_name(context, scope, clause.left)
        named = None if clause.binding is None else typed_ends.get(id(clause.binding))
        right = named or _end_name(context, scope, clause.right)
        _bind_edge(context, scope, clause, edges)
        resolvable.append(_Resolvable(clause, edges, left, right, path))
    for item in in_known_order(resolvable, scope.bound):
        _resolve(context, scope, pattern, item, outer)


def _edges_of(context: Context, clause: ast.Traversal) -> tuple[EdgeDef, ...]:
    """The edge types that the words of a traversal mean; all of them for `*`."""
    hop = clause.hop
    if not hop.words:
        return tuple(context.catalog.edges.values())
    found: dict[str, EdgeDef] = {}
    for word in hop.words:
        edge = context.catalog.edge(word.name)
        if edge is None:
            _report_unknown_edge(context, clause, word)
            return ()
        found[edge.name] = edge
    return tuple(found.values())


def _report_unknown_edge(context: Context, clause: ast.Traversal, word: ast.TypeName) -> None:
    ends = (clause.left.name, clause.right.name)
    if word.name in _WORD_OPERATORS and all(end in context.params for end in ends):
        message = f"`{word.name}` between two variables is a traversal, and both of these are parameters"
        context.error("Q104", clause.span, message, f"compare a property: `$p.name {word.name} $text`")
        return
    left, right = (f"${name}" for name in ends)
    type_ = context.params.get(ends[0])
    if word.name in ("true", "false") or (type_ is not None and type_.base == BOOL.base):
        message = f"`{left} {word.name} {right}` is read as a traversal, and there is no edge `{word.name}`"
        context.error("T4", word.span, message, f"a condition before others stands in parentheses: `({left})`")
        return
    words = [name[0].lower() + name[1:] for name in context.catalog.edges]
    message = f"there is no edge `{word.name}`"
    context.error("T4", word.span, message, partial(did_you_mean, word.name, words))


def is_named_value(context: Context, scope: Scope, variable: ast.Variable) -> bool:
    """Whether a name stands for a value, which is reported: it cannot be a node or an edge too (Q122)."""
    if variable.name not in scope.lets:
        return False
    message = f"`${variable.name}` names a value and cannot be a node or an edge too"
    context.error("Q122", variable.span, message, "give one of them another name")
    return True


def _end_name(context: Context, scope: Scope, end: ast.Variable) -> str:
    if end.name == ast.ANONYMOUS or is_named_value(context, scope, end):
        return context.hidden_variable()
    if end.name in context.params:
        message = f"`${end.name}` is a parameter, the ends of a traversal are variables"
        context.error("Q104", end.span, message, f"bind a node first, for example `$n: Type {{ key: ${end.name} }}`")
        scope.bound[end.name] = NodeVariable(None)
        return context.hidden_variable()
    if isinstance(scope.bound.get(end.name), EdgeVariable | PathVariable):
        what = "an edge" if isinstance(scope.bound[end.name], EdgeVariable) else "a path"
        context.error("T23", end.span, f"`${end.name}` is {what} and cannot be an end of a traversal")
        return context.hidden_variable()
    return end.name


def _bind_edge(context: Context, scope: Scope, clause: ast.Traversal, edges: tuple[EdgeDef, ...]) -> None:
    variable = clause.edge
    if variable is None or variable.name == ast.ANONYMOUS or is_named_value(context, scope, variable):
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
        scope.bound[name] = EdgeVariable(edges)


def _bind_path(context: Context, scope: Scope, path: ast.Path) -> None:
    variable, traversal = path.variable, path.traversal
    name = variable.name
    if name == ast.ANONYMOUS:
        context.error("Q121", variable.span, "a path has a name", "write `path $w = …`, or the traversal alone")
    elif name in context.params or name in scope.bound or name in scope.lets:
        message = f"`${name}` is bound already, and a path is another thing"
        context.error("Q121", variable.span, message, "give the path a name of its own")
    else:
        scope.bound[name] = PathVariable()
    if traversal.edge is not None:
        message = f"a path has its edges: `${traversal.edge.name}` cannot name one of them"
        context.error("Q121", traversal.edge.span, message, f"write `edges(${name})`")
    bounds = traversal.hop.bounds
    if path.choice == "all" and bounds is not None and (bounds.high or 0) > MAX_TRAIL_HOPS:
        message = f"all paths of more than {MAX_TRAIL_HOPS} hops are too many to be found"
        context.error("T15", bounds.span, message, "ask for the shortest: `path $w = shortest …`")


# ---- the way from left to right


def _resolve(context: Context, scope: Scope, pattern: CheckedPattern, item: _Resolvable, outer: frozenset[str]) -> None:
    clause = item.clause
    low, high = _bounds(context, clause)
    ends = [_node_types(scope, name) for name in (item.left, item.right)]
    if _is_untold(context, item, ends, is_long=high > 1):
        steps: tuple[ir.Step, ...] = ()
    else:
        steps = _steps(context, item, ends, is_long=high > 1)
    if not steps:
        # Reported: go on as if it ran from source to target.
        steps = tuple(ir.Step(edge.name, ir.Direction.OUT, edge.source, edge.target) for edge in item.edges[:1])
    variable = None if clause.edge is None or clause.edge.name == ast.ANONYMOUS else clause.edge.name
    if variable is not None and isinstance(scope.bound.get(variable), EdgeVariable):
        used = dict.fromkeys(step.edge_type for step in steps)
        scope.bound[variable] = EdgeVariable(tuple(context.catalog.edges[name] for name in used))
    if high > 1:
        starts = [step.source_type for step in steps if ends[0] is None or step.source_type in ends[0]]
        reached = [step.target_type for step in steps if ends[1] is None or step.target_type in ends[1]]
    else:
        starts, reached = [step.source_type for step in steps], [step.target_type for step in steps]
    for name, types in ((item.left, starts), (item.right, reached)):
        if name not in outer:
            _narrow(context, scope, name, types)
    needs_hop = clause.hop.condition is not None or item.path is not None
    hop = variable or (context.hidden_variable() if needs_hop else "")
    pattern.traversals.append(
        CheckedTraversal(
            left=item.left,
            right=item.right,
            steps=steps,
            low=low,
            high=high,
            edge_variable=variable,
            hop=hop,
            conditions=_conditions(context, clause, item.edges, hop),
            path=None if item.path is None else item.path.variable.name,
            choice=None if item.path is None else ir.PathChoice(item.path.choice),
        )
    )


def _node_types(scope: Scope, name: str) -> tuple[str, ...] | None:
    """The types that a variable may have; None where nothing says them yet."""
    bound = scope.bound.get(name)
    return bound.names if isinstance(bound, NodeVariable) and bound.members is not None else None


def _narrow(context: Context, scope: Scope, name: str, types: Iterable[str]) -> None:
    """Keep of the types of a variable those that a traversal leaves, or give it these."""
    bound = scope.bound.get(name)
    fitting = dict.fromkeys(types)
    if isinstance(bound, NodeVariable) and bound.members is None:
        return
    known = bound.names if isinstance(bound, NodeVariable) else tuple(sorted(fitting))
    members = tuple(context.catalog.nodes[type_] for type_ in known if type_ in fitting)
    if members or bound is None:
        scope.bound[name] = NodeVariable(members)


def _is_untold(context: Context, item: _Resolvable, ends: Sequence[tuple[str, ...] | None], *, is_long: bool) -> bool:
    """Whether the types of the ends have to be written and are not, which is reported."""
    clause, edges = item.clause, item.edges
    names = [(clause.left, ends[0]), (clause.right, ends[1])]
    if not clause.hop.words:
        untold = [variable for variable, types in names if types is None]
        if untold:
            message = f"`*` stands for all edges that fit its ends, and `${untold[0].name}` has no type"
            context.error("T5", untold[0].span, message, f"write its type: `${untold[0].name}: Type`")
        return bool(untold)
    different = {(edge.source, edge.target) for edge in edges}
    if ends[0] is None and ends[1] is None and len(different) > 1:
        listing = ", ".join(f"{edge.name} runs {edge.source} -> {edge.target}" for edge in edges)
        context.error("T5", clause.span, f"nothing says the types of the ends: {listing}", "write the type of one")
        return True
    crosses = any(source != target for source, target in different)
    if clause.hop.undirected and crosses and is_long and ends[1] is None:
        message = f"over several hops `${clause.right.name}` may be of any type"
        context.error("T5", clause.right.span, message, f"write its type: `${clause.right.name}: Type`")
        return True
    return False


def _steps(
    context: Context, item: _Resolvable, ends: Sequence[tuple[str, ...] | None], *, is_long: bool
) -> tuple[ir.Step, ...]:
    """Every way from the left end to the right one that fits their types; none is reported."""
    clause, edges = item.clause, item.edges
    is_named = len(clause.hop.words) == 1
    if clause.hop.undirected:
        steps = tuple(_both_ways(edges, ends, is_long=is_long))
        can_begin = any(_fits(step.source_type, ends[0]) for step in steps)
        can_end = any(_fits(step.target_type, ends[1]) for step in steps)
        if not (can_begin and can_end):
            steps = ()
    elif is_long and not is_named:
        steps = _one_way(context, clause, edges, ends)
    else:
        steps = tuple(step for edge in edges for step in _directed(edge, ends))
    if item.left == item.right and not is_long:
        steps = tuple(step for step in steps if step.source_type == step.target_type)
    if not steps:
        _report_endpoint(context, item, ends)
    return steps


def _fits(type_: str, types: tuple[str, ...] | None) -> bool:
    return types is None or type_ in types


def _directed(edge: EdgeDef, ends: Sequence[tuple[str, ...] | None]) -> Iterator[ir.Step]:
    """Forward if the types allow it, else backward."""
    left, right = ends
    if _fits(edge.source, left) and _fits(edge.target, right):
        yield ir.Step(edge.name, ir.Direction.OUT, edge.source, edge.target)
    elif _fits(edge.target, left) and _fits(edge.source, right):
        yield ir.Step(edge.name, ir.Direction.IN, edge.target, edge.source)


def _both_ways(edges: Iterable[EdgeDef], ends: Sequence[tuple[str, ...] | None], *, is_long: bool) -> Iterator[ir.Step]:
    left, right = (None, None) if is_long else ends
    for edge in edges:
        if edge.source == edge.target:
            if _fits(edge.source, left) and _fits(edge.source, right):
                yield ir.Step(edge.name, ir.Direction.BOTH, edge.source, edge.target)
            continue
        if _fits(edge.source, left) and _fits(edge.target, right):
            yield ir.Step(edge.name, ir.Direction.OUT, edge.source, edge.target)
        if _fits(edge.target, left) and _fits(edge.source, right):
            yield ir.Step(edge.name, ir.Direction.IN, edge.target, edge.source)


def _one_way(
    context: Context, clause: ast.Traversal, edges: tuple[EdgeDef, ...], ends: Sequence[tuple[str, ...] | None]
) -> tuple[ir.Step, ...]:
    """Several edge types over several hops: all forward if one can begin so, else all backward."""
    left, right = ends
    is_forward = any(_fits(edge.source, left) for edge in edges)
    if not is_forward and not any(_fits(edge.target, left) for edge in edges):
        return ()
    for edge in edges if clause.hop.words and is_forward else ():
        if not _fits(edge.source, left) and _fits(edge.target, left):
            message = f"over several hops all edges run one way, and `{edge.name}` would run against the others"
            context.error("T15", clause.hop.span, message, "follow it in a traversal of its own")
    direction = ir.Direction.OUT if is_forward else ir.Direction.IN
    steps = tuple(
        ir.Step(edge.name, direction, *((edge.source, edge.target) if is_forward else (edge.target, edge.source)))
        for edge in edges
    )
    return steps if any(_fits(step.target_type, right) for step in steps) else ()


def _report_endpoint(context: Context, item: _Resolvable, ends: Sequence[tuple[str, ...] | None]) -> None:
    clause, edges = item.clause, item.edges
    if len(edges) > 1 or not clause.hop.words:
        words = f"{len(edges)} edge types" if not clause.hop.words else " | ".join(edge.name for edge in edges)
        message = f"no edge of {words} runs between `${clause.left.name}` and `${clause.right.name}`"
        context.error("T5", clause.span, message)
        return
    (edge,) = edges
    runs = f"edge `{edge.name}` runs {edge.source} -> {edge.target}"
    for variable, types in zip((clause.left, clause.right), ends, strict=True):
        if types is not None and not {edge.source, edge.target} & set(types):
            message = f"`${variable.name}` is a `{' | '.join(types)}`, but {runs}"
            context.error("T5", variable.span, message)
            return
    known = ends[0] or ends[1] or (edge.source,)
    message = f"`${clause.left.name}` and `${clause.right.name}` are both `{' | '.join(known)}`, but {runs}"
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


def _conditions(
    context: Context, clause: ast.Traversal, edges: tuple[EdgeDef, ...], hop: str
) -> tuple[ir.Expression, ...]:
    """What every edge that is followed has to satisfy; bare names are its properties."""
    if clause.hop.condition is None:
        return ()
    found = condition(context, Scope(), clause.hop.condition, place_of_hop(edges, hop))
    return () if found is None else (found,)


def place_of_hop(edges: tuple[EdgeDef, ...], hop: str) -> Place:
    """Where the condition of a hop stands: bare names are the properties that all edges have."""
    common = EdgeVariable(edges)
    names: dict[str, ir.Expression | None] = {}
    for name in common.property_names():
        type_ = common.property_type(name)
        names[name] = None if type_ is None else ir.PropertyRef(hop, name, type_)
    return Place("property of the edge", has_rows=False, names=names)
