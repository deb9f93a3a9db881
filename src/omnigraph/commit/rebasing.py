"""After a graph was copied, moved or renamed: the addresses that its forks hold become those of the new place.

Readers need none of this, since `storage.datasets.opening` reads past a recorded root. It is done once, by the first
process that opens the graph for writing, so that every version on disk is true again for tools that read it by
themselves. Every manifest is replaced as a whole, and the root is recorded last: a process that dies on the way leaves
manifests of either kind, which all can be read, and the next one goes on.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator

from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.snapshot import ManifestState
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import OutsideRootError, RetryableCommitConflictError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.checksums import FileSum, recorded_sums, replace_records, sum_bytes
from omnigraph.storage.datasets.opening import rebased, with_bases_in_file
from omnigraph.storage.location import RECORDED_ROOT, GraphLocation, attached_version
from omnigraph.storage.objects import ControlObjects, list_dataset_folders, list_files

_log = logging.getLogger(__name__)


def has_moved(environment: GraphEnvironment, state: ManifestState) -> bool:
    """Whether forks may hold addresses of another root; one small read, and none for a graph that never had a fork."""
    has_forks = any(
        head.fork_name is not None or any(pin.branch is not None for pin in head.pins.values())
        for head in state.all_heads
    )
    return has_forks and recorded_root(environment.objects) != environment.location.root


def rebase_forks(environment: GraphEnvironment, state: ManifestState) -> int:
    """Write the present root into every version of every fork that has another; how many had. Repeatable.

    Where the graph cannot be written, or is busy, everything stays as it is: it can be read all the same.

    Raises:
        OutsideRootError: a version of a fork reads files outside of its dataset.
    """
    try:
        if not has_moved(environment, state):
            return 0
        with environment.window() as held:
            if not has_moved(held, state):
                return 0
            return _rebase_all(held)
    except RetryableCommitConflictError as error:
        _log.info("the addresses of forks stay as they are: %s", error)
    except StorageError as error:
        if error.failure is not StorageFailure.CONFIGURATION:
            raise
        _log.info("the addresses of forks stay as they are: %s", error)
    return 0


def find_foreign_versions(environment: GraphEnvironment) -> list[str]:
    """The manifests of versions that were recorded for another root, as names below the root. Changes nothing."""
    return [
        f"{line.folder}/{name}"
        for line in _lines(environment)
        for name, change in line.changes.items()
        if change.is_foreign
    ]


def recorded_root(objects: ControlObjects) -> str | None:
    """The root that all addresses of the graph were recorded for; None when nothing tells."""
    stored = objects.read(RECORDED_ROOT)
    try:
        body = None if stored is None else json.loads(stored.data)
    except ValueError:
        return None
    found = body.get("root") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


@frozen
class _Change:
    """A manifest as it is, and as it should be."""

    old: bytes
    new: bytes
    #: Whether an address in it leads to another place, rather than to the same one through a link.
    is_foreign: bool


@frozen
class _Line:
    """A fork: its folder below the root, and its manifests by their names in it."""

    folder: str
    changes: dict[str, _Change]


def _rebase_all(environment: GraphEnvironment) -> int:
    changed = 0
    for line in _lines(environment):
        for name, change in _with_records(environment.location, line).items():
            reach(Failpoint.BEFORE_REBASE)
            environment.tenure.check()
            environment.objects.write(f"{line.folder}/{name}", change.new)
            changed += 1
    root = environment.location.root
    reach(Failpoint.BEFORE_ROOT_RECORD)
    environment.objects.write(RECORDED_ROOT, json.dumps({"root": root}).encode())
    if changed:
        _log.info("%d versions of forks hold the address %s now", changed, root)
    return changed


def _with_records(location: GraphLocation, line: _Line) -> dict[str, _Change]:
    """The manifests of a fork that are to be written, once their checksums are recorded.

    The records come first: after a crash in between, the manifests are what is behind, and they are written again. A
    manifest that is neither what was recorded nor what it should become is damaged, and stays for `verify` to be told.
    """
    recorded = recorded_sums(location.child(line.folder))
    wanted: dict[str, _Change] = {}
    sums: dict[str, FileSum] = {}
    for name, change in line.changes.items():
        if change.old == change.new:
            continue
        known, new = recorded.sums.get(name), sum_bytes(change.new)
        if recorded.damaged or known not in (None, new, sum_bytes(change.old)):
            _log.warning("%s/%s stays as it is: `omnigraph verify` tells why", line.folder, name)
            continue
        wanted[name] = change
        if known not in (None, new):
            sums[name] = new
    if sums:
        replace_records(location.child(line.folder), {**recorded.sums, **sums})
    return wanted


def _lines(environment: GraphEnvironment) -> Iterator[_Line]:
    """Every fork with its versions, as they are and as they should be."""
    root = environment.location.root
    for dataset in list_dataset_folders(environment.location):
        names = [file.name for file in list_files(environment.location, f"{dataset}/tree")]
        folders: dict[str, list[str]] = {}
        for name in names:
            folder, mark, rest = name.rpartition("/_versions/")
            if mark and attached_version(name) is not None:
                folders.setdefault(folder, []).append(f"_versions/{rest}")
        for folder, manifests in sorted(folders.items()):
            yield _Line(folder, dict(_changes(environment, root, folder, manifests)))


def _changes(
    environment: GraphEnvironment, root: str, folder: str, manifests: Iterable[str]
) -> Iterator[tuple[str, _Change]]:
    for name in manifests:
        stored = environment.objects.read(f"{folder}/{name}")
        if stored is None:
            continue
        is_foreign = False

        def place(recorded: str) -> str:
            nonlocal is_foreign
            found = rebased(recorded, f"{root}/{folder}")
            if found != recorded and not _is_same_place(recorded, found):
                is_foreign = True
            return found

        try:
            new = with_bases_in_file(stored.data, place)
        except OutsideRootError:
            raise
        except StorageError as error:
            # One damaged version must not keep the graph from being written; reading it tells what is wrong.
            _log.warning("%s/%s stays as it is: %s", folder, name, error)
            continue
        yield name, _Change(stored.data, new, is_foreign)


def _is_same_place(one: str, other: str) -> bool:
    """Whether two local paths are one folder: earlier releases recorded the links that a graph was opened through."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
