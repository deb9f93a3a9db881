"""What each statement does to the rows: the table of the mutation language, line by line."""

from __future__ import annotations

import base64
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, CompilerError, MixedMutationError
from omnigraph.graph.graph import Graph
from support.graphs import PEOPLE, SCALARS, ends_of, everything, ids_of, new_graph, refused, rows_of, run, run_typed
from support.subtests import each_case


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
    assert by_id(people, "node:Person")["ada"] == {"id": "ada", "name": "ada", "age": 36, "city": "London"}


def test_a_keyed_insert_of_an_existing_key_replaces_the_whole_row(people: Graph) -> None:
    result = run(people, 'insert Person { name: "ada", age: 37 }')
    assert (result.affected_nodes, result.affected_edges) == (1, 0)
    assert by_id(people, "node:Person")["ada"] == {"id": "ada", "name": "ada", "age": 37, "city": None}
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
    assert [(row["src"], row["dst"], row["since"], row["kind"]) for row in rows] == [("ada", "bob", 7, None)] * 2
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


@each_case(
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
    run(graph, 'update Thing set { tags: [], vec: [3, 2, 1], data: "base64:/w==", counts: [9] } where name = "a"')
    (row,) = rows_of(graph, "node:Thing")
    assert (row["tags"], row["vec"], row["data"], row["counts"]) == ([], [3.0, 2.0, 1.0], b"\xff", [9])


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


@pytest.mark.parametrize("end", ["from", "to"])
def test_ends_of_edges_never_change(linked: Graph, end: str) -> None:
    with refused(linked, CompilerError) as caught:
        run(linked, f'update Knows set {{ since: 5, {end}: "bob" }} where true')
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
def test_edges_are_deleted_by_an_end_or_a_property(linked: Graph, condition: str, left: list[tuple[str, str]]) -> None:
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
def test_overlapping_deletes_count_each_row_once(linked: Graph, statements: str, nodes: int, edges: int) -> None:
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


@each_case(
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


# ---- Later statements see earlier ones, and the whole query becomes one version of each table


@pytest.fixture
def duo(tmp_path: Path) -> Graph:
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
        ('insert Person { name: "ada" } update Person set { age: 8 } where age = 1', 1, {"ada": None, "bob": 2}),
        ('insert Person { name: "cy", age: 1 } insert Person { name: "cy", age: 9 }', 2, {"ada": 1, "bob": 2, "cy": 9}),
        ('update Person set { age: 7 } where name = "bob" insert Person { name: "bob" }', 2, {"ada": 1, "bob": None}),
        (
            'insert Person { name: "cy", age: 1, city: "a" } insert Person { name: "cy" } '
            'update Person set { age: 4 } where name = "cy"',
            3,
            {"ada": 1, "bob": 2, "cy": 4},
        ),
        (
            'update Person set { city: "x" } where age >= 1 update Person set { age: 0 } where city = "x"',
            4,
            {"ada": 0, "bob": 0},
        ),
    ],
)
def test_a_later_statement_sees_the_intermediate_value(
    duo: Graph, statements: str, affected: int, expected: dict[str, int | None]
) -> None:
    assert run(duo, statements).affected_nodes == affected
    assert ages(duo) == expected


def test_one_query_makes_one_version_of_each_touched_table(duo: Graph) -> None:
    before = duo.snapshot()
    result = run(
        duo,
        """insert Person { name: "cy", age: 1 } insert Person { name: "dan", age: 1 }
        update Person set { age: 3 } where age = 1 update Person set { city: "x" } where age = 3
        insert Knows { from: "cy", to: "dan" } insert Knows { from: "dan", to: "ada" }
        insert Knows { from: "ada", to: "ada" }""",
    )
    after = duo.snapshot()
    assert after.commit_id == result.commit.commit_id
    moved = {key: after.pins[key].version - before.pins[key].version for key in after.pins}
    assert {key: step for key, step in moved.items() if step} == {"node:Person": 1, "edge:Knows": 1}
    assert set(result.commit.tables) == {"node:Person", "edge:Knows"}
    assert (result.affected_nodes, result.affected_edges) == (8, 3)
    assert ages(duo) == {"ada": 3, "bob": 2, "cy": 3, "dan": 3}


def test_an_edge_may_name_a_node_of_the_same_query_in_any_order(duo: Graph) -> None:
    run(
        duo,
        """insert WorksAt { from: "eve", to: "acme" } insert Person { name: "eve" }
        insert Company { name: "acme" }""",
    )
    assert ends_of(duo, "edge:WorksAt") == [("eve", "acme")]


