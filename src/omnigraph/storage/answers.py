"""Answers of tasks that are too large for messages: Arrow files in a folder of one bulk operation.

A task writes its rows under a name of its own attempt and answers with that name and the number of rows; other tasks
and the driver stream the file. So no process holds what all tasks answered together. The folder lies below
`__staging` in the root that holds it, is removed when the operation ends, and `cleanup` removes what a dead one left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow

from omnigraph.core.arrow import Batch, Schema, pa
from omnigraph.core.ids import is_ulid, new_ulid
from omnigraph.frozen import frozen
from omnigraph.storage._failures import translated
from omnigraph.storage.location import STAGING_FOLDER, GraphLocation, inside
from omnigraph.storage.objects import (
    StoredFile,
    delete_files,
    list_files,
    list_folders,
    open_store,
    remove_empty_folders,
)

if TYPE_CHECKING:
    from obstore import ReadableFile, WritableFile

_NAME = re.compile(r"[0-9a-z-]+")
_ENDING = ".arrow"


@frozen(kw_only=True)
class AnswerFolder:
    """The folder of one bulk operation, as any process can reach it. Picklable."""

    root: GraphLocation
    #: Below the root.
    name: str

    def file(self, answer: str) -> str:
        """The name of an answer below the root."""
        assert _NAME.fullmatch(answer), "answers have plain names"
        return f"{self.name}/{answer}{_ENDING}"


@frozen(kw_only=True)
class Answer:
    """A file that a task wrote."""

    name: str
    rows: int
    size_bytes: int


def new_answer_folder(root: GraphLocation) -> AnswerFolder:
    """A folder for one bulk operation; it exists from the first answer on."""
    return AnswerFolder(root=root, name=f"{STAGING_FOLDER}/{new_ulid()}")


def attempt_name(stage: str, part: int) -> str:
    """A name for the answer of one attempt of a task: two attempts at one part never share a file.

    >>> attempt_name("delta", 7)[:9]
    'delta-7-0'
    """
    return f"{stage}-{part}-{new_ulid().lower()}"


def write_answer(folder: AnswerFolder, name: str, schema: Schema, batches: Iterable[Batch]) -> Answer:
    """Write the rows of an answer. The file appears whole; when it fails there is none."""
    rows = 0
    what = f"writing {folder.file(name)}"
    with _writing(folder, name) as sink:
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                rows += batch.num_rows
                # Only this: what the producer of the batches raises is not about the file.
                with translated(what):
                    writer.write_batch(batch)
        size = sink.tell()
    return Answer(name=name, rows=rows, size_bytes=size)


@contextmanager
def _writing(folder: AnswerFolder, name: str) -> Iterator[pyarrow.NativeFile]:
    file = folder.file(name)
    if not folder.root.is_local:
        # An object appears when its writer is closed; one that is given up is never seen.
        with obstore.open_writer(open_store(folder.root), file) as writer:
            yield pa.PythonFile(_Counting(writer), mode="w")
        return
    place = inside(folder.root, file)
    _make_folder(place.parent)
    unfinished = place.with_name(f".{place.name}")
    try:
        with pa.OSFile(str(unfinished), "wb") as sink:
            yield sink
        unfinished.replace(place)
    except BaseException:
        # Also when the task is cancelled: nothing else knows the name.
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _make_folder(folder: Path) -> None:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            # Another operation has ended in this moment, and took the folder of all operations away.
            continue
        return


class _Counting:
    """Gives a writer of an object store what Arrow asks of a file. Who opened the writer closes it."""

    closed = False

    def __init__(self, writer: WritableFile) -> None:
        self._writer = writer
        self._position = 0

    def write(self, data: bytes) -> int:
        self._writer.write(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing to do: the parts of an object are sent as they fill up."""

    def close(self) -> None:
        self.closed = True


class _Readable:
    """Gives a reader of an object store what Arrow asks of a file."""

    closed = False

    def __init__(self, reader: ReadableFile) -> None:
        self._reader = reader

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read() if size < 0 else self._reader.read(size))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._reader.close()


def read_answer(folder: AnswerFolder, name: str, begin: int = 0, end: int | None = None) -> Iterator[Batch]:
    """The rows of an answer, batch by batch, or only of the batches from one number to another.

    On a disk they are mapped and take no memory of their own.
    """
    with translated(f"reading {folder.file(name)}"), _reading(folder, name) as source:
        reader = pa.ipc.open_file(source)
        count = reader.num_record_batches
        for number in range(begin, count if end is None else min(end, count)):
            yield reader.get_batch(number)


@contextmanager
def _reading(folder: AnswerFolder, name: str) -> Iterator[pyarrow.NativeFile]:
    file = folder.file(name)
    if folder.root.is_local:
        with pa.memory_map(str(inside(folder.root, file))) as source:
            yield source
    else:
        reader = _Readable(obstore.open_reader(open_store(folder.root), file))
        with pa.PythonFile(reader, mode="r") as source:
            yield source


def remove_answers(folder: AnswerFolder) -> None:
    """Remove the folder of an operation with everything in it."""
    delete_files(folder.root, [file.name for file in list_files(folder.root, folder.name)])
    remove_answer_folder(folder)


def remove_answer_folder(folder: AnswerFolder) -> None:
    """Remove the folder of an operation, whose files are gone."""
    remove_empty_folders(folder.root, folder.name)
    _remove_common_folder(folder.root)


def remove_abandoned(root: GraphLocation, answers: Sequence[StoredFile]) -> None:
    """Remove answers of operations that have ended, and their folders."""
    delete_files(root, [file.name for file in answers])
    for folder in {file.name.rpartition("/")[0] for file in answers}:
        remove_empty_folders(root, folder)
    _remove_common_folder(root)


def _remove_common_folder(root: GraphLocation) -> None:
    """Fails, as it should, while there are other operations."""
    if root.is_local:
        with suppress(OSError):
            os.rmdir(inside(root, STAGING_FOLDER))


def abandoned_answers(root: GraphLocation, written_before_s: float | None) -> list[StoredFile]:
    """Answers that were written before a moment, in seconds since the epoch; without one all of them."""
    return [
        file
        for name in list_folders(root, STAGING_FOLDER)
        if is_ulid(name)
        for file in list_files(root, f"{STAGING_FOLDER}/{name}")
        if written_before_s is None or file.modified_s < written_before_s
    ]
