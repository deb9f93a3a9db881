"""Result columns, their equality, keys of order, and the total order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.core.arrow import Array, arrow_type, one_array, pc, record_columns, records
from omnigraph.core.cache import by_identity
from omnigraph.core.types import BaseType, ListType, RecordListType, RecordType, Scalar, ScalarType
from omnigraph.engine.predicates import computed, stored_columns, with_columns
from omnigraph.engine.rows import BoolArray, Column, IntArray, Rows, plain_numbers
from omnigraph.engine.tables.context import EDGES, NODES, Context, is_hidden
from omnigraph.lang.query import ir

# ---- Result columns: values in the types that a result shows


#: Where the score of the rank key is attached to rows.
SCORE_COLUMN: Column = ("~rank", "score")
_INSTANT = pa.timestamp("ms", tz="UTC")


def result_type(base: BaseType) -> pa.DataType:
    """The Arrow type in a result: as stored, but instants are timestamps in UTC, which every reader understands."""
    match base:
        case ScalarType(Scalar.DATETIME):
            return _INSTANT
        case ListType(Scalar.DATETIME):
            return pa.list_(pa.field("item", _INSTANT))
        case RecordType(fields):
            return pa.struct([(name, result_type(type_.base)) for name, type_ in fields])
        case RecordListType(item):
            return pa.list_(pa.field("item", result_type(item)))
        case _:
            return arrow_type(base)


@by_identity
def result_schema(projections: Sequence[ir.Projection]) -> pa.Schema:
    """The columns of a result."""
    return pa.schema(
        [
            pa.field(
                item.name,
                result_type(item.type.base),
                nullable=item.type.nullable or isinstance(item.expression, ir.Aggregate),
            )
            for item in projections
        ]
    )


def shown(column: Array, base: BaseType, wanted: pa.DataType | None = None) -> Array:
    """A stored column in the type of a result, `wanted` where the caller knows it."""
    wanted = result_type(base) if wanted is None else wanted
    if column.type == wanted:
        return column
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).cast(wanted)
    if base == ListType(Scalar.DATETIME):
        return column.cast(pa.list_(pa.int64())).cast(wanted)
    if isinstance(base, RecordListType):
        return with_items(column, shown(pc.list_flatten(column), base.item, wanted.field(0).type))
    if isinstance(base, RecordType):
        parts = zip(record_columns(column), base.fields, strict=True)
        return records(wanted, [shown(part, type_.base) for part, (_, type_) in parts], column.is_null())
    return column.cast(wanted)


def project(context: Context, rows: Rows, projections: Sequence[ir.Projection], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch of result columns."""
    rows = with_columns(context, rows, _read_columns(projections))
    arrays = [
        shown(value_column(context, rows, item.expression), item.type.base, schema.field(place).type)
        for place, item in enumerate(projections)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@by_identity
def _read_columns(projections: Sequence[ir.Projection]) -> tuple[Column, ...]:
    """The stored columns behind result columns that are not a score."""
    read = [item.expression for item in projections if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)]
    return tuple(dict.fromkeys(stored_columns(read)))


def value_column(context: Context, rows: Rows, expression: ir.Expression | ir.Rank) -> Array:
    """The values of a column, in stored form; what is stored of it is best read already."""
    match expression:
        case ir.PropertyRef(variable, name) if (variable, name) in rows.columns:
            return rows.columns[variable, name]
        case ir.Nearest() | ir.Bm25() | ir.Rrf():
            return rows.columns[SCORE_COLUMN]
        case _:
            return computed(context, rows, expression)


# ---- Equality keys of columns


def with_one_zero(column: Array) -> Array:
    """A column in which both zeros are 0, those in its lists too."""
    if pa.types.is_floating(column.type):
        one_zero: Array = pc.add(column, pa.scalar(0.0, column.type))
        return one_zero
    if pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type):
        return with_items(column, with_one_zero(pc.list_flatten(column)))
    if pa.types.is_struct(column.type):
        return records(column.type, map(with_one_zero, record_columns(column)), column.is_null())
    return column


