"""Cursors: what they are bound to, what they survive, and what becomes of damaged ones."""

from __future__ import annotations

import shutil
import string
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.changes import decode_token, encode_token
from omnigraph.errors import BadRequestError, ChangeCursorRejectedError
from omnigraph.graph.graph import Graph
from support.change_feeds import SCHEMA, compact, merge, person, poll, run, told


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


def test_a_cursor_can_be_used_again_and_again(graph: Graph, cursor: str):
    assert [names_behind(graph, cursor) for _ in range(3)] == [EXPECTED] * 3


def test_a_cursor_survives_a_reopen(graph: Graph, cursor: str):
    with Graph.open(graph.uri, read_only=True) as other:
        assert names_behind(other, cursor) == EXPECTED


def test_a_cursor_survives_a_move_of_the_graph(graph: Graph, cursor: str, tmp_path: Path):
    shutil.copytree(graph.uri, tmp_path / "elsewhere.omni")
    with Graph.open(tmp_path / "elsewhere.omni") as moved:
        assert names_behind(moved, cursor) == EXPECTED


def test_a_cursor_survives_a_compaction(graph: Graph, cursor: str):
    compact(graph)
    assert names_behind(graph, cursor) == EXPECTED


def test_a_cursor_survives_a_merge(graph: Graph, cursor: str):
    graph.create_branch("work")
    run(graph, person("dan"), branch="work")
    merge(graph, "work")
    assert names_behind(graph, cursor) == [*EXPECTED, "dan"]


def test_a_cursor_survives_the_deletion_of_other_branches(graph: Graph, cursor: str):
    graph.create_branch("work")
    run(graph, person("dan"), branch="work")
    merge(graph, "work")
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


def test_a_cursor_belongs_to_its_graph(graph: Graph, cursor: str, tmp_path: Path):
    with (
        Graph.init(tmp_path / "other.omni", SCHEMA) as other,
        pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: it belongs to"),
    ):
        other.feed(cursor=cursor)


def test_a_cursor_belongs_to_its_branch(graph: Graph, cursor: str):
    graph.create_branch("work")
    with pytest.raises(ChangeCursorRejectedError, match="it belongs to branch main"):
        graph.feed("work", cursor=cursor)


def test_a_cursor_does_not_outlive_its_branch(graph: Graph):
    for name in ("first", "second"):
        graph.create_branch("work")
        run(graph, person(name), branch="work")
        if name == "first":
            page = graph.feed("work", start="beginning", limit=1)
            cursor = graph.feed("work").cursor
            run(graph, person("more"), branch="work")
            token = graph.feed("work", start="beginning", limit=1).next_page_token
            assert page.cursor is not None
            graph.delete_branch("work")
    with pytest.raises(ChangeCursorRejectedError, match="deleted and made again"):
        graph.feed("work", cursor=cursor)
    with pytest.raises(ChangeCursorRejectedError, match="deleted and made again"):
        graph.feed("work", page_token=token)


def test_a_branch_made_again_at_the_same_place_is_another_branch_all_the_same(graph: Graph):
    graph.create_branch("work")
    cursor = graph.feed("work").cursor
    graph.delete_branch("work")
    graph.create_branch("work")
    with pytest.raises(ChangeCursorRejectedError, match="deleted and made again"):
        graph.feed("work", cursor=cursor)


@pytest.mark.parametrize(
    "filters",
    [{"kinds": ["node"]}, {"types": ["Person"]}, {"ops": ["insert"]}, {"kinds": ["node", "edge"]}],
)
def test_a_cursor_belongs_to_its_filter(graph: Graph, cursor: str, filters: dict[str, list[str]]):
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        graph.feed(cursor=cursor, **filters)
    narrow = graph.feed(**filters).cursor
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        graph.feed(cursor=narrow)


def test_members_of_different_filters_are_not_confused(graph: Graph):
    cursor = graph.feed(ops=["insert"]).cursor
    with pytest.raises(ChangeCursorRejectedError, match="another filter"):
        graph.feed(cursor=cursor, ops=["delete"])


