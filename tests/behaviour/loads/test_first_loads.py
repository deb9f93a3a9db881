"""What people meet in their first loads of tables: messages that say what to do, and values that need no help."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import (
    BadRecord,
    BadRequestError,
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    LoadReport,
)
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import reading
from support.graphs import ends_of, ids_of, rows_of

SCHEMA = """
node Customer {
    code: String @key
    name: String?
    active: Bool
    joined: Date?
    seen: DateTime?
    email: String? @unique
}
edge Friend: Customer -> Customer
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


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
    (text,) = messages_of(
        graph, mapping=customers(path, columns={"nr": "code", "active": "active"})
    )
    assert "`code: {concat: [nr]}`" in text
    ends = {"from": {"code": "a"}, "to": {"code": "a"}}
    found = messages_of(
        graph, frames={"Friend": pa.table({"a": [17]})}, mapping={"edges": {"Friend": ends}}
    )
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
    report = report_of(
        graph, frames=frame(("m", "m@x"), ("m", "m@x"), ("n", "m@x"), ("o", "k@x"), ("o", "k@x"))
    )
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
        "invalid CSV: the line is not UTF-8: unexpected end of data at byte 11; "
        "convert it, for example with iconv"
    )
    assert second.line == 4


@pytest.mark.parametrize("multiline", [True, False])
def test_csv_with_names_in_another_encoding_is_told_as_such(
    graph: Graph, folder: Path, multiline: bool
) -> None:
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
        stream = reading._CountedQuotes(io.BytesIO(content), "x.csv")
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
def test_json_in_another_encoding_is_told_alike(
    graph: Graph, folder: Path, content: bytes, place: str
) -> None:
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
    "content",
    [b"", b"\n", b"\xef\xbb\xbf\r\n", b" \n\n", b"code,active", b"\xef\xbb\xbfcode,active"],
)
@pytest.mark.parametrize("multiline", [True, False])
def test_an_empty_file_among_others_has_no_records(
    graph: Graph, folder: Path, content: bytes, multiline: bool
) -> None:
    (folder / "a.csv").write_text("code,active\na,true\n", encoding="utf-8")
    (folder / "b.csv").write_bytes(content)
    (folder / "c.csv.gz").write_bytes(gzip.compress(content))
    result = load(graph, mapping=customers(folder, multiline=multiline))
    assert result.nodes_loaded == {"Customer": 1}
    (folder / "b.csv").write_text("\ncode,active\nb,true\n", encoding="utf-8")
    with pytest.raises(InputFileError, match=r"b\.csv: its first line is empty"):
        load(graph, mapping=customers(folder, multiline=multiline))


@pytest.mark.parametrize(
    "content", [b"code,active\ra,true\rb,true\r", b"code,active\ra,true\r\nb,true\r\n"]
)
def test_records_behind_carriage_returns_are_never_lost(
    graph: Graph, folder: Path, content: bytes
) -> None:
    path = folder / "mac.csv"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match="carriage return inside: make line ends"):
        load(graph, mapping=customers(path))
    assert load(graph, mapping=customers(path, multiline=True)).nodes_loaded == {"Customer": 2}


# ---- days that come as moments


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_moments_at_midnight_are_days(
    graph: Graph, folder: Path, unit: str, zone: str | None
) -> None:
    days = [datetime(2024, 2, 29, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]
    joined = pa.array(days, pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    table = pa.table({"code": ["a", "b", "c"], "active": [True] * 3, "joined": joined})
    load(graph, frames={"Customer": table})
    assert [row["joined"] for row in rows_of(graph, "node:Customer")] == [
        date(2024, 2, 29),
        None,
        date(1969, 12, 31),
    ]
    noon = pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC), *days[1:]], pa.timestamp(unit, zone))
    pq.write_table(table.set_column(2, "joined", noon), folder / "x.parquet")
    (text,) = messages_of(graph, mapping=customers(folder / "x.parquet"))
    assert "has a time of day (UTC), and a Date has none; give days, as `.dt.date`" in text
    assert "or make the property a DateTime" in text


def test_days_of_pandas_are_days(graph: Graph) -> None:
    frame = pd.DataFrame(
        {"code": ["a"], "active": [True], "joined": pd.to_datetime(["2024-02-29"])}
    )
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


def test_a_report_of_bad_values_says_what_was_not_checked(graph: Graph, folder: Path) -> None:
    note = "\nrelations (ends of edges, @unique, counts) were not checked yet"
    frames = {"Customer": pa.table({"code": [None], "active": [True]})}
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, frames=frames)
    assert caught.value.message.endswith(note)
    report = caught.value.report
    assert report.to_json()["relations_checked"] is False
    assert LoadReport.from_json(report.to_json()) == report
    # Frames have no order: of two rows of one id none can be chosen, and nothing else is looked at.
    frames = {"Customer": pa.table({"code": ["a", "a"], "active": [True, True]})}
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, "merge", frames=frames)
    assert caught.value.message.endswith(note)
    with pytest.raises(LoadRejectedError) as caught:
        load(graph, frames={"Friend": pa.table({"from": ["a"], "to": ["b"]})})
    assert note not in caught.value.message
    assert caught.value.report.relations_checked


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
    if kind == "frame" and mode == "merge" and is_relation:
        # Rows of frames cannot be read again: the place is not known.
        expected = "input"
    else:
        expected = {
            "lines": f"{path}:4",
            "jsonl": f"{path}:3",
            "frame": "frame Customer, partition 0, row 3",
        }.get(kind, f"{path}, record 3")
    (found,) = report_of(graph, mode=mode, **given).examples
    assert found.location == expected
    assert BadRecord.from_json(found.to_json()) == found
