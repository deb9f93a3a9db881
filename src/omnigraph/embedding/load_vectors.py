"""The vectors of the texts that a load brings: made by its tasks, and kept beside the graph until it is committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.budget import work_steps
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.embedding.client import EmbeddingSettings
from omnigraph.embedding.on_write import is_served
from omnigraph.embedding.providers import ApiKey, EmbedPurpose, check_model
from omnigraph.embedding.row_vectors import (
    KeptAddress,
    KeptVectors,
    fill_vectors,
    kept_address,
    known_digests,
    release_worker_client,
    text_digest,
    worker_client,
)
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog, EmbeddedVector, embedded_vectors
from omnigraph.pipeline.shape.embedding import TaskEmbedding
from omnigraph.pipeline.workers import Message, TaskSecret, Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Texts that are handed to the provider, and kept, at once: what a crash loses at most, per task.
_BATCH_TEXTS = 256


class LoadVectors:
    """Embeds the texts of one load, and counts them."""

    def __init__(self, root: str, catalog: Catalog, *, is_dry_run: bool) -> None:
        self._settings = EmbeddingSettings.from_environment()
        self._is_dry_run = is_dry_run
        dimensions = {vector.dimension for item in catalog.nodes.values() for vector in embedded_vectors(item)}
        self._addresses = {size: kept_address(root, self._settings, size) for size in dimensions}
        self._parts: defaultdict[int, set[str]] = defaultdict(set)
        #: Texts that the provider embedded, or would.
        self.embedded = 0

    @contextmanager
    def inside(self, workers: Workers) -> Iterator[TaskEmbedding]:
        """How the tasks of a block embed; what earlier ones kept is found again."""
        key = self._settings.api_key
        with ExitStack() as stack:
            # What tasks of this process hold.
            stack.callback(release_worker_client)
            yield LoadTaskEmbedding(
                addresses=self._addresses,
                parts={size: KeptVectors(address).parts() for size, address in self._addresses.items()},
                settings=replace(self._settings, api_key=None),
                key=None if key is None else stack.enter_context(workers.sealing(key.reveal())),
                is_dry_run=self._is_dry_run,
            )

    def serves(self, vector: EmbeddedVector) -> bool:
        """Whether texts get this vector at all."""
        return is_served(vector, self._settings.model)

    def count(self, message: Message) -> None:
        """A task is over that embedded texts."""
        self.embedded += int(message["embedded"])
        for size, parts in message["parts"].items():
            self._parts[int(size)].update(parts)

    def forget(self) -> None:
        """The load is committed: its vectors are in the graph."""
        for size, parts in self._parts.items():
            KeptVectors(self._addresses[size]).remove(parts)


@frozen(kw_only=True)
class LoadTaskEmbedding(TaskEmbedding):
    """How tasks embed: plain values, and a key that travels sealed."""

    #: By dimension: where vectors are kept, and the parts that were there before.
    addresses: Mapping[int, KeptAddress]
    parts: Mapping[int, tuple[str, ...]]
    settings: EmbeddingSettings
    key: TaskSecret | None
    is_dry_run: bool

    def begin(self) -> LoadTaskVectors:
        """The embedder of one task."""
        return LoadTaskVectors(self)


class LoadTaskVectors:
    """The vectors of the texts of one task."""

    def __init__(self, plan: LoadTaskEmbedding) -> None:
        self._plan = plan
        #: By dimension, the parts with the digests of texts that this task met.
        self._own: defaultdict[int, dict[bytes, str]] = defaultdict(dict)
        self._used: defaultdict[int, set[str]] = defaultdict(set)
        #: By dimension, the parts whose digests are known.
        self._seen = {size: set(parts) for size, parts in plan.parts.items()}
        self._embedded = 0

    def embed(self, vector: EmbeddedVector, wanted: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, in order: kept ones first, and what the provider makes of the others."""
        plan, size = self._plan, vector.dimension
        check_model(vector.model, plan.settings.model, str(vector), EmbedPurpose.DOCUMENT)
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        text_of: dict[bytes, str] = {}
        for place, text in enumerate(wanted):
            digest = text_digest(text)
            places[digest].append(place)
            text_of[digest] = text
        made = np.zeros((len(wanted), size), np.float32)
        earlier, own = known_digests(plan.addresses[size], plan.parts[size]), self._own[size]
        part_of = {digest: part for digest in places if (part := own.get(digest) or earlier.get(digest))}
        missing = [digest for digest in places if digest not in part_of]
        if plan.is_dry_run:
            self._embedded += len(missing)
            own.update(dict.fromkeys(missing, "counted"))
            return made
        kept = KeptVectors(plan.addresses[size])
        known = {digest: places[digest] for digest in part_of}
        if not fill_vectors(kept, dict.fromkeys(part_of.values()), known, made):
            # They were removed meanwhile.
            missing = list(places)
        self._used[size].update(part_of.values())
        for wanted_now in work_steps(_batches(missing)):
            self._learn(kept, size)
            met = {digest: part for digest in wanted_now if (part := own.get(digest)) is not None}
            known = {digest: places[digest] for digest in met}
            if met and fill_vectors(kept, dict.fromkeys(met.values()), known, made):
                self._used[size].update(met.values())
            else:
                met = {}
            batch = [digest for digest in wanted_now if digest not in met]
            if not batch:
                continue
            vectors = self._ask([text_of[digest] for digest in batch], size)
            part = kept.keep(batch, vectors)
            reach(Failpoint.EMBED_VECTORS_KEPT)
            own.update(dict.fromkeys(batch, part))
            self._seen[size].add(part)
            self._used[size].add(part)
            self._embedded += len(batch)
            for digest, values in zip(batch, vectors, strict=True):
                made[places[digest]] = values
        return made

    def _learn(self, kept: KeptVectors, size: int) -> None:
        """Take note of what other tasks of the load have kept meanwhile: no text is embedded in each of them."""
        for part in kept.parts():
            if part not in self._seen[size]:
                self._seen[size].add(part)
                self._own[size].update(dict.fromkeys(kept.digests(part), part))

    def _ask(self, texts: Sequence[str], size: int) -> list[tuple[float, ...]]:
        plan = self._plan
        settings = plan.settings
        if plan.key is not None:
            settings = replace(settings, api_key=ApiKey(plan.key.open()))
        return worker_client(settings).embed(texts, dimension=size, purpose=EmbedPurpose.DOCUMENT)

    def message(self) -> Message:
        """What was embedded so far, and the parts that hold it."""
        parts = {str(size): sorted(names) for size, names in self._used.items()}
        return {"embedded": self._embedded, "parts": parts}


def _batches(digests: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    return (digests[begin : begin + _BATCH_TEXTS] for begin in range(0, len(digests), _BATCH_TEXTS))
