"""Lowers a checked pattern to the pipeline of the representation, in an order of traversals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol, TypeVar

from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.scope import Context

# ---- Type-checked match blocks


@frozen
class CheckedTraversal:
    """A traversal with the ways that lead from its left variable to its right one.

    `hop` names the edge of one hop in `conditions`; it is `edge_variable` where that is written.
    """

    left: str
    right: str
    steps: tuple[ir.Step, ...]
    low: int
    high: int
    edge_variable: str | None
    hop: str
    conditions: tuple[ir.Expression, ...] = ()
    #: The variable of the path that this is, and which paths it stands for.
    path: str | None = None
    choice: ir.PathChoice | None = None


@dataclass(slots=True)
class CheckedPattern:
    """One block of clauses."""

    #: Variables with a binding, in order of declaration.
    bindings: dict[str, None] = field(default_factory=dict)
    traversals: list[CheckedTraversal] = field(default_factory=list)
    predicates: list[ir.Expression] = field(default_factory=list)
    #: Optional blocks in text order, with the outer variables that they use and those that they bind.
    optionals: list[tuple[CheckedPattern, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    #: The node types of every variable that can be seen.
    types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: The variables that may be bound to nothing.
    optional: frozenset[str] = frozenset()


# ---- The order of traversals


class Link(Protocol):
    """Something between two variables."""

    @property
    def left(self) -> str:
        """The variable on the left."""
        ...

    @property
    def right(self) -> str:
        """The variable on the right."""
        ...


L = TypeVar("L", bound=Link)


def in_known_order(links: Sequence[L], known: Iterable[str]) -> Iterator[L]:
    """Yield every link; each time the first one with a known end, or the first of all when none has one.

    Both ends of a link count as known once it was yielded.
    """
    known = set(known)
    by_variable: dict[str, list[int]] = defaultdict(list)
    ready: list[int] = []
    for index, link in enumerate(links):
        by_variable[link.left].append(index)
        by_variable[link.right].append(index)
        if link.left in known or link.right in known:
            heappush(ready, index)
    done = [False] * len(links)
    first_waiting = 0
    for _ in links:
        while ready and done[ready[0]]:
            heappop(ready)
        while first_waiting < len(links) and done[first_waiting]:
            first_waiting += 1
        index = heappop(ready) if ready else first_waiting
        done[index] = True
        yield links[index]
        for end in (links[index].left, links[index].right):
            if end not in known:
                known.add(end)
                for other in by_variable[end]:
                    heappush(ready, other)


def components(links: Iterable[Link], variables: Iterable[str]) -> dict[str, str]:
    """For each variable the representative of its component: two variables are together when links join them."""
    parent = {name: name for name in variables}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for link in links:
        for end in (link.left, link.right):
            parent.setdefault(end, end)
        parent[find(link.left)] = find(link.right)
    return {name: find(name) for name in parent}


def separate_patterns(query: ir.ReadIR) -> list[list[str]]:
    """The variables of a read in groups that nothing joins; one group is the rule, more are a cross product.

    A traversal joins its ends, and a comparison of two variables joins those, whatever it compares. A variable that
    is compared with one value is taken for few rows, which multiply little.
    """
    links: list[_Joined] = []
    scanned: list[str] = []
    for op in query.pipeline:
        match op:
            case ir.NodeScan(variable, _, filters) | ir.UnionScan(variable, _, filters):
                if not any(_names_one(item) for item in filters):
                    scanned.append(variable)
            case ir.Expand():
                links.append(_Joined(op.source, op.target))
                if op.edge_variable is not None:
                    links.append(_Joined(op.source, op.edge_variable))
            case ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                links.append(_Joined(op.source, op.target))
            case ir.OptionalJoin(outer, _, binds):
                links.extend(_Joined(outer[0], name) for name in (*outer[1:], *binds))
            case ir.Filter(predicate):
                first, *others = dict.fromkeys(ir.variables(predicate)) or [""]
                links.extend(_Joined(first, other) for other in others)
            case _:
                pass
    group_of = components(links, scanned)
    groups: dict[str, list[str]] = defaultdict(list)
    for variable in scanned:
        groups[group_of[variable]].append(variable)
    return list(groups.values())


def _names_one(predicate: ir.Expression) -> bool:
    """Whether a predicate asks for one value: then the rows of its variable are taken for few."""
    return (
        isinstance(predicate, ir.Comparison)
        and predicate.op is ir.CompareOp.EQ
        and isinstance(predicate.left, ir.PropertyRef)
        and isinstance(predicate.right, ir.ParamRef | ir.Constant)
    )


@frozen
class _Joined:
    left: str
    right: str


# ---- Lowering patterns to pipelines


def lower_pattern(context: Context, pattern: CheckedPattern, bound: Iterable[str] = ()) -> tuple[ir.Op, ...]:
    """The operators of one block; `bound` are the variables that exist before it.

    Each component of connected variables begins at a variable of the surrounding block if it has one, else with a scan
    of its first binding, else with a scan of the source end of its first traversal. A predicate on one variable rides
    on the operator that introduces it; every other one runs as soon as all of its variables are bound. Optional blocks
    follow, then what asks for their variables, then what asks for solutions of blocks.
    """
    lowering = _Lowering(context, set(bound), pattern.types)
    introduced = {name for _, _, binds in pattern.optionals for name in binds}
    late = [item for item in pattern.predicates if not introduced.isdisjoint(ir.variables(item))]
    lowering.add_predicates(item for item in pattern.predicates if item not in late)
    lowering.flush_filters()
    ends = components(pattern.traversals, [*lowering.known, *pattern.bindings])
    anchored = {ends[name] for name in lowering.known}
    groups: dict[str, list[CheckedTraversal]] = defaultdict(list)
    for traversal in pattern.traversals:
        groups[ends[traversal.left]].append(traversal)
    first_bindings = {ends[name]: name for name in reversed(pattern.bindings)}
    in_text_order = dict.fromkeys(_mentions(pattern, ends))
    # What hangs on the surrounding block comes first: it restricts rows that exist already.
    for component in sorted(in_text_order, key=lambda item: item not in anchored):
        traversals = groups.get(component, [])
        if component not in anchored:
            lowering.scan(first_bindings.get(component) or _source_end(traversals[0]))
        for traversal in in_known_order(traversals, set(lowering.known)):
            lowering.expand(traversal)
    for inner, outer, binds in pattern.optionals:
        lowering.ops.append(ir.OptionalJoin(outer, lower_pattern(context, inner, outer), binds))
        lowering.known.update(binds)
    lowering.add_predicates(late)
    lowering.flush_filters()
    lowering.ops.extend(lowering.blocks)
    return tuple(lowering.ops)


def _mentions(pattern: CheckedPattern, ends: dict[str, str]) -> Iterator[str]:
    """Components in the order in which the text mentions them: bindings first, then traversals."""
    for name in pattern.bindings:
        yield ends[name]
    for traversal in pattern.traversals:
        yield ends[traversal.left]


def _source_end(traversal: CheckedTraversal) -> str:
    return traversal.left if traversal.steps[0].direction is not ir.Direction.IN else traversal.right


@dataclass(slots=True)
class _Lowering:
    context: Context
    known: set[str]
    types: Mapping[str, tuple[str, ...]]
    ops: list[ir.Op] = field(default_factory=list)
    by_variable: dict[str, list[ir.Expression]] = field(default_factory=lambda: defaultdict(list))
    joined: list[tuple[frozenset[str], ir.Expression]] = field(default_factory=list)
    #: What asks for solutions of a block comes last: there are the fewest rows.
    blocks: list[ir.Op] = field(default_factory=list)

    def add_predicates(self, predicates: Iterable[ir.Expression]) -> None:
        for predicate in predicates:
            match predicate:
                case ir.Exists(outer, pipeline):
                    self.blocks.append(ir.SemiJoin(outer, pipeline))
                    continue
                case ir.Not(ir.Exists(outer, pipeline)):
                    self.blocks.append(ir.AntiJoin(outer, pipeline))
                    continue
            variables = frozenset(ir.variables(predicate))
            is_of_path = any(isinstance(part, ir.PathRef) for part in ir.walk(predicate))
            if len(variables) == 1 and not is_of_path and not variables <= self.known:
                self.by_variable[next(iter(variables))].append(predicate)
            else:
                self.joined.append((variables, predicate))

    def scan(self, variable: str) -> None:
        types, filters = self.types[variable], tuple(self.by_variable[variable])
        if len(types) == 1:
            self.ops.append(ir.NodeScan(variable, types[0], filters))
        else:
            self.ops.append(ir.UnionScan(variable, types, filters))
        self._introduce(variable)

    def expand(self, traversal: CheckedTraversal) -> None:
        if traversal.path is not None and traversal.left not in self.known:
            # A path is searched in its own direction, so that its edges come in their order.
            self.scan(traversal.left)
        from_left = traversal.left in self.known
        source, target = traversal.left, traversal.right
        if not from_left:
            source, target = target, source
        joins = target in self.known
        reached = self.context.hidden_variable() if joins else target
        steps = traversal.steps if from_left else tuple(map(_turned, traversal.steps))
        self.ops.extend(self._ways(traversal, steps, source, reached, target))
        if joins:
            # Both ends are bound already: what was reached has to be the other end.
            node_type = " | ".join(self.types[target])
            left, right = ir.EntityRef(reached, node_type), ir.EntityRef(target, node_type)
            self.ops.append(ir.Filter(ir.Comparison(left, ir.CompareOp.EQ, right)))
        edge_variable = traversal.edge_variable
        self._introduce(target, *filter(None, (edge_variable, traversal.path)))

    def _ways(
        self, traversal: CheckedTraversal, steps: tuple[ir.Step, ...], source: str, reached: str, target: str
    ) -> Iterator[ir.Op]:
        """The operators that go from one end to the other."""
        edge_variable, low, high = traversal.edge_variable, traversal.low, traversal.high
        starts, wanted = self.types[source], self.types[target]
        if high == 1:
            steps = tuple(step for step in steps if step.source_type in starts and step.target_type in wanted)
        filters = () if reached != target else tuple(self.by_variable[target])
        edge_filters = tuple(self.by_variable[edge_variable]) if edge_variable else ()
        if traversal.path is not None:
            assert traversal.choice is not None, "a path says which paths it stands for"
            search = ir.Search(source, reached, steps, wanted, low, high, traversal.hop, traversal.conditions)
            yield ir.PathSearch(traversal.path, traversal.choice, search)
            yield from (ir.Filter(item) for item in filters)
            return
        is_plain = len(steps) == 1 and len(starts) == 1 and len(wanted) == 1
        if is_plain and (edge_variable is not None or not traversal.conditions):
            (step,) = steps
            yield ir.Expand(
                source,
                reached,
                step.edge_type,
                step.direction,
                step.target_type,
                low,
                high,
                filters,
                edge_variable,
                (*traversal.conditions, *edge_filters),
            )
            return
        if edge_variable is not None:
            yield ir.ExpandEdges(source, reached, steps, wanted, edge_variable, (*traversal.conditions, *edge_filters))
        else:
            yield ir.Search(source, reached, steps, wanted, low, high, traversal.hop, traversal.conditions)
        yield from (ir.Filter(item) for item in filters)

    def _introduce(self, *variables: str) -> None:
        self.known.update(variables)
        self.flush_filters()

    def flush_filters(self) -> None:
        """Emit the predicates whose variables are all bound now."""
        if not self.joined:
            return
        waiting: list[tuple[frozenset[str], ir.Expression]] = []
        for variables, predicate in self.joined:
            if variables <= self.known:
                self.ops.append(ir.Filter(predicate))
            else:
                waiting.append((variables, predicate))
        self.joined = waiting


def _turned(step: ir.Step) -> ir.Step:
    """A step from its end to its beginning."""
    turned = {ir.Direction.OUT: ir.Direction.IN, ir.Direction.IN: ir.Direction.OUT}
    direction = turned.get(step.direction, step.direction)
    return ir.Step(step.edge_type, direction, step.target_type, step.source_type)
