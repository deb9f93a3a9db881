"""Embedding as tasks: each reads the texts of some rows and keeps their vectors in part files.

A task answers with counts and names of parts. It may run anywhere and more than once: vectors that it kept before it
died are found again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from omnigraph.budget import work_steps
from omnigraph.errors import OmniError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import new_ulid
from omnigraph.pipeline.embedding.kept import (
    KeptAddress,
    KeptVectors,
    kept_address,
    known_digests,
    text_digest,
)
from omnigraph.pipeline.workers import raise_failure
from omnigraph.search.embedding.contract import EmbedPurpose
from omnigraph.search.embedding.factory import create_embedder
from omnigraph.search.embedding.keys import ApiKey
from omnigraph.storage.partitions import open_address
from omnigraph.storage.row_changes import take_by_row_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.pipeline.workers import Message, TaskSecret, Workers
    from omnigraph.search.embedding.client import EmbeddingClient
    from omnigraph.search.embedding.settings import EmbeddingSettings
    from omnigraph.storage.partitions import TableAddress

#: Texts of a task: many enough to be worth one, few enough that it is no loss when it has to run again.
_MIN_TASK_TEXTS, _MAX_TASK_TEXTS = 256, 8_192
#: Tasks that a run is cut into: in this process for progress, elsewhere so that nobody waits long for the last.
_TASKS_HERE = 2_000
_TASKS_PER_CORE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRows:
    """Rows of one state of a table whose texts need vectors."""

    table: TableAddress
    source: str
    dimension: int
    #: Sorted.
    row_ids: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedLimits:
    """How texts are handed to the provider."""

    #: Texts that are handed over, and kept, at once: what a crash loses at most, per task.
    batch_size: int
    #: Texts per second over all tasks; None for as fast as the provider answers.
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedItem:
    """The texts of one task."""

    rows: TextRows
    kept: KeptAddress
    #: Parts of earlier runs.
    parts: tuple[str, ...]
    #: Without a key: it travels sealed.
    settings: EmbeddingSettings
    key: TaskSecret | None
    limits: EmbedLimits
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedRows:
    """Rows whose vectors are kept now, and where."""

    row_ids: NDArray[np.uint64]
    parts: tuple[str, ...]
    #: Texts that the provider embedded, and texts whose vectors an earlier run had kept.
    embedded: int
    reused: int


class Pacer:
    """Makes work take at least as long as a rate allows. Each piece pays for itself, so pieces need no shared state."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep

    def run(self, count: int, work: Callable[[], Any]) -> Any:
        """Do a piece of work on `count` texts."""
        begin = self._clock()
        answer = work()
        if self._rate is not None:
            rest = count / self._rate - (self._clock() - begin)
            if rest > 0:
                self._sleep(rest)
        return answer


