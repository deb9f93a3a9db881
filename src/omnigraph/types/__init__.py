"""Value types of the two languages, their Arrow mapping, and the one meaning of a value.

Owns: what `I32?` or `Vector(8)` is, how it is stored (`arrow`), which Python values fit it and how they are spelled
inside ids (`values`). Never knows about declarations, files or tables. Start reading at `kinds`.
"""

from omnigraph.types.kinds import (
    FLOATS,
    INTEGERS,
    MAX_VECTOR_DIMENSION,
    NUMERICS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    integer_range,
    is_wider,
    scalar_of,
)
from omnigraph.types.values import (
    StoredValue,
    canonical_spelling,
    coerce_json,
    coerce_scalar,
    parse_date,
    parse_datetime,
    parse_spelling,
    render_value,
)

__all__ = [
    "FLOATS",
    "INTEGERS",
    "MAX_VECTOR_DIMENSION",
    "NUMERICS",
    "BaseType",
    "EnumType",
    "ListType",
    "PropertyType",
    "Scalar",
    "ScalarType",
    "StoredValue",
    "VectorType",
    "canonical_spelling",
    "coerce_json",
    "coerce_scalar",
    "integer_range",
    "is_wider",
    "parse_date",
    "parse_datetime",
    "parse_spelling",
    "render_value",
    "scalar_of",
]
