"""`nearest` with a text: embedded at run time, lazily, by the model that the vectors came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.embedding.client import EmbeddingClient
from omnigraph.embedding.providers import mock_vector
from omnigraph.errors import BadRequestError, OmniError
from support.search_graphs import ZERO, append, ask, new_graph
from support.subtests import each_case

DIMENSION = 8
SCHEMA = """
node Note {
    slug: String @key  text: String?  vec: Vector(8)? @embed("text")
    exact: Vector(8)? @embed("text", model="stored/model")  bare: Vector(8)?
}
"""
VECTORS = ("vec", "exact", "bare")
TEXTS = {"a": "graph databases", "b": "Ünïcode — 東京", "c": "graph database", "d": "", "e": "x" * 5000}
BY_VECTOR = """query q($v: Vector(8)) {
    match { $n: Note } return { $n.slug as s } order { nearest($n.exact, $v) } limit 1
}"""


@pytest.fixture(autouse=True)
def _mock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path, schema=SCHEMA) as graph:
        for slug, text in TEXTS.items():
            vectors = {name: list(mock_vector(text, DIMENSION)) for name in VECTORS}
            append(graph, Note=[{"id": slug, "slug": slug, "text": text, **vectors}])
        yield graph


def nearest(graph: Graph, query: object, field: str = "vec", limit: int = 3) -> list[tuple[str, float]]:
    text = f"""query q($q: String) {{
        match {{ $n: Note }}
        return {{ $n.slug as s, nearest($n.{field}, $q) as far }}
        order {{ nearest($n.{field}, $q) }}
        limit {limit}
    }}"""
    return [(row["s"], row["far"]) for row in ask(graph, text, {"q": query})]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to embedders, in order: `created`, `closed`."""
    events: list[str] = []
    create, close = EmbeddingClient.__init__, EmbeddingClient.close

    def create_and_note(self: EmbeddingClient, *given: Any, **named: Any) -> None:
        events.append("created")
        create(self, *given, **named)

    def close_and_note(self: EmbeddingClient) -> None:
        events.append("closed")
        close(self)

    monkeypatch.setattr(EmbeddingClient, "__init__", create_and_note)
    monkeypatch.setattr(EmbeddingClient, "close", close_and_note)
    return events


# ---- what is found


@each_case("slug", TEXTS)
def test_the_same_text_is_found_at_distance_zero(notes: Graph, slug: str):
    (best, far), (_, next_far), _ = nearest(notes, TEXTS[slug])
    assert best == slug
    assert far == pytest.approx(0.0, abs=1e-6)
    assert next_far > 0.1


@each_case("slug", "abc")
def test_a_literal_is_embedded_as_a_parameter_is(notes: Graph, slug: str):
    literal = json.dumps(TEXTS[slug], ensure_ascii=False)
    rank = f"nearest($n.vec, {literal})"
    text = f"query q() {{ match {{ $n: Note }} return {{ $n.slug as s, {rank} as far }} order {{ {rank} }} limit 3 }}"
    got = [(row["s"], row["far"]) for row in ask(notes, text)]
    assert got == nearest(notes, TEXTS[slug])


def test_every_vector_property_takes_a_text_whether_it_names_a_source_or_not(notes: Graph):
    assert nearest(notes, TEXTS["a"], "bare") == nearest(notes, TEXTS["a"], "vec")


def test_a_text_ranks_behind_a_filter_and_inside_a_fusion(notes: Graph):
    text = """query q($q: String) {
        match { $n: Note  $n.slug != "a" } return { $n.slug as s }
        order { rrf(nearest($n.vec, $q), bm25($n.text, $q)) } limit 1
    }"""
    assert ask(notes, text, {"q": TEXTS["c"]}) == [{"s": "c"}]


def test_a_null_text_ranks_nothing_and_asks_nobody(notes: Graph, made: list[str]):
    text = "query q($q: String?) { match { $n: Note } return { $n } order { nearest($n.vec, $q) } limit 3 }"
    assert ask(notes, text) == []
    assert made == []


# ---- the provider


