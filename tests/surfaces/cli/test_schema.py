"""`omnigraph schema` on a graph: plans, changes, differences, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from omnigraph.cli.main import app_with
from omnigraph.graph.graph import Graph
from support.cli_graphs import Outcome, Run

#: Puts a schema into a file.
Write = Callable[[str], str]

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
def write(tmp_path: Path) -> Write:
    """A schema in a file."""

    def put(text: str) -> str:
        path = tmp_path / "new.pg"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return put


def test_a_plan_is_shown_and_nothing_happens(og: Run, store: str, write: Write) -> None:
    done = og("schema", "plan", store, "--schema", write(NEW), *FILL)
    assert (done.code, done.out) == (0, f"{LINES}3 steps, supported\n")
    assert og("schema", "show", store).out.strip() == OLD.strip()
    assert len(Graph.open(store).commits()) == 2


def test_a_plan_that_is_not_supported_is_printed_and_exits_with_4(og: Run, store: str, write: Write) -> None:
    done = og("schema", "plan", store, "--schema", write(NEW))
    assert done.code == 4
    assert "! node:Paper.lang: [OG-MF-103] property `lang` is required" in done.out
    assert done.out.endswith("3 steps, not supported: nothing would be applied\n")
    as_json = og("schema", "plan", store, "--schema", write(NEW), "--json")
    body = as_json.json()
    assert as_json.code == 4
    assert (body["uri"], body["supported"], body["step_count"]) == (store, False, 3)
    assert body["steps"][1]["code"] == "OG-MF-103"


def test_a_schema_alone_is_checked(og: Run, write: Write) -> None:
    path = write("node Note { title: String  year: I32  @index(title, year) }")
    done = og("lint", "--schema", path)
    verdict, warning, place, total = done.out.splitlines()
    assert (done.code, verdict, total) == (0, f"OK    schema {path}", "0 errors, 1 warning")
    assert (warning.startswith("WARN  S-32: "), place) == (True, f"      at {path}:1:39")
    body = og("lint", "--schema", path, "--json").json()
    assert (body["status"], body["warnings"], "query_path" in body) == ("ok", 1, False)
    wrong = og("lint", "--schema", write("node Note { title: Strng }"))
    assert (wrong.code, "S-01" in wrong.err) == (1, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_schema_is_applied_and_the_receipt_is_text_or_one_document(
    og: Run, store: str, write: Write, as_json: bool
) -> None:
    flags = ("--json", "--quiet") if as_json else ()
    done = og("schema", "apply", store, "--schema", write(NEW), *FILL, "--as", "me", *flags)
    again = og("schema", "apply", store, "--schema", write(NEW), "--quiet", *flags)
    commit = Graph.open(store).commits()[0]
    assert (done.code, again.code) == (0, 0)
    assert (commit.kind, commit.actor) == ("schema_apply", "me")
    assert og("schema", "show", store).out.strip() == NEW.strip()
    assert "warning S-29" in again.err
    if not as_json:
        assert done.out == f"{LINES}3 steps applied, commit {commit.commit_id} on main\n"
        assert done.err == f"schema apply to {store} (direct, local)\n"
        assert again.out == "no changes\n"
        return
    body = done.json()
    assert {name: body[name] for name in body if name != "steps"} == {
        "uri": store,
        "supported": True,
        "applied": True,
        "step_count": 3,
        "graph_manifest_version": commit.graph_version,
        "graph_commit_id": commit.commit_id,
    }
    assert [step["kind"] for step in body["steps"]] == ["rename_property", "add_property", "widen_property"]
    assert (again.json()["applied"], again.json()["graph_commit_id"], again.json()["steps"]) == (False, None, [])


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
    og: Run, store: str, write: Write, schema: str, words: tuple[str, ...], code: int, message: str
) -> None:
    done = og("schema", "apply", store, "--schema", write(schema), *words, "--quiet")
    assert done.code == code
    assert message in done.err
    assert done.out == ""
    assert len(Graph.open(store).commits()) == 2


def test_a_refusal_in_json_carries_the_plan_or_the_report(og: Run, store: str, write: Write) -> None:
    done = og("schema", "apply", store, "--schema", write(NEW), "--json", "--quiet")
    assert done.code == 1
    assert done.json()["plan"]["steps"][1]["code"] == "OG-MF-103"
    strict = write(OLD.replace("title: String?", "title: String"))
    done = og("schema", "apply", store, "--schema", strict, "--json", "--quiet")
    assert done.json()["report"]["total"] == 1


def test_other_branches_are_named(og: Run, store: str, write: Write) -> None:
    Graph.open(store).create_branch("work")
    done = og("schema", "apply", store, "--schema", write(NEW), *FILL, "--quiet")
    assert done.code == 1
    assert "merge or delete work first" in done.err


def test_what_is_dropped_may_be_destroyed(og: Run, store: str, write: Write) -> None:
    less = write("node Paper { doi: String @key  year: I32? }")
    planned = og("schema", "plan", store, "--schema", less, "--allow-data-loss")
    assert (
        planned.out == "- node Paper.title (hard: every earlier version of the type is destroyed)\n1 step, supported\n"
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


def test_the_difference_of_two_commits_is_shown(og: Run, store: str, write: Write) -> None:
    graph = Graph.open(store)
    assert og("schema", "diff", store).out == "no changes\n"
    graph.apply_schema(NEW, backfill={"Paper.lang": '"en"'})
    first, last = graph.commits()[-1].commit_id, graph.commits()[0].commit_id
    done = og("schema", "diff", store, "--from", first, "--to", last)
    assert done.code == 0
    assert done.out.splitlines() == [f"--- {first}", f"+++ {last}", "@@ -1 +1 @@", f"-{OLD.strip()}", f"+{NEW.strip()}"]
    body = json.loads(og("schema", "diff", store, "--json").out)
    assert (body["from"], body["to"]) == (first, "main")
    assert [step["kind"] for step in body["steps"]] == ["rename_property", "add_property", "widen_property"]
    for wrong in ("nowhere", first[:-1] + ("0" if first[-1] != "0" else "1")):
        missing = og("schema", "diff", store, "--from", wrong)
        assert missing.code == 1
        assert missing.out == ""


COMPOSITE = "node Paper { doi: String @key  title: String?  year: I32?  @index(title, year) }\n"
UNBUILT = "1:60: warning S-32: `@index(title, year)` is recorded and not built"


def test_commands_warn_of_an_index_that_is_not_built_and_of_a_hint_without_effect(
    og: Run, store: str, write: Write, tmp_path: Path
) -> None:
    for words in (("schema", "plan"), ("schema", "apply")):
        done = og(*words, store, "--schema", write(COMPOSITE))
        assert done.code == 0
        assert UNBUILT in done.err
    queries = tmp_path / "q.gq"
    queries.write_text("query all() { match { $p: Paper } return { $p } }", encoding="utf-8")
    done = og("lint", "--schema", write(COMPOSITE), "--query", str(queries))
    assert (done.code, done.out) == (0, "OK    read all\n1 query, 0 errors, 0 warnings\n")
    assert UNBUILT in done.err
    hinted = COMPOSITE.replace("year: I32?", 'year: I32? @rename_from("y")')
    done = og("init", f"{tmp_path}/new.omni", "--schema", write(hinted), "--json")
    assert (done.code, "warning S-32" in done.err, "warning S-29" in done.err) == (0, True, True)
    assert done.json()["commit"]


# ---- Commands that create, change and inspect a graph, as black boxes


SCHEMA = """
node Paper { doi: String @key  title: String  year: I32  @range(year, 1600..2100) }
edge Cites: Paper -> Paper { context: String? }
"""
ADD = 'query add($doi: String, $year: I32) { insert Paper { doi: $doi, title: "t", year: $year } }'


@pytest.fixture
def papers(tmp_path: Path, og: Run) -> str:
    schema = tmp_path / "schema.pg"
    schema.write_text(SCHEMA, encoding="utf-8")
    uri = str(tmp_path / "papers.omni")
    assert og("init", uri, "--schema", str(schema)).code == 0
    return uri


def add(og: Run, papers: str, doi: str, *more: str, year: int = 2000) -> Outcome:
    params = json.dumps({"doi": doi, "year": year})
    return og("mutate", "--store", papers, "-e", ADD, "--params", params, *more)


def test_init_says_where_the_graph_is_and_refuses_a_used_root_or_a_wrong_schema(tmp_path: Path, og: Run) -> None:
    schema, uri = tmp_path / "s.pg", str(tmp_path / "g.omni")
    schema.write_text("node A { x: Strng }", encoding="utf-8")
    wrong = og("init", uri, "--schema", str(schema))
    assert (wrong.code, "S-01" in wrong.err) == (1, True)
    assert not (tmp_path / "g.omni").exists()
    schema.write_text(SCHEMA, encoding="utf-8")
    outcome = og("init", uri, "--schema", str(schema))
    assert (outcome.code, outcome.out) == (0, f"initialized {uri}\n")
    used = og("init", uri, "--schema", str(schema), "--json")
    assert (used.code, used.json()["kind"]) == (1, "already_initialized")
    assert "it holds a graph of " in used.json()["error"]
    assert "give another place for a new graph" in used.json()["error"]


def test_mutate_prints_a_receipt_or_the_write_envelope(papers: str, og: Run) -> None:
    outcome = add(og, papers, "10.1")
    assert outcome.code == 0
    assert outcome.out.startswith("1 node, 0 edges in commit ")
    assert outcome.out.endswith(" on main\n")
    old = og("--as", "ada", "--json", "change", "--store", papers, "-e", ADD, "--params", '{"doi": "1", "year": 2000}')
    body = old.json()
    assert set(body) == {"branch", "query_name", "affected_nodes", "affected_edges", "actor_id", "commit"}
    assert (body["branch"], body["query_name"], body["actor_id"]) == ("main", "add", "ada")
    assert body["commit"]["graph_manifest_version"] == 3
    assert "deprecated" in old.err, "`change` is the old name of `mutate`"


def test_a_mutation_that_matches_nothing_has_no_commit(papers: str, og: Run) -> None:
    text = 'query q() { update Paper set { year: 2000 } where doi = "none" }'
    plain = og("mutate", "--store", papers, "-e", text)
    body = og("mutate", "--store", papers, "-e", text, "--json").json()
    assert plain.out == "nothing matched, nothing changed\n"
    assert body["commit"] is None


def test_parameters_may_come_from_a_file(papers: str, tmp_path: Path, og: Run) -> None:
    path = tmp_path / "params.json"
    path.write_text('{"doi": "10.5", "year": 1999}', encoding="utf-8")
    outcome = og("mutate", "--store", papers, "-e", ADD, "--params-file", str(path))
    assert outcome.code == 0


def test_a_violated_rule_exits_with_1_and_changes_nothing(papers: str, og: Run) -> None:
    outcome = add(og, papers, "10.1", year=1)
    assert outcome.code == 1
    assert "@range violation on Paper.year" in outcome.err
    assert og("snapshot", papers, "--json").json()["graph_manifest_version"] == 1


def test_a_lost_precondition_exits_with_4(papers: str, og: Run) -> None:
    first = og("snapshot", papers, "--json").json()["graph_commit_id"]
    won = add(og, papers, "10.1", "--if-commit", first)
    lost = add(og, papers, "10.2", "--if-commit", first, "--json")
    assert (won.code, lost.code) == (0, 4)
    assert lost.json()["precondition_failure"]["expected"] == first


def test_snapshot_names_every_dataset(papers: str, og: Run) -> None:
    add(og, papers, "10.1")
    body = og("snapshot", papers, "--json").json()
    paper = next(item for item in body["datasets"] if item["type_name"] == "Paper")
    assert set(paper) == {
        "entity_kind",
        "type_name",
        "dataset_path",
        "published_dataset_version",
        "native_dataset_branch",
        "entity_count",
    }
    assert (paper["entity_kind"], paper["entity_count"]) == ("node", 1)
    assert body["internal_schema_version"] == 4
    assert "node:Paper" in og("snapshot", papers).out


def test_commit_list_is_newest_first_and_filters_by_actor(papers: str, og: Run) -> None:
    add(og, papers, "10.1", "--as", "ada")
    add(og, papers, "10.2", "--as", "bob")
    everything = og("commit", "list", papers, "--json").json()["commits"]
    assert [item["actor_id"] for item in everything] == ["bob", "ada", None]
    for words in (["--filter", "actor=ada"], ["--actor", "ada"]):
        found = og("commit", "list", papers, *words, "--json").json()["commits"]
        assert [item["actor_id"] for item in found] == ["ada"]
    assert og("commit", "list", papers, "--actor", "eve").out == "no commits\n"


def test_commit_show_shows_one_commit(papers: str, og: Run) -> None:
    commit = add(og, papers, "10.1", "--as", "ada", "--json").json()["commit"]
    shown = og("commit", "show", commit["graph_commit_id"], "--store", papers, "--json").json()
    assert shown == commit
    assert "ada" in og("commit", "show", commit["graph_commit_id"], "--uri", papers).out


def test_recovery_list_is_empty_on_a_healthy_graph(papers: str, og: Run) -> None:
    assert og("recovery", "list", papers).out == "no recoveries\n"
    assert og("recovery", "list", papers, "--json").json() == {"recoveries": [], "pending": []}


@pytest.mark.parametrize("verb", ["show", "get"])
def test_schema_show_prints_the_accepted_text(papers: str, og: Run, verb: str) -> None:
    assert og("schema", verb, papers).out == SCHEMA
    assert og("schema", verb, papers, "--json").json() == {"schema_source": SCHEMA}


def test_the_help_of_every_command_answers() -> None:
    runner = CliRunner()
    for words in (["init"], ["mutate"], ["snapshot"], ["commit", "list"], ["recovery", "list"]):
        assert runner.invoke(app_with(), [*words, "--help"]).exit_code == 0
