"""Conditions and values of statements are expressions: over the row, over parameters, and over rows of a match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    IntegerOverflowError,
    ReadSetConflictError,
    ResourceLimitError,
)
from omnigraph.graph.graph import Graph
from support.graphs import interrupted, new_graph, refused, rows_of, run
from support.subtests import each_case

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    visits: I64?
    score: F32?
    born: Date?
    tags: [String]?
    mood: enum(glad, sad)?
    @range(age, 0..200)
}
node Note {
    text: String
    rank: I32?
}
edge Knows: Person -> Person {
    since: I32?
    note: String?
}
edge Rates: Person -> Person {
    stars: I32
    why: String?
    @key(src, dst)
}
edge About: Note -> Person
"""


@pytest.fixture
def people(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path, SCHEMA)
    run(
        graph,
        """
        insert Person { name: "ada", age: 36, visits: 1, score: 0.1, born: date("1815-12-10"), tags: ["x", "y"] }
        insert Person { name: "bob", age: 20, visits: 9223372036854775807 }
        insert Person { name: "cy", mood: "glad", score: 2.5, tags: [] }
        insert Knows { from: "ada", to: "bob", since: 1 }
        insert Knows { from: "ada", to: "cy" }
        insert Knows { from: "bob", to: "cy", since: 3 }
        insert Rates { from: "ada", to: "bob", stars: 4, why: "kind" }
        """,
    )
    return graph


def people_of(graph: Graph, *columns: str) -> dict[str, Any]:
    """The values of some columns, by id; those of one column alone."""
    rows = rows_of(graph, "node:Person")
    return {row["id"]: row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in rows}


# ---- conditions


@each_case(
    ("condition", "names"),
    [
        ("true", "ada bob cy"),
        ("false", ""),
        ("not (age > 30)", "bob"),
        ("age > 30 or age is null", "ada cy"),
        ("@id in ['ada', 'cy'] and age is not null".replace("'", '"'), "ada"),
        ('"x" in tags', "ada"),
        ("tags is not null and not ('x' in tags)".replace("'", '"'), "cy"),
        ("age + 10 < visits", "bob"),
        # An integer beyond 64 bits makes a condition unknown.
        ("visits + 1 > 0", "ada"),
        ("not (visits + 1 > 0)", ""),
        ("score = 0.1", "ada"),
        ("score * 2 = 0.2", ""),
        ('upper(name) = "CY" or mood = "sad"', "cy"),
        ('born < date("1900-01-01")', "ada"),
        ("born < date(now())", "ada"),
        ('case when age is null then name else "z" end = "cy"', "cy"),
        ('@type = "Person" and name starts_with "b"', "bob"),
    ],
)
def test_a_condition_is_any_expression_over_the_row(condition: str, names: str, one_graph: Graph) -> None:
    result = run(one_graph, f"update Person set {{ mood: mood }} where {condition}")
    assert result.affected_nodes == len(names.split())
    preview = one_graph.mutate(f"delete Person where {condition}", dry_run=True)
    assert sorted(row.id for row in preview.examples if row.type_key == "node:Person") == names.split()


@pytest.fixture(scope="module")
def one_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = new_graph(tmp_path_factory.mktemp("conditions"), SCHEMA)
    run(
        graph,
        """
        insert Person { name: "ada", age: 36, visits: 1, score: 0.1, born: date("1815-12-10"), tags: ["x", "y"] }
        insert Person { name: "bob", age: 20, visits: 9223372036854775807 }
        insert Person { name: "cy", mood: "glad", score: 2.5, tags: [] }
        """,
    )
    return graph


def test_a_condition_sees_rows_of_the_same_mutation_as_committed_ones(people: Graph) -> None:
    run(
        people,
        """
        insert Person { name: "dan", age: 36, tags: ["x"] }
        update Person set { age: 1 } where name = "ada"
        update Person set { mood: "sad" } where "x" in tags and age * 2 = 72
        """,
    )
    assert people_of(people, "mood") == {"ada": None, "bob": None, "cy": "glad", "dan": "sad"}


