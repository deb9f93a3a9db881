from __future__ import annotations

import logging

import pytest

from omnigraph.engine.path_choice import EngineSettings, TraversalMode

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


@pytest.mark.parametrize(("variable", "field"), NUMBERS.items())
@pytest.mark.parametrize(("text", "number"), [("0", 0), ("17", 17), (" 23 ", 23), ("007", 7)])
def test_a_whole_number_is_taken_by_its_own_variable(
    monkeypatch, caplog, variable: str, field: str, text: str, number: int
) -> None:
    monkeypatch.setenv(variable, text)
    expected = {other: getattr(EngineSettings(), other) for other in NUMBERS.values()}
    expected[field] = number
    settings = EngineSettings.from_environment()
    assert {other: getattr(settings, other) for other in NUMBERS.values()} == expected
    assert caplog.records == []


@pytest.mark.parametrize(("variable", "field"), NUMBERS.items())
@pytest.mark.parametrize("text", ["", " ", "-1", "1.5", "1e3", "many", "0x10", "1_000", "²", "½", "9" * 5_000])
def test_what_is_no_whole_number_falls_back_with_a_warning(
    monkeypatch, caplog, variable: str, field: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with caplog.at_level(logging.WARNING):
        settings = EngineSettings.from_environment()
    assert settings == EngineSettings()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert variable in record.getMessage()
    assert str(getattr(EngineSettings(), field)) in record.getMessage()


@pytest.mark.parametrize(
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
