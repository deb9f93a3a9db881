"""Pictures: a drawing that notebooks show, and that is saved as a page or as an image. Nothing is fetched for one."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files
from pathlib import Path

from omnigraph.display.colours import page_file
from omnigraph.display.drawings import STYLE, Drawing, Edge, LegendItem, Node, draw_graph
from omnigraph.display.shapes import tag
from omnigraph.display.text import counted, short_text
from omnigraph.errors import BadRequestError
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

#: Nodes of a picture, unless the caller says how many; and at most.
SHOWN_NODES = 100
MOST_NODES = 500
#: Edges of a picture.
MOST_EDGES = 1_000
#: Values of one node or edge.
_FACTS = 24
_HEIGHTS = (220, 640)
_ENDINGS = (".html", ".svg")


@frozen(kw_only=True)
class Picture:
    """A picture of a graph: shown by notebooks, and saved with `save`.

    It is complete in itself: neither a server nor the network is needed to look at it.
    """

    title: str
    drawing: Drawing
    note: str = ""
    #: What is known about elements of the drawing, by key.
    details: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def to_svg(self) -> str:
        """The picture as an SVG document: an image that does not move."""
        return self.drawing.svg(self.note)

    def to_html(self) -> str:
        """The picture as a page of its own: it can be moved and zoomed, and shows the values of what is chosen."""
        drawing = self.drawing
        left, top = -drawing.width / 2, -drawing.height / 2
        image = tag(
            "svg",
            tag("g", drawing.content, class_="drawing"),
            viewBox=f"{left:.0f} {top:.0f} {drawing.width:.0f} {drawing.height:.0f}",
            role="group",
            aria_label=one_line(drawing.label),
        )
        title = html.escape(one_line(short_text(self.title)))
        note = f'<p class="note">{html.escape(one_line(self.note))}</p>' if self.note else ""
        # In JSON `<` may be escaped, and then no value ends the element.
        details = json.dumps(self.details, ensure_ascii=True).replace("<", "\\u003c")
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_POLICY}'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
            f"<style>{STYLE}{_asset('picture.css')}</style></head>"
            f'<body class="og-picture"><header><h1>{title}</h1>{_legend(drawing.legend)}</header>'
            f"<main>{image}</main><aside hidden></aside>{note}"
            f'<script type="application/json" id="details">{details}</script>'
            f'<script type="module">{_script()}</script></body></html>'
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, as a page (`.html`) or as an image (`.svg`), and return its path.

        Raises:
            BadRequestError: the path has another ending, or cannot be written.
        """
        target = Path(path)
        match target.suffix.lower():
            case ".html":
                content = self.to_html()
            case ".svg":
                content = self.to_svg()
            case other:
                wanted = " or ".join(_ENDINGS)
                raise BadRequestError(
                    f"a picture is not saved as {other or 'a file without ending'}: give a path that ends in {wanted}; "
                    "a browser makes other images of them"
                )
        _write(target, content)
        return target

    def __repr__(self) -> str:
        return f'<Picture of {self.drawing.label}: shown by a notebook, or .save("picture.html")>'

    def _repr_html_(self) -> str:
        lowest, highest = _HEIGHTS
        height = self.drawing.height * min(1.0, 860 / self.drawing.width) + 80
        page = html.escape(self.to_html())
        name = html.escape(one_line(self.drawing.label))
        size = f"width:100%;height:{min(max(height, lowest), highest):.0f}px"
        return f'<iframe title="{name}" style="{size};border:0;border-radius:8px" srcdoc="{page}"></iframe>'


def picture_of(
    nodes: Sequence[Node], edges: Sequence[Edge], *, title: str, note: str = "", limit: int = SHOWN_NODES
) -> Picture:
    """A picture of nodes and the edges between them; of more than `limit` nodes the first ones, with a note."""
    shown = nodes[: min(limit, MOST_NODES)]
    keys = {node.key for node in shown}
    between = [edge for edge in edges if edge.source in keys and edge.target in keys]
    drawn = between[:MOST_EDGES]
    notes = [note] if note else []
    if len(shown) < len(nodes):
        notes.append(f"the first {counted(len(shown), 'node')} of {len(nodes):,}")
    if len(drawn) < len(between):
        notes.append(f"the first {counted(len(drawn), 'edge')} of {len(between):,}")
    details = {node.key: _details(node.type_name, node.label, node.details) for node in shown}
    for number, edge in enumerate(drawn):
        details[f"e{number}"] = {
            **_details("edge" if not edge.is_path else "path", edge.type_name, edge.details),
            "ends": [edge.source, edge.target],
        }
    return Picture(title=title, drawing=draw_graph(shown, drawn, title=title), note="; ".join(notes), details=details)


def _details(kind: str, name: str, facts: Mapping[str, object]) -> dict[str, object]:
    shown = [[short_text(label), short_text(value)] for label, value in list(facts.items())[:_FACTS]]
    if len(facts) > _FACTS:
        shown.append(["…", f"{len(facts) - _FACTS} more"])
    return {"kind": kind, "name": short_text(name), "facts": shown}


def check_limit(limit: int) -> int:
    """The number of nodes of a picture.

    Raises:
        BadRequestError: it is not positive, or more than a picture has.
    """
    if not 1 <= limit <= MOST_NODES:
        raise BadRequestError(f"a picture has 1 to {MOST_NODES} nodes, not {limit}")
    return limit


# ---- the page


#: Whatever a graph holds: a picture asks for nothing.
_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">"
)
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


@cache
def _asset(name: str) -> str:
    return files("omnigraph.display").joinpath("picture", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """The modules of the script as one: those that it shares with the explorer page, and its own."""
    parts = [page_file("js/dom.js"), page_file("js/pan_zoom.js"), _asset("picture.js")]
    return _EXPORT.sub("", _IMPORT.sub("", "\n".join(parts)))


def _legend(items: Sequence[LegendItem]) -> str:
    entries = []
    for item in items:
        icon = ""
        if item.sign:
            sign = tag("g", item.sign, class_=item.classes)
            icon = tag("svg", sign, viewBox="-8 -6 16 12", width=16, height=12, aria_hidden="true")
        entries.append(f"<li>{icon}{html.escape(one_line(short_text(item.name)))}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _write(target: Path, content: str) -> None:
    """Write a file at once: a reader sees the old one or the new one."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except OSError as error:
        raise BadRequestError(f"the picture cannot be written to {target}: {error.strerror}") from error
