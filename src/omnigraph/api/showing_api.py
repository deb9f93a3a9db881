"""`ShowingApi`: graphs as pictures, as graphs of other libraries, and as notebooks and terminals show them.

It is the same for every graph: all of it is done with the methods of `ReadingApi`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from omnigraph.api.reading_api import ReadingApi, TargetKeywords
from omnigraph.core.lazy_exports import LateModule, late_types
from omnigraph.core.source import SourceText, with_hint
from omnigraph.errors import BadRequestError, OmniError, QuerySelectionError

if TYPE_CHECKING:
    import networkx

    from omnigraph.api.row_graphs import NodeId, SparseGraph
    from omnigraph.api.samples import GraphReader
    from omnigraph.display.pictures import Picture
    from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
else:
    networkx = LateModule("networkx")
    globals().update(late_types({"omnigraph.api.row_graphs": "SparseGraph", "omnigraph.display.pictures": "Picture"}))

Nodes: TypeAlias = Mapping[str, str | Iterable[str]] | Sequence[str] | Sequence[tuple[str, str]]

#: Nodes of a picture, unless the caller says how many.
_LIMIT = 100
_MOST_HOPS = 3
_NODES = 'give nodes as in {"Person": ["ada"]}, or names of node types'


class ShowingApi(ReadingApi):
    """Pictures and reprs of a graph."""

    # ---- pictures

    def show(
        self,
        what: str | SourceText | Nodes | None = None,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        hops: int = 1,
        limit: int = _LIMIT,
        title: str | None = None,
    ) -> Picture:
        """A picture of a part of the graph: notebooks show it, and `save("picture.html")` or `.svg` keeps it.

        `what` is a query, whose matches are drawn with the values that it returns; nodes, as in
        `{"Person": ["ada", "bo"]}`, which are drawn with their neighbours up to `hops` away; names of node types; or
        nothing, for some nodes and edges of every type. A picture has at most `limit` nodes, and says when there are
        more. It is complete in itself, and looking at it asks nothing of the network.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(
        ...     tempfile.mkdtemp() + "/people.omni", "node Person { name: String @key } edge Knows: Person -> Person"
        ... )
        >>> add = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'
        >>> receipt = graph.mutate(add)
        >>> graph.show("match { $a: Person  $a knows $b } return { $b }")
        <Picture of query: 2 nodes and 1 edges: shown by a notebook, or .save("picture.html")>

        Raises:
            CompilerError: the query is wrong.
            ParameterError: the parameters do not fit it.
            QuerySelectionError: the text holds no such read.
            NotFoundError: there is no such node, branch, commit, version or moment.
            BadRequestError: its rows are groups without nodes, a type is unknown, or the limit is wrong.
        """
        from omnigraph.api.row_graphs import picture_of_rows
        from omnigraph.api.samples import GraphReader
        from omnigraph.display.pictures import check_limit

        check_limit(limit)
        target: TargetKeywords = {"branch": branch, "snapshot": snapshot, "version": version, "as_of": as_of}
        catalog = self.catalog(**target)
        if isinstance(what, SourceText) or (isinstance(what, str) and not what.isidentifier()):
            return self._show_query(what, params, name, catalog, target, limit=limit, title=title)
        if params is not None or name is not None:
            raise BadRequestError("params and name belong to a query")
        # All queries read one commit, whatever is written meanwhile.
        head = self.snapshot(**target)
        pinned: TargetKeywords = {"snapshot": head.commit_id}
        reader = GraphReader(graph=self, catalog=catalog, target=pinned)
        nodes, types = _chosen(what, catalog)
        note = ""
        if nodes:
            if not 0 <= hops <= _MOST_HOPS:
                raise BadRequestError(f"a picture shows neighbours up to {_MOST_HOPS} hops away, not {hops}")
            found = reader.around(nodes, hops, limit)
        else:
            found = reader.sample(types, limit)
            total = sum(head.pins[catalog.nodes[name].table_key].row_count for name in types)
            found.keep_first(limit)
            note = f"{len(found.nodes):,} of {total:,} nodes" if len(found.nodes) < total else ""
        shown = title or ("neighbours" if nodes else ", ".join(types) if what is not None else "graph")
        return picture_of_rows(found, title=shown, note=note, limit=limit)

    def _show_query(
        self,
        what: str | SourceText,
        params: Mapping[str, object] | None,
        name: str | None,
        catalog: Catalog,
        target: TargetKeywords,
        *,
        limit: int,
        title: str | None,
    ) -> Picture:
        from omnigraph.api.patterns import with_nodes
        from omnigraph.lang.query import ir
        from omnigraph.lang.query.compiler import compile_query

        compiled = compile_query(what, catalog, name)
        if not isinstance(compiled.ir, ir.ReadIR):
            raise QuerySelectionError(f"`{compiled.name}` is a mutation: run it with `mutate`", (compiled.name,))
        text = with_nodes(what if isinstance(what, str) else what.text, compiled.ir, catalog, name)
        return self.query(text, params, name=name, **target).show(title=title or compiled.name, limit=limit)

    # ---- graphs of other libraries

    def to_networkx(
        self,
        nodes: Sequence[str] | None = None,
        edges: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> networkx.MultiDiGraph:
        """All nodes and edges of some types as a graph of networkx, in memory; several edges between two nodes stay so.

        `nodes` and `edges` are names of types: all node types, and all edge types between them, unless they are given.
        `properties` become attributes, all but blobs by default. A node is its id, or a pair of type and id where there
        are nodes of several types; `type` and `id` are attributes too.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(
        ...     tempfile.mkdtemp() + "/people.omni", "node Person { name: String @key } edge Knows: Person -> Person"
        ... )
        >>> add = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'
        >>> receipt = graph.mutate(add)
        >>> graph.to_networkx().number_of_edges("ada", "bo")
        1

        Raises:
            BadRequestError: there is no such type.
            NotFoundError: there is no such branch, commit, version or moment.
            MissingPackageError: networkx is not installed.
        """
        from omnigraph.api.row_graphs import networkx_of
        from omnigraph.core.extras import need

        need("networkx", "`to_networkx`")
        reader = self._reader({"branch": branch, "snapshot": snapshot, "version": version, "as_of": as_of})
        return networkx_of(reader.whole(*_whole_types(reader.catalog, nodes, edges), properties))

    def to_scipy(
        self,
        nodes: Sequence[str] | None = None,
        edges: Sequence[str] | None = None,
        weight: str | None = None,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> SparseGraph:
        """All nodes and edges of some types as a sparse matrix of scipy, with the ids and types of its nodes.

        `nodes` and `edges` are names of types: all node types, and all edge types between them, unless they are given.
        An entry of the matrix counts the edges from the node of its row to the node of its column, or is the sum of
        their `weight`, a property of all edge types that are read; edges without a value are left out.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(
        ...     tempfile.mkdtemp() + "/people.omni", "node Person { name: String @key } edge Knows: Person -> Person"
        ... )
        >>> add = 'insert Person { name: "ada" } insert Person { name: "bo" } insert Knows { from: "ada", to: "bo" }'
        >>> receipt = graph.mutate(add)
        >>> matrix, ids, types = graph.to_scipy()
        >>> [(str(ids[source]), str(ids[target])) for source, target in zip(*matrix.nonzero())]
        [('ada', 'bo')]

        Raises:
            BadRequestError: there is no such type, nodes of its edges are missing, or the weight is not a number.
            NotFoundError: there is no such branch, commit, version or moment.
            MissingPackageError: scipy is not installed.
        """
        from omnigraph.core.extras import need

        need("scipy", "`to_scipy`")
        reader = self._reader({"branch": branch, "snapshot": snapshot, "version": version, "as_of": as_of})
        return reader.adjacency(*_whole_types(reader.catalog, nodes, edges), weight)

    def _reader(self, target: TargetKeywords) -> GraphReader:
        """A reader of one commit, whatever is written meanwhile."""
        from omnigraph.api.samples import GraphReader

        pinned: TargetKeywords = {"snapshot": self.snapshot(**target).commit_id}
        return GraphReader(graph=self, catalog=self.catalog(**pinned), target=pinned)

    # ---- how notebooks and terminals show it

    def __str__(self) -> str:
        from omnigraph.api.summaries import read_summary

        return read_summary(self).text()

    def _repr_html_(self) -> str:
        from omnigraph.api.summaries import read_summary

        try:
            return read_summary(self).html()
        except OmniError as failure:
            return f"<p>{html.escape(repr(self))}: {html.escape(str(failure))}</p>"

    def _repr_pretty_(self, printer: PrettyPrinter, _is_cycle: bool) -> None:
        """What IPython prints in a terminal."""
        try:
            printer.text(str(self))
        except OmniError as failure:
            printer.text(f"{self!r}: {failure}")


class PrettyPrinter(Protocol):
    """What IPython gives to objects that print themselves."""

    def text(self, text: str, /) -> None:
        """Print a text."""
        ...


def _chosen(what: str | Nodes | None, catalog: Catalog) -> tuple[list[NodeId], list[str]]:
    """The nodes that are meant, or the node types."""
    from omnigraph.api.row_graphs import NodeId

    if what is None:
        return [], list(catalog.nodes)
    if isinstance(what, str):
        return [], [_known(what, catalog.nodes, "node")]
    if isinstance(what, Mapping):
        pairs = [(name, item) for name, ids in what.items() for item in ([ids] if isinstance(ids, str) else ids)]
    elif all(isinstance(item, str) for item in what):
        return [], [_known(str(name), catalog.nodes, "node") for name in what]
    else:
        pairs = [_pair(item) for item in what]
    if not pairs:
        raise BadRequestError(f"there is nothing to show: {_NODES}")
    return [NodeId(_known(name, catalog.nodes, "node"), str(item)) for name, item in pairs], []


def _pair(item: object) -> tuple[str, str]:
    if isinstance(item, tuple) and len(item) == 2:
        return str(item[0]), str(item[1])
    raise BadRequestError(f"{item!r} is not a node: {_NODES}")


def _whole_types(
    catalog: Catalog, nodes: Sequence[str] | None, edges: Sequence[str] | None
) -> tuple[list[NodeDef], list[EdgeDef]]:
    """The types that are meant: all node types, and all edge types between them, unless they are named."""
    from omnigraph.api.samples import edge_types_between

    names = list(catalog.nodes) if nodes is None else [_known(name, catalog.nodes, "node") for name in nodes]
    if edges is None:
        lines = list(edge_types_between(catalog, names))
    else:
        lines = [catalog.edges[_known(name, catalog.edges, "edge")] for name in edges]
    return [catalog.nodes[name] for name in names], lines


def _known(name: str, types: Mapping[str, object], kind: str) -> str:
    if name in types:
        return name
    raise BadRequestError(with_hint(f"there is no {kind} type `{name}`", name, types))
