"""The manifest dataset: rows are added by commits that exactly one writer can win.

Lance rebases an append silently, but never an Overwrite. So a publish is an Overwrite whose fragment list is the
existing fragments plus one new fragment: strict, and no old row is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import write_fragments

from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.errors import AlreadyInitializedError, OutsideRootError, StorageError, StorageFailure
from omnigraph.storage._failures import readable, translated
from omnigraph.storage.datasets.checksums import record_sums, sum_files, tidy_records, transaction_name
from omnigraph.storage.datasets.completeness import check_complete
from omnigraph.storage.datasets.filters import quote_text
from omnigraph.storage.datasets.opening import open_dataset
from omnigraph.storage.datasets.staged import commit_once, committed_as
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.location import MANIFEST, GraphLocation, manifest_name, parse_location, refuse_links
from omnigraph.storage.objects import check_answers, list_files, sync_files

_SHOWN_FILES = 5


class PublishContention(Exception):
    """Another publisher committed first; never leaves the manifest room."""


class ManifestView:
    """The manifest at one version. Immutable; safe to share between threads."""

    def __init__(self, dataset: LanceDataset) -> None:
        self._dataset = dataset

    @property
    def version(self) -> int:
        """The version that this view reads."""
        return int(self._dataset.version)

    @property
    def metadata(self) -> dict[str, str]:
        """The schema metadata as text."""
        with translated("reading the manifest"):
            raw = self._dataset.schema.metadata or {}
            return {key.decode(): value.decode() for key, value in raw.items()}

    @property
    def fragment_count(self) -> int:
        """Over how many fragments the rows are spread."""
        with translated("looking at the manifest"):
            return len(self._dataset.get_fragments())

    def is_current(self) -> bool:
        """Whether no commit came since; one cheap probe."""
        with translated("looking at the manifest"):
            return int(self._dataset.latest_version) == self.version

    def read_rows(self, object_type: str) -> list[dict[str, Any]]:
        """All rows of one type, as dictionaries."""
        return self._read(f"object_type = {quote_text(object_type)}")

    def read_object(self, object_id: str) -> list[dict[str, object]]:
        """The row of one object, or nothing."""
        return self._read(f"object_id = {quote_text(object_id)}")

    def _read(self, condition: str) -> list[dict[str, object]]:
        with translated("reading the manifest"):
            rows: list[dict[str, object]] = self._dataset.to_table(filter=condition).to_pylist()
            return rows


class ManifestTable:
    """The dataset behind `__manifest`: opens views of it and adds rows to it."""

    def __init__(self, location: GraphLocation, schema: pa.Schema, *, durable: bool) -> None:
        self._location = location
        self._schema = schema
        self._durable = durable and location.is_local
        self._uri = location.child(MANIFEST)
        self._is_checked = False

    @property
    def is_local(self) -> bool:
        """Whether it lies on disk."""
        return self._location.is_local

    def open(self) -> ManifestView:
        """The manifest at HEAD.

        Raises:
            OutsideRootError: there is a link in it.
            StorageError: `NOT_FOUND` when there is none, `PERMANENT` when it is damaged.
        """
        if not self.is_local:
            # Before Lance, which goes on trying for a long time.
            check_answers(self._location)
        if not self._is_checked:
            refuse_links(self._location, MANIFEST)
            self._is_checked = True
        try:
            with translated(f"opening the manifest of {self._location}"):
                return ManifestView(open_dataset(self._uri))
        except OutsideRootError:
            raise
        except StorageError as error:
            if error.failure in (StorageFailure.TRANSIENT, StorageFailure.CONFIGURATION):
                raise
            if not dataset_exists(self._location, MANIFEST):
                message = f"there is no graph at {self._location}"
                raise StorageError(message, StorageFailure.NOT_FOUND) from error
            raise self._damage(error.__cause__ or error) from error

    def _damage(self, error: BaseException) -> StorageError:
        """The manifest is there and cannot be opened: which file is to be restored, if one is empty."""
        reason = readable(error)
        empty = sorted(file.name for file in list_files(self._location, MANIFEST) if not file.size_bytes)
        if empty:
            shown = ", ".join(empty[:_SHOWN_FILES])
            more = "" if len(empty) <= _SHOWN_FILES else f" and {len(empty) - _SHOWN_FILES} more"
            reason = f"these files have no bytes, restore them from a backup: {shown}{more}"
        return StorageError(f"the manifest of {self._location} is damaged: {reason}", StorageFailure.PERMANENT)

    def create(self, rows: pa.Table, metadata: dict[str, str]) -> ManifestView:
        """Write the first version.

        Raises:
            AlreadyInitializedError: a manifest exists already.
        """
        if dataset_exists(self._location, MANIFEST):
            raise AlreadyInitializedError(str(self._location), MANIFEST)
        schema = self._schema.with_metadata(metadata)
        with translated("creating the manifest"):
            fragments = write_fragments(rows.replace_schema_metadata(metadata), self._uri, schema=schema, mode="create")
            self._check(fragments)
            transaction = Transaction(0, LanceOperation.Overwrite(schema, list(fragments)))
            try:
                LanceDataset.commit(self._uri, transaction, enable_stable_row_ids=True, max_retries=0)
            except (CommitConflictError, OSError, ValueError, RuntimeError) as error:
                if not dataset_exists(self._location, MANIFEST):
                    raise
                if not committed_as(open_dataset(self._uri, 1), str(transaction.uuid)):
                    raise AlreadyInitializedError(str(self._location), MANIFEST) from error
                # It was this very commit, and only the answer got lost.
        view = self.open()
        if view.version != 1:
            raise AlreadyInitializedError(str(self._location), MANIFEST)
        self._settle(view, fragments, transaction)
        return view

    def append(
        self,
        view: ManifestView,
        rows: pa.Table | None,
        *,
        fold: Callable[[], list[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ManifestView:
        """Add rows to what `view` shows, in one strict commit; the view behind it.

        With `fold`, all fragments are written again as one, without the rows whose ids `fold` gives. `metadata` is
        added to that of the manifest.

        Raises:
            PublishContention: another publisher committed since `view` was opened.
        """
        dataset = view._dataset
        schema = dataset.schema.with_metadata(view.metadata | dict(metadata or {}))
        with translated("publishing"):
            if rows is None:
                added: list[Any] = []
                fragments = [fragment.metadata for fragment in dataset.get_fragments()]
            elif fold is None:
                added = write_fragments(rows, dataset, schema=dataset.schema)
                fragments = [fragment.metadata for fragment in dataset.get_fragments()]
                fragments += list(added)
            else:
                reach(Failpoint.IN_FOLD)
                folded = _without(dataset, fold(), rows)
                added = write_fragments(folded, dataset, schema=dataset.schema)
                fragments = list(added)
            self._check(added)
            transaction = Transaction(dataset.version, LanceOperation.Overwrite(schema, fragments))
            reach(Failpoint.BEFORE_CATALOG_COMMIT)
            try:
                committed = commit_once(dataset, transaction)
            except CommitConflictError as error:
                raise PublishContention from error
            if committed.version != dataset.version + 1:
                raise StorageError(
                    f"the manifest moved from {dataset.version} to {committed.version} in one commit",
                    StorageFailure.PERMANENT,
                )
        published = ManifestView(committed)
        self._settle(published, added, transaction)
        return published

    def rewrite(
        self,
        view: ManifestView,
        without: list[str],
        *,
        rows: pa.Table | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ManifestView:
        """Write all rows again as one fragment, without some and with others, in one strict commit; the view behind it.

        Raises:
            PublishContention: another publisher committed since `view` was opened.
        """
        added = self._schema.empty_table() if rows is None else rows
        return self.append(view, added, fold=lambda: without, metadata=metadata)

    def remove_old_versions(self, view: ManifestView, keep: int) -> int:
        """Remove all versions but the newest, with the files that only they refer to; how many there were."""
        with translated("removing old versions of the manifest"):
            # Lance removes what it lists, and a listing of its own would follow links.
            refuse_links(self._location, MANIFEST)
            stats = view._dataset.cleanup_old_versions(retain_versions=keep)
        tidy_records(self._uri)
        return int(stats.old_versions)

    def _check(self, fragments: list[Any]) -> None:
        if self.is_local:
            check_complete(self._uri, fragments)

    def _settle(self, view: ManifestView, fragments: list[Any], made_by: Transaction) -> None:
        """Record the checksums of what a version brought, and flush it."""
        names = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
        names.append(manifest_name(view.version))
        names.append(transaction_name(made_by))
        record_sums(self._uri, view.version, sum_files(parse_location(self._uri), names))
        if self._durable:
            root = Path(self._uri)
            sync_files(root / name for name in names)


def _without(dataset: LanceDataset, object_ids: list[str], rows: pa.Table) -> pa.Table:
    existing = dataset.to_table()
    gone = pc.is_in(existing["object_id"], pa.array(object_ids, pa.utf8()))
    return pa.concat_tables([existing.filter(pc.invert(gone)).cast(rows.schema), rows])
