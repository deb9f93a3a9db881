"""Vectors that records lack, made of their texts inside the tasks of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np

from omnigraph.core.arrow import Array, Rows, has_text, one_array, pa, with_vectors
from omnigraph.lang.schema.catalog import EmbeddedVector
from omnigraph.pipeline.workers import Message, Workers
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.partitions import TableAddress, open_address
from omnigraph.writes.columns import PROBE_CHUNK, texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Records that are shaped together when their texts are embedded: all of their vectors are in memory at once.
EMBEDDED_TOGETHER = 2_048


class TextEmbedder(Protocol):
    """Embeds the texts of one task."""

    def embed(self, vector: EmbeddedVector, wanted: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, in order.

        Raises:
            BadRequestError: the schema records another model, or the provider cannot be used.
            EmbeddingError: the provider failed.
        """
        ...

    def message(self) -> Message:
        """What was embedded so far, for the driver."""
        ...


class TaskEmbedding(Protocol):
    """How tasks embed texts. Travels to them."""

    def begin(self) -> TextEmbedder:
        """The embedder of one task."""
        ...


class LoadEmbedding(Protocol):
    """How one load embeds texts, as its driver sees it."""

    def inside(self, workers: Workers) -> AbstractContextManager[TaskEmbedding]:
        """How the tasks of a block embed, on these workers."""
        ...

    def count(self, message: Message) -> None:
        """A task is over that embedded texts."""
        ...


def filled(
    rows: Rows, wanted: Mapping[EmbeddedVector, NDArray[np.bool_]], embedder: TextEmbedder, stored: TableAddress | None
) -> Rows:
    """Rows with the vectors of some of them. Rows of the same id and text that are `stored` lend them theirs."""
    for vector, mask in wanted.items():
        places = np.flatnonzero(mask)
        if not len(places):
            continue
        sources = texts(rows[vector.source].take(pa.array(places)))
        ids = rows["id"].take(pa.array(places)).to_pylist()
        known = {} if stored is None else _stored_vectors(stored, vector, ids, sources)
        left = [number for number in range(len(places)) if number not in known]
        made = np.zeros((len(places), vector.dimension), np.float32)
        for number, values in known.items():
            made[number] = values
        if left:
            made[left] = embedder.embed(vector, [sources[number] for number in left])
        index = rows.column_names.index(vector.property)
        column = with_vectors(one_array(rows[vector.property]), places, made)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


def lacking(rows: Mapping[str, Array], vector: EmbeddedVector) -> NDArray[np.bool_]:
    """The records with a text and without its vector."""
    found: NDArray[np.bool_] = np.asarray(has_text(rows[vector.source])) & np.asarray(rows[vector.property].is_null())
    return found


def _stored_vectors(
    address: TableAddress, vector: EmbeddedVector, ids: Sequence[str | None], sources: Sequence[str]
) -> dict[int, NDArray[np.float32]]:
    """The vectors of rows that exist with the same text, by the places of the ids."""
    table = open_address(address)
    if not table.count_rows():
        return {}
    # Of records with the same id the later ones are looked up in vain, and embedded.
    place_of: dict[str, int] = {}
    for place, entity_id in enumerate(ids):
        if entity_id is not None:
            place_of.setdefault(entity_id, place)
    names = list(place_of)
    found: dict[int, NDArray[np.float32]] = {}
    for begin in range(0, len(names), PROBE_CHUNK):
        wanted = OneOf("id", names[begin : begin + PROBE_CHUNK])
        rows = table.read(["id", vector.source, vector.property], wanted)
        values = one_array(rows[vector.property])
        pairs = zip(texts(rows["id"]), rows[vector.source].to_pylist(), strict=True)
        for number, (entity_id, text) in enumerate(pairs):
            place = place_of[entity_id]
            if text == sources[place] and values[number].is_valid:
                found[place] = np.asarray(values[number].values, np.float32)
    return found
