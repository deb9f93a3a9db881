"""Prepared reads, and the answers that they give out of memory, which are those of the pipeline."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.core.budget import ReadLimits
from omnigraph.engine.direct import DirectRead
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    CompilerError,
    ParameterError,
    QueryCancelledError,
    QuerySelectionError,
    QueryTimeoutError,
    ResourceLimitError,
)
from omnigraph.graph import reads
from support.subtests import each_case

SCHEMA = """
node Person {
  number: I64 @key
  name: String
  age: I32?
  score: F32?
  born: Date?
  seen: DateTime?
  tags: [String]?
  is_old: Bool?
}
node Town { name: String @key  size: I64? }
node Day { day: Date @key  note: String? }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> Town
"""
PEOPLE = 30
BY_NUMBER = "query by_number($n: I64) { match { $p: Person { number: $n } } return { $p.name, $p.age } }"


def _people(graph: Graph) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(PEOPLE):
        values = {"number": number, "name": f"p{number}", "age": None if number % 7 == 0 else number}
        values |= {"score": None if number % 5 == 0 else number / 3, "is_old": None if number % 4 == 0 else number > 20}
        values |= {"born": f"20{number:02}-01-02", "seen": "2026-05-01T12:00:00.250Z", "tags": [f"t{number}", "ü"]}
        rows.append({"type": "Person", "data": values})
    rows += [{"type": "Town", "data": {"name": name, "size": len(name)}} for name in ("Ulm", "Bonn", "Kiel")]
    rows += [{"type": "Day", "data": {"day": "2026-01-01", "note": "new year"}}]
    for number in range(PEOPLE):
        ends = {(number * 7 + step * step) % PEOPLE for step in range(number % 9)}
        rows += [{"edge": "Knows", "from": str(number), "to": str(end), "data": {"since": end}} for end in ends]
        town = ("Ulm", "Bonn", "Kiel")[number % 3]
        rows.append({"edge": "LivesIn", "from": str(number), "to": town, "data": {}})
    # A loop, and two edges between the same two people.
    rows += [{"edge": "Knows", "from": str(number), "to": "3", "data": {}} for number in (3, 5, 5)]
    lists: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kind = row.get("type") or row["edge"]
        made = row["data"] | ({"from": row["from"], "to": row["to"]} if "edge" in row else {})
        lists.setdefault(kind, []).append(made)
    graph.load(frames=lists, mode="append", engine="local")
    # Row ids are not 0, 1, 2, … after this.
    graph.mutate("delete Person where number = 11")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("prepared") / "g.omni", SCHEMA) as graph:
        _people(graph)
        yield graph


@pytest.fixture
def graph(people: Graph) -> Iterator[Graph]:
    """The same people, with nothing in memory."""
    with Graph.open(people.uri) as opened:
        yield opened


def warm(graph: Graph, *texts: str) -> None:
    """Ask so often that keys, columns, masks and traversal indexes are kept."""
    for text in texts:
        for number in range(40):
            graph.query(text, {"n": number})


# ---- what it is


def test_a_prepared_read_says_what_it_takes_and_returns(graph: Graph) -> None:
    reading = graph.prepare(BY_NUMBER)
    assert (reading.name, reading.columns) == ("by_number", ["p.name", "p.age"])
    assert {name: str(type_) for name, type_ in reading.params.items()} == {"n": "I64"}
    assert [str(type_) for type_ in reading.types] == ["String", "I32?"]
    assert repr(reading) == "<PreparedRead by_number($n: I64) on branch main: p.name, p.age>"
    result = reading({"n": 4})
    assert (result.query_name, result.commit_id) == ("by_number", graph.snapshot().commit_id)
    assert result.to_json() == graph.query(BY_NUMBER, {"n": 4}).to_json()


def test_one_of_several_queries_is_prepared_by_its_name(graph: Graph) -> None:
    both = f"{BY_NUMBER} query other() {{ match {{ $t: Town }} return {{ count($t) as n }} }}"
    assert graph.prepare(both, name="other")().to_pylist() == [{"n": 3}]
    with pytest.raises(QuerySelectionError, match="by_number, other"):
        graph.prepare(both)


#: Texts that cannot be prepared, and what is raised.
_REFUSED = {
    "match { $p: Persn } return { $p }": CompilerError,
    "match {": CompilerError,
    'insert Town { name: "Hof" }': QuerySelectionError,
    "branch list": QuerySelectionError,
    f"explain {BY_NUMBER}": QuerySelectionError,
}


@each_case("text", _REFUSED)
def test_what_is_not_a_read_is_refused_at_once(graph: Graph, text: str) -> None:
    with pytest.raises(_REFUSED[text]):
        graph.prepare(text)


@each_case("source", [None, 3, ["match"], b"match"], ids=repr)
def test_what_is_not_a_text_is_refused(graph: Graph, source: Any) -> None:
    for ask in (graph.query, graph.prepare, graph.mutate, graph.explain):
        with pytest.raises(BadRequestError, match="a query is a text, not "):
            ask(source)


def test_parameters_are_checked_with_every_call(graph: Graph) -> None:
    reading = graph.prepare(BY_NUMBER)
    for number in range(40):
        assert len(reading({"n": number}).to_pylist()) == (number < PEOPLE and number != 11)
        for params in (
            None,
            {"n": "x"},
            {"n": 1.5},
            {"n": True},
            {"n": None},
            {"n": 2**70},
            {"m": 1},
            {"n": 1, "m": 1},
        ):
            with pytest.raises(ParameterError):
                reading(params)
        with pytest.raises(BadRequestError):
            reading([1])  # type: ignore[arg-type]  # on purpose
    assert reading({"n": "4"}).to_pylist() == reading({"n": 4}).to_pylist()


# ---- which state it reads


def test_it_reads_the_newest_commit_of_its_branch(tmp_path: Any) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        _people(graph)
        first = graph.snapshot().commit_id
        graph.create_branch("side")
        main, side = graph.prepare(BY_NUMBER), graph.prepare(BY_NUMBER, branch="side")
        pinned = graph.prepare(BY_NUMBER, snapshot=first[-8:])
        version = graph.prepare(BY_NUMBER, version=graph.snapshot().graph_version)
        for number in range(60):
            if number % 20 == 19:
                graph.mutate(f'update Person set {{ name: "m{number}" }} where number = 4')
                graph.mutate(f'update Person set {{ name: "s{number}" }} where number = 4', branch="side")
            last = number // 20 * 20 + 19 if number % 20 == 19 else number // 20 * 20 - 1
            for reading, letter in ((main, "m"), (side, "s")):
                name = "p4" if last < 0 else f"{letter}{last}"
                assert reading({"n": 4}).to_pylist() == [{"p.name": name, "p.age": 4}]
            assert pinned({"n": 4}).to_pylist() == version({"n": 4}).to_pylist() == [{"p.name": "p4", "p.age": 4}]
        assert pinned.target.snapshot == pinned({"n": 4}).commit_id == first
        with Graph.open(graph.uri) as other:
            other.mutate('update Person set { name: "another process" } where number = 4')
        assert main({"n": 4}).to_pylist() == [{"p.name": "another process", "p.age": 4}]


def test_a_branch_that_is_deleted_is_told_with_its_name(tmp_path: Any) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.create_branch("side")
        reading = graph.prepare(BY_NUMBER, branch="side")
        assert reading({"n": 4}).to_pylist() == []
        graph.delete_branch("side")
        graph.create_branch("sid")
        with pytest.raises(BranchNotFoundError, match="did you mean `sid`"):
            reading({"n": 4})
        with pytest.raises(BranchNotFoundError):
            graph.prepare(BY_NUMBER, branch="nowhere")


def test_it_follows_the_accepted_schema(tmp_path: Any) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        _people(graph)
        pinned = graph.prepare(BY_NUMBER, snapshot=graph.snapshot().commit_id)
        reading = graph.prepare(BY_NUMBER)
        everything = graph.prepare("match { $t: Town } return { $t.* } order { $t.name } limit 1")
        for number in range(40):
            reading({"n": number})
        graph.apply_schema(SCHEMA.replace("size: I64?", "size: I64?  mayor: String?"))
        assert reading({"n": 4}).to_pylist() == [{"p.name": "p4", "p.age": 4}]
        assert everything().to_pylist() == [{"t.name": "Bonn", "t.size": 4, "t.mayor": None}]
        graph.apply_schema(graph.schema.replace("  age: I32?", '  years: I32? @rename_from("age")'))
        for _ in range(2):
            with pytest.raises(CompilerError, match="age"):
                reading({"n": 4})
        assert pinned({"n": 4}).to_pylist() == [{"p.name": "p4", "p.age": 4}]


def test_it_works_as_long_as_its_graph_does(people: Graph) -> None:
    graph = Graph.open(people.uri)
    reading = graph.prepare(BY_NUMBER)
    warm(graph, BY_NUMBER)
    before = reading({"n": 4})
    graph.close()
    assert before.to_pylist() == reading({"n": 4}).to_pylist() == [{"p.name": "p4", "p.age": 4}]
    graph.close()


# ---- answers out of memory are those of the pipeline


def _walk(ends: str, shown: str) -> str:
    return f"query q($n: I64) {{ match {{ $a: Person {{ number: $n }} {ends} }} return {{ {shown} }} }}"


#: Texts, and whether they have a direct answer once everything is in memory.
_SHAPES = {
    _walk("", "$a.name, $a.age, $a.score"): True,
    _walk("", "$a.born as b, $a.seen as s, $a.tags as t, $a.is_old as o, $a.number as n"): True,
    _walk("", "count($a) as n"): True,
    _walk("", "count($a) as n, count($a.name) as m"): True,
    _walk("$a knows $b", "count($b) as n"): True,
    _walk("$a knows $b", "$b.name, $b.age, $b.tags, $b.seen"): True,
    _walk("$b knows $a", "$b.number as n"): True,
    _walk("", "$a"): True,
    _walk("$a knows $b", "$b, $b.name, $b.@id as same"): True,
    _walk("$a livesIn $t", "$t"): True,
    _walk("$a knows $b", "$a, $b"): False,
    _walk("$a <knows> $b", "$b.number as n"): True,
    _walk("$a knows $b  $b knows $c", "count($c) as n"): True,
    _walk("$a knows $b  $b knows $c", "$c.number, $c.age"): True,
    _walk("$a knows $b  $b knows $c  $c knows $d", "count($d) as n"): True,
    _walk("$a knows $b  $b knows $c  $c livesIn $t", "$t.name, $t.size"): True,
    _walk("$a livesIn $t  $b livesIn $t", "$b.number, $b.name"): True,
    _walk("$a knows $b  $b.age > 9", "count($b) as n"): True,
    _walk("$a knows $b  $b.age > 9", "$b.name, $b.age"): True,
    _walk("$a knows $b  $b.score <= 5.5  $b.age != 12", "$b.number as n, $b.score"): True,
    _walk("$a knows $b  not ($b.age is null or $b.is_old)  $b knows $c  $c.age >= 3", "$c.number as n"): True,
    _walk("$a knows $b  $b.is_old", "count($b) as n"): True,
    _walk("$a knows $b  $b.age > 99  $b knows $c  $c.age >= 3", "$c.name"): True,
    _walk("$a knows $b  $b.age > 99  $b knows $c", "count($c) as n"): True,
    _walk("$a knows $b  $b.age > $a.age", "count($b) as n"): False,
    _walk("$a knows $b  $b.number != $n", "$b.number as n"): False,
    _walk("$a knows $b  $b.seen < now()", "count($b) as n"): False,
    _walk("$a knows{1,2} $b", "count($b) as n"): False,
    _walk("$a $e:knows $b", "$b.number as n, $e.since"): False,
    _walk("$a knows $b", "$a.name, $b.name"): False,
    _walk("$a knows $b", "count(distinct $b) as n"): False,
    _walk("$a knows $b", "count($b.age) as n"): False,
    _walk("$a knows $b", "$b.name, count($b) as n"): False,
    _walk("$a knows $b  $a knows $c", "count($c) as n"): False,
    _walk("$a.age > 3", "$a.name"): False,
    _walk("not { $a knows $_ }", "$a.name"): False,
    _walk("", "$a.name as n, 1 as one"): False,
}
_LIMITED = _walk("$a knows $b", "$b.number as n")[:-2] + " order { n desc } limit 2 }"


@pytest.fixture
def piped(people: Graph, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """The same people, whom only the pipeline reads."""
    with Graph.open(people.uri) as graph:
        with monkeypatch.context() as patched:
            # What a text means is found out once per snapshot.
            patched.setattr(reads, "direct_shape", lambda *_: None)
            for text in _SHAPES:
                graph.query(text, {"n": 0})
        yield graph


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each question to memory was answered."""
    found: list[bool] = []
    answer = DirectRead.answer

    def told(self: DirectRead, values: Any) -> Any:
        batches = answer(self, values)
        found.append(batches is not None)
        return batches

    monkeypatch.setattr(DirectRead, "answer", told)
    return found


