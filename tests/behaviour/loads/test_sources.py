"""What a load reads and what it does with it: files, mapped tables, frames, modes, branches, refusals."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    ResourceLimitError,
)
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.shape.shaping import alias_conflicts
from omnigraph.pipeline.sources import parts as parts_module
from support.graphs import ends_of, everything, ids_of, refused, rejected, rows_of, run
from support.subtests import each_case, named_cases

SCHEMA = """
node Person { name: String @key age: I32? city: String? }
node Team { code: I64 @key title: String? }
node Slot { series: String number: I32 @key(series, number) }
node Day { day: Date @key }
node Note { text: String? }
edge Knows: Person -> Person { since: I32? }
edge On: Person -> Team { role: String? }
edge At: Person -> Slot
edge Seen: Person -> Day
"""
VALUES = """
node Thing {
    name: String @key  flag: Bool?  big: I64?  unsigned: U64?  half: F32?  real: F64?  day: Date?  at: DateTime?
    stage: enum(draft, final)?  tags: [String]?  counts: [I64]?  vec: Vector(2)?  data: Blob?
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph for tests whose loads are refused."""
    found = Graph.init(tmp_path_factory.mktemp("untouched") / "g.omni", SCHEMA)
    run(found, 'insert Person { name: "there" }')
    return found


def person(name: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **data}}, ensure_ascii=False)


def note(name: str, text: str) -> str:
    return json.dumps({"type": "Note", "data": {"id": name, "text": text}})


def knows(source: str, target: str, **data: Any) -> str:
    return json.dumps({"edge": "Knows", "from": source, "to": target, "data": data})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def load(graph: Graph, source: Any = None, mode: str = "merge", **rest: Any) -> Any:
    return graph.load(source, mode=mode, engine="local", **rest)


def texts(graph: Graph, branch: str = "main") -> dict[str, str]:
    return {row["id"]: row["text"] for row in rows_of(graph, "node:Note", branch)}


def people(graph: Graph, branch: str = "main") -> dict[str, tuple[int | None, str | None]]:
    rows = rows_of(graph, "node:Person", branch)
    return {row["id"]: (row["age"], row["city"]) for row in rows}


# ---- graph records in files


def test_a_file_with_everything_that_editors_leave_behind(graph: Graph, folder: Path) -> None:
    path = folder / "all.jsonl"
    content = "\r\n".join(
        ["// written by hand", person("ä", age=1), "", "   ", "  // more", knows("ä", "b"), person("b")]
    )
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    result = load(graph, path, "append")
    assert people(graph) == {"ä": (1, None), "b": (None, None)}
    assert ends_of(graph, "edge:Knows") == [("ä", "b")]
    assert (result.nodes_loaded, result.edges_loaded) == ({"Person": 2}, {"Knows": 1})


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "anything"])
def test_a_file_that_is_named_may_have_any_ending(graph: Graph, folder: Path, ending: str) -> None:
    load(graph, str(write(folder / f"x.{ending}", person("a"))))
    assert ids_of(graph, "node:Person") == {"a"}


@pytest.mark.parametrize("packing", ["gz", "zst", "bz2"])
@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_packed_files(graph: Graph, folder: Path, packing: str, grammar: str) -> None:
    path = folder / f"x.jsonl.{packing}"
    kind = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}[packing]
    with pa.output_stream(str(path), compression=kind) as stream:
        stream.write(f"{person('a')}\n{person('b')}".encode())
    load(graph, path, grammar=grammar)
    assert ids_of(graph, "node:Person") == {"a", "b"}


def test_a_damaged_packed_file_is_named(graph: Graph, folder: Path) -> None:
    path = folder / "x.jsonl.gz"
    whole = gzip.compress("\n".join(person(f"p{n}") for n in range(500)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with refused(graph, InputFileError, str(path)):
        load(graph, path)
    path.write_bytes(b"no archive")
    with refused(graph, InputFileError, str(path), "damaged"):
        load(graph, path)


def test_a_directory_is_read_in_the_order_of_paths(graph: Graph, folder: Path) -> None:
    (folder / "deep").mkdir()
    write(folder / "b.jsonl", note("n", "b"), note("m", "b"))
    write(folder / "a.jsonl", note("n", "a"))
    write(folder / "deep" / "c.ndjson", note("n", "c"))
    write(folder / "_hidden.jsonl", "broken")
    write(folder / ".hidden.jsonl", "broken")
    write(folder / "readme.txt", "broken")
    result = load(graph, folder)
    assert texts(graph) == {"n": "c", "m": "b"}
    assert result.superseded == 2
    assert result.nodes_loaded == {"Note": 4}


def test_a_pattern_chooses_files(graph: Graph, folder: Path) -> None:
    (folder / "deep").mkdir()
    for name in ("a1.jsonl", "a2.jsonl", "b1.jsonl", "deep/a3.jsonl"):
        write(folder / name, note(name, ""))
    load(graph, folder / "a?.jsonl", "append")
    assert set(texts(graph)) == {"a1.jsonl", "a2.jsonl"}
    # `**` stands for no folder as well.
    load(graph, f"{folder}/**/a*.jsonl")
    assert set(texts(graph)) == {"a1.jsonl", "a2.jsonl", "deep/a3.jsonl"}
    load(graph, f"file://{folder}/b*", "append")
    assert "b1.jsonl" in texts(graph)


def test_a_pattern_in_a_uri_may_have_brackets(graph: Graph, folder: Path) -> None:
    write(folder / "b1.jsonl", note("n", ""))
    load(graph, f"file://{folder}/[b]*", "append")
    assert set(texts(graph)) == {"n"}


def test_a_folder_whose_name_looks_like_a_pattern(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = folder / "data [old]"
    strange.mkdir()
    write(strange / "x.jsonl", person("a"))
    monkeypatch.chdir(strange)
    load(graph, "x.jsonl")
    assert ids_of(graph, "node:Person") == {"a"}


def test_many_small_files_are_one_commit(graph: Graph, folder: Path) -> None:
    for number in range(25):
        write(folder / f"{number:02}.jsonl", person(f"p{number}"), note("same", str(number)))
    before = len(graph.commits())
    result = load(graph, folder)
    assert len(graph.commits()) == before + 1
    assert len(people(graph)) == 25
    assert texts(graph) == {"same": "24"}
    assert (result.superseded, result.rows["node:Note"]) == (24, 25)


def test_parts_of_a_file_keep_their_order_and_their_lines(
    graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "_SMALLEST_PART_BYTES", 70)
    monkeypatch.setattr(parts_module, "_LARGEST_PART_BYTES", 70)
    first = write(folder / "1.jsonl", *(note(f"n{n % 4}", str(n)) for n in range(25)))
    write(folder / "2.jsonl", note("n0", "second"), *(note("n9", str(n)) for n in range(5)))
    assert first.stat().st_size > 10 * 70
    result = load(graph, folder)
    assert texts(graph) == {"n0": "second", "n1": "21", "n2": "22", "n3": "23", "n9": "4"}
    assert result.superseded == 31 - 5
    generated = write(folder / "1.jsonl", *('{"type":"Note"}' for _ in range(30)))
    load(graph, generated, "append")
    assert len(texts(graph)) == 35
    bad = write(folder / "1.jsonl", *(person("ok"),) * 11, person("x", age="y"), person("z"))
    (found,) = rejected(graph, lambda: load(graph, bad))
    assert (found.source, found.line, found.field, found.value) == (str(bad), 12, "age", "y")
    twice = write(folder / "1.jsonl", *(person(f"q{n}") for n in range(9)), "", person("q3"))
    (found,) = rejected(graph, lambda: load(graph, twice, "append"))
    assert (found.rule, found.value, found.field) == ("duplicate id of Person", "q3", "id")
    assert found.line in (4, 11)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"// nothing\n", b"\xef\xbb\xbf"])
def test_an_empty_input_still_commits(graph: Graph, folder: Path, mode: str, content: bytes) -> None:
    run(graph, 'insert Person { name: "a" }')
    before = everything(graph)
    (folder / "x.jsonl").write_bytes(content)
    result = load(graph, folder, mode)
    assert result.commit is not None
    assert graph.commits()[0].commit_id == result.commit.commit_id
    assert result.to_json()["total_entities"] == 0
    assert everything(graph) == before


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("missing.jsonl", InputFileError, "there is no such file or directory"),
        ("*.nothing", InputFileError, "no file"),
        ("empty", InputFileError, "no file (.jsonl, .ndjson, .json) is found there"),
        ("table.csv", BadRequestError, "write a mapping"),
        ("nowhere://bucket/x", InputFileError, "nowhere"),
    ],
)
def test_a_source_that_is_none(untouched: Graph, folder: Path, given: str, error: type[Any], text: str) -> None:
    (folder / "empty").mkdir()
    write(folder / "table.csv", "name", "a")
    source = given if "://" in given else str(folder / given)
    with refused(untouched, error, source, text):
        load(untouched, source)


@pytest.mark.parametrize("given", [{}, {"mapping": {}}, {"mapping": {"nodes": {}}}])
def test_frames_without_a_frame(untouched: Graph, given: dict[str, Any]) -> None:
    with refused(untouched, BadRequestError, "there is nothing to load: give a frame per type"):
        load(untouched, frames={}, **given)


@pytest.mark.parametrize("given", [[], pa.table({"name": ["a"]})])
def test_frames_without_their_types(untouched: Graph, given: Any) -> None:
    with refused(untouched, BadRequestError, "give a frame per type, as in frames="):
        load(untouched, frames=given)
    with refused(untouched, BadRequestError, "is no path: give a frame per type"):
        untouched.load([{"name": "a"}], mode="append")  # type: ignore[arg-type]


def test_exactly_one_input(untouched: Graph, folder: Path) -> None:
    path = write(folder / "x.jsonl", person("a"))
    frames = {"Person": pa.table({"name": ["a"]})}
    for given in ({}, {"source": path, "frames": frames}, {"source": path, "mapping": {}}):
        with refused(untouched, BadRequestError, "give one input"):
            load(untouched, given.pop("source", None), **given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "replace"}, "there is no mode 'replace': give append, merge, overwrite"),
        ({"grammar": "loose"}, "there is no grammar 'loose': give strict, compatible"),
        ({"branch": "__x"}, "__x"),
    ],
)
def test_choices_are_checked(untouched: Graph, folder: Path, options: dict[str, str], text: str) -> None:
    path = write(folder / "x.jsonl", person("a"))
    with refused(untouched, BadRequestError, text):
        load(untouched, path, **({"mode": "merge"} | options))
    with refused(untouched, BadRequestError, "engine"):
        untouched.load(path, mode="merge", engine="hadoop")


# ---- mapped files

PEOPLE = pa.table({"full_name": ["a", "b"], "years": pa.array([1, None], pa.int64()), "noise": [0, 0]})
COLUMNS = {"full_name": "name", "years": "age"}


def _write_people(path: Path) -> None:
    rows = PEOPLE.to_pylist()
    match path.suffix:
        case ".parquet" | ".pq":
            pq.write_table(PEOPLE, path, row_group_size=1)
        case ".orc":
            orc.write_table(PEOPLE, path)
        case ".csv":
            write(path, "full_name,years,noise", "a,1,0", "b,,0")
        case ".tsv":
            write(path, "full_name\tyears\tnoise", "a\t1\t0", "b\t\t0")
        case ".jsonl":
            write(path, *(json.dumps(row) for row in rows))
        case ".json":
            path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
        case _:
            with gzip.open(path, "wt", encoding="utf-8") as file:
                file.write("full_name,years,noise\na,1,0\nb,,0\n")


@pytest.mark.parametrize("name", ["p.parquet", "p.pq", "p.orc", "p.csv", "p.tsv", "p.jsonl", "p.json", "p.csv.gz"])
@pytest.mark.parametrize("form", ["dict", "yaml"])
def test_every_format_with_renamed_columns(graph: Graph, folder: Path, name: str, form: str) -> None:
    _write_people(folder / name)
    mapping: Any = {"nodes": {"Person": {"source": str(folder / name), "columns": COLUMNS}}}
    if form == "yaml":
        mapping = write(
            folder / "m.yaml",
            "nodes:",
            "  Person:",
            f"    source: {name}  # relative to this file",
            "    columns: {full_name: name, years: age}",
        )
    result = load(graph, mapping=mapping, mode="append")
    assert people(graph) == {"a": (1, None), "b": (None, None)}
    assert result.nodes_loaded == {"Person": 2}


def test_the_format_may_be_given(graph: Graph, folder: Path) -> None:
    (folder / "d").mkdir()
    write(folder / "d" / "1.txt", "name;age", '"x;y";1')
    write(folder / "d" / "2", "name;age", "b;2")
    body = {"source": str(folder / "d"), "format": "csv", "delimiter": ";"}
    load(graph, mapping={"nodes": {"Person": body}})
    assert people(graph) == {"x;y": (1, None), "b": (2, None)}


def test_the_ways_of_csv(graph: Graph, folder: Path) -> None:
    path = folder / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf" + b'"name",city,age\r\n"a ""q""","",1\r\nb,NA,\r\n\r\nc," x, y ",3')
    body = {"source": str(path)}
    with refused(graph, LoadRejectedError) as caught:
        load(graph, mapping={"nodes": {"Person": body | {"null": "NA"}}})
    assert caught.value.report.totals == {"invalid value for Person.age": 1}  # type: ignore[attr-defined]  # as above
    load(graph, mapping={"nodes": {"Person": body}})
    assert people(graph) == {'a "q"': (1, ""), "b": (None, "NA"), "c": (3, " x, y ")}


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "orc"])
def test_a_source_of_which_no_column_is_read_has_its_records(graph: Graph, folder: Path, ending: str) -> None:
    path = folder / f"n.{ending}"
    match ending:
        case "csv":
            write(path, "x", "1", "2")
        case "json":
            write(path, '{"x": 1}', '{"x": 2}')
        case "parquet":
            pq.write_table(pa.table({"x": [1, 2]}), path)
        case _:
            orc.write_table(pa.table({"x": [1, 2]}), str(path))
    entry = {"source": str(path), "columns": {}, "properties": {"text": {"constant": "t"}}}
    load(graph, mapping={"nodes": {"Note": entry}})
    assert [row["text"] for row in rows_of(graph, "node:Note")] == ["t", "t"]


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.tsv.zst", "x.tsv.bz2"])
def test_tabs_by_the_ending_of_each_file(graph: Graph, folder: Path, name: str) -> None:
    write(folder / "a.csv", "name,age", "a,1")
    packing = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}.get(name.rpartition(".")[2])
    with pa.output_stream(str(folder / name), compression=packing) as stream:
        stream.write(b"name\tage\nb,c\t2\n")
    load(graph, mapping={"nodes": {"Person": {"source": str(folder)}}})
    assert people(graph) == {"a": (1, None), "b,c": (2, None)}


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "orc"])
def test_folders_of_partitions_are_columns(graph: Graph, folder: Path, ending: str) -> None:
    for number, name in enumerate(("city=K%C3%B6ln/age=7", "city=__HIVE_DEFAULT_PARTITION__/age=8")):
        path = folder / name / f"x.{ending}"
        path.parent.mkdir(parents=True)
        match ending:
            case "csv":
                write(path, "name", f"p{number}")
            case "json":
                write(path, json.dumps({"name": f"p{number}"}))
            case "parquet":
                pq.write_table(pa.table({"name": [f"p{number}"]}), path)
            case _:
                orc.write_table(pa.table({"name": [f"p{number}"]}), str(path))
    body: dict[str, Any] = {"source": str(folder)}
    load(graph, mapping={"nodes": {"Person": body}})
    assert people(graph) == {"p0": (7, "Köln"), "p1": (8, None)}
    body |= {"columns": {"name": "name"}, "properties": {"city": {"concat": ["age", "name"]}}}
    load(graph, mapping={"nodes": {"Person": body | {"source": f"{folder}/*/age=*/x*"}}})
    assert people(graph) == {"p0": (None, "7p0"), "p1": (None, "8p1")}
    bad = folder / "age=old"
    bad.mkdir()
    write(bad / "x.csv", "name", "b")
    entry = {"source": f"{folder}/age=*/x.csv"}
    (found,) = rejected(graph, lambda: load(graph, mapping={"nodes": {"Person": entry}}))
    assert found.rule == "invalid value for Person.age"
    (folder / "year=1").mkdir()
    write(folder / "year=1" / "y.csv", "name", "y")
    with refused(graph, BadRequestError, "`year`, which a folder of the file stands for"):
        load(graph, mapping={"nodes": {"Person": {"source": f"{folder}/year=*/y.csv"}}})


