"""What a read gives back: Arrow first, and every other form on top of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.api.rows import Result
from omnigraph.engine import executor
from omnigraph.engine.operators import pipeline as operators
from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    NotFoundError,
    ParameterError,
    PreconditionFailedError,
    QuerySelectionError,
)
from omnigraph.graph.graph import Graph
from support.graphs import PEOPLE, SCALAR_TYPES, SCALARS, UTC_MS, new_graph, run, run_typed

COLUMNS = ", ".join(f"$t.{name} as {name}" for name in SCALAR_TYPES)
ALL = f"query all() {{ match {{ $t: Thing }} return {{ {COLUMNS} }} order {{ name }} }}"
NONE = f'query none() {{ match {{ $t: Thing {{ name: "zz" }} }} return {{ {COLUMNS} }} }}'


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """One row with every value and one without any; tests only read it."""
    with new_graph(tmp_path_factory.mktemp("things"), SCALARS) as graph:
        run_typed(
            graph,
            "$at: DateTime, $day: Date, $days: [Date], $vec: Vector(3), $i64: I64, $u64: U64",
            """insert Thing {
                 name: "full", text: "t", flag: true, i32: 1, i64: $i64, u32: 2, u64: $u64,
                 f32: 0.5, f64: 0.25, day: $day, at: $at, stage: "draft", tags: ["x", "y"],
                 counts: [1, 2], days: $days, vec: $vec
               }""",
            at="2024-02-29T12:34:56.789Z",
            day="2024-02-29",
            days=["2024-01-01", "1969-12-31"],
            vec=[1, 2, 3],
            i64=2**53 + 1,
            u64=2**63 - 1,
        )
        run(graph, 'insert Thing { name: "nulls" }')
        yield graph


@pytest.fixture
def people(tmp_path) -> Iterator[Graph]:
    with new_graph(tmp_path, PEOPLE) as graph:
        run(graph, 'insert Person { name: "ada", age: 1 } insert Person { name: "bob", age: 2 }')
        yield graph


NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"


# ---- the whole result


def test_a_result_knows_its_query_columns_and_size(things: Graph) -> None:
    result = things.query(ALL)
    assert result.query_name == "all"
    assert result.columns == list(SCALAR_TYPES)
    assert result.row_count == len(result) == 2
    assert result.commit_id == things.snapshot().commit_id
    assert result.target.branch == "main"


@pytest.mark.parametrize("text", [ALL, NONE], ids=["rows", "no rows"])
def test_the_arrow_schema_is_typed_with_and_without_rows(things: Graph, text: str) -> None:
    result = things.query(text)
    table = result.to_arrow()
    assert table.schema == result.schema
    assert {field.name: field.type for field in table.schema} == SCALAR_TYPES
    assert [field.name for field in table.schema if not field.nullable] == ["name"]
    table.validate(full=True)
    assert table.num_rows == (2 if text == ALL else 0)


def test_lists_of_instants_are_timestamps_too(tmp_path) -> None:
    graph = new_graph(tmp_path, "node N { k: I32 @key ats: [DateTime]? }")
    run_typed(graph, "$a: [DateTime]", "insert N { k: 1, ats: $a }", a=["1969-12-31T23:59:59.999Z"])
    run(graph, "insert N { k: 2 }")
    result = graph.query("query q() { match { $n: N } return { $n.ats as ats } order { $n.k } }")
    assert result.schema.field("ats").type == pa.list_(UTC_MS)
    before_epoch = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)
    assert result.to_pylist() == [{"ats": [before_epoch]}, {"ats": None}]
    assert [row["ats"] for row in result.json_rows()] == [["1969-12-31T23:59:59.999Z"], None]


def test_python_values_are_python_objects(things: Graph) -> None:
    full, nulls = things.query(ALL).to_pylist()
    assert full == {
        "name": "full",
        "text": "t",
        "flag": True,
        "i32": 1,
        "i64": 2**53 + 1,
        "u32": 2,
        "u64": 2**63 - 1,
        "f32": 0.5,
        "f64": 0.25,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, 34, 56, 789_000, tzinfo=UTC),
        "stage": "draft",
        "tags": ["x", "y"],
        "counts": [1, 2],
        "days": [date(2024, 1, 1), date(1969, 12, 31)],
        "vec": [1.0, 2.0, 3.0],
    }
    assert nulls == {"name": "nulls"} | dict.fromkeys(list(SCALAR_TYPES)[1:])


def test_pandas_has_the_same_columns(things: Graph) -> None:
    frame = things.query(ALL).to_pandas()
    assert list(frame.columns) == list(SCALAR_TYPES)
    assert len(frame) == 2
    assert str(frame["at"].dtype) == "datetime64[ms, UTC]"
    assert frame["at"][0].isoformat() == "2024-02-29T12:34:56.789000+00:00"
    assert frame["name"].tolist() == ["full", "nulls"]
    assert list(frame["vec"][0]) == [1.0, 2.0, 3.0]
    empty = things.query(NONE).to_pandas()
    assert (list(empty.columns), len(empty)) == (list(SCALAR_TYPES), 0)


def test_pandas_keeps_large_integers_beside_nulls(things: Graph) -> None:
    """A column of integers with a null must not become floats: 2^53+1 would change."""
    frame = things.query(ALL).to_pandas()
    assert int(frame["i64"][0]) == 2**53 + 1
    assert int(frame["u64"][0]) == 2**63 - 1


def test_grouped_results_are_typed_too(things: Graph) -> None:
    text = """query q() {
        match { $t: Thing { name: "zz" } }
        return { count($t) as n, sum($t.i32) as s, avg($t.f32) as a, min($t.name) as m }
    }"""
    result = things.query(text)
    assert result.to_pylist() == [{"n": 0, "s": None, "a": None, "m": None}]
    assert result.schema.types == [pa.int64(), pa.float64(), pa.float64(), pa.string()]
    keyed = things.query(text.replace("return {", "return { $t.day as day, "))
    assert keyed.row_count == 0
    assert keyed.schema.field("day").type == pa.date32()


# ---- streaming once, or keeping


def test_iterating_streams_once_and_then_says_why(people: Graph) -> None:
    result = people.query(NAMES)
    batches = list(iter(result))  # list(result) would ask for the length first
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [row["name"] for batch in batches for row in batch.to_pylist()] == ["ada", "bob"]
    for again in (result.to_arrow, result.to_pylist, result.to_json, lambda: next(iter(result))):
        with pytest.raises(RuntimeError, match=r"streamed already: call to_arrow\(\) before"):
            again()


def test_kept_rows_can_be_iterated_again(people: Graph) -> None:
    result = people.query(NAMES)
    table = result.to_arrow()
    assert result.to_arrow() is table
    for _ in range(2):
        assert pa.Table.from_batches(iter(result), schema=result.schema).equals(table)
    assert result.to_pylist() == [{"name": "ada"}, {"name": "bob"}]
    assert list(result.json_rows()) == result.to_pylist()


def test_an_empty_result_streams_no_rows(things: Graph) -> None:
    assert sum(batch.num_rows for batch in things.query(NONE)) == 0
    result = things.query(NONE)
    assert result.to_arrow().schema == result.schema
    assert sum(batch.num_rows for batch in result) == 0


def test_a_stream_that_was_left_early_is_not_half_a_table(people: Graph) -> None:
    result = people.query(NAMES)
    stream = iter(result)
    next(stream)
    with pytest.raises(RuntimeError, match="streamed already"):
        result.to_arrow()


# ---- how it looks


def test_repr_names_query_rows_and_columns(people: Graph) -> None:
    two = people.query(NAMES.replace("as name }", "as name, $p.age as age }"))
    lines = repr(two).splitlines()
    assert lines[1].split() == ["name", "age"]
    assert lines[-1] == "2 rows"
    assert lines[0] == "Result of names"
    one = people.query('query one() { match { $p: Person { name: "ada" } } return { $p.name as name } }')
    assert repr(one).splitlines()[-1] == "1 row"


def test_repr_never_fails_and_never_takes_the_stream(people: Graph) -> None:
    """Debuggers and logs print objects at any time."""
    result = people.query(NAMES)
    stream = iter(result)
    first = next(stream)
    assert "names" in repr(result)
    assert first.num_rows + sum(batch.num_rows for batch in stream) == 2
    assert "names" in repr(result)
    fresh = people.query(NAMES)
    assert "names" in repr(fresh)
    assert sum(batch.num_rows for batch in fresh) == 2


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html_of(result: Result) -> _Cells:
    cells = _Cells()
    cells.feed(result._repr_html_())
    return cells


def test_html_escapes_what_people_wrote(people: Graph) -> None:
    hostile = "<script>alert('x')</script> & \"q\""
    run(people, "insert Person { name: $n }", n=hostile)
    text = 'query q() { match { $p: Person } return { $p.name as name, "<b>" as bold } order { name } }'
    html = people.query(text)._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    cells = _Cells()
    cells.feed(html)
    shown = ["name", "String", "bold", "String", hostile, "<b>", "ada", "<b>", "bob", "<b>", "3 rows"]
    assert cells.texts[1:] == shown  # behind the style


def test_html_shows_values_as_json_does(things: Graph) -> None:
    cells = html_of(things.query(ALL))
    assert cells.tags.count("th") == len(SCALAR_TYPES)
    assert cells.tags.count("td") == 2 * len(SCALAR_TYPES)
    for shown in ("2024-02-29T12:34:56.789Z", str(2**53 + 1), '["2024-01-01", "1969-12-31"]'):
        assert shown in cells.texts
    assert "null" in cells.texts


def test_html_says_how_many_rows_are_shown(people: Graph) -> None:
    def note(limit: int) -> tuple[str, int]:
        text = f"query q() {{ match {{ $a: Person $b: Note }} return {{ $a.name, $b.text }} limit {limit} }}"
        cells = html_of(people.query(text))
        return cells.texts[-1], cells.tags.count("tr") - 1

    run(people, " ".join(f'insert Note {{ text: "{number}" }}' for number in range(11)))
    assert note(0) == ("0 rows", 0)
    assert note(1) == ("1 row", 1)
    assert note(20) == ("20 rows", 20)
    assert note(21) == ("first 20 of 21 rows", 20)
    assert note(100) == ("first 20 of 22 rows", 20)


# ---- JSON


def test_the_json_envelope_has_its_members_in_order(things: Graph) -> None:
    body = things.query(ALL).to_json()
    assert list(body) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert body["target"] == {"branch": "main"}
    assert body["columns"] == list(SCALAR_TYPES)
    assert body["graph_commit_id"] == things.snapshot().commit_id
    assert json.loads(json.dumps(body, allow_nan=False)) == body
    full = body["rows"][0]
    assert (full["i64"], full["u64"], full["i32"]) == (str(2**53 + 1), str(2**63 - 1), 1)
    assert (full["day"], full["at"]) == ("2024-02-29", "2024-02-29T12:34:56.789Z")
    assert list(full) == list(SCALAR_TYPES)


def test_the_json_envelope_of_a_snapshot_names_the_commit(people: Graph) -> None:
    first, genesis = people.commits()
    body = people.query(NAMES, snapshot=genesis.commit_id).to_json()
    assert body["target"] == {"snapshot": genesis.commit_id}
    assert (body["row_count"], body["graph_commit_id"]) == (0, genesis.commit_id)
    assert people.query(NAMES).to_json()["graph_commit_id"] == first.commit_id


# ---- the commit of a read


def test_the_commit_of_a_result_is_a_condition_of_a_write(people: Graph) -> None:
    result = people.query(NAMES)
    add = 'query q() { insert Person { name: "cid" } }'
    people.mutate(add, if_commit=result.commit_id)
    with pytest.raises(PreconditionFailedError) as lost:
        people.mutate(add.replace("cid", "dan"), if_commit=result.commit_id)
    assert lost.value.expected == result.commit_id
    assert people.query(NAMES).to_pylist() == [{"name": n} for n in ("ada", "bob", "cid")]


def test_a_result_shows_its_snapshot_whenever_it_is_read(people: Graph) -> None:
    """The rows are taken after the writes; they are still those of the commit that was read."""
    head = people.query(NAMES)
    pairs = people.query("query q() { match { $a: Person $b: Person } return { $a.name, $b.age } }")
    run(people, 'delete Person where name = "ada"')
    run(people, 'insert Person { name: "cid" }')
    people.ensure_indices()
    assert head.to_pylist() == [{"name": "ada"}, {"name": "bob"}]
    assert pairs.row_count == 4
    assert people.query(NAMES).to_pylist() == [{"name": "bob"}, {"name": "cid"}]


# ---- failures belong to the call


@pytest.mark.parametrize(
    ("text", "params", "error"),
    [
        pytest.param("query q() {", {}, CompilerError, id="syntax"),
        pytest.param("query q() { match { $p: Prson } return { $p } }", {}, CompilerError, id="type"),
        pytest.param("", {}, QuerySelectionError, id="nothing"),
        pytest.param(f"{NAMES} {NAMES.replace('names', 'more')}", {}, QuerySelectionError, id="two"),
        pytest.param(NAMES, {"x": 1}, ParameterError, id="extra"),
        pytest.param(NAMES.replace("()", "($x: I32)", 1), {}, ParameterError, id="missing"),
        pytest.param('query q() { insert Person { name: "x" } }', {}, QuerySelectionError, id="write"),
    ],
)
def test_a_wrong_call_fails_at_once(
    people: Graph, text: str, params: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        people.query(text, params)


def test_a_mutation_is_sent_to_mutate(people: Graph) -> None:
    with pytest.raises(QuerySelectionError, match="`add` is a mutation: run it with `mutate`"):
        people.query('query add() { insert Person { name: "x" } }')
    with pytest.raises(QuerySelectionError, match="`names` is a read: run it with `query`"):
        people.mutate(NAMES)


def test_a_failure_while_running_belongs_to_the_call_as_well(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is made inside `query`, so nobody meets the failure somewhere else."""
    from omnigraph.engine import executor

    def fail(*_: object, **__: object) -> None:
        raise BadRequestError("the disk is gone")

    monkeypatch.setattr(executor, "run_pipeline", fail)
    with pytest.raises(BadRequestError, match="the disk is gone"):
        people.query(NAMES)


