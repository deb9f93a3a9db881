"""Ctrl-C and SIGTERM, again and again: one trace of them is raised, the others are sentences."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.output import Interrupts


def test_only_the_first_interrupt_is_raised(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts(2, None)
    assert capfd.readouterr().err == ""
    interrupts(2, None)
    assert capfd.readouterr().err.startswith("already stopping")
    assert codes == []
    interrupts(2, None)
    assert "omnigraph cleanup" in capfd.readouterr().err
    assert codes == [130]


def test_an_interrupt_while_spark_ends_raises_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the command is printed: there is nothing to stop, and a trace would look like a failure."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    interrupts.end_command()
    interrupts(2, None)
    assert capfd.readouterr().err.startswith("the command is done")
    assert codes == []
    interrupts(2, None)
    assert codes == [130]


def test_a_terminated_command_is_stopped_like_an_interrupted_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts(signal.SIGTERM, None)
    assert (interrupts.exit_code, interrupts.sentence) == (143, "ended by SIGTERM")
    for _ in range(2):
        interrupts(signal.SIGTERM, None)
    assert capfd.readouterr().err.startswith("already stopping")
    assert codes == [143]


_TERMINATED = """
import os, signal
from omnigraph.core import failpoints
from omnigraph.cli.main import main

def end(place):
    if place == "load_fragments_written":
        os.kill(os.getpid(), signal.SIGTERM)

with failpoints.watched(end):
    main()
"""


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_terminated_load_ends_with_143_and_leaves_nothing(tmp_path: Path, as_json: bool) -> None:
    root, lines = tmp_path / "g.omni", tmp_path / "notes.jsonl"
    Graph.init(root, "node Note { key: String @key }").close()
    lines.write_text('{"type": "Note", "data": {"key": "a"}}', encoding="utf-8")
    before = files(root)
    command = ["load", str(root), "--data", str(lines), "--mode", "append", "--engine", "local"]
    done = subprocess.run(
        [sys.executable, "-c", _TERMINATED, *command, *(["--json"] if as_json else [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 143, done.stderr
    sentence = "ended by SIGTERM; nothing was written"
    if as_json:
        assert json.loads(done.stdout) == {
            "error": sentence,
            "kind": "interrupted",
            "code": "cancelled",
        }
    else:
        assert sentence in done.stderr.splitlines()
    assert files(root) == before


def files(root: Path) -> set[str]:
    """Everything in the graph but its locks."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }
