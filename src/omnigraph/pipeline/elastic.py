"""Who does work whose size shows only on the way: this process while it is little, Spark as soon as it is much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.load_engine import make_engine
from omnigraph.pipeline.progress import Silent

if TYPE_CHECKING:
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session
    from omnigraph.pipeline.worker_set import LoadEngine

AUTO = "auto"
ENGINES = (AUTO, "local", "spark")
#: Rows that this process compares or copies by itself.
SMALL_ROWS = 2_000_000
#: A guess of what a row takes, for the memory of a session that is started.
_ROW_BYTES = 200


class ElasticEngine:
    """The engine for a number of rows; a session is started, or the caller's is used, at the first large piece."""

    def __init__(
        self,
        engine: str,
        session: Session | None,
        progress: Progress,
        *,
        small_rows: int | None = None,
    ) -> None:
        if engine not in ENGINES:
            raise BadRequestError(f"there is no engine {engine!r}: give {', '.join(ENGINES)}")
        self._engine = engine
        self._session = session
        self._progress = progress
        #: Rows that this process compares or copies by itself, in memory.
        self.small_rows = SMALL_ROWS if small_rows is None else small_rows
        self._made: dict[str, LoadEngine] = {}

    def is_large(self, rows: int) -> bool:
        """Whether so many rows are kept in files, and never in memory together."""
        return self._engine == "spark" or rows > self.small_rows

    def for_rows(self, rows: int) -> LoadEngine:
        """Who works on so many rows.

        Raises:
            SparkError: Spark does not start, or its executors lack this package.
        """
        is_large = self._engine == "spark" or (self._engine == AUTO and rows > self.small_rows)
        name = "spark" if is_large else "local"
        if name not in self._made:
            # Work that fits here is done before a person could follow it.
            progress = self._progress if is_large else Silent()
            self._made[name] = make_engine(name, self._session, progress, rows * _ROW_BYTES)
        return self._made[name]
