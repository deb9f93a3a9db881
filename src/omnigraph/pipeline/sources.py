"""The input of a load: files of graph records, or mapped tables and frames; planned before anything is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.ids import TableKey
from omnigraph.pipeline.frames import Frame, read_frames
from omnigraph.pipeline.inputs import check_one_input, find_files
from omnigraph.pipeline.mapping import SourceFormat, TypeMapping, endings_of, read_mapping
from omnigraph.pipeline.parts import GRAPH_ENDINGS, cut_graph_files, cut_mapped_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.pipeline.frames import FrameAccess
    from omnigraph.pipeline.mapping import MappedType
    from omnigraph.pipeline.parts import Part
    from omnigraph.schema.catalog import Catalog


_FRAME_PER_TYPE = 'give a frame per type, as in frames={"Paper": papers}'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInput:
    """What the caller gave, looked at but not read."""

    #: Path, directory or pattern of graph records.
    source: str | None = None
    mapped: tuple[MappedType, ...] = ()
    frames: tuple[Frame, ...] = ()
    #: The size of all files.
    size_bytes: int = 0

    @property
    def is_ordered(self) -> bool:
        """Whether the records have an order, so that the last one of an id may win."""
        tables = [item for item in self.mapped if item.format is SourceFormat.TABLE]
        return not self.frames and not tables

    @property
    def declared_types(self) -> set[TableKey]:
        """Types that are present whether they have records or not."""
        keys = {TableKey(item.type_key) for item in self.mapped}
        return keys | {frame.type_key for frame in self.frames}


@dataclass(slots=True)
class Work:
    """The input in the pieces that tasks read."""

    parts: list[Part] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


def look_at_input(
    source: str | os.PathLike[str] | None,
    mapping: str | os.PathLike[str] | Mapping[str, object] | None,
    frames: Mapping[str, object] | None,
    catalog: Catalog,
    access: Callable[[], FrameAccess],
) -> LoadInput:
    """The input of a call: files of graph records, or a mapping and frames, together or one of them.

    Raises:
        BadRequestError: nothing or too much is given, or something is wrong.
        InputFileError: a file does not exist.
    """
    check_one_input(source, mapping, frames)
    if source is not None:
        path = os.fspath(source)
        files = find_files(path, GRAPH_ENDINGS)
        return LoadInput(source=path, size_bytes=sum(file.size for file in files))
    read = TypeMapping()
    if mapping is not None:
        read = read_mapping(mapping, catalog, with_frames=frames is not None)
    if frames is not None and not isinstance(frames, Mapping):
        raise BadRequestError(f"frames is a {type(frames).__name__}: {_FRAME_PER_TYPE}")
    found = tuple(read_frames(frames or {}, catalog, access, read))
    _refuse_unfed(read, found)
    if not found and not read.types:
        raise BadRequestError(f"there is nothing to load: {_FRAME_PER_TYPE}")
    sizes = [
        file.size
        for item in read.types
        if item.format is not SourceFormat.TABLE
        for file in find_files(item.source, endings_of(item))
    ]
    sizes += [frame.data.nbytes for frame in found if frame.is_local]
    return LoadInput(mapped=read.types, frames=found, size_bytes=sum(sizes))


def _refuse_unfed(mapping: TypeMapping, frames: tuple[Frame, ...]) -> None:
    fed = {frame.type_key for frame in frames}
    for key in mapping.frames:
        if key not in fed:
            name = key.partition(":")[2]
            raise BadRequestError(
                f"{mapping.name}, {name}: give `source` (files) or `table` (a Spark table), or a frame of {name} "
                "(frames=)"
            )


def check_local(given: LoadInput, limit_bytes: int) -> None:
    """Refuse an input that this process should not or cannot read.

    Raises:
        ResourceLimitError: it is too large.
        BadRequestError: it needs Spark.
    """
    advice = 'leave the engine out, or choose it with `--engine spark` (engine="spark")'
    for item in given.mapped:
        if item.format is SourceFormat.TABLE:
            raise BadRequestError(
                f"`table: {item.source}`: a Spark table needs Spark, and this is the engine `local`: {advice}"
            )
    for frame in given.frames:
        if not frame.is_local:
            raise BadRequestError(
                f"{frame.mapped.source}: a Spark frame needs Spark, and this is the engine `local`: {advice}"
            )
    if given.size_bytes > limit_bytes:
        raise ResourceLimitError(
            "strict_input_arrow_bytes",
            limit_bytes,
            given.size_bytes,
            "use the default engine, which has no limit, or raise OMNIGRAPH_LOCAL_LOAD_MAX_BYTES",
        )


def plan_work(
    given: LoadInput, parallelism: int, access: FrameAccess | None, *, is_strict: bool
) -> Work:
    """Cut the input into parts; tables become frames."""
    if given.source is not None:
        return Work(parts=cut_graph_files(given.source, parallelism, is_strict=is_strict))
    frames = list(given.frames)
    for mapped in given.mapped:
        if mapped.format is SourceFormat.TABLE:
            assert access is not None, "tables are refused where Spark is not"
            table, key = access.table(mapped.source), TableKey(mapped.type_key)
            columns = access.columns(table)
            frames.append(Frame(type_key=key, data=table, columns=columns, mapped=mapped))
    return Work(parts=cut_mapped_files(given.mapped, parallelism), frames=frames)
