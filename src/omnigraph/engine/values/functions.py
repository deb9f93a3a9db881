"""The functions of single values over whole columns: one kernel per entry of `lang.query.functions.table`.

Three-valued: a null argument gives null, `coalesce` excepted. No row raises. Every engine calls these kernels, so a
function means the same wherever a query runs; texts are Unicode code points, without a locale.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import repeat
from typing import Any, Final, cast

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Datum, arrow_type, pa, pc
from omnigraph.core.types import FLOATS, BaseType, PropertyType, Scalar, scalar_of
from omnigraph.engine.rows import BoolArray, FloatArray, Numbers
from omnigraph.engine.values import calendar
from omnigraph.engine.values.arithmetic import array_of, as_array, numbers_of

Arguments = Sequence[Datum]
#: Arguments of which none is a null scalar and the first or another one is an array; the type of the result; rows.
Kernel = Callable[[Arguments, PropertyType, int], Datum]


def apply(name: str, arguments: Arguments, result: PropertyType, count: int) -> Datum:
    """The function of this name over columns of `count` rows and values that are the same for all rows.

    `result` is the type that the table of functions gives. A scalar comes back where all arguments are scalars.
    Functions that can overflow are computed by `arithmetic.calculate`.
    """
    type_ = arrow_type(result.base)
    if name != "coalesce" and any(isinstance(item, pyarrow.Scalar) and not item.is_valid for item in arguments):
        return cast("Datum", pa.scalar(None, type_))
    if not all(map(_is_fixed, arguments)):
        return _converted(KERNELS[name](arguments, result, count), type_)
    one: Any = _converted(KERNELS[name]([as_array(arguments[0], 1), *arguments[1:]], result, 1), type_)
    return cast("Datum", one[0])


def converted(value: Datum, base: BaseType) -> Datum:
    """Values as values of the common type of several: integers and floats widen, a U64 beyond I64 is null."""
    return _converted(value, arrow_type(base))


def _is_fixed(datum: Datum) -> bool:
    return isinstance(datum, pa.Scalar)


def _value(datum: Datum) -> Any:
    """The Python value of an argument that the checker knows to be the same for all rows."""
    assert isinstance(datum, pyarrow.Scalar), "the argument is a literal or a parameter"
    return datum.as_py()


def _converted(value: Datum, type_: pyarrow.DataType) -> Datum:
    if value.type == type_:
        return value
    if pa.types.is_null(value.type):
        return cast(
            "Datum", pa.scalar(None, type_) if isinstance(value, pyarrow.Scalar) else pa.nulls(len(value), type_)
        )
    if pa.types.is_list(type_):
        return _converted_list(value, type_)
    if pa.types.is_uint64(value.type) and pa.types.is_int64(type_):
        value = pc.if_else(pc.less_equal(value, _MOST_I64), value, pa.scalar(None, pa.uint64()))
    return cast("Datum", pc.cast(value, type_, safe=False))


def _converted_list(value: Datum, type_: pyarrow.DataType) -> Datum:
    # Taking the rows makes offsets that begin at 0, which belong to all of the values.
    lists: Any = as_array(value, 1)
    whole = lists.take(pa.array(np.arange(len(lists))))
    items = _converted(whole.values, cast("Any", type_).value_type)
    array = pa.ListArray.from_arrays(whole.offsets, items, type=type_, mask=whole.is_null())
    return cast("Datum", array[0] if _is_fixed(value) else array)


_MOST_I64: Final = pa.scalar(2**63 - 1, pa.uint64())


# ---- Text


#: What Unicode calls white space; `str.strip` of Python and Arrow's own kernel take off more.
_WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
#: No text of a column is longer.
_LONGEST: Final = 2**31 - 1


def _text(kernel: Callable[..., Array], **options: object) -> Kernel:
    """A kernel of one text."""
    return lambda arguments, _result, _count: kernel(arguments[0], **options)


def _concat(arguments: Arguments, _result: PropertyType, _count: int) -> Datum:
    return cast("Datum", pc.binary_join_element_wise(*arguments, ""))


def _substring(arguments: Arguments, result: PropertyType, count: int) -> Datum:
    texts, *bounds = arguments
    if not all(map(_is_fixed, bounds)):
        return _row_by_row(_sliced, arguments, result, count)
    begin, *numbers = map(_value, bounds)
    if numbers and numbers[0] < 0:
        return cast("Datum", pa.nulls(count, pa.utf8()))
    low = min(max(begin, 1) - 1, _LONGEST)
    high = min(max(begin - 1 + numbers[0], low), _LONGEST) if numbers else _LONGEST
    return cast("Datum", pc.utf8_slice_codeunits(as_array(texts, count), low, high))


def _sliced(text: str, begin: int, number: int | None = None) -> str | None:
    if number is None:
        return text[max(begin, 1) - 1 :]
    return None if number < 0 else text[max(begin, 1) - 1 : max(begin - 1 + number, 0)]


def _replace(arguments: Arguments, result: PropertyType, count: int) -> Datum:
    texts, old, new = arguments
    if not (_is_fixed(old) and _is_fixed(new)):
        return _row_by_row(_replaced, arguments, result, count)
    # Arrow's kernel never ends on an empty pattern.
    if not _value(old):
        return texts
    return cast("Datum", pc.replace_substring(as_array(texts, count), _value(old), _value(new)))


def _replaced(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _split(arguments: Arguments, result: PropertyType, count: int) -> Datum:
    texts, separator = arguments
    if not _is_fixed(separator):
        return _row_by_row(_parts, arguments, result, count)
    if not _value(separator):
        return cast("Datum", pa.nulls(count, arrow_type(result.base)))
    return cast("Datum", pc.split_pattern(as_array(texts, count), _value(separator)))


def _parts(text: str, separator: str) -> list[str] | None:
    return text.split(separator) if separator else None


def _text_test(kernel: Callable[[Array, str], Array], test: Callable[[str, str], bool]) -> Kernel:
    """Whether a text has a part: the kernel where the part is the same for all rows."""

    def tested(arguments: Arguments, result: PropertyType, count: int) -> Datum:
        texts, part = arguments
        if _is_fixed(part):
            return kernel(as_array(texts, count), _value(part))
        return _row_by_row(test, arguments, result, count)

    return tested


def _row_by_row(function: Callable[..., object], arguments: Arguments, result: PropertyType, count: int) -> Datum:
    """A function of Python for every row, where Arrow has no kernel for arguments that differ from row to row."""
    columns: list[Iterable[object]] = [
        repeat(item.as_py(), count) if isinstance(item, pyarrow.Scalar) else item.to_pylist() for item in arguments
    ]
    found = [None if None in row else function(*row) for row in zip(*columns, strict=True)]
    return cast("Datum", pa.array(found, arrow_type(result.base)))


# ---- Numbers


def _float(kernel: Callable[..., Array]) -> Kernel:
    """A kernel of floats; what is not finite is null."""

    def computed(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
        return _finite(kernel(*(_converted(item, pa.float64()) for item in arguments)))

    return computed


def _finite(numbers: Datum) -> Datum:
    """Floats without -0.0, infinities and what is not a number."""
    return cast("Datum", pc.if_else(pc.is_finite(numbers), pc.add(numbers, 0.0), pa.scalar(None, pa.float64())))


def _whole(kernel: Callable[..., Array]) -> Kernel:
    """A kernel that makes floats whole; integers are as they were."""

    def computed(arguments: Arguments, result: PropertyType, count: int) -> Datum:
        is_float = scalar_of(result.base) in FLOATS
        return _float(kernel)(arguments, result, count) if is_float else arguments[0]

    return computed


def _round(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    """So many digits behind the point, half away from zero.

    Not Arrow's own kernel, whose powers of ten are floats of 32 bits: it rounds 3e10 to -11 digits up.
    """
    if scalar_of(result.base) not in FLOATS:
        return arguments[0]
    digits = _value(arguments[1]) if len(arguments) > 1 else 0
    numbers, known = numbers_of(arguments[0])
    exact = numbers.astype(np.float64)
    power = np.float64(10.0 ** abs(digits))
    with np.errstate(over="ignore"):
        shifted = exact * power if digits > 0 else exact / power
    # From here on floats have no digits behind the point.
    has_digits = np.abs(shifted) < 2.0**52
    shifted = np.where(has_digits, shifted, 0.0)
    whole = np.trunc(shifted)
    whole += np.where(np.abs(shifted - whole) >= 0.5, np.copysign(1.0, shifted), 0.0)
    rounded = np.where(has_digits, whole / power if digits > 0 else whole * power, exact)
    return array_of(rounded, known, result.base)


def _abs(arguments: Arguments, result: PropertyType, count: int) -> Datum:
    if scalar_of(result.base) in FLOATS:
        return _float(pc.abs)(arguments, result, count)
    numbers = _converted(arguments[0], arrow_type(result.base))
    if pa.types.is_uint64(numbers.type):
        return numbers
    return cast("Datum", pc.abs(pc.if_else(pc.equal(numbers, -(2**63)), pa.scalar(None, pa.int64()), numbers)))


def _extreme(kernel: Callable[..., Array], logical: Callable[[Array, Array], Array]) -> Kernel:
    """The smallest or largest of several values; null where one is."""

    def found(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
        values = [converted(item, result.base) for item in arguments]
        if scalar_of(result.base) is Scalar.BOOL:
            return reduce(cast("Callable[[Datum, Datum], Datum]", logical), values)
        if scalar_of(result.base) in FLOATS:
            values = [pc.add(value, pa.scalar(0.0, value.type)) for value in values]
        return kernel(*values, skip_nulls=False)

    return found


def _coalesce(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    return cast("Datum", pc.coalesce(*(converted(item, result.base) for item in arguments)))


# ---- Moments


def _date(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    value = arguments[0]
    return (
        calendar.parse_dates(as_array(value, 1))
        if pa.types.is_string(value.type)
        else calendar.converted(value, result)
    )


def _datetime(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    value = arguments[0]
    return (
        calendar.parse_datetimes(as_array(value, 1))
        if pa.types.is_string(value.type)
        else calendar.converted(value, result)
    )


def _moments(function: Callable[..., Datum]) -> Kernel:
    return lambda arguments, result, _count: function(*arguments, result)


def _truncate(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    return calendar.truncate(arguments[0], _value(arguments[1]), result)


# ---- Lists


def _element(arguments: Arguments, _result: PropertyType, count: int) -> Datum:
    lists: Any = as_array(arguments[0], 1)
    positions, known = numbers_of(arguments[1])
    starts = np.asarray(lists.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
    sizes = np.diff(starts)
    present = known & np.asarray(lists.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    inside = present & (positions >= 1) & (positions <= sizes)
    places = starts[:-1] + np.where(inside, positions, 1).astype(np.int64) - 1
    shape = (count,)
    inside, places = np.broadcast_to(inside, shape), np.broadcast_to(places, shape)
    return cast("Datum", lists.values.take(pa.array(places, mask=~inside)))


# ---- Casts


def _string(arguments: Arguments, _result: PropertyType, _count: int) -> Datum:
    value = as_array(arguments[0], 1)
    if pa.types.is_date32(value.type):
        return calendar.render_days(value)
    if pa.types.is_date64(value.type):
        return calendar.render_milliseconds(value)
    return _float_texts(value) if pa.types.is_floating(value.type) else cast("Datum", value.cast(pa.utf8()))


def _float_texts(numbers: Array) -> Datum:
    """The fewest digits that tell floats of their width apart, without an exponent."""
    if pa.types.is_float64(numbers.type):
        # Up to here whole numbers are their own digits, which Arrow would write with an exponent from 1e10 on.
        is_whole = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
        whole = pc.if_else(is_whole, numbers, 0.0).cast(pa.int64()).cast(pa.utf8())
        return cast("Datum", pc.if_else(is_whole, whole, _short_texts(pc.if_else(is_whole, 0.0, numbers))))
    return _short_texts(numbers)


def _short_texts(numbers: Array) -> Datum:
    texts = pc.add(numbers, pa.scalar(0.0, numbers.type)).cast(pa.utf8())
    has_exponent = pc.match_substring(texts, "e")
    if not pc.any(has_exponent).as_py():
        return cast("Datum", texts)
    with_exponent = texts.filter(has_exponent).dictionary_encode()
    plain = pa.array([f"{Decimal(text):f}" for text in with_exponent.dictionary.to_pylist()], pa.utf8())
    return cast("Datum", pc.replace_with_mask(texts, has_exponent, plain.take(with_exponent.indices)))


def _i64(arguments: Arguments, result: PropertyType, _count: int) -> Datum:
    value = as_array(arguments[0], 1)
    if pa.types.is_string(value.type):
        return _integers_of(value)
    if not pa.types.is_floating(value.type):
        return _converted(value, pa.int64())
    numbers, known = numbers_of(value)
    whole = np.trunc(numbers.astype(np.float64))
    inside = (whole >= -(2.0**63)) & (whole < 2.0**63)
    return array_of(np.where(inside, whole, 0).astype(np.int64), known & inside, result.base)


def _integers_of(texts: Array) -> Datum:
    """The numbers of decimal digits with or without a sign; null for every other text and beyond I64."""
    # Arrow reads these, and a pattern that only matches is much faster than one that finds parts.
    is_plain = pc.match_substring_regex(texts, "^-?[0-9]{1,18}$")
    numbers = pc.if_else(is_plain, texts, pa.scalar(None, pa.utf8())).cast(pa.int64())
    if pc.all(is_plain).as_py():
        return cast("Datum", numbers)
    others = pc.fill_null(pc.invert(is_plain), False)
    return cast("Datum", pc.replace_with_mask(numbers, others, _long_integers_of(texts.filter(others))))


def _long_integers_of(texts: Array) -> Array:
    """The same for texts with a plus, with zeros before the number, or that may be beyond I64."""
    parts = pc.extract_regex(texts, "^(?P<sign>[+-]?)0*(?P<digits>[0-9]+)$")
    sign, digits = pc.struct_field(parts, "sign"), pc.struct_field(parts, "digits")
    is_negative = pc.equal(sign, "-")
    limit = pc.if_else(is_negative, str(2**63), str(2**63 - 1))
    length = pc.utf8_length(digits)
    fits = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, limit)))
    signed = pc.binary_join_element_wise(pc.if_else(is_negative, "-", ""), digits, "")
    kept = pc.if_else(pc.and_(parts.is_valid(), fits), signed, pa.scalar(None, pa.utf8()))
    return cast("Array", kept.cast(pa.int64()))


def _f64(arguments: Arguments, _result: PropertyType, _count: int) -> Datum:
    value = as_array(arguments[0], 1)
    if not pa.types.is_string(value.type):
        return _finite(_converted(value, pa.float64()))
    is_number = pc.match_substring_regex(value, r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")
    kept = pc.if_else(is_number, value, pa.scalar(None, pa.utf8()))
    return _finite(kept.cast(pa.float64()))


# ---- Vectors


#: Numbers that are widened to 64 bits at a time.
_CELLS: Final = 1 << 20


def _vectors(function: Callable[[FloatArray, FloatArray], FloatArray]) -> Kernel:
    """A function of two vectors, some rows at a time."""

    def computed(arguments: Arguments, result: PropertyType, count: int) -> Datum:
        (first, first_known), (second, second_known) = map(_matrix, arguments)
        known = np.broadcast_to(first_known & second_known, (count,))
        found = np.empty(count, np.float64)
        step = max(1, _CELLS // first.shape[1])
        for start in range(0, count, step):
            rows = slice(start, start + step)
            left, right = ((m[rows] if len(m) == count else m).astype(np.float64) for m in (first, second))
            found[rows] = function(left, right)
        return array_of(found, known, result.base)

    return computed


def _matrix(vectors: Datum) -> tuple[Numbers, BoolArray]:
    """Vectors as rows of numbers, and which are known; one row for a scalar."""
    array: Any = as_array(vectors, 1)
    size = array.type.list_size
    begin = array.offset * size
    items = array.values.slice(begin, len(array) * size)
    numbers = pc.fill_null(items, 0.0).to_numpy(zero_copy_only=False).reshape(-1, size)
    return numbers, np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _l2(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.square(first - second).sum(axis=1)), np.float64)


def _cosine(first: FloatArray, second: FloatArray) -> FloatArray:
    lengths = np.sqrt(np.square(first).sum(axis=1)) * np.sqrt(np.square(second).sum(axis=1))
    with np.errstate(invalid="ignore"):
        cosines = (first * second).sum(axis=1) / lengths
    # Rounding leaves the range of a cosine, and keeps what is not a number.
    return np.asarray(np.clip(cosines, -1.0, 1.0), np.float64)


# ---- The kernels by name


#: All functions but those that can overflow.
KERNELS: Final[dict[str, Kernel]] = {
    "lower": _text(pc.utf8_lower),
    "upper": _text(pc.utf8_upper),
    "trim": _text(pc.utf8_trim, characters=_WHITE_SPACE),
    "length": _text(pc.utf8_length),
    "substring": _substring,
    "concat": _concat,
    "replace": _replace,
    "split": _split,
    "matches": lambda arguments, _result, count: pc.match_substring_regex(
        as_array(arguments[0], count), _value(arguments[1])
    ),
    "contains": _text_test(pc.match_substring, operator.contains),
    "starts_with": _text_test(pc.starts_with, str.startswith),
    "ends_with": _text_test(pc.ends_with, str.endswith),
    "abs": _abs,
    "round": _round,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "sqrt": _float(pc.sqrt),
    "pow": _float(pc.power),
    "ln": _float(pc.ln),
    "exp": _float(pc.exp),
    "least": _extreme(pc.min_element_wise, pc.and_),
    "greatest": _extreme(pc.max_element_wise, pc.or_),
    "coalesce": _coalesce,
    **{name: _moments(partial(calendar.part, name)) for name in ("year", "month", "day", "hour", "minute", "second")},
    "date": _date,
    "datetime": _datetime,
    "add_days": _moments(calendar.add_days),
    "add_months": _moments(calendar.add_months),
    "days_between": _moments(calendar.days_between),
    "seconds_between": _moments(calendar.seconds_between),
    "truncate": _truncate,
    "size": _text(pc.list_value_length),
    "element": _element,
    "string": _string,
    "i64": _i64,
    "f64": _f64,
    "l2": _vectors(_l2),
    "cosine": _vectors(_cosine),
}
