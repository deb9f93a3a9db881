"""`omnigraph cleanup`: previews, consent, output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.commands.maintenance import cleanup_lines
from omnigraph.cli.main import main
from omnigraph.errors.text import size_text
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import CleanupReport, DatasetCleanup
from support.subtests import each_case


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    with Graph.init(tmp_path / "g.omni", "node Paper { doi: String @key }") as graph:
        for number in range(5):
            graph.mutate(f'query q() {{ insert Paper {{ doi: "{number}" }} }}')
    return str(tmp_path / "g.omni")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["cleanup", *words])
    return int(caught.value.code or 0)


def test_a_preview_exits_with_zero_and_names_the_next_step(root: str, capsys):
    assert run(root, "--keep", "3") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].endswith("would go with --confirm")
    assert err == f"cleanup (preview) of {root} (direct, local)\n"
    with Graph.open(root) as graph:
        assert graph.cleanup(keep=3).old_versions_removed == 3


def test_json_tells_every_dataset_and_the_totals(root: str, capsys):
    assert run(root, "--keep", "3", "--older-than", "0s", "--confirm", "--commits", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["confirmed"] is True
    assert document["commits_forgotten"] == 2
    (paper,) = document["datasets"]
    assert paper["type_key"] == "node:Paper"
    assert paper["old_versions_removed"] == 3
    assert paper["bytes_removed"] < document["total_bytes_removed"]


@pytest.mark.parametrize(
    "words", [(), ("--keep", "0"), ("--older-than", "soon")], ids=["none", "zero", "soon"]
)
def test_a_policy_that_makes_no_sense_is_a_failure(root: str, capsys, words: tuple[str, ...]):
    assert run(root, *words, "--confirm", "--quiet") == 1
    assert capsys.readouterr().err.strip()


def test_a_remote_graph_needs_a_word_before_anything_is_touched(capsys):
    assert run("s3://nowhere/g.omni", "--keep", "3", "--confirm", "--json") == 2
    assert "--yes" in capsys.readouterr().out


def test_a_dataset_with_a_problem_is_told():
    item = DatasetCleanup(type_key="node:Paper", location="nodes/1", error="HEAD is elsewhere")
    report = CleanupReport(
        confirmed=True, keep=3, older_than_s=None, datasets=(item,), commits_kept=1
    )
    assert "node:Paper: not cleaned up, HEAD is elsewhere" in list(cleanup_lines(report))


@each_case(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (5 << 20, "5 MiB"),
        (1 << 60, "1048576 TiB"),
    ],
)
def test_sizes_have_the_unit_that_fits(size: int, text: str):
    assert size_text(size) == text
