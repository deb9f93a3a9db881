"""What people meet in their first loads of tables: messages that say what to do, and values that need no help."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.cli.commands.data import load_lines
from omnigraph.commit.environment import open_environment
from omnigraph.core.failpoints import VARIABLE, reset
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRecord,
    BadRequestError,
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    LoadReport,
    ReadSetConflictError,
    RetryableCommitConflictError,
    SparkError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import upsert
from omnigraph.pipeline.load import job as stages
from omnigraph.pipeline.load import staging
from omnigraph.pipeline.sources import inputs as lines_of_files
from omnigraph.pipeline.workers import LocalWorkers
from omnigraph.storage.datasets import fragments
from omnigraph.storage.datasets.fragments import Ledger, Ledgers
from support.graphs import ends_of, ids_of, rows_of
from support.loads import files_of, good_lines, new_graph, thing, write_lines

SCHEMA = """
node Customer {
    code: String @key  name: String?  active: Bool  joined: Date?  seen: DateTime?  email: String? @unique
}
edge Friend: Customer -> Customer
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


def load(graph: Graph, mode: str = "append", **given: Any) -> Any:
    return graph.load(mode=mode, engine="local", **given)


def customers(source: Path, **entry: Any) -> dict[str, Any]:
    return {"nodes": {"Customer": {"source": str(source), **entry}}}


def report_of(graph: Graph, **given: Any) -> LoadReport:
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, **given)
    return caught.value.report


def messages_of(graph: Graph, **given: Any) -> list[str]:
    return [item.message for item in report_of(graph, **given).examples]


# ---- numbers that feed texts

NUMBERED = {"properties": {"code": {"concat": ["nr"]}, "active": {"constant": True}}}


def test_a_text_is_made_of_one_column_of_a_frame(graph: Graph) -> None:
    frame = pd.DataFrame({"nr": [17, 18]})
    load(graph, frames={"Customer": frame}, mapping={"nodes": {"Customer": NUMBERED}})
    assert ids_of(graph, "node:Customer") == {"17", "18"}


