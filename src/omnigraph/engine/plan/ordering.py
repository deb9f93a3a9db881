"""In which order the nodes of a pattern are bound: the cheapest one, found over sets of nodes.

A step binds one node: by a scan, or along a link from a node that is bound; every other link between it and bound nodes
is closed at once. So an order of nodes is a whole plan, and a set of bound nodes is all that the steps behind it depend
on. Small components are solved exactly, over all sets that can be reached; large ones greedily.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from random import Random

from omnigraph.engine.plan.estimates import Model
from omnigraph.engine.plan.pattern import Link, Pattern
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: Nodes of a component whose order is found exactly.
EXACT_NODES = 12
#: Starts that are tried in a component beyond that.
_GREEDY_STARTS = 3

# What operators cost, in pairs of rows and neighbours.
_STEP = 10.0
_SCANNED = 0.5
_NUMBERED = 0.02
_SCAN_START = 50.0
_LOOKED_UP = 5.0
_ROW = 2.0
_TEST = 3.0
_INTERSECTED = 1.5
_COUNTED = 0.7
_FILTERED = 0.5
_SEARCHED = 3.0
_WALKED = 10.0


@frozen
class Step:
    """Binds a node: along a link, or by a scan; then the other links to nodes that are bound are closed."""

    node: str
    arm: Link | None
    closings: tuple[Link, ...]


@frozen
class Costed:
    """A step with what it costs and the rows behind it: those that are kept, and those that they stand for."""

    step: Step
    cost: float
    kept: float
    rows: float


@frozen
class _State:
    cost: float
    kept: float
    rows: float
    last: tuple[_State, Costed] | None = None

    def steps(self) -> list[Costed]:
        """The steps that lead here."""
        found: list[Costed] = []
        state = self
        while state.last is not None:
            state, step = state.last
            found.append(step)
        return found[::-1]


@frozen
class _Closing:
    """What it costs per row to close a link, and the share of rows that it keeps."""

    cost: float
    share: float


@frozen(kw_only=True)
class _Way:
    """How a node is reached from the neighbours that are bound, for each row."""

    step: Step
    fan: float
    weight: float
    #: Other hops to the same node: with the first one they are an intersection.
    hops: int
    hop_share: float
    factor: float
    closings: tuple[_Closing, ...]
    is_plain: bool


@frozen
class _Made:
    """A step before its links are closed: its cost so far, and the rows that each row becomes."""

    step: Step
    cost: float
    factor: float
    #: The links that are still to be closed.
    closings: tuple[_Closing, ...]
    #: Whether neighbours may be counted instead of being written down.
    is_plain: bool


@frozen
class _Filter:
    """A condition of several nodes, as far as they belong to one component."""

    nodes: int
    share: float


class Orders:
    """Finds orders of the nodes of one pattern."""

    def __init__(self, pattern: Pattern, model: Model, needed: frozenset[str], *, is_block: bool) -> None:
        self._pattern = pattern
        self._model = model
        self._names = list(pattern.nodes)
        self._places = {name: place for place, name in enumerate(self._names)}
        nodes = pattern.nodes.values()
        self._counts = [model.nodes(node.name, node.filters) for node in nodes]
        self._is_one = [model.is_one(node.name, node.filters) for node in nodes]
        self._filtered = [_FILTERED * len(node.filters) for node in nodes]
        self._pairs = {id(link): model.pairs(link.op) for link in pattern.links}
        self._links: dict[str, list[Link]] = defaultdict(list)
        for link in pattern.links:
            for end in dict.fromkeys((link.left, link.right)):
                self._links[end].append(link)
        ends = {name: link for link in pattern.links for name in link.binds}
        asked = set(needed)
        for block in (*pattern.blocks, *pattern.optionals):
            asked.update(block.outer)
        #: Whether other variables than nodes are kept, so that rows are never counted together.
        self._keeps_more = is_block or any(name in ends for name in asked)
        self._is_asked = [name in asked for name in self._names]
        self._partners = [0] * len(self._names)
        self._filters: list[_Filter] = []
        self._known_ways: dict[tuple[int, int], _Way | None] = {}
        for link in pattern.links:
            self._join(link.left, link.right)
        for predicate in pattern.filters:
            self._add_filter(predicate, ends)

    def _join(self, left: str, right: str) -> None:
        if left in self._places and right in self._places and left != right:
            self._partners[self._places[left]] |= 1 << self._places[right]
            self._partners[self._places[right]] |= 1 << self._places[left]

    def _add_filter(self, predicate: ir.Expression, ends: Mapping[str, Link]) -> None:
        names = set(ir.variables(predicate))
        links = [ends[name] for name in sorted(names) if name in ends]
        self._keeps_more |= bool(links)
        nodes = [name for name in sorted(names) if name in self._places]
        nodes += [end for link in links for end in (link.left, link.right) if end in self._places]
        mask = sum(1 << self._places[name] for name in set(nodes))
        if any(name in item.binds for item in self._pattern.optionals for name in names):
            # It waits for an optional block, which comes behind all nodes.
            for place in _members(mask):
                self._is_asked[place] = True
        elif mask:
            self._filters.append(_Filter(mask, self._model.share(predicate)))
            for place in _members(mask):
                self._partners[place] |= mask & ~(1 << place)

    # ---- components

    def best(self, start: str | None = None) -> list[Costed]:
        """The steps of the cheapest order; a start that is given comes first."""
        found = [(self._solved(component, start), component) for component in self._components()]
        first = None if start is None else 1 << self._places[start]

        def rank(item: tuple[_State, int]) -> tuple[bool, float, str]:
            state, component = item
            is_first = first is not None and bool(first & component)
            label = min(self._pattern.nodes[self._names[place]].label for place in _members(component))
            return not is_first, (state.rows - 1.0) / max(state.cost, 1.0), label

        return [step for state, _ in sorted(found, key=rank) for step in state.steps()]

    def _components(self) -> list[int]:
        left = (1 << len(self._names)) - 1
        joined = [0] * len(self._names)
        for link in self._pattern.links:
            ends = [self._places[name] for name in (link.left, link.right) if name in self._places]
            for place in ends:
                joined[place] |= sum(1 << other for other in set(ends))
        found: list[int] = []
        while left:
            component = frontier = left & -left
            while frontier:
                reached = 0
                for place in _members(frontier):
                    reached |= joined[place]
                frontier = reached & ~component
                component |= frontier
            found.append(component)
            left &= ~component
        return found

    def _solved(self, component: int, start: str | None) -> _State:
        starts = list(_members(component))
        if start is not None and component >> self._places[start] & 1:
            starts = [self._places[start]]
        if component.bit_count() <= EXACT_NODES:
            return self._exact(component, starts)
        return self._greedy(component, starts)

    def _exact(self, component: int, starts: Sequence[int]) -> _State:
        """Dynamic programming over sets of bound nodes, the small ones first."""
        level = self._begun(component, starts)
        while component not in level:
            following: dict[int, _State] = {}
            for mask in sorted(level):
                state = level[mask]
                for place, step in self._next(component, mask, state):
                    cost = state.cost + step.cost
                    known = following.get(mask | 1 << place)
                    if known is None or cost < known.cost:
                        following[mask | 1 << place] = _State(cost, step.kept, step.rows, (state, step))
            level = following
        return level[component]

    def _greedy(self, component: int, starts: Sequence[int]) -> _State:
        begun = self._begun(component, starts)
        firsts = sorted(begun, key=lambda mask: begun[mask].cost + begun[mask].rows)[:_GREEDY_STARTS]
        return min((self._grown(component, mask, begun[mask]) for mask in firsts), key=lambda state: state.cost)

    def _grown(self, component: int, mask: int, state: _State) -> _State:
        """Always the step next that costs least for each row; one is looked at again when a neighbour was bound."""
        growth: dict[int, float] = {}
        new = component & ~mask
        while mask != component:
            for place in _members(new & ~mask):
                step = self._cheapest(mask, state, place)
                if step is not None:
                    growth[place] = (step.cost + step.kept) / max(state.kept, 1.0)
            if growth:
                place = min(growth, key=lambda place: (growth[place], place))
                del growth[place]
            else:
                place = min(_members(component & ~mask), key=lambda place: (self._counts[place], place))
            step = self._cheapest(mask, state, place) or self._scanned(mask, state, place)
            mask |= 1 << place
            state = _State(state.cost + step.cost, step.kept, step.rows, (state, step))
            new = self._partners[place]
        return state

    def _cheapest(self, mask: int, state: _State, place: int) -> Costed | None:
        """The cheapest way to one more node without a product."""
        expanded = self._expanded(mask, state, place)
        if not self._is_one[place]:
            return expanded
        scanned = self._scanned(mask, state, place)
        return scanned if expanded is None or scanned.cost < expanded.cost else expanded

    def _begun(self, component: int, starts: Sequence[int]) -> dict[int, _State]:
        """The sets of one node: what outer variables lead to, else every start."""
        empty = _State(0.0, 1.0, 1.0)
        found: dict[int, _State] = {}
        anchored = [(place, step) for place, step in self._next(component, 0, empty) if step.step.arm is not None]
        begun = anchored or [(place, self._scanned(0, empty, place)) for place in starts]
        begun += [(place, self._scanned(0, empty, place)) for place in starts if anchored and self._is_one[place]]
        for place, step in begun:
            known = found.get(1 << place)
            if known is None or step.cost < known.cost:
                found[1 << place] = _State(step.cost, step.kept, step.rows, (empty, step))
        return found

    def _next(self, component: int, mask: int, state: _State) -> list[tuple[int, Costed]]:
        """Every step that binds one more node; a product with nodes comes last, but for one that is named."""
        found: list[tuple[int, Costed]] = []
        for place in _members(component & ~mask):
            step = self._expanded(mask, state, place)
            if step is not None:
                found.append((place, step))
            if mask and self._is_one[place]:
                found.append((place, self._scanned(mask, state, place)))
        if found or not mask:
            return found
        return [(place, self._scanned(mask, state, place)) for place in _members(component & ~mask)]

    # ---- one step

    def _is_bound(self, mask: int, name: str) -> bool:
        place = self._places.get(name)
        return place is None or bool(mask >> place & 1)

    def ways(self, mask: int, name: str) -> tuple[list[Link], list[Link]]:
        """The links that lead to a node from bound ones, and the other links between it and them, or itself."""
        arms: list[Link] = []
        others: list[Link] = []
        for link in self._links[name]:
            other = link.other(name)
            if other == name:
                others.append(link)
            elif self._is_bound(mask, other):
                (others if link.is_directed and link.right != name else arms).append(link)
        return arms, others

    def _fan(self, link: Link, source: str) -> float:
        return self._model.fan(link.op, self._model.types.get(source, ()), self._pairs[id(link)])

    def _selectivity(self, link: Link) -> float:
        ends = (self._model.count(self._model.types.get(end, ())) for end in (link.left, link.right))
        return self._pairs[id(link)] / max(prod(ends), 1.0)

    def _expanded(self, mask: int, state: _State, place: int) -> Costed | None:
        way = self._way(mask, place)
        if way is None:
            return None
        begun = max(state.kept, 1.0)
        made = begun * way.fan
        if way.hops:
            cost = begun * (_INTERSECTED * way.fan * way.hops + _TEST)
            made *= way.hop_share
        else:
            cost = begun * _ROW + made * way.weight
        cost += made * self._filtered[place]
        return self._behind(mask, state, _Made(way.step, cost, way.factor, way.closings, way.is_plain))

    def _way(self, mask: int, place: int) -> _Way | None:
        """How a node is reached; that depends only on which of its neighbours are bound."""
        key = (place, mask & self._partners[place])
        if key not in self._known_ways:
            self._known_ways[key] = self._new_way(mask, place)
        return self._known_ways[key]

    def _new_way(self, mask: int, place: int) -> _Way | None:
        name = self._names[place]
        arms, others = self.ways(mask, name)
        if not arms:
            return None
        fans = {id(link): self._fan(link, link.other(name)) for link in arms}
        # One hop first: with other hops to the same node it is an intersection.
        arm = min(arms, key=lambda link: (not link.is_hop, fans[id(link)], link.text))
        rest = sorted((link for link in arms if link is not arm), key=lambda link: (not link.is_hop, link.text))
        closings = (*rest, *others)
        hops = [link for link in rest if arm.is_hop and link.is_hop]
        hop_share = prod(map(self._selectivity, hops))
        share = self._counts[place] / max(self._model.count(self._model.types[name]), 1.0)
        return _Way(
            step=Step(name, arm, closings),
            fan=fans[id(arm)],
            weight=_weight(arm),
            hops=len(hops),
            hop_share=hop_share,
            factor=fans[id(arm)] * share * hop_share,
            closings=tuple(self._closing(link, name) for link in closings if link not in hops),
            is_plain=arm.is_hop and not closings and not self._filtered[place],
        )

    def _closing(self, link: Link, node: str) -> _Closing:
        cost = _TEST if link.is_hop else _ROW + self._fan(link, link.other(node)) * _weight(link)
        return _Closing(cost, self._selectivity(link))

    def _scanned(self, mask: int, state: _State, place: int) -> Costed:
        name, count = self._names[place], self._counts[place]
        arms, others = self.ways(mask, name)
        closings = sorted([*arms, *others], key=lambda link: (not link.is_hop, link.text))
        node = self._pattern.nodes[name]
        cost = max(state.kept, 1.0) * max(count, 1.0) if mask or self._pattern.outer else 0.0
        if not node.filters or self._is_one[place]:
            cost += _LOOKED_UP + count * _NUMBERED
        else:
            cost += _SCAN_START + self._model.count(node.types) * _SCANNED * len(node.filters)
        is_plain = not mask and not closings
        left = tuple(self._closing(link, name) for link in closings)
        return self._behind(mask, state, _Made(Step(name, None, tuple(closings)), cost, count, left, is_plain))

    def _behind(self, mask: int, state: _State, item: _Made) -> Costed:
        """The rows behind a step, and its whole cost."""
        step, cost, factor = item.step, item.cost, item.factor
        place = self._places[step.node]
        made = max(state.kept, 1.0) * factor
        for closing in item.closings:
            cost += made * closing.cost
            factor *= closing.share
            made *= closing.share
        bound = mask | 1 << place
        for predicate in self._filters:
            if predicate.nodes & bound == predicate.nodes and predicate.nodes & mask != predicate.nodes:
                cost += made
                factor *= predicate.share
                made *= predicate.share
        rows, kept = state.rows * factor, state.kept * factor
        if not self._keeps_more:
            if not self._is_live(place, bound):
                kept = min(kept, state.kept)
                if item.is_plain:
                    # Its neighbours are counted, not written down.
                    cost = min(cost, max(state.kept, 1.0) * _ROW)
                elif not step.closings:
                    cost *= _COUNTED
            elif not any(self._is_live(other, bound) for other in _members(mask)):
                kept = min(kept, self._counts[place])
                if step.arm is not None and step.arm.is_hop and not step.closings:
                    cost *= _COUNTED
        return Costed(step, cost + _STEP, kept, rows)

    def _is_live(self, place: int, bound: int) -> bool:
        """Whether a bound node is still asked for."""
        return self._is_asked[place] or bool(self._partners[place] & ~bound)

    # ---- for tests

    def random(self, random: Random, start: str | None = None) -> list[Costed]:
        """The steps of any order that is right, products and closed links included."""
        left = list(self._names)
        mask, found = 0, list[Costed]()
        while left:
            name = start if start is not None and not found else random.choice(left)
            left.remove(name)
            arms, others = self.ways(mask, name)
            arm = random.choice(arms) if arms and random.random() < 0.7 and name != start else None
            closings = [link for link in (*arms, *others) if link is not arm]
            random.shuffle(closings)
            mask |= 1 << self._places[name]
            found.append(Costed(Step(name, arm, tuple(closings)), 1.0, 1.0, 1.0))
        return found


def _weight(link: Link) -> float:
    match link.op:
        case ir.PathSearch():
            return _WALKED
        case ir.Search() | ir.ExpandEdges():
            return _SEARCHED
        case ir.Expand(high=high):
            return 1.0 if high == 1 else _ROW


def _members(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
