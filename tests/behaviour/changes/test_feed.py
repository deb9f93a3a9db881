"""The change feed of a branch: where it starts, what it tells, where a poll ends, and that a replay is the branch."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.branches.changes import MAX_PAGE_CHANGES
from omnigraph.branches.feed import MAX_POLL_COMMITS
from omnigraph.errors import BadRequestError, BranchNotFoundError, ResourceLimitError
from omnigraph.graph.graph import Graph
from support.change_feeds import (
    apply,
    compact,
    drop,
    images_of,
    knows,
    merge,
    pages_of,
    person,
    poll,
    run,
    set_age,
    told,
)


def commits_of(blocks: Any) -> list[str]:
    return [block.cause.graph_commit_id for block in blocks]


def people(graph: Graph, *names: str, branch: str = "main") -> list[str]:
    """One commit per person."""
    return [run(graph, person(name), branch=branch) for name in names]


# ---- start


def test_a_feed_starts_now_when_nobody_says_otherwise(graph: Graph):
    people(graph, "ann", "bob")
    for start in (None, "now"):
        page = graph.feed(start=start)
        assert (page.blocks, page.caught_up, page.next_page_token) == ((), True, None)
        (made,) = people(graph, "later")
        blocks, _ = poll(graph, cursor=page.cursor)
        assert commits_of(blocks) == [made]
        run(graph, drop("later"))


def test_a_feed_from_the_beginning_tells_every_commit_oldest_first(graph: Graph):
    made = people(graph, "ann", "bob", "cid")
    page = graph.feed(start="beginning")
    assert commits_of(page.blocks) == made
    assert [told(block.changes) for block in page.blocks] == [
        [("node:Person", name, "insert")] for name in ("ann", "bob", "cid")
    ]
    assert page.caught_up


def test_the_beginning_of_a_branch_is_the_history_that_it_inherited(graph: Graph):
    inherited = people(graph, "ann")
    graph.create_branch("work")
    people(graph, "on main only")
    own = people(graph, "bob", branch="work")
    assert commits_of(graph.feed("work", start="beginning").blocks) == inherited + own


def test_a_feed_starts_after_a_commit(graph: Graph):
    first, second, third = people(graph, "ann", "bob", "cid")
    assert commits_of(graph.feed(start=f"after:{first}").blocks) == [second, third]
    assert commits_of(graph.feed(start=f"after:{third}").blocks) == []


def test_a_feed_may_start_after_the_first_commit_of_all(graph: Graph):
    genesis = graph.snapshot().commit_id
    made = people(graph, "ann")
    assert commits_of(graph.feed(start=f"after:{genesis}").blocks) == made


def test_a_feed_of_a_branch_may_start_after_a_commit_that_it_inherited(graph: Graph):
    (first,) = people(graph, "ann")
    graph.create_branch("work")
    own = people(graph, "bob", branch="work")
    assert commits_of(graph.feed("work", start=f"after:{first}").blocks) == own


@pytest.mark.parametrize("where", ["unknown", "other branch", "later on the base", "merged"])
def test_a_commit_that_is_not_on_the_line_is_refused(graph: Graph, where: str):
    people(graph, "ann")
    graph.create_branch("work")
    (on_work,) = people(graph, "bob", branch="work")
    (on_main,) = people(graph, "cid")
    merge(graph, "work")
    commit, branch = {
        "unknown": ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main"),
        "other branch": (on_main, "work"),
        "later on the base": (graph.snapshot().commit_id, "work"),
        "merged": (on_work, "main"),
    }[where]
    with pytest.raises(BadRequestError, match="is not on the line"):
        graph.feed(branch, start=f"after:{commit}")


@pytest.mark.parametrize("start", ["", "yesterday", "after", "after:", "NOW"])
def test_another_start_is_refused(graph: Graph, start: str):
    with pytest.raises(BadRequestError):
        graph.feed(start=start)


def test_only_one_way_to_begin_can_be_given(graph: Graph):
    cursor = graph.feed().cursor
    with pytest.raises(BadRequestError, match="one of cursor, start and page token"):
        graph.feed(cursor=cursor, start="now")


def test_a_branch_that_is_not_there_has_no_feed(graph: Graph):
    with pytest.raises(BranchNotFoundError):
        graph.feed("nowhere")


# ---- what is told


def test_a_merge_is_one_block_against_its_first_parent(graph: Graph):
    people(graph, "ann")
    graph.create_branch("work")
    people(graph, "bob", "cid", branch="work")
    (on_main,) = people(graph, "dan")
    merged = merge(graph, "work")
    blocks, _ = poll(graph, start=f"after:{on_main}")
    (block,) = blocks
    assert block.cause.graph_commit_id == merged
    assert told(block.changes) == [
        ("node:Person", "bob", "insert"),
        ("node:Person", "cid", "insert"),
    ]
    assert block.cause.merged_parent_commit_id == graph.snapshot("work").commit_id


def test_a_block_tells_what_the_changes_of_its_commit_tell(graph: Graph):
    people(graph, "ann", "bob")
    run(graph, knows("ann", "bob"))
    run(graph, drop("bob"))
    for block in graph.feed(start="beginning").blocks:
        page = graph.changes(block.cause.graph_commit_id)
        assert (block.cause, block.changes) == (page.cause, page.changes)


def test_commits_without_a_wanted_change_are_empty_blocks_and_advance(graph: Graph):
    made = people(graph, "ann", "bob")
    page = graph.feed(start="beginning", kinds=["edge"])
    assert commits_of(page.blocks) == made
    assert [block.changes for block in page.blocks] == [(), ()]
    assert page.caught_up
    assert page.cursor is not None
    assert graph.feed(cursor=page.cursor, kinds=["edge"]).blocks == ()


def test_physical_commits_are_empty_blocks(graph: Graph):
    people(graph, "ann", "bob")
    made = [compact(graph)]
    commit = graph.ensure_indices().commit
    assert commit is not None
    made.append(commit.commit_id)
    blocks = graph.feed(start="beginning").blocks[-2:]
    assert commits_of(blocks) == made
    assert [block.changes for block in blocks] == [(), ()]


def test_an_empty_feed_is_caught_up(graph: Graph):
    page = graph.feed(start="beginning")
    assert (page.blocks, page.caught_up) == ((), True)
    assert page.to_json() == {"blocks": [], "cursor": page.cursor, "caught_up": True}


# ---- where a poll ends


def test_a_poll_ends_at_the_head_that_its_first_page_found(graph: Graph):
    first, second, third = people(graph, "ann", "bob", "cid")
    page = graph.feed(start="beginning", limit=1)
    (later,) = people(graph, "later")
    found = commits_of(page.blocks)
    while page.next_page_token is not None:
        page = graph.feed(page_token=page.next_page_token, limit=1)
        found += commits_of(page.blocks)
    assert found == [first, second, third]
    assert not page.caught_up, "the branch moved meanwhile"
    assert commits_of(graph.feed(cursor=page.cursor).blocks) == [later]


def test_a_page_that_is_not_the_last_carries_only_a_page_token(graph: Graph):
    run(graph, "".join(person(f"p{number}") for number in range(5)))
    *partial, last = pages_of(graph, start="beginning", limit=2)
    assert [page.cursor for page in partial] == [None, None]
    assert all("cursor" not in page.to_json() for page in partial)
    assert not any(page.caught_up for page in partial)
    assert last.next_page_token is None
    assert last.cursor is not None


def test_a_commit_that_is_cut_says_so(graph: Graph):
    run(graph, "".join(person(f"p{number}") for number in range(3)))
    people(graph, "q")
    first, second = pages_of(graph, start="beginning", limit=2)
    assert [block.is_complete for block in first.blocks] == [False]
    assert [block.is_complete for block in second.blocks] == [True, True]
    assert first.to_json()["blocks"][0]["complete"] is False


def test_a_page_that_ends_between_two_commits_cuts_none(graph: Graph):
    people(graph, "a", "b", "c", "d")
    first, second = pages_of(graph, start="beginning", limit=2)
    assert [len(block.changes) for block in first.blocks] == [1, 1]
    assert all(block.is_complete for block in (*first.blocks, *second.blocks))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_pages_of_any_size_tell_the_same_changes(graph: Graph, limit: int):
    run(graph, person("a") + person("b") + knows("a", "b"))
    people(graph, "c")
    run(graph, set_age("a", 1) + " " + set_age("b", 1))
    whole = [change for block in graph.feed(start="beginning").blocks for change in block.changes]
    found = []
    for page in pages_of(graph, start="beginning", limit=limit):
        some = [change for block in page.blocks for change in block.changes]
        assert len(some) <= limit
        found += some
    assert found == whole


def test_a_poll_looks_at_so_many_commits_and_goes_on_from_its_cursor(graph: Graph):
    made = people(graph, "a", "b", "c", "d", "e")
    found, sizes = [], []
    page = graph.feed(start="beginning", max_commits=2)
    while page.blocks:
        assert page.next_page_token is None
        found += commits_of(page.blocks)
        sizes.append((len(page.blocks), page.caught_up))
        page = graph.feed(cursor=page.cursor, max_commits=2)
    assert found == made
    assert sizes == [(2, False), (2, False), (1, True)]


def test_the_pages_of_a_poll_share_its_budget_of_commits(graph: Graph):
    made = people(graph, "a", "b", "c", "d")
    found = list(pages_of(graph, start="beginning", limit=1, max_commits=3))
    assert [commit for page in found for commit in commits_of(page.blocks)] == made[:3]
    assert not found[-1].caught_up


def test_commits_without_a_wanted_change_count_for_the_budget(graph: Graph):
    people(graph, "a", "b", "c")
    page = graph.feed(start="beginning", kinds=["edge"], max_commits=2)
    assert len(page.blocks) == 2
    assert not page.caught_up


@pytest.mark.parametrize("limits", [{"limit": 0}, {"limit": -5}, {"max_commits": 0}])
def test_a_limit_of_nothing_is_refused(graph: Graph, limits: dict[str, int]):
    with pytest.raises(BadRequestError):
        graph.feed(**limits)


@pytest.mark.parametrize(
    ("name", "most"), [("limit", MAX_PAGE_CHANGES), ("max_commits", MAX_POLL_COMMITS)]
)
def test_a_limit_above_the_maximum_is_refused(graph: Graph, name: str, most: int):
    assert graph.feed(**{name: most}).caught_up
    with pytest.raises(ResourceLimitError) as caught:
        graph.feed(**{name: most + 1})
    assert (caught.value.limit, caught.value.actual) == (most, most + 1)


# ---- replay


def test_a_replay_is_the_branch(graph: Graph):
    run(graph, person("ann", 1) + person("bob") + knows("ann", "bob", 1))
    graph.create_branch("work")
    run(graph, set_age("ann", 2), branch="work")
    run(graph, person("cid") + knows("cid", "ann", 2), branch="work")
    run(graph, 'insert City { name: "oslo", size: 5 }')
    merge(graph, "work")
    compact(graph)
    run(graph, drop("bob"))
    run(graph, person("bob", 9))
    for branch in ("main", "work"):
        for limit in (1, 3, 1_000):
            state: dict[str, dict[str, Any]] = {}
            blocks, _ = poll(graph, branch, start="beginning", limit=limit)
            apply(blocks, state)
            assert {key: rows for key, rows in state.items() if rows} == images_of(graph, branch)


def test_every_poll_goes_on_where_the_last_one_ended(graph: Graph):
    state: dict[str, dict[str, Any]] = {}
    cursor = graph.feed(start="beginning").cursor
    run(graph, person("zoe", 1))
    graph.create_branch("work")
    steps = [
        lambda: run(graph, person("ann", 1) + person("bob", 1)),
        lambda: run(graph, set_age("zoe", 2), branch="work"),
        lambda: run(graph, person("cid"), branch="work"),
        lambda: merge(graph, "work"),
        lambda: run(graph, drop("ann")),
        lambda: compact(graph),
        lambda: run(graph, person("ann", 3) + knows("ann", "bob")),
    ]
    for step in steps:
        step()
        blocks, cursor = poll(graph, cursor=cursor, limit=1)
        apply(blocks, state)
        assert {key: rows for key, rows in state.items() if rows} == images_of(graph)
