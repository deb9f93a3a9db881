"""`omnigraph export`: lines on stdout without a JVM, files on request, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omnigraph.graph.graph import Graph
from omnigraph.server.boot import open_service
from omnigraph.server.config import single_graph
from omnigraph.server.settings import ServerSettings
from support.cli_graphs import History, Run
from support.servers import listening


def ids(text: str) -> list[str]:
    return [json.loads(line)["data"]["id"] for line in text.splitlines()]


def test_lines_go_to_stdout_and_flags_choose_them(og: Run, past: History, things: str) -> None:
    outcome = og("export", past.uri)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == '{"type":"Item","data":{"id":"b","k":"b"}}\n'
    for words, expected in (
        (["--branch", "side"], ["a", "b", "c"]),
        (["--type", "Item", "--type", "node:Item"], ["b"]),
        (["--snapshot", past.commits[3]], ["a", "b"]),
        (["--graph-version", "3"], ["a", "b"]),
    ):
        assert ids(og("export", "--store", past.uri, *words).out) == expected
    old = og("export", past.uri, "--jsonl")
    assert (ids(old.out), "deprecated" in old.err) == (["b"], True)
    assert "--jsonl" not in og("export", "--help").out
    assert ids(og("export", things).out) == ["empty", "full", "nulls"], "every value is JSON"


def test_a_file_is_written_and_counted(og: Run, past: History, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    outcome = og("export", past.uri, "--branch", "side", "--out", str(target))
    assert outcome.code == 0
    assert ids(target.read_text()) == ["a", "b", "c"]
    assert "node:Item: 3" in outcome.out
    assert f"to {target} (1 file)" in outcome.out
    assert "in process: " in outcome.out.splitlines()[-1]
    again = og("export", past.uri, "--out", str(target))
    assert again.code == 1
    assert "an export replaces nothing" in again.err


def test_json_tells_what_was_written(og: Run, past: History, tmp_path: Path) -> None:
    target = tmp_path / "out"
    found = og("export", past.uri, "--out", str(target), "--format", "parquet", "--json").json()
    assert found["format"] == "parquet"
    assert found["engine"]["name"] == "local"
    assert found["nodes"] == {"Item": 1}
    assert found["graph_commit_id"] == past.commits[6]
    assert sorted(Path(file).name for file in found["files"]) == ["mapping.yaml", "part-00000.parquet"]
    parts = og("export", past.uri, "--out", str(tmp_path / "parts"), "--parts", "--json").json()
    assert [Path(file).name for file in parts["files"]] == ["node-Item-00000.jsonl"]


def test_an_unknown_type_fails_and_prints_no_line(og: Run, past: History) -> None:
    outcome = og("export", past.uri, "--type", "Nope")
    assert (outcome.code, outcome.out) == (1, "")
    assert "node:Item" in outcome.err


def test_a_reader_that_has_seen_enough_is_no_error_message(past: History) -> None:
    """As `omnigraph export … | head -0`: the pipe is closed before the first line."""
    command = [sys.executable, "-m", "omnigraph", "export", past.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


# ---- `omnigraph load` and `ingest` as a person or a script uses them


GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "people"
MORE = str(GUIDE / "more.jsonl")
BROKEN = str(GUIDE / "broken.jsonl")
MAPPING = str(GUIDE / "mapping.yaml")


@pytest.fixture
def store(tmp_path: Path, og) -> str:
    uri = str(tmp_path / "people.omni")
    assert og("init", uri, "--schema", str(GUIDE / "people.pg")).code == 0
    return uri


@pytest.fixture
def load(og):
    return lambda *words: og("load", *words)


def test_the_receipt_counts_every_type_and_progress_goes_to_stderr(store: str, load) -> None:
    result = load(store, "--mapping", MAPPING, "--mode", "append")
    assert result.code == 0
    assert result.out.splitlines()[:2] == ["node Person: 3", "edge Knows: 2"]
    assert result.out.splitlines()[2].startswith("5 records in commit ")
    chosen = result.out.splitlines()[3]
    assert re.fullmatch(r"in process: \d+ B of input, Spark starts above 32 MiB", chosen)
    lines = result.err.splitlines()
    assert lines[0] == f"load into {store} (direct, local)"
    stages = ["look at the input", "write fragments", "check relations", "commit"]
    assert [line.partition(":")[0] for line in lines[1:]] == stages
    assert lines[1].endswith(f"({chosen})")
    assert "5 rows in" in lines[2]


def test_the_receipt_as_json_names_the_commit(store: str, load, og: Run) -> None:
    result = load(store, "--data", MORE, "--mode", "merge", "--as", "ann", "--json", "--quiet")
    body = json.loads(result.out)
    assert result.err == ""
    assert body["nodes"] == [{"name": "Person", "entities_loaded": 2}]
    assert body["edges"] == [{"name": "Knows", "entities_loaded": 1}]
    assert (body["mode"], body["total_entities"], body["superseded"]) == ("merge", 3, 0)
    assert (body["branch"], body["base_branch"], body["branch_created"]) == ("main", None, False)
    assert body["actor_id"] == body["commit"]["actor_id"] == "ann"
    head = json.loads(og("commit", "list", store, "--json").out)
    assert head["commits"][0]["graph_commit_id"] == body["commit"]["graph_commit_id"]


@pytest.mark.parametrize("times", [1, 2])
def test_records_that_a_later_one_replaced_are_read_and_not_written(
    store: str, tmp_path: Path, load, times: int
) -> None:
    data = tmp_path / "twice.jsonl"
    ann = '{"type": "Person", "data": {"email": "ann@example.org", "name": "Ann"}}'
    bob = '{"type": "Person", "data": {"email": "bob@example.org", "name": "Bob"}}'
    data.write_text("\n".join([ann] * times + [ann, bob]), encoding="utf-8")
    lines = load(store, "--data", str(data), "--mode", "merge", "--quiet").out.splitlines()
    said = {
        1: "1 record was replaced by another one of the same id",
        2: "2 records were replaced by another one of the same id",
    }
    assert lines[:2] == [f"node Person: 2 ({2 + times} read)", said[times]]
    assert lines[2].startswith("2 records in commit ")
    again = load(store, "--data", str(data), "--mode", "merge", "--quiet", "--json")
    body = json.loads(again.out)
    assert (body["total_entities"], body["superseded"]) == (2 + times, times)


def test_edges_that_are_dropped_are_counted_and_described_in_the_report(store: str, tmp_path: Path, load) -> None:
    data, report = tmp_path / "edges.jsonl", tmp_path / "report.json"
    bob = '{"type": "Person", "data": {"email": "bob@example.org", "name": "Bob"}}'
    nowhere = '{"edge": "Knows", "from": "bob@example.org", "to": "nowhere@example.org"}'
    data.write_text("\n".join([bob, bob, nowhere]), encoding="utf-8")
    rules = ("--on-duplicate", "first", "--dangling", "drop", "--report", str(report), "--quiet")
    lines = load(store, "--data", str(data), "--mode", "append", *rules).out.splitlines()
    assert lines[:4] == [
        "node Person: 1 (2 read)",
        "edge Knows: 0",
        "1 record was replaced by another one of the same id",
        "Knows: 1 edge dropped, because an end does not exist",
    ]
    (found,) = json.loads(report.read_text(encoding="utf-8"))["rules"]
    assert (found["rule"], found["examples"][0]["line"]) == ("dst of Knows not found in Person", 3)
    assert load(store, "--data", str(data), "--mode", "merge", "--on-duplicate", "newest").code == 2


def test_bad_records_go_to_a_quarantine_and_the_command_says_so_with_its_exit_code(
    store: str, tmp_path: Path, load
) -> None:
    bad = tmp_path / "bad"
    words = ("--data", BROKEN, "--mode", "append", "--on-error", f"quarantine={bad}", "--quiet")
    preview = load(store, *words, "--dry-run")
    assert preview.code == 3
    assert "3 bad records would be kept" in preview.out
    assert not bad.exists()
    result = load(store, *words)
    assert result.code == 3
    lines = result.out.splitlines()
    assert f"3 bad records in {bad}" in lines
    assert f"correct them, then: omnigraph load {store} --data {bad} --mode append" in lines
    assert len((bad / "broken.jsonl").read_text("utf-8").splitlines()) == 3
    # Nothing is replaced.
    assert load(store, *words).code == 1
    words = ("--data", BROKEN, "--mode", "append", "--on-error", f"quarantine={tmp_path / 'other'}", "--quiet")
    body = json.loads(load(store, *words, "--json").out)
    assert (body["quarantine"]["records"], body["quarantine"]["nodes"]) == (3, {"Person": 3})
    assert load(store, *words[:4], "--on-error", "ignore").code == 2


def test_a_patch_counts_what_it_changes_and_with_upsert_what_it_makes(store: str, tmp_path: Path, load) -> None:
    assert load(store, "--data", MORE, "--mode", "append", "--quiet").code == 0
    dan, eve = ({"type": "Person", "data": {"email": f"{name}@example.org", "name": name}} for name in ("dan", "eve"))
    source = tmp_path / "p.jsonl"
    source.write_text(f"{json.dumps(dan)}\n{json.dumps(eve)}\n", encoding="utf-8")
    words = (store, "--data", str(source), "--quiet")
    refused = load(*words, "--mode", "patch")
    assert (refused.code, "unknown id of Person: 1 record" in refused.err) == (1, True)
    assert "node Person: 1 patched, 1 inserted" in load(*words, "--mode", "patch", "--upsert").out
    assert load(*words, "--mode", "merge", "--upsert").code == 2
    source.write_text(f"{json.dumps(dan)}\n" * 2 + '{"type": "Person", "data": {"email": "x"}}\n', encoding="utf-8")
    assert load(*words, "--mode", "patch").code == 1
    kept = load(*words, "--mode", "patch", "--on-duplicate", "first", "--on-error", f"quarantine={tmp_path / 'bad'}")
    assert kept.code == 3
    assert "node Person: 1 patched, 0 inserted" in kept.out
    assert "1 record was replaced by another one of the same id" in kept.out
    assert kept.out.count("--mode patch --on-duplicate first") == 1
    assert len((tmp_path / "bad" / "p.jsonl").read_text("utf-8").splitlines()) == 1


def test_every_node_needs_its_edges_where_that_is_asked_for(tmp_path: Path, og: Run) -> None:
    uri, schema, source = str(tmp_path / "g.omni"), tmp_path / "g.pg", tmp_path / "in.jsonl"
    schema.write_text("node Team { name: String @key }\nedge Has: Team -> Team @card(1..)\n", encoding="utf-8")
    assert og("init", uri, "--schema", str(schema)).code == 0
    teams = ['{"type": "Team", "data": {"name": "a"}}', '{"type": "Team", "data": {"name": "b"}}']
    source.write_text("\n".join([*teams, '{"edge": "Has", "from": "a", "to": "b"}']), encoding="utf-8")
    words = ("load", uri, "--data", str(source), "--mode", "append", "--quiet")
    refused = og(*words, "--check-minimum")
    assert (refused.code, "'b' has 0 edges" in refused.err) == (1, True)
    kept = og(*words, "--check-minimum", "--on-error", f"quarantine={tmp_path / 'bad'}")
    assert (kept.code, "'b' has 0 edges" in kept.err, (tmp_path / "bad").exists()) == (1, True, False)
    assert og(*words).code == 0


def test_refused_records_are_shown_written_to_a_file_and_printed_as_json(
    store: str, tmp_path: Path, load, og: Run
) -> None:
    report = tmp_path / "report.json"
    result = load(store, "--data", BROKEN, "--mode", "append", "--report", str(report))
    assert result.code == 1
    assert result.out == ""
    assert f"{BROKEN}:2: unknown field: Person has no property `nam`" in result.err
    written = json.loads(report.read_text())
    assert written["total"] == 3
    as_json = load(store, "--data", BROKEN, "--mode", "append", "--json", "--quiet")
    body = json.loads(as_json.out)
    assert body["code"] == "bad_request"
    assert body["report"] == written
    assert json.loads(og("snapshot", store, "--json").out)["graph_manifest_version"] == 1


def test_a_dry_run_writes_nothing_and_an_id_that_exists_is_a_key_conflict(store: str, load, og: Run) -> None:
    result = load(store, "--data", MORE, "--mode", "append", "--dry-run", "--quiet")
    assert result.code == 0
    assert "3 records would be loaded into main (append); nothing was written" in result.out
    assert og("snapshot", store, "--json").json()["graph_manifest_version"] == 1
    load(store, "--data", MORE, "--mode", "append")
    result = load(store, "--data", MORE, "--mode", "append", "--json", "--quiet")
    assert (result.code, result.json()["kind"]) == (1, "key_conflict")
    assert result.json()["key_conflict"]["entity_id"] in ("ada@example.org", "dan@example.org")


def test_a_branch_is_created_with_its_data_and_a_typo_is_not(store: str, load) -> None:
    typo = load(store, "--data", MORE, "--mode", "append", "--branch", "imprt")
    assert typo.code == 1
    assert "there is no branch `imprt`" in typo.err
    made = load(store, "--data", MORE, "--mode", "append", "--branch", "import", "--from", "main")
    assert "on import, a new branch from main (append)" in made.out


def test_ingest_is_a_deprecated_merge_of_forgiving_grammar(store: str, tmp_path: Path, og: Run) -> None:
    data = tmp_path / "old.jsonl"
    data.write_text('{"type": "Person",\n "data": {"email": "x@y", "name": "X", "shoe": 42}}')
    result = og("ingest", store, "--data", str(data), "--quiet")
    assert result.code == 0, result.err
    assert result.err == "`ingest` is deprecated: use `load --mode merge`\n"
    assert "1 record in commit" in result.out
    assert "ingest" not in og("--help").out


@pytest.mark.parametrize(
    ("heights", "said"), [(["tall"], "1 value that does not fit was"), ([True, "x"], "2 values that do not fit were")]
)
def test_values_that_become_null_are_told(store: str, tmp_path: Path, load, heights: list[object], said: str) -> None:
    data = tmp_path / "old.jsonl"
    people = [
        {"type": "Person", "data": {"email": f"{n}@y", "name": "X", "height": height}}
        for n, height in enumerate(heights)
    ]
    data.write_text("\n".join(map(json.dumps, people)), encoding="utf-8")
    words = ["--data", str(data), "--mode", "merge", "--grammar", "compatible", "--quiet"]
    line = f"Person.height: {said} stored as null; `--grammar strict --dry-run` shows them"
    assert load(store, *words).out.splitlines()[1] == line
    assert load(store, *words, "--json").json()["nulled"] == {"Person.height": len(heights)}
    strict = load(store, "--data", str(data), "--mode", "merge", "--dry-run")
    assert strict.code == 1
    assert "invalid value for Person.height" in strict.err


# ---- `omnigraph queries`: the stored queries of a server, listed and checked before it starts


SCHEMA = "node Paper { doi: String @key  year: I32? }"
GOOD = """
query by_year($y: I32?, $tags: [String]) @description("Papers of one year.") @instruction("Four digits.")
{ match { $p: Paper { year: $y } } return { $p.doi } }
query add($doi: String) { insert Paper { doi: $doi } }
"""
BAD = "query titles() { match { $p: Paper } return { $p.title } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "papers.gq").write_text(GOOD)
    (tmp_path / "schema.pg").write_text(SCHEMA)
    Graph.init(tmp_path / "papers.omni", SCHEMA).close()
    (tmp_path / "serve.yaml").write_text(
        "graphs: {papers: {store: papers.omni, queries: queries}, other: {store: other.omni}}"
    )
    return tmp_path


def test_a_list_says_what_a_caller_needs_to_know(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--config", str(folder / "serve.yaml"), "--graph", "papers")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "mutation add(doi: string)",
        "         tool: add",
        "read     by_year(y: int?, tags: list of string)",
        "         Papers of one year.",
        "         instruction: Four digits.",
        "         tool: by_year",
    ]


def test_a_list_as_json_is_the_catalog_and_may_be_empty(og: Run, folder: Path) -> None:
    done = og("queries", "list", "--queries", str(folder / "queries"), "--json")
    assert [(entry["name"], entry["mutation"]) for entry in done.json()["queries"]] == [
        ("add", True),
        ("by_year", False),
    ]
    config = ("--config", str(folder / "serve.yaml"))
    done = og("queries", "list", *config, "--graph", "other")
    assert (done.code, done.out) == (0, "no stored queries\n")
    done = og("queries", "validate", *config, "--graph", "papers")
    assert (done.code, done.out) == (0, "2 queries, 0 breakages, 0 warnings\n")
    done = og("queries", "list", *config)
    assert (done.code, "there are 2 graphs, name one: other, papers" in done.err) == (1, True)


@pytest.mark.parametrize("against", [("--store", "papers.omni"), ("--schema", "schema.pg")])
def test_a_query_that_does_not_fit_fails_with_its_place(og: Run, folder: Path, against: tuple[str, str]) -> None:
    bad = folder / "queries" / "bad.gq"
    bad.write_text(BAD)
    flag, name = against
    done = og("queries", "validate", "--queries", str(folder / "queries"), flag, str(folder / name))
    assert done.code == 1
    assert f"{bad}:1:47: error T6" in done.out
    assert done.out.endswith("3 queries, 1 breakage, 0 warnings\n")


def test_a_validation_as_json_is_a_report_even_when_a_file_does_not_parse(og: Run, folder: Path) -> None:
    (folder / "queries" / "bad.gq").write_text("query (")
    done = og(
        *("queries", "validate", "--queries", str(folder / "queries")),
        *("--schema", str(folder / "schema.pg"), "--json"),
    )
    report = json.loads(done.out)
    assert done.code == 1
    assert (report["ok"], len(report["breakages"]), report["warnings"]) == (False, 1, [])
    assert report["breakages"][0]["code"] == "Q000"


def test_the_list_of_a_server_is_that_of_its_configuration(og: Run, folder: Path) -> None:
    config = single_graph(folder / "papers.omni", queries=folder / "queries")
    service = open_service(config, ServerSettings(), unauthenticated=True, environment={})
    files = og("queries", "list", "--queries", str(folder / "queries"))
    with capture_logs(), listening(service) as url:
        served = og("queries", "list", "--server", url, "--graph", "default")
    assert (served.code, served.err) == (0, "")
    assert served.out == files.out
