"""`Graph.embed`: which rows get a vector, and what a commit of vectors changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.embedding import vector_writes
from omnigraph.embedding.providers import mock_vector
from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from support.embedded_notes import (
    GIVEN,
    SCHEMA,
    counts,
    embed,
    fragments,
    note,
    notes_graph,
    of,
    put,
    set_body,
    stored_rows,
    vectors,
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return notes_graph(tmp_path)


def test_rows_with_a_text_and_no_vector_get_one_in_a_single_commit(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", " "), note("c", None), note("d", "y", GIVEN))
    result = embed(graph, actor="ann")
    assert counts(result) == (1, 0, 0)
    assert vectors(graph) == {"a": pytest.approx(of("x")), "b": None, "c": None, "d": GIVEN}
    assert (result.embedded, result.reused, result.model) == (1, 0, "mock")
    assert graph.commits()[0].commit_id == result.commit.commit_id
    assert (result.commit.kind, result.commit.actor) == ("embed", "ann")
    again = embed(graph)
    assert (again.commit, again.rows) == (None, 0)
    assert graph.commits()[0].commit_id == result.commit.commit_id


# ---- texts that changed


@pytest.mark.parametrize(
    ("loaded", "missing", "outdated"),
    [
        (note("a", "new"), 1, 0),
        (note("a", "new", GIVEN), 0, 0),
        (note("a", "new", of("old")), 0, 1),
        (note("a", "old", of("old")), 0, 0),
    ],
    ids=["without a vector", "with a new vector", "with the old vector", "unchanged"],
)
@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_a_load_decides_by_what_it_brings(
    graph: Graph, tmp_path: Path, loaded: dict[str, Any], missing: int, outdated: int, mode: str
) -> None:
    put(graph, tmp_path, note("a", "old"), note("b", "other"))
    embed(graph)
    put(graph, tmp_path, loaded, mode=mode)
    assert counts(embed(graph, dry_run=True)) == (missing, outdated, 0)


def test_a_text_that_changed_gets_a_new_vector_and_all_others_keep_theirs(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", "y"), note("c", "z", GIVEN))
    set_body(graph, "c", "z2")
    put(graph, tmp_path, note("d", "w"))
    assert counts(embed(graph)) == (3, 1, 0)
    set_body(graph, "a", "x2")
    graph.mutate('query q() { insert Other { name: "o" } }')
    assert counts(embed(graph)) == (0, 1, 0)
    wanted = {"a": of("x2"), "b": of("y"), "c": of("z2"), "d": of("w")}
    assert vectors(graph) == {slug: pytest.approx(vector) for slug, vector in wanted.items()}


def test_only_the_last_change_counts(graph: Graph, tmp_path: Path) -> None:
    put(graph, tmp_path, note("a", "x", GIVEN), note("b", "y", GIVEN))
    set_body(graph, "a", "x2")
    put(graph, tmp_path, note("a", "x2", of("x2")))
    put(graph, tmp_path, note("b", "y", of("y")))
    set_body(graph, "b", "y2")
    result = embed(graph)
    assert counts(result) == (0, 1, 0)
    assert vectors(graph)["b"] == pytest.approx(of("y2"))


def test_an_entity_that_was_deleted_leaves_nothing_behind(graph: Graph, tmp_path: Path) -> None:
    put(graph, tmp_path, note("a", "x", GIVEN))
    set_body(graph, "a", "x2")
    graph.mutate('query q() { delete Note where slug = "a" }')
    put(graph, tmp_path, note("a", "x3", GIVEN))
    assert embed(graph, dry_run=True).rows == 0


def test_commits_that_only_tidy_up_change_nothing(tmp_path: Path) -> None:
    schema = SCHEMA.replace("body: String?", "body: String? @index")
    graph = notes_graph(tmp_path, schema)
    put(graph, tmp_path, note("a", "x"), note("b", "y", GIVEN))
    embed(graph)
    assert graph.ensure_indices().commit is not None
    assert embed(graph).rows == 0
    set_body(graph, "b", "y2")
    assert graph.ensure_indices().commit is not None
    assert counts(embed(graph)) == (0, 1, 0)


def test_a_vector_goes_with_its_text_but_one_that_never_had_a_text_stays(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", None, GIVEN), note("c", "z"))
    embed(graph)
    set_body(graph, "a", None)
    set_body(graph, "c", "  ")
    result = embed(graph)
    assert (counts(result), result.embedded) == ((0, 0, 2), 0)
    assert vectors(graph) == {"a": None, "b": GIVEN, "c": None}
    assert embed(graph).rows == 0


def test_a_vector_that_must_not_be_null_stays_and_is_reported(tmp_path: Path) -> None:
    graph = notes_graph(tmp_path, SCHEMA.replace("Vector(4)?", "Vector(4)"))
    put(graph, tmp_path, note("a", "x", GIVEN), note("b", "y", GIVEN))
    set_body(graph, "a", None)
    set_body(graph, "b", "y2")
    result = embed(graph)
    assert (counts(result), result.properties[0].kept) == ((0, 1, 0), 1)
    assert vectors(graph) == {"a": GIVEN, "b": pytest.approx(of("y2"))}


def test_reembedding_replaces_every_vector_of_a_text(graph: Graph, tmp_path: Path) -> None:
    put(graph, tmp_path, note("a", "x", GIVEN), note("b", None, GIVEN), note("c", "z"))
    assert counts(embed(graph, reembed=True)) == (1, 1, 0)
    found = vectors(graph)
    assert found == {"a": pytest.approx(of("x")), "b": GIVEN, "c": pytest.approx(of("z"))}


@pytest.mark.parametrize("commits", [False, True], ids=["versions", "versions and commits"])
def test_history_that_was_cleaned_up_is_reported(
    graph: Graph, tmp_path: Path, commits: bool
) -> None:
    put(graph, tmp_path, note("a", "x", GIVEN), note("b", "y", GIVEN))
    set_body(graph, "a", "x2")
    for number in range(3):
        set_body(graph, "b", f"y{number}")
    oldest = graph.commits()[2].commit_id
    graph.cleanup(keep=3, commits=commits, confirm=True)
    result = embed(graph)
    assert counts(result) == (0, 1, 0)
    assert result.properties[0].checked_since == oldest
    assert embed(graph).properties[0].checked_since is None


def test_a_changed_schema_hides_no_text_that_changed(graph: Graph, tmp_path: Path) -> None:
    put(graph, tmp_path, note("a", "x", GIVEN), note("b", "y", GIVEN), note("c", "z", GIVEN))
    set_body(graph, "a", "x2")
    renamed = SCHEMA.replace("body: String?", 'text: String? @rename_from("body")')
    renamed = renamed.replace(
        'vec: Vector(4)? @embed("body")',
        'vector: Vector(4)? @embed("text") @rename_from("vec")  more: Vector(3)? @embed("text")',
    )
    graph.apply_schema(renamed)
    graph.mutate('query q() { update Note set { text: "y2" } where slug = "b" }')
    result = embed(graph)
    assert [(item.missing, item.outdated) for item in result.properties] == [(0, 2), (3, 0)]
    assert {item.checked_since for item in result.properties} == {None}
    graph.apply_schema(renamed.replace("node Other", "node Another"), allow_data_loss=True)
    assert embed(graph).rows == 0


# ---- branches


def test_a_branch_is_embedded_by_itself_and_a_merge_brings_its_vectors(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", "y"))
    embed(graph)
    graph.create_branch("work")
    set_body(graph, "a", "x2", branch="work")
    assert counts(embed(graph, branch="work")) == (0, 1, 0)
    assert vectors(graph)["a"] == pytest.approx(of("x"))
    assert vectors(graph, "work")["a"] == pytest.approx(of("x2"))
    put(graph, tmp_path, note("c", "z"))
    graph.merge("work")
    assert counts(embed(graph)) == (1, 0, 0)
    assert vectors(graph)["a"] == pytest.approx(of("x2"))


def test_a_merge_that_brings_only_a_text_leaves_an_outdated_vector(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", "y"))
    embed(graph)
    graph.create_branch("work")
    set_body(graph, "a", "x2", branch="work")
    set_body(graph, "b", "y2")
    graph.merge("work")
    assert counts(embed(graph)) == (0, 2, 0)


def test_a_row_that_a_merge_took_is_judged_by_the_branch_it_came_from(
    graph: Graph, tmp_path: Path
) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", "y"))
    embed(graph)
    graph.create_branch("work")
    set_body(graph, "a", "theirs", branch="work")
    set_body(graph, "a", "ours")
    embed(graph)
    graph.merge("work", strategy="theirs")
    assert counts(embed(graph)) == (0, 1, 0)
    assert vectors(graph)["a"] == pytest.approx(of("theirs"))


# ---- what a commit of vectors changes


@pytest.mark.parametrize("few", [0, 1000], ids=["in a file per fragment", "in rows written again"])
@pytest.mark.parametrize("branch", ["main", "work"])
def test_nothing_but_vectors_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, branch: str
) -> None:
    monkeypatch.setattr(vector_writes, "FEW_ROWS", few)
    monkeypatch.setattr(vector_writes, "SMALL_PART", 1000)
    # Rows with blobs are never written again.
    graph = notes_graph(tmp_path, SCHEMA.replace("Blob?", "String?") if few else SCHEMA)
    for slug in "abc":
        full = {"slug": slug, "body": slug, "file": "base64:aGVsbG8="}
        put(graph, tmp_path, full, note(slug * 2, None))
    graph.mutate('query q() { delete Note where slug = "bb" }')
    graph.create_branch("work")
    before = stored_rows(graph, branch)
    head = graph.snapshot(branch).commit_id
    embed(graph, branch=branch)
    after = stored_rows(graph, branch)
    assert [row.pop("vec") is None for row in after] == [row["body"] is None for row in after]
    assert after == [{k: v for k, v in row.items() if k != "vec"} for row in before]
    changed = graph.changes(graph.snapshot(branch).commit_id).changes
    assert [(item.id, str(item.op)) for item in changed] == [(s, "update") for s in "abc"]
    assert len(graph.diff(head, branch)) == 3
    set_body(graph, "a", "a2", branch)
    assert counts(embed(graph, branch=branch)) == (0, 1, 0)
    assert vectors(graph, branch)["b"] == pytest.approx(of("b"))


def test_a_small_part_of_a_fragment_is_written_again_and_a_large_one_gets_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_writes, "FEW_ROWS", 0)
    monkeypatch.setattr(vector_writes, "SMALL_PART", 3)
    graph = notes_graph(tmp_path, SCHEMA.replace("Blob?", "String?"))
    put(graph, tmp_path, *[note(slug, "x" if slug in "ab" else None) for slug in "abcdef"])
    embed(graph)
    assert fragments(graph) == [(4, 1), (2, 1)]
    for slug in "cdef":
        set_body(graph, slug, "y")
    head = fragments(graph)
    embed(graph)
    assert fragments(graph) == [(rows, files + (rows == 1)) for rows, files in head]
    assert None not in vectors(graph).values()


def test_every_vector_of_a_type_is_written_in_one_commit(tmp_path: Path) -> None:
    schema = SCHEMA.replace(
        'vec: Vector(4)? @embed("body")',
        'title: String?  vec: Vector(4)? @embed("body")  top: Vector(3)? @embed("title")',
    )
    graph = notes_graph(tmp_path, schema)
    put(graph, tmp_path, {"slug": "a", "body": "x", "title": "t"}, {"slug": "b", "title": "u"})
    result = embed(graph)
    assert [(item.property, item.missing) for item in result.properties] == [("vec", 1), ("top", 2)]
    graph.mutate('query q() { update Note set { title: "t2" } where slug = "a" }')
    assert [item.outdated for item in embed(graph).properties] == [0, 1]
    found = graph.query('query q() { match { $n: Note { slug: "a" } } return { $n.vec, $n.top } }')
    assert found.to_pylist() == [
        {"n.vec": pytest.approx(of("x")), "n.top": pytest.approx(mock_vector("t2", 3))}
    ]


# ---- requests


def test_a_dry_run_counts_and_asks_nobody(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(graph, tmp_path, note("a", "x"))
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    result = embed(graph, dry_run=True)
    assert (counts(result), result.commit, result.embedded) == ((1, 0, 0), None, 0)
    with pytest.raises(BadRequestError, match="needs an API key"):
        embed(graph)
    assert vectors(graph) == {"a": None}


def test_wrong_requests_are_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"no type Nota.*Note"):
        embed(graph, types=["Nota"])
    for choice in ({"batch_size": 0}, {"rate": 0.0}, {"rate": float("inf")}):
        with pytest.raises(BadRequestError, match=r"at least one|above 0"):
            embed(graph, **choice)
    with pytest.raises(BadRequestError, match="no engine"):
        graph.embed(engine="moon")
    put(graph, tmp_path, note("a", "x"))
    assert embed(graph, types=["Other"]).properties == ()
    (tmp_path / "other").mkdir()
    recorded = SCHEMA.replace('@embed("body")', '@embed("body", model="big")')
    with pytest.raises(BadRequestError, match=r"Note\.vec.*`big`.*its texts.*`mock`"):
        embed(notes_graph(tmp_path / "other", recorded))
