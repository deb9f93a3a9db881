"""Print the modules and lines of every room, and fail when one has outgrown what `rooms.txt` beside this file allows.

Run by `make check`. A change that needs more raises its number by hand, so that growth is decided and not found out;
`python tools/rooms.py --lower` takes back what rooms do not need any more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

LIMITS = Path(__file__).with_name("rooms.txt")
SOURCES = Path(__file__).parents[1] / "src" / "omnigraph"


class Size(NamedTuple):
    """How much is in a room, or may be."""

    modules: int
    lines: int


def main(arguments: list[str]) -> int:
    sizes, limits = measured(), recorded()
    if arguments == ["--lower"]:
        limits = {room: smaller(size, limits.get(room, size)) for room, size in sizes.items()}
        LIMITS.write_text("".join(map(line, limits.items())), encoding="utf-8")
    total = Size(*map(sum, zip(*sizes.values(), strict=True)))
    print(*(f"{room} {size.lines}" for room, size in sizes.items()), sep=", ", end="; ")
    print(f"together {total.lines} lines in {total.modules} modules")
    outgrown = [
        f"src/omnigraph/{room} has {size.modules} modules and {size.lines} lines, and may have "
        f"{limits[room].modules} and {limits[room].lines}"
        for room, size in sizes.items()
        if room in limits and size != smaller(size, limits[room])
    ]
    outgrown += [f"{LIMITS.name} has no line for {room}" for room in sizes.keys() - limits.keys()]
    if outgrown:
        print(*outgrown, f"make it smaller, or raise its line in {LIMITS}", sep="\n")
    return bool(outgrown)


def measured() -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        first, *rest = path.relative_to(SOURCES).parts
        room = first if rest else "(door)"
        modules, lines = sizes.get(room, Size(0, 0))
        sizes[room] = Size(modules + 1, lines + path.read_bytes().count(b"\n"))
    return sizes


def recorded() -> dict[str, Size]:
    entries = map(str.split, LIMITS.read_text(encoding="utf-8").splitlines())
    return {room: Size(int(modules), int(lines)) for room, modules, lines in entries}


def smaller(one: Size, other: Size) -> Size:
    return Size(min(one.modules, other.modules), min(one.lines, other.lines))


def line(entry: tuple[str, Size]) -> str:
    room, size = entry
    return f"{room:<12}{size.modules:>4}{size.lines:>7}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
