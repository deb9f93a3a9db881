"""`omnigraph queries`: the stored queries of a server, listed and checked before it starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from omnigraph.graph.graph import Graph
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.settings import ServerSettings
from support.servers import listening

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.cli_graphs import Outcome

    Run = Callable[..., Outcome]

SCHEMA = "node Paper { doi: String @key  year: I32? }"
GOOD = """
query by_year($y: I32?, $tags: [String]) @description("Papers of one year.") @instruction("Four digits.")
{ match { $p: Paper { year: $y } } return { $p.doi } }
query add($doi: String) { insert Paper { doi: $doi } }
"""
BAD = "query titles() { match { $p: Paper } return { $p.title } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "papers.gq").write_text(GOOD)
    (tmp_path / "schema.pg").write_text(SCHEMA)
    Graph.init(tmp_path / "papers.omni", SCHEMA).close()
    (tmp_path / "serve.yaml").write_text(
        "graphs: {papers: {store: papers.omni, queries: queries}, other: {store: other.omni}}"
    )
    return tmp_path


def test_a_list_says_what_a_caller_needs_to_know(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--config", str(folder / "serve.yaml"), "--graph", "papers")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "mutation add(doi: string)",
        "         tool: add",
        "read     by_year(y: int?, tags: list of string)",
        "         Papers of one year.",
        "         instruction: Four digits.",
        "         tool: by_year",
    ]


def test_a_list_as_json_is_the_catalog(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--queries", str(folder / "queries"), "--json")
    entries = json.loads(done.out)["queries"]
    assert [(entry["name"], entry["mutation"]) for entry in entries] == [
        ("add", True),
        ("by_year", False),
    ]


def test_a_graph_without_stored_queries_has_an_empty_list(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--config", str(folder / "serve.yaml"), "--graph", "other")
    assert (done.code, done.out) == (0, "no stored queries\n")


def test_queries_that_fit_are_validated_against_the_graph_of_the_configuration(
    og: Run, folder: Path
) -> None:
    done = og("queries", "validate", "--config", str(folder / "serve.yaml"), "--graph", "papers")
    assert (done.code, done.out) == (0, "2 queries, 0 breakages, 0 warnings\n")


@pytest.mark.parametrize("against", [("--store", "papers.omni"), ("--schema", "schema.pg")])
def test_a_query_that_does_not_fit_fails_with_its_place(
    og: Run, folder: Path, against: tuple[str, str]
) -> None:
    bad = folder / "queries" / "bad.gq"
    bad.write_text(BAD)
    flag, name = against
    done = og("queries", "validate", "--queries", str(folder / "queries"), flag, str(folder / name))
    assert done.code == 1
    assert f"{bad}:1:47: error T6" in done.out
    assert done.out.endswith("3 queries, 1 breakage, 0 warnings\n")


def test_a_validation_as_json_is_a_report_even_when_a_file_does_not_parse(
    og: Run, folder: Path
) -> None:
    (folder / "queries" / "bad.gq").write_text("query (")
    done = og(
        *("queries", "validate", "--queries", str(folder / "queries")),
        *("--schema", str(folder / "schema.pg"), "--json"),
    )
    report = json.loads(done.out)
    assert done.code == 1
    assert (report["ok"], len(report["breakages"]), report["warnings"]) == (False, 1, [])
    assert report["breakages"][0]["code"] == "Q000"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], "no server is addressed"),
        (["list", "--server", "http://127.0.0.1:1", "--queries", "b"], "give one of --server"),
        (["list", "--store", "papers.omni"], "does not take --store"),
        (["validate"], "exactly one of --config FILE and --queries PATH"),
        (["list", "--config", "a", "--queries", "b"], "exactly one of --config"),
        (["list", "--queries", "queries", "--graph", "g"], "--graph chooses among"),
        (["validate", "--queries", "queries"], "nothing to check against"),
        (["validate", "--queries", "queries", "--store", "a", "--schema", "b"], "give one of"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    og: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    done = og("queries", *words)
    assert done.code == 2
    assert message in done.err


def test_a_configuration_with_several_graphs_asks_for_one(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--config", str(folder / "serve.yaml"))
    assert done.code == 1
    assert "there are 2 graphs, name one: other, papers" in done.err


def test_the_list_of_a_server_is_that_of_its_configuration(og: Run, folder: Path) -> None:
    config = single_graph(folder / "papers.omni", queries=folder / "queries")
    service = open_service(config, ServerSettings(), unauthenticated=True, environment={})
    files = og("queries", "list", "--queries", str(folder / "queries"))
    with capture_logs(), listening(service) as url:
        served = og("queries", "list", "--server", url, "--graph", "default")
    assert (served.code, served.err) == (0, "")
    assert served.out == files.out
