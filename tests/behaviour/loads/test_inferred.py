"""Graphs from data alone: public shapes, frames, and values that come out as they went in."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph, infer
from omnigraph.errors import AlreadyInitializedError, BadRequestError
from omnigraph.inference.proposal import Proposal
from support.graphs import ends_of, everything, rows_of
from support.public_shapes import SHAPES, credited_movies, rated_movies
from support.subtests import named_cases

#: Per shape: nodes of each type, edges of each type with their ends, and how many.
LOADED: dict[str, tuple[dict[str, int], dict[str, tuple[str, int]]]] = {
    "rated movies": (
        {"Link": 120, "Movie": 120, "User": 40},
        {"Rating": ("User -> Movie", 823), "Tag": ("User -> Movie", 92), "HasMovie": ("Link -> Movie", 120)},
    ),
    "credited movies": (
        {"Movie": 60, "Person": 80},
        {"Role": ("Person -> Movie", 180), "HasDirector": ("Movie -> Person", 56)},
    ),
    "open flights": ({"Airline": 40, "Airport": 90}, {"Route": ("Airport -> Airport", 700)}),
    "flights with headers": ({"Airline": 30, "Airport": 90}, {"Route": ("Airport -> Airport", 400)}),
    "flights without some codes": ({"Airport": 90}, {"Route": ("Airport -> Airport", 300)}),
    "package tables": (
        {"Maintainer": 20, "Package": 60, "Version": 302},
        {
            "Dependency": ("Version -> Package", 591),
            "PackageMaintainer": ("Package -> Maintainer", 120),
            "HasPackage": ("Version -> Package", 302),
        },
    ),
    "package lines": ({"Package": 60}, {"Dependency": ("Package -> Package", 120)}),
    "nested packages": (
        {"Maintainer": 7, "Package": 60},
        {
            "HasDependency": ("Package -> Package", 120),
            "HasMaintainer": ("Package -> Maintainer", 60),
            "HasRelated": ("Package -> Package", 60),
        },
    ),
    "edge list": ({"Node": 60}, {"Follows": ("Node -> Node", 280)}),
    "company": (
        {"Department": 5, "Employee": 60},
        {"HasDept": ("Employee -> Department", 60), "HasManager": ("Employee -> Employee", 58)},
    ),
}


def load(root: Path, proposal: Proposal) -> Graph:
    """A graph from the files of a proposal, as a person would make it."""
    proposal.write(root / "schema.pg", root / "mapping.yaml")
    graph = Graph.init(root / "g.omni", root / "schema.pg")
    graph.load(mapping=root / "mapping.yaml", mode="append")
    return graph


def counts_of(graph: Graph) -> tuple[dict[str, int], dict[str, tuple[str, int]]]:
    pins = {key: pin.row_count for key, pin in graph.snapshot().pins.items()}
    catalog = graph.catalog()
    edges = {e.name: (f"{e.source} -> {e.target}", pins[e.table_key]) for e in catalog.edges.values()}
    return {node.name: pins[node.table_key] for node in catalog.nodes.values()}, edges


@pytest.mark.parametrize("shape", SHAPES)
def test_a_public_shape_loads_without_an_edit(tmp_path: Path, shape: str) -> None:
    proposal = infer(SHAPES[shape](tmp_path / "data"))
    with load(tmp_path, proposal) as graph:
        assert counts_of(graph) == LOADED[shape]
        before = everything(graph)
        # Edges whose ends tell them apart, and nodes with a key, are there already.
        graph.load(mapping=tmp_path / "mapping.yaml", mode="merge")
        again = everything(graph)
        known = {key for key, rows in before.items() if key.startswith("node:") or len(rows[0]["id"]) < 26}
        assert {key: again[key] for key in known} == {key: before[key] for key in known}


def test_the_values_of_dirty_columns(tmp_path: Path) -> None:
    with load(tmp_path, infer(credited_movies(tmp_path / "data"))) as graph:
        query = (
            "query q() { match { $m: Movie { movie_id: 100 } } return { $m.year, $m.budget, $m.in_color, $m.status } }"
        )
        (row,) = graph.query(query).to_pylist()
        text = (tmp_path / "data/movies.csv").read_text(encoding="utf-8")
        first = next(csv.DictReader(text.splitlines()))
        assert row["m.year"] == int(first["year"])
        assert row["m.budget"] == int(first["budget"].replace(",", ""))
        assert row["m.in_color"] == (first["in_color"] == "yes")
        born = "query q() { match { $p: Person { person_id: 10 } } return { $p.born } }"
        assert graph.query(born).to_pylist() == [{"p.born": date(1940, 11, 11)}]


# ---- frames


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_frames_become_a_graph_in_one_call(tmp_path: Path, library: str) -> None:
    folder = rated_movies(tmp_path / "data")
    read: dict[str, Any] = {
        "pandas": pd.read_csv,
        "polars": pl.read_csv,
        "arrow": lambda path: pl.read_csv(path).to_arrow(),
    }
    names = {"Movie": "movies", "Rating": "ratings", "Tag": "tags", "Link": "links"}
    frames = {name: read[library](folder / f"{stem}.csv") for name, stem in names.items()}
    with Graph.from_frames(tmp_path / "g.omni", frames) as graph:
        assert counts_of(graph) == LOADED["rated movies"]
        assert "// whole numbers 1 to 40" in graph.schema


def test_records_with_keys_and_ends_that_a_caller_knows(tmp_path: Path) -> None:
    frames = {
        "Person": [{"nick": "ada", "born": date(1815, 12, 10)}, {"nick": "bo", "born": None}],
        "Likes": [{"who": "ada", "what": "tea"}, {"who": "bo", "what": "tea"}, {"who": "bo", "what": None}],
    }
    known: dict[str, Any] = {"keys": {"Person": "nick"}, "edges": {"Likes": {"who": "Person", "what": "Drink"}}}
    with Graph.from_frames(tmp_path / "g.omni", frames, **known) as graph:
        assert ends_of(graph, "edge:Likes") == [("ada", "tea"), ("bo", "tea")]
        assert [row["born"] for row in rows_of(graph, "node:Person")] == [date(1815, 12, 10), None]


def test_lists_in_frames_become_edges(tmp_path: Path) -> None:
    packages = pa.table(
        {"name": [f"p{n}" for n in range(8)], "needs": [[f"p{(n + 1) % 8}", "x"][: n % 3] for n in range(8)]}
    )
    with Graph.from_frames(tmp_path / "g.omni", {"Package": packages}) as graph:
        assert ends_of(graph, "edge:HasNeed") == sorted((f"p{n}", f"p{(n + 1) % 8}") for n in range(8) if n % 3)


def test_spark_frames_stay_where_they_are(tmp_path: Path, spark: Any) -> None:
    people = spark.sql("SELECT id AS id, concat('P', id) AS name, array(concat('t', id % 3)) AS tags FROM range(1, 41)")
    visits = spark.sql("SELECT id % 40 + 1 AS person_id, concat('c', id % 5) AS city_id FROM range(90)")
    with Graph.from_frames(tmp_path / "g.omni", {"Person": people, "Visit": visits}, spark=spark) as graph:
        assert counts_of(graph) == ({"City": 5, "Person": 40}, {"Visit": ("Person -> City", 90)})


def test_bad_rows_of_frames_go_to_a_quarantine(tmp_path: Path) -> None:
    people = [{"nick": "ada", "age": 36}, {"nick": None, "age": 7}, {"nick": "bo", "age": None}]
    options: dict[str, Any] = {"keys": {"Person": "nick"}, "quarantine": tmp_path / "bad"}
    with Graph.from_frames(tmp_path / "g.omni", {"Person": people}, **options) as graph:
        assert [row["nick"] for row in rows_of(graph, "node:Person")] == ["ada", "bo"]
        (kept,) = (tmp_path / "bad" / "nodes" / "Person").iterdir()
        rows = pq.read_table(kept).to_pylist()
        assert rows == [{"nick": None, "age": 7}]
        pq.write_table(pa.Table.from_pylist([{"nick": "cy", "age": 7}]), kept)
        graph.load(mapping=tmp_path / "bad" / "mapping.yaml", mode="append")
        assert [row["nick"] for row in rows_of(graph, "node:Person")] == ["ada", "bo", "cy"]


def test_a_graph_that_cannot_be_loaded_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = {"Person": [{"id": 1}, {"id": 2}]}

    def refuse(*_: Any, **__: Any) -> None:
        raise BadRequestError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Graph, "load", refuse)
        with pytest.raises(BadRequestError, match="no"):
            Graph.from_frames(tmp_path / "g.omni", frames)
    assert list(tmp_path.iterdir()) == []
    Graph.from_frames(tmp_path / "g.omni", frames).close()
    with pytest.raises(AlreadyInitializedError):
        Graph.from_frames(tmp_path / "g.omni", frames)
    assert (tmp_path / "g.omni").is_dir()


WRONG_FRAMES: dict[str, tuple[Any, str]] = {
    "no frame": ({}, "there are no frames: give one per table"),
    "something else": ({"Person": 7}, "frame `Person` is a int"),
    "no columns": ({"Person": pa.table({})}, "frame Person has no columns"),
}


@named_cases(("frames", "text"), WRONG_FRAMES)
def test_frames_that_are_none(tmp_path: Path, frames: Any, text: str) -> None:
    with pytest.raises(BadRequestError, match=text):
        Graph.from_frames(tmp_path / "g.omni", frames)
