"""Grouping: partial sums per combination of entities first, values of the group keys only at the end.

Aggregates that need all values of a group at once (`distinct`, `collect`, `median`, `stddev`) keep them until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from omnigraph.core import arrow
from omnigraph.core.arrow import Array, Column, arrow_type, pa, pc
from omnigraph.core.cache import by_identity
from omnigraph.core.types import INTEGERS, EnumType, Scalar, ScalarType, scalar_of
from omnigraph.engine.distinct import distinct_numbers
from omnigraph.engine.predicates import ID, computed, stored_columns, with_columns
from omnigraph.engine.results.dense_groups import DenseGroups, is_exact, joined_runs
from omnigraph.engine.results.group_numbers import GivenNumbers, GroupNumbers, numbered
from omnigraph.engine.results.group_values import aggregate_all, numbers_of
from omnigraph.engine.results.groups import Groups
from omnigraph.engine.results.projection import groupable, order_codes, with_one_zero
from omnigraph.engine.rows import IntArray, Rows
from omnigraph.engine.tables.context import Context, counts_rows, is_hidden
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction

_ALL = "~all"
_PLACE = "~place"
_WEIGHT = "~weight"
#: Partial groups that are held before they are joined.
_MAX_PARTIALS = 1 << 20
#: How much memory joining takes, in multiples of what is joined: a table of its keys, and the result.
_JOIN_COPIES = 2
#: The values of the only aggregate.
_ONLY_VALUE = "~value 0"
_ONLY_IDENTITY = "~identity 0"
_MERGED_BY = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
_SKIP_NULLS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_COUNTS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=0)
#: Sums of integers below this are exact in 64-bit floats.
_EXACT_FLOAT = 2**53
_EXACT = pa.decimal256(60, 0)


def _is_hashed(aggregate: ir.Aggregate) -> bool:
    """Whether Arrow groups by what an aggregate is made of."""
    return aggregate.argument is not None and isinstance(aggregate.argument.type.base, ScalarType | EnumType)


@frozen
class _Measure:
    """One number that is kept per group: a weighted sum, a weighted count of what is not null, or an extreme."""

    name: str
    #: `sum`, `count`, `min` or `max`.
    kind: str
    #: What is measured; None is the row itself.
    argument: ir.Expression | None

    def over_nothing(self, groups: int) -> Array:
        """The number of as many groups without any row."""
        if self.kind == "count" or self.argument is None:
            zeros: Array = pa.array([0] * groups, pa.int64())
            return zeros
        base = ScalarType(Scalar.F64) if self.kind == "sum" else self.argument.type.base
        unknown: Array = pa.nulls(groups, arrow_type(base))
        return unknown


@by_identity
def group_keys(projections: Sequence[ir.Projection]) -> tuple[ir.Expression, ...]:
    """The returned expressions that make groups: those without an aggregate that differ from row to row."""
    return tuple(
        item.expression
        for item in projections
        if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)
        and any(True for _ in ir.variables(item.expression))
        and not any(isinstance(found, ir.Aggregate) for found in ir.walk(item.expression))
    )


@by_identity
def aggregates_of(projections: Sequence[ir.Projection]) -> tuple[ir.Aggregate, ...]:
    """The different aggregates in result columns."""
    found = (
        part
        for item in projections
        if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)
        for part in ir.walk(item.expression)
        if isinstance(part, ir.Aggregate)
    )
    return tuple(dict.fromkeys(found))


def _needs_all(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is made of all values of a group at once."""
    return aggregate.distinct or aggregate.function in (
        AggregateFunction.STDDEV,
        AggregateFunction.MEDIAN,
        AggregateFunction.COLLECT,
    )