@pytest.mark.parametrize("kind", ["json", "parquet", "csv"])
def test_a_text_is_made_of_one_column_of_a_file(graph: Graph, folder: Path, kind: str) -> None:
    path = folder / f"x.{kind}"
    if kind == "json":
        path.write_text(json.dumps([{"nr": 17}, {"nr": "a"}]), encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(pa.table({"nr": [17]}), path)
    else:
        path.write_text("nr\n17\n", encoding="utf-8")
    load(graph, mapping=customers(path, **NUMBERED))
    assert "17" in ids_of(graph, "node:Customer")
    edges = pa.table({"a": [17], "b": [17]})
    ends = {side: {"code": {"concat": [name]}} for side, name in (("from", "a"), ("to", "b"))}
    load(graph, frames={"Friend": edges}, mapping={"edges": {"Friend": ends}})
    assert ends_of(graph, "edge:Friend") == [("17", "17")]


def test_a_number_for_a_text_is_refused_with_the_way_out(graph: Graph, folder: Path) -> None:
    frame = pa.table({"code": [17], "active": [True]})
    (text,) = messages_of(graph, frames={"Customer": frame})
    assert "17 is not a String; `code: {concat: [code]}` in a mapping makes a text of it" in text
    path = folder / "x.json"
    path.write_text('{"nr": 17, "active": true}', encoding="utf-8")
    (text,) = messages_of(graph, mapping=customers(path, columns={"nr": "code", "active": "active"}))
    assert "`code: {concat: [nr]}`" in text
    ends = {"from": {"code": "a"}, "to": {"code": "a"}}
    found = messages_of(graph, frames={"Friend": pa.table({"a": [17]})}, mapping={"edges": {"Friend": ends}})
    assert all("`code: {concat: [a]}`" in text for text in found)
    # What `concat` does not take, and graph records, which have no mapping.
    (text,) = messages_of(graph, frames={"Customer": pa.table({"code": [1.5], "active": [True]})})
    assert "concat" not in text
    path.write_text('{"type": "Customer", "data": {"code": 17, "active": true}}', encoding="utf-8")
    (text,) = messages_of(graph, source=path)
    assert "concat" not in text


# ---- rows of one id


def test_an_id_that_exists_is_not_told_as_a_violation_of_unique_too(graph: Graph) -> None:
    def frame(*rows: tuple[str, str | None]) -> dict[str, pa.Table]:
        codes, emails = zip(*rows, strict=True)
        columns = {"code": codes, "active": [True] * len(rows), "email": emails}
        return {"Customer": pa.table(columns)}

    load(graph, frames=frame(("k", "k@x"), ("l", None)))
    with pytest.raises(LoadKeyConflictError) as caught:
        load(graph, frames=frame(("k", "k@x")))
    assert caught.value.report.totals == {"key_conflict of Customer": 1}
    report = report_of(graph, frames=frame(("m", "m@x"), ("m", "m@x")))
    assert report.totals == {"duplicate id of Customer": 1}
    # Others are still told, and only they count.
    report = report_of(graph, frames=frame(("m", "m@x"), ("m", "m@x"), ("n", "m@x"), ("o", "k@x"), ("o", "k@x")))
    name = "@unique violation on Customer.email"
    assert report.totals == {"duplicate id of Customer": 2, name: 3}
    assert [item.message for item in report.examples if item.rule == name] == [
        f"{name}: 'm@x' belongs to 'm' and to 'n'",
        f"{name}: 'k@x' belongs to 'o' and to 'k'",
    ]


# ---- lines of CSV


def test_csv_in_another_encoding_is_told_as_such(graph: Graph, folder: Path) -> None:
    path = folder / "x.csv"
    path.write_bytes(b"code,active,name\na,true,caf\xe9\nb,true,ok\nc,true,\xff\xfe\n")
    first, second = report_of(graph, mapping=customers(path)).examples
    assert first.message == (
        "invalid CSV: the line is not UTF-8: unexpected end of data at byte 11; convert it, for example with iconv"
    )
    assert second.line == 4


@pytest.mark.parametrize("multiline", [True, False])
def test_csv_with_names_in_another_encoding_is_told_as_such(graph: Graph, folder: Path, multiline: bool) -> None:
    path = folder / "x.csv"
    path.write_bytes("code,active\na,true\n".encode("utf-16"))
    with pytest.raises(InputFileError, match=r"its first line is not UTF-8: .* at byte 1; convert"):
        load(graph, mapping=customers(path, multiline=multiline))


@pytest.mark.parametrize("is_ragged", [True, False])
def test_records_over_several_lines_in_another_encoding_are_told_as_such(
    graph: Graph, folder: Path, is_ragged: bool
) -> None:
    """Also where the record has too many values: Arrow cannot even show it then."""
    path = folder / "x.csv"
    last = b",1" if is_ragged else b""
    content = 'code,active,name\na,true,"é\n'.encode() + b'caf\xe9"' + last + b"\n"
    path.write_bytes(content)
    text = "line 3 is not UTF-8: invalid continuation byte at byte 4; convert it, for example with iconv"
    with pytest.raises(InputFileError) as caught:
        load(graph, mapping=customers(path, multiline=True))
    assert caught.value.reason == text
    for size in range(1, len(content)):
        stream = lines_of_files.CountedQuotes(io.BytesIO(content), "x.csv")
        with pytest.raises(InputFileError) as caught:
            list(iter(partial(stream.read, size), b""))
        assert caught.value.reason == text


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"code": "a", "active": true}\n{"code": "caf\xe9"}\n', "the line is not UTF-8"),
        (b'[{"code": "a", "active": true},\n{"code": "caf\xe9"}]', "the text is not UTF-8"),
    ],
)
def test_json_in_another_encoding_is_told_alike(graph: Graph, folder: Path, content: bytes, place: str) -> None:
    path = folder / "x.json"
    path.write_bytes(content)
    (text,) = messages_of(graph, mapping=customers(path))
    assert place in text
    byte = content.index(b"\xe9") + 1 - (0 if b"[" in content else content.index(b"\n") + 1)
    assert f" at byte {byte}; convert it, for example with iconv" in text


def test_a_line_of_another_length_says_how_many_values_it_has(graph: Graph, folder: Path) -> None:
    path = folder / "x.csv"
    path.write_text('code,active\na\nb,true,1\nc,true,"x\nd,true\rf,true\n', encoding="utf-8")
    found = messages_of(graph, mapping=customers(path))
    assert [text.removeprefix("invalid CSV: ") for text in found] == [
        "the line has 1 value instead of 2",
        "the line has 3 values instead of 2",
        "a quote is open at the end of the line; if values hold line breaks, say `multiline: true`",
        "the line has a carriage return inside; if values hold line breaks, say `multiline: true`",
    ]
    path.write_text("code,active\na\nb,true,1\n", encoding="utf-8")
    found = messages_of(graph, mapping=customers(path, multiline=True))
    assert found[0] == "invalid CSV: the record has 1 value instead of 2"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xef\xbb\xbf\r\n", b" \n\n", b"code,active", b"\xef\xbb\xbfcode,active"]
)
@pytest.mark.parametrize("multiline", [True, False])
def test_an_empty_file_among_others_has_no_records(graph: Graph, folder: Path, content: bytes, multiline: bool) -> None:
    (folder / "a.csv").write_text("code,active\na,true\n", encoding="utf-8")
    (folder / "b.csv").write_bytes(content)
    (folder / "c.csv.gz").write_bytes(gzip.compress(content))
    result = load(graph, mapping=customers(folder, multiline=multiline))
    assert result.nodes_loaded == {"Customer": 1}
    (folder / "b.csv").write_text("\ncode,active\nb,true\n", encoding="utf-8")
    with pytest.raises(InputFileError, match=r"b\.csv: its first line is empty"):
        load(graph, mapping=customers(folder, multiline=multiline))


