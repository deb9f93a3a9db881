from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.cli.main import main
from support.cli_graphs import History, Outcome, Run, Terminal, history, values_store


@pytest.fixture
def og(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""

    def call(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph with values of all types; tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        return values_store(tmp_path_factory.mktemp("values"))


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A graph with a history and a branch; tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        return history(tmp_path_factory.mktemp("history"))


@pytest.fixture
def screen(og: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a terminal of 60 columns and so many lines gets from a command."""

    def call(*words: str, lines: int = 24, **environment: str) -> str:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", terminal)
            for name, value in {"COLUMNS": "60", "LINES": str(lines), "TERM": "xterm", **environment}.items():
                patch.setenv(name, value)
            assert og(*words).code == 0
        return terminal.getvalue()

    return call
