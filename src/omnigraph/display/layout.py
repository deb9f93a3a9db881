"""Places for boxes that are linked: always the same for the same boxes and links.

Every connected part is arranged so that distances on the drawing follow distances in the graph (stress majorization),
boxes are pushed apart, and the parts are put beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"

_ROUNDS = 120
_SETTLED = 3e-4
_PUSHES = 200
#: Drawings are wider than high, as screens are.
_ASPECT = 1.6
_STRETCH = np.array([1.15, 0.9])


def arrange(sizes: Floats, links: Sequence[tuple[int, int]], *, gap: tuple[float, float], length: float) -> Floats:
    """The middles of boxes of these sizes (width and height), with a gap between any two; the origin is in the middle.

    `gap` is the room beside and below boxes, `length` that of links between small ones.

    >>> places = arrange(np.full((3, 2), 20.0), [(0, 1)], gap=(10, 10), length=50)
    >>> places.shape
    (3, 2)
    """
    places = np.zeros((len(sizes), 2))
    boxes: list[tuple[Ints, Floats]] = []
    for members in _parts(len(sizes), links):
        inside = {int(node): number for number, node in enumerate(members)}
        own = [(inside[one], inside[other]) for one, other in links if one in inside and one != other]
        boxes.append((members, _part(sizes[members], own, gap, length)))
    _pack(sizes, boxes, places, gap)
    if not len(sizes):
        return places
    low, high = extent(places, sizes)
    return places - (low + high) / 2


def extent(places: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """The corners of what boxes cover."""
    return (places - sizes / 2).min(axis=0), (places + sizes / 2).max(axis=0)


def _parts(count: int, links: Sequence[tuple[int, int]]) -> list[Ints]:
    """The connected parts, those with more nodes first."""
    root = list(range(count))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for one, other in links:
        root[find(max(one, other))] = find(min(one, other))
    parts: dict[int, list[int]] = {}
    for node in range(count):
        parts.setdefault(find(node), []).append(node)
    return [np.array(part) for part in sorted(parts.values(), key=len, reverse=True)]


# ---- one connected part


def _part(sizes: Floats, links: Sequence[tuple[int, int]], gap: tuple[float, float], length: float) -> Floats:
    count = len(sizes)
    if count == 1:
        return np.zeros((1, 2))
    hops = _hops(count, links)
    length += float(sizes.mean()) / 2
    most = int(np.bincount(np.array(links).reshape(-1)).max())
    if most > count / 2:
        # A star: its points need room around its middle.
        length = max(length, most * float(sizes.mean() + gap[1]) / (2 * math.pi))
    places = _majorized(_radial(hops, links), hops * length)
    places = _turned(places)
    return _separated(places, sizes, gap)


def _hops(count: int, links: Sequence[tuple[int, int]]) -> Floats:
    """How many links any two nodes are apart."""
    reach = np.zeros((count, count), dtype=bool)
    for one, other in links:
        reach[one, other] = reach[other, one] = True
    hops = np.where(reach, 1.0, 0.0)
    seen = reach | np.eye(count, dtype=bool)
    frontier, distance = reach, 1
    while not seen.all():
        distance += 1
        frontier = (frontier.astype(np.float32) @ reach.astype(np.float32) > 0) & ~seen
        hops[frontier] = distance
        seen |= frontier
    return hops


def _radial(hops: Floats, links: Sequence[tuple[int, int]]) -> Floats:
    """A start: a tree from the middle of the part, its branches around it by their number of leaves."""
    count = len(hops)
    centre = int(np.lexsort((np.arange(count), hops.sum(axis=1), hops.max(axis=1)))[0])
    near: list[list[int]] = [[] for _ in range(count)]
    for one, other in links:
        near[one].append(other)
        near[other].append(one)
    order, parent = [centre], {centre: centre}
    for node in order:
        for other in sorted(near[node]):
            if other not in parent:
                parent[other] = node
                order.append(other)
    leaves = np.zeros(count)
    for node in reversed(order):
        leaves[node] = max(leaves[node], 1)
        if node != centre:
            leaves[parent[node]] += leaves[node]
    places = np.zeros((count, 2))
    span, begin = {centre: 2 * math.pi}, {centre: 0.0}
    for node in order[1:]:
        above = parent[node]
        span[node] = span[above] * leaves[node] / leaves[above]
        begin[node] = begin[above]
        begin[above] += span[node]
        angle, radius = begin[node] + span[node] / 2, hops[centre, node]
        places[node] = radius * math.cos(angle), radius * math.sin(angle)
    return places


def _majorized(places: Floats, wanted: Floats) -> Floats:
    """Places whose distances are as near as possible to the wanted ones, near nodes counting more."""
    count = len(places)
    scale = wanted.max() / max(float(np.ptp(places)), 1e-9)
    # Nodes on one line would stay on it.
    turns = 2.4 * np.arange(count)
    places = places * scale + 0.1 * wanted.mean() * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    weights = np.divide(1.0, wanted**2, out=np.zeros_like(wanted), where=wanted > 0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1.0 / count) - 1.0 / count
    before = math.inf
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(places[:, None] - places[None, :], axis=2)
        stress = float((weights * (apart - wanted) ** 2).sum())
        if before - stress < _SETTLED * before:
            break
        before = stress
        ratio = np.divide(weights * wanted, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        places = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ places)
    return places


def _turned(places: Floats) -> Floats:
    """The same drawing with its longest side level, and a little wider than high, as names are."""
    middle = places - places.mean(axis=0)
    (xx, xy), (_, yy) = middle.T @ middle
    angle = math.atan2(2 * xy, xx - yy) / 2
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    turned: Floats = middle @ turn * _STRETCH
    return turned


def _separated(places: Floats, sizes: Floats, gap: tuple[float, float]) -> Floats:
    """Boxes pushed apart, along the shorter way, until the gap is between any two."""
    places = places.copy()
    one, other = np.triu_indices(len(places), 1)
    room = (sizes[one] + sizes[other]) / 2 + gap
    for _ in range(_PUSHES):
        apart = places[other] - places[one]
        over = room - np.abs(apart)
        hit = np.flatnonzero((over > 0.5).all(axis=1))
        if not len(hit):
            break
        axis = over[hit].argmin(axis=1)
        sign = np.where(apart[hit, axis] < 0, -1.0, 1.0)
        push = np.zeros((len(hit), 2))
        push[np.arange(len(hit)), axis] = sign * over[hit, axis] / 2 + 0.3 * sign
        moves = np.zeros_like(places)
        np.add.at(moves, one[hit], -push)
        np.add.at(moves, other[hit], push)
        # Several neighbours push at once: together they would throw a box too far.
        times = np.bincount(np.concatenate([one[hit], other[hit]]), minlength=len(places))
        places += moves / np.maximum(times, 1)[:, None] ** 0.5
    return places


# ---- all parts


def _pack(sizes: Floats, parts: Sequence[tuple[Ints, Floats]], places: Floats, gap: tuple[float, float]) -> None:
    """Put the parts beside each other in rows, large ones first."""
    extents = []
    for members, own in parts:
        low, high = extent(own, sizes[members])
        extents.append((low, high - low))
    area = sum(float((width + gap[0]) * (height + gap[1])) for _, (width, height) in extents)
    widest = max((float(width) for _, (width, _) in extents), default=0.0)
    wanted = max(widest, math.sqrt(area * _ASPECT))
    x = y = row_height = 0.0
    for (members, own), (low, (width, height)) in zip(parts, extents, strict=True):
        if x and x + width > wanted:
            x, y, row_height = 0.0, y + row_height + gap[1], 0.0
        places[members] = own - low + (x, y)
        x += float(width) + gap[0]
        row_height = max(row_height, float(height))