class Grouping:
    """Collects rows into groups."""

    def __init__(
        self,
        context: Context,
        keys: Sequence[ir.Expression],
        aggregates: Sequence[ir.Aggregate],
        number: str | None = None,
        size: int = 0,
    ) -> None:
        self._context = context
        self._keys = list(dict.fromkeys(keys))
        #: A variable whose numbers, below `size`, are the groups themselves, instead of keys.
        self._number = number
        self._size = size
        #: Keys that are made of paths, whose values are kept: no table has them.
        self._held_keys = {
            key: f"~held {place}"
            for place, key in enumerate(self._keys)
            if any(name not in context.tables for name in ir.variables(key))
        }
        self._variables = list(
            dict.fromkeys(name for key in self._keys if key not in self._held_keys for name in ir.variables(key))
        )
        if number is not None:
            self._variables = [number]
        self._aggregates = list(aggregates)
        self._measures = _measures(self._aggregates)
        #: Sums by number, where what groups are made of has small ones, and how it is numbered.
        self._dense: tuple[GroupNumbers, DenseGroups] | None = None
        self._whole = [item for item in self._aggregates if _needs_all(item)]
        #: The only thing that is asked for is made of different values: then each is kept once per combination.
        self._is_set = (
            len(self._whole) == 1
            and not self._measures
            and self._whole[0].distinct
            and not self._whole[0].order
            and _is_hashed(self._whole[0])
        )
        self._partials: list[pa.Table] = []
        #: Rows of the partials beyond which they are joined, and the bytes that are accounted for them.
        self._most = _MAX_PARTIALS
        self._held = 0
        #: What the sums of integers come to at most, by their measure.
        self._bounds: dict[str, int] = {}
        #: Nothing but the number of all rows is asked for: then that is all that is kept.
        self._only_counts = (
            not self._variables
            and not self._held_keys
            and not self._whole
            and all(it.argument is None for it in self._measures)
        )
        self._count = 0

    def add(self, rows: Rows) -> None:
        """Count rows into their groups."""
        if self._only_counts:
            self._count += rows.total
            return
        if not rows.count:
            # A ranking of nothing binds no variable.
            return
        arguments = [*(item.argument for item in self._measures), *(item.argument for item in self._whole)]
        read = [argument for argument in arguments if argument is not None]
        rows = with_columns(self._context, rows, stored_columns(read))
        if self._add_densely(rows):
            return
        weights = None if rows.weights is None else pa.array(rows.weights)
        columns: dict[str, object] = {name: pa.array(rows.variables[name]) for name in self._variables} or {
            _ALL: pa.repeat(pa.scalar(0, pa.int64()), rows.count)
        }
        for key, name in self._held_keys.items():
            columns[name] = computed(self._context, rows, key)
        for measure in self._measures:
            columns[measure.name] = self._measured(rows, measure, weights)
        keys = self._partial_keys()
        if self._whole:
            columns[_WEIGHT] = pa.repeat(pa.scalar(1, pa.int64()), rows.count) if weights is None else weights
            for number, aggregate in enumerate(self._whole):
                columns |= self._details(rows, number, aggregate)
            if not self._is_set:
                self._partials.append(pa.table(columns))
                self._account()
                return
            del columns[_WEIGHT]
        self._partials.append(self._join(pa.table(columns), keys))
        self._account()
        if sum(part.num_rows for part in self._partials) > self._most:
            self._partials = [self._merge(keys)]
            # Groups that do not become fewer by joining are not joined again with every batch.
            self._most = max(_MAX_PARTIALS, 2 * self._partials[0].num_rows)
            self._account()

    def _add_densely(self, rows: Rows) -> bool:
        """Count rows by number, if that takes no more memory than they do and is exact."""
        if self._whole or self._held_keys or not self._variables:
            return False
        dense = self._dense
        if dense is None:
            numbers = self._numbers(rows)
            if numbers is None:
                return False
            if self._context.budget.memory.refusal(DenseGroups.bytes_for(self._measures, numbers.size)) is not None:
                # Groups that are fewer than their numbers may still fit.
                return False
            dense = numbers, DenseGroups(self._measures, numbers.size)
        values: dict[str, Array] = {}
        for measure in self._measures:
            if measure.argument is None:
                continue
            column = values[measure.name] = computed(self._context, rows, measure.argument)
            if not is_exact(measure.kind, column, rows.weights):
                return False
            is_integer = measure.kind == "sum" and scalar_of(measure.argument.type.base) in INTEGERS
            if is_integer and not self._is_exact_float(measure, column, rows):
                return False
        self._dense = dense
        numbers, groups = dense
        before = groups.nbytes
        runs = numbers.runs(rows) if rows.weights is None else None
        if runs is not None:
            groups.add_runs(*runs, values)
        else:
            groups.add(numbers.of(rows), rows.weights, values)
        self._context.budget.hold(groups.nbytes - before)
        return True

    def _numbers(self, rows: Rows) -> GroupNumbers | None:
        if self._number is not None:
            return GivenNumbers(self._number, self._size)
        return numbered(self._context, self._keys, self._variables, self._unique_variables(), rows.count)

    def _flush(self) -> None:
        """Make a partial of what was counted by number."""
        if self._dense is None:
            return
        numbers, groups = self._dense
        filled = groups.filled()
        columns: dict[str, object] = {name: pa.array(ids) for name, ids in numbers.variables(filled).items()}
        for measure in self._measures:
            type_ = None if measure.argument is None else arrow_type(measure.argument.type.base)
            columns[measure.name] = groups.column(measure, filled, type_)
        self._partials.append(pa.table(columns))
        self._dense = None
        self._account()

    def _partial_keys(self) -> list[str]:
        """The columns of the partials that no two rows of one have in common."""
        keys = [*self._variables, *self._held_keys.values()] or [_ALL]
        if not self._is_set:
            return keys
        is_entity = isinstance(self._whole[0].argument, ir.EntityRef)
        return [*keys, _ONLY_VALUE, *([_ONLY_IDENTITY] if is_entity else [])]

    def finish(self) -> Groups:
        """The groups, in no particular order."""
        if self._only_counts:
            # Rows that are made distinct are one row only if there are any; aggregates are there over no rows too.
            count = 1 if self._aggregates else min(self._count, 1)
            total = pa.array([self._count] * count, pa.int64())
            return Groups(count, self._context.values, dict.fromkeys(self._aggregates, total))
        self._flush()
        if self._partials and self._entities_are_groups() and not self._whole and not self._held_keys:
            return self._groups_of_entities()
        groups, number_of = self._groups_by_value()
        numbers = None if self._number is None else np.asarray(groups[self._number])
        known: dict[ir.Expression, Array] = {
            key: arrow.one_array(groups[f"~key {number}"]) for number, key in enumerate(self._keys)
        }
        for aggregate in self._aggregates:
            if not _needs_all(aggregate):
                known[aggregate] = _finished(aggregate, groups)
        if self._whole:
            known |= self._of_all_values(groups.num_rows, number_of)
        return Groups(groups.num_rows, self._context.values, known, numbers=numbers)

    def _groups_of_entities(self) -> Groups:
        """Groups whose keys are read when they are asked for: of the first of an order, most never are."""
        groups = self._merge(self._partial_keys())
        variables = {} if self._number is not None else self._entities_of(groups)
        known: dict[ir.Expression, Array] = {item: _finished(item, groups) for item in self._aggregates}
        return Groups(
            groups.num_rows,
            self._context.values,
            known,
            numbers=None if self._number is None else np.asarray(groups[self._number]),
            keys=tuple(self._keys),
            entities=(self._context, Rows(count=groups.num_rows, variables=variables)),
        )

    def _entities_of(self, groups: pa.Table) -> dict[str, IntArray]:
        return {name: np.asarray(groups[name].to_numpy()).astype(np.int64) for name in self._variables}

    # ---- inside

    def _account(self) -> None:
        budget = self._context.budget
        size = sum(part.nbytes for part in self._partials)
        budget.release(self._held)
        self._held = 0
        self._held = budget.hold(size)

    def _measured(self, rows: Rows, measure: _Measure, weights: Array | None) -> Array:
        if measure.argument is None:
            return pa.repeat(pa.scalar(1, pa.int64()), rows.count) if weights is None else weights
        values = computed(self._context, rows, measure.argument)
        match measure.kind:
            case "count":
                ones = values.is_valid().cast(pa.int64())
                return ones if weights is None else pc.multiply(ones, weights)
            case "sum":
                if scalar_of(measure.argument.type.base) in INTEGERS and not self._is_exact_float(
                    measure, values, rows
                ):
                    exact = values.cast(pa.decimal128(20, 0)).cast(pa.decimal256(38, 0))
                    if weights is not None:
                        exact = pc.multiply(exact, weights.cast(pa.decimal256(20, 0)))
                    return exact.cast(_EXACT)
                numbers = values.cast(pa.float64(), safe=False)
                return numbers if weights is None else pc.multiply(numbers, weights.cast(pa.float64(), safe=False))
            case _:
                return values

    def _is_exact_float(self, measure: _Measure, values: Array, rows: Rows) -> bool:
        """Whether the sum of integers so far, with these, is exact as a float."""
        extremes = pc.min_max(values)
        largest = max(abs(extremes[name].as_py() or 0) for name in ("min", "max"))
        self._bounds[measure.name] = self._bounds.get(measure.name, 0) + largest * rows.total
        return self._bounds[measure.name] < _EXACT_FLOAT

    def _details(self, rows: Rows, number: int, aggregate: ir.Aggregate) -> dict[str, Array]:
        """The values of an aggregate that needs them all, with what orders them."""
        argument = aggregate.argument
        assert argument is not None, "only a count has no argument"
        columns = {f"~value {number}": self._value(rows, argument, aggregate)}
        if aggregate.distinct and isinstance(argument, ir.EntityRef):
            # Nodes of two types may have one id.
            columns[f"~identity {number}"] = pa.array(
                self._context.identity(argument.variable, rows.variables[argument.variable])
            )
        for place, key in enumerate(aggregate.order):
            columns[f"~order {number} {place}"] = computed(self._context, rows, key.expression)
        if aggregate.order:
            for name in sorted(name for name in rows.variables if not is_hidden(name)):
                edges = rows.columns.get((name, ir.PathPart.EDGES))
                columns[f"~tie {number} {name}"] = (
                    self._context.columns(name, rows.variables[name], (ID,))[ID] if edges is None else edges
                )
        return columns

    def _value(self, rows: Rows, argument: ir.Expression, aggregate: ir.Aggregate) -> Array:
        """What an aggregate is made over: nodes and edges are distinct by type and id."""
        if isinstance(argument, ir.EntityRef) and aggregate.function is AggregateFunction.COUNT:
            numbers = self._context.identity(argument.variable, rows.variables[argument.variable])
            identities: Array = pa.array(numbers, mask=numbers < 0)
            return identities
        return computed(self._context, rows, argument)

    def _of_all_values(self, count: int, number_of: IntArray) -> dict[ir.Expression, Array]:
        table = pa.concat_tables(_alike(self._partials)) if self._partials else None
        found: dict[ir.Expression, Array] = {}
        for number, aggregate in enumerate(self._whole):
            self._context.budget.check()
            assert aggregate.argument is not None, "only a count has no argument"
            empty = pa.array([], arrow_type(aggregate.argument.type.base))
            detail = {name: arrow.one_array(table[name]) for name in table.column_names} if table else {}
            ties = [detail[name] for name in detail if name.startswith(f"~tie {number} ")]
            keys = [
                order_codes(detail[f"~order {number} {place}"], descending=key.descending, nulls_first=key.nulls_first)
                for place, key in enumerate(aggregate.order if detail else ())
            ]
            weights = detail.get(_WEIGHT)
            limit = None if aggregate.limit is None else ir.value_of(aggregate.limit, self._context.values)
            made = partial(
                aggregate_all,
                str(aggregate.function),
                number_of,
                detail.get(f"~value {number}", empty),
                None if weights is None else np.asarray(weights),
                count,
                distinct=aggregate.distinct,
                identities=detail.get(f"~identity {number}"),
                order=[*keys, *(order_codes(tie, descending=False) for tie in ties)],
                limit=limit if isinstance(limit, int) else None,
                allow=self._context.budget.allow,
            )
            found[aggregate] = self._context.budget.patiently(made, len(number_of))
        return found

    def _join(self, table: pa.Table, keys: list[str]) -> pa.Table:
        if not table.num_rows:
            return table
        if keys == [_ALL]:
            return self._join_all(table)
        steps = [(measure.name, _MERGED_BY[measure.kind], _options(measure)) for measure in self._measures]
        runs = joined_runs(table, keys, self._measures)
        if runs is not None:
            return runs
        if not steps:
            return table.group_by(keys, use_threads=False).aggregate([])
        joined = _aggregated(table, keys, steps)
        names = {f"{name}_{function}": name for name, function, _ in steps}
        renamed = joined.rename_columns([names.get(name, name) for name in joined.column_names])
        return renamed.select([*keys, *(measure.name for measure in self._measures)])

    def _join_all(self, table: pa.Table) -> pa.Table:
        """Everything as one group."""
        found: dict[str, Array] = {_ALL: pa.array([0], pa.int64())}
        for measure in self._measures:
            kernel = getattr(pc, _MERGED_BY[measure.kind])
            total = kernel(table[measure.name], options=_options(measure))
            found[measure.name] = arrow.repeated(total, 1)
        return pa.table(found)

    def _merge(self, keys: list[str]) -> pa.Table:
        if len(self._partials) == 1:
            return self._partials[0]
        budget, table = self._context.budget, pa.concat_tables(_alike(self._partials))
        budget.allow(table.nbytes * _JOIN_COPIES)
        return budget.patiently(lambda: self._join(table, keys), table.num_rows)

    def _groups_by_value(self) -> tuple[pa.Table, IntArray]:
        """One row per group with its keys and measures, and the group of every row of the partials."""
        if not self._variables and not self._held_keys:
            return self._one_group()
        if not self._partials:
            return self._empty(), np.zeros(0, np.int64)
        groups = pa.concat_tables(_alike(self._partials)) if self._whole else self._merge(self._partial_keys())
        if self._number is not None:
            return self._numbered_groups(groups, self._number)
        rows = Rows(count=groups.num_rows, variables=self._entities_of(groups))
        rows = with_columns(self._context, rows, stored_columns(k for k in self._keys if k not in self._held_keys))
        key_columns = {
            f"~key {number}": with_one_zero(
                arrow.one_array(groups[self._held_keys[key]])
                if key in self._held_keys
                else computed(self._context, rows, key)
            )
            for number, key in enumerate(self._keys)
        }
        measures = {measure.name: groups[measure.name] for measure in self._measures}
        codes = {f"~{name}": groupable(column) for name, column in key_columns.items()}
        for number, key in enumerate(self._keys):
            if isinstance(key, ir.EntityRef) and not self._context.is_plain(key.variable):
                # Nodes of two types may have one id.
                codes[f"~~key {number}"] = pa.array(self._context.identity(key.variable, rows.variables[key.variable]))
        table = pa.table({**codes, **measures, _PLACE: pa.array(np.arange(rows.count))})
        steps = [(measure.name, _MERGED_BY[measure.kind], _options(measure)) for measure in self._measures]
        budget = self._context.budget
        budget.allow(table.nbytes * _JOIN_COPIES)
        joined = budget.patiently(
            lambda: _aggregated(table, list(codes), [*steps, (_PLACE, "min", None)]), table.num_rows
        )
        first = joined[f"{_PLACE}_min"].combine_chunks()
        result: dict[str, Column] = {name: column.take(first) for name, column in key_columns.items()}
        result |= {name: joined[f"{name}_{function}"] for name, function, _ in steps}
        number_of = numbers_of(list(codes.values()), np.asarray(first)) if self._whole else None
        return pa.table(result), np.zeros(0, np.int64) if number_of is None else number_of

    def _numbered_groups(self, groups: pa.Table, number: str) -> tuple[pa.Table, IntArray]:
        if not self._whole:
            return groups, np.zeros(0, np.int64)
        _, number_of = distinct_numbers(np.asarray(groups[number]).astype(np.int64))
        joined = self._join(groups, [number])
        order = np.argsort(np.asarray(joined[number]))
        return joined.take(pa.array(order)), number_of

    def _entities_are_groups(self) -> bool:
        """Whether different entities always have different keys: each variable is grouped by something unique."""
        return self._unique_variables().issuperset(self._variables)

    def _unique_variables(self) -> set[str]:
        return {
            key.variable
            for key in self._keys
            if isinstance(key, ir.PropertyRef | ir.EntityRef | ir.Record) and self._is_unique(key)
        }

    def _is_unique(self, key: ir.PropertyRef | ir.EntityRef | ir.Record) -> bool:
        if not self._context.is_plain(key.variable):
            return False
        if not isinstance(key, ir.PropertyRef) or key.property == ID:
            return True
        definition = self._context.catalog.nodes.get(self._context.tables[key.variable].name)
        return definition is not None and definition.key is not None and definition.key.members == (key.property,)

    def _one_group(self) -> tuple[pa.Table, IntArray]:
        """Without keys there is one group, also over no rows."""
        if self._partials and self._whole:
            table = pa.concat_tables(_alike(self._partials))
            return self._join_all(table), np.zeros(table.num_rows, np.int64)
        if self._partials:
            return self._merge([_ALL]), np.zeros(0, np.int64)
        columns: dict[str, Array] = {_ALL: pa.array([0], pa.int64())}
        columns |= {measure.name: measure.over_nothing(1) for measure in self._measures}
        return pa.table(columns), np.zeros(0, np.int64)

    def _empty(self) -> pa.Table:
        columns: dict[str, object] = {
            f"~key {number}": pa.array([], arrow_type(key.type.base)) for number, key in enumerate(self._keys)
        }
        columns |= {measure.name: measure.over_nothing(0) for measure in self._measures}
        if self._number is not None:
            columns[self._number] = pa.array([], pa.int64())
        return pa.table(columns)


