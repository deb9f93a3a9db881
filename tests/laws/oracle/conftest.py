from __future__ import annotations

import pytest

from support.oracle.engines import Workshop


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where the graphs of a module are made."""
    return Workshop(tmp_path_factory.mktemp("worlds"))
