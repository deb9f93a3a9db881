"""Total, deterministic order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.engine.local.arrays import ArrowColumn, IntArray, pc, plain_numbers
from omnigraph.engine.local.equality import groupable
from omnigraph.engine.local.variables import is_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.rows import Rows


_RANKS = pc.RankOptions(sort_keys=[("values", "ascending", "at_start")], tiebreaker="dense")


def order_codes(column: ArrowColumn, *, descending: bool) -> IntArray:
    """Numbers that sort as the values do: null first ascending, last descending; equal values have equal numbers.

    Lists have an order too, which means nothing but makes others total.
    """
    ranks = pc.rank(groupable(plain_numbers(column)), options=_RANKS)
    codes = np.asarray(ranks.to_numpy(zero_copy_only=False)).astype(np.int64)
    return -codes if descending else codes


def sort_by_codes(codes: Sequence[IntArray], count: int) -> IntArray:
    """The places of rows in order; earlier codes weigh more."""
    if not codes:
        return np.arange(count)
    if len(codes) == 1:
        return np.argsort(codes[0], kind="stable")
    return np.lexsort(tuple(reversed(codes)))


def total_order(
    context: Context,
    rows: Rows,
    codes: Sequence[IntArray],
    limit: int | None,
    *,
    first: str | None = None,
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
        variables = {name: rows.variables[name] for name in in_order}
        _break_ties(context, variables, order, is_same, wanted)
    return order[:wanted]


def _break_ties(
    context: Context,
    variables: Mapping[str, IntArray],
    order: IntArray,
    is_same: np.ndarray,
    wanted: int,
) -> None:
    """Sort runs of tied rows by the ids of variables, as far as they reach into the wanted part."""
    if not variables:
        return
    run = np.concatenate([[0], np.cumsum(~is_same)])
    in_run = np.concatenate([[False], is_same]) | np.concatenate([is_same, [False]])
    tied = np.flatnonzero(in_run & (run <= run[wanted - 1]))
    if not len(tied):
        return
    places = order[tied]
    codes = [run[tied]]
    for name, row_ids in variables.items():
        ids = context.entities(name).column(row_ids[places], "id")
        codes.append(
            context.budget.patiently(partial(order_codes, ids, descending=False), len(tied))
        )
    order[tied] = places[
        context.budget.patiently(lambda: sort_by_codes(codes, len(tied)), len(tied))
    ]
