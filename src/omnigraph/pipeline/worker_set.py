"""Workers of bulk work with their joins and matcher, and the choice of such a set by the number of rows."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Protocol

from omnigraph.frozen import frozen
from omnigraph.pipeline.keys import Joins
from omnigraph.pipeline.upsert import Matcher
from omnigraph.pipeline.workers import InnerProgress, LocalWorkers, Progress, Silent, Workers


@frozen(kw_only=True)
class WorkerSet:
    """Workers with their joins and matcher, for one bulk operation."""

    workers: Workers
    joins: Joins
    matcher: Matcher
    progress: Progress
    #: Workers for jobs inside of a stage, and how many rows of a load this process handles there; None: all.
    quiet: Workers = field(default_factory=lambda: LocalWorkers(Silent()))
    small_rows: int | None = None
    #: Shows these jobs, and those of `joins` and `matcher`, in the stage that they belong to.
    inner: InnerProgress = field(default_factory=InnerProgress)
    #: The `FrameAccess` of loads, for frames and tables that are not in this process; None where there are none.
    frames: Any = None


class WorkerChoice(Protocol):
    """Chooses who works on a number of rows."""

    #: Rows that this process compares or copies by itself, in memory.
    small_rows: int

    def is_large(self, rows: int) -> bool:
        """Whether so many rows are kept in files, and never in memory together."""
        ...

    def for_rows(self, rows: int) -> WorkerSet:
        """The workers for this row count.

        Raises:
            SparkError: Spark does not start, or its executors lack this package.
        """
        ...
