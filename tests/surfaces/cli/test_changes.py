"""`omnigraph commit changes` and `omnigraph changes`: what happened, told once or followed over time."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.cli_graphs import History, Outcome, Run

SCHEMA = """
node Person { name: String @key  age: I32?  note: String? }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "people.omni", SCHEMA)


def change(graph: Graph, text: str, branch: str = "main", actor: str | None = None) -> str:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch, actor=actor).commit
    assert commit is not None
    return commit.commit_id


def people(graph: Graph, *names: str) -> str:
    return change(graph, " ".join(f'insert Person {{ name: "{name}" }}' for name in names))


def lines(outcome: Outcome) -> list[str]:
    """What was printed, without generated ids of edges and without times."""
    assert outcome.code == 0, outcome.err
    text = re.sub(r"'[0-9A-Z]{26}'", "'…'", outcome.out)
    return re.sub(r"  \S+ \S+Z  ", "  ", text).splitlines()


# ---- the changes of a commit


def test_every_change_is_a_line_with_what_it_did(og: Run, graph: Graph) -> None:
    first = change(
        graph,
        'insert Person { name: "Alice", age: 30 } insert Person { name: "Bob" } '
        'insert Knows { from: "Alice", to: "Bob", since: 2001 }',
    )
    second = change(graph, 'update Person set { age: 31, note: "older" } where name = "Alice"')
    third = change(graph, 'delete Person where name = "Bob"')
    assert lines(og("commit", "changes", first, "--uri", graph.uri)) == [
        """+ node Person 'Alice'  name: "Alice", age: 30""",
        """+ node Person 'Bob'  name: "Bob\"""",
        "+ edge Knows '…' (Alice → Bob)  since: 2001",
    ]
    assert lines(og("commit", "changes", second, "--uri", graph.uri)) == [
        """~ node Person 'Alice'  age: 30 → 31, note: null → "older\""""
    ]
    assert lines(og("commit", "changes", third, "--uri", graph.uri)) == [
        """- node Person 'Bob'  name: "Bob\"""",
        "- edge Knows '…' (Alice → Bob)  since: 2001",
    ]


def test_long_texts_are_shown_where_they_differ(og: Run, graph: Graph) -> None:
    change(graph, f'insert Person {{ name: "a", note: "{"same " * 20}old" }}')
    commit = change(graph, f'update Person set {{ note: "{"same " * 20}new" }} where name = "a"')
    [line] = lines(og("commit", "changes", commit, "--uri", graph.uri))
    assert re.fullmatch(r"""~ node Person 'a'  note: …[same ]+old" → …[same ]+new\"""", line)


def test_changes_as_json_are_one_document(og: Run, graph: Graph) -> None:
    first = people(graph, "a")
    commit = change(graph, 'update Person set { age: 1 } where name = "a"', actor="ann")
    body = og("commit", "changes", commit, "--store", graph.uri, "--json").json()
    assert set(body) == {"cause", "changes"}
    cause = body["cause"]
    assert (cause["graph_commit_id"], cause["parent_commit_id"]) == (commit, first)
    assert (cause["authored_branch"], cause["actor_id"]) == ("main", "ann")
    [found] = body["changes"]
    assert (found["kind"], found["type"]["name"], found["id"]) == ("node", "Person", "a")
    assert found["op"] == "update"
    assert found["before"]["properties"]["age"] is None
    assert found["after"]["properties"]["age"] == 1


def test_pages_are_followed_unless_a_page_token_asks_for_one(og: Run, graph: Graph) -> None:
    commit = people(graph, *"abcde")
    every = ("commit", "changes", commit, "--store", graph.uri, "--limit", "2")
    body = og(*every, "--json").json()
    assert [item["id"] for item in body["changes"]] == list("abcde")
    assert "next_page_token" not in body
    assert len(lines(og(*every))) == 5
    call = (*every, "--page-token")
    first = og(*call, "", "--json").json()
    assert [item["id"] for item in first["changes"]] == ["a", "b"]
    second = og(*call, first["next_page_token"], "--json").json()
    assert [item["id"] for item in second["changes"]] == ["c", "d"]
    third = og(*call, second["next_page_token"], "--json").json()
    assert [item["id"] for item in third["changes"]] == ["e"]
    assert "next_page_token" not in third
    assert lines(og(*call, ""))[-1] == f"next page: {first['next_page_token']}"
    assert not lines(og(*call, second["next_page_token"]))[-1].startswith("next page")


