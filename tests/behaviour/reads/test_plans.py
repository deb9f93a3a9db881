"""Plans on a graph: kept as long as nothing changes, made again when an estimate was badly wrong, unseen in rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.plan import planned, planner
from omnigraph.engine.tables.settings import PlanOrder, PlanSettings
from omnigraph.lang.query import ir
from support.subtests import each_case

SCHEMA = """
node Person { name: String @key  group: String?  age: I64?  bio: String? @index  vec: Vector(2)? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge LivesIn: Person -> Town
"""
PERSONS, TOWNS = 4000, 40


Nodes = Iterable[tuple[str, dict[str, object]]]
Edges = Iterable[tuple[str, str, str, dict[str, object]]]


def load_rows(graph: Graph, folder: Path, nodes: Nodes, edges: Edges = ()) -> None:
    lines = [json.dumps({"type": type_, "data": data}) for type_, data in nodes]
    lines += [
        json.dumps({"edge": type_, "from": left, "to": right, "data": data}) for type_, left, right, data in edges
    ]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    graph.load(path, mode="append")


def person(number: int) -> dict[str, object]:
    return {
        "name": f"p{number}",
        # Nearly all persons are of one group: a guess of one value in many is badly wrong.
        "group": "rare" if number % 1000 == 0 else "common",
        "age": number % 90,
        "bio": f"likes number {number % 7}",
        "vec": [float(number % 13), float(number % 11)],
    }


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    folder = tmp_path_factory.mktemp("plans")
    with Graph.init(folder / "people.omni", SCHEMA) as graph:
        nodes = [("Person", person(number)) for number in range(PERSONS)]
        nodes += [("Town", {"name": f"t{number}"}) for number in range(TOWNS)]
        edges = [
            ("Knows", f"p{number}", f"p{(number * step + 1) % PERSONS}", {"since": number % 20})
            for number in range(PERSONS)
            for step in (1, 3, 7)
        ]
        edges += [("LivesIn", f"p{number}", f"t{number % TOWNS}", {}) for number in range(PERSONS)]
        load_rows(graph, folder, nodes, edges)
        yield graph


def query(clauses: str, returns: str = "count(*) as n", rest: str = "", params: str = "") -> str:
    return f"query q({params}) {{ match {{ {clauses} }} return {{ {returns} }} {rest} }}"


def plan_lines(graph: Graph, text: str, *, analyze: bool = False) -> list[str]:
    lines = graph.explain(text, analyze=analyze).splitlines()
    return lines[lines.index("plan") + 1 :]


# ---- The order of the text


ORDERS = [
    '$a: Person  $a knows $b  $b livesIn $t  $t.name = "t3"  $a.age > 80',
    '$t.name = "t3"  $b livesIn $t  $a knows $b  $a.age > 80  $a: Person',
    '$a.age > 80  $a knows $b  $b livesIn $t  $a: Person  $t.name = "t3"',
]


def test_every_order_of_the_text_runs_the_same_way(people: Graph) -> None:
    plans = {tuple(plan_lines(people, query(clauses))) for clauses in ORDERS}
    assert len(plans) == 1
    assert plans.pop()[0].startswith("  NodeScan $t")
    assert len({str(people.query(query(clauses)).to_pylist()) for clauses in ORDERS}) == 1


def test_explain_shows_actual_rows_beside_the_estimates(people: Graph) -> None:
    lines = plan_lines(people, query(ORDERS[0]), analyze=True)
    assert [re.sub(r" in .*| via .*|: (adjacency|edge scan)(, ready)?", "", line) for line in lines[:2]] == [
        "  NodeScan $t: by a scan with a filter · about 1 row · 1 row",
        "  Expand $t <-LivesIn- $b · about 100 rows · 100 rows",
    ]


# ---- Plans that are kept


def plans_made(monkeypatch: pytest.MonkeyPatch) -> list[ir.ReadIR]:
    made: list[ir.ReadIR] = []
    original = planner.plan_read

    def counted(*args: object, **options: object) -> ir.ReadIR:
        made.append(original(*args, **options))  # type: ignore[arg-type]  # what it takes is passed on
        return made[-1]

    monkeypatch.setattr(planned, "plan_read", counted)
    return made


def test_ranges_of_a_key_follow_the_values_once_they_are_in_memory(tmp_path: Path) -> None:
    text = "query q() { match { $a: N  $a to $b  $a.k < 10  $b.k >= 10 } return { count($b) as n } }"
    with Graph.init(tmp_path / "numbers.omni", "node N { k: I64 @key } edge To: N -> N") as graph:
        nodes = [("N", {"k": number}) for number in range(1000)]
        load_rows(graph, tmp_path, nodes, [("To", str(number), str(number + 1), {}) for number in range(999)])
        graph.query("match { $a: N } return { $a.k }").to_arrow()
        for _ in range(20):
            graph.query(text).to_arrow()
        scan = graph.explain(text).partition("\nplan\n")[2].splitlines()[0]
    assert re.search(r"NodeScan \$a: .* about (\d+) rows", scan)
    assert int(re.search(r"about (\d+) rows", scan)[1]) < 50


def test_a_plan_is_kept_between_runs(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    text = query('$a: Person  $a knows $b  $b.name = "p77"')
    for _ in range(3):
        people.query(text).to_pylist()
    made = plans_made(monkeypatch)
    for _ in range(5):
        people.query(text).to_pylist()
    assert made == []


def test_a_small_commit_changes_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        load_rows(graph, tmp_path, [("Person", person(number)) for number in range(2000)])
        text = query("$a: Person  $b: Person  $a knows $b  $a.age = 3")
        graph.query(text).to_pylist()
        made = plans_made(monkeypatch)
        graph.mutate('query add() { insert Person { name: "new" } }')
        assert graph.query(text).to_pylist() == [{"n": 0}]
        assert made == []


def test_a_large_commit_changes_the_plan(tmp_path: Path) -> None:
    text = query('$p: Person  $p livesIn $t  $p.group = "rare"  $t.name != "x"', "$p.name, $t.name")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        load_rows(graph, tmp_path, [("Town", {"name": "t0"}), ("Person", person(0))], [("LivesIn", "p0", "t0", {})])
        before = plan_lines(graph, text)
        load_rows(graph, tmp_path, [("Person", person(number)) for number in range(1, 3000)])
        assert plan_lines(graph, text) != before
        assert len(graph.query(text).to_pylist()) == 1


# ---- Estimates that were badly wrong


WRONG = query('$a: Person  $a knows $b  $b livesIn $t  $a.group = $b.group  $a.group = "common"', "$a.name, $b.name")


def forced(graph: Graph, text: str, monkeypatch: pytest.MonkeyPatch, estimate: float) -> list[str]:
    """An analysis in which the first scan is expected to make other rows than it does."""
    monkeypatch.setattr(planned, "_checked_rows", lambda *_: estimate)
    return plan_lines(graph, text, analyze=True)


@pytest.mark.parametrize("estimate", [1.0, 1e7], ids=["too few", "too many"])
def test_a_wrong_estimate_plans_the_rest_again(people: Graph, monkeypatch: pytest.MonkeyPatch, estimate: float) -> None:
    expected = sorted(map(str, people.query(WRONG).to_pylist()))
    assert len(expected) > 1000
    with Graph.open(people.uri, read_only=True) as fresh:
        lines = forced(fresh, WRONG, monkeypatch, estimate)
        # The scan makes thousands of rows: too many for an estimate of one, within a factor of 1,000 of ten million.
        assert lines[0].startswith("  planned again: NodeScan $")
        assert [line for line in lines if "Expand" in line and " · about " in line]
        assert sorted(map(str, fresh.query(WRONG).to_pylist())) == expected
        grouped = query('$a: Person  $a knows $b  $b livesIn $t  $a.group = "common"', "$t.name, count($a) as n")
        assert sorted(map(str, fresh.query(grouped).to_pylist())) == sorted(map(str, people.query(grouped).to_pylist()))


def test_a_right_estimate_runs_on(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with Graph.open(people.uri, read_only=True) as fresh:
        assert not forced(fresh, WRONG, monkeypatch, 3000.0)[0].startswith("  planned again")


def test_memory_of_a_plan_that_was_dropped_is_given_back(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_checked_rows", lambda *_: 1.0)
    with Graph.open(people.uri, read_only=True) as fresh:
        result = fresh.query(WRONG)
        assert len(result.to_pylist()) > 1000
        result = fresh.query(WRONG)
        assert next(iter(result)).num_rows > 0  # and dropped


@each_case(
    ("estimate", "rows", "wrong"),
    [
        (1.0, 50, False),
        (1.0, 900, False),
        (1.0, 5000, True),
        (100.0, 5000, False),
        (1e6, 20_000, False),
        (1e6, 5000, True),
        (1e6, 0, True),
        (0.001, 2000, True),
    ],
)
def test_what_is_badly_wrong(estimate: float, rows: float, wrong: bool) -> None:
    assert planned.is_wrong(estimate, rows) is wrong


# ---- Ranked reads: candidates first or the match first, the same rows


RANKED = {
    "nearest": ("nearest($p.vec, $v)", "$v: Vector(2)", {"v": [3.0, 4.0]}),
    "bm25": ("bm25($p.bio, $w)", "$w: String", {"w": "number 3"}),
}


@pytest.mark.parametrize("rank", RANKED)
@pytest.mark.parametrize("where", ['$t.name = "t3"', '$t.name != "t3"', '$p.group = "rare"', "$p.age > 10"])
def test_the_order_of_a_ranked_read_does_not_show(
    people: Graph, rank: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by, declared, params = RANKED[rank]
    text = query(
        f"$p: Person  $p livesIn $t  {where}", "$p.name, $t.name", f"order {{ {by}, $p.name }} limit 7", declared
    )
    expected = people.query(text, params).to_pylist()
    assert expected
    for order in (
        PlanSettings(order=PlanOrder.TEXT),
        *(PlanSettings(order=PlanOrder.RANDOM, seed=n) for n in range(4)),
    ):
        monkeypatch.setattr(planned, "plan_read", lambda *args, order=order, **_: planner.plan_read(*args[:2], order))
        with Graph.open(people.uri, read_only=True) as other:
            assert other.query(text, params).to_pylist() == expected


def test_a_ranked_read_begins_with_the_match_where_that_is_cheaper(people: Graph) -> None:
    few = query(
        '$p: Person  $p livesIn $t  $t.name = "t3"', "$p.name", "order { nearest($p.vec, $v) } limit 5", "$v: Vector(2)"
    )
    many = query("$p: Person  $p livesIn $t", "$p.name", "order { nearest($p.vec, $v) } limit 5", "$v: Vector(2)")
    assert "Rank $p after the match" in people.explain(few)
    assert "Rank $p best candidates first" in people.explain(many)


# ---- Forced orders by a setting


def test_the_setting_is_read_when_the_graph_is_opened(
    people: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = query(ORDERS[0])
    monkeypatch.setenv("OMNIGRAPH_PLAN_ORDER", "text")
    with Graph.open(people.uri, read_only=True) as graph:
        assert plan_lines(graph, text)[0].startswith("  NodeScan $a")
    for wrong in ("none", "text:3", "random:x"):
        monkeypatch.setenv("OMNIGRAPH_PLAN_ORDER", wrong)
        caplog.clear()
        with Graph.open(people.uri, read_only=True) as graph:
            assert plan_lines(graph, text)[0].startswith("  NodeScan $t")
        assert "OMNIGRAPH_PLAN_ORDER" in caplog.text
