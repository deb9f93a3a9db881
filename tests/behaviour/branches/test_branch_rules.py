"""The life of a branch: its name, where it begins, what it reads, and when it may end."""

from __future__ import annotations

import pytest

from omnigraph.core.ids import new_ulid
from omnigraph.errors import BadRequestError, BranchNotFoundError, NotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.versions import create_fork
from support.branched_people import KNOWS, PERSON, PLACE, add_person, ages, all_branches, ends, remove_person, set_age
from support.graphs import everything, run, table_of
from support.subtests import each_case

# ---- names


GOOD_NAMES = ["x", "X", "0", "a.b", "a-b", "a_b", "_x", "-x", "-", "a/b", "a/b/c", "a/_b", "a/-b", "locked", "a.locks"]


@pytest.mark.parametrize("name", [*GOOD_NAMES, "A.b_c", "x" * 100])
def test_a_good_name_is_a_branch_that_can_be_written_and_merged(people: Graph, name: str) -> None:
    people.create_branch(name)
    add_person(people, name, "Eve")
    assert people.branches() == sorted(["main", name])
    assert people.merge(name).outcome == "fast_forward"
    people.delete_branch(name)
    assert people.branches() == ["main"]


BAD_NAMES = [
    *("", "   ", "\n", "/", "/a", "a/", "a//b", "..", "a..b", "a/../b", ".", "a/.", "a/./b", "a\\b", "a b", "a\nb"),
    *("a'b", "a:b", "a@b", "a~2", "ä", "a.lock", "a.lock/b", "a/b.lock", "__x", "__", "__run/x"),
]


@each_case("name", BAD_NAMES, ids=ascii)
def test_a_bad_name_is_refused_everywhere(people: Graph, name: str) -> None:
    for act in (
        lambda: people.create_branch(name),
        lambda: people.delete_branch(name),
        lambda: people.merge(name),
        lambda: people.merge("main", name),
        lambda: people.commits(name),
    ):
        with pytest.raises(BadRequestError):
            act()
    assert people.branches() == ["main"]


def test_spaces_around_a_name_are_trimmed(people: Graph) -> None:
    people.create_branch("  feature ")
    assert people.branches() == ["feature", "main"]
    add_person(people, " feature", "Eve")
    assert people.merge("feature ", " main").outcome == "fast_forward"
    people.delete_branch(" feature ")
    assert people.branches() == ["main"]


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b", "a/b/c"), ("a/b/c", "a"), ("a", "a"), ("a/b", "a/b")]
)
def test_a_name_beside_its_prefix_is_refused(people: Graph, first: str, second: str) -> None:
    people.create_branch(first)
    with pytest.raises(BadRequestError, match="branch"):
        people.create_branch(second)
    assert people.branches() == sorted([first, "main"])


@pytest.mark.parametrize("name", ["ab", "a.b", "a-b/c", "b/a"])
def test_a_name_that_only_begins_alike_is_fine(people: Graph, name: str) -> None:
    people.create_branch("a")
    people.create_branch(name)
    for branch in ("a", name):
        add_person(people, branch, branch)
    assert ages(people, "a").keys() - ages(people, name).keys() == {"a"}
    assert ages(people, name).keys() - ages(people, "a").keys() == {name}


def test_main_is_a_prefix_too(people: Graph) -> None:
    for name in ("main", "main/x"):
        with pytest.raises(BadRequestError):
            people.create_branch(name)


@pytest.mark.parametrize(("first", "second"), [("a/b", "a"), ("a", "a/b"), ("a/b", "a/b/c"), ("a/b/c", "a/b")])
def test_a_name_beside_a_prefix_is_free_after_that_branch_is_gone(people: Graph, first: str, second: str) -> None:
    people.create_branch(first)
    add_person(people, first, "Eve")
    people.delete_branch(first)
    people.create_branch(second)
    assert "Eve" not in ages(people, second)
    add_person(people, second, "Fay")
    assert people.merge(second).outcome == "fast_forward"
    assert "Fay" in ages(people)