def test_filters_choose_the_changes(og: Run, graph: Graph) -> None:
    commit = change(
        graph, 'insert Person { name: "a" } insert Person { name: "b" } insert Knows { from: "a", to: "b" }'
    )
    call = ("commit", "changes", commit, "--store", graph.uri)
    assert len(lines(og(*call, "--kind", "edge"))) == 1
    assert len(lines(og(*call, "--type", "Person", "--op", "insert"))) == 2
    assert lines(og(*call, "--op", "delete")) == ["no changes"]


def test_the_first_commit_has_no_changes_to_tell(og: Run, graph: Graph) -> None:
    genesis = graph.snapshot().commit_id
    outcome = og("commit", "changes", genesis, "--store", graph.uri, "--json")
    assert outcome.code == 1
    assert outcome.json()["change_diff_refusal"]["reason"] == "parentless_commit"


# ---- polling


def poll(og: Run, graph: Graph, *words: str) -> Outcome:
    return og("changes", "poll", "--uri", graph.uri, *words)


def test_a_poll_prints_commits_their_changes_and_the_cursor_last(og: Run, graph: Graph) -> None:
    first = people(graph, "a")
    second = change(graph, 'update Person set { age: 1 } where name = "a"', actor="ann")
    *blocks, cursor = lines(poll(og, graph, "--start", "beginning"))
    assert blocks == [
        f"commit {first}  main",
        """  + node Person 'a'  name: "a\"""",
        f"commit {second}  main by ann",
        "  ~ node Person 'a'  age: null → 1",
    ]
    assert cursor.startswith("cursor: ")


def test_a_poll_goes_on_from_its_cursor_or_from_a_commit(og: Run, graph: Graph) -> None:
    people(graph, "a")
    [line] = lines(poll(og, graph))
    cursor = line.removeprefix("cursor: ")
    first, commit = graph.snapshot().commit_id, people(graph, "b")
    printed = lines(poll(og, graph, "--start", f"after:{first}"))
    assert [line for line in printed if line.startswith("commit")] == [f"commit {commit}  main"]
    body = poll(og, graph, "--cursor", cursor, "--json").json()
    assert [block["cause"]["graph_commit_id"] for block in body["blocks"]] == [commit]
    assert poll(og, graph, "--cursor", body["cursor"], "--json").json()["blocks"] == []


def test_the_pages_of_a_poll_are_one_document_with_one_block_and_one_header_per_commit(og: Run, graph: Graph) -> None:
    people(graph, *"abc")
    people(graph, *"de")
    body = poll(og, graph, "--start", "beginning", "--limit", "2", "--json").json()
    assert set(body) == {"blocks", "cursor", "caught_up"}
    assert [[item["id"] for item in block["changes"]] for block in body["blocks"]] == [["a", "b", "c"], ["d", "e"]]
    assert body["caught_up"] is True
    printed = lines(poll(og, graph, "--start", "beginning", "--limit", "2"))
    assert [line[:6] for line in printed] == ["commit", *["  + no"] * 3, "commit", *["  + no"] * 2, "cursor"]


def test_a_merge_is_one_block_that_names_where_it_came_from(og: Run, graph: Graph) -> None:
    people(graph, "a")
    graph.create_branch("review")
    theirs = change(graph, 'insert Person { name: "b" }', "review")
    graph.merge("review")
    printed = lines(poll(og, graph, "--start", "beginning"))
    assert printed[2].endswith(f"main, merged {theirs}")
    assert printed[3] == """  + node Person 'b'  name: "b\""""


def test_a_poll_with_filters_is_of_the_branch_that_was_asked_for(og: Run, graph: Graph) -> None:
    graph.create_branch("review")
    change(graph, 'insert Person { name: "b" }', "review")
    people(graph, "a")
    words = ("--start", "beginning", "--branch", "review", "--json")
    found = poll(og, graph, *words, "--kind", "node", "--type", "Person", "--op", "insert").json()
    assert [[item["id"] for item in block["changes"]] for block in found["blocks"]] == [["b"]]
    hidden = poll(og, graph, *words, "--op", "delete").json()
    assert [block["changes"] for block in hidden["blocks"]] == [[]]


