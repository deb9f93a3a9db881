"""`Graph.embed`: which rows get a vector, and what a commit of vectors changes."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.embedding import row_job, row_vectors
from omnigraph.embedding.client import EmbeddingSettings, ProviderName
from omnigraph.embedding.providers import ApiKey, mock_vector
from omnigraph.embedding.row_vectors import (
    EmbedItem,
    EmbedLimits,
    KeptVectors,
    Pacer,
    TextRows,
    embed_rows,
    kept_address,
    text_digest,
)
from omnigraph.errors import BadRequestError, ConflictError, EmbeddingError, QueryTimeoutError
from omnigraph.graph.graph import Graph
from omnigraph.spark.workers import seal
from omnigraph.storage.datasets.partitions import TableAddress
from support.embedded_notes import (
    GIVEN,
    KEY,
    SCHEMA,
    StandIn,
    counts,
    embed,
    error_reply,
    fragments,
    kept_files,
    note,
    notes_graph,
    of,
    openai_reply,
    put,
    set_body,
    stored_rows,
    vectors,
)
from support.graphs import stopped_everywhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.spark.workers import Sealed


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return notes_graph(tmp_path)


def test_rows_with_a_text_and_no_vector_get_one_in_a_single_commit(graph: Graph, tmp_path: Path) -> None:
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


def test_a_text_that_changed_gets_a_new_vector_and_all_others_keep_theirs(graph: Graph, tmp_path: Path) -> None:
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


def test_a_vector_goes_with_its_text_but_one_that_never_had_a_text_stays(graph: Graph, tmp_path: Path) -> None:
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
def test_history_that_was_cleaned_up_is_reported(graph: Graph, tmp_path: Path, commits: bool) -> None:
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


def test_a_branch_is_embedded_by_itself_and_a_merge_brings_its_vectors(graph: Graph, tmp_path: Path) -> None:
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


def test_a_merge_that_brings_only_a_text_leaves_an_outdated_vector(graph: Graph, tmp_path: Path) -> None:
    put(graph, tmp_path, note("a", "x"), note("b", "y"))
    embed(graph)
    graph.create_branch("work")
    set_body(graph, "a", "x2", branch="work")
    set_body(graph, "b", "y2")
    graph.merge("work")
    assert counts(embed(graph)) == (0, 2, 0)


def test_a_row_that_a_merge_took_is_judged_by_the_branch_it_came_from(graph: Graph, tmp_path: Path) -> None:
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
def test_nothing_but_vectors_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, branch: str) -> None:
    monkeypatch.setattr(row_vectors, "FEW_ROWS", few)
    monkeypatch.setattr(row_vectors, "SMALL_PART", 1000)
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
    monkeypatch.setattr(row_vectors, "FEW_ROWS", 0)
    monkeypatch.setattr(row_vectors, "SMALL_PART", 3)
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
    assert found.to_pylist() == [{"n.vec": pytest.approx(of("x")), "n.top": pytest.approx(mock_vector("t2", 3))}]


# ---- requests


def test_a_dry_run_counts_and_asks_nobody(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ---- Runs of `Graph.embed` that do not go smoothly: failing providers, lost races, limits; and where they happen


TEXTS = {"a": "x", "b": "y", "c": "z"}


@pytest.fixture
def runs_graph(tmp_path: Path) -> Graph:
    runs_graph = notes_graph(tmp_path)
    put(runs_graph, tmp_path, *(note(name, text) for name, text in TEXTS.items()))
    return runs_graph


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


def test_vectors_that_were_paid_for_are_not_asked_for_again(runs_graph: Graph, remote: StandIn) -> None:
    ok = openai_reply([1.0, 0.0, 0.0, 0.0])
    remote.replies = [ok, error_reply(500), error_reply(503)]
    head = runs_graph.snapshot().commit_id
    with pytest.raises(EmbeddingError, match="after 2 attempts"):
        embed(runs_graph, batch_size=1)
    assert runs_graph.snapshot().commit_id == head
    assert vectors(runs_graph) == {"a": None, "b": None, "c": None}
    runs_graph.cleanup(keep=3, confirm=True)
    assert len(kept_files(runs_graph)) == 2
    remote.replies = [error_reply(429), ok, ok]
    result = embed(runs_graph, batch_size=1)
    assert (result.embedded, result.reused) == (2, 1)
    assert set(map(tuple, vectors(runs_graph).values())) == {(1.0, 0.0, 0.0, 0.0)}
    texts = [request.body["input"] for request in remote.requests]
    assert texts == [["x"], ["y"], ["y"], ["y"], ["y"], ["z"]]
    assert kept_files(runs_graph) == []


def test_one_text_is_asked_for_once_and_requests_hold_several(
    runs_graph: Graph, tmp_path: Path, remote: StandIn
) -> None:
    put(runs_graph, tmp_path, note("d", "x"))
    remote.replies = [openai_reply(*[[1.0, 0.0, 0.0, 0.0]] * 3)]
    assert embed(runs_graph).embedded == 3
    assert sorted(remote.requests[0].body["input"]) == ["x", "y", "z"]


# ---- other writers


def test_a_writer_that_came_first_costs_only_its_own_texts(runs_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    after_embedding(monkeypatch, [lambda: set_body(runs_graph, "a", "x2")])
    result = embed(runs_graph)
    assert (result.embedded, result.reused) == (4, 0)
    wanted = {"a": of("x2"), "b": of("y"), "c": of("z")}
    assert vectors(runs_graph) == {slug: pytest.approx(vector) for slug, vector in wanted.items()}
    assert kept_files(runs_graph) == []


def test_writers_that_never_stop_end_the_run_without_a_trace(
    runs_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_job, "POLICY", replace(row_job.POLICY, tries=2))
    moves = [lambda n=n: set_body(runs_graph, "a", f"x{n}") for n in range(2)]
    after_embedding(monkeypatch, moves)
    with pytest.raises(ConflictError):
        embed(runs_graph)
    assert vectors(runs_graph) == {"a": None, "b": None, "c": None}
    assert embed(runs_graph).reused == 2


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(b"half"), _not_finite],
    ids=["removed by another run", "cut off", "no numbers"],
)
def test_kept_vectors_that_cannot_be_used_are_computed_again(
    runs_graph: Graph, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    def spoil() -> None:
        for path in kept_files(runs_graph):
            if path.suffix == ".vectors":
                damage(path)

    after_embedding(monkeypatch, [spoil])
    assert embed(runs_graph).embedded == 6
    assert vectors(runs_graph)["a"] == pytest.approx(of("x"))
    assert kept_files(runs_graph) == []


def test_kept_vectors_that_nobody_came_back_for_are_removed(runs_graph: Graph, tmp_path: Path) -> None:
    embed(runs_graph)
    address = kept_address(runs_graph.uri, EmbeddingSettings(provider=ProviderName.LOCAL), 384)
    old = KeptVectors(address).keep([text_digest("old")], [[1.0] * 384])
    young = KeptVectors(address).keep([text_digest("young")], [[1.0] * 384])
    for path in kept_files(runs_graph):
        if path.stem == old:
            path.rename(path.with_stem(address.prefix + "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    assert embed(runs_graph).commit is None
    assert {path.stem for path in kept_files(runs_graph)} == {young}


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
    monkeypatch.setattr(row_vectors, "_MIN_TASK_TEXTS", 1)
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


def test_a_small_run_needs_no_spark(runs_graph: Graph) -> None:
    # Other tests of this process may have imported it.
    known = {name for name in sys.modules if name.startswith(("pyspark", "py4j"))}
    assert runs_graph.embed().commit is not None
    assert {name for name in sys.modules if name.startswith(("pyspark", "py4j"))} == known


def test_spark_embeds_writes_and_goes_on_after_a_failure_with_a_key_that_travelled_sealed(
    tmp_path: Path, spark: SparkSession, remote: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_vectors, "_MIN_TASK_TEXTS", 2)
    runs_graph = notes_graph(tmp_path)
    for begin in (0, 3):
        put(runs_graph, tmp_path, *[note(str(n), f"text {n}") for n in range(begin, begin + 3)])
    reply = openai_reply(*[[0.0, 1.0, 0.0, 0.0]] * 2)
    remote.replies = [reply, error_reply(400), reply, reply, reply]
    with pytest.raises(EmbeddingError, match="HTTP 400"):
        runs_graph.embed(engine="spark", spark=spark)
    asked = len(remote.requests)
    remote.replies = [reply] * 3
    result = runs_graph.embed(engine="spark", spark=spark)
    assert result.embedded + result.reused == 6
    assert result.reused == 2 * (asked - 1)
    assert set(map(tuple, vectors(runs_graph).values())) == {(0.0, 1.0, 0.0, 0.0)}
    assert {request.headers["authorization"] for request in remote.requests} == {f"Bearer {KEY}"}
    assert counts(embed(runs_graph, dry_run=True)) == (0, 0, 0)


# ---- runs that are stopped


def test_a_run_that_is_stopped_writes_nothing_and_keeps_its_vectors(runs_graph: Graph) -> None:
    looks = stopped_everywhere(runs_graph.uri, lambda signal: embed(runs_graph, batch_size=1, cancel=signal))
    assert looks > 3
    assert vectors(runs_graph) == {name: pytest.approx(of(text)) for name, text in TEXTS.items()}


def test_a_run_that_takes_too_long_says_so(runs_graph: Graph) -> None:
    with pytest.raises(QueryTimeoutError, match="the embedding took longer than 1e-09 s"):
        embed(runs_graph, timeout_s=1e-9)
    assert len(runs_graph.commits()) == 2


# ---- Random histories: what `embed` finds is what a model that watches every write expects


OTHER = [1.0, 0.0, 0.0, 0.0]


@dataclass
class Row:
    """A note, and whether its text changed after its vector."""

    text: str | None
    vec: list[float] | None
    is_outdated: bool = False

    def write(self, text: str | None, vec: list[float] | None) -> None:
        if vec != self.vec:
            self.is_outdated = False
        elif text != self.text:
            self.is_outdated = True
        self.text, self.vec = text, vec


def expected(rows: dict[str, Row]) -> tuple[int, int, int]:
    changed = [row for row in rows.values() if row.vec is not None and row.is_outdated]
    return (
        sum(row.vec is None and row.text is not None for row in rows.values()),
        sum(row.text is not None for row in changed),
        sum(row.text is None for row in changed),
    )


SLUGS = st.sampled_from(["a", "b"])
HISTORIES_TEXTS = st.sampled_from(["x", "y", None])
STEPS = st.one_of(
    st.tuples(st.just("load"), SLUGS, HISTORIES_TEXTS, st.sampled_from([None, GIVEN, OTHER])),
    st.tuples(st.just("text"), SLUGS, HISTORIES_TEXTS),
    st.tuples(st.just("delete"), SLUGS),
    st.tuples(st.just("embed")),
)


@settings(max_examples=6)
@given(steps=st.lists(STEPS, min_size=4, max_size=9))
def test_embed_finds_what_changed_since(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = notes_graph(Path(folder))
        rows = {"a": Row("x", GIVEN), "b": Row("y", None)}
        put(graph, Path(folder), *[note(slug, row.text, row.vec) for slug, row in rows.items()])
        for step in steps:
            match step:
                case ("load", str(slug), text, vec):
                    put(graph, Path(folder), note(slug, text, vec))
                    if slug in rows:
                        rows[slug].write(text, vec)
                    else:
                        rows[slug] = Row(text, vec)
                case ("text", str(slug), text):
                    set_body(graph, slug, text)
                    if slug in rows:
                        rows[slug].write(text, rows[slug].vec)
                case ("delete", str(slug)):
                    query = "query q($slug: String) { delete Note where slug = $slug }"
                    graph.mutate(query, {"slug": slug})
                    rows.pop(slug, None)
                case _:
                    assert counts(embed(graph)) == expected(rows)
                    for row in rows.values():
                        if row.vec is None or row.is_outdated:
                            row.vec = None if row.text is None else of(row.text)
                        row.is_outdated = False
        assert counts(embed(graph, dry_run=True)) == expected(rows)
        assert vectors(graph) == {slug: row.vec for slug, row in rows.items()}