@pytest.mark.parametrize("content", [b"code,active\ra,true\rb,true\r", b"code,active\ra,true\r\nb,true\r\n"])
def test_records_behind_carriage_returns_are_never_lost(graph: Graph, folder: Path, content: bytes) -> None:
    path = folder / "mac.csv"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match="carriage return inside: make line ends"):
        load(graph, mapping=customers(path))
    assert load(graph, mapping=customers(path, multiline=True)).nodes_loaded == {"Customer": 2}


# ---- days that come as moments


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_moments_at_midnight_are_days(graph: Graph, folder: Path, unit: str, zone: str | None) -> None:
    days = [datetime(2024, 2, 29, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]
    joined = pa.array(days, pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    table = pa.table({"code": ["a", "b", "c"], "active": [True] * 3, "joined": joined})
    load(graph, frames={"Customer": table})
    assert [row["joined"] for row in rows_of(graph, "node:Customer")] == [date(2024, 2, 29), None, date(1969, 12, 31)]
    noon = pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC), *days[1:]], pa.timestamp(unit, zone))
    pq.write_table(table.set_column(2, "joined", noon), folder / "x.parquet")
    (text,) = messages_of(graph, mode="merge", mapping=customers(folder / "x.parquet"))
    assert "has a time of day (UTC), and a Date has none; give days, as `.dt.date`" in text
    assert "or make the property a DateTime" in text


def test_days_of_pandas_are_days(graph: Graph) -> None:
    frame = pd.DataFrame({"code": ["a"], "active": [True], "joined": pd.to_datetime(["2024-02-29"])})
    load(graph, frames={"Customer": frame})
    assert rows_of(graph, "node:Customer")[0]["joined"] == date(2024, 2, 29)


# ---- columns with other names, and missing ones


def test_a_column_that_is_almost_a_property_is_told_which(graph: Graph, folder: Path) -> None:
    path = folder / "x.csv"
    path.write_text("code,activ\na,true\n", encoding="utf-8")
    with pytest.raises(BadRequestError) as caught:
        load(graph, mapping=customers(path))
    assert caught.value.message == (
        f"{path}: Customer has no property `activ`: did you mean `active`? "
        "Otherwise name the columns to read in `columns:`"
    )
    path.write_text("code,active,zzz,Emial\na,true,1,2\n", encoding="utf-8")
    with pytest.raises(BadRequestError, match="`zzz`, `Emial`: did you mean `email`"):
        load(graph, mapping=customers(path))
    # What has a column already was not meant.
    path.write_text("code,active,activ\na,true,1\n", encoding="utf-8")
    with pytest.raises(BadRequestError, match="`activ`; name the columns to read"):
        load(graph, mapping=customers(path))


def test_a_required_column_that_is_missing_is_told_once(graph: Graph, folder: Path) -> None:
    table = pa.table({"name": ["a", "b"], "active": [True, False]})
    pq.write_table(table, folder / "x.parquet")
    (folder / "x.csv").write_text("name,active\na,true\n", encoding="utf-8")
    text = "the source has no column `code`, which Customer requires"
    for given in (
        {"frames": {"Customer": table}},
        {"mapping": customers(folder / "x.parquet")},
        {"mapping": customers(folder / "x.csv")},
        {"mapping": customers(folder / "x.csv", multiline=True)},
    ):
        with pytest.raises(BadRequestError) as caught:
            load(graph, **given)
        assert type(caught.value) is BadRequestError
        assert caught.value.message.endswith(text)
    with pytest.raises(BadRequestError, match="no columns `code`, `active`, which Customer"):
        load(graph, frames={"Customer": table.select(["name"])})
    columns = {"name": "code"}
    with pytest.raises(BadRequestError, match="nothing feeds `active`, which Customer requires"):
        load(graph, mapping=customers(folder / "x.parquet", columns=columns))
    # What else may feed it.
    properties = {"code": {"concat": ["name"]}, "active": {"constant": True}}
    load(graph, mapping=customers(folder / "x.csv", columns={}, properties=properties))
    (folder / "code=z").mkdir()
    (folder / "code=z" / "y.csv").write_text("active\ntrue\n", encoding="utf-8")
    load(graph, mapping=customers(folder / "*" / "y.csv"))
    assert ids_of(graph, "node:Customer") == {"a", "z"}


def test_objects_that_lack_a_member_are_bad_records(graph: Graph, folder: Path) -> None:
    (folder / "x.json").write_text('{"active": true}\n{"active": true}\n', encoding="utf-8")
    report = report_of(graph, mapping=customers(folder / "x.json"))
    assert report.totals == {"missing value for Customer.code": 2}


