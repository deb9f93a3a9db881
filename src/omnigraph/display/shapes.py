"""Shapes of drawings: lines between boxes and circles as SVG, with arrow heads and places for their names."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from omnigraph.frozen import frozen

#: Length and half width of an arrow head.
_HEAD = (9.0, 4.0)
#: How far parallel lines bend apart.
_BEND = 34.0


class Point(NamedTuple):
    """A place on a drawing."""

    x: float
    y: float


@frozen(kw_only=True)
class Box:
    """A rectangle around its middle, or a circle in it."""

    middle: Point
    width: float
    height: float
    is_round: bool = False

    def border(self, towards: Point) -> Point:
        """Where the way from the middle to a point leaves it."""
        dx, dy = towards.x - self.middle.x, towards.y - self.middle.y
        length = math.hypot(dx, dy)
        if not length:
            return self.middle
        if self.is_round:
            share = (self.width / 2 + 2) / length
        else:
            sides = ((self.width, dx), (self.height, dy))
            share = min(((size / 2 + 2) / abs(way) for size, way in sides if way), default=1.0)
        return Point(self.middle.x + dx * min(share, 1), self.middle.y + dy * min(share, 1))


@frozen(kw_only=True)
class Line:
    """A line with its arrow head, where it has one, and the place and direction of its name."""

    path: str
    head: str | None
    name: Point
    #: In degrees, so that a name along the line can be read.
    angle: float
    #: How much room there is for the name.
    length: float


def line(
    start: Box, end: Box, *, turn: int = 0, turns: int = 1, is_directed: bool = True, loops_left: bool = False
) -> Line:
    """The line from a box to another one; of several between the same boxes, `turn` of `turns` bends differently."""
    if start is end:
        return _loop(start, turn, is_directed=is_directed, side=-1 if loops_left else 1)
    dx, dy = end.middle.x - start.middle.x, end.middle.y - start.middle.y
    length = math.hypot(dx, dy) or 1.0
    bend = (turn - (turns - 1) / 2) * _BEND
    control = Point(
        (start.middle.x + end.middle.x) / 2 - dy / length * bend,
        (start.middle.y + end.middle.y) / 2 + dx / length * bend,
    )
    begin, tip = start.border(control), end.border(control)
    name = Point((begin.x + 2 * control.x + tip.x) / 4, (begin.y + 2 * control.y + tip.y) / 4)
    angle = math.degrees(math.atan2(tip.y - begin.y, tip.x - begin.x))
    return Line(
        path=f"M{_at(begin)}Q{_at(control)} {_at(_before(tip, control) if is_directed else tip)}",
        head=_head(tip, control) if is_directed else None,
        name=name,
        angle=angle - 180 if angle > 90 else angle + 180 if angle < -90 else angle,
        length=math.hypot(tip.x - begin.x, tip.y - begin.y),
    )


def _loop(box: Box, turn: int, *, is_directed: bool, side: int) -> Line:
    """A loop at the upper right of its box, or at the upper left."""
    reach = 34.0 + 16 * turn
    if box.is_round:
        out = box.width * 0.35
        corner = Point(box.middle.x + side * out, box.middle.y - out)
        begin, tip = Point(corner.x - side * box.width * 0.25, corner.y - 3), Point(corner.x + side * 3, corner.y + 8)
        first, back = Point(begin.x, begin.y - reach), Point(tip.x + side * reach, tip.y)
        name = Point(corner.x + side * (reach * 0.75 + 6), corner.y - reach * 0.6)
    else:
        edge, top = box.middle.x + side * box.width / 2, box.middle.y - box.height / 2
        begin, tip = Point(edge, top + 12 + 40 * turn), Point(edge + side * 2, top + 38 + 40 * turn)
        first, back = Point(edge + side * (reach + 12), begin.y), Point(edge + side * (reach + 12), tip.y)
        name = Point(edge + side * (reach + 16), (begin.y + tip.y) / 2)
    end = _before(tip, back) if is_directed else tip
    head = _head(tip, back) if is_directed else None
    path = f"M{_at(begin)}C{_at(first)} {_at(back)} {_at(end)}"
    return Line(path=path, head=head, name=name, angle=0.0, length=90.0)


def _before(tip: Point, towards: Point) -> Point:
    """Where a line ends that has a head."""
    length = math.hypot(towards.x - tip.x, towards.y - tip.y) or 1.0
    share = min(_HEAD[0] * 0.8 / length, 1)
    return Point(tip.x + (towards.x - tip.x) * share, tip.y + (towards.y - tip.y) * share)


def _head(tip: Point, towards: Point) -> str:
    length = math.hypot(towards.x - tip.x, towards.y - tip.y) or 1.0
    ux, uy = (towards.x - tip.x) / length, (towards.y - tip.y) / length
    back = Point(tip.x + ux * _HEAD[0], tip.y + uy * _HEAD[0])
    sides = (Point(back.x - uy * side, back.y + ux * side) for side in (_HEAD[1], -_HEAD[1]))
    return f"M{_at(tip)}" + "".join(f"L{_at(side)}" for side in sides) + "Z"


def _at(point: Point) -> str:
    return f"{point.x:.1f} {point.y:.1f}"


def turns_of(ends: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """For every line its place among those between the same boxes, and how many these are."""
    groups: dict[frozenset[str], list[int]] = {}
    for number, pair in enumerate(ends):
        groups.setdefault(frozenset(pair), []).append(number)
    found = [(0, 1)] * len(ends)
    for members in groups.values():
        for turn, number in enumerate(members):
            one, other = ends[number]
            # A line that runs the other way bends to the other side: both would lie on each other otherwise.
            place = turn if one <= other else len(members) - 1 - turn
            found[number] = (place, len(members))
    return found


# ---- SVG


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; `content` is SVG already, values are escaped, and those that are None are left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def words(text: str, /, **attributes: object) -> str:
    """A text."""
    return tag("text", html.escape(text), **attributes)


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def shift(point: Point) -> str:
    """The attribute that moves a group to a place."""
    return f"translate({point.x:.1f} {point.y:.1f})"
