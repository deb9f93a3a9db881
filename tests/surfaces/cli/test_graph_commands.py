"""Commands that create, change and inspect a graph, as black boxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omnigraph.cli.main import app, main

SCHEMA = """
node Paper { doi: String @key  title: String  year: I32  @range(year, 1600..2100) }
edge Cites: Paper -> Paper { context: String? }
"""
ADD = 'query add($doi: String, $year: I32) { insert Paper { doi: $doi, title: "t", year: $year } }'


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")

    def call(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def store(tmp_path: Path, run) -> str:
    schema = tmp_path / "schema.pg"
    schema.write_text(SCHEMA, encoding="utf-8")
    uri = str(tmp_path / "papers.omni")
    assert run("init", uri, "--schema", str(schema)).code == 0
    return uri


def add(run, store: str, doi: str, *more: str, year: int = 2000) -> Outcome:
    params = json.dumps({"doi": doi, "year": year})
    return run("mutate", "--store", store, "-e", ADD, "--params", params, *more)


def test_init_says_where_the_graph_is(tmp_path: Path, run) -> None:
    schema = tmp_path / "s.pg"
    schema.write_text(SCHEMA, encoding="utf-8")
    uri = str(tmp_path / "g.omni")
    outcome = run("init", uri, "--schema", str(schema))
    assert (outcome.code, outcome.out) == (0, f"initialized {uri}\n")


def test_init_of_a_used_root_is_refused(store: str, tmp_path: Path, run) -> None:
    outcome = run("init", store, "--schema", str(tmp_path / "schema.pg"), "--json")
    assert outcome.code == 1
    assert outcome.json()["kind"] == "already_initialized"


def test_init_with_a_wrong_schema_leaves_nothing(tmp_path: Path, run) -> None:
    schema = tmp_path / "s.pg"
    schema.write_text("node A { x: Strng }", encoding="utf-8")
    outcome = run("init", str(tmp_path / "g.omni"), "--schema", str(schema))
    assert outcome.code == 1
    assert "S-01" in outcome.err
    assert not (tmp_path / "g.omni").exists()


def test_mutate_prints_a_receipt(store: str, run) -> None:
    outcome = add(run, store, "10.1")
    assert outcome.code == 0
    assert outcome.out.startswith("1 node, 0 edges in commit ")
    assert outcome.out.endswith(" on main\n")


def test_mutate_json_is_the_write_envelope(store: str, run) -> None:
    body = add(run, store, "10.1", "--as", "ada", "--json").json()
    assert set(body) == {
        "branch",
        "query_name",
        "affected_nodes",
        "affected_edges",
        "actor_id",
        "commit",
    }
    assert (body["branch"], body["query_name"], body["actor_id"]) == ("main", "add", "ada")
    assert body["commit"]["graph_manifest_version"] == 2


def test_global_flags_may_stand_before_the_command(store: str, run) -> None:
    params = '{"doi": "10.1", "year": 2000}'
    outcome = run(
        "--as", "ada", "--json", "mutate", "--store", store, "-e", ADD, "--params", params
    )
    assert outcome.json()["actor_id"] == "ada"


def test_a_mutation_that_matches_nothing_has_no_commit(store: str, run) -> None:
    text = 'query q() { update Paper set { year: 2000 } where doi = "none" }'
    plain = run("mutate", "--store", store, "-e", text)
    body = run("mutate", "--store", store, "-e", text, "--json").json()
    assert plain.out == "nothing matched, nothing changed\n"
    assert body["commit"] is None


def test_parameters_may_come_from_a_file(store: str, tmp_path: Path, run) -> None:
    path = tmp_path / "params.json"
    path.write_text('{"doi": "10.5", "year": 1999}', encoding="utf-8")
    outcome = run("mutate", "--store", store, "-e", ADD, "--params-file", str(path))
    assert outcome.code == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        pytest.param(["--params", "{"], 1, "not JSON", id="no JSON"),
        pytest.param(["--params", "[1]"], 1, "not a JSON object", id="no object"),
        pytest.param(["--params-file", "no/such"], 1, "cannot read no/such", id="no file"),
        pytest.param(["--params", "{}", "--params-file", "x"], 2, "one of", id="both"),
        pytest.param(["--params", '{"doi": "1"}'], 1, "`year` is missing", id="missing"),
    ],
)
def test_wrong_parameters_are_explained(store: str, run, words, code: int, text: str) -> None:
    outcome = run("mutate", "--store", store, "-e", ADD, *words)
    assert outcome.code == code
    assert text in outcome.err


def test_a_violated_rule_exits_with_1_and_changes_nothing(store: str, run) -> None:
    outcome = add(run, store, "10.1", year=1)
    assert outcome.code == 1
    assert "@range violation on Paper.year" in outcome.err
    assert run("snapshot", store, "--json").json()["graph_manifest_version"] == 1


def test_a_lost_precondition_exits_with_4(store: str, run) -> None:
    first = run("snapshot", store, "--json").json()["graph_commit_id"]
    won = add(run, store, "10.1", "--if-commit", first)
    lost = add(run, store, "10.2", "--if-commit", first, "--json")
    assert (won.code, lost.code) == (0, 4)
    assert lost.json()["precondition_failure"]["expected"] == first


@pytest.mark.parametrize(
    "words",
    [
        ("snapshot",),
        ("snapshot", "a", "--store", "b"),
        ("doctor", "http://127.0.0.1:1"),
        ("commit", "list", "x", "--filter", "branch=y"),
    ],
    ids=" ".join,
)
def test_a_wrongly_addressed_command_exits_with_2(run, words: tuple[str, ...]) -> None:
    assert run(*words).code == 2


def test_snapshot_names_every_dataset(store: str, run) -> None:
    add(run, store, "10.1")
    body = run("snapshot", store, "--json").json()
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
    assert "node:Paper" in run("snapshot", store).out


def test_commit_list_is_newest_first_and_filters_by_actor(store: str, run) -> None:
    add(run, store, "10.1", "--as", "ada")
    add(run, store, "10.2", "--as", "bob")
    everything = run("commit", "list", store, "--json").json()["commits"]
    assert [item["actor_id"] for item in everything] == ["bob", "ada", None]
    for words in (["--filter", "actor=ada"], ["--actor", "ada"]):
        found = run("commit", "list", store, *words, "--json").json()["commits"]
        assert [item["actor_id"] for item in found] == ["ada"]
    assert run("commit", "list", store, "--actor", "eve").out == "no commits\n"


def test_commit_show_shows_one_commit(store: str, run) -> None:
    commit = add(run, store, "10.1", "--as", "ada", "--json").json()["commit"]
    shown = run("commit", "show", commit["graph_commit_id"], "--store", store, "--json").json()
    assert shown == commit
    assert "ada" in run("commit", "show", commit["graph_commit_id"], "--uri", store).out


def test_an_unknown_commit_is_not_found(store: str, run) -> None:
    outcome = run("commit", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--store", store)
    assert outcome.code == 1
    assert "there is no commit" in outcome.err


def test_recovery_list_is_empty_on_a_healthy_graph(store: str, run) -> None:
    assert run("recovery", "list", store).out == "no recoveries\n"
    assert run("recovery", "list", store, "--json").json() == {"recoveries": [], "pending": []}


@pytest.mark.parametrize("verb", ["show", "get"])
def test_schema_show_prints_the_accepted_text(store: str, run, verb: str) -> None:
    assert run("schema", verb, store).out == SCHEMA
    assert run("schema", verb, store, "--json").json() == {"schema_source": SCHEMA}


def test_change_is_the_old_name_of_mutate(store: str, run) -> None:
    params = '{"doi": "10.1", "year": 2000}'
    outcome = run("change", "--store", store, "-e", ADD, "--params", params)
    assert outcome.code == 0
    assert "deprecated" in outcome.err


def test_an_unknown_branch_is_named(store: str, run) -> None:
    outcome = run("snapshot", store, "--branch", "nope", "--json")
    assert outcome.code == 1
    assert (outcome.json()["kind"], outcome.json()["branch"]) == ("branch_not_found", "nope")


def test_the_help_of_every_command_answers() -> None:
    runner = CliRunner()
    for words in (["init"], ["mutate"], ["snapshot"], ["commit", "list"], ["recovery", "list"]):
        assert runner.invoke(app, [*words, "--help"]).exit_code == 0
