"""The folder of one large comparison or merge: made with its first file, gone with the object that uses it."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.core.env_settings import Variable
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.storage.answers import AnswerFolder, new_answer_folder, remove_answers
from omnigraph.storage.location import GraphLocation, parse_location

if TYPE_CHECKING:
    from omnigraph.pipeline.workers import Workers

_log = logging.getLogger(__name__)
SCRATCH = Variable(
    "OMNIGRAPH_SCRATCH",
    "Holds the files of large comparisons; the driver and all executors have to reach it.",
    default="a temporary folder; on a cluster the graph",
    values="a folder or `s3://` prefix",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchPlace:
    """A place for the files of an operation."""

    root: GraphLocation
    #: A writer keeps them in the graph: its executors write there anyway.
    is_writer: bool = False
    is_read_only: bool = False
    #: Begins a read of the graph, and gives the function that ends it: cleanup leaves files of running reads alone.
    begin_read: Callable[[], Callable[[], None]] | None = None

    def location(self, workers: Workers | None) -> tuple[GraphLocation, bool]:
        """The root for files that all workers reach, and whether it was made for them alone.

        Raises:
            BadRequestError: there is no place that the executors of a cluster reach.
        """
        if self.is_writer:
            return self.root, False
        if chosen := SCRATCH.text():
            return parse_location(chosen), False
        if workers is None or workers.is_on_this_machine:
            return parse_location(tempfile.mkdtemp(prefix="omnigraph-")), True
        if not self.is_read_only:
            return self.root, False
        raise BadRequestError(
            "the differences are too many for one process, and the executors of a cluster may not keep them in a graph "
            f"that is open for reading only: set {SCRATCH} to a folder or s3:// prefix that this process and the "
            "executors reach, or open the graph for writing"
        )


class Scratch:
    """A folder for the files of one operation.

    It is removed by `close`, when nothing refers to the object any more, and at the end of the process.
    """

    def __init__(self, place: ScratchPlace) -> None:
        self._place = place
        self._folder: AnswerFolder | None = None
        self._removal: weakref.finalize[..., Scratch] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether there was a folder, and it is gone."""
        return self._removal is not None and not self._removal.alive

    def folder(self, workers: Workers | None) -> AnswerFolder:
        """The folder, for workers or for this process alone.

        Raises:
            BadRequestError: there is no place that the executors of a cluster reach.
        """
        if self._folder is None:
            place = self._place
            root, is_own = place.location(workers)
            is_in_graph = root == place.root
            end_read = place.begin_read() if is_in_graph and place.begin_read else None
            self._folder = new_answer_folder(root)
            self._removal = weakref.finalize(self, _remove, self._folder, os.getpid(), is_own=is_own, end_read=end_read)
        return self._folder

    @contextmanager
    def inner(self) -> Iterator[Scratch]:
        """A second folder at the same place, for what only a step of the work needs."""
        inner = Scratch(self._place)
        try:
            yield inner
        finally:
            inner.close()

    def close(self) -> None:
        """Remove the folder, if there is one."""
        if self._removal is not None:
            self._removal()


def _remove(folder: AnswerFolder, process_id: int, *, is_own: bool, end_read: Callable[[], None] | None) -> None:
    if os.getpid() != process_id:
        return  # a fork of the process: the folder is its parent's
    try:
        remove_answers(folder)
    except (OmniError, OSError) as problem:
        # The work is done; `cleanup` removes what stays in a graph.
        _log.warning("%s stays behind: %s", folder.root.child(folder.name), problem)
    if is_own:
        with suppress(OSError):
            folder.root.path.rmdir()
    if end_read is not None:
        end_read()
