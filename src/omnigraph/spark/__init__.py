"""Spark: the only room that imports pyspark, entered through the names below.

Owns: the one Spark session of a process and its JVM, workers on executors, joins and frames of loads, the choice of
workers, and two ways to read a type as a DataFrame: `spark_frame` and the data source `omnigraph`. Nothing here imports
pyspark before it is used. Start reading at `session`, then `workers` and `data_source`.
"""

from typing import TYPE_CHECKING

from omnigraph.core.extras import need
from omnigraph.core.lazy_exports import late_exports

if TYPE_CHECKING:
    from omnigraph.spark.data_source import OmniGraphDataSource as OmniGraphDataSource
    from omnigraph.spark.data_source import spark_frame as spark_frame
    from omnigraph.spark.executors import check_executors as check_executors
    from omnigraph.spark.frames import SparkFrames as SparkFrames
    from omnigraph.spark.session import SparkSettings as SparkSettings
    from omnigraph.spark.session import spark_session as spark_session
    from omnigraph.spark.worker_choice import ElasticWorkers as ElasticWorkers
    from omnigraph.spark.worker_choice import Session as Session
    from omnigraph.spark.worker_choice import choose_workers as choose_workers
    from omnigraph.spark.worker_choice import make_engine as make_engine
    from omnigraph.spark.worker_choice import session_of_frames as session_of_frames

#: Where the names are; only those of `worker_choice` are of use without pyspark.
_HOMES = {
    "ElasticWorkers": "worker_choice",
    "OmniGraphDataSource": "data_source",
    "Session": "worker_choice",
    "SparkFrames": "frames",
    "SparkSettings": "session",
    "check_executors": "executors",
    "choose_workers": "worker_choice",
    "make_engine": "worker_choice",
    "session_of_frames": "worker_choice",
    "spark_frame": "data_source",
    "spark_session": "session",
}

__all__ = list(_HOMES)
_find = late_exports(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if _HOMES.get(name, "worker_choice") != "worker_choice":
        need("pyspark", f"`{name}`")
    return _find(name)
