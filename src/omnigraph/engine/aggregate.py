"""Grouping: partial sums per combination of entities first, values of the group keys only at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.core import arrow
from omnigraph.core.arrow import Array, Column, pc
from omnigraph.engine.context import Context, counts_rows
from omnigraph.engine.predicates import with_columns
from omnigraph.engine.projection import entity_columns, groupable, operand_column, shown
from omnigraph.engine.rows import Rows
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction

_ALL = "~all"
_PLACE = "~place"
#: Partial groups that are held before they are joined.
_MAX_PARTIALS = 1 << 20
#: How much memory joining takes, in multiples of what is joined: a table of its keys, and the result.
_JOIN_COPIES = 2
_MERGED_BY = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
_SKIP_NULLS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_COUNTS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=0)


@frozen
class _Measure:
    """One number that is kept per group: a weighted sum, a weighted count of what is not null, or an extreme."""

    name: str
    #: `sum`, `count`, `min` or `max`.
    kind: str
    #: What is measured; None is the row itself.
    argument: ir.Operand | None


class Grouping:
    """Collects rows into groups."""

    def __init__(self, context: Context, projections: Sequence[ir.Projection]) -> None:
        self._context = context
        self._projections = projections
        self._keys: list[ir.PropertyRef | ir.EntityRef] = [
            item.expression for item in projections if isinstance(item.expression, ir.PropertyRef | ir.EntityRef)
        ]
        self._variables = list(dict.fromkeys(key.variable for key in self._keys))
        self._measures = _measures(projections)
        self._partials: list[pa.Table] = []
        #: Rows of the partials beyond which they are joined, and the bytes that are accounted for them.
        self._most = _MAX_PARTIALS
        self._held = 0
        #: Nothing but the number of all rows is asked for: then that is all that is kept.
        self._only_counts = not self._keys and all(item.argument is None for item in self._measures)
        self._count = 0

    def add(self, rows: Rows) -> None:
        """Count rows into their groups."""
        if self._only_counts:
            self._count += rows.total
            return
        arguments = [measure.argument for measure in self._measures]
        rows = with_columns(self._context, rows, entity_columns(arguments))
        weights = None if rows.weights is None else pa.array(rows.weights)
        columns: dict[str, object] = {name: pa.array(rows.variables[name]) for name in self._variables} or {
            _ALL: pa.repeat(pa.scalar(0, pa.int64()), rows.count)
        }
        for measure in self._measures:
            columns[measure.name] = self._measured(rows, measure, weights)
        keys = self._variables or [_ALL]
        self._partials.append(self._join(pa.table(columns), keys))
        self._account()
        if sum(part.num_rows for part in self._partials) > self._most:
            self._partials = [self._merge(keys)]
            # Groups that do not become fewer by joining are not joined again with every batch.
            self._most = max(_MAX_PARTIALS, 2 * self._partials[0].num_rows)
            self._account()

    def finish(self, schema: pa.Schema) -> pa.Table:
        """One row per group, in no particular order."""
        if self._only_counts:
            return pa.table([[self._count]] * len(schema), schema=schema)
        groups = self._groups_by_value()
        arrays: list[Array] = []
        for item in self._projections:
            match item.expression:
                case ir.Aggregate():
                    column = _finished(item, groups)
                case _:
                    column = groups[f"{_key_name(item.expression)}"].combine_chunks()
                    column = shown(column, item.type.base)
            arrays.append(column.cast(schema.field(item.name).type))
        return pa.table(arrays, schema=schema)

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
        values = operand_column(self._context, rows, measure.argument)
        match measure.kind:
            case "count":
                ones = values.is_valid().cast(pa.int64())
                return ones if weights is None else pc.multiply(ones, weights)
            case "sum":
                numbers = values.cast(pa.float64(), safe=False)
                return numbers if weights is None else pc.multiply(numbers, weights.cast(pa.float64(), safe=False))
            case _:
                return values

    def _join(self, table: pa.Table, keys: list[str]) -> pa.Table:
        if not table.num_rows:
            return table
        if keys == [_ALL]:
            return self._join_all(table)
        steps = [(measure.name, _MERGED_BY[measure.kind], _options(measure)) for measure in self._measures]
        if not steps:
            return table.group_by(keys, use_threads=False).aggregate([])
        joined = _aggregated(table, keys, steps)
        names = {f"{name}_{function}": name for name, function, _ in steps}
        return joined.rename_columns([names.get(name, name) for name in joined.column_names])

    def _join_all(self, table: pa.Table) -> pa.Table:
        """Everything as one group."""
        found: dict[str, Array] = {_ALL: pa.array([0], pa.int64())}
        for measure in self._measures:
            kernel = getattr(pc, _MERGED_BY[measure.kind])
            total = kernel(table[measure.name], options=_options(measure))
            found[measure.name] = pa.array([total.as_py()], total.type)
        return pa.table(found)

    def _merge(self, keys: list[str]) -> pa.Table:
        if len(self._partials) == 1:
            return self._partials[0]
        budget, table = self._context.budget, pa.concat_tables(self._partials)
        budget.allow(table.nbytes * _JOIN_COPIES)
        return budget.patiently(lambda: self._join(table, keys), table.num_rows)

    def _groups_by_value(self) -> pa.Table:
        if not self._variables:
            return self._one_group()
        if not self._partials:
            return self._empty()
        groups = self._merge(self._variables)
        rows = Rows(
            count=groups.num_rows,
            variables={name: np.asarray(groups[name].to_numpy()).astype(np.int64) for name in self._variables},
        )
        rows = with_columns(self._context, rows, entity_columns(self._keys))
        key_columns = {_key_name(key): operand_column(self._context, rows, key) for key in self._keys}
        measures = {measure.name: groups[measure.name] for measure in self._measures}
        if self._entities_are_groups():
            return pa.table({**key_columns, **measures})
        codes = {f"~{name}": groupable(column) for name, column in key_columns.items()}
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
        return pa.table(result)

    def _entities_are_groups(self) -> bool:
        """Whether different entities always have different keys: each variable is grouped by something unique."""
        unique = {key.variable for key in self._keys if self._is_unique(key)}
        return unique.issuperset(self._variables)

    def _is_unique(self, key: ir.PropertyRef | ir.EntityRef) -> bool:
        if isinstance(key, ir.EntityRef):
            return True
        definition = self._context.catalog.nodes.get(self._context.tables[key.variable].name)
        return definition is not None and definition.key is not None and definition.key.members == (key.property,)

    def _one_group(self) -> pa.Table:
        """Without keys there is one group, also over no rows."""
        if self._partials:
            return self._merge([_ALL])
        return pa.table(
            {
                measure.name: pa.array([0 if measure.kind == "count" or measure.argument is None else None])
                for measure in self._measures
            }
        )

    def _empty(self) -> pa.Table:
        columns: dict[str, object] = {}
        for key in self._keys:
            name = "id" if isinstance(key, ir.EntityRef) else key.property
            type_ = self._context.entities(key.variable).table.schema.field(name).type
            columns[_key_name(key)] = pa.array([], type_)
        for measure in self._measures:
            columns[measure.name] = pa.array([], pa.int64())
        return pa.table(columns)


def _measures(projections: Sequence[ir.Projection]) -> list[_Measure]:
    found: dict[str, _Measure] = {}
    for item in projections:
        if isinstance(item.expression, ir.Aggregate):
            for measure in _measures_of(item.expression):
                found[measure.name] = measure
    return list(found.values())


def _measures_of(aggregate: ir.Aggregate) -> list[_Measure]:
    argument = aggregate.argument
    if counts_rows(aggregate):
        return [_Measure("rows", "count", None)]
    label = _key_name(argument)
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


def _finished(item: ir.Projection, groups: pa.Table) -> Array:
    assert isinstance(item.expression, ir.Aggregate)
    parts = [groups[measure.name] for measure in _measures_of(item.expression)]
    if item.expression.function is AggregateFunction.AVG:
        total, count = parts[0].cast(pa.float64()), parts[1].cast(pa.float64())
        present = pc.if_else(pc.greater(count, 0.0), count, pa.scalar(None, pa.float64()))
        average: Array = pc.divide(total, present).combine_chunks()
        return average
    column = parts[0].combine_chunks()
    return shown(column, item.type.base) if column.null_count < len(column) else column


def _aggregated(table: pa.Table, keys: list[str], steps: list[tuple[str, str, object]]) -> pa.Table:
    """One thread: the order of additions, and with it the last bit of a sum, is always the same."""
    found: pa.Table = arrow.pa.TableGroupBy(table, keys, use_threads=False).aggregate(steps)
    return found


def _options(measure: _Measure) -> object:
    return _COUNTS if measure.kind == "count" or measure.argument is None else _SKIP_NULLS


def _key_name(operand: object) -> str:
    match operand:
        case ir.PropertyRef(variable, name):
            return f"{variable}.{name}"
        case ir.EntityRef(variable):
            return f"{variable}"
        case ir.ParamRef(name):
            return f"${name}"
        case ir.Constant(value):
            return f"={value!r}"
        case _:
            raise AssertionError(f"{operand!r} is not an operand")
