"""Text segments: the terms of some thousand neighbouring texts, from terms to texts.

A segment holds what follows from the texts alone. Which of them are alive, and how rare a term is, is known only where
a whole table is asked (`text_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.engine.adjacency import ranges
from omnigraph.engine.rows import IntArray, Numbers
from omnigraph.engine.text_analysis import Analysis, analyse_run

#: Texts of one segment. Bounds the memory that analysing takes.
SEGMENT_ROWS = 1 << 15
#: What the objects of mapped segments take.
_MAPPED_BYTES = 1 << 14
#: What ASCII bytes become before texts are cut into runs: letters in lower case, digits, or a separator.
_SEPARATOR = 0
_CLASSES = np.array(
    [
        byte if chr(byte).isalnum() or byte >= 0x80 else _SEPARATOR
        for byte in (ord(chr(number).lower()) if number < 0x80 else number for number in range(256))
    ],
    np.uint8,
)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of letters and digits of some texts: each distinct run once, and which text has which."""

    distinct: list[str]
    #: Per occurrence, in the order of the texts, the number of the run and of the text.
    codes: Numbers
    texts: Numbers


def split_runs(texts: Array) -> Runs:
    """Cut texts at every ASCII character that is not a letter or a digit."""
    # The bytes below a null are anything.
    present = pc.fill_null(texts, "").cast(pa.large_string())
    _, offsets_buffer, data_buffer = present.buffers()
    if not len(present) or data_buffer is None or offsets_buffer is None:
        return Runs([], np.zeros(0, np.int32), np.zeros(0, np.int32))
    ends = np.frombuffer(offsets_buffer, np.int64)[present.offset : present.offset + len(present) + 1]
    begin, end = int(ends[0]), int(ends[-1])
    data = _CLASSES[np.frombuffer(data_buffer, np.uint8, end - begin, begin)]
    starts = ends[:-1] - begin
    # A run ends where the class changes and where a text ends.
    is_border = np.zeros(len(data) + 1, np.bool_)
    is_border[1:-1] = (data[1:] == _SEPARATOR) != (data[:-1] == _SEPARATOR)
    is_border[ends - begin] = True
    borders = np.flatnonzero(is_border)
    if len(borders) < 2:
        return Runs([], np.zeros(0, np.int32), np.zeros(0, np.int32))
    buffers = [None, *(pa.py_buffer(item.data) for item in (borders, data))]
    parts = pa.Array.from_buffers(pa.large_string(), len(borders) - 1, buffers)
    is_run = data[borders[:-1]] != _SEPARATOR
    runs = parts.filter(pa.array(is_run)).dictionary_encode()
    # Several texts begin at one place if they are empty: the last of them has the bytes that follow.
    owners = np.searchsorted(starts, borders[:-1][is_run], side="right") - 1
    return Runs(
        runs.dictionary.to_pylist(), np.asarray(runs.indices.to_numpy(zero_copy_only=False)), owners.astype(np.int32)
    )


@dataclass(frozen=True, slots=True)
class TextSegment:
    """The terms of neighbouring texts, sorted by their UTF-8 bytes, each with the texts that have it.

    A *posting* is one term in one text. Postings of one term are neighbours and ascend by text; so do positions inside
    one posting.
    """

    term_bytes: Numbers
    #: Where the bytes of each term end.
    term_ends: Numbers
    #: Where the postings of each term end.
    posting_ends: Numbers
    #: Per posting, the number of the text.
    texts: Numbers
    #: Where the positions of each posting end.
    position_ends: Numbers
    positions: Numbers
    #: Per text, how many terms count for its length.
    lengths: Numbers

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        return sum(int(getattr(self, item.name).nbytes) for item in fields(self))

    def is_consistent(self) -> bool:
        """Whether every number stands for a place that exists, so that no question can fail."""
        arrays = [getattr(self, item.name) for item in fields(self)]
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in arrays):
            return False
        return (
            len(self.posting_ends) == len(self.term_ends)
            and len(self.position_ends) == len(self.texts)
            and _are_ends(self.term_ends, len(self.term_bytes))
            and _are_ends(self.posting_ends, len(self.texts))
            and _are_ends(self.position_ends, len(self.positions))
            and (not len(self.texts) or int(self.texts.min()) >= 0)
            and (not len(self.texts) or int(self.texts.max()) < len(self.lengths))
            and (not len(self.lengths) or int(self.lengths.min()) >= 0)
        )

    def postings(self, term: bytes) -> slice:
        """The range of the postings of a term; empty when no text has it."""
        low, high = 0, len(self.term_ends)
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < term:
                low = middle + 1
            else:
                high = middle
        if low == len(self.term_ends) or self._term(low) != term:
            return slice(0, 0)
        start = int(self.posting_ends[low - 1]) if low else 0
        return slice(start, int(self.posting_ends[low]))

    def frequencies(self, postings: slice) -> Numbers:
        """The frequencies of the term in the texts of postings."""
        ends = self.position_ends[postings]
        first = self.position_ends[postings.start - 1] if postings.start else 0
        return np.diff(ends, prepend=ends.dtype.type(first))

    def occurrences(self, postings: slice) -> tuple[IntArray, IntArray]:
        """The text and the position of every occurrence behind postings."""
        counts = self.frequencies(postings)
        stop = int(self.position_ends[postings.stop - 1]) if postings.stop else 0
        positions = self.positions[stop - int(counts.sum()) : stop]
        return np.repeat(self.texts[postings], counts).astype(np.int64), positions.astype(np.int64)

    def _term(self, number: int) -> bytes:
        start = int(self.term_ends[number - 1]) if number else 0
        return self.term_bytes[start : int(self.term_ends[number])].tobytes()