@each_case("text", _SHAPES)
def test_answers_out_of_memory_are_those_of_the_pipeline(
    graph: Graph, piped: Graph, answers: list[bool], text: str
) -> None:
    warm(graph, text)
    answers.clear()
    reading = graph.prepare(text)
    for number in range(-1, PEOPLE + 2):
        wanted = piped.query(text, {"n": number})
        for found in (graph.query(text, {"n": number}), reading({"n": number})):
            assert found.schema.equals(wanted.schema, check_metadata=True)
            assert found.types == wanted.types
            assert [batch.num_rows for batch in found._rows.all()] == [b.num_rows for b in wanted._rows.all()]
            assert found.to_arrow().equals(wanted.to_arrow())
            assert found.to_pylist() == wanted.to_pylist()
            assert found.to_json() == wanted.to_json()
            found.to_arrow().validate(full=True)
    assert (bool(answers) and all(answers[1:])) is _SHAPES[text]
    assert not graph._core.environment.reading.has_readers()


@each_case(
    "text",
    [
        _LIMITED,
        _walk("", "$a.name")[:-2] + " limit 1 }",
        "match { $a: Person { name: $n } } return { $a.age }",
        "match { $a: Person { number: $n, age: 3 } } return { $a.name }",
        "match { $a: Person } return { count($a) as n }",
        "match { $a: Person { number: $n }  $b: Person { number: $n } } return { $a.name }",
    ],
)
def test_other_shapes_have_no_direct_answer(graph: Graph, text: str) -> None:
    assert reads.Reader(graph._core, text, None).meaning(graph.snapshot()).shape is None


