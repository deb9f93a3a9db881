"""Files, mappings or frames as one planned input."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from omnigraph.core.extras import is_installed
from omnigraph.core.ids import TableKey
from omnigraph.core.source import did_you_mean
from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.shape.leniency import Said
from omnigraph.pipeline.shape.plan import LoadPlan
from omnigraph.pipeline.shape.shaping import RawRecords
from omnigraph.pipeline.shape.value_sources import column_source
from omnigraph.pipeline.sources.column_map import ColumnMap, SourceColumns, arrow_columns, map_columns, raw_records
from omnigraph.pipeline.sources.inputs import FRAME_PER_TYPE, InputFile, check_one_input, find_files
from omnigraph.pipeline.sources.local_frames import LocalRows, StreamedRows, local_rows
from omnigraph.pipeline.sources.mapping import (
    MappedType,
    SourceFormat,
    TypeMapping,
    endings_of,
    format_of,
    read_mapping,
)
from omnigraph.pipeline.sources.parts import GRAPH_ENDINGS, Part, cut_graph_files, cut_mapped_files
from omnigraph.pipeline.sources.reading import PartReader
from omnigraph.pipeline.violations import ViolationCounts

if TYPE_CHECKING:
    import pyarrow


# ---- Frames: of Spark, and of this process
#
# A mapping says how a frame is read. Without one, columns have the names of properties, edges bring their ends in
# `from` and `to` (or `src` and `dst`), and any type may bring `id`.


class FrameAccess(Protocol):
    """Access to frames that are not in this process, and to tables that become such frames."""

    def columns(self, frame: object) -> SourceColumns:
        """The columns of a frame.

        Raises:
            SparkError: its session was stopped, or cannot tell them.
        """
        ...

    def selected(self, frame: object, paths: Sequence[Sequence[str]], name: str) -> object:
        """A frame with these columns only, members of structs as columns of their own.

        Raises:
            BadRequestError: two columns cannot be told apart; `name` is what the frame is called.
        """
        ...

    def table(self, name: str) -> object:
        """A table by its name, in any catalog, as a frame.

        Raises:
            BadRequestError: there is no such table, or it cannot be read.
        """
        ...


@frozen(kw_only=True)
class FrameSource:
    """A frame as tasks need it."""

    name: str
    type_key: TableKey
    chosen: ColumnMap
    #: What the columns of batches are, in their order; None: they have their own names.
    paths: tuple[str, ...] | None = None


@frozen(kw_only=True)
class Frame:
    """A frame and the type that it feeds."""

    type_key: TableKey
    #: A Spark frame, or `LocalRows`.
    data: Any
    columns: SourceColumns
    mapped: MappedType

    @property
    def is_local(self) -> bool:
        """Whether the rows are in this process already."""
        return isinstance(self.data, LocalRows)

    def close(self) -> None:
        """Forget the rows of a stream."""
        if isinstance(self.data, StreamedRows):
            self.data.close()


def read_frames(
    frames: Mapping[str, object],
    catalog: Catalog,
    access: Callable[[], FrameAccess],
    mapping: TypeMapping | None = None,
    *,
    is_patch: bool = False,
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
            entry = MappedType(
                type_key=key,
                source="",
                timestamps=mapping.timestamps,
                duplicates=mapping.duplicates,
                dangling=mapping.dangling,
            )
        data = frame_data(name, given)
        columns = arrow_columns(data.schema) if isinstance(data, LocalRows) else access().columns(data)
        columns = replace(columns, index=_index_names(given))
        if key.kind == "edge" and entry.ends is None:
            known = {*columns.names, *columns.index}
            ends = ("from", "to") if "from" in known else ("src", "dst")
            # A patch names edges by their ids.
            if not is_patch or known >= set(ends):
                entry = replace(entry, ends=(column_source(ends[0]), column_source(ends[1])))
        mapped = replace(entry, source=f"frame {name}")
        found[key] = Frame(type_key=key, data=data, columns=columns, mapped=mapped)
    return list(found.values())


def _refuse_source(key: TableKey, mapping: TypeMapping) -> None:
    if any(item.type_key == key for item in mapping.types):
        raise BadRequestError(
            f"{mapping.name}, {key.name}: a type with a frame has an entry without `source` and `table`; "
            "leave them out, or the frame"
        )


def frame_source(frame: Frame, plan: LoadPlan) -> FrameSource:
    """A frame for tasks.

    Raises:
        BadRequestError: a column is missing, or is not a property.
    """
    shape = plan.shapes[frame.type_key]
    where = frame.mapped.source
    chosen = map_columns(frame.mapped, shape, frame.columns, where, is_strict=plan.is_strict, is_patch=plan.is_patch)
    paths = None if frame.is_local else tuple(chosen.stored_columns)
    return FrameSource(name=where, type_key=frame.type_key, chosen=chosen, paths=paths)


def chosen_columns(frame: Frame, source: FrameSource, access: FrameAccess | None) -> object:
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


def frame_records(source: FrameSource, plan: LoadPlan, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[RawRecords]:
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
    matching = catalog.keys_named(name)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise BadRequestError(f"`{name}` is a node and an edge type: write {' or '.join(matching)}")
    hint = did_you_mean(name, [key.name for key in catalog.types])
    raise BadRequestError(f"there is no type `{name}`" + (f": {hint}" if hint else ""))


def _index_names(given: Any) -> tuple[str, ...]:
    if type(given).__module__.partition(".")[0] != "pandas":
        return ()
    return tuple(name for name in given.index.names if isinstance(name, str))


def frame_data(name: str, given: object) -> object:
    """The rows of a frame in this process, or a frame of Spark as it is.

    Raises:
        BadRequestError: it is not a frame, or cannot be read as columns.
    """
    # Spark first: its frames can be streamed as well, and then all of their rows would come into this process.
    if type(given).__module__.partition(".")[0] == "pyspark" and hasattr(given, "mapInArrow"):
        return given
    rows = local_rows(name, given)
    if rows is not None:
        return rows
    hint = ": give `frame.collect()`" if type(given).__name__ == "LazyFrame" else ""
    raise BadRequestError(f"frame `{name}` is a {type(given).__name__}{hint or _FRAME_KINDS}")


# ---- Planning the input of a load


_FRAME_KINDS = ": give a frame of Spark, pandas or polars, an Arrow table or stream, or a list of dictionaries"


@frozen(kw_only=True)
class LoadInput:
    """The input of a load, inspected but not read."""

    #: Path, directory or pattern of graph records.
    source: str | None = None
    mapped: tuple[MappedType, ...] = ()
    frames: tuple[Frame, ...] = ()
    #: The size of all files as they are stored, and of frames in this process.
    size_bytes: int = 0
    #: About the same without compression.
    likely_bytes: int = 0
    #: The first file of every entry of the mapping that has files.
    first_files: tuple[tuple[MappedType, InputFile], ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether the records have an order, so that the last one of an id may win."""
        tables = [item for item in self.mapped if item.format is SourceFormat.TABLE]
        return not self.frames and not tables

    @property
    def places(self) -> list[str]:
        """The files, folders and patterns that are read."""
        mapped = [item.source for item in self.mapped if item.format is not SourceFormat.TABLE]
        return mapped if self.source is None else [self.source]

    @property
    def only_spark(self) -> str:
        """The first source that only Spark reads, with what it is; empty where there is none."""
        for item in self.mapped:
            if item.format is SourceFormat.TABLE:
                return f"`table: {item.source}` is a Spark table"
        for frame in self.frames:
            if not frame.is_local:
                return f"{frame.mapped.source} is a Spark frame"
        return ""

    @property
    def rules(self) -> list[Said]:
        """What the mapping says about equal ids and edges without an end."""
        entries = [*self.mapped, *(frame.mapped for frame in self.frames)]
        return [Said(entry.type_key, entry.duplicates, entry.dangling) for entry in entries]

    @property
    def unordered_types(self) -> dict[TableKey, str]:
        """The types whose records have no order at all, with what they come from."""
        tables = {item.type_key: f"`table: {item.source}`" for item in self.mapped if item.format is SourceFormat.TABLE}
        return tables | {frame.type_key: frame.mapped.source for frame in self.frames if not frame.is_local}

    @property
    def declared_types(self) -> set[TableKey]:
        """Types that are present whether they have records or not."""
        keys = {item.type_key for item in self.mapped}
        return keys | {frame.type_key for frame in self.frames}

    def close(self) -> None:
        """Let go of what was kept of streams."""
        for frame in self.frames:
            frame.close()


