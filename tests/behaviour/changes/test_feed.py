"""The change feed of a branch: where it starts, what it tells, where a poll ends, and that a replay is the branch."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.changes import (
    DEFAULT_PAGE_BYTES,
    MAX_PAGE_BYTES,
    MAX_PAGE_CHANGES,
    ChangesPage,
    decode_token,
    encode_token,
)
from omnigraph.branches.feed import MAX_POLL_COMMITS
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ChangeCursorRejectedError,
    ChangeFeedGapError,
    HistoricalVersionReclaimedError,
    ResourceLimitError,
)
from omnigraph.graph.graph import Graph
from support.change_feeds import (
    SCHEMA,
    apply,
    compact,
    drop,
    images_of,
    knows,
    load,
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
    """Also after the first one of all, and on a branch after one that it inherited."""
    genesis = graph.snapshot().commit_id
    made = people(graph, "ann", "bob", "cid")
    for place, commit in enumerate([genesis, *made]):
        assert commits_of(graph.feed(start=f"after:{commit}").blocks) == made[place:]
    graph.create_branch("work")
    own = people(graph, "dan", branch="work")
    assert commits_of(graph.feed("work", start=f"after:{made[1]}").blocks) == [made[2], *own]


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


def test_a_beginning_that_makes_no_sense_is_refused(graph: Graph):
    for start in ("", "yesterday", "after", "after:", "NOW"):
        with pytest.raises(BadRequestError):
            graph.feed(start=start)
    with pytest.raises(BadRequestError, match="one of cursor, start and page token"):
        graph.feed(cursor=graph.feed().cursor, start="now")
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
    assert told(block.changes) == [("node:Person", "bob", "insert"), ("node:Person", "cid", "insert")]
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
    made = people(graph, "ann", "bob", "cid")
    pages = pages_of(graph, start="beginning", limit=1)
    found = commits_of(next(pages).blocks)
    (later,) = people(graph, "later")
    for page in pages:
        found += commits_of(page.blocks)
    assert found == made
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
    people(graph, "q", "r", "s")
    cut, between, last = pages_of(graph, start="beginning", limit=2)
    assert [block.is_complete for block in cut.blocks] == [False]
    assert cut.to_json()["blocks"][0]["complete"] is False
    assert [(len(block.changes), block.is_complete) for block in between.blocks] == [(1, True), (1, True)]
    assert all(block.is_complete for block in last.blocks)


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
    """Commits without a wanted change count as well."""
    made = people(graph, "a", "b", "c", "d")
    found = list(pages_of(graph, start="beginning", limit=1, max_commits=3))
    assert [commit for page in found for commit in commits_of(page.blocks)] == made[:3]
    unwanted = graph.feed(start="beginning", kinds=["edge"], max_commits=2)
    assert len(unwanted.blocks) == 2
    assert not found[-1].caught_up
    assert not unwanted.caught_up


@pytest.mark.parametrize(("name", "most"), [("limit", MAX_PAGE_CHANGES), ("max_commits", MAX_POLL_COMMITS)])
def test_a_limit_of_nothing_and_one_above_the_maximum_are_refused(graph: Graph, name: str, most: int):
    for limit in (0, -5):
        with pytest.raises(BadRequestError):
            graph.feed(**{name: limit})
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


# ---- Cursors: what they are bound to, what they survive, and what becomes of damaged ones


@pytest.fixture
def cursor(graph: Graph) -> str:
    """A cursor of main, with three changes in two commits behind it."""
    run(graph, person("before"))
    made = graph.feed().cursor
    assert made is not None
    run(graph, person("ann") + person("bob"))
    run(graph, person("cid"))
    return made


def names_behind(graph: Graph, cursor: str, branch: str = "main", **more: Any) -> list[str]:
    blocks, _ = poll(graph, branch, cursor=cursor, **more)
    return [change.id for block in blocks for change in block.changes]


EXPECTED = ["ann", "bob", "cid"]

# ---- what a cursor survives


def test_a_cursor_can_be_used_again_and_again_after_a_reopen_a_compaction_and_a_move(
    graph: Graph, cursor: str, tmp_path: Path
):
    assert [names_behind(graph, cursor) for _ in range(3)] == [EXPECTED] * 3
    with Graph.open(graph.uri, read_only=True) as other:
        assert names_behind(other, cursor) == EXPECTED
    compact(graph)
    assert names_behind(graph, cursor) == EXPECTED
    shutil.copytree(graph.uri, tmp_path / "elsewhere.omni")
    with Graph.open(tmp_path / "elsewhere.omni") as moved:
        assert names_behind(moved, cursor) == EXPECTED


def test_a_cursor_survives_a_merge_and_the_deletion_of_other_branches(graph: Graph, cursor: str):
    graph.create_branch("work")
    run(graph, person("dan"), branch="work")
    merge(graph, "work")
    assert names_behind(graph, cursor) == [*EXPECTED, "dan"]
    graph.delete_branch("work")
    assert names_behind(graph, cursor) == [*EXPECTED, "dan"]


def test_a_cursor_of_a_branch_survives_merges_in_both_directions(graph: Graph):
    graph.create_branch("work")
    cursor = graph.feed("work").cursor
    assert cursor is not None
    run(graph, person("on main"))
    run(graph, person("on work"), branch="work")
    merge(graph, "main", into="work")
    merge(graph, "work", into="main")
    assert names_behind(graph, cursor, "work") == ["on work", "on main"]


def test_an_old_cursor_reads_through_many_folds_of_the_catalog(graph: Graph):
    cursor = graph.feed().cursor
    assert cursor is not None
    names = [f"p{number:02}" for number in range(40)]
    for name in names:
        run(graph, person(name))
    assert names_behind(graph, cursor) == names


# ---- what a cursor is bound to


def test_a_cursor_belongs_to_its_graph_and_branch(graph: Graph, cursor: str, tmp_path: Path):
    graph.create_branch("work")
    with pytest.raises(ChangeCursorRejectedError, match="it belongs to branch main"):
        graph.feed("work", cursor=cursor)
    other = Graph.init(tmp_path / "other.omni", SCHEMA)
    with other, pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: it belongs to"):
        other.feed(cursor=cursor)


def test_a_cursor_does_not_outlive_its_branch(graph: Graph):
    """Also when the branch is made again at the same place."""
    graph.create_branch("work")
    begun = graph.feed("work").cursor
    for name in ("first", "second"):
        run(graph, person(name), branch="work")
    token = graph.feed("work", start="beginning", limit=1).next_page_token
    assert token is not None
    graph.delete_branch("work")
    graph.create_branch("work")
    for _ in range(2):
        for given in ({"cursor": begun}, {"page_token": token}):
            with pytest.raises(ChangeCursorRejectedError, match="deleted and made again"):
                graph.feed("work", **given)
        run(graph, person("first"), branch="work")


@pytest.mark.parametrize(
    "filters", [{"kinds": ["node"]}, {"types": ["Person"]}, {"ops": ["insert"]}, {"kinds": ["node", "edge"]}]
)
def test_a_cursor_belongs_to_its_filter(graph: Graph, cursor: str, filters: dict[str, list[str]]):
    narrow = graph.feed(**filters).cursor
    for given, others in ((cursor, filters), (narrow, {}), (narrow, {"ops": ["delete"]})):
        with pytest.raises(ChangeCursorRejectedError, match="another filter"):
            graph.feed(cursor=given, **others)


def test_cursors_and_page_tokens_of_feeds_and_of_commits_do_not_replace_each_other(graph: Graph, cursor: str):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    made = mixed_commit(graph)
    of_commit = graph.changes(made, limit=1).next_page_token
    assert token is not None
    assert of_commit is not None
    for given in ({"cursor": token}, {"page_token": cursor}, {"cursor": of_commit}, {"page_token": of_commit}):
        with pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: it is not a"):
            graph.feed(**given)
    for foreign in (cursor, token):
        with pytest.raises(ChangeCursorRejectedError, match="not a page token of a commit"):
            graph.changes(made, page_token=foreign)


def test_a_page_token_belongs_to_its_branch_and_filter(graph: Graph, cursor: str):
    graph.create_branch("work")
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    with pytest.raises(ChangeCursorRejectedError, match="it belongs to branch main"):
        graph.feed("work", page_token=token)
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        graph.feed(page_token=token, ops=["insert"])


# ---- damaged tokens


def check_rejected(graph: Graph, token: str) -> None:
    for argument in ("cursor", "page_token"):
        with pytest.raises(ChangeCursorRejectedError, match="change cursor rejected: "):
            graph.feed(**{argument: token})


def test_a_damaged_token_is_rejected(graph: Graph, cursor: str):
    """With one wrong character, of the wrong length, with characters that carry nothing."""
    for place, character in enumerate(cursor):
        swapped = "A" if character != "A" else "B"
        check_rejected(graph, cursor[:place] + swapped + cursor[place + 1 :])
    for foreign in (" ", "\n", "é", "\x00", "+", "/", "=", "\ud800"):
        check_rejected(graph, cursor[:20] + foreign + cursor[21:])
    for token in ("", "A", "AA", "AAA", "AAAA", cursor[:-1], cursor[1:], cursor * 2, cursor * 40):
        check_rejected(graph, token)
    for junk in ("=", "==", "\n", "!!!!", "\n\n\n\n"):
        for place in (0, 8, len(cursor)):
            check_rejected(graph, cursor[:place] + junk + cursor[place:])


def test_what_never_was_a_token_is_rejected_as_a_bad_request(graph: Graph):
    for text in (string.ascii_letters, string.punctuation, "===", "nonsense"):
        with pytest.raises(ChangeCursorRejectedError, match="it is damaged") as caught:
            graph.feed(cursor=text)
        assert isinstance(caught.value, BadRequestError)
        assert (caught.value.http_status, caught.value.kind) == (400, "change_cursor_rejected")


@pytest.mark.parametrize("value", [None, [], {}, 7, "x", 10**30], ids=str)
def test_a_token_with_a_wrong_member_is_rejected(graph: Graph, cursor: str, value: object):
    body = decode_token(cursor)
    for name in ("t", "c", "g", "b", "i", "f", "v"):
        with pytest.raises(ChangeCursorRejectedError):
            graph.feed(cursor=encode_token({**body, name: value}))


def test_a_token_with_a_wrong_position_is_rejected(graph: Graph, cursor: str):
    body = decode_token(str(graph.feed(cursor=cursor, limit=1).next_page_token))
    type_id = body["p"][0]
    for position in (
        *([], "x", 5, {}, [type_id], [type_id, "ann"]),
        *([int(type_id), "ann", True], [type_id, "ann", "yes"], ["77", "ann", True]),
    ):
        with pytest.raises(ChangeCursorRejectedError):
            graph.feed(page_token=encode_token({**body, "p": position}))
    # A hashed id that is not in the commit.
    with pytest.raises(ChangeCursorRejectedError, match="its position is not in this commit"):
        graph.feed(page_token=encode_token({**body, "p": [type_id, "00:11", False]}))


def test_a_cursor_at_a_commit_of_another_branch_is_rejected(graph: Graph, cursor: str):
    graph.create_branch("work")
    foreign = run(graph, person("dan"), branch="work")
    body = {**decode_token(cursor), "c": foreign}
    with pytest.raises(ChangeCursorRejectedError, match="not on the line of the branch"):
        graph.feed(cursor=encode_token(body))


# ---- delivery


def test_a_page_that_is_asked_for_twice_is_the_same_page(graph: Graph, cursor: str):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    one, other = (graph.feed(page_token=token, limit=1) for _ in range(2))
    assert one == other
    assert [told(block.changes) for block in one.blocks] == [[("node:Person", "bob", "insert")]]


# ---- Pages of the changes of a commit: by count and by bytes, and tokens that belong to one commit and filter


MIB = 1024 * 1024


def pages(graph: Graph, commit_id: str, **call: Any) -> Iterator[ChangesPage]:
    page = graph.changes(commit_id, **call)
    yield page
    while page.next_page_token is not None:
        page = graph.changes(commit_id, page_token=page.next_page_token, **call)
        yield page


def mixed_commit(graph: Graph) -> str:
    """Nodes of two types and edges; inserts and updates."""
    run(graph, person("b", 1) + person("d", 1))
    nodes = person("a") + person("b", 2) + person("c") + person("d", 2)
    return run(graph, nodes + 'insert City { name: "x" }' + knows("a", "b") + knows("b", "c"))


# ---- by count


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
def test_pages_of_any_size_tell_the_same_changes_of_pages(graph: Graph, limit: int):
    made = mixed_commit(graph)
    whole = graph.changes(made)
    assert whole.next_page_token is None
    found = list(pages(graph, made, limit=limit))
    assert [change for page in found for change in page.changes] == list(whole.changes)
    assert [len(page.changes) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert len(found) == -(-len(whole.changes) // limit)
    assert {page.cause for page in found} == {whole.cause}


@pytest.mark.parametrize("filters", [{"ops": ["insert"]}, {"kinds": ["edge"]}, {"types": ["City"]}])
def test_pages_of_a_filter_tell_what_the_filter_tells(graph: Graph, filters: dict[str, list[str]]):
    made = mixed_commit(graph)
    whole = graph.changes(made, **filters)
    found = list(pages(graph, made, limit=1, **filters))
    assert [told(page.changes) for page in found] == [[item] for item in told(whole.changes)]


def test_another_handle_goes_on_with_a_page_token_and_another_limit(graph: Graph):
    made = mixed_commit(graph)
    first = graph.changes(made, limit=3)
    with Graph.open(graph.uri, read_only=True) as other:
        rest = other.changes(made, page_token=first.next_page_token)
    assert first.changes + rest.changes == graph.changes(made).changes


def test_pages_across_many_reads_of_images_lose_nothing(graph: Graph, tmp_path: Path):
    names = [f"c{n:04}" for n in range(1_100)]
    made = load(graph, tmp_path, [{"type": "City", "data": {"name": name}} for name in names])
    assert [len(page.changes) for page in pages(graph, made)] == [1_000, 100], "when nothing else is said"
    found = [change for page in pages(graph, made, limit=300) for change in page.changes]
    assert [change.id for change in found] == names
    assert [(change.after or {})["properties"]["name"] for change in found] == names


def test_a_page_of_nothing_and_one_above_the_maximum_are_refused(graph: Graph):
    made = run(graph, person("ann"))
    for limit in (0, -1):
        with pytest.raises(BadRequestError, match="at least one change"):
            graph.changes(made, limit=limit)
    assert len(graph.changes(made, limit=MAX_PAGE_CHANGES).changes) == 1
    with pytest.raises(ResourceLimitError) as caught:
        graph.changes(made, limit=MAX_PAGE_CHANGES + 1)
    assert (caught.value.limit, caught.value.actual) == (MAX_PAGE_CHANGES, MAX_PAGE_CHANGES + 1)


# ---- by bytes


def big(name: str, size: int) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "city": "x" * size}}


def test_a_page_ends_before_it_holds_too_many_bytes(graph: Graph, tmp_path: Path):
    made = load(graph, tmp_path, [big(name, 3 * MIB // 2) for name in "abcde"])
    found = list(pages(graph, made))
    assert [[change.id for change in page.changes] for page in found] == [["a", "b"], ["c", "d"], ["e"]]
    for page in found:
        size = sum(len(json.dumps(change.to_json())) for change in page.changes)
        assert size <= DEFAULT_PAGE_BYTES


def test_the_bytes_of_a_page_may_be_chosen_up_to_a_maximum(graph: Graph, tmp_path: Path):
    made = load(graph, tmp_path, [big(name, 1000) for name in "abcde"])
    assert len(graph.changes(made, max_bytes=2500).changes) == 2
    block = graph.feed(start=f"after:{graph.commit(made).parent_id}", max_bytes=2500).blocks[0]
    assert ([change.id for change in block.changes], block.is_complete) == (["a", "b"], False)
    with pytest.raises(ResourceLimitError) as caught:
        graph.changes(made, max_bytes=MAX_PAGE_BYTES + 1)
    assert caught.value.resource == "commit_changes_page_bytes"


def test_a_change_larger_than_a_page_travels_alone(graph: Graph, tmp_path: Path):
    large = DEFAULT_PAGE_BYTES + 1
    made = load(graph, tmp_path, [big("a", 1), big("b", large), big("c", large), big("d", 1)])
    found = [[change.id for change in page.changes] for page in pages(graph, made)]
    assert found == [["a"], ["b"], ["c"], ["d"]]
    (only,) = graph.changes(made, ops=["insert"], types=["Person"], limit=1).changes
    assert only.id == "a"


def test_both_images_of_an_update_count(graph: Graph, tmp_path: Path):
    third = DEFAULT_PAGE_BYTES // 3
    inserted = load(graph, tmp_path, [big("a", third), big("b", third)])
    assert [len(page.changes) for page in pages(graph, inserted)] == [2]
    lines = [big("a", third - 1), big("b", third - 1)]
    updated = load(graph, tmp_path, lines, mode="merge")
    assert [len(page.changes) for page in pages(graph, updated)] == [1, 1]


# ---- tokens


def test_a_page_token_belongs_to_its_commit(graph: Graph):
    first, second = mixed_commit(graph), run(graph, person("x") + person("y"))
    token = graph.changes(first, limit=1).next_page_token
    with pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: .*other commit"):
        graph.changes(second, page_token=token)


@pytest.mark.parametrize(
    "other", [{}, {"ops": ["insert"]}, {"kinds": ["node"], "ops": ["update"]}, {"types": ["Person"]}]
)
def test_a_page_token_belongs_to_its_filter(graph: Graph, other: dict[str, list[str]]):
    made = mixed_commit(graph)
    token = graph.changes(made, limit=1, kinds=["node"]).next_page_token
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        graph.changes(made, page_token=token, **other)


def test_the_order_in_which_a_filter_is_given_does_not_matter(graph: Graph):
    made = mixed_commit(graph)
    token = graph.changes(made, limit=1, ops=["insert", "update"]).next_page_token
    assert graph.changes(made, page_token=token, ops=["update", "insert", "update"]).changes


@pytest.mark.parametrize("size", [255, 256, 257, 300, 5_000])
def test_long_ids_do_not_make_long_tokens(graph: Graph, tmp_path: Path, size: int):
    # They begin alike, so only their hashes tell them apart.
    names = ["k" * (size - 3) + f"{n:03}" for n in range(5)]
    made = load(graph, tmp_path, [{"type": "City", "data": {"name": name}} for name in names])
    found = []
    for page in pages(graph, made, limit=2):
        found += [change.id for change in page.changes]
        assert len(page.next_page_token or "") < 1_000
    assert found == names


def test_short_and_long_ids_follow_each_other(graph: Graph, tmp_path: Path):
    names = ["a", "a" * 300, "a" * 256, "b" * 257, "b", "é" * 128, "é" * 129]
    made = load(graph, tmp_path, [{"type": "City", "data": {"name": name}} for name in names])
    found = [change.id for page in pages(graph, made, limit=1) for change in page.changes]
    assert found == sorted(names, key=str.encode)


def test_a_feed_pages_through_long_ids(graph: Graph, tmp_path: Path):
    names = ["k" * 400 + f"{n:03}" for n in range(4)]
    start = f"after:{graph.snapshot().commit_id}"
    load(graph, tmp_path, [{"type": "City", "data": {"name": name}} for name in names])
    found = [page.blocks for page in pages_of(graph, start=start, limit=1)]
    assert [change.id for blocks in found for block in blocks for change in block.changes] == names


# ---- History that was cleaned up: a feed that needs it says where the gap is, and one behind it goes on


KEY = "node:Person"
#: Lance names the file of a version so that the newest comes first.
_LARGEST = 2**64 - 1


def reclaim(graph: Graph, commit_id: str) -> None:
    """Remove the version of the people that a commit published, as cleanup would."""
    history = graph._core.environment.manifest.history()
    (pin,) = [
        item.pin
        for item in history.versions
        if item.pin.table_key == KEY and item.graph_version == history.commits[commit_id].graph_version
    ]
    folder = Path(graph.uri) / pin.location / "_versions"
    (folder / f"{_LARGEST - pin.version:020}.manifest").unlink()


@pytest.fixture
def line(graph: Graph) -> list[str]:
    """Five commits with one person each."""
    return [run(graph, person(name)) for name in "abcde"]


@pytest.fixture
def reader(graph: Graph, line: list[str]) -> Iterator[Graph]:
    """A graph that remembers nothing, without the version of the second commit."""
    reclaim(graph, line[1])
    with Graph.open(graph.uri, read_only=True) as opened:
        yield opened


def test_a_gap_gives_the_cursor_back(graph: Graph):
    cursor = graph.feed().cursor
    first = run(graph, person("a"))
    run(graph, person("b"))
    reclaim(graph, first)
    with Graph.open(graph.uri) as reader, pytest.raises(ChangeFeedGapError) as caught:
        reader.feed(cursor=cursor)
    assert caught.value.details() == {"change_feed_gap": {"first_unreadable_commit_id": first, "cursor": cursor}}


def test_a_feed_across_reclaimed_history_names_the_first_commit_that_cannot_be_read(reader: Graph, line: list[str]):
    """Neither can the commit after a reclaimed version be told."""
    for start, first in (("beginning", line[1]), (f"after:{line[1]}", line[2])):
        with pytest.raises(ChangeFeedGapError) as caught:
            reader.feed(start=start)
        assert (caught.value.commit_id, caught.value.http_status) == (first, 410)
        assert caught.value.details() == {"change_feed_gap": {"first_unreadable_commit_id": first}}


def test_a_feed_that_does_not_need_the_gap_goes_on(reader: Graph, line: list[str]):
    """Behind it, before it, and with a filter that leaves the table out."""
    page = reader.feed(start=f"after:{line[2]}")
    assert [told(block.changes) for block in page.blocks] == [[(KEY, "d", "insert")], [(KEY, "e", "insert")]]
    page = reader.feed(start="beginning", max_commits=1)
    assert commits_of(page.blocks) == [line[0]]
    with pytest.raises(ChangeFeedGapError):
        reader.feed(cursor=page.cursor)
    assert commits_of(reader.feed(start="beginning", types=["City"]).blocks) == line


def test_changes_of_a_commit_name_the_version_that_is_gone(reader: Graph, line: list[str]):
    for commit in line[1:3]:
        with pytest.raises(HistoricalVersionReclaimedError) as caught:
            reader.changes(commit)
        assert caught.value.table_key == KEY
    assert told(reader.changes(line[3]).changes) == [(KEY, "d", "insert")]


def test_a_diff_needs_only_its_two_states(reader: Graph, line: list[str]):
    assert len(reader.diff(line[0], line[4])) == 4
    with pytest.raises(HistoricalVersionReclaimedError):
        reader.diff(line[1], "main")


def test_a_baseline_leads_out_of_a_gap(reader: Graph, graph: Graph, tmp_path: Path):
    state: dict[str, dict[str, Any]] = images_of(reader)
    cursor = reader.baseline(out=tmp_path / "all.jsonl").resume_cursor
    run(graph, person("f"))
    blocks, _ = poll(reader, cursor=cursor)
    apply(blocks, state)
    assert state == images_of(graph)
