"""Later statements see earlier ones, and the whole query becomes one version of each table."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from support.graphs import PEOPLE, ends_of, new_graph, refused, rows_of, run


@pytest.fixture
def people(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, PEOPLE)
    run(graph, 'insert Person { name: "ada", age: 1 } insert Person { name: "bob", age: 2 }')
    return graph


def ages(graph: Graph) -> dict[str, int | None]:
    return {row["id"]: row["age"] for row in rows_of(graph, "node:Person")}


@pytest.mark.parametrize(
    ("statements", "affected", "expected"),
    [
        (
            "update Person set { age: 5 } where age = 1 update Person set { age: 6 } where age = 5",
            2,
            {"ada": 6, "bob": 2},
        ),
        (
            # The committed value is shadowed: nobody has age 1 any more.
            "update Person set { age: 5 } where age = 1 update Person set { age: 6 } where age = 1",
            1,
            {"ada": 5, "bob": 2},
        ),
        (
            "update Person set { age: 2 } where age = 1 update Person set { age: 3 } where age = 2",
            3,
            {"ada": 3, "bob": 3},
        ),
        (
            'insert Person { name: "cy", age: 1 } update Person set { age: 8 } where age = 1',
            3,
            {"ada": 8, "bob": 2, "cy": 8},
        ),
        (
            'insert Person { name: "ada" } update Person set { age: 8 } where age = 1',
            1,
            {"ada": None, "bob": 2},
        ),
        (
            'insert Person { name: "cy", age: 1 } insert Person { name: "cy", age: 9 }',
            2,
            {"ada": 1, "bob": 2, "cy": 9},
        ),
        (
            'update Person set { age: 7 } where name = "bob" insert Person { name: "bob" }',
            2,
            {"ada": 1, "bob": None},
        ),
        (
            'insert Person { name: "cy", age: 1, city: "a" } insert Person { name: "cy" } '
            'update Person set { age: 4 } where name = "cy"',
            3,
            {"ada": 1, "bob": 2, "cy": 4},
        ),
        (
            'update Person set { city: "x" } where age >= 1 '
            'update Person set { age: 0 } where city = "x"',
            4,
            {"ada": 0, "bob": 0},
        ),
    ],
)
def test_a_later_statement_sees_the_intermediate_value(
    people: Graph, statements: str, affected: int, expected: dict[str, int | None]
) -> None:
    assert run(people, statements).affected_nodes == affected
    assert ages(people) == expected


def test_one_query_makes_one_version_of_each_touched_table(people: Graph) -> None:
    before = people.snapshot()
    result = run(
        people,
        """insert Person { name: "cy", age: 1 } insert Person { name: "dan", age: 1 }
        update Person set { age: 3 } where age = 1 update Person set { city: "x" } where age = 3
        insert Knows { from: "cy", to: "dan" } insert Knows { from: "dan", to: "ada" }
        insert Knows { from: "ada", to: "ada" }""",
    )
    after = people.snapshot()
    assert after.commit_id == result.commit.commit_id
    moved = {key: after.pins[key].version - before.pins[key].version for key in after.pins}
    assert {key: step for key, step in moved.items() if step} == {
        "node:Person": 1,
        "edge:Knows": 1,
    }
    assert set(result.commit.tables) == {"node:Person", "edge:Knows"}
    assert (result.affected_nodes, result.affected_edges) == (8, 3)
    assert ages(people) == {"ada": 3, "bob": 2, "cy": 3, "dan": 3}


def test_an_edge_may_name_a_node_of_the_same_query_in_any_order(people: Graph) -> None:
    run(
        people,
        """insert WorksAt { from: "eve", to: "acme" } insert Person { name: "eve" }
        insert Company { name: "acme" }""",
    )
    assert ends_of(people, "edge:WorksAt") == [("eve", "acme")]


def test_a_failing_last_statement_undoes_the_whole_query(people: Graph) -> None:
    with refused(people, BadRequestError, "not found in Person"):
        run(
            people,
            """insert Person { name: "x" } update Person set { age: 9 } where age = 1
            insert Note { text: "n" } insert Knows { from: "x", to: "ghost" }""",
        )
    assert run(people, 'insert Person { name: "x" }').affected_nodes == 1


def test_a_keyless_row_of_the_same_query_can_be_updated(people: Graph) -> None:
    run(people, 'insert Note { text: "old", rank: 1 }')
    result = run(
        people,
        'insert Note { text: "new", rank: 1 } update Note set { rank: 5 } where rank = 1',
    )
    assert result.affected_nodes == 3
    assert [(row["text"], row["rank"]) for row in rows_of(people, "node:Note")] == [
        ("old", 5),
        ("new", 5),
    ]


def test_an_update_sees_inserts_into_a_table_that_is_empty(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, PEOPLE)
    result = run(
        graph,
        'insert Person { name: "a", age: 1 } insert Person { name: "b" } '
        'update Person set { city: "x" } where age = 1',
    )
    assert result.affected_nodes == 3
    assert [(row["id"], row["city"]) for row in rows_of(graph, "node:Person")] == [
        ("a", "x"),
        ("b", None),
    ]


def test_now_is_one_moment_for_the_whole_query(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { k: I32 @key at: DateTime }")
    rows = " ".join(f"insert N {{ k: {k}, at: now() }}" for k in range(20))
    run(graph, rows)
    assert len({row["at"] for row in rows_of(graph, "node:N")}) == 1
