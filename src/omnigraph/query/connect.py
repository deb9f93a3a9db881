"""An order of traversals in which each begins at something known, found in near-linear time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol, TypeVar

from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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
            case ir.NodeScan(variable, _, filters):
                if not any(_names_one(item) for item in filters):
                    scanned.append(variable)
            case ir.Expand():
                links.append(_Joined(op.source, op.target))
                if op.edge_variable is not None:
                    links.append(_Joined(op.source, op.edge_variable))
            case ir.Filter(ir.Comparison(left, _, right)):
                ends = [
                    item.variable
                    for item in (left, right)
                    if isinstance(item, ir.PropertyRef | ir.EntityRef)
                ]
                if len(ends) == 2:
                    links.append(_Joined(*ends))
            case _:
                pass
    group_of = components(links, scanned)
    groups: dict[str, list[str]] = defaultdict(list)
    for variable in scanned:
        groups[group_of[variable]].append(variable)
    return list(groups.values())


def _names_one(predicate: ir.Predicate) -> bool:
    """Whether a predicate asks for one value: then the rows of its variable are taken for few."""
    return (
        isinstance(predicate, ir.Comparison)
        and predicate.op is ir.CompareOp.EQ
        and isinstance(predicate.left, ir.PropertyRef)
        and isinstance(predicate.right, ir.ParamRef | ir.Constant)
    )


@dataclass(frozen=True, slots=True)
class _Joined:
    left: str
    right: str