def with_items(column: Array, items: Array) -> Array:
    """Lists as long as those of a column, with other items."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.cumsum(np.asarray(lengths.to_numpy(zero_copy_only=False)))
    offsets = pa.array(np.append(0, ends), pa.int32())
    lists: Array = pa.ListArray.from_arrays(offsets, items, mask=column.is_null())
    return lists


def groupable(column: Array) -> Array:
    """A column whose values group exactly as these do: both zeros are one value, lists and records become texts."""
    if pa.types.is_floating(column.type):
        return with_one_zero(column)
    if pa.types.is_fixed_size_list(column.type):
        width = pa.list_(column.type.value_type)
        return groupable(column.cast(width))
    if pa.types.is_list(column.type):
        return _list_texts(column)
    if pa.types.is_struct(column.type):
        return _record_texts(column)
    return column


def _list_texts(column: Array) -> Array:
    """One text per list, different for different lists."""
    items = pc.list_flatten(column)
    marked = _marked(items if pa.types.is_string(items.type) else _plain_texts(items))
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths.to_numpy(zero_copy_only=False)))])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), marked)
    # An empty list and a list of one empty text differ by their length.
    joined = pc.binary_join_element_wise(lengths.cast(pa.utf8()), pc.binary_join(lists, ","), ":")
    found: Array = pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.utf8()))
    return found


def _record_texts(column: Array) -> Array:
    """One text per record, different for different records."""
    parts = [_marked(_plain_texts(part)) for part in _telling_fields(column)]
    joined = pc.binary_join_element_wise(*parts, ",")
    found: Array = pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.utf8()))
    return found


def _telling_fields(column: Array) -> list[Array]:
    """The fields that tell records from each other: of an entity its system fields, the others follow from these."""
    fields = dict(zip(column.type.names, record_columns(column), strict=True))
    return [part for name, part in fields.items() if name.startswith("@")] or list(fields.values())


def _marked(texts: Array) -> Array:
    """Texts without a bare comma, and a mark for null."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), ",", "\\,")
    marked: Array = pc.fill_null(escaped, "\\N")
    return marked


def _plain_texts(items: Array) -> Array:
    if pa.types.is_date64(items.type):
        items = items.cast(pa.int64())
    return groupable(items).cast(pa.utf8())


# ---- Total, deterministic order


#: Codes of null where it does not stand where its direction says.
_BEFORE_ALL, _BEHIND_ALL = -(2**62), 2**62
_RANKS = pc.RankOptions(sort_keys="ascending", tiebreaker="dense")