def test_more_commits_than_one_poll_tells_are_announced(og: Run, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    people(graph, "a")
    people(graph, "b")
    feed = Graph.feed
    monkeypatch.setattr(Graph, "feed", lambda *args, **kw: feed(*args, **kw, max_commits=1))
    outcome = poll(og, graph, "--start", "beginning")
    assert outcome.err == "there are more commits: poll again with this cursor\n"
    cursor = outcome.out.splitlines()[-1].removeprefix("cursor: ")
    rest = poll(og, graph, "--cursor", cursor)
    assert rest.err == ""
    assert "'b'" in rest.out


def test_a_failure_on_the_way_prints_no_cursor(og: Run, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.errors import ChangeFeedGapError

    people(graph, *"abc")
    feed = Graph.feed

    def failing(*args: object, **options: object) -> object:
        if options["page_token"] is not None:
            raise ChangeFeedGapError("01ARZ3NDEKTSV4RRFFQ69G5FAV", None)
        return feed(*args, **options)  # type: ignore[arg-type]  # as the command gave them

    monkeypatch.setattr(Graph, "feed", failing)
    plain = poll(og, graph, "--start", "beginning", "--limit", "2")
    assert plain.code == 1
    assert "cursor: " not in plain.out
    as_json = poll(og, graph, "--start", "beginning", "--limit", "2", "--json")
    assert as_json.json()["kind"] == "change_feed_gap"


def test_a_cursor_of_another_filter_is_rejected(og: Run, graph: Graph) -> None:
    cursor = poll(og, graph, "--op", "insert", "--json").json()["cursor"]
    outcome = poll(og, graph, "--cursor", cursor)
    assert outcome.code == 1
    assert "change cursor rejected: it was made with another filter" in outcome.err


# ---- baselines


def test_a_baseline_and_the_polls_behind_it_tell_everything(og: Run, graph: Graph, tmp_path: Path) -> None:
    head = people(graph, *"ab")
    said = og("changes", "baseline", "--uri", graph.uri, "--out", str(tmp_path / "said.jsonl")).out.splitlines()
    assert said[0] == f"2 entities of commit {head} in {tmp_path / 'said.jsonl'}"
    assert said[1].startswith("cursor: ")
    target = tmp_path / "baseline.jsonl"
    body = og("changes", "baseline", "--uri", graph.uri, "--out", str(target), "--json").json()
    assert body["snapshot_commit_id"] == head
    assert body["entities"] == 2
    assert [json.loads(line)["data"]["id"] for line in target.read_text().splitlines()] == ["a", "b"]
    people(graph, "c")
    polled = poll(og, graph, "--cursor", body["resume_cursor"], "--json").json()
    assert [[item["id"] for item in block["changes"]] for block in polled["blocks"]] == [["c"]]


def test_a_baseline_holds_what_its_filter_selects(og: Run, graph: Graph, tmp_path: Path) -> None:
    change(graph, 'insert Person { name: "a" } insert Knows { from: "a", to: "a" }')
    target = tmp_path / "edges.jsonl"
    words = ("--kind", "edge", "--op", "delete", "--out", str(target), "--json")
    body = og("changes", "baseline", "--uri", graph.uri, *words).json()
    assert body["entities"] == 1
    assert '"edge":"Knows"' in target.read_text()
    text = ("--kind", "edge", "--out", str(tmp_path / "one.jsonl"))
    assert og("changes", "baseline", "--uri", graph.uri, *text).out.startswith("1 entity of commit ")
    again = poll(og, graph, "--cursor", body["resume_cursor"], "--kind", "edge", "--op", "delete")
    assert again.code == 0


def test_a_baseline_replaces_nothing(og: Run, graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "there.jsonl"
    target.write_text("mine")
    outcome = og("changes", "baseline", "--uri", graph.uri, "--out", str(target), "--json")
    assert outcome.code == 1
    assert outcome.json()["kind"] == "bad_request"
    assert target.read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ("log",),
        ("log", "--graph"),
        ("commit", "list"),
        ("commit", "list", "--all-branches"),
        ("diff", "FIRST", "main"),
        ("commit", "changes", "LOAD"),
    ],
)
def test_histories_longer_than_the_screen_go_to_the_pager(
    words: tuple[str, ...], screen: Callable[..., str], past: History, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    pager = shlex.join([sys.executable, "-c", f"import sys; open({str(kept)!r}, 'w').write(sys.stdin.read())"])
    named = {"FIRST": past.commits[2], "LOAD": past.commits[3]}
    command = [*(named.get(word, word) for word in words), "--store", past.uri, *(["--quiet"] * (words[0] == "diff"))]
    whole = screen(*command, PAGER=pager)
    assert not kept.exists()
    assert screen(*command, lines=1, PAGER=pager) == ""
    assert kept.read_text(encoding="utf-8") == whole
    assert screen(*command, "--no-pager", lines=1, PAGER=pager) == whole
    assert screen(*command, lines=1, PAGER="no-such-pager") == whole


def test_a_pager_that_is_left_early_ends_nothing_else(screen: Callable[..., str], past: History) -> None:
    assert screen("log", past.uri, lines=2, PAGER=shlex.join([sys.executable, "-c", "pass"])) == ""