def look_at_input(
    source: str | os.PathLike[str] | None,
    mapping: str | os.PathLike[str] | Mapping[str, object] | None,
    frames: Mapping[str, object] | None,
    catalog: Catalog,
    access: Callable[[], FrameAccess],
    *,
    is_patch: bool = False,
) -> LoadInput:
    """The input of a call: files of graph records, or a mapping and frames, together or one of them.

    Raises:
        BadRequestError: nothing or too much is given, or something is wrong.
        InputFileError: a file does not exist.
    """
    check_one_input(source, mapping, frames)
    if source is not None:
        path = os.fspath(source)
        return _sized(LoadInput(source=path), find_files(path, GRAPH_ENDINGS))
    read = TypeMapping()
    if mapping is not None:
        read = read_mapping(mapping, catalog, with_frames=frames is not None, needs_ends=not is_patch)
    if frames is not None and not isinstance(frames, Mapping):
        raise BadRequestError(f"frames is a {type(frames).__name__}: {FRAME_PER_TYPE}")
    found = tuple(read_frames(frames or {}, catalog, access, read, is_patch=is_patch))
    _refuse_unfed(read, found)
    if not found and not read.types:
        raise BadRequestError(f"there is nothing to load: {FRAME_PER_TYPE}")
    files = [
        (item, find_files(item.source, endings_of(item)))
        for item in read.types
        if item.format is not SourceFormat.TABLE
    ]
    given = LoadInput(mapped=read.types, frames=found, first_files=tuple((item, some[0]) for item, some in files))
    return _sized(given, [file for _, some in files for file in some])


