"""Holding the rows of a table against rules that are new to them: exact totals, and some examples of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as _compute

from omnigraph.errors import MAX_EXAMPLES, BadRecord
from omnigraph.pipeline.keys import joined_text, key_scans, text_key
from omnigraph.pipeline.problems import Problems, shown
from omnigraph.storage.fragments import read_addresses
from omnigraph.storage.partitions import list_fragment_groups, scan_fragments, table_address
from omnigraph.writes.columns import stored_values
from omnigraph.writes.value_rules import complaint, rule_name, violations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.pipeline.joins import Example, Found
    from omnigraph.pipeline.worker_set import LoadEngine
    from omnigraph.pipeline.workers import Message
    from omnigraph.storage.partitions import TableAddress
    from omnigraph.storage.tables import Table
    from omnigraph.writes.rules import EdgesPerSource, TableRules, Unique, ValueRule

#: The published stubs of pyarrow describe older functions.
pc: Any = _compute

#: Where rows are that no file brought.
GRAPH = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NullItem:
    address: TableAddress
    fragments: tuple[int, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleItem:
    address: TableAddress
    fragments: tuple[int, ...]
    rules: tuple[ValueRule, ...]


def check_required(
    table: Table, key: TableKey, columns: Mapping[str, str], engine: LoadEngine
) -> Problems:
    """Rows that hold null in columns that become required; `columns` gives the names that they will have."""
    problems = Problems()
    address, wanted = table_address(table), tuple(columns)
    items = [
        _NullItem(address=address, fragments=group.fragment_ids, columns=wanted)
        for group in list_fragment_groups(table)
    ]
    for answer in engine.workers.run("look for nulls", _find_nulls, items if wanted else []):
        for name, (total, ids) in answer["nulls"].items():
            add_nulls(problems, key, columns[name], total, ids)
    return problems


def add_nulls(
    problems: Problems, key: TableKey, column: str, total: int, ids: Sequence[str]
) -> None:
    """Count rows that lack a required value."""
    rule = f"[OG-MF-104] {key.partition(':')[2]}.{column} is required"
    records = [_record(key, column, None, f"{one!r} has no value", rule) for one in ids]
    problems.add_found(rule, total, records)


def check_rows(table: Table, key: TableKey, rules: TableRules, engine: LoadEngine) -> Problems:
    """What the rows of a table violate: rules of values, uniqueness, edges per source."""
    problems = Problems()
    if not table.row_count:
        return problems
    address = table_address(table)
    items = [
        _RuleItem(address=address, fragments=group.fragment_ids, rules=rules.values)
        for group in list_fragment_groups(table)
    ]
    for answer in engine.workers.run("check rows", _check, items if rules.values else []):
        for rule, (total, rows) in answer["found"].items():
            records = [_record(key, field, value, text, rule) for field, value, text in rows]
            problems.add_found(rule, total, records)
    for unique in rules.uniques:
        _check_unique(problems, table, key, unique, engine)
    if rules.per_source is not None:
        _check_cardinality(problems, table, key, rules.per_source, engine)
    return problems


def _record(key: TableKey, field: str, value: str | None, message: str, rule: str) -> BadRecord:
    return BadRecord(
        source=GRAPH,
        line=None,
        type_key=key,
        field=field,
        value=value,
        rule=rule,
        message=message,
    )


def _find_nulls(item: _NullItem) -> Message:
    """Per column how many rows hold null, and the ids of some."""
    found: dict[str, tuple[int, list[str]]] = {}
    rows = 0
    for batch in scan_fragments(item.address, item.fragments, ["id", *item.columns]):
        rows += batch.num_rows
        for name in item.columns:
            column = batch.column(name)
            if column.null_count:
                ids: Any = batch.column("id")
                lacking = ids.filter(pc.is_null(column)).to_pylist()
                total, examples = found.get(name, (0, []))
                found[name] = (total + len(lacking), [*examples, *lacking][:MAX_EXAMPLES])
    return {"nulls": found, "rows": rows}


def _check(item: _RuleItem) -> Message:
    """Per rule how many values violate it, and field, value and sentence of some."""
    columns = list(dict.fromkeys(["id", *(rule.property for rule in item.rules)]))
    found: dict[str, tuple[int, list[tuple[str, str, str]]]] = {}
    rows = 0
    for batch in scan_fragments(item.address, item.fragments, columns):
        rows += batch.num_rows
        for rule in item.rules:
            mask = violations(rule, batch.column(rule.property))
            if not pc.any(mask).as_py():
                continue
            bad: Any = batch.filter(mask)
            first = bad.slice(0, MAX_EXAMPLES)
            values = stored_values(first[rule.property])
            texts = [
                (rule.property, shown(value), f"{value!r} of {one!r} {complaint(rule)}")
                for one, value in zip(first["id"].to_pylist(), values, strict=True)
            ]
            total, examples = found.get(rule_name(rule), (0, []))
            found[rule_name(rule)] = (total + bad.num_rows, [*examples, *texts][:MAX_EXAMPLES])
    return {"found": found, "rows": rows}


def _check_unique(
    problems: Problems, table: Table, key: TableKey, rule: Unique, engine: LoadEngine
) -> None:
    members = list(zip(rule.members, rule.bases, strict=True))
    found = engine.joins.duplicated(key_scans(table, None, members))

    def sentence(item: Example) -> str:
        ids = read_addresses(table, "id", item.addresses[:2])
        value = item.key if len(rule.members) == 1 else joined_text(item.key)
        return f"{value!r} belongs to {ids[0]!r} and to {ids[1]!r}"

    name = f"@unique violation on {rule}"
    field = ", ".join(rule.members)
    records = [_record(key, field, shown(i.key), sentence(i), name) for i in found.examples]
    _add(problems, found, name, records)


def _check_cardinality(
    problems: Problems, table: Table, key: TableKey, rule: EdgesPerSource, engine: LoadEngine
) -> None:
    scans = key_scans(table, None, text_key("src"))
    found = engine.joins.outside(scans, scans, rule.low, rule.high)
    bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"

    name = f"@card violation on edge {rule.edge_type}"

    def sentence(item: Example) -> str:
        return f"{item.key!r} has {item.count} edges, allowed are {bounds}"

    records = [_record(key, "from", shown(i.key), sentence(i), name) for i in found.examples]
    _add(problems, found, name, records)


def _add(problems: Problems, found: Found, rule: str, records: list[BadRecord]) -> None:
    if found.total:
        problems.add_found(rule, found.total, records)
