"""Columns whose values are equal exactly when the values of others are, of types that every kernel knows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.engine.local.arrays import ArrowColumn, pc


def groupable(column: ArrowColumn) -> ArrowColumn:
    """A column whose values group exactly as these do: both zeros are one value, lists become texts."""
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    if pa.types.is_fixed_size_list(column.type):
        width = pa.list_(column.type.value_type)
        return groupable(column.cast(width))
    if pa.types.is_list(column.type):
        return _list_texts(column)
    return column


def _list_texts(column: ArrowColumn) -> ArrowColumn:
    """One text per list, different for different lists."""
    items = pc.list_flatten(column)
    texts = items if pa.types.is_string(items.type) else _plain_texts(items)
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), ",", "\\,")
    marked = pc.fill_null(escaped, "\\N")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths.to_numpy(zero_copy_only=False)))])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), marked)
    # An empty list and a list of one empty text differ by their length.
    joined = pc.binary_join_element_wise(lengths.cast(pa.utf8()), pc.binary_join(lists, ","), ":")
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.utf8()))


def _plain_texts(items: ArrowColumn) -> ArrowColumn:
    if pa.types.is_date64(items.type):
        items = items.cast(pa.int64())
    return groupable(items).cast(pa.utf8())
