"""Every code is registered, used, explained by a golden file, and unique."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from omnigraph.lang.query.compiler import QUERY_CODES
from omnigraph.lang.schema.checks import SCHEMA_CODES
from support.subtests import each_case

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "omnigraph"
GOLDEN = ROOT / "tests" / "unit" / "lang" / "golden"


def _named(room: str, pattern: str) -> Counter[str]:
    """How often the modules of a room name each code; the table of codes does so once."""
    texts = (path.read_text(encoding="utf-8") for path in (SOURCES / room).glob("*.py"))
    return Counter(code for text in texts for code in re.findall(pattern, text))


@pytest.mark.parametrize(
    ("room", "pattern", "codes"),
    [
        ("lang/schema", r'"(S-\d\d)"', SCHEMA_CODES),
        ("lang/query", r'"(T\d+|Q\d{3}|D2|L\d{3})"', QUERY_CODES),
    ],
)
def test_the_codes_are_the_ones_that_the_checks_use(
    room: str, pattern: str, codes: Mapping[str, str]
) -> None:
    named = _named(room, pattern)
    assert set(named) == set(codes)
    assert [code for code, count in named.items() if count < 2] == []


@each_case("code", [code for code in SCHEMA_CODES if code <= "S-28"])
def test_a_schema_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "schema_errors").glob(f"{code}*.pg"))


def test_a_schema_warning_has_a_golden_file() -> None:
    assert list((GOLDEN / "schema_warnings").glob("S-32*.pg"))


@pytest.mark.parametrize("code", ["S-29", "S-30", "S-31"])
def test_an_identity_code_has_a_golden_file(code: str) -> None:
    errors = (GOLDEN / "migrations").glob("*/error.expected")
    assert any(f"error {code}:" in path.read_text(encoding="utf-8") for path in errors)


@each_case("code", QUERY_CODES)
def test_a_query_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "query_errors").glob(f"{code}-*.gq"))