def test_a_folder_may_stand_for_a_blob(tmp_path: Path, folder: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", VALUES)
    path = folder / "data=base64%3AAAE=" / "x.csv"
    path.parent.mkdir(parents=True)
    write(path, "name", "a")
    load(graph, mapping={"nodes": {"Thing": {"source": str(folder)}}})
    (row,) = rows_of(graph, "node:Thing")
    assert row["data"] == b"\x00\x01"


@pytest.mark.parametrize("multiline", [True, False])
def test_a_mapping_names_the_columns_of_a_file_that_does_not(graph: Graph, folder: Path, multiline: bool) -> None:
    path = folder / "x.dat"
    path.write_bytes(b"\xef\xbb\xbf" + b'a,1,"x"\nb,,y\n')
    entry = {"source": str(path), "format": "csv", "multiline": multiline, "header": ["name", "age", "city"]}
    load(graph, mapping={"nodes": {"Person": entry}})
    assert people(graph) == {"a": (1, "x"), "b": (None, "y")}
    path.write_bytes(b"c,1,x\nd,1\ne,old,y\n")
    found = rejected(graph, lambda: load(graph, mapping={"nodes": {"Person": entry}}))
    assert {(item.line, item.rule) for item in found} == {(2, "invalid CSV"), (3, "invalid value for Person.age")}
    path.write_bytes(b"")
    assert load(graph, mapping={"nodes": {"Person": entry}}).nodes_loaded == {"Person": 0}


def test_a_text_for_null(graph: Graph, folder: Path) -> None:
    path = write(folder / "x.csv", "name,city,age", "a,NA,NA", 'b,"NA",1', "c,,2")
    load(graph, mapping={"nodes": {"Person": {"source": str(path), "null": "NA"}}})
    assert people(graph) == {"a": (None, None), "b": (1, "NA"), "c": (2, "")}


def test_values_over_several_lines_have_to_be_announced(graph: Graph, folder: Path) -> None:
    path = write(folder / "x.csv", "name,city", 'a,"one', 'two"', "b,x")
    body = {"source": str(path)}
    load(graph, mapping={"nodes": {"Person": body | {"multiline": True}}})
    assert people(graph) == {"a": (None, "one\ntwo"), "b": (None, "x")}
    found = rejected(graph, lambda: load(graph, mapping={"nodes": {"Person": body}}))
    assert {item.rule for item in found} == {"invalid CSV"}
    assert 3 in {item.line for item in found}


def test_a_value_over_two_lines_is_never_two_records(graph: Graph, folder: Path) -> None:
    path = write(folder / "x.csv", "name,city", 'a,"one', 'two,three"')
    with refused(graph, LoadRejectedError, "invalid CSV"):
        load(graph, mapping={"nodes": {"Person": {"source": str(path)}}})


def test_a_table_with_a_header_only_is_a_type_without_rows(graph: Graph, folder: Path) -> None:
    run(graph, 'insert Person { name: "old" }')
    mapping = {"nodes": {"Person": {"source": str(write(folder / "x.csv", "name,age"))}}}
    assert load(graph, mapping=mapping).nodes_loaded == {"Person": 0}
    assert ids_of(graph, "node:Person") == {"old"}
    load(graph, mapping=mapping, mode="overwrite")
    assert ids_of(graph, "node:Person") == set()


def test_parts_of_a_table_keep_order_and_places(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_SMALLEST_PART_BYTES", 20)
    monkeypatch.setattr(parts_module, "_LARGEST_PART_BYTES", 20)
    monkeypatch.setattr(parts_module, "_PART_ROWS", 3)
    rows = [{"id": f"n{n % 3}", "text": str(n)} for n in range(20)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "1.parquet", row_group_size=2)
    write(folder / "2.csv", "id,text", *(f"n{n % 3},{n}" for n in range(20, 40)))
    write(folder / "3.jsonl", *(json.dumps(r | {"text": f"j{r['text']}"}) for r in rows))
    files = ["1.parquet", "2.csv", "3.jsonl"]
    for count, last in enumerate(({"n0": "18", "n1": "19", "n2": "17"}, {"n0": "39", "n1": "37", "n2": "38"}), 1):
        sources = [{"source": str(folder / name)} for name in files[:count]]
        result = load(graph, mapping={"nodes": {"Note": sources}})
        assert texts(graph) == last
        assert result.superseded == 20 * count - 3
    write(folder / "2.csv", "name,age", *(f"p{n},{n}" for n in range(15)), "x,1.5", "y,2")
    mapping = {"nodes": {"Person": {"source": str(folder / "2.csv")}}}
    (found,) = rejected(graph, lambda: load(graph, mapping=mapping))
    assert (found.source, found.line, found.field) == (str(folder / "2.csv"), 17, "age")
    assert (found.value, found.type_key) == ("1.5", "node:Person")
    table = pa.table({"name": [f"p{n}" for n in range(10)], "age": [2**31 if n == 7 else n for n in range(10)]})
    pq.write_table(table, folder / "p.parquet", row_group_size=2)
    mapping = {"nodes": {"Person": {"source": str(folder / "p.parquet")}}}
    (found,) = rejected(graph, lambda: load(graph, mapping=mapping))
    assert (found.line, found.value) == (8, str(2**31))


CASTS: dict[str, list[str]] = {
    "flag": ["yes", "TRUE"],
    "big": ["1.5", str(2**63), " 1"],
    "unsigned": ["-1"],
    "half": ["1e39"],
    "real": ["nan", "one", "1_000", " 1"],
    "day": ["2023-02-29"],
    "at": ["2024-01-01T25:00:00Z"],
    "stage": ["other"],
    "tags": ["a b", '["a", 1]'],
    "counts": ["[1, null]"],
    "vec": ["[1]", '[1, "2"]'],
    "data": ["base64:*", "/etc/passwd"],
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with a property of every type; tests that write into it overwrite everything."""
    return Graph.init(tmp_path_factory.mktemp("values") / "g.omni", VALUES)


@each_case(("column", "text"), [(column, text) for column, texts in CASTS.items() for text in texts])
def test_a_bad_text_is_reported_and_never_null(values: Graph, folder: Path, column: str, text: str) -> None:
    path = folder / "x.csv"
    quoted = text.replace('"', '""')
    path.write_text(f'name,{column}\na,\nb,"{quoted}"\n', encoding="utf-8")
    mapping = {"nodes": {"Thing": {"source": str(path)}}}
    (found,) = rejected(values, lambda: load(values, mapping=mapping))
    assert (found.source, found.line, found.field) == (str(path), 3, column)
    assert (found.value, found.type_key) == (text, "node:Thing")


MOMENT = datetime(2024, 2, 29, 12, 0, 0, 500_000)
#: One value of every type: as it is stored, as Arrow gives it, as a text gives it.
FORMS: dict[str, tuple[Any, pa.Array, str]] = {
    "name": ("a", pa.array(["a"]).dictionary_encode(), "a"),
    "flag": (True, pa.array([True]), "true"),
    "big": (-(2**63), pa.array([-(2**63)]), str(-(2**63))),
    "unsigned": (2**64 - 1, pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), str(2**64 - 1)),
    "half": (0.10000000149011612, pa.array([0.1]), "0.1"),
    "real": (0.1, pa.array([0.1]), "0.1"),
    "day": (date(2024, 2, 29), pa.array([date(2024, 2, 29)]), "2024-02-29"),
    "at": (MOMENT, pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")), "2024-02-29T12:00:00.5Z"),
    "stage": ("draft", pa.array(["draft"]), "draft"),
    "tags": (["x", "y"], pa.array([["x", "y"]]), '["x", "y"]'),
    "counts": ([1, -2], pa.array([[1, -2]], pa.large_list(pa.int16())), "[1, -2]"),
    "vec": ([0.5, 2.0], pa.array([[0.5, 2.0]], pa.list_(pa.float64(), 2)), "[0.5, 2]"),
    "data": (b"\x00\xff", pa.array([b"\x00\xff"]), "base64:" + base64.b64encode(b"\x00\xff").decode()),
}
EXPECTED = {"id": "a"} | {name: stored for name, (stored, _, _) in FORMS.items()}
TYPED = {name: column for name, (_, column, _) in FORMS.items()}
TEXT = {name: text for name, (_, _, text) in FORMS.items()}


@pytest.mark.parametrize("kind", ["frame", "parquet", "orc", "csv", "json", "pandas", "graph"])
def test_every_type_of_value_from_every_kind_of_source(values: Graph, folder: Path, kind: str) -> None:
    table = pa.table(TYPED)
    plain = TEXT | {"flag": True, "big": -(2**63), "unsigned": 2**64 - 1, "half": 0.1, "real": 0.1}
    plain |= {"tags": ["x", "y"], "counts": [1, -2], "vec": [0.5, 2]}
    given: dict[str, Any] = {"mapping": {"nodes": {"Thing": {"source": str(folder / f"x.{kind}")}}}}
    match kind:
        case "frame":
            given = {"frames": {"Thing": table}}
        case "pandas":
            frame = table.drop_columns(["vec", "counts"]).to_pandas()
            given = {"frames": {"Thing": frame.assign(vec=[[0.5, 2.0]], counts=[[1, -2]])}}
        case "parquet":
            pq.write_table(table, folder / "x.parquet")
        case "orc":
            index = table.schema.get_field_index("name")
            table = table.set_column(index, "name", pa.array(["a"]))
            vectors = table["vec"].cast(pa.list_(pa.float64()))
            table = table.set_column(table.schema.get_field_index("vec"), "vec", vectors)
            numbers = table["counts"].cast(pa.list_(pa.int16()))
            table = table.set_column(table.schema.get_field_index("counts"), "counts", numbers)
            orc.write_table(table, folder / "x.orc")
        case "csv":
            quoted = ('"' + text.replace('"', '""') + '"' for text in TEXT.values())
            write(folder / "x.csv", ",".join(TEXT), ",".join(quoted))
        case "json":
            (folder / "x.json").write_text(json.dumps([plain]), encoding="utf-8")
        case _:
            line = json.dumps({"type": "Thing", "data": plain})
            given = {"source": write(folder / "x.jsonl", line)}
    source = given.pop("source", None)
    load(values, source, "overwrite", **given)
    assert rows_of(values, "node:Thing") == [EXPECTED]


def test_ids_and_ends_from_columns(graph: Graph, folder: Path) -> None:
    write(folder / "people.csv", "name", "a", "b")
    write(folder / "teams.csv", "code,title", "7,x")
    pq.write_table(pa.table({"series": ["s"], "number": [3]}), folder / "slots.parquet")
    pq.write_table(pa.table({"day": [date(1970, 1, 3)]}), folder / "days.parquet")
    pq.write_table(pa.table({"key": [41, 42], "text": ["x", "y"]}), folder / "notes.parquet")
    on = pa.table({"who": ["a"], "team": pa.array([7], pa.int16()), "nr": [5], "role": ["r"]})
    pq.write_table(on, folder / "on.parquet")
    at = pa.table({"who": ["b"], "s": ["s"], "n": pa.array([3], pa.uint8())})
    pq.write_table(at, folder / "at.parquet")
    pq.write_table(pa.table({"who": ["b"], "when": [date(1970, 1, 3)]}), folder / "seen.parquet")
    mapping = write(
        folder / "all.yaml",
        "nodes:",
        "  Person: {source: people.csv}",
        "  Team: {source: teams.csv}",
        "  Slot: {source: slots.parquet}",
        "  Day: {source: days.parquet}",
        "  Note: {source: notes.parquet, id: key}",
        "edges:",
        "  'On': {source: on.parquet, from: who, to: team, id: nr, columns: {role: role}}",
        "  At: {source: at.parquet, from: who, to: {series: s, number: n}}",
        "  Seen: {source: seen.parquet, from: who, to: when}",
    )
    load(graph, mapping=mapping, mode="append")
    assert ends_of(graph, "edge:On") == [("a", "7")]
    assert ids_of(graph, "edge:On") == {"5"}
    assert ids_of(graph, "node:Note") == {"41", "42"}
    (slot,) = ids_of(graph, "node:Slot")
    assert ends_of(graph, "edge:At") == [("b", slot)]
    assert ids_of(graph, "node:Day") == {"2"}
    assert ends_of(graph, "edge:Seen") == [("b", "2")]


def test_numbers_are_ids_in_json_too(graph: Graph, folder: Path) -> None:
    write(folder / "on.jsonl", '{"who": "a", "team": 7}')
    run(graph, 'insert Person { name: "a" } insert Team { code: 7 }')
    body = {"source": str(folder / "on.jsonl"), "from": "who", "to": "team"}
    load(graph, mapping={"edges": {"On": body}})
    assert ends_of(graph, "edge:On") == [("a", "7")]


def test_an_end_without_a_value_or_with_an_unknown_one(graph: Graph, folder: Path) -> None:
    run(graph, 'insert Person { name: "a" } insert Slot { series: "s", number: 3 }')
    path = write(folder / "at.csv", "who,s,n", "a,s,3", "a,s,", ",s,3", "a,s,x", "a,s,4", "z,s,3")
    body = {"source": str(path), "from": "who", "to": {"series": "s", "number": "n"}}
    mapping = {"edges": {"At": body}}
    found = rejected(graph, lambda: load(graph, mapping=mapping))
    expected = {(3, "to"), (4, "from"), (5, "to"), (6, "to"), (7, "from")}
    assert {(item.line, item.field) for item in found} == expected
    write(path, "who,s,n", "a,s,3", "a,s,4", "z,s,3")
    found = rejected(graph, lambda: load(graph, mapping=mapping))
    assert {(item.line, item.field, item.value) for item in found} == {(3, "to", '["4","s"]'), (4, "from", "z")}


@each_case("kind", ["csv", "jsonl", "parquet", "frame"])
def test_records_without_a_key_or_an_end_are_passed_over_if_a_mapping_says_so(tmp_path: Path, kind: str) -> None:
    graph = Graph.init(tmp_path / f"{kind}.omni", SCHEMA)
    rows = [
        {"name": "a", "boss": "b", "series": "s", "number": 1},
        {"name": "b", "boss": None, "series": None, "number": 2},
        {"name": None, "boss": "-", "series": "t", "number": None},
    ]
    path = tmp_path / f"x.{kind}"
    match kind:
        case "csv":
            write(path, "name,boss,series,number", "a,b,s,1", "b,,,2", ",-,t,")
        case "jsonl":
            write(path, *map(json.dumps, rows))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    source = {} if kind == "frame" else {"source": str(path)}
    boss = {"column": "boss", "null": "-"}
    entries: dict[str, dict[str, Any]] = {
        "nodes": {
            "Person": source | {"columns": {"name": "name"}},
            "Slot": source | {"columns": {"series": "series", "number": "number"}},
        },
        "edges": {
            "Knows": source | {"from": "name", "to": boss, "columns": {}},
            "At": source | {"from": "name", "to": {"series": "series", "number": "number"}, "columns": {}},
        },
    }
    frame = pa.Table.from_pylist(rows)
    frames = {"frames": dict.fromkeys(("Person", "Slot", "Knows", "At"), frame)} if kind == "frame" else {}
    found = rejected(graph, lambda: load(graph, mapping=entries, **frames))
    assert {"missing value for Person.name", "missing `to` of Knows"} <= {item.rule for item in found}
    for types in entries.values():
        for entry in types.values():
            entry["skip_null"] = True
    loaded = load(graph, mapping=entries, **frames)
    assert (loaded.nodes_loaded, loaded.edges_loaded) == ({"Person": 2, "Slot": 1}, {"At": 1, "Knows": 1})
    assert (ends_of(graph, "edge:Knows"), ends_of(graph, "edge:At")) == ([("a", "b")], [("a", '["1","s"]')])


EACH = {
    "lists": ([["x", "y"], ["y"], [], None], {"each": "tags", "to": "tags"}, {}),
    "texts": (["x| y", "y", "", None], {"each": {"column": "tags", "split": "|", "trim": True}, "to": "tags"}, {}),
    "lists of objects": (
        [[{"of": "x", "n": 1}, {"of": "y", "n": 2}], [{"of": "y", "n": 3}], [], None],
        {"each": "tags", "to": "tags.of", "columns": {"tags.n": "since"}},
        {("a", "x"): 1, ("a", "y"): 2, ("b", "y"): 3},
    ),
    "objects": (
        [{"x": 1, "y": 2}, {"y": 3}, {}, None],
        {"each": "tags", "to": "tags.key", "columns": {"tags.value": "since"}},
        {("a", "x"): 1, ("a", "y"): 2, ("b", "y"): 3},
    ),
}


@pytest.fixture(scope="module")
def acquainted(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph of six people, of whom loads replace the edges."""
    found = Graph.init(tmp_path_factory.mktemp("acquainted") / "g.omni", SCHEMA)
    run(found, " ".join(f'insert Person {{ name: "{name}" }}' for name in "abcdxy"))
    return found


@each_case("kind", ["csv", "jsonl", "parquet", "frame", "spark"])
@named_cases(("values", "entry", "since"), EACH)
def test_each_item_of_a_list_is_a_record(
    acquainted: Graph, folder: Path, spark: Any, kind: str, values: list[Any], entry: Any, since: dict[Any, int]
) -> None:
    is_text = any(isinstance(value, str) for value in values)
    if (kind == "csv" and not is_text) or (kind == "spark" and not since):
        return
    rows = [{"name": name, "tags": value} for name, value in zip("abcd", values, strict=True)]
    path = folder / f"x.{kind}"
    items = (
        pa.map_(pa.utf8(), pa.int32())
        if isinstance(values[0], dict)
        else pa.list_(pa.struct({"of": pa.utf8(), "n": pa.int32()}))
    )
    table = pa.table({"name": list("abcd"), "tags": pa.array(values, items if since else None)})
    given: dict[str, Any] = {"engine": "local"}
    match kind:
        case "csv":
            write(path, "name,tags", *(f"{row['name']},{row['tags'] or ''}" for row in rows))
        case "jsonl":
            write(path, *map(json.dumps, rows))
        case "parquet":
            pq.write_table(table, path)
        case "frame":
            given["frames"] = {"Knows": table}
        case _:
            given = {"frames": {"Knows": spark.createDataFrame(table)}, "spark": spark}
    source = {} if "frames" in given else {"source": str(path)}
    mapping = {"edges": {"Knows": {"from": "name", "columns": {}, **entry, **source}}}
    assert acquainted.load(mapping=mapping, mode="overwrite", **given).edges_loaded == {"Knows": 3}
    found = rows_of(acquainted, "edge:Knows", columns=["id", "src", "dst", "since"])
    ends = {(row["src"], row["dst"]): row["since"] for row in found}
    assert ends == since or (ends.keys() == {("a", "x"), ("a", "y"), ("b", "y")} and not since)


def test_a_value_that_has_no_items_is_reported_at_its_place(graph: Graph, folder: Path) -> None:
    path = write(
        folder / "x.jsonl", '{"name": "a", "tags": []}', '{"name": "a", "tags": "b"}', '{"name": "a", "tags": 1}'
    )
    entry = {"source": str(path), "from": "name", "to": "tags", "each": "tags", "columns": {}}
    found = rejected(graph, lambda: load(graph, mapping={"edges": {"Knows": entry}}))
    assert [(item.line, item.message) for item in found] == [
        (2, "invalid JSON: `tags` is not a list"),
        (3, "invalid JSON: `tags` is not a list"),
    ]


def test_a_place_behind_records_that_were_passed_over(graph: Graph, folder: Path) -> None:
    entry = {"source": str(write(folder / "x.csv", "name,age", ",1", ",x", "a,old")), "skip_null": True}
    found = rejected(graph, lambda: load(graph, mapping={"nodes": {"Person": entry}}))
    assert [(item.line, item.rule) for item in found] == [(4, "invalid value for Person.age")]


def test_several_sources_of_one_type(graph: Graph, folder: Path) -> None:
    write(folder / "z.csv", "name,age", "a,1", "b,1")
    write(folder / "a.jsonl", '{"who": "a", "age": 2}')
    sources = [
        {"source": str(folder / "z.csv")},
        {"source": str(folder / "a.jsonl"), "columns": {"who": "name", "age": "age"}},
    ]
    result = load(graph, mapping={"nodes": {"Person": sources}})
    assert people(graph) == {"a": (2, None), "b": (1, None)}
    assert (result.nodes_loaded, result.superseded) == ({"Person": 3}, 1)


PERSON = {"source": "x.csv"}
EDGE = {"source": "x.csv", "from": "name", "to": "age"}
BAD_MAPPINGS: list[tuple[Any, str]] = [
    ({}, "maps no type"),
    ({"nodes": {}}, "maps no type"),
    ({"node": {"Person": PERSON}}, "`node` is not a known field"),
    ({"nodes": {"Persn": PERSON}}, "there is no node type `Persn`: did you mean `Person`"),
    ({"edges": {"Person": EDGE}}, "there is no edge type `Person`"),
    ({"nodes": {"Person": {}}}, "give `source` (files) or `table`"),
    ({"nodes": {"Person": PERSON | {"table": "t"}}}, "give `source` (files) or `table`"),
    ({"nodes": {"Person": PERSON | {"sources": "x"}}}, "`nodes.Person.sources` is not a known field"),
    ({"nodes": {"Person": PERSON | {"format": "xml"}}}, "known are parquet, csv, json, orc"),
    ({"nodes": {"Person": PERSON | {"from": "a", "to": "b"}}}, "a node has no `from` and `to`"),
    ({"nodes": {"Person": PERSON | {"delimiter": "::"}}}, "`delimiter` is one ASCII character"),
    ({"nodes": {"Person": PERSON | {"delimiter": "é"}}}, "`delimiter` is one ASCII character"),
    ({"nodes": {"Person": PERSON | {"header": ["name", "name"]}}}, "`header` names the column `name` twice"),
    ({"edges": {"Knows": EDGE | {"each": "nme"}}}, "there is no column `nme`: did you mean `name`"),
    ({"edges": {"Knows": EDGE | {"each": "name"}}}, "the column `name` holds string, not lists; say `split` beside it"),
    ({"edges": {"Knows": EDGE | {"each": {"column": "name", "split": ""}}}}, "`split` is the text between two items"),
    ({"nodes": {"Person": PERSON | {"header": []}}}, "`header` is the list of the names of all columns"),
    ({"nodes": {"Person": PERSON | {"columns": ["name"]}}}, "columns` is a mapping, not a list"),
    ({"nodes": {"Person": PERSON | {"columns": {"name": "nam"}}}}, "no property `nam`: did you mean"),
    ({"nodes": {"Person": PERSON | {"columns": {"nme": "name"}}}}, "no column `nme`: did you mean"),
    ({"nodes": {"Person": PERSON | {"id": "key"}}}, "there is no column `key`"),
    ({"nodes": {"Note": PERSON}}, "Note has no property `name`, `age`; name the columns to read"),
    ({"edges": {"Knows": PERSON | {"from": "name"}}}, "an edge needs the columns `from` and `to`"),
    ({"edges": {"Knows": EDGE | {"to": "nme", "columns": {}}}}, "there is no column `nme`: did you mean `name`"),
    ({"edges": {"At": EDGE | {"to": {"series": "age"}}}}, "`to` has to map number, series of Slot"),
    ({"nodes": {"Person": "x.csv"}}, "the mapping, Person: keys and values are expected here"),
    ({"nodes": ["Person"]}, "`nodes` is a mapping, not a list"),
    ({"nodes": {"Person": {"source": "x.xyz"}}}, "give `format:` in the mapping"),
    ({"nodes": {"Person": {"source": "x.parquet"}}}, "x.parquet: it is damaged"),
    ({"nodes": {"Person": {"source": "no.csv"}}}, "no.csv: there is no such file"),
    ({"nodes": {"Person": {"source": "*.no"}}}, "no file"),
    ({"nodes": {"Person": {"table": "t"}}}, "`table: t` is a Spark table, which the engine `local` does not read"),
    ({"nodes": {"Person": {"source": "twice.csv"}}}, "twice"),
    ({"nodes": {"Person": PERSON | {"columns": {"name": "name", "age": "name"}}}}, "`name`"),
]


@each_case(("mapping", "text"), BAD_MAPPINGS, ids=[text[:40] for _, text in BAD_MAPPINGS])
def test_a_mapping_that_does_not_fit_is_explained(
    untouched: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch, mapping: Any, text: str
) -> None:
    write(folder / "x.csv", "name,age", "a,1")
    write(folder / "x.xyz", "name,age")
    write(folder / "x.parquet", "no parquet")
    write(folder / "twice.csv", "name,name", "a,b")
    monkeypatch.chdir(folder)
    head = untouched.snapshot()
    with pytest.raises((BadRequestError, InputFileError)) as caught:
        load(untouched, mapping=mapping)
    assert text in caught.value.message
    assert untouched.snapshot() == head


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("nodes: {Person: {source: x}, Person: {source: y}}", "the key 'Person' is given twice"),
        ("nodes: [", "is not valid YAML"),
        ("", "m.yaml:1:1: error mapping: the file is a mapping, not null"),
        ("- 1", "m.yaml:1:1: error mapping: the file is a mapping, not a list"),
        ("nodes:\n  1: {source: x}", "there is no node type `1`"),
        ("nodes:\n  No: {source: x}", "there is no node type `No`"),
        ("nodes:\n  Person: {sauce: x}", "m.yaml:2:12: error mapping: `nodes.Person.sauce` is not a"),
        ("nodes:\n  Person:\n  - source: [1]", "m.yaml:3:13: error mapping: `nodes.Person[0].source` is"),
        ("nodes: !!python/object:os.system {}", "is not valid YAML"),
    ],
)
def test_a_mapping_file_that_is_none(untouched: Graph, folder: Path, content: str, text: str) -> None:
    path = write(folder / "m.yaml", content)
    with refused(untouched, BadRequestError, str(path), text):
        load(untouched, mapping=path)


def test_a_mapping_file_that_cannot_be_read(untouched: Graph, folder: Path) -> None:
    with refused(untouched, InputFileError, "no.yaml"):
        load(untouched, mapping=folder / "no.yaml")
    (folder / "m.yaml").write_bytes(b"nodes: \xff")
    with refused(untouched, InputFileError, "it is not UTF-8"):
        load(untouched, mapping=folder / "m.yaml")


@pytest.mark.parametrize(
    ("content", "line", "rule"),
    [
        ('{"name": "a"}\n7\n', 2, "invalid JSON"),
        ('{"name": "a"}\n{"name": "a", "name": "b"}\n', 2, "invalid JSON"),
        ('{"name": "a"}\n\n{"name": \n', 3, "invalid JSON"),
        ('[{"name": "a"},\n', 2, "invalid JSON"),
        pytest.param('[{"name": "a"}, 7]', 2, "invalid JSON"),
    ],
)
def test_bad_json_of_a_table(untouched: Graph, folder: Path, content: str, line: int, rule: str) -> None:
    path = folder / "x.json"
    path.write_text(content, encoding="utf-8")
    mapping = {"nodes": {"Person": {"source": str(path)}}}
    (found,) = rejected(untouched, lambda: load(untouched, mapping=mapping))
    assert (found.source, found.line, found.rule) == (str(path), line, rule)


def test_texts_of_parquet_that_are_no_texts(graph: Graph, folder: Path) -> None:
    names = pa.array([b"a", b"\xff"], pa.binary()).view(pa.utf8())
    pq.write_table(pa.table({"name": names}), folder / "x.parquet")
    with refused(graph, BadRequestError):
        load(graph, mapping={"nodes": {"Person": {"source": str(folder / "x.parquet")}}})


def test_a_moment_beyond_the_calendar_beside_a_bad_one(values: Graph) -> None:
    """Alone, the first is stored; the second one asks for a closer look at both."""
    moments = pa.array([253_402_300_800_000_000, 1], pa.timestamp("us"))
    frame = pa.table({"name": ["a", "b"], "at": moments})
    with refused(values, LoadRejectedError):
        load(values, frames={"Thing": frame})


@pytest.mark.parametrize("kind", ["csv", "json", "compatible"])
def test_values_nested_too_deeply_are_refused(values: Graph, folder: Path, kind: str) -> None:
    deep = "[" * 100_000
    path = folder / f"x.{kind}"
    content = {"csv": f'name,tags\na,"{deep}"', "json": deep, "compatible": f'{{"type":{deep}'}
    path.write_text(content[kind], encoding="utf-8")
    with refused(values, LoadRejectedError, "x."):
        if kind == "compatible":
            load(values, path, grammar=kind)
        else:
            load(values, mapping={"nodes": {"Thing": {"source": str(path)}}})


def test_a_list_of_json_may_begin_with_a_byte_order_mark(graph: Graph, folder: Path) -> None:
    (folder / "x.json").write_bytes(b'\xef\xbb\xbf[\n{"name": "a"}]')
    load(graph, mapping={"nodes": {"Person": {"source": str(folder / "x.json")}}})
    assert ids_of(graph, "node:Person") == {"a"}


def test_records_over_several_lines_are_counted_alike(graph: Graph, folder: Path) -> None:
    path = write(folder / "x.csv", "name,age", "a,1", "b", "c,x")
    body = {"source": str(path), "multiline": True}
    found = rejected(graph, lambda: load(graph, mapping={"nodes": {"Person": body}}))
    assert [(item.line, item.rule) for item in found] == [(2, "invalid CSV"), (3, "invalid value for Person.age")]


def test_words_of_yaml_are_texts_in_a_mapping(graph: Graph, folder: Path) -> None:
    """A type is called `On`, `null` is a key, and neither 007 nor no is a value of its own."""
    run(graph, 'insert Person { name: "a" } insert Team { code: 7 }')
    write(folder / "on.csv", "who,yes,role", "a,7,no", "a,7,007", "a,7,-")
    mapping = write(
        folder / "m.yaml", "edges:", "  On: {source: on.csv, from: who, to: yes, null: [no, 007], multiline: yes}"
    )
    load(graph, mapping=mapping)
    assert sorted(str(row["role"]) for row in rows_of(graph, "edge:On")) == ["-", "None", "None"]


# ---- frames


def test_frames_of_several_kinds_are_one_commit(graph: Graph) -> None:
    before = len(graph.commits())
    frames = {
        "Person": pd.DataFrame({"name": ["a", "b"], "age": [1, None]}),
        "node:Note": pa.record_batch({"text": ["x", "y"]}),
        "Knows": pa.table({"from": ["a"], "to": ["b"], "since": [1999]}),
        "Seen": pa.table({"src": pa.array([], pa.utf8()), "dst": pa.array([], pa.utf8())}),
    }
    result = load(graph, frames=frames, mode="append")
    assert people(graph) == {"a": (1, None), "b": (None, None)}
    assert ends_of(graph, "edge:Knows") == [("a", "b")]
    assert len(texts(graph)) == 2
    assert result.nodes_loaded == {"Note": 2, "Person": 2}
    assert result.edges_loaded == {"Knows": 1, "Seen": 0}
    assert len(graph.commits()) == before + 1


@each_case(
    ("frames", "text"),
    [
        ({"Person": ["a"]}, "frame `Person`, record 1 is a str: give a list of dictionaries"),
        ({"Person": None}, "frame `Person` is a NoneType: give a frame of Spark, pandas or polars, an Arrow table or"),
        ({"Persn": pa.table({"name": ["a"]})}, "there is no type `Persn`: did you mean `Person`"),
        ({"Person": pa.table({"nam": ["a"]})}, "Person has no property `nam`"),
        ({"Knows": pa.table({"from": ["a"]})}, "there is no column `to`"),
        ({"Knows": pa.table({"since": [1]})}, "there is no column `src`"),
        ({"Person": pd.Series(["a"], name="name")}, "Series"),
        ({"Person": pd.DataFrame({"name": ["a", 1]})}, "`name` holds values of several types, `str` in row 1 and"),
        ({"Person": pd.DataFrame([["a", "b"]], columns=["name", "name"])}, "cannot be read: two columns have one name"),
        ({"Person": pa.table([pa.array(["a"]), pa.array(["b"])], names=["name", "name"])}, "name"),
    ],
)
def test_a_frame_that_does_not_fit_is_explained(untouched: Graph, frames: Any, text: str) -> None:
    with refused(untouched, BadRequestError, text):
        load(untouched, frames=frames)


def test_a_bad_value_of_a_frame_is_reported_with_its_row(graph: Graph) -> None:
    frame = pa.table({"name": ["a", "b", None], "age": [1, 2**40, 3]})
    found = rejected(graph, lambda: load(graph, frames={"Person": frame}))
    places = {(item.line, item.field, item.value) for item in found}
    assert places == {(2, "age", str(2**40)), (3, "name", None)}
    assert all("Person" in item.source for item in found)


def test_frames_have_no_order_so_equal_ids_are_refused(graph: Graph) -> None:
    frame = pa.table({"name": ["a", "b", "a"]})
    for mode in ("append", "merge", "overwrite"):
        (found,) = rejected(graph, lambda mode=mode: load(graph, frames={"Person": frame}, mode=mode))
        assert (found.rule, found.value) == ("duplicate id of Person", "a")


def test_a_type_that_is_a_node_and_an_edge(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "h.omni", "node Link { name: String @key } edge Link: Link -> Link")
    table = pa.table({"name": ["a"]})
    with refused(graph, BadRequestError, "write node:Link or edge:Link"):
        load(graph, frames={"Link": table})
    load(graph, frames={"node:Link": table, "edge:Link": pa.table({"from": ["a"], "to": ["a"]})})
    assert ends_of(graph, "edge:Link") == [("a", "a")]


# ---- limits of this process


def test_large_inputs_need_the_other_engine(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder / "x.jsonl", person("a"), person("b"))
    size = path.stat().st_size
    monkeypatch.setenv("OMNIGRAPH_LOCAL_LOAD_MAX_BYTES", str(size - 1))
    with refused(graph, ResourceLimitError, "OMNIGRAPH_LOCAL_LOAD_MAX_BYTES") as caught:
        load(graph, path)
    assert caught.value.details()["resource_limit"] == {
        "resource": "strict_input_arrow_bytes",
        "limit": size - 1,
        "actual": size,
        "advice": caught.value.advice,
    }
    write(folder / "x.csv", "name", "a" * size)
    with refused(graph, ResourceLimitError):
        load(graph, mapping={"nodes": {"Person": {"source": str(folder / "x.csv")}}})
    with refused(graph, ResourceLimitError):
        load(graph, frames={"Person": pa.table({"name": ["a" * size]})})
    monkeypatch.setenv("OMNIGRAPH_LOCAL_LOAD_MAX_BYTES", str(size))
    assert load(graph, path).commit is not None


# ---- the compatible grammar


def test_old_files_are_read_forgivingly(graph: Graph, folder: Path) -> None:
    records = [
        {"type": "Person", "data": {"name": "a", "age": "old", "more": 1, "_rowid": 3}, "x": 1},
        {"type": "Person", "edge": "Knows", "data": {"name": "b", "city": 7}},
        {"edge": "knows", "from": "a", "to": "b", "data": {"src": "z", "since": None}},
    ]
    text = "\ufeff// old\n" + "\n\n".join(json.dumps(record, indent=2) for record in records)
    text += '{"type":"Person","data":{"name":"c","age":1,"age":2}} // at the end'
    path = folder / "old.jsonl"
    path.write_text(text, encoding="utf-8")
    done = load(graph, path, grammar="compatible")
    assert done.nulled == {"Person.age": 1, "Person.city": 1}
    assert done.to_json()["nulled"] == {"Person.age": 1, "Person.city": 1}
    assert people(graph) == {"a": (None, None), "b": (None, None), "c": (2, None)}
    assert ends_of(graph, "edge:Knows") == [("a", "b")]
    with refused(graph, LoadRejectedError):
        load(graph, path, grammar="strict")


def test_forgiving_does_not_mean_guessing(graph: Graph, values: Graph, folder: Path) -> None:
    bad = [
        ('{"type":"Person","data":{"name":7}}', "invalid value for Person.name"),
        ('{"type":"Person","id":7,"data":{"name":"a"}}', "invalid `id` of Person"),
        ('{"type":"Person","id":"b","data":{"name":"a"}}', "id of Person is not its key"),
        ('{"type":"Person","id":"a","data":{"id":"b","name":"a"}}', "invalid record"),
        ('{"edge":"Knows","from":1,"to":"a"}', "invalid `from` of Knows"),
        ('{"type":"Person","data":{}}', "missing value for Person.name"),
        (person("a", age=2**31), "invalid value for Person.age"),
        ('{"type":"Nobody"}', "unknown type"),
        ('{"edge":"Knows","from":"a"}', "missing `to` of Knows"),
        ("7", "invalid record"),
    ]
    path = write(folder / "x.jsonl", *(line for line, _ in bad), '{"type": ', person("b"))
    found = rejected(graph, lambda: load(graph, path, grammar="compatible"))
    assert sorted((item.line, item.rule) for item in found) == [
        *((n, rule) for n, (_, rule) in enumerate(bad, start=1)),
        (len(bad) + 1, "invalid JSON"),
    ]
    path = write(folder / "y.jsonl", '{"type":"Thing","data":{"name":"a","tags":["x",1,null]}}')
    done = load(values, path, "overwrite", grammar="compatible")
    assert rows_of(values, "node:Thing")[0]["tags"] == ["x", None, None]
    # The null was given; only the number was replaced by one.
    assert done.nulled == {"Thing.tags": 1}


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_ids_may_stand_beside_the_data(graph: Graph, folder: Path, grammar: str) -> None:
    lines = [
        '{"type":"Note","id":"n1","data":{"text":"of its own"}}',
        '{"type":"Note","data":{"id":"n2","text":"in the data"}}',
        '{"type":"Note","id":"n3","data":{"id":"n3","text":"both"}}',
        '{"type":"Note","id":null,"data":{"id":"n4","text":"null is none"}}',
        '{"id":"n5","type":"Note"}',
        '{"type":"Person","id":"a","data":{"name":"a"}}',
        '{"type":"Person","data":{"name":"b"}}',
        '{"edge":"Knows","id":"k1","from":"a","to":"b"}',
        '{"edge":"Knows","from":"b","to":"a","data":{"id":"k2"}}',
    ]
    done = load(graph, write(folder / "new.jsonl", *lines), grammar=grammar, mode="append")
    assert done.nulled == {}
    assert ids_of(graph, "node:Note") == {"n1", "n2", "n3", "n4", "n5"}
    assert {row["text"] for row in rows_of(graph, "node:Note") if row["id"] == "n5"} == {None}
    assert ids_of(graph, "node:Person") == {"a", "b"}
    assert ids_of(graph, "edge:Knows") == {"k1", "k2"}


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('{"type":"Note","id":"n1","data":{"id":"n2"}}', "invalid record"),
        ('{"type":"Note","id":1}', "invalid `id` of Note"),
        ('{"type":"Person","id":"b","data":{"name":"a"}}', "id of Person is not its key"),
        ('{"edge":"Knows","id":true,"from":"a","to":"a"}', "invalid `id` of Knows"),
    ],
)
def test_an_id_beside_the_data_is_judged_as_one_in_it(
    graph: Graph, folder: Path, grammar: str, line: str, rule: str
) -> None:
    path = write(folder / "x.jsonl", person("a"), '{"type":"Note","id":"good"}', line)
    (found,) = rejected(graph, lambda: load(graph, path, grammar=grammar))
    assert (found.line, found.rule) == (3, rule)


