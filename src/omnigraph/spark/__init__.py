"""Spark: the only room that imports pyspark, entered through the names below.

Owns: the one Spark session of a process and its JVM, workers on executors, joins and frames of loads, the choice of
workers, and two ways to read a type as a DataFrame: `spark_frame` and the data source `omnigraph`. Nothing here imports
pyspark before it is used. Start reading at `session`, then `workers` and `data_source`.
"""

from typing import TYPE_CHECKING

from omnigraph.core.lazy_exports import late_exports

if TYPE_CHECKING:
    from omnigraph.spark.data_source import OmniGraphDataSource, spark_frame
    from omnigraph.spark.executors import check_executors
    from omnigraph.spark.session import SparkSettings, spark_session

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
        "OmniGraphDataSource": "data_source",
        "SparkSettings": "session",
        "check_executors": "executors",
        "spark_frame": "data_source",
        "spark_session": "session",
    },
)
