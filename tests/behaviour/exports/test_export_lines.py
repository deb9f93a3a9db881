"""Values of an export: every type as JSON text, and back."""

from __future__ import annotations

import base64
import io
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.arrow import arrow_type
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import BadRequestError, LoadKeyConflictError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.export import job as export_module
from omnigraph.pipeline.export.formats import TypeShape, json_lines
from omnigraph.pipeline.sources import parts as parts_module
from support.exports import LARGE, SCHEMA, insert_thing, world
from support.graphs import everything, refused
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HARD_TEXTS = [
    "",
    "plain",
    'say "hi"',
    "back\\slash",
    "line\nfeed\r\ttab",
    "".join(map(chr, range(32))),
    "\x7f\x85\u2028\u2029",
    "grün 日本語 🦊",
    "</script>",
    None,
]


def column(base: BaseType, values: list[Any]) -> pa.Array:
    wanted = arrow_type(base)
    if wanted == pa.date64():
        return pa.array(values, pa.int64()).cast(wanted)
    if wanted == pa.date32():
        return pa.array(values, pa.int32()).cast(wanted)
    if pa.types.is_list(wanted) and pa.types.is_temporal(wanted.value_type):
        plain = pa.int64() if wanted.value_type == pa.date64() else pa.int32()
        return pa.array(values, pa.list_(plain)).cast(wanted)
    return pa.array(values, wanted)


def rendered(base: BaseType, array: pa.Array) -> list[str]:
    """The text of each value, cut out of its line."""
    shape = TypeShape(
        table_key="node:T", name="T", is_edge=False, properties=(("p", PropertyType(base, nullable=True)),)
    )
    ids = pa.array([str(number) for number in range(len(array))], pa.utf8())
    batch = pa.RecordBatch.from_arrays([ids, array], ["id", "p"])
    lines = json_lines(shape, batch).column("line").to_pylist()
    heads = [f'{{"type":"T","data":{{"id":"{number}","p":' for number in range(len(array))]
    for line, head in zip(lines, heads, strict=True):
        assert line.startswith(head)
        assert line.endswith("}}\n")
        assert line.count("\n") == 1
    return [line[len(head) : -3] for line, head in zip(lines, heads, strict=True)]


def read_back(base: BaseType, values: list[Any]) -> list[Any]:
    return [json.loads(text) for text in rendered(base, column(base, values))]


@each_case(
    ("scalar", "values"),
    [
        (Scalar.STRING, HARD_TEXTS),
        (Scalar.BOOL, [True, False, None]),
        (Scalar.I32, [-(2**31), 2**31 - 1, 0, None]),
        (Scalar.I64, [-(2**63), 2**63 - 1, 0, None]),
        (Scalar.U32, [0, 2**32 - 1, None]),
        (Scalar.U64, [0, 2**64 - 1, 2**53 + 1, None]),
        (Scalar.F64, [0.1, 1e300, 5e-324, 1.7976931348623157e308, 3.0, 2.0**53, None]),
        (Scalar.DATE, [0, -1, 19782, None]),
        (Scalar.DATETIME, [0, -1, 1709210096789, None]),
    ],
)
def test_a_scalar_reads_back(scalar: Scalar, values: list[Any]) -> None:
    assert read_back(ScalarType(scalar), values) == values
    if scalar is not Scalar.BLOB:
        lists = [values, [], None, [values[0]]]
        assert read_back(ListType(scalar), lists) == lists


def test_enums_and_vectors_read_back() -> None:
    assert read_back(EnumType(("a", 'b"')), ["a", 'b"', None]) == ["a", 'b"', None]
    vectors = [[0.5, -3.25], None, [0.0, 1.0]]
    assert read_back(VectorType(2), vectors) == vectors


def test_blobs_are_base64_and_an_empty_one_is_not_null() -> None:
    large = bytes(range(256)) * 40_000
    texts = rendered(ScalarType(Scalar.BLOB), pa.array([b"", None, large], pa.large_binary()))
    assert texts[:2] == ['"base64:"', "null"]
    assert base64.b64decode(json.loads(texts[2]).removeprefix("base64:")) == large


