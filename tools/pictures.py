"""Draws the pictures of the concepts: walks through modules, and chains of stages.

A walk has one column per room and one box per module, in the order of its table on the architecture page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import wrap

PAGE = Path(__file__).parents[1] / "docs/develop/architecture.md"
#: Rooms from left to right, as they may import each other.
ROOMS = [
    "graph",
    "api",
    "branches",
    "maintenance",
    "spark",
    "pipeline",
    "writes",
    "engine",
    "commit",
    "storage",
    "lang",
]
LANE, STEP, BOX_WIDTH, BOX_HEIGHT, LEFT, TOP = 116, 42, 104, 26, 34, 36
#: Stages from left to right.
CHAINS = {
    "write-phases": (
        "prepare and validate in memory",
        "stage files: invisible",
        "take the lock, settle others, check expectations",
        "A: sidecar on disk",
        "B: each table moves",
        "C: publish",
        "D: sidecar goes, lock is released",
    ),
    "load-stages": (
        "parts of files, tables, frames",
        "read and shape, a task each",
        "check values",
        "write fragments",
        "identify (merge)",
        "check relations",
        "commit protocol",
    ),
    "merge-stages": (
        "two heads and where they last agreed",
        "rows that differ, per type",
        "truth table per id",
        "copy rows, mark replaced ones",
        "rules of the schema",
        "commit protocol, two parents",
    ),
    "read-path": (
        "text to representation (cached)",
        "branch, commit or time to one snapshot",
        "operators on row ids",
        "values of the surviving rows",
        "Arrow batches",
    ),
}
#: Boxes of a chain in one row, their size, and letters of a line in one of them.
PER_ROW, WIDE, TALL, GAP, LETTERS = 4, 150, 62, 26, 20
STYLE = """
  .card { fill: #ffffff; stroke: #d5dbe3 }
  .lane { fill: #f3f6f9 }
  .box { fill: #e4efff; stroke: #2f6fd0 }
  .path { fill: none; stroke: #7a8699; stroke-width: 1.5 }
  text { font: 12px system-ui, sans-serif; fill: #1d2733; text-anchor: middle }
  .room { font-weight: 600; fill: #5b6776 }
  .number { font-size: 10px; fill: #5b6776 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #12171e; stroke: #303a46 }
    .lane { fill: #1a212b }
    .box { fill: #1d3557; stroke: #6ea8ff }
    .path { stroke: #8b98a9 }
    text { fill: #e6ebf1 }
    .room, .number { fill: #9fadbd }
  }
"""


def walks() -> dict[str, list[str]]:
    """The modules of each walk of the page, by the first words of their heading: `load`, `query` and so on."""
    found = {}
    for section in re.split(r"^## An? ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        body = body.partition("\n## ")[0]
        found[name] = re.findall(r"^\| `([a-z_/]+)` \|", body, re.MULTILINE)
    return found


def chain_picture(stages: Sequence[str]) -> str:
    """Stages as SVG, four in a row."""
    columns, rows = min(PER_ROW, len(stages)), -(-len(stages) // PER_ROW)
    width, height = 24 - GAP + columns * (WIDE + GAP), 24 - GAP + rows * (TALL + GAP)
    lines = _opening(width, height, " → ".join(stages))
    places = [
        (12 + column % PER_ROW * (WIDE + GAP), 12 + column // PER_ROW * (TALL + GAP)) for column in range(len(stages))
    ]
    for (x, y), (next_x, next_y) in pairwise(places):
        way = f"M{x + WIDE} {y + TALL // 2} H{next_x}"
        if y != next_y:
            middle = y + TALL + GAP // 2
            way = f"M{x + WIDE // 2} {y + TALL} V{middle} H{next_x + WIDE // 2} V{next_y}"
        lines.append(f'<path class="path" marker-end="url(#end)" d="{way}"/>')
    for (x, y), stage in zip(places, stages, strict=True):
        lines.append(f'<rect class="box" x="{x}" y="{y}" width="{WIDE}" height="{TALL}" rx="6"/>')
        texts = wrap(stage, LETTERS)
        top = y + TALL // 2 + 4 - 8 * (len(texts) - 1)
        for number, text in enumerate(texts):
            lines.append(f'<text x="{x + WIDE // 2}" y="{top + 16 * number}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def walk_picture(name: str, modules: list[str]) -> str:
    """A walk as SVG, readable on light and dark pages."""
    rooms = [room for room in ROOMS if any(_room(module) == room for module in modules)]
    width, height = LEFT + LANE * len(rooms) + 8, TOP + STEP * len(modules) + 6
    lines = _opening(width, height, f"The modules of a {name}, by room")
    for column, room in enumerate(rooms):
        x = LEFT + LANE * column
        if column % 2 == 0:
            lines.append(f'<rect class="lane" x="{x}" y="6" width="{LANE}" height="{height - 12}"/>')
        lines.append(f'<text class="room" x="{x + LANE // 2}" y="24">{room}</text>')
    places = [
        (LEFT + LANE * rooms.index(_room(module)) + (LANE - BOX_WIDTH) // 2, TOP + STEP * row)
        for row, module in enumerate(modules)
    ]
    for here, there in pairwise(places):
        lines.append(f'<path class="path" marker-end="url(#end)" d="{_way(here, there)}"/>')
    for number, ((x, y), module) in enumerate(zip(places, modules, strict=True), start=1):
        lines += [
            f'<text class="number" x="18" y="{y + 17}">{number}</text>',
            f'<rect class="box" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
            f'<text x="{x + BOX_WIDTH // 2}" y="{y + 17}">{escape(module.rpartition("/")[2])}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _opening(width: int, height: int, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="path" d="M1 1 L7 4 L1 7"/></marker></defs>',
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]


def _way(here: tuple[int, int], there: tuple[int, int]) -> str:
    """From a box to the next one: straight down in a column, else out of a side and into the top."""
    (x, y), (next_x, next_y) = here, there
    if x == next_x:
        return f"M{x + BOX_WIDTH // 2} {y + BOX_HEIGHT} V{next_y}"
    side = x + BOX_WIDTH if next_x > x else x
    return f"M{side} {y + BOX_HEIGHT // 2} H{next_x + BOX_WIDTH // 2} V{next_y}"


def _room(module: str) -> str:
    return module.partition("/")[0]
