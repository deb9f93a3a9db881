"""Integers at the ends of their types: stored, found, changed and moved by every way that there is."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cli.main import main
from omnigraph.errors import CompilerError, OmniError, ParameterError

U64 = (0, 2**63 - 1, 2**63, 2**64 - 1)
I64 = (-(2**63), -1, 0, 2**63 - 1)
SCHEMA = """
node Wide {
    key: U64 @key
    u: U64? @index
    list: [U64]?
}
node Signed {
    key: I64 @key
    i: I64? @index
}
edge Next: Wide -> Wide { u: U64? }
"""
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def lines() -> str:
    records: list[dict[str, Any]] = [
        {"type": "Wide", "data": {"key": value, "u": value, "list": [value]}} for value in U64
    ]
    records += [{"type": "Signed", "data": {"key": value, "i": value}} for value in I64]
    records += [
        {"edge": "Next", "from": str(value), "to": str(U64[0]), "data": {"u": value}}
        for value in U64
    ]
    return "\n".join(map(json.dumps, records))


@pytest.fixture(params=["plain", "indexed"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Graph]:
    source = tmp_path / "wide.jsonl"
    source.write_text(lines(), encoding="utf-8")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as made:
        made.load(source, mode="append")
        if request.param == "indexed":
            made.ensure_indices()
        yield made


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
                f"query q($v: I64) {{ match {{ $s: Signed  $s.i {word} $v }} "
                "return { $s.key } order { $s.key } }"
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
        assert numbers(
            graph, f"query q() {{ match {{ $w: Wide {{ key: {value} }} }} return {{ $w.u }} }}"
        ) == [value]
        inside = "query q($v: U64) { match { $w: Wide  $w.list contains $v } return { $w.u } }"
        assert numbers(graph, inside, v=value) == [value]
        listed = (
            f"query q() {{ match {{ $w: Wide  [{value}, 1] contains $w.u }} return {{ $w.u }} }}"
        )
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
        assert numbers(
            graph, f"query q() {{ match {{ $w: Wide {{ key: 0 }} }} return {{ {value} as v }} }}"
        ) == [value]
    text = "query q() { match { $w: Wide } return { min($w.u) as low, max($w.u) as high } }"
    assert numbers(graph, text) == [U64[0], U64[-1]]


def test_mutations_write_find_and_delete(graph: Graph) -> None:
    update = (
        "query q($v: U64) { update Wide set { u: $v, list: [18446744073709551615] } where u = $v }"
    )
    for value in U64:
        assert graph.mutate(update, params={"v": value}).affected_nodes == 1
        graph.mutate(
            f'query q() {{ insert Next {{ from: "{value}", to: "{value}", u: {value} }} }}'
        )
    assert numbers(graph, "query q() { match { $w: Wide } return { $w.u } order { $w.u } }") == [
        *U64
    ]
    for value in U64[2:]:
        gone = graph.mutate("query q($v: U64) { delete Wide where key = $v }", params={"v": value})
        assert (gone.affected_nodes, gone.affected_edges) == (1, 2)
    assert numbers(graph, "query q() { match { $w: Wide } return { $w.u } order { $w.u } }") == [
        *U64[:2]
    ]


def test_a_branch_is_merged_and_an_export_comes_back(graph: Graph, tmp_path: Path) -> None:
    graph.create_branch("side")
    for value in U64:
        graph.mutate(
            "query q($v: U64) { update Wide set { list: [1] } where key = $v }",
            params={"v": value},
            branch="side",
        )
    graph.merge("side", "main")
    exported = tmp_path / "out.jsonl"
    graph.export(exported)
    with Graph.init(tmp_path / "again.omni", SCHEMA) as again:
        again.load(exported, mode="append")
        again.load(exported, mode="merge")
        text = "query q() { match { $w: Wide } return { $w.key, $w.u, $w.list } order { $w.key } }"
        assert again.query(text).to_pylist() == graph.query(text).to_pylist()
        assert numbers(
            again, "query q() { match { $s: Signed } return { $s.i } order { $s.i } }"
        ) == [*I64]


@pytest.mark.parametrize("value", [-1, 2**64, 10**30, 1.5, "x", True])
def test_what_is_no_u64_is_refused_by_name(graph: Graph, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        graph.query(
            "query q($v: U64) { match { $w: Wide  $w.u = $v } return { $w } }", params={"v": value}
        )
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
            main(
                [
                    "query",
                    "--store",
                    graph.uri,
                    "-e",
                    text,
                    "--params",
                    json.dumps({"v": given}),
                    "--json",
                ]
            )
        assert ended.value.code == 0
        assert str(2**64 - 1) in capsys.readouterr().out
