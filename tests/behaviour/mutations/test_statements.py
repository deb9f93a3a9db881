"""What each statement does to the rows: the table of the mutation language, line by line."""

from __future__ import annotations

import base64
from datetime import date
from pathlib import Path

import pytest

from omnigraph.errors import CompilerError, MixedMutationError
from omnigraph.graph.graph import Graph
from support.graphs import (
    PEOPLE,
    SCALARS,
    ends_of,
    everything,
    ids_of,
    new_graph,
    refused,
    rows_of,
    run,
    run_typed,
)


@pytest.fixture
def people(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, PEOPLE)
    run(
        graph,
        """
        insert Person { name: "ada", age: 36, city: "London" }
        insert Person { name: "bob", age: 20 }
        insert Person { name: "cy" }
        insert Company { name: "acme", size: 3 }
        insert Company { name: "zoo" }
        """,
    )
    return graph


@pytest.fixture
def linked(people: Graph) -> Graph:
    run(
        people,
        """
        insert Knows { from: "ada", to: "bob", since: 1 }
        insert Knows { from: "bob", to: "ada", since: 2, kind: "work" }
        insert Knows { from: "cy", to: "cy", since: 3 }
        insert Knows { from: "bob", to: "cy" }
        insert WorksAt { from: "ada", to: "acme", role: "head" }
        insert WorksAt { from: "bob", to: "acme" }
        insert Owns { from: "zoo", to: "ada" }
        insert Owns { from: "zoo", to: "cy" }
        """,
    )
    return people


def by_id(graph: Graph, key: str) -> dict[str, dict]:
    return {row["id"]: row for row in rows_of(graph, key)}


# ---- insert


def test_a_keyed_insert_creates_a_row_under_its_derived_id(people: Graph) -> None:
    assert by_id(people, "node:Person")["ada"] == {
        "id": "ada",
        "name": "ada",
        "age": 36,
        "city": "London",
    }


def test_a_keyed_insert_of_an_existing_key_replaces_the_whole_row(people: Graph) -> None:
    result = run(people, 'insert Person { name: "ada", age: 37 }')
    assert (result.affected_nodes, result.affected_edges) == (1, 0)
    assert by_id(people, "node:Person")["ada"] == {
        "id": "ada",
        "name": "ada",
        "age": 37,
        "city": None,
    }
    assert ids_of(people, "node:Person") == {"ada", "bob", "cy"}


def test_replacing_a_node_keeps_its_edges(linked: Graph) -> None:
    before = {key: ends_of(linked, key) for key in ("edge:Knows", "edge:WorksAt", "edge:Owns")}
    run(linked, 'insert Person { name: "ada" }')
    assert {key: ends_of(linked, key) for key in before} == before


def test_an_insert_that_replaces_one_row_and_adds_another_does_both(people: Graph) -> None:
    result = run(people, 'insert Person { name: "ada" } insert Person { name: "dan", age: 9 }')
    assert result.affected_nodes == 2
    rows = by_id(people, "node:Person")
    assert (rows["ada"]["age"], rows["dan"]["age"], len(rows)) == (None, 9, 4)


def test_a_keyless_insert_makes_a_fresh_row_each_time(people: Graph) -> None:
    for _ in range(2):
        assert run(people, 'insert Note { text: "same" }').affected_nodes == 1
    rows = rows_of(people, "node:Note")
    assert [row["text"] for row in rows] == ["same", "same"]
    assert len({row["id"] for row in rows}) == 2
    assert all(len(row["id"]) == 26 for row in rows), "fresh ids are ULIDs"


def test_two_equal_keyless_inserts_in_one_query_are_two_rows(people: Graph) -> None:
    result = run(people, 'insert Note { text: "a" } insert Note { text: "a" }')
    assert (result.affected_nodes, len(ids_of(people, "node:Note"))) == (2, 2)