# ---- where a branch begins


def test_a_branch_begins_at_main_by_default(people: Graph) -> None:
    people.create_branch("feature")
    assert people.snapshot("feature").pins == people.snapshot().pins
    assert people.snapshot("feature").commit_id == people.snapshot().commit_id


def test_a_branch_of_a_branch_inherits_its_state(people: Graph) -> None:
    people.create_branch("parent")
    add_person(people, "parent", "Eve")
    people.create_branch("child", "parent")
    assert everything(people, "child") == everything(people, "parent")
    add_person(people, "parent", "Fay")
    remove_person(people, "child", "Alice")
    assert ages(people, "parent").keys() - ages(people, "child").keys() == {"Alice", "Fay"}
    assert "Eve" not in ages(people)


def test_a_branch_begins_at_any_commit(people: Graph) -> None:
    commits = [people.snapshot().commit_id]
    states = [everything(people)]
    for age in (31, 32, 33):
        set_age(people, "main", "Alice", age)
        commits.append(people.snapshot().commit_id)
        states.append(everything(people))
    for number, commit in enumerate(commits):
        people.create_branch(f"b{number}", commit)
        assert everything(people, f"b{number}") == states[number]
        add_person(people, f"b{number}", "Eve")
        assert ages(people, f"b{number}") == {**{row["id"]: row["age"] for row in states[number][PERSON]}, "Eve": 1}
    assert everything(people) == states[-1]


