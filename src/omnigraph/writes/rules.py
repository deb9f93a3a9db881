"""The one checker of integrity rules: values as masks, and rows of a write against those that stay."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, assert_never

import numpy as np

from omnigraph.core.arrow import Batch, Column, Rows, pa, pc, stored_values
from omnigraph.core.ids import TableKey
from omnigraph.core.values import to_f32
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import (
    DistinctIds,
    EnumValues,
    Example,
    NewIds,
    Pattern,
    Range,
    Required,
    RowRule,
    Rule,
    TableRules,
    ValueRule,
    violation_text,
)
from omnigraph.writes.columns import texts

if TYPE_CHECKING:
    import pyarrow


@frozen
class Violation:
    """One rule that rows of a table violate: how many there are, and some of them."""

    key: TableKey
    rule: Rule
    total: int
    examples: list[Example]

    @property
    def texts(self) -> list[str]:
        """The sentences about the examples."""
        return [violation_text(self.rule, example) for example in self.examples]


# ---- Rules of values


Values = TypeVar("Values", bound=Column)
#: A truth value per row, or one for all of them.
_Mask: TypeAlias = "Column | pyarrow.Scalar[Any]"


def check_values(
    key: TableKey, rules: Iterable[ValueRule], rows: Batch | Rows, most: int = MAX_EXAMPLES
) -> Iterator[Violation]:
    """Find the violations in the rows of a batch or table, which have their ids."""
    for rule in rules if rows.num_rows else ():
        bad = violating(rule, rows[rule.property])
        if total := pc.sum(bad).as_py():
            shown = rows.select(["id", rule.property]).filter(bad).slice(0, most)
            pairs = zip(texts(shown["id"]), shown_values(shown[rule.property]), strict=True)
            examples = [Example(value, ids=(entity_id,)) for entity_id, value in pairs]
            yield Violation(key, rule, total, examples)


def violating(rule: ValueRule, column: Values) -> Values:
    """A mask of the values that violate a rule."""
    match rule:
        case Required():
            nulls: Values = pc.is_null(column)
            return nulls
        case EnumValues(values=values):
            good = pc.is_in(column, pa.array(values, pa.utf8()))
        case Range(low=low, high=high):
            good = _in_range(column, low, high)
        case Pattern(pattern=pattern):
            good = pc.match_substring_regex(column, pattern)
        case _:
            assert_never(rule)
    bad: Values = pc.and_(pc.invert(pc.fill_null(good, False)), pc.is_valid(column))
    return bad


def shown_values(column: Column) -> list[object]:
    """The values of a column as violations show them: a float of 32 bits has as few digits as were written."""
    values = stored_values(column)
    if pa.types.is_float32(column.type):
        return [float(str(np.float32(value))) if isinstance(value, float) else None for value in values]
    return [*values]


def _in_range(column: Column, low: float | None, high: float | None) -> _Mask:
    """Exact comparison: a bound is never rounded to the type of the column, it is moved to the next value of it.

    Only F32 rounds it, as it rounds the values: what is stored for 0.7 is not below a bound of 0.7.
    """
    is_integer = pa.types.is_integer(column.type)
    is_narrow = pa.types.is_float32(column.type)
    if not is_integer:
        column = column.cast(pa.float64())
    good: _Mask = pa.scalar(True)
    for bound, compare, move, is_low in (
        (low, pc.greater_equal, _lowest, True),
        (high, pc.less_equal, _highest, False),
    ):
        if bound is None:
            continue
        limit = move(to_f32(bound) if is_narrow else bound, is_integer)
        if is_integer:
            good = pc.and_(good, _compare_integers(column, compare, int(limit), is_low))
        else:
            good = pc.and_(good, compare(column, pa.scalar(limit, pa.float64())))
    return good


def _compare_integers(column: Column, compare: Callable[..., _Mask], limit: int, is_low: bool) -> _Mask:
    unsigned = pa.types.is_unsigned_integer(column.type)
    low, high = (0, 2**column.type.bit_width - 1) if unsigned else (-(2**63), 2**63 - 1)
    if not unsigned:
        column = column.cast(pa.int64())
    if limit < low or limit > high:
        # A bound outside of the type: everything satisfies it, or nothing does.
        answer: _Mask = pa.scalar((limit < low) == is_low)
        return answer
    return compare(column, pa.scalar(limit, column.type))


def _lowest(bound: float, is_integer: bool) -> float:
    """The smallest value of the type that is at least the bound."""
    if is_integer:
        return math.ceil(bound)
    number = _nearest_float(bound)
    return math.nextafter(number, math.inf) if number < bound else number


def _highest(bound: float, is_integer: bool) -> float:
    """The largest value of the type that is at most the bound."""
    if is_integer:
        return math.floor(bound)
    number = _nearest_float(bound)
    return math.nextafter(number, -math.inf) if number > bound else number


def _nearest_float(bound: float) -> float:
    try:
        return float(bound)
    except OverflowError:
        return math.copysign(math.inf, bound)


# ---- Rules between rows


@dataclass(slots=True)
class Found:
    """The number of violations, and some of them in the order of their values."""

    total: int = 0
    examples: list[Example] = field(default_factory=list)


class ChangedRows(Protocol):
    """The rows of some tables as they are now and as a write leaves them."""

    def find(self, key: TableKey, rule: RowRule) -> Iterable[Found]:
        """Find the violations of a rule that the write causes."""
        ...

    def existing(self, key: TableKey, ids: Collection[str]) -> set[str]:
        """Those of the ids that exist after the write."""
        ...


def check(rules: Mapping[TableKey, TableRules], rows: ChangedRows) -> Iterator[Violation]:
    """Every violation of a rule between rows; found one after the other, so that a caller may stop at the first."""
    for key, own in rules.items():
        for unique in own.uniques:
            yield from _violations(key, unique, rows)
    for key, own in rules.items():
        is_orphaned = False
        for end in own.ends:
            for violation in _violations(key, end, rows):
                is_orphaned = True
                yield violation
        if (per_source := own.per_source) is not None:
            for violation in _violations(key, per_source, rows):
                if is_orphaned:
                    yield from _of_existing(violation, per_source.node, rows)
                else:
                    yield violation


def check_ids(keys: Iterable[TableKey], rows: ChangedRows, *, must_be_new: bool) -> Iterator[Violation]:
    """Ids that several rows of a write have, and those that exist where they have to be new."""
    for key in keys:
        yield from _violations(key, DistinctIds(type_name=key.name), rows)
        if must_be_new:
            yield from _violations(key, NewIds(kind=key.kind, type_name=key.name), rows)


def _violations(key: TableKey, rule: RowRule, rows: ChangedRows) -> Iterator[Violation]:
    for found in rows.find(key, rule):
        if found.total:
            yield Violation(key, rule, found.total, found.examples)


def _of_existing(violation: Violation, node: TableKey, rows: ChangedRows) -> Iterator[Violation]:
    """Edges of a source that does not exist violate one rule, not two."""
    existing = rows.existing(node, [str(example.value) for example in violation.examples])
    kept = [example for example in violation.examples if example.value in existing]
    if total := violation.total - len(violation.examples) + len(kept):
        yield replace(violation, total=total, examples=kept)
