"""Vectors of rows: kept in part files, computed by tasks, and written to tables."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from omnigraph.core.arrow import Array, Batch, Column, Rows, pa, with_vectors
from omnigraph.core.budget import work_steps
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import is_ulid, new_ulid, ulid_time_ms
from omnigraph.embedding.client import EmbeddingClient, EmbeddingSettings, create_embedder
from omnigraph.embedding.providers import ApiKey, EmbedPurpose
from omnigraph.embedding.stale_rows import TargetWork
from omnigraph.errors import OmniError
from omnigraph.frozen import frozen
from omnigraph.pipeline.copying import mark_replaced
from omnigraph.pipeline.workers import Message, TaskSecret, Workers, raise_failure
from omnigraph.storage.datasets.filters import ROW_ADDRESS, ROW_ID
from omnigraph.storage.datasets.fragments import (
    fragment_sizes,
    keep_ids,
    remove_updates,
    remove_written,
    stage_replacement,
    stage_updates,
    update_fragment,
    write_rows,
)
from omnigraph.storage.datasets.partitions import TableAddress, open_address, table_address
from omnigraph.storage.datasets.row_changes import kept_ids, take_by_row_id
from omnigraph.storage.datasets.staged import StagedWrite
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.derived import DERIVED_FOLDER, EMBEDDINGS_GROUP
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.columns import texts

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Part files of computed vectors
#
# They lie below `__derived/embeddings/` of the graph, on disk and on S3 alike. A part is two objects of one name,
# which says who embedded: the vectors, and the digests of their texts, which are written last: a part is there as a
# whole or not at all. Parts never change. The vectors of a missing part are computed again.


_FOLDER = f"{DERIVED_FOLDER}/{EMBEDDINGS_GROUP}"
_DIGESTS = ".digests"
_VECTORS = ".vectors"
_STOP = ".stop"
_DIGEST_BYTES = 16


def text_digest(text: str) -> bytes:
    """The digest of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class TextRows:
    """Rows of one state of a table whose texts need vectors."""

    table: TableAddress
    source: str
    dimension: int
    #: Sorted.
    row_ids: NDArray[np.uint64]


@frozen(kw_only=True)
class EmbedLimits:
    """Limits of the requests to the provider."""

    #: Texts that are handed over, and kept, at once: what a crash loses at most, per task.
    batch_size: int
    #: Texts per second over all tasks; None for as fast as the provider answers.
    rate: float | None


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class EmbeddedRows:
    """Rows whose vectors are kept now, and where."""

    row_ids: NDArray[np.uint64]
    parts: tuple[str, ...]
    #: Texts that the provider embedded, and texts whose vectors an earlier run had kept.
    embedded: int
    reused: int


Done = TypeVar("Done")


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

    def run(self, count: int, work: Callable[[], Done]) -> Done:
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
    worker_client(settings)
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
            release_worker_client()
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
    for batch in work_steps(_texts(item.rows, item.limits.batch_size)):
        by_digest = {text_digest(text): text for text in batch}
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
    client = worker_client(settings)
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
        yield texts(take_by_row_id(table, wanted, [rows.source])[rows.source])


#: The client of a worker process, kept for its next task: a local model takes seconds to load.
_kept_clients: dict[EmbeddingSettings, EmbeddingClient] = {}


def worker_client(settings: EmbeddingSettings) -> EmbeddingClient:
    """The client of a worker process, made for its first task with these settings."""
    if settings not in _kept_clients:
        made = create_embedder(settings)
        _close_clients()
        _kept_clients[settings] = made
    return _kept_clients[settings]


def release_worker_client() -> None:
    """Close what tasks of this process kept for the next one."""
    _close_clients()
    known_digests.cache_clear()


def _close_clients() -> None:
    while _kept_clients:
        _, client = _kept_clients.popitem()
        client.close()


# ---- From kept vectors to one staged write per table, in which nothing but vectors changes
#
# A vector is looked up by the text that its row has in the state that is written to: it cannot belong to another text.


