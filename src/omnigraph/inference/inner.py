"""Lists in columns as tables of their own: an item is a row, beside the key of the row that has the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import ListType, Scalar
from omnigraph.inference.columns import Column, Keys, SampledColumn, look_at
from omnigraph.inference.names import singular, words_of
from omnigraph.inference.relations import InnerTable, Key, Profile
from omnigraph.inference.samples import Table
from omnigraph.pipeline.shape.columns import is_text_type
from omnigraph.pipeline.shape.items import KEY, VALUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Items that may be keys.
_ITEMS = (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def inner_table(sampled: SampledColumn, guess: Column | None) -> InnerTable | None:
    """The items of a column as a table, if they may refer to something; `guess` is what was made of the column."""
    if guess is None:
        return _of_objects(sampled)
    if not isinstance(guess.base, ListType) or guess.base.item not in _ITEMS:
        return None
    values = sampled.values
    each: object = sampled.name
    if is_text_type(values.type):
        split = guess.steps.get("split")
        if not isinstance(split, str):
            return None
        steps = {name: guess.steps[name] for name in ("split", "trim") if name in guess.steps}
        each = {"column": sampled.name, **steps}
        values = pc.split_pattern(_without_nulls(values, guess), split)
    found = _item_column(sampled.name, 1, pc.list_flatten(values), sampled)
    columns = () if found is None or found.keys is None else (found,)
    return _inner(sampled.name, each, values, columns)


def _of_objects(sampled: SampledColumn) -> InnerTable | None:
    values: Any = sampled.values
    if pa.types.is_map(values.type):
        item = pa.struct([pa.field(KEY, values.type.key_type), pa.field(VALUE, values.type.item_type)])
        values = values.cast(pa.list_(item))
    if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        return None
    if not pa.types.is_struct(values.type.value_type):
        return None
    items = pc.list_flatten(values)
    columns = [
        _item_column(f"{sampled.name}.{member.name}", number, pc.struct_field(items, [number - 1]), sampled)
        for number, member in enumerate(items.type, start=1)
        if not pa.types.is_nested(member.type)
    ]
    return _inner(sampled.name, sampled.name, values, [column for column in columns if column is not None])


def _item_column(name: str, number: int, items: Array, sampled: SampledColumn) -> Column | None:
    return look_at(replace(sampled, name=name, number=number, values=items))


def _without_nulls(texts: Array, guess: Column) -> Array:
    """Texts without those that stand for an empty list."""
    texts = texts.cast(pa.utf8())
    given = guess.steps.get("null", "")
    nulls = given if isinstance(given, list) else [given]
    is_null = pc.is_in(texts, pa.array([*nulls, ""], pa.utf8()))
    found: Array = pc.if_else(is_null, pa.scalar(None, pa.utf8()), texts)
    return found


def _inner(name: str, each: object, lists: Array, columns: Sequence[Column]) -> InnerTable | None:
    parents = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    return (
        InnerTable(column=name, each=each, parents=parents, columns=tuple(columns))
        if columns and len(parents)
        else None
    )


def inner_profile(profile: Profile, key: Key, inner: InnerTable) -> Profile:
    """The table of items, with the key of the row that each one comes from."""
    members = [_repeated(profile.column(name), inner.parents) for name in key.columns]
    columns = [replace(column, number=number) for number, column in enumerate((*members, *inner.columns), start=1)]
    words = words_of(inner.column.rpartition(".")[2])
    table = Table(
        stem=inner.column,
        shown=f"`{inner.column}` of {profile.table.shown}",
        entry={**profile.table.entry, "each": inner.each},
        columns=(),
        rows=len(inner.parents),
        is_whole=profile.table.is_whole,
        sample=profile.table.sample,
        is_ordered=profile.table.is_ordered,
    )
    return Profile(table=table, words=(*words[:-1], *map(singular, words[-1:])), columns=tuple(columns))


def _repeated(column: Column, parents: NDArray[np.int64]) -> Column:
    """A column of a row, for each of its items."""
    assert column.keys is not None, "a key has keys"
    keys = Keys(places=column.keys.places[parents], texts=column.keys.texts)
    return replace(column, keys=keys, rows=len(parents), nulls=int((keys.places < 0).sum()))
