"""Forks: the Lance branches of a dataset, one for each branch of the graph that writes to its type."""

from __future__ import annotations

from collections.abc import Callable

from lance import LanceDataset

from omnigraph.errors import DriftError, OutsideRootError, StorageError, StorageFailure
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.checksums import record_fork
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.tables import Table, branch_uri, dataset_exists
from omnigraph.storage.location import GraphLocation, is_fork_name, refuse_links

_QUERY_MARK = "?"


def refuse_forks(location: GraphLocation) -> None:
    """Make sure that a graph lies where Lance can have forks.

    Raises:
        StorageError: Lance would put them elsewhere.
    """
    if _QUERY_MARK in location.uri:
        # Lance reads it as the beginning of a query.
        raise StorageError(
            f"a graph at an address with `{_QUERY_MARK}` cannot have branches: rename its folder",
            StorageFailure.CONFIGURATION,
        )


def create_fork(
    location: GraphLocation, base: Table, branch: str, *, check_lock: Callable[[], None] = lambda: None
) -> Table:
    """A Lance branch of a dataset at the version of `base`; unreferenced until it is published.

    Must run under the commit lock: creating a branch is not safe against a second creator of the same name. An unused
    fork of the same base is taken as it is; what another attempt left under this name is removed first.

    `check_lock` raises when the lock is lost. It is asked after the look at what is there: a fork that a successor made
    and published must not be taken for what another attempt left.

    Raises:
        DriftError: the branch does not begin at the version of `base`.
    """
    uri = branch_uri(location.child(base.path), branch)
    refuse_forks(location)
    with translated(f"forking {base.path} as {branch}"):
        refuse_links(location, branch_uri(base.path, branch))
        refuse_links(location, f"{base.path}/_refs")
        root = open_dataset(location.child(base.path))
        if not _is_fork_of(root, branch, base):
            check_lock()
            _remove_fork(root, location, base.path, branch)
            origin = base.version if base.branch is None else (base.branch, base.version)
            root.create_branch(branch, origin)
        forked = open_dataset(uri)
    if forked.version != base.version:
        raise DriftError(f"{base.path} ({branch})", base.version, int(forked.version))
    record_fork(location, base, branch)
    return Table(forked, base.path, branch)


def list_forks(location: GraphLocation, path: str) -> list[str]:
    """The Lance branches of a dataset, sorted; those with a name that is not of our own making are left alone."""
    with translated(f"listing the forks of {path}"):
        return sorted(filter(is_fork_name, open_dataset(location.child(path)).branches.list()))


def remove_fork(location: GraphLocation, path: str, branch: str) -> None:
    """Remove a Lance branch that nothing refers to. Must run under the commit lock, with no writer staging into it."""
    with translated(f"removing the fork {branch} of {path}"):
        root = open_dataset(location.child(path))
        _remove_fork(root, location, path, branch)


def _is_fork_of(root: LanceDataset, branch: str, base: Table) -> bool:
    """Whether an unused fork of exactly this base exists: another writer of the same branch may be staging into it."""
    known = root.branches.list().get(branch)
    if known is None:
        return False
    origin = (known["parent_branch"], known["parent_version"])
    if origin != (base.branch, base.version):
        return False
    head = open_dataset(branch_uri(root.uri, branch))
    return int(head.version) == base.version


def _remove_fork(root: LanceDataset, location: GraphLocation, path: str, branch: str) -> None:
    if not is_fork_name(branch):
        raise OutsideRootError(branch_uri(path, branch), "it does not have the name of a fork")
    known = root.branches.list()
    if branch not in known and not dataset_exists(location, path, branch):
        return
    nested = [name for name in known if name.startswith(f"{branch}/")]
    if nested:
        # Its directory holds theirs, and goes as a whole.
        raise StorageError(
            f"the fork {branch} of {path} cannot be removed: {nested[0]} lies inside of it", StorageFailure.PRECONDITION
        )
    # Lance removes what it lists, and a listing of its own would follow links.
    refuse_links(location, branch_uri(path, branch))
    refuse_links(location, f"{path}/_refs")
    if branch in known:
        root.branches.delete(branch)
        return
    LanceDataset.drop(branch_uri(location.child(path), branch))