#: So few rows, or so small a part of their fragments, are written again as whole rows, unless they have blobs.
#: Otherwise each fragment gets a file of new vectors, which costs what the vectors of all of its rows cost.
FEW_ROWS = 8_192
SMALL_PART = 8
#: Rows that one task writes again, and rows that it has in memory.
_TASK_ROWS = 200_000
_BATCH_ROWS = 4_096
_STAGE = "write vectors"


class VectorsGoneError(Exception):
    """Kept vectors were removed by another run before they were written: prepare again."""


@frozen
class Piece:
    """The place of the vectors of some rows, from the first row id to the last."""

    first: int
    last: int
    parts: tuple[str, ...]


@frozen(kw_only=True)
class ColumnEdit:
    """The new vectors of one property. Row ids are sorted."""

    property: str
    source: str
    kept: KeptAddress
    embedded: NDArray[np.uint64]
    cleared: NDArray[np.uint64]
    pieces: tuple[Piece, ...]

    def within(self, row_ids: NDArray[np.uint64]) -> ColumnEdit:
        """The part about some rows, which are sorted too."""
        first, last = int(row_ids[0]), int(row_ids[-1])
        pieces = (item for item in self.pieces if item.first <= last and first <= item.last)
        return ColumnEdit(
            property=self.property,
            source=self.source,
            kept=self.kept,
            embedded=np.intersect1d(self.embedded, row_ids, assume_unique=True),
            cleared=np.intersect1d(self.cleared, row_ids, assume_unique=True),
            pieces=tuple(pieces),
        )


@frozen(kw_only=True)
class EditItem:
    """Rows that get vectors; those of one fragment when `fragment` says so."""

    table: TableAddress
    row_ids: NDArray[np.uint64]
    edits: tuple[ColumnEdit, ...]
    fragment: int = -1


def column_edit(work: TargetWork, kept: KeptAddress, pieces: Sequence[EmbeddedRows]) -> ColumnEdit:
    """The edit that writes the kept vectors of a property."""
    return ColumnEdit(
        property=work.target.property,
        source=work.target.source,
        kept=kept,
        embedded=work.embedded,
        cleared=work.cleared,
        pieces=tuple(Piece(int(item.row_ids[0]), int(item.row_ids[-1]), item.parts) for item in pieces),
    )


def stage_edits(table: Table, edits: Sequence[ColumnEdit], workers: Workers) -> StagedWrite:
    """Write the vectors of a table; nothing is visible before the staged write is committed.

    Raises:
        VectorsGoneError: kept vectors are gone. Nothing is left behind.
    """
    touched = [ids for edit in edits for ids in (edit.embedded, edit.cleared)]
    row_ids = np.unique(np.concatenate(touched))
    groups = _by_fragment(table, row_ids)
    sizes = fragment_sizes(table)
    is_small = len(row_ids) * SMALL_PART <= sum(sizes[number] for number in groups)
    if (is_small or len(row_ids) <= FEW_ROWS) and not table.blob_columns:
        return _stage_rows(table, row_ids, edits, workers)
    items = [_item(table, ids, edits, number) for number, ids in groups.items()]
    answers = workers.run(_STAGE, edit_fragment, items, keep_failures=True)
    updates = [str(answer["update"]) for answer in answers if answer.get("update")]
    try:
        _check(answers)
        return stage_updates(table, updates)
    except BaseException:
        # Also after an interrupt: no other process knows these files.
        remove_updates(table, updates)
        raise


def _stage_rows(
    table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], workers: Workers
) -> StagedWrite:
    begins = range(0, len(row_ids), _TASK_ROWS)
    items = [_item(table, row_ids[begin : begin + _TASK_ROWS], edits) for begin in begins]
    answers = workers.run(_STAGE, rewrite_rows, items, keep_failures=True)
    fragments = [text for answer in answers for text in answer.get("fragments", ())]
    try:
        _check(answers)
        return stage_replacement(table, fragments, mark_replaced(table, row_ids, workers))
    except BaseException:
        # Also after an interrupt: no other process knows these files.
        remove_written(table, fragments)
        raise