def test_the_index_of_a_pandas_frame_is_no_column(graph: Graph) -> None:
    frame = pd.DataFrame({"code": ["a"], "active": [True]}).set_index("code")
    with pytest.raises(BadRequestError) as caught:
        load(graph, frames={"Customer": frame})
    assert caught.value.message == (
        "frame Customer: the source has no column `code`, which Customer requires; "
        "`code` is the index of the frame: give `frame.reset_index()`"
    )
    edges = pd.DataFrame({"from": ["a"], "to": ["a"]}).set_index(["from", "to"])
    with pytest.raises(BadRequestError, match=r"no column `from`; .* `frame.reset_index\(\)`"):
        load(graph, frames={"Friend": edges})
    load(graph, frames={"Customer": frame.reset_index()})
    assert ids_of(graph, "node:Customer") == {"a"}


# ---- what a report is about


def test_a_report_says_which_records_were_not_compared(graph: Graph, folder: Path) -> None:
    note = "\nrelations (ends of edges, @unique, counts) were checked without the record that is wrong by itself"
    friends = pa.table({"from": ["a"], "to": ["b"]})
    frames = {"Customer": pa.table({"code": [None], "active": [True]}), "Friend": friends}
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, frames=frames)
    assert caught.value.message.endswith(note)
    report = caught.value.report
    assert list(report.totals)[1:] == ["src of Friend not found in Customer", "dst of Friend not found in Customer"]
    assert (report.relations_checked, report.not_compared) == (True, 1)
    assert LoadReport.from_json(report.to_json()) == report
    # Frames have no order: of two rows of one id none can be chosen.
    frames = {"Customer": pa.table({"code": ["a", "a"], "active": [True, True]}), "Friend": friends}
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, "merge", frames=frames)
    assert caught.value.report.totals == {"duplicate id of Customer": 1, "dst of Friend not found in Customer": 1}
    assert note not in caught.value.message


@pytest.mark.parametrize("is_relation", [False, True])
@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("kind", ["lines", "multiline", "parquet", "list", "jsonl", "frame"])
def test_a_number_that_is_not_a_line_is_called_what_it_is(
    graph: Graph, folder: Path, kind: str, mode: str, is_relation: bool
) -> None:
    """Of bad values, and of rows that are found again when relations are checked."""
    rows: list[dict[str, Any]] = [{"code": name, "email": name, "active": True} for name in "ab"]
    rows.append({"code": "c", "active": True} | ({"email": "a"} if is_relation else {"email": "c"}))
    rows[2] |= {} if is_relation else {"active": None}
    path, given = folder / "x", {}
    match kind:
        case "lines" | "multiline":
            texts = [f"{row['code']},{row['email']},{row['active'] or ''}".lower() for row in rows]
            path.write_text("\n".join(["code,email,active", *texts]), encoding="utf-8")
            given["mapping"] = customers(path, format="csv", multiline=kind == "multiline")
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
            given["mapping"] = customers(path, format="parquet")
        case "list" | "jsonl":
            text = json.dumps(rows) if kind == "list" else "\n".join(map(json.dumps, rows))
            path.write_text(text, encoding="utf-8")
            given["mapping"] = customers(path, format="json")
        case _:
            given["frames"] = {"Customer": pa.Table.from_pylist(rows)}
    expected = {"lines": f"{path}:4", "jsonl": f"{path}:3", "frame": "frame Customer, partition 0, row 3"}.get(
        kind, f"{path}, record 3"
    )
    (found,) = report_of(graph, mode=mode, **given).examples
    assert found.location == expected
    assert BadRecord.from_json(found.to_json()) == found


# ---- Loads that make their branch, beside other writers, and what they may never destroy


LOAD_BRANCHES_SCHEMA = "node Note { text: String }  node Tag { slug: String @key }"
ALL = "query all() { match { $n: Note } return { $n.text as text } order { text } }"


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    return Graph.init(tmp_path / "g.omni", LOAD_BRANCHES_SCHEMA)


def notes(folder: Path, name: str, *texts: str) -> Path:
    path = folder / name
    path.write_text("".join(f'{{"type": "Note", "data": {{"text": "{t}"}}}}\n' for t in texts))
    return path


def texts_of(notebook: Graph, branch: str) -> list[str]:
    with Graph.open(notebook.uri, read_only=True) as fresh:
        return [row["text"] for row in fresh.query(ALL, branch=branch).to_pylist()]


