"""`omnigraph embed` as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCHEMA = 'node Note { slug: String @key  body: String?  vec: Vector(4)? @embed("body") }'
SPEC = '{"dimension": 4, "types": {"Note": {"target": "vec", "fields": ["body"]}}}'
NOTES = "".join(
    json.dumps({"type": "Note", "data": {"slug": slug, "body": body}}) + "\n"
    for slug, body in (("a", "x"), ("b", "y"), ("c", None))
)


@pytest.fixture(autouse=True)
def _mock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "notes.jsonl").write_text(NOTES)
    (tmp_path / "spec.json").write_text(SPEC)
    named = {"--input": "notes.jsonl", "--output": "out.jsonl", "--spec": "spec.json"}
    return [word for flag, name in named.items() for word in (flag, str(tmp_path / name))]


@pytest.fixture
def store(tmp_path: Path, og) -> str:
    uri = str(tmp_path / "notes.omni")
    (tmp_path / "notes.pg").write_text(SCHEMA)
    (tmp_path / "notes.jsonl").write_text(NOTES)
    assert og("init", uri, "--schema", str(tmp_path / "notes.pg")).code == 0
    data = ["--data", str(tmp_path / "notes.jsonl"), "--mode", "append", "--engine", "local"]
    assert og("load", uri, *data).code == 0
    return uri


def test_a_file_gets_its_vectors_and_a_summary(tmp_path: Path, og, files: list[str]) -> None:
    result = og("embed", *files)
    assert result.code == 0
    assert result.out == (f"3 records, 3 selected, embedded 3 with mock (fill_missing)\n{tmp_path}/out.jsonl\n")
    assert result.err.startswith("embed: 3 rows in ")
    cleaned = og("embed", *files, "--clean", "--json", "--quiet")
    assert (json.loads(cleaned.out)["mode"], json.loads(cleaned.out)["model"]) == ("clean", "")
    assert cleaned.err == ""


def test_a_manifest_stands_for_the_files(tmp_path: Path, og) -> None:
    (tmp_path / "notes.jsonl").write_text(NOTES)
    manifest = tmp_path / "seed.yaml"
    manifest.write_text(f"sources: {{raw_seed: notes.jsonl}}\nembeddings: {SPEC}\n")
    words = ["--type", "Note", "--select", "slug=a", "--json"]
    body = json.loads(og("embed", "--seed", str(manifest), *words).out)
    assert (body["mode"], body["embedded_records"]) == ("reembed_selected", 1)
    assert (tmp_path / "build" / "seed.embedded.jsonl").exists()
    other = str(tmp_path / "other.jsonl")
    assert og("embed", "--seed", str(manifest), "--output", other).out.endswith(f"{other}\n")


def test_a_wrong_line_is_a_failure_with_its_number(tmp_path: Path, og, files: list[str]) -> None:
    (tmp_path / "notes.jsonl").write_text('{"type":"Note"}\n')
    result = og("embed", *files)
    assert result.code == 1
    assert "line 1" in result.err


def test_a_graph_is_embedded_once(store: str, og) -> None:
    before = og("embed", "--graph", store, "--dry-run")
    assert before.out.splitlines() == ["node:Note.vec: 2 missing", "2 rows would change on main; nothing was written"]
    result = og("embed", "--graph", store, "--as", "ann", "--engine", "local", "--type", "Note")
    assert result.code == 0
    assert result.err.splitlines()[0] == f"embed {store} (direct, local)"
    assert result.out.splitlines()[1].startswith("2 texts embedded with mock; commit ")
    again = og("embed", "--graph", "--store", store, "--quiet")
    assert again.out == "node:Note.vec: up to date\nevery vector is up to date\n"
    assert again.err == ""


def test_the_receipt_as_json_names_the_commit(store: str, og) -> None:
    words = ["--json", "--quiet", "--reembed-all", "--rate", "1000000", "--as", "ann"]
    body = json.loads(og("embed", "--graph", store, *words).out)
    assert body["properties"] == [
        {
            "type_key": "node:Note",
            "property": "vec",
            "missing": 2,
            "outdated": 0,
            "cleared": 0,
            "kept": 0,
            "embedded": 2,
            "reused": 0,
            "checked_since": None,
        }
    ]
    assert (body["rows"], body["embedded"], body["model"]) == (2, 2, "mock")
    assert body["commit"]["actor_id"] == body["actor_id"] == "ann"


def test_an_unknown_type_is_a_failure(store: str, og) -> None:
    result = og("embed", "--graph", store, "--type", "Nota")
    assert (result.code, "Note" in result.err) == (1, True)
