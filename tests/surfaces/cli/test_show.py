"""`omnigraph show`: a graph at a glance, and pictures in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.main import main

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
ROWS = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'


def test_a_graph_at_a_glance_and_as_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.mutate(ROWS)

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["show", uri, *words])
        seen = capsys.readouterr()
        return int(ended.value.code or 0), seen.out + seen.err

    code, text = run()
    assert code == 0
    assert "2 nodes, 1 edge, 1 branch" in text
    for words, shown in (
        ((), "graph: 2 nodes and 1 edges"),
        (("-e", "match { $a: Person { name: $n } } return { $a }", "--param", "n=ada"), "query: 1 nodes and 0 edges"),
        (("--node", "Person:ada"), "neighbours: 2 nodes and 1 edges"),
        (("--schema",), "schema: 1 node types and 1 edge types"),
    ):
        for ending in ("html", "svg"):
            out = tmp_path / f"picture.{ending}"
            code, text = run(*words, "--out", str(out))
            assert (code, text) == (0, f"{shown}; written to {out}\n")
            assert out.stat().st_size > 1000
    assert run("--schema")[0] == 2
    code, text = run("ada")
    assert (code, "give its file with --query" in text) == (2, True)
    assert run("--node", "ada", "--out", "x.svg")[0] == 2
    assert run("--schema", "--node", "Person:ada", "--out", "x.svg")[0] == 2
    code, text = run("--out", str(tmp_path / "picture.png"))
    assert (code, "give a path that ends in .html or .svg" in text) == (1, True)