def test_a_failing_last_statement_undoes_the_whole_query(duo: Graph) -> None:
    with refused(duo, BadRequestError, "not found in Person"):
        run(
            duo,
            """insert Person { name: "x" } update Person set { age: 9 } where age = 1
            insert Note { text: "n" } insert Knows { from: "x", to: "ghost" }""",
        )
    assert run(duo, 'insert Person { name: "x" }').affected_nodes == 1


def test_a_keyless_row_of_the_same_query_can_be_updated(duo: Graph) -> None:
    run(duo, 'insert Note { text: "old", rank: 1 }')
    result = run(duo, 'insert Note { text: "new", rank: 1 } update Note set { rank: 5 } where rank = 1')
    assert result.affected_nodes == 3
    assert [(row["text"], row["rank"]) for row in rows_of(duo, "node:Note")] == [("old", 5), ("new", 5)]


def test_an_update_sees_inserts_into_a_table_that_is_empty(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, PEOPLE)
    result = run(
        graph,
        'insert Person { name: "a", age: 1 } insert Person { name: "b" } update Person set { city: "x" } where age = 1',
    )
    assert result.affected_nodes == 3
    assert [(row["id"], row["city"]) for row in rows_of(graph, "node:Person")] == [("a", "x"), ("b", None)]


def test_now_is_one_moment_for_the_whole_query(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { k: I32 @key at: DateTime }")
    rows = " ".join(f"insert N {{ k: {k}, at: now() }}" for k in range(20))
    run(graph, rows)
    assert len({row["at"] for row in rows_of(graph, "node:N")}) == 1


# ---- Every integrity rule: what it refuses, its stable words, and that a refusal leaves no trace


RULES = """
node Paper {
    doi: String @key  year: I32?  score: F64?  big: I64?  code: String?  stage: enum(draft, final)?
    isbn: String? @unique  number: I64? @unique  ratio: F64? @unique  small: F32? @unique  day: Date? @unique
    at: DateTime? @unique  room: String?  slot: I32?  @range(year, 1600..2100)  @range(score, 0.0..1.0)
    @range(big, 0..9007199254740993)  @check(code, "^[A-Z]{2}[0-9]+$")  @unique(room, slot)
}
node Author { name: String @key }
edge Wrote: Author -> Paper { role: enum(first, last)?  position: I32?  @unique(src, dst) }
edge Reviews: Paper -> Author @card(2..3)
edge Leads: Author -> Paper @card(0..1)
"""

BASE = """
    insert Paper { doi: "p1", year: 2000, isbn: "i1", number: 1, ratio: 0.5, small: 0.1,
        day: date("2020-01-01"), at: datetime("2020-01-01T00:00:00.001Z"), room: "a", slot: 1 }
    insert Paper { doi: "p2", year: 2001, isbn: "i2", number: 2, room: "a", slot: 2 }
    insert Paper { doi: "p3" }
    insert Author { name: "a1" } insert Author { name: "a2" }
    insert Author { name: "a3" } insert Author { name: "a4" }
    insert Wrote { from: "a1", to: "p1", role: "first" }
    insert Reviews { from: "p1", to: "a1" } insert Reviews { from: "p1", to: "a2" }
    insert Leads { from: "a1", to: "p1" }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, RULES)
    run(graph, BASE)
    return graph


REFUSED: list[tuple[str, str]] = [
    ('insert Paper { doi: "x", year: 1599 }', "@range violation on Paper.year"),
    ('insert Paper { doi: "x", year: 2101 }', "@range violation on Paper.year"),
    ('update Paper set { year: 1 } where doi = "p1"', "@range violation on Paper.year"),
    ('insert Paper { doi: "x", score: 1.0000001 }', "@range violation on Paper.score"),
    ('insert Paper { doi: "x", big: 9007199254740994 }', "@range violation on Paper.big"),
    ('insert Paper { doi: "x", code: "ab1" }', "@check violation on Paper.code"),
    ('insert Paper { doi: "x", code: "AB1\\n" }', "@check violation on Paper.code"),
    ('update Paper set { code: "" } where year > 0', "@check violation on Paper.code"),
    ('insert Paper { doi: "x", isbn: "i1" }', "@unique violation on Paper.isbn"),
    ('insert Paper { doi: "x", number: 1 }', "@unique violation on Paper.number"),
    ('insert Paper { doi: "x", ratio: 0.5 }', "@unique violation on Paper.ratio"),
    ('insert Paper { doi: "x", small: 0.1 }', "@unique violation on Paper.small"),
    ('insert Paper { doi: "x", day: date("2020-01-01") }', "@unique violation on Paper.day"),
    ('insert Paper { doi: "x", at: datetime("2020-01-01T01:00:00.001+01:00") }', "@unique violation on Paper.at"),
    ('insert Paper { doi: "x", room: "a", slot: 1 }', "@unique violation on Paper.(room, slot)"),
    ('insert Paper { doi: "x", isbn: "n" } insert Paper { doi: "y", isbn: "n" }', "@unique violation on Paper.isbn"),
    ('update Paper set { isbn: "n" } where year > 0', "@unique violation on Paper.isbn"),
    ('update Paper set { slot: 1 } where doi = "p2"', "@unique violation on Paper.(room, slot)"),
    ('insert Wrote { from: "a1", to: "p1" }', "@unique violation on Wrote.(src, dst)"),
    (
        'insert Wrote { from: "a2", to: "p1" } insert Wrote { from: "a2", to: "p1" }',
        "@unique violation on Wrote.(src, dst)",
    ),
    ('insert Wrote { from: "ghost", to: "p1" }', "src 'ghost' not found in Author"),
    ('insert Wrote { from: "a1", to: "ghost" }', "dst 'ghost' not found in Paper"),
    # Ids of the wrong type are no endpoints.
    ('insert Wrote { from: "p1", to: "a1" }', "not found in"),
    ('insert Wrote { from: "", to: "p1" }', "src '' not found in Author"),
    ('insert Leads { from: "a1", to: "p2" }', "@card violation on edge Leads"),
    ('insert Leads { from: "a2", to: "p1" } insert Leads { from: "a2", to: "p2" }', "@card violation on edge Leads"),
    ('insert Reviews { from: "p2", to: "a1" }', "@card violation on edge Reviews"),
    (
        'insert Reviews { from: "p1", to: "a3" } insert Reviews { from: "p1", to: "a4" }',
        "@card violation on edge Reviews",
    ),
    ('delete Reviews where to = "a1"', "@card violation on edge Reviews"),
    ('delete Author where name = "a2"', "@card violation on edge Reviews"),
]


@each_case(("statements", "words"), REFUSED, ids=[item[0][:70] for item in REFUSED])
def test_a_violation_is_refused_and_leaves_no_trace(graph: Graph, statements: str, words: str) -> None:
    with refused(graph, BadRequestError, words):
        run(graph, statements)
    result = run(graph, 'insert Paper { doi: "next", isbn: "next" }')
    assert result.commit.parent_id == graph.commits()[1].commit_id
    assert len(rows_of(graph, "node:Paper")) == 4


@each_case(
    ("statement", "value"),
    [
        ('insert Paper { doi: "x", stage: $v }', "other"),
        ('update Paper set { stage: $v } where doi = "p1"', "Draft"),
        ('insert Wrote { from: "a2", to: "p1", role: $v }', "middle"),
        ('insert Wrote { from: "a2", to: "p1", role: $v }', ""),
    ],
)
def test_an_enum_refuses_other_values_on_nodes_and_edges(graph: Graph, statement: str, value: str) -> None:
    with refused(graph, BadRequestError, "invalid enum value"):
        run(graph, statement, v=value)
    assert run(graph, 'insert Paper { doi: "x", stage: "final" }').affected_nodes == 1


@pytest.mark.parametrize(
    "statements",
    [
        'insert Paper { doi: "x", year: 1600 } insert Paper { doi: "y", year: 2100 }',
        'insert Paper { doi: "x", score: 0 } insert Paper { doi: "y", score: 1 }',
        'insert Paper { doi: "x", big: 9007199254740993 }',
        'insert Paper { doi: "x", code: "AB12" }',
        # Null is exempt from every rule.
        'insert Paper { doi: "x" } insert Paper { doi: "y" }',
        'insert Paper { doi: "x", room: "a" } insert Paper { doi: "y", room: "a" }',
        'insert Paper { doi: "x", slot: 1 } insert Paper { doi: "y", slot: 1 }',
        # The same tuple split differently is another tuple.
        'insert Paper { doi: "x", room: "a1", slot: 1 }',
        # A row may keep its own value.
        'insert Paper { doi: "p1", isbn: "i1", number: 1 }',
        'update Paper set { isbn: "i1" } where doi = "p1"',
        # A value that is freed in the same query may be taken.
        'insert Paper { doi: "p1" } insert Paper { doi: "x", isbn: "i1", number: 1 }',
        'update Paper set { isbn: "new" } where doi = "p1" insert Paper { doi: "x", isbn: "i1" }',
        # Two rows may swap their values.
        'insert Paper { doi: "p1", isbn: "i2" } insert Paper { doi: "p2", isbn: "i1" }',
        # The opposite order of steps meets only the final image.
        'insert Paper { doi: "x", isbn: "i1" } update Paper set { isbn: "new" } where doi = "p1"',
        # Another pair, and both bounds of the cardinality.
        'insert Wrote { from: "a1", to: "p2" } insert Wrote { from: "a2", to: "p1" }',
        'insert Reviews { from: "p1", to: "a3" }',
        'insert Reviews { from: "p2", to: "a3" } insert Reviews { from: "p2", to: "a4" }',
        # A source without any edge is never held against the minimum.
        'delete Reviews where from = "p1"',
        # The source itself goes: its edges need not be counted.
        'delete Paper where doi = "p1"',
        'delete Leads where from = "a1"',
    ],
)
def test_what_the_rules_allow_is_written(graph: Graph, statements: str) -> None:
    assert run(graph, statements).commit is not None


def test_negative_zero_and_zero_are_one_value_for_uniqueness(graph: Graph) -> None:
    run_typed(graph, "$v: F64", 'insert Paper { doi: "zero", ratio: $v }', v=-0.0)
    with refused(graph, BadRequestError, "@unique violation on Paper.ratio"):
        run_typed(graph, "$v: F64", 'insert Paper { doi: "again", ratio: $v }', v=0.0)


def test_the_largest_and_smallest_integers_are_unique_values_too(graph: Graph) -> None:
    for number, value in enumerate((-(2**63), 2**63 - 1)):
        run(graph, "insert Paper { doi: $d, number: $v }", d=f"n{number}", v=value)
        with refused(graph, BadRequestError, "@unique violation on Paper.number"):
            run(graph, 'insert Paper { doi: "again", number: $v }', v=value)


def test_an_update_of_many_rows_with_a_unique_number_is_judged(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node N { k: I64 @key u: I64 @unique f: F64? @unique m: I32? }")
    for begin in (0, 400, 800):
        rows = (f"insert N {{ k: {k}, u: {k}, f: {k}.5 }}" for k in range(begin, begin + 400))
        run(graph, " ".join(rows))
    assert run(graph, "update N set { m: 1 } where k >= 0").affected_nodes == 1200
    with refused(graph, BadRequestError, "@unique violation on N.u"):
        run(graph, "insert N { k: 5000, u: 1100 }")


def test_a_deleted_value_is_free_in_the_next_query(graph: Graph) -> None:
    run(graph, 'delete Paper where doi = "p1"')
    assert run(graph, 'insert Paper { doi: "x", isbn: "i1" }').affected_nodes == 1


def test_an_edge_may_not_point_to_a_node_that_was_deleted(graph: Graph) -> None:
    run(graph, 'delete Paper where doi = "p3"')
    with refused(graph, BadRequestError, "not found in Paper"):
        run(graph, 'insert Wrote { from: "a1", to: "p3" }')


def test_a_pair_may_be_linked_again_after_its_edge_was_deleted(graph: Graph) -> None:
    run(graph, 'delete Wrote where from = "a1"')
    run(graph, 'insert Wrote { from: "a1", to: "p1" }')
    assert ends_of(graph, "edge:Wrote") == [("a1", "p1")]


def test_a_null_endpoint_is_refused(graph: Graph) -> None:
    with refused(graph, BadRequestError):
        run_typed(graph, "$v: String?", 'insert Wrote { from: $v, to: "p1" }', v=None)


def test_a_null_for_a_required_property_is_refused(graph: Graph) -> None:
    with refused(graph, BadRequestError, "null"):
        run_typed(graph, "$v: String?", "insert Paper { doi: $v }", v=None)


@pytest.mark.parametrize("value", [None, "i9"])
def test_many_rows_may_hold_null_in_a_unique_column(graph: Graph, value: Any) -> None:
    for name in ("x", "y"):
        statement = "insert Paper { doi: $d, isbn: $v }"
        if value is not None and name == "y":
            with refused(graph, BadRequestError, "@unique violation on Paper.isbn"):
                run_typed(graph, "$d: String, $v: String?", statement, d=name, v=value)
        else:
            run_typed(graph, "$d: String, $v: String?", statement, d=name, v=value)
