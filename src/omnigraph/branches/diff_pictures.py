"""Differences for people: counts per type, and a picture of what was inserted, updated and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from omnigraph.branches.deltas import Operation
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.lazy_exports import late_types
from omnigraph.display.tables import Column, Table
from omnigraph.display.text import counted, short_text
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.errors.writes import RowImage

if TYPE_CHECKING:
    from omnigraph.display.drawings import Edge, Mark, Node
    from omnigraph.display.pictures import Picture
    from omnigraph.lang.schema.catalog import Catalog
else:
    globals().update(late_types({"omnigraph.display.pictures": "Picture", "omnigraph.lang.schema.catalog": "Catalog"}))

_MARKS: Mapping[Operation, Mark] = {
    Operation.INSERT: "inserted",
    Operation.UPDATE: "updated",
    Operation.DELETE: "deleted",
}


class ShownChange(Protocol):
    """One entity that differs."""

    @property
    def kind(self) -> str:
        """`node` or `edge`."""
        ...

    @property
    def type_name(self) -> str:
        """The name of its type."""
        ...

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def op(self) -> Operation:
        """What happened to it."""
        ...

    @property
    def endpoints(self) -> dict[str, str] | None:
        """The ids of the ends of an edge."""
        ...


class StateReader(Protocol):
    """What a picture of a difference asks of the graph that it belongs to."""

    def catalog(self, *, snapshot: str) -> Catalog:
        """The resolved schema at a commit."""
        ...

    def entity_at(self, type_key: str, entity_id: str, /, *, snapshot: str) -> RowImage | None:
        """One entity at a commit."""
        ...


class ShownDiff:
    """How notebooks and terminals show the differences of two states."""

    #: The graph that the states belong to; None where it is not known any more.
    states: StateReader | None

    @property
    def from_commit_id(self) -> str:
        """The commit of the first state."""
        raise NotImplementedError

    @property
    def to_commit_id(self) -> str:
        """The commit of the second state."""
        raise NotImplementedError

    def first(self, count: int) -> Sequence[ShownChange]:
        """The first changes, in their order."""
        raise NotImplementedError

    def by_type(self) -> dict[TableKey, dict[Operation, int]]:
        """How many entities of each type were inserted, updated and deleted."""
        raise NotImplementedError

    def show(self, *, limit: int = 60, title: str = "diff") -> Picture:
        """A picture of the first changes: what was inserted, updated and deleted, and the nodes that edges lie between.

        Notebooks show it, and `save` writes it to a file. The values of both states are shown for what is chosen.

        Raises:
            BadRequestError: the limit is wrong.
        """
        from omnigraph.display.pictures import check_limit, picture_of

        assert self.states is not None, "a graph gives its differences with it"
        found = _Changes(self.states, self.from_commit_id, self.to_commit_id, check_limit(limit))
        changes = self.first(10 * limit)
        found.draw(changes)
        total = sum(self._totals().values())
        note = f"{found.drawn:,} of {counted(total, 'change')}" if found.drawn < total else ""
        return picture_of(list(found.nodes.values()), found.edges, title=title, note=note, limit=limit)

    def _totals(self) -> dict[Operation, int]:
        counts = self.by_type().values()
        return {operation: sum(found.get(operation, 0) for found in counts) for operation in _MARKS}

    def _table(self) -> Table:
        counts = self.by_type()
        totals = self._totals()
        columns = [Column(name="type", values=list(map(str, counts)))]
        for operation, mark in _MARKS.items():
            values = [found.get(operation, 0) for found in counts.values()]
            columns.append(Column(name=mark, values=values, is_number=True))
        title = f"Diff: {', '.join(counted(totals[item], str(item)) for item in _MARKS)}"
        note = f"{self.from_commit_id} → {self.to_commit_id}"
        return Table(columns=columns if counts else (), title=title, note=note)

    def __repr__(self) -> str:
        return "\n".join(self._table().lines())

    def _repr_html_(self) -> str:
        return self._table().html()


class _Changes:
    """Nodes and edges of a picture, collected from changes."""

    def __init__(self, states: StateReader, old: str, new: str, limit: int) -> None:
        self._states = states
        self._commits = (old, new)
        self._limit = limit
        self._catalogs = [_catalog(states, commit) for commit in (new, old)]
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        #: Changes that are in the picture.
        self.drawn = 0

    def draw(self, changes: Iterable[ShownChange]) -> None:
        """Take changes in, as many as there is room for."""
        changes = list(changes)
        for change in changes:
            if change.kind == "node" and len(self.nodes) < self._limit:
                self._add_node(change.type_name, change.id, change.op)
                self.drawn += 1
        for change in changes:
            if change.kind == "edge":
                self.drawn += self._add_edge(change)

    def _add_node(self, type_name: str, entity_id: str, operation: Operation | None) -> None:
        from omnigraph.display.drawings import Node

        key = f"{type_name}/{entity_id}"
        images = self._images(node_table_key(type_name), entity_id, operation)
        newest = images[-1] if images else {}
        label = self._label(type_name)
        name = newest.get(label) if label is not None else None
        self.nodes[key] = Node(
            key=key,
            type_name=type_name,
            label=entity_id if name is None else str(name),
            colour=self._colour(type_name),
            details={"id": entity_id, **_facts(images)},
            mark=None if operation is None else _MARKS[operation],
        )

    def _add_edge(self, change: ShownChange) -> bool:
        from omnigraph.display.drawings import Edge

        ends = self._ends(change.type_name)
        if ends is None or change.endpoints is None:
            return False
        pairs = list(zip(ends, (change.endpoints["from"], change.endpoints["to"]), strict=True))
        missing = {pair for pair in pairs if "/".join(pair) not in self.nodes}
        if len(self.nodes) + len(missing) > self._limit:
            return False
        for type_name, entity_id in sorted(missing):
            self._add_node(type_name, entity_id, None)
        images = self._images(edge_table_key(change.type_name), change.id, change.op)
        source, target = ("/".join(pair) for pair in pairs)
        self.edges.append(
            Edge(
                source=source, target=target, type_name=change.type_name, details=_facts(images), mark=_MARKS[change.op]
            )
        )
        return True

    # ---- what the states say

    def _images(self, key: TableKey, entity_id: str, operation: Operation | None) -> list[Mapping[str, object]]:
        """The properties of an entity before and after, where it was there."""
        found: list[Mapping[str, object]] = []
        for commit in _commits_of(operation, *self._commits):
            image = self._states.entity_at(key, entity_id, snapshot=commit)
            if image is not None:
                found.append(image["properties"])
        return found

    def _label(self, type_name: str) -> str | None:
        return next((it.nodes[type_name].label for it in self._catalogs if type_name in it.nodes), None)

    def _colour(self, type_name: str) -> int:
        return next((list(it.nodes).index(type_name) for it in self._catalogs if type_name in it.nodes), 0)

    def _ends(self, type_name: str) -> tuple[str, str] | None:
        found = next((it.edges[type_name] for it in self._catalogs if type_name in it.edges), None)
        return None if found is None else (found.source, found.target)


def _commits_of(operation: Operation | None, old: str, new: str) -> tuple[str, ...]:
    """The states that an entity was in."""
    match operation:
        case Operation.DELETE:
            return (old,)
        case Operation.UPDATE:
            return old, new
    return (new,)


def _catalog(states: StateReader, commit: str) -> Catalog:
    try:
        return states.catalog(snapshot=commit)
    except (NotFoundError, BadRequestError):
        # A server knows the accepted schema only; of what is left of an earlier one the other state knows enough.
        from omnigraph.lang.schema.catalog import Catalog

        return Catalog(interfaces={}, nodes={}, edges={}, schema_hash="")


def _facts(images: list[Mapping[str, object]]) -> dict[str, object]:
    """Values that did not change as they are, others as before and after."""
    if len(images) < 2:
        return dict(images[0]) if images else {}
    old, new = images
    facts: dict[str, object] = {}
    for name in {**new, **old}:
        before, after = old.get(name), new.get(name)
        facts[name] = after if before == after else f"{short_text(before, 50)} → {short_text(after, 50)}"
    return facts
