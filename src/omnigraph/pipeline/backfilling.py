"""The interpreter of backfill expressions: batches of rows in, columns out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.schema.backfill import Call, Constant, PropertyValue
from omnigraph.writes.columns import column_array

if TYPE_CHECKING:
    from omnigraph.schema.backfill import Expression

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute


def evaluate(expression: Expression, batch: Any, field: Any) -> Any:
    """The values of an expression for every row, as a column of a field's type; null where it has none."""
    match expression:
        case Constant(value):
            return column_array(field, [value]).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        case PropertyValue(name):
            column = batch.column(name)
            return column if column.type == field.type else column.cast(field.type)
        case Call("coalesce", arguments):
            return pc.coalesce(*(evaluate(item, batch, field) for item in arguments))
        case Call(function, arguments):
            text = pa.field(field.name, pa.utf8())
            return _text_function(function, [evaluate(item, batch, text) for item in arguments])
        case _:
            assert_never(expression)


def _text_function(function: str, columns: list[Any]) -> Any:
    match function:
        case "concat":
            return pc.binary_join_element_wise(*columns, "")
        case "lower":
            return pc.utf8_lower(columns[0])
        case "upper":
            return pc.utf8_upper(columns[0])
        case "trim":
            return pc.utf8_trim_whitespace(columns[0])
    raise AssertionError(f"the checker lets no function {function!r} pass")
