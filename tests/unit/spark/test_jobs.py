"""Jobs: named, watched, and ended together with whatever waits for them."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import Broadcast
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from omnigraph import Graph
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.core.budget import Budget, bounded
from omnigraph.errors import (
    BadRequestError,
    HistoricalVersionReclaimedError,
    QueryCancelledError,
    QueryTimeoutError,
    SparkError,
    StorageError,
    StorageFailure,
)
from omnigraph.pipeline.keys import key_scans, text_key
from omnigraph.pipeline.workers import STOPPING, InnerProgress, Silent, advance, detail, job_name, operation
from omnigraph.spark import check_executors, executors, spark_session, tasks
from omnigraph.spark.executors import PACKAGES, find_mismatch, local_versions, probe_executors
from omnigraph.spark.jobs import SparkJobs, check_session, explain, interrupts_later, outlasting, spark_errors
from omnigraph.spark.joins import SparkJoins
from omnigraph.spark.kinds import tries_of
from omnigraph.spark.tasks import Kept, TaskFailureError, carrying, guarded, raise_carried
from omnigraph.spark.worker_choice import session_of_frames
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.location import RECLAIMED_MARK
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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), QueryTimeoutError(1.0, "Load")], ids=["interrupt", "timeout"])
def test_whatever_ends_the_waiting_ends_the_job(spark: SparkSession, tmp_path: Path, error: BaseException) -> None:
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


def test_a_job_whose_thread_fails_before_the_action_ends(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
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
        target=lambda: answers.extend(SparkWorkers(spark, Silent()).run("wait", wait_for_reader, [str(pipes[0])]))
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
    assert {record.message for record in caplog.records} == {"already stopping: the tasks that run have to end first"}


def test_an_interrupt_waits_for_the_end_of_a_call_that_belongs_to_its_thread() -> None:
    steps = []

    def call() -> None:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("the call ended")
        steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        call()
    assert steps == ["the call ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_session_that_would_show_secrets_gets_none(spark: SparkSession) -> None:
    class Telling:
        conf = SimpleNamespace(get=lambda name, default: "password")

    workers = SparkWorkers(spark, Silent())
    workers.spark = Telling()
    with pytest.raises(SparkError, match=r"spark\.redaction\.regex is 'password'"), workers.sealing("hush"):
        pytest.fail("the secret went out")


def test_attempts_that_lost_have_ended_before_the_result_is_there(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With speculation a job ends before its slower attempts do, and these may still write files."""
    assert not SparkJobs(spark)._speculates
    looks = [True, True, False]
    monkeypatch.setattr(SparkJobs, "_speculates", True)
    monkeypatch.setattr(SparkJobs, "_has_active_tasks", lambda *_: looks.pop(0))
    assert SparkJobs(spark).run("count", lambda: spark.range(3).count()) == 3
    assert looks == []


# ---- Executors that lack something, or have another version of it


class Cluster:
    """A session as far as its master matters."""

    def __init__(self) -> None:
        self.conf = {"spark.master": "spark://host:7077"}

    class sparkContext:  # the name of pyspark
        defaultParallelism = 100


def test_executors_answer_with_what_they_have(spark: SparkSession) -> None:
    answers = probe_executors(spark, 2)
    assert len(answers) == 2
    assert find_mismatch(local_versions(), answers) is None


def test_a_package_that_executors_lack_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "absent", "absent_package")
    (answer,) = probe_executors(spark, 1)
    problem = find_mismatch(local_versions_with("absent"), [answer])
    assert problem is not None
    assert "cannot import absent: No module named 'absent_package'" in problem
    assert problem.endswith(f"(its Python is {sys.executable})")


def test_a_python_without_arrow_is_named_with_its_path(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(packages: dict[str, str]) -> Any:
        def probe(batches: Any) -> Any:
            raise ModuleNotFoundError("No module named 'pyarrow'")

        return probe

    monkeypatch.setattr(executors, "_probe_function", failing)
    with pytest.raises(SparkError) as caught:
        probe_executors(spark, 1)
    assert f"No module named 'pyarrow' in {sys.executable} on " in caught.value.message
    assert "PYSPARK_PYTHON or spark.pyspark.python" in caught.value.message


def local_versions_with(name: str) -> dict[str, str]:
    return {"python": local_versions_of_python(), name: "1"}


def local_versions_of_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def test_nothing_runs_on_a_local_master(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "probe_executors", lambda *_: pytest.fail("a job ran"))
    check_executors(spark)


def test_a_server_of_spark_connect_is_looked_at_also_on_a_local_master(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = local_versions() | {"host": "far", "path": "/usr/bin/python3", "python": "3.8"}
    monkeypatch.setattr(executors, "is_connect", lambda _: True)
    monkeypatch.setattr(executors, "probe_executors", lambda *_: [answer])
    with pytest.raises(SparkError) as caught:
        check_executors(spark)
    assert "(its Python is /usr/bin/python3)" in caught.value.message
    assert "set PYSPARK_PYTHON where the server of Spark Connect is started" in caught.value.message


def test_a_local_session_with_another_python_is_looked_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other))
    looked: list[int] = []
    monkeypatch.setattr(executors, "probe_executors", lambda _, tasks: looked.append(tasks) or [])
    check_executors(spark)
    assert looked == [2]


