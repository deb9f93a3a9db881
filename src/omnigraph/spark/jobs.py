"""The one door to Spark's actions: named, watched and stopped jobs, and what their failures say."""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event, Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.util import InheritableThread

from omnigraph.core.budget import check_work, finishing
from omnigraph.core.ids import new_ulid
from omnigraph.errors import SparkError
from omnigraph.frozen import frozen
from omnigraph.pipeline.workers import job_name
from omnigraph.spark.kinds import is_connect, is_stopped
from omnigraph.spark.tasks import raise_carried

if TYPE_CHECKING:
    from pyspark import SparkStageInfo
    from pyspark.sql import SparkSession


# ---- Messages of failed Spark jobs


_SHOWN_CHARACTERS = 600
_STOPPED = "the Spark session was stopped: make another one and give it with spark=, or leave spark= out"
#: Causes that are followed; a longer chain repeats itself.
_MAX_CAUSES = 20

#: What stands in the chain of causes → what to say; the first that fits wins. `{0}` is what the group found.
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        (
            r"No module named '((?:omnigraph|lance|pyarrow|pyspark)[^']*)'",
            "the Python of the executors has no module {0}: install `omnigraph` there, or name a Python that has it "
            "with PYSPARK_PYTHON or spark.pyspark.python (for Spark Connect PYSPARK_PYTHON of the server; its workers "
            "use the python3 of the PATH otherwise), or ship one with the job (see the guide on Spark clusters)",
        ),
        (
            r"No module named '([^']+)'",
            "the Python environment of the executors has no module {0}: install it there, or ship an environment with "
            "the job (see the guide on Spark clusters)",
        ),
        (
            r"Total size of serialized results of \d+ tasks? \(([^)]+)\) is bigger than",
            "the answers of the tasks take {0}, more than spark.driver.maxResultSize: set it to more in "
            "OMNIGRAPH_SPARK_CONF",
        ),
        (
            r"Not enough memory to build and broadcast|Could not execute broadcast in|Cannot broadcast the table",
            "a table that Spark wanted to send to every executor is too large for that: set "
            'OMNIGRAPH_SPARK_CONF to {{"spark.sql.autoBroadcastJoinThreshold": -1}}',
        ),
        (
            r"ExecutorLostFailure \(executor (\S+) exited[^\n]*",
            "executor {0} was lost, most often because it ran out of memory: give executors more "
            "(spark.executor.memory, spark.executor.memoryOverhead), and look into their logs",
        ),
        (
            r"Python worker exited unexpectedly \(crashed\)",
            "a Python worker died, most often because the machine ran out of memory: run fewer tasks at once "
            "(OMNIGRAPH_SPARK_MASTER=local[1], spark.executor.cores), or give the machine more",
        ),
        (
            r"java\.lang\.OutOfMemoryError: ?([^\n]*)",
            "a JVM of Spark ran out of memory ({0}): set OMNIGRAPH_SPARK_DRIVER_MEMORY to more, on a cluster "
            "spark.executor.memory",
        ),
        (
            r"No space left on device",
            "a disk is full: the one of the graph, or the one where Spark keeps intermediate files (spark.local.dir) "
            "or workers theirs (TMPDIR); free some room, or name a larger disk",
        ),
        (
            r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|NUMERIC_VALUE_OUT_OF_RANGE"
            r"[A-Z_.]*)\] (.*?)(?: SQLSTATE: \w+|\n\n|$)",
            "the frame cannot be computed: {1}",
        ),
        (
            r"OPERATION_CANCELED|cancelled part of cancelled job|has been cancelled|Job \d+ cancelled",
            "it was cancelled from outside",
        ),
        (
            r"SparkContext (?:was|has been) (?:shut down|stopped)|stopped SparkContext",
            "Spark was stopped while the job ran; the log of the driver tells why",
        ),
    )
)
#: The expression that Spark quotes below an error of a cast or a computation.
_QUOTED = re.compile(r"== (?:DataFrame|SQL[^=]*) ==\n(.+?)\n(?:was called from|\^|\n)", re.DOTALL)


def check_session(spark: SparkSession) -> None:
    """Refuse a session that cannot do anything any more.

    Raises:
        SparkError: it was stopped.
    """
    if is_stopped(spark):
        raise SparkError(_STOPPED)


