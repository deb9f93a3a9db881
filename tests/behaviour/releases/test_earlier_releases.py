"""Graphs that earlier releases wrote: this one reads in them what they read, and they go on as graphs of its own.

`tools/release_graph.py` writes an archive with the code of a release; one stays for every release with users.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph

RELEASES = sorted((Path(__file__).parents[2] / "fixtures" / "releases").glob("*.tar.xz"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name.partition(".")[0])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The graphs of one release, at another place than the one where they were written."""
    with tarfile.open(request.param) as packed:
        # Early releases of Python 3.11 know no filters.
        packed.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return tmp_path


@pytest.fixture
def read(root: Path) -> dict[str, Any]:
    """What the release read in its graph."""
    return json.loads((root / "read.json").read_text(encoding="utf-8"))


def exported(graph: Graph, **target: str) -> list[str]:
    lines = io.StringIO()
    graph.export(lines, **target)
    return lines.getvalue().splitlines()


def assert_past(graph: Graph, read: dict[str, Any]) -> None:
    """Every commit of every branch that still is there exports as it did under the release."""
    for commit in read["log"]:
        if commit["branch"] in graph.branches():
            lines = exported(graph, snapshot=commit["commit_id"])
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
            assert digest == read["past"][commit["commit_id"]], commit


def rows(graph: Graph, read: dict[str, Any], name: str) -> list[dict[str, object]]:
    return list(graph.query(read["reads"], read["parameters"].get(name), name=name).json_rows())


def entities(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The exported entities without their nulls, in an order that no change of a schema moves."""
    found = [json.loads(line) for line in lines]
    for entity in found:
        entity["data"] = {name: value for name, value in entity["data"].items() if value is not None}
    return sorted(found, key=lambda entity: json.dumps(entity, sort_keys=True))


def gone_on(read: dict[str, Any]) -> list[dict[str, Any]]:
    """What `test_the_graph_goes_on` makes of the exports that the release wrote."""
    merged = {*read["exports"]["review-of-review"]}
    merged |= {line for line in read["exports"]["main"] if '"Topic"' in line}
    merged.add('{"type": "Topic", "data": {"id": "loaded", "label": "loaded"}}')
    kept = []
    for entity in entities(merged):
        data = entity["data"]
        if "10.4" in (data["id"], entity.get("from"), entity.get("to")):
            continue
        if data["id"] == "10.1":
            data["title"] = "New"
        if "downloads" in data:
            data["loads"] = data.pop("downloads")
        kept.append(entity)
    return sorted(kept, key=lambda entity: json.dumps(entity, sort_keys=True))


def test_everything_is_read_as_the_release_read_it(root: Path, read: dict[str, Any]) -> None:
    with Graph.open(root / "papers.omni", read_only=True) as graph:
        assert graph.schema == read["schema"]
        log = [{field: getattr(commit, field) for field in read["log"][0]} for commit in graph.log()]
        assert log == read["log"]
        assert {branch: exported(graph, branch=branch) for branch in graph.branches()} == read["exports"]
        assert_past(graph, read)
        for name, expected in read["rows"].items():
            assert rows(graph, read, name) == expected, name
        assert graph.read_blob("node:Paper", "10.1", "scan").decode() == read["blob"]
        with graph.diff("main", "review", engine="local") as diff:
            assert sorted([str(each.op), each.type_name, each.id] for each in diff) == read["diff"]
        assert Graph.examine(root / "papers.omni").is_healthy


def test_the_graph_goes_on(root: Path, read: dict[str, Any], tmp_path: Path) -> None:
    """Write, merge, evolve, compact, clean up; the rows that nothing touched stay, the past stays readable."""
    lines = tmp_path / "more.jsonl"
    lines.write_text('{"type": "Topic", "data": {"label": "loaded"}}', encoding="utf-8")
    with Graph.open(root / "papers.omni") as graph:
        changed = graph.mutate('query q() { update Paper set { title: "New" } where doi = "10.1" }')
        graph.mutate('query q() { delete Paper where doi = "10.4" }', branch="review")
        loaded = graph.load(lines, mode="append", engine="local")
        graph.merge("review-of-review", into="review")
        merged = graph.merge("review")
        for branch in ("review-of-review", "review"):
            graph.delete_branch(branch)

        page = graph.feed("main", cursor=read["cursor"])
        assert [block.cause.graph_commit_id for block in page.blocks] == [
            written.commit.commit_id for written in (changed, loaded, merged)
        ]

        renamed = graph.schema.replace('downloads: I64? @rename_from("reads")', 'loads: I64? @rename_from("downloads")')
        graph.apply_schema(renamed.replace("series: String", "series: String  city: String?"), engine="local")
        graph.ensure_indices()
        graph.optimize(engine="local")

        now = exported(graph)
        assert entities(now) == gone_on(read)
        assert_past(graph, read)
        assert rows(graph, read, "hops") == read["rows"]["hops"]
        assert rows(graph, read, "text") == [r for r in read["rows"]["text"] if r["doi"] != "10.4"]

        assert graph.verify(record=True).is_sound
        graph.cleanup(keep=1, commits=True, confirm=True)
        assert exported(graph) == now
        assert graph.doctor(deep=True).is_healthy
    with Graph.open(root / "papers.omni", read_only=True) as again:
        assert exported(again) == now


@pytest.mark.parametrize(("name", "people"), [("early", ["Ada"]), ("late", ["Ada", "Ben"])])
def test_a_write_that_died_under_the_release_is_settled(root: Path, name: str, people: list[str]) -> None:
    everyone = "query q() { match { $p: Person } return { $p.name as name } order { $p.name } }"
    with Graph.open(root / f"{name}.omni") as graph:
        assert graph.pending_recoveries() == []
        assert [row["name"] for row in graph.query(everyone).json_rows()] == people
        graph.mutate('query q() { insert Person { name: "Cleo" } }')
        assert graph.verify().is_sound
