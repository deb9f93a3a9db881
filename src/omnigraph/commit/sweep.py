"""Settling what dead and late writers left: gather facts, decide, act, record, delete the sidecar.

Runs only under the commit lock, and where the lock can be lost behind the fence: an owner that stood still can publish
no more, so what is found here stays true. What it publishes is bound to the exact head that it saw all the same, and it
looks again when that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from omnigraph.commit.audit import ROLLED_BACK, ROLLED_FORWARD, RecoveryRecord
from omnigraph.commit.environment import GraphEnvironment, NewCommit
from omnigraph.commit.expectations import ROLLBACK_KIND, Expectations, NothingFollows, NotPublished
from omnigraph.commit.notes import Note
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.schema_change import find_prepared, finish_published, refuse_used, schema_changes, withdraw
from omnigraph.commit.sidecar import (
    Decision,
    Sidecar,
    SidecarSchema,
    SidecarTable,
    TableClass,
    TableFacts,
    classify_table,
    decide,
    delete_sidecar,
    list_sidecars,
    read_sidecar,
)
from omnigraph.commit.targets import pin_of
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import (
    ExpectedVersionMismatchError,
    ReadSetConflictError,
    RecoveryRequiredError,
    StorageError,
    StorageFailure,
)
from omnigraph.storage.datasets.checksums import record_recovered
from omnigraph.storage.datasets.staged import (
    commit_staged,
    is_own_movement,
    stage_restore,
    sync_commit,
    transaction_uuids,
)
from omnigraph.storage.datasets.tables import Table

RECOVERY_ACTOR = "omnigraph:recovery"

#: How often a recovery that meets another head looks again.
_LOOKS = 3

_log = logging.getLogger(__name__)


def has_unsettled(environment: GraphEnvironment) -> bool:
    """Whether any sidecar is there; one listing."""
    return bool(list_sidecars(environment.objects))


def heal(environment: GraphEnvironment) -> bool:
    """Settle what dead writers left, if they left anything; whether they did. One listing when there is nothing."""
    if not has_unsettled(environment):
        return False
    with settled_window(environment):
        return True


@contextmanager
def settled_window(environment: GraphEnvironment) -> Iterator[GraphEnvironment]:
    """Hold the commit lock with everything settled; the environment inside.

    Raises:
        RetryableCommitConflictError: the lock stayed busy.
        RecoveryRequiredError: as `settle_all`.
    """
    with environment.window() as held:
        settle_all(held)
        yield held


def settle_all(environment: GraphEnvironment) -> list[RecoveryRecord]:
    """Settle every sidecar, oldest first. The caller holds the commit lock.

    Raises:
        RecoveryRequiredError: a sidecar cannot be read, or contradicts the manifest; it is kept.
        StorageError: the folder cannot be listed, or a step failed; the sidecar is kept and settled later.
    """
    settled = []
    names = list_sidecars(environment.objects)
    if names:
        # Their writer may have asked for a publish whose answer it did not wait for.
        environment.raise_fence()
    for name in names:
        sidecar = read_sidecar(environment.objects, name)
        if sidecar is not None:
            settled.append(settle(environment, sidecar))
    return [record for record in settled if record is not None]


def settle(environment: GraphEnvironment, sidecar: Sidecar) -> RecoveryRecord | None:
    """Settle one sidecar; its record, or None when it was recorded before.

    Raises:
        RecoveryRequiredError: it contradicts the manifest; nothing was touched.
    """
    record: RecoveryRecord | None = None
    if sidecar.schema_change is not None:
        refuse_used(environment, sidecar, sidecar.schema_change)
    if not environment.audit.has(sidecar.operation_id):
        record = _recover_until_current(environment, sidecar)
        environment.tenure.check()
        environment.audit.append(record)
        reach(Failpoint.AFTER_AUDIT)
        _log.warning(
            "recovery: %s of operation %s (%s)", record.recovery_kind, sidecar.operation_id, sidecar.writer_kind
        )
    if sidecar.schema_change is not None:
        _end_schema_change(environment, sidecar, sidecar.schema_change)
    delete_sidecar(environment.objects, sidecar.name)
    return record


def _end_schema_change(environment: GraphEnvironment, sidecar: Sidecar, change: SidecarSchema) -> None:
    """Finish the files of a settled change, published or not; a later sweep repeats what failed."""
    if environment.manifest.commit(sidecar.commit.commit_id) is not None:
        finish_published(environment, sidecar)
    else:
        withdraw(environment, change)


def _recover_until_current(environment: GraphEnvironment, sidecar: Sidecar) -> RecoveryRecord:
    """Recover; again when the branch is not where it was seen, because another writer published meanwhile."""
    for _ in range(_LOOKS):
        try:
            return _recover(environment, sidecar)
        except (ExpectedVersionMismatchError, ReadSetConflictError) as error:
            _log.warning("recovery of %s looks again: %s", sidecar.operation_id, error)
    return _recover(environment, sidecar)


def _recover(environment: GraphEnvironment, sidecar: Sidecar) -> RecoveryRecord:
    state = environment.manifest.state()
    head = state.heads.get(sidecar.branch)
    published = environment.manifest.commit(sidecar.commit.commit_id) is not None
    undone = _recovery_commit(environment, sidecar)
    if undone is not None and not published:
        # A roll-back was published, but its audit row is missing.
        outcomes = {
            entry.table_key: {
                "class": "restored",
                "from_version": entry.post_commit_pin,
                "to_version": entry.expected_version,
            }
            for entry in sidecar.tables
        }
        return _record(environment, sidecar, ROLLED_BACK, undone.commit_id, outcomes)
    if published and (head is None or head.incarnation != sidecar.branch_incarnation):
        # The write made the branch, or the branch was made anew since: its commit is there all the same.
        return _record(environment, sidecar, ROLLED_FORWARD, sidecar.commit.commit_id, {})
    if head is None or head.incarnation != sidecar.branch_incarnation:
        # The branch is gone, and with it everything the write could have become.
        return _record(environment, sidecar, ROLLED_BACK, None, {})
    facts = [_facts(environment, head, entry) for entry in sidecar.tables]
    classes = {fact.entry.table_key: classify_table(sidecar.writer_kind, fact) for fact in facts}
    outcomes = {
        fact.entry.table_key: {
            "class": str(classes[fact.entry.table_key]),
            "from_version": fact.head_version,
            "to_version": fact.head_version,
        }
        for fact in facts
    }
    is_current = head.commit_id == sidecar.commit.parent_id
    change = sidecar.schema_change
    prepared = None if change is None or published else find_prepared(environment, change)
    # Like its writer, a sweep completes a schema change only while there is no other branch.
    is_complete = change is None or (prepared is not None and set(state.heads) == {sidecar.branch})
    decision = decide(sidecar.writer_kind, classes, is_published=published, is_current=is_current and is_complete)
    match decision:
        case Decision.FINISH:
            commit_id = sidecar.commit.commit_id
            return _record(environment, sidecar, ROLLED_FORWARD, commit_id, outcomes)
        case Decision.FORGET:
            return _record(environment, sidecar, ROLLED_BACK, None, outcomes)
        case Decision.REFUSE:
            broken = sorted(k for k, c in classes.items() if c is TableClass.INVARIANT_VIOLATION)
            raise RecoveryRequiredError(
                sidecar.operation_id,
                f"{', '.join(broken)} is behind the version that the manifest has published",
                needs_operator=True,
            )
        case Decision.ROLL_FORWARD:
            pins = _moved_pins(environment, facts, classes)
            if change is None or prepared is None:
                commit = _publish(environment, sidecar, head, Changes(pins=pins), is_forward=True)
            else:
                files, created = prepared
                changes = schema_changes(head, change, pins, created)
                commit = _publish(environment, sidecar, head, changes, is_forward=True, schema_files=files)
            return _record(environment, sidecar, ROLLED_FORWARD, commit.commit_id, outcomes)
        case Decision.ROLL_BACK:
            commit = _roll_back(environment, sidecar, head, facts)
            for fact in facts:
                outcomes[fact.entry.table_key]["to_version"] = fact.pin_version
            return _record(environment, sidecar, ROLLED_BACK, commit.commit_id, outcomes)


def _recovery_commit(environment: GraphEnvironment, sidecar: Sidecar) -> GraphCommit | None:
    """The commit by which an interrupted recovery undid this operation, if there is one."""
    for commit in environment.manifest.commits().values():
        is_ours = commit.operation_id == sidecar.operation_id and commit.actor == RECOVERY_ACTOR
        if is_ours and commit.commit_id != sidecar.commit.commit_id:
            return commit
    return None


def _facts(environment: GraphEnvironment, head: Head, entry: SidecarTable) -> TableFacts:
    pin = head.pins.get(TableKey(entry.table_key))
    pin_version = entry.expected_version
    if pin is not None and pin.branch == entry.table_branch:
        pin_version = pin.version
    try:
        table: Table | None = environment.tables.open(entry.table_path, entry.table_branch)
    except StorageError as error:
        if error.failure is not StorageFailure.NOT_FOUND:
            raise
        table = None
    return TableFacts(
        entry=entry,
        pin_version=pin_version,
        head_version=None if table is None else table.version,
        head_transaction=None if table is None else table.transaction_uuid(),
        moved_by=() if table is None or not entry.transaction_uuids else transaction_uuids(table, pin_version),
    )


def _moved_pins(
    environment: GraphEnvironment, facts: list[TableFacts], classes: Mapping[str, TableClass]
) -> tuple[TablePin, ...]:
    pins = []
    for fact in facts:
        if classes[fact.entry.table_key] is TableClass.NO_MOVEMENT:
            continue
        table = environment.tables.open(fact.entry.table_path, fact.entry.table_branch, fact.head_version)
        record_recovered(table, fact.entry.expected_version)
        if environment.durable:
            sync_commit(environment.location, table, None)
        pins.append(pin_of(table, fact.entry.table_key, fact.entry.incarnation))
    return tuple(pins)


def _roll_back(environment: GraphEnvironment, sidecar: Sidecar, head: Head, facts: list[TableFacts]) -> GraphCommit:
    pins = []
    for fact in facts:
        if fact.head_version == fact.pin_version:
            continue
        table = environment.tables.open(fact.entry.table_path, fact.entry.table_branch)
        restored = restore(environment, table, fact.pin_version)
        pins.append(pin_of(restored, fact.entry.table_key, fact.entry.incarnation))
    return _publish(environment, sidecar, head, Changes(pins=tuple(pins)), is_forward=False)


def restore(environment: GraphEnvironment, table: Table, version: int) -> Table:
    """Give a dataset the content of an older version again, as a new version."""
    reach(Failpoint.BEFORE_RESTORE)
    environment.tenure.check()
    staged = stage_restore(table, version)
    restored = commit_staged(staged)
    if environment.durable:
        sync_commit(environment.location, restored, staged)
    reach(Failpoint.AFTER_RESTORE)
    return restored


def _publish(
    environment: GraphEnvironment,
    sidecar: Sidecar,
    head: Head,
    changes: Changes,
    *,
    is_forward: bool,
    schema_files: Mapping[str, bytes] | None = None,
) -> GraphCommit:
    expectations = Expectations.of(
        head,
        NothingFollows(head.commit_id),
        NotPublished(sidecar.commit.commit_id),
        touched={key: pin.version for key, pin in head.pins.items()},
    )
    planned = sidecar.commit
    if is_forward:
        wanted = NewCommit(
            commit_id=planned.commit_id,
            kind=str(sidecar.writer_kind),
            operation_id=sidecar.operation_id,
            actor=RECOVERY_ACTOR,
            recovery_for_actor=sidecar.actor,
            merged_parent_id=planned.merged_parent_id,
            merge_strategy=planned.merge_strategy,
            note=Note(planned.message, planned.metadata),
            written_at=planned.created_at,
            schema_files=schema_files,
        )
    else:
        # What was undone was not merged, and is not what its writer wrote.
        wanted = NewCommit(
            commit_id=new_ulid(),
            kind=ROLLBACK_KIND,
            operation_id=sidecar.operation_id,
            actor=RECOVERY_ACTOR,
            recovery_for_actor=sidecar.actor,
        )
    reach(Failpoint.BEFORE_RECOVERY_PUBLISH)
    commit = environment.publish(expectations, changes, wanted)
    reach(Failpoint.AFTER_RECOVERY_PUBLISH)
    return commit


def _record(
    environment: GraphEnvironment,
    sidecar: Sidecar,
    kind: str,
    commit_id: str | None,
    outcomes: Mapping[str, Mapping[str, object]],
) -> RecoveryRecord:
    return RecoveryRecord(
        recovery_id=new_ulid(),
        graph_commit_id=commit_id,
        recovery_kind=kind,
        recovery_for_actor=sidecar.actor,
        operation_id=sidecar.operation_id,
        writer_kind=str(sidecar.writer_kind),
        created_at=environment.clock(),
        tables=outcomes,
    )


# ---- Undoing what writers did after they had lost the commit lock
#
# A writer looks at its tenure before every effect, and the manifest refuses what it publishes too late. But it can
# stand still between its look and the commit of a table: then the table moves after its sidecar was settled. Nothing
# shows that version, and the next write to the table would build on it. It carries the mark of this project and nothing
# explains it, so its maker is known to be gone: the published content is restored.


LATE_WRITER = "LateWriter"


def is_late_movement(table: Table, pin: TablePin) -> bool:
    """Whether only writers of this project moved a dataset past its pin. Without a sidecar these came too late."""
    return table.version > pin.version and is_own_movement(table, pin.version, table.version)


def undo_late_writers(environment: GraphEnvironment, branch: str, keys: Collection[TableKey]) -> GraphCommit | None:
    """Restore the tables of a branch that late writers moved; the commit that publishes it, None when there was none.

    Runs inside the window after everything was settled: what no sidecar explains has no living writer.
    """
    head = environment.manifest.state().heads.get(branch)
    if head is None:
        return None
    moved = []
    for key in sorted(keys):
        pin = head.pins.get(key)
        if pin is None or pin.branch != head.fork_name:
            continue
        table = environment.tables.open(pin.location, pin.branch)
        if is_late_movement(table, pin):
            moved.append((pin, table))
    if not moved:
        return None
    operation_id = new_ulid()
    restored = tuple(replace(pin, version=restore(environment, table, pin.version).version) for pin, table in moved)
    commit = environment.publish(
        Expectations.of(head, NothingFollows(head.commit_id)),
        Changes(pins=restored),
        NewCommit(commit_id=new_ulid(), kind=ROLLBACK_KIND, operation_id=operation_id, actor=RECOVERY_ACTOR),
    )
    environment.audit.append(
        RecoveryRecord(
            recovery_id=new_ulid(),
            graph_commit_id=commit.commit_id,
            recovery_kind=ROLLED_BACK,
            recovery_for_actor=None,
            operation_id=operation_id,
            writer_kind=ROLLBACK_KIND,
            created_at=environment.clock(),
            tables={
                pin.table_key: {"class": LATE_WRITER, "from_version": table.version, "to_version": pin.version}
                for pin, table in moved
            },
        )
    )
    _log.warning(
        "recovery: undid what a writer without the commit lock did to %s", ", ".join(pin.table_key for pin, _ in moved)
    )
    return commit
