"""Drawings of graphs and of schemas as SVG: static, complete, and the same for the same input."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

import numpy as np

from omnigraph.display.colours import TYPE_COLOURS, coloured, colours, themes
from omnigraph.display.layout import arrange, extent
from omnigraph.display.shapes import Box, Line, Point, line, shift, tag, turns_of, words
from omnigraph.display.text import cells_of, fitted
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

#: What happened to a node or an edge between two states; None where nothing did.
Mark = Literal["inserted", "updated", "deleted"]
MARKS: tuple[Mark, ...] = ("inserted", "updated", "deleted")


@frozen(kw_only=True)
class Node:
    """A node of a picture."""

    key: str
    type_name: str
    label: str
    #: The number of the colour of its type.
    colour: int
    details: Mapping[str, object] = field(default_factory=dict)
    mark: Mark | None = None


@frozen(kw_only=True)
class Edge:
    """An edge of a picture; the ends are keys of nodes."""

    source: str
    target: str
    type_name: str
    details: Mapping[str, object] = field(default_factory=dict)
    mark: Mark | None = None
    #: Whether the direction is known.
    is_directed: bool = True
    #: Whether it stands for a path of several edges.
    is_path: bool = False


@frozen(kw_only=True)
class NodeType:
    """A node type of a schema."""

    name: str
    colour: int
    #: Properties: name and type.
    properties: Sequence[tuple[str, str]]
    count: int | None = None


@frozen(kw_only=True)
class EdgeType:
    """An edge type of a schema, between the names of node types."""

    name: str
    source: str
    target: str
    count: int | None = None


@frozen(kw_only=True)
class LegendItem:
    """A name with its class: what the colour, or the line, of a thing means."""

    name: str
    classes: str = "edge"

    @property
    def sign(self) -> str:
        """The dot or line before the name; edges of every type look alike and have none."""
        if self.classes == "edge":
            return ""
        is_line = self.classes.startswith("edge")
        return tag("path", class_="line", d="M-8 0H8") if is_line else tag("circle", class_="dot", r=5)


@frozen(kw_only=True)
class Drawing:
    """A drawing: SVG around the origin, what it covers, and what its colours mean."""

    content: str
    width: float
    height: float
    label: str
    legend: Sequence[LegendItem] = ()

    def svg(self, note: str = "") -> str:
        """A whole SVG document: with its legend and a note below it."""
        legend, legend_height = _legend(self.legend, self.width)
        note_height = _ROW if note else 0
        width = max(self.width, _SMALLEST)
        height = self.height + legend_height + note_height
        middle = Point(width / 2, legend_height + self.height / 2)
        below = words(one_line(note), class_="note", x=_MARGIN, y=height - 10) if note else ""
        return tag(
            "svg",
            f"<style>{STYLE}</style>{_ground(width, height)}{legend}"
            f"{tag('g', self.content, class_='drawing', transform=shift(middle))}{below}",
            xmlns="http://www.w3.org/2000/svg",
            class_="og-picture",
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            width=math.ceil(width),
            height=math.ceil(height),
            role="img",
            aria_label=one_line(self.label),
        )


_MARGIN = 28.0
_ROW = 24.0
_SMALLEST = 320.0
#: An empty drawing has this size.
_EMPTY = (360.0, 120.0)


def _ground(width: float, height: float) -> str:
    return tag("rect", class_="ground", width=width, height=height, rx=8)


def _legend(items: Sequence[LegendItem], width: float) -> tuple[str, float]:
    """The legend in rows, and its height."""
    parts, x, y = [], _MARGIN, _ROW / 2 + 6
    for item in items:
        name = fitted(one_line(item.name), 40)
        sign = item.sign
        needed = 6.8 * cells_of(name) + (36 if sign else 18)
        if x > _MARGIN and x + needed > max(width, _SMALLEST):
            x, y = _MARGIN, y + _ROW
        text = words(name, x=14 if sign else -5, y=4)
        parts.append(tag("g", sign + text, class_=f"key {item.classes}", transform=shift(Point(x, y))))
        x += needed
    return "".join(parts), y + _ROW / 2 if items else 0.0


# ---- style


def _style() -> str:
    """The look of everything; colours come twice, for viewers that know no variables."""

    def paint(name: str, prefix: str = "fill") -> str:
        return f"{prefix}:{colours()[name].light};{prefix}:{coloured(name)};"

    halo = f"paint-order:stroke;{paint('surface', 'stroke')}stroke-linejoin:round;"
    rules = {
        "text": "font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;" + paint("text"),
        ".ground": paint("surface"),
        ".node circle,.dot": paint("surface", "stroke") + "stroke-width:2;",
        ".name": f"text-anchor:middle;stroke-width:3.5px;{halo}",
        ".line": "fill:none;stroke-width:1.5;" + paint("line-strong", "stroke"),
        ".reach": "fill:none;stroke:transparent;stroke-width:14;",
        ".head": paint("line-strong"),
        ".word": f"font-size:10.5px;text-anchor:middle;stroke-width:4px;{paint('muted')}{halo}",
        ".path .line": "stroke-dasharray:5 4;",
        ".note,.more": paint("muted"),
        ".box .body": paint("surface") + paint("line-strong", "stroke"),
        ".box .tint": "fill-opacity:.2;",
        ".box .title": "font-size:14px;font-weight:650;",
        ".box .property,.box .kind": "font:12px ui-monospace,'SF Mono','DejaVu Sans Mono',Menlo,Consolas,monospace;",
        ".box .kind,.box .count": "text-anchor:end;" + paint("muted"),
    }
    for number in range(TYPE_COLOURS):
        rules[f".type-{number} circle,.type-{number} .tint,.dot.type-{number}"] = paint(f"type-{number}")
    for mark, colour in zip(MARKS, ("good", "warn", "bad"), strict=True):
        rules[f".{mark} .line,.node.{mark} circle"] = paint(colour, "stroke") + "stroke-width:2.5;"
        rules[f".{mark} .head"] = paint(colour)
    rules[".node.inserted circle,.node.updated circle,.node.deleted circle"] = "stroke-width:4;"
    rules[".deleted .line"] = "stroke-dasharray:3 3;"
    rules[".node.deleted circle"] = "fill-opacity:.35;"
    return themes() + "".join(
        f"{','.join(f'.og-picture {part}' for part in selector.split(','))}{{{declared}}}"
        for selector, declared in rules.items()
    )


STYLE = _style()


# ---- graphs


_RADIUS = 13.0
_LARGEST = 21.0
_LABEL_CELLS = 20
_CELL = 6.7
#: Pictures of so many nodes have long edges.
_FEW_NODES = 60
#: Names stand on edges only where few of them do.
_NAMED_EDGES = 60


def draw_graph(nodes: Sequence[Node], edges: Sequence[Edge], *, title: str) -> Drawing:
    """A graph: circles in the colours of their types with labels below them, and lines with arrow heads."""
    if not nodes:
        text = words("no nodes", class_="more", text_anchor="middle")
        return Drawing(content=text, width=_EMPTY[0], height=_EMPTY[1], label=f"{title}: no nodes")
    places = {node.key: number for number, node in enumerate(nodes)}
    ends = [(places[edge.source], places[edge.target]) for edge in edges]
    degrees = np.bincount(np.array(ends, dtype=np.int64).reshape(-1), minlength=len(nodes))
    radii = _RADIUS + (_LARGEST - _RADIUS) * np.sqrt(degrees / max(int(degrees.max()), 8))
    labels = [fitted(one_line(node.label), _LABEL_CELLS) for node in nodes]
    sizes = np.array([[max(2 * r, _CELL * cells_of(text)), 2 * r + 18] for r, text in zip(radii, labels, strict=True)])
    middles = arrange(sizes, ends, gap=(18.0, 10.0), length=110.0 if len(nodes) <= _FEW_NODES else 80.0)
    boxes = {
        node.key: Box(middle=Point(float(x), float(y) - 9), width=2 * float(r), height=2 * float(r), is_round=True)
        for node, (x, y), r in zip(nodes, middles, radii, strict=True)
    }
    turns = turns_of([(edge.source, edge.target) for edge in edges])
    names = len({edge.type_name for edge in edges}) > 1 or len(edges) <= _NAMED_EDGES / 4
    lines = [
        _edge(edge, number, boxes, turn, is_named=names and len(edges) <= _NAMED_EDGES)
        for number, (edge, turn) in enumerate(zip(edges, turns, strict=True))
    ]
    circles = [_node(node, boxes[node.key], label) for node, label in zip(nodes, labels, strict=True)]
    low, high = extent(middles, sizes)
    loops = any(edge.source == edge.target for edge in edges)
    width, height = (float(size) + 2 * _MARGIN + (40 if loops else 0) for size in high - low)
    return Drawing(
        content="".join([*lines, *circles]),
        width=width,
        height=height,
        label=f"{title}: {len(nodes)} nodes and {len(edges)} edges",
        legend=_graph_legend(nodes, edges),
    )


def _edge(edge: Edge, number: int, boxes: Mapping[str, Box], turn: tuple[int, int], *, is_named: bool) -> str:
    drawn = line(boxes[edge.source], boxes[edge.target], turn=turn[0], turns=turn[1], is_directed=edge.is_directed)
    name = fitted(one_line(edge.type_name), 24)
    shown = is_named and drawn.length > 5.6 * cells_of(name) + 20
    classes = " ".join(filter(None, ["edge", "path" if edge.is_path else None, edge.mark]))
    return tag(
        "g", _line(drawn, edge.type_name) + (_word(drawn, name) if shown else ""), class_=classes, data_key=f"e{number}"
    )


def _line(drawn: Line, title: str) -> str:
    head = "" if drawn.head is None else tag("path", class_="head", d=drawn.head)
    hint = tag("title", words_of(title))
    return f"{hint}{tag('path', class_='reach', d=drawn.path)}{tag('path', class_='line', d=drawn.path)}{head}"


def _word(drawn: Line, name: str) -> str:
    angle = f" rotate({drawn.angle:.0f})" if drawn.angle else ""
    return words(name, class_="word", y=3.5, transform=f"{shift(drawn.name)}{angle}")


def _node(node: Node, box: Box, label: str) -> str:
    classes = " ".join(filter(None, ["node", f"type-{node.colour % TYPE_COLOURS}", node.mark]))
    content = (
        tag("title", words_of(f"{node.type_name} {node.label}"))
        + tag("circle", r=box.width / 2)
        + words(label, class_="name", y=box.height / 2 + 14)
    )
    return tag("g", content, class_=classes, data_key=node.key, transform=shift(box.middle))


def words_of(text: str) -> str:
    """A text inside an element, bounded."""
    import html

    return html.escape(fitted(one_line(text), 200))


def _graph_legend(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[LegendItem]:
    found = []
    colour_of = {node.type_name: node.colour for node in nodes}
    for name, count in sorted(Counter(node.type_name for node in nodes).items()):
        found.append(LegendItem(name=f"{name} {count:,}", classes=f"type-{colour_of[name] % TYPE_COLOURS}"))
    kinds = Counter((edge.type_name, edge.is_path) for edge in edges)
    for (name, is_path), count in sorted(kinds.items()):
        found.append(LegendItem(name=f"{name} {count:,}", classes="edge path" if is_path else "edge"))
    marks = Counter([node.mark for node in nodes] + [edge.mark for edge in edges])
    found += [LegendItem(name=f"{mark} {marks[mark]:,}", classes=f"edge {mark}") for mark in MARKS if marks[mark]]
    return found


# ---- schemas


_LINES = 8
_MONO = 7.3
_HEADER = 34.0
_LINE = 19.0
_TYPE_CELLS = 20
#: Node types that are drawn.
_MAX_TYPES = 60


def draw_schema(nodes: Sequence[NodeType], edges: Iterable[EdgeType], *, title: str) -> Drawing:
    """A schema: a box per node type with its first properties, and a line per edge type."""
    if not nodes:
        text = words("no types", class_="more", text_anchor="middle")
        return Drawing(content=text, width=_EMPTY[0], height=_EMPTY[1], label=f"{title}: no types")
    shown = nodes[:_MAX_TYPES]
    places = {node.name: number for number, node in enumerate(shown)}
    drawn = [edge for edge in edges if edge.source in places and edge.target in places]
    sizes = np.array([_box_size(node) for node in shown])
    links = [(places[edge.source], places[edge.target]) for edge in drawn]
    room = 6.2 * max((cells_of(_edge_name(edge)) for edge in drawn), default=0)
    middles = arrange(sizes, links, gap=(max(room + 46, 60.0), 56.0), length=90.0)
    boxes = {
        node.name: Box(middle=Point(float(x), float(y)), width=float(w), height=float(h))
        for node, (x, y), (w, h) in zip(shown, middles, sizes, strict=True)
    }
    turns = turns_of([(edge.source, edge.target) for edge in drawn])
    lines = [
        _edge_type(edge, boxes, turn, loops_left=_leans_right(edge.source, drawn, boxes))
        for edge, turn in zip(drawn, turns, strict=True)
    ]
    shapes = [_type_box(node, boxes[node.name]) for node in shown]
    low, high = extent(middles, sizes)
    # Loops and their names stand at the right of boxes.
    right = max((14 * _MARGIN / 4 for edge in drawn if edge.source == edge.target), default=0.0)
    width, height = high - low
    return Drawing(
        content="".join([*lines, *shapes]),
        width=float(width) + 2 * (_MARGIN + right),
        height=float(height) + 2 * _MARGIN,
        label=f"{title}: {len(nodes)} node types and {len(drawn)} edge types",
    )


def _box_size(node: NodeType) -> tuple[float, float]:
    lines, hidden = _box_lines(node)
    count = 0 if node.count is None else len(f"{node.count:,}") + 2
    texts = [cells_of(name) + cells_of(kind) + 3 for name, kind in lines]
    widest = max([*texts, cells_of(node.name) * 1.15 + 4 + count, 13])
    rows = len(lines) + bool(hidden)
    return widest * _MONO + 22, _HEADER + rows * _LINE + (12 if rows else 0)


def _box_lines(node: NodeType) -> tuple[list[tuple[str, str]], int]:
    """The properties that are shown, and how many are not."""
    most = _LINES if len(node.properties) <= _LINES else _LINES - 1
    lines = [(fitted(one_line(name), 28), fitted(one_line(kind), _TYPE_CELLS)) for name, kind in node.properties[:most]]
    return lines, len(node.properties) - len(lines)


def _type_box(node: NodeType, box: Box) -> str:
    lines, hidden = _box_lines(node)
    width, height = box.width, box.height
    parts = [
        tag("rect", class_="body", width=width, height=height, rx=8),
        tag("path", class_="tint", d=f"M0 34V8Q0 0 8 0H{width - 8:.1f}Q{width:.1f} 0 {width:.1f} 8V34Z"),
        words(fitted(one_line(node.name), 40), class_="title", x=12, y=22),
    ]
    if node.count is not None:
        parts.append(words(f"{node.count:,}", class_="count", x=width - 12, y=22))
    for number, (name, kind) in enumerate(lines):
        y = 54 + number * _LINE
        parts.append(words(name, class_="property", x=12, y=y))
        parts.append(words(kind, class_="kind", x=width - 12, y=y))
    if hidden:
        parts.append(words(f"… {hidden} more", class_="more", x=12, y=54 + len(lines) * _LINE))
    corner = Point(box.middle.x - width / 2, box.middle.y - height / 2)
    return tag("g", "".join(parts), class_=f"box type-{node.colour % TYPE_COLOURS}", transform=shift(corner))


def _leans_right(name: str, edges: Sequence[EdgeType], boxes: Mapping[str, Box]) -> bool:
    """Whether more lines leave a box to the right than to the left."""
    own = boxes[name].middle.x
    ends = [(edge.source, edge.target) for edge in edges]
    others = [boxes[other].middle.x for pair in ends if name in pair for other in pair]
    return sum((x > own + 1) - (x < own - 1) for x in others) > 0


def _edge_type(edge: EdgeType, boxes: Mapping[str, Box], turn: tuple[int, int], *, loops_left: bool) -> str:
    drawn = line(boxes[edge.source], boxes[edge.target], turn=turn[0], turns=turn[1], loops_left=loops_left)
    is_loop = edge.source == edge.target
    name = words(
        _edge_name(edge),
        class_="word",
        x=drawn.name.x,
        y=drawn.name.y + 4,
        style=f"text-anchor:{'end' if loops_left else 'start'}" if is_loop else None,
    )
    return tag("g", _line(drawn, f"{edge.source} {edge.name} {edge.target}") + name, class_="edge")


def _edge_name(edge: EdgeType) -> str:
    text = one_line(edge.name) if edge.count is None else f"{one_line(edge.name)} {edge.count:,}"
    return fitted(text, 36)
