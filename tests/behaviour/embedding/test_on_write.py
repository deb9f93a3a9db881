"""Writes embed the texts that they bring without a vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from omnigraph.commit.transaction import OPTIMISTIC_TRIES
from omnigraph.core.failpoints import Failpoint, watched
from omnigraph.embedding import load_vectors
from omnigraph.errors import BadRequestError, CompilerError, EmbeddingError, LoadRejectedError
from omnigraph.graph import mutations
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema.catalog import embedded_vectors
from omnigraph.pipeline.workers import LocalWorkers, Silent
from support.embedded_notes import (
    GIVEN,
    KEY,
    StandIn,
    error_reply,
    kept_files,
    notes_graph,
    of,
    openai_reply,
    set_body,
    vectors,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
ONE, TWO, THREE = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]


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


def test_a_vector_of_another_model_is_left_out_where_it_may_be(tmp_path: Path) -> None:
    graph = notes_graph(tmp_path, SCHEMA.replace('@embed("body")', '@embed("body", model="other")'))
    assert insert(graph, "a", "x") == 0
    assert load(graph, {"slug": "b", "body": "y"}).embedded == 0
    assert vectors(graph) == {"a": None, "b": None}
    with pytest.raises(BadRequestError, match=r"Must.vec come from model `other`.*OMNIGRAPH_EMBED_MODEL=other"):
        graph.mutate(REQUIRED, {"body": "x"})
    with pytest.raises(BadRequestError, match=r"Must.vec come from model `other`"):
        load(graph, {"slug": "b", "body": "y"}, type_name="Must")


# ---- loads


def load(graph: Graph, *records: dict[str, Any], mode: str = "merge", type_name: str = "Note", **rest: Any) -> Any:
    path = Path(graph.uri).parent / "records.jsonl"
    path.write_text("".join(f"{json.dumps({'type': type_name, 'data': item})}\n" for item in records))
    return graph.load(path, mode=mode, **{"engine": "local", **rest})


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite", "patch"])
def test_a_load_embeds_texts_that_come_without_their_vectors(graph: Graph, mode: str) -> None:
    result = load(
        graph,
        {"slug": "a", "body": "x"},
        {"slug": "b", "body": "x"},
        {"slug": "c", "body": "  "},
        {"slug": "d", "body": "y", "vec": GIVEN},
        {"slug": "e"},
        mode=mode,
        upsert=mode == "patch",
    )
    assert result.embedded == 1
    expected = {"a": pytest.approx(of("x")), "b": pytest.approx(of("x")), "c": None, "d": GIVEN, "e": None}
    assert vectors(graph) == expected
    assert kept_files(graph) == []
    assert graph.embed(engine="local").commit is None


@pytest.mark.parametrize("mode", ["merge", "overwrite", "patch"])
def test_a_text_that_stays_keeps_its_vector(graph: Graph, remote: StandIn, mode: str) -> None:
    remote.replies = [openai_reply(ONE, GIVEN)]
    assert load(graph, {"slug": "a", "body": "x"}, {"slug": "b", "body": "y"}).embedded == 2
    remote.replies = [openai_reply(ONE)]
    assert load(graph, {"slug": "a", "body": "x"}, {"slug": "b", "body": "z"}, mode=mode).embedded == 1
    assert asked(remote) == [["x", "y"], ["z"]]
    assert vectors(graph) == {"a": ONE, "b": ONE}


def test_a_patch_embeds_only_what_it_brings(graph: Graph) -> None:
    load(graph, *({"slug": slug, "body": slug} for slug in "abcd"))
    patch = [
        {"slug": "a", "body": "new"},
        {"slug": "b", "body": "new", "vec": GIVEN},
        {"slug": "c", "body": None},
        {"slug": "d", "vec": None},
    ]
    assert load(graph, *patch, mode="patch").embedded == 1
    assert vectors(graph) == {"a": pytest.approx(of("new")), "b": GIVEN, "c": None, "d": None}


@pytest.mark.parametrize("mode", ["merge", "patch"])
def test_records_without_a_text_lack_a_vector_that_must_not_be_null(graph: Graph, mode: str) -> None:
    good, bad = {"slug": "a", "body": "x"}, {"slug": "b", "body": " "}
    choices = {"type_name": "Must", "mode": mode, "upsert": mode == "patch"}
    with pytest.raises(LoadRejectedError) as refused:
        load(graph, good, bad, **choices)
    assert refused.value.report.total == 1
    # The text was embedded before the other record was found to be bad, and its vector was kept.
    assert load(graph, good, **choices).embedded == 0
    found = graph.query("query q() { match { $n: Must } return { $n.vec } }").to_pylist()
    assert found == [{"n.vec": pytest.approx(of("x"))}]


def test_a_dry_run_of_a_load_counts_texts_and_keeps_nothing(graph: Graph, remote: StandIn) -> None:
    records = [{"slug": slug, "body": body} for slug, body in {"a": "x", "b": "y", "c": "x"}.items()]
    result = load(graph, *records, dry_run=True)
    assert (result.embedded, result.commit, asked(remote), kept_files(graph)) == (2, None, [], [])


def test_a_provider_that_fails_in_a_load_writes_nothing_and_what_was_paid_for_is_kept(
    graph: Graph, remote: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_vectors, "_BATCH_TEXTS", 1)
    head = graph.snapshot().commit_id
    records = [{"slug": slug, "body": slug} for slug in "ab"]
    remote.replies = [openai_reply(ONE), error_reply(500)]
    with pytest.raises(EmbeddingError, match="after 1 attempt"):
        load(graph, *records)
    assert graph.snapshot().commit_id == head
    assert len(kept_files(graph)) == 2
    remote.replies = [openai_reply(ONE)]
    assert load(graph, *records).embedded == 1
    assert asked(remote) == [["a"], ["b"], ["b"]]
    assert vectors(graph) == {"a": ONE, "b": ONE}
    assert kept_files(graph) == []


def test_a_text_in_two_tasks_of_one_load_is_embedded_once(graph: Graph, remote: StandIn) -> None:
    remote.replies = [openai_reply(ONE, TWO), openai_reply(THREE)]
    catalog = graph.catalog()
    (vector,) = embedded_vectors(catalog.nodes["Note"])
    load_of_two = load_vectors.LoadVectors(graph.uri, catalog, is_dry_run=False)
    with load_of_two.inside(LocalWorkers(Silent())) as plan:
        first, second = plan.begin(), plan.begin()
        assert first.embed(vector, ["a", "b", "a"]).tolist() == [ONE, TWO, ONE]
        assert second.embed(vector, ["b", "c"]).tolist() == [TWO, THREE]
        assert second.embed(vector, ["a"]).tolist() == [ONE]
        for task in (first, second):
            load_of_two.count(task.message())
    assert (asked(remote), load_of_two.embedded) == ([["a", "b"], ["c"]], 3)
    load_of_two.forget()
    assert kept_files(graph) == []


def test_a_load_that_loses_a_race_embeds_once(graph: Graph, remote: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.replies = [openai_reply(ONE)]
    other, done = Graph.open(graph.uri), []

    def win(place: Failpoint) -> None:
        if place is Failpoint.LOAD_CHECKED and not done:
            done.append(place)
            other.mutate('query q() { insert Note { slug: "other" } }')

    with watched(win):
        assert load(graph, {"slug": "a", "body": "x"}).embedded == 1
    assert (asked(remote), len(done)) == ([["x"]], 1)
    assert vectors(graph) == {"a": ONE, "other": None}


def test_without_a_provider_loads_take_vectors_as_they_come(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    assert load(graph, {"slug": "a", "body": "x"}).embedded == 0
    assert vectors(graph) == {"a": None}
    with pytest.raises(LoadRejectedError, match="vec"):
        load(graph, {"slug": "a", "body": "x"}, type_name="Must")


def test_a_frame_is_embedded_too(graph: Graph) -> None:
    frame = pa.table({"slug": ["a", "b"], "body": ["x", None]})
    result = graph.load(frames={"Note": frame}, mode="append", engine="local")
    assert result.embedded == 1
    assert vectors(graph) == {"a": pytest.approx(of("x")), "b": None}


def test_executors_embed_the_texts_of_their_parts_with_a_sealed_key(
    graph: Graph, spark: SparkSession, remote: StandIn
) -> None:
    remote.replies = [openai_reply(ONE)]
    assert load(graph, {"slug": "a", "body": "x"}, engine="spark", spark=spark).embedded == 1
    remote.replies = [error_reply(400)]
    with pytest.raises(EmbeddingError, match="HTTP 400"):
        load(graph, {"slug": "b", "body": "y"}, engine="spark", spark=spark)
    assert vectors(graph) == {"a": ONE}
    assert {request.headers["authorization"] for request in remote.requests} == {f"Bearer {KEY}"}
    assert kept_files(graph) == []
