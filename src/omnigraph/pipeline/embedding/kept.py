"""Vectors that were computed and are not in the graph yet: they survive a crash, a failing provider and a lost race.

They lie below `__derived/embeddings/` of the graph, on disk and on S3 alike. A part is two objects of one name, which
says who embedded: the vectors, and the digests of their texts, which are written last, so that a part is there as a
whole or not at all. Parts never change. Whoever finds one gone computes its vectors again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.ids import is_ulid, new_ulid, ulid_time_ms
from omnigraph.storage.derived import DERIVED_FOLDER, EMBEDDINGS_GROUP
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from omnigraph.search.embedding.settings import EmbeddingSettings
    from omnigraph.storage.objects import ControlObjects

_FOLDER = f"{DERIVED_FOLDER}/{EMBEDDINGS_GROUP}"
_DIGESTS = ".digests"
_VECTORS = ".vectors"
_STOP = ".stop"
_DIGEST_BYTES = 16


def text_digest(text: str) -> bytes:
    """What a text is recognised by."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAddress:
    """Where the vectors of one model and dimension are kept. Plain values that travel to other processes."""

    root: str
    #: What the names of their parts begin with.
    prefix: str
    dimension: int


def kept_address(root: str, settings: EmbeddingSettings, dimension: int) -> KeptAddress:
    """Where vectors are kept: apart for everything that makes the vectors of one text differ."""
    who = f"{settings.provider}\n{settings.base_url}\n{settings.model}\n{dimension}"
    prefix = f"{sha256(who.encode()).hexdigest()[:24]}-"
    return KeptAddress(root=root, prefix=prefix, dimension=dimension)


class KeptVectors:
    """The parts at one address."""

    def __init__(self, address: KeptAddress) -> None:
        self._address = address
        self._objects: ControlObjects = ObstoreObjects(parse_location(address.root), durable=False)

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
        """Delete parts that nobody came back for, whoever embedded them."""
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
    """Which part holds the vector of a text. Remembered: the tasks of a run ask for the same parts."""
    kept = KeptVectors(address)
    return {digest: part for part in parts for digest in kept.digests(part)}


def fill_vectors(
    kept: KeptVectors,
    parts: Iterable[str],
    places: Mapping[bytes, Sequence[int]],
    vectors: NDArray[np.float32],
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