def test_a_narrow_float_has_as_few_digits_as_it_needs() -> None:
    array = pa.array([0.1, 1e-45, 3.4028234663852886e38, 16777216.0, 1 / 3], pa.float32())
    texts = rendered(ScalarType(Scalar.F32), array)
    assert texts == ["0.1", "1e-45", "3.4028235e+38", "16777216", "0.33333334"]


def test_negative_zero_keeps_its_sign() -> None:
    for base, values in ((ScalarType(Scalar.F32), [-0.0]), (ScalarType(Scalar.F64), [-0.0]), (VectorType(1), [[-0.0]])):
        assert "-0.0" in rendered(base, column(base, values))[0]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_every_narrow_float_reads_back_bit_for_bit(values: list[float]) -> None:
    base = ScalarType(Scalar.F32)
    back = [float(value) for value in read_back(base, values)]
    assert struct.pack(f"{len(back)}f", *back) == struct.pack(f"{len(values)}f", *values)


@given(st.lists(st.none() | st.text(), max_size=20))
def test_every_text_reads_back(values: list[str | None]) -> None:
    assert read_back(ScalarType(Scalar.STRING), values) == values
    assert read_back(ListType(Scalar.STRING), [values]) == [values]


def test_values_of_a_slice_are_those_of_its_rows() -> None:
    base = ListType(Scalar.STRING)
    array = column(base, [["no"], None, ["a", "b"], [], ["no"]]).slice(1, 3)
    assert rendered(base, array) == ["null", '["a","b"]', "[]"]
    vectors = column(VectorType(2), [[9, 9], None, [1, 2], [9, 9]]).slice(1, 2)
    assert rendered(VectorType(2), vectors) == ["null", "[1,2]"]


