"""Keys of tables, and columns whose values are keys of other tables.

A reference is found by its values, and by its name: the values have to be keys of the other table, and the less a name
says, the more of them. Small whole numbers are keys of every table that counts its rows, so without a name they say
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING
from omnigraph.inference.columns import Column, Keys
from omnigraph.inference.names import singular, word_set
from omnigraph.inference.samples import Table


@frozen(kw_only=True)
class InnerTable:
    """The items of a column of lists: a column for each of their members, or one for the items themselves."""

    column: str
    #: What a mapping says to make a record of each item.
    each: object
    #: Per item the row that it is from.
    parents: NDArray[np.int64]
    columns: tuple[Column, ...]


@frozen(kw_only=True)
class Profile:
    """A table and its columns."""

    table: Table
    #: The words of its name, the last one in the singular.
    words: tuple[str, ...]
    columns: tuple[Column, ...]
    #: Columns of lists whose items may refer to something.
    inner: tuple[InnerTable, ...] = ()
    #: The number of the table whose rows have these items; None for a table of its own.
    parent: int | None = None
    #: Columns that only become edges.
    moved: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self.table.rows

    def column(self, name: str) -> Column:
        """One column by its name."""
        return next(column for column in self.columns if column.name == name)


@frozen(kw_only=True)
class Key:
    """Columns that identify the rows of a table."""

    columns: tuple[str, ...]
    #: How much speaks for it.
    score: float
    #: Values that occur more than once, and rows beyond the first of each: the data is wrong there.
    repeated: int = 0


@frozen(kw_only=True)
class Reference:
    """Columns of a table whose values are keys of a table."""

    table: int
    columns: tuple[str, ...]
    target: int
    key: tuple[str, ...]
    #: Different values, and how many of them are keys.
    distinct: int
    matched: int
    #: How much the name of the column says; see `_named`.
    strength: int
    #: How much speaks for the key.
    score: float = 0.0

    @property
    def share(self) -> float:
        """The share of values that are keys."""
        return self.matched / max(self.distinct, 1)


# ---- Names

ID_WORDS = word_set("id ids key uid uuid guid pk fk ref code no nr number num")
_OWN_ENDINGS = word_set("id key uid uuid guid pk")
KEY_ENDINGS = {
    **dict.fromkeys(("id", "uid", "uuid", "guid", "key", "pk"), 80.0),
    **dict.fromkeys(("code", "sku", "slug", "isbn", "issn", "doi", "ean", "email", "iata", "icao", "symbol"), 60.0),
    **dict.fromkeys(("login", "username", "handle", "mail", "nr", "no", "number", "ticker", "iso", "vin"), 55.0),
    **dict.fromkeys(("name", "label", "title", "url", "uri", "path"), 30.0),
}
#: What tells two rows of one parent apart; a text of these is not something of its own.
DISCRIMINATORS = word_set(
    "version release line number no nr seq sequence position index chapter episode season revision part date day "
    "month year"
)
_PEOPLE = word_set("person user employee author actor staff member customer account contact")
_ROLES = word_set(
    "director author actor manager owner creator user boss maintainer editor writer producer artist assignee reporter "
    "reviewer sender receiver lead supervisor teacher student doctor patient buyer seller customer employee"
)
_SELF = word_set(
    "parent manager supervisor boss previous prev next reply predecessor successor replaces superseded mother father "
    "spouse original reports depends"
)
#: First and second word of pairs of columns that point from one row to another.
PAIRS = (
    *(("source", "target"), ("src", "dst"), ("src", "dest"), ("source", "dest"), ("source", "destination")),
    *(("from", "to"), ("start", "end"), ("origin", "destination"), ("origin", "dest"), ("departure", "arrival")),
    *(("dep", "arr"), ("follower", "followee"), ("follower", "following"), ("follower", "followed")),
    *(("citing", "cited"), ("parent", "child"), ("caller", "callee"), ("sender", "receiver"), ("sender", "recipient")),
    *(("user", "friend"), ("person", "friend"), ("subject", "object"), ("dependent", "dependency"), ("head", "tail")),
    *(("1", "2"), ("a", "b"), ("one", "two"), ("left", "right")),
)
#: Words at the end of a name that make it say where something leads.
VERBAL = word_set("on to by of in at with for from requires follows likes knows")


def base_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a column without those that say that it holds a key: of `director_id` that is `director`."""
    found = list(words)
    while len(found) > 1 and found[-1] in ID_WORDS:
        found.pop()
    return tuple(found)


