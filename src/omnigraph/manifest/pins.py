"""Opening what a snapshot pins, and telling what was cleaned up from what is broken."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import (
    BlobIntegrityError,
    HistoricalVersionReclaimedError,
    StorageError,
    StorageFailure,
)
from omnigraph.storage.tables import dataset_exists, is_reclaimed, newest_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.manifest.rows import TablePin
    from omnigraph.storage.tables import Table, TableStore


def open_pin(store: TableStore, pin: TablePin) -> Table:
    """The table at the version that a snapshot reads.

    Raises:
        HistoricalVersionReclaimedError: the version was there once, and was cleaned up.
        StorageError: the table is damaged, or cannot be reached.
    """
    try:
        return store.open(pin.location, pin.branch, pin.version)
    except StorageError as error:
        if error.failure is not StorageFailure.NOT_FOUND or not _was_cleaned_up(store, pin):
            raise
        raise HistoricalVersionReclaimedError(pin.table_key, pin.version) from error


def _was_cleaned_up(store: TableStore, pin: TablePin) -> bool:
    """Whether a cleanup removed a version: of a dataset that is there, or of one that left a mark.

    The newest version of a dataset is never removed: where a newer one than all that are there is missing, it was lost.
    """
    location = store.location
    newest = newest_version(location, pin.location, pin.branch)
    if newest is not None:
        return newest > pin.version
    return dataset_exists(location, pin.location) or is_reclaimed(location, pin.location)


def check_pins(store: TableStore, pins: Iterable[TablePin]) -> None:
    """Make sure that versions are still there; looks at names only, and past every handle that is kept.

    Raises:
        HistoricalVersionReclaimedError: one was cleaned up.
    """
    for pin in pins:
        if not dataset_exists(store.location, pin.location, pin.branch, pin.version):
            raise HistoricalVersionReclaimedError(pin.table_key, pin.version)


@contextmanager
def reading_pins(store: TableStore, pins: Iterable[TablePin | None]) -> Iterator[None]:
    """Read tables that were opened before: one that was cleaned up since then is told as such.

    Raises:
        HistoricalVersionReclaimedError: reading failed, and one of the versions was cleaned up.
    """
    try:
        yield
    except (StorageError, BlobIntegrityError) as error:
        for pin in pins:
            if pin is None or dataset_exists(store.location, pin.location, pin.branch, pin.version):
                continue
            if _was_cleaned_up(store, pin):
                raise HistoricalVersionReclaimedError(pin.table_key, pin.version) from error
        raise
