"""Which transaction made a version: whether a commit landed although its answer got lost, and who moved a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.opening import open_dataset

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import Transaction

    from omnigraph.storage.tables import Table

#: The property that every transaction of this project carries. A version that has it and was never published was made
#: by a writer that had lost the commit lock without knowing it.
OWN_MARK = "omnigraph:writer"


def landed(before: LanceDataset, transaction: Transaction) -> LanceDataset | None:
    """The version right after `before`, if this very transaction made it; None when it did not, or nothing can tell.

    Lance writes a version with one conditional request. When its answer gets lost, Lance sends it again, meets its own
    version and reports a conflict; or it gives up and reports a failure of the connection.
    """
    try:
        after = open_dataset(before.uri, int(before.version) + 1)
    except (OSError, ValueError, RuntimeError):
        return None
    return after if committed_as(after, str(transaction.uuid)) else None


def committed_as(dataset: LanceDataset, uuid: str) -> bool:
    """Whether the version of a dataset was made by the transaction of this id."""
    try:
        found = dataset.read_transaction(int(dataset.version))
    except (TypeError, OSError, ValueError, RuntimeError):
        # Lance cannot show every transaction; of those that this project commits it can.
        return False
    return found is not None and str(found.uuid) == uuid


def is_own_movement(table: Table, after: int, until: int) -> bool:
    """Whether writers of this project made every version after a certain one, up to and including `until`."""
    versions = range(after + 1, until + 1)
    return bool(versions) and all(_has_mark(table, version) for version in versions)


def _has_mark(table: Table, version: int) -> bool:
    try:
        transaction = table._dataset.read_transaction(version)
    except (TypeError, OSError, ValueError, RuntimeError):
        # Lance cannot show compactions that rewrote an index, which this project never makes.
        return False
    properties = None if transaction is None else transaction.transaction_properties
    return properties is not None and OWN_MARK in properties


def transaction_uuids(table: Table, after: int) -> tuple[str | None, ...]:
    """The ids of the transactions that made the versions after a certain one, up to the version of `table`."""
    return tuple(_uuid(table, version) for version in range(after + 1, table.version + 1))


def _uuid(table: Table, version: int) -> str | None:
    if version == table.version:
        return table.transaction_uuid()
    try:
        transaction = table._dataset.read_transaction(version)
    except (TypeError, OSError, ValueError, RuntimeError):
        return None
    return None if transaction is None else str(transaction.uuid)
