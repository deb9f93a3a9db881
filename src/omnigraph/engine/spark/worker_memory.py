"""Memory of Spark's Python workers."""

from __future__ import annotations

import gc
import os
from functools import cache

#: Spark sets it in processes that it keeps for further tasks, on executors and for planning.
_KEPT_PROCESS = "SPARK_REUSE_WORKER"


def spare_collections() -> None:
    """Leave what this worker has loaded out of every later garbage collection. Does nothing in other processes.

    A kept worker collects garbage after each task. With pyspark, pyarrow and Lance loaded that takes about 50 ms, more
    than a task that reads a few megabytes. Objects that exist now are mostly modules, and are kept anyway; reference
    counts free the others as before.
    """
    if _KEPT_PROCESS in os.environ:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
