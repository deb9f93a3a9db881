"""Notations of values in sources: where they come from, texts for null, dates and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.violations import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Integers: TypeAlias = "NDArray[np.int64]"


# ---- Value sources of a mapping
#
# Plain values: they travel to tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolWords:
    """The texts that stand for true and for false; the case of letters counts."""

    true: tuple[str, ...]
    false: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberForm:
    """The format of numbers: the decimal separator, and the one between groups of three digits, if any."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def pattern(self) -> str:
        """All of its numbers, in the syntax of RE2."""
        digits = "[0-9]+"
        if self.thousands is not None:
            digits = f"(?:[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        return f"^-?{digits}(?:{re.escape(self.decimal)}[0-9]+)?(?:[eE][+-]?[0-9]+)?$"

    @property
    def description(self) -> str:
        """The form as a message shows it."""
        text = f"a number with the decimal separator {self.decimal!r}"
        return text if self.thousands is None else f"{text} and {self.thousands!r} every 3 digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The steps of one value."""

    trim: bool = False
    #: Texts that stand for null.
    null: tuple[str, ...] = ()
    #: What separates the items of a list.
    split: str | None = None
    words: BoolWords | None = None
    date_formats: tuple[DateFormat, ...] = ()
    number: NumberForm | None = None

    @property
    def is_typed(self) -> bool:
        """Whether a step makes something else of texts: a truth value, a date, a number."""
        return self.words is not None or bool(self.date_formats) or self.number is not None