def order_codes(column: Array, *, descending: bool, nulls_first: bool | None = None) -> IntArray:
    """Numbers that sort as the values do: null first, then NaN, or last descending; equal values have equal numbers.

    `nulls_first` puts null elsewhere. Lists have an order too, which means nothing but makes others total; records
    are in that of the fields that tell them apart.
    """
    if pa.types.is_struct(column.type):
        parts = [order_codes(part, descending=False) for part in _telling_fields(column)]
        column = pa.array(_numbers_of(parts, len(column)), mask=np.asarray(column.is_null()))
    values = groupable(plain_numbers(column))
    ranks = pc.rank(values, options=_RANKS)
    codes = np.asarray(ranks.to_numpy(zero_copy_only=False)).astype(np.int64) + 1
    # Where these two stand in the order of Arrow depends on its release.
    if pa.types.is_floating(values.type):
        codes[np.asarray(pc.fill_null(pc.is_nan(values), False).to_numpy(zero_copy_only=False))] = 1
    nulls = np.asarray(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else None
    if nulls is not None:
        codes[nulls] = 0
    if descending:
        codes = -codes
    if nulls is not None and nulls_first is not None:
        codes[nulls] = _BEFORE_ALL if nulls_first else _BEHIND_ALL
    return codes


def path_codes(edges: Array, *, descending: bool = False, nulls_first: bool | None = None) -> IntArray:
    """Numbers that sort as paths do: edge by edge, a path before those that go on from its end."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(edges), 0).to_numpy(zero_copy_only=False))
    items = order_codes(pc.list_flatten(edges), descending=False)
    paths = np.zeros((len(edges), lengths.max(initial=0)), np.int64)
    paths[np.arange(paths.shape[1]) < lengths[:, None]] = items
    numbers = _numbers_of(list(paths.T), len(edges))
    return order_codes(
        pa.array(numbers, mask=np.asarray(edges.is_null())), descending=descending, nulls_first=nulls_first
    )


def _numbers_of(codes: Sequence[IntArray], count: int) -> IntArray:
    """One number per row that sorts as its codes do; rows with equal codes have equal numbers."""
    order = sort_by_codes(codes, count)
    is_new = np.zeros(count, np.bool_)
    for code in codes:
        in_order = code[order]
        is_new[1:] |= in_order[1:] != in_order[:-1]
    numbers = np.empty(count, np.int64)
    numbers[order] = np.cumsum(is_new)
    return numbers


def sort_by_codes(codes: Sequence[IntArray], count: int) -> IntArray:
    """The places of rows in order; earlier codes weigh more."""
    if not codes:
        return np.arange(count)
    if len(codes) == 1:
        return np.argsort(codes[0], kind="stable")
    return np.lexsort(tuple(reversed(codes)))


def total_order(
    context: Context, rows: Rows, codes: Sequence[IntArray], limit: int | None, *, first: str | None = None
) -> IntArray:
    """The places of the first `limit` rows in total order: by codes, then by the ids of all named variables.

    The ids of the variable `first` weigh more than those of others, which are taken by name. Ids are read only for rows
    that the codes leave tied.
    """
    budget = context.budget
    order = budget.patiently(lambda: sort_by_codes(codes, rows.count), rows.count)
    wanted = len(order) if limit is None else min(limit, len(order))
    if wanted == 0 or len(order) < 2:
        return order[:wanted]
    is_same = np.ones(len(order) - 1, np.bool_)
    for code in codes:
        sorted_code = code[order]
        is_same &= sorted_code[1:] == sorted_code[:-1]
    if is_same.any():
        names = (name for name in rows.variables if not is_hidden(name))
        in_order = sorted(names, key=lambda name: (name != first, name))
        _break_ties(context, rows, list(in_order), order, (is_same, wanted))
    return order[:wanted]


def _break_ties(
    context: Context, rows: Rows, variables: Sequence[str], order: IntArray, same: tuple[BoolArray, int]
) -> None:
    """Sort runs of tied rows by the ids of variables, as far as they reach into the wanted part.

    `same` says which rows are tied with the one before, in order, and how many rows are wanted. The ids of a variable
    are read only where those before leave rows tied.
    """
    is_same, wanted = same
    for name in variables:
        run = np.concatenate([[0], np.cumsum(~is_same)])
        in_run = np.concatenate([[False], is_same]) | np.concatenate([is_same, [False]])
        tied = np.flatnonzero(in_run & (run <= run[wanted - 1]))
        if not len(tied):
            return
        places = order[tied]
        codes = [run[tied], *_id_codes(context, rows, name, places)]
        moved = context.budget.patiently(partial(sort_by_codes, codes, len(tied)), len(tied))
        order[tied] = places[moved]
        # Rows that followed each other in one run are still tied if the new codes are equal too.
        follows = np.flatnonzero(tied[1:] == tied[:-1] + 1)
        still = np.ones(len(follows), np.bool_)
        for code in codes:
            in_order = code[moved]
            still &= in_order[follows + 1] == in_order[follows]
        is_same[tied[follows]] &= still


def _id_codes(context: Context, rows: Rows, name: str, places: IntArray) -> list[IntArray]:
    """Numbers that sort as the ids of a variable do, at some places."""
    patiently = context.budget.patiently
    if (name, ir.PathPart.EDGES) in rows.columns:
        edges = rows.columns[name, ir.PathPart.EDGES].take(pa.array(places, pa.int64()))
        return [patiently(partial(path_codes, edges), len(places))]
    row_ids = rows.variables[name][places]
    ids = context.columns(name, row_ids, ("id",))["id"]
    codes = [patiently(partial(order_codes, ids, descending=False), len(places))]
    if context.tables.get(name) in (NODES, EDGES):
        codes.append(order_codes(context.type_names(name, row_ids), descending=False))
    return codes


# ---- Order keys


def key_codes(
    context: Context, rows: Rows, query: ir.ReadIR, keys: Sequence[ir.OrderKey] | None = None
) -> tuple[Rows, list[IntArray]]:
    """The rows with the values of order keys, and numbers that sort as those do; all keys unless some are given."""
    keys = query.order if keys is None else keys
    operands = [key_operand(query, key.expression) for key in keys]
    plain = [item for item in operands if not isinstance(item, ir.Nearest | ir.Bm25 | ir.Rrf)]
    rows = with_columns(context, rows, stored_columns(plain))
    columns = [value_column(context, rows, operand) for operand in operands]
    codes = [
        context.budget.patiently(
            partial(
                path_codes if isinstance(operand, ir.PathRef) else order_codes,
                column,
                descending=key.descending,
                nulls_first=key.nulls_first,
            ),
            rows.count,
        )
        for operand, column, key in zip(operands, columns, keys, strict=True)
    ]
    return rows, codes


def key_operand(query: ir.ReadIR, key: ir.Expression) -> ir.Expression | ir.Rank:
    """What an order key is made of: the expression of the column that it names, or itself."""
    if not isinstance(key, ir.ColumnRef):
        return key
    return next(item.expression for item in query.projections if item.name == key.name)


def sort_groups(context: Context, groups: pa.Table, query: ir.ReadIR) -> pa.Table:
    """Groups in order: by the order keys, ties by the group columns. Those of a ranking have no rank, but an order."""
    if not query.order and query.rank is None:
        return groups
    context.budget.allow(groups.nbytes + groups.num_rows * 8 * (len(query.projections) + 2))
    return context.budget.patiently(lambda: _sorted_groups(groups, query), groups.num_rows)


def _sorted_groups(groups: pa.Table, query: ir.ReadIR) -> pa.Table:
    codes = [
        order_codes(_group_column(groups, query, key), descending=key.descending, nulls_first=key.nulls_first)
        for key in query.order
    ]
    ordered = {key.expression.name for key in query.order if isinstance(key.expression, ir.ColumnRef)}
    codes += [
        order_codes(one_array(groups[item.name]), descending=False)
        for item in query.projections
        # What is ordered by already breaks no tie.
        if item.name not in ordered
    ]
    return groups.take(sort_by_codes(codes, groups.num_rows))


def _group_column(groups: pa.Table, query: ir.ReadIR, key: ir.OrderKey) -> Array:
    assert isinstance(key.expression, ir.ColumnRef), "groups are ordered by what is returned"
    return one_array(groups[key.expression.name])


# ---- Limits


def first_of_each(codes: Sequence[IntArray], limit: int, count: int) -> IntArray:
    """The places of the first `limit` rows of each group of rows with equal codes, in order."""
    group_of = _numbers_of(codes, count)
    by_group = np.argsort(group_of, kind="stable")
    sizes = np.bincount(group_of)
    starts = np.cumsum(sizes) - sizes
    number = np.empty(count, np.int64)
    number[by_group] = np.arange(count) - np.repeat(starts, sizes)
    found: IntArray = np.flatnonzero(number < limit)
    return found
