"""Ctrl-C again and again: one trace of it is raised, the others are sentences."""

from __future__ import annotations

import os

import pytest

from omnigraph.cli.interrupts import _Interrupts


def test_only_the_first_interrupt_is_raised(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = _Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts(2, None)
    assert capfd.readouterr().err == ""
    interrupts(2, None)
    assert capfd.readouterr().err.startswith("already stopping")
    assert codes == []
    interrupts(2, None)
    assert "omnigraph cleanup" in capfd.readouterr().err
    assert codes == [130]


def test_an_interrupt_while_spark_ends_raises_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the command is printed: there is nothing to stop, and a trace would look like a failure."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = _Interrupts()
    interrupts.end_command()
    interrupts(2, None)
    assert capfd.readouterr().err.startswith("the command is done")
    assert codes == []
    interrupts(2, None)
    assert codes == [130]
