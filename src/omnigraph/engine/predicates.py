"""Predicates as filters of storage, and the rows for which they are true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np
import pyarrow as pa

from omnigraph.core.arrow import Array, arrow_type, pc, records
from omnigraph.core.cache import by_identity
from omnigraph.core.types import FLOATS, INTEGERS, ListType, ScalarType, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.engine.rows import BATCH_ROWS, BoolArray, Column, IntArray, Rows
from omnigraph.engine.tables.context import Context, is_hidden
from omnigraph.engine.tables.entities import Entities
from omnigraph.engine.tables.numberings import Numbering
from omnigraph.engine.tables.text_search import text_matches
from omnigraph.engine.values.comparisons import Fixed, Side, Values, as_array, holds
from omnigraph.engine.values.expressions import Reference, evaluate
from omnigraph.errors import IntegerOverflowError
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions.table import function_named
from omnigraph.lang.query.ir import CompareOp, Comparison, Constant, Operand, ParamRef, PropertyRef, value_of
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, Filter, HasItem, HasText, IsNull

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
    rest: tuple[ir.Expression, ...]


def push_down(predicates: Iterable[ir.Expression], values: Mapping[str, StoredValue]) -> Pushed:
    """Split predicates on one variable into a storage filter and the rest."""
    filters: list[Filter] = []
    rest: list[ir.Expression] = []
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
        case AnyOf(filters) | AllOf(filters):
            costs = [_cost(item) for item in filters]
            return sum(cost for cost, _ in costs), sum(size for _, size in costs)
        case HasText(text=text):
            return 1, len(text)
        case Compare(value=str(text)) | HasItem(value=str(text)):
            return 1, len(text)
        case _:
            return 1, 0


def _filter_of(predicate: ir.Expression, values: Mapping[str, StoredValue]) -> Filter | None:
    match predicate:
        case ir.IsNull(PropertyRef(_, name)):
            return IsNull(name)
        case ir.Not(ir.IsNull(PropertyRef(_, name))):
            return IsNull(name, negated=True)
        case ir.Logical(connective, operands):
            filters = tuple(filter_ for item in operands if (filter_ := _filter_of(item, values)) is not None)
            if len(filters) < len(operands):
                return None
            return AnyOf(filters) if connective is ir.Connective.OR else AllOf(filters)
        case Comparison():
            pass
        case _:
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
        case CompareOp.ENDS_WITH:
            return None
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


# ---- Predicates on rows: which rows are certainly true


ID = "id"
#: Operands that are compared without an evaluation of their own.
_PLAIN = (ir.PropertyRef, ir.EntityRef, ir.ParamRef, ir.Constant)
#: How many rows an error names.
_NAMED_ROWS = 100


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
        ids = rows.bound(variable)
        columns = context.columns(variable, ids, names) if isinstance(ids, np.ndarray) else ids.columns(variable, names)
        found |= {(variable, name): column for name, column in columns.items()}
    return rows.attach(found)


class RowSource:
    """Rows of a match as what expressions are evaluated over. Columns that are read stay with the rows."""

    def __init__(self, context: Context, rows: Rows) -> None:
        self._context = context
        self.rows = rows

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.rows.count

    @property
    def values(self) -> Mapping[str, StoredValue]:
        """The parameters of the query."""
        return self._context.values

    def column(self, expression: Reference) -> Array:
        """The values of stored columns, text conditions and blocks."""
        context = self._context
        match expression:
            case ir.PropertyRef(variable, name):
                return self._stored(variable, name)
            case ir.EntityRef(variable):
                return self._stored(variable, ID)
            case ir.PathRef(path, ir.PathPart.STEPS):
                return path_steps(self.rows, path)
            case ir.PathRef(path, part):
                return self.rows.columns[path, part]
            case ir.TypeOf(variable):
                return context.type_names(variable, self.rows.variables[variable])
            case ir.TextMatch():
                return self._text(expression)
            case ir.Exists():
                return pa.array(context.blocks.exists(context, self.rows, expression))
            case ir.ColumnRef() | ir.Aggregate():
                raise AssertionError(f"{expression!r} belongs to groups, not to rows of a match")
            case _:
                assert_never(expression)

    def block(self, expression: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """The values of a block, and where integers overflow in it."""
        return self._context.blocks.value(self._context, self.rows, expression)

    def _stored(self, variable: str, name: str) -> Array:
        self.rows = with_columns(self._context, self.rows, ((variable, name),))
        return self.rows.columns[variable, name]

    def _text(self, condition: ir.TextMatch) -> Array:
        if ir.value_of(condition.query, self.values) is None:
            return pa.nulls(self.count, pa.bool_())
        found = text_mask(self._context, self.rows, condition)
        if not condition.field.type.nullable:
            return pa.array(found)
        known = self._stored(condition.field.variable, condition.field.property).is_valid()
        return pa.array(found, mask=~np.asarray(known.to_numpy(zero_copy_only=False), np.bool_))


def path_steps(rows: Rows, path: str) -> Array:
    """Paths as lists of their nodes, each with the edge that leads to it."""
    part = ir.PathPart
    nodes, edges = rows.columns[path, part.NODES], rows.columns[path, part.EDGES]
    lengths = np.asarray(pc.fill_null(pc.list_value_length(nodes), 0).to_numpy(zero_copy_only=False)).astype(np.int64)
    ends = np.cumsum(lengths)
    # A path has one edge less than nodes: none leads to its first one.
    is_first = np.zeros(lengths.sum(), np.bool_)
    is_first[(ends - lengths)[lengths > 0]] = True
    places = pa.array(np.cumsum(~is_first) - 1, mask=is_first)
    columns = [
        pc.list_flatten(nodes),
        pc.list_flatten(rows.columns[path, part.NODE_TYPES]),
        pc.list_flatten(edges).take(places),
        pc.list_flatten(rows.columns[path, part.EDGE_TYPES]).take(places),
    ]
    steps = records(arrow_type(ir.STEP), columns)
    offsets = pa.array(np.append(0, ends), pa.int32())
    found: Array = pa.ListArray.from_arrays(offsets, steps, mask=nodes.is_null())
    return found


def text_mask(context: Context, rows: Rows, condition: ir.TextMatch) -> BoolArray:
    """Per row, whether a text condition certainly holds."""
    variable = condition.field.variable
    numbers = rows.variables[variable]
    if context.is_plain(variable):
        return is_member(numbers, text_matches(context, condition))
    found = np.zeros(len(numbers), np.bool_)
    for key, places, row_ids in context.parts(variable, numbers):
        found[places] = is_member(row_ids, text_matches(context.narrowed({variable: key}), condition))
    return found


def keep_true(context: Context, rows: Rows, predicates: Sequence[ir.Expression], *, is_strict: bool = False) -> Rows:
    """The rows for which every predicate is true; with `is_strict` an overflow is an error instead of unknown."""
    for predicate in context.budget.steps(predicates):
        if not rows.count:
            return rows
        match predicate:
            case ir.Comparison(left, _, right) if isinstance(left, _PLAIN) and isinstance(right, _PLAIN):
                rows = _keep_comparison(context, rows, predicate)
            case ir.TextMatch():
                rows = rows.keep(text_mask(context, rows, predicate))
            case _:
                source = RowSource(context, with_columns(context, rows, stored_columns((predicate,))))
                found = evaluate(predicate, source)
                if is_strict and found.overflow is not None:
                    refuse_overflow(context, source.rows, found.overflow)
                truths = pc.fill_null(as_array(found.side, rows.count), False)
                rows = source.rows.keep(np.asarray(truths.to_numpy(zero_copy_only=False), np.bool_))
    return rows


def computed(context: Context, rows: Rows, expression: ir.Expression) -> Array:
    """The values of an expression, in stored form; an overflow is an error that names the rows."""
    source = RowSource(context, rows)
    found = evaluate(expression, source)
    if found.overflow is not None:
        refuse_overflow(context, source.rows, found.overflow)
    return as_array(found.side, rows.count)


def without_overflow(context: Context, rows: Rows, expressions: Iterable[ir.Expression]) -> tuple[Rows, Rows]:
    """The rows in which no expression overflows, and the others."""
    expressions = [item for item in expressions if _may_overflow(item)]
    if not expressions:
        return rows, rows.take(np.zeros(0, np.int64))
    beyond = np.zeros(rows.count, np.bool_)
    for expression in expressions:
        overflow = evaluate(expression, RowSource(context, rows)).overflow
        if overflow is not None:
            beyond |= overflow
    return rows.keep(~beyond), rows.take(np.flatnonzero(beyond))


@by_identity
def _may_overflow(expression: ir.Expression) -> bool:
    """Whether integers are computed in an expression."""
    return any(
        isinstance(part, ir.Arithmetic | ir.Negative | ir.BlockValue)
        or (isinstance(part, ir.Function) and (function := function_named(part.name)) and function.can_overflow)
        for part in ir.walk(expression)
    )


def refuse_overflow(context: Context, rows: Rows, overflow: BoolArray) -> None:
    """Raise for rows with integers beyond 64 bits, if there are any.

    Raises:
        IntegerOverflowError: names the first of them by the ids of their variables.
    """
    places = np.flatnonzero(overflow)
    if not len(places):
        return
    first = rows.take(places[:_NAMED_ROWS])
    names = sorted(name for name in first.variables if name in context.tables and not is_hidden(name))
    ids = {name: context.columns(name, first.variables[name], (ID,))[ID].to_pylist() for name in names}
    texts = (", ".join(f"${name} {ids[name][row]!r}" for name in names) for row in range(first.count))
    raise IntegerOverflowError(tuple(text for text in texts if text), len(places))


def stored_columns(expressions: Iterable[ir.Expression]) -> Iterator[Column]:
    """The stored columns that expressions read of the rows, so that they are read at once."""
    for expression in expressions:
        for found in ir.walk(expression):
            match found:
                case ir.PropertyRef(variable, name):
                    yield variable, name
                case ir.EntityRef(variable):
                    yield variable, ID
                case _:
                    pass


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
        first, second = rows.variables[left.variable], rows.variables[right.variable]
        if not (context.is_plain(left.variable) and context.is_plain(right.variable)):
            first, second = context.identity(left.variable, first), context.identity(right.variable, second)
        is_known = (first >= 0) & (second >= 0)
        return rows.keep(is_known & ((first == second) if op is CompareOp.EQ else (first != second)))
    wanted = [(operand.variable, operand.property) for operand in (left, right) if isinstance(operand, ir.PropertyRef)]
    rows = with_columns(context, rows, wanted)
    return rows.keep(holds(op, _side(context, rows, left), _side(context, rows, right), rows.count))


def _side(context: Context, rows: Rows, operand: ir.Expression) -> Side:
    match operand:
        case ir.PropertyRef(variable, name, type_):
            return Values(rows.columns[variable, name], type_.base)
        case ir.EntityRef(variable):
            ids = context.columns(variable, rows.variables[variable], (ID,))[ID]
            return Values(ids, ir.ID_TYPE.base)
        case ir.ParamRef() | ir.Constant():
            return Fixed(ir.value_of(operand, context.values), operand.type.base)
        case _:
            raise AssertionError(f"{operand!r} is no plain operand")


#: Conditions that are checked more often than this, a few rows at a time, get a mask of a table up to this size.
_USES_BEFORE_KEPT = 16
_MASK_ROWS = 1_000_000


@by_identity
def constant_text(predicates: Sequence[ir.Expression], variable: str) -> str | None:
    """The text of conditions that follow from the properties of one entity alone; None where they take anything else.

    Equal texts mean the same for the same kind of entity, whatever variables the two queries have.
    """
    for predicate in predicates:
        for part in ir.walk(predicate):
            match part:
                case ir.PropertyRef() if part.variable == variable:
                    pass
                case Comparison() | ir.Logical() | ir.Not() | ir.IsNull() | Constant():
                    pass
                case _:
                    return None
    renamed = [
        ir.rewritten(predicate, lambda part: replace(part, variable="") if isinstance(part, PropertyRef) else None)
        for predicate in predicates
    ]
    return repr(renamed)


class Restriction:
    """The entities of one variable that satisfy predicates on it alone; a mask once many were checked."""

    def __init__(self, context: Context, variable: str, predicates: Sequence[ir.Expression]) -> None:
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
        if self._whole is None:
            self._whole = self._kept(entities, len(row_ids))
        if self._whole is None:
            return self._evaluate(row_ids)
        return self._whole[entities.numbering().numbers(row_ids)]

    def _kept(self, entities: Entities, asked: int) -> BoolArray | None:
        """The mask of all entities, if it is there, or if so many are asked for, or so often, that it is worth it.

        What holds without parameters holds for a state of the table, so that its mask is kept for other queries.
        """
        caches = self._context.caches
        is_wanted = asked * 4 >= entities.row_count
        text = constant_text(self._predicates, self._variable)
        numbering = entities.numbering() if is_wanted else entities.known_numbering()
        if numbering is None:
            return None
        if text is None:
            return self._mask(numbering) if is_wanted else None
        key = (numbering, text)
        mask = caches.masks.get(key)
        if mask is not None:
            return mask
        if not is_wanted and entities.row_count <= _MASK_ROWS:
            uses = (caches.mask_uses.get(key) or 0) + 1
            caches.mask_uses.put(key, uses)
            is_wanted = uses > _USES_BEFORE_KEPT
        if is_wanted:
            mask = self._mask(numbering)
            caches.masks.put(key, mask, state_of=(entities.table.path, entities.table.branch, text))
        return mask

    def _mask(self, numbering: Numbering) -> BoolArray:
        mask = np.zeros(numbering.count, np.bool_)
        mask[numbering.live_numbers] = self._evaluate(numbering.all_row_ids)
        return mask

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
