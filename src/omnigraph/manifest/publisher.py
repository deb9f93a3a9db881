"""The one door: everything a reader can see changes here, in one strict commit to the catalog.

A publish adds one small fragment of rows and commits the list of all fragments as an Overwrite: exactly one publisher
wins a version, and no old row is rewritten. Now and then the small fragments are folded into one, in the same commit.
Rows carry the history, so older versions of the catalog itself are of no use, and a fold removes them.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from omnigraph.errors import (
    BranchesExistError,
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    InternalError,
    PreconditionFailedError,
    ReadSetConflictError,
    RetryableCommitConflictError,
    StorageError,
)
from omnigraph.manifest.branching import branch_at, check_new_branch, is_free_fork_name
from omnigraph.manifest.format import check_stamp, stamp
from omnigraph.manifest.rows import (
    MAIN,
    MANIFEST_SCHEMA,
    GraphCommit,
    Head,
    Row,
    TablePin,
    Tombstone,
    commit_row,
    head_row,
    read_commit,
    read_head,
    read_tombstone,
    read_version,
    table_row,
    to_arrow,
    tombstone_row,
    version_row,
)
from omnigraph.manifest.snapshot import History, snapshot_of
from omnigraph.manifest.state import ManifestState, newest_per_incarnation, state_of
from omnigraph.storage.catalog import CatalogTable, CatalogView, PublishContention
from omnigraph.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.storage.location import GraphLocation

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

PUBLISHER_RETRY_BUDGET = 5
#: Small fragments beyond this many are folded into one by the publish that notices.
FOLD_THRESHOLD = 32

#: Versions of the catalog that `fold` keeps. A reader that is further behind fails in the middle of its read and looks
#: again, so this is about speed, not truth.
KEPT_VERSIONS = 10

#: Commits of these kinds change no row, so a caller's expected head survives them.
ROLLBACK_KIND = "rollback"
PHYSICAL_KINDS = frozenset({"optimize", "ensure_indices", ROLLBACK_KIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a writer saw when it prepared its work; all of it has to hold still when it publishes."""

    branch: str
    incarnation: int
    schema_hash: str
    #: Versions of the tables that the write changes; None for a table that did not exist.
    touched: Mapping[TableKey, int | None] = field(default_factory=dict)
    #: Versions of the tables that were only read to validate.
    read: Mapping[TableKey, int] = field(default_factory=dict)
    #: The caller's own precondition on the branch head.
    head_commit: str | None = None
    #: The commit that the branch was at; ordinary commits since then do not matter, merges into it do.
    position: str | None = None
    #: The position that a new branch begins at, as it was read: later commits of its base do not matter to it. The
    #: branch must not exist yet.
    fork_of: Head | None = None
    #: The Lance branch that the tables of a new branch were forked under.
    fork_name: str | None = None
    #: Whether no other branch may exist.
    is_sole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a publish makes visible on one branch."""

    pins: tuple[TablePin, ...] = ()
    new_tables: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFold:
    """What a fold of the catalog did."""

    fragments_removed: int
    fragments_added: int
    versions_removed: int


class Manifest:
    """The catalog of one graph. Thread-safe; keeps the last state it read.

    Readers look at an immutable view without any lock; when it is out of date, one of them replaces it for all.
    Publishers of one process take turns; between processes the strict commit decides.
    """

    def __init__(self, location: GraphLocation, *, durable: bool) -> None:
        self._catalog = CatalogTable(location, MANIFEST_SCHEMA, durable=durable)
        self._publishing = Lock()
        self._refreshing = Lock()
        #: Replaced as a whole, so that view and state always belong together.
        self._current: tuple[CatalogView, ManifestState] | None = None
        #: The last history that was read, with the version of the catalog it belongs to.
        self._history: tuple[int, History] | None = None
        #: The same for its commits alone.
        self._commits: tuple[int, Mapping[str, GraphCommit]] | None = None
        #: By version of the catalog, so that many readers of the past do not all scan it after a commit.
        self._reading_history: Together[History] = Together()
        self._reading_commits: Together[Mapping[str, GraphCommit]] = Together()

    def create(self, genesis: GraphCommit, pins: tuple[TablePin, ...]) -> ManifestState:
        """The first version of the catalog: branch `main` with one parentless commit."""
        head = Head(
            branch=MAIN,
            incarnation=genesis.graph_version,
            graph_version=genesis.graph_version,
            commit_id=genesis.commit_id,
            schema_hash=genesis.schema_hash,
            pins={pin.table_key: pin for pin in pins},
        )
        rows = [table_row(pin, genesis.graph_version) for pin in pins]
        rows += [version_row(pin, head.branch_key, genesis.graph_version) for pin in pins]
        rows += [commit_row(genesis), head_row(head)]
        view = self._catalog.create(to_arrow(rows), stamp())
        self._current = (view, state_of((head,), view.version))
        return self._current[1]

    def state(self) -> ManifestState:
        """The state at HEAD: one cheap probe when nothing moved, one scan of the head rows otherwise.

        Raises:
            StorageFormatError: the graph has another storage format.
            StorageError: there is no catalog, or it is damaged.
        """
        return self._look()[1]

    def _look(self) -> tuple[CatalogView, ManifestState]:
        current = self._current
        if current is not None and current[0].is_current():
            return current
        with self._refreshing:
            # Another reader, or the publisher, may have done it meanwhile; what it found must still be the newest.
            renewed = self._current
            if renewed is not None and renewed is not current and renewed[0].is_current():
                return renewed
            return self._read_current()

    def _read_current(self) -> tuple[CatalogView, ManifestState]:
        while True:
            view = self._catalog.open()
            check_stamp(view.metadata)
            try:
                heads = [read_head(row) for row in view.read_rows("graph_head")]
                break
            except StorageError:
                # A version that became an old one in this moment may be cleaned up already.
                if view.is_current():
                    raise
        if not heads:
            raise InternalError("the catalog holds no branch")
        self._current = (view, state_of(heads, view.version))
        return self._current

    def publish(
        self,
        expectations: Expectations,
        changes: Changes,
        make_commit: Callable[[Head, int], GraphCommit],
    ) -> GraphCommit:
        """Publish one commit on a branch; `make_commit` gets the head it follows and its graph version.

        Raises:
            ConflictError: an expectation does not hold any more; nothing happened.
            PreconditionFailedError: the caller's expected head differs; nothing happened.
            RetryableCommitConflictError: other publishers won every try.
        """

        def rows_for(state: ManifestState) -> tuple[GraphCommit, list[Row], Head]:
            head = self.check(expectations, state)
            graph_version = state.graph_version + 1
            if expectations.fork_of is not None:
                assert expectations.fork_name is not None, "a new branch has forks somewhere"
                head = branch_at(
                    snapshot_of(head), expectations.branch, graph_version, expectations.fork_name
                )
            commit = make_commit(head, graph_version)
            moved = _advance(head, changes, commit, graph_version)
            pins = changes.pins
            rows = [table_row(pin, graph_version) for pin in changes.new_tables]
            rows += [version_row(pin, head.branch_key, graph_version) for pin in pins]
            rows += [
                tombstone_row(replace(stone, graph_version=graph_version))
                for stone in changes.tombstones
            ]
            rows += [commit_row(commit), head_row(moved)]
            return commit, rows, moved

        return self._commit_rows(rows_for)

    def publish_branch(self, make_head: Callable[[ManifestState, int], Head]) -> Head:
        """Create or delete a branch: one head row, no commit; `make_head` gets the state and its graph version."""

        def rows_for(state: ManifestState) -> tuple[Head, list[Row], Head]:
            head = make_head(state, state.graph_version + 1)
            return head, [head_row(head)], head

        return self._commit_rows(rows_for)

    def forget(self, object_ids: Sequence[str]) -> None:
        """Remove rows that no snapshot needs any more, in one strict commit. Must run under the commit lock.

        Raises:
            RetryableCommitConflictError: a publisher without the lock won every try.
        """
        with self._publishing:
            for _ in range(PUBLISHER_RETRY_BUDGET + 1):
                view, state = self._look()
                gone = [*object_ids, *_superseded(view, state.all_heads)]
                try:
                    view = self._catalog.rewrite(view, gone)
                except PublishContention:
                    continue
                self._current = (view, replace(state, catalog_version=view.version))
                return
        raise RetryableCommitConflictError(
            "the catalog was busy; no commit was forgotten, try again"
        )

    def fold(self) -> CatalogFold:
        """Write all rows anew as one fragment and remove old versions of the catalog; nothing of the graph changes.

        Must run under the commit lock.

        Raises:
            RetryableCommitConflictError: as `forget`.
        """
        before = self._look()[0].fragment_count
        is_due = before > 1
        if is_due:
            self.forget(())
        view = self._look()[0]
        return CatalogFold(
            fragments_removed=before if is_due else 0,
            fragments_added=view.fragment_count if is_due else 0,
            versions_removed=self._catalog.remove_old_versions(view, KEPT_VERSIONS),
        )

    def _trim(self, view: CatalogView) -> None:
        """Remove old versions of the catalog right after a fold: on disk Lance lists all of them at every look."""
        if not self._catalog.is_local:
            return
        try:
            self._catalog.remove_old_versions(view, KEPT_VERSIONS)
        except StorageError as error:
            _log.warning("old versions of the catalog stay until the next fold: %s", error)

    def check(self, expectations: Expectations, state: ManifestState | None = None) -> Head:
        """The current head, if every expectation holds; for a new branch the head of its base.

        Raises:
            ConflictError: as `publish`.
        """
        state = state or self.state()
        if expectations.fork_of is not None:
            return self._check_fork(expectations, expectations.fork_of, state)
        name = expectations.branch
        head = state.heads.get(name)
        if head is None:
            raise BranchNotFoundError(name)
        if head.incarnation != expectations.incarnation:
            member = f"branch {name}"
            raise ReadSetConflictError(member, expectations.incarnation, head.incarnation)
        others = sorted(set(state.heads) - {name})
        if expectations.is_sole and others:
            raise BranchesExistError(others)
        if expectations.head_commit is not None:
            self._check_head(expectations, head)
        if expectations.position is not None:
            self._check_position(expectations.position, head)
        if head.schema_hash != expectations.schema_hash:
            raise ReadSetConflictError("the schema", expectations.schema_hash, head.schema_hash)
        for key, version in expectations.touched.items():
            actual = head.pins[key].version if key in head.pins else None
            if actual != version:
                raise ExpectedVersionMismatchError(key, version, actual)
        for key, version in expectations.read.items():
            actual = head.pins[key].version if key in head.pins else None
            if actual != version:
                raise ReadSetConflictError(key, version, actual)
        return head

    def _check_position(self, position: str, head: Head) -> None:
        """The expected position, or one that only ordinary commits followed: the base of a merge stays the same."""
        current: str | None = head.commit_id
        while current != position:
            commit = None if current is None else self.commit(current)
            if commit is None or commit.merged_parent_id is not None:
                raise ReadSetConflictError(f"branch {head.branch}", position, head.commit_id)
            current = commit.parent_id

    def _check_fork(self, expectations: Expectations, origin: Head, state: ManifestState) -> Head:
        """The position that a new branch begins at, if it may still begin there."""
        if expectations.branch in state.heads:
            raise ReadSetConflictError(f"branch {expectations.branch}", None, "it exists by now")
        check_new_branch(state, expectations.branch)
        used = [head.fork_name for head in state.all_heads if head.fork_name is not None]
        if not is_free_fork_name(str(expectations.fork_name), used):
            member = f"the fork name of branch {expectations.branch}"
            raise ReadSetConflictError(member, None, "another branch took it")
        base = state.head(origin.branch)
        if base.incarnation != origin.incarnation:
            member = f"branch {origin.branch}"
            raise ReadSetConflictError(member, origin.incarnation, base.incarnation)
        if base.schema_hash != expectations.schema_hash:
            raise ReadSetConflictError("the schema", expectations.schema_hash, base.schema_hash)
        return origin

    def history(self) -> History:
        """Every row that past states follow from; one scan of the whole catalog when it moved."""
        return self._read(self._history_of)

    def _history_of(self, view: CatalogView, state: ManifestState) -> History:
        kept = self._history
        if kept is not None and kept[0] == state.catalog_version:
            return kept[1]
        return self._reading_history.make(
            state.catalog_version, lambda: self._read_history(view, state)
        )

    def _read_history(self, view: CatalogView, state: ManifestState) -> History:
        versions = [read_version(row) for row in view.read_rows("table_version")]
        stones = [read_tombstone(row) for row in view.read_rows("table_tombstone")]
        history = History(
            commits=self._commits_of(view, state),
            versions=tuple(versions),
            tombstones=tuple(stones),
            heads=state.all_heads,
        )
        self._history = (state.catalog_version, history)
        return history

    def commits(self) -> Mapping[str, GraphCommit]:
        """Every commit of the graph by id."""
        return self._read(self._commits_of)

    def _read(self, read: Callable[[CatalogView, ManifestState], _Result]) -> _Result:
        """Read rows at HEAD; again when what was read meanwhile became an old version, and was cleaned up."""
        while True:
            view, state = self._look()
            try:
                return read(view, state)
            except StorageError:
                if view.is_current():
                    raise

    def _commits_of(self, view: CatalogView, state: ManifestState) -> Mapping[str, GraphCommit]:
        kept = self._commits
        if kept is not None and kept[0] == state.catalog_version:
            return kept[1]
        return self._reading_commits.make(
            state.catalog_version, lambda: self._read_commits(view, state)
        )

    def _read_commits(self, view: CatalogView, state: ManifestState) -> Mapping[str, GraphCommit]:
        found = (read_commit(row) for row in view.read_rows("graph_commit"))
        commits = {commit.commit_id: commit for commit in found}
        self._commits = (state.catalog_version, commits)
        return commits

    def fragment_count(self) -> int:
        """Over how many fragments the rows are spread."""
        return self._read(lambda view, _: view.fragment_count)

    def commit(self, commit_id: str) -> GraphCommit | None:
        """One commit, or None."""
        rows = self._read(lambda view, _: view.read_object(f"commit:{commit_id}"))
        return read_commit(rows[0]) if rows else None

    def is_same_data(self, snapshot: Snapshot, tables: Collection[TableKey]) -> bool:
        """Whether only physical commits have moved these tables since a snapshot: every row is as it was."""
        head = self.state().heads.get(snapshot.branch)
        if head is None or head.incarnation != snapshot.incarnation:
            return False
        current: str | None = head.commit_id
        while current != snapshot.commit_id:
            commit = None if current is None else self.commit(current)
            if commit is None:
                return False
            if commit.kind not in PHYSICAL_KINDS and not set(tables).isdisjoint(commit.tables):
                return False
            current = commit.parent_id
        return head.schema_hash == snapshot.schema_hash

    def _check_head(self, expectations: Expectations, head: Head) -> None:
        """The caller's expected commit, or one that only physical commits followed."""
        wanted = expectations.head_commit
        current: str | None = head.commit_id
        while current is not None and current != wanted:
            commit = self.commit(current)
            if commit is None or commit.kind not in PHYSICAL_KINDS:
                break
            current = commit.parent_id
        if wanted is not None and current != wanted:
            raise PreconditionFailedError(expectations.branch, wanted, head.commit_id)

    def _commit_rows(
        self, rows_for: Callable[[ManifestState], tuple[_Result, list[Row], Head]]
    ) -> _Result:
        with self._publishing:
            for attempt in range(PUBLISHER_RETRY_BUDGET + 1):
                view, state = self._look()
                result, rows, head = rows_for(state)
                heads = (*state.all_heads, head)
                try:
                    view = self._catalog.append(view, to_arrow(rows), fold=_fold_of(view, heads))
                except PublishContention:
                    pause_s = random.uniform(0, 0.004 * 2**attempt)
                    time.sleep(pause_s)  # the winner needs about one publish to finish
                    continue
                self._current = (view, state_of(heads, view.version))
                if view.fragment_count == 1:
                    self._trim(view)
                return result
        raise RetryableCommitConflictError(
            f"the catalog was busy {PUBLISHER_RETRY_BUDGET + 1} times in a row; try again"
        )


def _fold_of(view: CatalogView, heads: tuple[Head, ...]) -> Callable[[], list[str]] | None:
    """When it is time to fold: the ids of the head rows that may go, because newer ones replace them."""
    if view.fragment_count <= FOLD_THRESHOLD:
        return None

    return lambda: _superseded(view, heads)


def _superseded(view: CatalogView, heads: tuple[Head, ...]) -> list[str]:
    kept = {
        f"head:{head.branch_key}@{head.graph_version}" for head in newest_per_incarnation(heads)
    }
    present = (row["object_id"] for row in view.read_rows("graph_head"))
    return [object_id for object_id in present if object_id not in kept]


def _advance(head: Head, changes: Changes, commit: GraphCommit, graph_version: int) -> Head:
    """The head after a publish."""
    dropped = {(stone.table_key, stone.incarnation) for stone in changes.tombstones}
    pins = {key: pin for key, pin in head.pins.items() if (key, pin.incarnation) not in dropped}
    pins |= {pin.table_key: pin for pin in changes.pins}
    return replace(
        head,
        graph_version=graph_version,
        commit_id=commit.commit_id,
        schema_hash=changes.schema_hash or head.schema_hash,
        pins=pins,
    )
