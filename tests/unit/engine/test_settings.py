from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from omnigraph.engine.tables.settings import EngineSettings, TraversalMode
from support.subtests import each_case

NUMBERS = {
    "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER": "indexed_max_frontier",
    "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS": "indexed_max_hops",
    "OMNIGRAPH_COLUMN_CACHE_BYTES": "column_cache_bytes",
}
MODE = "OMNIGRAPH_TRAVERSAL_MODE"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NUMBERS, MODE):
        monkeypatch.delenv(name, raising=False)


def test_without_variables_every_setting_has_its_documented_default(caplog) -> None:
    settings = EngineSettings.from_environment()
    assert settings == EngineSettings(
        traversal_mode=TraversalMode.AUTO,
        indexed_max_frontier=1024,
        indexed_max_hops=6,
        column_cache_bytes=268_435_456,
        adjacency_entries=8,
    )
    assert caplog.records == []


@each_case(("variable", "field"), NUMBERS.items())
def test_a_number_is_taken_by_its_own_variable(variable: str, field: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, "17")
        assert EngineSettings.from_environment() == replace(EngineSettings(), **{field: 17})


@each_case(
    ("text", "mode"),
    [
        ("auto", TraversalMode.AUTO),
        ("indexed", TraversalMode.INDEXED),
        ("csr", TraversalMode.CSR),
        ("scan", TraversalMode.SCAN),
        (" CSR ", TraversalMode.CSR),
        ("Indexed", TraversalMode.INDEXED),
    ],
)
def test_a_known_mode_is_taken_whatever_its_case(monkeypatch, caplog, text, mode) -> None:
    monkeypatch.setenv(MODE, text)
    assert EngineSettings.from_environment().traversal_mode is mode
    assert caplog.records == []


@pytest.mark.parametrize("text", ["", "csc", "adjacency", "auto,csr", "1"])
def test_an_unknown_mode_falls_back_and_the_warning_names_the_known_ones(monkeypatch, caplog, text: str) -> None:
    monkeypatch.setenv(MODE, text)
    with caplog.at_level(logging.WARNING):
        assert EngineSettings.from_environment().traversal_mode is TraversalMode.AUTO
    (record,) = caplog.records
    assert all(mode.value in record.getMessage() for mode in TraversalMode)


def test_one_bad_value_does_not_spoil_the_others(monkeypatch, caplog) -> None:
    monkeypatch.setenv(MODE, "scan")
    monkeypatch.setenv("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "few")
    monkeypatch.setenv("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "9")
    settings = EngineSettings.from_environment()
    assert settings == EngineSettings(traversal_mode=TraversalMode.SCAN, indexed_max_frontier=9)
    assert len(caplog.records) == 1
