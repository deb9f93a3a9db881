"""Values that sit beside the limits of other types, so that comparisons are close."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from omnigraph.core.types import INTEGERS, NUMERICS, Scalar, integer_range
from omnigraph.core.values import to_f32
from omnigraph.lang.query.ir import CompareOp, Direction

ORDERED = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
#: Kinds of columns that are compared as a whole; numbers with each other, the others with themselves.
SCALARS = tuple(scalar for scalar in Scalar if scalar is not Scalar.BLOB)
NUMBERS = tuple(scalar for scalar in SCALARS if scalar in NUMERICS)

_LANDMARKS = [0, 1, 2, 3, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64]
_near = st.builds(
    lambda landmark, sign, step: sign * landmark + step,
    st.sampled_from(_LANDMARKS),
    st.sampled_from([-1, 1]),
    st.integers(-2, 2),
)
#: Texts in which every character that some pattern language knows occurs, and few others.
texts = st.text("aAb%_\\'é🦉\x00 ", max_size=5)


def _stepped(number: int, steps: int) -> float:
    value = float(number)
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    return value


_floats = st.one_of(
    st.builds(_stepped, _near, st.integers(-2, 2)),
    _near.map(lambda number: number + 0.5),
    st.sampled_from([-0.0, 0.1, 0.10000000149011612, 1e300, -1e300, 5e-324, 1e-45, 3.5e38]),
)


def _fits(scalar: Scalar, number: int) -> int:
    low, high = integer_range(scalar)
    return min(max(number, low), high)


def _fits_f32(value: float) -> float:
    rounded = to_f32(value)
    return rounded if math.isfinite(rounded) else math.copysign(2.0**64, value)


def held(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Values that a column of the type can hold, without null."""
    if scalar in INTEGERS:
        return _near.map(lambda number: _fits(scalar, number))
    match scalar:
        case Scalar.F32:
            return _floats.map(_fits_f32)
        case Scalar.F64:
            return _floats
        case Scalar.BOOL:
            return st.booleans()
        case Scalar.DATE:
            return st.integers(-3, 3) | st.sampled_from([-719_162, 2_932_896])
        case Scalar.DATETIME:
            return st.integers(-3, 3) | st.sampled_from([-62_135_596_800_000, 253_402_300_799_999])
    return texts


def asked(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Values that a literal or parameter of the type can have."""
    return held(scalar)


def partner(scalar: Scalar) -> st.SearchStrategy[Scalar]:
    """Types that may be compared with a type."""
    return st.sampled_from(NUMBERS) if scalar in NUMERICS else st.just(scalar)


def exact(value: Any) -> Any:
    """A value that Python compares exactly."""
    return Fraction(value) if isinstance(value, int | float) else value


def is_true(op: CompareOp, left: Any, right: Any) -> bool:
    """`left op right` by the words of the specification; null is None."""
    if left is None or right is None:
        return False
    match op:
        case CompareOp.CONTAINS:
            return any(is_true(CompareOp.EQ, item, right) for item in left)
        case CompareOp.STRING_CONTAINS:
            return right in left
        case CompareOp.STARTS_WITH:
            return left.startswith(right)
    return bool(ORDERED[op](exact(left), exact(right)))


# ---- Numbers that sit beside the limits of other types


#: Every number that a column of the type can hold and that sits beside a limit of some other type.
HELD: dict[Scalar, list[Any]] = {
    Scalar.I32: [-(2**31), -1, 0, 1, 2**24 + 1, 2**31 - 1],
    Scalar.I64: [
        *(-(2**63), -(2**53) - 1, -1, 0, 1, 2**24 + 1, 2**31, 2**53, 2**53 + 1),
        *(2**63 - 1025, 2**63 - 1024, 2**63 - 1),
    ],
    Scalar.U32: [0, 1, 2**24 + 1, 2**31, 2**32 - 1],
    Scalar.U64: [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2048, 2**64 - 1],
    Scalar.F32: [-(2.0**63), -0.5, -0.0, 0.0, 0.10000000149011612, 2.0**24, 2.0**63, 2.0**64],
    Scalar.F64: [
        *(-(2.0**63), -(2.0**53), -0.5, -0.0, 0.1, 0.10000000149011612, 0.5, 2.0**24 + 1),
        *(2.0**53, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, 1e300),
    ],
}

#: What a literal or a parameter can be: every integer of its type, and every finite float.
ASKED: list[tuple[Scalar, Any]] = [
    *((Scalar.I64, n) for n in (-(2**63), -(2**53) - 1, -1, 0, 1, 2**24 + 1, 2**31, 2**32 - 1)),
    *((Scalar.I64, n) for n in (2**53 + 1, 2**63 - 1024, 2**63 - 1)),
    *((Scalar.U64, n) for n in (0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2048, 2**64 - 1)),
    *((Scalar.F64, x) for x in (-1e300, -(2.0**63), -0.5, -0.0, 0.0, 0.1, 0.5, 2.7, 2.0**24 + 1)),
    *((Scalar.F64, x) for x in (2.0**53, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, 1e300)),
    (Scalar.F32, 0.10000000149011612),
]


# ---- Random multigraphs, and what their neighbourhoods are by definition


@dataclass(frozen=True)
class Edges:
    """Edges between numbered nodes of two types; the place of a pair is the edge. Equal pairs are parallel edges."""

    sources: int
    targets: int
    pairs: tuple[tuple[int, int], ...]

    def begins(self, direction: Direction) -> int:
        """How many nodes there are to begin at."""
        return self.targets if direction is Direction.IN else self.sources

    def steps(self, node: int, direction: Direction) -> list[tuple[int, int]]:
        """Every (neighbour, edge) of a node; an edge from a node to itself is one step either way."""
        found = set()
        for edge, (source, target) in enumerate(self.pairs):
            if direction is not Direction.IN and source == node:
                found.add((target, edge))
            if direction is not Direction.OUT and target == node:
                found.add((source, edge))
        return sorted(found)

    def neighbours(self, node: int, direction: Direction) -> set[int]:
        return {neighbour for neighbour, _ in self.steps(node, direction)}

    def reached(self, node: int, direction: Direction, low: int, high: int) -> set[int]:
        """Breadth first as the specification tells it."""
        visited, frontier, found = {node}, {node}, set()
        if low == 1 and node in self.neighbours(node, direction):
            found.add(node)
        for hop in range(1, high + 1):
            following = {neighbour for item in frontier for neighbour in self.neighbours(item, direction)}
            frontier = following - visited
            visited |= frontier
            if hop >= low:
                found |= frontier
        return found


@st.composite
def edges_between(draw: st.DrawFn, *, same_type: bool | None = None, max_nodes: int = 7, max_edges: int = 24) -> Edges:
    """Few nodes and many edges, so that loops, cycles and parallel edges are common."""
    sources = draw(st.integers(1, max_nodes))
    is_same = draw(st.booleans()) if same_type is None else same_type
    targets = sources if is_same else draw(st.integers(1, max_nodes))
    pairs = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    return Edges(sources, targets, tuple(draw(st.lists(pairs, max_size=max_edges))))


@st.composite
def hops(draw: st.DrawFn) -> tuple[int, int]:
    """Bounds of a traversal."""
    low = draw(st.integers(1, 3))
    return low, draw(st.integers(low, 5))
