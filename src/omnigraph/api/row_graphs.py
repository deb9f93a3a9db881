"""The nodes and edges in rows: as a graph of networkx, as a sparse matrix, and as a picture."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omnigraph.api.patterns import ResultPattern
from omnigraph.core.arrow import Rows, json_column
from omnigraph.core.extras import need
from omnigraph.core.lazy_exports import LateModule
from omnigraph.core.types import PropertyType
from omnigraph.display.drawings import Edge, Node
from omnigraph.display.pictures import Picture, check_limit, picture_of
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    import networkx
    from scipy import sparse
else:
    networkx, sparse = LateModule("networkx"), LateModule("scipy.sparse")


class NodeId(NamedTuple):
    """A node of any type."""

    type_name: str
    id: str

    @property
    def key(self) -> str:
        """One text for it; names of types have no slash, so no two nodes share one."""
        return f"{self.type_name}/{self.id}"


@dataclass(slots=True, kw_only=True)
class FoundNode:
    """A node and what is known about it."""

    number: int
    label: str | None = None
    properties: dict[str, object] = field(default_factory=dict)


@frozen(kw_only=True)
class FoundEdge:
    """An edge between two nodes and what is known about it."""

    type_name: str
    source: NodeId
    target: NodeId
    is_directed: bool
    is_path: bool
    properties: Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class RowGraph:
    """The distinct nodes of some rows, and their edges."""

    nodes: dict[NodeId, FoundNode] = field(default_factory=dict)
    edges: list[FoundEdge] = field(default_factory=list)

    def add(self, other: RowGraph) -> None:
        """Take in nodes and edges; of a node that is known already nothing changes."""
        for key, node in other.nodes.items():
            self.nodes.setdefault(key, node)
        self.edges += other.edges

    def keep_first(self, count: int) -> None:
        """Forget all but the first nodes, and what is between others."""
        self.nodes = dict(list(self.nodes.items())[:count])
        self.edges = [edge for edge in self.edges if edge.source in self.nodes and edge.target in self.nodes]


def graph_of_rows(
    pattern: ResultPattern, rows: Rows, types: Sequence[PropertyType], *, as_json: bool = False
) -> RowGraph:
    """The nodes and edges in rows; with `as_json` their values are JSON, otherwise Python objects.

    Raises:
        BadRequestError: no column holds nodes.
    """
    if not pattern.nodes:
        raise BadRequestError(
            "no column of the result holds nodes: return them by their variable, as in `return { $a, $b }`, or give "
            "the query to `graph.show`"
        )
    columns: dict[str, Sequence[object]] = {
        name: json_column(column.combine_chunks(), type_.base) if as_json else column.to_pylist()
        for name, column, type_ in zip(rows.schema.names, rows.columns, types, strict=True)
    }
    nodes: dict[NodeId, FoundNode] = {}
    type_of = {column.column: column.type_name for column in pattern.nodes}
    # With one column of nodes all others are about them.
    is_alone = len(pattern.nodes) == 1 and not pattern.edges
    for found in pattern.nodes:
        named = dict(found.properties)
        if is_alone:
            named |= {column: column for column in columns if column not in named and column != found.column}
        for number, key in enumerate(columns[found.column]):
            if key is None or NodeId(found.type_name, str(key)) in nodes:
                continue
            label = None if found.label is None else columns[found.label][number]
            properties = {name: columns[column][number] for column, name in named.items()}
            nodes[NodeId(found.type_name, str(key))] = FoundNode(
                number=found.number, label=None if label is None else str(label), properties=properties
            )
    return RowGraph(nodes=nodes, edges=list(_edges(pattern, columns, type_of)))


def _edges(
    pattern: ResultPattern, columns: Mapping[str, Sequence[object]], type_of: Mapping[str, str]
) -> Iterator[FoundEdge]:
    for found in pattern.edges:
        seen: set[Hashable] = set()
        for number, ends in enumerate(zip(columns[found.source], columns[found.target], strict=True)):
            if None in ends:
                continue
            properties = {name: columns[column][number] for column, name in found.properties.items()}
            identity = (*ends, repr(properties))
            if not found.is_row:
                # Other columns repeat the rows of an edge.
                if identity in seen:
                    continue
                seen.add(identity)
            source, target = (
                NodeId(type_of[name], str(end)) for name, end in zip((found.source, found.target), ends, strict=True)
            )
            yield FoundEdge(
                type_name=found.type_name,
                source=source,
                target=target,
                is_directed=found.is_directed,
                is_path=found.is_path,
                properties=properties,
            )


# ---- as a graph of networkx


def networkx_of(found: RowGraph) -> networkx.MultiDiGraph:
    """The same nodes and edges; several edges between two nodes stay several.

    Raises:
        MissingPackageError: networkx is not installed.
    """
    need("networkx", "`to_networkx`")
    import networkx

    is_mixed = len({key.type_name for key in found.nodes}) > 1

    def name(node: NodeId) -> Hashable:
        return tuple(node) if is_mixed else node.id

    graph: networkx.MultiDiGraph = networkx.MultiDiGraph()
    for key, node in found.nodes.items():
        graph.add_node(name(key), **{**node.properties, "type": key.type_name, "id": key.id})
    for edge in found.edges:
        if not edge.is_path:
            direction = {} if edge.is_directed else {"directed": False}
            attributes = {**edge.properties, "type": edge.type_name, **direction}
            graph.add_edges_from([(name(edge.source), name(edge.target), attributes)])
    return graph


# ---- as a sparse matrix


class SparseGraph(NamedTuple):
    """A graph as a sparse matrix, and the node of each row and column of it."""

    #: Row: source; column: target. An entry counts the edges, or is the sum of their weights.
    matrix: sparse.csr_array
    #: The ids of the nodes, as texts.
    ids: NDArray[np.object_]
    #: The names of their types.
    types: NDArray[np.object_]


def sparse_of_rows(found: RowGraph, weight: str | None) -> SparseGraph:
    """The same nodes and edges; an edge whose direction is unknown counts in both, and paths are left out.

    Raises:
        BadRequestError: no edge has the weight, or one has something else than a number there.
        MissingPackageError: scipy is not installed.
    """
    positions = {node: position for position, node in enumerate(found.nodes)}
    sources, targets, values = list[int](), list[int](), list[float]()
    for edge in found.edges:
        value = 1 if weight is None else _weight(edge, weight)
        if edge.is_path or value is None:
            continue
        ends = [(positions[edge.source], positions[edge.target])]
        if not edge.is_directed and edge.source != edge.target:
            ends += [(target, source) for source, target in ends]
        for source, target in ends:
            sources.append(source)
            targets.append(target)
            values.append(value)
    return sparse_graph(
        ids=np.array([node.id for node in positions], object),
        types=np.array([node.type_name for node in positions], object),
        sources=np.array(sources, np.int64),
        targets=np.array(targets, np.int64),
        values=np.array(values, np.float64).astype(np.int64 if weight is None else np.float64),
    )


def _weight(edge: FoundEdge, name: str) -> float | None:
    if name not in edge.properties:
        raise BadRequestError(
            f"no column holds `{name}` of the edges `{edge.type_name}`: bind them, as in `$a $e:… $b`, and return "
            f"`$e.{name}`"
        )
    value = edge.properties[name]
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise BadRequestError(f"`{name}` of `{edge.type_name}` is not a number, so it cannot be a weight")


def sparse_graph(
    *,
    ids: NDArray[np.object_],
    types: NDArray[np.object_],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    values: NDArray[np.int64 | np.float64],
) -> SparseGraph:
    """The matrix with these entries, where equal places are added up.

    Raises:
        MissingPackageError: scipy is not installed.
    """
    need("scipy", "`to_scipy`")
    from scipy import sparse

    shape = (len(ids), len(ids))
    matrix = sparse.coo_array((values, (sources, targets)), shape=shape).tocsr()
    return SparseGraph(matrix=matrix, ids=ids, types=types)


# ---- as a picture


def picture_of_rows(found: RowGraph, *, title: str, note: str, limit: int) -> Picture:
    """A picture of the first nodes.

    Raises:
        BadRequestError: the limit is wrong.
    """
    nodes = [
        Node(
            key=key.key,
            type_name=key.type_name,
            label=node.label or key.id,
            colour=node.number,
            details={"id": key.id, **node.properties},
        )
        for key, node in found.nodes.items()
    ]
    edges = [
        Edge(
            source=edge.source.key,
            target=edge.target.key,
            type_name=edge.type_name,
            details=edge.properties,
            is_directed=edge.is_directed,
            is_path=edge.is_path,
        )
        for edge in found.edges
    ]
    return picture_of(nodes, edges, title=title, note=note, limit=check_limit(limit))
