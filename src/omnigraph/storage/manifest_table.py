"""The manifest dataset: rows are added by commits that exactly one writer can win.

Lance rebases an append silently, but never an Overwrite. So a publish is an Overwrite whose fragment list is the
existing fragments plus one new fragment: strict, and no old row is rewritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict, cast

from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.core.arrow import Rows, Schema, pa, pc
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import AlreadyInitializedError, OutsideRootError, StorageError, StorageFailure
from omnigraph.storage._failures import readable, translated
from omnigraph.storage.datasets.checksums import record_sums, sum_files, tidy_records, transaction_name
from omnigraph.storage.datasets.completeness import check_complete
from omnigraph.storage.datasets.filters import quote_text
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.staged import commit_once, committed_as
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.location import (
    MANIFEST,
    GraphLocation,
    manifest_name,
    manifest_names,
    parse_location,
    refuse_links,
)
from omnigraph.storage.objects import check_answers, list_files, sync_files

_SHOWN_FILES = 5


class PublishContention(Exception):
    """Another publisher committed first; never leaves the manifest room."""


class ManifestRow(TypedDict):
    """One row as it is stored; which members have a value depends on its type."""

    object_id: str
    object_type: str
    location: str
    metadata: str
    base_objects: list[str] | None
    table_key: str
    table_version: int
    table_branch: str | None
    row_count: int
    graph_version: int


# ---- The folder of versions: whether anything came to it
#
# Not every file system tells: folders of object stores behind FUSE keep one time for ever, and network shares answer
# from a memory of attributes that may be old. A reader that trusted them would show old data for good.

#: File systems of Linux whose folders get another time of change with every file that comes to them, for all to see.
_TELLING = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
)
_PROCESS = "/proc/self"


def file_system_of(mount_id: str, mounts: str) -> str | None:
    """The type of the file system that is mounted with an id, out of the text of `mountinfo`; None if it is not there.

    >>> file_system_of("27", "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard")
    'ext4'
    """
    for line in mounts.splitlines():
        # Blanks in names are escaped, and a variable number of fields ends with a dash.
        mount, _, kind = line.partition(" - ")
        if mount.partition(" ")[0] == mount_id:
            return kind.partition(" ")[0] or None
    return None


def _tells_of_changes(folder: str) -> bool:
    """Whether a folder is certainly on a file system that shows when it was changed; no where nothing is known.

    The kernel is asked for the mount of the open folder: paths alone do not say which of several mounts covers them.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            facts = Path(f"{_PROCESS}/fdinfo/{descriptor}").read_text(encoding="utf-8")
        finally:
            os.close(descriptor)
        mounts = Path(f"{_PROCESS}/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    mount_id = next((value.strip() for name, _, value in map(_parted, facts.splitlines()) if name == "mnt_id"), None)
    return mount_id is not None and file_system_of(mount_id, mounts) in _TELLING


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


#: The identity of a folder and its times of change; None where there is no folder.
_FolderState: TypeAlias = tuple[int, int, int, int] | None


class _FolderTrust:
    """Whether the file system of a folder is known to tell of changes, asked once per place of it. Thread-safe."""

    def __init__(self, path: str) -> None:
        self._path = path
        #: The device and the number of the folder that was asked about, and the answer.
        self._known: tuple[int, int, bool] | None = None

    def holds(self, state: _FolderState) -> bool:
        """Whether it tells, at the place that a state names."""
        if state is None:
            return False
        known = self._known
        if known is None or known[:2] != state[:2]:
            known = self._known = (state[0], state[1], _tells_of_changes(self._path))
        return known[2]


class _QuietFolder:
    """Whether a folder on disk is certainly as it was when it was looked through. Thread-safe.

    A new file gives its folder another time of change, and asking for that is ten times faster than looking through
    the folder. But the clock of a file system has ticks, of up to two seconds: of two files in one tick the second
    changes nothing. So a time counts only once the folder was looked through when that time was older than any tick,
    by the clock of this process alone, and only on file systems that are known to tell.
    """

    _LONGEST_TICK_S = 3.0

    def __init__(self, path: str, trust: _FolderTrust | None = None) -> None:
        self._path = path
        self._trust = _FolderTrust(path) if trust is None else trust
        #: The state that was seen last, when it was seen first, and whether it counts.
        self._seen: tuple[_FolderState, float, bool] = (None, 0.0, False)

    def state(self) -> _FolderState:
        """The state now."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    def is_unchanged(self, state: _FolderState) -> bool:
        """Whether it need not be looked through."""
        return self._seen[2] and self._seen[0] == state

    def ends_with(self, state: _FolderState, version: int) -> bool:
        """Whether a version is the newest one in it, by names, at a state that it was looked through at.

        Whatever came in the same tick began with the next version. A cleanup that took that one away again would have
        taken this one before. Names may be as old as times where a file system does not tell.
        """
        if state is None or self._seen[0] != state or not self._trust.holds(state):
            return False
        parent = os.path.dirname(self._path)
        here, following = (
            any(os.path.exists(os.path.join(parent, name)) for name in manifest_names(number))
            for number in (version, version + 1)
        )
        return here and not following

    def looked_through(self, state: _FolderState) -> None:
        """Remember that nothing was new in it after it had been asked for this state."""
        known, since_s, _ = self._seen
        now_s = time.monotonic()
        if known != state:
            since_s = now_s
        self._seen = (state, since_s, now_s - since_s >= self._LONGEST_TICK_S and self._trust.holds(state))


class ManifestView:
    """The manifest at one version. Immutable, but for what it knows of its folder; safe to share between threads."""

    def __init__(self, dataset: LanceDataset, versions: str | None = None, trust: _FolderTrust | None = None) -> None:
        self._dataset = dataset
        #: The folder that every later version adds a file to, where it lies on disk.
        self._folder = None if versions is None else _QuietFolder(versions, trust)

    @property
    def version(self) -> int:
        """The version that this view reads."""
        return int(self._dataset.version)

    @property
    def metadata(self) -> dict[str, str]:
        """The schema metadata as text."""
        with translated("reading the manifest"):
            raw = self._dataset.schema.metadata or {}
            return {key.decode(): value.decode() for key, value in raw.items()}

    @property
    def fragment_count(self) -> int:
        """Over how many fragments the rows are spread."""
        with translated("looking at the manifest"):
            return len(self._dataset.get_fragments())

    def is_current(self) -> bool:
        """Whether no commit came since; one cheap probe."""
        folder = self._folder
        state = None if folder is None else folder.state()
        if folder is not None and folder.is_unchanged(state):
            return True
        if folder is not None and folder.ends_with(state, self.version):
            is_current = True
        else:
            with translated("looking at the manifest"):
                is_current = int(self._dataset.latest_version) == self.version
        if is_current and folder is not None:
            folder.looked_through(state)
        return is_current

    def read_rows(self, object_type: str) -> list[ManifestRow]:
        """All rows of one type."""
        return self._read(f"object_type = {quote_text(object_type)}")

    def read_object(self, object_id: str) -> list[ManifestRow]:
        """The row of one object, or nothing."""
        return self._read(f"object_id = {quote_text(object_id)}")

    def _read(self, condition: str) -> list[ManifestRow]:
        with translated("reading the manifest"):
            return cast("list[ManifestRow]", self._dataset.to_table(filter=condition).to_pylist())


class ManifestTable:
    """The dataset behind `__manifest`: opens views of it and adds rows to it."""

    def __init__(self, location: GraphLocation, schema: Schema, *, durable: bool) -> None:
        self._location = location
        self._schema = schema
        self._durable = durable and location.is_local
        self._uri = location.child(MANIFEST)
        self._versions = str(Path(self._uri) / "_versions") if location.is_local else None
        self._trust = None if self._versions is None else _FolderTrust(self._versions)
        self._is_checked = False

    @property
    def is_local(self) -> bool:
        """Whether it lies on disk."""
        return self._location.is_local

    def open(self) -> ManifestView:
        """The manifest at HEAD.

        Raises:
            OutsideRootError: there is a link in it.
            StorageError: `NOT_FOUND` when there is none, `PERMANENT` when it is damaged.
        """
        if not self.is_local:
            # Before Lance, which goes on trying for a long time.
            check_answers(self._location)
        if not self._is_checked:
            refuse_links(self._location, MANIFEST)
            self._is_checked = True
        try:
            with translated(f"opening the manifest of {self._location}"):
                return ManifestView(open_dataset(self._uri), self._versions, self._trust)
        except OutsideRootError:
            raise
        except StorageError as error:
            if error.failure in (StorageFailure.TRANSIENT, StorageFailure.CONFIGURATION):
                raise
            if not dataset_exists(self._location, MANIFEST):
                message = f"there is no graph at {self._location}"
                raise StorageError(message, StorageFailure.NOT_FOUND) from error
            raise self._damage(error.__cause__ or error) from error

    def _damage(self, error: BaseException) -> StorageError:
        """The manifest is there and cannot be opened: which file is to be restored, if one is empty."""
        reason = readable(error)
        empty = sorted(file.name for file in list_files(self._location, MANIFEST) if not file.size_bytes)
        if empty:
            shown = ", ".join(empty[:_SHOWN_FILES])
            more = "" if len(empty) <= _SHOWN_FILES else f" and {len(empty) - _SHOWN_FILES} more"
            reason = f"these files have no bytes, restore them from a backup: {shown}{more}"
        return StorageError(f"the manifest of {self._location} is damaged: {reason}", StorageFailure.PERMANENT)

    def create(self, rows: Rows, metadata: dict[str, str]) -> ManifestView:
        """Write the first version.

        Raises:
            AlreadyInitializedError: a manifest exists already.
        """
        if dataset_exists(self._location, MANIFEST):
            raise AlreadyInitializedError(str(self._location), MANIFEST)
        schema = self._schema.with_metadata(metadata)
        with translated("creating the manifest"):
            fragments = write_fragments(rows.replace_schema_metadata(metadata), self._uri, schema=schema, mode="create")
            self._check(fragments)
            transaction = Transaction(0, LanceOperation.Overwrite(schema, list(fragments)))
            try:
                LanceDataset.commit(self._uri, transaction, enable_stable_row_ids=True, max_retries=0)
            except (CommitConflictError, OSError, ValueError, RuntimeError) as error:
                if not dataset_exists(self._location, MANIFEST):
                    raise
                if not committed_as(open_dataset(self._uri, 1), str(transaction.uuid)):
                    raise AlreadyInitializedError(str(self._location), MANIFEST) from error
                # It was this very commit, and only the answer got lost.
        view = self.open()
        if view.version != 1:
            raise AlreadyInitializedError(str(self._location), MANIFEST)
        self._settle(view, fragments, transaction)
        return view

    def append(
        self,
        view: ManifestView,
        rows: Rows | None,
        *,
        without: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ManifestView:
        """Add rows to what `view` shows, in one strict commit; the view behind it.

        With `without`, all fragments are written again as one, but for the rows with these ids. `metadata` is added to
        that of the manifest.

        Raises:
            PublishContention: another publisher committed since `view` was opened.
        """
        dataset = view._dataset
        schema = dataset.schema.with_metadata(view.metadata | dict(metadata or {}))
        with translated("publishing"):
            kept = [fragment.metadata for fragment in dataset.get_fragments()]
            if rows is not None and without is not None:
                reach(Failpoint.IN_FOLD)
                kept, rows = [], _without(dataset, without, rows)
            added = [] if rows is None else list(write_fragments(rows, dataset, schema=dataset.schema))
            self._check(added)
            transaction = Transaction(dataset.version, LanceOperation.Overwrite(schema, [*kept, *added]))
            reach(Failpoint.BEFORE_CATALOG_COMMIT)
            try:
                committed = commit_once(dataset, transaction)
            except CommitConflictError as error:
                raise PublishContention from error
            if committed.version != dataset.version + 1:
                raise StorageError(
                    f"the manifest moved from {dataset.version} to {committed.version} in one commit",
                    StorageFailure.PERMANENT,
                )
        published = ManifestView(committed, self._versions, self._trust)
        self._settle(published, added, transaction)
        return published

    def remove_old_versions(self, view: ManifestView, keep: int) -> int:
        """Remove all versions but the newest, with the files that only they refer to; how many there were."""
        with translated("removing old versions of the manifest"):
            # Lance removes what it lists, and a listing of its own would follow links.
            refuse_links(self._location, MANIFEST)
            stats = view._dataset.cleanup_old_versions(retain_versions=keep)
        tidy_records(self._uri)
        return int(stats.old_versions)

    def _check(self, fragments: list[FragmentMetadata]) -> None:
        if self.is_local:
            check_complete(self._uri, fragments)

    def _settle(self, view: ManifestView, fragments: list[FragmentMetadata], made_by: Transaction) -> None:
        """Record the checksums of what a version brought, and flush it."""
        names = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
        names.append(manifest_name(view.version))
        names.append(transaction_name(made_by))
        record_sums(self._uri, view.version, sum_files(parse_location(self._uri), names))
        if self._durable:
            root = Path(self._uri)
            sync_files(root / name for name in names)


def _without(dataset: LanceDataset, object_ids: Sequence[str], rows: Rows) -> Rows:
    existing = dataset.to_table()
    gone = pc.is_in(existing["object_id"], pa.array(object_ids, pa.utf8()))
    folded: Rows = pa.concat_tables([existing.filter(pc.invert(gone)).cast(rows.schema), rows])
    return folded