@each_case(
    ("condition", "left"),
    [('from = "ada" and since is null', 2), ('@dst = "cy" or since = 1', 0), ("since % 2 = 1", 1), ("@src = @dst", 3)],
)
def test_conditions_on_edges_use_their_ends(
    condition: str, left: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = new_graph(tmp_path_factory.mktemp("edges"), SCHEMA)
    run(
        graph,
        """
        insert Person { name: "ada" } insert Person { name: "bob" } insert Person { name: "cy" }
        insert Knows { from: "ada", to: "bob", since: 1 }
        insert Knows { from: "ada", to: "cy" }
        insert Knows { from: "bob", to: "cy", since: 3 }
        """,
    )
    run(graph, f"delete Knows where {condition}")
    assert len(rows_of(graph, "edge:Knows")) == left


# ---- assigned expressions


def test_a_value_may_use_what_the_row_holds(people: Graph) -> None:
    run(people, 'update Person set { visits: age + 1, age: visits, born: add_days(born, 1) } where name = "ada"')
    assert people_of(people, "visits", "age")["ada"] == (37, 1)


def test_later_statements_see_values_that_earlier_ones_computed(people: Graph) -> None:
    run(people, "update Person set { age: age + 1 } where age > 0 update Person set { age: age * 2 } where age = 37")
    assert people_of(people, "age") == {"ada": 74, "bob": 21, "cy": None}


def test_a_value_beyond_64_bits_names_its_row(people: Graph) -> None:
    with refused(people, IntegerOverflowError, "Person 'bob'"):
        run(people, "update Person set { visits: visits + 1 } where true")


@each_case(
    ("value", "words"), [("visits", "out of range"), ("age / 1000.0", "0.036"), ("age * 10", "@range violation")]
)
def test_a_computed_value_has_to_fit(value: str, words: str, one_graph: Graph) -> None:
    with refused(one_graph, BadRequestError, words):
        run(one_graph, f"update Person set {{ age: {value} }} where name in ['ada', 'bob']".replace("'", '"'))


def test_a_float_without_fraction_fits_an_integer(people: Graph) -> None:
    run(people, 'update Person set { age: age / 2, score: f64(age) / 10 } where name = "ada"')
    age, score = people_of(people, "age", "score")["ada"]
    assert (age, score == pytest.approx(3.6)) == (18, True)


def test_an_enum_takes_texts_that_are_values_of_it(people: Graph) -> None:
    run(people, 'update Person set { mood: case when age > 30 then "glad" else "sad" end } where age is not null')
    assert people_of(people, "mood") == {"ada": "glad", "bob": "sad", "cy": "glad"}
    with refused(people, BadRequestError, "invalid enum value"):
        run(people, "update Person set { mood: name } where true")


def test_null_is_assigned_and_refused_before_anything_is_read(people: Graph) -> None:
    run(people, "update Person set { age: null } where true")
    assert set(people_of(people, "age").values()) == {None}
    with refused(people, CompilerError) as caught:
        run(people, 'update Rates set { stars: null } where from = "nobody"')
    assert caught.value.codes == ("T3",)


def test_a_null_in_one_row_is_refused_for_a_required_property(people: Graph) -> None:
    run(people, 'update Rates set { stars: stars + 1 } where from = "ada"')
    with refused(people, BadRequestError, "it may not be null"):
        run(people, 'update Rates set { stars: length(why) - case when why = "kind" then null else 1 end } where true')


# ---- edges and upserts


def test_an_update_of_edges_changes_their_properties_only(people: Graph) -> None:
    before = {row["id"]: (row["src"], row["dst"]) for row in rows_of(people, "edge:Knows")}
    result = run(
        people, 'update Knows set { since: coalesce(since, 0) + 1, note: concat(from, to) } where from = "ada"'
    )
    assert (result.affected_nodes, result.affected_edges) == (0, 2)
    rows = rows_of(people, "edge:Knows")
    assert {row["id"]: (row["src"], row["dst"]) for row in rows} == before
    assert sorted((row["since"], row["note"]) for row in rows) == [(1, "adacy"), (2, "adabob"), (3, None)]


def test_an_upsert_keeps_what_it_does_not_assign(people: Graph) -> None:
    result = run(people, 'upsert Person { name: "ada", age: 1 } upsert Person { name: "dan", age: 2 }')
    assert result.affected_nodes == 2
    assert people_of(people, "age", "visits", "tags")["ada"] == (1, 1, ["x", "y"])
    assert people_of(people, "age", "visits", "tags")["dan"] == (2, None, None)


def test_an_upsert_sees_earlier_statements(people: Graph) -> None:
    run(people, 'insert Person { name: "ada", age: 5 } upsert Person { name: "ada", visits: 7 }')
    assert people_of(people, "age", "visits", "score")["ada"] == (5, 7, None)


def test_an_upsert_of_a_keyed_edge_finds_it_by_its_ends(people: Graph) -> None:
    run(people, 'upsert Rates { from: "ada", to: "bob", why: "fast" }')
    (row,) = rows_of(people, "edge:Rates")
    assert (row["stars"], row["why"]) == (4, "fast")
    with refused(people, BadRequestError, "missing value for Rates.stars of"):
        run(people, 'upsert Rates { from: "ada", to: "cy", why: "new" }')


# ---- statements of a match


def test_an_update_of_a_variable_happens_once_for_each_node(people: Graph) -> None:
    result = run(people, "match { $p: Person  $p knows $_ } update $p set { age: coalesce(age, 0) + 1 }")
    assert result.affected_nodes == 2
    assert people_of(people, "age") == {"ada": 37, "bob": 21, "cy": None}


def test_values_of_the_match_are_those_before_the_mutation(people: Graph) -> None:
    run(
        people,
        """
        match { $p: Person  $p knows $q  $q.name = "bob" }
        update $q set { age: 99 }
        update $p set { age: $q.age }
        """,
    )
    assert people_of(people, "age") == {"ada": 20, "bob": 99, "cy": None}


def test_two_values_for_one_property_are_refused(people: Graph) -> None:
    with refused(people, BadRequestError, "`age` of Person 'ada' gets different values"):
        run(people, "match { $p: Person  $p knows $q } update $p set { age: $q.age }")
    run(people, "match { $p: Person  $p knows $q  $q.age is not null } update $p set { age: $q.age }")
    assert people_of(people, "age") == {"ada": 20, "bob": 20, "cy": None}


def test_an_update_of_a_type_runs_for_each_combination(people: Graph) -> None:
    result = run(
        people, "match { $p: Person  $p.age > 0 } update Person set { visits: $p.age } where name = $p.name and true"
    )
    assert result.affected_nodes == 2
    assert people_of(people, "visits") == {"ada": 36, "bob": 20, "cy": None}


def test_new_nodes_are_named_and_linked(people: Graph) -> None:
    result = run(
        people,
        """
        match { $p: Person  $p knows $q }
        insert Note { text: concat("about ", $p.name) } as $n
        insert About { from: $n, to: $q }
        insert About { from: $n.@id, to: $p }
        """,
    )
    # One note for each $p, an edge for each pair, and an edge for each $p.
    assert (result.affected_nodes, result.affected_edges) == (2, 5)
    notes = {row["id"]: row["text"] for row in rows_of(people, "node:Note")}
    found = sorted((notes[row["src"]], row["dst"]) for row in rows_of(people, "edge:About"))
    assert found == [
        *(("about ada", name) for name in ("ada", "bob", "cy")),
        *(("about bob", name) for name in ("bob", "cy")),
    ]


def test_edges_of_a_match_are_updated_and_deleted(people: Graph) -> None:
    result = run(people, "match { $p: Person  $p $e:knows $q } update $e set { since: $q.age, note: $p.name }")
    assert (result.affected_nodes, result.affected_edges) == (0, 3)
    found = sorted((row["note"], row["since"]) for row in rows_of(people, "edge:Knows") if row["since"] is not None)
    assert found == [("ada", 20)]
    result = run(people, 'match { $p: Person { name: "ada" }  $p $e:knows $_ } delete $e where since is not null')
    assert result.affected_edges == 1
    assert len(rows_of(people, "edge:Knows")) == 2


def test_a_delete_of_a_variable_takes_its_edges_along(people: Graph) -> None:
    result = run(people, "match { $p: Person  not { $p knows $_ } } delete $p")
    assert (result.affected_nodes, result.affected_edges) == (1, 2)
    assert sorted(people_of(people, "age")) == ["ada", "bob"]


def test_a_match_without_rows_changes_nothing(people: Graph) -> None:
    result = run(
        people, 'match { $p: Person { name: "nobody" } } insert Note { text: $p.name } update $p set { age: 1 }'
    )
    assert (result.affected_nodes, result.commit) == (0, None)


def test_a_statement_without_variables_runs_once(people: Graph) -> None:
    result = run(people, 'match { $p: Person } insert Note { text: "one" } insert Note { text: $p.name }')
    assert result.affected_nodes == 4


def test_a_match_may_search_and_count(people: Graph) -> None:
    run(people, "match { $p: Person  count { $p knows $_ } > 1  search($p.name, 'ada') } delete $p".replace("'", '"'))
    assert sorted(people_of(people, "age")) == ["bob", "cy"]


# ---- what statements return


def test_statements_return_a_row_for_each_match(people: Graph) -> None:
    result = run(
        people,
        """
        match { $p: Person  $p knows $q }
        insert Note { text: concat($p.name, "-", $q.name), rank: 1 } as $n
        update $p set { age: coalesce(age, 0) + 1 }
        return { $p.name as p, $p.age as age, $n.text as text, upper($q.@id) as q }
        """,
    )
    assert sorted(result.rows, key=lambda row: row["text"]) == [
        {"p": "ada", "age": 37, "text": "ada-bob", "q": "BOB"},
        {"p": "ada", "age": 37, "text": "ada-cy", "q": "CY"},
        {"p": "bob", "age": 21, "text": "bob-cy", "q": "CY"},
    ]


def test_what_is_deleted_is_returned_as_it_was(people: Graph) -> None:
    result = run(people, "match { $p: Person { age: 20 } } delete $p return { $p.@id as id, $p.age as age }")
    assert result.rows == ({"id": "bob", "age": 20},)


def test_a_new_id_comes_back_without_a_match(people: Graph) -> None:
    result = run(people, 'insert Note { text: "hi" } as $n return { $n.@id as id, $n.text as text }')
    (row,) = result.rows
    assert row["text"] == "hi"
    assert row["id"] == rows_of(people, "node:Note")[0]["id"]
    assert run(people, 'insert Note { text: "hi" }').rows is None
    assert run(people, "match { $n: Note { rank: 9 } } delete $n return { $n.text as t }").rows == ()


# ---- the frame around statements


def test_what_a_match_read_is_fenced(people: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtake() -> None:
        run(people, 'insert Knows { from: "ada", to: "ada" }')

    text = 'match { $p: Person { name: "ada" }  $p knows $q } update $q set { age: 1 }'
    with interrupted(monkeypatch, overtake), pytest.raises(ReadSetConflictError):
        run(people, text)
    assert 1 not in people_of(people, "age").values()


def test_inserts_of_a_match_are_prepared_again_after_a_lost_race(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtake() -> None:
        run(people, 'insert Person { name: "dan" }')

    with interrupted(monkeypatch, overtake) as prepared:
        run(people, "match { $p: Person } insert Note { text: $p.name }")
    assert len(prepared) == 2
    assert sorted(row["text"] for row in rows_of(people, "node:Note")) == ["ada", "bob", "cy", "dan"]


def test_a_limit_of_changes_counts_what_the_match_makes(people: Graph) -> None:
    with refused(people, ResourceLimitError):
        people.mutate("match { $p: Person } insert Note { text: $p.name }", max_affected=2)


def test_a_dry_run_shows_rows_and_writes_nothing(people: Graph) -> None:
    text = 'match { $p: Person { name: "ada" } } update $p set { age: 40 } return { $p.age as age }'
    result = people.mutate(text, dry_run=True)
    assert (result.commit, result.rows) == (None, ({"age": 40},))
    assert people_of(people, "age")["ada"] == 36


# ---- variables of several types, and of optional parts


def test_a_variable_of_several_types_is_written_in_each_of_them(people: Graph) -> None:
    run(people, 'insert Note { text: "a" } as $n insert About { from: $n, to: "ada" }')
    result = run(people, "match { $x: Person | Note } delete $x return { $x.@type as type, $x.@id as id }")
    assert (result.affected_nodes, result.affected_edges) == (4, 5)
    assert sorted(row["type"] for row in result.rows) == ["Note", "Person", "Person", "Person"]
    assert (rows_of(people, "node:Person"), rows_of(people, "node:Note")) == ([], [])


def test_an_assignment_has_to_fit_every_type_of_a_variable(people: Graph) -> None:
    with refused(people, CompilerError) as caught:
        run(people, "match { $x: Person | Note } update $x set { age: 1 }")
    assert caught.value.codes == ("T11",)


def test_an_update_skips_a_variable_that_is_bound_to_nothing(people: Graph) -> None:
    result = run(
        people,
        """
        match { $p: Person  optional { $p knows $q } }
        update $q set { visits: 5 }
        insert Note { text: coalesce($q.name, "nobody") }
        return { $p.name as p, $q.visits as visits }
        """,
    )
    # bob and cy are known by someone; each of them and nobody gets a note.
    assert result.affected_nodes == 2 + 3
    assert sorted((row["p"], row["visits"]) for row in result.rows if row["visits"] is None) == [("cy", None)]
    assert sorted(row["text"] for row in rows_of(people, "node:Note")) == ["bob", "cy", "nobody"]
