"""Phases A to D of every write, as one context manager.

    with Attempt(environment, intent) as attempt:      lock, settle what others left, check every expectation
        attempt.declare(staged writes)                 A   the intent is on disk
        attempt.commit_tables()                        B   each table moves to its new version
        attempt.publish()                              C   everything becomes visible at once
                                                       D   the sidecar goes, the lock is released

A failure before B is a failure before any effect. A failure in B or C is settled at once, while the lock is still held:
the write is either completed, and `attempt.receipt` is its commit, or undone, and the original error goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from types import TracebackType
from typing import NoReturn

from omnigraph.commit.environment import GraphEnvironment, NewCommit
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.notes import NO_NOTE, Note
from omnigraph.commit.publisher import Changes, Position
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.schema_change import SchemaChange, finish_published, prepare, schema_changes
from omnigraph.commit.sidecar import PlannedCommit, Sidecar, SidecarTable, WriterKind, delete_sidecar, write_sidecar
from omnigraph.commit.sweep import settle, settle_all, undo_late_writers
from omnigraph.commit.targets import pin_of
from omnigraph.core.budget import check_work, finishing, work_steps
from omnigraph.core.failpoints import Failpoint, FailpointError, reach
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import (
    ConflictError,
    DriftError,
    ExpectedVersionMismatchError,
    LeaseLostError,
    OmniError,
    RecoveryRequiredError,
    StorageError,
)
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.staged import (
    StagedWrite,
    check_written,
    commit_staged,
    new_files,
    sync_commit,
    with_checksums,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.objects import delete_files

_log = logging.getLogger(__name__)
#: How often a prepared write enters the window when it loses the commit lock before any effect. A store that is too
#: slow for its leases takes the lock away every time.
_WINDOWS = 3


@frozen(kw_only=True)
class Intent:
    """The intent of a writer, before it holds the lock."""

    kind: WriterKind
    expectations: Expectations
    actor: str | None = None
    operation_id: str = field(default_factory=new_ulid)
    merged_parent_id: str | None = None
    merge_strategy: str | None = None
    note: Note = NO_NOTE
    schema_change: SchemaChange | None = None


@frozen(kw_only=True)
class StagedTable:
    """A staged write and the identity of its table."""

    table_key: TableKey
    incarnation: int
    staged: StagedWrite


class Attempt(AbstractContextManager["Attempt"]):
    """One write in the commit window. Not thread-safe; used once, or again while `can_begin_again`."""

    def __init__(self, environment: GraphEnvironment, intent: Intent) -> None:
        self._outside = environment
        #: The same inside the window.
        self._environment = environment
        self._intent = intent
        self._window: AbstractContextManager[GraphEnvironment] | None = None
        self._sidecar: Sidecar | None = None
        self._staged: Sequence[StagedTable] = ()
        self._pins: list[TablePin] = []
        self._created: list[TablePin] = []
        self._committed: list[Table] = []
        #: Where the manifest is while the lock is held, and the head that the write follows.
        self._position: Position | None = None
        #: Whether dead writers had left something, which was settled.
        self.has_healed = False
        #: The published commit, once there is one.
        self.receipt: GraphCommit | None = None

    def __enter__(self) -> Attempt:
        window = self._outside.window()
        environment = window.__enter__()
        self._window, self._environment = window, environment
        try:
            self.has_healed = bool(settle_all(environment))
            self._position = environment.manifest.locate(self._intent.expectations)
        except BaseException as error:
            # Also after an interrupt: a lock that is not released would stop every writer.
            window.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    @property
    def _head(self) -> Head:
        assert self._position is not None, "only inside the window"
        return self._position.head

    @property
    def is_declared(self) -> bool:
        """Whether the intent is on disk, so that the write may have had an effect."""
        return self._sidecar is not None

    @property
    def can_begin_again(self) -> bool:
        """Whether nothing happened and the next window is another one, with a lock that is not lost."""
        return not self.is_declared and self._outside.held_tenure is None

    def declare(self, staged: Sequence[StagedTable]) -> None:
        """Phase A: write the sidecar.

        Raises:
            DriftError: a table moved without the manifest; nothing happened. With a sidecar on disk it would look like
                the work of this writer, and be undone.
            ExpectedVersionMismatchError: a writer without the lock had moved a table; that was undone, and this write
                has to be prepared again.
            StorageError: the disk did not take everything that was staged; nothing happened.
        """
        for item in staged:
            if not item.staged.table.is_head():
                self._explain_movement(item, [other.table_key for other in staged])
            check_written(self._environment.location, item.staged)
        intent, head = self._intent, self._head
        self._staged = staged
        sidecar = Sidecar(
            operation_id=intent.operation_id,
            writer_kind=intent.kind,
            actor=intent.actor,
            branch=intent.expectations.branch,
            # A new branch gets its incarnation from the publish: until then there is none that could match.
            branch_incarnation=0 if intent.expectations.new_branch else head.incarnation,
            schema_hash=head.schema_hash,
            commit=PlannedCommit(
                commit_id=new_ulid(),
                parent_id=head.commit_id,
                merged_parent_id=intent.merged_parent_id,
                merge_strategy=intent.merge_strategy,
                message=intent.note.message,
                metadata=intent.note.metadata,
                created_at=self._environment.clock(),
            ),
            tables=tuple(
                SidecarTable(
                    table_key=item.table_key,
                    incarnation=item.incarnation,
                    table_path=item.staged.table.path,
                    table_branch=item.staged.table.branch,
                    expected_version=item.staged.read_version,
                    post_commit_pin=item.staged.made_version,
                    transaction_uuid=item.staged.transaction_uuid,
                    transaction_uuids=item.staged.transaction_uuids,
                )
                for item in staged
            ),
            schema_change=None if intent.schema_change is None else intent.schema_change.describe(head),
        )
        reach(Failpoint.BEFORE_SIDECAR)
        self._environment.tenure.check()
        write_sidecar(self._environment.objects, sidecar)
        self._sidecar = sidecar
        reach(Failpoint.AFTER_SIDECAR)

    def _explain_movement(self, item: StagedTable, keys: list[TableKey]) -> NoReturn:
        """Undo what a writer without the lock did, if that is why a table is not where the manifest says."""
        # A successor may have moved it.
        self._environment.tenure.check()
        table = item.staged.table
        found = table.latest_version
        undone = undo_late_writers(self._environment, self._intent.expectations.branch, keys)
        if undone is not None:
            raise ExpectedVersionMismatchError(item.table_key, table.version, found)
        raise DriftError(table.path, table.version, found)

    def commit_tables(self) -> None:
        """Phase B: move every table."""
        environment = self._environment
        if self._intent.schema_change is not None:
            self._created = prepare(environment, self._intent.schema_change)
        for item in self._staged:
            environment.tenure.check()
            reach(Failpoint.BEFORE_TABLE_COMMIT)
            table = commit_staged(item.staged)
            self._committed.append(table)
            if environment.durable:
                sync_commit(environment.location, table, item.staged)
            self._pins.append(pin_of(table, item.table_key, item.incarnation))
            reach(Failpoint.AFTER_TABLE_COMMIT)
        if self._intent.kind is WriterKind.BRANCH_MERGE:
            self._confirm()

    def _confirm(self) -> None:
        """The end of phase B of a merge: the sidecar says which versions were reached, so that all of them count."""
        assert self._sidecar is not None, "declared before it is confirmed"
        reach(Failpoint.BEFORE_CONFIRM)
        self._environment.tenure.check()
        reached = {pin.table_key: pin.version for pin in self._pins}
        tables = tuple(
            entry.model_copy(update={"confirmed_version": reached[TableKey(entry.table_key)]})
            for entry in self._sidecar.tables
        )
        confirmed = self._sidecar.model_copy(update={"tables": tables})
        write_sidecar(self._environment.objects, confirmed)
        self._sidecar = confirmed
        reach(Failpoint.AFTER_CONFIRM)

    def publish(self) -> GraphCommit:
        """Phase C: make everything visible at once."""
        sidecar = self._sidecar
        assert sidecar is not None, "declared before it is published"
        intent = self._intent
        changes = self._changes(sidecar)
        change = intent.schema_change
        commit = NewCommit(
            commit_id=sidecar.commit.commit_id,
            kind=str(intent.kind),
            operation_id=intent.operation_id,
            actor=intent.actor,
            merged_parent_id=sidecar.commit.merged_parent_id,
            merge_strategy=sidecar.commit.merge_strategy,
            note=intent.note,
            schema_files=None if change is None else change.files,
        )
        reach(Failpoint.BEFORE_PUBLISH)
        self.receipt = self._environment.publish(intent.expectations, changes, commit, self._position)
        for table in self._committed:
            # Not before: a version that is undone may come again with other rows.
            self._environment.tables.remember(table)
        reach(Failpoint.AFTER_PUBLISH)
        return self.receipt

    def _changes(self, sidecar: Sidecar) -> Changes:
        if sidecar.schema_change is None:
            return Changes(pins=tuple(self._pins))
        return schema_changes(self._head, sidecar.schema_change, self._pins, self._created)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        window, self._window = self._window, None
        assert window is not None, "entered before it is left"
        try:
            if error is None and self._sidecar is not None:
                self._finish()
            if error is None or self._sidecar is None:
                return False
            if not self._environment.tenure.is_lost:
                try:
                    return self._settle_own(self._environment, error)
                except LeaseLostError:
                    _log.warning("the lease ended while %s was settled", self._sidecar.name)
        finally:
            window.__exit__(None, None, None)
        # This writer stood still: whatever it does now without the lock could undo a successor's work.
        return self._settle_in_new_window(error, self._sidecar)

    def _settle_in_new_window(self, error: BaseException, sidecar: Sidecar) -> bool:
        try:
            with self._outside.new_window() as environment:
                is_healed = self._settle_own(environment, error)
        except (ConflictError, StorageError) as second:
            reason = f"{error}; the commit lock could not be taken again: {second}"
            raise RecoveryRequiredError(sidecar.operation_id, reason) from error
        if isinstance(error, DriftError) and not is_healed:
            # The successor moved the table, which does not need a repair.
            raise LeaseLostError from error
        return is_healed

    def _finish(self) -> None:
        """Phase D. The write is published: a sidecar that stays is only a nuisance for the next writer."""
        assert self._sidecar is not None, "there is a sidecar to delete"
        try:
            if self._sidecar.schema_change is not None:
                finish_published(self._environment, self._sidecar)
            delete_sidecar(self._environment.objects, self._sidecar.name)
        except (StorageError, LeaseLostError, FailpointError) as error:
            _log.warning("the sidecar %s stays until the next write: %s", self._sidecar.name, error)
            return
        reach(Failpoint.AFTER_SIDECAR_DELETE)

    def _settle_own(self, environment: GraphEnvironment, error: BaseException) -> bool:
        """Complete or undo what this write began; whether the failure is thereby healed.

        Raises:
            LeaseLostError: the lock was lost meanwhile; settling it needs another window.
        """
        sidecar = self._sidecar
        assert sidecar is not None, "there is a sidecar to settle"
        try:
            settle(environment, sidecar)
            self.receipt = environment.manifest.commit(sidecar.commit.commit_id)
            if self.receipt is None:
                # A successor may have undone the write before its last table moved.
                keys = [TableKey(entry.table_key) for entry in sidecar.tables]
                undo_late_writers(environment, sidecar.branch, keys)
        except LeaseLostError:
            raise
        except (OmniError, FailpointError) as second:
            reason = f"{error}; settling it failed too: {second}"
            raise RecoveryRequiredError(sidecar.operation_id, reason) from error
        # An interrupt ends the program all the same; any other failure is healed.
        return isinstance(error, Exception) and self.receipt is not None


def discard_staged(environment: GraphEnvironment, staged: Sequence[StagedTable]) -> None:
    """Remove the files of a write that lost before any effect; what stays is reclaimed by cleanup."""
    for item in staged:
        try:
            delete_files(environment.location, new_files(item.staged))
        except StorageError as error:
            _log.warning("staged files of %s stay: %s", item.table_key, error)


def run_phases(attempt: Attempt, staged: Sequence[StagedTable]) -> GraphCommit:
    """Run a prepared write through all phases; the commit it published. Staged files are left to the caller.

    Raises:
        ConflictError: something it was prepared against moved; nothing happened.
        RecoveryRequiredError: it failed after its first effect and could not be settled.
    """
    summed = [replace(item, staged=with_checksums(item.staged)) for item in work_steps(staged)]
    for _ in range(_WINDOWS - 1):
        try:
            return _run_once(attempt, summed)
        except LeaseLostError as error:
            if not attempt.can_begin_again:
                raise
            _log.warning("the commit begins again in another window: %s", error)
    return _run_once(attempt, summed)


def _run_once(attempt: Attempt, staged: Sequence[StagedTable]) -> GraphCommit:
    check_work()
    # From here on no time limit and no caller ends it half-way.
    with finishing(), attempt:
        attempt.declare(staged)
        attempt.commit_tables()
        attempt.publish()
    if attempt.receipt is None:
        raise ConflictError("the write was undone")
    return attempt.receipt
