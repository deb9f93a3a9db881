"""Destroying the past of a dataset, or all of it. Only for what the caller has asked to lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
from lance import LanceDataset

from omnigraph.storage.failures import translated
from omnigraph.storage.staged import list_forks, remove_fork
from omnigraph.storage.tables import dataset_exists

if TYPE_CHECKING:
    from omnigraph.storage.location import GraphLocation


def purge_old_versions(location: GraphLocation, path: str) -> None:
    """Remove every version of a dataset but the newest, with the files that only they refer to. Repeatable.

    Forks go first: they are what branches left that are deleted by now.
    """
    _remove_forks(location, path)
    with translated(f"removing old versions of {path}"):
        # No shared session: what it remembers of removed versions would be found again.
        dataset = lance.dataset(location.child(path))
        old = [int(item["version"]) for item in dataset.versions()]
        old = [number for number in old if number != dataset.version]
        if old:
            dataset.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)


def drop_table(location: GraphLocation, path: str) -> None:
    """Remove a dataset with all of its versions and forks; one that is gone already is fine."""
    if dataset_exists(location, path):
        with translated(f"removing {path}"):
            LanceDataset.drop(location.child(path))


def _remove_forks(location: GraphLocation, path: str) -> None:
    left = list_forks(location, path)
    # The longest first: the directory of one may hold that of another.
    for fork in sorted(left, key=len, reverse=True):
        remove_fork(location, path, fork)