def embed_rows(
    wanted: list[TextRows],
    root: str,
    settings: EmbeddingSettings,
    limits: EmbedLimits,
    workers: Workers,
) -> list[list[EmbeddedRows]]:
    """Compute and keep the vectors of some rows; one list of pieces, in order, per member of `wanted`.

    Raises:
        BadRequestError: the provider cannot be used at all, for lack of a key for example.
        EmbeddingError: the provider failed for good. What was computed is kept for the next run.
    """
    client = _client(settings)
    total = sum(len(rows.row_ids) for rows in wanted)
    cores = workers.parallelism
    tasks = _TASKS_HERE if cores == 1 else cores * _TASKS_PER_CORE
    size = min(max(total // tasks, _MIN_TASK_TEXTS), _MAX_TASK_TEXTS)
    run = new_ulid()
    pieces = [
        (number, replace(rows, row_ids=rows.row_ids[begin : begin + size]))
        for number, rows in enumerate(wanted)
        for begin in range(0, len(rows.row_ids), size)
    ]
    at_once = min(cores, len(pieces))
    shared = replace(limits, rate=None if limits.rate is None else limits.rate / at_once)
    addresses = {rows.dimension: kept_address(root, settings, rows.dimension) for rows in wanted}
    parts = {dimension: KeptVectors(at).parts() for dimension, at in addresses.items()}
    key = settings.api_key
    # What seals a missing key is never opened.
    with workers.sealing("" if key is None else key.reveal()) as sealed:
        items = [
            EmbedItem(
                rows=rows,
                kept=addresses[rows.dimension],
                parts=parts[rows.dimension],
                settings=replace(settings, api_key=None),
                key=None if key is None else sealed,
                limits=shared,
                run=run,
            )
            for _, rows in pieces
        ]
        try:
            stage = f"embed {total:,} text{'' if total == 1 else 's'}"
            answers = workers.run(stage, embed_texts, items, keep_failures=True)
        finally:
            # What tasks of this process hold.
            client.close()
            _client.cache_clear()
            known_digests.cache_clear()
            KeptVectors(next(iter(addresses.values()))).forget_stop(run)
    for answer in answers:
        raise_failure(answer)
    found: list[list[EmbeddedRows]] = [[] for _ in wanted]
    for (number, rows), answer in zip(pieces, answers, strict=True):
        found[number].append(
            EmbeddedRows(
                row_ids=rows.row_ids,
                parts=tuple(answer["parts"]),
                embedded=int(answer["embedded"]),
                reused=int(answer["reused"]),
            )
        )
    return found


def embed_texts(item: EmbedItem) -> Message:
    """The task: make sure that the vector of every text is kept."""
    kept = KeptVectors(item.kept)
    if kept.is_stopped(item.run):
        return {"rows": 0}
    try:
        return _embed_texts(item, kept)
    except OmniError:
        # The client has tried again as often as it may: other tasks would only wait for the same end.
        kept.stop(item.run)
        raise


def _embed_texts(item: EmbedItem, kept: KeptVectors) -> Message:
    earlier = known_digests(item.kept, item.parts)
    own: dict[bytes, str] = {}
    reused: set[bytes] = set()
    pacer = Pacer(item.limits.rate)
    for texts in work_steps(_texts(item.rows, item.limits.batch_size)):
        by_digest = {text_digest(text): text for text in texts}
        reused |= by_digest.keys() & earlier.keys()
        missing = {
            key: text for key, text in by_digest.items() if key not in earlier and key not in own
        }
        if missing:
            own |= dict.fromkeys(missing, _embed_batch(item, missing, kept, pacer))
    parts = dict.fromkeys([*(earlier[key] for key in reused), *own.values()])
    return {
        "rows": len(item.rows.row_ids),
        "embedded": len(own),
        "reused": len(reused),
        "parts": list(parts),
    }


def _embed_batch(
    item: EmbedItem, missing: dict[bytes, str], kept: KeptVectors, pacer: Pacer
) -> str:
    settings = item.settings
    if item.key is not None:
        settings = replace(settings, api_key=ApiKey(item.key.open()))
    client = _client(settings)
    vectors = pacer.run(
        len(missing),
        lambda: client.embed(
            list(missing.values()), dimension=item.rows.dimension, purpose=EmbedPurpose.DOCUMENT
        ),
    )
    part = kept.keep(list(missing), vectors)
    reach(Failpoint.EMBED_VECTORS_KEPT)
    return part


def _texts(rows: TextRows, batch_size: int) -> Iterator[list[str]]:
    table = open_address(rows.table)
    for begin in range(0, len(rows.row_ids), batch_size):
        wanted = rows.row_ids[begin : begin + batch_size]
        column: Any = take_by_row_id(table, wanted, [rows.source])[rows.source]
        yield column.to_pylist()


@lru_cache(maxsize=1)
def _client(settings: EmbeddingSettings) -> EmbeddingClient:
    """The client of a worker process, kept for its next task: a local model takes seconds to load."""
    return create_embedder(settings)
