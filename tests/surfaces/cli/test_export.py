"""`omnigraph export`: lines on stdout without a JVM, files on request, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.graph.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cli_graphs import History, Outcome

    Run = Callable[..., Outcome]


def ids(text: str) -> list[str]:
    return [json.loads(line)["data"]["id"] for line in text.splitlines()]


@pytest.fixture
def local_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks for Spark; what Spark does is tested elsewhere."""
    export = Graph.export

    def locally(self: Graph, target: Any, **options: Any) -> Any:
        return export(self, target, **options, engine="local")

    monkeypatch.setattr(Graph, "export", locally)


def test_lines_go_to_stdout(og: Run, past: History) -> None:
    outcome = og("export", past.uri)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == '{"type":"Item","data":{"id":"b","k":"b"}}\n'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--branch", "side"], ["a", "b", "c"]),
        (["--type", "Item", "--type", "node:Item"], ["b"]),
    ],
)
def test_flags_choose_the_rows(og: Run, past: History, words: list[str], expected: Any) -> None:
    assert ids(og("export", "--store", past.uri, *words).out) == expected


def test_a_commit_is_exported_as_it_was(og: Run, past: History) -> None:
    assert ids(og("export", past.uri, "--snapshot", past.commits[3]).out) == ["a", "b"]
    assert ids(og("export", past.uri, "--graph-version", "3").out) == ["a", "b"]


def test_the_old_flag_is_accepted_with_a_warning(og: Run, past: History) -> None:
    outcome = og("export", past.uri, "--jsonl")
    assert ids(outcome.out) == ["b"]
    assert "deprecated" in outcome.err
    assert "--jsonl" not in og("export", "--help").out


def test_every_value_of_the_world_is_json(og: Run, things: str) -> None:
    assert ids(og("export", things).out) == ["empty", "full", "nulls"]


@pytest.mark.usefixtures("local_engine")
def test_a_file_is_written_and_counted(og: Run, past: History, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    outcome = og("export", past.uri, "--branch", "side", "--out", str(target))
    assert outcome.code == 0
    assert ids(target.read_text()) == ["a", "b", "c"]
    assert "node:Item: 3" in outcome.out
    assert f"to {target} (1 file)" in outcome.out
    again = og("export", past.uri, "--out", str(target))
    assert again.code == 1
    assert "an export replaces nothing" in again.err


@pytest.mark.usefixtures("local_engine")
def test_json_tells_what_was_written(og: Run, past: History, tmp_path: Path) -> None:
    target = tmp_path / "out"
    found = og("export", past.uri, "--out", str(target), "--format", "parquet", "--json").json()
    assert found["format"] == "parquet"
    assert found["nodes"] == {"Item": 1}
    assert found["graph_commit_id"] == past.commits[6]
    assert sorted(Path(file).name for file in found["files"]) == [
        "mapping.yaml",
        "part-00000.parquet",
    ]
    parts = og("export", past.uri, "--out", str(tmp_path / "parts"), "--parts", "--json").json()
    assert [Path(file).name for file in parts["files"]] == ["node-Item-00000.jsonl"]


@pytest.mark.parametrize(
    "words",
    [
        ["--json"],
        ["--parts"],
        ["--format", "parquet"],
        ["--format", "csv", "--out", "x"],
        ["--format", "parquet", "--parts", "--out", "x"],
        ["--branch", "main", "--snapshot", "c"],
    ],
    ids=" ".join,
)
def test_wrong_command_lines_are_usage_errors(og: Run, past: History, words: list[str]) -> None:
    outcome = og("export", past.uri, *words)
    assert outcome.code == 2
    assert outcome.out == "" or outcome.json()["kind"] == "usage"


def test_an_unknown_type_fails_and_prints_no_line(og: Run, past: History) -> None:
    outcome = og("export", past.uri, "--type", "Nope")
    assert (outcome.code, outcome.out) == (1, "")
    assert "node:Item" in outcome.err


def test_a_reader_that_has_seen_enough_is_no_error_message(past: History) -> None:
    """As `omnigraph export … | head -0`: the pipe is closed before the first line."""
    command = [sys.executable, "-m", "omnigraph", "export", past.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