def test_an_edge_insert_makes_a_fresh_edge_each_time(people: Graph) -> None:
    for _ in range(2):
        result = run(people, 'insert Knows { from: "ada", to: "bob", since: 7 }')
        assert (result.affected_nodes, result.affected_edges) == (0, 1)
    rows = rows_of(people, "edge:Knows")
    assert [(row["src"], row["dst"], row["since"], row["kind"]) for row in rows] == [
        ("ada", "bob", 7, None)
    ] * 2
    assert len({row["id"] for row in rows}) == 2


def test_edges_between_keyless_nodes_use_their_generated_ids(people: Graph) -> None:
    run(people, 'insert Note { text: "a" } insert Note { text: "b" }')
    first, second = sorted(ids_of(people, "node:Note"))
    run(people, "insert About { from: $a, to: $b }", a=first, b=second)
    assert ends_of(people, "edge:About") == [(first, second)]


# ---- update


def test_an_update_changes_the_assigned_column_of_the_matches_only(people: Graph) -> None:
    result = run(people, 'update Person set { city: "Rome" } where age >= 20')
    assert (result.affected_nodes, result.affected_edges) == (2, 0)
    assert {row["id"]: (row["age"], row["city"]) for row in rows_of(people, "node:Person")} == {
        "ada": (36, "Rome"),
        "bob": (20, "Rome"),
        "cy": (None, None),
    }


def test_an_update_counts_matched_rows_also_when_nothing_changes(people: Graph) -> None:
    result = run(people, "update Person set { age: 20 } where age = 20")
    assert result.affected_nodes == 1
    assert result.commit is not None


def test_an_update_may_change_the_column_that_it_filters_by(people: Graph) -> None:
    assert run(people, "update Person set { age: 21 } where age = 20").affected_nodes == 1
    assert run(people, "update Person set { age: 22 } where age = 20").affected_nodes == 0
    assert by_id(people, "node:Person")["bob"]["age"] == 21


@pytest.mark.parametrize(
    "statement",
    [
        'update Person set { age: 1 } where name = "nobody"',
        'delete Person where name = "nobody"',
        'delete Knows where from = "nobody"',
        "delete Note where rank > 0",
        'update Note set { text: "x" } where rank = 1',
    ],
)
def test_zero_matches_are_a_success_without_a_commit(linked: Graph, statement: str) -> None:
    before, history = everything(linked), linked.commits()
    result = run(linked, statement)
    assert (result.affected_nodes, result.affected_edges, result.commit) == (0, 0, None)
    assert result.to_json()["commit"] is None
    assert everything(linked) == before
    assert linked.commits() == history


def test_an_update_through_a_null_parameter_sets_null(people: Graph) -> None:
    run_typed(people, "$age: I32?", 'update Person set { age: $age } where name = "ada"', age=None)
    assert by_id(people, "node:Person")["ada"]["age"] is None


def test_an_update_carries_every_other_column(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, SCALARS)
    large = bytes(range(256)) * 1024
    run_typed(
        graph,
        "$data: Blob, $more: Blob",
        """insert Thing {
            name: "a", text: "x", flag: true, i32: 1, i64: 2, u32: 3, u64: 4, f32: 0.1, f64: 0.2,
            day: date("2020-02-29"), at: datetime("2020-02-29T12:34:56.789Z"), stage: "final",
            camelCase: 5, order: 6, tags: ["p", "q"], counts: [1, 2], days: [date("1970-01-02")],
            vec: [1.0, 2.0, 3.5], data: $data, more: $more
        }""",
        data="base64:" + base64.b64encode(large).decode(),
        more="base64:",
    )
    (before,) = rows_of(graph, "node:Thing")
    assert before["data"] == large
    assert before["more"] == b""
    result = run(graph, 'update Thing set { text: "y" } where i32 = 1')
    (after,) = rows_of(graph, "node:Thing")
    assert result.affected_nodes == 1
    assert after == before | {"text": "y"}
    assert after["days"] == [date(1970, 1, 2)]
    assert after["at"].isoformat() == "2020-02-29T12:34:56.789000"
    assert graph.read_blob("node:Thing", "a", "data") == large


