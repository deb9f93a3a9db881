"""How many rows running tasks of Spark have done, for sessions whose tasks run on this machine.

Spark tells nothing of a task before its end: accumulators of Python travel with its answer. On one machine a small file
per task does, which the task writes now and then and the driver reads. Tasks of a cluster say nothing on the way.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.pipeline.progress import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How often a task writes, and the driver reads.
_EVERY_S = 1.0
_BYTES = 8


@dataclass(frozen=True, slots=True)
class RowTally:
    """A folder with one file per task; travels to tasks."""

    folder: str

    @contextmanager
    def counting(self, task: int) -> Iterator[None]:
        """Write down the rows of a task that runs in the block; those of an earlier try do not count."""
        path = os.path.join(self.folder, str(task))
        rows, written_at = 0, 0.0

        def listener(more: int) -> None:
            nonlocal rows, written_at
            rows += more
            now = time.monotonic()
            if now - written_at >= _EVERY_S:
                written_at = now
                # A full disk costs the figure, never the task.
                with suppress(OSError), open(path, "wb") as file:
                    file.write(rows.to_bytes(_BYTES))

        with listening(listener):
            yield

    def rows(self) -> int:
        """The rows of all tasks, as far as they have said and can be read."""
        total = 0
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError), open(entry.path, "rb") as file:
                    # Empty while a task writes it.
                    total += int.from_bytes(file.read(_BYTES))
        return total


def slowly(rows: Callable[[], int]) -> Callable[[], int]:
    """The same number for a while: a job is looked at more often than its tasks say something."""
    known, asked_at = 0, 0.0

    def ask() -> int:
        nonlocal known, asked_at
        now = time.monotonic()
        if now - asked_at >= _EVERY_S:
            asked_at = now
            # A file that is being written counts as nothing for once.
            known = max(known, rows())
        return known

    return ask
