"""The local interpreter of the integrity rules: judges the final image of a write, before anything is staged.

Order: value rules of all tables, then uniqueness of nodes, then per edge type uniqueness, endpoints and cardinality.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from omnigraph.errors import BadRequestError
from omnigraph.storage.filters import AnyOf, Compare, OneOf
from omnigraph.types.values import StoredValue, canonical_spelling
from omnigraph.writes.columns import stored_values, texts
from omnigraph.writes.committed import PROBE_CHUNK
from omnigraph.writes.value_rules import complaint, rule_name, violations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from omnigraph.ids import TableKey
    from omnigraph.storage.filters import Filter
    from omnigraph.writes.accumulator import TableDelta
    from omnigraph.writes.committed import CommittedRows
    from omnigraph.writes.rules import EdgesPerSource, Endpoints, TableRules, Unique, ValueRule


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
