"""The files that a commit brings to a dataset: their names, their checksums, and the record of both."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lance import LanceOperation

from omnigraph.errors import StorageError
from omnigraph.storage.checksums import REGISTRATION, record_name, record_sums, sum_files
from omnigraph.storage.failures import translated
from omnigraph.storage.file_names import manifest_name, registration_name
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects
from omnigraph.storage.opening import open_dataset
from omnigraph.storage.tables import branch_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance import LanceDataset
    from lance.dataset import Transaction
    from lance.fragment import FragmentMetadata

    from omnigraph.storage.checksums import FileSums
    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.tables import Table

#: Bytes that recovery reads in order to record their checksums.
_RECOVERED_BYTES = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


def names_of(fragments: Iterable[FragmentMetadata]) -> Iterator[str]:
    """The data and deletion files of fragments, as names in their dataset."""
    for fragment in fragments:
        for file in fragment.files:
            yield f"data/{file.path}"
        if fragment.deletion_file is not None:
            yield fragment.deletion_file.path(fragment.id)


def new_fragments(operation: object) -> Iterable[FragmentMetadata]:
    """The fragments that an operation brings, as far as it tells them from those that it changes."""
    for attribute in ("fragments", "new_fragments"):
        yield from getattr(operation, attribute, None) or ()
    for group in getattr(operation, "groups", None) or ():
        yield from group.new_fragments


def transaction_name(transaction: Transaction) -> str:
    """The file of a transaction, as a name below its line."""
    return f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"


# ---- before a commit


def file_sums(table: Table, operations: Iterable[object], known: FileSums) -> FileSums:
    """The checksums of all files that operations bring to a table. Reads those that are not known yet."""
    location = parse_location(table._dataset.uri)
    with translated(f"computing checksums of {table.path}"):
        names = {
            name for operation in operations for name in written_files(table, location, operation)
        }
    missing = sorted(names - known.keys())
    kept = {name: item for name, item in known.items() if name in names}
    return kept | sum_files(location, missing)


def written_files(table: Table, location: GraphLocation, operation: object) -> Iterator[str]:
    """The files that an operation brings to a table, as names below its line."""
    is_merge = isinstance(operation, LanceOperation.Merge)
    for fragment in new_fragments(operation):
        # A change of columns lists every fragment, with files that the present version reads as well.
        yield from added_names(table, location, fragment, knows_it=is_merge)
    for fragment in getattr(operation, "updated_fragments", None) or ():
        yield from added_names(table, location, fragment, knows_it=True)
    for index in getattr(operation, "new_indices", None) or ():
        yield from (file.name for file in list_files(location, f"_indices/{index.uuid}"))


def added_names(
    table: Table, location: GraphLocation, fragment: FragmentMetadata, *, knows_it: bool
) -> Iterator[str]:
    """The files of a fragment that the table does not have yet; `knows_it` says that it has some of them."""
    present = table._dataset.get_fragment(fragment.id) if knows_it else None
    known = set() if present is None else set(names_of([present.metadata]))
    for name in names_of([fragment]):
        if name not in known:
            yield name
            if name.endswith(".lance") and (location.is_local or table.blob_columns):
                # Large blobs of a data file lie in a folder beside it.
                folder = name.removesuffix(".lance")
                yield from (file.name for file in list_files(location, folder))


# ---- after it


def record_commit(
    made: LanceDataset, before: int, transactions: Iterable[Transaction], sums: FileSums
) -> None:
    """Record the files of a commit: what was staged, and the manifests and transactions that committed it."""
    uri, version = str(made.uri), int(made.version)
    names = [transaction_name(item) for item in transactions]
    names += [manifest_name(number) for number in range(before + 1, version + 1)]
    record_sums(uri, version, {**sums, **sum_files(parse_location(uri), names)})


def record_fork(location: GraphLocation, base: Table, branch: str) -> None:
    """Record the files of a fork that was just made, and how its dataset knows it."""
    uri = branch_uri(location.child(base.path), branch)
    line = parse_location(uri)
    names = [file.name for file in list_files(line, "_transactions")]
    sums = sum_files(line, [manifest_name(base.version), *names])
    registered = registration_name(branch)
    above = sum_files(parse_location(location.child(base.path)), [registered])
    if registered in above:
        sums[REGISTRATION] = above[registered]
    record_sums(uri, base.version, sums)


def record_recovered(table: Table, before: int) -> None:
    """Record the files of versions whose writer died before it could: what they hold now is all that is known.

    A large write stays without a record: recovery holds the commit lock and must not read for long.
    """
    uri = str(table._dataset.uri)
    location = parse_location(uri)
    objects = ObstoreObjects(location, durable=False)
    try:
        with translated(f"recording the files of {table.path}"):
            if objects.read(record_name(table.version)) is not None:
                return
            base = open_dataset(uri, before)
            known = {item.fragment_id: item.metadata for item in base.get_fragments()}
            fragments = [item.metadata for item in table._dataset.get_fragments()]
            changed = [item for item in fragments if _is_changed(item, known.get(item.id))]
            sizes = (file.file_size_bytes or 0 for item in changed for file in item.files)
            if sum(sizes) > _RECOVERED_BYTES:
                return
            old = set(names_of(known.values()))
            names = {name for name in names_of(changed) if name not in old}
            versions = range(before + 1, table.version + 1)
            names |= {manifest_name(number) for number in versions}
            below = {f"_transactions/{number - 1}-" for number in versions}
            names |= {
                f"_transactions/{name}"
                for name in objects.names("_transactions")
                if f"_transactions/{name.partition('-')[0]}-" in below
            }
        record_sums(uri, table.version, sum_files(location, names))
    except StorageError as error:
        _log.warning("the files of %s have no checksums: %s", table.path, error)


def _is_changed(fragment: FragmentMetadata, known: FragmentMetadata | None) -> bool:
    return known is None or set(names_of([fragment])) != set(names_of([known]))
