"""Writes embed the texts that they bring without a vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.transaction import OPTIMISTIC_TRIES
from omnigraph.errors import BadRequestError, CompilerError, EmbeddingError
from omnigraph.graph import mutations
from omnigraph.graph.graph import Graph
from support.embedded_notes import GIVEN, KEY, StandIn, error_reply, notes_graph, of, openai_reply, set_body, vectors

SCHEMA = """
node Note {
    slug: String @key
    body: String?
    vec: Vector(4)? @embed("body")
}
node Must {
    slug: String @key
    body: String?
    vec: Vector(4) @embed("body")
}
"""
INSERT = "query q($slug: String, $body: String?) { insert Note { slug: $slug, body: $body } }"
REQUIRED = 'query q($body: String?) { insert Must { slug: "m", body: $body } }'
ONE = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture(autouse=True)
def _on_write(monkeypatch: pytest.MonkeyPatch, _mock_provider: None) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_ON_WRITE")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return notes_graph(tmp_path, SCHEMA)


@pytest.fixture
def remote(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A provider behind HTTP that answers from a script and is asked once per call."""
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", stand_in.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "1")
    return stand_in


def insert(graph: Graph, slug: str, body: str | None) -> int:
    return graph.mutate(INSERT, {"slug": slug, "body": body}).embedded


def asked(remote: StandIn) -> list[list[str]]:
    return [request.body["input"] for request in remote.requests]


# ---- mutations


def test_an_insert_embeds_its_text(graph: Graph) -> None:
    assert [insert(graph, "a", "x"), insert(graph, "b", " "), insert(graph, "c", None)] == [1, 0, 0]
    assert vectors(graph) == {"a": pytest.approx(of("x")), "b": None, "c": None}
    assert graph.embed(engine="local").commit is None


def test_a_vector_that_is_given_stays_also_a_null(graph: Graph) -> None:
    given = "query q($vec: Vector(4)?) { insert Note { slug: $slug, body: $body, vec: $vec } }"
    given = given.replace("q(", "q($slug: String, $body: String, ")
    for slug, vector in {"a": GIVEN, "b": None}.items():
        assert graph.mutate(given, {"slug": slug, "body": "x", "vec": vector}).embedded == 0
    assert vectors(graph) == {"a": GIVEN, "b": None}


def test_a_vector_that_must_not_be_null_is_embedded_and_needs_a_text(graph: Graph) -> None:
    assert graph.mutate(REQUIRED, {"body": "x"}).embedded == 1
    found = graph.query("query q() { match { $n: Must } return { $n.vec } }").to_pylist()
    assert found == [{"n.vec": pytest.approx(of("x"))}]
    for blank in (None, "  "):
        with pytest.raises(BadRequestError, match="`body` has no text that it could be embedded from"):
            graph.mutate(REQUIRED, {"body": blank})


def test_an_update_embeds_texts_that_change_and_clears_the_vectors_of_those_that_go(graph: Graph) -> None:
    insert(graph, "a", "x")
    update = 'query q($body: String?) { update Note set { body: $body } where slug = "a" }'
    made = {}
    for body in ("x", "y", "", "z", None):
        embedded = graph.mutate(update, {"body": body}).embedded
        made[body] = embedded, vectors(graph)["a"]
    blank = (0, None)
    assert made == {
        "x": (0, pytest.approx(of("x"))),
        "y": (1, pytest.approx(of("y"))),
        "": blank,
        "z": (1, pytest.approx(of("z"))),
        None: blank,
    }


def test_the_last_statement_about_a_row_decides(graph: Graph, remote: StandIn) -> None:
    remote.replies = [openai_reply(ONE, ONE)]
    result = graph.mutate(
        """query q($vec: Vector(4)) {
            insert Note { slug: "a", body: "first" }
            update Note set { body: "second" } where slug = "a"
            insert Note { slug: "b", body: "given" }
            update Note set { vec: $vec } where slug = "b"
            insert Note { slug: "c", body: "gone" }
            insert Note { slug: "c" }
            insert Note { slug: "d", body: "fourth" }
        }""",
        {"vec": GIVEN},
    )
    assert (asked(remote), result.embedded) == ([["fourth", "second"]], 2)
    assert vectors(graph) == {"a": ONE, "b": GIVEN, "c": None, "d": ONE}


