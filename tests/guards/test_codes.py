"""Every code is registered, used, explained by a golden file, and unique."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.lang.query.compiler import QUERY_CODES
from omnigraph.lang.schema.checks import SCHEMA_CODES

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "omnigraph"
GOLDEN = ROOT / "tests" / "golden"


def _used(room: str, pattern: str) -> set[str]:
    texts = (
        path.read_text(encoding="utf-8")
        for path in (SOURCES / room).glob("*.py")
        if path.name != "codes.py"
    )
    return {code for text in texts for code in re.findall(pattern, text)}


def test_the_schema_codes_are_the_ones_that_the_checks_use() -> None:
    assert _used("schema", r'"(S-\d\d)"') == set(SCHEMA_CODES)


def test_the_query_codes_are_the_ones_that_the_checks_use() -> None:
    assert _used("query", r'"(T\d+|Q\d{3}|D2|L\d{3})"') == set(QUERY_CODES)


@pytest.mark.parametrize("code", [code for code in SCHEMA_CODES if code <= "S-28"])
def test_a_schema_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "schema_errors").glob(f"{code}*.pg"))


def test_a_schema_warning_has_a_golden_file() -> None:
    assert list((GOLDEN / "schema_warnings").glob("S-32*.pg"))


@pytest.mark.parametrize("code", ["S-29", "S-30", "S-31"])
def test_an_identity_code_has_a_golden_file(code: str) -> None:
    errors = (GOLDEN / "migrations").glob("*/error.expected")
    assert any(f"error {code}:" in path.read_text(encoding="utf-8") for path in errors)


@pytest.mark.parametrize("code", QUERY_CODES)
def test_a_query_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "query_errors").glob(f"{code}-*.gq"))