def test_old_spellings_of_ids_become_canonical(graph: Graph, folder: Path) -> None:
    lines = [
        '{"edge":"On","from":"a","to":"007"}',
        '{"edge":"Seen","from":"a","to":"1970-01-03"}',
        person("a"),
        '{"type":"Team","data":{"id":"007","code":7}}',
        '{"type":"Day","data":{"id":"1970-01-03","day":"1970-01-03"}}',
    ]
    path = write(folder / "old.jsonl", *lines)
    rules = {item.rule for item in rejected(graph, lambda: load(graph, path))}
    assert rules == {
        "id of Team is not its key",
        "id of Day is not its key",
        "dst of On is a bad record of Team",
        "dst of Seen is a bad record of Day",
    }
    load(graph, path, grammar="compatible", mode="append")
    assert ids_of(graph, "node:Team") == {"7"}
    assert ends_of(graph, "edge:On") == [("a", "7")]
    assert ends_of(graph, "edge:Seen") == [("a", "2")]
    write(path, '{"type":"Team","data":{"id":"8","code":7}}')
    (found,) = rejected(graph, lambda: load(graph, path, grammar="compatible"))
    assert found.rule == "id of Team is not its key"


def test_an_old_id_may_be_one_member_of_the_key_but_not_of_two_nodes(graph: Graph, folder: Path) -> None:
    slot = '{{"type":"Slot","data":{{"id":"s","series":"s","number":{}}}}}'
    edge = '{"edge":"At","from":"a","to":"s"}'
    load(graph, write(folder / "x.jsonl", person("a"), slot.format(3), edge), grammar="compatible")
    assert ends_of(graph, "edge:At") == [("a", '["3","s"]')]
    write(folder / "x.jsonl", slot.format(3), slot.format(4))
    with refused(graph, BadRequestError, "the id 's' stands for"):
        load(graph, folder / "x.jsonl", grammar="compatible")


