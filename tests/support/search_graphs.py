"""Documents to search: their schema, short ways to write and to ask, and graphs in every state of the indexes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph import Graph
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.transaction import Transaction
from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.writes.columns import rows_table

#: `body` is indexed as text, `plain` never is; the keys of the two types may be equal.
SCHEMA = """
node Doc {
    slug: String @key
    title: String? @index
    body: String? @index
    plain: String?
    lang: enum(de, en)? @index
    year: I32? @index
    vec: Vector(4)? @index
    far: Vector(4)?
}
node Tag {
    name: String @key
    about: String? @index
}
edge Cites: Doc -> Doc { why: String? }
edge Tagged: Doc -> Tag
"""

ZERO = "[0.0, 0.0, 0.0, 0.0]"

# ---- writing


def literal(value: object) -> str:
    """A value as the query language writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(literal(part) for part in value)}]"
    return str(value)


def insert(type_: str, **values: object) -> str:
    """An insert statement; what is None is left out."""
    given = ", ".join(f"{k}: {literal(v)}" for k, v in values.items() if v is not None)
    return f"insert {type_} {{ {given} }}"


def doc(slug: str, body: str | None = None, **values: object) -> str:
    return insert("Doc", slug=slug, body=body, **values)


def tag(name: str, about: str | None = None) -> str:
    return insert("Tag", name=name, about=about)


def cites(source: str, target: str, why: str | None = None) -> str:
    return f"insert Cites {{ from: {literal(source)}, to: {literal(target)}" + (
        " }" if why is None else f", why: {literal(why)} }}"
    )


def tagged(source: str, target: str) -> str:
    return f"insert Tagged {{ from: {literal(source)}, to: {literal(target)} }}"


def write(graph: Graph, *statements: str, branch: str = "main", **options: Any) -> Any:
    """All statements as one mutation."""
    text = "query write() {\n" + "\n".join(statements) + "\n}"
    return graph.mutate(text, branch=branch, **options)


def set_body(graph: Graph, slug: str, body: str | None, branch: str = "main") -> Any:
    text = "query w($s: String, $b: String?) { update Doc set { body: $b } where slug = $s }"
    return graph.mutate(text, {"s": slug, "b": body}, branch=branch)


def new_graph(folder: Path, *statements: str, name: str = "g.omni", schema: str = SCHEMA) -> Graph:
    graph = Graph.init(folder / name, schema)
    if statements:
        write(graph, *statements)
    return graph


def append(graph: Graph, branch: str = "main", **rows: Sequence[dict[str, Any]]) -> None:
    """Many rows in one commit, past the mutation language: nothing is validated, missing values are null."""
    transaction = Transaction(graph._environment, branch, kind=WriterKind.LOAD)
    snapshot = transaction.snapshot
    catalog = graph._schema_of(snapshot.schema_hash).catalog
    for name, given in rows.items():
        is_node = name in catalog.nodes
        definition = catalog.nodes[name] if is_node else catalog.edges[name]
        pin = snapshot.pins[(node_table_key if is_node else edge_table_key)(name)]
        empty = dict.fromkeys(definition.properties)
        full = [{**empty, **row} for row in given]
        transaction.stage(pin, stage_append(graph._open(pin), rows_table(definition, full)))
    transaction.commit()


def doc_row(slug: str, **values: Any) -> dict[str, Any]:
    """A document as `append` takes it."""
    return {"id": slug, "slug": slug, **values}


# ---- asking


def rows(graph: Graph, body: str, declared: str = "", /, **params: Any) -> list[dict[str, Any]]:
    """The rows of a read, given without its head."""
    return ask(graph, f"query q({declared}) {{ {body} }}", params)


def ask(graph: Graph, text: str, params: Any = None, **target: Any) -> list[dict[str, Any]]:
    return graph.query(text, params or {}, **target).to_pylist()


def found(
    graph: Graph, clauses: str, declared: str = "", /, target: Any = None, **params: Any
) -> list[str]:
    """The slugs of all documents that satisfy clauses about `$d`, sorted; a repeated row shows twice."""
    text = f"query q({declared}) {{ match {{ $d: Doc  {clauses} }} return {{ $d.slug as s }} }}"
    return sorted(row["s"] for row in ask(graph, text, params, **(target or {})))