def test_a_name_selects_a_query(people: Graph) -> None:
    text = f"{NAMES} {NAMES.replace('names', 'more')}"
    assert people.query(text, name="more").query_name == "more"
    with pytest.raises(QuerySelectionError) as caught:
        people.query(text, name="other")
    assert caught.value.available == ("names", "more")


def test_a_target_that_is_missing_fails_before_the_query_is_read(people: Graph) -> None:
    with pytest.raises(NotFoundError):
        people.query("not a query", branch="nope")


# ---- Large results: batches as they are made, and no more work than the limit asks for


SIDE = 450
SCHEMA = "node A { k: I32 @key  even: Bool } node B { k: I32 @key  text: String }"
PAIRS = "query pairs() { match { $a: A $b: B } return { $a.k as a, $b.text as b } }"
#: 91 million rows: nobody can wait for all of them here.
TRIPLES = "query triples() { match { $a: A $b: B $c: A } return { $a.k as a, $b.k as b, $c.k as c } }"


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

    def watch(self, batches: Iterator[Any], size: str) -> Iterator[Any]:
        for batch in batches:
            self.rows.append(getattr(batch, size))
            yield batch


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows were turned into results."""
    spy, project = Spy(), executor.project
    monkeypatch.setattr(executor, "project", lambda *given: next(spy.watch(iter([project(*given)]), "num_rows")))
    return spy


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows were read from tables by scans with values."""
    spy, scan = Spy(), operators.scan_rows
    monkeypatch.setattr(operators, "scan_rows", lambda *given, **named: spy.watch(scan(*given, **named), "num_rows"))
    return spy


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """How many rows of products were made."""
    spy, cross = Spy(), operators._cross
    monkeypatch.setattr(operators, "_cross", lambda *given: spy.watch(cross(*given), "count"))
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


def test_the_product_itself_is_made_piece_by_piece(graph: Graph, projected: Spy, crossed: Spy) -> None:
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
def test_limit_0_reads_nothing_and_keeps_the_columns(graph: Graph, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
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
