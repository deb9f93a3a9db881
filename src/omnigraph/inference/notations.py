"""What a column of texts may stand for: truth values, numbers, dates, lists; each with the steps that read it.

A notation is proposed when it looks right for every distinct text that is not one for null. Whether it holds is for the
reader of loads to say: `columns` tries the proposals in their order. What is left when none holds is a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import ListType, Scalar, ScalarType, VectorType
from omnigraph.inference.column_texts import (
    STRING,
    Notation,
    Texts,
    null_texts,
    null_texts_of_values,
    plain_list,
    quoted,
)
from omnigraph.inference.dates import is_ambiguous, moments
from omnigraph.inference.names import singular, word_set

# ---- All notations of a column


def notations(texts: Texts, *, has_nulls: bool = False) -> Iterator[tuple[Notation, list[str]]]:
    """What the texts may stand for, the likeliest first, each with its texts for null; always ends with texts."""
    nulls = null_texts_of_values(texts)
    values = texts.without(nulls)
    if len(values.distinct):
        found = [moments(values)]
        if not values.is_declared or any(nulls):
            # A reader of files leaves numbers and truth values as texts where it does not know a text for null.
            found += [_truths(values, has_nulls=has_nulls or bool(nulls)), _numbers(values)]
        else:
            found += [_spoken_truths(values), None if values.all_match(_DECIMAL) else _numbers(values)]
        for notation in found:
            if notation is not None:
                yield notation, nulls
    nulls = null_texts(texts)
    values = texts.without(nulls)
    lists = _lists(values) if len(values.distinct) else None
    if lists is not None:
        yield lists, nulls
    yield Notation(base=STRING, seen=_texts_seen(values)), nulls


# ---- Truth values


_TRUE = ("true", "yes", "y", "t", "on", "ja", "oui", "si", "sí", "sim")
_FALSE = ("false", "no", "n", "f", "off", "nein", "non", "no", "no", "não")
#: Words that say it where the other one is missing: alone, and beside null.
_ALONE, _BESIDE_NULL = ("true", "false"), ("true", "false", "yes", "y")
_FLAG_WORDS = word_set(
    "is has can flag active enabled disabled deleted cancelled deprecated yanked adult verified public private "
    "valid required archived hidden visible paid default premium available"
)


def _truths(texts: Texts, *, has_nulls: bool) -> Notation | None:
    if len(texts.distinct) > _MOST_SPELLINGS:
        return None
    words = texts.all()
    lower = {word.lower() for word in words}
    if lower <= {"0", "1"} and not _FLAG_WORDS.isdisjoint(texts.words):
        seen = f"{' or '.join(sorted(words, reverse=True))}, and a name that asks yes or no"
        return Notation(base=ScalarType(Scalar.BOOL), steps={"bool": {"true": ["1"], "false": ["0"]}}, seen=seen)
    for true, false in zip(_TRUE, _FALSE, strict=True):
        known = _BESIDE_NULL if has_nulls else _ALONE
        if not lower <= {true, false} or (len(lower) == 1 and not lower <= set(known)):
            continue
        if set(words) <= {"true", "false"} and texts.is_text:
            return Notation(base=ScalarType(Scalar.BOOL), seen=" or ".join(sorted(words, reverse=True)))
        return _spelled_truths(words, [(true, false)])
    return _spoken_truths(texts)


#: Pairs that one column may mix, as in data of several origins; those in words have to be among them.
_SPOKEN = (("true", "false"), ("yes", "no"))
_MIXED_PAIRS = (*_SPOKEN, ("y", "n"), ("t", "f"), ("1", "0"))


def _spoken_truths(texts: Texts) -> Notation | None:
    """Truth values in one or several notations, with a word for true and one for false."""
    if len(texts.distinct) > _MOST_SPELLINGS:
        return None
    words = texts.all()
    lower = {word.lower() for word in words}
    pairs = [pair for pair in _MIXED_PAIRS if not lower.isdisjoint(pair)]
    is_said = all(any(pair[side] in lower for pair in _SPOKEN) for side in (0, 1))
    return _spelled_truths(words, pairs) if is_said and lower <= {word for pair in pairs for word in pair} else None


def _spelled_truths(words: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Notation:
    """Truth values with a step that names every spelling, also the other word of a pair where it is missing."""
    spelled: dict[str, list[str]] = {}
    seen: list[str] = []
    for side, name in enumerate(("true", "false")):
        mine = {word for word in words if word.lower() in {pair[side] for pair in pairs}}
        seen += sorted(mine)
        for pair in pairs:
            example = next(word for word in words if word.lower() in pair)
            mine.add(_like(example, pair[side]))
        spelled[name] = sorted(mine)
    return Notation(base=ScalarType(Scalar.BOOL), steps={"bool": spelled}, seen=" or ".join(seen))


#: Spellings of a few words in capital letters, small ones and both.
_MOST_SPELLINGS = 16


def _like(example: str, word: str) -> str:
    """A word with capital letters where the example has them."""
    return word.upper() if example.isupper() else word.capitalize() if example[0].isupper() else word


# ---- Numbers


_WHOLE = r"^-?(?:0|[1-9][0-9]{0,17})$"
_DECIMAL = r"^-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_LEADING_ZERO = r"^-?0[0-9]"
_EXPONENT_ALONE = r"^-?[0-9]+[eE]"
_TOO_MANY_DIGITS = r"^-?[0-9]{19}"
#: Columns whose digits are not counted with.
_CODE_WORDS = word_set(
    "phone telephone tel mobile fax zip zipcode postal postcode plz ssn iban bic isbn issn ean gtin imei vat version "
    "semver revision swift barcode ip doi sku"
)
_ID_WORDS = word_set("id ids key uid pk ref")
#: Whole numbers below this leave room for ten times more in 32 bits.
_SMALL = 200_000_000
#: Separators of thousands and of decimals, the commonest first.
_FORMS = ((",", "."), (".", ","), ("'", "."), ("’", "."), ("\u00a0", ","), ("\u202f", ","), (" ", ","), (" ", "."))


def _numbers(texts: Texts) -> Notation | None:
    are_codes = not _CODE_WORDS.isdisjoint(texts.words)
    if are_codes or texts.any_match("|".join((_LEADING_ZERO, _EXPONENT_ALONE, _TOO_MANY_DIGITS))):
        return None
    plain: dict[str, object] = {} if texts.is_text else {"number": True}
    if texts.all_match(_WHOLE):
        return _whole(texts, texts.distinct.cast(pa.int64()), plain)
    if texts.all_match(_DECIMAL):
        return _decimal(texts.distinct.cast(pa.float64()), plain)
    return _grouped(texts)


def _whole(texts: Texts, numbers: Array, steps: Mapping[str, object]) -> Notation:
    bounds = pc.min_max(numbers).as_py()
    moment = _epoch_seen(texts.words, bounds["min"], bounds["max"])
    return Notation(
        base=ScalarType(whole_scalar(texts.words, bounds["min"], bounds["max"])),
        steps=steps,
        seen=f"{numbers_seen('whole numbers', bounds['min'], bounds['max'])}{moment}",
    )


def numbers_seen(what: str, least: float, most: float) -> str:
    """What a comment says about numbers."""
    return f"always {least:.10g}" if least == most else f"{what} {least:.10g} to {most:.10g}"


def whole_scalar(words: Sequence[str], least: int, most: int) -> Scalar:
    """The type of whole numbers: ids and large numbers get 64 bits, because others may follow."""
    if (words and words[-1] in _ID_WORDS) or not -_SMALL <= least <= most <= _SMALL:
        return Scalar.I64
    return Scalar.I32


_MOMENT_WORDS = word_set("timestamp time ts epoch created updated modified at utc")
#: Seconds since 1970 of the years 1990 to 2050.
_EPOCH = (631_152_000, 2_524_608_000)


def _epoch_seen(words: Sequence[str], least: int, most: int) -> str:
    """What a comment says about numbers that are probably moments."""
    if _MOMENT_WORDS.isdisjoint(words):
        return ""
    for factor, unit in ((1, "seconds"), (1000, "milliseconds")):
        if _EPOCH[0] * factor <= least <= most <= _EPOCH[1] * factor:
            advice = "; `DateTime` reads them as well" if factor > 1 else ""
            return f", probably {unit} since 1970{advice}"
    return ""


def _decimal(numbers: Array, steps: Mapping[str, object]) -> Notation:
    bounds = pc.min_max(numbers).as_py()
    seen = numbers_seen("numbers", bounds["min"], bounds["max"])
    return Notation(base=ScalarType(Scalar.F64), steps=steps, seen=seen, bounds=(bounds["min"], bounds["max"]))


def _grouped(texts: Texts) -> Notation | None:
    """Numbers with separators that a plain number does not have."""
    for thousands, decimal in _FORMS:
        group, point = _escaped(thousands), _escaped(decimal)
        grouped = f"^-?[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+(?:{point}[0-9]+)?$"
        whole = f"^-?(?:0|[1-9][0-9]{{0,2}}|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+)"
        # A number of four digits without a separator beside one with: then it separates something else.
        if texts.any_match(grouped) and texts.all_match(f"{whole}(?:{point}[0-9]+)?$"):
            return _separated(texts, {"decimal": decimal, "thousands": thousands}, thousands, decimal)
    if texts.all_match(r"^-?(?:0|[1-9][0-9]*)(?:,[0-9]+)?$"):
        return _separated(texts, {"decimal": ","}, "", ",")
    return None


_NAMES = {"thousands": "thousands", "decimal": "decimals"}


def _separated(texts: Texts, form: Mapping[str, str], thousands: str, decimal: str) -> Notation:
    plain = texts.distinct
    if thousands:
        plain = pc.replace_substring(plain, thousands, "")
    plain = pc.replace_substring(plain, decimal, ".")
    form = {name: sign for name, sign in form.items() if (name, sign) != ("decimal", ".")}
    separators = " and ".join(
        f"`{sign}` {'between' if name == 'thousands' else 'before'} {_NAMES[name]}" for name, sign in form.items()
    )
    if pc.any(pc.match_substring(plain, "."), min_count=0).as_py():
        found = _decimal(plain.cast(pa.float64()), {"number": form})
    else:
        found = _whole(texts, plain.cast(pa.int64()), {"number": form})
    return Notation(base=found.base, steps=found.steps, seen=f"{found.seen}, with {separators}")


def _escaped(sign: str) -> str:
    return f"\\{sign}" if sign in ".'" else sign


# ---- Lists


#: An item is a word or a few.
_LONGEST_ITEM = 60
_AVERAGE_ITEM = 30
_LIST_WORDS = word_set("cast crew languages")
#: Texts that are parsed as JSON at most.
_PARSED = 20_000


def _lists(texts: Texts) -> Notation | None:
    if texts.is_text and texts.all_match(r"(?s)^\[.*\]$") and len(texts.distinct) <= _PARSED:
        return _json_lists(texts)
    if texts.any_match("://"):
        return None
    for separator in ("|", ";"):
        found = _separated_list(texts, separator)
        if found is not None:
            return found
    is_plural = bool(texts.words) and (singular(texts.words[-1]) != texts.words[-1] or texts.words[-1] in _LIST_WORDS)
    found = _separated_list(texts, ",") if is_plural else None
    # A comma is a part of many texts: here items come again and again.
    return found if found is not None and _share_items(texts, found) else None


def _separated_list(texts: Texts, separator: str) -> Notation | None:
    has_several = pc.match_substring(texts.distinct, separator)
    several = pc.sum(pc.if_else(has_several, texts.counts, 0)).as_py() or 0
    if several < 2 or several * 20 < texts.total:
        return None
    items = pc.list_flatten(pc.split_pattern(texts.distinct, separator))
    plain = pc.utf8_trim_whitespace(items)
    lengths = pc.utf8_length(plain)
    if (
        pc.min(lengths).as_py() == 0
        or pc.max(lengths).as_py() > _LONGEST_ITEM
        or pc.mean(lengths).as_py() > _AVERAGE_ITEM
    ):
        return None
    is_padded = not items.equals(plain)
    distinct = len(pc.unique(plain))
    shown_items = f"{distinct:,} different items" if distinct > 1 else "1 item"
    steps: dict[str, object] = {"split": separator}
    if is_padded:
        blank = pc.match_substring(texts.distinct, f"{separator} ")
        tight = pc.utf8_trim_whitespace(pc.list_flatten(pc.split_pattern(texts.distinct, f"{separator} ")))
        is_regular = (
            pc.all(pc.equal(blank, has_several)).as_py() and not pc.any(pc.match_substring(tight, separator)).as_py()
        )
        steps = {"split": f"{separator} "} if is_regular else {"split": separator, "trim": True}
    return Notation(base=ListType(_item_scalar(plain)), steps=steps, seen=f"`{steps['split']}` between {shown_items}")


def _item_scalar(items: Array) -> Scalar:
    if pc.all(pc.match_substring_regex(items, _WHOLE)).as_py():
        return Scalar.I64
    is_number = pc.all(pc.match_substring_regex(items, _DECIMAL)).as_py()
    return (
        Scalar.F64
        if is_number and not pc.any(pc.match_substring_regex(items, _LEADING_ZERO)).as_py()
        else Scalar.STRING
    )


def _share_items(texts: Texts, notation: Notation) -> bool:
    """Whether every text with several items has one that is in another text, too."""
    lists = pc.split_pattern(texts.distinct, str(notation.steps["split"]))
    several = lists.filter(pc.greater(pc.list_value_length(lists), 1))
    places = np.asarray(pc.list_parent_indices(several))
    items = pc.utf8_trim_whitespace(pc.list_flatten(several)).dictionary_encode()
    singles = pc.utf8_trim_whitespace(pc.list_flatten(lists.filter(pc.equal(pc.list_value_length(lists), 1))))
    counts = np.bincount(np.asarray(items.indices), minlength=len(items.dictionary))
    is_shared = (counts > 1) | np.asarray(pc.is_in(items.dictionary, singles))
    return len(np.unique(places[is_shared[np.asarray(items.indices)]])) == len(several)


def _json_lists(texts: Texts) -> Notation | None:
    lists: list[list[object]] = []
    for text in texts.all():
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, list):
            return None
        lists.append(found)
    kinds = {type(item) for found in lists for item in found}
    lengths = {len(found) for found in lists}
    if kinds and kinds <= {int, float}:
        if float in kinds and is_vector(lengths, texts.words):
            (length,) = lengths
            return Notation(base=VectorType(length), seen=vector_seen(length))
        scalar = Scalar.F64 if float in kinds else Scalar.I64
        return Notation(base=ListType(scalar), seen="lists of numbers")
    return Notation(base=ListType(Scalar.STRING), seen="lists of texts") if kinds <= {str} else None


_VECTOR_WORDS = word_set("embedding embeddings vector vec emb features")
_SHORTEST_VECTOR = 8


def is_vector(lengths: set[int], words: Sequence[str]) -> bool:
    """Whether lists of numbers with fractions are vectors: all of one length, which is not short by chance."""
    if len(lengths) != 1:
        return False
    (length,) = lengths
    return length >= (_SHORTEST_VECTOR if _VECTOR_WORDS.isdisjoint(words) else 1)


def vector_seen(length: int) -> str:
    """What a comment says about vectors."""
    return f"lists of {length:,} numbers each"


# ---- Texts, and sets of few of them


def _texts_seen(texts: Texts) -> str:
    if not len(texts.distinct):
        return "no values"
    count = len(texts.distinct)
    found = f"{count:,} different texts" if count > 1 else f"always {quoted(texts.all()[0])}"
    return found + _why_text(texts)


def _why_text(texts: Texts) -> str:
    """Why texts that look like something else stay texts."""
    if texts.is_declared and texts.all_match(_DECIMAL):
        return "; the source says that these digits are texts"
    if is_ambiguous(texts):
        return "; dates in which day and month could be exchanged: say which in `date_format`"
    if texts.all_match(r"^[-+]?[0-9][0-9 .,]*%$"):
        return "; a percent sign is not a part of a number"
    if texts.all_match(r"^-?(?:[$€£¥]|[A-Z]{3}) ?-?[0-9][0-9.,']*$|^-?[0-9][0-9.,']* ?(?:[$€£¥]|[A-Z]{3})$"):
        return "; a currency is not a part of a number"
    if texts.all_match(r"^[+-]?[0-9]+$"):
        if texts.any_match(_LEADING_ZERO):
            return f"; digits with leading zeros, as in {texts.first_match(_LEADING_ZERO)}, are codes"
        return "; digits that are not counted with"
    numbers = pc.match_substring_regex(texts.distinct, _DECIMAL)
    count = pc.sum(pc.if_else(numbers, texts.counts, 0)).as_py() or 0
    if count * 20 >= texts.total * 19 and not texts.all_match(_DECIMAL):
        other = texts.distinct.filter(pc.invert(numbers))
        return f"; {count:,} of {texts.total:,} are numbers, and {quoted(plain_list(other)[0])} is not"
    return ""


#: Columns that name one of a few kinds.
_KIND_WORDS = word_set(
    "status state type kind category class level stage gender sex role priority severity mode scope visibility phase"
)
#: Columns whose next file has other values.
_OPEN_WORDS = word_set(
    "country city region province county language lang currency name title author user brand model version company "
    "license code"
)
_MOST_CHOICES = 10


def choices(texts: Texts) -> tuple[tuple[str, ...], str]:
    """The values of a closed set, where a column names one of a few kinds again and again, and why; else none.

    A value that another file brings is refused then, so a name has to speak for it, or much repetition.
    """
    texts = texts.without(null_texts(texts))
    count = len(texts.distinct)
    if not 2 <= count <= _MOST_CHOICES or not texts.all_match("^[A-Za-z0-9_-]+$") or not texts.any_match("[A-Za-z]"):
        return (), ""
    is_kind = not _KIND_WORDS.isdisjoint(texts.words)
    least = int(pc.min(texts.counts).as_py())
    is_repeated = least >= 2 and texts.total >= 10 * count if is_kind else least >= 5 and texts.total >= 50 * count
    if not is_repeated or not _OPEN_WORDS.isdisjoint(texts.words):
        return (), ""
    return tuple(sorted(texts.all())), f"{count} texts, each one {least:,} times or more"