def _sized(given: LoadInput, files: Sequence[InputFile]) -> LoadInput:
    """An input with the size of its files and frames."""
    in_memory = sum(frame.data.nbytes for frame in given.frames if frame.is_local)
    return replace(
        given,
        size_bytes=sum(file.size for file in files) + in_memory,
        likely_bytes=sum(file.likely_bytes for file in files) + in_memory,
    )


def _refuse_unfed(mapping: TypeMapping, frames: tuple[Frame, ...]) -> None:
    fed = {frame.type_key for frame in frames}
    for key in mapping.frames:
        if key not in fed:
            raise BadRequestError(
                f"{mapping.name}, {key.name}: give `source` (files) or `table` (a Spark table), or a frame of "
                f"{key.name} (frames=)"
            )


def refuse_unfit(given: LoadInput) -> None:
    """Refuse a patch whose bad records could not go to a quarantine.

    Raises:
        BadRequestError: a record of the source is several records of a type.
    """
    for entry in (*given.mapped, *(frame.mapped for frame in given.frames)):
        if entry.each is not None:
            raise BadRequestError(
                f"{entry.type_key.name}: `each` makes several records of one, and a quarantine of a patch keeps single "
                "ones: patch with this entry by itself, without a quarantine"
            )


def check_columns(given: LoadInput, plan: LoadPlan) -> None:
    """Hold the mapping against the columns of frames and of the first file of every entry, before any work begins.

    Raises:
        BadRequestError: it does not fit.
        InputFileError: a file cannot be read.
    """
    for frame in given.frames:
        source = frame_source(frame, plan)
        if frame.is_local:
            nothing = frame.data.schema.empty_table()
            raw_records(plan.shapes[frame.type_key], nothing, source.chosen, np.empty(0, np.int64))
    for mapped, file in given.first_files:
        part = Part(file=file, format=format_of(file, mapped), mapped=mapped)
        PartReader(part, plan, ViolationCounts()).check_columns()


def check_local(given: LoadInput, limit_bytes: int) -> None:
    """Refuse an input that this process should not or cannot read.

    Raises:
        ResourceLimitError: it is too large.
        BadRequestError: it needs Spark.
    """
    if reason := given.only_spark:
        raise BadRequestError(
            f"{reason}, which the engine `local` does not read: leave the engine out, or choose Spark with "
            '`--engine spark` (engine="spark")'
        )
    if given.size_bytes > limit_bytes:
        has_spark = is_installed("pyspark")
        way_out = "use the default engine" if has_spark else "install Spark (`pip install 'omnigraph[spark]'`)"
        raise ResourceLimitError(
            "strict_input_arrow_bytes",
            limit_bytes,
            given.size_bytes,
            f"{way_out}, which has no limit, or raise OMNIGRAPH_LOCAL_LOAD_MAX_BYTES",
        )


def plan_work(
    given: LoadInput, parallelism: int, access: FrameAccess | None, *, is_strict: bool
) -> tuple[list[Part], list[Frame]]:
    """Cut the input into parts; tables become frames."""
    if given.source is not None:
        return cut_graph_files(given.source, parallelism, is_strict=is_strict), []
    frames = list(given.frames)
    for mapped in given.mapped:
        if mapped.format is SourceFormat.TABLE:
            assert access is not None, "tables are refused where Spark is not"
            table, key = access.table(mapped.source), mapped.type_key
            columns = access.columns(table)
            frames.append(Frame(type_key=key, data=table, columns=columns, mapped=mapped))
    return cut_mapped_files(given.mapped, parallelism), frames