def test_an_update_replaces_lists_vectors_and_blobs_as_a_whole(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, SCALARS)
    run(graph, 'insert Thing { name: "a", tags: ["p"], vec: [1, 2, 3], data: "base64:AAAA" }')
    run(
        graph,
        'update Thing set { tags: [], vec: [3, 2, 1], data: "base64:/w==", counts: [9] } '
        'where name = "a"',
    )
    (row,) = rows_of(graph, "node:Thing")
    assert (row["tags"], row["vec"], row["data"], row["counts"]) == (
        [],
        [3.0, 2.0, 1.0],
        b"\xff",
        [9],
    )


def test_an_update_of_keyless_nodes_keeps_their_ids(people: Graph) -> None:
    run(people, 'insert Note { text: "a", rank: 1 } insert Note { text: "b", rank: 2 }')
    before = {row["text"]: row["id"] for row in rows_of(people, "node:Note")}
    assert run(people, "update Note set { rank: 9 } where rank >= 1").affected_nodes == 2
    rows = rows_of(people, "node:Note")
    assert {row["text"]: row["id"] for row in rows} == before
    assert {row["rank"] for row in rows} == {9}


def test_an_update_keeps_the_stable_row_id_of_a_row(people: Graph) -> None:
    columns = ["id", "_rowid"]
    before = rows_of(people, "node:Person", columns=columns)
    run(people, 'update Person set { age: 1 } where name = "bob"')
    assert rows_of(people, "node:Person", columns=columns) == before


def test_edges_are_not_updated(linked: Graph) -> None:
    with refused(linked, CompilerError) as caught:
        run(linked, "update Knows set { since: 5 } where since = 1")
    assert caught.value.codes == ("T16",)


def test_a_key_member_is_never_assigned_by_an_update(people: Graph) -> None:
    with refused(people, CompilerError, "part of the key"):
        run(people, 'update Person set { name: "eve" } where name = "ada"')
    assert run(people, 'update Person set { age: 1 } where name = "ada"').affected_nodes == 1


# ---- delete


def test_a_node_delete_cascades_over_all_edge_types_and_directions(linked: Graph) -> None:
    result = run(linked, 'delete Person where name = "ada"')
    # Knows in both directions, WorksAt, Owns.
    assert (result.affected_nodes, result.affected_edges) == (1, 4)
    assert ids_of(linked, "node:Person") == {"bob", "cy"}
    assert ends_of(linked, "edge:Knows") == [("bob", "cy"), ("cy", "cy")]
    assert ends_of(linked, "edge:WorksAt") == [("bob", "acme")]
    assert ends_of(linked, "edge:Owns") == [("zoo", "cy")]


def test_a_loop_is_counted_once_when_its_node_goes(linked: Graph) -> None:
    result = run(linked, 'delete Person where name = "cy"')
    assert (result.affected_nodes, result.affected_edges) == (1, 3)
    assert ends_of(linked, "edge:Knows") == [("ada", "bob"), ("bob", "ada")]


def test_a_cascade_spares_equal_ids_of_another_type(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, PEOPLE)
    run(
        graph,
        """insert Person { name: "x" } insert Company { name: "x" } insert Company { name: "y" }
        insert WorksAt { from: "x", to: "y" } insert Owns { from: "x", to: "x" }""",
    )
    result = run(graph, 'delete Company where name = "x"')
    assert (result.affected_nodes, result.affected_edges) == (1, 1)
    assert ends_of(graph, "edge:WorksAt") == [("x", "y")]
    assert ends_of(graph, "edge:Owns") == []


