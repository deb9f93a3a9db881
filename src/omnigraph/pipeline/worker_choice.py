"""Who does the work of a call: this process, a session that the caller brought, or the session of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from omnigraph.budget import patiently
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.workers import LocalWorkers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from omnigraph.pipeline.frames import Frame
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.workers import Workers

    #: A Spark session, for rooms that hand it on and know nothing of Spark.
    Session: TypeAlias = SparkSession

ENGINES = ("spark", "local")


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist.

    Raises:
        BadRequestError: there is none of that name.
    """
    if engine not in ENGINES:
        raise BadRequestError(f"there is no engine {engine!r}: give {' or '.join(ENGINES)}")


def choose_workers(
    engine: str, session: Session | None, progress: Progress, input_bytes: int
) -> Workers:
    """The workers of an engine. The first use of Spark in a process starts a JVM.

    Raises:
        BadRequestError: there is no such engine.
        SparkError: Spark does not start, or its executors lack this package.
    """
    check_engine(engine)
    if engine == "local":
        return LocalWorkers(progress)
    # Late: whoever works in process needs no Spark.
    from omnigraph.engine.spark.executors import check_executors
    from omnigraph.engine.spark.session import spark_session
    from omnigraph.pipeline.spark_workers import SparkWorkers

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
    from omnigraph.engine.spark.kinds import is_connect

    if is_connect(one) or is_connect(other):
        return one is other
    return one.sparkContext is other.sparkContext


def _check_session(session: object) -> None:
    """Refuse what is not a session, before anything of it is used.

    Raises:
        BadRequestError: with what to give instead.
    """
    from pyspark.sql import SparkSession

    # Sessions of Spark Connect are made by a class of their own.
    known = session is None or isinstance(session, SparkSession)
    if not known and not type(session).__module__.startswith("pyspark.sql.connect"):
        raise BadRequestError(
            f"spark is a {type(session).__name__}: give a SparkSession, classic or of Spark Connect, such as "
            "SparkSession.builder.getOrCreate(), or leave it out"
        )


def session_facts(workers: Workers) -> list[str]:
    """Where a person finds the jobs of a session: the address of its UI, and its application where others know it.

    A session of this machine without a UI has neither: its application ends with the process.
    """
    if isinstance(workers, LocalWorkers):
        return []
    from omnigraph.engine.spark.kinds import application_of, is_on_this_machine, ui_of
    from omnigraph.pipeline.spark_jobs import shielded
    from omnigraph.pipeline.spark_workers import SparkWorkers

    assert isinstance(workers, SparkWorkers), "there are two kinds"
    found = workers.spark
    address = shielded(found, lambda: ui_of(found))
    if not address and shielded(found, lambda: is_on_this_machine(found)):
        return []
    facts = (f"application {shielded(found, lambda: application_of(found))}", address)
    return [fact for fact in facts if fact]
