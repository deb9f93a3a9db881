"""A graph with everything that a copy has to carry, and looks at it that leave nothing out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.opening import with_bases_in_file
from support.papers_with_blobs import content, text_of

SCHEMA = """
node Paper {
    doi: String @key
    title: String? @index
    year: I32? @index
    scan: Blob?
}
node Place { name: String @key }
edge Cites: Paper -> Paper { page: I32? }
"""
BRANCHES = ("main", "draft", "draft-2/deep")
PAPERS = "query papers() { match { $p: Paper } return { $p.doi as doi, $p.title as title, $p.year as year } }"
CITES = "query cites() { match { $a: Paper  $a cites $b } return { $a.doi as one, $b.doi as two } }"
FOUND = """query found() {
    match { $p: Paper  search($p.title, "graphs") } return { $p.doi as doi } order { $p.doi }
}"""
YEAR = "query year() { match { $p: Paper { year: 3 } } return { $p.doi as doi } }"
#: In the data file, in a file that several share, in a file of its own.
BLOB_SIZES = (5, 100_000, 4_200_000)


def add(graph: Graph, doi: str, branch: str = "main", **values: Any) -> None:
    graph.mutate(
        "query add($doi: String, $title: String?, $year: I32?, $scan: Blob?) "
        "{ insert Paper { doi: $doi, title: $title, year: $year, scan: $scan } }",
        {"doi": doi, "title": f"On graphs of {doi}", "year": 3, "scan": "base64:AA=="} | values,
        branch=branch,
    )


def cite(graph: Graph, one: str, two: str, branch: str = "main") -> None:
    text = "query cite($a: String, $b: String) { insert Cites { from: $a, to: $b } }"
    graph.mutate(text, {"a": one, "b": two}, branch=branch)


def build(root: Path | str, external: Path) -> None:
    """Main, a branch of it and a branch of that, each with rows, edges, deletions, blobs and indexes of its own."""
    external.write_bytes(b"elsewhere")
    with Graph.init(root, SCHEMA, external_blobs=[external.parent.as_uri()]) as graph:
        for number, size in enumerate(BLOB_SIZES):
            add(graph, f"m{number}", scan=text_of(content(size)))
        add(graph, "outside", scan=external.as_uri())
        cite(graph, "m0", "m1")
        graph.optimize()
        graph.create_branch("draft")
        add(graph, "d0", "draft", scan=text_of(content(BLOB_SIZES[2])))
        cite(graph, "d0", "m1", "draft")
        graph.mutate('query del() { delete Paper where doi = "m2" }', branch="draft")
        graph.create_branch("draft-2/deep", base="draft")
        add(graph, "deep0", "draft-2/deep", year=4)
        graph.mutate('query del() { delete Paper where doi = "d0" }', branch="draft-2/deep")
        graph.ensure_indices("draft-2/deep")
        # Main moves on and writes its fragments anew, so that branches read what only they need.
        graph.mutate('query up() { update Paper set { title: "all graphs" } where doi = "m0" }')
        graph.optimize()


def everything(graph: Graph, branches: Iterable[str] = BRANCHES) -> dict[str, object]:
    """What every reader sees of the graph: queries on each branch, exports, diffs, histories and blobs."""
    seen: dict[str, object] = {}
    for branch in branches:
        for text in (PAPERS, CITES, FOUND, YEAR):
            rows = graph.query(text, branch=branch).to_pylist()
            seen[f"{branch}: {text}"] = sorted(rows, key=str)
        target = io.StringIO()
        graph.export(target, branch=branch)
        seen[f"{branch}: export"] = target.getvalue()
        for row in graph.query(PAPERS, branch=branch).to_pylist():
            cell = ("node:Paper", row["doi"], "scan")
            info = graph.stat_blob(*cell, branch=branch)
            digest = None if info.uri else sha256(graph.read_blob(*cell, branch=branch)).hexdigest()
            seen[f"{branch}: {row['doi']}"] = info.uri or digest
        for commit in graph.commits(branch):
            rows = graph.query(PAPERS, snapshot=commit.commit_id).to_pylist()
            seen[f"at {commit.commit_id}"] = sorted(rows, key=str)
        page = graph.feed(branch, start="beginning")
        seen[f"{branch}: feed"] = json.dumps(page.to_json(), default=str, sort_keys=True)
    for one in branches:
        for other in branches:
            seen[f"{one} {other}"] = [str(item) for item in graph.diff(one, other)]
    return seen


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes; links are told by where they lead."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = b"-> " + str(path.readlink()).encode()
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def as_recorded_elsewhere(root: Path, recorded: str) -> None:
    """Let every version of every fork hold the addresses of another root, as earlier releases leave them."""
    for manifest in root.glob("*/*/tree/**/_versions/*.manifest"):
        data = with_bases_in_file(manifest.read_bytes(), lambda path: path.replace(str(root), recorded))
        manifest.write_bytes(data)
