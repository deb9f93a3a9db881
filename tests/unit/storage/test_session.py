from __future__ import annotations

import lance
import pytest

from omnigraph.storage.datasets.opening import session

METADATA, INDEXES = "metadata_cache_size_bytes", "index_cache_size_bytes"


@pytest.fixture(autouse=True)
def _sessions_that_are_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance, "Session", lambda **options: options)


def test_the_caches_of_lance_are_bounded() -> None:
    assert session.__wrapped__() == {METADATA: 32 * 2**20, INDEXES: 2**30}


def test_the_caches_of_lance_can_be_given_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_METADATA_CACHE_BYTES", "5")
    monkeypatch.setenv("OMNIGRAPH_INDEX_CACHE_BYTES", "7")
    assert session.__wrapped__() == {METADATA: 5, INDEXES: 7}
