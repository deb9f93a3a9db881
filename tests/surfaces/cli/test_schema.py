"""`omnigraph schema` on a graph: plans, changes, differences, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.cli_graphs import Outcome

OLD = "node Paper { doi: String @key  title: String?  year: I32? }\n"
NEW = 'node Paper { doi: String @key  headline: String? @rename_from("title")  lang: String  year: I64? }\n'
FILL = ("--backfill", 'Paper.lang="en"')
LINES = """\
~ node Paper.title is renamed to headline
+ node Paper.lang: String = "en"
~ node Paper.year is widened from I32 to I64
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A graph with two papers, one of them without a title."""
    graph = Graph.init(tmp_path / "g.omni", OLD)
    graph.mutate('query q() { insert Paper { doi: "a", title: "T" } insert Paper { doi: "b" } }')
    return graph.uri


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """A schema in a file."""

    def put(text: str) -> str:
        path = tmp_path / "new.pg"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return put


def test_a_plan_is_shown_and_nothing_happens(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    done = og("schema", "plan", store, "--schema", write(NEW), *FILL)
    assert (done.code, done.out) == (0, f"{LINES}3 steps, supported\n")
    assert og("schema", "show", store).out.strip() == OLD.strip()
    assert len(Graph.open(store).commits()) == 2


def test_a_plan_that_is_not_supported_is_no_failure_of_the_command(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    done = og("schema", "plan", store, "--schema", write(NEW))
    assert done.code == 0
    assert "! node:Paper.lang: [OG-MF-103] property `lang` is required" in done.out
    assert done.out.endswith("3 steps, not supported: nothing would be applied\n")
    body = json.loads(og("schema", "plan", store, "--schema", write(NEW), "--json").out)
    assert (body["uri"], body["supported"], body["step_count"]) == (store, False, 3)
    assert body["steps"][1]["code"] == "OG-MF-103"


def test_a_schema_is_applied(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    done = og("schema", "apply", store, "--schema", write(NEW), *FILL, "--as", "me")
    commit = Graph.open(store).commits()[0]
    assert (done.code, done.out) == (
        0,
        f"{LINES}3 steps applied, commit {commit.commit_id} on main\n",
    )
    assert done.err == f"schema apply to {store} (direct, local)\n"
    assert (commit.kind, commit.actor) == ("schema_apply", "me")
    assert og("schema", "show", store).out.strip() == NEW.strip()
    again = og("schema", "apply", store, "--schema", write(NEW), "--quiet")
    assert (again.code, again.out) == (0, "no changes\n")
    assert "warning S-29" in again.err


def test_the_receipt_is_one_document(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    done = og("schema", "apply", store, "--schema", write(NEW), *FILL, "--json", "--quiet")
    commit = Graph.open(store).commits()[0]
    body = json.loads(done.out)
    assert {name: body[name] for name in body if name != "steps"} == {
        "uri": store,
        "supported": True,
        "applied": True,
        "step_count": 3,
        "graph_manifest_version": commit.graph_version,
        "graph_commit_id": commit.commit_id,
    }
    assert [step["kind"] for step in body["steps"]] == [
        "rename_property",
        "add_property",
        "widen_property",
    ]
    again = json.loads(
        og("schema", "apply", store, "--schema", write(NEW), "--json", "--quiet").out
    )
    assert (again["applied"], again["graph_commit_id"], again["steps"]) == (False, None, [])


@pytest.mark.parametrize(
    ("schema", "words", "code", "message"),
    [
        (NEW, (), 1, "[OG-MF-103]"),
        (NEW, ("--backfill", "Paper.lang"), 1, "is not of the form Type.property=value"),
        (NEW, ("--backfill", "Paper.lang=en"), 1, "Paper has no property `en`"),
        (NEW, (*FILL, *FILL), 2, "the backfill of Paper.lang is given twice"),
        (OLD.replace("title: String?", "title: String"), (), 1, "1 violation by existing rows"),
        (OLD.replace("year: I32?", "year: Int"), (), 1, "Int"),
        (OLD, ("--engine", "magic"), 2, "magic"),
    ],
)  # fmt: skip
def test_a_refused_change_has_an_exit_code_and_changes_nothing(
    og: Callable[..., Outcome],
    store: str,
    write: Callable[[str], str],
    schema: str,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    done = og("schema", "apply", store, "--schema", write(schema), *words, "--quiet")
    assert done.code == code
    assert message in done.err
    assert done.out == ""
    assert len(Graph.open(store).commits()) == 2


def test_a_refusal_in_json_carries_the_plan_or_the_report(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    done = og("schema", "apply", store, "--schema", write(NEW), "--json", "--quiet")
    assert done.code == 1
    assert done.json()["plan"]["steps"][1]["code"] == "OG-MF-103"
    strict = write(OLD.replace("title: String?", "title: String"))
    done = og("schema", "apply", store, "--schema", strict, "--json", "--quiet")
    assert done.json()["report"]["total"] == 1


def test_other_branches_are_named(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    Graph.open(store).create_branch("work")
    done = og("schema", "apply", store, "--schema", write(NEW), *FILL, "--quiet")
    assert done.code == 1
    assert "merge or delete work first" in done.err


def test_what_is_dropped_may_be_destroyed(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    less = write("node Paper { doi: String @key  year: I32? }")
    planned = og("schema", "plan", store, "--schema", less, "--allow-data-loss")
    assert (
        planned.out
        == "- node Paper.title (hard: every earlier version of the type is destroyed)\n1 step, supported\n"
    )
    done = og("schema", "apply", store, "--schema", less, "--allow-data-loss", "--quiet")
    assert done.out.startswith(
        "- node Paper.title (hard: every earlier version of the type is destroyed)\n1 step applied, commit "
    )
    first = Graph.open(store).commits()[1].commit_id
    query = "query q() { match { $p: Paper } return { $p.title } }"
    read = og("query", "--store", store, "--snapshot", first, "-e", query)
    assert read.code == 1
    assert "was cleaned up and cannot be read any more" in read.err


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_destroying_in_a_remote_graph_needs_consent(
    og: Callable[..., Outcome], write: Callable[[str], str], words: tuple[str, ...]
) -> None:
    done = og(
        "schema", "apply", "s3://nowhere/g", "--schema", write(OLD), "--allow-data-loss", *words
    )
    assert done.code == 2
    assert (
        "this destroys what the schema drops in s3://nowhere/g: give --yes" in done.err + done.out
    )


def test_the_difference_of_two_commits_is_shown(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str]
) -> None:
    graph = Graph.open(store)
    assert og("schema", "diff", store).out == "no changes\n"
    graph.apply_schema(NEW, backfill={"Paper.lang": '"en"'})
    first, last = graph.commits()[-1].commit_id, graph.commits()[0].commit_id
    done = og("schema", "diff", store, "--from", first, "--to", last)
    assert done.code == 0
    assert done.out.splitlines() == [
        f"--- {first}",
        f"+++ {last}",
        "@@ -1 +1 @@",
        f"-{OLD.strip()}",
        f"+{NEW.strip()}",
    ]
    body = json.loads(og("schema", "diff", store, "--json").out)
    assert (body["from"], body["to"]) == (first, "main")
    assert [step["kind"] for step in body["steps"]] == [
        "rename_property",
        "add_property",
        "widen_property",
    ]
    for wrong in ("nowhere", first[:-1] + ("0" if first[-1] != "0" else "1")):
        missing = og("schema", "diff", store, "--from", wrong)
        assert missing.code == 1
        assert missing.out == ""


COMPOSITE = "node Paper { doi: String @key  title: String?  year: I32?  @index(title, year) }\n"
UNBUILT = "1:60: warning S-32: `@index(title, year)` is recorded and not built"


def test_init_warns_of_what_a_schema_says_without_effect(
    og: Callable[..., Outcome], write: Callable[[str], str], tmp_path: Path
) -> None:
    hinted = COMPOSITE.replace("year: I32?", 'year: I32? @rename_from("y")')
    done = og("init", f"{tmp_path}/new.omni", "--schema", write(hinted), "--json")
    assert done.code == 0
    assert "warning S-32" in done.err
    assert "warning S-29" in done.err
    assert json.loads(done.out)["commit"]


@pytest.mark.parametrize("words", [("schema", "plan"), ("schema", "apply")], ids=" ".join)
def test_plan_and_apply_warn_of_an_index_that_is_not_built(
    og: Callable[..., Outcome], store: str, write: Callable[[str], str], words: tuple[str, ...]
) -> None:
    done = og(*words, store, "--schema", write(COMPOSITE))
    assert done.code == 0
    assert UNBUILT in done.err


def test_lint_warns_of_an_index_that_is_not_built(
    og: Callable[..., Outcome], write: Callable[[str], str], tmp_path: Path
) -> None:
    queries = tmp_path / "q.gq"
    queries.write_text("query all() { match { $p: Paper } return { $p } }", encoding="utf-8")
    done = og("lint", "--schema", write(COMPOSITE), "--query", str(queries))
    assert (done.code, done.out) == (0, "OK    read all\n1 query, 0 errors, 0 warnings\n")
    assert UNBUILT in done.err
