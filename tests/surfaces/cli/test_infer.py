"""`omnigraph infer`, and `init --from-data`: a schema, a mapping and a graph from files alone."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from support.cli_graphs import Run

SCHEMA = """\
// Proposed from people.csv. A comment says what a guess rests on: change what you know better.

// people.csv, 3 rows
node Person {
    person_id: I64 @key  // `id`: whole numbers 1 to 3; different in all 3 rows
    name: String         // 3 different texts
}

// `boss_id` of people.csv: its value is a key of Person; 1 row is empty
edge HasBoss: Person -> Person @card(0..1)
"""
MAPPING = """\
# Which files feed which types, and how they are read.
# An edge with an `id` replaces itself when it is loaded again with --mode merge.
nodes:
  Person:
    source: {folder}people.csv
    columns: {{id: person_id, name: name}}
edges:
  HasBoss:
    source: {folder}people.csv
    from: id
    to: boss_id  # its value is a key of Person; 1 row is empty
    id: id
    columns: {{}}
    skip_null: true  # a row without a value is not an edge
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three people, and a text that is not a table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/people.csv").write_text("id,name,boss_id\n1,Ada,\n2,Bo,1\n3,Cy,1\n", encoding="utf-8")
    (tmp_path / "data/readme.md").write_text("# notes\n", encoding="utf-8")
    return tmp_path


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let a person at a terminal answer."""
    given = io.StringIO(text)
    monkeypatch.setattr(given, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", given)


def test_both_texts_are_printed_where_no_file_is_named(og: Run, folder: Path) -> None:
    done = og("infer", "data")
    assert (done.code, done.out) == (0, f"{SCHEMA}\n{MAPPING.format(folder='data/')}")
    assert done.err == "left out: readme.md: not a table\n"


def test_files_are_written_and_say_what_to_do_with_them(og: Run, folder: Path) -> None:
    done = og("infer", "data", "--schema-out", "s.pg", "--mapping-out", "data/m.yaml")
    assert done.out.splitlines() == [
        "schema: s.pg (1 node type, 1 edge type)",
        "mapping: data/m.yaml",
        "omnigraph init GRAPH --schema s.pg",
        "omnigraph load GRAPH --mapping data/m.yaml --mode append",
    ]
    assert Path("s.pg").read_text(encoding="utf-8") == SCHEMA
    assert Path("data/m.yaml").read_text(encoding="utf-8") == MAPPING.format(folder="")
    assert og("init", "g.omni", "--schema", "s.pg").code == 0
    assert og("load", "g.omni", "--mapping", "data/m.yaml", "--mode", "append", "--quiet").code == 0


def test_no_file_is_replaced_without_force(og: Run, folder: Path) -> None:
    Path("m.yaml").write_text("mine", encoding="utf-8")
    done = og("infer", "data", "--schema-out", "s.pg", "--mapping-out", "m.yaml")
    assert done.code == 1
    assert "m.yaml exists: choose another name, or replace it with --force" in done.err
    assert not Path("s.pg").exists()
    assert og("infer", "data", "--schema-out", "s.pg", "--mapping-out", "m.yaml", "--force").code == 0
    assert Path("m.yaml").read_text(encoding="utf-8") == MAPPING.format(folder="data/")


def test_one_text_goes_to_a_file_and_the_other_is_printed(og: Run, folder: Path) -> None:
    done = og("infer", "data/people.csv", "--schema-out", "s.pg")
    assert done.out == f"{MAPPING.format(folder='data/')}schema: s.pg (1 node type, 1 edge type)\n"


def test_the_proposal_as_a_document(og: Run, folder: Path) -> None:
    document = json.loads(og("infer", "data", "--json").out)
    assert document["schema"] == SCHEMA
    assert (document["schema_out"], document["mapping_out"]) == (None, None)
    assert document["left_out"] == [{"name": "readme.md", "reason": "not a table"}]
    person, boss = document["types"]
    assert (person["kind"], person["name"], person["key"]) == ("node", "Person", ["person_id"])
    assert person["properties"][1] == {
        "name": "name",
        "type": "String",
        "column": "name",
        "evidence": "3 different texts",
    }
    assert [end["node"] for end in boss["ends"]] == ["Person", "Person"]


@pytest.mark.parametrize(("source", "text"), [("none", "there is no such file"), ("data/readme.md", "is not a table")])
def test_what_cannot_be_looked_at_is_explained(og: Run, folder: Path, source: str, text: str) -> None:
    done = og("infer", source)
    assert (done.code, done.out) == (1, "")
    assert text in done.err


def test_a_graph_from_data_alone(og: Run, folder: Path) -> None:
    done = og("init", "g.omni", "--from-data", "data", "--yes")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:3] == [f"initialized {folder}/g.omni", "node Person: 3", "edge HasBoss: 2"]
    assert lines[-2:] == ["schema: g.pg", "mapping: g.yaml"]
    assert Path("g.pg").read_text(encoding="utf-8") == SCHEMA
    assert Path("g.yaml").read_text(encoding="utf-8") == MAPPING.format(folder="data/")
    again = og("load", "g.omni", "--mapping", "g.yaml", "--mode", "merge", "--quiet")
    assert "node Person: 3" in again.out
    with Graph.open("g.omni", read_only=True) as graph:
        assert graph.schema == SCHEMA
        assert {pin.row_count for pin in graph.snapshot().pins.values()} == {3, 2}


def test_a_person_is_asked_and_may_say_no(og: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "no\n")
    done = og("init", "g.omni", "--from-data", "data")
    assert done.code == 1
    assert done.out == f"{SCHEMA}\n{MAPPING.format(folder='data/')}"
    assert done.err.endswith("Create g.omni with 1 node type, 1 edge type and load it? [yes/no] ")
    assert [path.name for path in folder.iterdir()] == ["data"]
    answer(monkeypatch, "yes\n")
    assert og("init", "g.omni", "--from-data", "data").code == 0
    assert {path.name for path in folder.iterdir()} == {"data", "g.omni", "g.pg", "g.yaml"}


def test_without_a_terminal_consent_is_needed(og: Run, folder: Path) -> None:
    done = og("init", "g.omni", "--from-data", "data")
    assert done.code == 2
    message = " ".join(done.err.replace("│", " ").split())
    assert (
        "--from-data asks before it creates a graph: give --yes, or look first with `omnigraph infer data`" in message
    )
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_records_that_do_not_fit_the_proposal_go_to_a_quarantine(og: Run, folder: Path) -> None:
    with Path("data/people.csv").open("a", encoding="utf-8") as file:
        file.write("4,Di,1,7\n5,Ed\n")
    assert og("init", "g.omni", "--from-data", "data", "--yes").code == 1
    assert not Path("g.omni").exists()
    done = og("init", "g.omni", "--from-data", "data", "--yes", "--on-error", "quarantine=bad")
    assert done.code == 3
    assert "4 bad records in " in done.out
    assert Path("bad/nodes/Person/people.csv").read_text("utf-8") == "id,name,boss_id\n4,Di,1,7\n5,Ed\n"
    for kind in ("nodes/Person", "edges/HasBoss"):
        Path(f"bad/{kind}/people.csv").write_text("id,name,boss_id\n4,Di,1\n5,Ed,\n", encoding="utf-8")
    assert og("load", "g.omni", "--mapping", "bad/mapping.yaml", "--mode", "append").code == 0
    with Graph.open("g.omni", read_only=True) as graph:
        assert {pin.row_count for pin in graph.snapshot().pins.values()} == {5, 3}


def test_without_data_there_are_no_records_to_keep(og: Run, folder: Path) -> None:
    Path("s.pg").write_text(SCHEMA, encoding="utf-8")
    done = og("init", "g.omni", "--schema", "s.pg", "--on-error", "quarantine=bad")
    assert (done.code, Path("g.omni").exists()) == (2, False)


def test_files_that_are_there_are_kept(og: Run, folder: Path) -> None:
    Path("g.pg").write_text("mine", encoding="utf-8")
    done = og("init", "g.omni", "--from-data", "data", "--yes")
    assert done.code == 1
    assert "g.pg exists" in done.err
    assert {path.name for path in folder.iterdir()} == {"data", "g.pg"}
    document = json.loads(og("init", "g.omni", "--from-data", "data", "--yes", "--force", "--json").out)
    assert (document["schema_out"], document["mapping_out"]) == ("g.pg", "g.yaml")
    assert document["load"]["total_entities"] == 5


@pytest.mark.parametrize("words", [(), ("--schema", "s.pg", "--from-data", "data")])
def test_a_graph_has_one_beginning(og: Run, folder: Path, words: tuple[str, ...]) -> None:
    done = og("init", "g.omni", *words)
    assert done.code == 2
    assert "give one of --schema FILE and --from-data FOLDER" in " ".join(done.err.replace("│", " ").split())
