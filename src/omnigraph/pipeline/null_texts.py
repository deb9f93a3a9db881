"""Texts for null of a mapping as values of typed columns: `-1` of numbers, `1970-01-01T00:00:00Z` of moments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.problems import shown

if TYPE_CHECKING:
    from omnigraph.pipeline.value_sources import ValueSource

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
Column = Any  # an Arrow array; its stubs cannot say of which type

_DIGIT = re.compile("[0-9]")
#: Zeros behind the digits that count of a fraction of a second, and a point that they leave alone.
_ZEROS = re.compile(r"(?:[.]|([.][0-9]*[1-9]))0+(?=(?:Z|[+-][0-9:]+)?$)", re.ASCII)
#: Types whose values have a notation of their own, with one of it.
_EXAMPLES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_integer, "-1"),
    (pa.types.is_floating, "-1.5"),
    (pa.types.is_decimal, "-1.5"),
    (pa.types.is_date, "1970-01-01"),
    (pa.types.is_timestamp, "1970-01-01T00:00:00Z"),
)


def comparable(column: Column) -> Column:
    """The same values in a type that Arrow compares."""
    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else column


def as_values(text: str, kind: Any) -> list[Column]:
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


def _as_moments(text: str, kind: Any) -> list[Column]:
    """A text as a moment; one without a zone is in UTC."""
    plain = pa.array([_ZEROS.sub(r"\1", text)])
    for zone in (None, "UTC"):
        try:
            # Arrow takes texts with a zone for one type, and those without for the other.
            return [plain.cast(pa.timestamp(kind.unit, zone)).view(kind)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return []


def refuse_null_texts(source: ValueSource, column: str, kind: Any, owner: str) -> None:
    """Make sure that texts for null say something about a column of numbers, days or moments.

    A word such as `N/A` is meant for other sources of the same mapping. A text with digits is meant for a value; if a
    column has none that any of the texts could be, the mapping does not do what it seems to do.

    Raises:
        BadRequestError: no text is a value of the column, and one has digits.
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    example = next((text for is_such, text in _EXAMPLES if is_such(kind)), None)
    numeric = [text for text in source.transforms.null if _DIGIT.search(text)]
    if example is None or not numeric:
        return
    if not any(as_values(text, kind) for text in source.transforms.null):
        raise BadRequestError(
            f"{owner}: `null: {shown(numeric[0])}` is not a value of the column `{shown(column)}`, which holds {kind}: "
            f"write it as such a value, as in `{example}`, beside texts for other sources"
        )
