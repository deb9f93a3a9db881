"""The configuration file of a server, and files of stored queries."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path

from omnigraph.core.ids import DEFAULT_GRAPH, is_graph_id
from omnigraph.core.yaml_files import YamlDocument, YamlValue
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.frozen import frozen

# ---- Stored query files


_ENDING = ".gq"


@frozen
class QuerySource:
    """A file of queries. All of them are stored, or with `name` that one alone, maybe under another tool name."""

    path: Path
    name: str | None = None
    tool_name: str | None = None


def query_sources(path: str | PathLike[str]) -> tuple[QuerySource, ...]:
    """The sources at a path: a `.gq` file, or a directory with all of its own `.gq` files.

    Raises:
        InputFileError: there is no such file or directory.
    """
    found = Path(path)
    try:
        if found.is_dir():
            files = sorted(item for item in found.iterdir() if item.suffix == _ENDING)
            return tuple(QuerySource(item) for item in files if item.is_file())
        if found.is_file():
            return (QuerySource(found),)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputFileError(str(path), reason or str(error)) from error
    raise InputFileError(str(path), "there is no such file or directory")


# ---- The configuration file of a server
#
#     graphs:
#       papers:
#         store: papers.omni
#         queries: queries/
#         policy: papers-policy.yaml
#         external_blobs: [s3://scans/papers]
#     policy: server-policy.yaml
#
# Paths are relative to the file. `queries` is a directory, a file, a list of files, or a mapping from the name of a
# query to its file; there the file may be `{file: …, tool_name: …}`, to offer the query to agents under another name.


#: Words that stand where a graph id may stand in a path, now or in a later release.
RESERVED_GRAPH_IDS = frozenset({"policies", "healthz", "openapi", "graphs"})

_CODE = "config"
_QUERY_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)
#: What every known agent accepts as the name of a tool.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ANCHORED = re.compile(r"/|~|[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


@frozen(kw_only=True)
class ServedGraph:
    """One graph of a server. `store` is an address that does not depend on the working directory."""

    graph_id: str
    store: str
    queries: tuple[QuerySource, ...] = ()
    policy: Path | None = None
    #: Bases of external blobs; None: those of the environment.
    external_blobs: tuple[str, ...] | None = None


@frozen(kw_only=True)
class ServerConfig:
    """The graphs of a server, sorted by id, and the policy of the server itself."""

    graphs: tuple[ServedGraph, ...]
    policy: Path | None = None

    def graph(self, graph_id: str | None = None) -> ServedGraph:
        """The graph with an id, or the only one.

        Raises:
            BadRequestError: there is no such graph, or several and none was named.
        """
        ids = [item.graph_id for item in self.graphs]
        if graph_id is None and len(ids) == 1:
            return self.graphs[0]
        if graph_id is None:
            raise BadRequestError(f"there are {len(ids)} graphs, name one: {', '.join(ids)}")
        if graph_id not in ids:
            raise BadRequestError(f"there is no graph `{graph_id}` here, only {', '.join(ids)}")
        return self.graphs[ids.index(graph_id)]


def single_graph(
    store: str | PathLike[str],
    graph_id: str = DEFAULT_GRAPH,
    *,
    queries: str | PathLike[str] | None = None,
    policy: str | PathLike[str] | None = None,
) -> ServerConfig:
    """The configuration of a server with one graph.

    Raises:
        BadRequestError: the store is not the address of a graph, or the id is not a graph id.
        InputFileError: there are no queries, or no policy, at their path.
    """
    if problem := _graph_id_problem(graph_id):
        raise BadRequestError(problem)
    if policy is not None and not Path(policy).is_file():
        raise InputFileError(str(policy), "there is no such file")
    graph = ServedGraph(
        graph_id=graph_id,
        store=_address(os.fspath(store), Path()),
        queries=() if queries is None else query_sources(queries),
        policy=None if policy is None else Path(policy),
    )
    return ServerConfig(graphs=(graph,))


def read_config(path: str | PathLike[str]) -> ServerConfig:
    """The configuration in a file.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: with everything that is wrong in it: file, line and column.
    """
    return _Reader(Path(path)).read()


class _Reader:
    """Reads one file; everything that is wrong becomes a finding of its document."""

    def __init__(self, path: Path) -> None:
        self._base = path.parent
        self._document = YamlDocument.read(path, code=_CODE)
        #: Where each store was named first.
        self._stores: dict[str, str] = {}

    def read(self) -> ServerConfig:
        members = self._document.root.members("the file", known=("graphs", "policy"), required=("graphs",))
        policy = self._file(members.get("policy"), "`policy`")
        graphs: list[ServedGraph | None] = []
        if "graphs" in members:
            found = members["graphs"].members("`graphs`")
            graphs = [self._graph(graph_id, value) for graph_id, value in found.items()]
            if members["graphs"].is_mapping and not found:
                members["graphs"].error("`graphs` names no graph")
        self._document.raise_errors()
        known = sorted((graph for graph in graphs if graph is not None), key=lambda g: g.graph_id)
        return ServerConfig(graphs=tuple(known), policy=policy)

    def _graph(self, graph_id: str, value: YamlValue) -> ServedGraph | None:
        if problem := _graph_id_problem(graph_id):
            value.key_error(problem)
        members = value.members(
            f"graph `{graph_id}`", known=("store", "queries", "policy", "external_blobs"), required=("store",)
        )
        store = self._store(graph_id, members.get("store"))
        queries = self._queries(members.get("queries"))
        policy = self._file(members.get("policy"), "`policy`")
        bases = self._external_blobs(members.get("external_blobs"))
        if store is None:
            return None
        return ServedGraph(graph_id=graph_id, store=store, queries=queries, policy=policy, external_blobs=bases)

    def _store(self, graph_id: str, value: YamlValue | None) -> str | None:
        text = None if value is None else value.text("`store`")
        if value is None or text is None:
            return None
        try:
            address = _address(text, self._base)
        except BadRequestError as error:
            value.error(error.message)
            return None
        same = os.path.realpath(address) if address.startswith("/") else address
        if same in self._stores:
            value.error(f"graph `{self._stores[same]}` is in the same store")
        self._stores.setdefault(same, graph_id)
        return address

    def _file(self, value: YamlValue | None, what: str) -> Path | None:
        text = None if value is None else value.text(what)
        if value is None or text is None:
            return None
        path = self._path(text)
        if not _is_file(path):
            value.error(f"there is no file {path}")
            return None
        return path

    def _path(self, text: str) -> Path:
        return self._base / Path(text).expanduser()

    def _queries(self, value: YamlValue | None) -> tuple[QuerySource, ...]:
        if value is None:
            return ()
        if value.is_list:
            files = [self._file(item, "a query file") for item in value.items("`queries`")]
            return tuple(QuerySource(path) for path in files if path is not None)
        if value.is_mapping:
            members = value.members("`queries`").items()
            named = [self._named_query(name, member) for name, member in members]
            return tuple(source for source in named if source is not None)
        text = value.text("`queries`")
        if text is None:
            return ()
        try:
            return query_sources(self._path(text))
        except InputFileError as error:
            value.error(error.message)
            return ()

    def _named_query(self, name: str, value: YamlValue) -> QuerySource | None:
        if not _QUERY_NAME.fullmatch(name):
            value.key_error(f"`{name}` cannot be the name of a query")
        if not value.is_mapping:
            path = self._file(value, f"the file of `{name}`")
            return None if path is None else QuerySource(path, name)
        members = value.members(f"query `{name}`", known=("file", "tool_name"), required=("file",))
        path = self._file(members.get("file"), "`file`")
        tool = members.get("tool_name")
        tool_name = None if tool is None else tool.text("`tool_name`")
        if tool is not None and tool_name is not None and not _TOOL_NAME.fullmatch(tool_name):
            tool.error("`tool_name` is 1 to 64 letters, digits, `_` and `-`")
        return None if path is None else QuerySource(path, name, tool_name)

    def _external_blobs(self, value: YamlValue | None) -> tuple[str, ...] | None:
        from omnigraph.storage.external import policy_of

        if value is None:
            return None
        bases: list[str] = []
        for item in value.items("`external_blobs`"):
            base = item.text("a base of external blobs")
            if base is None:
                continue
            try:
                policy_of([base])
            except BadRequestError as error:
                item.error(error.message)
            bases.append(base)
        return tuple(bases)


def _graph_id_problem(graph_id: str) -> str | None:
    if not is_graph_id(graph_id):
        return f"`{graph_id}` is not a graph id: it is 1 to 64 letters, digits and `-`"
    if graph_id in RESERVED_GRAPH_IDS:
        return f"`{graph_id}` is reserved, and no graph id"
    return None


def _address(text: str, base: Path) -> str:
    from omnigraph.storage.location import parse_location

    return parse_location(text if _ANCHORED.match(text) else base / text).uri


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A name that no file can have, such as one with a null character.
        return False