@pytest.mark.parametrize(
    ("name", "actual", "said"),
    [
        ("omnigraph", "0.0.1", "the executor on far has omnigraph 0.0.1, the driver has"),
        ("pylance", "1.0", "has pylance 1.0"),
        ("python", "3.8", "has python 3.8"),
        ("pylance", None, "cannot import pylance: gone"),
    ],
)
def test_a_difference_on_a_cluster_is_an_error_with_advice(
    name: str, actual: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = local_versions() | {"host": "far", "reason": "gone", name: actual}
    asked: list[int] = []

    def probe(spark: Any, tasks: int) -> list[dict[str, str | None]]:
        asked.append(tasks)
        return [dict(local_versions()), answer]

    monkeypatch.setattr(executors, "probe_executors", probe)
    with pytest.raises(SparkError, match=r"spark\.archives") as caught:
        check_executors(Cluster())  # type: ignore[arg-type]  # a stand-in
    assert said in caught.value.message
    assert asked == [32]


def test_equal_executors_on_a_cluster_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "probe_executors", lambda *_: [dict(local_versions())])
    check_executors(Cluster())  # type: ignore[arg-type]  # a stand-in


# ---- Typed failures of tasks reach the driver as what they are, whatever the task gives


def busy_once(marks: str) -> dict[str, Any]:
    """A task whose store is busy on the first try."""
    mark = Path(marks) / "tried"
    if not mark.exists():
        mark.touch()
        raise StorageError("SlowDown", StorageFailure.TRANSIENT)
    return {"rows": 1}


def always_busy(marks: str) -> dict[str, Any]:
    with (Path(marks) / "tries").open("a", encoding="utf-8") as file:
        file.write("x")
    raise StorageError("SlowDown", StorageFailure.TRANSIENT)


def test_a_busy_store_is_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    workers = SparkWorkers(spark, Silent())
    assert workers.tries == 3
    assert workers.run("write", busy_once, [str(tmp_path)]) == [{"rows": 1}]
    with pytest.raises(StorageError) as caught:
        workers.run("write", always_busy, [str(tmp_path)])
    assert caught.value.failure is StorageFailure.TRANSIENT
    assert (tmp_path / "tries").read_text("utf-8") == "xxx"


def test_keys_of_a_version_that_was_cleaned_up_are_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", "node Note { key: String @key }") as graph:
        lines = tmp_path / "notes.jsonl"
        lines.write_text('{"type": "Note", "data": {"key": "1"}}\n', encoding="utf-8")
        graph.load(lines, mode="append", engine="local")
        store, pin = graph._core.environment.tables, graph.snapshot().pins["node:Note"]
        table = open_pin(store, pin)
        scans = key_scans(table, None, text_key("id"))
        shutil.rmtree(str(table._dataset.uri))
        joins = SparkJoins(SparkWorkers(spark, Silent()), small_rows=0)
        with pytest.raises(StorageError), reading_pins(store, [pin]):
            joins.duplicated(scans)
        mark = Path(str(table._dataset.uri)) / RECLAIMED_MARK
        mark.parent.mkdir()
        mark.touch()
        with pytest.raises(HistoricalVersionReclaimedError) as caught, reading_pins(store, [pin]):
            joins.duplicated(scans)
    assert isinstance(caught.value.__cause__, StorageError)


# ---- What functions do inside tasks of Spark, without Spark


def failing(failure: StorageFailure) -> Any:
    def work() -> list[dict[str, Any]]:
        raise StorageError("the store is busy", failure)

    return work


def test_a_failure_that_may_go_away_is_left_to_spark_while_it_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt in range(3):
        monkeypatch.setattr(tasks, "attempt_number", lambda number=attempt: number)
        with pytest.raises(StorageError):
            guarded(failing(StorageFailure.TRANSIENT), 4)
    monkeypatch.setattr(tasks, "attempt_number", lambda: 3)
    assert guarded(failing(StorageFailure.TRANSIENT), 4)[0]["failure"]["failure"] == "transient"


@pytest.mark.parametrize("tries", [1, 4])
def test_a_failure_that_stays_is_an_answer_at_once(tries: int) -> None:
    (answer,) = guarded(failing(StorageFailure.NOT_FOUND), tries)
    assert answer["failure"]["failure"] == "not_found"