def _check(answers: Sequence[Message]) -> None:
    for answer in answers:
        raise_failure(answer)
    if any(answer.get("is_gone") for answer in answers):
        raise VectorsGoneError


def _item(table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], fragment: int = -1) -> EditItem:
    return EditItem(
        table=table_address(table),
        row_ids=row_ids,
        edits=tuple(edit.within(row_ids) for edit in edits),
        fragment=fragment,
    )


def _by_fragment(table: Table, row_ids: NDArray[np.uint64]) -> dict[int, NDArray[np.uint64]]:
    """Rows by fragment, still sorted by id."""
    places = np.asarray(take_by_row_id(table, row_ids, [ROW_ADDRESS])[ROW_ADDRESS])
    fragments = (places >> np.uint64(32)).astype(np.int64)
    order = np.argsort(fragments, kind="stable")
    numbers, begins = np.unique(fragments[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(row_ids[order], begins[1:]), strict=True))


def edit_fragment(item: EditItem) -> Message:
    """The new vectors of one fragment as a file beside its others."""
    table = open_address(item.table)
    rows = _edited(table, item.row_ids, item.edits, [edit.property for edit in item.edits])
    if rows is None:
        return {"is_gone": True}
    rows = rows.append_column(ROW_ID, pa.array(item.row_ids))
    return {"rows": len(item.row_ids), "update": update_fragment(table, item.fragment, rows)}


def rewrite_rows(item: EditItem) -> Message:
    """Whole rows with new vectors as a fragment that takes over their ids."""
    table = open_address(item.table)
    columns = table.schema.names
    is_gone = False

    def batches() -> Iterator[Batch]:
        nonlocal is_gone
        for begin in range(0, len(item.row_ids), _BATCH_ROWS):
            ids = item.row_ids[begin : begin + _BATCH_ROWS]
            rows = _edited(table, ids, [edit.within(ids) for edit in item.edits], columns)
            if rows is None:
                is_gone = True
                return
            yield from rows.combine_chunks().to_batches()

    kept = kept_ids(table, item.row_ids)
    written = write_rows(table, batches())
    if is_gone:
        remove_written(table, written)
        return {"is_gone": True}
    return {"rows": len(item.row_ids), "fragments": keep_ids(table, written, kept)}


def _edited(
    table: Table, row_ids: NDArray[np.uint64], edits: Sequence[ColumnEdit], columns: Sequence[str]
) -> Rows | None:
    """Columns of some rows, with new vectors where an edit has them; None when kept vectors are gone."""
    rows = take_by_row_id(table, row_ids, list(dict.fromkeys([*columns, *(edit.source for edit in edits)])))
    found: dict[str, Column] = {name: rows[name] for name in columns}
    for edit in edits:
        vectors = _vectors(row_ids, rows[edit.source], rows[edit.property].combine_chunks(), edit)
        if vectors is None:
            return None
        found[edit.property] = vectors.cast(table.schema.field(edit.property).type)
    edited: Rows = pa.table(found)
    return edited


def _vectors(row_ids: NDArray[np.uint64], sources: Column, old: Array, edit: ColumnEdit) -> Array | None:
    """The vectors that rows have after an edit; None when kept ones are gone."""
    places = np.flatnonzero(np.isin(row_ids, edit.embedded))
    wanted: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, text in enumerate(texts(sources.take(pa.array(places)))):
        wanted[text_digest(text)].append(number)
    made = np.zeros((len(places), edit.kept.dimension), np.float32)
    parts = dict.fromkeys(part for piece in edit.pieces for part in piece.parts)
    if not fill_vectors(KeptVectors(edit.kept), parts, wanted, made):
        return None
    return with_vectors(with_vectors(old, places, made), np.flatnonzero(np.isin(row_ids, edit.cleared)), None)
