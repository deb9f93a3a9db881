"""Names for the arrays that travel between operators."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
#: Any numpy array of numbers.
Numbers: TypeAlias = npt.NDArray[Any]

#: An Arrow array of any type. The published stubs type each kernel per element type, which columns do not know.
ArrowColumn: TypeAlias = Any
#: Arrow's kernels, for the same reason.
pc: Any = pyarrow.compute


def plain_numbers(array: ArrowColumn) -> ArrowColumn:
    """Days, milliseconds and truth values as the numbers they are stored as; other numbers as they are."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    if pa.types.is_date64(array.type):
        return array.cast(pa.int64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    return array
