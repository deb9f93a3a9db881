"""Frames of a proposal: nodes that frames only name get a frame of their own, with each value once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow

from omnigraph.core.arrow import Array, Rows, pa, pc
from omnigraph.core.types import BaseType
from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING
from omnigraph.inference.columns import Column
from omnigraph.inference.design import Design, NodeType, Property
from omnigraph.inference.relations import Profile
from omnigraph.inference.samples import one_array
from omnigraph.inference.texts import mapping_content
from omnigraph.pipeline.shape.columns import is_text_type
from omnigraph.pipeline.shape.items import unfolded
from omnigraph.pipeline.shape.value_sources import ItemSource, item_source


class DistinctFrames(Protocol):
    """Frames that are not in this process."""

    def distinct(self, frames: Sequence[tuple[object, str, ItemSource | None]], name: str) -> object:
        """A frame with the different values of columns of frames, null left out, in one column of that name.

        Beside a column stands the column of lists that it is an item of.
        """
        ...


@frozen(kw_only=True)
class FrameLoad:
    """Frames and the mapping that loads them."""

    frames: Mapping[str, object]
    mapping: Mapping[str, object]


def frame_load(design: Design, frames: Sequence[object], elsewhere: DistinctFrames | None) -> FrameLoad:
    """What a load of a design takes; the frames are in the order of its tables."""
    given: dict[str, object] = {}
    for node in design.nodes:
        own = [design.profiles[rows.table] for rows in node.sources]
        some = [_frame_of(profile, rows.table, frames) for profile, rows in zip(own, node.sources, strict=True)]
        keys = [rows.properties[0].column.name for rows in node.sources]
        if not node.is_made:
            given[f"node:{node.name}"] = some[0]
        elif elsewhere is not None and not all(isinstance(frame, pyarrow.Table) for frame in some):
            lists = [_each(profile) for profile in own]
            columns = [(frame, key, each) for frame, key, each in zip(some, keys, lists, strict=True)]
            given[f"node:{node.name}"] = elsewhere.distinct(columns, node.key[0])
        else:
            tables = [
                _distinct_rows(_unfolded(frame, _each(profile)), rows.properties, node.key[0])
                for frame, profile, rows in zip(some, own, node.sources, strict=True)
            ]
            given[f"node:{node.name}"] = _once(pa.concat_tables(tables, promote_options="default"), node.key[0])
    for edge in design.edges:
        given[f"edge:{edge.name}"] = _frame_of(design.profiles[edge.rows.table], edge.rows.table, frames)
    return FrameLoad(frames=given, mapping=mapping_content(of_single_frames(design)))


def _frame_of(profile: Profile, number: int, frames: Sequence[object]) -> object:
    """The frame of a table; items are in that of the rows that have them."""
    return frames[number if profile.parent is None else profile.parent]


def _each(profile: Profile) -> ItemSource | None:
    given = profile.table.entry.get("each")
    return item_source(given, profile.table.shown) if isinstance(given, str | dict) else None


def _unfolded(frame: object, each: ItemSource | None) -> Rows:
    assert isinstance(frame, pyarrow.Table), "frames elsewhere are read where they are"
    return frame if each is None else unfolded(frame, each, np.arange(frame.num_rows))[0]


def of_single_frames(design: Design) -> Design:
    """The design with one frame for each node type that others only name."""
    return replace(design, nodes=tuple(_of_one_frame(node) if node.is_made else node for node in design.nodes))


def _of_one_frame(node: NodeType) -> NodeType:
    """The node type with one source, in which each key occurs once and has the name of the property."""
    key, *more = node.properties
    steps = {} if key.column.base == STRING else key.column.steps
    read = Property(name=key.name, column=replace(key.column, name=key.name, steps=steps, nulls=0), is_required=True)
    rows = replace(node.sources[0], properties=(read, *more), is_repeated=False, is_frame=True)
    return replace(node, sources=(rows,))


def _distinct_rows(frame: Rows, properties: Sequence[Property], name: str) -> Rows:
    """The key and what goes with it, each row once."""
    key, *more = properties
    found = {name: _clean(_member(frame, key.column.name), key.column, key.column.base)}
    found |= {item.column.name: _member(frame, item.column.name) for item in more}
    rows: Rows = pa.table(found)
    return _once(rows.filter(pc.is_valid(rows[name])), name)


def _once(rows: Rows, key: str) -> Rows:
    """The first row of each key."""
    others = [name for name in rows.column_names if name != key]
    found = rows.group_by(key, use_threads=False).aggregate([(name, "first") for name in others])
    renamed: Rows = found.rename_columns(
        [name.removesuffix("_first") if name != key else name for name in found.column_names]
    )
    return renamed


def _member(frame: Rows, path: str) -> Array:
    """A column, or a member of structs."""
    names = set(frame.schema.names)
    top, *rest = [path] if path in names else path.split(".")
    array = one_array(frame[top])
    return pc.struct_field(array, rest) if rest else array


def _clean(values: Array, column: Column, base: BaseType) -> Array:
    """Values as keys of a type: trimmed, without texts for null."""
    if isinstance(values, pyarrow.DictionaryArray):
        values = values.dictionary_decode()
    if is_text_type(values.type):
        values = values.cast(pa.utf8())
        if column.steps.get("trim"):
            values = pc.utf8_trim_whitespace(values)
        nulls = column.steps.get("null", ())
        words = [nulls] if isinstance(nulls, str) else list(nulls) if isinstance(nulls, list) else []
        values = pc.if_else(pc.is_in(values, pa.array(words, pa.utf8())), pa.scalar(None, pa.utf8()), values)
    return values.cast(pa.utf8() if base == STRING else pa.int64())
