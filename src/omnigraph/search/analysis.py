"""How text becomes terms: one definition for stored texts and for the texts of queries.

1. A text is cut into *runs* at every ASCII character that is not a letter or a digit. Runs are what bulk code counts;
   everything below happens once per distinct run.
2. A run is folded: NFKC, case folding, no accents, letters without an accent-free form spelled out (`ø` is `o`).
3. A folded run is cut into *words* at every character that is not a letter, a digit or a mark, and where a script that
   does not separate words meets another one.
4. A word of such a script (Han, Hiragana, Katakana, Hangul, Thai, Lao, Khmer, Myanmar) becomes its overlapping pairs of
   characters. A stored text has the single characters as well, for queries of one character.
5. Of the other words English stop words become nothing; the rest becomes its English stem, whatever its length.

Positions count words, stop words included, and the characters of the scripts of step 4.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.search.stemming import stem

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Counts up with every change of what a text becomes, so that terms that were kept before are made again.
ANALYSIS_VERSION = 1

STOP_WORDS = frozenset(
    (
        "a", "about", "after", "again", "against", "all", "am", "an", "and", "are", "as",
        "at", "be", "been", "being", "below", "between", "both", "but", "by", "can",
        "did", "do", "doing", "down", "each", "few", "for", "from", "further", "had",
        "has", "have", "having", "he", "her", "here", "hers", "herself", "him", "himself",
        "his", "how", "i", "if", "in", "into", "is", "it", "its", "itself", "just", "me",
        "more", "most", "my", "myself", "now", "of", "off", "on", "or", "other", "our",
        "ours", "out", "over", "own", "re", "same", "she", "should", "so", "some", "such",
        "than", "that", "the", "their", "theirs", "them", "then", "there", "these",
        "they", "this", "those", "through", "to", "too", "under", "until", "up", "was",
        "we", "were", "what", "when", "where", "which", "while", "who", "whom", "will",
        "with", "you", "your", "yours", "yourself",
    )
)  # fmt: skip

#: Terms that the text of a search may have: each is looked up, and each match of one is scored.
MAX_QUERY_TERMS = 4096
#: Longer words are compared as they are: they are not English.
_STEMMED_LETTERS = 64
_ACCENTS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
_SPELLED_OUT = str.maketrans(
    {
        "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ĸ": "k",
        "ł": "l", "ŋ": "n", "ŧ": "t", "þ": "th", "ƀ": "b", "ɓ": "b", "ƈ": "c", "ɗ": "d",
        "ƒ": "f", "ɠ": "g", "ɨ": "i", "ƙ": "k", "ɲ": "n", "ƥ": "p", "ʈ": "t", "ʋ": "v", "ƴ": "y",
        "ƶ": "z",
    }
)  # fmt: skip
_UNSEPARATED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3041-\u309f\u30a0-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
)
_PIECES = re.compile(f"[{_UNSEPARATED}]+|[^{_UNSEPARATED}]+")
_IS_UNSEPARATED = re.compile(f"[{_UNSEPARATED}]")
_RUNS = re.compile("[0-9A-Za-z\u0080-\U0010ffff]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a text."""

    text: str
    #: Its place among the words of the text.
    position: int
    #: Whether it counts for the length of the text. Single characters beside their pairs do not.
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class Analysis:
    """The terms of a text, and how many positions the text takes."""

    terms: tuple[Term, ...]
    width: int


def words_of(text: str) -> list[str]:
    """The folded words of a text, neither stemmed nor cut into pairs of characters: what `fuzzy` compares."""
    return [word for run in _RUNS.findall(text) for word in _words(run)]


@lru_cache(maxsize=1 << 16)
def analyse_run(run: str) -> Analysis:
    """What one run of a stored text becomes."""
    if run.isascii():
        # Nearly all runs of English texts: one word, with nothing to fold but its case.
        return _analysed_word(run.lower())
    return _analysed(_words(run), is_stored=True)


def analyse_query(text: str) -> Analysis:
    """What the text of a query becomes: terms that a stored text has to have.

    Raises:
        BadRequestError: there are more than `MAX_QUERY_TERMS` of them.
    """
    analysed = _analysed(words_of(text), is_stored=False)
    if len(analysed.terms) > MAX_QUERY_TERMS:
        message = (
            f"the text of a search has {len(analysed.terms)} terms, {MAX_QUERY_TERMS} are allowed: "
            "search for fewer words"
        )
        raise BadRequestError(message)
    return analysed


def query_terms(text: str) -> list[str]:
    """The distinct terms of a query, in a fixed order."""
    return sorted({term.text for term in analyse_query(text).terms})


def _analysed_word(word: str) -> Analysis:
    if word in STOP_WORDS:
        return Analysis((), 1)
    return Analysis((Term(_stem(word), 0),), 1)


def _stem(word: str) -> str:
    return stem(word) if len(word) <= _STEMMED_LETTERS else word


def _analysed(words: list[str], *, is_stored: bool) -> Analysis:
    terms: list[Term] = []
    width = 0
    for word in words:
        if _IS_UNSEPARATED.match(word) is None:
            if word not in STOP_WORDS:
                terms.append(Term(_stem(word), width))
            width += 1
            continue
        pairs = [word[at : at + 2] for at in range(len(word) - 1)]
        terms += (Term(pair, width + at) for at, pair in enumerate(pairs))
        if is_stored or not pairs:
            terms += (
                Term(letter, width + at, is_counted=not pairs) for at, letter in enumerate(word)
            )
        width += len(word)
    return Analysis(tuple(terms), width)


def _words(run: str) -> list[str]:
    if run.isascii():
        return [run.lower()]
    return list(_folded_words(run))


def _folded_words(run: str) -> Iterator[str]:
    for part in _letters(_fold(run)):
        yield from _PIECES.findall(part)


def _fold(run: str) -> str:
    """One spelling for all that differ in case, accents, width or composition."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", run).casefold())
    plain = _ACCENTS.sub("", plain).translate(_SPELLED_OUT)
    return unicodedata.normalize("NFKC", plain)


def _letters(text: str) -> Iterator[str]:
    """The parts of a text that consist of letters, digits and marks; marks alone are not a word."""
    start = 0
    has_letter = False
    for at, character in enumerate(text):
        group = unicodedata.category(character)[0]
        if group in "LN":
            has_letter = True
        elif group != "M":
            if has_letter:
                yield text[start:at]
            start, has_letter = at + 1, False
    if has_letter:
        yield text[start:]
