"""What a failed Spark job says to a person: the cause that matters out of a long chain, and what to change."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from omnigraph.engine.spark.kinds import is_stopped
from omnigraph.errors import SparkError
from omnigraph.pipeline.spark_tasks import raise_carried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SHOWN_CHARACTERS = 600
_STOPPED = (
    "the Spark session was stopped: make another one and give it with spark=, or leave spark= out"
)
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
    """What to tell a person about a failed job."""
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
        line
        for line in lines
        if "Error: " in line and not line.startswith(("at ", "org.apache.spark", "File "))
    ]
    return (telling[-1] if telling else next(iter(lines), ""))[:_SHOWN_CHARACTERS]