def test_a_page_token_is_no_cursor_and_a_cursor_no_page_token(graph: Graph, cursor: str):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    assert token is not None
    with pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: it is not a"):
        graph.feed(cursor=token)
    with pytest.raises(ChangeCursorRejectedError, match=r"^change cursor rejected: it is not a"):
        graph.feed(page_token=cursor)


def test_a_page_token_of_a_commit_is_no_token_of_a_feed(graph: Graph):
    made = run(graph, person("ann") + person("bob"))
    token = graph.changes(made, limit=1).next_page_token
    for given in ({"cursor": token}, {"page_token": token}):
        with pytest.raises(ChangeCursorRejectedError):
            graph.feed(**given)


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


def test_a_token_with_one_wrong_character_is_rejected(graph: Graph, cursor: str):
    for place, character in enumerate(cursor):
        swapped = "A" if character != "A" else "B"
        check_rejected(graph, cursor[:place] + swapped + cursor[place + 1 :])
    for foreign in (" ", "\n", "é", "\x00", "+", "/", "=", "\ud800"):
        check_rejected(graph, cursor[:20] + foreign + cursor[21:])


def test_a_token_of_the_wrong_length_is_rejected(graph: Graph, cursor: str):
    for token in ("", "A", "AA", "AAA", "AAAA", cursor[:-1], cursor[1:], cursor * 2, cursor * 40):
        check_rejected(graph, token)


def test_a_token_with_characters_that_carry_nothing_is_rejected(graph: Graph, cursor: str):
    for junk in ("=", "==", "\n", "!!!!", "\n\n\n\n"):
        for place in (0, 8, len(cursor)):
            check_rejected(graph, cursor[:place] + junk + cursor[place:])


@pytest.mark.parametrize("alphabet", [string.ascii_letters, string.punctuation, "==="])
def test_what_never_was_a_token_is_rejected(graph: Graph, alphabet: str):
    with pytest.raises(ChangeCursorRejectedError, match="it is damaged"):
        graph.feed(cursor=alphabet)


@pytest.mark.parametrize("value", [None, [], {}, 7, "x", 10**30], ids=str)
def test_a_token_with_a_wrong_member_is_rejected(graph: Graph, cursor: str, value: object):
    body = decode_token(cursor)
    for name in ("t", "c", "g", "b", "i", "f", "v"):
        with pytest.raises(ChangeCursorRejectedError):
            graph.feed(cursor=encode_token({**body, name: value}))


def test_a_token_with_a_wrong_position_is_rejected(graph: Graph, cursor: str):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    assert token is not None
    body = decode_token(token)
    type_id = body["p"][0]
    for position in (
        *([], "x", 5, {}, [type_id], [type_id, "ann"]),
        *([int(type_id), "ann", True], [type_id, "ann", "yes"], ["77", "ann", True]),
    ):
        with pytest.raises(ChangeCursorRejectedError):
            graph.feed(page_token=encode_token({**body, "p": position}))


def test_a_position_behind_a_hashed_id_that_is_not_in_the_commit_is_rejected(
    graph: Graph, cursor: str
):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    assert token is not None
    body = decode_token(token)
    body["p"] = [body["p"][0], "00:11", False]
    with pytest.raises(ChangeCursorRejectedError, match="its position is not in this commit"):
        graph.feed(page_token=encode_token(body))


def test_a_cursor_at_a_commit_of_another_branch_is_rejected(graph: Graph, cursor: str):
    graph.create_branch("work")
    foreign = run(graph, person("dan"), branch="work")
    body = {**decode_token(cursor), "c": foreign}
    with pytest.raises(ChangeCursorRejectedError, match="not on the line of the branch"):
        graph.feed(cursor=encode_token(body))


def test_a_rejected_cursor_is_a_bad_request(graph: Graph):
    with pytest.raises(BadRequestError) as caught:
        graph.feed(cursor="nonsense")
    assert (caught.value.http_status, caught.value.kind) == (400, "change_cursor_rejected")


# ---- delivery


def test_a_page_that_is_asked_for_twice_is_the_same_page(graph: Graph, cursor: str):
    token = graph.feed(cursor=cursor, limit=1).next_page_token
    one, other = (graph.feed(page_token=token, limit=1) for _ in range(2))
    assert one == other
    assert [told(block.changes) for block in one.blocks] == [[("node:Person", "bob", "insert")]]
