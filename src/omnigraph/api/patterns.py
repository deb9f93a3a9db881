"""What the columns of a result are in the graph: nodes, and the edges that its pattern says are between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from omnigraph.codec import Document
from omnigraph.core.source import SourceText
from omnigraph.core.types import EnumType, PropertyType, Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import Catalog, NodeDef

# ---- The pattern of a result


@frozen(kw_only=True)
class NodeColumn(Document):
    """A column whose values are ids of nodes of one type."""

    column: str
    type_name: str
    #: The place of the type in its schema: it has one colour in all pictures.
    number: int
    #: The column with the names of the nodes, where there is one.
    label: str | None = None
    #: Columns with properties of the same nodes, and the names of these.
    properties: Mapping[str, str] = field(default_factory=dict)


@frozen(kw_only=True)
class EdgeColumns(Document):
    """The edges, or paths, between the nodes of two columns; the columns are in the direction of the edge."""

    type_name: str
    source: str
    target: str
    #: Whether the direction is known; otherwise either column may be the source.
    is_directed: bool = True
    #: Whether it is a path that may have several edges.
    is_path: bool = False
    #: Whether every row is an edge of its own; otherwise equal rows may be the same edge.
    is_row: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@frozen(kw_only=True)
class ResultPattern(Document):
    """The nodes and edges in the rows of a result."""

    nodes: tuple[NodeColumn, ...] = ()
    edges: tuple[EdgeColumns, ...] = ()


#: The pattern of rows that hold no nodes.
NOTHING = ResultPattern()


def pattern_of(query: ir.ReadIR, catalog: Catalog) -> ResultPattern:
    """The pattern of the rows of a read."""
    types = dict(_node_types(query.pipeline))
    numbers = {name: number for number, name in enumerate(catalog.nodes)}
    ids: dict[str, str] = {}
    owned: dict[str, dict[str, str]] = {}
    for item in query.projections:
        match item.expression:
            case ir.EntityRef(variable):
                ids.setdefault(variable, item.name)
            case ir.PropertyRef(variable, name):
                owned.setdefault(variable, {})[item.name] = name
            case _:
                pass
    for variable, node_type in types.items():
        key = _text_key(catalog.nodes[node_type])
        column = next((column for column, name in owned.get(variable, {}).items() if name == key), None)
        if column is not None:
            ids.setdefault(variable, column)
    nodes = []
    for variable, column in ids.items():
        if variable not in types:
            # Of several types, which a picture does not tell apart.
            continue
        properties = owned.get(variable, {})
        label = catalog.nodes[types[variable]].label
        nodes.append(
            NodeColumn(
                column=column,
                type_name=types[variable],
                number=numbers[types[variable]],
                label=next((column for column, name in properties.items() if name == label), None),
                properties=properties,
            )
        )
    shown = {variable: column for variable, column in ids.items() if variable in types}
    return ResultPattern(nodes=tuple(nodes), edges=tuple(_edges(query, shown, owned)))


def _edges(query: ir.ReadIR, ids: Mapping[str, str], owned: Mapping[str, Mapping[str, str]]) -> Iterator[EdgeColumns]:
    steps = [op for op in query.pipeline if isinstance(op, ir.Expand | ir.NodeScan)]
    for op in query.pipeline:
        if not isinstance(op, ir.Expand) or op.source not in ids or op.target not in ids:
            continue
        ends = (op.source, op.target) if op.direction is not ir.Direction.IN else (op.target, op.source)
        variable = op.edge_variable
        yield EdgeColumns(
            type_name=op.edge_type,
            source=ids[ends[0]],
            target=ids[ends[1]],
            is_directed=op.direction is not ir.Direction.BOTH,
            is_path=variable is None and op.high > 1,
            # A scan and a bound edge, and nothing that repeats their rows.
            is_row=variable is not None and len(steps) == 2 and not query.grouped,
            properties={} if variable is None else dict(owned.get(variable, {})),
        )


def _node_types(pipeline: Sequence[ir.Op]) -> Iterator[tuple[str, str]]:
    for op in pipeline:
        match op:
            case ir.NodeScan(variable, node_type):
                yield variable, node_type
            case ir.Expand():
                yield op.target, op.target_type
            case _:
                pass


def _text_key(node: NodeDef) -> str | None:
    """The property whose text is the id of a node, if one is."""
    if node.key is None or len(node.key.members) != 1:
        return None
    (name,) = node.key.members
    base = node.properties[name].type.base
    return name if isinstance(base, EnumType) or base == ScalarType(Scalar.STRING) else None


# ---- A query that returns its nodes


#: Properties of a node that a picture reads.
_READ = 8
_PLAIN = (ScalarType, EnumType)


def with_nodes(text: str, query: ir.ReadIR, catalog: Catalog, name: str | None = None) -> str:
    """The text of a query that returns the nodes of its pattern too, with their names and some of their values.

    A query whose rows are groups stays as it is: its rows are not those of the pattern.
    """
    if query.grouped:
        return text
    # Lazy: a result knows its pattern without a parser.
    from omnigraph.lang.query.syntax import ast
    from omnigraph.lang.query.syntax.parser import parse_queries

    taken = {item.name for item in query.projections}
    columns: list[str] = []
    for variable, node_type in _node_types(query.pipeline):
        if not variable.startswith("~"):
            columns += _columns(query, variable, catalog.nodes[node_type], taken)
    body = next(
        item for item in parse_queries(SourceText(text, "<query>")).queries if name is None or item.name == name
    ).body
    assert isinstance(body, ast.ReadBody), "a read has columns"
    end = body.projections[-1].span.end
    return text[:end] + "".join(f", {column}" for column in columns) + text[end:]


def _columns(query: ir.ReadIR, variable: str, node: NodeDef, taken: set[str]) -> Iterator[str]:
    shown = {item.expression for item in query.projections}
    if not any(isinstance(item, ir.EntityRef) and item.variable == variable for item in shown):
        alias = variable
        while alias in taken:
            alias += "_"
        taken.add(alias)
        yield f"${variable} as {alias}"
    found = [item.property for item in shown if isinstance(item, ir.PropertyRef) and item.variable == variable]
    names = [*filter(None, [node.label]), *(item.name for item in node.properties.values() if _is_plain(item.type))]
    for name in list(dict.fromkeys(names))[:_READ]:
        if name not in found and f"{variable}.{name}" not in taken:
            taken.add(f"{variable}.{name}")
            yield f"${variable}.{name}"


def _is_plain(type_: PropertyType) -> bool:
    return isinstance(type_.base, _PLAIN) and type_.base != ScalarType(Scalar.BLOB)