@each_case("number", [float("nan"), float("inf"), -float("inf")])
@each_case(
    ("base", "wrap"),
    [
        (ScalarType(Scalar.F32), lambda x: x),
        (ScalarType(Scalar.F64), lambda x: x),
        (ListType(Scalar.F64), lambda x: [1.0, None, x]),
        (VectorType(1), lambda x: [x]),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_name(base: BaseType, wrap: Any, number: float) -> None:
    with pytest.raises(BadRequestError, match=r"node:T\.p of '1' holds a number that is not finite"):
        rendered(base, column(base, [None, wrap(number)]))


def test_an_edge_has_its_ends_in_the_envelope() -> None:
    shape = TypeShape(table_key="edge:E", name="E", is_edge=True, properties=())
    batch = pa.RecordBatch.from_pydict({"id": ['["1","x"]'], "src": ['a"'], "dst": ["b"]})
    line = json_lines(shape, batch).column("line")[0].as_py()
    assert json.loads(line) == {"edge": "E", "from": 'a"', "to": "b", "data": {"id": '["1","x"]'}}


# ---- What is exported and loaded again is the same graph: every row, every value, every id


EDGES_OF_VALUES: list[dict[str, Any]] = [
    {"name": "high", "i32": 2**31 - 1, "i64": 2**63 - 1, "u32": 0, "u64": 0, "f32": 3.4028234663852886e38},
    {"name": "low", "f32": -1e-45, "f64": -5e-324, "day": "0001-01-01", "at": "0001-01-01T00:00:00Z"},
    {"name": "late", "f64": -0.0, "day": "9999-12-31", "at": "9999-12-31T23:59:59.999Z"},
    {"name": "lists", "counts": [], "floats": [-0.0, 1e38], "ats": [], "flags": [], "tags": ["", "\u0000"]},
    {"name": '["1","a"]', "text": "// no comment", "vec": [-0.0, 0.0, 1e-45], "data": "base64:AAEC"},
    {"name": "\ufeff{}\r\n", "text": "\u2028\u2029\x7f\ud7ff\ue000\U0010ffff"},
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph with every type of value; tests only read it."""
    found = world(tmp_path_factory.mktemp("world"))
    for row in EDGES_OF_VALUES:
        insert_thing(found, row)
    return found


@pytest.fixture
def fresh(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "fresh.omni", SCHEMA)


def rows(graph: Graph) -> dict[str, list[str]]:
    """All rows with their ids; zeros with their sign."""
    return {key: [repr(row) for row in found] for key, found in everything(graph).items()}


def test_the_world_has_what_is_hard_to_move(graph: Graph) -> None:
    """Otherwise the tests below would say nothing."""
    things = {row["id"]: row for row in everything(graph)["node:Thing"]}
    assert {LARGE, b"", None} <= {row["data"] for row in things.values()}
    assert len(things) == 9
    assert str(things["late"]["f64"]) == "-0.0"
    assert {key: len(found) for key, found in rows(graph).items()} == {
        "edge:Near": 1,
        "edge:Same": 2,
        "node:Empty": 0,
        "node:Slot": 12,
        "node:Thing": 9,
    }


@pytest.mark.parametrize(("mode", "grammar"), [("merge", "strict"), ("overwrite", "strict"), ("append", "compatible")])
def test_one_file_of_lines(graph: Graph, fresh: Graph, tmp_path: Path, mode: str, grammar: str) -> None:
    exported = graph.export(tmp_path / "all.jsonl", engine="local")
    result = fresh.load(tmp_path / "all.jsonl", mode=mode, engine="local", grammar=grammar)
    assert rows(fresh) == rows(graph)
    assert result.to_json()["total_entities"] == exported.to_json()["total_entities"]


def test_a_directory_of_parts_read_in_parts(
    graph: Graph, fresh: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    exported = graph.export(tmp_path / "parts", parts=True, engine="local")
    assert len(exported.files) > 10
    monkeypatch.setattr(parts_module, "_SMALLEST_PART_BYTES", 100)
    monkeypatch.setattr(parts_module, "_LARGEST_PART_BYTES", 50_000)
    fresh.load(tmp_path / "parts", mode="append", engine="local")
    assert rows(fresh) == rows(graph)


def test_a_stream_of_lines(graph: Graph, fresh: Graph, tmp_path: Path) -> None:
    sink = io.StringIO()
    graph.export(sink)
    path = tmp_path / "stream.jsonl"
    path.write_bytes(sink.getvalue().encode())
    fresh.load(path, mode="append", engine="local")
    assert rows(fresh) == rows(graph)


def test_standard_output(graph: Graph, fresh: Graph, tmp_path: Path, capfdbinary: Any) -> None:
    graph.export("-")
    path = tmp_path / "stream.jsonl"
    path.write_bytes(capfdbinary.readouterr().out)
    fresh.load(path, mode="overwrite", engine="local")
    assert rows(fresh) == rows(graph)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_parquet_with_its_mapping(
    graph: Graph, fresh: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    graph.export(tmp_path / "out", format="parquet", engine="local")
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    fresh.load(mapping=moved / "mapping.yaml", mode=mode, engine="local")
    assert rows(fresh) == rows(graph)


def test_loading_an_export_again_changes_nothing_or_is_refused(graph: Graph, fresh: Graph, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    graph.export(path, engine="local")
    fresh.load(path, mode="append", engine="local")
    assert fresh.load(path, mode="merge", engine="local").superseded == 0
    assert rows(fresh) == rows(graph)
    with refused(fresh, LoadKeyConflictError):
        fresh.load(path, mode="append", engine="local")
    again = tmp_path / "again.jsonl"
    fresh.export(again, engine="local")
    assert again.read_bytes() == path.read_bytes()


def test_an_export_of_some_types_replaces_those(graph: Graph, fresh: Graph, tmp_path: Path) -> None:
    graph.export(tmp_path / "all.jsonl", engine="local")
    fresh.load(tmp_path / "all.jsonl", mode="append", engine="local")
    insert_thing(fresh, {"name": "more"})
    graph.export(tmp_path / "things.jsonl", types=["Thing"], engine="local")
    fresh.load(tmp_path / "things.jsonl", mode="overwrite", engine="local")
    assert rows(fresh) == rows(graph)


def test_there_and_back_on_spark(graph: Graph, fresh: Graph, tmp_path: Path, spark: SparkSession) -> None:
    graph.export(tmp_path / "out", format="parquet", spark=spark)
    fresh.load(mapping=tmp_path / "out" / "mapping.yaml", mode="merge", spark=spark)
    assert rows(fresh) == rows(graph)