def notation(value: bool | int) -> str:
    """A truth value or a whole number as CSV writes it, with all of its digits."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class FixedText:
    """A text that is the same in all records."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """The source of a value and its format: a column, several that are joined, or a fixed text."""

    #: Columns by name, or by the path of a member of a struct. Empty: the column that has the name of the property.
    parts: tuple[str | FixedText, ...]
    separator: str = ""
    transforms: Transforms = Transforms()
    #: Whether a text is made of the parts, also of a single one.
    is_joined: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(part for part in self.parts if isinstance(part, str))

    @property
    def plain_column(self) -> str | None:
        """The column whose values are taken as they are, if that is all."""
        return self.only_column if self.transforms == Transforms() else None

    @property
    def only_column(self) -> str | None:
        """The column, where there is one and no text is made of it."""
        is_single = len(self.parts) == 1 and not self.is_joined
        return self.parts[0] if is_single and isinstance(self.parts[0], str) else None


def column_source(name: str) -> ValueSource:
    """The values of a column as they are."""
    return ValueSource(parts=(name,))


#: What feeds an end of an edge: ids, or the members of a key by name.
EndSource = ValueSource | Mapping[str, ValueSource]


# ---- Null texts of typed columns


_DIGIT = re.compile("[0-9]")
#: Zeros behind the digits that count of a fraction of a second, and a point that they leave alone.
_ZEROS = re.compile(r"(?:[.]|([.][0-9]*[1-9]))0+(?=(?:Z|[+-][0-9:]+)?$)", re.ASCII)
#: Types whose values have a notation of their own, with one of it.
_EXAMPLES: tuple[tuple[Callable[[pyarrow.DataType], bool], str], ...] = (
    (pa.types.is_integer, "-1"),
    (pa.types.is_floating, "-1.5"),
    (pa.types.is_decimal, "-1.5"),
    (pa.types.is_date, "1970-01-01"),
    (pa.types.is_timestamp, "1970-01-01T00:00:00Z"),
)


def comparable(column: Array) -> Array:
    """The same values in a type that Arrow compares."""
    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else column


def as_values(text: str, kind: pyarrow.DataType) -> list[Array]:
    """A text for null as a value of a typed column; none where it is not the notation of one."""
    is_hexadecimal = pa.types.is_integer(kind) and "x" in text.lower()
    is_other_word = pa.types.is_boolean(kind) and text not in ("true", "false")
    if is_hexadecimal or is_other_word:
        return []
    if pa.types.is_timestamp(kind):
        return _as_moments(text, kind)
    try:
        return [pa.array([text]).cast(kind)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return []


def _as_moments(text: str, kind: Any) -> list[Array]:
    """A text as a moment; one without a zone is in UTC."""
    plain = pa.array([_ZEROS.sub(r"\1", text)])
    for zone in (None, "UTC"):
        try:
            # Arrow takes texts with a zone for one type, and those without for the other.
            return [plain.cast(pa.timestamp(kind.unit, zone)).view(kind)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return []


def refuse_null_texts(source: ValueSource, column: str, kind: pyarrow.DataType, owner: str) -> None:
    """Make sure that texts for null say something about a column of numbers, days or moments.

    A word such as `N/A` is meant for other sources of the same mapping. A text with digits is meant for a value; if a
    column has none that any of the texts could be, the mapping does not do what it seems to do.

    Raises:
        BadRequestError: no text is a value of the column, and one has digits.
    """
    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    example = next((text for is_such, text in _EXAMPLES if is_such(kind)), None)
    numeric = [text for text in source.transforms.null if _DIGIT.search(text)]
    if example is None or not numeric:
        return
    if not any(as_values(text, kind) for text in source.transforms.null):
        raise BadRequestError(
            f"{owner}: `null: {shown(numeric[0])}` is not a value of the column `{shown(column)}`, which holds {kind}: "
            f"write it as such a value, as in `{example}`, beside texts for other sources"
        )


# ---- Dates and times in a custom format
#
# The directives are a part of those of `strptime`, with one meaning on every platform. A format takes the whole text.
# A number has one or two digits, and exactly two where another number follows or precedes without anything in
# between.


_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_SHORT_MONTHS = tuple(name[:3] for name in _MONTHS)
_NAMES = "(?i:{})"
#: What a directive takes, apart from the numbers of one or two digits.
_PATTERNS = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "f": "[0-9]{1,9}",
    "b": _NAMES.format("|".join(_SHORT_MONTHS)),
    "B": _NAMES.format("|".join(_MONTHS)),
    "p": "(?i:am|pm)",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
_DIRECTIVES = tuple("YymbBdHIMSfpz")
_NUMBERS = tuple("YyfmdHIMS")
#: Directives that stand for the same part of a moment: at most one of them may appear.
_PARTS = ("Yy", "mbB", "d", "HI", "M", "S", "f", "p", "z")
_TOKEN = re.compile(r"%(.?)|([^%]+)", re.DOTALL)
#: A year of two digits from here on is one of the last century, as POSIX has it.
_FIRST_SHORT_YEAR = 69
_DAY_SECONDS = 86_400
#: So many equal texts on average make it worth to look for them.
_REPEATED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DateFormat:
    """A notation of dates or times; made by `date_format`."""

    text: str
    #: In the syntax of RE2; groups are called like their directives.
    pattern: str
    directives: frozenset[str]

    @property
    def has_zone(self) -> bool:
        """Whether texts say how far they are from UTC."""
        return "z" in self.directives


@dataclass(slots=True, kw_only=True)
class ReadMoments:
    """Parsed texts. The seconds and nanoseconds of a text without a moment mean nothing."""

    is_read: NDArray[np.bool_]
    #: Since 1970, in UTC.
    seconds: _Integers
    nanoseconds: _Integers

    @property
    def days(self) -> _Integers:
        """Days since 1970."""
        return self.seconds // _DAY_SECONDS

    @property
    def has_time(self) -> NDArray[np.bool_]:
        """A mask of the moments that are not the beginning of a day."""
        return np.logical_or(self.seconds % _DAY_SECONDS, self.nanoseconds)


def date_format(text: str) -> DateFormat:
    """The notation that a format describes.

    Raises:
        ValueError: it is not a format; the text says why.
    """
    tokens = [(found[1], found[2]) for found in _TOKEN.finditer(text)]
    pattern, seen = "", []
    for number, (directive, literal) in enumerate(tokens):
        if directive is None or directive == "%":
            pattern += re.escape(literal or "%")
            continue
        if directive not in _DIRECTIVES:
            known = " ".join(f"%{name}" for name in _DIRECTIVES)
            raise ValueError(f"`%{directive}` is not a directive; known are {known} and %%")
        beside = [tokens[place][0] for place in (number - 1, number + 1) if 0 <= place < len(tokens)]
        is_tight = any(item in _NUMBERS for item in beside)
        width = "[0-9]{2}" if is_tight else "[0-9]{1,2}"
        pattern += f"(?P<{directive}>{_PATTERNS.get(directive, width)})"
        seen.append(directive)
    _check_parts(seen)
    return DateFormat(text=text, pattern=f"^(?:{pattern})$", directives=frozenset(seen))


def _check_parts(seen: list[str]) -> None:
    for part in _PARTS:
        if sum(seen.count(name) for name in part) > 1:
            raise ValueError(f"it has more than one of {', '.join(f'%{name}' for name in part)}")
    for what, part in (("year", "Yy"), ("month", "mbB"), ("day", "d")):
        if not set(part) & set(seen):
            raise ValueError(f"it has no {what} ({', '.join(f'%{name}' for name in part)})")
    if ("I" in seen) != ("p" in seen):
        raise ValueError("%I (hours up to 12) and %p (AM or PM) belong together")
    for finer, coarser in (("f", "S"), ("S", "M")):
        if finer in seen and coarser not in seen:
            raise ValueError(f"it has %{finer} without %{coarser}")
    if "M" in seen and not set("HI") & set(seen):
        raise ValueError("it has %M without %H")


def read_moments(formats: tuple[DateFormat, ...], texts: Array) -> ReadMoments:
    """Parse a column of texts: of several formats the first that gives a moment of the calendar counts."""
    distinct = texts.dictionary_encode()
    if not 0 < _REPEATED * len(distinct.dictionary) <= len(texts):
        return _read_all(formats, texts)
    # Days repeat: each one is read once.
    known = _read_all(formats, distinct.dictionary)
    places = distinct.indices.fill_null(0).to_numpy(zero_copy_only=False)
    is_valid = distinct.is_valid().to_numpy(zero_copy_only=False)
    return ReadMoments(
        is_read=known.is_read[places] & is_valid, seconds=known.seconds[places], nanoseconds=known.nanoseconds[places]
    )


def _read_all(formats: tuple[DateFormat, ...], texts: Array) -> ReadMoments:
    count = len(texts)
    found = ReadMoments(
        is_read=np.zeros(count, dtype=bool),
        seconds=np.zeros(count, dtype=np.int64),
        nanoseconds=np.zeros(count, dtype=np.int64),
    )
    left = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    for item in formats:
        if not len(left):
            break
        some = texts if len(left) == count else texts.take(pa.array(left))
        is_read, seconds, nanoseconds = _read(item, some)
        places = left[is_read]
        found.is_read[places] = True
        found.seconds[places] = seconds[is_read]
        found.nanoseconds[places] = nanoseconds[is_read]
        left = left[~is_read]
    return found


def _read(item: DateFormat, texts: Array) -> tuple[NDArray[np.bool_], _Integers, _Integers]:
    parts = pc.extract_regex(texts, item.pattern)
    matched = parts.is_valid().to_numpy(zero_copy_only=False)

    def number(name: str) -> _Integers:
        if name not in item.directives:
            return np.zeros(len(texts), dtype=np.int64)
        # What did not match has empty parts.
        digits = pc.if_else(parts.is_valid(), parts.field(name), "0")
        values: _Integers = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return values

    def place(name: str, words: tuple[str, ...]) -> _Integers:
        """The place of each word, and -1 for another one: RE2 takes U+017F for an `s` and U+212A for a `k`."""
        index = pc.index_in(pc.utf8_lower(parts.field(name)), pa.array(words))
        values: _Integers = index.fill_null(-1).cast(pa.int64()).to_numpy()
        return values

    year = number("Y")
    if "y" in item.directives:
        short = number("y")
        year = short + np.where(short >= _FIRST_SHORT_YEAR, 1900, 2000)
    month = number("m")
    for name, words in (("b", _SHORT_MONTHS), ("B", _MONTHS)):
        if name in item.directives:
            month = place(name, words) + 1
    day, minute, second = number("d"), number("M"), number("S")
    hour, is_hour = number("H"), number("H") <= 23
    if "I" in item.directives:
        half = number("I")
        noon = place("p", ("am", "pm"))
        hour = half % 12 + 12 * noon
        is_hour = (half >= 1) & (half <= 12) & (noon >= 0)
    days, is_day = _days(year, month, day)
    offset, is_offset = _offsets(item, parts)
    seconds = days * _DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    is_read = matched & is_day & is_hour & (minute <= 59) & (second <= 59) & is_offset
    return is_read, seconds, _nanoseconds(item, parts)


def _days(year: _Integers, month: _Integers, day: _Integers) -> tuple[_Integers, NDArray[np.bool_]]:
    """Days since 1970, and which of them are in the calendar of the years 1 to 9999."""
    is_month = (month >= 1) & (month <= 12) & (year >= 1)
    months = ((year - 1970) * 12 + np.where(is_month, month, 1) - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    return first + day - 1, is_month & (day >= 1) & (day <= length)


def _offsets(item: DateFormat, parts: Array) -> tuple[_Integers | int, NDArray[np.bool_] | bool]:
    """Seconds before UTC."""
    if not item.has_zone:
        return 0, True
    texts = pc.replace_substring(pc.struct_field(parts, "z"), ":", "")
    is_given = pc.fill_null(pc.equal(pc.utf8_length(texts), 5), False)
    plain = pc.if_else(is_given, texts, "+0000")
    hours, minutes = (pc.utf8_slice_codeunits(plain, begin, begin + 2).cast(pa.int64()).to_numpy() for begin in (1, 3))
    sign = np.where(pc.starts_with(plain, "-").to_numpy(zero_copy_only=False), -1, 1)
    return sign * (hours * 3600 + minutes * 60), (hours <= 23) & (minutes <= 59)


def _nanoseconds(item: DateFormat, parts: Array) -> _Integers:
    if "f" not in item.directives:
        return np.zeros(len(parts), dtype=np.int64)
    digits = pc.if_else(parts.is_valid(), pc.struct_field(parts, "f"), "0")
    values: _Integers = pc.utf8_rpad(digits, 9, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
