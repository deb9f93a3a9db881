"""Ledgers: which files a task has written, noted in a file that outlives the task.

The driver learns from answers what tasks wrote, and an answer may never arrive: the task is tried again elsewhere, its
process dies, the job is cancelled, the driver is interrupted. So an attempt notes its files in the folder of the
operation as soon as they are whole, and the driver removes what no attempt that counts has written. Only a file that
was being written when its process died is in no ledger; cleanup finds it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.errors import InternalError, StorageError
from omnigraph.storage.answers import (
    attempt_name,
    new_answer_folder,
    read_answer,
    remove_answer_folder,
    write_answer,
)
from omnigraph.storage.checksums import sums_in
from omnigraph.storage.listing import delete_files, list_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from omnigraph.storage.answers import AnswerFolder
    from omnigraph.storage.location import GraphLocation
    from omnigraph.storage.tables import Table

#: The published stubs of pyarrow describe older functions.
_pa: Any = _arrow

_log = logging.getLogger(__name__)

_STAGE = "wrote"
#: How often the folder is looked at until it stays empty; the first pass removes nearly always everything.
_MAX_PASSES = 5
_SCHEMA = _pa.schema([_pa.field("file", _pa.utf8(), nullable=False)])


@dataclass(slots=True)
class Ledger:
    """The files of one attempt of a task, as names below the root of the graph. Without a folder nothing is noted."""

    folder: AnswerFolder | None
    part: int
    #: The attempt, for its answer; empty while nothing is noted.
    name: str = ""
    _files: list[str] = field(default_factory=list)

    def note(self, table: Table, written: Iterable[str | None]) -> None:
        """Note the files of fragments that the attempt wrote, or wrote files for, given as their texts.

        When it fails, these files are gone: nothing else knows them.
        """
        if self.folder is None:
            return
        line = _below(self.folder.root, str(table._dataset.uri))
        files = [f"{line}/{name}" for name in sums_in(written)]
        if not files:
            return
        self._files += files
        self.name = self.name or attempt_name(_STAGE, self.part)
        rows = _pa.RecordBatch.from_arrays([_pa.array(self._files, _pa.utf8())], schema=_SCHEMA)
        try:
            # The same name again: a reader finds the earlier list or the longer one.
            write_answer(self.folder, self.name, _SCHEMA, [rows])
        except BaseException:
            # Also when the task is cancelled. What fails here too stays until cleanup.
            with suppress(StorageError):
                delete_files(self.folder.root, files)
            raise


def _below(root: GraphLocation, uri: str) -> str:
    """The name of a dataset below the root: datasets record the root without links, a caller may come through one."""
    for place in (root.root, root.uri):
        if uri.startswith(f"{place}/"):
            return uri.removeprefix(f"{place}/")
    raise InternalError(f"{uri} does not lie in {root}")


@dataclass(slots=True)
class Ledgers:
    """The ledgers of all tasks of one operation, for its driver."""

    folder: AnswerFolder
    #: Attempts whose answers count.
    _counted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, root: GraphLocation) -> Ledgers:
        """Ledgers of an operation that begins."""
        return cls(new_answer_folder(root))

    def count(self, attempts: Iterable[str]) -> None:
        """What these attempts wrote is in use."""
        self._counted.update(attempts)

    def discount(self, attempts: Iterable[str]) -> None:
        """What these attempts wrote is not needed after all."""
        self._counted.difference_update(attempts)

    def close(self, *, is_committed: bool) -> None:
        """The operation is over: remove what was written for nothing, which is everything unless it was committed.

        What cannot be removed stays for cleanup, and is told in the log.
        """
        kept: Collection[str] = self._counted if is_committed else ()
        try:
            for _ in range(_MAX_PASSES):
                if not self._remove_listed(kept):
                    break
            else:
                _log.warning("tasks still write: what they have written stays until cleanup")
            remove_answer_folder(self.folder)
        except StorageError as error:
            _log.warning("what tasks have written stays until cleanup: %s", error)

    def _remove_listed(self, kept: Collection[str]) -> bool:
        """Remove what is in the folder now, and the files that its ledgers name; whether there was anything.

        Only what was read goes: a task that ends late may add a ledger meanwhile, which the next pass finds.
        """
        names = [file.name for file in list_files(self.folder.root, self.folder.name)]
        for name in names:
            attempt = name.rpartition("/")[2].removesuffix(".arrow")
            if attempt.startswith(f"{_STAGE}-") and attempt not in kept:
                self._remove_files(attempt)
        delete_files(self.folder.root, names)
        return bool(names)

    def _remove_files(self, attempt: str) -> None:
        try:
            for batch in read_answer(self.folder, attempt):
                files: Any = batch.column(0)
                delete_files(self.folder.root, files.to_pylist())
        except StorageError as error:
            _log.warning("what %s has written stays until cleanup: %s", attempt, error)
