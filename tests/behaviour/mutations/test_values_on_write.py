"""Values on their way into a row: what fits, what is refused, and how keys become ids."""

from __future__ import annotations

import base64
import json
import math
import operator
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main
from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    ExternalBlobPolicyError,
    NotFoundError,
    OmniError,
    ParameterError,
)
from omnigraph.graph.graph import Graph
from support.graphs import SCALARS, new_graph, refused, rows_of, run, run_typed
from support.subtests import each_case


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = new_graph(tmp_path_factory.mktemp("values"), SCALARS)
    run(graph, 'insert Thing { name: "kept", data: "base64:AAEC", more: "base64:" }')
    return graph


REFUSED = [
    ("I64", "i32", 2**31),
    ("I64", "u32", -1),
    ("I64", "u32", 2**32),
    ("I64", "u64", -1),
    ("F64", "i32", 2.5),
    ("F64", "i64", 2.0**63),
    ("F64", "f32", 3.5e38),
    ("F64", "f32", -3.5e38),
    ("Vector(3)", "vec", [1.0, 2.0]),
    ("Vector(3)", "vec", [1.0, 2.0, 3.0, 4.0]),
    ("Vector(3)", "vec", [1.0, None, 3.0]),
    ("Vector(3)", "vec", [1.0, "2", 3.0]),
    ("Vector(3)", "vec", [1.0, True, 3.0]),
    ("Vector(3)", "vec", [1.0, math.nan, 3.0]),
    ("Vector(3)", "vec", [1.0, 1e39, 3.0]),
    ("String", "data", "base64:A"),
]


@each_case(("type_", "column", "value"), REFUSED, ids=[f"{i[1]} {i[2]!a}" for i in REFUSED])
def test_a_value_that_does_not_fit_is_refused_whatever_is_stored(
    things: Graph, type_: str, column: str, value: Any
) -> None:
    statements = [
        f'insert Thing {{ name: "x", {column}: $v }}',
        f'update Thing set {{ {column}: $v }} where name = "kept"',
        f'update Thing set {{ {column}: $v }} where name = "nowhere"',
    ]
    said = "null" if column == "vec" and None in value else ""
    for statement in statements:
        with refused(things, BadRequestError, said):
            run_typed(things, f"$v: {type_}", statement, v=value)


REQUIRED = """
node N { k: String @key  n: I32  stage: enum(a, b)?  at: DateTime  data: Blob  tags: [String] }
edge E: N -> N { w: F32 }
"""