@contextmanager
def spark_errors(spark: SparkSession) -> Iterator[None]:
    """Failures of calls into Spark become one that says what happened and what to change.

    Raises:
        SparkError: a call or a job failed, or the session was stopped.
        OmniError: what a task raised on purpose.
    """
    try:
        yield
    except ConnectionError as error:
        # py4j gives it as it is when the JVM does not listen any more.
        raise SparkError(
            f"the JVM of Spark does not answer ({error}): it has ended, most often because the machine ran out of "
            "memory; give Spark less (OMNIGRAPH_SPARK_DRIVER_MEMORY) or the machine more, and try again"
        ) from error
    except (PySparkException, Py4JError) as error:
        if is_stopped(spark):
            raise SparkError(_STOPPED) from error
        raise_carried(_whole_text(error))
        raise SparkError(f"a Spark job failed: {explain(error)}") from error
    except (AssertionError, AttributeError) as error:
        # The parts of a stopped context are None, and pyspark uses them all the same.
        if not is_stopped(spark):
            raise
        raise SparkError(_STOPPED) from error


def explain(error: BaseException) -> str:
    """The message of a failed job."""
    text = _whole_text(error)
    for pattern, sentence in _CAUSES:
        if found := pattern.search(text):
            groups = [(group or "").strip().rstrip(".") for group in found.groups()]
            said = sentence.format(*groups)[:_SHOWN_CHARACTERS]
            quoted = _QUOTED.search(text) if "cannot be computed" in sentence else None
            return f"{said} (in {quoted[1].strip()})" if quoted else said
    return _telling_line(text) or type(error).__name__


def _whole_text(error: BaseException) -> str:
    """The text of an error and of all its causes, those in the JVM as well."""
    texts = [str(error)]
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    # A JVM that has ended tells nothing more.
    with suppress(Py4JError, OSError, AttributeError):
        for _ in range(_MAX_CAUSES):
            if origin is None:
                break
            texts.append(str(origin.toString()))
            origin = origin.getCause()
    return "\n".join(dict.fromkeys(texts))


def _telling_line(text: str) -> str:
    """The line of a long trace that tells what happened: the error of the Python task, or the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if "Error: " in line and not line.startswith(("at ", "org.apache.spark", "File "))
    ]
    return (telling[-1] if telling else next(iter(lines), ""))[:_SHOWN_CHARACTERS]


# ---- Running Spark actions in threads
#
# A thread, because a signal cannot interrupt a call into the JVM: the caller waits here, where Ctrl-C, a time limit
# and a client that went away are noticed at once. Whatever ends the waiting also ends the job: its tag is
# interrupted, and the caller goes on only when no task of it runs any more, so that what the tasks wrote can be
# removed.
#
# Works with classic sessions and with those of Spark Connect, which know neither a context nor its job groups.


_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: How often a running job is looked at.
POLL_S = 0.2
#: How long a job may take to end after it was interrupted.
_END_TIMEOUT_S = 60.0
#: How long Spark lets the Python worker of an interrupted task live, and a little more for the way to it.
_KILL_S = 2.0 + 1.0


@frozen
class Figures:
    """The progress of the tasks of a job."""

    done: int
    total: int


def shielded(spark: SparkSession, call: Callable[[], _Result]) -> _Result:
    """The result of a call into the JVM of a session that a signal must not interrupt half-way.

    Signals reach the main thread only. It waits here, and an interrupt leaves the call to end by itself.

    Raises:
        SparkError: the call failed, or the session was stopped.
    """
    with spark_errors(spark):
        return _undisturbed(call)


def released(spark: SparkSession, call: Callable[[], object]) -> None:
    """Let go of something that a session holds. Its failure does not matter: Spark may have ended already."""
    with suppress(SparkError):
        shielded(spark, call)


def _undisturbed(call: Callable[[], _Result]) -> _Result:
    if current_thread() is not main_thread():
        return call()
    results: list[_Result] = []
    failures: list[BaseException] = []
    ended = Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the caller
            failures.append(error)
        finally:
            ended.set()

    Thread(target=work, daemon=True).start()
    # In small steps: an interrupt just before a thread falls asleep is noticed when it wakes up.
    while not ended.wait(POLL_S):
        pass
    if failures:
        raise failures[0]
    return results[0]


def outlasting(call: Callable[[], None]) -> None:
    """Wait until a call has ended, however many interrupts come meanwhile: what follows builds on its end."""

    def keep(handle: Callable[[], object]) -> None:
        try:
            handle()
        except KeyboardInterrupt:
            _log.warning("already stopping: the tasks that run have to end first")

    with _interrupts_to(keep):
        _undisturbed(call)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let interrupts wait for the end of the block.

    For calls into the JVM that belong to the thread of the caller: half-way interrupted, the next one of the thread
    would read the rest of the answer.
    """
    waiting: list[Callable[[], object]] = []
    try:
        with _interrupts_to(waiting.append):
            yield
    finally:
        for handle in waiting:
            handle()


