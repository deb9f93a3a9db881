"""A graph full of texts that a terminal would obey: no command lets one through."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.console import PrintableStream, print_lines, terminal_progress
from omnigraph.cli.main import main
from omnigraph.errors.text import one_line, printable
from support.cli_graphs import Terminal

#: Sets a title, clears the screen, answers into the input, reverses the text, overwrites the line.
HOSTILE = "\x1b]0;own\x07\x1b[2J\x9b5n\x90q\x9c\u202elive\u2066\u200f\r\x08\x7f\u2028\x00x"
NAME = HOSTILE.replace("\x00", "")  # what a path and a word of a command line can hold
ESCAPED = "\\x1b[2J"
SCHEMA = f"""
/// {NAME.replace(chr(13), "")}
node Note {{ key: String @key  text: String?  other: String? }}
edge Links: Note -> Note {{ why: String? }}
"""
READ = "query q() { match { $n: Note } return { $n.key as key, $n.text as text } order { $n.key } }"
WRITE = "query w($k: String, $t: String) { insert Note { key: $k, text: $t } }"
CHANGE = 'query u($t: String) { update Note set { other: $t } where key = "plain" }'


def controls(text: str) -> set[str]:
    """What a terminal would obey, beside ends of lines and tabs, and the styles of our tables."""
    unstyled = re.sub(r"\x1b\[[012]m", "", text)
    return {sign for sign in unstyled if one_line(sign) != sign and sign not in "\n\t"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a graph whose actors, ids, cells and comments are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        patch.setenv("OMNIGRAPH_HOME", str(folder / "home"))
        (folder / "home").mkdir()
        (folder / "home" / "config.yaml").write_text(
            json.dumps(
                {
                    "profiles": {"p": {"store": HOSTILE, "default_graph": HOSTILE}},
                    "servers": {"s": {"url": "http://127.0.0.1:9"}},
                    "unknown" + HOSTILE: 1,
                }
            ),
            encoding="utf-8",
        )
        root = folder / "notes.omni"
        with Graph.init(root, SCHEMA) as graph:
            for key in ("plain", "a" + HOSTILE, "=1+1", "-2"):
                graph.mutate(WRITE, {"k": key, "t": HOSTILE}, actor=f"act{HOSTILE}")
            graph.create_branch("draft", actor=HOSTILE)
            graph.mutate(CHANGE, {"t": "ours" + HOSTILE}, actor=HOSTILE)
            graph.mutate(CHANGE, {"t": "theirs" + HOSTILE}, branch="draft", actor=HOSTILE)
        (folder / "bad.jsonl").write_text(
            json.dumps({"type": f"No{HOSTILE}", "data": {"key": 1}}) + f"\n{{{HOSTILE}\n", encoding="utf-8"
        )
        (folder / "other.pg").write_text(f"node Note {{ key: {NAME} }}", encoding="utf-8")
        yield folder


COMMANDS: dict[str, list[str]] = {
    "query": ["query", "-e", READ],
    "query kv": ["query", "-e", READ, "--format", "kv"],
    "query csv": ["query", "-e", READ, "--format", "csv"],
    "query jsonl": ["query", "-e", READ, "--format", "jsonl"],
    "query json": ["query", "-e", READ, "--json"],
    "query of an unknown name": ["query", "-e", READ, HOSTILE.replace("\x00", "")],
    "query of an unknown type": ["query", "-e", f"query q() {{ match {{ $n: {NAME} }} return {{ $n }} }}"],
    "query of an unknown branch": ["query", "-e", READ, "--branch", NAME],
    "explain": ["explain", "-e", READ],
    "export": ["export"],
    "log": ["log"],
    "log as a drawing": ["log", "--graph"],
    "commit list": ["commit", "list"],
    "commit list as JSON": ["commit", "list", "--json"],
    "diff": ["diff", "main", "draft"],
    "changes": ["changes", "poll", "--start", "beginning"],
    "branch list": ["branch", "list"],
    "branch merge": ["branch", "merge", "draft"],
    "branch merge as JSON": ["branch", "merge", "draft", "--json"],
    "branch create": ["branch", "create", NAME],
    "snapshot": ["snapshot"],
    "schema show": ["schema", "show"],
    "schema plan": ["schema", "plan", "--schema", "{folder}/other.pg"],
    "load": ["load", "--data", "{folder}/bad.jsonl", "--mode", "append", "--engine", "local"],
    "load of no file": ["load", "--data", NAME, "--mode", "append", "--engine", "local"],
    "mutate": ["mutate", "-e", WRITE, "--params", json.dumps({"k": "plain", "t": HOSTILE}), "--as", NAME],
    "mutate wrongly": ["mutate", "-e", WRITE, "--params", json.dumps({HOSTILE: 1})],
    "doctor": ["doctor"],
    "optimize": ["optimize", "--as", NAME],
    "cleanup": ["cleanup", "--keep", "1"],
    "recovery list": ["recovery", "list"],
    "lint": ["lint", "-e", f"query q() {{ {NAME} }}"],
    "profile list": ["profile", "list"],
    "profile show": ["profile", "show", "p"],
    "profile show of an unknown one": ["profile", "show", NAME],
    "alias": ["alias", NAME],
    "login": ["login", NAME],
    "an unknown command": [NAME],
    "an unknown flag": ["query", f"--{NAME}"],
    "an unknown flag as JSON": ["query", f"--{NAME}", "--json"],
    "a graph that is not there": ["snapshot", "--store", NAME],
    "policy": ["policy", "validate", NAME],
    "blob": ["blob", "stat", "node", "Note", NAME, "text"],
}
#: They take no graph, or name it themselves.
_WITHOUT_GRAPH = ("lint", "profile", "alias", "login", "policy", NAME)
_DATA = ("query csv", "query jsonl", "export")


def run(folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> str:
    """Run a command; gives what it wrote to stderr."""
    store = folder / "notes.omni"
    words = [word.replace("{folder}", str(folder)) for word in words]
    if words[0] not in _WITHOUT_GRAPH and "--store" not in words:
        words += ["--store", str(store)]
    err = io.StringIO()
    with monkeypatch.context() as patch:
        # A hostile name is a pattern, too: it is looked for below the folder in which the command runs.
        patch.chdir(folder)
        patch.setenv("OMNIGRAPH_HOME", str(folder / "home"))
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "stdin", io.StringIO("no\n"))
        with pytest.raises(SystemExit):
            main(words)
    return err.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_a_terminal_obeys_is_printed(hostile, name, monkeypatch):
    for out in (Terminal(), io.StringIO()):
        err = run(hostile, COMMANDS[name], monkeypatch, out)
        assert out.getvalue() + err, "it says something"
        assert "internal error" not in err
        assert controls(err) == set()
        if out.isatty() or name not in _DATA:
            assert controls(out.getvalue()) == set()


def test_what_is_escaped_is_shown(hostile, monkeypatch):
    out = io.StringIO()
    run(hostile, COMMANDS["query"], monkeypatch, out)
    assert ESCAPED in out.getvalue()


# ---- data for programs


def test_csv_and_json_for_programs_are_exact(hostile, monkeypatch):
    printed = {}
    for name in ("query csv", "query jsonl", "query json", "export"):
        printed[name] = io.StringIO()
        run(hostile, COMMANDS[name], monkeypatch, printed[name])
    rows = list(csv.reader(io.StringIO(printed["query csv"].getvalue(), newline="")))
    assert [text for _, text in rows[1:]] == [HOSTILE] * 4
    lines = printed["query jsonl"].getvalue().split("\n")
    assert json.loads(lines[-2])["text"] == HOSTILE
    assert json.loads(printed["query json"].getvalue())["rows"][0]["text"] == HOSTILE
    records = [json.loads(line) for line in printed["export"].getvalue().split("\n") if line]
    assert HOSTILE in [record["data"].get("text") for record in records]


def test_csv_for_spreadsheets_holds_no_formula(hostile, monkeypatch):
    out = io.StringIO()
    run(hostile, ["query", "-e", READ, "--format", "csv", "--csv-safe"], monkeypatch, out)
    keys = [row[0] for row in csv.reader(io.StringIO(out.getvalue(), newline=""))][1:]
    assert "'=1+1" in keys
    assert "-2" in keys, "a number stays one"
    refused = run(hostile, ["query", "-e", READ, "--csv-safe"], monkeypatch, io.StringIO())
    assert "--format csv" in refused


# ---- the border


def test_a_guarded_stream_takes_no_bytes():
    guarded = PrintableStream(Terminal())
    assert not hasattr(guarded, "buffer")
    assert guarded.isatty()
    guarded.writelines(["a\x1b", "b\n"])
    assert guarded.unguarded.getvalue() == "a\\x1bb\n"


def test_a_name_of_a_stage_has_no_power_over_the_terminal(monkeypatch):
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    with terminal_progress().stage(f"write {HOSTILE} [red]", 1) as stage:
        stage.update(1, 1)
    assert "\x1b]0" not in err.getvalue()
    assert "\x9b" not in err.getvalue()


@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\x7f", "\x9b", "\u202e", "\u2069", "\ud800"])
def test_every_kind_of_sign_is_escaped(sign, capsys):
    assert printable(f"a{sign}b") == one_line(f"a{sign}b") != f"a{sign}b"
    print_lines([f"a{sign}b"])
    assert controls(capsys.readouterr().out) == set()


def test_ordinary_text_stays_as_it_is():
    text = "tab\tline\nümläut 漢字 العربية עברית 👩‍👧 e\u0301"
    assert printable(text) == text
