"""Numbers that sit beside the limits of other types."""

from __future__ import annotations

from typing import Any

from omnigraph.core.types import Scalar

#: Every number that a column of the type can hold and that sits beside a limit of some other type.
HELD: dict[Scalar, list[Any]] = {
    Scalar.I32: [-(2**31), -1, 0, 1, 2**24 + 1, 2**31 - 1],
    Scalar.I64: [
        *(-(2**63), -(2**53) - 1, -1, 0, 1, 2**24 + 1, 2**31, 2**53, 2**53 + 1),
        *(2**63 - 1025, 2**63 - 1024, 2**63 - 1),
    ],
    Scalar.U32: [0, 1, 2**24 + 1, 2**31, 2**32 - 1],
    Scalar.U64: [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2048, 2**64 - 1],
    Scalar.F32: [-(2.0**63), -0.5, -0.0, 0.0, 0.10000000149011612, 2.0**24, 2.0**63, 2.0**64],
    Scalar.F64: [
        *(-(2.0**63), -(2.0**53), -0.5, -0.0, 0.1, 0.10000000149011612, 0.5, 2.0**24 + 1),
        *(2.0**53, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, 1e300),
    ],
}

#: What a literal or a parameter can be: every integer of its type, and every finite float.
ASKED: list[tuple[Scalar, Any]] = [
    *((Scalar.I64, n) for n in (-(2**63), -(2**53) - 1, -1, 0, 1, 2**24 + 1, 2**31, 2**32 - 1)),
    *((Scalar.I64, n) for n in (2**53 + 1, 2**63 - 1024, 2**63 - 1)),
    *((Scalar.U64, n) for n in (0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2048, 2**64 - 1)),
    *((Scalar.F64, x) for x in (-1e300, -(2.0**63), -0.5, -0.0, 0.0, 0.1, 0.5, 2.7, 2.0**24 + 1)),
    *((Scalar.F64, x) for x in (2.0**53, 2.0**63 - 1024, 2.0**63, 2.0**64 - 2048, 2.0**64, 1e300)),
    (Scalar.F32, 0.10000000149011612),
]