def test_an_upsert_embeds_new_rows_and_texts_that_change(graph: Graph, remote: StandIn) -> None:
    remote.replies = [openai_reply(ONE) for _ in range(4)]
    upsert = """query q($body: String) {
        upsert Note { slug: "same", body: "x" }
        upsert Note { slug: "other", body: $body }
        upsert Must { slug: "same", body: "x" }
        upsert Must { slug: "new", body: $body }
    }"""
    assert graph.mutate(upsert, {"body": "x"}).embedded == 2
    assert graph.mutate(upsert, {"body": "y"}).embedded == 2
    assert asked(remote) == [["x"], ["x"], ["y"], ["y"]]


def test_a_match_gives_texts_that_are_embedded_before_any_effect(graph: Graph) -> None:
    for slug in ("a", "b"):
        insert(graph, slug, slug)
    texts = 'match { $n: Note } update $n set { body: concat($n.body, "!") } return { $n.slug as slug }'
    result = graph.mutate(texts)
    assert result.embedded == 2
    assert vectors(graph) == {"a": pytest.approx(of("a!")), "b": pytest.approx(of("b!"))}
    assert {row["slug"] for row in result.rows or ()} == {"a", "b"}
    made = graph.mutate('match { $n: Note } insert Note { slug: concat($n.slug, "2"), body: $n.body }')
    assert made.embedded == 2
    assert vectors(graph)["a2"] == pytest.approx(of("a!"))


def test_a_dry_run_counts_distinct_texts_and_asks_nobody(graph: Graph, remote: StandIn) -> None:
    text = 'query q() { insert Note { slug: "a", body: "x" } insert Must { slug: "m", body: "x" } }'
    result = graph.mutate(text, dry_run=True)
    assert (result.embedded, result.commit, asked(remote)) == (2, None, [])
    assert [change.after["properties"]["vec"] for change in result.examples if change.after] == [None, None]


def test_a_provider_that_fails_leaves_everything_as_it_was(graph: Graph, remote: StandIn) -> None:
    head = graph.snapshot().commit_id
    remote.replies = [error_reply(500)]
    with pytest.raises(EmbeddingError, match="after 1 attempt") as failed:
        insert(graph, "a", "x")
    assert failed.value.http_status == 424
    assert graph.snapshot().commit_id == head


def test_lost_races_embed_nothing_again(graph: Graph, remote: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.replies = [openai_reply(ONE)]
    other = Graph.open(graph.uri)
    stage, tries = mutations.stage_mutation, []

    def after_another_writer(*arguments: Any) -> Any:
        is_mine = not tries or tries[-1] == "done"
        if is_mine and len(tries) < 2 * OPTIMISTIC_TRIES:
            tries.append("begun")
            other.mutate("query q($slug: String) { insert Note { slug: $slug } }", {"slug": str(len(tries))})
            tries.append("done")
        return stage(*arguments)

    monkeypatch.setattr(mutations, "stage_mutation", after_another_writer)
    assert insert(graph, "a", "x") == 1
    assert tries.count("done") == OPTIMISTIC_TRIES
    assert asked(remote) == [["x"]]
    assert vectors(graph)["a"] == ONE


def test_without_a_provider_only_required_vectors_are_asked_for(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(graph, "a", "x")
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    assert insert(graph, "b", "y") == 0
    set_body(graph, "a", "x2")
    assert vectors(graph) == {"a": pytest.approx(of("x")), "b": None}
    with pytest.raises(CompilerError, match=r"`vec` would be embedded from `body`, but .*OPENAI_API_KEY") as refused:
        graph.mutate(REQUIRED, {"body": "x"})
    assert [item.code for item in refused.value.diagnostics] == ["T12"]
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "nobody")
    assert insert(graph, "c", "z") == 0
    with pytest.raises(CompilerError, match="OMNIGRAPH_EMBED_PROVIDER=nobody is not a provider"):
        graph.mutate(REQUIRED, {"body": "x"})
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "off")
    with pytest.raises(CompilerError, match="OMNIGRAPH_EMBED_ON_WRITE is off"):
        graph.mutate(REQUIRED, {"body": "x"})


def test_a_vector_of_another_model_is_refused(tmp_path: Path) -> None:
    graph = notes_graph(tmp_path, SCHEMA.replace('@embed("body")', '@embed("body", model="other")'))
    with pytest.raises(BadRequestError, match=r"Note.vec come from model `other`"):
        insert(graph, "a", "x")
