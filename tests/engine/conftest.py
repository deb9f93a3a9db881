from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.engines import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def _no_flush() -> Iterator[None]:
    """No test here pulls the plug, so nothing has to be flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        yield


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where the graphs of a module are made."""
    return Workshop(tmp_path_factory.mktemp("worlds"))
