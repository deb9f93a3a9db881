"""One record per item of a list: rows with lists become rows with one item each, and the rest of the row beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.shape.columns import is_list_type, is_text_type
from omnigraph.pipeline.shape.value_sources import ItemSource
from omnigraph.pipeline.violations import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Object = dict[str, object]
#: The members of an item that comes from an object or a map.
KEY, VALUE = "key", "value"


class NotAListError(Exception):
    """A value of JSON has no items; never leaves the room."""

    def __init__(self, column: str, value: object) -> None:
        super().__init__(f"`{column}` is not a list")
        self.value = value


def unfolded(batch: Batch | Rows, each: ItemSource, numbers: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
    """The rows of a batch, once per item; a row without a list, or with an empty one, is gone.

    Raises:
        BadRequestError: the column holds something else than lists.
    """
    column: Any = batch[each.column]
    lists = _lists(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, each)
    parents = pc.list_parent_indices(lists)
    items = pc.list_flatten(lists)
    if each.trim and is_text_type(items.type):
        items = pc.utf8_trim_whitespace(items)
    names = batch.schema.names
    table = batch if isinstance(batch, Rows) else pa.Table.from_batches([batch])
    others: Rows = table.drop_columns([each.column]).take(parents)
    found: Rows = others.add_column(names.index(each.column), each.column, items)
    return found, numbers[np.asarray(parents)]


def _lists(column: Array, each: ItemSource) -> Array:
    kind: Any = column.type
    found: Array | None = None
    if pa.types.is_map(kind):
        item = pa.struct([pa.field(KEY, kind.key_type), pa.field(VALUE, kind.item_type)])
        found = column.cast(pa.list_(item))
    elif is_text_type(kind) and each.split is not None:
        texts = column.cast(pa.utf8())
        found = pc.split_pattern(pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.utf8()), texts), each.split)
    elif is_list_type(kind):
        found = column
    elif pa.types.is_null(kind):
        found = pa.nulls(len(column), pa.list_(pa.null()))
    if found is not None:
        return found
    hint = "; say `split` beside it" if is_text_type(kind) else ""
    raise BadRequestError(f"`each`: the column `{shown(each.column)}` holds {kind}, not lists{hint}")


def items_of(row: _Object, each: ItemSource) -> list[_Object]:
    """An object of JSON, once per item of one of its members; the members of an object are items, too.

    Raises:
        NotAListError: the member holds something else.
    """
    match row.get(each.column):
        case None:
            items: Sequence[object] = ()
        case list(found):
            items = found
        case dict(found):
            items = [{KEY: name, VALUE: value} for name, value in found.items()]
        case str(text) if each.split is not None:
            items = text.split(each.split) if text else ()
        case other:
            raise NotAListError(each.column, other)
    return [{**row, each.column: item.strip() if each.trim and isinstance(item, str) else item} for item in items]