def once_staged(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do something after the next load has written its fragments, once."""
    original, left = stages.LoadJob.stage, [action]

    def stage(job: stages.LoadJob, *given: object) -> None:
        original(job, *given)  # type: ignore[arg-type]  # handed on as it is
        if left:
            left.pop()()

    monkeypatch.setattr(stages.LoadJob, "stage", stage)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_new_branch_begins_where_the_load_began_whatever_its_base_does(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    notebook.load(notes(tmp_path, "a.jsonl", "old"), mode="append", engine="local")
    rival = notes(tmp_path, "b.jsonl", "rival")
    once_staged(monkeypatch, lambda: notebook.load(rival, mode="append", engine="local"))
    source = notes(tmp_path, "c.jsonl", "one", "two")
    receipt = notebook.load(source, mode=mode, branch="x", base="main", engine="local")
    kept = [] if mode == "overwrite" else ["old"]
    assert receipt.branch_created
    assert texts_of(notebook, "x") == [*kept, "one", "two"]
    assert texts_of(notebook, "main") == ["old", "rival"]
    notebook.load(notes(tmp_path, "d.jsonl", "more"), mode="append", branch="x", engine="local")
    assert "more" in texts_of(notebook, "x")


def test_only_one_load_at_a_time_makes_a_branch(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = notes(tmp_path, "a.jsonl", "one")

    def second() -> None:
        with pytest.raises(RetryableCommitConflictError, match="another writer is making branch"):
            notebook.load(source, mode="append", branch="x", base="main", engine="local")
        notebook.load(source, mode="append", branch="y", base="main", engine="local")

    once_staged(monkeypatch, second)
    notebook.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(notebook, "x") == texts_of(notebook, "y") == ["one"]


def test_a_branch_that_appears_meanwhile_is_a_conflict_and_stays_whole(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appear() -> None:
        notebook.create_branch("x")
        notebook.mutate('query add() { insert Note { text: "theirs" } }', branch="x")

    once_staged(monkeypatch, appear)
    source = notes(tmp_path, "a.jsonl", "mine")
    with pytest.raises(ReadSetConflictError, match="branch x"):
        notebook.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(notebook, "x") == ["theirs"]
    notebook.load(source, mode="append", branch="x", engine="local")
    assert texts_of(notebook, "x") == ["mine", "theirs"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_branch_inside_of_another_is_refused_before_anything_is_touched(
    notebook: Graph, tmp_path: Path, dry_run: bool
) -> None:
    source = notes(tmp_path, "a.jsonl", "one")
    notebook.load(source, mode="append", branch="x/y", base="main", engine="local")
    for name in ("x", "x/y/z"):
        with pytest.raises(BadRequestError, match="conflicts with branch"):
            notebook.load(source, mode="append", branch=name, base="main", engine="local", dry_run=dry_run)
    assert texts_of(notebook, "x/y") == ["one"]


def test_a_branch_that_was_undone_is_read_as_it_is_made_again(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "before_publish=raise")
    reset()
    with pytest.raises(RuntimeError):
        notebook.load(notes(tmp_path, "a.jsonl", "lost"), mode="append", branch="x", base="main", engine="local")
    monkeypatch.delenv(VARIABLE)
    with Graph.open(notebook.uri) as other:
        again = notes(tmp_path, "b.jsonl", "kept")
        other.load(again, mode="append", branch="x", base="main", engine="local")
    assert [row["text"] for row in notebook.query(ALL, branch="x").to_pylist()] == ["kept"]


def test_lines_of_a_file_that_feeds_two_types(notebook: Graph, tmp_path: Path) -> None:
    people = Graph.init(tmp_path / "p.omni", "node P { name: String @key  age: I32? }  edge Boss: P -> P")
    path = tmp_path / "p.csv"
    path.write_text("name,age,boss\na,1,a\nb,2,a\nc,old,a\n")
    mapping = {
        "nodes": {"P": {"source": str(path), "columns": {"name": "name", "age": "age"}}},
        "edges": {"Boss": {"source": str(path), "columns": {}, "from": "name", "to": "boss"}},
    }
    with pytest.raises(LoadRejectedError) as caught:
        people.load(mapping=mapping, mode="append", engine="local")
    assert [(item.type_key, item.location) for item in caught.value.report.examples] == [
        ("node:P", f"{path}:4"),
        ("edge:Boss", f"{path}:4"),
    ]
    path.write_text("name,age,boss\na,1,a\nb,2,a\nc,3,nobody\n")
    with pytest.raises(LoadRejectedError) as caught:
        people.load(mapping=mapping, mode="append", engine="local")
    assert [item.location for item in caught.value.report.examples] == [f"{path}:4"]


def test_a_line_of_separators_is_a_record(notebook: Graph, tmp_path: Path) -> None:
    path = tmp_path / "tags.tsv"
    path.write_text("slug\tnote\nx\ty\n\t\n   \nz\t\n")
    mapping = {"nodes": {"Tag": {"source": str(path), "columns": {"slug": "slug"}}}}
    with pytest.raises(LoadRejectedError) as caught:
        notebook.load(mapping=mapping, mode="append", engine="local")
    report = caught.value.report
    assert ("missing value for Tag.slug", 3) in [(i.rule, i.line) for i in report.examples]


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_file_that_breaks_off_leaves_no_fragment(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grammar: str
) -> None:
    monkeypatch.setattr(staging, "_BUFFER_BYTES", 100)
    monkeypatch.setattr(lines_of_files, "_BLOCK_BYTES", 64 * 1024)
    packed = tmp_path / "a.jsonl.gz"
    lines = "".join(f'{{"type": "Note", "data": {{"text": "{n}"}}}}\n' for n in range(20_000))
    data = gzip.compress(lines.encode(), compresslevel=1)
    packed.write_bytes(data[: len(data) * 9 // 10])
    before = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
    for branch in ("main", "x"):
        with pytest.raises(InputFileError, match=r"a\.jsonl\.gz"):
            notebook.load(packed, mode="append", branch=branch, base="main", engine="local", grammar=grammar)
    after = {path for path in (tmp_path / "g.omni").rglob("*") if path.is_file()}
    assert {path for path in after - before if "lock" not in path.name} == set()


# ---- an input is read once


def tag_lines(*slugs: str) -> str:
    return "".join(f'{{"type": "Tag", "data": {{"slug": "{slug}"}}}}\n' for slug in slugs)


def counted_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the parts that are read as a whole, once for each time."""
    original, seen = stages.stage_part, []

    def stage_part(item: staging.StageItem) -> dict[str, object]:
        seen.append(item.part.number)
        return original(item)

    monkeypatch.setattr(stages, "stage_part", stage_part)
    return seen


def tags_of(notebook: Graph, branch: str) -> list[str]:
    text = "query all() { match { $t: Tag } return { $t.slug as slug } order { slug } }"
    return [row["slug"] for row in notebook.query(text, branch=branch).to_pylist()]


def test_the_input_of_a_new_branch_is_read_once(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = notes(tmp_path, "a.jsonl", *(f"n{number}" for number in range(20_000)))
    read, original = [0], lines_of_files.line_blocks

    def blocks(*given: object) -> object:
        for lines in original(*given):  # type: ignore[arg-type]  # handed on as it is
            read[0] += len(lines)
            yield lines

    monkeypatch.setattr("omnigraph.pipeline.sources.reading.line_blocks", blocks)
    notebook.load(source, mode="append", branch="x", base="main", engine="local")
    assert read[0] == 20_000
    assert len(texts_of(notebook, "x")) == 20_000


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_type_that_appears_late_costs_a_second_reading_of_its_part_alone(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grammar: str
) -> None:
    monkeypatch.setattr(staging, "_LOOK_BYTES", 200)
    monkeypatch.setattr(staging, "_BUFFER_BYTES", 100)
    folder = tmp_path / "in"
    folder.mkdir()
    notes(folder, "a.jsonl", *(f"a{number}" for number in range(100)))
    late = notes(folder, "b.jsonl", *(f"b{number}" for number in range(100)))
    late.write_text(late.read_text() + tag_lines("late"))
    packed = notes(folder, "c.jsonl", *(f"c{number}" for number in range(100)))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    seen = counted_parts(monkeypatch)
    before = set((tmp_path / "g.omni").rglob("*.lance"))
    notebook.load(folder, mode="append", branch="x", base="main", engine="local", grammar=grammar)
    assert sorted(seen) == [0, 1, 1, 2]
    assert len(texts_of(notebook, "x")) == 300
    assert tags_of(notebook, "x") == ["late"]
    assert tags_of(notebook, "main") == []
    notebook.cleanup(keep=100, confirm=True)
    kept = set((tmp_path / "g.omni").rglob("*.lance")) - before
    assert kept, "what was read twice was written once"
    (found,) = [item for item in notebook.doctor().findings if item.check == "leftovers"]
    assert found.severity == "ok"


def test_the_first_load_on_a_branch_makes_forks_of_the_types_that_it_has(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.create_branch("dev")
    seen = counted_parts(monkeypatch)
    notebook.load(notes(tmp_path, "a.jsonl", "one"), mode="append", branch="dev", engine="local")
    assert seen == [0]
    assert len(list((tmp_path / "g.omni" / "nodes").glob("*/tree/dev"))) == 1


def test_a_part_of_one_long_line_has_its_type_seen(
    notebook: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_LOOK_BYTES", 50)
    source = notes(tmp_path, "a.jsonl", "x" * 500)
    notebook.load(source, mode="append", branch="x", base="main", engine="local")
    assert texts_of(notebook, "x") == ["x" * 500]


# ---- Loads that fail while others are writing, so that only the ledgers of their tasks tell what they wrote


@pytest.fixture
def traced(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "g.omni")


@contextmanager
def others_writing(traced: Graph) -> Iterator[None]:
    """Another writer has staged files: nobody may remove what no version refers to."""
    other = open_environment(traced._core.environment.location, durable=False)
    with other.staging.shared():
        yield


def failed(traced: Graph, error: type[BaseException], **options: Any) -> Any:
    """How a load fails while others write, after a look that nothing of it is left."""
    root = Path(traced.uri)
    before = files_of(root)
    with others_writing(traced), pytest.raises(error) as caught:
        traced.load(**({"mode": "append", "engine": "local"} | options))
    assert files_of(root) == before
    assert not (root / "__staging").exists()
    return caught.value


def things(spark: Any, must: str = "cast(id as int)") -> Any:
    """A frame of two partitions."""
    return spark.range(0, 100, 1, 2).selectExpr("concat('f', id) as name", f"{must} as must")


# ---- frames


@pytest.mark.parametrize(
    ("raised", "error"), [(BadRequestError("not this one"), BadRequestError), (RuntimeError("it was lost"), SparkError)]
)
def test_a_frame_load_whose_task_fails_leaves_nothing_of_any_partition_and_attempt(
    traced: Graph, spark: Any, monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception]
):
    original = stages.FrameTask

    class Failing:
        """Writes every partition, and fails for the last one afterwards."""

        def __init__(self, *given: Any) -> None:
            self.task = original(*given)

        def __call__(self, partition: int, batches: Any) -> Any:
            yield from self.task(partition, batches)
            if partition == 1:
                raise raised

    monkeypatch.setattr(stages, "FrameTask", Failing)
    found = failed(traced, error, frames={"Thing": things(spark)}, engine="spark", spark=spark)
    assert str(raised) in str(found)


def test_a_frame_with_bad_records_leaves_nothing_of_the_good_partitions(traced: Graph, spark: Any):
    frame = things(spark, "if(id = 99, null, cast(id as int))")
    failed(traced, LoadRejectedError, frames={"Thing": frame}, engine="spark", spark=spark)


def test_a_second_frame_that_is_refused_leaves_nothing_of_the_first(traced: Graph):
    frames = {
        "Thing": pa.table({"name": ["x", "y"], "must": pa.array([1, 2], pa.int32())}),
        "Place": pa.table({"series": ["s"], "nonsense": [1]}),
    }
    failed(traced, BadRequestError, frames=frames)


# ---- files


def test_a_load_that_is_interrupted_between_two_parts_leaves_nothing_of_the_first(
    traced: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        write_lines(folder / f"{name}.jsonl", [thing(f"{name}{n}").encode() for n in range(50)])
    original, passed = stages.stage_part, []

    def interrupted(item: Any) -> Any:
        if passed:
            raise KeyboardInterrupt
        passed.append(original(item))
        return passed[0]

    monkeypatch.setattr(stages, "stage_part", interrupted)
    failed(traced, KeyboardInterrupt, source=folder)
    assert passed, "the first part was written"


def test_an_attempt_whose_answer_was_lost_leaves_nothing_after_the_commit(
    traced: Graph, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", good_lines(100))

    def lost_once(item: Any) -> Any:
        from pyspark import TaskContext

        from omnigraph.pipeline.load.staging import stage_part

        answer = stage_part(item)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the answer was lost")
        return answer

    monkeypatch.setattr(stages, "stage_part", lost_once)
    before = set(files_of(Path(traced.uri)))
    with others_writing(traced):
        traced.load(path, mode="append", spark=spark)
    added = set(files_of(Path(traced.uri))) - before
    # Things, places and two kinds of edges.
    assert len([name for name in added if name.startswith(("nodes", "edges")) and "/data/" in name]) == 4
    assert not [name for name in added if name.startswith("__staging")]


# ---- merges


@pytest.mark.parametrize("task", ["rewrite_fragment", "shrink_fragment"])
def test_a_merge_that_fails_after_it_wrote_leaves_nothing(
    traced: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
):
    path = write_lines(tmp_path / "in.jsonl", [thing(name, must=9).encode() for name in ("ann", "bob", "new")])
    original = getattr(upsert, task)

    def failing(item: Any) -> Any:
        original(item)
        raise StorageError("the disk is gone")

    monkeypatch.setattr(upsert, task, failing)
    failed(traced, StorageError, source=path, mode="merge")


def test_a_preparation_that_is_repeated_leaves_nothing_of_the_first_one(
    traced: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_lines(tmp_path / "in.jsonl", [thing("ann", must=9).encode()])
    original, left = stages.LoadJob.prepare, [1]

    def rival(job: Any, *given: Any) -> Any:
        prepared = original(job, *given)
        if left:
            left.pop()
            with Graph.open(traced.uri) as other:
                other.mutate('query q() { update Thing set { must: 7 } where name = "bob" }')
        return prepared

    monkeypatch.setattr(stages.LoadJob, "prepare", rival)
    before = set(files_of(Path(traced.uri)))
    with others_writing(traced):
        traced.load(path, mode="merge", engine="local")
    added = {name for name in set(files_of(Path(traced.uri))) - before if "/nodes/" in f"/{name}"}
    # A row and a mark on what it replaced, of the rival and of the load.
    assert len([name for name in added if "/data/" in name]) == 2
    assert len([name for name in added if "/_deletions/" in name]) == 2


# ---- ledgers


def test_a_ledger_that_cannot_be_read_hides_nothing_of_the_others(traced: Graph, caplog: pytest.LogCaptureFixture):
    from omnigraph.storage.datasets.fragments import write_rows

    table = traced._core.open_table(traced.snapshot().pins[TableKey("node:Thing")])
    before = files_of(Path(traced.uri))
    fragments = Ledgers.of(traced._core.environment.location)
    for part in range(2):
        written = write_rows(table, table.read().to_batches())
        ledger = Ledger(fragments.folder, part)
        ledger.note(table, written)
    (Path(traced.uri) / fragments.folder.file("wrote-9-x")).write_bytes(b"not Arrow")
    fragments.close(is_committed=False)
    assert files_of(Path(traced.uri)) == before
    assert "wrote-9-x" in caplog.text


def test_a_ledger_that_comes_while_others_are_removed_is_read_too(traced: Graph, monkeypatch: pytest.MonkeyPatch):
    from omnigraph.storage import answers
    from omnigraph.storage.datasets import fragments as module
    from omnigraph.storage.datasets.fragments import write_rows

    table = traced._core.open_table(traced.snapshot().pins[TableKey("node:Thing")])
    before = files_of(Path(traced.uri))
    fragments = Ledgers.of(traced._core.environment.location)
    delete = module.delete_files

    def write(part: int) -> None:
        Ledger(fragments.folder, part).note(table, write_rows(table, table.read().to_batches()))

    def delete_slowly(*given: Any) -> None:
        """A task that was cancelled ends only now."""
        for room in (answers, module):
            monkeypatch.setattr(room, "delete_files", delete)
        write(1)
        delete(*given)

    write(0)
    for room in (answers, module):
        monkeypatch.setattr(room, "delete_files", delete_slowly)
    fragments.close(is_committed=False)
    assert files_of(Path(traced.uri)) == before
    assert not (Path(traced.uri) / "__staging").exists()


def test_a_ledger_names_no_file_outside_of_the_graph(traced: Graph, tmp_path: Path):
    from omnigraph.storage.answers import write_answer

    mine = tmp_path / "mine.lance"
    mine.write_text("mine")
    fragments = Ledgers.of(traced._core.environment.location)
    rows = pa.RecordBatch.from_pydict({"file": ["../mine.lance", "_schema.pg"]})
    write_answer(fragments.folder, "wrote-0-x", rows.schema, [rows])
    fragments.close(is_committed=False)
    assert mine.read_text() == "mine"
    assert (Path(traced.uri) / "_schema.pg").exists()


@pytest.mark.parametrize("step", ["the ledger", "the checksums"])
def test_files_go_when_the_step_behind_their_writing_fails(
    traced: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    """Nothing knows them yet: no answer, no ledger."""

    def full(*_: object, **__: object) -> Any:
        raise StorageError("no space left on device", StorageFailure.PERMANENT)

    lines = write_lines(tmp_path / "things.jsonl", [thing("a").encode()])
    if step == "the ledger":
        monkeypatch.setattr(fragments, "write_answer", full)
    else:
        monkeypatch.setattr(fragments, "fragment_text", full)
    failed(traced, StorageError, source=lines)


def test_a_load_through_a_link_to_the_graph_leaves_nothing_when_it_fails(
    traced: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    link = tmp_path / "current.omni"
    link.symlink_to(Path(traced.uri), target_is_directory=True)
    lines = write_lines(tmp_path / "things.jsonl", [thing("a").encode()])
    with Graph.open(link) as linked:
        linked.load(lines, mode="append", engine="local")
        failed(linked, LoadKeyConflictError, source=lines)
    assert "stays until cleanup" not in caplog.text


def test_local_workers_give_up_at_the_first_part_that_fails():
    """What the parts before it wrote is in their ledgers."""
    from omnigraph.pipeline.workers import Silent

    seen = []

    def task(item: int) -> dict[str, Any]:
        seen.append(item)
        if item == 1:
            raise BadRequestError("no")
        return {}

    with pytest.raises(BadRequestError):
        LocalWorkers(Silent()).run("write", task, range(3))
    assert seen == [0, 1]


def test_edges_that_come_again_without_an_id_are_counted_in_the_receipt(tmp_path: Path) -> None:
    """They are doubled, which nothing can know better; with ids they are replaced, and a new pair is no repetition."""
    graph = Graph.init(tmp_path / "g.omni", "node P { n: String @key } edge K: P -> P edge L: P -> P")
    nodes = [{"type": "P", "data": {"n": name}} for name in "abc"]
    edges = [{"edge": "K", "from": "a", "to": "b"}, {"edge": "L", "from": "a", "to": "b", "data": {"id": "l"}}]
    receipts = [
        graph.load(
            write_lines(tmp_path / f"{number}.jsonl", [json.dumps(line).encode() for line in lines]),
            mode=mode,
            engine="local",
        )
        for number, (mode, lines) in enumerate(
            [
                ("merge", [*nodes, *edges]),
                ("merge", [*nodes, *edges, {"edge": "K", "from": "b", "to": "a"}]),
                ("append", edges[:1]),
            ]
        )
    ]
    assert [{edge.name: edge.repeated for edge in found.edges} for found in receipts] == [
        {"K": 0, "L": 0},
        {"K": 1, "L": 0},
        {"K": 0},
    ]
    body = receipts[1].to_json()["edges"][0]
    assert body == {"name": "K", "entities_loaded": 2, "repeated": 1}
    (told,) = [line for line in load_lines(receipts[1]) if "joined before" in line]
    assert told.startswith("edge K: 1 new edge joins nodes that were joined before; ")
