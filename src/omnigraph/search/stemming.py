"""English stems by the Porter 2 rules: the forms of a word become one term.

Works on folded words, so that a word and its spelling with accents have the same stem.
"""

from __future__ import annotations

import re

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
_WHOLE_AFTER_PLURAL = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed")
)
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
    """Where the part behind the first consonant that follows a vowel begins."""
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
