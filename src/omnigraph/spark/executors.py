"""Whether the executors of a cluster can run our tasks: same packages, same Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

from omnigraph.errors import SparkError
from omnigraph.spark.jvm import telling_line
from omnigraph.spark.kinds import is_connect, is_local_master, master_of, parallelism_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Enough to meet every executor of a usual cluster; a missing package fails its task anyway.
_MAX_TASKS = 32
_HELP = (
    "install the same release there, name a Python that has it with PYSPARK_PYTHON or spark.pyspark.python, or ship an "
    "environment with the job (spark.archives)"
)
#: The server decides about its workers alone: settings of a session do not change their Python.
_CONNECT_HELP = (
    "install the same release there, or set PYSPARK_PYTHON where the server of Spark Connect is started; without it "
    "workers use the python3 of the PATH"
)
_LACKING = re.compile(r"No module named '([^']+)'")
#: How the JVM tells that a Python worker ended in the middle of a task.
_DIED = re.compile(r"Connection reset|EOFException|Python worker exited unexpectedly")
#: Distributions that tasks need, and the module by which each is imported.
PACKAGES = {"omnigraph": "omnigraph", "pylance": "lance"}


def check_executors(spark: SparkSession) -> None:
    """Make sure that tasks can run on the executors of a session. One tiny job.

    Nothing runs for a local master of this process whose workers are the same Python, as in sessions that we make.
    Other local sessions use the python3 of the PATH unless configured.

    Raises:
        SparkError: an executor lacks a package, or has another version of it or of Python.
    """
    if is_local_master(master_of(spark)) and _has_our_python(spark):
        return
    tasks = min(max(1, parallelism_of(spark)), _MAX_TASKS)
    if problem := find_mismatch(local_versions(), probe_executors(spark, tasks)):
        raise SparkError(f"{problem}; {help_with_python(spark)}")


def _has_our_python(spark: SparkSession) -> bool:
    """Whether the workers of a local session run the Python of this process, as far as that is known."""
    if is_connect(spark):
        return False
    # Without following links: the Python of an environment is one to another Python, and knows other packages.
    found = shutil.which(spark.sparkContext.pythonExec)
    return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)


def help_with_python(spark: SparkSession) -> str:
    """The hint for executors whose Python cannot run our tasks."""
    return _CONNECT_HELP if is_connect(spark) else _HELP


def local_versions() -> dict[str, str]:
    """The versions of this process, as executors have to have them."""
    found = {name: version(name) for name in PACKAGES}
    return found | {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def find_mismatch(expected: dict[str, str], found: Iterable[dict[str, str | None]]) -> str | None:
    """The mismatch of the first executor that differs from the driver; None when all are equal."""
    for executor in found:
        for name, wanted in expected.items():
            actual = executor.get(name)
            host, path = executor.get("host"), executor.get("path")
            its_python = f" (its Python is {path})" if path else ""
            if actual is None:
                reason = executor.get("reason")
                return f"the executor on {host} cannot import {name}: {reason}{its_python}"
            if actual != wanted:
                found_there = f"the executor on {host} has {name} {actual}"
                return f"{found_there}, the driver has {wanted}{its_python}"
    return None


def probe_executors(spark: SparkSession, tasks: int) -> list[dict[str, str | None]]:
    """The versions that executors have, one answer per task.

    Raises:
        SparkError: no executor runs Python, or none at all came.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        numbers = spark.range(0, tasks, 1, tasks)
        rows = numbers.mapInArrow(_probe_function(dict(PACKAGES)), "answer string").collect()
    except (PySparkException, Py4JError) as error:
        said = telling_line(str(error))
        if _DIED.search(str(error)):
            raise SparkError(
                f"a Python worker died while the executors were looked at ({said}): try again; if it happens again, "
                "the log of the executor tells why"
            ) from error
        if lacking := _LACKING.search(str(error)):
            said = f"No module named '{lacking[1]}'"
            if path := _python_of(spark):
                said += f" in {path}"
        advice = help_with_python(spark)
        raise SparkError(f"the executors cannot run Python tasks: {said}; {advice}") from error
    return [json.loads(row["answer"]) for row in rows]


def _python_of(spark: SparkSession) -> str | None:
    """The Python of an executor that may lack Arrow, which only this kind of function does without; None if unknown."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import udf

    def path(_: int) -> str:
        import socket
        import sys

        return f"{sys.executable} on {socket.gethostname()}"

    try:
        rows = spark.range(1).select(udf(path, "string", useArrow=False)("id")).collect()
    except (PySparkException, Py4JError):
        return None  # it cannot run anything
    return str(rows[0][0])


def _probe_function(packages: dict[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # A function inside a function travels as code; one of this module would need the very package that may be missing.
    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import socket
        import sys
        from importlib import import_module, metadata

        import pyarrow as pa

        for _ in batches:
            answer: dict[str, str | None] = {
                "python": f"{sys.version_info.major}.{sys.version_info.minor}",
                "host": socket.gethostname(),
                "path": sys.executable,
            }
            for name, module in packages.items():
                try:
                    # Packages that were shipped as a bare folder know their version only by themselves.
                    loaded = import_module(module)
                    answer[name] = getattr(loaded, "__version__", "") or metadata.version(name)
                except ImportError as error:  # includes a distribution that is not installed
                    answer[name] = None
                    answer.setdefault("reason", str(error))  # the first is the one that is reported
            yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    return probe
