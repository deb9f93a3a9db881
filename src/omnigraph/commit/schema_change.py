"""The effects of a schema change besides moved tables: schema files, new tables, renamed and dropped ones.

The three schema files are written under staging names before anything is visible and take their real names afterwards,
so that a reader always finds the schema of its snapshot in one of the two places. New tables are made inside the commit
window and mean nothing before the publish. Both are described in the sidecar: recovery completes them or takes them
away again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import Head, TablePin, Tombstone
from omnigraph.commit.sidecar import Sidecar, SidecarNewTable, SidecarSchema
from omnigraph.commit.targets import pin_of
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import RecoveryRequiredError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.partitions import TableAddress, open_address
from omnigraph.storage.datasets.staged import NewTable, commit_new_table, sync_commit
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.datasets.versions import drop_table, purge_old_versions
from omnigraph.storage.location import RECLAIMED_MARK, SCHEMA_FILES, STAGING_SUFFIX
from omnigraph.storage.objects import ControlObjects

#: The version that makes a dataset.
_FIRST = 1


@frozen(kw_only=True)
class SchemaChange:
    """The schema that a write makes the accepted one, and what happens to tables as a whole."""

    schema_hash: str
    #: The three schema files by name.
    files: Mapping[str, bytes]
    #: With their incarnations.
    new_tables: tuple[tuple[TableKey, int, NewTable], ...] = ()
    #: Present key → the one it goes on under.
    renamed: Mapping[TableKey, TableKey]
    dropped: tuple[TableKey, ...] = ()
    #: Present keys of tables whose past is destroyed.
    purged: tuple[TableKey, ...] = ()

    def describe(self, head: Head) -> SidecarSchema:
        """The change as a sidecar holds it."""
        return SidecarSchema(
            schema_hash=self.schema_hash,
            files={name: data.decode() for name, data in self.files.items()},
            new_tables=tuple(
                SidecarNewTable(
                    table_key=key,
                    incarnation=incarnation,
                    table_path=table.path,
                    transaction_uuid=table.transaction_uuid,
                )
                for key, incarnation, table in self.new_tables
            ),
            renamed={str(old): str(new) for old, new in self.renamed.items()},
            dropped=tuple(str(key) for key in self.dropped),
            purged_paths=tuple(head.pins[key].location for key in self.purged if key not in self.dropped),
            removed_paths=tuple(head.pins[key].location for key in self.purged if key in self.dropped),
        )


def prepare(environment: GraphEnvironment, change: SchemaChange) -> list[TablePin]:
    """Write the files under their staging names and make the new tables; their pins."""
    for name in SCHEMA_FILES:
        reach(Failpoint.BEFORE_SCHEMA_FILE)
        environment.write_object(_staging(name), change.files[name])
    pins = []
    for key, incarnation, new in change.new_tables:
        reach(Failpoint.BEFORE_NEW_TABLE)
        environment.tenure.check()
        table = commit_new_table(environment.location, new)
        if environment.durable:
            sync_commit(environment.location, table, None)
        pins.append(pin_of(table, key, incarnation))
    reach(Failpoint.AFTER_NEW_TABLES)
    return pins


def find_prepared(
    environment: GraphEnvironment, change: SidecarSchema
) -> tuple[Mapping[str, bytes], list[TablePin]] | None:
    """The staged files and the pins of new tables, if `prepare` finished; None when something is missing."""
    files: dict[str, bytes] = {}
    for name, text in change.files.items():
        if not _is_staged(environment.objects, name, text):
            return None
        files[name] = text.encode()
    pins = []
    for new in change.new_tables:
        try:
            table = environment.tables.open(new.table_path)
        except StorageError as error:
            if error.failure is not StorageFailure.NOT_FOUND:
                raise
            return None
        if table.transaction_uuid() != new.transaction_uuid:
            return None
        pins.append(pin_of(table, new.table_key, new.incarnation))
    return files, pins


def schema_changes(
    head: Head, change: SidecarSchema, moved: Iterable[TablePin], created: Iterable[TablePin]
) -> Changes:
    """Everything that a schema change makes visible at once. `moved` tables come under their present keys."""
    created, moved_pins = tuple(created), {pin.table_key: pin for pin in moved}
    renamed = {TableKey(old): TableKey(new) for old, new in change.renamed.items()}
    dropped = [TableKey(key) for key in change.dropped]
    continued = []
    for old, new in renamed.items():
        pin = moved_pins.pop(old, head.pins[old])
        continued.append(replace(pin, table_key=new))
    return Changes(
        pins=(*moved_pins.values(), *continued, *created),
        new_tables=(*continued, *created),
        tombstones=tuple(
            Tombstone(
                table_key=key, incarnation=head.pins[key].incarnation, version=head.pins[key].version, graph_version=0
            )
            for key in (*renamed, *dropped)
        ),
        schema_hash=change.schema_hash,
    )


def finish_published(environment: GraphEnvironment, sidecar: Sidecar) -> None:
    """Finish the schema change of a sidecar whose commit is published; others may have been accepted since."""
    change = sidecar.schema_change
    assert change is not None, "only schema changes are finished here"
    current = environment.manifest.state().heads[sidecar.branch].schema_hash
    published = {entry.table_path: entry.post_commit_pin for entry in sidecar.tables}
    finish(environment, change, published, is_current=current == change.schema_hash)


def finish(
    environment: GraphEnvironment, change: SidecarSchema, published: Mapping[str, int], *, is_current: bool = True
) -> None:
    """After the publish: the files take their real names, and what has to be destroyed is destroyed. Repeatable.

    `published` gives the versions of moved tables by path. Without `is_current` another schema was accepted since: the
    files stay as they are.
    """
    for name in SCHEMA_FILES if is_current else ():
        reach(Failpoint.BEFORE_PROMOTION)
        environment.write_object(name, change.files[name].encode())
    # Not before: at any moment a reader finds all three files under one kind of names.
    _remove_staged(environment.objects, change)
    for path in change.purged_paths:
        reach(Failpoint.BEFORE_PURGE)
        environment.tenure.check()
        purge_old_versions(environment.location, path, published[path])
        environment.tables.forget(path)
    for path in change.removed_paths:
        reach(Failpoint.BEFORE_PURGE)
        environment.tenure.check()
        # The mark first: whatever is missing from here on was removed on purpose.
        environment.objects.write(f"{path}/{RECLAIMED_MARK}", b"{}\n")
        drop_table(environment.location, path, keep=RECLAIMED_MARK)
        environment.tables.forget(path)


def withdraw(environment: GraphEnvironment, change: SidecarSchema) -> None:
    """Take away what was prepared for a change that will not happen. Repeatable."""
    _remove_staged(environment.objects, change)
    for new in change.new_tables:
        if _may_go(environment, new):
            environment.tenure.check()
            drop_table(environment.location, new.table_path)
            environment.tables.forget(new.table_path)


def refuse_used(environment: GraphEnvironment, sidecar: Sidecar, change: SidecarSchema) -> None:
    """Make sure that no branch reads a dataset that the end of a schema change would remove.

    Raises:
        RecoveryRequiredError: one does, so this is not the work of a schema change; nothing was touched.
    """
    is_published = environment.manifest.commit(sidecar.commit.commit_id) is not None
    going = change.removed_paths if is_published else [new.table_path for new in change.new_tables]
    heads = environment.manifest.state().heads.values()
    if found := {pin.location for head in heads for pin in head.pins.values()}.intersection(going):
        raise RecoveryRequiredError(
            sidecar.operation_id,
            f"{sidecar.name} would remove {min(found)}, which a branch reads; nothing was touched, look at the file",
            needs_operator=True,
        )


def _may_go(environment: GraphEnvironment, new: SidecarNewTable) -> bool:
    """Whether nothing but this change can have made what lies there: a successor may have used the place since."""
    location, path = environment.location, new.table_path
    if not dataset_exists(location, path):
        # Nothing, or what an interrupted removal left.
        return True
    if not dataset_exists(location, path, version=_FIRST):
        return False
    first = open_address(TableAddress(uri=location.child(path), version=_FIRST))
    return first.transaction_uuid() == new.transaction_uuid


def _is_staged(objects: ControlObjects, name: str, text: str) -> bool:
    """Whether a file lies under its staging name, and is the one of this change."""
    stored = objects.read(_staging(name))
    return stored is not None and stored.data == text.encode()


def _remove_staged(objects: ControlObjects, change: SidecarSchema) -> None:
    for name, text in change.files.items():
        reach(Failpoint.BEFORE_STAGED_REMOVAL)
        if _is_staged(objects, name, text):
            objects.delete(_staging(name))


def _staging(name: str) -> str:
    return f"{name}{STAGING_SUFFIX}"
