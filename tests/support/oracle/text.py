"""The text conditions over a tiny vocabulary: enough to predict them without an analyser."""

from __future__ import annotations

import re
from functools import cache

#: All that stemming does to the words that worlds and queries use.
_STEMS = {"graphs": "graph", "graphing": "graph", "vectors": "vector", "tensors": "tensor"}
_STOP_WORDS = frozenset({"a", "an", "and", "of", "the"})


def raw_tokens(text: str) -> list[str]:
    """Words in lower case, as they are written."""
    return re.findall(r"\w+", text.lower())


def stems(text: str) -> list[str]:
    """Words after the analyser."""
    return [_STEMS.get(word, word) for word in raw_tokens(text) if word not in _STOP_WORDS]


def searches(value: str, query: str) -> bool:
    """`search`: any word of the query occurs."""
    return bool(set(stems(query)) & set(stems(value)))


def matches_text(value: str, query: str) -> bool:
    """`match_text`: the words of the query occur side by side and in order; no words occur nowhere."""
    wanted, given = stems(query), stems(value)
    places = range(len(given) - len(wanted) + 1)
    return bool(wanted) and any(given[at : at + len(wanted)] == wanted for at in places)


def is_similar(value: str, query: str, edits: int) -> bool:
    """`fuzzy`: any word of the query is at most `edits` changes away from a word of the value."""
    pairs = ((wanted, word) for wanted in raw_tokens(query) for word in raw_tokens(value))
    return any(distance(wanted, word) <= edits for wanted, word in pairs)


@cache
def distance(left: str, right: str) -> int:
    """Levenshtein: how many characters have to be inserted, removed or exchanged."""
    if not left or not right:
        return len(left) + len(right)
    return min(
        distance(left[1:], right) + 1,
        distance(left, right[1:]) + 1,
        distance(left[1:], right[1:]) + (left[0] != right[0]),
    )
