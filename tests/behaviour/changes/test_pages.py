"""Pages of the changes of a commit: by count and by bytes, and tokens that belong to one commit and filter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.branches.changes import (
    DEFAULT_PAGE_BYTES,
    MAX_PAGE_BYTES,
    MAX_PAGE_CHANGES,
    ChangesPage,
)
from omnigraph.errors import BadRequestError, ChangeCursorRejectedError, ResourceLimitError
from omnigraph.graph.graph import Graph
from support.change_feeds import knows, load, person, run, told

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
def test_pages_of_any_size_tell_the_same_changes(graph: Graph, limit: int):
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


def test_the_limit_may_change_between_pages(graph: Graph):
    made = mixed_commit(graph)
    first = graph.changes(made, limit=2)
    rest = graph.changes(made, page_token=first.next_page_token)
    assert first.changes + rest.changes == graph.changes(made).changes


def test_a_page_has_a_thousand_changes_when_nobody_says_otherwise(graph: Graph, tmp_path: Path):
    lines = [{"type": "City", "data": {"name": f"c{n:04}"}} for n in range(1_001)]
    made = load(graph, tmp_path, lines)
    assert [len(page.changes) for page in pages(graph, made)] == [1_000, 1]


def test_pages_across_many_reads_of_images_lose_nothing(graph: Graph, tmp_path: Path):
    names = [f"c{n:04}" for n in range(1_100)]
    made = load(graph, tmp_path, [{"type": "City", "data": {"name": name}} for name in names])
    found = [change for page in pages(graph, made, limit=300) for change in page.changes]
    assert [change.id for change in found] == names
    assert [(change.after or {})["properties"]["name"] for change in found] == names


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_nothing_is_refused(graph: Graph, limit: int):
    made = run(graph, person("ann"))
    with pytest.raises(BadRequestError, match="at least one change"):
        graph.changes(made, limit=limit)


def test_a_page_above_the_maximum_is_refused(graph: Graph):
    made = run(graph, person("ann"))
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
    assert [[change.id for change in page.changes] for page in found] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
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
    "other",
    [{}, {"ops": ["insert"]}, {"kinds": ["node"], "ops": ["update"]}, {"types": ["Person"]}],
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


def test_a_page_token_is_good_for_another_handle(graph: Graph):
    made = mixed_commit(graph)
    first = graph.changes(made, limit=3)
    with Graph.open(graph.uri, read_only=True) as other:
        rest = other.changes(made, page_token=first.next_page_token)
    assert first.changes + rest.changes == graph.changes(made).changes


def test_tokens_of_a_feed_are_no_page_tokens_of_a_commit(graph: Graph):
    made = mixed_commit(graph)
    cursor = graph.feed().cursor
    feed_token = graph.feed(start="beginning", limit=1).next_page_token
    assert cursor is not None
    assert feed_token is not None
    for token in (cursor, feed_token):
        with pytest.raises(ChangeCursorRejectedError, match="not a page token of a commit"):
            graph.changes(made, page_token=token)


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
    page = graph.feed(start=start, limit=1)
    found = [change.id for block in page.blocks for change in block.changes]
    while page.next_page_token is not None:
        page = graph.feed(page_token=page.next_page_token, limit=1)
        found += [change.id for block in page.blocks for change in block.changes]
    assert found == names
