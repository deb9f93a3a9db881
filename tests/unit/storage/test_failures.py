"""What foreign failures become: their kind, and what people read."""

from __future__ import annotations

import errno

import pytest

from omnigraph.errors import StorageError, StorageFailure
from omnigraph.storage._failures import translated
from support.subtests import each_case

FULL = {
    "Python": OSError(errno.ENOSPC, "No space left on device"),
    "Lance": OSError("LanceError(IO): No space left on device (os error 28), /x/rust/io.rs:7:5"),
    "obstore": RuntimeError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    "a quota": RuntimeError("Disk quota exceeded (os error 122)"),
}


@each_case("raised", FULL.values(), ids=FULL)
def test_a_full_disk_is_named_and_is_no_damage(raised: Exception) -> None:
    with pytest.raises(StorageError) as caught, translated("writing rows"):
        raise raised
    assert caught.value.failure is StorageFailure.CONFIGURATION
    assert caught.value.message.startswith("writing rows failed: ")
    assert caught.value.message.endswith("free some space on the disk")
    assert "damaged" not in caught.value.message
    assert ".rs" not in caught.value.message