def test_an_old_spelling_stands_for_one_node() -> None:
    key = TableKey("node:Team")
    assert alias_conflicts([(key, {"07": "7"}), (key, {"07": "7", "08": "8"})]) == {"Team": {"07": "7", "08": "8"}}
    with pytest.raises(ValueError, match=r"'07' stands for '7' and for '8'"):
        alias_conflicts([(key, {"07": "7"}), (key, {"07": "8"})])


# ---- modes


@pytest.fixture
def peopled(graph: Graph, folder: Path) -> Graph:
    lines = [person("a", age=1, city="x"), person("b", age=2), note("n", "old"), knows("a", "b", id="e")]
    load(graph, write(folder / "base.jsonl", *lines), "append")
    return graph


def test_a_merge_replaces_whole_rows_and_only_those(peopled: Graph, folder: Path) -> None:
    lines = [person("a", age=5), person("c"), person("a", age=6), note("n", "new"), knows("b", "a", id="e")]
    result = load(peopled, write(folder / "x.jsonl", *lines))
    assert people(peopled) == {"a": (6, None), "b": (2, None), "c": (None, None)}
    assert texts(peopled) == {"n": "new"}
    assert ends_of(peopled, "edge:Knows") == [("b", "a")]
    assert result.superseded == 1
    assert result.nodes_loaded == {"Note": 1, "Person": 3}


