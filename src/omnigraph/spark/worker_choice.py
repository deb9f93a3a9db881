"""The choice of workers by name or by rows: this process, the caller's session, or the own one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.core.budget import patiently
from omnigraph.core.extras import need
from omnigraph.core.lazy_exports import late_types
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.engine_choice import Engine, check_engine, choose_engine, rows_of
from omnigraph.pipeline.keys import SMALL_ROWS, Joins
from omnigraph.pipeline.upsert import Matcher
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import InnerProgress, LocalWorkers, Progress, Silent, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline.sources.planning import Frame
    from omnigraph.spark.workers import SparkWorkers


# ---- Workers of a read or a job


if TYPE_CHECKING:
    Session: TypeAlias = SparkSession
else:
    Session = late_types({"pyspark.sql": "SparkSession"})["SparkSession"]


def choose_workers(engine: str, session: Session | None, progress: Progress, input_bytes: int) -> Workers:
    """The workers of a chosen engine. The first use of Spark in a process starts a JVM.

    Raises:
        SparkError: Spark does not start, or its executors lack this package.
    """
    if engine == Engine.LOCAL:
        return LocalWorkers(progress)
    # Lazy: work in process needs no Spark.
    need("pyspark", "Spark")
    from omnigraph.spark.executors import check_executors
    from omnigraph.spark.session import spark_session
    from omnigraph.spark.workers import SparkWorkers

    _check_session(session)
    used = patiently(lambda: spark_session(input_bytes)) if session is None else session
    workers = SparkWorkers(used, progress)
    workers.jobs.run("check executors", lambda: check_executors(used))
    return workers


def session_of_frames(given: Session | None, frames: Iterable[Frame]) -> Session | None:
    """The session of a load: the given one, else that of its Spark frames; None when there is neither.

    Raises:
        BadRequestError: the frames belong to several sessions, or to another one than the given.
    """
    _check_session(given)
    used, owner = given, "spark="
    for frame in frames:
        if frame.is_local:
            continue
        session: Session = frame.data.sparkSession
        if used is None:
            used, owner = session, frame.mapped.source
        elif not _is_same(used, session):
            raise BadRequestError(
                f"{owner} and {frame.mapped.source} belong to two Spark sessions, and one load runs on one: make all "
                "frames with one session, and give that one with spark= or leave spark= out"
            )
    return used


def _is_same(one: Session, other: Session) -> bool:
    """Whether jobs of two sessions run together: classic ones of one context do."""
    from omnigraph.spark.kinds import is_connect

    if is_connect(one) or is_connect(other):
        return one is other
    return one.sparkContext is other.sparkContext


def _check_session(session: object) -> None:
    """Refuse what is not a session, before anything of it is used.

    Raises:
        BadRequestError: with what to give instead.
    """
    if session is None:
        return
    need("pyspark", "`spark=`")
    from pyspark.sql import SparkSession

    # Sessions of Spark Connect are made by a class of their own.
    known = isinstance(session, SparkSession)
    if not known and not type(session).__module__.startswith("pyspark.sql.connect"):
        raise BadRequestError(
            f"spark is a {type(session).__name__}: give a SparkSession, classic or of Spark Connect, such as "
            "SparkSession.builder.getOrCreate(), or leave it out"
        )


def session_facts(workers: SparkWorkers) -> list[str]:
    """Where the jobs of a session are shown: the address of its UI, and its application where others know it.

    A session of this machine without a UI has neither: its application ends with the process.
    """
    from omnigraph.spark.jobs import shielded
    from omnigraph.spark.kinds import application_of, is_on_this_machine, ui_of

    found = workers.spark
    address = shielded(found, lambda: ui_of(found))
    if not address and shielded(found, lambda: is_on_this_machine(found)):
        return []
    facts = (f"application {shielded(found, lambda: application_of(found))}", address)
    return [fact for fact in facts if fact]


# ---- Workers of a load, by name


def make_engine(name: str, spark: Session | None, progress: Progress, input_bytes: int) -> WorkerSet:
    """Make the workers of a chosen engine; the first use of Spark in a process starts a JVM.

    Raises:
        SparkError: Spark does not start, or its executors lack this package.
    """
    if name == Engine.LOCAL:
        workers = choose_workers(name, spark, progress, input_bytes)
        return WorkerSet(workers=workers, joins=Joins(), matcher=Matcher(LocalWorkers(Silent())), progress=progress)
    # Lazy: work in process needs no Spark.
    need("pyspark", "Spark")
    from omnigraph.spark.frames import SparkFrames
    from omnigraph.spark.joins import SparkJoins
    from omnigraph.spark.workers import SparkWorkers

    with progress.stage("start Spark", 1) as stage:
        workers = choose_workers(name, spark, progress, input_bytes)
        assert isinstance(workers, SparkWorkers), "there are two engines"
        for fact in session_facts(workers):
            stage.note(fact)
        stage.update(1, 0)
    # Their jobs belong to stages of the load, which show progress as a whole.
    inner = InnerProgress()
    quiet_workers = SparkWorkers(workers.spark, inner)
    return WorkerSet(
        workers=workers,
        joins=SparkJoins(quiet_workers),
        matcher=Matcher(quiet_workers, small_rows=SMALL_ROWS),
        progress=progress,
        quiet=quiet_workers,
        small_rows=SMALL_ROWS,
        inner=inner,
        frames=SparkFrames(workers.spark),
    )


# ---- Workers chosen by the size of the work


#: Rows that this process compares or copies by itself.
ELASTIC_ROWS = 2_000_000
#: A guess of what a row takes, for the memory of a session that is started.
_ROW_BYTES = 200


class ElasticWorkers:
    """The workers for a number of rows; a session is started, or the caller's is used, at the first large piece."""

    def __init__(
        self, engine: str, session: Session | None, progress: Progress, *, small_rows: int | None = None
    ) -> None:
        check_engine(engine)
        self._engine = engine
        self._session = session
        self._progress = progress
        #: Rows that this process compares or copies by itself, in memory.
        self.small_rows = ELASTIC_ROWS if small_rows is None else small_rows
        self._made: dict[str, WorkerSet] = {}

    def is_large(self, rows: int) -> bool:
        """Whether so many rows are kept in files, and never in memory together."""
        return self._engine == Engine.SPARK or rows > self.small_rows

    def for_rows(self, rows: int) -> WorkerSet:
        """The workers for this row count.

        Raises:
            SparkError: Spark does not start, or its executors lack this package.
        """
        chosen = choose_engine(self._engine, rows_of(rows, self.small_rows))
        if chosen.name not in self._made:
            # Work that fits here is done before a person could follow it.
            progress = Silent() if chosen.is_local else self._progress
            self._made[chosen.name] = make_engine(chosen.name, self._session, progress, rows * _ROW_BYTES)
        return self._made[chosen.name]
