"""Frames of a load: Spark frames, Arrow tables and pandas frames, one per type.

A mapping says how a frame is read. Without one, columns have the names of properties, edges bring their ends in `from`
and `to` (or `src` and `dst`), and any type may bring `id`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as _arrow

from omnigraph.errors import BadRequestError
from omnigraph.ids import TableKey
from omnigraph.pipeline.column_map import map_columns
from omnigraph.pipeline.mapped_records import raw_records
from omnigraph.pipeline.mapping import MappedType, TypeMapping
from omnigraph.pipeline.source_columns import arrow_columns
from omnigraph.pipeline.value_sources import column_source
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow

    from omnigraph.pipeline.column_map import ColumnMap
    from omnigraph.pipeline.plan import LoadPlan
    from omnigraph.pipeline.shaping import RawRecords
    from omnigraph.pipeline.source_columns import SourceColumns
    from omnigraph.schema.catalog import Catalog

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow


class FrameAccess(Protocol):
    """What a load asks of frames that are not in this process, and of tables that become such frames."""

    def columns(self, frame: Any) -> SourceColumns:
        """The columns of a frame.

        Raises:
            SparkError: its session was stopped, or cannot tell them.
        """
        ...

    def selected(self, frame: Any, paths: Sequence[Sequence[str]], name: str) -> Any:
        """A frame with these columns only, members of structs as columns of their own.

        Raises:
            BadRequestError: two columns cannot be told apart; `name` is what the frame is called.
        """
        ...

    def table(self, name: str) -> Any:
        """A table by its name, in any catalog, as a frame.

        Raises:
            BadRequestError: there is no such table, or it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """What tasks know about a frame."""

    name: str
    type_key: TableKey
    chosen: ColumnMap
    #: What the columns of batches are, in their order; None: they have their own names.
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame and the type that it feeds."""

    type_key: TableKey
    #: A Spark frame, or an Arrow table in this process.
    data: Any
    columns: SourceColumns
    mapped: MappedType

    @property
    def is_local(self) -> bool:
        """Whether the rows are in this process already."""
        return isinstance(self.data, pa.Table)


def read_frames(
    frames: Mapping[str, object],
    catalog: Catalog,
    access: Callable[[], FrameAccess],
    mapping: TypeMapping | None = None,
) -> list[Frame]:
    """The frames that a caller gives, by type name or table key, and how the mapping reads them.

    Raises:
        BadRequestError: a name is not a type, a value is not a frame, or the mapping gives the type another source.
        SparkError: the session of a frame was stopped, or cannot tell its columns.
    """
    mapping = mapping or TypeMapping()
    found: dict[TableKey, Frame] = {}
    for name, given in frames.items():
        key = _table_key(name, catalog)
        if key in found:
            raise BadRequestError(f"there are two frames of {key}")
        entry = mapping.frames.get(key)
        if entry is None:
            _refuse_source(key, mapping)
            entry = MappedType(type_key=key, source="", timestamps=mapping.timestamps)
        data = _data(name, given)
        is_local = isinstance(data, pa.Table)
        columns = arrow_columns(data.schema) if is_local else access().columns(data)
        columns = replace(columns, index=_index_names(given))
        if key.startswith("edge:") and entry.ends is None:
            known = {*columns.names, *columns.index}
            ends = ("from", "to") if "from" in known else ("src", "dst")
            entry = replace(entry, ends=(column_source(ends[0]), column_source(ends[1])))
        mapped = replace(entry, source=f"frame {name}")
        found[key] = Frame(type_key=key, data=data, columns=columns, mapped=mapped)
    return list(found.values())


def _refuse_source(key: TableKey, mapping: TypeMapping) -> None:
    if any(item.type_key == key for item in mapping.types):
        name = key.partition(":")[2]
        raise BadRequestError(
            f"{mapping.name}, {name}: a type with a frame has an entry without `source` and `table`; "
            "leave them out, or the frame"
        )


def frame_source(frame: Frame, plan: LoadPlan) -> FrameSource:
    """A frame for tasks.

    Raises:
        BadRequestError: a column is missing, or is not a property.
    """
    shape = plan.shapes[frame.type_key]
    where = frame.mapped.source
    chosen = map_columns(frame.mapped, shape, frame.columns, where, is_strict=plan.is_strict)
    paths = None if frame.is_local else tuple(chosen.columns)
    return FrameSource(name=where, type_key=frame.type_key, chosen=chosen, paths=paths)


def chosen_columns(frame: Frame, source: FrameSource, access: FrameAccess | None) -> Any:
    """The data of a frame; of one elsewhere only what tasks read, members of structs as columns of their own.

    Raises:
        BadRequestError: two columns cannot be told apart.
    """
    if source.paths is None:
        return frame.data
    assert access is not None, "the frame is not in this process"
    paths = [source.chosen.steps.get(path, (path,)) for path in source.paths]
    return access.selected(frame.data, paths, source.name)


def partition_name(source: FrameSource, partition: int) -> str:
    """A partition of a frame, as reports call it."""
    return f"{source.name}, partition {partition}"


def frame_records(
    source: FrameSource, plan: LoadPlan, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[RawRecords]:
    """The records of one partition of a frame; they are counted from 1."""
    shape = plan.shapes[source.type_key]
    first = 0
    for given in batches:
        batch = given.rename_columns(list(source.paths)) if source.paths else given
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


def _index_names(given: Any) -> tuple[str, ...]:
    if type(given).__module__.partition(".")[0] != "pandas":
        return ()
    return tuple(name for name in given.index.names if isinstance(name, str))


def _data(name: str, given: Any) -> Any:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    module = type(given).__module__.partition(".")[0]
    if module == "pyspark" and hasattr(given, "mapInArrow"):
        return given
    if module == "pandas" and hasattr(given, "to_numpy") and hasattr(given, "columns"):
        try:
            return pa.Table.from_pandas(given, preserve_index=False)
        except (ValueError, TypeError) as error:
            # Two columns of one name, or values of several types in one.
            raise BadRequestError(f"frame `{name}` cannot be read: {error}") from error
    raise BadRequestError(
        f"frame `{name}` is a {type(given).__name__}: give a Spark frame, an Arrow table or a pandas frame"
    )
