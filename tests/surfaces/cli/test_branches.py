"""`omnigraph branch`: create, list, delete and merge as a person or a script uses them."""

from __future__ import annotations

import io
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest

from omnigraph.cli.capabilities import RULES
from omnigraph.cli.rendering import MAX_SHOWN, VALUE_WIDTH, compared, conflict_lines
from omnigraph.cli.scope import Address, ScopeFlags
from omnigraph.errors import ConflictKind, MergeConflict
from omnigraph.graph.graph import Graph
from support.cli_graphs import Outcome, Run

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  email: String? @unique }
edge Knows: Person -> Person { since: I32?  @unique(src, dst) }
"""
BASE = """
query base() {
  insert Person { name: "Alice", age: 30 }
  insert Person { name: "Bob", age: 25, city: "Bern" }
  insert Knows { from: "Alice", to: "Bob" }
}
"""
OLDER = 'query q($age: I32) { update Person set { age: $age } where name = "Alice" }'
EVE = 'query q($age: I32) { insert Person { name: "Eve", age: $age } }'


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two people on main, and the branch `review` at the same commit."""
    with Graph.init(tmp_path / "people.omni", SCHEMA) as graph:
        graph.mutate(BASE)
        graph.create_branch("review")
        return graph.uri


def change(store: str, branch: str, text: str, **params: object) -> str:
    with Graph.open(store) as graph:
        commit = graph.mutate(text, params, branch=branch).commit
    assert commit is not None
    return commit.commit_id


def disagree(store: str) -> None:
    """Both sides give Alice another age."""
    change(store, "review", OLDER, age=31)
    change(store, "main", OLDER, age=32)


def merge(og: Run, store: str, *words: str) -> Outcome:
    return og("branch", "merge", "review", "--store", store, *words)


# ---- create, list, delete


def test_a_branch_is_created_and_deleted_and_the_target_is_echoed(og: Run, store: str) -> None:
    made = og("branch", "create", "fix/one", "--uri", store)
    assert (made.code, made.out) == (0, "created branch fix/one from main\n")
    assert made.err == f"branch create in {store} (direct, local)\n"
    assert og("branch", "list", "--store", store).out == "fix/one\nmain\nreview\n"
    gone = og("branch", "delete", "review", "--store", store)
    assert (gone.code, gone.out) == (0, "deleted branch review\n")
    assert gone.err == f"branch delete in {store} (direct, local)\n"
    early = og("--quiet", "--yes", "--store", store, "branch", "delete", "fix/one")
    assert (early.code, early.err) == (0, ""), "global flags may stand before the command"
    assert og("branch", "list", "--store", store).out == "main\n"


def test_the_receipts_of_create_and_delete_as_json(og: Run, store: str) -> None:
    common = ("--store", store, "--as", "ann", "--quiet", "--json")
    made = og("branch", "create", "b", "--from", "review", *common)
    gone = og("branch", "delete", "b", *common)
    assert made.json() == {"uri": store, "name": "b", "from": "review", "actor_id": "ann"}
    assert gone.json() == {"uri": store, "name": "b", "actor_id": "ann"}
    assert (made.err, gone.err) == ("", "")
    assert og("branch", "list", "--store", store, "--json").json() == {"branches": ["main", "review"]}


def test_a_branch_may_begin_at_a_commit(og: Run, store: str) -> None:
    commit = og("commit", "list", store, "--json").json()["commits"][0]["graph_commit_id"]
    change(store, "main", EVE, age=1)
    assert og("branch", "create", "then", "--from", commit, "--store", store).code == 0
    found = og("snapshot", store, "--branch", "then", "--json").json()
    assert found["graph_commit_id"] == commit


def test_a_branch_that_others_began_at_is_kept(og: Run, store: str) -> None:
    og("branch", "create", "child", "--from", "review", "--store", store)
    outcome = og("branch", "delete", "review", "--store", store)
    assert outcome.code == 1
    assert "child" in outcome.err