def ranked(
    graph: Graph,
    rank: str,
    clauses: str = "",
    *,
    limit: int | None = 10,
    declared: str = "",
    **params: Any,
) -> list[str]:
    """The slugs of the documents in the order of a rank function; its score is not asked for."""
    cut = "" if limit is None else f"limit {limit}"
    text = f"""query q({declared}) {{
        match {{ $d: Doc  {clauses} }} return {{ $d.slug as s }} order {{ {rank} }} {cut}
    }}"""
    return [row["s"] for row in ask(graph, text, params)]


def scored(
    graph: Graph,
    rank: str,
    clauses: str = "",
    limit: int | None = 10,
    declared: str = "",
    **params: Any,
) -> list[tuple[str, float]]:
    """Slugs and scores in the order of a rank function."""
    cut = "" if limit is None else f"limit {limit}"
    text = f"""query q({declared}) {{
        match {{ $d: Doc  {clauses} }} return {{ $d.slug as s, {rank} as score }} order {{ {rank} }} {cut}
    }}"""
    return [(row["s"], row["score"]) for row in ask(graph, text, params)]


def close_to(scores: Iterable[tuple[str, float]]) -> list[tuple[str, Any]]:
    """A ranking to compare others with: the same slugs in the same order, scores but for their last bits."""
    return [(slug, pytest.approx(score)) for slug, score in scores]


def index_names(graph: Graph, key: str, branch: str = "main") -> set[str]:
    return set(segments(graph, key, branch))


def segments(graph: Graph, key: str, branch: str = "main") -> dict[str, list[set[int]]]:
    """The fragments that each segment of each index covers, straight from Lance."""
    dataset = dataset_of(graph, graph.snapshot(branch), key)
    return {
        index.name: [set(segment.fragment_ids) for segment in index.segments]
        for index in dataset.describe_indices()
    }


def dataset_of(graph: Graph, snapshot: Snapshot, key: str) -> lance.LanceDataset:
    pin = snapshot.pins[key]
    uri = f"{graph.uri}/{pin.location}"
    if pin.branch is not None:
        uri = f"{uri}/tree/{pin.branch}"
    return lance.dataset(uri, version=pin.version)


# ---- the states of the indexes


class State(StrEnum):
    """How much of the data the indexes cover when it is searched."""

    NONE = "none"
    FULL = "full"
    #: Rows were added, updated and deleted after the indexes were built.
    HALF = "half"
    #: Rows were added and deleted, and the indexes caught up: they have two segments.
    GROWN = "grown"


class Library:
    """One content in every state of the indexes.

    `before` is there when an index is built first, `outdated` too, but its bodies change afterwards; `doomed` is
    deleted afterwards, `after` is added. Whatever the state, the content is the same in the end.
    """

    def __init__(
        self,
        *,
        before: dict[str, str | None],
        after: dict[str, str | None],
        outdated: dict[str, tuple[str | None, str | None]],
        doomed: dict[str, str | None],
    ) -> None:
        self.before = before
        self.after = after
        self.outdated = outdated
        self.doomed = doomed
        #: The final content.
        self.bodies = before | after | {slug: new for slug, (_, new) in outdated.items()}

    def build(self, folder: Path, state: State | str, *, catches_up: bool = False) -> Graph:
        """A graph with the final content; `catches_up` builds the indexes twice, with updates in between."""
        updates_first = state == State.GROWN and not catches_up
        olds = {slug: new if updates_first else old for slug, (old, new) in self.outdated.items()}
        graph = new_graph(folder, *_docs(self.before | olds | self.doomed), name=f"{state}.omni")
        if state in (State.HALF, State.GROWN):
            graph.ensure_indices()
        if self.after:
            write(graph, *_docs(self.after))
        if not updates_first:
            for slug, (_, new) in self.outdated.items():
                set_body(graph, slug, new)
        if self.doomed:
            write(graph, *(f'delete Doc where slug = "{slug}"' for slug in self.doomed))
        if state in (State.FULL, State.GROWN):
            graph.ensure_indices()
        return graph


def _docs(bodies: dict[str, str | None]) -> Iterable[str]:
    return (doc(slug, body, plain=body) for slug, body in bodies.items())
