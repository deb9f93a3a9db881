"""Filters as data and their SQL, and the names of row columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from omnigraph.core.types import FLOATS, INTEGERS, BaseType, Scalar, integer_range, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.frozen import frozen

# ---- Filters as data, and their rendering for Lance: values are quoted here and nowhere else
#
# Comparisons follow the meaning that the query language states: null never matches, numbers compare by value without
# narrowing. A comparison that no value of the column can satisfy becomes `false`.


_OPERATORS = frozenset({"=", "!=", "<", "<=", ">", ">="})


@frozen
class Compare:
    """`column op value` for a scalar column; `value` is in stored form and may be null."""

    column: str
    base: BaseType
    op: str
    value: StoredValue

    def __post_init__(self) -> None:
        if self.op not in _OPERATORS:
            raise ValueError(f"{self.op!r} is not a comparison")


@frozen
class OneOf:
    """`column` is one of these strings."""

    column: str
    values: Sequence[str]


@frozen
class AnyOf:
    """At least one of the filters holds."""

    filters: tuple[Filter, ...]


@frozen
class AllOf:
    """All of the filters hold."""

    filters: tuple[Filter, ...]


@frozen
class IsNull:
    """`column` is null, or is not."""

    column: str
    negated: bool = False


@frozen
class HasItem:
    """A list column contains this value; a null list contains nothing. Never for floats: Lance narrows the value."""

    column: str
    item: Scalar
    value: StoredValue


@frozen
class HasText:
    """A String column contains a text, or begins with it; `%` and `_` are ordinary characters."""

    column: str
    text: str
    at_start: bool = False


Filter = Compare | OneOf | AnyOf | AllOf | IsNull | HasItem | HasText

NEVER = "false"
_BEYOND_I64 = 2**63


def to_sql(filter_: Filter) -> str:
    """The filter in the SQL dialect of Lance."""
    match filter_:
        case Compare():
            return _compare(filter_)
        case OneOf(column, values):
            if not values:
                return NEVER
            return f"{quote_name(column)} IN ({', '.join(map(quote_text, values))})"
        case IsNull(column, negated):
            return f"{quote_name(column)} IS {'NOT ' if negated else ''}NULL"
        case HasItem(column, item, value):
            found = _item(item, value)
            return NEVER if found is None else f"array_has({quote_name(column)}, {found})"
        case HasText(column, text, at_start):
            function = "starts_with" if at_start else "contains"
            return f"{function}({quote_name(column)}, {quote_text(text)})"
        case AnyOf(filters):
            return _joined("OR", filters) if filters else NEVER
        case AllOf(filters):
            return _joined("AND", filters) if filters else "true"


def _joined(word: str, filters: Sequence[Filter]) -> str:
    """Filters joined as a balanced tree.

    Lance parses and rewrites a flat chain of N as N nested expressions, and overflows its stack where that is a text of
    some thousand conditions; a tree is only as deep as the logarithm.
    """
    parts = [to_sql(item) for item in filters]
    while len(parts) > 1:
        pairs = [f"({left} {word} {right})" for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def quote_name(name: str) -> str:
    """A column name that keeps its case and cannot end early."""
    return f"`{name.replace('`', '``')}`"


def quote_text(text: str) -> str:
    """A string literal."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def _item(item: Scalar, value: StoredValue) -> str | None:
    """A value in the type of list items; None when no item can equal it."""
    match value:
        case None:
            return None
        case str(text):
            return quote_text(text)
        case bool(flag):
            return "true" if flag else "false"
        case int(number) if item in INTEGERS:
            low, high = integer_range(item)
            is_unsigned = low == 0
            bits = high.bit_length() + (0 if is_unsigned else 1)
            name = f"{'UInt' if is_unsigned else 'Int'}{bits}"
            return f"arrow_cast('{number}', '{name}')" if low <= number <= high else None
        case _:
            return _moment(item, value)


def _moment(scalar: Scalar, value: object) -> str:
    return f"arrow_cast({value!r}, '{'Date32' if scalar is Scalar.DATE else 'Date64'}')"


def _compare(compare: Compare) -> str:
    column, op, value = quote_name(compare.column), compare.op, compare.value
    scalar = scalar_of(compare.base)
    if value is None or scalar is None:
        return NEVER
    if scalar in INTEGERS and isinstance(value, int | float):
        return _compare_integer(column, op, scalar, value)
    if scalar in FLOATS and isinstance(value, int | float):
        # Lance would narrow the literal to the width of the column, so a narrow column is widened instead.
        wide = column if scalar is Scalar.F64 else f"cast({column} as double)"
        return _compare_float(wide, op, value)
    match value:
        case bool(flag):
            return f"{column} {op} {'true' if flag else 'false'}"
        case str(text):
            return f"{column} {op} {quote_text(text)}"
        case int(number):
            return f"{column} {op} {_moment(scalar, number)}"
    raise ValueError(f"{value!r} cannot be compared with {compare.base}")


def _integer(number: int) -> str:
    """An integer literal. Lance reads digits as an I64, those before a sign too, so the smallest one is a text."""
    if -_BEYOND_I64 < number < _BEYOND_I64:
        return str(number)
    return f"arrow_cast('{number}', '{'Int64' if number < 0 else 'UInt64'}')"


def _compare_integer(column: str, op: str, scalar: Scalar, value: float) -> str:
    """An integer column against any number: fractions become the next bound, values outside the range a constant."""
    if value != int(value):
        if op in ("=", "!="):
            return NEVER if op == "=" else f"{column} IS NOT NULL"
        value, op = (math.floor(value), "<=") if op in ("<", "<=") else (math.ceil(value), ">=")
    bound = int(value)
    low, high = integer_range(scalar)
    if low <= bound <= high:
        return f"{column} {op} {_integer(bound)}"
    return _compare_beyond(column, op, above=bound > high)


def _compare_beyond(column: str, op: str, *, above: bool) -> str:
    """A column against something that is above or below all of its values."""
    holds = op == "!=" or op in (("<", "<=") if above else (">", ">="))
    return f"{column} IS NOT NULL" if holds else NEVER


def _compare_float(column: str, op: str, value: float) -> str:
    """A float column against any number: an integer that no float equals becomes the next float on its side."""
    nearest = float(value)
    if math.isinf(nearest):
        return _compare_beyond(column, op, above=nearest > 0)
    if int(nearest) != value and isinstance(value, int):
        if op in ("=", "!="):
            return NEVER if op == "=" else f"{column} IS NOT NULL"
        is_below = nearest < value
        if op in ("<", "<="):
            bound = nearest if is_below else math.nextafter(nearest, -math.inf)
            return f"{column} <= {bound!r}"
        bound = math.nextafter(nearest, math.inf) if is_below else nearest
        return f"{column} >= {bound!r}"
    return f"{column} {op} {nearest!r}"


# ---- Columns that Lance keeps for every row: an identity for its whole life, where it lies now, and its history


ROW_ID = "_rowid"
#: The fragment in the upper 32 bits, the offset in it in the lower ones. A compaction changes it.
ROW_ADDRESS = "_rowaddr"
#: The version of the table that brought the row, and the one that changed it last.
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"
