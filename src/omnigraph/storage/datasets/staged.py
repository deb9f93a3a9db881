"""Two-phase writes: staging, private versions, commits, and which transaction made a version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.core.arrow import Rows
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import DriftError
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.blob_columns import encoded_columns
from omnigraph.storage.datasets.checksums import (
    FileSums,
    changed_fragments,
    file_sums,
    names_of,
    record_commit,
    sums_in,
    transaction_name,
    written_files,
)
from omnigraph.storage.datasets.completeness import check_complete
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.tables import Table, branch_uri, dataset_exists
from omnigraph.storage.location import GraphLocation, manifest_name, parse_location, refuse_links
from omnigraph.storage.objects import ControlObjects, sync_files

# ---- Private versions: what a staged write would make, readable for its writer before it is committed
#
# A version beside the history of a dataset: no reader meets it, HEAD does not move, and it is removed when its writer
# is done. Never pinned: nothing keeps its files.


@frozen(kw_only=True)
class PrivateVersion:
    """What a staged write would make, readable for its writer alone."""

    table: Table
    #: Fragments that exist only here.
    new_fragments: tuple[int, ...]
    #: Its files and those of the versions below it, as names in the dataset.
    _files: tuple[str, ...]


def open_private(staged: StagedWrite) -> PrivateVersion:
    """The version that a staged write would make, without making it."""
    base = staged.table
    files = []
    with translated(f"reading staged rows of {base.path}"):
        dataset = base._dataset
        for step in staged._steps:
            # A transaction of its own: the files of the real one must survive the removal of this one.
            transaction = Transaction(dataset.version, step.operation)
            committed = LanceDataset.commit(dataset, transaction, detached=True)
            files.append(f"_versions/d{committed.version}.manifest")
            files.append(transaction_name(transaction))
            dataset = open_dataset(base._dataset.uri, committed.version)
        before = {fragment.fragment_id: fragment.metadata.files[0].path for fragment in base._dataset.get_fragments()}
        new = [
            fragment.fragment_id
            for fragment in dataset.get_fragments()
            if before.get(fragment.fragment_id) != fragment.metadata.files[0].path
        ]
    return PrivateVersion(table=Table(dataset, base.path, base.branch), new_fragments=tuple(new), _files=tuple(files))


def close_private(private: PrivateVersion, objects: ControlObjects) -> None:
    """Remove the traces of a private version; the fragments stay."""
    folder = branch_uri(private.table.path, private.table.branch)
    for name in private._files:
        objects.delete(f"{folder}/{name}")


# ---- Which transaction made a version: whether a commit landed although its answer got lost, and who moved a
#      dataset


#: The property that every transaction of this project carries. A version that has it and was never published was made
#: by a writer that had lost the commit lock without knowing it.
OWN_MARK = "omnigraph:writer"


def commit_once(before: LanceDataset, transaction: Transaction) -> LanceDataset:
    """Commit a transaction, without another try.

    Raises:
        CommitConflictError: another commit was faster.
    """
    try:
        return LanceDataset.commit(before, transaction, max_retries=0)
    except (CommitConflictError, OSError, ValueError, RuntimeError):
        # A conflict may be one with an earlier request of this very commit, whose answer got lost.
        made = landed(before, transaction)
        if made is None:
            raise
        return made


def landed(before: LanceDataset, transaction: Transaction) -> LanceDataset | None:
    """The version right after `before`, if this very transaction made it; None when it did not, or nothing can tell.

    Lance writes a version with one conditional request. When its answer gets lost, Lance sends it again, meets its own
    version and reports a conflict; or it gives up and reports a failure of the connection.
    """
    try:
        after = open_dataset(before.uri, int(before.version) + 1)
    except (OSError, ValueError, RuntimeError):
        return None
    return after if committed_as(after, str(transaction.uuid)) else None


def committed_as(dataset: LanceDataset, uuid: str) -> bool:
    """Whether the version of a dataset was made by the transaction of this id."""
    found = _transaction(dataset, int(dataset.version))
    return found is not None and str(found.uuid) == uuid


def _transaction(dataset: LanceDataset, version: int) -> Transaction | None:
    """The transaction that made a version, if Lance can show it: of those that this project commits it can."""
    try:
        return dataset.read_transaction(version)
    except (TypeError, OSError, ValueError, RuntimeError):
        # Compactions that rewrote an index, which this project never makes, or a version that is gone.
        return None


def is_own_movement(table: Table, after: int, until: int) -> bool:
    """Whether writers of this project made every version after a certain one, up to and including `until`."""
    versions = range(after + 1, until + 1)
    return bool(versions) and all(_has_mark(table, version) for version in versions)


def _has_mark(table: Table, version: int) -> bool:
    transaction = _transaction(table._dataset, version)
    properties = None if transaction is None else transaction.transaction_properties
    return properties is not None and OWN_MARK in properties


def transaction_uuids(table: Table, after: int) -> tuple[str | None, ...]:
    """The ids of the transactions that made the versions after a certain one, up to the version of `table`."""
    return tuple(_uuid(table, version) for version in range(after + 1, table.version + 1))


def _uuid(table: Table, version: int) -> str | None:
    if version == table.version:
        return table.transaction_uuid()
    transaction = _transaction(table._dataset, version)
    return None if transaction is None else str(transaction.uuid)


# ---- Two-phase writes: `stage_*` writes files and moves nothing, `commit_staged` moves HEAD by exactly what was
#      staged
#
# Lance rebases a commit silently even with zero retries, so `commit_staged` checks HEAD before and the version after.
# It is meant to run under the commit lock of the graph; without it a lost race is reported as drift, never repaired
# here.
#
# Nearly every write is one version. What changes fragments and indexes together needs several, one on top of the
# other.


#: Above this many rows an indexed join costs more memory than Lance's pool has.
_INDEXED_UPSERT_ROWS = 50_000


@frozen(kw_only=True)
class StagedWrite:
    """Files of one future version of one dataset, or of several. Invisible until `commit_staged`."""

    table: Table = field(repr=False)
    _transaction: Transaction = field(repr=False)
    #: What is committed on top of it, in this order.
    _later: tuple[Transaction, ...] = field(default=(), repr=False)
    #: Checksums of its files, as far as they are known; `with_checksums` adds the others.
    sums: FileSums = field(default_factory=dict, repr=False)

    @property
    def read_version(self) -> int:
        """The version that the write was prepared against."""
        return self.table.version

    @property
    def made_version(self) -> int:
        """The version that the write will make."""
        return self.table.version + len(self._steps)

    @property
    def transaction_uuid(self) -> str:
        """The id by which the committed version is recognised later."""
        return str(self._steps[-1].uuid)

    @property
    def transaction_uuids(self) -> tuple[str, ...]:
        """The ids of all versions that the write will make."""
        return tuple(str(step.uuid) for step in self._steps)

    @property
    def _steps(self) -> tuple[Transaction, ...]:
        return (self._transaction, *self._later)


def staged_write(table: Table, operation: LanceOperation.BaseOperation, sums: FileSums | None = None) -> StagedWrite:
    """An operation on a table as a staged write of one version."""
    transaction = Transaction(table.version, operation)
    return StagedWrite(table=table, _transaction=transaction, sums=sums or {})


def follow(first: StagedWrite, then: StagedWrite) -> StagedWrite:
    """Two writes to one table as one: the second is committed on top of what the first makes."""
    version = first.made_version
    added = []
    for number, transaction in enumerate(then._steps):
        operation = transaction.operation
        if isinstance(operation, LanceOperation.CreateIndex):
            # An index that was built on a private version belongs to the version below its commit.
            current = [replace(index, dataset_version=version + number) for index in operation.new_indices]
            operation = LanceOperation.CreateIndex(current, operation.removed_indices)
        added.append(Transaction(version + number, operation))
    sums = {**first.sums, **then.sums}
    return replace(first, _later=(*first._later, *added), sums=sums)


def stage_append(table: Table, rows: Rows) -> StagedWrite:
    """New rows behind the existing ones."""
    return _stage_rows(table, rows, "append")


def stage_overwrite(table: Table, rows: Rows) -> StagedWrite:
    """These rows instead of the existing ones; zero rows are fine."""
    if rows.num_rows == 0:
        return staged_write(table, LanceOperation.Overwrite(table.schema, []))
    return _stage_rows(table, rows, "overwrite")


def _stage_rows(table: Table, rows: Rows, mode: str) -> StagedWrite:
    with translated(f"staging rows of {table.path}"):
        transaction = write_fragments(
            _for_writing(rows, table),
            table._dataset,
            mode=mode,
            return_transaction=True,
            allow_external_blob_outside_bases=True,
        )
    return StagedWrite(table=table, _transaction=transaction)


def stage_upsert(table: Table, rows: Rows) -> StagedWrite:
    """Replace the rows whose id exists and add the others; replaced rows keep their row ids.

    The ids of `rows` must be distinct: Lance would insert a repeated new id twice. No blob may refer to an address,
    which Lance refuses here: see `stage_replaced_rows`.
    """
    with translated(f"staging rows of {table.path}"):
        builder = (
            table._dataset.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .use_index(rows.num_rows <= _INDEXED_UPSERT_ROWS)
        )
        transaction, _ = builder.execute_uncommitted(_for_writing(rows, table))
    return StagedWrite(table=table, _transaction=transaction)


def stage_fragments(table: Table, fragments: Iterable[str], *, overwrite: bool = False) -> StagedWrite:
    """An append or overwrite from fragment files that were written elsewhere, given as their JSON."""
    texts = list(fragments)
    metadata = [FragmentMetadata.from_json(text) for text in texts]
    operation = LanceOperation.Overwrite(table.schema, metadata) if overwrite else LanceOperation.Append(metadata)
    return staged_write(table, operation, sums_in(texts))


def stage_restore(table: Table, version: int) -> StagedWrite:
    """The content of an older version as a new version. For recovery only: it undoes what came in between."""
    return staged_write(table, LanceOperation.Restore(version))


def check_written(location: GraphLocation, staged: StagedWrite) -> None:
    """Look whether the disk took everything that was staged. Does nothing on an object store.

    Raises:
        StorageError: bytes are missing; what was staged must not be committed.
    """
    if not location.is_local:
        return
    for transaction in staged._steps:
        check_complete(staged.table._dataset.uri, changed_fragments(transaction.operation))


def with_checksums(staged: StagedWrite) -> StagedWrite:
    """A staged write that knows the checksums of all of its files.

    Outside the commit lock: a large write takes its time.
    """
    operations = (step.operation for step in staged._steps)
    return replace(staged, sums=file_sums(staged.table, operations, staged.sums))


def commit_staged(staged: StagedWrite) -> Table:
    """Make the staged version HEAD; the table at its new version. The checksums of its files are recorded.

    A write of several versions may fail between two of them.

    Raises:
        DriftError: HEAD is not where the write was prepared, or the commit landed at another version.
    """
    table = staged.table
    if not table.is_head():
        raise _drift(table, staged.read_version, table.latest_version)
    committed = table._dataset
    for transaction in staged._steps:
        expected = int(committed.version)
        if expected > staged.read_version:
            reach(Failpoint.BETWEEN_VERSIONS)
        transaction.transaction_properties = {OWN_MARK: "1"}
        with translated(f"committing {table.path}"):
            try:
                committed = commit_once(committed, transaction)
            except CommitConflictError as error:
                raise _drift(table, expected, table.latest_version) from error
        if committed.version != expected + 1:
            # Lance has put it on top of what came in between.
            actual = int(committed.version)
            late = is_own_movement(table, expected, actual - 1)
            raise DriftError(table.path, expected + 1, actual, by_late_writer=late)
    record_commit(committed, staged.read_version, staged._steps, staged.sums)
    return Table(committed, table.path, table.branch)


def _drift(table: Table, expected: int, actual: int) -> DriftError:
    late = is_own_movement(table, expected, actual)
    return DriftError(table.path, expected, actual, by_late_writer=late)


def new_files(staged: StagedWrite) -> list[str]:
    """The files that a staged write made, as names below the root of the graph; nothing else refers to them yet."""
    table, location = staged.table, parse_location(staged.table._dataset.uri)
    names = (name for step in staged._steps for name in written_files(table, location, step.operation))
    return [f"{branch_uri(table.path, table.branch)}/{name}" for name in names]


@frozen(kw_only=True)
class NewTable:
    """A dataset that does not exist yet: where it will be, and the transaction that makes it."""

    path: str
    _transaction: Transaction = field(repr=False)

    @property
    def transaction_uuid(self) -> str:
        """The id by which it is recognised later."""
        return str(self._transaction.uuid)


def plan_table(path: str, schema: pa.Schema, *, blobs: frozenset[str] = frozenset()) -> NewTable:
    """The first, empty version of a dataset, with stable row ids.

    The columns in `blobs` are stored apart from the rows and read as bytes.
    """
    operation = LanceOperation.Overwrite(encoded_schema(schema, blobs), [])
    return NewTable(path=path, _transaction=Transaction(0, operation))


def commit_new_table(location: GraphLocation, new: NewTable) -> Table:
    """Make a dataset; unreferenced until it is published.

    What a crashed attempt left at the same path is replaced: nothing refers to it.
    """
    uri = location.child(new.path)
    with translated(f"creating {new.path}"):
        refuse_links(location, new.path)
        if dataset_exists(location, new.path):
            LanceDataset.drop(uri)
        dataset = LanceDataset.commit(uri, new._transaction, enable_stable_row_ids=True, max_retries=0)
        # Opened again through the shared session, so that its caches serve this handle too.
        dataset = open_dataset(uri, dataset.version)
    record_commit(dataset, 0, [new._transaction], {})
    return Table(dataset, new.path, None)


def create_table(
    location: GraphLocation, path: str, schema: pa.Schema, *, blobs: frozenset[str] = frozenset()
) -> Table:
    """Plan and make a dataset at once, as long as no other writer could be making it."""
    return commit_new_table(location, plan_table(path, schema, blobs=blobs))


def encoded_schema(schema: pa.Schema, blobs: frozenset[str]) -> pa.Schema:
    """Columns as Lance stores them: those in `blobs` get its blob encoding."""
    return pa.schema(
        [lance.blob_field(item.name, nullable=item.nullable) if item.name in blobs else item for item in schema]
    )


def sync_commit(location: GraphLocation, table: Table, staged: StagedWrite | None) -> None:
    """Flush every file that belongs to the version of `table`. Does nothing on an object store."""
    if not location.is_local:
        return
    root = Path(branch_uri(location.child(table.path), table.branch))
    names = [root / manifest_name(table.version)]
    for transaction in () if staged is None else staged._steps:
        names.append(root / transaction_name(transaction))
        names.append(root / manifest_name(transaction.read_version + 1))
        names.extend(root / name for name in _files_of(transaction.operation))
    sync_files(names)


def _files_of(operation: object) -> Iterable[str]:
    for index in getattr(operation, "new_indices", None) or ():
        yield f"_indices/{index.uuid}"
    for name in names_of(changed_fragments(operation)):
        yield name
        if name.endswith(".lance"):
            # Large blobs of a data file lie in a folder beside it.
            yield name.removesuffix(".lance")


def _for_writing(rows: Rows, table: Table) -> Rows:
    schema = table.schema
    return pa.Table.from_arrays(encoded_columns(rows, schema), schema=schema)
