"""Private versions: what a staged write would make, readable for its writer before it is committed.

A version beside the history of a dataset: no reader meets it, HEAD does not move, and it is removed when its writer is
done. Never pinned: nothing keeps its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance import LanceDataset
from lance.dataset import Transaction

from omnigraph.storage.failures import translated
from omnigraph.storage.opening import open_dataset
from omnigraph.storage.tables import Table, branch_uri

if TYPE_CHECKING:
    from omnigraph.storage.objects import ControlObjects
    from omnigraph.storage.staged import StagedWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateVersion:
    """What a staged write would make, readable for its writer alone."""

    table: Table
    #: Fragments that exist only here.
    new_fragments: tuple[int, ...]
    #: Its files and those of the versions below it, as names in the dataset.
    _files: tuple[str, ...]


def open_private(staged: StagedWrite) -> PrivateVersion:
    """The version that a staged write would make, without making it."""
    base = staged.table
    files = []
    with translated(f"reading staged rows of {base.path}"):
        dataset = base._dataset
        for step in staged._steps:
            # A transaction of its own: the files of the real one must survive the removal of this one.
            transaction = Transaction(dataset.version, step.operation)
            committed = LanceDataset.commit(dataset, transaction, detached=True)
            files.append(f"_versions/d{committed.version}.manifest")
            files.append(f"_transactions/{dataset.version}-{transaction.uuid}.txn")
            dataset = open_dataset(base._dataset.uri, committed.version)
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
        _files=tuple(files),
    )


def close_private(private: PrivateVersion, objects: ControlObjects) -> None:
    """Remove the traces of a private version; the fragments stay."""
    folder = branch_uri(private.table.path, private.table.branch)
    for name in private._files:
        objects.delete(f"{folder}/{name}")
