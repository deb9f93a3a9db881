"""The checker of integrity rules: values as masks, and rows against what is stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.core.arrow import pc as _pc
from omnigraph.core.values import StoredValue, canonical_spelling
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.rules import (
    EdgesPerSource,
    Endpoints,
    EnumValues,
    Pattern,
    Range,
    TableRules,
    Unique,
    ValueRule,
)
from omnigraph.storage.datasets.filters import AnyOf, Compare, Filter, OneOf
from omnigraph.writes.columns import PROBE_CHUNK, CommittedRows, stored_values, texts

if TYPE_CHECKING:
    from omnigraph.core.ids import TableKey
    from omnigraph.writes.pending import TableDelta


# ---- The interpreter of value rules: which values of a column violate a rule. Columns in, a mask out
#
# Mutations and tasks of a load use the same functions, so a rule means the same in both.


def violations(rule: ValueRule, column: Any) -> Any:
    """A mask of the values that violate a rule; null is exempt."""
    match rule:
        case EnumValues(values=values):
            good = _pc.is_in(column, pa.array(values, pa.utf8()))
        case Range(low=low, high=high):
            good = _in_range(column, low, high)
        case Pattern(pattern=pattern):
            good = _pc.match_substring_regex(column, pattern)
        case _:
            assert_never(rule)
    return _pc.and_(_pc.invert(_pc.fill_null(good, False)), _pc.is_valid(column))


def rule_name(rule: ValueRule) -> str:
    """The stable name of a rule, as messages and reports begin with it."""
    match rule:
        case EnumValues():
            return f"invalid enum value for {rule.type_name}.{rule.property}"
        case Range():
            return f"@range violation on {rule.type_name}.{rule.property}"
        case Pattern():
            return f"@check violation on {rule.type_name}.{rule.property}"
        case _:
            assert_never(rule)


def complaint(rule: ValueRule) -> str:
    """What is wrong with a value that violates a rule: the end of a sentence that begins with the value."""
    match rule:
        case EnumValues(values=values):
            return f"is not one of {', '.join(values)}"
        case Range(low=low, high=high):
            return f"is outside {'' if low is None else low}..{'' if high is None else high}"
        case Pattern(pattern=pattern):
            return f"does not match {pattern}"
        case _:
            assert_never(rule)


def _in_range(column: Any, low: float | None, high: float | None) -> Any:
    """Exact comparison: a bound is never rounded to the type of the column, it is moved to the next value of it."""
    is_integer = pa.types.is_integer(column.type)
    if not is_integer:
        column = column.cast(pa.float64())
    good: Any = pa.scalar(True)
    for bound, compare, move, is_low in (
        (low, _pc.greater_equal, _lowest, True),
        (high, _pc.less_equal, _highest, False),
    ):
        if bound is None:
            continue
        limit = move(bound, is_integer)
        if is_integer:
            good = _pc.and_(good, _compare_integers(column, compare, int(limit), is_low))
        else:
            good = _pc.and_(good, compare(column, pa.scalar(limit, pa.float64())))
    return good


def _compare_integers(column: Any, compare: Any, limit: int, is_low: bool) -> Any:
    unsigned = pa.types.is_unsigned_integer(column.type)
    low, high = (0, 2**column.type.bit_width - 1) if unsigned else (-(2**63), 2**63 - 1)
    if not unsigned:
        column = column.cast(pa.int64())
    if limit < low or limit > high:
        # A bound outside of the type: everything satisfies it, or nothing does.
        return pa.scalar((limit < low) == is_low)
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


# ---- The local interpreter of the integrity rules: judges the final image of a write, before anything is staged
#
# Order: value rules of all tables, then uniqueness of nodes, then per edge type uniqueness, endpoints and
# cardinality.


def validate(
    deltas: Mapping[TableKey, TableDelta],
    rules: Mapping[TableKey, TableRules],
    committed: CommittedRows,
) -> None:
    """Check every rule against the final image.

    Raises:
        BadRequestError: the first rule that is violated.
    """
    nodes = {key: delta for key, delta in deltas.items() if key.startswith("node:")}
    edges = {key: delta for key, delta in deltas.items() if key.startswith("edge:")}
    for key, delta in deltas.items():
        for rule in rules[key].values:
            check_values(rule, delta.rows)
    for key, delta in (nodes | edges).items():
        for unique in rules[key].uniques:
            _check_unique(unique, key, delta, committed)
        endpoints, per_source = rules[key].endpoints, rules[key].per_source
        if endpoints is not None:
            _check_endpoints(endpoints, delta, deltas, committed)
        if per_source is not None and endpoints is not None:
            sources = deltas.get(endpoints.source)
            gone = set(sources.deleted) if sources is not None else set()
            _check_cardinality(per_source, key, delta, committed, gone_sources=gone)


# ---- value rules


def check_values(rule: ValueRule, rows: pa.Table) -> None:
    """Check one value rule on all rows; null is exempt."""
    if rows.num_rows == 0:
        return
    bad = violations(rule, rows[rule.property])
    if pc.any(bad).as_py():
        first = rows.filter(bad).slice(0, 1)
        value = stored_values(first[rule.property])[0]
        where = first["id"].to_pylist()[0]
        raise BadRequestError(f"{rule_name(rule)}: {value!r} of {where!r} {complaint(rule)}")


# ---- uniqueness


def _check_unique(rule: Unique, key: TableKey, delta: TableDelta, committed: CommittedRows) -> None:
    if delta.rows.num_rows == 0:
        return
    owners: dict[tuple[str, ...], str] = {}
    for entity_id, spelled in _tuples(rule, delta.rows):
        other = owners.setdefault(spelled, entity_id)
        if other != entity_id:
            _refuse_unique(rule, spelled, other, entity_id)
    if committed.is_empty(key) or not owners:
        return
    rewritten = set(texts(delta.rows["id"])) | delta.deleted.keys()
    wanted = list(_first_members(rule, delta.rows))
    columns = ["id", *rule.members]
    for begin in range(0, len(wanted), PROBE_CHUNK):
        filter_ = _member_filter(rule, wanted[begin : begin + PROBE_CHUNK])
        for entity_id, spelled in _tuples(rule, committed.select(key, columns, filter_)):
            if spelled in owners and entity_id not in rewritten:
                _refuse_unique(rule, spelled, entity_id, owners[spelled])


def _tuples(rule: Unique, rows: pa.Table) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each row's id with the spellings of its members; rows with a null member are left out."""
    ids = texts(rows["id"])
    members = [stored_values(rows[name]) for name in rule.members]
    for entity_id, values in zip(ids, zip(*members, strict=True), strict=True):
        if all(value is not None for value in values):
            spelled = tuple(map(canonical_spelling, rule.bases, values))
            yield entity_id, spelled


