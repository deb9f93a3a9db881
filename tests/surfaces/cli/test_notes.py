"""`--message` and `--metadata`: on every command that commits, and where the history shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.cli_graphs import Run

ADD = 'insert Paper { doi: "10.1" }'


@pytest.fixture
def store(tmp_path: Path) -> str:
    with Graph.init(tmp_path / "papers.omni", "node Paper { doi: String @key }") as graph:
        return graph.uri


def newest(store: str) -> tuple[str | None, object]:
    with Graph.open(store, read_only=True) as graph:
        commit = graph.commits()[0]
        return commit.message, commit.metadata


def test_every_writing_command_takes_them(og: Run, store: str, tmp_path: Path) -> None:
    note = ("-m", "so", "--metadata", "ticket=17")
    kept = ("so", {"ticket": "17"})
    og("mutate", store, "-e", ADD, *note)
    assert newest(store) == kept
    lines = tmp_path / "papers.jsonl"
    lines.write_text('{"type": "Paper", "data": {"doi": "10.2"}}')
    og("load", store, "--data", str(lines), "--mode", "append", "--message", "loaded", "--metadata", "ticket=17")
    assert newest(store) == ("loaded", {"ticket": "17"})
    og("branch", "create", store, "draft")
    og("mutate", store, "-e", 'insert Paper { doi: "10.3" }', "--branch", "draft")
    og("branch", "merge", store, "draft", "--delete-branch", *note)
    assert newest(store) == kept
    wanted = tmp_path / "wanted.pg"
    wanted.write_text("node Paper { doi: String @key  title: String? }")
    og("schema", "apply", store, "--schema", str(wanted), "-m", "titles")
    assert newest(store) == ("titles", None)


def test_values_of_a_json_object_keep_their_types_beside_texts(og: Run, store: str) -> None:
    given = ('{"n": 1, "done": true, "by": null}', "path=a=b")
    og("mutate", store, "-e", ADD, *(word for text in given for word in ("--metadata", text)))
    assert newest(store) == (None, {"n": 1, "done": True, "by": None, "path": "a=b"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metadata", "ticket"], "give --metadata NAME=TEXT or one JSON object, not 'ticket'"),
        (["--metadata", "=17"], "give --metadata NAME=TEXT"),
        (["--metadata", '{"a": '], "begins with a brace and is not a JSON object"),
        (["--metadata", "a=1", "--metadata", '{"a": 2}'], "--metadata gives 'a' twice"),
        (["--metadata", '{"a": [1]}'], "`a` in the metadata of the commit is a list"),
        (["--message", " "], "the message of the commit is blank"),
    ],
)
def test_what_is_not_a_note_is_refused(og: Run, store: str, words: list[str], said: str) -> None:
    refused = og("mutate", store, "-e", ADD, *words)
    assert refused.code != 0
    assert said in refused.err
    assert newest(store) == (None, None)


def test_the_history_shows_why(og: Run, store: str) -> None:
    og("mutate", store, "-e", ADD, "-m", "first line\nsecond line", "--metadata", '{"n": 1}')
    for command in (("log",), ("log", "--graph"), ("commit", "list")):
        assert "-  first line …" in og(*command, store).out.splitlines()[0]
    with Graph.open(store) as graph:
        commit_id = graph.commits()[0].commit_id
    shown = og("commit", "show", store, commit_id).out
    assert "message        first line\n               second line\n" in shown
    assert 'metadata       {"n": 1}' in shown
    body = og("commit", "show", store, commit_id, "--json").json()
    assert (body["message"], body["metadata"]) == ("first line\nsecond line", {"n": 1})
    feed = og("changes", "poll", store, "--start", "beginning").out
    assert "main  first line …" in feed


def test_a_message_cannot_disturb_the_terminal(og: Run, store: str) -> None:
    og("mutate", store, "-e", ADD, "-m", "red \x1b[31m")
    for command in (("log",), ("commit", "list")):
        assert "\x1b" not in og(*command, store).out
        assert "red \\u001b[31m" in og(*command, store).out or "red \\x1b[31m" in og(*command, store).out


def test_a_run_over_files_takes_no_note(og: Run, tmp_path: Path) -> None:
    refused = og("embed", "--input", str(tmp_path / "a"), "-m", "so")
    assert "--message does not go with files" in refused.err
