"""Parameters: JSON values → typed values, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, ParameterError
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.types.kinds import INTEGERS, ListType, PropertyType, Scalar, ScalarType
from omnigraph.types.values import coerce_json, parse_decimal_integer

if TYPE_CHECKING:
    from omnigraph.query import ir
    from omnigraph.types.values import StoredValue

#: Largest integer that JavaScript carries exactly.
MAX_SAFE_INTEGER = 2**53 - 1


def bind_params(
    query: ir.QueryIR, given: Mapping[str, object] | None, *, javascript: bool = False
) -> dict[str, StoredValue]:
    """Typed values for all declared parameters; an omitted nullable one is null.

    `javascript=True` reads numbers as a JavaScript client sends them: integers beyond ±(2^53-1) are refused, because
    they were rounded on the way, and integral floats stand for integers.

    >>> from omnigraph.query.compiler import compile_query
    >>> from omnigraph.schema.compiler import compile_schema
    >>> catalog = compile_schema("node Paper { year: I32 }").catalog
    >>> query = compile_query("query q($y: I32) { match { $p: Paper { year: $y } } return { $p } }", catalog)
    >>> bind_params(query.ir, {"y": "2024"})
    {'y': 2024}

    Raises:
        ParameterError: names every parameter that is missing, unknown or does not fit.
    """
    if given is not None and not isinstance(given, Mapping):
        raise BadRequestError(
            f"params is a mapping of names to values, not {type(given).__name__}: give {{...}}"
        )
    given = given or {}
    declared = {parameter.name: parameter.type for parameter in query.params}
    problems: dict[str, str] = {}
    for name in given:
        if name not in declared:
            hint = did_you_mean(name, declared)
            problems[name] = f"`{name}` is not declared" + (f" ({hint})" if hint else "")
    values: dict[str, StoredValue] = {}
    for name, type_ in declared.items():
        if name not in given and not type_.nullable:
            problems[name] = f"`{name}` is missing: it is {type_}"
            continue
        try:
            values[name] = _convert(type_, given.get(name), javascript=javascript)
        except ValueError as problem:
            problems[name] = f"`{name}`: {problem}"
    if problems:
        raise ParameterError(query.name, problems)
    return values


def _convert(type_: PropertyType, value: object, *, javascript: bool) -> StoredValue:
    match type_.base:
        case ScalarType(scalar) if value is not None:
            value = _prepare(scalar, value, javascript=javascript)
        case ListType(item) if isinstance(value, list | tuple):
            value = [
                None if part is None else _prepare(item, part, javascript=javascript)
                for part in value
            ]
        case _:
            pass
    if isinstance(value, dict):
        raise ValueError("an object is not a parameter value")
    return coerce_json(type_, value)


def _prepare(scalar: Scalar, value: object, *, javascript: bool) -> object:
    """Decimal strings become integers, and the limits of the wire are enforced, before the type judges the value."""
    if scalar not in INTEGERS:
        return value
    if isinstance(value, str):
        value = parse_decimal_integer(value)
    elif isinstance(value, float) and not (javascript and value.is_integer()):
        raise ValueError(f"{value} is a float, {scalar} needs an integer")
    elif javascript and isinstance(value, int | float) and abs(value) > MAX_SAFE_INTEGER:
        raise ValueError(f"{int(value)} is beyond ±(2^53-1): pass it as a decimal string")
    return value
