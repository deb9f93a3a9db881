"""Two-phase writes: `stage_*` writes files and moves nothing, `commit_staged` moves HEAD by exactly one version.

Lance rebases a commit silently even with zero retries, so `commit_staged` checks HEAD before and the version after. It
is meant to run under the commit lock of the graph; without it a lost race is reported as drift, never repaired here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import DriftError, InternalError, StorageError, StorageFailure
from omnigraph.storage.blob_cells import encoded_cells
from omnigraph.storage.durability import sync_files
from omnigraph.storage.failures import translated
from omnigraph.storage.tables import Table, branch_uri, dataset_exists, session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph.storage.location import GraphLocation

_U64_MAX = 2**64 - 1
#: Above this many rows an indexed join costs more memory than Lance's pool has.
_INDEXED_UPSERT_ROWS = 50_000


class StageKind(StrEnum):
    """What a staged write does to the rows."""

    APPEND = "append"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    RESTORE = "restore"
    INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """Files of one future version of one dataset. Invisible until `commit_staged`."""

    table: Table = field(repr=False)
    kind: StageKind
    _transaction: Transaction = field(repr=False)

    @property
    def read_version(self) -> int:
        """The version that the write was prepared against."""
        return self.table.version

    @property
    def transaction_uuid(self) -> str:
        """The id by which the committed version is recognised later."""
        return str(self._transaction.uuid)


def stage_append(table: Table, rows: pa.Table) -> StagedWrite:
    """New rows behind the existing ones."""
    with translated(f"staging rows of {table.path}"):
        transaction = write_fragments(
            _for_writing(rows, table), table._dataset, return_transaction=True
        )
    return StagedWrite(table=table, kind=StageKind.APPEND, _transaction=transaction)


def stage_overwrite(table: Table, rows: pa.Table) -> StagedWrite:
    """These rows instead of the existing ones; zero rows are fine."""
    with translated(f"staging rows of {table.path}"):
        if rows.num_rows == 0:
            operation = LanceOperation.Overwrite(table.schema, [])
            transaction = Transaction(table.version, operation)
        else:
            transaction = write_fragments(
                _for_writing(rows, table), table._dataset, mode="overwrite", return_transaction=True
            )
    return StagedWrite(table=table, kind=StageKind.OVERWRITE, _transaction=transaction)


def stage_upsert(table: Table, rows: pa.Table, key: str = "id") -> StagedWrite:
    """Replace the rows whose key exists and add the others; replaced rows keep their row ids.

    The keys of `rows` must be distinct: Lance would insert a repeated new key twice.
    """
    with translated(f"staging rows of {table.path}"):
        builder = (
            table._dataset.merge_insert(key)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .use_index(rows.num_rows <= _INDEXED_UPSERT_ROWS)
        )
        transaction, _ = builder.execute_uncommitted(_for_writing(rows, table))
    return StagedWrite(table=table, kind=StageKind.UPSERT, _transaction=transaction)


def stage_delete(table: Table, row_addresses: Sequence[int]) -> StagedWrite | None:
    """Remove rows by their `_rowaddr`; None when there is nothing to remove, so that no version is made."""
    if not row_addresses:
        return None
    offsets: dict[int, list[int]] = defaultdict(list)
    for address in row_addresses:
        offsets[address >> 32].append(address & 0xFFFFFFFF)
    updated: list[FragmentMetadata] = []
    removed: list[int] = []
    with translated(f"staging deletes of {table.path}"):
        for fragment_id, rows in offsets.items():
            fragment = table._dataset.get_fragment(fragment_id)
            if fragment is None:
                raise InternalError(f"{table.path} has no fragment {fragment_id}")
            remaining = fragment.delete_rows(rows)
            if remaining is None:
                removed.append(fragment_id)
            else:
                updated.append(remaining)
        operation = LanceOperation.Delete(updated, removed, f"{len(row_addresses)} rows by address")
        transaction = Transaction(table.version, operation)
    return StagedWrite(table=table, kind=StageKind.DELETE, _transaction=transaction)


def stage_fragments(
    table: Table, fragments: Iterable[str], *, overwrite: bool = False
) -> StagedWrite:
    """An append or overwrite from fragment files that were written elsewhere, given as their JSON."""
    metadata = [FragmentMetadata.from_json(text) for text in fragments]
    operation = (
        LanceOperation.Overwrite(table.schema, metadata)
        if overwrite
        else LanceOperation.Append(metadata)
    )
    kind = StageKind.OVERWRITE if overwrite else StageKind.APPEND
    return StagedWrite(table=table, kind=kind, _transaction=Transaction(table.version, operation))


def stage_restore(table: Table, version: int) -> StagedWrite:
    """The content of an older version as a new version. For recovery only: it undoes what came in between."""
    operation = LanceOperation.Restore(version)
    transaction = Transaction(table.version, operation)
    return StagedWrite(table=table, kind=StageKind.RESTORE, _transaction=transaction)


def commit_staged(staged: StagedWrite) -> Table:
    """Make the staged version HEAD; the table at its new version.

    Raises:
        DriftError: HEAD is not where the write was prepared, or the commit landed at another version.
    """
    table = staged.table
    head = table.latest_version
    if head != staged.read_version:
        raise DriftError(table.path, staged.read_version, head)
    with translated(f"committing {table.path}"):
        try:
            committed = LanceDataset.commit(table._dataset, staged._transaction, max_retries=0)
        except CommitConflictError as error:
            raise DriftError(table.path, staged.read_version, table.latest_version) from error
    if committed.version != staged.read_version + 1:
        raise DriftError(table.path, staged.read_version + 1, int(committed.version))
    return Table(committed, table.path, table.branch)


def new_files(staged: StagedWrite) -> list[str]:
    """The files that a staged write made, as names below the root of the graph; nothing else refers to them yet."""
    operation = staged._transaction.operation
    table = staged.table
    folder = branch_uri(table.path, table.branch)
    names = [
        f"{folder}/data/{file.path}"
        for attribute in ("fragments", "new_fragments")
        for fragment in getattr(operation, attribute, None) or ()
        for file in fragment.files
    ]
    for index in getattr(operation, "new_indices", None) or ():
        written = Path(table._dataset.uri) / "_indices" / str(index.uuid)
        if written.is_dir():
            files = (file for file in written.rglob("*") if file.is_file())
            names += [f"{folder}/{file.relative_to(table._dataset.uri)}" for file in files]
    known = {
        name for item in table._dataset.get_fragments() for name in _fragment_files(item.metadata)
    }
    for fragment in getattr(operation, "updated_fragments", None) or ():
        new = (name for name in _fragment_files(fragment) if name not in known)
        names += [f"{folder}/{name}" for name in new]
    return names


def _fragment_files(fragment: FragmentMetadata) -> list[str]:
    """The files of a fragment, as names below its dataset."""
    names = [f"data/{file.path}" for file in fragment.files]
    if fragment.deletion_file is not None:
        names.append(fragment.deletion_file.path(fragment.id))
    return names


def create_table(
    location: GraphLocation, path: str, schema: pa.Schema, *, blobs: frozenset[str] = frozenset()
) -> Table:
    """The first, empty version of a dataset, with stable row ids; unreferenced until it is published.

    The columns in `blobs` are stored apart from the rows and read as bytes. What a crashed attempt left at the same
    path is replaced: nothing refers to it.
    """
    uri = location.child(path)
    fields = [
        lance.blob_field(item.name, nullable=item.nullable) if item.name in blobs else item
        for item in schema
    ]
    schema = pa.schema(fields)
    operation = LanceOperation.Overwrite(schema, [])
    with translated(f"creating {path}"):
        if dataset_exists(location, path):
            LanceDataset.drop(uri)
        dataset = LanceDataset.commit(uri, operation, enable_stable_row_ids=True, max_retries=0)
        # Opened again through the shared session, so that its caches serve this handle too.
        dataset = lance.dataset(uri, version=dataset.version, session=session())
    return Table(dataset, path, None)


def create_fork(location: GraphLocation, base: Table, branch: str) -> Table:
    """A Lance branch of a dataset at the version of `base`; unreferenced until it is published.

    Must run under the commit lock: creating a branch is not safe against a second creator of the same name. An unused
    fork of the same base is taken as it is; what another attempt left under this name is removed first.

    Raises:
        DriftError: the branch does not begin at the version of `base`.
    """
    uri = branch_uri(location.child(base.path), branch)
    with translated(f"forking {base.path} as {branch}"):
        root = lance.dataset(location.child(base.path), session=session())
        if not _is_fork_of(root, branch, base):
            _remove_fork(root, location, base.path, branch)
            origin = base.version if base.branch is None else (base.branch, base.version)
            root.create_branch(branch, origin)
        forked = lance.dataset(uri, session=session())
    if forked.version != base.version:
        raise DriftError(f"{base.path} ({branch})", base.version, int(forked.version))
    return Table(forked, base.path, branch)


def list_forks(location: GraphLocation, path: str) -> list[str]:
    """The Lance branches of a dataset, sorted."""
    with translated(f"listing the forks of {path}"):
        return sorted(lance.dataset(location.child(path), session=session()).branches.list())


def remove_fork(location: GraphLocation, path: str, branch: str) -> None:
    """Remove a Lance branch that nothing refers to. Must run under the commit lock, with no writer staging into it."""
    with translated(f"removing the fork {branch} of {path}"):
        root = lance.dataset(location.child(path), session=session())
        _remove_fork(root, location, path, branch)


def _is_fork_of(root: LanceDataset, branch: str, base: Table) -> bool:
    """Whether an unused fork of exactly this base exists: another writer of the same branch may be staging into it."""
    known = root.branches.list().get(branch)
    if known is None:
        return False
    origin = (known["parent_branch"], known["parent_version"])
    if origin != (base.branch, base.version):
        return False
    head = lance.dataset(branch_uri(root.uri, branch), session=session())
    return int(head.version) == base.version


def _remove_fork(root: LanceDataset, location: GraphLocation, path: str, branch: str) -> None:
    known = root.branches.list()
    if branch not in known and not dataset_exists(location, path, branch):
        return
    nested = [name for name in known if name.startswith(f"{branch}/")]
    if nested:
        # Its directory holds theirs, and goes as a whole.
        raise StorageError(
            f"the fork {branch} of {path} cannot be removed: {nested[0]} lies inside of it",
            StorageFailure.PRECONDITION,
        )
    if branch in known:
        root.branches.delete(branch)
        return
    LanceDataset.drop(branch_uri(location.child(path), branch))


def sync_commit(location: GraphLocation, table: Table, staged: StagedWrite | None) -> None:
    """Flush every file that belongs to the version of `table`. Does nothing on an object store."""
    if not location.is_local:
        return
    root = Path(branch_uri(location.child(table.path), table.branch))
    names = [root / "_versions" / f"{_U64_MAX - table.version}.manifest"]
    if staged is not None:
        transaction = staged._transaction
        names.append(root / "_transactions" / f"{transaction.read_version}-{transaction.uuid}.txn")
        names.extend(root / name for name in _files_of(transaction.operation))
    sync_files(names)


def _files_of(operation: object) -> Iterable[str]:
    for index in getattr(operation, "new_indices", None) or ():
        yield f"_indices/{index.uuid}"
    for attribute in ("fragments", "new_fragments", "updated_fragments"):
        for fragment in getattr(operation, attribute, None) or ():
            for file in fragment.files:
                yield f"data/{file.path}"
                # Large blobs of a data file lie in a folder beside it.
                yield f"data/{file.path.removesuffix('.lance')}"
            if fragment.deletion_file is not None:
                yield fragment.deletion_file.path(fragment.id)


def _for_writing(rows: pa.Table, table: Table) -> pa.Table:
    """Rows in the column types of the dataset: blob columns get Lance's blob encoding."""
    schema = table.schema
    columns: list[Any] = []
    for field_ in schema:
        column: Any = rows.column(field_.name)
        if isinstance(field_.type, lance.blob.BlobType):
            column = encoded_cells(column)
        elif column.type != field_.type:
            column = column.cast(field_.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)
