"""Tasks that embed texts and keep vectors in part files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.core.budget import work_steps
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import is_ulid, new_ulid, ulid_time_ms
from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings, create_embedder
from omnigraph.embedding.contract import ApiKey, EmbedPurpose
from omnigraph.errors import OmniError
from omnigraph.pipeline.workers import Message, TaskSecret, Workers, raise_failure
from omnigraph.storage.datasets.partitions import TableAddress, open_address
from omnigraph.storage.datasets.row_changes import take_by_row_id
from omnigraph.storage.derived import DERIVED_FOLDER, EMBEDDINGS_GROUP
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ControlObjects

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Part files of computed vectors
#
# They lie below `__derived/embeddings/` of the graph, on disk and on S3 alike. A part is two objects of one name,
# which says who embedded: the vectors, and the digests of their texts, which are written last, so that a part is
# there as a whole or not at all. Parts never change. The vectors of a missing part are computed again.


_FOLDER = f"{DERIVED_FOLDER}/{EMBEDDINGS_GROUP}"
_DIGESTS = ".digests"
_VECTORS = ".vectors"
_STOP = ".stop"
_DIGEST_BYTES = 16


def text_digest(text: str) -> bytes:
    """The digest of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAddress:
    """The place of the vectors of one model and dimension. Plain values that travel to other processes."""

    root: str
    #: What the names of their parts begin with.
    prefix: str
    dimension: int


def kept_address(root: str, settings: EmbeddingSettings, dimension: int) -> KeptAddress:
    """The place of kept vectors, distinct for everything that changes the vector of a text."""
    who = f"{settings.provider}\n{settings.base_url}\n{settings.model}\n{dimension}"
    prefix = f"{sha256(who.encode()).hexdigest()[:24]}-"
    return KeptAddress(root=root, prefix=prefix, dimension=dimension)


class KeptVectors:
    """The parts at one address."""

    def __init__(self, address: KeptAddress) -> None:
        self._address = address
        self._objects: ControlObjects = ControlObjects(parse_location(address.root), durable=False)

    def parts(self) -> tuple[str, ...]:
        """The names of all parts, oldest first."""
        return tuple(name for name in self._all_parts() if name.startswith(self._address.prefix))

    def _all_parts(self) -> list[str]:
        names = self._objects.names(_FOLDER)
        return [name.removesuffix(_DIGESTS) for name in names if name.endswith(_DIGESTS)]

    def keep(self, digests: Sequence[bytes], vectors: Sequence[Sequence[float]]) -> str:
        """Keep vectors of texts; the name of their part."""
        name = self._address.prefix + new_ulid()
        self._write(name + _VECTORS, np.array(vectors, "<f4").tobytes())
        self._write(name + _DIGESTS, b"".join(digests))
        return name

    def digests(self, part: str) -> list[bytes]:
        """The digests of a part; empty when it is gone."""
        data = self._read(part + _DIGESTS) or b""
        return [data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)]

    def vectors(self, part: str) -> NDArray[np.float32] | None:
        """The vectors of a part, one per row; None when it is gone or damaged, and then all of it is gone."""
        data = self._read(part + _VECTORS) or b""
        width = self._address.dimension * 4
        found = np.frombuffer(data[: len(data) // width * width], "<f4")
        if len(data) != len(self.digests(part)) * width or not np.isfinite(found).all():
            self.remove([part])
            return None
        return found.reshape(-1, self._address.dimension)

    def remove(self, parts: Iterable[str]) -> None:
        """Delete parts; those that are gone already are fine."""
        for part in parts:
            for ending in (_DIGESTS, _VECTORS):
                self._objects.delete(f"{_FOLDER}/{part}{ending}")

    def remove_older(self, than_ms: int) -> None:
        """Delete parts made before this time, of every model."""
        made = ((part, part.rpartition("-")[2]) for part in self._all_parts())
        self.remove(part for part, ulid in made if is_ulid(ulid) and ulid_time_ms(ulid) < than_ms)

    # ---- one failure stops all tasks

    def stop(self, run: str) -> None:
        """Tell the tasks of a run that going on is useless."""
        self._write(run + _STOP, b"")

    def is_stopped(self, run: str) -> bool:
        """Whether a task of the run has failed."""
        return self._read(run + _STOP) is not None

    def forget_stop(self, run: str) -> None:
        """The run is over."""
        self._objects.delete(f"{_FOLDER}/{run}{_STOP}")

    def _write(self, name: str, data: bytes) -> None:
        self._objects.write(f"{_FOLDER}/{name}", data)

    def _read(self, name: str) -> bytes | None:
        found = self._objects.read(f"{_FOLDER}/{name}")
        return None if found is None else found.data


@lru_cache(maxsize=2)
def known_digests(address: KeptAddress, parts: tuple[str, ...]) -> Mapping[bytes, str]:
    """The parts by the digests of their texts. Cached: the tasks of a run ask for the same parts."""
    kept = KeptVectors(address)
    return {digest: part for part in parts for digest in kept.digests(part)}


def fill_vectors(
    kept: KeptVectors, parts: Iterable[str], places: Mapping[bytes, Sequence[int]], vectors: NDArray[np.float32]
) -> bool:
    """Write the vectors of texts, by digest, to their places among others; whether the parts have all of them."""
    found: set[bytes] = set()
    for part in parts:
        wanted = [(at, key) for at, key in enumerate(kept.digests(part)) if key in places]
        known = kept.vectors(part) if wanted else None
        if known is not None:
            for at, key in wanted:
                vectors[places[key]] = known[at]
                found.add(key)
    return len(found) == len(places)


# ---- Embedding tasks
#
# A task answers with counts and names of parts. It may run anywhere and more than once: vectors that it kept before
# it died are found again.


#: Texts of a task: many enough to be worth one, few enough to be run again.
_MIN_TASK_TEXTS, _MAX_TASK_TEXTS = 256, 8_192
#: Tasks that a run is cut into: in this process for progress, elsewhere to keep the last ones short.
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
    """Limits of the requests to the provider."""

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
    wanted: list[TextRows], root: str, settings: EmbeddingSettings, limits: EmbedLimits, workers: Workers
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
        missing = {key: text for key, text in by_digest.items() if key not in earlier and key not in own}
        if missing:
            own |= dict.fromkeys(missing, _embed_batch(item, missing, kept, pacer))
    parts = dict.fromkeys([*(earlier[key] for key in reused), *own.values()])
    return {"rows": len(item.rows.row_ids), "embedded": len(own), "reused": len(reused), "parts": list(parts)}


def _embed_batch(item: EmbedItem, missing: dict[bytes, str], kept: KeptVectors, pacer: Pacer) -> str:
    settings = item.settings
    if item.key is not None:
        settings = replace(settings, api_key=ApiKey(item.key.open()))
    client = _client(settings)
    vectors = pacer.run(
        len(missing),
        lambda: client.embed(list(missing.values()), dimension=item.rows.dimension, purpose=EmbedPurpose.DOCUMENT),
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