@pytest.fixture(scope="module")
def required(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return new_graph(tmp_path_factory.mktemp("required"), REQUIRED)


@each_case(
    ("type_", "column", "value", "said"),
    [
        ("I32?", "n", None, "null"),
        ("DateTime?", "at", None, "null"),
        ("Blob?", "data", None, "null"),
        ("[String]?", "tags", None, "null"),
        ("I64", "n", 2**31, "out of range"),
        ("String", "stage", "c", "invalid enum value"),
        ("Blob", "data", "s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_an_update_that_matches_no_row_refuses_what_does_not_fit(
    required: Graph, type_: str, column: str, value: Any, said: str
) -> None:
    update = f'update N set {{ {column}: $v }} where k = "none"'
    with refused(required, OmniError, said):
        run_typed(required, f"$v: {type_}", update, v=value)


def test_null_for_an_edge_is_refused(required: Graph) -> None:
    for weight, source, said in (
        (None, "a", "missing value for E.w: it may not be null"),
        (1.0, None, "missing `from` of E: an edge needs the id of a N"),
    ):
        with refused(required, BadRequestError, said):
            run_typed(required, "$w: F32?, $s: String?", 'insert E { from: $s, to: "b", w: $w }', w=weight, s=source)


STORED = [
    ("I64", "u64", 2**63 - 1, 2**63 - 1),
    ("I64", "i64", "9007199254740993", 9007199254740993),
    ("F64", "i32", 2.0, 2),
    ("I64", "f64", 2, 2.0),
    ("F64", "f32", 0.1, 0.10000000149011612),
    # Just above the largest F32, and rounded down to it.
    ("F64", "f32", 3.4028235e38, 3.4028234663852886e38),
    ("[I64]", "counts", [1, None, 2**63 - 1], [1, None, 2**63 - 1]),
    ("[String]", "tags", ["", None, "🦉"], ["", None, "🦉"]),
    ("String", "data", "base64:aGk=", b"hi"),
    ("Blob?", "data", None, None),
]


@each_case(("type_", "column", "value", "stored"), STORED, ids=[f"{i[1]} {i[2]!a}" for i in STORED])
def test_a_value_that_fits_is_stored_exactly(things: Graph, type_: str, column: str, value: Any, stored: Any) -> None:
    run_typed(things, f"$v: {type_}", f'insert Thing {{ name: "ok", {column}: $v }}', v=value)
    (row,) = [row for row in rows_of(things, "node:Thing") if row["id"] == "ok"]
    assert row[column] == stored


def test_dates_and_times_are_stored_to_the_millisecond(things: Graph) -> None:
    run_typed(
        things,
        "$d: Date, $t: DateTime",
        'insert Thing { name: "when", day: $d, at: $t }',
        d="0001-01-01",
        t="1969-12-31T23:59:59.999+01:00",
    )
    (row,) = [row for row in rows_of(things, "node:Thing") if row["id"] == "when"]
    assert row["day"].isoformat() == "0001-01-01"
    assert row["at"].isoformat() == "1969-12-31T22:59:59.999000"


@each_case("uri", ["http://example.org/x", "file:///etc/passwd", "s3://b/x", "plain", "", "BASE64:AAAA"])
def test_an_external_blob_is_refused(things: Graph, uri: str) -> None:
    with refused(things, ExternalBlobPolicyError):
        run(things, 'insert Thing { name: "x", data: $v }', v=uri)


def test_a_blob_is_set_to_null_by_an_update_and_the_other_one_is_carried(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, SCALARS)
    large = bytes(range(256)) * 20_000
    text = "base64:" + base64.b64encode(large).decode()
    run_typed(
        graph,
        "$d: Blob",
        'insert Thing { name: "a", data: $d, more: "base64:AAEC" } '
        'insert Thing { name: "b", data: $d, more: "base64:" }',
        d=text,
    )
    run_typed(graph, "$v: Blob?", 'update Thing set { data: $v } where name = "a"', v=None)
    with pytest.raises(NotFoundError, match="has no data"):
        graph.read_blob("node:Thing", "a", "data")
    assert graph.read_blob("node:Thing", "a", "more") == b"\x00\x01\x02"
    run(graph, 'update Thing set { text: "x" } where name >= "a"')
    assert graph.read_blob("node:Thing", "b", "data") == large
    assert graph.read_blob("node:Thing", "b", "more") == b""
    graph.create_branch("side")
    run(graph, 'update Thing set { text: "y" } where name = "b"', branch="side")
    assert graph.read_blob("node:Thing", "b", "data", branch="side") == large


# ---- keys

KEYS = [
    ("String", "", ""),
    ("String", "🦉 café", "🦉 café"),
    ("String", "x" * 1_000_000, "x" * 1_000_000),
    ("String", 'a/b:c["d"]', 'a/b:c["d"]'),
    ("I32", -5, "-5"),
    ("U64", 2**63 - 1, "9223372036854775807"),
    ("U64", 2**64 - 1, "18446744073709551615"),
    ("I64", -(2**63), "-9223372036854775808"),
    ("F64", 0.1, "0.1"),
    ("F64", -0.0, "0"),
    ("F64", 1e21, "1000000000000000000000"),
    ("F32", 0.1, "0.1"),
    ("Bool", True, "true"),
    ("Date", "1970-01-03", "2"),
    ("DateTime", "1970-01-01T00:00:01.5Z", "1500"),
]


@pytest.mark.parametrize(("type_", "value", "id_"), KEYS, ids=[f"{k[0]} {str(k[1])[:9]!a}" for k in KEYS])
def test_a_key_of_any_type_becomes_its_spelling(tmp_path: Path, type_: str, value: Any, id_: str) -> None:
    graph = new_graph(tmp_path, f"node N {{ k: {type_} @key v: I32? }} edge E: N -> N")
    for number in (1, 2):
        run_typed(graph, f"$k: {type_}", f"insert N {{ k: $k, v: {number} }}", k=value)
    (row,) = rows_of(graph, "node:N")
    assert (row["id"], row["v"]) == (id_, 2)
    run(graph, "insert E { from: $i, to: $i }", i=id_)
    result = run_typed(graph, f"$k: {type_}", "update N set { v: 3 } where k = $k", k=value)
    assert result.affected_nodes == 1
    gone = run_typed(graph, f"$k: {type_}", "delete N where k = $k", k=value)
    assert (gone.affected_nodes, gone.affected_edges) == (1, 1)


def test_combined_and_composed_characters_are_different_keys(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { k: String @key }")
    run(graph, "insert N { k: $a } insert N { k: $b }", a="e\u0301", b="\u00e9")
    assert len(rows_of(graph, "node:N")) == 2


def test_composite_keys_with_equal_joined_text_are_different(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { a: String b: String n: I32 v: I32? @key(a, b, n) }")
    pairs = [("x", "yz"), ("xy", "z"), ("", "xyz"), ('x","', "z"), ("x", '","z')]
    for _ in range(2):
        for a, b in pairs:
            run(graph, "insert N { a: $a, b: $b, n: 1 }", a=a, b=b)
    rows = rows_of(graph, "node:N")
    assert {(row["a"], row["b"]) for row in rows} == set(pairs)
    assert len(rows) == len(pairs)
    assert rows[0]["id"].startswith('["')


@each_case(
    "text",
    [
        "query q() { insert Thing { } }",
        'query q() { insert Thing { text: "x" } }',
        'query q() { insert Thing { name: "x", nope: 1 } }',
        'query q() { insert Nope { name: "x" } }',
        'query q() { insert Thing { name: "x", name: "y" } }',
        "query q() { insert Thing { name: $x } }",
        'query q() { delete Thing where data = "x" }',
        "query q() { delete Thing }",
    ],
)
def test_a_statement_that_does_not_compile_touches_nothing(things: Graph, text: str) -> None:
    with refused(things, CompilerError):
        things.mutate(text)


# ---- Integers at the ends of their types: stored, found, changed and moved by every way that there is


U64 = (0, 2**63 - 1, 2**63, 2**64 - 1)
I64 = (-(2**63), -1, 0, 2**63 - 1)
SCHEMA = """
node Wide { key: U64 @key  u: U64? @index  list: [U64]? }
node Signed { key: I64 @key  i: I64? @index }
edge Next: Wide -> Wide { u: U64? }
"""
NAMES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
OPERATORS = {sign: getattr(operator, name) for sign, name in NAMES.items()}


def lines() -> str:
    records: list[dict[str, Any]] = [
        {"type": "Wide", "data": {"key": value, "u": value, "list": [value]}} for value in U64
    ]
    records += [{"type": "Signed", "data": {"key": value, "i": value}} for value in I64]
    records += [{"edge": "Next", "from": str(value), "to": str(U64[0]), "data": {"u": value}} for value in U64]
    return "\n".join(map(json.dumps, records))


@pytest.fixture(scope="module", params=["plain", "indexed"])
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a graph that every test copies."""
    folder = tmp_path_factory.mktemp("wide")
    source = folder / "wide.jsonl"
    source.write_text(lines(), encoding="utf-8")
    with Graph.init(folder / "g.omni", SCHEMA) as made:
        made.load(source, mode="append", engine="local")
        if request.param == "indexed":
            made.ensure_indices()
    return folder / "g.omni"


@pytest.fixture
def graph(wide: Path, tmp_path: Path) -> Iterator[Graph]:
    with Graph.open(shutil.copytree(wide, tmp_path / "g.omni")) as opened:
        yield opened


def compared(parameters: str, condition: str) -> str:
    return f"""query q({parameters}) {{
        match {{ $w: Wide  $w.u {condition} }} return {{ $w.key }} order {{ $w.key }}
    }}"""


def numbers(graph: Graph, text: str, **params: object) -> list[Any]:
    rows = graph.query(text, params=params or None).to_pylist()
    return [value for row in rows for value in row.values()]


def test_parameters_and_literals_compare_exactly(graph: Graph) -> None:
    for word, holds in OPERATORS.items():
        for value in U64:
            wanted = [it for it in U64 if holds(it, value)]
            for given in (value, str(value)):
                assert numbers(graph, compared("$v: U64", f"{word} $v"), v=given) == wanted
            assert numbers(graph, compared("", f"{word} {value}")) == wanted
        for value in I64:
            asked = (
                f"query q($v: I64) {{ match {{ $s: Signed  $s.i {word} $v }} return {{ $s.key }} order {{ $s.key }} }}"
            )
            assert numbers(graph, asked, v=value) == [it for it in I64 if holds(it, value)]


def test_columns_of_both_signs_compare_by_value(graph: Graph) -> None:
    for word, holds in OPERATORS.items():
        text = (
            f"query q() {{ match {{ $w: Wide  $s: Signed  $w.u {word} $s.i }} "
            "return { $w.key, $s.key } order { $w.key, $s.key } }"
        )
        rows = [tuple(row.values()) for row in graph.query(text).to_pylist()]
        assert rows == [(u, i) for u in U64 for i in I64 if holds(u, i)]


def test_keys_lists_and_edges_are_found(graph: Graph) -> None:
    for value in U64:
        by_key = "query q($v: U64) { match { $w: Wide { key: $v } } return { $w.u } }"
        assert numbers(graph, by_key, v=value) == [value]
        assert numbers(graph, f"query q() {{ match {{ $w: Wide {{ key: {value} }} }} return {{ $w.u }} }}") == [value]
        inside = "query q($v: U64) { match { $w: Wide  $w.list contains $v } return { $w.u } }"
        assert numbers(graph, inside, v=value) == [value]
        listed = f"query q() {{ match {{ $w: Wide  [{value}, 1] contains $w.u }} return {{ $w.u }} }}"
        assert numbers(graph, listed) == [value]
        hop = "query q($v: U64) { match { $a $e:next $b  $e.u = $v } return { $a.key } }"
        assert numbers(graph, hop, v=value) == [value]
        entity = graph.entity_at("node:Wide", str(value))
        assert entity is not None
        assert int(entity["properties"]["u"]) == value


def test_values_are_returned_as_they_were_given(graph: Graph) -> None:
    for value in U64:
        text = "query q($v: U64) { match { $w: Wide { key: 0 } } return { $v as v } }"
        assert numbers(graph, text, v=value) == [value]
        assert numbers(graph, f"query q() {{ match {{ $w: Wide {{ key: 0 }} }} return {{ {value} as v }} }}") == [value]
    text = "query q() { match { $w: Wide } return { min($w.u) as low, max($w.u) as high } }"
    assert numbers(graph, text) == [U64[0], U64[-1]]


def test_mutations_write_find_and_delete(graph: Graph) -> None:
    update = "query q($v: U64) { update Wide set { u: $v, list: [18446744073709551615] } where u = $v }"
    for value in U64:
        assert graph.mutate(update, params={"v": value}).affected_nodes == 1
        graph.mutate(f'query q() {{ insert Next {{ from: "{value}", to: "{value}", u: {value} }} }}')
    assert numbers(graph, "query q() { match { $w: Wide } return { $w.u } order { $w.u } }") == [*U64]
    for value in U64[2:]:
        gone = graph.mutate("query q($v: U64) { delete Wide where key = $v }", params={"v": value})
        assert (gone.affected_nodes, gone.affected_edges) == (1, 2)
    assert numbers(graph, "query q() { match { $w: Wide } return { $w.u } order { $w.u } }") == [*U64[:2]]


def test_a_branch_is_merged_and_an_export_comes_back(graph: Graph, tmp_path: Path) -> None:
    graph.create_branch("side")
    for value in U64:
        graph.mutate(
            "query q($v: U64) { update Wide set { list: [1] } where key = $v }", params={"v": value}, branch="side"
        )
    graph.merge("side", "main")
    exported = tmp_path / "out.jsonl"
    graph.export(exported, engine="local")
    with Graph.init(tmp_path / "again.omni", SCHEMA) as again:
        again.load(exported, mode="append", engine="local")
        again.load(exported, mode="merge", engine="local")
        text = "query q() { match { $w: Wide } return { $w.key, $w.u, $w.list } order { $w.key } }"
        assert again.query(text).to_pylist() == graph.query(text).to_pylist()
        assert numbers(again, "query q() { match { $s: Signed } return { $s.i } order { $s.i } }") == [*I64]


@each_case("value", [-1, 2**64, 10**30, 1.5, "x", True])
def test_what_is_no_u64_is_refused_by_name(graph: Graph, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        graph.query("query q($v: U64) { match { $w: Wide  $w.u = $v } return { $w } }", params={"v": value})
    assert set(caught.value.problems) == {"v"}


def test_a_literal_beyond_64_bits_is_refused_with_its_place(graph: Graph) -> None:
    with pytest.raises(CompilerError) as caught:
        graph.query(f"query q() {{ match {{ $w: Wide  $w.u = {2**64} }} return {{ $w }} }}")
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.line, problem.column) == ("Q109", 1, 38)


def test_what_a_property_cannot_hold_is_refused(graph: Graph) -> None:
    for text, params in (
        (f"query q() {{ insert Signed {{ key: 1, i: {2**63} }} }}", None),
        ("query q($v: U64) { insert Signed { key: 1, i: $v } }", {"v": 2**63}),
        ("query q($v: I64) { insert Wide { key: 1, u: $v } }", {"v": -1}),
    ):
        with pytest.raises(OmniError, match="out of range"):
            graph.mutate(text, params=params)


def test_the_command_line_takes_them(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    text = "query q($v: U64) { match { $w: Wide  $w.u = $v } return { $w.key } }"
    for given in (2**64 - 1, str(2**64 - 1)):
        with pytest.raises(SystemExit) as ended:
            main(["query", "--store", graph.uri, "-e", text, "--params", json.dumps({"v": given}), "--json"])
        assert ended.value.code == 0
        assert str(2**64 - 1) in capsys.readouterr().out