def test_a_branch_begins_at_an_old_commit_of_another_branch(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    old = people.snapshot("feature").commit_id
    add_person(people, "feature", "Fay")
    people.create_branch("later", old)
    assert "Eve" in ages(people, "later")
    assert "Fay" not in ages(people, "later")
    set_age(people, "later", "Eve", 7)
    assert people.merge("later", "feature").outcome == "merged"
    assert ages(people, "feature")["Eve"] == 7


def test_a_branch_from_an_old_commit_merges_as_if_it_had_begun_then(people: Graph) -> None:
    old = people.snapshot().commit_id
    set_age(people, "main", "Alice", 31)
    people.create_branch("feature", old)
    set_age(people, "feature", "Bob", 26)
    assert people.merge("feature").outcome == "merged"
    assert (ages(people)["Alice"], ages(people)["Bob"]) == (31, 26)


def test_the_first_commit_is_a_base_like_any_other(people: Graph) -> None:
    first = people.commits()[-1]
    assert first.parent_id is None
    people.create_branch("empty", first.commit_id)
    assert ages(people, "empty") == {}
    add_person(people, "empty", "Eve")
    assert people.merge("empty").outcome == "merged"
    assert len(ages(people)) == 5


def test_an_unknown_base_is_not_found(people: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        people.create_branch("x", "nope")
    with pytest.raises(NotFoundError):
        people.create_branch("x", new_ulid())
    assert people.branches() == ["main"]


# ---- lazy forks


def test_a_type_is_forked_at_its_first_write_and_others_stay_pinned(people: Graph) -> None:
    people.create_branch("feature")
    at_fork = people.snapshot().pins
    set_age(people, "main", "Alice", 31)
    run(people, 'insert Place { name: "Rome" } insert Knows { from: "Dan", to: "Bob" }')
    add_person(people, "feature", "Eve")
    pins = people.snapshot("feature").pins
    assert pins[PERSON].branch == "feature"
    for key in (PLACE, KNOWS):
        assert pins[key] == at_fork[key]
    assert ages(people, "feature")["Alice"] == 30, "the fork begins at the pinned version"
    assert everything(people, "feature")[PLACE] == []
    assert ends(people, "feature") == [("Bob", "Carol")]


def test_a_second_type_is_forked_from_the_pinned_version_too(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    for name in ("Rome", "Oslo"):
        run(people, f'insert Place {{ name: "{name}" }}')
    run(people, 'insert Place { name: "Bern" }', "feature")
    assert [row["id"] for row in everything(people, "feature")[PLACE]] == ["Bern"]


def test_a_branch_that_writes_nothing_has_no_files(people: Graph) -> None:
    people.create_branch("feature")
    run(people, 'delete Person where name = "nobody"', "feature")
    assert all(pin.branch is None for pin in people.snapshot("feature").pins.values())


# ---- deletion


def test_main_cannot_be_deleted(people: Graph) -> None:
    with pytest.raises(BadRequestError, match="main"):
        people.delete_branch("main")


def test_a_branch_that_is_not_there_cannot_be_deleted(people: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        people.delete_branch("nope")
    people.create_branch("once")
    people.delete_branch("once")
    with pytest.raises(BranchNotFoundError):
        people.delete_branch("once")


@pytest.mark.parametrize("has_written", [False, True])
@pytest.mark.parametrize("base", ["name", "commit"])
def test_a_branch_with_children_cannot_be_deleted(people: Graph, base: str, has_written: bool) -> None:
    people.create_branch("parent")
    add_person(people, "parent", "Eve")
    origin = "parent" if base == "name" else people.snapshot("parent").commit_id
    people.create_branch("child", origin)
    if has_written:
        # A fork of its own of every type that the parent wrote to.
        add_person(people, "child", "Fay")
    with pytest.raises(BadRequestError, match="child"):
        people.delete_branch("parent")
    assert "Eve" in ages(people, "child")
    people.delete_branch("child")
    people.delete_branch("parent")
    assert people.branches() == ["main"]


def test_a_branch_whose_tables_a_grandchild_reads_cannot_be_deleted(people: Graph) -> None:
    people.create_branch("a")
    add_person(people, "a", "Eve")
    people.create_branch("b", "a")
    people.create_branch("c", "b")
    for branch, reason in (("a", "b, c"), ("b", "c")):
        with pytest.raises(BadRequestError, match=reason):
            people.delete_branch(branch)
    for branch in ("c", "b", "a"):
        people.delete_branch(branch)


def test_a_deletion_touches_no_other_branch(people: Graph) -> None:
    people.create_branch("keep")
    people.create_branch("drop")
    for branch in ("keep", "drop"):
        add_person(people, branch, branch)
    before = all_branches(people)
    people.delete_branch("drop")
    del before["drop"]
    assert all_branches(people) == before


def test_reads_of_a_deleted_branch_are_refused(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    version = people.snapshot("feature").graph_version
    people.delete_branch("feature")
    text = "query q() { match { $p: Person } return { $p.name as n } }"
    for read in (
        lambda: people.snapshot("feature"),
        lambda: people.commits("feature"),
        lambda: people.log("feature"),
        lambda: people.query(text, branch="feature"),
        lambda: people.query(text, branch="feature", version=version),
        lambda: people.entity_at(PERSON, "Eve", branch="feature"),
        lambda: people.merge("feature"),
        lambda: people.merge("main", "feature"),
        lambda: people.create_branch("x", "feature"),
        lambda: people.diff("main", "feature"),
        lambda: add_person(people, "feature", "Fay"),
    ):
        with pytest.raises(BranchNotFoundError):
            read()
    assert people.branches() == ["main"]


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("is_merged", [False, True])
def test_commits_of_a_deleted_branch_cannot_be_read(people: Graph, is_merged: bool, comes_back: bool) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    own, inherited = (people.commits("feature")[place].commit_id for place in (0, 1))
    if is_merged:
        people.merge("feature")
    people.delete_branch("feature")
    if comes_back:
        people.create_branch("feature")
        add_person(people, "feature", "Fay")
    text = "query q() { match { $p: Person } return { $p.name as n } }"
    for read in (
        lambda: people.commit(own),
        lambda: people.query(text, snapshot=own),
        lambda: people.entity_at(PERSON, "Eve", snapshot=own),
        lambda: people.create_branch("x", own),
        lambda: people.diff(own, "main"),
        lambda: people.changes(own),
    ):
        with pytest.raises(NotFoundError):
            read()
    assert people.commit(inherited).branch == "main"
    assert people.query(text, snapshot=inherited).to_pylist()


# ---- another branch of the same name


def test_a_branch_that_comes_back_knows_nothing_of_the_old_one(people: Graph) -> None:
    people.create_branch("feature")
    add_person(people, "feature", "Eve")
    run(people, 'insert Place { name: "Rome" }', "feature")
    old = people.snapshot("feature")
    people.delete_branch("feature")
    set_age(people, "main", "Alice", 31)
    people.create_branch("feature")
    assert everything(people, "feature") == everything(people)
    assert people.commits("feature") == people.commits()
    add_person(people, "feature", "Fay")
    assert ages(people, "feature").keys() - ages(people).keys() == {"Fay"}
    new = people.snapshot("feature")
    assert new.incarnation != old.incarnation
    assert new.pins[PERSON].branch != old.pins[PERSON].branch
    with pytest.raises(ValueError):
        table_of(people.uri, old, PERSON)


def test_a_branch_may_come_back_many_times(people: Graph) -> None:
    forks = set()
    for number in range(5):
        people.create_branch("feature")
        add_person(people, "feature", f"p{number}")
        assert ages(people, "feature").keys() - ages(people).keys() == {f"p{number}"}
        forks.add(people.snapshot("feature").fork_name)
        if number % 2:
            people.merge("feature")
        people.delete_branch("feature")
    assert len(forks) == 5
    assert ages(people).keys() >= {"p1", "p3"}
    assert not ages(people).keys() & {"p0", "p2", "p4"}


def test_a_fork_name_of_an_old_branch_is_not_taken_for_another_branch(people: Graph) -> None:
    for name in ("a", "a", "a.2", "a"):
        people.create_branch(name)
        add_person(people, name, "Eve")
        assert ages(people, name)["Eve"] == 1
        people.delete_branch(name)
    people.create_branch("a.2")
    people.create_branch("a")
    for name in ("a", "a.2"):
        assert "Eve" not in ages(people, name)
        add_person(people, name, name)
        assert ages(people, name).keys() - ages(people).keys() == {name}


def test_another_handle_sees_the_new_branch_and_never_the_old_rows(people: Graph) -> None:
    with Graph.open(people.uri) as other:
        people.create_branch("feature")
        add_person(people, "feature", "Eve")
        text = "query q() { match { $p: Person } return { $p.name as n } order { n } }"
        seen = [row["n"] for row in other.query(text, branch="feature").to_pylist()]
        assert "Eve" in seen
        people.delete_branch("feature")
        people.create_branch("feature")
        assert [row["n"] for row in other.query(text, branch="feature").to_pylist()] == sorted(ages(people))
        add_person(other, "feature", "Fay")
        assert ages(people, "feature").keys() - ages(people).keys() == {"Fay"}


def test_a_graph_that_is_open_for_reading_changes_no_branch(people: Graph) -> None:
    people.create_branch("feature")
    with Graph.open(people.uri, read_only=True) as reader:
        for act in (
            lambda: reader.create_branch("x"),
            lambda: reader.delete_branch("feature"),
            lambda: reader.merge("feature"),
            lambda: reader.merge("feature", dry_run=True),
        ):
            with pytest.raises(BadRequestError, match="reading only"):
                act()
        assert reader.branches() == ["feature", "main"]


def test_a_fork_that_nobody_owns_below_the_name_of_a_branch_is_no_obstacle(people: Graph) -> None:
    """A killed load that was making `dev/x` leaves one."""
    environment = people._core.environment
    pin = people.snapshot().pins[PERSON]
    table = environment.tables.open(pin.location, pin.branch, pin.version)
    create_fork(environment.location, table, "dev/x")
    people.create_branch("dev")
    add_person(people, "dev", "Eve")
    assert "Eve" in ages(people, "dev")
