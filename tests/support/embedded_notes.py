"""Graphs of notes with vectors, and ways to write to them and to look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance

from omnigraph.core.ids import TableKey
from omnigraph.embedding.providers import mock_vector
from omnigraph.graph.graph import Graph

DIMENSION = 4
SCHEMA = """
node Note {
    slug: String @key
    body: String?
    file: Blob?
    vec: Vector(4)? @embed("body")
}
node Other { name: String @key }
"""
#: A vector that no text has.
GIVEN = [0.0, 0.0, 0.0, 1.0]


def notes_graph(folder: Path, schema: str = SCHEMA) -> Graph:
    return Graph.init(str(folder / "notes.omni"), schema)


def put(
    graph: Graph, folder: Path, *notes: dict[str, Any], mode: str = "merge", **rest: Any
) -> Any:
    """Load notes as whole rows."""
    path = folder / "notes.jsonl"
    path.write_text("\n".join(json.dumps({"type": "Note", "data": note}) for note in notes))
    return graph.load(path, mode=mode, engine="local", **rest)


def note(slug: str, body: str | None, vec: list[float] | None = None) -> dict[str, Any]:
    return {"slug": slug, "body": body, "vec": vec}


def set_body(graph: Graph, slug: str, body: str | None, branch: str = "main") -> None:
    graph.mutate(
        "query q($slug: String, $body: String?) { update Note set { body: $body } where slug = $slug }",
        {"slug": slug, "body": body},
        branch=branch,
    )


def vectors(graph: Graph, branch: str = "main", **target: Any) -> dict[str, list[float] | None]:
    found = graph.query(
        "query q() { match { $n: Note } return { $n.slug, $n.vec } }", branch=branch, **target
    )
    return {row["n.slug"]: row["n.vec"] for row in found.to_pylist()}


def dataset(graph: Graph, branch: str = "main") -> lance.LanceDataset:
    """The notes of a branch as they are stored."""
    pin = graph.snapshot(branch).pins[TableKey("node:Note")]
    uri = f"{graph.uri}/{pin.location}" + (f"/tree/{pin.branch}" if pin.branch else "")
    return lance.dataset(uri, version=pin.version)


def fragments(graph: Graph) -> list[tuple[int, int]]:
    """Rows and files of each fragment."""
    found = dataset(graph).get_fragments()
    return [(item.count_rows(), len(item.metadata.files)) for item in found]


def stored_rows(graph: Graph, branch: str) -> list[dict[str, Any]]:
    """Every row as it is stored, with its row id."""
    columns = ["slug", "body", "file", "vec", "_rowid", "_row_created_at_version"]
    rows = dataset(graph, branch).to_table(columns=columns, blob_handling="all_binary").to_pylist()
    return sorted(rows, key=lambda row: row["slug"])


def of(text: str) -> list[float]:
    """The vector of a text."""
    return list(mock_vector(text, DIMENSION))


def embed(graph: Graph, **choices: Any) -> Any:
    return graph.embed(engine="local", **choices)


def counts(result: Any) -> tuple[int, int, int]:
    """Missing, outdated and cleared rows of the only property."""
    (only,) = result.properties
    return only.missing, only.outdated, only.cleared


def kept_files(graph: Graph) -> list[Path]:
    """The files of vectors that are kept beside the graph."""
    folder = Path(graph.uri) / "__derived" / "embeddings"
    return sorted(path for path in folder.rglob("*") if path.is_file())