def test_rows_that_a_merge_replaces_keep_their_row_ids(peopled: Graph, folder: Path) -> None:
    columns = ["id", "_rowid"]
    before = {row["id"]: row["_rowid"] for row in rows_of(peopled, "node:Person", columns=columns)}
    load(peopled, write(folder / "x.jsonl", person("c"), person("b", age=9), person("d"), person("a")))
    after = {row["id"]: row["_rowid"] for row in rows_of(peopled, "node:Person", columns=columns)}
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 4


def test_a_merge_of_edges_of_mixed_case_keeps_the_order(peopled: Graph, folder: Path) -> None:
    lines = [knows("a", "b", id="e", since=n) for n in (1, 2, 3)]
    lines[1] = lines[1].replace("Knows", "KNOWS")
    load(peopled, write(folder / "x.jsonl", *lines))
    assert [row["since"] for row in rows_of(peopled, "edge:Knows")] == [3]


def test_an_append_refuses_what_exists(peopled: Graph, folder: Path) -> None:
    path = write(folder / "x.jsonl", person("z"), person("b"), person("a"))
    advice = "`merge` replaces those that exist"
    with refused(peopled, LoadKeyConflictError, "exists already", advice, "x.jsonl:2", "x.jsonl:3") as caught:
        load(peopled, path, "append")
    error: Any = caught.value
    assert error.report.totals == {"key_conflict of Person": 2}
    assert (error.details()["key_conflict"]["type_name"], error.http_status) == ("Person", 409)
    path = write(folder / "x.jsonl", knows("b", "a", id="e"))
    with refused(peopled, LoadKeyConflictError, "'e'"):
        load(peopled, path, "append")


