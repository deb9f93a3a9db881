"""Write the graphs that a release stores, with what it reads in them, as a fixture for every later release.

    git worktree add /tmp/release COMMIT
    PYTHONPATH=/tmp/release/src python tools/release_graph.py tests/fixtures/releases/NAME.tar.xz

Uses only what has been public since the first release. The archive holds `papers.omni`, with values of all types,
indexes, a schema change, a merge and unmerged branches; `early.omni` and `late.omni`, whose last writers died; and what
the release read in the first one, `read.json`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from omnigraph import Graph

FIRST_SCHEMA = """
interface Titled { title: String @index }
node Paper @description("one published work") implements Titled {
    doi: String @key
    abstract: String? @index
    year: I32 @index
    stage: enum(preprint, accepted)
    open: Bool?
    pages: U32?
    bytes: U64?
    reads: I64?
    score: F32?
    weight: F64?
    published: Date?
    added: DateTime?
    topics: [String]?
    marks: [I32]?
    days: [Date]?
    vec: Vector(4)? @embed("abstract", model="mock-4") @index
    scan: Blob?
    @range(year, 1600..2100)
    @check(doi, "^10[.]")
}
node Author { full_name: String  orcid: String? @unique }
node Venue { series: String  edition: I32  @key(series, edition) }
node Draft { name: String @key }
edge Wrote: Author -> Paper @card(0..9) { position: I32  @unique(src, dst) }
edge Cites: Paper -> Paper { context: String? }
edge PartOf: Paper -> Venue
"""
#: Every kind of change: added with a backfill, renamed, widened, dropped, a type that is new and one that goes.
SECOND_SCHEMA = (
    FIRST_SCHEMA.replace("node Draft { name: String @key }\n", "node Topic { label: String @key }\n")
    .replace("enum(preprint, accepted)", "enum(preprint, accepted, retracted)")
    .replace("reads: I64?", 'downloads: I64? @rename_from("reads")\n    language: String')
    .replace("    marks: [I32]?\n", "")
    .replace("edge PartOf: Paper -> Venue", "edge PartOf: Paper -> Venue\nedge About: Paper -> Topic")
)
#: More than one cell of a vector index needs.
PAPERS = 300
WORDS = ("graph", "tree", "résumé", "lance", "spark", "merge", "索引", "the")
COMMIT_FIELDS = ("commit_id", "graph_version", "branch", "parent_id", "merged_parent_id")
COMMIT_FIELDS += ("created_at", "kind", "actor")
#: No score and no distance: processors compute their last bits differently.
READS = """
query rows() { match { $p: Paper  $p.year >= 2000 } return { $p } order { $p.doi } limit 20 }
query one() { match { $p: Paper { doi: "10.7" } } return { $p.title as title, $p.stage as stage } }
query hops() {
    match { $a: Author { full_name: "Author 3" }  $a wrote $p  $p cites $o }
    return { $p.doi as doi, $o.doi as cited } order { $p.doi, $o.doi }
}
query groups() { match { $p: Paper } return { $p.stage as stage, count($p) as papers } order { stage } }
query text() { match { $p: Paper  search($p.abstract, "lance") } return { $p.doi as doi } order { $p.doi } }
query ranked() { match { $p: Paper } return { $p.doi as doi } order { bm25($p.abstract, "graph tree") desc } limit 5 }
query near($v: Vector(4)) { match { $p: Paper } return { $p.doi as doi } order { nearest($p.vec, $v) } limit 5 }
"""
PARAMETERS = {"near": {"v": [0.87, 0.27, 0.11, 0.43]}}
#: The last mutation of two graphs dies, once before and once after the point from which it counts.
DEATHS = {"early.omni": "after_sidecar", "late.omni": "before_publish"}
DYING = 'query q() { insert Person { name: "Ben" } }'


def paper(number: int) -> dict[str, object]:
    first, second = WORDS[number % len(WORDS)], WORDS[number * 3 // 2 % len(WORDS)]
    data: dict[str, object] = {
        "doi": f"10.{number}",
        "title": f"Paper {number} on {first}",
        "year": 1900 + number % 125,
        "stage": ("preprint", "accepted")[number % 2],
    }
    if number % 5:  # the others keep all of their nulls
        data |= {
            "abstract": f"About {first} and {second}, part {number}",
            "open": number % 3 == 0,
            "pages": 4_294_967_295 - number,
            "bytes": 18_446_744_073_709_551_615 - number,
            "reads": -9_007_199_254_740_993 - number,
            "score": 0.1 * number,
            "weight": 0.1 * number,
            "published": f"20{number % 90 + 10}-02-28",
            "added": f"2024-05-06T07:08:09.{number % 1000:03}Z",
            "topics": [first, second][: number % 3],
            "marks": [number, -number],
            "days": ["1969-12-31", "2024-02-29"],
            "vec": [number % 7 / 8, number % 11 / 8, number % 13 / 16, number % 17 / 32],
        }
    if number % 50 == 1:
        data["scan"] = "base64:" + base64.b64encode(f"scan {number} ".encode() * 20).decode()
    return {"type": "Paper", "data": data}


def records() -> list[dict[str, object]]:
    papers = [paper(number) for number in range(PAPERS)]
    authors = [
        {"type": "Author", "data": {"id": f"a{n}", "full_name": f"Author {n}", "orcid": f"0000-{n}"}} for n in range(9)
    ]
    venues = [{"type": "Venue", "data": {"series": "SOSP", "edition": n}} for n in (28, 29)]
    drafts = [{"type": "Draft", "data": {"name": "unfinished"}}]
    wrote = [{"edge": "Wrote", "from": f"a{n % 9}", "to": f"10.{n}", "data": {"position": n % 3}} for n in range(60)]
    cites = [
        {"edge": "Cites", "from": f"10.{n}", "to": f"10.{n * 7 % PAPERS}", "data": {"context": f"see {n}"}}
        for n in range(1, 90)
    ]
    part = [{"edge": "PartOf", "from": "10.1", "to": '["29","SOSP"]', "data": {}}]
    return [*papers, *authors, *venues, *drafts, *wrote, *cites, *part]


def index_few_vectors(graph: Graph) -> None:
    """Let vector indexes be built for fewer vectors than a graph has that is worth one."""
    graph.pending_indexes()  # imports the module that decides it, wherever a release keeps it
    for module in list(sys.modules.values()):
        if module.__name__.startswith("omnigraph.") and hasattr(module, "VECTOR_INDEX_MIN_ROWS"):
            module.VECTOR_INDEX_MIN_ROWS = PAPERS // 2


def write_papers(root: Path) -> None:
    """A life of a graph, one kind of write after the other."""
    rows, more = root / "rows.jsonl", root / "more.jsonl"
    rows.write_text("\n".join(map(json.dumps, records())), encoding="utf-8")
    with Graph.init(root / "papers.omni", FIRST_SCHEMA, actor="act-first") as graph:
        graph.load(rows, mode="append", engine="local", actor="act-loader")
        index_few_vectors(graph)
        graph.ensure_indices()
        graph.mutate('query q() { update Paper set { title: "Renamed" } where doi = "10.7" }')
        graph.mutate('query q() { delete Paper where doi = "10.14" }', actor="act-editor")
        graph.create_branch("proposal")
        graph.mutate("query q() { update Paper set { year: 1999 } where year < 1910 }", branch="proposal")
        graph.mutate('query q() { insert Author { full_name: "Ada", orcid: "0000-ada" } }')
        graph.merge("proposal", actor="act-editor")
        graph.delete_branch("proposal")
        graph.apply_schema(SECOND_SCHEMA, backfill={"Paper.language": '"en"'}, engine="local")
        changed = {**paper(21)["data"], "downloads": 5, "language": "de", "stage": "retracted"}
        for gone in ("reads", "marks"):
            del changed[gone]
        topic = {"type": "Topic", "data": {"label": "graphs"}}
        about = {"edge": "About", "from": "10.21", "to": "graphs", "data": {}}
        lines = [{"type": "Paper", "data": changed}, topic, about]
        more.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        graph.load(more, mode="merge", engine="local")
        graph.optimize(engine="local")
        graph.create_branch("review")
        graph.mutate('query q() { update Paper set { language: "fr" } where doi = "10.2" }', branch="review")
        graph.mutate('query q() { delete Cites where from = "10.5" }', branch="review")
        graph.create_branch("review-of-review", "review")
        graph.mutate('query q() { insert Topic { label: "trees" } }', branch="review-of-review")
        graph.mutate('query q() { insert Topic { label: "rows" } }')
    rows.unlink()
    more.unlink()


def write_dying(root: Path) -> None:
    for name, place in DEATHS.items():
        with Graph.init(root / name, "node Person { name: String @key }") as graph:
            graph.mutate('query q() { insert Person { name: "Ada" } }')
        code = f"from omnigraph import Graph\nGraph.open({str(root / name)!r}).mutate({DYING!r})"
        environment = {**os.environ, "OMNIGRAPH_FAILPOINT": f"{place}=kill"}
        died = subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode
        if died >= 0:
            raise RuntimeError(f"the writer of {name} did not die at {place}")


def read(graph: Graph) -> dict[str, object]:
    """What the release reads in `papers.omni`."""
    log = graph.log()
    diff = graph.diff("main", "review", engine="local")
    return {
        "schema": graph.schema,
        "log": [{field: getattr(commit, field) for field in COMMIT_FIELDS} for commit in log],
        "exports": {branch: exported(graph, branch=branch) for branch in graph.branches()},
        "past": {
            commit.commit_id: digest(exported(graph, snapshot=commit.commit_id))
            for commit in log
            if commit.branch in graph.branches()
        },
        "reads": READS,
        "parameters": PARAMETERS,
        "rows": {
            name: list(graph.query(READS, PARAMETERS.get(name), name=name).json_rows())
            for name in re.findall(r"(?<=query )\w+", READS)
        },
        "blob": graph.read_blob("node:Paper", "10.1", "scan").decode(),
        "diff": sorted([str(change.op), change.type_name, change.id] for change in diff.changes),
        "cursor": graph.feed("main", start="now").cursor,
    }


def exported(graph: Graph, **target: str) -> list[str]:
    lines = io.StringIO()
    graph.export(lines, **target)
    return lines.getvalue().splitlines()


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_papers(root)
        write_dying(root)
        with Graph.open(root / "papers.omni", read_only=True) as graph:
            text = json.dumps(read(graph), indent=1, ensure_ascii=False)
        (root / "read.json").write_text(text, encoding="utf-8")
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(root.iterdir()):
                packed.add(path, path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
