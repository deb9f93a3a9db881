"""The input of a load: files of graph records, a mapping of tables, or frames; planned before anything is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.ids import TableKey
from omnigraph.pipeline.frames import Frame, read_frames
from omnigraph.pipeline.inputs import find_files
from omnigraph.pipeline.mapping import SourceFormat, endings_of, read_mapping
from omnigraph.pipeline.parts import GRAPH_ENDINGS, cut_graph_files, cut_mapped_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.pipeline.mapping import MappedType
    from omnigraph.pipeline.parts import Part
    from omnigraph.schema import Catalog


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
) -> LoadInput:
    """The input of a call; exactly one of the three ways to give it.

    Raises:
        BadRequestError: none or several are given, or one is wrong.
        InputFileError: a file does not exist.
    """
    given = [item for item in (source, mapping, frames) if item is not None]
    if len(given) != 1:
        raise BadRequestError("give one input: files of graph records, a mapping, or frames")
    if source is not None:
        path = os.fspath(source)
        files = find_files(path, GRAPH_ENDINGS)
        return LoadInput(source=path, size_bytes=sum(file.size for file in files))
    if mapping is not None:
        mapped = tuple(read_mapping(mapping, catalog))
        sizes = [
            file.size
            for item in mapped
            if item.format is not SourceFormat.TABLE
            for file in find_files(item.source, endings_of(item))
        ]
        return LoadInput(mapped=mapped, size_bytes=sum(sizes))
    assert frames is not None, "one of the three is given"
    found = tuple(read_frames(frames, catalog))
    return LoadInput(frames=found, size_bytes=sum(f.data.nbytes for f in found if f.is_local))


def check_local(given: LoadInput, limit_bytes: int) -> None:
    """Refuse an input that this process should not or cannot read.

    Raises:
        ResourceLimitError: it is too large.
        BadRequestError: it needs Spark.
    """
    if any(item.format is SourceFormat.TABLE for item in given.mapped):
        raise BadRequestError("a Spark table needs Spark: use the default engine")
    if any(not frame.is_local for frame in given.frames):
        raise BadRequestError("a Spark frame needs Spark: use the default engine")
    if given.size_bytes > limit_bytes:
        raise ResourceLimitError(
            "strict_input_arrow_bytes",
            limit_bytes,
            given.size_bytes,
            "use the default engine, which has no limit, or raise OMNIGRAPH_LOCAL_LOAD_MAX_BYTES",
        )


def plan_work(given: LoadInput, parallelism: int, spark: Any, *, is_strict: bool) -> Work:
    """Cut the input into parts; Spark tables become frames."""
    if given.source is not None:
        return Work(parts=cut_graph_files(given.source, parallelism, is_strict=is_strict))
    frames = list(given.frames)
    for mapped in given.mapped:
        if mapped.format is SourceFormat.TABLE:
            key = TableKey(mapped.type_key)
            frames.append(Frame(type_key=key, data=_table(spark, mapped.source), mapped=mapped))
    return Work(parts=cut_mapped_files(given.mapped, parallelism), frames=frames)


def _table(spark: Any, name: str) -> Any:
    from pyspark.errors import AnalysisException

    try:
        return spark.table(name)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise BadRequestError(f"Spark has no table {name}: {reason}") from error
