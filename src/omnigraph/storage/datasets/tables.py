"""Reading datasets: opening, caching and scanning them at exact versions.

A `Table` is one state of one dataset: a location, a branch of it and a version. The Lance handle inside never leaves
this room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph.core.cache import LruCache
from omnigraph.errors import DamageError, OutsideRootError, StorageError, StorageFailure
from omnigraph.storage._failures import readable, translated
from omnigraph.storage.datasets.blob_columns import blob_names, read_cells, scan_cells
from omnigraph.storage.datasets.filters import Filter, to_sql
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.location import RECLAIMED_MARK, GraphLocation, attached_version, manifest_names, refuse_links
from omnigraph.storage.objects import ControlObjects

_CACHED_HANDLES = 64
MAIN = "main"


def branch_uri(uri: str, branch: str | None) -> str:
    """The address of a branch of a dataset: Lance addresses it as a dataset of its own."""
    return uri if branch in (None, MAIN) else f"{uri}/tree/{branch}"


class Table:
    """One state of one dataset. Immutable; safe to share between threads."""

    def __init__(self, dataset: lance.LanceDataset, path: str, branch: str | None) -> None:
        self._dataset = dataset
        #: The directory below the root of the graph.
        self.path = path
        #: The Lance branch; None is the main line.
        self.branch = branch
        self._fingerprint: str | None = None
        self._row_count: int | None = None

    @property
    def fingerprint(self) -> str:
        """The identity of the rows: equal exactly when the same files, deletions and columns are read.

        Branches that share data share it, an index built later keeps it, and no name or version number that is used
        again can repeat it. Looks at metadata in memory only.
        """
        if self._fingerprint is None:
            with translated(f"looking at {self.path}"):
                self._fingerprint = self._made_fingerprint()
        return self._fingerprint

    def _made_fingerprint(self) -> str:
        digest = sha256()
        for field in self._dataset.lance_schema.fields():
            digest.update(f"{field.id()}={field.name()}\n".encode())
        for fragment in self._dataset.get_fragments():
            metadata = fragment.metadata
            names = [file.path for file in metadata.files]
            if metadata.deletion_file is not None:
                names.append(metadata.deletion_file.path(metadata.id))
            digest.update(f"{metadata.id}:{','.join(names)}\n".encode())
        return digest.hexdigest()[:32]

    @property
    def version(self) -> int:
        """The version that this handle reads."""
        return int(self._dataset.version)

    @property
    def latest_version(self) -> int:
        """The version at HEAD of this branch now."""
        with translated(f"looking at {self.path}"):
            return int(self._dataset.latest_version)

    def is_head(self) -> bool:
        """Whether nothing was committed to this branch since.

        On disk the name of the next version tells, at a cost that does not follow the number of versions: every commit
        makes it, and a cleanup keeps HEAD and what is pinned, so the next one of a pinned version goes only when HEAD
        is far ahead. Then the listing tells.
        """
        root = Path(self._dataset.uri)
        if (root / "_versions").is_dir():
            return not any((root / name).exists() for name in manifest_names(self.version + 1))
        return self.latest_version == self.version

    @property
    def schema(self) -> pa.Schema:
        """The columns as Lance holds them."""
        with translated(f"reading the columns of {self.path}"):
            return self._dataset.schema

    @property
    def blob_columns(self) -> frozenset[str]:
        """The columns that hold blobs."""
        return blob_names(self.schema)

    @property
    def metadata(self) -> dict[str, str]:
        """The schema metadata as text."""
        raw = self.schema.metadata or {}
        with translated(f"reading the columns of {self.path}"):
            return {key.decode(): value.decode() for key, value in raw.items()}

    def count_rows(self, filter_: Filter | None = None) -> int:
        """How many rows there are, or how many satisfy a filter."""
        with translated(f"counting {self.path}"):
            return int(self._dataset.count_rows(to_sql(filter_) if filter_ else None))

    def read(
        self, columns: Sequence[str] | None = None, filter_: Filter | None = None, *, limit: int | None = None
    ) -> pa.Table:
        """Rows as one Arrow table; blob columns come as cells (`omnigraph.core.values`)."""
        where = to_sql(filter_) if filter_ else None
        with translated(f"reading {self.path}"):
            found: pa.Table = read_cells(self._dataset, columns, filter=where, limit=limit)
            return found

    def scan(self, columns: Sequence[str] | None = None, filter_: Filter | None = None) -> Iterator[pa.RecordBatch]:
        """Rows as a stream of batches, in storage order; blob columns come as cells."""
        where = to_sql(filter_) if filter_ else None
        with translated(f"scanning {self.path}"):
            yield from scan_cells(self._dataset, columns, filter=where)

    def transaction_uuid(self) -> str | None:
        """The id of the transaction that made this version; None when Lance kept none."""
        with translated(f"reading the history of {self.path}"):
            try:
                transaction = self._dataset.read_transaction(self.version)
            except TypeError:
                # Lance cannot show a compaction that rewrote an index; the name of its file tells as well.
                return self._transaction_in_files()
            return None if transaction is None else str(transaction.uuid)

    def _transaction_in_files(self) -> str | None:
        batches = self._dataset.tracked_files(min_version=self.version)
        for batch in batches:
            for file in batch.to_pylist():
                if file["version"] == self.version and file["type"] == "transaction file":
                    name = str(file["path"]).rpartition("/")[2].removesuffix(".txn")
                    return name.partition("-")[2]
        return None

    @property
    def row_count(self) -> int:
        """How many rows there are; known from metadata."""
        if self._row_count is None:
            self._row_count = self.count_rows()
        return self._row_count

    def fragments(self) -> list[lance.LanceFragment]:
        """The fragments of the version."""
        with translated(f"looking at the fragments of {self.path}"):
            return list(self._dataset.get_fragments())

    def fragment_count(self) -> int:
        """How many fragments the rows are spread over."""
        with translated(f"looking at {self.path}"):
            return len(self._dataset.get_fragments())


class TableStore:
    """Opens the datasets of one graph and keeps recent handles. Thread-safe."""

    def __init__(self, location: GraphLocation, entries: int = _CACHED_HANDLES) -> None:
        self.location = location
        self._cache: LruCache[Table] = LruCache(entries)
        #: Datasets that were looked through for links.
        self._checked: set[str] = set()

    def open(self, path: str, branch: str | None = None, version: int | None = None) -> Table:
        """A dataset at a version, or at its HEAD.

        Raises:
            OutsideRootError: there is a link in it, or a version reads files outside of it.
            StorageError: `NOT_FOUND` when there is no such dataset or version, `PERMANENT` when it is damaged.
        """
        if version is None:
            # HEAD moves: this caller must not get what others found before.
            table = self._open(path, branch, None)
            self.remember(table)
            return table
        key = (path, branch, version)
        return self._cache.get_or_build(key, lambda: self._open(path, branch, version))

    def remember(self, table: Table) -> None:
        """Keep a handle for later reads of the same version."""
        self._cache.put((table.path, table.branch, table.version), table)

    def forget(self, path: str) -> None:
        """Keep no handle of a dataset: versions of it are gone."""
        self._cache.forget(lambda table: table.path == path)

    def _refuse_links(self, path: str) -> None:
        """Look through a dataset for links when it is opened first: Lance would follow them, reading and writing."""
        if path not in self._checked:
            refuse_links(self.location, path)
            self._checked.add(path)

    def _open(self, path: str, branch: str | None, version: int | None) -> Table:
        self._refuse_links(path)
        uri = branch_uri(self.location.child(path), branch)
        wanted = path if version is None else f"version {version} of {path}"
        try:
            with translated(f"opening {wanted}"):
                dataset = open_dataset(uri, version)
        except OutsideRootError:
            raise
        except StorageError as error:
            reason = readable(error.__cause__ or error)
            if not dataset_exists(self.location, path, branch, version):
                message = f"{wanted} does not exist: {reason}"
                raise StorageError(message, StorageFailure.NOT_FOUND) from error
            if error.failure in (StorageFailure.TRANSIENT, StorageFailure.CONFIGURATION):
                raise
            raise DamageError(f"opening {wanted}", reason) from error
        return Table(dataset, path, branch)


def newest_version(location: GraphLocation, path: str, branch: str | None = None) -> int | None:
    """The newest version of a dataset, or of a branch of it; None when there is none. Looks at names only."""
    found = (attached_version(name) for name in _manifests(location, path, branch))
    return max((item[1] for item in found if item is not None), default=None)


def dataset_exists(location: GraphLocation, path: str, branch: str | None = None, version: int | None = None) -> bool:
    """Whether any version of a dataset is there, or a certain one; looks at names only."""
    names = _manifests(location, path, branch)
    return bool(names) if version is None else not names.isdisjoint(manifest_names(version))


def _manifests(location: GraphLocation, path: str, branch: str | None) -> set[str]:
    """The manifests of a dataset or of a branch of it, as names below it."""
    if location.is_local and not location.path.is_dir():
        return set()
    names = ControlObjects(location, durable=False).names(f"{branch_uri(path, branch)}/_versions")
    return {f"_versions/{name}" for name in names if name.endswith(".manifest")}


def is_reclaimed(location: GraphLocation, path: str) -> bool:
    """Whether a whole dataset was cleaned up: there is a mark in its place."""
    return ControlObjects(location, durable=False).read(f"{path}/{RECLAIMED_MARK}") is not None
