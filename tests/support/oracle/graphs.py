"""Small graphs as plain dictionaries: one schema, random worlds over it, and a way into a real graph.

A world maps the name of a type to its rows. A row has `id`, an edge also `src` and `dst`, and then every property of
its type; a Date is a `date`, a DateTime an aware `datetime` in UTC, a vector a list of 32-bit floats.
Nothing here knows how a query is run.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import Transaction
from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.writes.columns import rows_table

Row = dict[str, Any]
World = dict[str, list[Row]]

#: Every scalar type, lists, vectors, enums, indexed and not; keys of two types and none; two edge types with the same
#: ends; edges inside one type and across types; properties that several types share, and that have one name only.
SCHEMA = """
interface Named { name: String }
interface Unused { name: String }
node Person implements Named {
    name: String @key
    nick: String?
    bio: String? @index
    motto: String
    age: I32?
    score: F64?
    active: Bool?
    level: enum(low, mid, top)? @index
    born: Date?
    seen: DateTime?
    tags: [String]?
    marks: [I64]?
    vec: Vector(4)? @index
    photo: Blob?
}
node Thing {
    number: I64 @key
    title: String @index
    small: I32
    wide: I64? @index
    count: U32?
    huge: U64?
    ratio: F32? @index
    weight: F64
    fragile: Bool
    kind: enum(box, tool)
    made: Date @index
    stamped: DateTime? @index
    days: [Date]?
    sizes: [F64]
    grains: [F32]?
    spot: Vector(4)
}
node Place implements Named {
    name: String @key
    city: String? @index
    size: I64?
    level: String?
    vec: Vector(4)? @index
}
node Note {
    text: String? @index
    rank: I32?
    name: String?
    born: Date?
}
edge Knows: Person -> Person {
    since: I32?
    how: String?
    trust: F64?
    met: Date?
}
edge Follows: Person -> Person
edge Owns: Person -> Thing {
    share: F32?
    since: DateTime?
}
edge Wants: Person -> Thing {
    level: enum(much, some)
    share: F32?
}
edge PartOf: Thing -> Thing {
    amount: U64?
    tags: [String]?
}
edge KeptAt: Thing -> Place {
    @key(src, dst)
}
edge LivesIn: Person -> Place {
    since: I32?
}
edge About: Note -> Person
"""


# ---- the shape of a schema


@dataclass(frozen=True, slots=True)
class PropertyShape:
    """A property: its type as written, without the question mark."""

    name: str
    type: str
    nullable: bool

    @property
    def scalar(self) -> str | None:
        """The scalar that values compare as; None for lists, vectors and blobs."""
        if self.type.startswith("enum"):
            return "String"
        return None if self.type.startswith(("[", "Vector", "Blob")) else self.type

    @property
    def item(self) -> str | None:
        """The scalar of the items of a list."""
        return self.type[1:-1] if self.type.startswith("[") else None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The values of an enum; empty for every other type."""
        return tuple(re.findall(r"\w+", self.type)[1:]) if self.type.startswith("enum") else ()


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node type."""

    name: str
    key: str | None
    properties: Mapping[str, PropertyShape]


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """An edge type."""

    name: str
    source: str
    target: str
    properties: Mapping[str, PropertyShape]
    #: Whether its ends are its key: there is one edge between two nodes, whose id they make.
    is_keyed: bool

    @property
    def is_loop(self) -> bool:
        """Whether both ends have one type."""
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Shape:
    """All types of a schema."""

    nodes: Mapping[str, NodeShape]
    edges: Mapping[str, EdgeShape]
    #: The node types that stand behind the name of an interface.
    interfaces: Mapping[str, tuple[str, ...]]

    def edge(self, word: str) -> EdgeShape:
        """The edge type behind a word of a query, whatever its case."""
        return next(e for name, e in self.edges.items() if name.casefold() == word.casefold())

    def properties(self, type_: str) -> Mapping[str, PropertyShape]:
        """The properties of a node or edge type."""
        return (self.nodes.get(type_) or self.edges[type_]).properties

    def members(self, names: Iterable[str]) -> tuple[str, ...]:
        """The node types that names of types and interfaces stand for."""
        return tuple(sorted({member for name in names for member in self.interfaces.get(name, (name,))}))

    def common(self, types: Sequence[str]) -> dict[str, PropertyShape]:
        """The properties that several types share: of one type, or all of them texts; nullable if one is."""
        found: dict[str, PropertyShape] = {}
        for name, first in self.properties(types[0]).items() if types else ():
            items = [self.properties(type_).get(name) for type_ in types]
            known = [item for item in items if item is not None]
            written = {item.type for item in known}
            if len(known) < len(types) or (len(written) > 1 and {item.scalar for item in known} != {"String"}):
                continue
            type_ = first.type if len(written) == 1 else "String"
            found[name] = PropertyShape(name, type_, any(item.nullable for item in known))
        return found


_DECLARATION = re.compile(
    r"(?P<kind>interface|node|edge) (?P<name>\w+)(?:: (?P<source>\w+) -> (?P<target>\w+))?"
    r"(?: implements (?P<interface>\w+))?(?: \{(?P<body>[^}]*)\})?"
)
_PROPERTY = re.compile(r"(?P<name>\w+): (?P<type>enum\([^)]*\)|Vector\(\d+\)|\[\w+\]|\w+)(?P<null>\??)(?P<key> @key)?")


@cache
def read_shape(schema: str = SCHEMA) -> Shape:
    """The shape of a schema that is written as plainly as `SCHEMA`."""
    nodes: dict[str, NodeShape] = {}
    edges: dict[str, EdgeShape] = {}
    interfaces: dict[str, tuple[str, ...]] = {}
    for found in _DECLARATION.finditer(schema):
        matches = list(_PROPERTY.finditer(found["body"] or ""))
        properties = {m["name"]: PropertyShape(m["name"], m["type"], bool(m["null"])) for m in matches}
        name, interface = found["name"], found["interface"]
        if interface:
            interfaces[interface] = (*interfaces[interface], name)
        if found["kind"] == "interface":
            interfaces[name] = ()
        elif found["kind"] == "node":
            key = next((m["name"] for m in matches if m["key"]), None)
            nodes[name] = NodeShape(name, key, properties)
        else:
            edges[name] = EdgeShape(
                name, found["source"], found["target"], properties, "@key(src, dst)" in (found["body"] or "")
            )
    return Shape(nodes, edges, interfaces)


# ---- values


def f32(value: float) -> float:
    """The nearest 32-bit float; infinite beyond all of them."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