def _first_members(rule: Unique, rows: pa.Table) -> list[StoredValue]:
    values = stored_values(rows[rule.members[0]])
    return list(dict.fromkeys(value for value in values if value is not None))


def _member_filter(rule: Unique, values: list[StoredValue]) -> Filter:
    column, base = rule.members[0], rule.bases[0]
    if all(isinstance(value, str) for value in values):
        return OneOf(column, [str(value) for value in values])
    return AnyOf(tuple(Compare(column, base, "=", value) for value in values))


def _refuse_unique(rule: Unique, spelled: tuple[str, ...], first: str, second: str) -> None:
    value = spelled[0] if len(spelled) == 1 else f"({', '.join(spelled)})"
    raise BadRequestError(
        f"@unique violation on {rule}: {value!r} belongs to {first!r} and to {second!r}"
    )


# ---- edges


def _check_endpoints(
    rule: Endpoints,
    delta: TableDelta,
    deltas: Mapping[TableKey, TableDelta],
    committed: CommittedRows,
) -> None:
    if delta.rows.num_rows == 0:
        return
    ends = (("src", rule.source, rule.source_type), ("dst", rule.target, rule.target_type))
    for column, key, type_name in ends:
        wanted = set(texts(delta.rows[column]))
        pending = deltas[key].has(list(wanted)) if key in deltas else set()
        missing = wanted - pending
        if missing:
            missing -= committed.existing_ids(key, missing)
        if missing:
            first = min(missing)
            raise BadRequestError(
                f"edge {rule.edge_type}: {column} {first!r} not found in {type_name}"
            )


def _check_cardinality(
    rule: EdgesPerSource,
    key: TableKey,
    delta: TableDelta,
    committed: CommittedRows,
    *,
    gone_sources: set[str],
) -> None:
    touched = set(texts(delta.rows["src"]))
    touched |= {source for source, _ in delta.deleted_ends.values()}
    touched -= gone_sources
    counts: Counter[str] = Counter(texts(delta.rows["src"]))
    for rows in committed.probe(key, "src", touched, ["id", "src"]):
        for edge_id, source in zip(texts(rows["id"]), texts(rows["src"]), strict=True):
            if edge_id not in delta.deleted:
                counts[source] += 1
    for source in sorted(touched):
        count = counts[source]
        # A source without any edge is never held against the minimum.
        if count and (count < rule.low or (rule.high is not None and count > rule.high)):
            bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"
            raise BadRequestError(
                f"@card violation on edge {rule.edge_type}: {source!r} has {count} edges, "
                f"allowed are {bounds}"
            )