def _are_ends(ends: Numbers, total: int) -> bool:
    """Whether parts follow each other and have so many members together."""
    if not len(ends):
        return total == 0
    return int(ends[0]) >= 0 and int(ends[-1]) == total and bool((ends[1:] >= ends[:-1]).all())


def build_segment(texts: Array, analyse: Callable[[str], Analysis] = analyse_run) -> TextSegment:
    """Analyse texts; null has no terms, like an empty text."""
    runs = split_runs(texts)
    analysed = [analyse(run) for run in runs.distinct]
    vocabulary: dict[str, int] = {}
    numbers = np.array(
        [vocabulary.setdefault(term.text, len(vocabulary)) for item in analysed for term in item.terms], np.int32
    )
    offsets = np.array([term.position for item in analysed for term in item.terms], np.int32)
    sizes = np.array([len(item.terms) for item in analysed], np.int64)
    widths = np.array([item.width for item in analysed], np.int64)
    counted = np.array([sum(term.is_counted for term in item.terms) for item in analysed], np.int64)
    # One row per occurrence of a run, then one per occurrence of a term, both in the order of texts and positions.
    starts = _starts_in_text(widths[runs.codes], runs.texts) if len(runs.codes) else widths
    lengths = np.bincount(runs.texts, counted[runs.codes], len(texts)).astype(np.int32)
    run_sizes = sizes[runs.codes]
    places = ranges((np.cumsum(sizes) - sizes)[runs.codes], run_sizes)
    term_of = numbers[places]
    text_of = np.repeat(runs.texts, run_sizes)
    position_of = np.repeat(starts, run_sizes) + offsets[places]
    return _sorted_segment(vocabulary, term_of, text_of, position_of.astype(np.int32), lengths)


def _starts_in_text(widths: IntArray, texts: Numbers) -> IntArray:
    """The position at which each run begins in its text."""
    before = np.cumsum(widths) - widths
    is_first = np.concatenate([[True], texts[1:] != texts[:-1]])
    counts = np.diff(np.flatnonzero(np.append(is_first, True)))
    starts: IntArray = before - np.repeat(before[is_first], counts)
    return starts


def _sorted_segment(
    vocabulary: Mapping[str, int], term_of: Numbers, text_of: Numbers, position_of: Numbers, lengths: Numbers
) -> TextSegment:
    encoded = [term.encode() for term in vocabulary]
    by_bytes = sorted(range(len(encoded)), key=encoded.__getitem__)
    rank = np.empty(len(encoded), np.int32)
    rank[by_bytes] = np.arange(len(encoded), dtype=np.int32)
    ordered = [encoded[number] for number in by_bytes]
    ranks = rank[term_of]
    # The occurrences of each single term ascend by text and position already.
    order = np.argsort(ranks, kind="stable")
    ranks, texts, positions = ranks[order], text_of[order], position_of[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (ranks[1:] != ranks[:-1]) | (texts[1:] != texts[:-1])
    lasts = np.flatnonzero(is_last)
    return TextSegment(
        term_bytes=np.frombuffer(b"".join(ordered), np.uint8),
        term_ends=np.cumsum([len(item) for item in ordered], dtype=np.int32),
        posting_ends=np.cumsum(np.bincount(ranks[lasts], minlength=len(ordered)), dtype=np.int32),
        texts=texts[lasts].astype(np.int32),
        position_ends=(lasts + 1).astype(np.int32),
        positions=positions,
        lengths=lengths,
    )


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of one fragment, in the order of its texts."""

    items: tuple[TextSegment, ...]
    #: Whether they are views of a file, so that memory holds only what was asked for lately.
    is_mapped: bool

    @property
    def nbytes(self) -> int:
        """The memory that they take at least, in bytes."""
        return _MAPPED_BYTES if self.is_mapped else sum(item.nbytes for item in self.items)


# ---- as named arrays


def pack_segments(segments: Sequence[TextSegment]) -> dict[str, Numbers]:
    """Segments as a few arrays, whatever their number."""
    arrays: dict[str, Numbers] = {}
    for item in fields(TextSegment):
        parts = [getattr(segment, item.name) for segment in segments]
        arrays[item.name] = np.concatenate(parts)
        arrays[f"{item.name}-ends"] = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return arrays


def unpack_segments(arrays: Mapping[str, Numbers]) -> tuple[TextSegment, ...] | None:
    """The segments in arrays; None when the arrays are something else, or do not fit together."""
    columns: list[list[Numbers]] = []
    for item in fields(TextSegment):
        joined, ends = arrays.get(item.name), arrays.get(f"{item.name}-ends")
        if joined is None or ends is None or ends.dtype.kind != "i":
            return None
        if not _are_ends(ends, len(joined)):
            return None
        # Plain views: every access to a mapped array itself costs several function calls.
        columns.append(np.split(np.asarray(joined), ends[:-1].tolist()))
    if len({len(column) for column in columns}) != 1:
        return None
    parts = zip(*columns, strict=True)
    segments = tuple(TextSegment(*part) for part in parts)
    return segments if all(segment.is_consistent() for segment in segments) else None
