"""The pattern that operators stand for, without their order: nodes, links between them, and what has to hold of them.

Lowering writes operators in the order of the text. Here they become sets again: whatever the order was, the pattern is
the same, and its parts are sorted by their names and their texts, never by where they stood. Names that no query can
spell follow the text too, so they stand in no text that something is sorted by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from omnigraph.engine.tables.context import is_hidden, variable_names
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: An operator that leads from one node to another.
LinkOp = ir.Expand | ir.ExpandEdges | ir.Search | ir.PathSearch
#: The node types of variables; none for edges and paths.
Types = Mapping[str, tuple[str, ...]]
#: Plans the operators of a block, which begins with some variables, and keeps the variables that are asked for.
BlockPlanner = Callable[[Sequence[ir.Op], Types, frozenset[str]], tuple[ir.Op, ...]]

#: What stands for a block.
BlockChange = Callable[[ir.Exists | ir.BlockValue], ir.Expression]

_HIDDEN = "~"
_TURNED = {ir.Direction.OUT: ir.Direction.IN, ir.Direction.IN: ir.Direction.OUT, ir.Direction.BOTH: ir.Direction.BOTH}


@frozen
class Node:
    """A variable that the pattern binds to nodes, with what has to hold of it alone."""

    name: str
    types: tuple[str, ...]
    filters: tuple[ir.Expression, ...]
    #: What nodes are sorted by.
    label: str


@frozen
class Link:
    """A way between two variables: an operator from `left` to `right`, with no filter on its nodes."""

    op: LinkOp
    left: str
    right: str
    #: What links are sorted by.
    text: str

    @property
    def is_hop(self) -> bool:
        """Whether it is one hop along one edge type whose edges have no name and no condition."""
        op = self.op
        return isinstance(op, ir.Expand) and op.high == 1 and op.edge_variable is None and not op.edge_filters

    @property
    def is_directed(self) -> bool:
        """Whether it can be followed from its left end only: a path is searched in its own direction."""
        return isinstance(self.op, ir.PathSearch)

    @property
    def binds(self) -> tuple[str, ...]:
        """The edge or the path that it gives a name."""
        match self.op:
            case ir.Expand(edge_variable=str(name)) | ir.ExpandEdges(edge_variable=name) | ir.PathSearch(path=name):
                return (name,)
            case _:
                return ()

    def other(self, end: str) -> str:
        """The other end."""
        return self.left if end == self.right else self.right


@frozen(kw_only=True)
class Pattern:
    """One block of clauses."""

    #: The variables that exist before it.
    outer: Types
    nodes: Mapping[str, Node]
    links: tuple[Link, ...]
    #: Conditions of several variables, of none, of paths, and of variables from outside.
    filters: tuple[ir.Expression, ...]
    blocks: tuple[ir.SemiJoin | ir.AntiJoin, ...]
    optionals: tuple[ir.OptionalJoin, ...]
    #: Conditions on results, which come last and may fail.
    strict: tuple[ir.Filter, ...]

    @property
    def types(self) -> dict[str, tuple[str, ...]]:
        """The node types of every variable that is bound outside of optional blocks."""
        return {**self.outer, **{name: node.types for name, node in self.nodes.items()}}


def pattern_of(ops: Sequence[ir.Op], outer: Types, plan_block: BlockPlanner) -> Pattern:
    """The pattern of a pipeline; its blocks are planned on the way."""
    closed = _closed_variables(ops)
    types = {**outer, **{name: own for name, own in node_types(ops).items() if name not in closed}}
    own_nodes = types.keys() - outer.keys() - _bound_inside(ops)
    conditions: dict[str, list[ir.Expression]] = defaultdict(list)
    links: list[tuple[LinkOp, str, str]] = []
    filters: list[ir.Expression] = []
    blocks: list[ir.SemiJoin | ir.AntiJoin] = []
    optionals: list[ir.OptionalJoin] = []
    strict: list[ir.Filter] = []

    def planned(expression: ir.Expression) -> ir.Expression:
        return changed(expression, {}, _block_change(plan_block, types))

    for op in ops:
        match op:
            case ir.NodeScan(variable, filters=own) | ir.UnionScan(variable, filters=own):
                conditions[variable] += map(planned, own)
            case ir.Expand() | ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                target = closed.get(op.target, op.target)
                links.append((_bare(op, planned), op.source, target))
                if isinstance(op, ir.Expand):
                    conditions[target] += map(planned, op.filters)
            case ir.Filter(predicate, is_strict):
                if _closing(predicate, closed) is not None:
                    continue
                predicate = planned(predicate)
                name = _only_node(predicate, own_nodes)
                if is_strict:
                    strict.append(ir.Filter(predicate, is_strict))
                elif name is not None:
                    conditions[name].append(predicate)
                else:
                    filters.append(predicate)
            case ir.SemiJoin(begins, pipeline) | ir.AntiJoin(begins, pipeline):
                inside = plan_block(pipeline, _of_outer(types, begins), frozenset())
                blocks.append(replace(op, outer=tuple(sorted(begins)), pipeline=inside))
            case ir.OptionalJoin(begins, pipeline, binds):
                named = tuple(sorted(name for name in binds if not is_hidden(name)))
                inside = plan_block(pipeline, _of_outer(types, begins), frozenset(named))
                optionals.append(ir.OptionalJoin(tuple(sorted(begins)), inside, named))
    nodes = _labelled(sorted(own_nodes), types, conditions, links)
    labels = {**{name: name for name in outer}, **{name: node.label for name, node in nodes.items()}}
    return Pattern(
        outer=outer,
        nodes={name: nodes[name] for name in sorted(nodes, key=lambda name: nodes[name].label)},
        links=tuple(sorted((_oriented(*link, types, labels) for link in links), key=lambda link: link.text)),
        filters=_sorted(filters),
        blocks=tuple(sorted(blocks, key=repr)),
        optionals=tuple(sorted(optionals, key=repr)),
        strict=tuple(strict),
    )


def node_types(ops: Iterable[ir.Op]) -> dict[str, tuple[str, ...]]:
    """The node types of every variable that a pipeline binds to nodes, optional ones included."""
    found: dict[str, tuple[str, ...]] = {}
    for op in ops:
        match op:
            case ir.NodeScan(variable, node_type):
                found[variable] = (node_type,)
            case ir.UnionScan(variable, names):
                found[variable] = names
            case ir.Expand():
                found[op.target] = (op.target_type,)
            case ir.ExpandEdges() | ir.Search():
                found[op.target] = op.target_types
            case ir.PathSearch(search=search):
                found[op.target] = search.target_types
            case ir.OptionalJoin(_, pipeline, binds):
                found |= {name: types for name, types in node_types(pipeline).items() if name in binds}
            case _:
                pass
    return found


def turned(op: LinkOp, source_types: tuple[str, ...]) -> LinkOp:
    """A link from its target to its source, which is of these types."""
    match op:
        case ir.Expand():
            return replace(
                op, source=op.target, target=op.source, direction=_TURNED[op.direction], target_type=source_types[0]
            )
        case ir.ExpandEdges() | ir.Search():
            steps = tuple(
                ir.Step(step.edge_type, _TURNED[step.direction], step.target_type, step.source_type)
                for step in op.steps
            )
            return replace(op, source=op.target, target=op.source, steps=steps, target_types=source_types)
        case ir.PathSearch():
            raise AssertionError("a path is searched in its own direction")


# ---- inside


def _bare(op: LinkOp, planned: Callable[[ir.Expression], ir.Expression]) -> LinkOp:
    """A link without conditions on its nodes, those on its edges in an order of their own."""
    match op:
        case ir.Expand():
            return replace(op, filters=(), edge_filters=_sorted(map(planned, op.edge_filters)))
        case ir.ExpandEdges():
            return replace(op, edge_filters=_sorted(map(planned, op.edge_filters)))
        case _:
            return op


def _closed_variables(ops: Sequence[ir.Op]) -> dict[str, str]:
    """The hidden ends of links that only say that two bound variables are linked, with the variable they stand for."""
    ends = {
        op.target
        for op in ops
        if isinstance(op, ir.Expand | ir.ExpandEdges | ir.Search | ir.PathSearch) and is_hidden(op.target)
    }
    found: dict[str, str] = {}
    for op in ops:
        match op:
            case ir.Filter(ir.Comparison(ir.EntityRef(reached), ir.CompareOp.EQ, ir.EntityRef(target))):
                if reached in ends:
                    found[reached] = target
            case _:
                pass
    return found


def _closing(predicate: ir.Expression, closed: Mapping[str, str]) -> str | None:
    match predicate:
        case ir.Comparison(ir.EntityRef(reached), ir.CompareOp.EQ, ir.EntityRef()) if reached in closed:
            return reached
        case _:
            return None


def _block_change(plan_block: BlockPlanner, types: Types) -> BlockChange:
    def change(block: ir.Exists | ir.BlockValue) -> ir.Expression:
        outer = tuple(sorted(block.outer))
        needed = frozenset[str]()
        if isinstance(block, ir.BlockValue):
            needed = frozenset(ir.variables(block.aggregate))
            if block.aggregate.order:
                needed |= {name for name in variable_names(block.pipeline) if not is_hidden(name)}
        return replace(block, outer=outer, pipeline=plan_block(block.pipeline, _of_outer(types, outer), needed))

    return change


def planned_expression(expression: ir.Expression, types: Types, plan_block: BlockPlanner) -> ir.Expression:
    """An expression whose blocks are planned."""
    return changed(expression, {}, _block_change(plan_block, types))


def _of_outer(types: Types, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {name: types.get(name, ()) for name in sorted(names)}


def _only_node(predicate: ir.Expression, nodes: Set[str]) -> str | None:
    """The one node of the pattern that a condition is about."""
    names = set(ir.variables(predicate))
    if len(names) != 1 or any(isinstance(part, ir.PathRef) for part in ir.walk(predicate)):
        return None
    (name,) = names
    return name if name in nodes else None


def _bound_inside(ops: Iterable[ir.Op]) -> set[str]:
    """The variables that optional blocks bind."""
    return {name for op in ops if isinstance(op, ir.OptionalJoin) for name in op.binds}


def _sorted(expressions: Iterable[ir.Expression]) -> tuple[ir.Expression, ...]:
    return tuple(sorted(expressions, key=repr))


def _labelled(
    names: Sequence[str],
    types: Types,
    conditions: Mapping[str, list[ir.Expression]],
    links: Sequence[tuple[LinkOp, str, str]],
) -> dict[str, Node]:
    """The nodes with their labels. A hidden one stands at one link, so that link says all about it."""
    by_end: dict[str, list[tuple[LinkOp, str, str]]] = defaultdict(list)
    for link in links:
        for end in {link[1], link[2]}:
            if is_hidden(end):
                by_end[end].append(link)
    found: dict[str, Node] = {}
    for name in names:
        filters = _masked(conditions.get(name, ()), name) if is_hidden(name) else ()
        label = name if not is_hidden(name) else _hidden_label(name, types, filters, by_end[name])
        found[name] = Node(name, types[name], _sorted(conditions.get(name, ())), label)
    return found


def _masked(filters: Iterable[ir.Expression], name: str) -> tuple[str, ...]:
    return tuple(sorted(repr(changed(item, {name: _HIDDEN})) for item in filters))


def _hidden_label(name: str, types: Types, filters: tuple[str, ...], links: Sequence[tuple[LinkOp, str, str]]) -> str:
    told: list[str] = []
    for op, left, right in links:
        seen, other = op, right
        if name == right:
            other = left
            if not isinstance(op, ir.PathSearch):
                seen = turned(op, types[left])
        told.append(f"{_HIDDEN if is_hidden(other) else other} {op_text(seen)}")
    return f"{_HIDDEN}{types[name]}{filters}{sorted(told)}"


def _oriented(op: LinkOp, left: str, right: str, types: Types, labels: Mapping[str, str]) -> Link:
    """A link from the end whose label comes first, so that it does not matter which end the text begins with."""
    here = (labels[left], labels[right], op_text(op))
    if isinstance(op, ir.PathSearch):
        return Link(op, left, right, repr(here))
    other = turned(op, types[left])
    there = (labels[right], labels[left], op_text(other))
    if there < here:
        return Link(other, right, left, repr(there))
    return Link(op, left, right, repr(here))


def op_text(op: LinkOp) -> str:
    """A link without the names of its ends, and without hidden names."""
    match op:
        case ir.Expand() | ir.ExpandEdges():
            return repr(replace(op, source="", target=""))
        case ir.Search():
            return repr(with_hop(replace(op, source="", target=""), _HIDDEN))
        case ir.PathSearch(search=search):
            return repr(replace(op, search=with_hop(replace(search, source="", target=""), _HIDDEN)))


def with_hop(search: ir.Search, name: str) -> ir.Search:
    """A search whose hops have another name; one that the query gives stays."""
    if not is_hidden(search.hop):
        return search
    edge_filters = tuple(changed(item, {search.hop: name}) for item in search.edge_filters)
    return replace(search, hop=name, edge_filters=edge_filters)


# ---- Expressions with other names and other blocks


def changed(expression: ir.Expression, names: Mapping[str, str], block: BlockChange | None = None) -> ir.Expression:
    """An expression with some variables renamed, and with `block` of the blocks in it."""

    def change(part: ir.Expression) -> ir.Expression | None:
        match part:
            case ir.PropertyRef(variable) | ir.EntityRef(variable) | ir.TypeOf(variable):
                name = names.get(variable)
                return part if name is None else replace(part, variable=name)
            case ir.Exists() | ir.BlockValue():
                return part if block is None else block(part)
            case ir.TextMatch(field=field):
                name = names.get(field.variable)
                return part if name is None else replace(part, field=replace(field, variable=name))
            case ir.Aggregate():
                return _aggregate(part, change)
            case _:
                return None

    return ir.rewritten(expression, change)


def _aggregate(aggregate: ir.Aggregate, change: Callable[[ir.Expression], ir.Expression | None]) -> ir.Aggregate:
    argument = None if aggregate.argument is None else ir.rewritten(aggregate.argument, change)
    order = tuple(replace(key, expression=ir.rewritten(key.expression, change)) for key in aggregate.order)
    if argument is aggregate.argument and order == aggregate.order:
        return aggregate
    return replace(aggregate, argument=argument, order=order)
