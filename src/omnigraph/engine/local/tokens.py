"""Folded words of a text column, and the rows that come close to a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.engine.local.adjacency import ranges
from omnigraph.engine.local.entities import row_id_array
from omnigraph.engine.local.text_columns import NO_ROWS
from omnigraph.engine.local.text_segments import split_runs
from omnigraph.search.analysis import words_of
from omnigraph.storage.reads import read_rows

if TYPE_CHECKING:
    from omnigraph.budget import Budget
    from omnigraph.engine.local.arrays import BoolArray, IntArray
    from omnigraph.engine.local.entities import Entities

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
    numbers = np.array(
        [vocabulary.setdefault(word, len(vocabulary)) for run in words for word in run], np.int64
    )
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
