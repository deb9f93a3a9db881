"""The types that are proposed.

a table with a key of its own                          → nodes; its references are edges from the same rows
a table of two references and no identity              → edges; its other columns are their properties
a reference to a table that is not there               → nodes of the distinct values, if edges need them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from omnigraph.core.arrow import pc
from omnigraph.core.types import BaseType, PropertyType, Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING
from omnigraph.inference.columns import Column
from omnigraph.inference.names import distinct_names, property_name, type_name, unused
from omnigraph.inference.relations import VERBAL, Profile, base_words, count_in, joined_places, joined_texts
from omnigraph.inference.roles import Role, RoleEnd, Roles, Wishes

_I32, _I64 = ScalarType(Scalar.I32), ScalarType(Scalar.I64)


@frozen(kw_only=True)
class Property:
    """A property and the column that feeds it."""

    name: str
    column: Column
    #: Whether every row has to have a value.
    is_required: bool = False

    @property
    def type(self) -> PropertyType:
        """Its type."""
        return PropertyType(base=self.column.base, nullable=not self.is_required)


@frozen(kw_only=True)
class End:
    """One end of edges: the columns of its key, and the node type."""

    columns: tuple[Column, ...]
    node: str
    #: Different values, and how many are keys of the nodes.
    distinct: int
    matched: int
    #: Rows in which a column of it is null.
    nulls: int = 0
    #: Whether the nodes are made of the values.
    is_made: bool = False


@frozen(kw_only=True)
class Rows:
    """A table as a source of one type."""

    table: int
    properties: tuple[Property, ...]
    #: Of nodes that other tables only name: a value is in many rows.
    is_repeated: bool = False
    #: Rows whose key another row has already.
    repeated: int = 0
    #: Whether the nodes have a frame of their own, with the names of their properties.
    is_frame: bool = False


@frozen(kw_only=True)
class NodeType:
    """A node type, and where its nodes come from."""

    name: str
    #: Its key; empty where no column identifies a row.
    key: tuple[str, ...]
    sources: tuple[Rows, ...]
    #: Why the key was chosen, or why there is none.
    reason: str
    #: Whether the nodes are made of values that other tables have.
    is_made: bool = False

    @property
    def properties(self) -> tuple[Property, ...]:
        """Its properties, those of all sources."""
        found = {item.name: item for rows in reversed(self.sources) for item in rows.properties}
        first = [item.name for item in self.sources[0].properties]
        return tuple(found[name] for name in dict.fromkeys((*first, *found)))


@frozen(kw_only=True)
class EdgeId:
    """The columns that are the id of an edge, with what stands between them."""

    columns: tuple[Column, ...]
    separator: str = ""
    #: Rows that are there already, value by value.
    repeated: int = 0


@frozen(kw_only=True)
class EdgeType:
    """An edge type, and where its edges come from."""

    name: str
    source: End
    target: End
    rows: Rows
    #: None where no columns identify an edge.
    id: EdgeId | None = None
    #: Whether the rows are nodes too, and the edge is one of their columns.
    is_column: bool = False
    notes: tuple[str, ...] = ()


@frozen(kw_only=True)
class Design:
    """All types, and what is worth knowing about them."""

    profiles: tuple[Profile, ...]
    nodes: tuple[NodeType, ...]
    edges: tuple[EdgeType, ...]
    notes: tuple[str, ...] = ()


def design_of(profiles: Sequence[Profile], wishes: Wishes | None = None) -> Design:
    """The types that tables are proposed to become.

    Raises:
        BadRequestError: a wish names a type or a column that is not there.
    """
    return _Designer(Roles(profiles, wishes or Wishes())).design()


class _Designer:
    """Gives names to types and properties."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._profiles = roles.profiles
        taken = [name for name, role in zip(roles.names, roles.roles, strict=True) if role.ends is None]
        made = distinct_names([type_name(words, "Node") for words in roles.made], taken)
        self._made_names = dict(zip(roles.made, made, strict=True))

    def design(self) -> Design:
        tables = [number for number, role in enumerate(self._roles.roles) if role.ends is None]
        nodes = [self._node_type(number) for number in tables]
        nodes += [self._made_type(words) for words in self._roles.made]
        taken = {node.name for node in nodes}
        edges: list[EdgeType] = []
        for number, role in enumerate(self._roles.roles):
            if role.ends is not None:
                edges.append(self._edge_type(number, role, taken))
                taken.add(edges[-1].name)
        edges += self._links(taken)
        return Design(
            profiles=tuple(self._profiles), nodes=tuple(nodes), edges=tuple(edges), notes=tuple(self._roles.notes)
        )

    # ---- nodes

    def _node_type(self, number: int) -> NodeType:
        profile, key, name = self._profiles[number], self._roles.keys[number], self._roles.names[number]
        members = () if key is None else key.columns
        moved = {column for end in self._roles.roles[number].links for column in end.columns} - set(members)
        columns = [column for column in profile.columns if column.name not in moved]
        properties = _properties(profile, columns, name, members=members)
        by_column = {item.column.name: item.name for item in properties}
        return NodeType(
            name=name,
            key=tuple(by_column[member] for member in members),
            sources=(Rows(table=number, properties=properties, repeated=0 if key is None else key.repeated),),
            reason=self._key_reason(number),
        )

    def _key_reason(self, number: int) -> str:
        key, table = self._roles.keys[number], self._profiles[number].table
        if key is None:
            return "no column identifies a row, so each row gets an id of its own"
        found = f"different in all {table.extent}" if table.is_whole else f"different in {table.extent}"
        if key.repeated:
            found = f"{counted(key.repeated, 'row')} with the key of another row"
        users = self._roles.users_of(number)
        return f"{found}; {listed(users)} refer{'s' if len(users) == 1 else ''} to it" if users else found

    def _made_type(self, words: tuple[str, ...]) -> NodeType:
        made, name = self._roles.made[words], self._made_names[words]
        columns = [self._profiles[table].column(column) for table, column in made.columns]
        bases = {column.base for column in columns}
        base = _key_base(bases.pop()) if len(bases) == 1 else STRING
        called = {
            _own_name(column, self._profiles[table]) for (table, _), column in zip(made.columns, columns, strict=True)
        }
        key = called.pop() if len(called) == 1 else "_".join(words) + ("" if base == STRING else "_id")
        key = property_name(key, number=1, owner=name)
        sources = []
        for (table, _), column in zip(made.columns, columns, strict=True):
            profile = self._profiles[table]
            more = [profile.column(item) for item in made.more.get(table, ())]
            known = Property(name=key, column=_as_key(column, base), is_required=True)
            others = (replace(item, is_required=False) for item in _properties(profile, more, name, taken=(key,)))
            sources.append(Rows(table=table, properties=(known, *others), is_repeated=True))
        places = {f"`{column}` of {self._file_of(table)}" for table, column in made.columns}
        return NodeType(
            name=name,
            key=(key,),
            sources=tuple(sources),
            reason=f"the different values in {listed(sorted(places))}",
            is_made=True,
        )

    def _file_of(self, table: int) -> str:
        """What a column of a table, or of the items in it, is in."""
        parent = self._profiles[table].parent
        return self._profiles[table if parent is None else parent].table.shown

    # ---- edges

    def _edge_type(self, number: int, role: Role, taken: set[str]) -> EdgeType:
        assert role.ends is not None, "the rows are edges"
        profile = self._profiles[number]
        source, target = (self._end(number, end) for end in role.ends)
        used = {name for end in role.ends for name in end.columns} | ({role.id} if role.id else set())
        for made in self._roles.made.values():
            used |= set(made.more.get(number, ()))
        name = self._roles.names[number]
        if profile.parent is not None:
            name = _called(profile.words)
        if _any_case(taken)(name):
            name = (
                f"{source.node}{name.removeprefix('Has')}"
                if profile.parent is not None
                else f"{source.node}{target.node}"
            )
        columns = [column for column in profile.columns if column.name not in used]
        ends = (*source.columns, *target.columns)
        own = EdgeId(columns=(profile.column(role.id),)) if role.id else _ends_as_id(profile, ends)
        return EdgeType(
            name=unused(name, _any_case(taken)),
            source=source,
            target=target,
            rows=Rows(table=number, properties=self._edge_properties(number, columns, name)),
            id=own,
            notes=self._other_references(number, used),
        )

    def _edge_properties(self, number: int, columns: Sequence[Column], owner: str) -> tuple[Property, ...]:
        # Keys of a table are not a closed set, however few they are.
        keys = {name for r in self._roles.references[number] for name in r.columns}
        open_columns = [replace(c, choices=()) if c.name in keys else c for c in columns]
        return _properties(self._profiles[number], open_columns, owner, is_edge=True)

    def _other_references(self, number: int, used: set[str]) -> tuple[str, ...]:
        """References of edges that are not their ends: they stay properties."""
        return tuple(
            f"`{r.columns[0]}` holds keys of {self._roles.names[r.target]} as well; an edge has two ends"
            for r in self._roles.references[number]
            if not used & set(r.columns)
        )

    def _end(self, number: int, end: RoleEnd) -> End:
        profile = self._profiles[number]
        columns = tuple(profile.column(name) for name in end.columns)
        nulls = max(column.nulls for column in columns)
        if end.table is None:
            count, node = columns[0].distinct, self._made_names[end.words]
            return End(columns=columns, node=node, distinct=count, matched=count, nulls=nulls, is_made=True)
        key = self._roles.keys[end.table]
        assert key is not None, "only tables with a key are referred to"
        known = joined_texts([self._profiles[end.table].column(name) for name in key.columns])
        values = joined_texts(columns)
        return End(
            columns=columns,
            node=self._roles.names[end.table],
            distinct=len(values),
            matched=count_in(values, known),
            nulls=nulls,
        )

    def _links(self, taken: set[str]) -> list[EdgeType]:
        """The edges that are columns of nodes."""
        links = [(number, end) for number, role in enumerate(self._roles.roles) for end in role.links]
        called = [self._link_name(number, end) for number, end in links]
        counts = Counter(name.casefold() for name in called)
        found: list[EdgeType] = []
        for (number, link), name in zip(links, called, strict=True):
            owner = self._roles.names[number]
            several = f"{owner}{name.removeprefix('Has')}"
            chosen = unused(name if counts[name.casefold()] == 1 else several, _any_case(taken))
            taken.add(chosen)
            key = self._roles.keys[number]
            assert key is not None, "only nodes with a key have edges"
            members = tuple(self._profiles[number].column(item) for item in key.columns)
            rows = self._profiles[number].rows
            found.append(
                EdgeType(
                    name=chosen,
                    source=End(columns=members, node=owner, distinct=rows, matched=rows),
                    target=self._end(number, link),
                    rows=Rows(table=number, properties=(), repeated=key.repeated),
                    id=_joined_id(members, key.repeated),
                    is_column=True,
                )
            )
        return found

    def _link_name(self, number: int, link: RoleEnd) -> str:
        """The name of edges that are a column: `HasDirector`, `DependsOn`."""
        words = self._profiles[number].column(link.columns[0]).words
        key = None if link.table is None else self._roles.keys[link.table]
        is_key = key is not None and self._profiles[link.table or 0].column(key.columns[0]).words == words
        # A column that is called as the key is there says nothing about the edge.
        base = self._roles.words_of_end(link) if is_key or not words else base_words(words)
        return _called(base)


