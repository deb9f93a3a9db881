"""Private versions: what a staged write would make, readable for its writer before it is committed.

A version beside the history of a dataset: no reader meets it, HEAD does not move, and it is removed when its writer is
done. Never pinned: nothing keeps its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
from lance import LanceDataset
from lance.dataset import Transaction

from omnigraph.storage.failures import translated
from omnigraph.storage.tables import Table, branch_uri, session

if TYPE_CHECKING:
    from omnigraph.storage.objects import ControlObjects
    from omnigraph.storage.staged import StagedWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateVersion:
    """What a staged write would make, readable for its writer alone."""

    table: Table
    #: Fragments that exist only here.
    new_fragments: tuple[int, ...]
    _transaction_file: str


def open_private(staged: StagedWrite) -> PrivateVersion:
    """The version that a staged write would make, without making it."""
    base = staged.table
    # A transaction of its own: the files of the real one must survive the removal of this one.
    transaction = Transaction(base.version, staged._transaction.operation)
    with translated(f"reading staged rows of {base.path}"):
        committed = LanceDataset.commit(base._dataset, transaction, detached=True)
        dataset = lance.dataset(base._dataset.uri, version=committed.version, session=session())
        before = {
            fragment.fragment_id: fragment.metadata.files[0].path
            for fragment in base._dataset.get_fragments()
        }
        new = [
            fragment.fragment_id
            for fragment in dataset.get_fragments()
            if before.get(fragment.fragment_id) != fragment.metadata.files[0].path
        ]
    return PrivateVersion(
        table=Table(dataset, base.path, base.branch),
        new_fragments=tuple(new),
        _transaction_file=f"{base.version}-{transaction.uuid}.txn",
    )


def close_private(private: PrivateVersion, objects: ControlObjects) -> None:
    """Remove the traces of a private version; the fragments stay."""
    table = private.table
    folder = branch_uri(table.path, table.branch)
    objects.delete(f"{folder}/_versions/d{table.version}.manifest")
    objects.delete(f"{folder}/_transactions/{private._transaction_file}")
