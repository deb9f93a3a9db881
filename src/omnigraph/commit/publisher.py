"""The one door: everything a reader can see changes here, in one strict commit to the manifest.

A publish adds one small fragment of rows and commits the list of all fragments as an Overwrite: exactly one publisher
wins a version, and no old row is rewritten. Now and then the small fragments are folded into one, in the same commit.
Rows carry the history, so older versions of the manifest itself are of no use, and a fold removes them.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Annotated, TypeAlias, TypeVar

from omnigraph.codec import Document, Key
from omnigraph.commit.expectations import PHYSICAL_KINDS, Expectations
from omnigraph.commit.lineage import after_parents, walk_back
from omnigraph.commit.rows import (
    MAIN,
    GraphCommit,
    Head,
    Row,
    TablePin,
    Tombstone,
    check_stamp,
    commit_row,
    head_row,
    manifest_schema,
    read_commit,
    read_head,
    read_tombstone,
    read_version,
    stamp,
    table_row,
    to_arrow,
    tombstone_row,
    version_row,
)
from omnigraph.commit.snapshot import (
    History,
    ManifestState,
    Snapshot,
    branch_at,
    newest_per_incarnation,
    snapshot_of,
    state_of,
)
from omnigraph.commit.tags import TAG_ROWS, Tag, TagEvent, read_tag, tag_row, tags_after
from omnigraph.core.cache import LruCache
from omnigraph.core.ids import TableKey
from omnigraph.errors import LeaseLostError, RetryableCommitConflictError, StorageError
from omnigraph.frozen import frozen
from omnigraph.storage.lease import Tenure, fence_metadata, read_fence
from omnigraph.storage.location import GraphLocation
from omnigraph.storage.manifest_table import ManifestTable, ManifestView, PublishContention

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
#: A version that was made, the head row that it brought, and what its maker has to tell.
_Made: TypeAlias = tuple[ManifestView, Head | None, _Result]

PUBLISHER_RETRY_BUDGET = 5
#: Small fragments beyond this many are folded into one by the publish that notices.
FOLD_THRESHOLD = 32

#: Versions of the manifest that `fold` keeps. A reader that is further behind fails in the middle of its read and looks
#: again, so this is about speed, not truth.
KEPT_VERSIONS = 10

#: For callers whose lock cannot be lost.
UNFENCED = Tenure()


@frozen(kw_only=True)
class Changes:
    """The changes that a publish makes visible on one branch."""

    pins: tuple[TablePin, ...] = ()
    new_tables: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema_hash: str | None = None


@frozen(kw_only=True)
class ManifestFold(Document):
    """The result of a fold of the manifest."""

    fragments_removed: int
    fragments_added: int
    versions_removed: Annotated[int, Key("old_versions_removed")]


@frozen
class Position:
    """A state of the manifest in which the expectations of a writer hold, and the head that it follows."""

    view: ManifestView
    state: ManifestState
    head: Head


class _LandedError(Exception):
    """An earlier try of the same publish is in the manifest."""

    def __init__(self, commit: GraphCommit) -> None:
        self.commit = commit
        super().__init__(commit.commit_id)


class Manifest:
    """The manifest of one graph. Thread-safe; keeps the last state it read.

    Readers look at an immutable view without any lock; when it is out of date, one of them replaces it for all.
    Publishers of one process take turns; between processes the strict commit decides.
    """

    def __init__(self, location: GraphLocation, *, durable: bool) -> None:
        self._table = ManifestTable(location, manifest_schema(), durable=durable)
        self._publishing = Lock()
        self._refreshing = Lock()
        #: Replaced as a whole, so that view and state always belong together.
        self._current: tuple[ManifestView, ManifestState] | None = None
        #: The last history that was read, and its commits alone, by version of the manifest: many readers of the past
        #: do not all scan it after a commit.
        self._history: LruCache[History] = LruCache(1)
        self._commits: LruCache[Mapping[str, GraphCommit]] = LruCache(1)
        self._tags: LruCache[Mapping[str, Tag]] = LruCache(1)

    def create(self, genesis: GraphCommit, pins: tuple[TablePin, ...]) -> ManifestState:
        """The first version of the manifest: branch `main` with one parentless commit."""
        head = Head(
            branch=MAIN,
            incarnation=genesis.graph_version,
            graph_version=genesis.graph_version,
            commit_id=genesis.commit_id,
            committed_at=genesis.created_at,
            schema_hash=genesis.schema_hash,
            pins={pin.table_key: pin for pin in pins},
        )
        rows = [table_row(pin, genesis.graph_version) for pin in pins]
        rows += [version_row(pin, head.branch_key, genesis.graph_version) for pin in pins]
        rows += [commit_row(genesis), head_row(head)]
        view = self._table.create(to_arrow(rows), stamp())
        self._current = (view, state_of((head,), view.version))
        return self._current[1]

    def state(self) -> ManifestState:
        """The state at HEAD: one cheap probe when nothing moved, one scan of the head rows otherwise.

        Raises:
            StorageFormatError: the graph has another storage format.
            StorageError: there is no manifest, or it is damaged.
        """
        return self._look()[1]

    def known_state(self) -> ManifestState:
        """The last state that was read or published here; for work whose commit finds out whether it still holds."""
        current = self._current
        return self.state() if current is None else current[1]

    def _look(self) -> tuple[ManifestView, ManifestState]:
        current = self._current
        if current is not None and current[0].is_current():
            return current
        with self._refreshing:
            # Another reader, or the publisher, may have done it meanwhile; what it found must still be the newest.
            renewed = self._current
            if renewed is not None and renewed is not current and renewed[0].is_current():
                return renewed
            return self._read_current()

    def _read_current(self) -> tuple[ManifestView, ManifestState]:
        while True:
            view = self._table.open()
            check_stamp(view.metadata)
            try:
                heads = [read_head(row) for row in view.read_rows("graph_head")]
                break
            except StorageError:
                # A version that became an old one in this moment may be cleaned up already.
                if view.is_current():
                    raise
        self._current = (view, state_of(heads, view.version, read_fence(view.metadata)))
        return self._current

    def raise_fence(self, tenure: Tenure) -> None:
        """Refuse publishes under epochs below that of a tenure from now on, by one strict commit without rows.

        Raises:
            LeaseLostError: a later holder of the commit lock was here.
            RetryableCommitConflictError: other publishers won every try.
        """
        self._commit(tenure, lambda view, _, metadata: (self._table.append(view, None, metadata=metadata), None, None))

    def publish(
        self,
        expectations: Expectations,
        changes: Changes,
        make_commit: Callable[[Head, int], GraphCommit],
        *,
        tenure: Tenure = UNFENCED,
        seen: Position | None = None,
    ) -> GraphCommit:
        """Publish one commit on a branch; `make_commit` gets the head it follows and its graph version.

        With the position that `locate` found for the same expectations, the first try looks at nothing again: it is a
        strict commit on that state, and fails when the manifest has moved.

        Raises:
            LeaseLostError: a later holder of the commit lock was here; nothing happened.
            ConflictError: an expectation does not hold any more; nothing happened.
            PreconditionFailedError: the caller's expected head differs; nothing happened.
            RetryableCommitConflictError: other publishers won every try.
        """
        tried: list[str] = []

        def rows_for(state: ManifestState) -> tuple[GraphCommit, list[Row], Head]:
            for commit_id in tried:
                if (landed := self.commit(commit_id)) is not None:
                    raise _LandedError(landed)
            is_seen = seen is not None and state is seen.state
            head = seen.head if seen and is_seen else expectations.check(state, self.commit)
            graph_version = state.graph_version + 1
            if (new := expectations.new_branch) is not None:
                head = branch_at(snapshot_of(head), new.name, graph_version, new.fork_name)
            commit = after_parents(make_commit(head, graph_version), head, self.commit)
            tried.append(commit.commit_id)
            moved = _advance(head, changes, commit, graph_version)
            pins = changes.pins
            rows = [table_row(pin, graph_version) for pin in changes.new_tables]
            rows += [version_row(pin, head.branch_key, graph_version) for pin in pins]
            rows += [tombstone_row(replace(stone, graph_version=graph_version)) for stone in changes.tombstones]
            rows += [commit_row(commit), head_row(moved)]
            return commit, rows, moved

        try:
            published = self._commit_rows(rows_for, tenure, seen)
        except _LandedError as landed:
            # What looked like a lost race was won: only the answer got lost.
            return landed.commit
        if tenure.is_lost and self.commit(published.commit_id) is None:
            # The lock was lost in the middle of the commit, and what it made is not the newest version of the manifest.
            tenure.lose()
            raise LeaseLostError
        return published

    def publish_branch(self, make_head: Callable[[ManifestState, int], Head], *, tenure: Tenure = UNFENCED) -> Head:
        """Create or delete a branch: one head row, no commit; `make_head` gets the state and its graph version.

        Raises:
            LeaseLostError: a later holder of the commit lock was here; nothing happened.
        """

        def rows_for(state: ManifestState) -> tuple[Head, list[Row], Head]:
            head = make_head(state, state.graph_version + 1)
            return head, [head_row(head)], head

        published = self._commit_rows(rows_for, tenure)
        if tenure.is_lost and not any(
            (head.branch, head.incarnation) == (published.branch, published.incarnation)
            and head.graph_version >= published.graph_version
            for head in self.state().all_heads
        ):
            tenure.lose()
            raise LeaseLostError
        return published

    def forget(self, object_ids: Sequence[str], *, instead: Sequence[Row] = (), tenure: Tenure = UNFENCED) -> None:
        """Remove rows that no snapshot needs any more, in one strict commit. Must run under the commit lock.

        `instead` are rows to write in the same commit, as in the place of damaged ones.

        Raises:
            LeaseLostError: a later holder of the commit lock was here; nothing happened.
            RetryableCommitConflictError: a publisher without the lock won every try.
        """

        def rewrite(view: ManifestView, state: ManifestState, metadata: Mapping[str, str]) -> _Made[None]:
            gone = [*object_ids, *_superseded(view, state.all_heads)]
            return self._table.append(view, to_arrow(instead), without=gone, metadata=metadata), None, None

        self._commit(tenure, rewrite)

    def fold(self, *, tenure: Tenure = UNFENCED) -> ManifestFold:
        """Write all rows anew as one fragment and remove old versions of the manifest; nothing of the graph changes.

        Must run under the commit lock.

        Raises:
            RetryableCommitConflictError: as `forget`.
        """
        before = self._look()[0].fragment_count
        is_due = before > 1
        if is_due:
            self.forget((), tenure=tenure)
        view = self._look()[0]
        return ManifestFold(
            fragments_removed=before if is_due else 0,
            fragments_added=view.fragment_count if is_due else 0,
            versions_removed=self._table.remove_old_versions(view, KEPT_VERSIONS),
        )

    def _trim(self, view: ManifestView) -> None:
        """Remove old versions of the manifest right after a fold: on disk Lance lists all of them at every look."""
        if not self._table.is_local:
            return
        try:
            self._table.remove_old_versions(view, KEPT_VERSIONS)
        except StorageError as error:
            _log.warning("old versions of the manifest stay until the next fold: %s", error)

    def locate(self, expectations: Expectations) -> Position:
        """The position of a writer in the state at HEAD, if all of its expectations hold.

        Raises:
            ConflictError: as `publish`.
        """
        view, state = self._look()
        return Position(view, state, expectations.check(state, self.commit))

    def history(self) -> History:
        """Every row that past states follow from; one scan of the whole manifest when it moved."""
        return self._read(self._history_of)

    def _history_of(self, view: ManifestView, state: ManifestState) -> History:
        def read() -> History:
            return History(
                commits=self._commits_of(view, state),
                versions=tuple(read_version(row) for row in view.read_rows("table_version")),
                tombstones=tuple(read_tombstone(row) for row in view.read_rows("table_tombstone")),
                heads=state.all_heads,
                tagged=frozenset(tag.commit_id for tag in self._tags_of(view, state).values()),
            )

        return self._history.get_or_build(state.manifest_version, read)

    def commits(self) -> Mapping[str, GraphCommit]:
        """Every commit of the graph by id."""
        return self._read(self._commits_of)

    def _read(self, read: Callable[[ManifestView, ManifestState], _Result]) -> _Result:
        """Read rows at HEAD; again when what was read meanwhile became an old version, and was cleaned up."""
        while True:
            view, state = self._look()
            try:
                return read(view, state)
            except StorageError:
                if view.is_current():
                    raise

    def _commits_of(self, view: ManifestView, state: ManifestState) -> Mapping[str, GraphCommit]:
        def read() -> Mapping[str, GraphCommit]:
            found = (read_commit(row) for row in view.read_rows("graph_commit"))
            return {commit.commit_id: commit for commit in found}

        return self._commits.get_or_build(state.manifest_version, read)

    def tags(self) -> Mapping[str, Tag]:
        """Every tag by its name, sorted."""
        return self._read(self._tags_of)

    def _tags_of(self, view: ManifestView, state: ManifestState) -> Mapping[str, Tag]:
        return self._tags.get_or_build(state.manifest_version, lambda: tags_after(_tag_events(view)))

    def publish_tag(
        self, make_event: Callable[[ManifestState, Mapping[str, Tag], int], TagEvent], *, tenure: Tenure = UNFENCED
    ) -> Tag:
        """Create or delete a tag: one row; `make_event` gets the state, the tags and the number of the event.

        Raises:
            LeaseLostError: a later holder of the commit lock was here; nothing happened.
        """

        def append(view: ManifestView, state: ManifestState, metadata: Mapping[str, str]) -> _Made[TagEvent]:
            events = _tag_events(view)
            event = make_event(state, tags_after(events), 1 + max((item.number for item in events), default=0))
            rows = to_arrow([tag_row(event, state.graph_version)])
            is_due = view.fragment_count > FOLD_THRESHOLD
            without = _superseded(view, state.all_heads) if is_due else None
            return self._table.append(view, rows, without=without, metadata=metadata), None, event

        _, event = self._commit(tenure, append, keeps_tags=False)
        if tenure.is_lost and event not in self._read(lambda view, _: _tag_events(view)):
            tenure.lose()
            raise LeaseLostError
        return event.tag

    def commit_rows(self) -> list[GraphCommit]:
        """Every row of a commit as it is in the manifest; a damaged one holds a commit twice."""
        rows = self._read(lambda view, _: view.read_rows("graph_commit"))
        return [read_commit(row) for row in rows]

    def restore_commits(self, right: Iterable[GraphCommit], *, tenure: Tenure = UNFENCED) -> None:
        """Replace all rows of some commits by the right ones, in one strict commit. Must run under the commit lock."""
        commits = list(right)
        self.forget(
            [f"commit:{commit.commit_id}" for commit in commits],
            instead=[commit_row(commit) for commit in commits],
            tenure=tenure,
        )

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
        for commit in walk_back(head.commit_id, self.commit):
            if commit.commit_id == snapshot.commit_id:
                return head.schema_hash == snapshot.schema_hash
            if commit.kind not in PHYSICAL_KINDS and not set(tables).isdisjoint(commit.tables):
                return False
        return False

    def _commit_rows(
        self,
        rows_for: Callable[[ManifestState], tuple[_Result, list[Row], Head]],
        tenure: Tenure,
        seen: Position | None = None,
    ) -> _Result:
        def append(view: ManifestView, state: ManifestState, metadata: Mapping[str, str]) -> _Made[_Result]:
            result, rows, head = rows_for(state)
            is_due = view.fragment_count > FOLD_THRESHOLD
            without = _superseded(view, (*state.all_heads, head)) if is_due else None
            return self._table.append(view, to_arrow(rows), without=without, metadata=metadata), head, result

        view, result = self._commit(tenure, append, seen)
        if view.fragment_count == 1:
            self._trim(view)
        return result

    def _commit(
        self,
        tenure: Tenure,
        attempt: Callable[[ManifestView, ManifestState, Mapping[str, str]], _Made[_Result]],
        seen: Position | None = None,
        *,
        keeps_tags: bool = True,
    ) -> tuple[ManifestView, _Result]:
        """Make one version of the manifest under a tenure; `attempt` gets what it goes on top of.

        The fence is looked at in the state that the strict commit replaces, so it cannot rise in between.
        """
        with self._publishing:
            for number in range(PUBLISHER_RETRY_BUDGET + 1):
                view, state = self._look() if seen is None or number else (seen.view, seen.state)
                fence = state.fence
                if tenure.epoch is not None:
                    if tenure.epoch < fence:
                        # A successor that took the lock over raised it, or the lock is older than the manifest.
                        tenure.rise_above(fence)
                    fence = tenure.epoch
                metadata = {} if fence == state.fence else fence_metadata(fence)
                try:
                    view, head, result = attempt(view, state, metadata)
                except PublishContention:
                    pause_s = random.uniform(0, 0.004 * 2**number)
                    time.sleep(pause_s)  # the winner needs about one publish to finish
                    continue
                tags = self._tags.get(state.manifest_version)
                if tags is not None and keeps_tags:
                    # Nothing lies between the two versions: the tags need no other look.
                    self._tags.put(view.version, tags)
                heads = state.all_heads if head is None else (*state.all_heads, head)
                self._current = (view, state_of(heads, view.version, fence))
                return view, result
        raise RetryableCommitConflictError(
            f"the manifest was busy {PUBLISHER_RETRY_BUDGET + 1} times in a row; nothing happened, try again"
        )


def _tag_events(view: ManifestView) -> list[TagEvent]:
    return [read_tag(row) for row in view.read_rows(TAG_ROWS)]


def _superseded(view: ManifestView, heads: tuple[Head, ...]) -> list[str]:
    """The ids of the head rows that a fold removes, because newer ones replace them."""
    kept = {f"head:{head.branch_key}@{head.graph_version}" for head in newest_per_incarnation(heads)}
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
        committed_at=commit.created_at,
    )