#: Words of the text properties. Only `graphs` has a stem that matters, and none is a stop word.
WORDS = ("graph", "lance", "vector", "tensor", "graphs")
TEXTS = (
    *("graph", "Graph lance", "lance graph", "vector, tensor; graph", "graphs", "tensor-vector"),
    *("lance lance tensor", "", "VECTOR"),
)
_UTC = UTC
#: Values of every scalar that worlds and queries both draw from, the first two most of all, so that comparisons meet.
POOLS: Mapping[str, tuple[Any, ...]] = {
    "String": (
        *("a", "ab", "", "A", "abc", "b", "low", "top", "a%b", "a_b", "%", "_"),
        *("ä", "a\u0308", "日本", "～", "😀", 'quo"te', "it's", "back\\slash", "two\nlines"),
    ),
    "Bool": (True, False),
    "I32": (1, 2, 0, 3, 7, -1, -(2**31), 2**31 - 1),
    "I64": (1, 2, 0, 3, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)),
    "U32": (1, 2, 0, 3, 2**31, 2**32 - 1),
    "U64": (1, 2, 0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1),
    "F32": (1.0, 2.0, 0.5, 0.0, -0.0, -1.5, f32(0.1), f32(2.7), 16777216.0, f32(3.4e38)),
    "F64": (
        *(1.0, 2.0, 0.5, 0.0, -0.0, 2.7, 0.1, -1.5, f32(0.1)),
        *(2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300, 1e-300),
    ),
    "Date": (
        *(date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(2024, 3, 1)),
        *(date(1, 1, 1), date(9999, 12, 31)),
    ),
    "DateTime": (
        *(datetime(1970, 1, 1, tzinfo=_UTC), datetime(1969, 12, 31, 23, 59, 59, 999000, _UTC)),
        *(datetime(2024, 2, 29, 12, 30, 0, 1000, _UTC), datetime(2024, 2, 29, 12, 30, tzinfo=_UTC)),
        *(datetime(1600, 1, 1, tzinfo=_UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, _UTC)),
    ),
}
#: Sums of squares of their differences are exact in 32 bits, so that distances tie exactly or not at all.
COMPONENTS = (0.0, 1.0, -1.0, 2.0, 0.5, -3.0)
#: Properties that hold words, for the text functions.
TEXT_PROPERTIES = frozenset({"bio", "motto", "title", "text"})

