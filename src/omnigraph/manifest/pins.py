"""Opening what a snapshot pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import HistoricalVersionReclaimedError, StorageError, StorageFailure

if TYPE_CHECKING:
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
        if error.failure is not StorageFailure.NOT_FOUND:
            raise
        raise HistoricalVersionReclaimedError(pin.table_key, pin.version) from error
