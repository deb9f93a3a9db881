"""Graphs from data alone: a schema and a mapping are proposed, a graph is created with them and loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow

from omnigraph.api.graph_api import GraphApi
from omnigraph.errors import BadRequestError
from omnigraph.inference.frames import FrameLoad, frame_load
from omnigraph.inference.proposal import FrameRows, Proposal, propose_for_files, propose_for_rows
from omnigraph.inference.roles import Wishes
from omnigraph.pipeline.sources.local_frames import StreamedRows
from omnigraph.pipeline.sources.planning import frame_data

if TYPE_CHECKING:
    from omnigraph.api.results import LoadResult
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session, SparkFrames

_Graph = TypeVar("_Graph", bound=GraphApi)


def infer(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, object],
    *,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    edges: Mapping[str, Mapping[str, str] | None] | None = None,
) -> Proposal:
    r"""Propose a schema and a mapping for data, with the evidence for every guess.

    `data` is a folder, a file or a pattern of CSV, Parquet, ORC or JSON, a list of these, or frames by the names of
    their types. Tables become node types, tables of references edge types, and columns that hold keys of other tables
    edges. Small tables are read whole, large ones are sampled; nothing is written.

    `keys` says which columns are the key of a type, `[]` that it has none. `edges` says which columns are the two ends
    of an edge type, and which nodes they name; None says that the rows are nodes.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> written = (folder / "movies.csv").write_text("id,title\n1,Alien\n2,Brazil\n")
    >>> proposal = infer(folder)
    >>> [(guess.name, guess.key) for guess in proposal.types]
    [('Movie', ('movie_id',))]

    Raises:
        InputFileError: a file does not exist or cannot be read.
        BadRequestError: there is no table in the data, or a wish names something that is not there.
    """
    wishes = _wishes(keys, edges)
    if isinstance(data, Mapping):
        return _Frames(data).propose(wishes)
    sources = [data] if isinstance(data, str | os.PathLike) else data
    return propose_for_files(sources, wishes)


def create_from_files(
    init: Callable[..., _Graph], uri: str | os.PathLike[str], proposal: Proposal, **options: Any
) -> tuple[_Graph, LoadResult]:
    """A graph with the schema of a proposal for files, loaded with its mapping; `options` are those of `load`.

    Raises:
        LoadRejectedError: records are wrong, and there is no graph.
    """
    return _create(init, uri, proposal.schema, FrameLoad(frames={}, mapping=proposal.mapping_content()), **options)


def create_from_frames(
    init: Callable[..., _Graph],
    uri: str | os.PathLike[str],
    frames: Mapping[str, object],
    *,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    edges: Mapping[str, Mapping[str, str] | None] | None = None,
    quarantine: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
) -> _Graph:
    """See `Graph.from_frames`; `init` creates a graph."""
    given = _Frames(frames)
    proposal = given.propose(_wishes(keys, edges))
    found = frame_load(proposal.design, list(given.data.values()), given.access)
    options = {"quarantine": quarantine, "actor": actor, "engine": engine, "spark": spark, "progress": progress}
    graph, _ = _create(init, uri, proposal.schema, found, **options)
    return graph


def _create(
    init: Callable[..., _Graph], uri: str | os.PathLike[str], schema: str, given: FrameLoad, **options: Any
) -> tuple[_Graph, LoadResult]:
    """Create and load a graph; when the load fails, a graph on disk is removed again."""
    graph = init(uri, schema, actor=options.get("actor"))
    try:
        return graph, graph.load(frames=given.frames or None, mapping=given.mapping, mode="append", **options)
    except BaseException:  # also after an interrupt: a graph without its data is not left behind
        graph.close()
        folder = Path(graph.uri)
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _wishes(
    keys: Mapping[str, str | Sequence[str]] | None, edges: Mapping[str, Mapping[str, str] | None] | None
) -> Wishes:
    return Wishes(
        keys={name: (given,) if isinstance(given, str) else tuple(given) for name, given in (keys or {}).items()},
        edges=dict(edges or {}),
    )


#: Rows of a Spark frame that are looked at.
_SAMPLED_ROWS = 100_000


class _Frames:
    """Frames that a caller gives; streams are read, and those of Spark stay where they are."""

    def __init__(self, frames: Mapping[str, object]) -> None:
        if not frames:
            raise BadRequestError('there are no frames: give one per table, as in {"Movie": movies}')
        self.data = {name: _kept(frame_data(name, given)) for name, given in frames.items()}
        self.access: SparkFrames | None = None
        if not all(isinstance(item, pyarrow.Table) for item in self.data.values()):
            from omnigraph.spark import SparkFrames

            self.access = SparkFrames()
        self._given = frames

    def propose(self, wishes: Wishes) -> Proposal:
        return propose_for_rows({name: self._rows(name, item) for name, item in self.data.items()}, wishes)

    def _rows(self, name: str, item: object) -> FrameRows:
        if isinstance(item, pyarrow.Table):
            return FrameRows(rows=item, is_declared=_is_declared(self._given[name]))
        assert self.access is not None, "a frame that is not in this process is of Spark"
        some = self.access.first_rows(item, _SAMPLED_ROWS)
        sample = "" if some.num_rows < _SAMPLED_ROWS else f"a sample, the first {some.num_rows:,} rows"
        return FrameRows(rows=some, is_declared=True, sample=sample, is_ordered=False)


def _kept(data: object) -> object:
    """The rows of a stream in memory: it can be read once, and a frame may feed several types."""
    if not isinstance(data, StreamedRows):
        return data
    rows = pyarrow.Table.from_batches(data.to_batches(1_048_576), data.schema)
    data.close()
    return rows


def _is_declared(given: object) -> bool:
    """Whether the types of a frame are meant: those of pandas and of Python objects are what values happened to be."""
    module = type(given).__module__.partition(".")[0]
    return module not in ("pandas", "builtins")
