"""Destroying the past of a dataset, or all of it. Only for what the caller has asked to lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.storage.boundary import refuse_links
from omnigraph.storage.derived import remove_texts
from omnigraph.storage.failures import translated
from omnigraph.storage.file_names import is_deletable
from omnigraph.storage.forks import list_forks, remove_fork
from omnigraph.storage.listing import delete_files, list_files, remove_empty_folders
from omnigraph.storage.opening import open_dataset

if TYPE_CHECKING:
    from omnigraph.storage.location import GraphLocation


def purge_old_versions(location: GraphLocation, path: str, published: int) -> None:
    """Remove every version before the published one, with the files that only they refer to. Repeatable.

    Forks go first: they are what branches left that are deleted by now.
    """
    _remove_forks(location, path)
    remove_texts(location, path)
    with translated(f"removing old versions of {path}"):
        # No shared session: what it remembers of removed versions would be found again.
        dataset = open_dataset(location.child(path), shared=False)
        old = [int(item["version"]) for item in dataset.versions()]
        old = [number for number in old if number < published]
        if old:
            # Lance removes what it lists, and a listing of its own would follow links.
            refuse_links(location, path)
            dataset.cleanup_old_versions(versions=old, error_if_tagged_old_versions=False)


def drop_table(location: GraphLocation, path: str, *, keep: str | None = None) -> None:
    """Remove a dataset with all of its versions and forks, also what is left of one; only the file `keep` stays.

    Whatever has the name of a file of a dataset goes, not only what a version refers to: the removal before may have
    been interrupted. Other files stay, and links are neither followed nor removed.
    """
    remove_texts(location, path)
    names = [
        file.name
        for file in list_files(location, path)
        if file.name != f"{path}/{keep}" and is_deletable(file.name)
    ]
    # Versions first: what is half removed cannot be opened any more.
    delete_files(location, sorted(names, key=lambda name: "/_versions/" not in name))
    with translated(f"removing {path}"):
        remove_empty_folders(location, path)


def _remove_forks(location: GraphLocation, path: str) -> None:
    left = list_forks(location, path)
    # The longest first: the directory of one may hold that of another.
    for fork in sorted(left, key=len, reverse=True):
        remove_fork(location, path, fork)