def test_a_terminal_shows_the_end_of_a_commit_id_which_every_command_takes(
    og: Run, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = change(store, "review", EVE, age=1)
    assert og("log", store, "--branch", "review").out.startswith(f"{commit}  ")
    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.cli.rendering.is_shown_on_a_terminal", lambda: True)
        shown = og("log", store, "--branch", "review").out.partition(" ")[0]
        assert shown == commit[-8:]
    for words in (("commit", "show", shown), ("commit", "changes", shown), ("diff", shown, "main")):
        assert og(*words, "--store", store).code == 0
    assert og("commit", "show", shown, "--store", store, "--json").json()["graph_commit_id"] == commit


# ---- consent


class _Typing(io.StringIO):
    def isatty(self) -> bool:
        return True


def _address(store: str) -> Address:
    return Address(ScopeFlags(store=store), RULES["branch delete"])


@pytest.mark.parametrize(("answer", "is_consent"), [("yes", True), (" Y ", True), ("no", False)])
def test_a_person_at_a_terminal_is_asked_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, is_consent: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", _Typing(f"{answer}\n"))
    expected = nullcontext() if is_consent else pytest.raises(click.exceptions.Exit)
    with expected:
        _address("s3://bucket/graph").require_consent("deletes branch a of", yes=False, json=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "this deletes branch a of s3://bucket/graph. Go on?" in printed.err


@pytest.mark.parametrize("address", ["graph.omni", "file:///graph.omni"])
def test_a_local_graph_needs_no_consent(address: str) -> None:
    _address(address).require_consent("deletes branch a of", yes=False, json=True)


# ---- merge


def test_a_merge_names_its_outcome_its_commit_and_the_rows_of_every_type_and_tells_its_stages(
    og: Run, store: str
) -> None:
    change(store, "review", EVE, age=3)
    change(store, "review", OLDER, age=31)
    change(store, "review", 'query q() { delete Knows where from = "Alice" }')
    outcome = merge(og, store, "--as", "ann")
    head, *types = outcome.out.splitlines()
    assert outcome.code == 0
    assert re.fullmatch(r"merged review into main: fast_forward, commit [0-9A-Z]{26}", head)
    assert types == ["  edge:Knows   +0 ~0 -1", "  node:Person  +1 ~1 -0"]
    told = outcome.err.splitlines()
    stages = [line.partition(":")[0] for line in told[1:]]
    assert told[0] == f"branch merge in {store} (direct, local)"
    assert (stages[0], stages[-2:]) == ("compare branches", ["check the result", "commit"])


def test_the_receipt_of_a_merge_as_json(og: Run, store: str) -> None:
    change(store, "review", EVE, age=3)
    change(store, "main", OLDER, age=31)
    outcome = merge(og, store, "--as", "ann", "--delete-branch", "--json", "--quiet")
    body = outcome.json()
    assert (outcome.code, outcome.err) == (0, "")
    assert (body["source"], body["target"]) == ("review", "main")
    assert (body["outcome"], body["actor_id"]) == ("merged", "ann")
    assert body["branch_deleted"] is True
    assert body["changes"] == [
        {"entity_kind": "node", "type_name": "Person", "inserted": 1, "updated": 0, "deleted": 0}
    ]
    shown = og("commit", "show", body["commit"]["graph_commit_id"], "--store", store, "--json")
    assert shown.json() == body["commit"]
    assert body["commit"]["merged_parent_commit_id"] is not None


def test_nothing_to_merge_is_no_failure(og: Run, store: str) -> None:
    outcome = merge(og, store, "--quiet")
    body = merge(og, store, "--quiet", "--json").json()
    assert outcome.code == 0
    assert outcome.out == "nothing to merge from review into main: already_up_to_date\n"
    assert (body["outcome"], body["commit"]) == ("already_up_to_date", None)


def test_a_merge_may_go_into_another_branch(og: Run, store: str) -> None:
    commit = change(store, "main", EVE, age=3)
    outcome = og("branch", "merge", "main", "--into", "review", "--store", store)
    assert "merged main into review: fast_forward" in outcome.out
    newest = og("commit", "list", store, "--branch", "review", "--json").json()["commits"][0]
    assert newest["merged_parent_commit_id"] == commit


def test_the_source_is_deleted_on_request(og: Run, store: str) -> None:
    change(store, "review", EVE, age=3)
    outcome = merge(og, store, "--delete-branch")
    assert outcome.out.splitlines()[-1] == "deleted branch review"
    assert og("branch", "list", "--store", store).out == "main\n"


def test_a_source_that_cannot_be_deleted_is_a_warning(og: Run, store: str) -> None:
    og("branch", "create", "child", "--from", "review", "--store", store)
    change(store, "review", EVE, age=3)
    outcome = merge(og, store, "--delete-branch", "--quiet")
    assert outcome.code == 0
    assert outcome.out.startswith("merged review into main")
    assert "deleted" not in outcome.out
    assert outcome.err.startswith("branch review was not deleted: ")
    assert "child" in outcome.err
    change(store, "review", EVE, age=4)
    as_json = merge(og, store, "--delete-branch", "--quiet", "--json")
    assert (as_json.code, as_json.json()["branch_deleted"]) == (0, False)
    assert "child" in as_json.json()["branch_delete_error"]


def test_a_dry_run_writes_nothing(og: Run, store: str) -> None:
    change(store, "review", EVE, age=3)
    before = og("snapshot", store, "--json").json()
    outcome = merge(og, store, "--dry-run", "--delete-branch")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "review would be merged into main: fast_forward; nothing was written",
        "  node:Person  +1 ~0 -0",
    ]
    assert og("snapshot", store, "--json").json() == before
    assert "review" in og("branch", "list", "--store", store).out


# ---- conflicts


TABLE = """\
review cannot be merged into main, nothing was changed: 1 conflict
kind              type         id     property  base  ours (main)  theirs (review)
----------------  -----------  -----  --------  ----  -----------  ---------------
divergent_update  node:Person  Alice  age       30    32           31
change one of the branches, or decide all of them with --strategy ours or theirs
"""


def test_conflicts_are_a_table_on_stderr_or_in_json_and_exit_with_1(og: Run, store: str) -> None:
    disagree(store)
    before = og("snapshot", store, "--json").json()
    outcome = merge(og, store)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith(TABLE)
    as_json = merge(og, store, "--json", "--quiet")
    body = as_json.json()
    assert (as_json.code, as_json.err) == (1, "")
    assert (body["kind"], body["code"], body["merge_conflict_total"]) == ("merge_conflicts", "conflict", 1)
    [conflict] = body["merge_conflicts"]
    assert (conflict["kind"], conflict["entity_id"]) == ("divergent_update", "Alice")
    assert (conflict["ours"]["properties"]["age"], conflict["theirs"]["properties"]["age"]) == (32, 31)
    assert og("snapshot", store, "--json").json() == before


def test_conflicts_of_a_dry_run_are_a_table_on_stdout_or_in_the_receipt_and_exit_with_1(og: Run, store: str) -> None:
    disagree(store)
    outcome = merge(og, store, "--dry-run", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (1, TABLE, "")
    as_json = merge(og, store, "--dry-run", "--json", "--quiet")
    body = as_json.json()
    assert (as_json.code, body["outcome"], body["commit"]) == (1, "conflicts", None)
    assert [conflict["kind"] for conflict in body["merge_conflicts"]] == ["divergent_update"]


@pytest.mark.parametrize(("strategy", "age"), [("ours", 32), ("theirs", 31)])
def test_a_strategy_decides_and_is_recorded(og: Run, store: str, strategy: str, age: int) -> None:
    disagree(store)
    outcome = merge(og, store, "--strategy", strategy)
    assert outcome.code == 0
    found = re.match(rf"merged review into main: merged with strategy {strategy}, commit (\S+)", outcome.out)
    assert found is not None
    with Graph.open(store, read_only=True) as graph:
        alice = graph.entity_at("node:Person", "Alice")
    assert alice is not None
    assert alice["properties"]["age"] == age  # type: ignore[index]  # an image holds properties
    shown = og("commit", "show", found[1], "--store", store)
    assert re.search(rf"^merge strategy +{strategy}$", shown.out, re.MULTILINE)
    as_json = og("commit", "show", found[1], "--store", store, "--json").json()
    assert as_json["merge_strategy"] == strategy


def test_every_kind_of_row_conflict_shows_what_differs(og: Run, store: str) -> None:
    change(store, "review", 'query q() { delete Person where name = "Bob" }')
    moved = 'query q($city: String?) { update Person set { city: $city } where name = "Bob" }'
    change(store, "main", moved, city=None)
    change(store, "review", EVE, age=3)
    change(store, "main", EVE, age=4)
    rows = [re.split(r"  +", line) for line in merge(og, store, "--dry-run").out.splitlines()[3:-1]]
    assert rows == [
        ["delete_vs_update", "node:Person", "Bob", "city", '"Bern"', "null", "(deleted)"],
        ["divergent_insert", "node:Person", "Eve", "age", "(none)", "4", "3"],
    ]


def test_a_conflict_about_an_edge_shows_its_ends(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node N { k: String @key }\nedge E: N -> N") as graph:
        graph.mutate('query q() { insert N { k: "a" } insert N { k: "b" } }')
        graph.create_branch("review")
        for branch, end in (("main", "a"), ("review", "b")):
            data = tmp_path / f"{branch}.jsonl"
            data.write_text(f'{{"edge": "E", "from": "a", "to": "{end}", "data": {{"id": "e"}}}}')
            graph.load(data, mode="append", branch=branch, engine="local")
        uri = graph.uri
    lines = merge(og, uri, "--dry-run").out.splitlines()
    assert re.split(r"  +", lines[3]) == ["divergent_insert", "edge:E", "e", "to", "(none)", '"a"', '"b"']


def test_a_violated_rule_is_shown_with_its_message_and_without_a_strategy(og: Run, store: str) -> None:
    text = 'query q($name: String) { insert Person { name: $name, email: "one@x" } }'
    change(store, "review", text, name="Eve")
    change(store, "main", text, name="Dan")
    outcome = merge(og, store, "--strategy", "theirs")
    assert outcome.code == 1
    assert "unique_violation  node:Person" in outcome.err
    assert "--strategy" not in outcome.err
    assert outcome.err.endswith("change one of the branches and merge again\n")


def test_a_violation_that_only_one_strategy_leads_to_names_it() -> None:
    kind, key = ConflictKind.ORPHAN_EDGE, "edge:Cites"
    row = conflicts(1, base="a", ours="b", theirs="c")
    orphan = MergeConflict(kind=kind, type_key=key, entity_id="c1", message="no end", with_strategy="theirs")
    *_, head, _, line, advice = conflict_lines("s", "main", [*row, orphan], 2)
    assert re.split(r"  +", head) == ["kind", "type", "id", "message", "arises with"]
    assert re.split(r"  +", line) == ["orphan_edge", key, "c1", "no end", "--strategy theirs"]
    assert advice == "change one of the branches, or decide all of them with --strategy ours"
    either = replace(orphan, entity_id="c2", with_strategy=None)
    *_, line, advice = conflict_lines("s", "main", [*row, orphan, either], 3)
    assert line.endswith("any decision")
    assert advice == "change one of the branches and merge again"


def conflicts(count: int, **images: str) -> list[MergeConflict]:
    sides = {side: {"properties": {"text": text}} for side, text in images.items()}
    return [
        MergeConflict(
            kind=ConflictKind.DIVERGENT_UPDATE,
            type_key="node:Note",
            message="both sides changed it",
            entity_id=f"n{number}",
            **sides,
        )
        for number in range(count)
    ]


def test_many_conflicts_are_counted_instead_of_shown() -> None:
    found = conflicts(MAX_SHOWN + 10, base="a", ours="b", theirs="c")
    lines = list(conflict_lines("review", "main", found, 2_000))
    assert lines[0].endswith("2,000 conflicts")
    assert len([line for line in lines if line.startswith("divergent")]) == MAX_SHOWN
    assert "… and 1,950 more" in lines


def test_values_that_change_the_terminal_are_escaped() -> None:
    found = conflicts(1, base="a", ours="b\x1b[31m", theirs="c\nd")
    text = "\n".join(conflict_lines("review", "main", found, 1))
    assert "\x1b" not in text
    assert len(text.splitlines()) == 5


def test_images_without_a_visible_difference_are_one_line() -> None:
    [*_, row, _] = conflict_lines("s", "main", conflicts(1, base="a", ours="a", theirs="a"), 1)
    assert row.split() == ["divergent_update", "node:Note", "n0", "-"]


def test_long_values_are_shown_where_they_differ_or_cut_at_the_end() -> None:
    shared = "the same words again and again " * 3
    none, ours, theirs = compared(["null", f"{shared}ours", f"{shared}theirs"])
    assert none == "null"
    assert ours.startswith("…")
    assert (ours.endswith("again ours"), theirs.endswith("again theirs")) == (True, True)
    shown = compared(["x" * 100, "y" * 100])
    assert [len(text) for text in shown] == [VALUE_WIDTH, VALUE_WIDTH]
    assert all(text.endswith("…") for text in shown)


# ---- `omnigraph log`, `commit show` and `diff`: what a graph was, and what differs between its states


HISTORY_SCHEMA = """
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
    with Graph.init(tmp_path_factory.mktemp("merged") / "people.omni", HISTORY_SCHEMA) as graph:

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


def test_a_log_is_the_list_of_commits_of_a_branch(og: Run, merged: Merged) -> None:
    outcome = og("log", merged.uri)
    assert outcome.code == 0
    assert outcome.out == og("commit", "list", merged.uri).out
    on_main = [merged.merge, merged.ours, merged.filled, merged.genesis]
    assert ids(og("log", "--store", merged.uri, "--json")) == on_main
    assert ids(og("log", merged.uri, "--branch", "next", "--json")) == [merged.ahead, *on_main]
    assert ids(og("log", merged.uri, "--branch", "review", "--json")) == on_main, "without commits of its own"


def test_commits_of_all_branches_hold_what_was_merged(og: Run, merged: Merged) -> None:
    listed = og("commit", "list", merged.uri, "--all-branches", "--json")
    assert ids(listed) == ids(og("log", merged.uri, "--graph", "--json"))
    assert {merged.ahead, merged.merge} < set(ids(listed))
    nothing = og("commit", "list", merged.uri, "--all-branches", "--filter", "actor=nobody")
    assert nothing.out == "no commits\n"


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


# ---- commit show


def test_a_merge_commit_shows_both_parents(og: Run, merged: Merged) -> None:
    shown = og("commit", "show", merged.merge, "--store", merged.uri)
    body = og("commit", "show", merged.merge, "--store", merged.uri, "--json").json()
    assert f"parent         {merged.ours}" in shown.out
    assert f"merged parent  {merged.theirs}" in shown.out
    assert "strategy" not in shown.out
    assert (body["parent_commit_id"], body["merged_parent_commit_id"]) == (merged.ours, merged.theirs)


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
    assert body["stats"] == {"inserts": 1, "updates": 1, "deletes": 0, "types_affected": ["node:Person"]}


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
