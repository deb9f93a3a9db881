"""Text columns at one snapshot: terms of their rows, relevance, and raw tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from omnigraph.core.budget import Budget
from omnigraph.engine.adjacency import ranges
from omnigraph.engine.entities import Entities, row_id_array
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray, Numbers
from omnigraph.engine.text_analysis import Analysis, words_of
from omnigraph.engine.text_segments import TextSegment, split_runs
from omnigraph.storage.datasets.reads import NO_ROW, read_rows

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


@dataclass(frozen=True, slots=True)
class Scored:
    """Row ids with their scores, in no particular order."""

    row_ids: IntArray
    scores: FloatArray


@dataclass(frozen=True)
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
    texts = np.unique(common // _POSITIONS)
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


@dataclass(frozen=True, slots=True)
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
    return np.unique(tokens.row_ids[close[tokens.codes]])
