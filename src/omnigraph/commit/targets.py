"""The snapshot of a read target, and opening its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from omnigraph.commit.lineage import first_parents
from omnigraph.commit.publisher import Manifest
from omnigraph.commit.read_target import Target, microseconds
from omnigraph.commit.references import read_reference
from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.commit.snapshot import ManifestState, Snapshot, branch_of, snapshot_at, snapshot_of
from omnigraph.core.ids import TableKey, check_branch_name, is_ulid, is_ulid_part
from omnigraph.errors import (
    AmbiguousCommitError,
    BlobIntegrityError,
    CommitNotFoundError,
    HistoricalVersionReclaimedError,
    HistoryReclaimedError,
    NotFoundError,
    StorageError,
    StorageFailure,
)
from omnigraph.storage.datasets.tables import Table, TableStore, dataset_exists, is_reclaimed, newest_version

# ---- The snapshot of a read target


#: Commits that a name is compared with, how many are suggested, and how like it they are.
_COMPARED, _SUGGESTED, _LIKENESS = 256, 3, 0.75


def resolve_target(manifest: Manifest, state: ManifestState, target: Target) -> Snapshot:
    """The one snapshot that a read of the target sees.

    Raises:
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit, or the branch has no state at that version or moment.
        HistoryReclaimedError: the branch had a state then, and it was cleaned up from the history.
    """
    if target.snapshot is not None:
        history = manifest.history()
        check_readable(state, history.commits.get(target.snapshot), target.snapshot)
        return snapshot_at(history, target.snapshot)
    head = state.head(check_branch_name(target.branch))
    if target.version is None and target.as_of is None:
        return snapshot_of(head)
    history = manifest.history()
    line = first_parents(history.commits, head.commit_id)
    if target.version is not None:
        if not head.incarnation <= target.version <= state.graph_version:
            raise NotFoundError(
                f"branch {target.branch} has graph versions {head.incarnation} to "
                f"{state.graph_version}, not {target.version}"
            )
        found = next((item for item in line if item.graph_version <= target.version), None)
    else:
        moment = microseconds(target.as_of)
        found = next((item for item in line if item.created_at <= moment), None)
    if found is None:
        oldest = list(first_parents(history.commits, head.commit_id))[-1]
        if oldest.parent_id is not None:
            raise HistoryReclaimedError(oldest.commit_id)
        raise NotFoundError(f"branch {target.branch} has no commit at or before {target.as_of}")
    return snapshot_at(history, found.commit_id)


def commits_named(name: str, ids: Iterable[str]) -> list[str]:
    """The ids that begin or end with some letters; the one that is spelled in full, if there is one.

    >>> commits_named("g5fav", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"])
    ['01ARZ3NDEKTSV4RRFFQ69G5FAV']
    """
    if not is_ulid_part(name):
        return []
    part = name.upper()
    return [commit_id for commit_id in ids if commit_id.startswith(part) or commit_id.endswith(part)]


def one_commit(name: str, found: Sequence[str]) -> str | None:
    """The one of the found ids; None when there is none.

    Raises:
        AmbiguousCommitError: there are several.
    """
    if len(found) > 1:
        raise AmbiguousCommitError(name, tuple(found))
    return found[0] if found else None


def full_commit_id(manifest: Manifest, name: str) -> str:
    """The id of the commit that a text names by its beginning or its end; a text that names none as it is.

    Raises:
        AmbiguousCommitError: several commits are named.
    """
    if not is_ulid_part(name) or is_ulid(name):
        return name
    commits = manifest.commits()
    found = commits_named(name, (commit.commit_id for commit in newest_first(commits.values())))
    if len(found) > 1:
        heads = manifest.state().all_heads
        found = [it for it in found if not branch_of(heads, commits[it]).deleted] or found
    return one_commit(name, found) or name


def named_commit_id(manifest: Manifest, name: str) -> str:
    """The id of the commit that a text names: a branch, a tag, an id or its beginning or end, or as `main~3`.

    A text that names none is returned as it is.

    Raises:
        AmbiguousCommitError: several commits are named.
        BadRequestError: it has a sign of a way such as `main~3` and another form.
        NotFoundError: the way leads nowhere.
    """
    if is_ulid_part(name) and is_ulid(name):
        return name
    reference = read_reference(name)
    if reference is not None:
        start, commits = named_commit_id(manifest, reference.base), manifest.commits()
        if start not in commits:
            raise CommitNotFoundError(name)
        return reference.resolve(start, commits)
    # Not look-ups: callers without a type checker name a commit by anything.
    if (head := next((it for it in manifest.state().heads.values() if it.branch == name), None)) is not None:
        return head.commit_id
    if (tag := next((it for it in manifest.tags().values() if it.name == name), None)) is not None:
        return tag.commit_id
    return full_commit_id(manifest, name)


def newest_first(commits: Iterable[GraphCommit]) -> list[GraphCommit]:
    """The commits in the order of a log."""
    return sorted(commits, key=lambda commit: commit.graph_version, reverse=True)


def near_commits(name: str, ids: Sequence[str]) -> tuple[str, ...]:
    """The ids whose end is nearly the given text, as after a slip of the finger; of the first ids only."""
    if not is_ulid_part(name):
        return ()
    # What was copied from a list is an end; longer beginnings are equal for all commits of a day.
    ends = {commit_id[-len(name) :]: commit_id for commit_id in ids[:_COMPARED]}
    near = get_close_matches(name.upper(), ends, n=_SUGGESTED, cutoff=_LIKENESS)
    return tuple(ends[end] for end in near)


def check_readable(state: ManifestState, commit: GraphCommit | None, commit_id: str) -> GraphCommit:
    """Make sure that there is such a commit, and that its branch is still there.

    Raises:
        CommitNotFoundError: there is no such commit.
        NotFoundError: its branch was deleted.
    """
    if commit is None:
        raise CommitNotFoundError(commit_id)
    if branch_of(state.all_heads, commit).deleted:
        raise NotFoundError(f"commit {commit_id} was made on branch {commit.branch}, which was deleted")
    return commit


# ---- Opening the tables of a snapshot


def open_pin(store: TableStore, pin: TablePin) -> Table:
    """The table at the version that a snapshot reads.

    Raises:
        HistoricalVersionReclaimedError: the version was there once, and was cleaned up.
        StorageError: the table is damaged, or cannot be reached.
    """
    try:
        return store.open(pin.location, pin.branch, pin.version)
    except StorageError as error:
        if error.failure is not StorageFailure.NOT_FOUND or not _was_cleaned_up(store, pin):
            raise
        raise HistoricalVersionReclaimedError(pin.table_key, pin.version) from error


def pin_of(table: Table, table_key: str, incarnation: int) -> TablePin:
    """The pin by which a snapshot reads this version of a table."""
    return TablePin(
        table_key=TableKey(table_key),
        incarnation=incarnation,
        location=table.path,
        branch=table.branch,
        version=table.version,
        row_count=table.count_rows(),
    )


def _was_cleaned_up(store: TableStore, pin: TablePin) -> bool:
    """Whether a cleanup removed a version: of a dataset that is there, or of one that left a mark.

    The newest version of a dataset is never removed: where a newer one than all that are there is missing, it was lost.
    """
    location = store.location
    newest = newest_version(location, pin.location, pin.branch)
    if newest is not None:
        return newest > pin.version
    return dataset_exists(location, pin.location) or is_reclaimed(location, pin.location)


def check_pins(store: TableStore, pins: Iterable[TablePin]) -> None:
    """Make sure that versions are still there; looks at names only, and past every handle that is kept.

    Raises:
        HistoricalVersionReclaimedError: one was cleaned up.
    """
    for pin in pins:
        if not dataset_exists(store.location, pin.location, pin.branch, pin.version):
            raise HistoricalVersionReclaimedError(pin.table_key, pin.version)


@contextmanager
def reading_pins(store: TableStore, pins: Iterable[TablePin | None]) -> Iterator[None]:
    """Read tables that were opened before: one that was cleaned up since then is reported as such.

    Raises:
        HistoricalVersionReclaimedError: reading failed, and one of the versions was cleaned up.
    """
    try:
        yield
    except (StorageError, BlobIntegrityError) as error:
        for pin in pins:
            if pin is None or dataset_exists(store.location, pin.location, pin.branch, pin.version):
                continue
            if _was_cleaned_up(store, pin):
                raise HistoricalVersionReclaimedError(pin.table_key, pin.version) from error
        raise
