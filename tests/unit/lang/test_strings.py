from __future__ import annotations

import pytest

from omnigraph.lang.parsing import EscapeFailure, unescape
from support.subtests import each_case


@each_case(
    ("literal", "value"),
    [
        ('""', ""),
        ('"abc"', "abc"),
        (r'"\""', '"'),
        (r'"\\"', "\\"),
        (r'"\n\r\t"', "\n\r\t"),
        (r'"\\n"', "\\n"),
        (r'"\\\\"', "\\\\"),
        ('"a\nb"', "a\nb"),
    ],
)
def test_a_literal_has_its_value(literal: str, value: str) -> None:
    assert unescape(literal, 0) == value


@each_case(
    ("literal", "offset", "place", "escape"),
    [
        (r'"\x"', 0, 1, r"\x"),
        (r'"ab\q"', 10, 13, r"\q"),
        (r'"\n\\\u0041"', 5, 10, r"\u"),
        ('"\\\n"', 0, 1, "\\\n"),
    ],
)
def test_an_unknown_escape_is_found_where_it_stands(
    literal: str, offset: int, place: int, escape: str
) -> None:
    with pytest.raises(EscapeFailure) as failure:
        unescape(literal, offset)

    assert (failure.value.offset, failure.value.escape) == (place, escape)