def test_a_typed_failure_survives_the_text_of_a_trace() -> None:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        raise StorageError('a "quoted"\nname', StorageFailure.NOT_FOUND)

    rows = carrying(function)(iter([1, 2]))
    assert [next(rows), next(rows)] == [1, 2]
    with pytest.raises(TaskFailureError) as raised:
        next(rows)
    text = f"Job aborted: Traceback (most recent call last):\n  x.TaskFailureError: {raised.value}\n\n\tat org"
    with pytest.raises(StorageError, match="quoted") as caught:
        raise_carried(text)
    assert caught.value.failure is StorageFailure.NOT_FOUND
    assert caught.value.message == 'a "quoted"\nname'


@each_case("text", ["", "ValueError: x", "omnigraph-failure: {cut", "omnigraph-failure: 7"])
def test_other_texts_carry_nothing(text: str) -> None:
    raise_carried(text)


def test_failures_of_requests_are_carried_too() -> None:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        raise BadRequestError("no such column")

    with pytest.raises(TaskFailureError) as raised:
        list(carrying(function)(iter([])))
    with pytest.raises(BadRequestError, match="no such column"):
        raise_carried(str(raised.value))


class Value:
    """Something large."""


def test_a_worker_process_lets_go_of_what_it_kept() -> None:
    gone = Event()
    made: list[str] = []

    def make() -> Value:
        made.append("one")
        value = Value()
        weakref.finalize(value, gone.set)
        return value

    kept: Kept[Value] = Kept(0.05)
    with kept.holding("ids", make):
        assert not gone.wait(0.2), "it goes when it is not used"
    assert gone.wait(60)
    assert made == ["one"]


def test_tasks_of_one_stage_share_what_they_keep() -> None:
    kept: Kept[str] = Kept(60)
    made: list[str] = []

    def make(name: str) -> Any:
        return lambda: made.append(name) or name

    for key in ("a", "a", "b", "a"):
        with kept.holding(key, make(key)) as value:
            assert value == key
    assert made == ["a", "b", "a"]


# ---- Which session a load of frames uses


def session(context: object) -> Any:
    """A classic session, as far as it is asked here."""
    made = SparkSession.__new__(SparkSession)
    made._sc = context
    return made


def frame(owner: Any, name: str = "Paper") -> Any:
    data = SimpleNamespace(sparkSession=owner)
    return SimpleNamespace(is_local=False, data=data, mapped=SimpleNamespace(source=f"frame {name}"))


LOCAL: Any = SimpleNamespace(is_local=True)


def test_frames_bring_their_session() -> None:
    context = object()
    mine, sibling = session(context), session(context)
    assert session_of_frames(None, [LOCAL]) is None
    assert session_of_frames(None, [LOCAL, frame(mine)]) is mine
    assert session_of_frames(mine, [LOCAL]) is mine
    # Sessions of one context run their jobs together.
    assert session_of_frames(mine, [frame(sibling)]) is mine


def test_frames_of_two_sessions_are_refused() -> None:
    one, other = session(object()), session(object())
    with pytest.raises(BadRequestError, match="frame Paper and frame Cites belong to two Spark"):
        session_of_frames(None, [frame(one), frame(other, "Cites")])
    with pytest.raises(BadRequestError, match="spark= and frame Paper belong to two"):
        session_of_frames(one, [frame(other)])


def test_a_stopped_session_is_refused_with_a_sentence() -> None:
    stopped = session(SimpleNamespace(_jsc=None))
    with pytest.raises(SparkError, match="the Spark session was stopped"):
        check_session(stopped)
    with pytest.raises(SparkError, match="the Spark session was stopped"), spark_errors(stopped):
        stopped.sparkContext._jsc.sc()


def test_a_process_of_spark_connect_without_a_session_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setattr(SparkSession, "active", none)
    with pytest.raises(SparkError, match=r"works with Spark Connect and has no session.*spark="):
        spark_session(0)


def test_mistakes_of_our_own_stay_what_they_are() -> None:
    alive = session(SimpleNamespace(_jsc=object()))
    with pytest.raises(AttributeError), spark_errors(alive):
        alive.sparkContext._jsc.sc()


@each_case(
    ("master", "setting", "tries"),
    [
        ("local", "9", 1),
        ("local[*]", None, 1),
        ("local[2,4]", None, 4),
        ("local[*, 3]", None, 3),
        ("local-cluster[2,1,1024]", None, 4),
        ("spark://host:7077", "7", 7),
        ("", None, 4),
    ],
)
def test_how_often_a_task_is_tried(master: str, setting: str | None, tries: int) -> None:
    settings = {"spark.master": master, "spark.task.maxFailures": setting}
    fake: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, _: settings[name]))
    assert tries_of(fake) == tries
