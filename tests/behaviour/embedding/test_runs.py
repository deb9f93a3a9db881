"""Runs of `Graph.embed` that do not go smoothly: failing providers, lost races, limits; and where they happen."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from omnigraph.embedding import row_job, vector_tasks
from omnigraph.embedding.client import EmbeddingSettings, ProviderName
from omnigraph.embedding.contract import ApiKey
from omnigraph.embedding.vector_tasks import (
    EmbedItem,
    EmbedLimits,
    KeptVectors,
    Pacer,
    TextRows,
    embed_rows,
    kept_address,
    text_digest,
)
from omnigraph.errors import ConflictError, EmbeddingError, QueryTimeoutError
from omnigraph.graph.graph import Graph
from omnigraph.spark.workers import seal
from omnigraph.storage.datasets.partitions import TableAddress
from support.embedded_notes import (
    counts,
    embed,
    kept_files,
    note,
    notes_graph,
    of,
    put,
    set_body,
    vectors,
)
from support.embedding_provider import KEY, StandIn, error_reply, openai_reply
from support.stopping import stopped_everywhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.spark.workers import Sealed


TEXTS = {"a": "x", "b": "y", "c": "z"}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = notes_graph(tmp_path)
    put(graph, tmp_path, *(note(name, text) for name, text in TEXTS.items()))
    return graph


@pytest.fixture
def remote(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A provider behind HTTP; a text has the vector that the test scripts for its request."""
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", stand_in.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "2")
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "0")
    return stand_in


def after_embedding(monkeypatch: pytest.MonkeyPatch, actions: list[Callable[[], None]]) -> None:
    """After vectors were computed, and before they are written, do one action per try."""
    real = row_job.embed_rows

    def embed_rows(*arguments: Any) -> Any:
        found = real(*arguments)
        if actions:
            actions.pop(0)()
        return found

    monkeypatch.setattr(row_job, "embed_rows", embed_rows)


