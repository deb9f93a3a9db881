"""Parameters as callers give them: Python objects become a few plain values, which JSON carries without loss.

Every call goes through `plain_value`, beside the storage and behind a server. What a plain value means for a declared
type is decided by `core.values` alone.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from omnigraph.core.values import too_fine_text
from omnigraph.errors import BadRequestError

PlainValue: TypeAlias = "bool | int | float | str | bytes | date | datetime | Decimal | list[Any] | None"

#: Types whose objects are plain values as they are.
_PLAIN = frozenset({bool, int, float, str, bytes, date, datetime, Decimal})
#: How other libraries call the method that gives a Python object for a scalar, and a list for an array.
_CONVERSIONS = ("as_py", "tolist", "to_pylist", "to_list")


def check_params(params: object) -> Mapping[str, object]:
    """The parameters of a call by name; none without any.

    Raises:
        BadRequestError: they are not a mapping, or a name in it is not a text.
    """
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise BadRequestError(f"params is a mapping of names to values, not {type(params).__name__}: give {{...}}")
    if (odd := next((name for name in params if not isinstance(name, str)), None)) is not None:
        raise BadRequestError(f"the names of params are texts, not {type(odd).__name__}: {odd!r}")
    return params


# ---- Python objects as plain values


def plain_value(value: object) -> PlainValue:
    """The plain value of a Python object: of numpy, pandas, polars, Arrow, or a class of the standard library.

    Missing values (`None`, `NaT`, `NA`) are None, members of enumerations are their values, and a UUID is its text.

    >>> from uuid import UUID
    >>> plain_value((UUID(int=1), Decimal("1.5")))
    ['00000000-0000-0000-0000-000000000001', Decimal('1.5')]

    Raises:
        ValueError: the object stands for no value of a parameter; the text says what it is.
    """
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # the set holds no other types
    match value:
        case None:
            return None
        case Enum():
            return plain_value(value.value)
        case datetime():
            return _moment(value)
        case bytearray() | memoryview():
            return bytes(value)
        case UUID():
            return str(value)
        case list() | tuple():
            # What is nested deeper fits no type, whatever it holds.
            return [item if isinstance(item, list | tuple) else plain_value(item) for item in value]
        case Mapping():
            return _from_json(value)
        # Subclasses last: numpy's floats and texts are subclasses, and so are members of enumerations.
        case int() | float() | str() | bytes() | date() | Decimal():
            return _of_builtin_type(value)
    return _converted(value)


def _of_builtin_type(value: float | str | bytes | date | Decimal) -> PlainValue:
    match value:
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case bytes():
            return bytes(value)
        case Decimal():
            return Decimal(value)
    return date(value.year, value.month, value.day)


def _moment(value: datetime) -> datetime | None:
    """A moment without what pandas adds to it."""
    if value != value:  # noqa: PLR0124  # `NaT` is the only moment that differs from itself
        return None
    if getattr(value, "nanosecond", 0):
        raise ValueError(too_fine_text(str(value)))
    convert = getattr(value, "to_pydatetime", None)
    return value if convert is None else convert()


def _converted(value: object) -> PlainValue:
    """The plain value of an object of another library, by the methods that these libraries agree on."""
    kind = type(value)
    if kind.__name__ == "NAType":
        return None
    if kind.__module__ == "numpy" and getattr(value, "dtype", None) is not None:
        return _of_numpy(value)
    for name in () if isinstance(value, type) else _CONVERSIONS:
        convert = getattr(value, name, None)
        if callable(convert):
            made = convert()
            if type(made) is not kind:
                return plain_value(made)
    raise ValueError(f"an object of type {_called(kind)} is not a value")


def _of_numpy(value: Any) -> PlainValue:
    match value.dtype.kind:
        case "b" | "i" | "u" | "f" if value.dtype.char != "g":
            plain: PlainValue = value.tolist()
            return plain
        case "M" if value.ndim == 0:
            return _numpy_moment(value[()])
        case "M" | "O" | "U" | "S" if value.ndim == 1:
            return [plain_value(item) for item in value]
        case "U" | "S" | "O" if value.ndim == 0:
            return plain_value(value.item())
    raise ValueError(f"a numpy {value.dtype} is not a value")


def _numpy_moment(value: Any) -> date | datetime | None:
    if value != value:  # noqa: PLR0124  # `NaT` is the only moment that differs from itself
        return None
    coarse = value.astype("datetime64[us]") if isinstance(value.item(), int) else value
    if coarse != value:
        raise ValueError(too_fine_text(str(value)))
    moment = coarse.item()
    if isinstance(moment, int):
        raise ValueError(f"{value} is not a time of the calendar")
    plain: date | datetime = moment
    return plain


def _called(kind: type) -> str:
    module = kind.__module__.partition(".")[0]
    return f"`{kind.__name__}`" if module == "builtins" else f"`{kind.__name__}` of {module}"


# ---- Plain values as JSON
#
# JSON has texts, numbers, truth values and lists. Everything else is an object with one member, whose name says what
# its text is. So a server refuses a day for a String exactly as an embedded graph does.


def json_params(params: object) -> dict[str, object] | None:
    """The parameters of a call as a request carries them.

    Raises:
        BadRequestError: they are not a mapping.
    """
    return None if params is None else {name: _to_json(value) for name, value in check_params(params).items()}


def _to_json(value: object) -> object:
    try:
        return _spelled(plain_value(value))
    except ValueError as problem:
        # The server names it with everything else that is wrong with the parameters.
        return {_UNFIT: str(problem)}


def _spelled(value: PlainValue) -> object:
    match value:
        case datetime():
            return {"$datetime": value.isoformat()}
        case date():
            return {"$date": value.isoformat()}
        case Decimal():
            return {"$decimal": str(value)}
        case bytes():
            return {"$bytes": b64encode(value).decode("ascii")}
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case list():
            return [_spelled(item) for item in value]
    return value


#: What a value is that no parameter takes; the text says so.
_UNFIT = "$unfit"
_READERS: Mapping[str, Callable[[str], PlainValue]] = {
    "$date": date.fromisoformat,
    "$datetime": datetime.fromisoformat,
    "$decimal": Decimal,
    "$bytes": lambda text: b64decode(text, validate=True),
    "$float": float,
}


def _from_json(value: Mapping[object, object]) -> PlainValue:
    """The value of an object with one member, as `json_params` spells it."""
    match list(value.items()):
        case [(str(name), str(text))] if name in _READERS:
            try:
                return _READERS[name](text)
            except (ValueError, InvalidOperation) as problem:
                raise ValueError(f"{text[:80]!r} is not a value of `{name}`") from problem
        case [(str(name), str(text))] if name == _UNFIT:
            raise ValueError(text)
    raise ValueError("an object is not a value")