def is_id_like(words: Sequence[str]) -> bool:
    """Whether a name says that a column holds keys."""
    return bool(words) and words[-1] in ID_WORDS


def is_own(words: Sequence[str], owner: Sequence[str]) -> bool:
    """Whether a column is called after the rows of its table: `id`, or `movie_id` of movies."""
    base = tuple(map(singular, base_words(words)))
    is_key = len(words) == len(base) or words[-1] in _OWN_ENDINGS
    return base in (("id",), ("key",), ("uuid",), ("guid",), ("pk",)) or (is_key and base == tuple(owner))


def directed_pair(columns: Sequence[Column]) -> tuple[str, str] | None:
    """Two columns whose names say that one points to the other."""
    for first, second in PAIRS:
        for source in (c for c in columns if first in c.words):
            for target in (c for c in columns if second in c.words and c is not source):
                rest = [
                    tuple(word for word in base_words(c.words) if word != part)
                    for c, part in ((source, first), (target, second))
                ]
                if rest[0] == rest[1] or not all(rest):
                    return source.name, target.name
    for target in columns:
        before = [column for column in columns if column.number < target.number]
        if before and len(target.words) > 1 and target.words[-1] in VERBAL:
            return before[-1].name, target.name
    return None


# ---- Keys


def key_candidates(profile: Profile) -> list[Key]:
    """The columns that may identify the rows, the best first."""
    found = []
    for column in profile.columns:
        if column.keys is None or not column.is_complete or profile.rows < 1:
            continue
        score = _key_score(column, profile)
        repeated = profile.rows - column.distinct
        is_known = profile.table.is_ordered and (is_own(column.words, profile.words) or score >= _KNOWN)
        if repeated and not (is_known and repeated <= max(1, profile.rows // _REPEATED_SHARE)):
            continue
        if score > 0:
            found.append(Key(columns=(column.name,), score=score - (40 if repeated else 0), repeated=repeated))
    return sorted(found, key=lambda key: -key.score)


#: A score with which the name alone tells a key, also where a few rows have the same one.
_KNOWN = 80.0
_REPEATED_SHARE = 20


def _key_score(column: Column, profile: Profile) -> float:
    words = column.words
    first = 8.0 if column.number == 1 else 0.0
    if is_own(words, profile.words):
        return 100 + first
    if isinstance(column.base, ScalarType) and column.base.scalar is Scalar.DATE:
        return 0
    last = words[-1] if words else ""
    found = KEY_ENDINGS.get(last, 0.0)
    if found <= _NAME and len(words) > 1:
        # `primaryTitle` is one of several names.
        found /= 2
    if found:
        return found + first
    # Without a name that says so: the first column, and only where it is hardly different by chance.
    return (12 + first if profile.rows >= _LEAST_ROWS else 1) if first else 0


def with_fallbacks(profile: Profile, owner: str) -> Profile:
    """The table with a column for each code that some rows lack: it has the key of the row there.

    Other tables may refer to rows by such a code, as routes do to airports, and some airports have none.
    """
    whole = next((key for key in key_candidates(profile) if not key.repeated), None)
    if whole is None:
        return profile
    last = profile.column(whole.columns[0])
    made = []
    for column in profile.columns:
        is_code = column.words and KEY_ENDINGS.get(column.words[-1], 0) >= _CODE
        if is_code and column.keys is not None and column.keys.is_unique and 0 < column.nulls * 2 < column.rows:
            joined = _first_of(column, last, name=f"{owner}_key")
            made += [] if joined is None else [joined]
    found = [*profile.columns, *made[:1]]
    return replace(profile, columns=tuple(sorted(found, key=lambda column: column.number)))


#: The score of a name that says that a column has codes.
_CODE = 55.0


def _first_of(column: Column, last: Column, *, name: str) -> Column | None:
    """The values of a column, and those of another one where it has none, if all of them are different."""
    if column.keys is None or last.keys is None or not (column.is_joinable and last.is_joinable):
        return None
    offset = len(column.keys.texts)
    places = np.where(column.keys.places < 0, last.keys.places + offset, column.keys.places)
    encoded = pa.concat_arrays([column.keys.texts, last.keys.texts]).dictionary_encode()
    moved = np.asarray(encoded.indices)[places].astype(np.int64)
    if len(np.unique(moved)) < len(moved):
        return None
    used = pa.array(moved)
    texts = encoded.dictionary.take(used).dictionary_encode()
    steps: dict[str, object] = {"first": [column.name, last.name]}
    return Column(
        name=name,
        number=column.number,
        base=STRING,
        steps={**steps, **column.steps},
        seen=f"`{column.name}`, or `{last.name}` in {column.nulls:,} rows without it",
        rows=column.rows,
        keys=Keys(places=np.asarray(texts.indices).astype(np.int64), texts=texts.dictionary),
        called=column.name,
    )


_LEAST_ROWS, _NAME = 5, 30.0


def composite_key(profile: Profile, needed: Sequence[str] = (), *, most: int = 3) -> Key | None:
    """The fewest columns that together identify the rows; `needed` are among them."""
    usable = [column for column in profile.columns if column.keys is not None and column.is_complete]
    if profile.rows < 2 or any(name not in {column.name for column in usable} for name in needed):
        return None
    others = sorted((c for c in usable if c.name not in needed), key=lambda c: (_rank(c), c.number))[:_COMBINED]
    for count in range(max(1, 2 - len(needed)), most - len(needed) + 1):
        for some in combinations(others, count):
            chosen = [profile.column(name) for name in needed] + list(some)
            if _are_unique(chosen):
                return Key(columns=tuple(column.name for column in chosen), score=20)
    return None


#: Columns of which combinations are tried.
_COMBINED = 6


def _rank(column: Column) -> int:
    """Which columns are likelier members of a key."""
    last = column.words[-1] if column.words else ""
    return 0 if last in DISCRIMINATORS else 1 if is_id_like(column.words) else 2 if column.base == STRING else 3


def _are_unique(columns: Sequence[Column]) -> bool:
    places = joined_places(columns)
    return len(np.unique(places)) == len(places)


def joined_places(columns: Sequence[Column]) -> NDArray[np.int64]:
    """Per row the place of the values of several columns together."""
    found = np.zeros(columns[0].rows, dtype=np.int64)
    for column in columns:
        assert column.keys is not None, "only columns with keys are joined"
        found = found * (len(column.keys.texts) + 1) + column.keys.places + 1
        # Small numbers again, so that the next column does not overflow.
        found = np.unique(found, return_inverse=True)[1]
    return found


def joined_texts(columns: Sequence[Column]) -> Array:
    """The distinct values of several columns together; rows in which one is null are left out."""
    texts = [
        column.keys.texts.take(pa.array(column.keys.places, mask=column.keys.places < 0))
        for column in columns
        if column.keys is not None
    ]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\x1f")
    found: Array = pc.unique(joined.drop_null())
    return found


# ---- References


#: Names of lists that lead somewhere.
_POINTING = word_set("dependency depend require import reference related link friend follow child use cite parent")
#: What a name says: nothing, that the column holds keys, what kind of thing it names, which table it names.
_NOTHING, _KEYS, _KIND, _TABLE = range(4)
#: The share of values that have to be keys, by what the name says.
_SHARES = {_TABLE: 0.5, _KIND: 0.8, _KEYS: 0.95, _NOTHING: 0.95}
#: The same for both columns of a pair such as `from` and `to`: each of them speaks for the other one.
_PAIRED = 0.8
#: The least different values that say something without a name.
_LEAST_VALUES = {_TABLE: 1, _KIND: 1, _KEYS: 2, _NOTHING: 5}
_LEAST_NUMBERS = 20
#: Values that are compared before all are.
_PROBE = 200


def find_references(profiles: Sequence[Profile], keys: Sequence[Sequence[Key]]) -> list[Reference]:
    """Every column whose values are keys of some table, for every key that this may be."""
    found = []
    for number, profile in enumerate(profiles):
        mine = [
            c
            for c in profile.columns
            if c.keys is not None and c.distinct and (profile.parent is not None or not is_own(c.words, profile.words))
        ]
        pair = directed_pair(mine)
        for column, target in product(mine, range(len(profiles))):
            other = next((c for c in mine if pair is not None and {c.name, column.name} == {*pair}), None)
            for key in keys[target]:
                known = profiles[target].column(key.columns[0])
                is_itself = target == number and column.name in (known.name, *known.sources)
                if len(key.columns) == 1 and not is_itself:
                    is_paired = other is not None and _share(other, known) >= _PAIRED
                    reference = _compare((number, column), (target, key), profiles, is_paired=is_paired)
                    found += [] if reference is None else [reference]
    return found


def _share(column: Column, key: Column) -> float:
    """The share of the values of a column that are keys."""
    if column.keys is None or key.keys is None:
        return 0.0
    return count_in(column.keys.texts, key.keys.texts, least=_PAIRED) / max(column.distinct, 1)


def _compare(
    source: tuple[int, Column], known: tuple[int, Key], profiles: Sequence[Profile], *, is_paired: bool
) -> Reference | None:
    """The reference of a column of a table to a key of a table, if its values are such keys."""
    (number, column), (target, key) = source, known
    profile, other = profiles[number], profiles[target]
    key_column = other.column(key.columns[0])
    if column.keys is None or key_column.keys is None:
        return None
    strength = named(column, key_column, other, is_self=number == target)
    if profile.parent is not None and column.base == STRING:
        # Lists of texts that are keys are rarely so by chance.
        strength = max(strength, _KIND if _POINTING.isdisjoint(profile.words) else _TABLE)
    if column.distinct < _LEAST_VALUES[strength]:
        return None
    least = min(_SHARES[strength], _PAIRED) if is_paired else _SHARES[strength]
    matched = count_in(column.keys.texts, key_column.keys.texts, least=least)
    if matched < least * column.distinct:
        return None
    if strength <= _KEYS and not _tells(column, key_column, strength, is_unnamed=profile.table.is_unnamed):
        return None
    return Reference(
        table=number,
        columns=(column.name,),
        target=target,
        key=key.columns,
        distinct=column.distinct,
        matched=matched,
        strength=strength,
        score=key.score,
    )


def count_in(values: Array, known: Array, *, least: float = 0.0) -> int:
    """How many values are known; 0 where the first of them are not, and at least such a share is wanted."""
    probe = values[:_PROBE]
    if pc.sum(pc.is_in(probe, known)).as_py() < least / 2 * len(probe):
        return 0
    return int(pc.sum(pc.is_in(values, known)).as_py() or 0)


def named(column: Column, key: Column, other: Profile, *, is_self: bool) -> int:
    """How much the name of a column says about a table that it refers to."""
    words, base = column.words, tuple(map(singular, base_words(column.words)))
    table = other.words
    generic = len(key.words) == 1 and key.words[0] in (*ID_WORDS, "name", "title", "email", "label")
    if base and table and (base[-len(table) :] == table or base[: len(table)] == table):
        return _TABLE
    if base and table and len(table) > 1 and base[-1] == table[-1]:
        return _TABLE
    if words == key.words and not generic and not is_self:
        return _TABLE
    if is_self and not _SELF.isdisjoint(words):
        return _TABLE
    if not is_self and table and table[-1] in _PEOPLE and not _ROLES.isdisjoint(base):
        return _KIND
    is_pointer = any(word in pair for pair in PAIRS for word in words[:1]) or bool(words and words[-1] in VERBAL)
    return _KEYS if is_id_like(words) or is_pointer else _NOTHING


def _tells(column: Column, key: Column, strength: int, *, is_unnamed: bool) -> bool:
    """Whether it says something that the values are keys: numbers from 1 on are keys of every table that has more."""
    if column.base == STRING:
        return True
    if strength == _NOTHING and not is_unnamed:
        return False
    if column.distinct < _LEAST_NUMBERS:
        return strength >= _KEYS and not is_unnamed
    mine, theirs = (_numbers(item.keys) for item in (column, key))
    if mine is None or theirs is None or not len(mine):
        return False
    inside = int(((theirs >= mine.min()) & (theirs <= mine.max())).sum())
    density = inside / float(mine.max() - mine.min() + 1)
    return strength >= _KEYS or density <= _DENSE


_DENSE = 0.9


def _numbers(keys: Keys | None) -> NDArray[np.int64] | None:
    if keys is None or not pc.all(pc.match_substring_regex(keys.texts, "^-?[0-9]{1,18}$"), min_count=0).as_py():
        return None
    found: NDArray[np.int64] = keys.texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


# ---- Choosing keys, and one reference per column


def one_way(references: Sequence[Reference], candidates: Sequence[Sequence[Key]]) -> list[Reference]:
    """The references without those that go back: a column refers to the table of which it is the best key."""
    best = [keys[0] if keys else None for keys in candidates]
    there = {(r.table, r.columns, r.target, r.key): r for r in references}

    def is_best(table: int, columns: tuple[str, ...]) -> bool:
        key = best[table]
        return key is not None and key.columns == columns

    kept = []
    for reference in references:
        back = there.get((reference.target, reference.key, reference.table, reference.columns))
        mine, theirs = is_best(reference.table, reference.columns), is_best(reference.target, reference.key)
        if back is None or theirs > mine or (mine == theirs and _rival(reference) >= _rival(back)):
            kept.append(reference)
    return kept


def _rival(reference: Reference) -> tuple[float, ...]:
    # The larger table is what the smaller one refers to; of equal ones the first.
    return (reference.strength, reference.share, -reference.distinct, -reference.target)


def choose_keys(
    profiles: Sequence[Profile], candidates: Sequence[Sequence[Key]], references: Sequence[Reference]
) -> list[Key | None]:
    """The key of each table: the one that other tables refer to, else the best by its name."""
    found: list[Key | None] = []
    for number in range(len(profiles)):
        best: tuple[float, Key] | None = None
        for key in candidates[number]:
            mine = [r for r in references if r.target == number and r.key == key.columns and r.table != number]
            used = max((_REFERRED * r.share + 10 * r.strength for r in mine), default=0.0) + len(mine)
            is_enough = used > 0 or key.score >= _ENOUGH
            if is_enough and (best is None or key.score + used > best[0]):
                best = (key.score + used, key)
        found.append(None if best is None else best[1])
    return found


#: A score that makes a key of a column that nothing refers to.
_ENOUGH = 10.0
#: More than any name says.
_REFERRED = 200.0


def chosen_references(references: Sequence[Reference], keys: Sequence[Key | None]) -> list[Reference]:
    """One reference per column, to the key that its table has."""
    best: dict[tuple[int, tuple[str, ...]], Reference] = {}
    for reference in references:
        key = keys[reference.target]
        if key is None or key.columns != reference.key:
            continue
        place = (reference.table, reference.columns)
        if place not in best or _quality(reference) > _quality(best[place]):
            best[place] = reference
    return list(best.values())


def _quality(reference: Reference) -> tuple[float, ...]:
    return (
        reference.strength,
        round(reference.share, 2),
        reference.table != reference.target,
        reference.score,
        -reference.target,
    )


def composite_references(profiles: Sequence[Profile], keys: Sequence[Key | None]) -> Iterator[Reference]:
    """Columns that have the names of the members of a key, and together its values."""
    for target, key in enumerate(keys):
        if key is None or len(key.columns) < 2:
            continue
        known = joined_texts([profiles[target].column(name) for name in key.columns])
        members = {profiles[target].column(name).words for name in key.columns}
        for number, profile in enumerate(profiles):
            if number == target:
                continue
            mine = {column.words: column for column in profile.columns if column.keys is not None}
            if not members <= set(mine):
                continue
            columns = [mine[profiles[target].column(name).words] for name in key.columns]
            values = joined_texts(columns)
            matched = count_in(values, known)
            if len(values) and matched >= _SHARES[_TABLE] * len(values):
                yield Reference(
                    table=number,
                    columns=tuple(column.name for column in columns),
                    target=target,
                    key=key.columns,
                    distinct=len(values),
                    matched=matched,
                    strength=_TABLE,
                )