def test_keys_of_every_kind_are_found(graph: Graph) -> None:
    by_day = "query d($day: Date) { match { $d: Day { day: $day } } return { $d.note, $d.day } }"
    by_name = "query t($name: String) { match { $t: Town { name: $name } } return { $t.size } }"
    fixed = 'match { $t: Town { name: "Kiel" } } return { $t.size }'
    for _ in range(30):
        assert [row["d.note"] for row in graph.query(by_day, {"day": "2026-01-01"}).to_pylist()] == ["new year"]
        assert graph.query(by_day, {"day": "2026-01-02"}).to_pylist() == []
        assert graph.query(by_name, {"name": "Ulm"}).to_pylist() == [{"t.size": 3}]
        assert graph.query(fixed).to_pylist() == [{"t.size": 4}]


def test_a_row_of_a_result_keeps_no_column_in_memory(graph: Graph) -> None:
    text = _walk("", "$a.name, $a.tags, $a.score")
    warm(graph, text)
    (batch,) = graph.query(text, {"n": 4})
    assert sum(column.get_total_buffer_size() for column in batch.columns) < 100
    before = pa.total_allocated_bytes()
    del batch
    gc.collect()
    assert before - pa.total_allocated_bytes() < 4096


def test_what_is_forgotten_is_read_again(graph: Graph, answers: list[bool]) -> None:
    text = _walk("$a knows $b  $b.age > 9", "$b.name")
    warm(graph, text)
    wanted = graph.query(text, {"n": 8}).to_pylist()
    assert answers[-1]
    graph._core.caches.clear()
    assert graph.query(text, {"n": 8}).to_pylist() == wanted
    assert not answers[-1]


