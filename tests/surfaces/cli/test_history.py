"""`omnigraph log`, `commit show` and `diff`: what a graph was, and what differs between its states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from omnigraph.graph.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.cli_graphs import Outcome

    Run = Callable[..., Outcome]

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """A graph with a merged branch that was deleted, another one of the same name, and one that is ahead of main."""

    uri: str
    #: Newest first: `ahead`, then main's merge, main's own change, the deleted branch's change, and two old ones.
    ahead: str
    merge: str
    ours: str
    theirs: str
    filled: str
    genesis: str


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """Tests only read it."""
    with Graph.init(tmp_path_factory.mktemp("merged") / "people.omni", SCHEMA) as graph:

        def change(text: str, branch: str = "main", actor: str | None = None) -> str:
            commit = graph.mutate(f"query q() {{ {text} }}", branch=branch, actor=actor).commit
            assert commit is not None
            return commit.commit_id

        genesis = graph.snapshot().commit_id
        filled = change(
            'insert Person { name: "Alice", age: 30 } insert Person { name: "Bob" } '
            'insert Knows { from: "Alice", to: "Bob" }'
        )
        graph.create_branch("review")
        theirs = change('insert Person { name: "Carol" }', "review", "ann")
        ours = change('update Person set { age: 31 } where name = "Alice"', actor="bob")
        merge = graph.merge("review", delete_branch=True, actor="ann").commit
        assert merge is not None
        graph.create_branch("review")
        graph.create_branch("next")
        ahead = change('delete Person where name = "Bob"', "next", "dan")
        return Merged(graph.uri, ahead, merge.commit_id, ours, theirs, filled, genesis)


def ids(outcome: Outcome) -> list[str]:
    return [commit["graph_commit_id"] for commit in outcome.json()["commits"]]


# ---- log


def test_a_log_is_the_list_of_commits_of_main(og: Run, merged: Merged) -> None:
    outcome = og("log", merged.uri)
    assert outcome.code == 0
    assert outcome.out == og("commit", "list", merged.uri).out
    listed = ids(og("log", "--store", merged.uri, "--json"))
    assert listed == [merged.merge, merged.ours, merged.filled, merged.genesis]


def test_a_log_is_of_the_branch_that_was_asked_for(og: Run, merged: Merged) -> None:
    listed = ids(og("log", merged.uri, "--branch", "next", "--json"))
    assert listed[:2] == [merged.ahead, merged.merge]


def test_the_graph_of_all_branches_is_drawn_with_its_heads(og: Run, merged: Merged) -> None:
    outcome = og("log", merged.uri, "--graph")
    shown = re.sub(r"  \S+ \S+Z  ", "  ", outcome.out)
    assert outcome.code == 0
    assert shown.splitlines() == [
        f"● {merged.ahead}  next             mutation       dan (next)",
        f"● {merged.merge}  main             branch_merge   ann (main, review)",
        "├─╮",
        f"● │ {merged.ours}  main             mutation       bob",
        f"│ ● {merged.theirs}  review (deleted) mutation       ann",
        "├─╯",
        f"● {merged.filled}  main             mutation       -",
        f"● {merged.genesis}  main             init           -",
    ]


def test_the_graph_of_one_branch_holds_what_was_merged_into_it(og: Run, merged: Merged) -> None:
    drawn = og("log", merged.uri, "--graph", "--branch", "main").out
    assert merged.ahead not in drawn
    assert merged.theirs in drawn
    assert "(main, review)" in drawn


def test_the_graph_as_json_has_heads_and_marks_deleted_branches(og: Run, merged: Merged) -> None:
    outcome = og("log", merged.uri, "--graph", "--json")
    body = outcome.json()
    assert ids(outcome)[0] == merged.ahead
    assert body["heads"] == {"main": merged.merge, "next": merged.ahead, "review": merged.merge}
    gone = [c["graph_commit_id"] for c in body["commits"] if c["branch_deleted"]]
    assert gone == [merged.theirs]


def test_a_branch_without_commits_of_its_own_is_a_label(og: Run, merged: Merged) -> None:
    listed = ids(og("log", merged.uri, "--branch", "review", "--json"))
    assert listed == ids(og("log", merged.uri, "--json"))


@pytest.mark.parametrize("words", [[], ["--graph"]], ids=["list", "graph"])
def test_the_log_of_an_unknown_branch_is_an_error(
    og: Run, merged: Merged, words: list[str]
) -> None:
    plain = og("log", merged.uri, "--branch", "nope", *words)
    as_json = og("log", merged.uri, "--branch", "nope", *words, "--json")
    assert (plain.code, plain.out) == (1, "")
    assert "there is no branch `nope`" in plain.err
    assert (as_json.code, as_json.json()["kind"]) == (1, "branch_not_found")


# ---- commit show


def test_a_merge_commit_shows_both_parents(og: Run, merged: Merged) -> None:
    shown = og("commit", "show", merged.merge, "--store", merged.uri)
    body = og("commit", "show", merged.merge, "--store", merged.uri, "--json").json()
    assert f"parent         {merged.ours}" in shown.out
    assert f"merged parent  {merged.theirs}" in shown.out
    assert "strategy" not in shown.out
    assert (body["parent_commit_id"], body["merged_parent_commit_id"]) == (
        merged.ours,
        merged.theirs,
    )


def test_a_commit_of_a_deleted_branch_is_not_readable(og: Run, merged: Merged) -> None:
    outcome = og("commit", "show", merged.theirs, "--store", merged.uri)
    assert outcome.code == 1
    assert "branch review, which was deleted" in outcome.err


# ---- diff


def diff(og: Run, merged: Merged, *words: str) -> Outcome:
    return og("diff", *words, "--uri", merged.uri)


def without_edge_id(line: str) -> str:
    return re.sub(r"'[0-9A-Z]{26}'", "'…'", line)


def test_a_diff_is_a_line_per_entity_and_a_summary(og: Run, merged: Merged) -> None:
    outcome = diff(og, merged, merged.filled, "next")
    assert (outcome.code, outcome.err) == (0, "")
    assert [without_edge_id(line) for line in outcome.out.splitlines()] == [
        "- edge Knows '…' (Alice → Bob)",
        "~ node Person 'Alice'",
        "- node Person 'Bob'",
        "+ node Person 'Carol'",
        f"1 inserted, 1 updated, 2 deleted in 2 types from {merged.filled} to next",
    ]


def test_a_diff_as_json_names_both_states(og: Run, merged: Merged) -> None:
    body = diff(og, merged, merged.filled, "main", "--json").json()
    assert body["from_graph_commit_id"] == merged.filled
    assert body["to_graph_commit_id"] == merged.merge
    assert body["from_graph_manifest_version"] < body["to_graph_manifest_version"]
    assert body["graph_branch"] == "main"
    assert [(c["kind"], c["type_name"], c["id"], c["op"]) for c in body["changes"]] == [
        ("node", "Person", "Alice", "update"),
        ("node", "Person", "Carol", "insert"),
    ]
    assert body["stats"] == {
        "inserts": 1,
        "updates": 1,
        "deletes": 0,
        "types_affected": ["node:Person"],
    }


def test_states_without_a_difference_say_so(og: Run, merged: Merged) -> None:
    assert diff(og, merged, "main", "review").out == "no differences from main to review\n"


@pytest.mark.parametrize(
    ("words", "marks"),
    [
        (["--kind", "edge"], "-"),
        (["--kind", "node"], "~-+"),
        (["--type", "Knows"], "-"),
        (["--op", "insert", "--op", "update"], "~+"),
        (["--kind", "node", "--op", "delete"], "-"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_filters_hide_changes(og: Run, merged: Merged, words: list[str], marks: str) -> None:
    lines = diff(og, merged, merged.filled, "next", *words).out.splitlines()
    assert "".join(line[0] for line in lines[:-1]) == marks


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["main", "nope"], "branch_not_found", "there is no branch `nope`"),
        (["01ARZ3NDEKTSV4RRFFQ69G5FAV", "main"], "not_found", "there is no commit"),
        (["main", "next", "--type", "Animal"], "bad_request", "there is no type 'Animal'"),
    ],
)
def test_a_diff_of_something_unknown_is_an_error(
    og: Run, merged: Merged, words: list[str], kind: str, message: str
) -> None:
    plain, as_json = diff(og, merged, *words), diff(og, merged, *words, "--json")
    assert (plain.code, plain.out, as_json.code) == (1, "", 1)
    assert message in plain.err
    assert as_json.json()["kind"] == kind


@pytest.mark.parametrize(
    "words",
    [
        ["main"],
        ["main", "next", "extra"],
        ["main", "next", "--kind", "thing"],
        ["main", "next", "--op", "upsert"],
        ["main", "next", "--engine", "cloud"],
    ],
    ids=" ".join,
)
def test_wrong_command_lines_are_usage_errors(og: Run, merged: Merged, words: list[str]) -> None:
    outcome = diff(og, merged, *words)
    assert (outcome.code, outcome.out) == (2, "")
