"""A patch does what the same `update` statements of one mutation do, in process and on Spark.

The type has a blob: a patch that brings one writes rows again, any other patch writes columns.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import BadRequestError, LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.patch import writing as patches
from omnigraph.spark import worker_choice
from support.loads import write_lines
from support.spark import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

SCHEMA = """
node Thing {
    name: String @key
    must: I32
    text: String?
    tags: [String]?
    year: I32?
    stage: enum(draft, final)?
    isbn: String? @unique
    room: String?
    slot: I32?
    vec: Vector(2)?
    data: Blob?
    @range(year, 1600..2100)
    @unique(room, slot)
}
"""
TYPES = {
    "must": "I32",
    "text": "String?",
    "tags": "[String]?",
    "year": "I32?",
    "stage": "String?",
    "isbn": "String?",
    "room": "String?",
    "slot": "I32?",
    "vec": "Vector(2)?",
    "data": "Blob?",
}
NAMES = [f"t{number}" for number in range(12)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "must": st.sampled_from([1, 2]),
    "text": st.sampled_from(["", "ü", None]),
    "tags": st.sampled_from([[], ["a", ""], None]),
    "year": st.sampled_from([1600, 2000, 2000, 1, None]),
    "stage": st.sampled_from(["draft", None]),
    "isbn": st.sampled_from(["i0", "i1", "other", "else", None]),
    "room": st.sampled_from(["a", None]),
    "slot": st.sampled_from([1, 2, 3]),
    "vec": st.sampled_from([[0.5, -1.0], None]),
    "data": st.sampled_from(["base64:QQ==", "base64:", None]),
}
Record = dict[str, Any]


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of distinct rows, most of them good."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=8))
    return [
        {"name": name}
        | {prop: draw(VALUES[prop]) for prop in draw(st.lists(st.sampled_from(list(VALUES)), unique=True, max_size=4))}
        for name in names
    ]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with things in several fragments, some values of which are null."""
    root = tmp_path_factory.mktemp("patch") / "template"
    with Graph.init(root, SCHEMA) as graph:
        for begin in (0, 6):
            things = [
                {"name": name, "must": 0, "text": f"of {name}", "isbn": f"i{number}", "room": "a", "slot": 10 + number}
                for number, name in enumerate(NAMES[begin : begin + 6], begin)
            ]
            things[0] |= {"vec": [1, 2], "data": "base64:Qg==", "tags": ["x"], "year": 1999, "stage": "final"}
            load(graph, root.parent / "things.jsonl", things, mode="append")
    return root


def load(graph: Graph, path: Path, things: list[Record], **options: Any) -> Any:
    lines = [json.dumps({"type": "Thing", "data": thing}).encode() for thing in things]
    return graph.load(write_lines(path, lines), **options)


def image(graph: Graph) -> list[Record]:
    """Rows with their row ids, ordered by their keys."""
    pin = graph.snapshot().pins["node:Thing"]
    table = lance.dataset(graph._core.environment.location.child(pin.location), version=pin.version)
    rows = table.to_table(with_row_id=True, blob_handling="all_binary").to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def updated(graph: Graph, some: list[Record]) -> list[Record] | None:
    """The rows after `update` statements; None when they are refused."""
    statements, params, declared = [], {}, []
    for number, record in enumerate(some):
        names = [name for name in record if name != "name"]
        if names:
            assigned = ", ".join(f"{name}: $p{number}_{name}" for name in names)
            statements.append(f'update Thing set {{ {assigned} }} where name = "{record["name"]}"')
            declared += [f"$p{number}_{name}: {TYPES[name]}" for name in names]
            params |= {f"p{number}_{name}": record[name] for name in names}
    if statements:
        text = f"query q({', '.join(declared)}) {{ {' '.join(statements)} }}"
        try:
            graph.mutate(text, params)
        except BadRequestError:
            return None
    return image(graph)


def patched(graph: Graph, path: Path, some: list[Record], **options: Any) -> list[Record] | None:
    """The rows after a patch; None when it is refused."""
    before = graph.snapshot()
    try:
        receipt = load(graph, path, some, mode="patch", **options)
    except LoadRejectedError:
        assert graph.snapshot() == before
        return None
    (item,) = receipt.nodes
    assert (item.entities_loaded, item.patched, item.inserted) == (len(some), len(some), 0)
    return image(graph)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(some=records())
def test_a_patch_is_the_same_updates(
    template: Path, tmp_path_factory: pytest.TempPathFactory, some: list[Record]
) -> None:
    folder = tmp_path_factory.mktemp("law")
    for name in ("update", "patch"):
        shutil.copytree(template, folder / name)
    with Graph.open(folder / "update") as one, Graph.open(folder / "patch") as other:
        assert patched(other, folder / "x.jsonl", some) == updated(one, some)


GOOD = [
    {"name": "t0", "text": None, "isbn": "i1"},
    {"name": "t1", "isbn": "i0", "year": 1700},
    {"name": "t7", "vec": [3.0, 4.0], "must": 5},
    {"name": "t11", "vec": None, "text": "last"},
]
BAD = [{"name": "t3", "isbn": "i4"}, {"name": "t9", "text": "x"}, {"name": "nowhere", "text": "y"}]


@pytest.mark.parametrize("more", [{}, {"data": "base64:QUI="}], ids=["columns", "rows"])
def test_spark_patches_as_this_process_does(
    template: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, more: Record
) -> None:
    """Little goes the way of much: ids, decisions, values and marks are exchanged between tasks."""
    found = {}
    for name, options in (("here", {}), ("there", {"spark": spark})):
        with monkeypatch.context() as patch:
            if name == "there":
                patch.setattr(worker_choice, "SMALL_ROWS", 0)
                patch.setattr(patches, "_LITTLE_ROWS", 0)
            shutil.copytree(template, tmp_path / name)
            with Graph.open(tmp_path / name) as graph:
                rows = patched(graph, tmp_path / "good.jsonl", [GOOD[0] | more, *GOOD[1:]], **options)
                report = None
                if not more:
                    with pytest.raises(LoadRejectedError) as refused:
                        load(graph, tmp_path / "bad.jsonl", BAD, mode="patch", **options)
                    report = (refused.value.report.totals, sorted(map(str, refused.value.report.examples)))
                found[name] = (rows, report)
    assert found["here"] == found["there"]
    rows, report = found["here"]
    assert rows is not None
    assert report is None or report[0] == {"unknown id of Thing": 1, "@unique violation on Thing.isbn": 1}
