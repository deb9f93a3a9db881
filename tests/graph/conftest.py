from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def _no_flush() -> Iterator[None]:
    """No test here pulls the plug, so nothing has to be flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        yield
