"""A small graph with every kind of index, ways to wear it out, and questions that use all of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance

from omnigraph.graph.graph import Graph

SCHEMA = """
node Doc {
    slug: String @key
    body: String? @index
    year: I32? @index
    vec: Vector(4)? @index
    scan: Blob?
}
edge Cites: Doc -> Doc { why: String? }
"""
#: Made once, copied by every test that wants one.
_TEMPLATES: dict[bool, TemporaryDirectory[str]] = {}
DOC, CITES = "node:Doc", "edge:Cites"
WORDS = ("graph", "index", "fragment", "row", "commit")

QUESTIONS = {
    "all": "match { $d: Doc } return { $d.slug as s, $d.body as b, $d.year as y }",
    "key": 'match { $d: Doc { slug: "d3" } } return { $d.slug as s, $d.year as y }',
    "range": "match { $d: Doc  $d.year >= 2003 } return { $d.slug as s }",
    "search": 'match { $d: Doc  search($d.body, "graph commit") } return { $d.slug as s }',
    "phrase": 'match { $d: Doc  match_text($d.body, "index fragment") } return { $d.slug as s }',
    "fuzzy": 'match { $d: Doc  fuzzy($d.body, "grapf", 1) } return { $d.slug as s }',
    "prefix": 'match { $d: Doc  $d.body starts_with "gra" } return { $d.slug as s }',
    "near": "match { $d: Doc } return { $d.slug as s } order { nearest($d.vec, [0.3, 0.1, 0.9, 0.2]) } limit 3",
    "hop": "match { $a: Doc  $a cites $b } return { $a.slug as a, $b.slug as b }",
    "far": "match { $a: Doc  $a cites{1,3} $b } return { $a.slug as a, $b.slug as b }",
    "none": "match { $a: Doc  not { $_ cites $a } } return { $a.slug as s }",
}


def add(number: int, year: int | None = None) -> str:
    """A statement that inserts a document, or replaces it."""
    body = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(1 + number % 4))
    vector = [round((number * factor) % 11 / 11 + 0.01, 3) for factor in (1, 3, 5, 7)]
    when = 2000 + number % 7 if year is None else year
    return f'insert Doc {{ slug: "d{number}", body: "{body}", year: {when}, vec: {vector} }}'


def cite(source: int, target: int) -> str:
    return f'insert Cites {{ from: "d{source}", to: "d{target}" }}'


def change(number: int, year: int) -> str:
    return f'update Doc set {{ year: {year}, body: "row {year}" }} where slug = "d{number}"'


def drop(number: int) -> str:
    return f'delete Doc where slug = "d{number}"'


def run(graph: Graph, *statements: str, **options: Any) -> Any:
    """Statements as one mutation."""
    return graph.mutate("query w() { " + "\n".join(statements) + " }", **options)


def one_by_one(graph: Graph, statements: Iterable[str], branch: str = "main") -> None:
    """Statements as one commit each, as a busy application writes."""
    for statement in statements:
        run(graph, statement, branch=branch)


def new_graph(folder: Path) -> Graph:
    return Graph.init(folder / "g.omni", SCHEMA)


def worn_graph(folder: Path, *, indexed: bool = True) -> Graph:
    """Many small fragments, some with indexes and some without, deleted and moved rows."""
    template = _TEMPLATES.get(indexed)
    if template is None:
        template = _TEMPLATES[indexed] = TemporaryDirectory(prefix="worn")
        _wear(Path(template.name), indexed=indexed)
    shutil.copytree(Path(template.name) / "g.omni", folder / "g.omni")
    return Graph.open(folder / "g.omni")


def _wear(folder: Path, *, indexed: bool) -> None:
    graph = new_graph(folder)
    run(graph, *(add(number) for number in range(12)))
    run(graph, *(cite(number, number + 1) for number in range(11)))
    if indexed:
        graph.ensure_indices()
    one_by_one(graph, [add(12), add(13), cite(12, 13), add(14), cite(13, 0)])
    one_by_one(graph, [change(3, 2009), drop(5), change(12, 1999), drop(13)])
    graph.close()


def answers(graph: Graph, branch: str = "main", **target: Any) -> dict[str, list[str]]:
    """The rows of every question; those with an order keep it."""
    found = {}
    for name, body in QUESTIONS.items():
        text = f"query q() {{ {body} }}"
        rows = [repr(row) for row in graph.query(text, branch=branch, **target).to_pylist()]
        found[name] = rows if "order" in body else sorted(rows)
    return found


def dataset(graph: Graph, key: str, branch: str = "main") -> lance.LanceDataset:
    """A table of the graph as Lance sees it, at HEAD."""
    pin = graph.snapshot(branch).pins[key]
    uri = f"{graph.uri}/{pin.location}"
    return lance.dataset(uri if pin.branch is None else f"{uri}/tree/{pin.branch}")


def stored(graph: Graph, key: str, branch: str = "main") -> list[dict[str, Any]]:
    """Every row with everything that no maintenance may change."""
    pin = graph.snapshot(branch).pins[key]
    found = dataset(graph, key, branch).checkout_version(pin.version)
    system = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    names = [field.name for field in found.schema]
    rows = found.to_table(columns=[*names, *system], blob_handling="all_binary").to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def fragments(graph: Graph, key: str, branch: str = "main") -> int:
    return graph._core.open_table(graph.snapshot(branch).pins[key]).fragment_count()
