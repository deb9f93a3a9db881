"""Frames and tables of Spark, as a load asks for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from typing_extensions import override

from omnigraph.core.arrow import Rows
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.shape.value_sources import ItemSource
from omnigraph.pipeline.sources.column_map import STRUCT, Nested, SourceColumns, list_of, map_of
from omnigraph.pipeline.sources.planning import FrameAccess
from omnigraph.spark.jobs import SparkJobs, check_session, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFrames(FrameAccess):
    """Frames of Spark; tables are those of a session."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark

    @override
    def columns(self, frame: Any) -> SourceColumns:
        check_session(frame.sparkSession)
        with spark_errors(frame.sparkSession):
            schema: StructType = frame.schema
        nested = {item.name: _nested(item.dataType) for item in schema}
        return SourceColumns(names=tuple(schema.names), nested=nested)

    @override
    def selected(self, frame: Any, paths: Sequence[Sequence[str]], name: str) -> object:
        # Spark takes a point in the name of a column for a path: the columns get numbers for their way to the tasks.
        columns = [f"{'.'.join(map(_quoted, some))} AS c{number}" for number, some in enumerate(paths)]
        try:
            # Rows without columns would not be counted.
            found = frame.selectExpr(*(columns or ["1 AS c0"]))
            # A session of Spark Connect looks at the columns only when it has to.
            _ = found.schema
            return found
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise BadRequestError(f"{name}: Spark cannot select its columns: {reason}") from error

    @override
    def table(self, name: str) -> object:
        assert self._spark is not None, "tables belong to a session"
        try:
            frame = self._spark.table(name)
            # A session of Spark Connect looks for it only when it has to.
            _ = frame.columns
            return frame
        except ParseException as error:
            raise BadRequestError(
                f"`table: {name}` is not the name of a table: put a part with other characters in backticks"
            ) from error
        except (PySparkException, Py4JError) as error:
            # The latter for a catalog whose classes the session lacks.
            if not isinstance(error, PySparkException) or error.getCondition() not in _NOT_FOUND:
                raise BadRequestError(f"Spark cannot read the table {name}: {_reason(error)}") from error
            raise BadRequestError(
                f"Spark has no table {name} in its catalogs ({', '.join(_catalogs(self._spark))}): give it as "
                "catalog.database.table; a catalog is a setting of the session (spark.sql.catalog.NAME)"
            ) from error

    def first_rows(self, frame: Any, count: int) -> Rows:
        """Some rows of a frame, in this process.

        Raises:
            SparkError: a job failed, or its session was stopped.
        """
        rows: Rows = SparkJobs(frame.sparkSession).run("look at a frame", lambda: frame.limit(count).toArrow())
        return rows

    def distinct(self, frames: Sequence[tuple[Any, str, ItemSource | None]], name: str) -> object:
        """A frame with the different values of columns of frames, null left out, in one column of that name.

        Beside a column stands the column of lists that it is an item of.
        """
        columns = [
            _with_items(frame, each).selectExpr(f"{'.'.join(map(_quoted, path.split('.')))} AS {_quoted(name)}")
            for frame, path, each in frames
        ]
        found = columns[0]
        for column in columns[1:]:
            found = found.unionByName(column)
        return found.dropna().distinct()


def _with_items(frame: Any, each: ItemSource | None) -> Any:
    """A frame with one row per item of a column of lists."""
    if each is None:
        return frame
    column = _quoted(each.column)
    if each.split is not None:
        column = f"split({column}, '{re.escape(each.split)}')"
    elif isinstance(frame.schema[each.column].dataType, MapType):
        column = f"map_entries({column})"
    return frame.selectExpr(f"explode({column}) AS {_quoted(each.column)}")


def _nested(kind: DataType) -> Nested | None:
    """What a type of Spark holds besides single values."""
    match kind:
        case StructType():
            return Nested(kind=STRUCT, members={item.name: _nested(item.dataType) for item in kind})
        case MapType():
            return map_of(_nested(kind.keyType), _nested(kind.valueType))
        case ArrayType():
            inner = _nested(kind.elementType)
            return None if inner is None else list_of(inner)
    return None


def _quoted(name: str) -> str:
    """A name in the SQL of Spark."""
    return "`" + name.replace("`", "``") + "`"


def _reason(error: Exception) -> str:
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    telling = [line for line in lines if "Exception: " in line]
    return (telling or lines or [type(error).__name__])[0][:300]


#: Conditions of Spark that mean that a part of a name is unknown.
_NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE")
_CATALOG_SETTING = re.compile(r"spark[.]sql[.]catalog[.]([^.]+)")


def _catalogs(spark: SparkSession) -> list[str]:
    """The catalogs that a session uses or could use."""
    loaded = [item.name for item in spark.catalog.listCatalogs()]
    configured = [found[1] for key in spark.conf.getAll if (found := _CATALOG_SETTING.fullmatch(key))]
    return list(dict.fromkeys([*loaded, *configured]))
