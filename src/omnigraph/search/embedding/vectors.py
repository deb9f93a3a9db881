"""The arithmetic that all vectors share: checked, then normalised, in exact 32-bit steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.search.embedding.failures import invalid_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Distance from 1 to the next 32-bit float; a vector with a smaller norm has no direction worth storing.
FLOAT32_EPSILON = 2.0**-23


def to_unit_vector(components: Sequence[object], dimension: int) -> tuple[float, ...]:
    """The components as 32-bit floats, divided by their norm (spec: search §6).

    Squares are summed one by one and rooted in 64 bits, the norm is rounded to 32 bits, the division happens in 32
    bits; every step is defined, so two processes get the same bits.

    Raises:
        AttemptError: The length is not `dimension`, a component is not a finite number, or the norm is about zero.
    """
    import numpy as np

    if len(components) != dimension:
        raise invalid_vector(f"{len(components)} components instead of {dimension}")
    # A 64-bit number beyond the 32-bit range becomes infinite here and is refused right below.
    with np.errstate(over="ignore"):
        vector = np.array([_number(item) for item in components], np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise invalid_vector("a component is not a finite 32-bit number")
    # `cumsum` adds from left to right; `sum` adds in pairs, which rounds differently.
    total = np.cumsum(np.square(vector.astype(np.float64)))[-1]
    norm = np.sqrt(total)
    if not FLOAT32_EPSILON < norm <= np.finfo(np.float32).max:
        raise invalid_vector(f"its norm is {norm:g}")
    unit: list[float] = (vector / np.float32(norm)).tolist()
    return tuple(unit)


def _number(item: object) -> float:
    # A bool is an int to Python, but `true` in an answer is no component of a vector.
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise invalid_vector(f"a component is a {type(item).__name__}, not a number")
    try:
        return float(item)
    except OverflowError:
        return float("inf")