#: Ids that occur in several types.
_NAMES = ("1", "2", "3", "a", "b", "ä", "B c", "-1")
_NUMBERS = (1, 2, 3, -1, 0, 2**53 + 1, 2**63 - 1, -(2**63))
#: Ids of edges and keyless nodes, not in the order in which rows are stored.
_IDS = tuple(f"e{number}" for number in (7, 3, 10, 1, 12, 5, 2, 9, 0, 11, 4, 8, 6, 13))


def often_first(pool: Sequence[Any]) -> list[Any]:
    """The pool, with its first two values in more than half of all places."""
    return [*pool[:2] * (len(pool) // 2), *pool]


def values_of(shape: PropertyShape) -> st.SearchStrategy[Any]:
    """Values of a property, null included where it may be."""
    if shape.type == "Blob":
        values: st.SearchStrategy[Any] = st.just(b"\x00\xff")
    elif shape.type.startswith("Vector"):
        dimension = int(shape.type[7:-1])
        parts = st.sampled_from(often_first(COMPONENTS))
        values = st.lists(parts, min_size=dimension, max_size=dimension)
    elif shape.type.startswith("enum"):
        values = st.sampled_from(shape.allowed)
    elif shape.item is not None:
        values = st.lists(st.none() | st.sampled_from(often_first(POOLS[shape.item])), max_size=3)
    elif shape.name in TEXT_PROPERTIES:
        values = st.sampled_from(often_first(TEXTS))
    else:
        values = st.sampled_from(often_first(POOLS[shape.type]))
    return st.one_of(values, values, values, st.none()) if shape.nullable else values


# ---- random worlds


#: How many rows a table has; most are neither empty nor full.
_NODE_COUNTS = st.sampled_from((0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7, 8))
_EDGE_COUNTS = st.sampled_from((0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 8, 8, 10, 12))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world over `SCHEMA`; any table may be empty."""
    shape = read_shape()
    world: World = {}
    for node in shape.nodes.values():
        pool: tuple[Any, ...] = _IDS[:8]
        if node.key:
            pool = _NUMBERS if node.properties[node.key].type == "I64" else _NAMES
        count = draw(_NODE_COUNTS)
        world[node.name] = []
        for key in draw(st.permutations(pool))[:count]:
            row = {name: draw(_strategy(item)) for name, item in node.properties.items()}
            if node.key:
                row[node.key] = key
            world[node.name].append({"id": str(key), **row})
    for edge in shape.edges.values():
        world[edge.name] = []
        sources, targets = ([row["id"] for row in world[t]] for t in (edge.source, edge.target))
        if not sources or not targets:
            continue
        for number in range(draw(_EDGE_COUNTS)):
            src, dst = draw(st.sampled_from(sources)), draw(st.sampled_from(targets))
            row = {name: draw(_strategy(item)) for name, item in edge.properties.items()}
            id_ = json.dumps([src, dst], ensure_ascii=False, separators=(",", ":")) if edge.is_keyed else _IDS[number]
            if all(other["id"] != id_ for other in world[edge.name]):
                world[edge.name].append({"id": id_, "src": src, "dst": dst, **row})
    return world


@cache
def _strategy(shape: PropertyShape) -> st.SearchStrategy[Any]:
    return values_of(shape)


# ---- worlds that a person wrote


#: What a property has that may not be null and is not written.
_DEFAULTS: Mapping[str, Any] = {
    "String": "",
    "I32": 0,
    "F64": 0.0,
    "Bool": False,
    "Date": date(2020, 1, 1),
    "[F64]": [],
    "Vector(4)": [0.0, 0.0, 0.0, 0.0],
}


def person(name: str, **given: Any) -> tuple[str, Row]:
    """A Person."""
    return "Person", {"name": name, **given}


def thing(number: int, **given: Any) -> tuple[str, Row]:
    """A Thing."""
    return "Thing", {"number": number, **given}


def place(name: str, **given: Any) -> tuple[str, Row]:
    """A Place."""
    return "Place", {"name": name, **given}


def note(id_: str, **given: Any) -> tuple[str, Row]:
    """A Note, which has no key."""
    return "Note", {"id": id_, **given}


def edge(type_: str, src: object, dst: object, **given: Any) -> tuple[str, Row]:
    """An edge; its id is the number of its row unless given."""
    return type_, {"src": str(src), "dst": str(dst), **given}


def edges(type_: str, pairs: str) -> list[tuple[str, Row]]:
    """Edges without properties, written as `a-b b-c`."""
    return [edge(type_, *pair.split("-")) for pair in pairs.split()]


def build(*rows: tuple[str, Row] | Sequence[tuple[str, Row]]) -> World:
    """A world of these rows; what is not written is null, or the default of its type."""
    shape = read_shape()
    world: World = {name: [] for name in (*shape.nodes, *shape.edges)}
    flat = [row for item in rows for row in ([item] if isinstance(item, tuple) else item)]
    for type_, given in flat:
        properties = shape.properties(type_)
        unknown = given.keys() - properties.keys() - {"id", "src", "dst"}
        assert not unknown, f"{type_} has no {unknown}"
        row = {"id": f"{type_.lower()}{len(world[type_])}"}
        node = shape.nodes.get(type_)
        if node is not None and node.key:
            row["id"] = str(given[node.key])
        for name, item in properties.items():
            missing = item.allowed[0] if item.allowed else _DEFAULTS.get(item.type)
            row[name] = None if item.nullable else missing
        world[type_].append(row | given)
    for type_, written in world.items():
        repeated = [id_ for id_, count in Counter(r["id"] for r in written).items() if count > 1]
        assert not repeated, f"{type_} has two rows {repeated}"
    return world


# ---- into a graph


_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)


def _stored(value: Any) -> Any:
    """A value as storage holds it: days and milliseconds are numbers."""
    match value:
        case datetime():
            return (value - _EPOCH) // timedelta(milliseconds=1)
        case date():
            return (value - _EPOCH_DAY).days
        case list():
            return tuple(_stored(part) for part in value)
    return value


def halves(world: World) -> tuple[World, World]:
    """Every other row, and the rest."""
    return ({type_: rows[::2] for type_, rows in world.items()}, {type_: rows[1::2] for type_, rows in world.items()})


def load(graph: Graph, world: World) -> None:
    """Append the rows of a world to the main branch in one commit; nothing is validated."""
    transaction = Transaction(graph._core.environment, kind=WriterKind.LOAD)
    snapshot = transaction.snapshot
    catalog = graph._core.schema_of(snapshot.schema_hash).catalog
    for name, rows in world.items():
        if not rows:
            continue
        is_node = name in catalog.nodes
        definition = catalog.nodes[name] if is_node else catalog.edges[name]
        pin = snapshot.pins[(node_table_key if is_node else edge_table_key)(name)]
        stored = [{column: _stored(value) for column, value in row.items()} for row in rows]
        transaction.stage(pin, stage_append(graph._core.open_table(pin), rows_table(definition, stored)))
    if not transaction.is_empty:
        transaction.commit()
