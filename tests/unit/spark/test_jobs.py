"""Jobs: named, watched, and ended together with whatever waits for them."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import Broadcast
from pyspark.util import InheritableThread

from omnigraph.core.budget import Budget, bounded
from omnigraph.errors import QueryCancelledError, QueryTimeoutError, SparkError
from omnigraph.pipeline.workers import (
    STOPPING,
    InnerProgress,
    Silent,
    advance,
    detail,
    job_name,
    operation,
)
from omnigraph.spark.jobs import SparkJobs, explain, outlasting
from omnigraph.spark.workers import SparkWorkers
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wait_for_reader(path: str) -> dict[str, Any]:
    """A task that runs until something opens the pipe: only its end by force ends it in these tests."""
    with open(f"{path}.begun", "a", encoding="utf-8"):
        pass
    with open(path, encoding="utf-8") as pipe:
        return {"read": pipe.read()}


class Stage:
    """Raises as soon as the task has begun."""

    def __init__(self, begun: Path, error: BaseException) -> None:
        self.begun = begun
        self.error = error
        self.told: list[str] = []

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        if self.begun.exists():
            raise self.error

    def tell(self, detail: str) -> None:
        self.told.append(detail)

    def note(self, fact: str) -> None: ...


class Watched:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[Stage]:
        yield self._stage


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), QueryTimeoutError(1.0, "Load")], ids=["interrupt", "timeout"]
)
def test_whatever_ends_the_waiting_ends_the_job(
    spark: SparkSession, tmp_path: Path, error: BaseException
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stage = Stage(tmp_path / "pipe.begun", error)
    workers = SparkWorkers(spark, Watched(stage))
    with pytest.raises(type(error)):
        workers.run("wait", wait_for_reader, [str(pipe)])
    assert stage.told == [STOPPING], "a person who waits for its end knows why"
    tracker = spark.sparkContext.statusTracker()
    assert tracker.getActiveJobsIds() == []
    assert tracker.getActiveStageIds() == []
    # The session goes on.
    assert spark.range(3).count() == 3


def test_an_interrupt_while_a_job_starts_ends_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    start = InheritableThread.start

    def interrupted(thread: InheritableThread) -> None:
        start(thread)
        while not (tmp_path / "pipe.begun").exists():
            thread.join(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(InheritableThread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SparkWorkers(spark, Silent()).run("wait", wait_for_reader, [str(pipe)])
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_a_job_that_was_given_up_before_it_began_does_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[InheritableThread] = []

    def interrupted(thread: InheritableThread) -> None:
        threads.append(thread)
        raise KeyboardInterrupt

    done: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(InheritableThread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SparkJobs(spark).run("note", lambda: done.append(True))
    # The interrupt may also come when the system has the thread already.
    threads[0].start()
    threads[0].join()
    assert done == []


def test_a_job_whose_thread_fails_before_the_action_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(session: SparkSession, tag: str) -> None:
        raise Py4JNetworkError("the JVM is gone")

    spark.addTag("mine")  # tags are handed on to the thread of the job
    try:
        monkeypatch.setattr(type(spark), "addTag", gone)
        with pytest.raises(SparkError, match="the JVM is gone"):
            SparkJobs(spark).run("count", lambda: spark.range(3).count())
    finally:
        spark.removeTag("mine")


def test_what_a_dead_session_cannot_release_does_not_hide_the_failure(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    workers = SparkWorkers(spark, Silent())
    monkeypatch.setattr(Broadcast, "destroy", gone)
    with pytest.raises(SparkError, match="a Python worker died"), workers.shared([1]):
        raise SparkError("a Python worker died")
    monkeypatch.setattr(type(spark.sparkContext), "broadcast", gone)
    with pytest.raises(SparkError, match="the JVM of Spark does not answer"), workers.shared([1]):
        pytest.fail("there is nothing to share with")


def count_and_wait(path: str) -> dict[str, Any]:
    """A task that has done some rows, and goes on."""
    advance(5)
    return wait_for_reader(path)


class UntilRows(Stage):
    """Ends a job as soon as rows of it are seen."""

    def __init__(self) -> None: ...

    def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
        if rows:
            raise RowsSeenError(tasks, rows)


class RowsSeenError(Exception):
    """Tasks and rows."""


def test_rows_are_shown_before_the_end_of_their_task(spark: SparkSession, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RowsSeenError) as seen:
        SparkWorkers(spark, Watched(UntilRows())).run("count", count_and_wait, [str(pipe)])
    assert seen.value.args == (0, 5)


def test_two_callers_do_not_end_each_others_jobs(spark: SparkSession, tmp_path: Path) -> None:
    pipes = [tmp_path / "one", tmp_path / "two"]
    for pipe in pipes:
        os.mkfifo(pipe)
    answers: list[Any] = []
    other = threading.Thread(
        target=lambda: answers.extend(
            SparkWorkers(spark, Silent()).run("wait", wait_for_reader, [str(pipes[0])])
        )
    )
    other.start()
    workers = SparkWorkers(spark, Watched(Stage(tmp_path / "two.begun", KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        workers.run("wait", wait_for_reader, [str(pipes[1])])
    pipes[0].write_text("done", encoding="utf-8")
    other.join()
    assert answers == [{"read": "done"}]


def test_spark_shows_what_a_job_is_for(spark: SparkSession) -> None:
    groups: list[str] = []

    def action() -> int:
        groups.append(spark.sparkContext.getLocalProperty("spark.jobGroup.id") or "")
        return spark.range(3).count()

    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        with operation("load", "/data/papers.omni"), detail("ends of Cites"):
            assert SparkJobs(spark).run("check relations", action) == 3
        # Properties of the caller's thread hold for its jobs, and stay as they were.
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
        assert spark.getTags() == set()
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(groups[0])
    told = {store.job(number).description().get() for number in jobs}
    assert told == {"omnigraph load papers.omni: check relations (ends of Cites)"}


def test_names_outside_of_an_operation_are_plain() -> None:
    assert job_name("export") == "omnigraph: export"


def test_a_failing_task_is_told_by_its_own_words(spark: SparkSession) -> None:
    with pytest.raises(SparkError, match="ValueError: 'x' is odd") as caught:
        SparkWorkers(spark, Silent()).run("fail", fail, ["x"])
    # Only the operation knows whether that is so.
    assert "nothing was written" not in str(caught.value)


def fail(item: str) -> dict[str, Any]:
    raise ValueError(f"{item!r} is odd")


def test_a_cast_that_fails_names_the_value_and_the_column(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("12",), ("x1",)], "age string").selectExpr("cast(age as int)")
    with pytest.raises(SparkError) as caught:
        SparkWorkers(spark, Silent()).collect("read", lambda: frame)
    assert "The value 'x1' of the type" in str(caught.value)
    assert "age" in str(caught.value)


@each_case(
    ("text", "advice"),
    [
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap space\n", "OMNIGRAPH_SPARK_DRIVER"),
        (
            "Total size of serialized results of 12 tasks (65.3 MiB) is bigger than spark.driver.maxResultSize",
            "65.3 MiB",
        ),
        ("Not enough memory to build and broadcast the table", "autoBroadcastJoinThreshold"),
        ("Could not execute broadcast in 300 secs.", "autoBroadcastJoinThreshold"),
        (
            "Lost task 0.3: ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: …",
            "executor 7 was lost",
        ),
        ("ModuleNotFoundError: No module named 'lance'", "guide on Spark clusters"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "no module pyarrow"),
        ("ModuleNotFoundError: No module named 'pyarrow.compute'", "spark.pyspark.python"),
        ("ModuleNotFoundError: No module named 'shapely'", "no module shapely"),
        ("java.io.IOException: No space left on device", "a disk is full"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "memory"),
        ("[OPERATION_CANCELED] Operation has been canceled.", "cancelled from outside"),
    ],
)
def test_known_causes_come_with_advice(text: str, advice: str) -> None:
    assert advice in explain(RuntimeError(f"Job aborted due to stage failure.\n{text}"))


def test_a_stage_shows_the_jobs_inside_of_it() -> None:
    told: list[str] = []

    class Outer(Stage):
        def __init__(self) -> None: ...

        def tell(self, detail: str) -> None:
            told.append(detail)

    inner = InnerProgress()
    with inner.stage("unseen", 1) as stage:
        stage.update(1, 1)
    with inner.inside(Outer()):
        inner.tell("ends of Cites")
        with inner.stage("check relations", 0) as stage:
            stage.update(1, 10)
            stage.update(3, 30, total=8)
    assert told == ["ends of Cites", "ends of Cites", "ends of Cites, 3 of 8 tasks"]


class Begun:
    """A signal that is set as soon as a task has begun."""

    def __init__(self, pipe: Path) -> None:
        self._file = pipe.with_suffix(".begun")

    def is_set(self) -> bool:
        return self._file.exists()


def test_a_job_ends_with_the_work_that_it_belongs_to(spark: SparkSession, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    workers = SparkWorkers(spark, InnerProgress())
    with bounded(Budget(cancel=Begun(pipe)), "Load"), pytest.raises(QueryCancelledError):
        workers.run("wait", wait_for_reader, [str(pipe)])
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    # What comes after the work has other bounds, or none.
    assert workers.collect("count", lambda: spark.range(1)) != []


def test_further_interrupts_wait_for_the_end_of_a_job(caplog: pytest.LogCaptureFixture) -> None:
    heard = threading.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.set()

    ended = []
    main = threading.main_thread().ident
    assert main is not None

    def end() -> None:
        for _ in range(3):
            heard.clear()
            signal.pthread_kill(main, signal.SIGINT)
            assert heard.wait(60)
        ended.append(True)

    logger, ear = logging.getLogger("omnigraph.spark.jobs"), Ear()
    logger.addHandler(ear)
    try:
        outlasting(end)
    finally:
        logger.removeHandler(ear)
    assert ended == [True]
    assert {record.message for record in caplog.records} == {
        "already stopping: the tasks that run have to end first"
    }


def test_a_session_that_would_show_secrets_gets_none(spark: SparkSession) -> None:
    class Telling:
        conf = SimpleNamespace(get=lambda name, default: "password")

    workers = SparkWorkers(spark, Silent())
    workers.spark = Telling()
    with (
        pytest.raises(SparkError, match=r"spark\.redaction\.regex is 'password'"),
        workers.sealing("hush"),
    ):
        pytest.fail("the secret went out")


def test_attempts_that_lost_have_ended_before_the_result_is_there(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With speculation a job ends before its slower attempts do, and these may still write files."""
    assert not SparkJobs(spark)._speculates
    looks = [True, True, False]
    monkeypatch.setattr(SparkJobs, "_speculates", True)
    monkeypatch.setattr(SparkJobs, "_has_active_tasks", lambda *_: looks.pop(0))
    assert SparkJobs(spark).run("count", lambda: spark.range(3).count()) == 3
    assert looks == []