@contextmanager
def _interrupts_to(take: Callable[[Callable[[], object]], None]) -> Iterator[None]:
    """Give interrupts of the block to a function, as a call of what handles them. They reach the main thread only."""
    if current_thread() is not main_thread():
        yield
        return
    # SIGTERM has one only where a command takes it for an interrupt.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        take(lambda: handlers[signal.Signals(number)](number, frame))

    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class SparkJobs:
    """Runs actions on one session. Thread-safe: each call has a tag and a thread of its own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._is_connect = is_connect(spark)

    def run(
        self,
        stage: str,
        action: Callable[[], _Result],
        watch: Callable[[Figures], None] = lambda _: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> _Result:
        """The result of an action, which makes its frames and collects them.

        Args:
            stage: what the job does; Spark's UI and history show it behind the name of the operation.
            action: runs in another thread.
            watch: called a few times a second while the job runs; what it raises stops the job and is raised here.
            stopping: called once when the job is stopped, before its tasks are waited for.

        Raises:
            SparkError: the job failed, or the session was stopped.
            QueryCancelledError, QueryTimeoutError: the work is not wanted any more; no task of it runs.
        """
        check_work()
        check_session(self._spark)
        job = _Job(self._spark, f"omnigraph-{new_ulid()}", job_name(stage), action)
        with self._figures(job.tag) as figures:
            try:
                # Inside: an interrupt may meet the start when the thread runs already.
                job.start()
                while not job.wait(POLL_S):
                    watch(figures())
                    check_work()
            except BaseException as reason:  # noqa: BLE001  # raised again
                # Also an interrupt: a job that nothing waits for must not go on writing files.
                try:
                    with finishing():
                        outlasting(lambda: self._stop(job, stopping))
                finally:
                    # Whatever its end meets: a failure of that is the context of the reason.
                    raise reason
        result = job.result()
        if self._speculates:
            # Attempts that lost are killed after the job has ended, and may write until then.
            self._await_tasks(job.tag, time.monotonic() + _END_TIMEOUT_S)
        return result

    @cached_property
    def _speculates(self) -> bool:
        if self._is_connect:
            return False
        conf = shielded(self._spark, lambda: self._spark.sparkContext.getConf().get("spark.speculation", ""))
        return str(conf).lower() == "true"

    def _await_tasks(self, tag: str, deadline: float) -> None:
        while time.monotonic() < deadline and self._has_active_tasks(tag):
            Event().wait(POLL_S)

    def _stop(self, job: _Job[_Result], stopping: Callable[[], None]) -> None:
        """Interrupt a job and wait until it has ended. Repeated: its next part may only just begin."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        if not job.abandon():
            return
        # Progress of a caller may fail; the job has to end all the same.
        with suppress(Exception):
            stopping()
        while not job.wait(POLL_S):
            released(self._spark, lambda: self._interrupt(job.tag))
            if time.monotonic() > deadline:
                _log.warning("a Spark job goes on although it was interrupted: %s", job.name)
                return
        if self._is_connect:
            # It tells nothing of its tasks, so they get the time after which Spark kills their workers.
            Event().wait(_KILL_S)
            return
        self._await_tasks(job.tag, deadline)

    def _interrupt(self, tag: str) -> None:
        if self._is_connect:
            self._spark.interruptTag(tag)
        else:
            self._spark.sparkContext.cancelJobsWithTag(tag)

    def _has_active_tasks(self, tag: str) -> bool:
        """Whether tasks of a job still run: the job ends before its tasks do."""
        with suppress(SparkError):
            stages = shielded(self._spark, lambda: self._stages(tag))
            return any(stage.numActiveTasks > 0 for stage in stages)
        return False

    @contextmanager
    def _figures(self, tag: str) -> Iterator[Callable[[], Figures]]:
        """A function that tells how far the job is."""
        latest = [Figures(0, 0)]
        if not self._is_connect:
            over = Event()

            def look() -> None:
                while not over.wait(POLL_S):
                    latest[0] = self._classic_figures(tag)

            # Not in the thread of the caller: an interrupt would meet it in the middle of a call.
            Thread(target=look, daemon=True).start()
            try:
                yield lambda: latest[0]
            finally:
                over.set()
            return

        def handle(stages: Any, **rest: object) -> None:
            del rest
            done = sum(stage.num_completed_tasks for stage in stages)
            latest[0] = Figures(done, sum(stage.num_tasks for stage in stages))

        # The handler sees every operation of the session; usually this is the only one.
        session: Any = self._spark
        session.registerProgressHandler(handle)
        try:
            yield lambda: latest[0]
        finally:
            session.removeProgressHandler(handle)

    def _classic_figures(self, tag: str) -> Figures:
        try:
            with spark_errors(self._spark):
                stages = self._stages(tag)
        except SparkError:
            return Figures(0, 0)
        done = sum(stage.numCompletedTasks for stage in stages)
        return Figures(done, sum(stage.numTasks for stage in stages))

    def _stages(self, group: str) -> list[SparkStageInfo]:
        tracker = self._spark.sparkContext.statusTracker()
        found: list[SparkStageInfo] = []
        for number in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(number)
            ids = [] if job is None else list(job.stageIds)
            found += [info for one in ids if (info := tracker.getStageInfo(one)) is not None]
        return found


