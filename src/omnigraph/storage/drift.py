"""What moved a dataset behind the back of the catalog, told from its transactions and its rows."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from lance import LanceOperation

from omnigraph.errors import StorageError
from omnigraph.storage.failures import translated
from omnigraph.storage.row_changes import differing_rows

if TYPE_CHECKING:
    from omnigraph.storage.tables import Table


class Movement(StrEnum):
    """What one version did to a dataset."""

    #: Fragments or indexes changed, as in a compaction; the rows are checked on their own.
    LAYOUT = "layout"
    OTHER = "other"
    #: The version, or the record of what made it, is gone.
    UNKNOWN = "unknown"


def movements(head: Table, after: int) -> list[Movement]:
    """What every version after a certain one did, up to the version of `head`."""
    return [_movement(head, version) for version in range(after + 1, head.version + 1)]


def _movement(head: Table, version: int) -> Movement:
    try:
        with translated(f"reading the history of {head.path}"):
            transaction = head._dataset.read_transaction(version)
    except StorageError as error:
        # Lance cannot show a compaction that rewrote an index, and nothing else fails like this.
        return Movement.LAYOUT if isinstance(error.__cause__, TypeError) else Movement.UNKNOWN
    if transaction is None:
        return Movement.UNKNOWN
    operation = transaction.operation
    # Lance has no name for the first half of a compaction, which reserves numbers of fragments.
    is_reservation = type(operation) is LanceOperation.BaseOperation
    is_layout = isinstance(operation, LanceOperation.Rewrite | LanceOperation.CreateIndex)
    return Movement.LAYOUT if is_reservation or is_layout else Movement.OTHER


def has_same_rows(old: Table, new: Table) -> bool:
    """Whether no row differs between two states of a dataset, told by row ids and row versions."""
    with translated(f"comparing versions of {old.path}"):
        named = differing_rows(old, new, limit=old.row_count + new.row_count)
        assert named is not None, "no state has more rows to name"
        return not any(rows.row_count for rows in named)
