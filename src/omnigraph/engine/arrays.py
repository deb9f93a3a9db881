"""Names for the arrays that travel between operators."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from omnigraph.errors import DamageError

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
#: Any numpy array of numbers.
Numbers: TypeAlias = npt.NDArray[Any]

#: An Arrow array of any type. The published stubs type each kernel per element type, which columns do not know.
ArrowColumn: TypeAlias = Any
#: Arrow's kernels, for the same reason.
pc: Any = pyarrow.compute


def ends_among(ids: ArrowColumn, known: ArrowColumn, edges: str) -> IntArray:
    """The positions of the ends of edges among the ids of all nodes.

    Raises:
        DamageError: one of them does not exist, and no writer leaves an edge like that.
    """
    found = pc.index_in(ids, known)
    if found.null_count:
        count = f"{found.null_count:,} of {len(ids):,} ends"
        raise DamageError(f"following the edges in {edges}", f"{count} are nodes that do not exist")
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def plain_numbers(array: ArrowColumn) -> ArrowColumn:
    """Days, milliseconds and truth values as the numbers they are stored as; other numbers as they are."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    if pa.types.is_date64(array.type):
        return array.cast(pa.int64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    return array
