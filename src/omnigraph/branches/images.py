"""Rows as people and programs see them: JSON values of their properties, and the ends of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from omnigraph.schema.catalog import EdgeDef
from omnigraph.storage.row_changes import take_by_row_id
from omnigraph.storage.row_columns import ROW_ID
from omnigraph.types.blob_cells import blob_text
from omnigraph.types.json_values import json_column
from omnigraph.types.kinds import Scalar, ScalarType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from omnigraph.schema.catalog import NodeDef
    from omnigraph.storage.tables import Table

#: `properties`, and for edges `endpoints` with `from` and `to`.
RowImage: TypeAlias = dict[str, object]

_BLOB = ScalarType(Scalar.BLOB)


def row_images(
    table: Table, definition: NodeDef | EdgeDef, row_ids: Sequence[int] | NDArray[np.uint64]
) -> dict[int, RowImage]:
    """The images of some rows by row id; rows that do not exist are left out."""
    wanted = np.asarray(row_ids, dtype=np.uint64)
    if not len(wanted):
        return {}
    is_edge = isinstance(definition, EdgeDef)
    stored = {field.name for field in table.schema}
    names = [name for name in definition.properties if name in stored]
    ends = ["src", "dst"] if is_edge else []
    rows = take_by_row_id(table, wanted, [ROW_ID, *ends, *names]).combine_chunks()
    values = {name: _json(rows[name], definition.properties[name].type.base) for name in names}
    images: dict[int, RowImage] = {}
    for place, row_id in enumerate(np.asarray(rows[ROW_ID]).tolist()):
        properties = {
            name: values[name][place] if name in values else None for name in definition.properties
        }
        image: RowImage = {"properties": properties}
        if is_edge:
            image["endpoints"] = {
                "from": rows["src"][place].as_py(),
                "to": rows["dst"][place].as_py(),
            }
        images[int(row_id)] = image
    return images


def _json(column: Any, base: Any) -> list[object]:
    if base == _BLOB:
        # As an export spells it, so that it loads again.
        return [None if cell is None else blob_text(cell) for cell in column.to_pylist()]
    return json_column(column.combine_chunks(), base)
