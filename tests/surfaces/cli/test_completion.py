"""Completion in bash, zsh and fish: the scripts, and the words that they ask for."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cli.capabilities import RULES
from omnigraph.cli.main import _app_for
from omnigraph.graph.graph import Graph
from support.cli_graphs import Run

Asked = Callable[[str], list[str]]
QUERIES = "query older() { match { $i: Item } return { $i.k } } query newer() { match { $i: Item } return { $i.k } }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two graphs beside another folder; one graph has two branches."""
    for name in ("papers.omni", "people.omni"):
        with Graph.init(tmp_path / name, "node Item { k: String @key }") as graph:
            if name == "papers.omni":
                graph.create_branch("review")
    (tmp_path / "pages" / "inner.omni").mkdir(parents=True)
    (tmp_path / "queries.gq").write_text(QUERIES, encoding="utf-8")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(
        "servers: { lab: { url: 'http://127.0.0.1:1' } }\nprofiles: { mine: { store: ../papers.omni } }\n"
    )
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    """What bash is told about a command line that ends at the cursor."""
    from omnigraph.cli.commands.completion import answer

    def ask(line: str) -> list[str]:
        words = shlex.split(f"omnigraph {line}")
        monkeypatch.setenv("COMP_WORDS", f"omnigraph {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(words) if line[-1:] in ("", " ") else len(words) - 1))
        answer("bash_complete", _app_for)
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return ask


def plain(*words: str) -> list[str]:
    return [f"plain,{word}" for word in words]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sh", plain("shell", "show")),
        ("branch ", plain("create", "list", "delete", "merge")),
        ("branch d", plain("delete")),
        ("--json branch d", plain("delete")),
        ("--store papers.omni lo", plain("load", "log", "login", "logout")),
        ("query --form", plain("--format")),
        ("query --format j", plain("jsonl", "json")),
        ("query --format=j", plain("jsonl", "json")),
        ("completion ", plain("bash", "zsh", "fish")),
        ("query pe", plain("people.omni")),
        ("query --store pe", plain("people.omni")),
        ("--store pe", plain("people.omni")),
        ("query pa", ["dir,pa"]),
        ("query nowhere", []),
        ("query nowhere/", []),
        ("init ", []),
        ("query papers.omni --branch r", plain("review")),
        ("branch delete papers.omni ", plain("main", "review")),
        ("branch merge papers.omni review --into m", plain("main")),
        ("branch create papers.omni new --from ", plain("main", "review")),
        ("diff papers.omni main r", plain("review")),
        ("--store papers.omni diff main r", plain("review")),
        ("diff --store papers.omni r", plain("review")),
        ("diff --profile mine r", plain("review")),
        ("log papers.omni --branch=r", plain("review")),
        ("shell papers.omni --branch r", plain("review")),
        ("log nowhere.omni --branch ", []),
        ("log http://127.0.0.1:1/graphs/x --branch ", []),
        ("query --server l", plain("lab")),
        ("query --profile m", plain("mine")),
        ("query papers.omni --query queries.gq n", plain("newer")),
        ("query papers.omni --query nowhere.gq n", []),
        ("query papers.omni --query q", ["file,q"]),
    ],
)
def test_what_may_stand_at_the_cursor(asked: Asked, line: str, words: list[str]) -> None:
    assert asked(line) == words


def test_every_command_is_offered(asked: Asked) -> None:
    offered = {line.removeprefix("plain,") for line in asked("")}
    assert offered == {name.partition(" ")[0] for name in RULES} - {"ingest"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_the_executable(og: Run, shell: str) -> None:
    found = og("completion", shell)
    assert (found.code, found.err) == (0, "")
    assert f"_OMNIGRAPH_COMPLETE={shell}_complete" in found.out


def test_another_shell_is_refused(og: Run) -> None:
    assert og("completion", "tcsh").code == 2


@pytest.mark.parametrize("instruction", ["bash", "tcsh_complete", "bash_source", ""])
def test_a_call_that_no_script_makes_fails(instruction: str) -> None:
    from omnigraph.cli.commands.completion import answer

    assert answer(instruction, _app_for) == 1


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(folder: Path) -> None:
    """The script in the shell that it is for."""
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "omnigraph"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m omnigraph "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = """
    eval "$(omnigraph completion bash)"
    COMP_WORDS=(omnigraph branch delete papers.omni r) COMP_CWORD=4
    _omnigraph_completion omnigraph
    echo "${COMPREPLY[@]}"
    complete -p omnigraph
    """
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["review", "complete -o nosort -F _omnigraph_completion omnigraph"]
    assert run.stderr == ""
