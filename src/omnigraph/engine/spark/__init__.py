"""Spark as a machine: its Java, its session, and the data source that reads graphs from any Spark job.

Owns: the one Spark session of a process, the choice of a Java runtime, the class archive that makes starts short, and
the two ways to read a type as a DataFrame: `spark_frame` and the data source `omnigraph`. Never plans a load: that is
`omnigraph.pipeline`. Nothing here imports pyspark before it is used. Start reading at `session`, then `reading`.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports

if TYPE_CHECKING:
    from omnigraph.engine.spark.datasource import OmniGraphDataSource
    from omnigraph.engine.spark.executors import check_executors
    from omnigraph.engine.spark.frames import spark_frame
    from omnigraph.engine.spark.session import spark_session
    from omnigraph.engine.spark.settings import SparkSettings

__all__ = [
    "OmniGraphDataSource",
    "SparkSettings",
    "check_executors",
    "spark_frame",
    "spark_session",
]

__getattr__ = late_exports(
    __name__,
    {
        "OmniGraphDataSource": "datasource",
        "SparkSettings": "settings",
        "check_executors": "executors",
        "spark_frame": "frames",
        "spark_session": "session",
    },
)
