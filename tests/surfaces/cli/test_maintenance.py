"""`omnigraph cleanup`: previews, consent, output, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import lance
import pytest

from omnigraph.cli.commands.maintenance import cleanup_lines
from omnigraph.errors.text import size_text
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import CleanupReport, DatasetCleanup
from support.cli_graphs import Run
from support.subtests import each_case


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    with Graph.init(tmp_path / "g.omni", "node Paper { doi: String @key }") as graph:
        for number in range(5):
            graph.mutate(f'query q() {{ insert Paper {{ doi: "{number}" }} }}')
    return str(tmp_path / "g.omni")


def test_a_preview_exits_with_zero_and_names_the_next_step(root: str, og: Run):
    shown = og("cleanup", root, "--keep", "3")
    assert (shown.code, shown.err) == (0, f"cleanup (preview) of {root} (direct, local)\n")
    assert shown.out.splitlines()[-1].endswith("would go with --confirm")
    with Graph.open(root) as graph:
        assert graph.cleanup(keep=3).old_versions_removed == 3


def test_json_tells_every_dataset_and_the_totals(root: str, og: Run):
    document = og("cleanup", root, "--keep", "3", "--older-than", "0s", "--confirm", "--commits", "--json").json()
    assert (document["confirmed"], document["commits_forgotten"]) == (True, 2)
    (paper,) = document["datasets"]
    assert (paper["type_key"], paper["old_versions_removed"]) == ("node:Paper", 3)
    assert paper["bytes_removed"] < document["total_bytes_removed"]


@each_case("words", [(), ("--keep", "0"), ("--older-than", "soon")], ids=["none", "zero", "soon"])
def test_a_policy_that_makes_no_sense_is_a_failure(root: str, og: Run, words: tuple[str, ...]):
    refused = og("cleanup", root, *words, "--confirm", "--quiet")
    assert refused.code == 1
    assert refused.err.strip()


def test_a_dataset_with_a_problem_is_told():
    item = DatasetCleanup(type_key="node:Paper", location="nodes/1", error="HEAD is elsewhere")
    report = CleanupReport(confirmed=True, keep=3, older_than_s=None, datasets=(item,), commits_kept=1)
    assert "node:Paper: not cleaned up, HEAD is elsewhere" in list(cleanup_lines(report))


@each_case(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (5 << 20, "5 MiB"), (1 << 60, "1048576 TiB")]
)
def test_sizes_have_the_unit_that_fits(size: int, text: str):
    assert size_text(size) == text


# ---- `omnigraph optimize`, with `--indexes-only` and without, and `omnigraph repair`


SCHEMA = """
node Paper { doi: String @key  year: I32? @index  vec: Vector(4)? @index }
node Unused { name: String @key }
edge Cites: Paper -> Paper
"""
FILL = """
query fill() {
  insert Paper { doi: "1", year: 2000 }
  insert Paper { doi: "2", year: 2001 }
  insert Cites { from: "1", to: "2" }
}
"""
READ = "query q() { match { $p: Paper $p cites $q } return { $p.doi as a, $q.doi as b } }"


@pytest.fixture
def store(tmp_path: Path) -> str:
    with Graph.init(tmp_path / "papers.omni", SCHEMA) as graph:
        graph.mutate(FILL)
        return graph.uri


def commits(og: Run, store: str, *words: str) -> list[dict[str, object]]:
    return og("commit", "list", store, "--json", *words).json()["commits"]


def test_text_names_what_was_built_and_what_waits(og: Run, store: str) -> None:
    outcome = og("optimize", store, "--indexes-only")
    assert outcome.code == 0
    *built, pending, commit = outcome.out.splitlines()
    assert [line.split(": built ")[0] for line in built] == ["node:Paper", "edge:Cites"]
    assert {"doi_btree", "year_btree"} <= set(built[0].split(": built ")[1].split(", "))
    assert {"src_btree", "dst_btree"} <= set(built[1].split(": built ")[1].split(", "))
    assert pending == "node:Paper.vec: pending, no row has a vector yet"
    assert re.fullmatch(r"commit [0-9A-Z]{26} on main", commit)
    assert "Unused" not in outcome.out


def test_a_second_run_has_nothing_to_do(og: Run, store: str) -> None:
    before = len(commits(og, store))
    og("optimize", store, "--indexes-only")
    state = og("snapshot", store, "--json").json()
    again = og("optimize", store, "--indexes-only")
    assert again.code == 0
    assert again.out == "node:Paper.vec: pending, no row has a vector yet\nnothing to build\n"
    assert og("snapshot", store, "--json").json() == state
    assert len(commits(og, store)) == before + 1


def test_with_nothing_pending_everything_is_up_to_date(og: Run, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node N { k: String @key }") as graph:
        empty = og("optimize", graph.uri, "--indexes-only")
        assert (empty.code, empty.out) == (0, "every index is up to date\n"), "there are no rows"
        assert len(commits(og, graph.uri)) == 1
        graph.mutate('query q() { insert N { k: "a" } }')
    assert og("optimize", graph.uri, "--indexes-only").code == 0
    assert og("optimize", graph.uri, "--indexes-only").out == "every index is up to date\n"


def test_json_lists_every_dataset(og: Run, store: str) -> None:
    first = og("optimize", "--store", store, "--indexes-only", "--json").json()
    second = og("optimize", "--store", store, "--indexes-only", "--json").json()
    head = og("snapshot", store, "--json").json()
    assert first["branch"] == second["branch"] == "main"
    assert first["graph_commit_id"] == head["graph_commit_id"]
    assert second["graph_commit_id"] is None
    versions = {
        f"{item['entity_kind']}:{item['type_name']}": item["published_dataset_version"] for item in head["datasets"]
    }
    for body in (first, second):
        found = {item["type_key"]: item["published_dataset_version"] for item in body["datasets"]}
        assert found == versions
    by_key = {item["type_key"]: item for item in first["datasets"]}
    assert list(by_key) == ["edge:Cites", "node:Paper", "node:Unused"]
    assert {key: item["committed"] for key, item in by_key.items()} == {
        "edge:Cites": True,
        "node:Paper": True,
        "node:Unused": False,
    }
    assert {"doi_btree", "year_btree"} <= set(by_key["node:Paper"]["built_indexes"])
    assert by_key["node:Unused"]["built_indexes"] == []
    assert by_key["node:Paper"]["pending_indexes"] == [{"property": "vec", "reason": "no row has a vector yet"}]
    assert [item["committed"] for item in second["datasets"]] == [False, False, False]
    assert second["datasets"][1]["pending_indexes"] == by_key["node:Paper"]["pending_indexes"]


def test_a_pending_vector_is_built_once_there_are_vectors(og: Run, store: str) -> None:
    og("optimize", store, "--indexes-only")
    text = 'query q($v: Vector(4)) { update Paper set { vec: $v } where doi = "1" }'
    og("mutate", "--store", store, "-e", text, "--params", '{"v": [1, 0, 0, 0]}')
    body = og("optimize", store, "--indexes-only", "--json").json()
    paper = next(item for item in body["datasets"] if item["type_key"] == "node:Paper")
    assert paper["pending_indexes"] == []
    committed = {item["type_key"]: item["committed"] for item in body["datasets"]}
    assert committed == {"edge:Cites": False, "node:Paper": True, "node:Unused": False}, "new rows are covered"
    nearest = (
        "query q($v: Vector(4)) { match { $p: Paper } return { $p.doi as doi } order { nearest($p.vec, $v) } limit 3 }"
    )
    found = og("query", "--store", store, "-e", nearest, "--params", '{"v": [1, 0, 0, 0]}', "--format", "csv")
    assert found.out == "doi\n1\n"


def test_the_run_changes_no_row_and_is_one_commit_of_its_kind(og: Run, store: str) -> None:
    before = og("query", "--store", store, "-e", READ, "--format", "csv").out
    history = commits(og, store)
    og("optimize", store, "--indexes-only", "--as", "ada")
    newest, *older = commits(og, store)
    assert older == history
    assert newest["actor_id"] == "ada"
    assert og("query", "--store", store, "-e", READ, "--format", "csv").out == before == "a,b\n1,2\n"
    for words in (("--graph-version", "1"), ("--snapshot", str(history[0]["graph_commit_id"]))):
        assert og("query", "--store", store, "-e", READ, *words).code == 0


def test_a_branch_has_indexes_of_its_own(og: Run, store: str) -> None:
    with Graph.open(store) as graph:
        graph.create_branch("side")
    main = og("snapshot", store, "--json").json()
    outcome = og("optimize", store, "--indexes-only", "--branch", "side", "--json")
    assert outcome.json()["branch"] == "side"
    assert (
        outcome.json()["graph_commit_id"]
        == (og("snapshot", store, "--branch", "side", "--json").json()["graph_commit_id"])
    )
    assert og("snapshot", store, "--json").json() == main
    text = "query q() { match { $p: Paper { year: 2000 } } return { $p.doi as doi } }"
    on_side = og("explain", "--store", store, "-e", text, "--branch", "side").out
    on_main = og("explain", "--store", store, "-e", text).out
    assert "with year_btree" in on_side
    assert "with year_btree" not in on_main
    assert og("query", "--store", store, "-e", text, "--branch", "side", "--format", "csv").out == ("doi\n1\n")


# ---- everything


def test_a_whole_run_compacts_builds_and_folds_the_catalog(og: Run, store: str) -> None:
    og("mutate", "--store", store, "-e", 'query q() { insert Paper { doi: "3" } }')
    outcome = og("optimize", store, "--as", "ada")
    assert outcome.code == 0
    assert outcome.err == f"optimize {store} (direct, local)\n"
    cites, paper, pending, catalog, commit = outcome.out.splitlines()
    assert cites.startswith("edge:Cites: built id_btree")
    assert paper.startswith("node:Paper: 2 fragments into 1 fragment; built ")
    assert pending == "node:Paper.vec: pending, no row has a vector yet"
    assert re.fullmatch(r"manifest: \d+ fragments folded, \d+ old versions? removed", catalog)
    assert re.fullmatch(r"commit [0-9A-Z]{26} on main", commit)
    assert commits(og, store)[0]["actor_id"] == "ada"
    again = og("optimize", store, "--quiet")
    assert (again.out, again.err) == (f"{pending}\nnothing to commit\n", "")


def test_a_whole_run_as_json_and_a_table_that_needs_repair(og: Run, store: str) -> None:
    pin = Graph.open(store).snapshot().pins["node:Paper"]
    lance.dataset(f"{store}/{pin.location}").delete("doi = '2'")
    body = og("optimize", store, "--engine", "local", "--json").json()
    by_key = {item["type_key"]: item for item in body["datasets"]}
    assert by_key["node:Paper"]["skipped"] == "drift_needs_repair"
    assert by_key["node:Paper"]["lance_head_version"] == pin.version + 1
    assert by_key["edge:Cites"]["committed"] is True
    assert "see `omnigraph repair`" in og("optimize", store).out


# ---- repair


def test_repair_looks_refuses_and_is_forced(og: Run, store: str) -> None:
    assert og("repair", store).out.splitlines() == [
        "no drift: every dataset is where the manifest says",
        "for damaged files run `omnigraph verify`",
    ]
    pin = Graph.open(store).snapshot().pins["node:Paper"]
    lance.dataset(f"{store}/{pin.location}").delete("doi = '2'")
    shown = og("repair", store)
    assert (shown.code, shown.err) == (0, "")
    assert "suspicious      preview" in shown.out
    refused = og("repair", store, "--confirm", "--json")
    assert refused.code == 1
    (paper,) = [item for item in refused.json()["datasets"] if item["type_key"] == "node:Paper"]
    assert (paper["classification"], paper["action"]) == ("suspicious", "refused")
    assert refused.err == f"repair {store} (direct, local)\n"
    forced = og("repair", store, "--confirm", "--force", "--quiet")
    assert (forced.code, forced.err) == (0, "")
    assert re.search(r"commit [0-9A-Z]{26} on main", forced.out)
    assert og("repair", store, "--confirm").code == 0