def test_without_a_key_the_error_names_the_variable(notes: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    for provider, variables in {
        "openai-compatible": ["OPENROUTER_API_KEY", "OPENAI_API_KEY"],
        "openai": ["OPENAI_API_KEY"],
        "gemini": ["GEMINI_API_KEY"],
    }.items():
        monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", provider)
        with pytest.raises(BadRequestError) as caught:
            nearest(notes, "hello")
        assert all(name in caught.value.message for name in variables)


def test_a_key_that_appears_later_is_used_without_opening_the_graph_again(
    notes: Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    with pytest.raises(BadRequestError):
        nearest(notes, TEXTS["a"])
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "on")
    assert nearest(notes, TEXTS["a"])[0][0] == "a"


def test_an_explicit_vector_needs_no_provider_and_no_key(
    notes: Graph, monkeypatch: pytest.MonkeyPatch, made: list[str]
):
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "no such provider")
    text = BY_VECTOR
    vector = list(mock_vector(TEXTS["b"], DIMENSION))
    assert ask(notes, text, {"v": vector}) == [{"s": "b"}]
    numbers = ", ".join(str(part) for part in (0, 0, 1, 0, 0, 0, 0, 0))
    literal = text.replace("$v: Vector(8)", "").replace("$v", f"[{numbers}]")
    assert len(ask(notes, literal)) == 1
    assert made == []


def test_reads_writes_and_plans_that_embed_nothing_need_no_provider(
    notes: Graph, monkeypatch: pytest.MonkeyPatch, made: list[str]
):
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "0")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "no such provider")
    notes.mutate('query w() { insert Note { slug: "z", text: "nothing is embedded at load" } }')
    assert ask(notes, 'query q() { match { $n: Note { slug: "z" } } return { $n.vec as v } }') == [{"v": None}]
    notes.explain("query q($q: String) { match { $n: Note } return { $n } order { nearest($n.vec, $q) } limit 1 }")
    notes.ensure_indices()
    assert made == []


def test_the_embedder_is_created_once_at_the_first_text_and_closed_with_the_graph(notes: Graph, made: list[str]):
    assert made == []
    nearest(notes, "first")
    nearest(notes, "second")
    nearest(notes, "third", "bare")
    assert made == ["created"]
    notes.close()
    assert made == ["created", "closed"]
    notes.close()
    assert made == ["created", "closed"]


def test_a_graph_that_never_embedded_closes_without_an_embedder(notes: Graph, made: list[str]):
    notes.close()
    assert made == []


# ---- the recorded model


def test_a_recorded_model_that_differs_is_refused_and_both_are_named(notes: Graph, monkeypatch: pytest.MonkeyPatch):
    for model in ("query/model", "stored/Model"):
        monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", model)
        # Nothing is compared where no model is recorded, and with a vector that was not embedded here.
        assert [nearest(notes, TEXTS["a"], field)[0][0] for field in ("vec", "bare")] == ["a", "a"]
        assert ask(notes, BY_VECTOR, {"v": list(mock_vector(TEXTS["c"], DIMENSION))}) == [{"s": "c"}]
        with Graph.open(notes.uri) as other, pytest.raises(BadRequestError) as caught:
            nearest(other, TEXTS["a"], "exact")
        assert all(part in caught.value.message for part in ("Note.exact", "stored/model", model))
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "stored/model")
    with Graph.open(notes.uri) as other:
        assert nearest(other, TEXTS["a"], "exact")[0][0] == "a"


def test_a_text_that_cannot_be_sent_is_refused(notes: Graph):
    with pytest.raises(OmniError):
        nearest(notes, "half a pair: \ud800")


def test_zero_is_a_vector_of_four(tmp_path: Path):
    # The dimension of the property decides, not the one of the provider.
    schema = "node Four { slug: String @key  vec: Vector(4)? }"
    with new_graph(tmp_path, schema=schema) as graph:
        vector = list(mock_vector("hello", 4))
        append(graph, Four=[{"id": "a", "slug": "a", "vec": vector}])
        text = 'query q() { match { $f: Four } return { nearest($f.vec, "hello") as far } order { far } limit 1 }'
        ((far,),) = [row.values() for row in ask(graph, text)]
        assert far == pytest.approx(0.0, abs=1e-6)
        zero = text.replace('"hello"', ZERO)
        assert ask(graph, zero) == [{"far": pytest.approx(1.0)}]
