"""Branches that meet more than once: round trips, third branches, criss-crosses, and bases whose branch is gone."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConflictKind, HistoricalVersionReclaimedError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.cleanup import reclaim_forks
from omnigraph.storage.datasets.forks import list_forks
from support.branched_people import (
    IN_MEMORY_AND_FILES,
    PERSON,
    add_person,
    ages,
    conflicts_of,
    ends,
    named,
    put,
    remove_person,
    set_age,
)
from support.graphs import everything, run

pytestmark = IN_MEMORY_AND_FILES


def person(name: str, age: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def reclaim(graph: Graph) -> list[tuple[str, str]]:
    return list(reclaim_forks(graph._environment))


def forks_of_people(graph: Graph) -> list[str]:
    return list_forks(graph._environment.location, graph.snapshot().pins[PERSON].location)


# ---- round trips


def test_ten_round_trips_with_changes_on_both_sides(people: Graph) -> None:
    people.create_branch("feature")
    expected = ages(people)
    for number in range(10):
        add_person(people, "feature", f"f{number}", number)
        set_age(people, "main", "Alice", 100 + number)
        add_person(people, "main", f"m{number}", number)
        if number:
            remove_person(people, "feature", f"m{number - 1}")
            expected.pop(f"m{number - 1}")
            set_age(people, "main", f"f{number - 1}", 50 + number)
            expected[f"f{number - 1}"] = 50 + number
        expected |= {f"f{number}": number, f"m{number}": number, "Alice": 100 + number}
        assert people.merge("feature").outcome == "merged"
        assert ages(people) == expected
        assert people.merge("main", "feature").outcome == "fast_forward"
        assert ages(people, "feature") == expected
    assert people.merge("feature").outcome == "fast_forward"
    assert people.merge("main", "feature").outcome == "fast_forward"


def test_a_fast_forward_back_and_forth_ends_when_nothing_is_new(people: Graph) -> None:
    """A fast-forward makes a commit of its own, which the other side has not seen."""
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    assert people.merge("feature").outcome == "fast_forward"
    assert people.merge("feature").outcome == "already_up_to_date"
    back = people.merge("main", "feature")
    assert (back.outcome, back.changes) == ("fast_forward", ())
    assert people.merge("main", "feature").outcome == "already_up_to_date"


def test_a_row_deleted_after_a_merge_stays_deleted(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    people.merge("feature")
    remove_person(people, "main", "Eve")
    add_person(people, "feature", "Fay")
    assert people.merge("feature").outcome == "merged"
    assert "Eve" not in ages(people)
    people.merge("main", "feature")
    assert "Eve" not in ages(people, "feature")


def test_a_decided_conflict_does_not_come_again(people: Graph) -> None:
    people.create_branch("feature")
    set_age(people, "feature", "Alice", 31)
    set_age(people, "main", "Alice", 32)
    people.merge("feature", strategy="ours")
    add_person(people, "feature", "Eve")
    assert people.merge("feature").outcome == "merged"
    assert ages(people)["Alice"] == 32
    set_age(people, "feature", "Alice", 33)
    found = conflicts_of(people, "feature")
    assert named(found) == [(ConflictKind.DIVERGENT_UPDATE, PERSON, "Alice")], "a new disagreement"


# ---- a third branch


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_branch_that_both_sides_merged_is_their_base(people: Graph, is_deleted: bool) -> None:
    """With the older base, rows of `f` that main changed would conflict, and those it deleted would come back."""
    people.create_branch("f")
    put(people, "f", person("from f 1", 1), person("from f 2", 2), person("from f 3", 3))
    set_age(people, "f", "Bob", 26)
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    if is_deleted:
        people.delete_branch("f")
        assert "f" in forks_of_people(people), "the base of a later merge stays readable"
    set_age(people, "main", "from f 1", 10)
    remove_person(people, "main", "from f 2")
    set_age(people, "main", "Alice", 31)
    remove_person(people, "main", "Dan")
    set_age(people, "g", "from f 3", 30)
    result = people.merge("g")
    assert result.outcome == "merged"
    assert ages(people) == {
        "Alice": 31,
        "Bob": 26,
        "Carol": 40,
        "from f 1": 10,
        "from f 3": 30,
        "own of g": 1,
    }
    back = people.merge("main", "g")
    assert back.outcome == "fast_forward"
    assert everything(people, "g") == everything(people)
    if is_deleted:
        reclaim(people)
        assert "f" not in forks_of_people(people), "nobody needs it any more"
        add_person(people, "g", "later")
        assert people.merge("g").outcome == "fast_forward"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_only_one_side_took_from_a_third_branch_is_no_common_ground(
    people: Graph, is_deleted: bool
) -> None:
    people.create_branch("f")
    add_person(people, "f", "Eve", 1)
    people.create_branch("g")
    people.merge("f", "g")
    if is_deleted:
        people.delete_branch("f")
    add_person(people, "main", "Eve", 2)
    assert named(conflicts_of(people, "g")) == [(ConflictKind.DIVERGENT_INSERT, PERSON, "Eve")]
    assert people.merge("g", strategy="theirs").outcome == "merged"
    assert ages(people)["Eve"] == 1


def test_real_conflicts_over_rows_of_a_third_branch_are_found(people: Graph) -> None:
    people.create_branch("f")
    put(people, "f", person("x", 1), person("y", 1), person("z", 1))
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    set_age(people, "main", "x", 2)
    set_age(people, "g", "x", 3)
    remove_person(people, "main", "y")
    set_age(people, "g", "y", 3)
    found = conflicts_of(people, "g")
    assert named(found) == [
        (ConflictKind.DELETE_VS_UPDATE, PERSON, "y"),
        (ConflictKind.DIVERGENT_UPDATE, PERSON, "x"),
    ]
    bases = {conflict.entity_id: conflict.base for conflict in found}
    for image in bases.values():
        assert image is not None
        assert image["properties"]["age"] == 1


def test_a_deleted_branch_that_comes_back_is_another_base(people: Graph) -> None:
    people.create_branch("f")
    add_person(people, "f", "first")
    people.create_branch("g")
    add_person(people, "g", "own of g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    people.create_branch("f")
    add_person(people, "f", "second")
    people.merge("f", "g")
    remove_person(people, "main", "first")
    assert people.merge("g").outcome == "merged"
    assert "first" not in ages(people)
    assert {"second", "own of g"} <= ages(people).keys()


def test_two_deleted_branches_that_both_sides_merged_are_two_bases(people: Graph) -> None:
    for name in ("f1", "f2"):
        people.create_branch(name)
        put(people, name, person(f"{name} a", 1), person(f"{name} b", 1))
    people.create_branch("g")
    for target in ("main", "g"):
        add_person(people, target, f"own of {target}")
        for name in ("f1", "f2"):
            people.merge(name, target)
    for name in ("f1", "f2"):
        people.delete_branch(name)
    assert {"f1", "f2"} <= set(forks_of_people(people))
    for name in ("f1", "f2"):
        remove_person(people, "main", f"{name} a")
        set_age(people, "main", f"{name} b", 2)
    assert people.merge("g").outcome == "merged"
    found = ages(people)
    assert {name: age for name, age in found.items() if name.startswith("f")} == {
        "f1 b": 2,
        "f2 b": 2,
    }
    assert {"own of main", "own of g"} <= found.keys()


# ---- criss-crosses


def cross(graph: Graph) -> None:
    """Merge main and g into each other as they were, by way of branches that hold the old heads."""
    graph.create_branch("old-main")
    graph.create_branch("old-g", "g")
    # A branch with a commit of its own, so that its head is not the one of the branch it came from.
    for name in ("old-main", "old-g"):
        run(graph, f'insert Place {{ name: "{name}" }}', name)
    graph.merge("old-g")
    graph.merge("old-main", "g")
    for name in ("old-main", "old-g"):
        graph.delete_branch(name)


def test_a_criss_cross_neither_brings_rows_back_nor_invents_conflicts(people: Graph) -> None:
    people.create_branch("g")
    put(people, "g", person("g1", 1), person("g2", 1), person("g3", 1))
    put(people, "main", person("m1", 1), person("m2", 1), person("m3", 1))
    cross(people)
    assert ages(people) == ages(people, "g")
    remove_person(people, "main", "g1")
    set_age(people, "main", "g2", 2)
    remove_person(people, "main", "m1")
    set_age(people, "main", "m2", 2)
    set_age(people, "g", "m3", 3)
    set_age(people, "g", "g3", 3)
    remove_person(people, "g", "Dan")
    assert people.merge("g").outcome == "merged"
    expected = {"Alice": 30, "Bob": 25, "Carol": 40, "g2": 2, "g3": 3, "m2": 2, "m3": 3}
    assert ages(people) == expected
    assert people.merge("main", "g").outcome == "fast_forward"
    assert ages(people, "g") == expected


def test_criss_crosses_one_behind_the_other(people: Graph) -> None:
    people.create_branch("g")
    expected = ages(people)
    for number in range(4):
        put(people, "g", person(f"g{number}", number), person("Alice", 100 + number))
        put(people, "main", person(f"m{number}", number), person("Bob", 200 + number))
        expected |= {f"g{number}": number, f"m{number}": number}
        expected |= {"Alice": 100 + number, "Bob": 200 + number}
        cross(people)
        assert ages(people) == ages(people, "g") == expected
    remove_person(people, "main", "g0")
    remove_person(people, "g", "m0")
    set_age(people, "main", "g3", 7)
    assert people.merge("g").outcome == "merged"
    del expected["g0"], expected["m0"]
    assert ages(people) == {**expected, "g3": 7}


def test_bases_that_were_decided_differently_leave_a_conflict(people: Graph) -> None:
    """Each side decided the same conflict its own way: neither of the two bases knows better."""
    people.create_branch("g")
    set_age(people, "g", "Alice", 31)
    set_age(people, "main", "Alice", 32)
    people.create_branch("old-main")
    people.create_branch("old-g", "g")
    for name in ("old-main", "old-g"):
        run(people, f'insert Place {{ name: "{name}" }}', name)
    people.merge("old-g", strategy="ours")
    people.merge("old-main", "g", strategy="ours")
    assert (ages(people)["Alice"], ages(people, "g")["Alice"]) == (32, 31)
    assert named(conflicts_of(people, "g")) == [(ConflictKind.DIVERGENT_UPDATE, PERSON, "Alice")]
    people.merge("g", strategy="theirs")
    assert ages(people)["Alice"] == 31


def test_a_conflict_shows_the_row_of_the_base_that_has_it(people: Graph) -> None:
    for name in ("f1", "f2"):
        people.create_branch(name)
        add_person(people, name, f"of {name}", 1)
    people.create_branch("g")
    for target in ("main", "g"):
        add_person(people, target, f"own of {target}")
        for name in ("f1", "f2"):
            people.merge(name, target)
    for name in ("f1", "f2"):
        set_age(people, "main", f"of {name}", 2)
        set_age(people, "g", f"of {name}", 3)
    found = people.merge("g", dry_run=True).conflicts
    shown = [(item.entity_id, item.base and item.base["properties"]) for item in found]
    assert shown == [
        ("of f1", {"name": "of f1", "age": 1, "note": None}),
        ("of f2", {"name": "of f2", "age": 1, "note": None}),
    ]


def test_the_base_of_bases_stays_when_its_branch_is_deleted(people: Graph) -> None:
    """It is the base of no two live branches, but of what two of them become."""
    for name in ("y", "p", "q", "z", "a", "b", "c"):
        people.create_branch(name)
    add_person(people, "y", "of y")
    for name in ("p", "q", "z"):
        add_person(people, name, f"of {name}")
        people.merge("y", name)
    for source, target in (("p", "a"), ("z", "a"), ("q", "c"), ("z", "c"), ("p", "b"), ("q", "b")):
        add_person(people, target, f"of {source}{target}")
        people.merge(source, target)
    for name in ("p", "q", "z", "y"):
        people.delete_branch(name)
    people.merge("c", "a")
    remove_person(people, "a", "of y")
    assert people.merge("b", "a").outcome == "merged"
    assert "of y" not in ages(people, "a")
    assert {"of p", "of q", "of z", "of pb"} <= ages(people, "a").keys()


def test_a_base_that_is_gone_is_told_as_such(people: Graph) -> None:
    """A branch at an old commit may need a base that nobody needed when it was removed."""
    people.create_branch("f")
    add_person(people, "f", "of f")
    people.create_branch("g")
    add_person(people, "g", "of g")
    people.merge("f")
    people.merge("f", "g")
    old = people.snapshot("g").commit_id
    add_person(people, "main", "later")
    people.merge("main", "g")
    people.delete_branch("f")
    people.create_branch("h", old)
    add_person(people, "h", "of h")
    before = everything(people)
    with pytest.raises(HistoricalVersionReclaimedError, match="last agreed"):
        people.merge("h")
    assert everything(people) == before


def test_edges_cross_as_nodes_do(people: Graph) -> None:
    people.create_branch("f")
    run(people, 'insert Knows { from: "Alice", to: "Dan" }', "f")
    run(people, 'insert Knows { from: "Carol", to: "Dan" }', "f")
    people.create_branch("g")
    run(people, 'insert Knows { from: "Dan", to: "Bob" }', "g")
    people.merge("f")
    people.merge("f", "g")
    people.delete_branch("f")
    run(people, 'delete Knows where from = "Alice"')
    run(people, 'delete Knows where from = "Bob"')
    assert people.merge("g").outcome == "merged"
    assert ends(people) == [("Carol", "Dan"), ("Dan", "Bob")]


# ---- several targets


def test_several_merges_into_the_same_branch(people: Graph) -> None:
    people.create_branch("target")
    for number in range(4):
        people.create_branch(f"s{number}")
        add_person(people, f"s{number}", f"p{number}")
        people.ensure_indices(f"s{number}")
    for number in range(4):
        outcome = people.merge(f"s{number}", "target").outcome
        assert outcome == ("merged" if number else "fast_forward")
        people.delete_branch(f"s{number}")
        people.ensure_indices("target")
        assert f"p{number}" in ages(people, "target")
    assert people.merge("target").outcome == "fast_forward"
    assert ages(people).keys() >= {"p0", "p1", "p2", "p3"}


def test_one_branch_is_merged_into_several(people: Graph) -> None:
    for name in ("a", "b", "source"):
        people.create_branch(name)
    add_person(people, "source", "Eve")
    add_person(people, "b", "Fay")
    outcomes = [people.merge("source", name).outcome for name in ("a", "b", "main")]
    assert outcomes == ["fast_forward", "merged", "fast_forward"]
    assert all("Eve" in ages(people, name) for name in ("a", "b", "main"))
    assert people.merge("b").outcome == "merged"
    assert people.merge("a").outcome == "merged", "its fast-forward was a commit"
    assert len(ages(people)) == 6
