"""Ctrl-C anywhere is one sentence that says what is left, and exit code 130."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.core import failpoints
from omnigraph.graph.graph import Graph
from support.cli_graphs import Run

WRITE = 'insert Item { k: "a" }'
READ = "match { $i: Item } return { $i.k }"
NOTHING = "cancelled, nothing was written"


@pytest.fixture
def store(tmp_path: Path) -> str:
    with Graph.init(tmp_path / "g.omni", "node Item { k: String @key }") as graph:
        return graph.uri


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "place", "sentence"),
    [
        (("query", "-e", READ), "omnigraph.graph.reads.execute", NOTHING),
        (("mutate", "-e", WRITE), "omnigraph.graph.graph.Graph.open", NOTHING),
        (("mutate", "-e", WRITE), "omnigraph.graph.mutations.prepare_mutation", NOTHING),
        (("mutate", "-e", WRITE), "omnigraph.cli.commands.query.print_result", "`omnigraph log` shows whether"),
        (("cleanup", "--keep", "1", "--confirm"), "omnigraph.graph.graph.Graph.cleanup", "until then stays"),
        (("branch", "create", "x"), "omnigraph.graph.branches.branch_at", "`omnigraph log` shows whether"),
    ],
)
def test_an_interrupt_is_a_sentence_about_what_is_left(
    og: Run, store: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: str, sentence: str
) -> None:
    monkeypatch.setattr(place, interrupt)
    plain = og(*words, "--store", store, "--quiet")
    assert (plain.code, plain.out, len(plain.err.splitlines())) == (130, "", 1)
    assert plain.err.startswith("cancelled, ")
    assert sentence in plain.err
    if words[0] != "cleanup":
        document = og(*words, "--store", store, "--quiet", "--json")
        assert (document.code, document.json()["code"]) == (130, "cancelled")


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("before_sidecar", NOTHING), ("after_publish", "cancelled, while its commit was under way: `omnigraph log`")],
)
def test_a_mutation_claims_nothing_that_it_does_not_know(og: Run, store: str, place: str, sentence: str) -> None:
    def at(reached: str) -> None:
        if reached == place:
            raise KeyboardInterrupt

    with failpoints.watched(at):
        stopped = og("mutate", store, "-e", WRITE)
    assert (stopped.code, stopped.err.startswith(sentence)) == (130, True)
    assert og("query", store, "-e", READ, "--format", "csv").out == ("i.k\n" if sentence == NOTHING else "i.k\na\n")
