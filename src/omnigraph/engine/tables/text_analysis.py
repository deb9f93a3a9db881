"""Text analysis: terms of stored texts and of query texts, with English stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

# ---- English stems by the Porter 2 rules
#
# Works on folded words, so that a word and its spelling with accents have the same stem.


_VOWELS = frozenset("aeiouy")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
#: Beginnings behind which the first region starts, whatever follows.
_REGION_PREFIXES = ("gener", "commun", "arsen")
_WHOLE_WORDS = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie",
    "idly": "idl", "gently": "gentl", "ugly": "ugli", "early": "earli", "only": "onli",
    "singly": "singl", "sky": "sky", "news": "news", "howe": "howe", "atlas": "atlas",
    "cosmos": "cosmos", "bias": "bias", "andes": "andes",
}  # fmt: skip
_WHOLE_AFTER_PLURAL = frozenset(("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"))
_DERIVED = (
    ("ization", "ize"), ("ational", "ate"), ("fulness", "ful"), ("ousness", "ous"),
    ("iveness", "ive"), ("tional", "tion"), ("biliti", "ble"), ("lessli", "less"),
    ("entli", "ent"), ("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("ousli", "ous"),
    ("iviti", "ive"), ("fulli", "ful"), ("enci", "ence"), ("anci", "ance"), ("abli", "able"),
    ("izer", "ize"), ("ator", "ate"), ("alli", "al"), ("bli", "ble"), ("ogi", "og"), ("li", ""),
)  # fmt: skip
_FURTHER = (
    ("ational", "ate"), ("tional", "tion"), ("alize", "al"), ("icate", "ic"), ("iciti", "ic"),
    ("ative", ""), ("ical", "ic"), ("ness", ""), ("ful", ""),
)  # fmt: skip
_REMOVED = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous",
    "ive", "ize", "ion", "al", "er", "ic",
)  # fmt: skip
_LI_AFTER = frozenset("cdeghkmnrt")
_REGION = re.compile(r"[aeiouy][^aeiouy]")


def stem(word: str) -> str:
    """The stem of an English word in lower case; other words stay as they are."""
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    known = _WHOLE_WORDS.get(word)
    if known is not None:
        return known
    word = _with_consonant_y(word)
    first = _first_region(word)
    second = _region_after(word, first)
    word = _without_plural(word)
    if word in _WHOLE_AFTER_PLURAL:
        return word
    word = _without_past(word, first)
    if word[-1] in "yY" and len(word) > 2 and word[-2] not in _VOWELS:
        word = f"{word[:-1]}i"
    word = _without_derivation(word, first)
    word = _without_further(word, first, second)
    word = _without_ending(word, second)
    return _without_last_letter(word, first, second).replace("Y", "y")


def _with_consonant_y(word: str) -> str:
    """Mark each `y` that is a consonant: at the beginning, and behind a vowel."""
    if "y" not in word:
        return word
    letters = list(word)
    for place, letter in enumerate(letters):
        if letter == "y" and (place == 0 or letters[place - 1] in _VOWELS):
            letters[place] = "Y"
    return "".join(letters)


def _first_region(word: str) -> int:
    for prefix in _REGION_PREFIXES:
        if word.startswith(prefix):
            return len(prefix)
    return _region_after(word, 0)


def _region_after(word: str, start: int) -> int:
    """The start of the part behind the first consonant that follows a vowel."""
    found = _REGION.search(word, start)
    return len(word) if found is None else found.end()


def _has_vowel(part: str) -> bool:
    return not _VOWELS.isdisjoint(part)


def _ends_in_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return (
        len(word) > 2
        and word[-3] not in _VOWELS
        and word[-2] in _VOWELS
        and word[-1] not in _VOWELS
        and word[-1] not in "wxY"
    )


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _has_vowel(word[:-2]) else word


def _without_past(word: str, first: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return f"{word[: -len(suffix)]}ee" if len(word) - len(suffix) >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            if not _has_vowel(left):
                return word
            if left.endswith(("at", "bl", "iz")):
                return f"{left}e"
            if left.endswith(_DOUBLES):
                # `added` is a form of `add`, and `hopped` one of `hop`.
                return left if len(left) == 3 and left[0] in "aeo" else left[:-1]
            is_short = len(left) <= first and _ends_in_short_syllable(left)
            return f"{left}e" if is_short else left
    return word


def _without_derivation(word: str, first: int) -> str:
    for suffix, replacement in _DERIVED:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            if len(left) < first:
                return word
            if suffix == "ogi" and not left.endswith("l"):
                return word
            if suffix == "li" and not (left and left[-1] in _LI_AFTER):
                return word
            return f"{left}{replacement}"
    return word


def _without_further(word: str, first: int, second: int) -> str:
    for suffix, replacement in _FURTHER:
        if word.endswith(suffix):
            at = len(word) - len(suffix)
            if at < (second if suffix == "ative" else first):
                return word
            return f"{word[:at]}{replacement}"
    return word


def _without_ending(word: str, second: int) -> str:
    for suffix in _REMOVED:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            if len(left) < second or (suffix == "ion" and not left.endswith(("s", "t"))):
                return word
            return left
    return word


def _without_last_letter(word: str, first: int, second: int) -> str:
    at = len(word) - 1
    if word.endswith("e"):
        if at >= second or (at >= first and not _ends_in_short_syllable(word[:-1])):
            return word[:-1]
    elif word.endswith("ll") and at >= second:
        return word[:-1]
    return word


# ---- Tokens of texts and of queries
#
# 1. A text is cut into *runs* at every ASCII character that is not a letter or a digit. Runs are what bulk code
# counts; everything below happens once per distinct run. 2. A run is folded: NFKC, case folding, no accents, letters
# without an accent-free form spelled out (`ø` is `o`). 3. A folded run is cut into *words* at every character that is
# not a letter, a digit or a mark, and where a script that does not separate words meets another one. 4. A word of
# such a script (Han, Hiragana, Katakana, Hangul, Thai, Lao, Khmer, Myanmar) becomes its overlapping pairs of
# characters. A stored text has the single characters as well, for queries of one character. 5. Of the other words
# English stop words become nothing; the rest becomes its English stem, whatever its length.
#
# Positions count words, stop words included, and the characters of the scripts of step 4.


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
#: Letters and digits of ASCII, and everything beyond it.
_RUNS = re.compile(r"[^\x00-/:-@\[-`{-\x7f]+")


@frozen
class Term:
    """One term of a text."""

    text: str
    #: Its place among the words of the text.
    position: int
    #: Whether it counts for the length of the text. Single characters beside their pairs do not.
    is_counted: bool = True


@frozen
class Analysis:
    """The terms of a text, and how many positions the text takes."""

    terms: tuple[Term, ...]
    width: int


def words_of(text: str) -> list[str]:
    """The folded words of a text, neither stemmed nor cut into pairs of characters: what `fuzzy` compares."""
    return [word for run in _RUNS.findall(text) for word in _words(run)]


@lru_cache(maxsize=1 << 16)
def analyse_run(run: str) -> Analysis:
    """The terms of one run of a stored text."""
    if run.isascii():
        # Nearly all runs of English texts: one word, with nothing to fold but its case.
        return _analysed_word(run.lower())
    return _analysed(_words(run), is_stored=True)


def analyse_query(text: str) -> Analysis:
    """The terms of a query text, all of which a stored text has to have.

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
        if word.isascii() or _unseparated().match(word) is None:
            if word not in STOP_WORDS:
                terms.append(Term(_stem(word), width))
            width += 1
            continue
        pairs = [word[at : at + 2] for at in range(len(word) - 1)]
        terms += (Term(pair, width + at) for at, pair in enumerate(pairs))
        if is_stored or not pairs:
            terms += (Term(letter, width + at, is_counted=not pairs) for at, letter in enumerate(word))
        width += len(word)
    return Analysis(tuple(terms), width)


def _words(run: str) -> list[str]:
    if run.isascii():
        return [run.lower()]
    return list(_folded_words(run))


def _folded_words(run: str) -> Iterator[str]:
    for part in _letters(_fold(run)):
        yield from _pieces().findall(part)


# Made when a text needs them: Python takes milliseconds for each, more than for all other patterns of a read.


@cache
def _unseparated() -> re.Pattern[str]:
    """Matches a letter of a script that writes no blanks between words."""
    return re.compile(f"[{_UNSEPARATED}]")


@cache
def _pieces() -> re.Pattern[str]:
    """Matches runs of such letters, and of others."""
    return re.compile(f"[{_UNSEPARATED}]+|[^{_UNSEPARATED}]+")


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
