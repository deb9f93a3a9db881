"""Predicates as filters of storage, as three-valued comparisons, and the rows for which they are true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa

from omnigraph.core.arrow import Array, pc
from omnigraph.core.types import FLOATS, INTEGERS, NUMERICS, BaseType, ListType, Scalar, ScalarType, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.engine.context import Context
from omnigraph.engine.rows import BATCH_ROWS, BoolArray, Column, IntArray, Numbers, Rows, plain_numbers
from omnigraph.engine.text_search import text_matches
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import CompareOp, Comparison, Constant, Operand, ParamRef, Predicate, PropertyRef, value_of
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, HasItem, HasText
from omnigraph.storage.datasets.reads import text_pairs_match

# ---- Storage filters from predicates


_MIRRORED = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}
#: Longer lists are compared in memory: the text of the filter would cost more than it saves.
_MAX_LIST = 1000
#: Comparisons, and characters of the values they are made with, that one filter holds; what is beyond them is
#: evaluated in memory, with the same meaning. Storage parses, plans and rewrites a filter on every scan.
_MAX_COMPARISONS = 2000
_MAX_CHARACTERS = 1 << 20


@frozen
class Pushed:
    """The filter that storage evaluates, and the remaining predicates."""

    filter: Filter | None
    rest: tuple[Predicate, ...]


def push_down(predicates: Iterable[Predicate], values: Mapping[str, StoredValue]) -> Pushed:
    """Split predicates on one variable into a storage filter and the rest."""
    filters: list[Filter] = []
    rest: list[Predicate] = []
    comparisons, characters = _MAX_COMPARISONS, _MAX_CHARACTERS
    for predicate in predicates:
        filter_ = _filter_of(predicate, values)
        if filter_ is None:
            rest.append(predicate)
            continue
        cost, size = _cost(filter_)
        if cost > comparisons or size > characters:
            rest.append(predicate)
            continue
        comparisons, characters = comparisons - cost, characters - size
        filters.append(filter_)
    if len(filters) == 1:
        return Pushed(filters[0], tuple(rest))
    return Pushed(AllOf(tuple(filters)) if filters else None, tuple(rest))


def _cost(filter_: Filter) -> tuple[int, int]:
    """The comparisons of a filter plus the characters of its texts."""
    match filter_:
        case AnyOf(filters):
            costs = [_cost(item) for item in filters]
            return sum(cost for cost, _ in costs), sum(size for _, size in costs)
        case HasText(text=text):
            return 1, len(text)
        case Compare(value=str(text)) | HasItem(value=str(text)):
            return 1, len(text)
        case _:
            return 1, 0


def _filter_of(predicate: Predicate, values: Mapping[str, StoredValue]) -> Filter | None:
    if not isinstance(predicate, Comparison):
        return None
    match predicate.left, predicate.right:
        case PropertyRef() as field, (ParamRef() | Constant()) as operand:
            return _property_filter(field, predicate.op, operand, value_of(operand, values))
        case (ParamRef() | Constant()) as operand, PropertyRef() as field:
            value = value_of(operand, values)
            if predicate.op is CompareOp.CONTAINS:
                return _list_filter(field, operand, value)
            mirrored = _MIRRORED.get(predicate.op)
            return None if mirrored is None else _property_filter(field, mirrored, operand, value)
        case _:
            return None


def _property_filter(field: PropertyRef, op: CompareOp, operand: Operand, value: StoredValue) -> Filter | None:
    base = field.type.base
    match op:
        case CompareOp.CONTAINS:
            if not isinstance(base, ListType) or base.item in FLOATS:
                return None
            if base.item in INTEGERS and scalar_of(operand.type.base) not in INTEGERS:
                return None
            return HasItem(field.property, base.item, value)
        case CompareOp.STRING_CONTAINS | CompareOp.STARTS_WITH:
            if not isinstance(value, str):
                return None
            return HasText(field.property, value, at_start=op is CompareOp.STARTS_WITH)
        case _:
            return Compare(field.property, base, str(op), value)


def _list_filter(field: PropertyRef, operand: Operand, value: StoredValue) -> Filter | None:
    """A property that is one of a given list."""
    if not isinstance(value, tuple) or len(value) > _MAX_LIST:
        return None
    item = operand.type.base
    assert isinstance(item, ListType), "the checker allows lists only"
    if scalar_of(ScalarType(item.item)) is None:
        return None
    equals = [Compare(field.property, field.type.base, "=", part) for part in value if part is not None]
    return AnyOf(tuple(equals))


# ---- Comparisons in three-valued logic
#
# Numbers compare by mathematical value, whatever their types; text by code point; everything else with its own kind.


_NUMBER_KERNELS = {
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
}
_TEXT_KERNELS = {
    CompareOp.EQ: pc.equal,
    CompareOp.NE: pc.not_equal,
    CompareOp.LT: pc.less,
    CompareOp.LE: pc.less_equal,
    CompareOp.GT: pc.greater,
    CompareOp.GE: pc.greater_equal,
}
#: Kinds that are compared through the number they are stored as.
_AS_NUMBERS = NUMERICS | {Scalar.BOOL, Scalar.DATE, Scalar.DATETIME}
_MAX_I64 = 2**63 - 1
_TWO_TO_63 = float(2**63)


@frozen
class Values:
    """One side of a comparison: a column with a value per row."""

    array: Array
    base: BaseType


@frozen
class Fixed:
    """One side of a comparison: the same value for all rows."""

    value: StoredValue
    base: BaseType


Side = Values | Fixed


def holds(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    """Per row, whether `left op right` is true; unknown is not."""
    if _is_null(left) or _is_null(right):
        return np.zeros(count, np.bool_)
    if op is CompareOp.CONTAINS:
        return _contains(left, right, count)
    if op in (CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH):
        return _text_part(op, left, right, count)
    if scalar_of(left.base) in _AS_NUMBERS:
        return _numbers_hold(op, left, right, count)
    kernel = _TEXT_KERNELS[op]
    return _as_mask(kernel(_operand(left), _operand(right)), count)


def _is_null(side: Side) -> bool:
    return isinstance(side, Fixed) and side.value is None


def _operand(side: Side) -> object:
    return side.array if isinstance(side, Values) else side.value


def _as_mask(result: object, count: int) -> BoolArray:
    if isinstance(result, pa.Scalar):
        return np.full(count, bool(result.as_py()), np.bool_)
    return np.asarray(pc.fill_null(result, False).to_numpy(zero_copy_only=False), np.bool_)


# ---- numbers


def _numbers_hold(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    first, first_known = _numbers(left)
    second, second_known = _numbers(right)
    if first.dtype.kind == second.dtype.kind:
        found = _NUMBER_KERNELS[op](first, second)
    else:
        found = _NUMBER_KERNELS[op](sign_of(first, second), 0)
    for known in (first_known, second_known):
        if known is not None:
            found = found & known
    return np.broadcast_to(np.asarray(found, np.bool_), (count,))


def _numbers(side: Side) -> tuple[Numbers, BoolArray | None]:
    """The numbers of one side, and where they are known; None means everywhere."""
    if isinstance(side, Fixed):
        value = side.value
        assert isinstance(value, int | float), "numbers are compared with numbers"
        return fixed_number(value), None
    array = plain_numbers(side.array)
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), None
    known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    zero = pa.scalar(0, array.type)
    return pc.fill_null(array, zero).to_numpy(zero_copy_only=False), known


def fixed_number(value: int | float) -> Numbers:  # the two are told apart
    """One number, in the widest type that holds it exactly."""
    if isinstance(value, float):
        return np.asarray(value, np.float64)
    return np.asarray(value, np.uint64 if value > _MAX_I64 else np.int64)


def sign_of(left: Numbers, right: Numbers) -> Numbers:
    """-1, 0 or 1 per pair, exact for any mix of integers and floats."""
    left_float, right_float = left.dtype.kind == "f", right.dtype.kind == "f"
    if left_float and not right_float:
        return -sign_of(right, left)
    if right_float and not left_float:
        return _sign_integer_float(left, right.astype(np.float64))
    if left_float:
        return _plain_sign(left.astype(np.float64), right.astype(np.float64))
    if (left.dtype == np.uint64) == (right.dtype == np.uint64):
        wide = left.dtype if left.dtype == np.uint64 else np.dtype(np.int64)
        return _plain_sign(left.astype(wide), right.astype(wide))
    if right.dtype == np.uint64:
        return -sign_of(right, left)
    signed = right.astype(np.int64)
    against = _plain_sign(left, np.maximum(signed, 0).astype(np.uint64))
    return np.where(signed < 0, 1, against)


def _plain_sign(left: Numbers, right: Numbers) -> Numbers:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)


def _sign_integer_float(left: Numbers, right: Numbers) -> Numbers:
    """An integer against a float: rounding keeps the order, so only equal roundings need a second, exact look."""
    sign = _plain_sign(left.astype(np.float64), right)
    beyond = right >= (2 * _TWO_TO_63 if left.dtype == np.uint64 else _TWO_TO_63)
    whole = np.where(beyond | (sign != 0), 0.0, right).astype(left.dtype)
    exact = np.where(beyond, -1, _plain_sign(left, whole))
    return np.where(sign == 0, exact, sign)


# ---- lists and text


def _contains(left: Side, right: Side, count: int) -> BoolArray:
    """Whether the list on the left has the value on the right."""
    assert isinstance(left.base, ListType), "the checker allows lists only"
    if isinstance(left, Fixed):
        return _in_constant(left, right, count)
    item_base = ScalarType(left.base.item)
    parents = np.asarray(pc.list_parent_indices(left.array).to_numpy())
    items = Values(pc.list_flatten(left.array), item_base)
    wanted: Side = right
    if isinstance(right, Values):
        wanted = Values(right.array.take(pa.array(parents)), right.base)
    found = np.zeros(count, np.bool_)
    found[parents[holds(CompareOp.EQ, items, wanted, len(parents))]] = True
    return found


def _in_constant(left: Fixed, right: Side, count: int) -> BoolArray:
    assert isinstance(left.value, tuple)
    assert isinstance(left.base, ListType)
    present = [item for item in left.value if item is not None]
    base = ScalarType(left.base.item)
    if isinstance(right, Fixed):
        one = pa.array([0], pa.int8())
        found = any(bool(holds(CompareOp.EQ, Fixed(item, base), right, len(one))[0]) for item in present)
        return np.full(count, found, np.bool_)
    if scalar_of(base) not in _AS_NUMBERS:
        return _as_mask(pc.is_in(right.array, pa.array(present, pa.utf8())), count)
    return _number_in(right, present, count, as_float=base.scalar in FLOATS)


def _number_in(column: Values, present: Sequence[StoredValue], count: int, *, as_float: bool) -> BoolArray:
    """Membership by value: the list is sorted once and each number is compared with its only candidate."""
    numbers, known = _numbers(column)
    if not present:
        return np.zeros(count, np.bool_)
    if numbers.dtype.kind == "f" or as_float:
        found = np.zeros(count, np.bool_)
        for item in set(present):
            assert isinstance(item, int | float)
            found |= sign_of(numbers, fixed_number(float(item) if as_float else item)) == 0
    else:
        wide = np.dtype(np.uint64 if numbers.dtype == np.uint64 else np.int64)
        limits = np.iinfo(wide)
        # What the type of the column cannot hold equals none of its values.
        wanted = {it for it in present if isinstance(it, int) and limits.min <= it <= limits.max}
        found = np.isin(numbers.astype(wide), np.array(sorted(wanted), wide))
    return found if known is None else found & known


def _text_part(op: CompareOp, left: Side, right: Side, count: int) -> BoolArray:
    at_start = op is CompareOp.STARTS_WITH
    if isinstance(right, Fixed):
        assert isinstance(right.value, str), "text is compared with text"
        if isinstance(left, Fixed):
            assert isinstance(left.value, str), "text is compared with text"
            found = left.value.startswith(right.value) if at_start else right.value in left.value
            return np.full(count, found, np.bool_)
        kernel = pc.starts_with if at_start else pc.match_substring
        return _as_mask(kernel(left.array, right.value), count)
    texts = left.array if isinstance(left, Values) else pa.array([left.value] * count, pa.utf8())
    return _as_mask(text_pairs_match(texts, right.array, at_start=at_start), count)


# ---- Predicates on rows: which rows are certainly true


def with_columns(context: Context, rows: Rows, wanted: Iterable[Column]) -> Rows:
    """The rows with the values of these properties read; what was read before is not read again."""
    missing: dict[str, list[str]] = defaultdict(list)
    for variable, name in dict.fromkeys(wanted):
        if (variable, name) not in rows.columns:
            missing[variable].append(name)
    if not missing:
        return rows
    found: dict[Column, Array] = {}
    for variable, names in missing.items():
        columns = context.entities(variable).columns(rows.variables[variable], names)
        found |= {(variable, name): column for name, column in columns.items()}
    return rows.attach(found)


def keep_true(context: Context, rows: Rows, predicates: Sequence[ir.Predicate]) -> Rows:
    """The rows for which every predicate is true."""
    for predicate in context.budget.steps(predicates):
        if not rows.count:
            return rows
        match predicate:
            case ir.Comparison():
                rows = _keep_comparison(context, rows, predicate)
            case ir.TextMatch():
                matches = text_matches(context, predicate)
                rows = rows.keep(is_member(rows.variables[predicate.field.variable], matches))
            case _:
                assert_never(predicate)
    return rows


def is_member(row_ids: IntArray, sorted_ids: IntArray) -> BoolArray:
    """A mask of the row ids that are among sorted ones."""
    if not len(sorted_ids):
        return np.zeros(len(row_ids), np.bool_)
    places = np.searchsorted(sorted_ids, row_ids)
    places[places == len(sorted_ids)] = 0
    found: BoolArray = sorted_ids[places] == row_ids
    return found


def _keep_comparison(context: Context, rows: Rows, predicate: ir.Comparison) -> Rows:
    left, op, right = predicate.left, predicate.op, predicate.right
    if isinstance(left, ir.EntityRef) and isinstance(right, ir.EntityRef):
        return rows.keep(rows.variables[left.variable] == rows.variables[right.variable])
    wanted = [(operand.variable, operand.property) for operand in (left, right) if isinstance(operand, ir.PropertyRef)]
    rows = with_columns(context, rows, wanted)
    return rows.keep(holds(op, _side(context, rows, left), _side(context, rows, right), rows.count))


def _side(context: Context, rows: Rows, operand: ir.Operand) -> Side:
    match operand:
        case ir.PropertyRef(variable, name, type_):
            return Values(rows.columns[variable, name], type_.base)
        case ir.EntityRef(variable):
            ids = context.entities(variable).column(rows.variables[variable], "id")
            return Values(ids, ir.ID_TYPE.base)
        case ir.ParamRef() | ir.Constant():
            return Fixed(ir.value_of(operand, context.values), operand.type.base)
        case _:
            assert_never(operand)


class Restriction:
    """The entities of one variable that satisfy predicates on it alone; cached once many were checked."""

    def __init__(self, context: Context, variable: str, predicates: Sequence[ir.Predicate]) -> None:
        self._context = context
        self._variable = variable
        self._predicates = tuple(predicates)
        self._whole: BoolArray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every entity satisfies it."""
        return not self._predicates

    def keeps(self, row_ids: IntArray) -> BoolArray:
        """Per row id, whether it satisfies all predicates."""
        entities = self._context.entities(self._variable)
        if self._whole is None and len(row_ids) * 4 < entities.row_count:
            return self._evaluate(row_ids)
        numbering = entities.numbering()
        if self._whole is None:
            self._whole = self._evaluate(numbering.all_row_ids)
        return self._whole[numbering.numbers(row_ids)]

    def _evaluate(self, row_ids: IntArray) -> BoolArray:
        place = "~place"
        mask = np.zeros(len(row_ids), np.bool_)
        for start in range(0, len(row_ids), BATCH_ROWS):
            part = row_ids[start : start + BATCH_ROWS]
            places = np.arange(start, start + len(part))
            rows = Rows(count=len(part), variables={self._variable: part, place: places})
            kept = keep_true(self._context, rows, self._predicates)
            mask[kept.variables[place]] = True
        return mask
