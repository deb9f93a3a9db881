"""Raw tokens of a text column, and the rows that come close to a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.engine.local.arrays import pc
from omnigraph.engine.local.entities import row_id_array
from omnigraph.storage import read_rows

if TYPE_CHECKING:
    from omnigraph.budget import Budget
    from omnigraph.engine.local.arrays import ArrowColumn, BoolArray, IntArray
    from omnigraph.engine.local.entities import Entities

#: Raw tokens are runs of letters and digits, in lower case.
_TOKEN_BREAK = r"[^\p{L}\p{N}]+"
#: Distances of words that are computed at once.
_DISTANCES = 1 << 18
NO_ROWS: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The raw tokens of a text column: each distinct token once, and which rows have which."""

    vocabulary: list[str]
    #: Per occurrence, the number of the token and the row id.
    codes: IntArray
    row_ids: IntArray


def tokenize(entities: Entities, column: str) -> Tokens:
    """The tokens of all rows."""
    rows = read_rows(entities.table, [column])
    words = split_words(rows[column].combine_chunks())
    parents = np.asarray(pc.list_parent_indices(words).to_numpy())
    flat = pc.list_flatten(words)
    # A separator at either end leaves an empty token behind.
    is_word = np.asarray(pc.not_equal(flat, "").to_numpy(zero_copy_only=False))
    encoded = flat.filter(pa.array(is_word)).dictionary_encode()
    row_ids = row_id_array(rows)[parents[is_word]] if rows.num_rows else NO_ROWS
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    return Tokens(encoded.dictionary.to_pylist(), codes, row_ids)


def split_words(texts: ArrowColumn) -> ArrowColumn:
    """The raw tokens of each text, as lists."""
    return pc.split_pattern_regex(pc.utf8_lower(texts), _TOKEN_BREAK)


def close_rows(tokens: Tokens, text: str, edits: int, budget: Budget) -> IntArray:
    """The sorted row ids of rows with a token that is within `edits` steps of a token of the text."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    wanted = [word for word in split_words(pa.array([text]))[0].as_py() if word]
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
