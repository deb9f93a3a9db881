"""Text columns at one snapshot: terms in segments, relevance, and raw tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from math import log

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.budget import Budget
from omnigraph.engine.distinct import sorted_distinct
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray, Numbers
from omnigraph.engine.tables.entities import Entities, row_id_array
from omnigraph.engine.tables.runs import ranges
from omnigraph.engine.tables.text_analysis import Analysis, analyse_run, words_of
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.reads import NO_ROW, read_rows

# ---- Segments: the terms of some thousand neighbouring texts, from terms to texts
#
# A segment holds what follows from the texts alone. Which of them are alive, and how rare a term is, is known only
# where a whole table is asked.


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


@frozen
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


@frozen
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


@frozen
class Segments:
    """The segments of one fragment, in the order of its texts."""

    items: tuple[TextSegment, ...]
    #: Whether they are views of a file, so that memory holds only what was asked for lately.
    is_mapped: bool

    @property
    def nbytes(self) -> int:
        """The memory that they take at least, in bytes."""
        return _MAPPED_BYTES if self.is_mapped else sum(item.nbytes for item in self.items)


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


# ---- Terms and relevance of a text column
#
# Every number counts the rows that are alive in the snapshot and nothing else, so an answer is the same whatever was
# kept before, and equal texts have equal scores to the last bit.


#: The constants of BM25: how fast repetitions of a term stop to count, and how much long texts are held back.
K1 = 1.2
B = 0.75
#: Keeps texts apart when a text and a position are one number.
_POSITIONS = 1 << 32

NO_ROWS: IntArray = np.zeros(0, np.int64)


@frozen
class Scored:
    """Row ids with their scores, in no particular order."""

    row_ids: IntArray
    scores: FloatArray


@frozen(slots=False)
class LiveSegment:
    """A segment, and which of its texts are alive."""

    segment: TextSegment
    #: Per text, its row id; `NO_ROW` if it is deleted.
    row_ids: IntArray

    @cached_property
    def is_alive(self) -> BoolArray:
        """Per text, whether it is alive."""
        is_alive: BoolArray = self.row_ids != NO_ROW
        return is_alive

    @cached_property
    def has_deletions(self) -> bool:
        """Whether some texts are deleted."""
        return not bool(self.is_alive.all())

    @cached_property
    def lengths(self) -> Numbers:
        """The lengths of the texts that are alive; 0 for others."""
        return np.where(self.is_alive, self.segment.lengths, 0)

    def postings(self, terms: Sequence[bytes]) -> list[slice]:
        """The postings of each term."""
        return [self.segment.postings(term) for term in terms]

    def count(self, postings: slice) -> int:
        """The number of live texts behind postings."""
        if not self.has_deletions:
            return int(postings.stop - postings.start)
        return int(np.count_nonzero(self.is_alive[self.segment.texts[postings]]))


class TextColumn:
    """The texts of all rows of a snapshot. Immutable; safe to share between threads."""

    def __init__(self, segments: Sequence[LiveSegment]) -> None:
        self._segments = tuple(segments)
        #: Texts with at least one term, and the sum of their lengths.
        self._documents = sum(int(np.count_nonzero(item.lengths)) for item in self._segments)
        self._total_length = sum(int(item.lengths.sum(dtype=np.int64)) for item in self._segments)

    def rows_with_any(self, terms: Sequence[str], budget: Budget) -> IntArray:
        """The sorted row ids of texts that have at least one of the terms."""
        encoded = [term.encode() for term in terms]
        found = [
            item.row_ids[texts]
            for item in budget.steps(self._segments)
            if len(texts := _texts_with_any(item, item.postings(encoded)))
        ]
        return np.sort(np.concatenate(found)) if found else NO_ROWS

    def rows_with_phrase(self, phrase: Analysis, budget: Budget) -> IntArray:
        """The sorted row ids of texts that have all terms of a phrase, at the same distances."""
        if not phrase.terms:
            return NO_ROWS
        # What stands before the first term is a stop word, and need not be there.
        first = min(term.position for term in phrase.terms)
        wanted = [(term.text.encode(), term.position - first) for term in phrase.terms]
        found = [
            item.row_ids[texts]
            for item in budget.steps(self._segments)
            if len(texts := _texts_with_phrase(item, wanted))
        ]
        return np.sort(np.concatenate(found)) if found else NO_ROWS

    def relevance(self, terms: Sequence[str], budget: Budget) -> Scored:
        """The BM25 score of every row that has at least one of the terms; the terms are distinct."""
        encoded = [term.encode() for term in terms]
        looked_up = ((item, item.postings(encoded)) for item in budget.steps(self._segments))
        hits = [(item, postings) for item, postings in looked_up if any(part.stop > part.start for part in postings)]
        if not hits:
            return Scored(NO_ROWS, np.zeros(0))
        counts = [[item.count(part) for part in postings] for item, postings in budget.steps(hits)]
        weights = [self._weight(sum(column)) for column in zip(*counts, strict=True)]
        average = self._total_length / max(self._documents, 1)
        parts: list[Scored] = []
        for item, postings in budget.steps(hits):
            parts.append(_scores(item, postings, weights, average))
            budget.hold(parts[-1].row_ids.nbytes + parts[-1].scores.nbytes)
        return Scored(np.concatenate([part.row_ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def _weight(self, frequency: int) -> float:
        """The weight of a term: the rarer, the higher."""
        return log(1 + (self._documents - frequency + 0.5) / (frequency + 0.5))


def _texts_with_any(item: LiveSegment, postings: Sequence[slice]) -> IntArray:
    has_any = np.zeros(len(item.row_ids), np.bool_)
    for part in postings:
        has_any[item.segment.texts[part]] = True
    return np.flatnonzero(has_any & item.is_alive)


def _texts_with_phrase(item: LiveSegment, wanted: Sequence[tuple[bytes, int]]) -> IntArray:
    postings = [item.segment.postings(term) for term, _ in wanted]
    if any(part.stop == part.start for part in postings):
        return NO_ROWS
    # Where the phrase would have to begin, as seen from each of its terms: a place that all agree on is one.
    begins: Iterator[IntArray] = (
        _begins(item.segment, part, offset) for (_, offset), part in zip(wanted, postings, strict=True)
    )
    common = next(begins)
    for other in begins:
        common = np.intersect1d(common, other, assume_unique=True)
    texts = sorted_distinct(common // _POSITIONS)
    return texts[item.is_alive[texts]]


def _begins(segment: TextSegment, postings: slice, offset: int) -> IntArray:
    texts, positions = segment.occurrences(postings)
    is_possible = positions >= offset
    begins: IntArray = texts[is_possible] * _POSITIONS + positions[is_possible] - offset
    return begins


def _scores(item: LiveSegment, postings: Sequence[slice], weights: Sequence[float], average: float) -> Scored:
    segment = item.segment
    present = [place for place, part in enumerate(postings) if part.stop > part.start]
    if len(present) == 1 and not item.has_deletions:
        # The texts of the one term are all there are: nothing has to be brought together.
        part, weight = postings[present[0]], weights[present[0]]
        texts = segment.texts[part]
        norms = _norms(item.lengths[texts], average)
        return Scored(item.row_ids[texts], _share(weight, segment.frequencies(part), norms))
    texts = _texts_with_any(item, postings)
    if not len(texts):
        return Scored(NO_ROWS, np.zeros(0))
    norms = _norms(item.lengths[texts], average)
    place_of = np.full(len(item.row_ids), -1, np.int32)
    place_of[texts] = np.arange(len(texts), dtype=np.int32)
    places_of: list[Numbers] = []
    shares: list[FloatArray] = []
    for number in present:
        places = place_of[segment.texts[postings[number]]]
        counts = segment.frequencies(postings[number])
        if item.has_deletions:
            is_alive = places >= 0
            places, counts = places[is_alive], counts[is_alive]
        places_of.append(places)
        shares.append(_share(weights[number], counts, norms[places]))
    return Scored(item.row_ids[texts], _sums(places_of, shares, len(texts)))


def _norms(lengths: Numbers, average: float) -> FloatArray:
    norms: FloatArray = K1 * (1 - B + B * lengths / average)
    return norms


def _share(weight: float, counts: Numbers, norms: FloatArray) -> FloatArray:
    """The contribution of a term of this frequency to the scores of texts."""
    share: FloatArray = weight * (counts * (K1 + 1)) / (counts + norms)
    return share


def _sums(places: list[Numbers], shares: list[FloatArray], count: int) -> FloatArray:
    """The sum over all terms at each of `count` places; every place has at least one share.

    Shares are added in ascending order: equal parts make equal sums, whatever terms they come from. Two shares have the
    same sum in any order.
    """
    if len(shares) <= 2:
        total = np.zeros(count)
        for at, share in zip(places, shares, strict=True):
            total[at] += share
        return total
    every, values = np.concatenate(places), np.concatenate(shares)
    order = np.lexsort((values, every))
    starts = np.searchsorted(every[order], np.arange(count))
    sums: FloatArray = np.add.reduceat(values[order], starts)
    return sums


# ---- Fuzzy matches of words


#: Distances of words that are computed at once.
_DISTANCES = 1 << 18


@frozen
class Tokens:
    """The words of a text column: each distinct word once, and which rows have which."""

    vocabulary: list[str]
    #: Per occurrence, the number of the word and the row id.
    codes: IntArray
    row_ids: IntArray


def tokenize(entities: Entities, column: str) -> Tokens:
    """The words of all rows."""
    rows = read_rows(entities.table, [column])
    runs = split_runs(rows[column].combine_chunks())
    vocabulary: dict[str, int] = {}
    words = [words_of(run) for run in runs.distinct]
    numbers = np.array([vocabulary.setdefault(word, len(vocabulary)) for run in words for word in run], np.int64)
    sizes = np.array([len(run) for run in words], np.int64)
    counts = sizes[runs.codes]
    codes = numbers[ranges((np.cumsum(sizes) - sizes)[runs.codes], counts)]
    return Tokens(list(vocabulary), codes, np.repeat(row_id_array(rows)[runs.texts], counts))


def close_rows(tokens: Tokens, text: str, edits: int, budget: Budget) -> IntArray:
    """The sorted row ids of rows with a word that is within `edits` steps of a word of the text."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    wanted = words_of(text)
    if not wanted or not tokens.vocabulary or edits < 0:
        return NO_ROWS
    close: BoolArray = np.zeros(len(tokens.vocabulary), np.bool_)
    # A table of all distances takes the product of both numbers of words.
    some = max(1, _DISTANCES // len(tokens.vocabulary))
    distinct = list(dict.fromkeys(wanted))
    for start in budget.steps(range(0, len(distinct), some)):
        distances = cdist(
            distinct[start : start + some],
            tokens.vocabulary,
            scorer=Levenshtein.distance,
            score_cutoff=edits,
            dtype=np.int32,
        )
        close |= np.any(distances <= edits, axis=0)
    return sorted_distinct(tokens.row_ids[close[tokens.codes]])
