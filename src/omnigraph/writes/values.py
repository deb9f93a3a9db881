"""Values on their way into a row: parameters and constants → stored values of a property."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.query import ir
from omnigraph.types.blob_cells import MANAGED, spelled_cell
from omnigraph.types.kinds import ListType, PropertyType, Scalar, ScalarType
from omnigraph.types.values import StoredValue, coerce_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.writes.external import ExternalIntake

_MOMENTS = (Scalar.DATE, Scalar.DATETIME)


def resolve(value: ir.Value, params: Mapping[str, StoredValue]) -> StoredValue:
    """The value of a constant or parameter."""
    return params[value.name] if isinstance(value, ir.ParamRef) else value.value


def assigned_value(
    owner: str,
    name: str,
    type_: PropertyType,
    value: ir.Value,
    params: Mapping[str, StoredValue],
    *,
    external: ExternalIntake,
) -> StoredValue:
    """The stored value of an assignment.

    Raises:
        BadRequestError: the value does not fit the property.
        ExternalBlobPolicyError: it is an external blob that is not allowed.
        ExternalBlobSourceError: it is an allowed one that cannot be read.
    """
    given = resolve(value, params)
    try:
        if type_.base == ScalarType(Scalar.BLOB):
            return _blob(type_, given, external)
        if _is_moment(type_):
            # Literals and parameters of these types are in stored form already.
            if given is None and not type_.nullable:
                raise ValueError(f"null does not fit {type_}")
            return given
        return coerce_json(type_, given)
    except ValueError as problem:
        prefix = "invalid enum value" if "is not one of" in str(problem) else "invalid value"
        raise BadRequestError(f"{prefix} for {owner}.{name}: {problem}") from problem


def _is_moment(type_: PropertyType) -> bool:
    base = type_.base
    if isinstance(base, ListType):
        return base.item in _MOMENTS
    return isinstance(base, ScalarType) and base.scalar in _MOMENTS


def _blob(type_: PropertyType, given: StoredValue, external: ExternalIntake) -> bytes | None:
    if given is None:
        if not type_.nullable:
            raise ValueError(f"null does not fit {type_}")
        return None
    text = str(given)
    return spelled_cell(text) if text.startswith(MANAGED) else external.copied(text)
