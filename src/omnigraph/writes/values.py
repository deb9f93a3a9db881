"""Values of statements: what is assigned becomes columns of a table, checked row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from omnigraph.core.arrow import Array, arrow_field, one_array, pa, stored_array, stored_values
from omnigraph.core.types import MOMENTS, NUMERICS, EnumType, PropertyType, Scalar, ScalarType, item_scalar, scalar_of
from omnigraph.core.values import MANAGED, StoredValue, coerce_json, spelled_cell
from omnigraph.engine.rows import BoolArray
from omnigraph.engine.values.comparisons import as_array
from omnigraph.engine.values.expressions import Evaluated, Reference, evaluate
from omnigraph.errors import BadRequestError, IntegerOverflowError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.lang.schema.rules import EnumValues, Example, Required, violation_text
from omnigraph.writes.matched import TYPE, held_block, overflow_of
from omnigraph.writes.pending import ExternalIntake

_BLOB = ScalarType(Scalar.BLOB)
#: How many rows an error names.
_NAMED_ROWS = 100


@frozen(kw_only=True)
class StatementRows:
    """Rows of a statement as what expressions are evaluated over: its own rows, and the rows of the match beside."""

    count: int
    #: The parameters.
    values: Mapping[str, StoredValue]
    #: The rows that are written, as earlier statements left them; none where they are new.
    own: pa.Table | None = None
    #: The columns of match variables, in stored form.
    matched: Mapping[tuple[str, str], Array]

    def column(self, expression: Reference) -> Array:
        """The values of a stored column."""
        match expression:
            case ir.PropertyRef(ir.OWN_ROW, name):
                assert self.own is not None, "a new row has no values of its own"
                return one_array(self.own[name])
            case ir.PropertyRef(variable, name):
                return self.matched[variable, name]
            case ir.EntityRef(variable):
                return self.matched[variable, "id"]
            case ir.TypeOf(variable):
                return self.matched[variable, TYPE]
            case ir.PathRef(path, part):
                return self.matched[path, part]
            case ir.Exists():
                return self.matched[held_block(expression)]
            case _:
                raise AssertionError(f"{expression!r} cannot stand in a statement")

    def block(self, expression: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """The values of a block at the match, and where integers overflow in it."""
        overflow = self.matched.get(overflow_of(expression))
        mask = None if overflow is None else np.asarray(overflow.to_numpy(zero_copy_only=False), np.bool_)
        return self.matched[held_block(expression)], mask

    def holds(self, predicate: ir.Expression) -> BoolArray:
        """Per row, whether a condition is true; an integer beyond 64 bits makes it unknown."""
        truths = as_array(evaluate(predicate, self).side, self.count)
        found: BoolArray = np.asarray(truths.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
        return found


def assigned_value(
    owner: str,
    name: str,
    type_: PropertyType,
    value: ir.Value,
    params: Mapping[str, StoredValue],
    *,
    external: ExternalIntake,
) -> StoredValue:
    """The stored value of a literal or a parameter that is assigned.

    Raises:
        BadRequestError: the value does not fit the property.
        ExternalBlobPolicyError: it is an external blob that is not allowed.
        ExternalBlobSourceError: it is an allowed one that cannot be read.
    """
    given = ir.value_of(value, params)
    if type_.base == _BLOB and given is not None:
        text = str(given)
        try:
            return spelled_cell(text) if text.startswith(MANAGED) else external.copied(text)
        except ValueError as problem:
            raise BadRequestError(f"invalid value for {owner}.{name}: {problem}") from problem
    return _fitted(owner, name, type_, given)


def _fitted(owner: str, name: str, type_: PropertyType, given: StoredValue, label: str | None = None) -> StoredValue:
    """A value in the stored form of a property; `label` says where it comes from."""
    where = "" if label is None else f" ({label})"
    if given is None:
        if not type_.nullable:
            missing = Required(type_name=owner, property=name)
            raise BadRequestError(violation_text(missing, Example(None)) + where)
        return None
    if isinstance(type_.base, EnumType) and isinstance(given, str):
        rule = EnumValues(type_name=owner, property=name, values=type_.base.values)
        if given not in rule.values:
            raise BadRequestError(violation_text(rule, Example(given)) + where)
    try:
        # Literals and parameters of moments are in stored form already.
        return given if item_scalar(type_.base) in MOMENTS else coerce_json(type_, given)
    except ValueError as problem:
        raise BadRequestError(f"invalid value for {owner}.{name}: {problem}{where}") from problem


def computed_column(
    definition: NodeDef | EdgeDef, name: str, value: ir.Expression, rows: StatementRows, label: Callable[[int], str]
) -> Array:
    """The values of an expression as a column of a property; `label` is the name of a row in messages.

    Raises:
        BadRequestError: a value does not fit the property, or an integer is beyond 64 bits.
    """
    type_ = definition.properties[name].type
    found = evaluate(value, rows)
    refuse_overflow(found, label)
    column = as_array(found.side, rows.count)
    wanted = arrow_field(name, type_).type
    if value.type.base == type_.base and column.type == wanted and (type_.nullable or not column.null_count):
        return column
    is_number = scalar_of(value.type.base) in NUMERICS and scalar_of(type_.base) in NUMERICS - {Scalar.F32}
    if is_number and (type_.nullable or not column.null_count):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            # Value by value: one that does not fit is named with its row, and large integers round to floats.
            pass
    owner = definition.name
    values = enumerate(stored_values(column))
    fitted = [_fitted(owner, name, type_, given, label(place)) for place, given in values]
    return stored_array(wanted, fitted)


def refuse_overflow(found: Evaluated, label: Callable[[int], str]) -> None:
    """Raise for rows with integers beyond 64 bits, if there are any.

    Raises:
        IntegerOverflowError: names the first of them.
    """
    if found.overflow is not None and found.overflow.any():
        places = np.flatnonzero(found.overflow)
        raise IntegerOverflowError(tuple(label(int(place)) for place in places[:_NAMED_ROWS]), len(places))
