"""The engine of a load by name: the same stages in this process or on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.joins import LocalJoins
from omnigraph.pipeline.keys import SMALL_ROWS
from omnigraph.pipeline.large_merges import ExchangeMatcher
from omnigraph.pipeline.merging import LocalMatcher
from omnigraph.pipeline.progress import InnerProgress, Silent
from omnigraph.pipeline.worker_choice import choose_workers, session_facts
from omnigraph.pipeline.worker_set import LoadEngine
from omnigraph.pipeline.workers import LocalWorkers

if TYPE_CHECKING:
    from omnigraph.pipeline.progress import Progress


def make_engine(name: str, spark: Any, progress: Progress, input_bytes: int) -> LoadEngine:
    """The engine; the first use of Spark in a process starts a JVM.

    Raises:
        BadRequestError: there is no such engine.
        SparkError: Spark does not start, or its executors lack this package.
    """
    if name == "spark":
        with progress.stage("start Spark", 1) as stage:
            workers = choose_workers(name, spark, progress, input_bytes)
            for fact in session_facts(workers):
                stage.note(fact)
            stage.update(1, 0)
    else:
        workers = choose_workers(name, spark, progress, input_bytes)
    if isinstance(workers, LocalWorkers):
        quiet = LocalWorkers(Silent())
        return LoadEngine(
            workers=workers, joins=LocalJoins(), matcher=LocalMatcher(quiet), progress=progress
        )
    # Late: whoever works in process needs no Spark.
    from omnigraph.pipeline.spark_frames import SparkFrames
    from omnigraph.pipeline.spark_joins import SparkJoins
    from omnigraph.pipeline.spark_workers import SparkWorkers

    assert isinstance(workers, SparkWorkers), "there are two engines"
    # Their jobs belong to stages of the load, which show progress as a whole.
    inner = InnerProgress()
    quiet_workers = SparkWorkers(workers.spark, inner)
    joins = SparkJoins(quiet_workers)
    return LoadEngine(
        workers=workers,
        joins=joins,
        matcher=ExchangeMatcher(quiet_workers, small_rows=SMALL_ROWS),
        progress=progress,
        inner=inner,
        frames=SparkFrames(workers.spark),
    )
