"""The order in which the operators of a read run: a pure function of its pattern and of statistics.

The text says what, never how: every order of its clauses gives the same plan. A plan is a pipeline of operators, data
for any executor; a link between two variables that are bound already is written as an expansion to a hidden variable
and the condition that it is the other end, right behind each other, so that an executor may make one test of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from omnigraph.engine.plan.estimates import Model, inner_rows, rows_behind, solved_share
from omnigraph.engine.plan.ordering import Costed, Orders
from omnigraph.engine.plan.pattern import (
    Link,
    LinkOp,
    Pattern,
    Types,
    changed,
    node_types,
    pattern_of,
    planned_expression,
    turned,
    with_hop,
)
from omnigraph.engine.plan.statistics import Statistics
from omnigraph.engine.tables.context import is_hidden, needed_variables, rank_field
from omnigraph.engine.tables.settings import BY_COST, PlanOrder, PlanSettings
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: Rows of the result that a ranked query is taken to want when its limit is a parameter.
_WANTED = 10
#: The best candidates of a ranking cost about as much as so many pairs, and each of them as much as so many.
_CANDIDATES = 20_000.0
_CANDIDATE = 20.0
_SCORED = 20.0
#: More candidates than this are not worth being fetched (`engine.ranking.ranked_rows`).
_MAX_CANDIDATES = 1 << 15


@frozen
class _Planned:
    ops: tuple[ir.Op, ...]
    cost: float


def plan_read(
    query: ir.ReadIR,
    statistics: Statistics,
    settings: PlanSettings = BY_COST,
    *,
    observed: Mapping[str, float] | None = None,
    start: str | None = None,
) -> ir.ReadIR:
    """A read with its operators in the order in which they run.

    `observed` are rows of variables that were counted; the plan begins with `start`, if it is given.
    """
    if settings.order is PlanOrder.TEXT:
        return query
    planner = _Planner(statistics, settings, observed or {})
    needed = needed_variables(query)
    if query.rank is None:
        chosen = planner.plan(query.pipeline, {}, needed, start=start, is_block=False)
    else:
        chosen = _ranked(planner, query, needed)
    types = node_types(query.pipeline)

    def planned(expression: ir.Expression) -> ir.Expression:
        return planned_expression(expression, types, planner.block)

    return replace(
        query,
        pipeline=chosen.ops,
        projections=tuple(
            item
            if isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)
            else replace(item, expression=planned(item.expression))
            for item in query.projections
        ),
        order=tuple(replace(key, expression=planned(key.expression)) for key in query.order),
        per=tuple(map(planned, query.per)),
        having=None if query.having is None else planned(query.having),
    )


def plan_match(
    ops: Sequence[ir.Op], needed: Iterable[str], statistics: Statistics, settings: PlanSettings = BY_COST
) -> tuple[ir.Op, ...]:
    """The operators of the match of a mutation in the order in which they run."""
    if settings.order is PlanOrder.TEXT:
        return tuple(ops)
    return _Planner(statistics, settings, {}).plan(ops, {}, frozenset(needed), is_block=False).ops


def _ranked(planner: _Planner, query: ir.ReadIR, needed: frozenset[str]) -> _Planned:
    """The best candidates through the rest of the match, or the match and then its scores: whatever costs less."""
    assert query.rank is not None, "the query is ranked"
    variable = rank_field(query.rank).variable
    free = planner.plan(query.pipeline, {}, needed, is_block=False)
    if not _begins_with(query.pipeline, variable):
        return free
    first = planner.plan(query.pipeline, {}, needed, start=variable, is_block=False)
    if not isinstance(first.ops[0], ir.NodeScan | ir.UnionScan):
        return free
    if free.ops[0] == first.ops[0]:
        return first
    model = Model.of(planner.statistics, first.ops, {})
    nodes = model.nodes(variable, first.ops[0].filters)
    rows = 1.0
    for step in planner.rows(free.ops):
        rows = step
    share = min(1.0, rows / max(nodes, 1.0))
    wanted = float(_wanted(query, nodes))
    candidates = min(wanted / max(share, 1e-9), max(nodes, 1.0))
    behind = max(first.cost / max(nodes, 1.0), 0.0) * candidates
    cost_first = _CANDIDATES + candidates * _CANDIDATE + behind
    cost_after = free.cost + min(rows, nodes) * _SCORED
    return free if candidates > _MAX_CANDIDATES or cost_after < cost_first else first


def _begins_with(ops: Sequence[ir.Op], variable: str) -> bool:
    """Whether a plan may begin with a scan of a variable: it is bound outside of optional blocks."""
    return variable in node_types(op for op in ops if not isinstance(op, ir.OptionalJoin))


def _wanted(query: ir.ReadIR, nodes: float) -> float:
    """How many rows of the result are asked for, the offset included."""
    if query.limit is None or query.per:
        return nodes
    numbers = (0 if count is None else _number(count) for count in (query.limit, query.offset))
    return float(sum(numbers))


def _number(count: ir.Value) -> int:
    return count.value if isinstance(count, ir.Constant) and isinstance(count.value, int) else _WANTED


class _Planner:
    """Plans the pipelines of one query, those of its blocks included."""

    def __init__(self, statistics: Statistics, settings: PlanSettings, observed: Mapping[str, float]) -> None:
        self.statistics = statistics
        self._observed = observed
        self._random = Random(settings.seed) if settings.order is PlanOrder.RANDOM else None
        self._depth = 0

    def block(self, ops: Sequence[ir.Op], outer: Types, needed: frozenset[str]) -> tuple[ir.Op, ...]:
        """The operators of a block."""
        self._depth += 1
        try:
            return self.plan(ops, outer, needed, is_block=True).ops
        finally:
            self._depth -= 1

    def plan(
        self, ops: Sequence[ir.Op], outer: Types, needed: frozenset[str], *, is_block: bool, start: str | None = None
    ) -> _Planned:
        """The operators of a pipeline; `needed` are the variables that are asked for behind it."""
        pattern = pattern_of(ops, outer, self.block)
        model = Model.of(self.statistics, ops, outer, {} if is_block else self._observed)
        orders = Orders(pattern, model, needed, is_block=is_block)
        steps = orders.best(start) if self._random is None else orders.random(self._random, start)
        writer = _Writer(pattern, model, "~" * (self._depth + 1))
        writer.begin()
        slots = self._placed(pattern, model, steps)
        for place, step in enumerate(steps):
            writer.add_step(step)
            writer.add_blocks(slots.get(place, ()))
        writer.add_blocks(slots.get(len(steps), ()))
        writer.finish()
        return _Planned(tuple(writer.ops), sum(step.cost for step in steps))

    def rows(self, ops: Sequence[ir.Op]) -> Iterable[float]:
        """The rows behind each operator of a plan."""
        return rows_behind(Model.of(self.statistics, ops, {}), ops)

    # ---- blocks that keep rows

    def _placed(
        self, pattern: Pattern, model: Model, steps: Sequence[Costed]
    ) -> dict[int, list[ir.SemiJoin | ir.AntiJoin]]:
        """The blocks behind each step. A block costs something per row, and saves work behind it.

        Those that ask for variables of optional blocks are not among them.
        """
        bound = set(pattern.outer)
        earliest = [0] * len(pattern.blocks)
        waiting = set(range(len(pattern.blocks)))
        ready: list[tuple[int, ir.SemiJoin | ir.AntiJoin]] = []
        for place, step in enumerate(steps):
            bound.add(step.step.node)
            for link in (*step.step.closings, *filter(None, (step.step.arm,))):
                bound.update(link.binds)
            for number in sorted(waiting):
                if bound.issuperset(pattern.blocks[number].outer):
                    waiting.discard(number)
                    earliest[number] = place
                    ready.append((place, pattern.blocks[number]))
        if not steps:
            return {0: [block for block in pattern.blocks if bound.issuperset(block.outer)]}
        found: dict[int, list[ir.SemiJoin | ir.AntiJoin]] = {}
        for place, block in ready:
            found.setdefault(self._place_of(block, model, steps, place), []).append(block)
        return {place: sorted(blocks, key=repr) for place, blocks in found.items()}

    def _place_of(self, block: ir.SemiJoin | ir.AntiJoin, model: Model, steps: Sequence[Costed], earliest: int) -> int:
        last = len(steps) - 1
        if self._random is not None:
            return self._random.randint(earliest, last)
        inner = inner_rows(model, block.outer, block.pipeline)
        solved = solved_share(model, block.outer, block.pipeline)
        share = solved if isinstance(block, ir.SemiJoin) else 1.0 - solved
        cost = 1.0 + max(inner, 1.0)
        bindings = 1.0
        for name in block.outer:
            bindings *= max(model.count(model.types.get(name, ())), 1.0)

        def total(place: int) -> float:
            behind = sum(step.cost for step in steps[place + 1 :])
            return min(max(steps[place].kept, 1.0), bindings) * cost + share * behind

        # The last of equal ones: there are the fewest rows.
        return min(range(last, earliest - 1, -1), key=total)


# ---- Operators from steps


@dataclass(slots=True)
class _Writer:
    """Writes the operators of one pipeline; hidden variables get names by their place in it."""

    pattern: Pattern
    model: Model
    prefix: str
    ops: list[ir.Op] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)
    _hidden: int = 0
    _waiting: list[ir.Expression] = field(default_factory=list)
    _done: list[ir.Op] = field(default_factory=list)

    def begin(self) -> None:
        """What asks for no variable, or only for those that exist already."""
        self.bound.update(self.pattern.outer)
        self._waiting = sorted(self.pattern.filters, key=lambda item: (self.model.share(item), repr(item)))
        self.flush()
        for link in self.pattern.links:
            if link.left in self.pattern.outer and link.right in self.pattern.outer:
                self._close(link, link.right)

    def add_step(self, item: Costed) -> None:
        """Bind a node, close its other links, then what can be asked now."""
        step = item.step
        if step.arm is None:
            self._scan(step.node)
        else:
            self._expand(step.arm, step.node)
        self.bound.add(step.node)
        for link in step.closings:
            if not link.is_hop:
                self.flush()
            self._close(link, step.node)
        self.flush()

    def add_blocks(self, blocks: Iterable[ir.SemiJoin | ir.AntiJoin]) -> None:
        """Blocks that keep rows."""
        for block in blocks:
            self.ops.append(block)
            self._done.append(block)

    def finish(self) -> None:
        """Optional blocks, what asks for their variables, and conditions on results."""
        left = list(self.pattern.optionals)
        while left:
            ready = next((item for item in left if self.bound.issuperset(item.outer)), left[0])
            left.remove(ready)
            self.ops.append(ready)
            self.bound.update(ready.binds)
            # An optional block keeps every row, so the condition may as well wait for all of them.
        self.flush()
        self.ops += [block for block in self.pattern.blocks if not any(block is done for done in self._done)]
        self.ops += self.pattern.strict

    def flush(self) -> None:
        """The conditions whose variables are all bound now."""
        waiting: list[ir.Expression] = []
        for predicate in self._waiting:
            if self.bound.issuperset(ir.variables(predicate)):
                self.ops.append(ir.Filter(predicate))
            else:
                waiting.append(predicate)
        self._waiting = waiting

    # ---- nodes and links

    def _filters(self, name: str) -> tuple[ir.Expression, ...]:
        """The conditions of a node, the one that names it first, then those that keep the fewest."""
        node = self.pattern.nodes[name]

        def key(item: ir.Expression) -> tuple[bool, bool, float, str]:
            has_block = any(isinstance(part, ir.Exists | ir.BlockValue) for part in ir.walk(item))
            return has_block, not self.model.is_one(name, (item,)), self.model.share(item), repr(item)

        found = sorted(node.filters, key=key)
        return tuple(changed(item, {name: self._name(name)}) for item in found) if is_hidden(name) else tuple(found)

    def _name(self, variable: str) -> str:
        if not is_hidden(variable):
            return variable
        known = self._names.get(variable)
        if known is None:
            known = self._names[variable] = self._new()
        return known

    def _new(self) -> str:
        self._hidden += 1
        return f"{self.prefix}{self._hidden}"

    def _scan(self, name: str) -> None:
        types = self.pattern.nodes[name].types
        filters = self._filters(name)
        if len(types) == 1:
            self.ops.append(ir.NodeScan(self._name(name), types[0], filters))
        else:
            self.ops.append(ir.UnionScan(self._name(name), types, filters))

    def _expand(self, link: Link, target: str) -> None:
        self._write(link, target, self._name(target), self._filters(target))

    def _close(self, link: Link, target: str) -> None:
        """A link whose ends are both bound: what is reached has to be the other end."""
        if link.is_directed:
            target = link.right
        elif not link.is_hop and link.left != link.right:
            target = self._cheaper_end(link)
        reached = self._new()
        self._write(link, target, reached, ())
        node_type = " | ".join(self.model.types.get(target, ()))
        left, right = ir.EntityRef(reached, node_type), ir.EntityRef(self._name(target), node_type)
        self.ops.append(ir.Filter(ir.Comparison(left, ir.CompareOp.EQ, right)))

    def _cheaper_end(self, link: Link) -> str:
        """The end that a closed link is followed to: from the other one it leads to fewer nodes."""
        counts = {end: self.model.count(self.model.types.get(end, ())) for end in (link.left, link.right)}
        return link.left if counts[link.right] > counts[link.left] else link.right

    def _write(self, link: Link, target: str, reached: str, filters: tuple[ir.Expression, ...]) -> None:
        source = link.other(target)
        op = link.op
        if target != link.right:
            op = turned(op, self.model.types.get(link.left, ()))
        op = self._renamed(op, self._name(source), reached)
        if isinstance(op, ir.Expand):
            self.ops.append(replace(op, filters=filters))
        else:
            self.ops.append(op)
            self.ops += map(ir.Filter, filters)
        self.bound.update(link.binds)

    def _renamed(self, op: LinkOp, source: str, target: str) -> LinkOp:
        match op:
            case ir.Expand() | ir.ExpandEdges():
                return replace(op, source=source, target=target)
            case ir.Search():
                hop = self._new() if is_hidden(op.hop) else op.hop
                return replace(with_hop(op, hop), source=source, target=target)
            case ir.PathSearch(search=search):
                hop = self._new() if is_hidden(search.hop) else search.hop
                return replace(op, search=replace(with_hop(search, hop), source=source, target=target))
