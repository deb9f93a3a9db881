"""Large results: batches as they are made, and no more work than the limit asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine import executor, operators
from omnigraph.graph.graph import Graph
from support.graphs import new_graph, run

SIDE = 450
SCHEMA = "node A { k: I32 @key  even: Bool } node B { k: I32 @key  text: String }"
PAIRS = "query pairs() { match { $a: A $b: B } return { $a.k as a, $b.text as b } }"
#: 91 million rows: nobody can wait for all of them here.
TRIPLES = (
    "query triples() { match { $a: A $b: B $c: A } return { $a.k as a, $b.k as b, $c.k as c } }"
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Two types whose product has 202,500 rows; tests only read it."""
    with new_graph(tmp_path_factory.mktemp("large"), SCHEMA) as made:
        fill(made)
        yield made


def fill(graph: Graph) -> None:
    even = ["false", "true"]
    run(graph, " ".join(f"insert A {{ k: {n}, even: {even[n % 2]} }}" for n in range(SIDE)))
    run(graph, " ".join(f'insert B {{ k: {n}, text: "b{n}" }}' for n in range(SIDE)))


class Spy:
    """Counts the rows that go through a function of the engine."""

    def __init__(self) -> None:
        self.rows: list[int] = []


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows were turned into results."""
    spy, project = Spy(), executor.project

    def counted(*given: Any) -> Any:
        batch = project(*given)
        spy.rows.append(batch.num_rows)
        return batch

    monkeypatch.setattr(executor, "project", counted)
    return spy


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows were read from tables by scans with values."""
    spy, scan_rows = Spy(), operators.scan_rows

    def counted(*given: Any, **named: Any) -> Any:
        for batch in scan_rows(*given, **named):
            spy.rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(operators, "scan_rows", counted)
    return spy


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows of products were made."""
    spy, cross = Spy(), operators._cross

    def counted(*given: Any) -> Any:
        for rows in cross(*given):
            spy.rows.append(rows.count)
            yield rows

    monkeypatch.setattr(operators, "_cross", counted)
    return spy


def test_a_large_result_arrives_in_batches(graph: Graph, projected: Spy) -> None:
    result = graph.query(PAIRS)
    assert len(projected.rows) == 1, "the first batch only"
    stream = iter(result)
    first = next(stream)
    assert len(projected.rows) == 1
    assert 0 < first.num_rows < SIDE * SIDE
    rest = list(stream)
    assert len(rest) >= 2
    table = pa.Table.from_batches([first, *rest])
    assert table.num_rows == SIDE * SIDE
    pairs = set(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
    assert len(pairs) == SIDE * SIDE


def test_the_product_itself_is_made_piece_by_piece(
    graph: Graph, projected: Spy, crossed: Spy
) -> None:
    stream = iter(graph.query(TRIPLES))
    seen = sum(next(stream).num_rows for _ in range(3))
    assert seen == sum(projected.rows)
    assert seen < 1_000_000
    assert sum(crossed.rows) < SIDE**3 // 20


@pytest.mark.parametrize("limit", [1, 65_535, 65_536, 65_537, 150_000, 202_500, 202_501, 10**9])
def test_a_limit_holds_across_batches(graph: Graph, projected: Spy, limit: int) -> None:
    batches = [batch.num_rows for batch in graph.query(f"{PAIRS[:-2]} limit {limit} }}")]
    expected = min(limit, SIDE * SIDE)
    assert sum(batches) == expected
    assert sum(projected.rows) == expected, "no row is made for nothing"
    assert all(batches)


def test_a_limit_stops_a_product_early(graph: Graph, crossed: Spy) -> None:
    result = graph.query(f"{TRIPLES[:-2]} limit 200000 }}")
    assert result.row_count == 200_000
    assert sum(crossed.rows) < SIDE**3 // 20


def test_a_limit_stops_a_scan_early(graph: Graph, scanned: Spy, projected: Spy) -> None:
    text = "query q() { match { $b: B } return { $b.text as t } limit 5 }"
    assert graph.query(text).row_count == 5
    assert sum(scanned.rows) == sum(projected.rows) == 5


def test_a_limit_stops_a_filtered_scan_early(graph: Graph, scanned: Spy, projected: Spy) -> None:
    text = "query q() { match { $b: B $b.k >= 100 } return { $b.text as t } limit 5 }"
    assert graph.query(text).row_count == 5
    assert sum(projected.rows) == 5
    assert sum(scanned.rows) <= 5, "none where the filtered column is in memory"


def test_a_limit_is_not_pushed_below_an_order(graph: Graph) -> None:
    text = "query q() { match { $b: B } return { $b.k as k } order { k desc } limit 3 }"
    assert [row["k"] for row in graph.query(text).to_pylist()] == [449, 448, 447]


def test_a_limit_counts_rows_behind_filters(graph: Graph) -> None:
    text = "query q() { match { $a: A $b: B $a.k = $b.k } return { $a.k as k } limit 400 }"
    rows = [row["k"] for row in graph.query(text).to_pylist()]
    assert len(rows) == len(set(rows)) == 400


def test_a_limit_counts_groups(graph: Graph) -> None:
    text = "query q() { match { $a: A $b: B } return { $a.k as k, count($b) as n } order { k } limit 7 }"
    assert graph.query(text).to_pylist() == [{"k": k, "n": SIDE} for k in range(7)]


@pytest.mark.parametrize(
    "text",
    [
        PAIRS,
        "query q() { match { $a: A } return { $a.k as k } order { k } }",
        "query q() { match { $a: A } return { count($a) as n } }",
        "query q() { match { $a: A } return { $a.even as e, count($a) as n } }",
    ],
    ids=["plain", "ordered", "count", "grouped"],
)
def test_limit_0_reads_nothing_and_keeps_the_columns(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    unlimited = graph.query(text)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("nothing has to be read")

    monkeypatch.setattr(executor, "run_pipeline", fail)
    result = graph.query(f"{text[:-2]} limit 0 }}")
    assert result.row_count == 0
    assert result.schema == unlimited.schema
    assert result.to_json()["columns"] == unlimited.columns


def test_a_stream_outlives_the_rows_that_it_reads(tmp_path) -> None:
    """Rows deleted while a stream is half way still arrive: the snapshot was fixed by the call."""
    graph = new_graph(tmp_path, SCHEMA)
    fill(graph)
    stream = iter(graph.query(PAIRS))
    batches = [next(stream)]
    run(graph, "delete B where k >= 0")
    run(graph, "delete A where k >= 10")
    assert graph.query(PAIRS).row_count == 0
    batches += stream
    table = pa.Table.from_batches(batches)
    assert table.num_rows == SIDE * SIDE
    assert set(table["b"].to_pylist()) == {f"b{number}" for number in range(SIDE)}


def test_two_streams_of_one_graph_do_not_disturb_each_other(graph: Graph) -> None:
    first, second = iter(graph.query(PAIRS)), iter(graph.query(PAIRS))
    rows = 0
    for one, other in zip(first, second, strict=True):
        assert one.equals(other)
        rows += one.num_rows
    assert rows == SIDE * SIDE


def test_json_rows_stream(graph: Graph, projected: Spy) -> None:
    rows = graph.query(PAIRS).json_rows()
    assert set(next(rows)) == {"a", "b"}
    assert len(projected.rows) == 1