def _called(words: Sequence[str]) -> str:
    """The name of edges that are a column with such words."""
    name = "".join(word.capitalize() for word in words)
    return name if words[-1] in VERBAL or words[0] in ("is", "has") else f"Has{name}"


def _any_case(names: set[str]) -> Callable[[str], bool]:
    """Whether a name is taken, whatever the case of its letters."""
    return lambda name: name.casefold() in {it.casefold() for it in names}


# ---- Properties


def _properties(
    profile: Profile,
    columns: Sequence[Column],
    owner: str,
    *,
    members: Sequence[str] = (),
    taken: Sequence[str] = (),
    is_edge: bool = False,
) -> tuple[Property, ...]:
    """The properties of some columns; `members` are those of the key, `taken` names that they must not have."""
    called = [property_name(_own_name(c, profile), number=c.number, owner=owner, is_edge=is_edge) for c in columns]
    names = distinct_names(called, taken)
    return tuple(
        _property(name, column, profile, column.name in members) for name, column in zip(names, columns, strict=True)
    )


def _own_name(column: Column, profile: Profile) -> str:
    """The name of a column; of a member of items without the name of their list."""
    return column.name if profile.parent is None else column.name.removeprefix(f"{profile.table.stem}.")


def _property(name: str, column: Column, profile: Profile, is_member: bool) -> Property:
    """A property; a sample does not show that every row has a value, nor all values of a closed set."""
    if is_member:
        return Property(name=name, column=_as_key(column, _key_base(column.base)), is_required=True)
    if not profile.table.is_whole:
        return Property(name=name, column=column)
    return Property(name=name, column=column.as_choices(), is_required=column.is_complete)


