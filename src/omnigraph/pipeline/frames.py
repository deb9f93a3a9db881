"""Frames of a load: Spark frames, Arrow tables and pandas frames, one per type. Columns have the names of properties.

Edges bring their ends in `from` and `to` (or `src` and `dst`), and any type may bring `id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as _arrow

from omnigraph.errors import BadRequestError
from omnigraph.ids import TableKey
from omnigraph.pipeline.mapping import MappedType, map_columns
from omnigraph.pipeline.reading import raw_records
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow

    from omnigraph.pipeline.mapping import ColumnMap
    from omnigraph.pipeline.plan import LoadPlan
    from omnigraph.pipeline.shaping import RawRecords
    from omnigraph.schema import Catalog

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """What tasks know about a frame."""

    name: str
    type_key: TableKey
    chosen: ColumnMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame and the type that it feeds."""

    type_key: TableKey
    #: A Spark frame, or an Arrow table in this process.
    data: Any
    mapped: MappedType

    @property
    def is_local(self) -> bool:
        """Whether the rows are in this process already."""
        return isinstance(self.data, pa.Table)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.data.schema.names if self.is_local else self.data.columns)


def read_frames(frames: Mapping[str, object], catalog: Catalog) -> list[Frame]:
    """The frames that a caller gives, by type name or table key.

    Raises:
        BadRequestError: a name is no type, or a value no frame.
    """
    found = []
    for name, given in frames.items():
        key = _table_key(name, catalog)
        data = _data(name, given)
        columns = list(data.schema.names if isinstance(data, pa.Table) else data.columns)
        ends = None
        if key.startswith("edge:"):
            ends = ("from", "to") if "from" in columns else ("src", "dst")
        mapped = MappedType(type_key=key, source=f"frame {name}", format=None, ends=ends)
        found.append(Frame(type_key=key, data=data, mapped=mapped))
    return found


def frame_source(frame: Frame, plan: LoadPlan) -> FrameSource:
    """A frame for tasks.

    Raises:
        BadRequestError: a column is missing, or is no property.
    """
    shape = plan.shapes[frame.type_key]
    where = frame.mapped.source
    chosen = map_columns(frame.mapped, shape, frame.columns, where, is_strict=plan.is_strict)
    return FrameSource(name=where, type_key=frame.type_key, chosen=chosen)


def frame_records(
    source: FrameSource, plan: LoadPlan, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[RawRecords]:
    """The records of one partition of a frame; they are counted from 1."""
    shape = plan.shapes[source.type_key]
    first = 0
    for batch in batches:
        if batch.num_rows:
            numbers = np.arange(first + 1, first + batch.num_rows + 1, dtype=np.int64)
            first += batch.num_rows
            yield raw_records(shape, batch, source.chosen, numbers)


def _table_key(name: str, catalog: Catalog) -> TableKey:
    known = [f"node:{item}" for item in catalog.nodes] + [f"edge:{item}" for item in catalog.edges]
    matching = [key for key in known if name in (key, key.partition(":")[2])]
    if len(matching) == 1:
        return TableKey(matching[0])
    if matching:
        raise BadRequestError(f"`{name}` is a node and an edge type: write {' or '.join(matching)}")
    hint = did_you_mean(name, [key.partition(":")[2] for key in known])
    raise BadRequestError(f"there is no type `{name}`" + (f": {hint}" if hint else ""))


def _data(name: str, given: Any) -> Any:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    module = type(given).__module__.partition(".")[0]
    if module == "pyspark" and hasattr(given, "mapInArrow"):
        return given
    if module == "pandas" and hasattr(given, "to_numpy") and hasattr(given, "columns"):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise BadRequestError(
        f"frame `{name}` is a {type(given).__name__}: give a Spark frame, an Arrow table or a pandas frame"
    )
