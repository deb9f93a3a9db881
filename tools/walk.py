"""Which modules, functions and rooms one call of the library goes through.

    python tools/walk.py             a load, a query, a mutation and a merge of a small graph
    python tools/walk.py load -v     one of them, with its modules in the order of their first use

A change of rooms is a pair of functions of two rooms of which one calls the other. Only this process is looked at.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import omnigraph
from omnigraph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SOURCES = str(Path(omnigraph.__file__).parent) + "/"
SCHEMA = "node Person { name: String @key  born: Date? }\nedge Knows: Person -> Person"
PEOPLE = '{"type": "Person", "data": {"name": "Ada"}}\n{"type": "Person", "data": {"name": "Ben"}}\n'
EDGES = '{"edge": "Knows", "from": "Ada", "to": "Ben"}\n'


class Walk:
    """Notes every call between functions of the package while it is entered."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.functions: set[tuple[str, str]] = set()
        self.changes: set[tuple[tuple[str, str], tuple[str, str]]] = set()

    def __enter__(self) -> Walk:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (here := _place(frame)) is None:
            return
        self.modules.setdefault(here[0])
        self.functions.add(here)
        caller = frame.f_back
        while caller is not None and (there := _place(caller)) is None:
            caller = caller.f_back
        if caller is not None and there is not None and _room(there[0]) != _room(here[0]):
            self.changes.add((there, here))


def _place(frame: FrameType) -> tuple[str, str] | None:
    """Module and function of a frame; None outside of the package."""
    name = frame.f_code.co_filename
    if not name.startswith(SOURCES):
        return None
    return name.removeprefix(SOURCES).removesuffix(".py"), frame.f_code.co_qualname


def _room(module: str) -> str:
    return module.partition("/")[0]


def calls(folder: Path) -> dict[str, Callable[[], object]]:
    graph = Graph.init(folder / "people.omni", SCHEMA)
    people, edges = folder / "people.jsonl", folder / "edges.jsonl"
    people.write_text(PEOPLE, encoding="utf-8")
    edges.write_text(PEOPLE + EDGES, encoding="utf-8")
    graph.load(people, mode="append", engine="local")
    add = "query add($name: String) { insert Person { name: $name } }"
    read = "query friends() { match { $a: Person $a knows $b } return { $a.name, $b.name } }"

    def merge() -> None:
        graph.merge("work")

    def mutate() -> None:
        graph.mutate(add, {"name": "Eva"}, branch="work")

    graph.create_branch("work")
    return {
        "load": lambda: graph.load(edges, mode="merge", engine="local"),
        "query": lambda: graph.query(read).to_arrow(),
        "mutation": mutate,
        "merge": merge,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("call", nargs="?", choices=["load", "query", "mutation", "merge"])
    parser.add_argument("-v", "--verbose", action="store_true", help="print the modules")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)).items():
            with Walk() as walk:
                call()
            if options.call not in (None, name):
                continue
            print(
                f"{name:9} {len(walk.modules):4} modules {len(walk.functions):5} functions "
                f"{len(walk.changes):5} changes of rooms"
            )
            if options.verbose:
                print("".join(f"    {module}\n" for module in walk.modules), end="")


if __name__ == "__main__":
    main()