def _key_base(base: BaseType) -> BaseType:
    """The type of a key: numbers get 64 bits, because others may follow."""
    return _I64 if base == _I32 else base


def _as_key(column: Column, base: BaseType) -> Column:
    """The column as a key of a type: its texts are what other columns are compared with."""
    if base == STRING and column.base != STRING:
        return column.as_texts()
    return replace(column, base=base)


# ---- Ids of edges

_SEPARATORS = ("-", "|", " ", "/", "~")


def _ends_as_id(profile: Profile, columns: Sequence[Column]) -> EdgeId | None:
    """The ends as the id of an edge, where only equal rows have equal ends: loaded again, an edge replaces itself."""
    if not profile.table.is_whole or not all(column.is_complete for column in columns):
        return None
    count = len(np.unique(joined_places(columns)))
    others = [column for column in profile.columns if column.keys is not None]
    if len(np.unique(joined_places(others))) != count or (len(others) < len(profile.columns) and count < profile.rows):
        return None
    repeated = profile.rows - count
    return _joined_id(columns, repeated) if profile.table.is_ordered or not repeated else None


def _joined_id(columns: Sequence[Column], repeated: int = 0) -> EdgeId | None:
    if len(columns) == 1:
        return EdgeId(columns=tuple(columns), repeated=repeated)
    texts = [column.keys.texts for column in columns if column.keys is not None]
    for separator in _SEPARATORS:
        if all(column.is_joinable for column in columns) and not any(
            pc.any(pc.match_substring(some, separator), min_count=0).as_py() for some in texts
        ):
            return EdgeId(columns=tuple(columns), separator=separator, repeated=repeated)
    return None


# ---- Words of comments


def counted(count: int, noun: str) -> str:
    """A number and what it counts.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more there are.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
