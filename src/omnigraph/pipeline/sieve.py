"""A sieve for texts: passes every text of a set and few others, many times faster than looking each one up.

Texts are told apart by their last eight bytes, hashed into a bitmap. Whoever needs certainty looks at what passed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as _arrow

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

_BITS = 22
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Beyond so many texts most places of the bitmap are taken, and nothing is gained.
_MAX_TEXTS = 1 << (_BITS - 2)
_WIDTH = 8


class Sieve:
    """Which texts may be in a set."""

    def __init__(self, texts: Any) -> None:
        self._seen: Any = None
        if 0 < len(texts) <= _MAX_TEXTS:
            self._seen = np.zeros(1 << _BITS, dtype=bool)
            self._seen[_places(texts)] = True

    def passes(self, texts: Any) -> Any:
        """A mask of the texts that may be in the set; None when it cannot tell."""
        if self._seen is None or not len(texts):
            return None
        return self._seen[_places(texts)]


def _places(texts: Any) -> Any:
    """The place of each text in the bitmap. No text is null."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[: offsets[-1]]
    with np.errstate(over="ignore"):
        places = (_tails(data, offsets) * _MULTIPLIER) >> np.uint64(64 - _BITS)
    return places.astype(np.int64)


def _tails(data: Any, offsets: Any) -> Any:
    """The last eight bytes of each text as a number, fewer for a shorter one."""
    lengths = np.diff(offsets)
    width = int(lengths[0])
    if width >= _WIDTH and (lengths == width).all():
        begin = int(offsets[0]) + width - _WIDTH
        return np.ndarray(
            (len(lengths),), "<u8", buffer=data, offset=begin, strides=(width,)
        ).copy()
    # Eight bytes in front, so that even the first text has eight bytes before its end.
    padded = np.concatenate([np.zeros(_WIDTH, dtype=np.uint8), data])
    words: Any = np.ndarray((len(data) + 1,), "<u8", buffer=padded, strides=(1,))
    tails = words[offsets[1:]]
    short = np.flatnonzero(lengths < _WIDTH)
    # The bytes before a short text belong to its neighbour.
    shift = (8 * (_WIDTH - lengths[short])).astype(np.uint64)
    tails[short] = np.where(
        shift == 64, np.uint64(0), tails[short] >> np.minimum(shift, np.uint64(63))
    )
    return tails
