"""Every pair of a place where a writer stands still and a place where its successor is: nothing is torn or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph.graph import Graph
from support.s3_graphs import ADD_CITING, ADD_PAPER, SCHEMA, rows, values
from support.stalled_writers import add_b, check_whole, forget_a, interleave, make_world

#: Where a write of two tables can stand still.
FIRST = [
    "before_sidecar",
    "after_sidecar",
    "before_table_commit",
    "after_table_commit",
    "before_table_commit@2",
    "after_table_commit@2",
    "before_publish",
    "before_catalog_commit",
    "after_publish",
    "sidecar_delete",
]
#: Where its successor can be: raising the fence, settling what it finds, and in its own write.
SECOND = [
    "before_catalog_commit",
    "recovery_list@2",
    "before_restore",
    "after_restore",
    "before_recovery_publish",
    "after_recovery_publish",
    "audit_write",
    "after_audit",
    "sidecar_delete",
    "before_sidecar",
    "after_sidecar",
    "before_table_commit",
    "after_table_commit",
    "before_publish",
    "after_publish",
    "after_sidecar_delete",
]


def pairs(*chosen: tuple[str, str], extra: Iterable[str] = ()) -> list[Any]:
    """The chosen pairs always, all others behind `slow`."""
    every = [(one, other) for one in (*FIRST, *extra) for other in SECOND]
    return [
        pytest.param(pair, id="-".join(pair), marks=() if pair in chosen else (pytest.mark.slow,))
        for pair in every
    ]


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("after_table_commit", "before_recovery_publish"),
        ("before_catalog_commit", "before_catalog_commit"),
        ("before_catalog_commit", "before_recovery_publish"),
        ("before_table_commit@2", "after_audit"),
        ("after_publish", "after_recovery_publish"),
    ),
)
def test_a_stalled_mutation_and_its_successor_leave_one_history(
    s3_root: str, stalls: tuple[str, str]
) -> None:
    make_world(s3_root)
    one, other = interleave(
        s3_root, add_b, lambda graph: graph.mutate(ADD_CITING, {"doi": "c", "to": "a"}), stalls
    )
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = values(graph, "edge:Cites", "src")
    assert papers == sorted(["a", "o", *["b"] * one.acknowledged, *["c"] * other.acknowledged])
    assert edges == sorted(["o", *["b"] * one.acknowledged, *["c"] * other.acknowledged])
    check_whole(s3_root)


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("before_publish", "before_recovery_publish"),
    ),
)
def test_an_edge_of_a_stalled_writer_never_outlives_its_end(
    s3_root: str, stalls: tuple[str, str]
) -> None:
    make_world(s3_root)
    one, other = interleave(s3_root, add_b, forget_a, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = rows(graph, "edge:Cites", ["src", "dst"])
    assert ("a" in papers) is not other.acknowledged
    assert ("b" in papers) is one.acknowledged
    assert all(edge["dst"] in papers and edge["src"] in papers for edge in edges)
    check_whole(s3_root)


LINES = [
    {"type": "Paper", "data": {"doi": "b"}},
    {"edge": "Cites", "from": "b", "to": "a", "data": {"why": "b"}},
]


@pytest.mark.parametrize("stalls", pairs(("before_publish", "before_recovery_publish")))
def test_a_stalled_load_is_there_whole_or_not_at_all(
    s3_root: str, tmp_path: Path, stalls: tuple[str, str]
) -> None:
    make_world(s3_root)
    file = tmp_path / "b.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    one, other = interleave(
        s3_root, lambda graph: graph.load(file, mode="append", engine="local"), forget_a, stalls
    )
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
    assert ("b" in papers) is one.acknowledged
    assert ("a" in papers) is not other.acknowledged
    check_whole(s3_root)


@pytest.mark.parametrize(
    "stalls",
    pairs(("after_confirm", "before_recovery_publish"), extra=("before_confirm", "after_confirm")),
)
def test_a_stalled_merge_is_there_whole_or_not_at_all(
    s3_root: str, stalls: tuple[str, str]
) -> None:
    make_world(s3_root)
    with Graph.open(s3_root) as graph:
        graph.create_branch("work")
        graph.mutate(ADD_CITING, {"doi": "b", "to": "o"}, branch="work")
    one, other = interleave(s3_root, lambda graph: graph.merge("work"), forget_a, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        merged = [commit for commit in graph.commits() if commit.merged_parent_id is not None]
    assert len(merged) == one.acknowledged
    assert ("b" in papers) is one.acknowledged
    assert ("a" in papers) is not other.acknowledged
    check_whole(s3_root)


WIDER = (
    SCHEMA.replace("title: String?", "title: String?  pages: I64?")
    + "node Tag { name: String @key }\n"
)


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("before_promotion", "after_sidecar_delete"),
        extra=("before_schema_file", "before_new_table", "after_new_tables", "before_promotion"),
    ),
)
def test_a_stalled_schema_change_happens_or_does_not(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    one, other = interleave(
        s3_root,
        lambda graph: graph.apply_schema(WIDER, engine="local"),
        lambda graph: graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}),
        stalls,
    )
    with Graph.open(s3_root) as graph:
        assert ("Tag" in graph.schema) is one.acknowledged
        assert ("c" in values(graph, "node:Paper", "doi")) is other.acknowledged
    check_whole(s3_root)


@pytest.mark.parametrize(
    "stalls",
    pairs(
        ("after_table_commit", "before_recovery_publish"),
        ("before_table_commit", "after_table_commit"),
    ),
)
def test_a_stalled_optimize_changes_no_row(s3_root: str, stalls: tuple[str, str]) -> None:
    make_world(s3_root)
    _, other = interleave(s3_root, lambda graph: graph.optimize(), add_and_cite, stalls)
    with Graph.open(s3_root) as graph:
        papers = values(graph, "node:Paper", "doi")
        edges = values(graph, "edge:Cites", "src")
    assert papers == ["a", *["c"] * other.acknowledged, "o"]
    assert edges == [*["c"] * other.acknowledged, "o"]
    check_whole(s3_root)


def add_and_cite(graph: Graph) -> None:
    graph.mutate(ADD_CITING, {"doi": "c", "to": "a"})


def test_what_a_late_writer_did_to_a_table_is_undone_by_the_next_write(
    s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stands still inside the commit of a table, comes back after its sidecar was settled, and dies."""
    from omnigraph.commit import attempt

    make_world(s3_root)
    with monkeypatch.context() as patch:
        patch.setattr(attempt.Attempt, "_settle_in_new_window", dies)
        one, other = interleave(
            s3_root,
            lambda graph: graph.mutate(ADD_CITING, {"doi": "b", "to": "a"}),
            lambda graph: graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}),
            ("before_table_commit@2", "after_sidecar_delete"),
        )
    assert other.acknowledged
    assert not one.acknowledged
    with Graph.open(s3_root) as graph:
        cite_b_to = graph.mutate(ADD_CITING, {"doi": "d", "to": "a"})
        assert cite_b_to.commit is not None
        assert values(graph, "node:Paper", "doi") == ["a", "c", "d", "o"]
        assert values(graph, "edge:Cites", "src") == ["d", "o"]
        (late,) = [
            record
            for record in graph.recoveries()
            if any(table["class"] == "LateWriter" for table in record.tables.values())
        ]
        assert list(late.tables) == ["edge:Cites"]
    check_whole(s3_root)


def dies(*_: object) -> bool:
    """As a process that ends before it can tidy up."""
    return False