def _not_finite(path: Path) -> None:
    path.write_bytes(np.full(len(path.read_bytes()) // 4, np.nan, "<f4").tobytes())


# ---- a provider that fails


def test_vectors_that_were_paid_for_are_not_asked_for_again(graph: Graph, remote: StandIn) -> None:
    ok = openai_reply([1.0, 0.0, 0.0, 0.0])
    remote.replies = [ok, error_reply(500), error_reply(503)]
    head = graph.snapshot().commit_id
    with pytest.raises(EmbeddingError, match="after 2 attempts"):
        embed(graph, batch_size=1)
    assert graph.snapshot().commit_id == head
    assert vectors(graph) == {"a": None, "b": None, "c": None}
    graph.cleanup(keep=3, confirm=True)
    assert len(kept_files(graph)) == 2
    remote.replies = [error_reply(429), ok, ok]
    result = embed(graph, batch_size=1)
    assert (result.embedded, result.reused) == (2, 1)
    assert set(map(tuple, vectors(graph).values())) == {(1.0, 0.0, 0.0, 0.0)}
    texts = [request.body["input"] for request in remote.requests]
    assert texts == [["x"], ["y"], ["y"], ["y"], ["y"], ["z"]]
    assert kept_files(graph) == []


def test_one_text_is_asked_for_once_and_requests_hold_several(
    graph: Graph, tmp_path: Path, remote: StandIn
) -> None:
    put(graph, tmp_path, note("d", "x"))
    remote.replies = [openai_reply(*[[1.0, 0.0, 0.0, 0.0]] * 3)]
    assert embed(graph).embedded == 3
    assert sorted(remote.requests[0].body["input"]) == ["x", "y", "z"]


# ---- other writers


def test_a_writer_that_came_first_costs_only_its_own_texts(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_embedding(monkeypatch, [lambda: set_body(graph, "a", "x2")])
    result = embed(graph)
    assert (result.embedded, result.reused) == (4, 0)
    wanted = {"a": of("x2"), "b": of("y"), "c": of("z")}
    assert vectors(graph) == {slug: pytest.approx(vector) for slug, vector in wanted.items()}
    assert kept_files(graph) == []


def test_writers_that_never_stop_end_the_run_without_a_trace(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_job, "POLICY", replace(row_job.POLICY, tries=2))
    moves = [lambda n=n: set_body(graph, "a", f"x{n}") for n in range(2)]
    after_embedding(monkeypatch, moves)
    with pytest.raises(ConflictError):
        embed(graph)
    assert vectors(graph) == {"a": None, "b": None, "c": None}
    assert embed(graph).reused == 2


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(b"half"), _not_finite],
    ids=["removed by another run", "cut off", "no numbers"],
)
def test_kept_vectors_that_cannot_be_used_are_computed_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    def spoil() -> None:
        for path in kept_files(graph):
            if path.suffix == ".vectors":
                damage(path)

    after_embedding(monkeypatch, [spoil])
    assert embed(graph).embedded == 6
    assert vectors(graph)["a"] == pytest.approx(of("x"))
    assert kept_files(graph) == []


def test_kept_vectors_that_nobody_came_back_for_are_removed(graph: Graph, tmp_path: Path) -> None:
    embed(graph)
    address = kept_address(graph.uri, EmbeddingSettings(provider=ProviderName.LOCAL), 384)
    old = KeptVectors(address).keep([text_digest("old")], [[1.0] * 384])
    young = KeptVectors(address).keep([text_digest("young")], [[1.0] * 384])
    for path in kept_files(graph):
        if path.stem == old:
            path.rename(path.with_stem(address.prefix + "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    assert embed(graph).commit is None
    assert {path.stem for path in kept_files(graph)} == {young}


# ---- limits


def test_a_rate_makes_batches_take_their_time() -> None:
    now, pauses = [0.0], []
    pacer = Pacer(10, clock=lambda: now[0], sleep=pauses.append)

    def slow() -> str:
        now[0] += 3.0
        return "done"

    assert pacer.run(20, lambda: "done") == "done"
    pacer.run(20, slow)
    pacer.run(40, slow)
    assert pauses == [2.0, 1.0]
    Pacer(None, sleep=pauses.append).run(10, slow)
    assert len(pauses) == 2


class Recording:
    """Workers that run nothing and remember what they were asked."""

    parallelism = 4

    def __init__(self) -> None:
        self.items: list[EmbedItem] = []

    def run(self, stage: str, task: object, items: list[Any], **_: object) -> list[Any]:
        self.items = items
        return [{"parts": [], "embedded": 0, "reused": 0} for _ in items]

    @contextmanager
    def sealing(self, secret: str) -> Iterator[Sealed]:
        yield seal(secret, "somewhere")[0]


@pytest.mark.parametrize(("texts", "share"), [(2, 10.0), (1000, 5.0)])
def test_the_rate_is_shared_by_all_tasks_and_the_key_travels_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: int, share: float
) -> None:
    monkeypatch.setattr(vector_tasks, "_MIN_TASK_TEXTS", 1)
    rows = TextRows(
        table=TableAddress(uri="nowhere", version=1),
        source="body",
        dimension=4,
        row_ids=np.arange(texts, dtype=np.uint64),
    )
    settings = EmbeddingSettings(provider=ProviderName.OPENAI, api_key=ApiKey(KEY))
    workers: Any = Recording()
    embed_rows([rows], str(tmp_path), settings, EmbedLimits(batch_size=8, rate=20.0), workers)
    assert {item.limits.rate for item in workers.items} == {share}
    assert sum(len(item.rows.row_ids) for item in workers.items) == texts
    assert KEY.encode() not in pickle.dumps(workers.items)


# ---- where it happens


def test_a_small_run_needs_no_spark(graph: Graph) -> None:
    # Other tests of this process may have imported it.
    known = {name for name in sys.modules if name.startswith(("pyspark", "py4j"))}
    assert graph.embed().commit is not None
    assert {name for name in sys.modules if name.startswith(("pyspark", "py4j"))} == known


def test_spark_embeds_writes_and_goes_on_after_a_failure_with_a_key_that_travelled_sealed(
    tmp_path: Path, spark: SparkSession, remote: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_tasks, "_MIN_TASK_TEXTS", 2)
    graph = notes_graph(tmp_path)
    for begin in (0, 3):
        put(graph, tmp_path, *[note(str(n), f"text {n}") for n in range(begin, begin + 3)])
    reply = openai_reply(*[[0.0, 1.0, 0.0, 0.0]] * 2)
    remote.replies = [reply, error_reply(400), reply, reply, reply]
    with pytest.raises(EmbeddingError, match="HTTP 400"):
        graph.embed(engine="spark", spark=spark)
    asked = len(remote.requests)
    remote.replies = [reply] * 3
    result = graph.embed(engine="spark", spark=spark)
    assert result.embedded + result.reused == 6
    assert result.reused == 2 * (asked - 1)
    assert set(map(tuple, vectors(graph).values())) == {(0.0, 1.0, 0.0, 0.0)}
    assert {request.headers["authorization"] for request in remote.requests} == {f"Bearer {KEY}"}
    assert counts(embed(graph, dry_run=True)) == (0, 0, 0)


# ---- runs that are stopped


def test_a_run_that_is_stopped_writes_nothing_and_keeps_its_vectors(graph: Graph) -> None:
    looks = stopped_everywhere(graph.uri, lambda signal: embed(graph, batch_size=1, cancel=signal))
    assert looks > 3
    assert vectors(graph) == {name: pytest.approx(of(text)) for name, text in TEXTS.items()}


def test_a_run_that_takes_too_long_says_so(graph: Graph) -> None:
    with pytest.raises(QueryTimeoutError, match="the embedding took longer than 1e-09 s"):
        embed(graph, timeout_s=1e-9)
    assert len(graph.commits()) == 2