def test_an_overwrite_replaces_only_types_that_are_present(peopled: Graph, folder: Path) -> None:
    load(peopled, write(folder / "x.jsonl", note("m", "only")), "overwrite")
    assert texts(peopled) == {"m": "only"}
    assert set(people(peopled)) == {"a", "b"}
    path = write(folder / "x.jsonl", person("a"), person("c"))
    (found,) = rejected(peopled, lambda: load(peopled, path, "overwrite"))
    assert (found.type_key, found.field, found.value) == ("edge:Knows", "to", "b")
    path = write(folder / "x.jsonl", person("a"), person("c"), knows("c", "a"))
    load(peopled, path, "overwrite")
    assert set(people(peopled)) == {"a", "c"}
    assert ends_of(peopled, "edge:Knows") == [("c", "a")]
    path = write(folder / "x.jsonl", person("a"), person("c"), person("a"))
    (found,) = rejected(peopled, lambda: load(peopled, path, "overwrite"))
    assert found.rule == "duplicate id of Person"


def test_an_overwrite_with_an_empty_frame_empties_the_type(peopled: Graph) -> None:
    nobody = pa.table({"name": pa.array([], pa.utf8())})
    nothing = pa.table({"from": pa.array([], pa.utf8()), "to": pa.array([], pa.utf8())})
    (found,) = rejected(peopled, lambda: load(peopled, frames={"Person": nobody}, mode="overwrite"))[:1]
    assert found.type_key == "edge:Knows"
    result = load(peopled, frames={"Person": nobody, "Knows": nothing}, mode="overwrite")
    assert (result.nodes_loaded, result.edges_loaded) == ({"Person": 0}, {"Knows": 0})
    assert (people(peopled), ends_of(peopled, "edge:Knows")) == ({}, [])
    assert texts(peopled) == {"n": "old"}