def test_deleting_every_node_empties_every_incident_edge_type(linked: Graph) -> None:
    result = run(linked, 'delete Person where name != ""')
    assert (result.affected_nodes, result.affected_edges) == (3, 8)
    left = everything(linked)
    assert {key: len(rows) for key, rows in left.items() if rows} == {"node:Company": 2}
    assert run(linked, 'insert Person { name: "ada" }').affected_nodes == 1
    assert ids_of(linked, "node:Person") == {"ada"}


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ('from = "bob"', [("ada", "bob"), ("cy", "cy")]),
        ('to = "cy"', [("ada", "bob"), ("bob", "ada")]),
        ("since >= 2", [("ada", "bob"), ("bob", "cy")]),
        ('kind = "work"', [("ada", "bob"), ("bob", "cy"), ("cy", "cy")]),
        ('kind != "work"', [("ada", "bob"), ("bob", "ada"), ("bob", "cy"), ("cy", "cy")]),
        ('from < "b"', [("bob", "ada"), ("bob", "cy"), ("cy", "cy")]),
    ],
)
def test_edges_are_deleted_by_an_end_or_a_property(
    linked: Graph, condition: str, left: list[tuple[str, str]]
) -> None:
    result = run(linked, f"delete Knows where {condition}")
    assert (result.affected_nodes, result.affected_edges) == (0, 4 - len(left))
    assert ends_of(linked, "edge:Knows") == left
    assert ids_of(linked, "node:Person") == {"ada", "bob", "cy"}
    assert len(rows_of(linked, "edge:WorksAt")) == 2


def test_rows_that_were_deleted_can_be_inserted_again_and_deleted_again(people: Graph) -> None:
    for _ in range(3):
        assert run(people, 'delete Person where name = "bob"').affected_nodes == 1
        assert ids_of(people, "node:Person") == {"ada", "cy"}
        run(people, 'insert Person { name: "bob", age: 1 }')
        assert by_id(people, "node:Person")["bob"]["age"] == 1


# ---- affected counts over several deletes


@pytest.mark.parametrize(
    ("statements", "nodes", "edges"),
    [
        ("delete Person where age >= 20 delete Person where age <= 40", 2, 6),
        # cy has no age: a null in an earlier condition must not hide the row from a later one.
        ('delete Person where age >= 20 delete Person where name >= "a"', 3, 8),
        ('delete Person where name = "ada" delete Person where name = "ada"', 1, 4),
        ("delete Knows where since >= 2 delete Knows where since <= 2", 0, 3),
        ('delete Knows where kind = "work" delete Knows where from = "bob"', 0, 2),
        ('delete Knows where from = "ada" delete Person where name = "ada"', 1, 4),
        ('delete Person where name = "ada" delete Knows where from = "ada"', 1, 4),
        ('delete Person where name = "ada" delete Person where name = "bob"', 2, 6),
        ('delete Company where name = "acme" delete Person where name = "ada"', 2, 5),
    ],
)
def test_overlapping_deletes_count_each_row_once(
    linked: Graph, statements: str, nodes: int, edges: int
) -> None:
    before = sum(map(len, everything(linked).values()))
    result = run(linked, statements)
    assert (result.affected_nodes, result.affected_edges) == (nodes, edges)
    assert sum(map(len, everything(linked).values())) == before - nodes - edges


def test_counts_are_summed_over_inserts_and_updates(people: Graph) -> None:
    result = run(
        people,
        """insert Person { name: "dan", age: 1 } update Person set { city: "x" } where age < 100
        insert Knows { from: "dan", to: "ada" } insert Note { text: "n" }""",
    )
    assert (result.affected_nodes, result.affected_edges) == (1 + 3 + 1, 1)


# ---- writes and deletes never mix


@pytest.mark.parametrize(
    "statements",
    [
        'insert Person { name: "x" } delete Person where name = "ada"',
        'delete Person where name = "ada" insert Person { name: "x" }',
        'update Person set { age: 1 } where name = "ada" delete Knows where from = "ada"',
        'delete Knows where from = "ada" insert Note { text: "x" }',
    ],
)
def test_a_query_that_mixes_writes_and_deletes_is_refused(linked: Graph, statements: str) -> None:
    with refused(linked, MixedMutationError, "`q`", "split"):
        run(linked, statements)


def test_a_type_error_is_found_before_the_mix_of_writes_and_deletes(people: Graph) -> None:
    with refused(people, CompilerError):
        run(people, 'insert Person { nme: "x" } delete Person where name = "ada"')
