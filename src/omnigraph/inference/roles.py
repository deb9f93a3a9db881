"""What the rows of each table are: nodes or edges, by their keys and by what they refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.core.arrow import pc
from omnigraph.core.source import did_you_mean
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING
from omnigraph.inference.columns import Column
from omnigraph.inference.inner import inner_profile
from omnigraph.inference.names import distinct_names, snake, type_name, word_set, words_of
from omnigraph.inference.relations import (
    DISCRIMINATORS,
    ID_WORDS,
    KEY_ENDINGS,
    PAIRS,
    Key,
    Profile,
    Reference,
    base_words,
    choose_keys,
    chosen_references,
    composite_key,
    composite_references,
    count_in,
    directed_pair,
    find_references,
    is_id_like,
    is_own,
    key_candidates,
    one_way,
    with_fallbacks,
)


@frozen(kw_only=True)
class Wishes:
    """What a caller knows better, by the names of types."""

    #: The columns of the key; none for a type without one.
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Column → node type of both ends; None: the rows are nodes.
    edges: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)


@frozen(kw_only=True)
class RoleEnd:
    """One end of edges: its columns, and the table of its nodes or the words of a type that is made of the values."""

    columns: tuple[str, ...]
    table: int | None = None
    words: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Role:
    """What the rows of a table are."""

    #: Of edges: where they begin and end.
    ends: tuple[RoleEnd, RoleEnd] | None = None
    #: Of edges: the column that numbers them.
    id: str | None = None
    #: Of nodes: columns that are edges to other nodes.
    links: list[RoleEnd] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Made:
    """A node type of distinct values."""

    #: Tables and their columns with the values.
    columns: list[tuple[int, str]] = field(default_factory=list)
    #: Table → columns that have one value for each of them.
    more: dict[int, tuple[str, ...]] = field(default_factory=dict)


#: Columns that call a row something: it is a thing of its own.
_NAMING = word_set("name title label email login username headline summary")
#: More other columns than this, and a row with a number of its own is a thing, unless the name says otherwise.
_MOST_EDGE_PROPERTIES = 3
_RELATIONS = word_set(
    "dependency edge link relation relationship connection role rating route follow follower friendship membership "
    "citation reference credit enrollment assignment similarity association cast"
)
#: Those who do something stand at the beginning of an edge.
_AGENTS = word_set(
    "person user customer actor author employee member student player artist director developer contributor reviewer "
    "patient buyer seller client account follower reader subscriber visitor guest passenger reporter"
)
#: Names of tables that are verbs: edges keep them.
_VERBS = word_set("follows knows likes cites contains owns uses requires has loves rates")
_TYPE_NAME = re.compile("[A-Z][A-Za-z0-9_]*")


class Roles:
    """The roles of all tables, with what they were decided by."""

    def __init__(self, profiles: Sequence[Profile], wishes: Wishes) -> None:
        self.profiles = list(profiles)
        self.names = distinct_names([_name_of(profile) for profile in profiles])
        self.made: dict[tuple[str, ...], Made] = {}
        self.notes: list[str] = []
        #: Table of items → the member that calls them something.
        self._things: dict[int, str | None] = {}
        self._wishes = wishes
        self._check_wishes()
        self._find_keys()
        for number in range(len(profiles)):
            self._name_columns(number)
        for number in range(len(profiles)):
            self._add_inner(number)
        self._missing = self._find_missing()
        self.roles = [self._role(number) for number in range(len(self.profiles))]

    def words_of_end(self, end: RoleEnd) -> tuple[str, ...]:
        """The words of the node type at an end."""
        return end.words if end.table is None else self.profiles[end.table].words

    def users_of(self, number: int) -> list[str]:
        """The other tables that refer to a table."""
        mine = {r.table for references in self.references for r in references if r.target == number}
        others = (self.profiles[table] for table in sorted(mine) if table != number)
        return list(dict.fromkeys(profile.table.shown for profile in others if profile.parent != number))

    # ---- wishes

    def _check_wishes(self) -> None:
        for name in (*self._wishes.keys, *self._wishes.edges):
            if name not in self.names:
                hint = did_you_mean(name, self.names)
                raise BadRequestError(f"no table makes the type `{name}`" + (f": {hint}" if hint else ""))
        for name, columns in self._wishes.keys.items():
            for column in columns:
                self._wished_column(name, column)
        for name, ends in self._wishes.edges.items():
            if ends is not None and len(ends) != 2:
                raise BadRequestError(
                    f"`{name}`: an edge has two ends, as in {{'person_id': 'Person', 'movie_id': 'Movie'}}"
                )
            for column in ends or ():
                self._wished_column(name, column)

    def _wished_column(self, name: str, column: str) -> None:
        profile = self.profiles[self.names.index(name)]
        known = {item.name: item for item in profile.columns}
        if column not in known:
            hint = did_you_mean(column, known)
            raise BadRequestError(f"{profile.table.shown} has no column `{column}`" + (f": {hint}" if hint else ""))
        if known[column].keys is None:
            raise BadRequestError(
                f"{profile.table.shown}: the values of `{column}` ({known[column].base}) cannot be keys"
            )

    # ---- keys and references

    def _find_keys(self) -> None:
        self.profiles = profiles = [
            with_fallbacks(profile, snake(name)) for profile, name in zip(self.profiles, self.names, strict=True)
        ]
        candidates = [self._candidates(number) for number in range(len(profiles))]
        found = one_way(find_references(profiles, candidates), candidates)
        self.keys = choose_keys(profiles, candidates, found)
        for number, key in enumerate(self.keys):
            profiles[number] = _without_made(profiles[number], () if key is None else key.columns)
        self.references: list[list[Reference]] = [[] for _ in profiles]
        for reference in chosen_references(found, self.keys):
            self.references[reference.table].append(reference)
        for number, key in enumerate(self.keys):
            if key is not None and self._is_end(number, key):
                self.keys[number] = None
            elif key is None and self.names[number] not in self._wishes.keys:
                self.keys[number] = self._composite(number)
        for reference in composite_references(profiles, self.keys):
            mine = self.references[reference.table]
            # The whole key says more than its members.
            mine[:] = [r for r in mine if not set(r.columns) <= set(reference.columns)] + [reference]
        for references in self.references:
            references.sort(key=lambda r: self._place(r.table, r.columns[0]))

    def _candidates(self, number: int) -> list[Key]:
        wished = self._wishes.keys.get(self.names[number])
        if wished is None:
            return key_candidates(self.profiles[number])
        return [Key(columns=wished, score=1000)] if wished else []

    def _is_end(self, number: int, key: Key) -> bool:
        """Whether a key is one of several references: it is different in all rows by chance."""
        known = {name for r in self.references[number] for name in r.columns}
        is_used = any(r.target == number for references in self.references for r in references)
        return (
            len(known) > 1 and set(key.columns) <= known and not is_used and self.names[number] not in self._wishes.keys
        )

    def _composite(self, number: int) -> Key | None:
        """A key of a reference and a column that tells apart the rows of one parent, such as a version."""
        profile = self.profiles[number]
        parents = [name for r in self.references[number] for name in r.columns]
        inside = [c for c in profile.columns if c.words and c.words[-1] in DISCRIMINATORS and c.name not in parents]
        if len(parents) != 1 or not any(c.keys is not None and c.is_complete for c in inside):
            return None
        return composite_key(profile, parents, most=3)

    def _place(self, number: int, column: str) -> int:
        return self.profiles[number].column(column).number

    # ---- lists in columns

    def _add_inner(self, number: int) -> None:
        """Take lists whose items refer to something, or are things, for tables of references."""
        key = self.keys[number]
        if key is None:
            return
        for inner in self.profiles[number].inner:
            profile = replace(inner_profile(self.profiles[number], key, inner), parent=number)
            item = self._item(profile, len(key.columns))
            if item is None:
                continue
            self._drop_column(number, inner.column)
            parent = Reference(
                table=len(self.profiles),
                columns=key.columns,
                target=number,
                key=key.columns,
                distinct=profile.columns[0].distinct,
                matched=profile.columns[0].distinct,
                strength=3,
            )
            self.names.append(type_name(profile.words, "Item"))
            self.keys.append(None)
            self.references.append([parent, *([item] if isinstance(item, Reference) else [])])
            self._things[len(self.profiles)] = item if isinstance(item, str) else None
            self.profiles.append(profile)

    def _item(self, profile: Profile, members: int) -> Reference | str | None:
        """What the items of lists refer to, or the member that calls them something."""
        known = [[] if key is None else [key] for key in self.keys]
        own = profile.columns[members:]
        looked = replace(profile, columns=tuple(own))
        found = find_references([*self.profiles, looked], [*known, []])
        mine = [r for r in found if r.table == len(self.profiles)]
        if mine:
            return max(mine, key=lambda r: (r.strength, r.share))
        candidates = [c for c in own if c.base == STRING and c.keys is not None and c.words and c.words[-1] in _CALLING]
        is_object = "." in own[0].name
        return max(candidates, key=lambda c: KEY_ENDINGS[c.words[-1]]).name if is_object and candidates else None

    def _drop_column(self, number: int, name: str) -> None:
        """Leave a column out of its table, because it becomes edges."""
        profile = self.profiles[number]
        left_out = tuple(item for item in profile.table.left_out if item.name != name)
        self.profiles[number] = replace(
            profile,
            table=replace(profile.table, left_out=left_out),
            columns=tuple(column for column in profile.columns if column.name != name),
            moved=(*profile.moved, name),
        )

    # ---- names of columns that have none

    def _name_columns(self, number: int) -> None:
        """Call the columns of a table without a line of names after what they are."""
        profile = self.profiles[number]
        if not profile.table.is_unnamed:
            return
        key = self.keys[number]
        targets = {r.columns[0]: snake(self.names[r.target]) for r in self.references[number] if len(r.columns) == 1}
        are_alike = len(profile.columns) > 1 and _share_values(*profile.columns[:2])
        pair = [c.name for c in profile.columns[:2]] if are_alike else []
        names = []
        for column in profile.columns:
            if not targets and column.name in pair:
                names.append(("source", "target")[pair.index(column.name)])
            elif key is not None and key.columns == (column.name,):
                names.append(f"{snake(self.names[number])}_id")
            elif column.name in targets:
                twice = [name for name, target in targets.items() if target == targets[column.name]]
                side = ("source_", "target_")[twice.index(column.name)] if len(twice) == 2 else ""
                names.append(f"{side}{targets[column.name]}_id")
            else:
                names.append(_name_by_values(column, profile) or column.name)
        renamed = dict(zip((c.name for c in profile.columns), distinct_names(names), strict=True))
        self.profiles[number] = replace(
            profile, columns=tuple(replace(c, name=renamed[c.name]) for c in profile.columns)
        )
        self.keys[number] = None if key is None else replace(key, columns=tuple(renamed[name] for name in key.columns))
        for references in self.references:
            for place, r in enumerate(references):
                columns = tuple(renamed[name] for name in r.columns) if r.table == number else r.columns
                known = tuple(renamed[name] for name in r.key) if r.target == number else r.key
                references[place] = replace(r, columns=columns, key=known)

    # ---- references to what is not there

    def _find_missing(self) -> dict[tuple[str, ...], list[tuple[int, str]]]:
        """Columns that are called after keys of missing tables, by the words of the missing type."""
        found: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for number, profile in enumerate(self.profiles):
            key = self.keys[number]
            known = {name for r in self.references[number] for name in r.columns} | set(
                () if key is None else key.columns
            )
            for column in profile.columns:
                base = base_words(column.words)
                is_called = (
                    is_id_like(column.words) and column.words[-1] in _MISSING_ENDINGS and base[-1:] not in _NO_TYPES
                )
                is_free = column.name not in known and not is_own(column.words, profile.words)
                if is_called and is_free and column.keys is not None and not column.keys.is_unique:
                    found.setdefault(base, []).append((number, column.name))
        return found

    # ---- the role of a table

    def _role(self, number: int) -> Role:
        name = self.names[number]
        if name in self._wishes.edges:
            wished = self._wishes.edges[name]
            return self._nodes(number) if wished is None else Role(ends=self._wished_ends(number, wished))
        key = self.keys[number]
        pair = self._pair(number)
        if pair is None or not (key is None or self._only_numbers(number, key, pair)):
            return self._nodes(number)
        for end in pair:
            if end.table is None:
                self._make(end.words, number, end.columns[0])
        return Role(ends=self._turned(number, pair), id=None if key is None else key.columns[0])

    def _wished_ends(self, number: int, wished: Mapping[str, str]) -> tuple[RoleEnd, RoleEnd]:
        ends = []
        for column, node in wished.items():
            table = self.names.index(node) if node in self.names else None
            key = None if table is None else self.keys[table]
            if table is not None and (key is None or len(key.columns) > 1):
                raise BadRequestError(f"`{self.names[number]}`: {node} has no key of one column: give it in `keys`")
            words = words_of(node) if table is None else ()
            ends.append(RoleEnd(columns=(column,), table=table, words=words))
            if table is None:
                self._make(words, number, column)
        return ends[0], ends[1]

    def _only_numbers(self, number: int, key: Key, pair: tuple[RoleEnd, RoleEnd]) -> bool:
        """Whether a key only numbers edges: nothing refers to it, and nothing calls a row something."""
        profile = self.profiles[number]
        is_used = any(r.target == number for references in self.references for r in references)
        if is_used or len(key.columns) > 1 or profile.column(key.columns[0]).words not in _NUMBERING:
            return False
        ends = {name for end in pair for name in end.columns}
        others = [c for c in profile.columns if c.name not in ends and c.name not in key.columns]
        is_named = any(c.words and c.words[-1] in _NAMING and c.words[:-1] in ((), profile.words) for c in others)
        is_complete = all(profile.column(name).is_complete for name in ends)
        is_relation = bool(profile.words) and profile.words[-1] in _RELATIONS
        return is_complete and (is_relation or (not is_named and len(others) <= _MOST_EDGE_PROPERTIES))

    def _pair(self, number: int) -> tuple[RoleEnd, RoleEnd] | None:
        """The columns, or groups of them, that make edges of the rows."""
        profile, key = self.profiles[number], self.keys[number]
        ends = [RoleEnd(columns=r.columns, table=r.target) for r in self.references[number]]
        known = {name for end in ends for name in end.columns}
        if key is not None and set(key.columns) & known:
            # Rows that are known by what they refer to are a part of it.
            return None
        for words, columns in self._missing.items():
            ends += [RoleEnd(columns=(name,), words=words) for table, name in columns if table == number]
        ends.sort(key=lambda end: self._place(number, end.columns[0]))
        directed = directed_pair([profile.column(end.columns[0]) for end in ends if len(end.columns) == 1])
        if directed is not None:
            return self._of_columns(ends, directed)
        alike = [end for end in ends if sum(self.words_of_end(it) == self.words_of_end(end) for it in ends) == 2]
        if len(ends) > 2 and len(alike) == 2:
            return alike[0], alike[1]
        if len(ends) >= 2:
            return ends[0], ends[1]
        if key is not None:
            return None
        return self._with_thing(number, ends[0]) if ends else self._free_pair(number)

    @staticmethod
    def _of_columns(ends: Sequence[RoleEnd], columns: tuple[str, str]) -> tuple[RoleEnd, RoleEnd]:
        found = {end.columns: end for end in ends}
        return found[columns[:1]], found[columns[1:]]

    def _make(self, words: tuple[str, ...], number: int, column: str) -> None:
        made = self.made.setdefault(words, Made())
        if (number, column) not in made.columns:
            made.columns.append((number, column))

    def _with_thing(self, number: int, end: RoleEnd) -> tuple[RoleEnd, RoleEnd] | None:
        """A reference beside a text that comes again: the text is a thing, such as the genre of a movie."""
        profile = self.profiles[number]
        others = [c for c in profile.columns if c.name not in end.columns]
        texts = [c for c in others if c.base == STRING and c.keys is not None and c.distinct > 1]
        called = [c for c in texts if c.words and c.words == profile.words[-len(c.words) :]]
        called = [c for c in texts if c.name == self._things.get(number)] or called
        thing = called[0] if called else texts[0] if len(others) == 1 and texts else None
        if thing is None or thing.words[-1] in DISCRIMINATORS:
            return None
        words = thing.words if profile.parent is None else profile.words
        self._make(words, number, thing.name)
        more = tuple(c.name for c in others if c is not thing and _goes_with(thing, c))
        self.made[words].more[number] = more
        return end, RoleEnd(columns=(thing.name,), words=words)

    def _free_pair(self, number: int) -> tuple[RoleEnd, RoleEnd] | None:
        """Two columns of a table that refers to none: by their names, or because they have the same values."""
        profile = self.profiles[number]
        columns = [c for c in profile.columns if c.keys is not None and c.distinct > 1]
        directed = directed_pair(columns)
        if directed is None and len(columns) >= 2 and _share_values(columns[0], columns[1]):
            directed = (columns[0].name, columns[1].name)
        if directed is None:
            return None
        words = _common_words([profile.column(name) for name in directed])
        return RoleEnd(columns=directed[:1], words=words), RoleEnd(columns=directed[1:], words=words)

    def _turned(self, number: int, pair: tuple[RoleEnd, RoleEnd]) -> tuple[RoleEnd, RoleEnd]:
        """The pair with the one who does something first, where both ends are of different types."""
        if self.profiles[number].parent is not None:
            return pair
        first, second = (set(self.words_of_end(end)[-1:]) & _AGENTS for end in pair)
        return (pair[1], pair[0]) if second and not first else pair

    def _nodes(self, number: int) -> Role:
        links = [RoleEnd(columns=r.columns, table=r.target) for r in self.references[number]]
        if self.keys[number] is None:
            names = [f"`{name}`" for end in links for name in end.columns]
            if names:
                shown = self.profiles[number].table.shown
                self.notes.append(f"{shown}: {', '.join(names)} could be edges if columns identified a row")
            return Role()
        for words, columns in self._missing.items():
            # A key that one table has says nothing more as an edge; several tables are connected by it.
            if len({table for table, _ in columns}) > 1:
                for name in (name for table, name in columns if table == number):
                    self._make(words, number, name)
                    links.append(RoleEnd(columns=(name,), words=words))
        return Role(links=links)


#: Members of items that call them something.
_CALLING = word_set("id uid uuid code slug email mail login username handle name title label")
#: Names of keys that only number the rows.
_NUMBERING = (("id",), ("key",), ("uuid",), ("guid",), ("row", "id"), ("edge", "id"))
_MISSING_ENDINGS = word_set("id key uid uuid guid ref")
#: Words that name no type.
_NO_TYPES = (*((word,) for word in (*ID_WORDS, "parent", "external", "source", "target")), ())


# ---- Names, pairs, and columns that go together


def _without_made(profile: Profile, key: Sequence[str]) -> Profile:
    """The table without columns that are made of others, apart from its key."""
    kept = tuple(column for column in profile.columns if column.name in (*column.sources, *key))
    return replace(profile, columns=kept)


def _name_of(profile: Profile) -> str:
    """The name of the type of a table; a verb such as `follows` stays one."""
    stem = profile.table.stem
    if profile.table.is_named and _TYPE_NAME.fullmatch(stem):
        return stem
    last = words_of(stem)[-1:]
    if last and last[0] in _VERBS:
        return "".join(word.capitalize() for word in (*profile.words[:-1], *last))
    return type_name(profile.words, "Row")


#: What the values of a column tell about its name.
_NAMED_BY_VALUES = (
    ("email", r"^[^@\s]+@[^@\s]+\.[a-zA-Z]+$"),
    ("url", r"^https?://"),
    ("timezone", r"^[A-Z][A-Za-z]+/[A-Za-z_+-]+(?:/[A-Za-z_]+)?$"),
)


def _name_by_values(column: Column, profile: Profile) -> str | None:
    if column.keys is not None and column.base == STRING and column.distinct:
        for name, pattern in _NAMED_BY_VALUES:
            if pc.all(pc.match_substring_regex(column.keys.texts, pattern)).as_py():
                return name
        texts = [c for c in profile.columns if c.base == STRING and c.keys is not None]
        has_words = pc.mean(pc.match_substring(column.keys.texts, " ").cast("float64")).as_py() > 0.5
        return "name" if column is texts[0] and has_words and column.distinct * 10 > column.rows * 9 else None
    if column.base == ScalarType(Scalar.F64):
        for first, name, most in ((0, "latitude", 90), (-1, "longitude", 180)):
            pair = [c for c in profile.columns if c.number - column.number in (first, first + 1)]
            is_pair = len(pair) == 2 and all(c.base == column.base and c.bounds is not None for c in pair)
            if is_pair and _within(pair[0], 90) and _within(pair[1], 180) and _within(column, most):
                return name
    return None


def _within(column: Column, most: float) -> bool:
    return column.bounds is not None and -most <= column.bounds[0] and column.bounds[1] <= most


_LEAST_SHARED = 3


def _share_values(first: Column, second: Column) -> bool:
    """Whether two columns have the same kind of values: a third of those of one are values of the other."""
    if first.keys is None or second.keys is None or min(first.distinct, second.distinct) < _LEAST_SHARED:
        return False
    common = count_in(first.keys.texts, second.keys.texts)
    return first.base == second.base and common * 3 >= min(first.distinct, second.distinct)


def _common_words(columns: Sequence[Column]) -> tuple[str, ...]:
    """The words of a type that both ends of edges are of: what their names have in common, or the first name."""
    first, second = (base_words(column.words) for column in columns)
    common = tuple(word for word in first if word in second and word not in ID_WORDS)
    pointing = {word for pair in PAIRS for word in pair}
    rest = tuple(word for word in first if word not in pointing)
    return common or rest or ("node",)


def _goes_with(thing: Column, column: Column) -> bool:
    """Whether a column has one value for each value of another one that comes again."""
    if column.keys is None or thing.keys is None or thing.distinct == thing.rows:
        return False
    found: dict[int, int] = {}
    pairs = zip(thing.keys.places.tolist(), column.keys.places.tolist(), strict=True)
    return all(found.setdefault(mine, theirs) == theirs for mine, theirs in pairs)