def test_a_dry_run_does_everything_but_the_commit(peopled: Graph, folder: Path) -> None:
    before, head = everything(peopled), peopled.snapshot()
    path = write(folder / "x.jsonl", person("a"), person("c"), person("a"))
    result = load(peopled, path, dry_run=True, actor="me")
    assert (result.commit, result.dry_run, result.superseded) == (None, True, 1)
    assert result.nodes_loaded == {"Person": 3}
    assert (everything(peopled), peopled.snapshot()) == (before, head)
    result = load(peopled, path, dry_run=True, branch="new", base="main")
    assert not result.branch_created
    assert set(peopled.branches()) == {"main"}
    with refused(peopled, LoadKeyConflictError):
        load(peopled, write(folder / "y.jsonl", person("b")), "append", dry_run=True)
    load(peopled, path)
    assert set(people(peopled)) == {"a", "b", "c"}


# ---- branches and receipts


def test_a_branch_is_created_with_its_first_load(peopled: Graph, folder: Path) -> None:
    path = write(folder / "x.jsonl", person("c"), knows("c", "a"))
    with refused(peopled, BranchNotFoundError, "there is no branch `side`", "base=", "--from"):
        load(peopled, path, branch="side")
    with refused(peopled, BranchNotFoundError, "nowhere"):
        load(peopled, path, branch="side", base="nowhere")
    bad = write(folder / "y.jsonl", person("c", age="x"))
    with refused(peopled, LoadRejectedError):
        load(peopled, bad, branch="side", base="main")
    assert set(peopled.branches()) == {"main"}
    main = peopled.snapshot()
    result = load(peopled, path, branch="side", base="main", actor="me")
    assert (result.branch_created, result.base, result.branch) == (True, "main", "side")
    assert set(people(peopled, "side")) == {"a", "b", "c"}
    assert peopled.snapshot() == main
    assert peopled.commits("side")[0].parent_id == main.commit_id
    again = load(peopled, write(folder / "x.jsonl", person("d")), branch="side", base="main")
    assert not again.branch_created
    assert set(people(peopled, "side")) == {"a", "b", "c", "d"}
    assert set(people(peopled)) == {"a", "b"}


