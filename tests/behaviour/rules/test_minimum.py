"""The minimum of `@card(1..)` on a whole state: loads and merges that ask for it, `verify` and `doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import LoadRejectedError, MergeConflictsError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.verify import VerifyReport
from omnigraph.pipeline import minimum

SCHEMA = """
node Author { name: String @key }
node Paper { doi: String @key }
edge Wrote: Author -> Paper @card(1..2)
edge Read: Author -> Paper
"""
LACKS = "@card violation on edge Wrote: {!r} has {} edges, allowed are 1..2"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    load(graph, author("a"), {"type": "Paper", "data": {"doi": "p"}}, wrote("a"))
    return graph


def author(name: str) -> dict[str, Any]:
    return {"type": "Author", "data": {"name": name}}


def wrote(name: str) -> dict[str, Any]:
    return {"edge": "Wrote", "from": name, "to": "p"}


def load(graph: Graph, *records: dict[str, Any], **options: Any) -> Any:
    path = Path(graph.uri).parent / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return graph.load(path, **{"mode": "append"} | options)


def lacking(graph: Graph, *records: dict[str, Any], **options: Any) -> list[str]:
    """What a load that asks for the minimum says about the graph; nothing when it is content."""
    try:
        load(graph, *records, check_minimum=True, dry_run=True, **options)
    except LoadRejectedError as refused:
        return [item.message for item in refused.report.examples]
    return []


@pytest.mark.parametrize("is_large", [False, True])
def test_a_load_that_asks_for_it_looks_at_every_node(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(minimum, "SMALL_ROWS", 0)
    assert lacking(graph, author("b"), wrote("b")) == []
    assert lacking(graph, author("b")) == [LACKS.format("b", 0)]
    assert lacking(graph, *[wrote("a")] * 2) == [LACKS.format("a", 3)]
    assert load(graph, author("b")).commit is not None, "without asking it is no rule of a write"
    assert lacking(graph, {"type": "Paper", "data": {"doi": "q"}}) == [LACKS.format("b", 0)]
    assert lacking(graph, wrote("c"), author("c"), mode="merge") == [LACKS.format("b", 0)]
    assert lacking(graph, {"type": "Author", "data": {"name": "b"}}, wrote("b"), mode="patch", upsert=True) == []
    assert lacking(graph, author("z"), wrote("z"), author("a"), wrote("a"), mode="overwrite") == []


def test_a_merge_that_asks_for_it_looks_at_the_result(graph: Graph) -> None:
    graph.create_branch("work")
    load(graph, author("b"), branch="work")
    assert str(graph.merge("work", dry_run=True).outcome) == "fast_forward"
    preview = graph.merge("work", dry_run=True, check_minimum=True)
    assert [conflict.message for conflict in preview.conflicts] == [LACKS.format("b", 0)]
    with pytest.raises(MergeConflictsError):
        graph.merge("work", check_minimum=True)
    load(graph, wrote("b"), branch="work")
    assert graph.merge("work", check_minimum=True).commit is not None


def test_verify_and_doctor_list_what_lacks_edges(graph: Graph) -> None:
    assert graph.verify().outside == ()
    (well,) = [item for item in graph.doctor(rules=True).findings if item.check == "rules"]
    assert str(well.severity) == "ok"
    load(graph, *(author(f"n{number}") for number in range(7)))
    report = graph.verify()
    (found,) = report.outside
    assert (found.branch, found.edge_type, found.node_type, found.bounds, found.total) == (
        "main",
        "Wrote",
        "Author",
        "1..2",
        7,
    )
    assert found.examples == tuple(f"n{number}" for number in range(7))
    assert VerifyReport.from_json(report.document()).outside == report.outside
    assert report.is_sound
    text = "branch main: 7 nodes of Author do not have 1..2 edges of Wrote, such as 'n0', 'n1', 'n2', 'n3', 'n4'"
    (warning,) = [item for item in graph.doctor(rules=True).findings if item.check == "rules"]
    assert (str(warning.severity), warning.message) == ("warning", text)
    assert not [item for item in graph.doctor().findings if item.check == "rules"]
