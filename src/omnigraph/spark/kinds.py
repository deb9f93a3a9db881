"""The two kinds of Spark sessions, classic ones and those of Spark Connect, and what both can tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARALLELISM = "spark.default.parallelism"
_MAX_FAILURES = "spark.task.maxFailures"
_DEFAULT_TRIES = 4
#: `local[2,4]`: two threads, four tries.
_LOCAL_TRIES = re.compile(r"local\[[^,]+,\s*([0-9]+)\s*\]")
#: Asking a session of Spark Connect takes a job, so it is asked once.
_KNOWN: WeakKeyDictionary[object, int] = WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: it has no context, and its JVM is somewhere else."""
    from pyspark.sql.utils import is_remote

    # A process that runs in the mode of Connect has no other sessions; others tell by their class.
    return type(spark).__module__.startswith("pyspark.sql.connect") or is_remote()


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session was stopped in this process. Asks no JVM, so one that has died does not matter."""
    if is_connect(spark):
        # Only these sessions have the property.
        return bool(getattr(spark, "is_stopped", False))
    # A context lets go of its JVM when it is stopped; pyspark 4.3 has no public answer.
    return spark.sparkContext._jsc is None


def master_of(spark: SparkSession) -> str:
    """The master of a session; empty when it is not known."""
    return spark.conf.get("spark.master", "") or ""


def is_local_master(master: str) -> bool:
    """Whether the driver of a session is its only executor."""
    return master == "local" or master.startswith("local[")


def tries_of(spark: SparkSession) -> int:
    """The number of attempts of a task before its job fails."""
    master = master_of(spark)
    if is_local_master(master):
        # The setting does not count there.
        found = _LOCAL_TRIES.fullmatch(master)
        return int(found[1]) if found else 1
    return int(spark.conf.get(_MAX_FAILURES, None) or _DEFAULT_TRIES)


def is_on_this_machine(spark: SparkSession) -> bool:
    """Whether executors of a session see the files that this process writes to its disk.

    A session of Spark Connect does not tell where its server runs.
    """
    # Also `local-cluster[…]`, whose executors are processes of this machine.
    return not is_connect(spark) and master_of(spark).startswith("local")


def application_of(spark: SparkSession) -> str:
    """The id of the application behind a session, by which a cluster and its history know it."""
    return spark.conf.get("spark.app.id", "") or ""


def ui_of(spark: SparkSession) -> str:
    """The address of Spark's UI; empty when there is none, or when only the server of a session knows it."""
    return "" if is_connect(spark) else spark.sparkContext.uiWebUrl or ""


def parallelism_of(spark: SparkSession) -> int:
    """The number of tasks a session runs at once; executors of a cluster arrive after the session."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    if spark not in _KNOWN:
        configured = spark.conf.get(_PARALLELISM, None)
        _KNOWN[spark] = int(configured) if configured else _probed(spark)
    return _KNOWN[spark]


def _probed(spark: SparkSession) -> int:
    """The number of partitions that a session cuts a plain range into: its parallelism."""
    from pyspark.sql import functions as sql

    return spark.range(1 << 16).select(sql.spark_partition_id()).distinct().count()
