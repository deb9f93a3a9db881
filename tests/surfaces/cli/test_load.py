"""`omnigraph load` and `ingest` as a person or a script uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    return lambda *words: og("load", *words, "--engine", "local")


def test_the_receipt_counts_every_type_and_progress_goes_to_stderr(store: str, load) -> None:
    result = load(store, "--mapping", MAPPING, "--mode", "append")
    assert result.code == 0
    assert result.out.splitlines()[:2] == ["node Person: 3", "edge Knows: 2"]
    assert result.out.splitlines()[2].startswith("5 records in commit ")
    lines = result.err.splitlines()
    assert lines[0] == f"load into {store} (direct, local)"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "write fragments",
        "check relations",
        "commit",
    ]
    assert "5 rows in" in lines[1]


def test_the_receipt_as_json_names_the_commit(store: str, load, og) -> None:
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
        1: "1 record was replaced by a later one of the same id",
        2: "2 records were replaced by later ones of the same id",
    }
    assert lines[:2] == [f"node Person: 2 ({2 + times} read)", said[times]]
    assert lines[2].startswith("2 records in commit ")
    again = load(store, "--data", str(data), "--mode", "merge", "--quiet", "--json")
    body = json.loads(again.out)
    assert (body["total_entities"], body["superseded"]) == (2 + times, times)


def test_refused_records_are_shown_written_to_a_file_and_printed_as_json(
    store: str, tmp_path: Path, load, og
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


def test_an_id_that_exists_is_a_key_conflict(store: str, load) -> None:
    load(store, "--data", MORE, "--mode", "append")
    result = load(store, "--data", MORE, "--mode", "append", "--json", "--quiet")
    body = json.loads(result.out)
    assert result.code == 1
    assert body["kind"] == "key_conflict"
    assert body["key_conflict"]["entity_id"] in ("ada@example.org", "dan@example.org")


def test_a_dry_run_writes_nothing(store: str, load, og) -> None:
    result = load(store, "--data", MORE, "--mode", "append", "--dry-run", "--quiet")
    assert result.code == 0
    assert "3 records would be loaded into main (append); nothing was written" in result.out
    assert json.loads(og("snapshot", store, "--json").out)["graph_manifest_version"] == 1


def test_a_branch_is_created_with_its_data_and_a_typo_is_not(store: str, load) -> None:
    typo = load(store, "--data", MORE, "--mode", "append", "--branch", "imprt")
    assert typo.code == 1
    assert "there is no branch `imprt`" in typo.err
    made = load(store, "--data", MORE, "--mode", "append", "--branch", "import", "--from", "main")
    assert "on import, a new branch from main (append)" in made.out


def test_ingest_is_a_deprecated_merge_of_forgiving_grammar(store: str, tmp_path: Path, og) -> None:
    data = tmp_path / "old.jsonl"
    data.write_text('{"type": "Person",\n "data": {"email": "x@y", "name": "X", "shoe": 42}}')
    result = og("ingest", store, "--data", str(data), "--engine", "local", "--quiet")
    assert result.code == 0, result.err
    assert result.err == "`ingest` is deprecated: use `load --mode merge`\n"
    assert "1 record in commit" in result.out
    assert "ingest" not in og("--help").out


@pytest.mark.parametrize(
    ("heights", "said"),
    [(["tall"], "1 value that does not fit was"), ([True, "x"], "2 values that do not fit were")],
)
def test_values_that_become_null_are_told(
    store: str, tmp_path: Path, load, heights: list[object], said: str
) -> None:
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", MORE], "give --mode append, merge or overwrite"),
        (["--mode", "append"], "give one of --data PATH and --mapping FILE"),
        (["--data", MORE, "--mapping", MAPPING, "--mode", "append"], "give one of --data PATH"),
        (["--data", MORE, "--mode", "upsert"], "'upsert' is not one of"),
    ],
)
def test_a_wrong_call_is_a_usage_error(store: str, words: list[str], message: str, load) -> None:
    result = load(store, *words)
    assert result.code == 2
    assert message in result.err


def test_overwriting_a_remote_graph_needs_consent(load) -> None:
    result = load("s3://bucket/graph", "--data", MORE, "--mode", "overwrite", "--json")
    assert result.code == 2
    assert "give --yes" in result.json()["error"]
