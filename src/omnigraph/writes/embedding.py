"""The texts that a mutation writes without their vectors, and the vectors that they get before it is validated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from omnigraph.core.arrow import Array, Rows, has_text, pa, pc, with_vectors
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.catalog import EmbeddedVector, embedded_vectors
from omnigraph.lang.schema.rules import Example, Required, violation_text
from omnigraph.writes.columns import TypeDef, texts
from omnigraph.writes.pending import PendingRows, TableDelta

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The vectors of texts.
Vectors = Mapping[str, Sequence[float]]


class VectorSource(Protocol):
    """Has the vectors of texts."""

    #: Whether they only stand for vectors that would be made: rules are checked with them, and nobody sees them.
    are_stand_ins: bool

    def serves(self, vector: EmbeddedVector) -> bool:
        """Whether texts get this vector at all; one that they do not get stays as it is."""
        ...

    def of(self, wanted: Mapping[EmbeddedVector, Collection[str]]) -> Mapping[EmbeddedVector, Vectors]:
        """The vectors of texts by property: all of them, or an error."""
        ...


@dataclass(slots=True)
class UnembeddedRows:
    """The rows of one mutation whose text was assigned, and its vector was not."""

    #: Whether they will get their vectors.
    are_filled: bool
    _ids: defaultdict[tuple[TableKey, EmbeddedVector], set[str]] = field(default_factory=lambda: defaultdict(set))

    def to_fill(self, definition: TypeDef, assigned: Collection[str]) -> set[str]:
        """The vectors that rows get in the end when these properties are assigned."""
        vectors = embedded_vectors(definition) if self.are_filled else ()
        return {item.property for item in vectors if item.source in assigned and item.property not in assigned}

    def note(
        self, definition: TypeDef, assigned: Collection[str], before: Rows | Mapping[str, Array] | None, after: Rows
    ) -> None:
        """Rows got values for some properties; `before` has their old texts, and is None for rows written as a whole.

        A text that stays the same keeps its vector.
        """
        for vector in embedded_vectors(definition):
            known = self._ids[definition.table_key, vector]
            ids = texts(after["id"])
            if before is None or vector.property in assigned:
                known.difference_update(ids)
            if vector.property in assigned or vector.source not in assigned:
                continue
            if before is not None:
                is_same = pc.fill_null(pc.equal(before[vector.source], after[vector.source]), False)
                ids = texts(after["id"].filter(pc.invert(pc.and_(is_same, pc.is_valid(after[vector.property])))))
            known.update(ids)

    def fill(self, pending: PendingRows, source: VectorSource) -> None:
        """Give each of the rows the vector of its text; one without a text loses its vector if that may be null.

        Raises:
            BadRequestError: a vector that must not be null has no text.
            EmbeddingError: the provider failed.
        """
        found = list(self._found(pending, source))
        wanted: dict[EmbeddedVector, set[str]] = {}
        for vector, delta, places in found:
            wanted.setdefault(vector, set()).update(_texts_at(delta, vector, places))
        made = source.of({vector: some for vector, some in wanted.items() if some})
        for vector, delta, places in found:
            if len(places):
                rows = [made[vector][text] for text in _texts_at(delta, vector, places)]
                _set(delta, vector, places, np.array(rows, np.float32))

    def clear(self, pending: PendingRows, source: VectorSource) -> None:
        """Take the vectors away again, which only stood for others."""
        for vector, delta, places in self._found(pending, source):
            _set(delta, vector, places, None)

    def _found(
        self, pending: PendingRows, source: VectorSource
    ) -> Iterator[tuple[EmbeddedVector, TableDelta, NDArray[np.intp]]]:
        """The rows that have a text, by their places in what is pending; those without one lose their vectors."""
        for (key, vector), ids in self._ids.items():
            if not ids or not source.serves(vector):
                continue
            delta = pending.tables[key]
            is_wanted = pc.is_in(delta.rows["id"], pa.array(sorted(ids), pa.utf8()))
            is_text = has_text(delta.rows[vector.source])
            blank = np.flatnonzero(np.asarray(pc.and_(is_wanted, pc.invert(is_text))))
            if vector.is_nullable:
                _set(delta, vector, blank, None)
            elif delta.rows[vector.property].take(pa.array(blank)).null_count:
                required = Required(type_name=vector.type_name, property=vector.property)
                text = violation_text(required, Example(None))
                raise BadRequestError(f"{text}; `{vector.source}` has no text that it could be embedded from")
            yield vector, delta, np.flatnonzero(np.asarray(pc.and_(is_wanted, is_text)))


def _texts_at(delta: TableDelta, vector: EmbeddedVector, places: NDArray[np.intp]) -> list[str]:
    return texts(delta.rows[vector.source].take(pa.array(places)))


def _set(
    delta: TableDelta, vector: EmbeddedVector, places: NDArray[np.intp], vectors: NDArray[np.float32] | None
) -> None:
    column = delta.rows[vector.property].combine_chunks()
    delta.set_column(vector.property, with_vectors(column, places, vectors))