def test_a_commit_to_other_tables_forgets_nothing(tmp_path: Any, answers: list[bool]) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        _people(graph)
        texts = [text for text, is_direct in _SHAPES.items() if is_direct and "Town" not in text and "$t" not in text]
        warm(graph, *texts)
        for text in texts:
            wanted = graph.query(text, {"n": 8}).to_pylist()
            graph.mutate("update Day set { note: $text } where day = $day", {"text": text, "day": "2026-01-01"})
            answers.clear()
            assert graph.query(text, {"n": 8}).to_pylist() == wanted
            assert answers == [True]
        assert not graph._core.environment.reading.has_readers()


def test_many_threads_share_one_prepared_read(graph: Graph) -> None:
    texts = [text for text, is_direct in _SHAPES.items() if is_direct]
    readings = [graph.prepare(text) for text in texts]
    wanted = {
        (place, number): graph.query(text, {"n": number}).to_pylist()
        for place, text in enumerate(texts)
        for number in range(PEOPLE)
    }
    gate = Barrier(4)

    def work(first: int) -> int:
        gate.wait(30)
        wrong = 0
        for place in [*range(first, len(readings)), *range(first)]:
            for number in range(PEOPLE):
                wrong += readings[place]({"n": number}).to_pylist() != wanted[place, number]
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(0, 16, 4))) == 0
    assert not graph._core.environment.reading.has_readers()


