"""History that was cleaned up: a feed that needs it says where the gap is, and one behind it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import ChangeFeedGapError, HistoricalVersionReclaimedError
from omnigraph.graph.graph import Graph
from support.change_feeds import apply, images_of, person, poll, run, told

KEY = "node:Person"
#: Lance names the file of a version so that the newest comes first.
_LARGEST = 2**64 - 1


def reclaim(graph: Graph, commit_id: str) -> None:
    """Remove the version of the people that a commit published, as cleanup would."""
    history = graph._environment.manifest.history()
    (pin,) = [
        item.pin
        for item in history.versions
        if item.pin.table_key == KEY
        and item.graph_version == history.commits[commit_id].graph_version
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


def test_a_feed_across_reclaimed_history_names_the_first_commit_that_cannot_be_read(
    reader: Graph, line: list[str]
):
    with pytest.raises(ChangeFeedGapError) as caught:
        reader.feed(start="beginning")
    assert caught.value.commit_id == line[1]
    assert caught.value.http_status == 410
    assert caught.value.details() == {"change_feed_gap": {"first_unreadable_commit_id": line[1]}}


def test_a_gap_gives_the_cursor_back(graph: Graph):
    cursor = graph.feed().cursor
    first = run(graph, person("a"))
    run(graph, person("b"))
    reclaim(graph, first)
    with Graph.open(graph.uri) as reader, pytest.raises(ChangeFeedGapError) as caught:
        reader.feed(cursor=cursor)
    assert caught.value.details() == {
        "change_feed_gap": {"first_unreadable_commit_id": first, "cursor": cursor}
    }


def test_the_commit_after_a_reclaimed_version_cannot_be_told_either(reader: Graph, line: list[str]):
    with pytest.raises(ChangeFeedGapError) as caught:
        reader.feed(start=f"after:{line[1]}")
    assert caught.value.commit_id == line[2]


def test_a_feed_behind_the_gap_goes_on(reader: Graph, line: list[str]):
    page = reader.feed(start=f"after:{line[2]}")
    assert [told(block.changes) for block in page.blocks] == [
        [(KEY, "d", "insert")],
        [(KEY, "e", "insert")],
    ]


def test_a_poll_that_ends_before_the_gap_does_not_notice_it(reader: Graph, line: list[str]):
    page = reader.feed(start="beginning", max_commits=1)
    assert [block.cause.graph_commit_id for block in page.blocks] == [line[0]]
    with pytest.raises(ChangeFeedGapError):
        reader.feed(cursor=page.cursor)


def test_a_filter_that_does_not_need_the_reclaimed_table_sees_no_gap(
    reader: Graph, line: list[str]
):
    page = reader.feed(start="beginning", types=["City"])
    assert [block.cause.graph_commit_id for block in page.blocks] == line


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