def test_a_load_on_a_branch_forks_only_what_it_writes(peopled: Graph, folder: Path) -> None:
    peopled.create_branch("side")
    load(peopled, write(folder / "x.jsonl", person("a", age=9), person("c")), branch="side")
    pins = peopled.snapshot("side").pins
    assert {key for key, pin in pins.items() if pin.branch is not None} == {"node:Person"}
    assert people(peopled, "side") == {"a": (9, None), "b": (2, None), "c": (None, None)}
    assert people(peopled) == {"a": (1, "x"), "b": (2, None)}
    load(peopled, write(folder / "x.jsonl", note("n", "side")), "overwrite", branch="side")
    assert (texts(peopled, "side"), texts(peopled)) == ({"n": "side"}, {"n": "old"})


def test_a_type_without_rows_can_be_written_on_the_branch_later(peopled: Graph) -> None:
    frames = {"Person": pa.table({"name": ["c"]}), "Note": pa.table({"text": pa.array([], pa.utf8())})}
    load(peopled, frames=frames, branch="side", base="main")
    run(peopled, 'insert Note { text: "later" }', "side")
    assert sorted(texts(peopled, "side").values()) == ["later", "old"]
    assert texts(peopled) == {"n": "old"}


def test_the_receipt_as_json(peopled: Graph, folder: Path) -> None:
    path = write(folder / "x.jsonl", person("c"), note("m", ""), knows("a", "c"), person("c"))
    result = load(peopled, path, actor="me", branch="side", base="main")
    commit = peopled.commits("side")[0]
    assert result.to_json() == {
        "uri": peopled.uri,
        "branch": "side",
        "mode": "merge",
        "base_branch": "main",
        "branch_created": True,
        "nodes": [{"name": "Note", "entities_loaded": 1}, {"name": "Person", "entities_loaded": 2, "superseded": 1}],
        "edges": [{"name": "Knows", "entities_loaded": 1}],
        "total_entities": 4,
        "superseded": 1,
        "dropped": 0,
        "nulled": {},
        "dry_run": False,
        "engine": {"name": "local", "reason": "as asked"},
        "actor_id": "me",
        "commit": {
            "graph_commit_id": commit.commit_id,
            "graph_branch": "side",
            "graph_manifest_version": commit.graph_version,
            "parent_commit_id": commit.parent_id,
            "merged_parent_commit_id": None,
            "actor_id": "me",
            "created_at": commit.created_at,
        },
    }
    assert json.loads(json.dumps(result.to_json())) == result.to_json()


def test_a_graph_open_for_reading_takes_no_load(peopled: Graph, folder: Path) -> None:
    reader = Graph.open(peopled.uri, read_only=True)
    with pytest.raises(BadRequestError, match="read"):
        load(reader, folder)