# ---- bounds


def test_a_call_has_bounds_of_its_own(graph: Graph, answers: list[bool]) -> None:
    reading = graph.prepare(BY_NUMBER)
    stopped = Event()
    for number in range(40):
        reading({"n": number}, timeout_s=60, cancel=stopped)
    assert reading({"n": 4}, timeout_s=60, cancel=stopped).to_pylist() == [{"p.name": "p4", "p.age": 4}]
    assert answers[-1]
    stopped.set()
    with pytest.raises(QueryCancelledError):
        reading({"n": 4}, cancel=stopped)
    with pytest.raises(QueryTimeoutError):
        reading({"n": 4}, timeout_s=1e-9)
    with pytest.raises(BadRequestError):
        reading({"n": 4}, timeout_s=-1)


def test_an_answer_out_of_memory_keeps_to_the_limits_of_its_graph(people: Graph) -> None:
    text = _walk("$a knows $b", "$b.name")
    with Graph.open(people.uri, limits=ReadLimits(max_rows=3)) as graph:
        warm(graph, _walk("$a knows $b  $b.age = 3", "$b.name"))
        for _ in range(40):
            with pytest.raises(ResourceLimitError):
                graph.query(text, {"n": 8}).to_pylist()
        assert len(graph.query(text, {"n": 2}).to_pylist()) == 2


def test_conditions_without_parameters_follow_the_rows(tmp_path: Any) -> None:
    """Their masks belong to a state of the table, and two queries with other names of variables share one."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        _people(graph)
        texts = [_walk(f"$a knows ${name}  ${name}.age > 9", f"${name}.number as n") for name in ("b", "other")]
        warm(graph, *texts)
        assert len(graph._core.caches.masks._values) == 1
        assert {"n": 3} not in graph.query(texts[0], {"n": 5}).to_pylist()
        graph.mutate("update Person set { age: 77 } where number = 3")
        for text in texts:
            for _ in range(20):
                assert {"n": 3} in graph.query(text, {"n": 5}).to_pylist()
                assert {"n": 3} not in graph.query(text, {"n": 5}, version=2).to_pylist()