def _alike(partials: Sequence[pa.Table]) -> list[pa.Table]:
    """Partials whose sums have one type: a sum becomes a decimal once it is too large for a float."""
    schemas = {part.schema for part in partials}
    if len(schemas) == 1:
        return list(partials)
    exact = {field.name for schema in schemas for field in schema if pa.types.is_decimal(field.type)}
    return [
        part.cast(pa.schema([pa.field(item.name, _EXACT) if item.name in exact else item for item in part.schema]))
        for part in partials
    ]


def _measures(aggregates: Sequence[ir.Aggregate]) -> list[_Measure]:
    found: dict[str, _Measure] = {}
    for aggregate in aggregates:
        if not _needs_all(aggregate):
            for measure in _measures_of(aggregate):
                found[measure.name] = measure
    return list(found.values())


def _measures_of(aggregate: ir.Aggregate) -> list[_Measure]:
    argument = aggregate.argument
    if counts_rows(aggregate) or argument is None:
        return [_Measure("rows", "count", None)]
    label = repr(argument)
    count = _Measure(f"count {label}", "count", argument)
    total = _Measure(f"sum {label}", "sum", argument)
    match aggregate.function:
        case AggregateFunction.COUNT:
            return [count]
        case AggregateFunction.SUM:
            return [total]
        case AggregateFunction.AVG:
            return [total, count]
        case AggregateFunction.MIN:
            return [_Measure(f"min {label}", "min", argument)]
        case AggregateFunction.MAX:
            return [_Measure(f"max {label}", "max", argument)]
        case _:
            raise AssertionError(f"{aggregate.function} needs all values")