class _Job(Generic[_Result]):
    """One action in its thread."""

    def __init__(self, spark: SparkSession, tag: str, name: str, action: Callable[[], _Result]) -> None:
        self.tag = tag
        self.name = name
        self._spark = spark
        self._action = action
        self._thread = _JobThread(self._act, spark, self._work)
        self._lock = Lock()
        self._has_begun = False
        self._is_abandoned = False
        self._ended = Event()
        self._results: list[_Result] = []
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin, with the properties and tags of the caller's thread, such as its scheduler pool.

        Raises:
            SparkError: the session does not tell them, because it was stopped or its JVM has ended.
        """
        with spark_errors(self._spark), interrupts_later():
            self._thread.start()

    def abandon(self) -> bool:
        """Do not begin, if that has not happened yet; whether it has."""
        with self._lock:
            self._is_abandoned = True
            return self._has_begun

    def _work(self, run: Callable[[], None]) -> None:
        """All that the thread does, also what pyspark does in it before the action."""
        with self._lock:
            self._has_begun = not self._is_abandoned
        try:
            if self._has_begun:
                with spark_errors(self._spark):
                    run()
        except BaseException as error:  # noqa: BLE001 - raised by `result`, in the thread of the caller
            self._failure = error
        finally:
            self._ended.set()

    def _act(self) -> None:
        self._describe()
        self._results.append(self._action())

    def _describe(self) -> None:
        if is_connect(self._spark):
            self._spark.addTag(self.tag)
            return
        context = self._spark.sparkContext
        context.addJobTag(self.tag)
        context.setJobGroup(self.tag, self.name, interruptOnCancel=True)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the action; whether it has ended, or will never do so because its thread is gone."""
        return self._ended.wait(seconds) or not self._thread.is_alive()

    def result(self) -> _Result:
        """The result of the action.

        Raises:
            BaseException: what it raised.
            SparkError: its thread ended without a word.
        """
        if self._failure is not None:
            raise self._failure
        if not self._results:
            raise SparkError(f"a Spark job ended without a result: {self.name}; try again")
        return self._results[0]


class _JobThread(InheritableThread):
    """A thread with the properties of the caller's, all of whose work goes through one function.

    pyspark copies the properties in the new thread, before the target runs: what fails there belongs to the job.
    """

    def __init__(
        self, target: Callable[[], None], spark: SparkSession, work: Callable[[Callable[[], None]], None]
    ) -> None:
        super().__init__(target=target, session=spark, daemon=True)
        self._work = work

    def run(self) -> None:
        """Run the work."""
        self._work(super().run)
