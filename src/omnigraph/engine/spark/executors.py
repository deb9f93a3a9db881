"""Whether the executors of a cluster can run our tasks: same packages, same Python."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from omnigraph.engine.spark.jvm import telling_line
from omnigraph.engine.spark.kinds import is_local_master, master_of, parallelism_of
from omnigraph.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Enough to meet every executor of a usual cluster; a missing package fails its task anyway.
_MAX_TASKS = 32
_HELP = "install the same release there, or ship an environment with the job (spark.archives)"
#: How the JVM tells that a Python worker ended in the middle of a task.
_DIED = re.compile(r"Connection reset|EOFException|Python worker exited unexpectedly")
#: Distributions that tasks need, and the module by which each is imported.
PACKAGES = {"omnigraph": "omnigraph", "pylance": "lance"}


def check_executors(spark: SparkSession) -> None:
    """Make sure that tasks can run on the executors of a session. One tiny job; nothing on a local master.

    Raises:
        SparkError: an executor lacks a package, or has another version of it or of Python.
    """
    if is_local_master(master_of(spark)):
        return
    tasks = min(max(1, parallelism_of(spark)), _MAX_TASKS)
    if problem := find_mismatch(local_versions(), probe_executors(spark, tasks)):
        raise SparkError(f"{problem}; {_HELP}")


def local_versions() -> dict[str, str]:
    """The versions of this process, as executors have to have them."""
    found = {name: version(name) for name in PACKAGES}
    return found | {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def find_mismatch(expected: dict[str, str], found: Iterable[dict[str, str | None]]) -> str | None:
    """What is wrong with the first executor that differs from the driver; None when all are equal."""
    for executor in found:
        for name, wanted in expected.items():
            actual = executor.get(name)
            host = executor.get("host")
            if actual is None:
                return f"the executor on {host} cannot import {name}: {executor.get('reason')}"
            if actual != wanted:
                return f"the executor on {host} has {name} {actual}, the driver has {wanted}"
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
        raise SparkError(f"the executors cannot run Python tasks: {said}; {_HELP}") from error
    return [json.loads(row["answer"]) for row in rows]


def _probe_function(
    packages: dict[str, str],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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