def _finished(aggregate: ir.Aggregate, groups: pa.Table) -> Array:
    """The value of an aggregate per group, in stored form."""
    parts = [arrow.one_array(groups[measure.name]) for measure in _measures_of(aggregate)]
    match aggregate.function:
        case AggregateFunction.AVG:
            total, count = _as_float(parts[0]), parts[1].cast(pa.float64())
            present = pc.if_else(pc.greater(count, 0.0), count, pa.scalar(None, pa.float64()))
            return _finite(pc.divide(total, present))
        case AggregateFunction.SUM:
            return _finite(_as_float(parts[0]))
        case _:
            return parts[0].cast(arrow_type(aggregate.type.base))


def _as_float(column: Array) -> Array:
    """Sums as floats, rounded once."""
    if not pa.types.is_decimal(column.type):
        return column.cast(pa.float64())
    rounded: Array = pa.array([None if value is None else float(value) for value in column.to_pylist()], pa.float64())
    return rounded


def _finite(column: Array) -> Array:
    """A column with null for what is not a finite number, and one zero."""
    is_finite = pc.fill_null(pc.is_finite(column), False)
    found: Array = pc.if_else(is_finite, pc.add(column, 0.0), pa.scalar(None, pa.float64()))
    return found


def _aggregated(table: pa.Table, keys: list[str], steps: list[tuple[str, str, object]]) -> pa.Table:
    """One thread: the order of additions, and with it the last bit of a sum, is always the same."""
    found: pa.Table = arrow.pa.TableGroupBy(table, keys, use_threads=False).aggregate(steps)
    return found


def _options(measure: _Measure) -> object:
    return _COUNTS if measure.kind == "count" or measure.argument is None else _SKIP_NULLS
