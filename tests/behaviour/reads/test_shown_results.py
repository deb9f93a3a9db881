"""Results read by other libraries, and results, graphs and differences as people look at them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any
from weakref import ref

import duckdb
import networkx
import polars as pl
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.api import read_ahead
from omnigraph.api.read_ahead import ReadAhead
from omnigraph.api.row_graphs import SparseGraph
from omnigraph.errors import BadRequestError, MissingPackageError, NotFoundError, QuerySelectionError
from support.subtests import each_case, named_cases

SCHEMA = """
node Person { name: String @key  born: Date?  bio: String?  vec: Vector(600)?  tags: [String]? }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
edge Wrote: Person -> Note
"""
ROWS = """
insert Person { name: "ada" } insert Person { name: "bo" } insert Person { name: "cy" }
insert Note { text: "<b>hi</b>" }
insert Knows { from: "ada", to: "bo", since: 1 } insert Knows { from: "ada", to: "bo", since: 2 }
insert Knows { from: "bo", to: "cy" } insert Knows { from: "cy", to: "cy" }
"""
NAMES = "match { $p: Person } return { $p.name as name } order { name }"
KNOWS = "match { $a: Person  $a $k:knows $b } return { $a, $b, $k.since as since }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("shown") / "people.omni", SCHEMA) as graph:
        graph.mutate(ROWS)
        yield graph


# ---- the Arrow stream protocol


def read_by_duckdb(result: Any) -> list[str]:
    return [name for (name,) in duckdb.connect().sql("select name from result order by name").fetchall()]


READERS = {
    "polars": lambda result: pl.DataFrame(result)["name"].to_list(),
    "to_polars": lambda result: result.to_polars()["name"].to_list(),
    "arrow": lambda result: pa.table(result)["name"].to_pylist(),
    "duckdb": read_by_duckdb,
}


@named_cases("read", READERS)
def test_other_libraries_read_a_result_as_often_as_they_like(graph: Graph, read: Any) -> None:
    result = graph.query(NAMES)
    repr(result)
    assert read(result) == read(result) == ["ada", "bo", "cy"]
    assert result.to_pandas()["name"].tolist() == ["ada", "bo", "cy"]


def test_a_result_outlives_the_graph_that_it_was_asked_from(graph: Graph) -> None:
    with Graph.open(graph.uri) as other:
        result = other.query(NAMES)
    del other
    gc.collect()
    assert pl.DataFrame(result)["name"].to_list() == ["ada", "bo", "cy"]


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    yield from (pa.record_batch({"n": [number]}) for number in range(count))


def test_a_large_result_streams_once_and_a_small_one_again_and_again() -> None:
    small = ReadAhead(numbers(4))
    assert [len(list(small.replay())) for _ in range(2)] == [4, 4]
    assert len(list(small.take())) == 4
    large = ReadAhead(numbers(4), kept_bytes=16)
    first, second = large.replay(), large.replay()
    next(first)
    next(second)
    assert len(list(first)) == 3
    for rest in (lambda: next(second), large.all, lambda: next(large.take())):
        with pytest.raises(RuntimeError, match="streamed already"):
            rest()
    assert large.peek(10) is None


def test_batches_that_were_taken_are_let_go() -> None:
    made: list[ref[pa.RecordBatch]] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in numbers(20):
            made.append(ref(batch))
            yield batch
            del batch

    rows = ReadAhead(watched())
    assert rows.peek(2) is not None
    alive = [sum(batch() is not None for batch in made) for _ in rows.take()]
    assert len(alive) == 20
    assert max(alive) <= 4


def test_looking_takes_nothing_and_a_failure_is_told_to_every_reader() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from numbers(2)
        raise BadRequestError("the disk is gone")

    rows = ReadAhead(failing())
    for _ in range(2):
        with pytest.raises(BadRequestError, match="gone"):
            rows.peek(10)
    with pytest.raises(BadRequestError, match="gone"):
        list(rows.take())
    rows = ReadAhead(numbers(3))
    assert rows.peek(1) is not None
    assert len(list(rows.take())) == 3
    assert read_ahead.KEPT_BYTES > 0


# ---- as text and as HTML


def test_large_values_are_shortened_before_anything_is_made_of_them(graph: Graph) -> None:
    graph.create_branch("large")
    values = {"bio": "x" * 10_000_000, "vec": [0.25] * 600, "tags": ["t" * 1_000_000] * 50}
    graph.mutate('insert Person { name: "large", bio: $bio, vec: $vec, tags: $tags }', values, branch="large")
    text = 'match { $p: Person { name: "large" } } return { $p.bio as bio, $p.vec as vec, $p.tags as tags }'
    result = graph.query(text, branch="large")
    html = result._repr_html_()
    assert len(html) < 6_000
    assert "… (10,000,000 characters)" in html
    assert "0.25, … 594 more]" in html
    assert "… 44 more]" in html
    assert len(repr(result)) < 500
    assert len(result.to_pylist()[0]["bio"]) == 10_000_000


def test_a_graph_shows_its_head_its_counts_and_its_schema(graph: Graph) -> None:
    text, html = str(graph), graph._repr_html_()
    for shown in (graph.commits()[0].commit_id, "4 nodes, 4 edges", "Person"):
        assert shown in text
        assert shown in html
    assert "<svg " in html
    assert repr(graph) == f"<Graph {graph.uri}>"
    with pytest.raises(TypeError, match=r"open a graph with Graph.open\('papers.omni'\)"):
        Graph("papers.omni")  # type: ignore[arg-type]
    assert "Catalog: 2 node types, 2 edge types" in repr(graph.catalog())


def test_no_public_result_is_an_object_at_an_address(graph: Graph) -> None:
    """Also not inside of another one."""
    graph.create_branch("shown", "main")
    graph.mutate('insert Person { name: "new" }', branch="shown")
    commit = graph.commits("shown")[0].commit_id
    found = [
        graph,
        graph.query(NAMES),
        graph.catalog(),
        graph.snapshot(),
        graph.branches(),
        graph.commits(),
        graph.log(),
        graph.commit(graph.commits()[0].commit_id),
        graph.diff("main", "shown"),
        graph.changes(commit),
        graph.feed("shown", start="beginning"),
        graph.plan_schema(graph.schema),
        graph.merge("shown", dry_run=True),
        graph.create_branch("twig"),
        graph.delete_branch("twig"),
        graph.apply_schema,
        graph.load(frames={"Person": [{"name": "x"}]}, mode="append", engine="local", dry_run=True),
        graph.doctor(),
        graph.verify(),
        graph.cleanup(keep=100),
        graph.recoveries(),
        graph.show(),
        graph.diff("main", "shown").show(),
        graph.entity_at("Person", "ada"),
        graph.mutate('delete Person where name = "nobody"'),
    ]
    graph.delete_branch("shown")
    for value in found:
        text = repr(value)
        assert " object at 0x" not in text, text
        html = getattr(value, "_repr_html_", str)()
        assert " object at 0x" not in html


def test_receipts_are_a_line(graph: Graph) -> None:
    found = graph.mutate('update Person set { bio: "x" } where name = "ada"', dry_run=True)
    assert repr(found) == "<MutationResult of query: 1 node, 0 edges (dry run) on main>"
    nobody = graph.mutate('delete Person where name = "nobody"')
    assert repr(nobody) == "<MutationResult of query: 0 nodes, 0 edges (nothing was written) on main>"
    people = [{"name": "dee"}, {"name": "dee"}]
    loaded = graph.load(
        frames={"Person": people}, mode="merge", branch="receipts", base="main", engine="local", on_duplicate="first"
    )
    assert loaded.commit is not None
    assert repr(loaded) == (
        f"<LoadResult: 1 node, 0 edges in commit {loaded.commit.commit_id} on receipts (merge), 1 replaced>"
    )
    tried = graph.merge("receipts", dry_run=True)
    assert repr(tried) == "<MergeResult of receipts into main: fast_forward, node:Person +1 ~0 -0 (dry run)>"
    graph.delete_branch("receipts")


def test_lists_of_commits_and_branches_are_lists(graph: Graph) -> None:
    commits = graph.commits()
    assert repr(commits).splitlines()[0].startswith("commit")
    assert commits[0].commit_id in commits._repr_html_()  # type: ignore[attr-defined]
    assert repr(graph.branches()) == repr(list(graph.branches()))
    assert graph.branches() == list(graph.branches())
    assert type(commits[:1]) is list


# ---- pictures, graphs of networkx and matrices of scipy


def test_a_query_shows_its_nodes_whatever_it_returns(graph: Graph) -> None:
    picture = graph.show("match { $a: Person  $a knows $b } return { $a.born as b } limit 10")
    assert (set(picture.details) & {"Person/ada", "Person/bo", "Person/cy"}) == {"Person/ada", "Person/bo", "Person/cy"}
    assert picture.drawing.label == "query: 3 nodes and 3 edges"
    bound = graph.show(KNOWS)
    assert bound.drawing.label == "query: 3 nodes and 4 edges"
    assert bound.to_html() == graph.show(KNOWS).to_html()


def test_nodes_are_shown_with_what_is_around_them(graph: Graph) -> None:
    assert graph.show({"Person": "bo"}).drawing.label == "neighbours: 3 nodes and 3 edges"
    assert graph.show([("Person", "ada")], hops=2).drawing.label == "neighbours: 3 nodes and 3 edges"
    assert graph.show([("Person", "ada")], hops=0).drawing.label == "neighbours: 1 nodes and 0 edges"
    assert graph.show().drawing.label == "graph: 4 nodes and 4 edges"
    assert graph.show("Note").drawing.label == "Note: 1 nodes and 0 edges"
    assert graph.show(limit=2).note == "2 of 4 nodes"


@each_case(
    ("what", "options", "error", "text"),
    [
        ("Persn", {}, BadRequestError, "there is no node type `Persn`: did you mean `Person`?"),
        ({"Person": ["nobody"]}, {}, NotFoundError, "there is no Person with the id 'nobody'"),
        ({}, {}, BadRequestError, "there is nothing to show: give nodes as in"),
        ([("Person", "ada", 1)], {}, BadRequestError, "is not a node: give nodes as in"),
        (None, {"limit": 501}, BadRequestError, "a picture has 1 to 500 nodes, not 501"),
        ({"Person": ["ada"]}, {"hops": 9}, BadRequestError, "up to 3 hops away, not 9"),
        (None, {"params": {}}, BadRequestError, "params and name belong to a query"),
        ("match { $a: Person } return { count($a) as n }", {}, BadRequestError, "no column of the result holds nodes"),
        ('insert Person { name: "x" }', {}, QuerySelectionError, "is a mutation: run it with `mutate`"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_explained(graph: Graph, what: Any, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as failure:
        graph.show(what, **options)
    assert text in str(failure.value)


def test_networkx_keeps_parallel_edges_and_values(graph: Graph) -> None:
    found = graph.to_networkx(nodes=["Person"])
    assert isinstance(found, networkx.MultiDiGraph)
    assert set(found.nodes) == {"ada", "bo", "cy"}
    assert sorted(data["since"] for _, _, data in found.edges("ada", data=True)) == [1, 2]
    assert found.has_edge("cy", "cy")
    everything = graph.to_networkx(properties=["since"])
    assert ("Person", "ada") in everything
    assert everything.nodes["Person", "ada"] == {"type": "Person", "id": "ada"}
    assert everything.number_of_edges() == 4
    rows = graph.query(KNOWS).to_networkx()
    assert rows.number_of_edges("ada", "bo") == 2
    assert graph.query("match { $a: Person  $a <knows> $b } return { $a, $b }").to_networkx().edges("ada", data=True)
    with pytest.raises(BadRequestError, match="there is no edge type `Knws`"):
        graph.to_networkx(edges=["Knws"])


def entries(found: SparseGraph) -> dict[tuple[str, str], float]:
    """What the matrix says about pairs of nodes."""
    matrix = found.matrix.tocoo()
    return {
        (found.ids[row], found.ids[column]): value
        for row, column, value in zip(matrix.row, matrix.col, matrix.data.tolist(), strict=True)
    }


def test_a_matrix_counts_parallel_edges_and_adds_up_weights(graph: Graph) -> None:
    people = graph.to_scipy(nodes=["Person"])
    assert entries(people) == {("ada", "bo"): 2, ("bo", "cy"): 1, ("cy", "cy"): 1}
    assert entries(people) == entries(graph.query(KNOWS).to_scipy())
    everything = graph.to_scipy()
    assert everything.matrix.shape == (4, 4)
    assert sorted(zip(everything.types, everything.ids, strict=True))[1:] == [
        ("Person", "ada"),
        ("Person", "bo"),
        ("Person", "cy"),
    ]
    weighted = {("ada", "bo"): 3.0}
    assert entries(graph.to_scipy(edges=["Knows"], weight="since")) == weighted
    assert entries(graph.query(KNOWS).to_scipy(weight="since")) == weighted
    either = graph.query("match { $a: Person  $a <knows> $b } return { $a, $b }").to_scipy().matrix.toarray()
    assert (either == either.T).all()
    assert either.any()
    assert graph.to_scipy(nodes=["Note"]).matrix.nnz == 0
    assert graph.to_scipy(nodes=[]).matrix.shape == (0, 0)


@each_case(
    ("read", "text"),
    [
        (lambda g: g.to_scipy(nodes=["Persn"]), "there is no node type `Persn`"),
        (lambda g: g.to_scipy(nodes=["Person"], edges=["Wrote"]), "`Wrote` end at nodes `Note`, which are not asked"),
        (lambda g: g.to_scipy(weight="since"), "the edges `Wrote` have no `since`; `edges` chooses edge types"),
        (lambda g: g.query(KNOWS).to_scipy(weight="sinc"), "no column holds `sinc` of the edges `Knows`"),
        (lambda g: g.query(NAMES.replace(".name", ".born")).to_scipy(), "no column of the result holds nodes"),
    ],
    ids=str,
)
def test_a_matrix_that_cannot_be_made_is_explained(graph: Graph, read: Any, text: str) -> None:
    with pytest.raises(BadRequestError) as failure:
        read(graph)
    assert text in str(failure.value)


def test_a_matrix_without_scipy_names_what_installs_it(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    for read in (graph.to_scipy, graph.query(KNOWS).to_scipy):
        with pytest.raises(MissingPackageError, match=r"`to_scipy` needs scipy.*pip install 'omnigraph\[scipy\]'"):
            read()


def test_a_difference_is_a_picture_with_both_states(graph: Graph) -> None:
    graph.create_branch("changed")
    graph.mutate('insert Person { name: "<i>" } update Person set { bio: "b" } where name = "bo"', branch="changed")
    graph.mutate('delete Person where name = "cy"', branch="changed")
    diff = graph.diff("main", "changed")
    assert repr(diff).splitlines()[0] == "Diff: 1 insert, 1 update, 3 deletes"
    picture = diff.show()
    assert picture.drawing.label == "diff: 3 nodes and 2 edges"
    assert ["bio", "null → b"] in picture.details["Person/bo"]["facts"]  # type: ignore[operator]
    assert {item.name for item in picture.drawing.legend} >= {"inserted 1", "updated 1", "deleted 3"}
    assert graph.diff("main", "changed").show(limit=1).note.startswith("1 of 5 changes")


def test_an_unknown_name_of_a_type_is_told_with_what_is_there(graph: Graph) -> None:
    assert graph.entity_at("Person", "ada") == graph.entity_at("node:Person", "ada")
    with pytest.raises(NotFoundError, match="there is no type Persn at this snapshot"):
        graph.entity_at("Persn", "ada")


def test_an_empty_graph_has_a_picture_too(tmp_path: Any) -> None:
    with Graph.init(tmp_path / "g.omni", "node A { name: String @key }") as empty:
        assert empty.show().drawing.label == "graph: no nodes"
        assert "0 nodes" in str(empty)
        assert empty.query("match { $a: A } return { $a.name }").to_pandas().columns.tolist() == ["a.name"]
