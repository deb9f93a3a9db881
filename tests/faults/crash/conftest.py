from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core import failpoints
from support.killed_writers import Children, make_base, make_ready_to_fold


@pytest.fixture(autouse=True)
def _quick_commits_and_no_failpoint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    failpoints.reset()
    yield
    failpoints.reset()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeded graph; copy it before use."""
    return make_base(tmp_path_factory.mktemp("base") / "graph")


@pytest.fixture(scope="session")
def ready_to_fold(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeded graph just before a fold; copy it before use."""
    return make_ready_to_fold(base, tmp_path_factory.mktemp("fold") / "graph")


@pytest.fixture(scope="module")
def children():
    started = Children()
    yield started
    started.close()
