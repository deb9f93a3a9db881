"""Parts of a graph, read by queries: whole types, some edges of every type, or the neighbours of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.api.patterns import with_nodes
from omnigraph.api.row_graphs import FoundNode, NodeId, RowGraph, SparseGraph, graph_of_rows, sparse_graph
from omnigraph.core.arrow import Rows, pc
from omnigraph.core.ids import node_table_key
from omnigraph.core.source import with_hint
from omnigraph.core.types import NUMERICS, EnumType, PropertyType, Scalar, ScalarType
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef

if TYPE_CHECKING:
    from omnigraph.api.reading_api import ReadingApi, TargetKeywords

#: Neighbours of a node over one edge type and direction.
_NEIGHBOURS = 25
#: Properties of an edge that a picture reads.
_READ = 6
#: Nodes without a key are found by their values: so many rows are looked through for the wanted one.
_UNKEYED_ROWS = 500
#: A longer value does not help to find a node.
_COMPARED = 2_000
_COMPARABLE = frozenset(Scalar) - {Scalar.BLOB, Scalar.F32, Scalar.F64}


@frozen(kw_only=True)
class GraphReader:
    """Reads parts of one state of a graph."""

    graph: ReadingApi
    catalog: Catalog
    target: TargetKeywords

    # ---- whole types, with chosen properties as Python objects

    def whole(self, nodes: Sequence[NodeDef], edges: Sequence[EdgeDef], properties: Sequence[str] | None) -> RowGraph:
        """All nodes and edges of types; None for all properties but blobs, which no query returns."""

        def chosen(definition: NodeDef | EdgeDef) -> list[str]:
            names = [item.name for item in definition.properties.values() if item.type.base != ScalarType(Scalar.BLOB)]
            return names if properties is None else [name for name in names if name in properties]

        found = RowGraph()
        for node in nodes:
            found.add(self._read(_node_query(node, chosen(node)), as_json=False))
        for edge in edges:
            found.add(self._read(_edge_query(edge, chosen(edge)), as_json=False))
        return found

    def adjacency(self, nodes: Sequence[NodeDef], edges: Sequence[EdgeDef], weight: str | None) -> SparseGraph:
        """All nodes and edges of types as a sparse matrix; no value becomes a Python object on the way.

        Raises:
            BadRequestError: the ends of an edge type are not among the node types, or its edges have no such weight.
            MissingPackageError: scipy is not installed.
        """
        names = [node.name for node in nodes]
        for edge in edges:
            _check_adjacency(edge, names, weight)
        ids = {node.name: self._rows(_node_query(node, ())).column("n") for node in nodes}
        sizes = [len(column) for column in ids.values()]
        begins = dict(zip(names, accumulate(sizes, initial=0), strict=False))
        sources, targets, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for edge in edges:
            rows = self._rows(_edge_query(edge, () if weight is None else (weight,)))
            if weight is None:
                values.append(np.ones(len(rows), np.int64))
            else:
                rows = rows.filter(pc.is_valid(rows.column(f"e.{weight}")))
                values.append(rows.column(f"e.{weight}").to_numpy().astype(np.float64))
            for column, type_name, ends in (("a", edge.source, sources), ("b", edge.target, targets)):
                positions = pc.index_in(rows.column(column), ids[type_name]).to_numpy()
                ends.append(positions.astype(np.int64) + begins[type_name])
        return sparse_graph(
            ids=np.concatenate([np.empty(0, object), *(column.to_numpy() for column in ids.values())]),
            types=np.repeat(np.array(names, object), sizes),
            sources=np.concatenate(sources),
            targets=np.concatenate(targets),
            values=np.concatenate(values),
        )

    # ---- some of everything, for pictures

    def sample(self, types: Sequence[str], limit: int) -> RowGraph:
        """Some nodes of types and edges between them: first the ends of edges, then other nodes."""
        found = RowGraph()
        edges = list(edge_types_between(self.catalog, types))
        for edge in edges:
            text = _edge_query(edge, _readable(edge)[:_READ], max(limit // len(edges), 1))
            found.add(self._read(text, extends=True))
        for name in types:
            share = max(limit // len(types), 1)
            if not any(key.type_name == name for key in found.nodes):
                found.add(self._read(_node_query(self.catalog.nodes[name], (), share), extends=True))
        return found

    def around(self, nodes: Sequence[NodeId], hops: int, limit: int) -> RowGraph:
        """Nodes and their neighbours, so many hops away, up to about `limit` nodes.

        Raises:
            NotFoundError: a node is not there.
        """
        found, looked = RowGraph(), set[NodeId]()
        for node in nodes:
            found.add(self._single(node))
        frontier = list(nodes)
        for _ in range(hops):
            before = set(found.nodes)
            for node in frontier:
                if node not in looked and len(found.nodes) < limit:
                    self._add_neighbours(found, node, looked)
                    looked.add(node)
            frontier = [key for key in found.nodes if key not in before]
        return found

    def _single(self, node: NodeId) -> RowGraph:
        definition = self.catalog.nodes[node.type_name]
        properties = self._properties(node)
        label = None if definition.label is None else properties.get(definition.label)
        number = list(self.catalog.nodes).index(node.type_name)
        shown = FoundNode(number=number, label=None if label is None else str(label), properties=dict(properties))
        return RowGraph(nodes={node: shown})

    def _properties(self, node: NodeId) -> Mapping[str, object]:
        image = self.graph.entity_at(node_table_key(node.type_name), node.id, **self.target)
        if image is None:
            raise NotFoundError(f"there is no {node.type_name} with the id {node.id!r}")
        return image["properties"]

    def _add_neighbours(self, found: RowGraph, node: NodeId, looked: set[NodeId]) -> None:
        """What is one edge away, in both directions; an edge whose other end was looked at is known already."""
        identity = _Identity.of(self.catalog.nodes[node.type_name], self._properties(node))
        for edge in self.catalog.incident_edges(node.type_name):
            for is_source in (True, False):
                if (edge.source if is_source else edge.target) != node.type_name:
                    continue
                near = self._read(identity.neighbours(edge, is_source=is_source), identity.params, extends=True)
                for row in near.edges:
                    own, other = (row.source, row.target) if is_source else (row.target, row.source)
                    # A loop is found as what goes out.
                    if own == node and other not in looked and (is_source or other != node):
                        found.add(RowGraph(nodes={key: near.nodes[key] for key in (own, other)}, edges=[row]))

    # ---- queries

    def _read(
        self, text: str, params: Mapping[str, object] | None = None, *, extends: bool = False, as_json: bool = True
    ) -> RowGraph:
        if extends:
            query = compile_query(text, self.catalog).ir
            assert isinstance(query, ir.ReadIR), "these queries read"
            text = with_nodes(text, query, self.catalog)
        result = self.graph.query(text, params, **self.target)
        return graph_of_rows(result.pattern, result.to_arrow(), result.types, as_json=as_json)

    def _rows(self, text: str) -> Rows:
        return self.graph.query(text, **self.target).to_arrow()


# ---- texts of queries: only names of the schema stand in them, values are parameters


def _node_query(node: NodeDef, properties: Sequence[str], limit: int | None = None) -> str:
    columns = ", ".join(["$n", *(f"$n.{name}" for name in properties)])
    return f"query nodes() {{ match {{ $n: {node.name} }} return {{ {columns} }}{_limit(limit)} }}"


def _edge_query(edge: EdgeDef, properties: Sequence[str], limit: int | None = None) -> str:
    columns = ", ".join(["$a", "$b", *(f"$e.{name}" for name in properties)])
    match = f"$a: {edge.source}  $a $e:{_word(edge)} $b"
    return f"query edges() {{ match {{ {match} }} return {{ {columns} }}{_limit(limit)} }}"


@frozen(kw_only=True)
class _Identity:
    """What a node is found by: its key, or everything that is known about it, as ids cannot be compared."""

    node: NodeDef
    names: tuple[str, ...]
    params: Mapping[str, object]
    is_exact: bool

    @classmethod
    def of(cls, node: NodeDef, values: Mapping[str, object]) -> _Identity:
        key = () if node.key is None else node.key.members
        candidates = key or tuple(item.name for item in node.properties.values() if _is_comparable(item.type))
        names = tuple(
            name for name in candidates if values.get(name) is not None and len(str(values[name])) <= _COMPARED
        )
        params = {f"v{number}": values[name] for number, name in enumerate(names)}
        return cls(node=node, names=names, params=params, is_exact=bool(key) and names == key)

    def neighbours(self, edge: EdgeDef, *, is_source: bool) -> str:
        """The query of its neighbours over an edge type."""
        types = [self.node.properties[name].type.base for name in self.names]
        declared = ", ".join(f"$v{number}: {_parameter(base)}" for number, base in enumerate(types))
        conditions = ", ".join(f"{name}: $v{number}" for number, name in enumerate(self.names))
        own = f"$n: {self.node.name}" + (f" {{ {conditions} }}" if conditions else "")
        step = f"$n $e:{_word(edge)} $m" if is_source else f"$m $e:{_word(edge)} $n"
        columns = ", ".join(["$n", "$m", *(f"$e.{name}" for name in _readable(edge)[:_READ])])
        limit = _NEIGHBOURS if self.is_exact else _UNKEYED_ROWS
        return f"query near({declared}) {{ match {{ {own}  {step} }} return {{ {columns} }} limit {limit} }}"


def _parameter(base: object) -> str:
    """The type that a parameter for a property has: an enum is a String there."""
    return "String" if isinstance(base, EnumType) else str(base)


def _is_comparable(type_: PropertyType) -> bool:
    """Whether values can be compared exactly."""
    base = type_.base
    return isinstance(base, EnumType) or (isinstance(base, ScalarType) and base.scalar in _COMPARABLE)


def _readable(edge: EdgeDef) -> list[str]:
    """The properties of an edge that people read."""
    kinds = (ScalarType, EnumType)
    plain = (item for item in edge.properties.values() if isinstance(item.type.base, kinds))
    return [item.name for item in plain if item.type.base != ScalarType(Scalar.BLOB)]


def _check_adjacency(edge: EdgeDef, nodes: Sequence[str], weight: str | None) -> None:
    for end in (edge.source, edge.target):
        if end not in nodes:
            raise BadRequestError(f"the edges `{edge.name}` end at nodes `{end}`, which are not asked for: add `{end}`")
    if weight is None:
        return
    if weight not in edge.properties:
        hint = with_hint(f"the edges `{edge.name}` have no `{weight}`", weight, edge.properties)
        raise BadRequestError(f"{hint}; `edges` chooses edge types")
    base = edge.properties[weight].type.base
    if not (isinstance(base, ScalarType) and base.scalar in NUMERICS):
        raise BadRequestError(f"`{weight}` of the edges `{edge.name}` is a {base}, and a weight is a number")


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" limit {limit}"


def _word(edge: EdgeDef) -> str:
    """The word of an edge type in a query: with a small first letter; `not` is the one that is taken."""
    word = edge.name[0].lower() + edge.name[1:]
    return "nOt" if word == "not" else word


def edge_types_between(catalog: Catalog, types: Sequence[str]) -> Iterator[EdgeDef]:
    """The edge types whose both ends are among the node types."""
    return (edge for edge in catalog.edges.values() if edge.source in types and edge.target in types)
