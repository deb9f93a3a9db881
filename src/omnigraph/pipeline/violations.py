"""Violations counted exactly, with examples; rules between rows, for loads and for new rules of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from omnigraph.core.arrow import pc
from omnigraph.errors import MAX_EXAMPLES, BadRecord, LoadReport
from omnigraph.errors.writes import LINE
from omnigraph.pipeline.keys import KeyScan, joined_text, key_scans, text_key
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.workers import Message, detail
from omnigraph.storage.datasets.fragments import read_addresses
from omnigraph.storage.datasets.partitions import (
    TableAddress,
    list_fragment_groups,
    scan_fragments,
    table_address,
)
from omnigraph.writes.columns import stored_values
from omnigraph.writes.rules import complaint, rule_name, violations

if TYPE_CHECKING:
    from omnigraph.core.ids import TableKey
    from omnigraph.lang.schema.rules import EdgesPerSource, Endpoints, TableRules, Unique, ValueRule
    from omnigraph.pipeline.joins import Example, Found, Joins
    from omnigraph.pipeline.worker_set import LoadEngine
    from omnigraph.storage.datasets.tables import Table


# ---- Counting what is wrong with the records of a load: exact totals per rule, and some examples of each


#: Longer values are cut in reports.
_MAX_VALUE_CHARACTERS = 200
#: The same for messages, which may repeat names and values.
_MAX_MESSAGE_CHARACTERS = 1000


@dataclass(slots=True)
class Problems:
    """Violations found so far. Travels in messages, so it stays small whatever the data is."""

    totals: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[BadRecord]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.totals)

    def add(self, record: BadRecord) -> None:
        """Count one violation."""
        self.count(record.rule, 1)
        kept = self.examples.setdefault(record.rule, [])
        if len(kept) < MAX_EXAMPLES:
            kept.append(_printable(record))

    def add_found(self, rule: str, total: int, records: list[BadRecord]) -> None:
        """Count violations of one rule, with some of them as examples."""
        self.count(rule, total)
        kept = self.examples.setdefault(rule, [])
        kept.extend(map(_printable, records[: MAX_EXAMPLES - len(kept)]))

    def count(self, rule: str, number: int) -> None:
        """Count violations whose examples are added elsewhere."""
        self.totals[rule] = self.totals.get(rule, 0) + number

    def wants_example(self, rule: str) -> bool:
        """Whether another example of a rule would be kept."""
        return len(self.examples.get(rule, ())) < MAX_EXAMPLES

    def merge(self, other: Problems) -> None:
        """Add what was found elsewhere; examples that came first stay first."""
        for rule, total in other.totals.items():
            self.count(rule, total)
        for rule, records in other.examples.items():
            kept = self.examples.setdefault(rule, [])
            kept.extend(records[: MAX_EXAMPLES - len(kept)])

    def relocate(self, move: Callable[[BadRecord], BadRecord]) -> None:
        """Replace the examples, when their places are known better."""
        for records in self.examples.values():
            records[:] = [move(record) for record in records]

    def report(self, *, relations_checked: bool = True) -> LoadReport:
        """Everything that was found."""
        found = [record for records in self.examples.values() for record in records]
        return LoadReport(
            totals=dict(self.totals), examples=tuple(found), relations_checked=relations_checked
        )

    def to_message(self) -> dict[str, Any]:
        """The problems as plain JSON values."""
        records = [record.to_json() for kept in self.examples.values() for record in kept]
        return {"totals": self.totals, "examples": records}

    @staticmethod
    def from_message(message: dict[str, Any]) -> Problems:
        """The inverse of `to_message`."""
        problems = Problems(totals=dict(message["totals"]))
        for body in message["examples"]:
            problems.examples.setdefault(body["rule"], []).append(BadRecord(**body))
        return problems


def shown(value: object) -> str:
    """A value as a report shows it."""
    text = value if isinstance(value, str) else _plain(value)
    return _cut(text, _MAX_VALUE_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _plain(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return str(value)


def in_file(record: BadRecord, lines_before: int, unit: str) -> BadRecord:
    """The same violation, its line counted from the beginning of the file instead of its part, and what is counted."""
    line = None if record.line is None else record.line + lines_before
    return replace(record, line=line, unit=unit)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record came from: source, number, and what is counted."""

    source: str
    line: int | None = None
    unit: str = LINE


def _printable(record: BadRecord) -> BadRecord:
    """Half a surrogate pair, which no output takes, is shown as its number; long texts are cut."""

    def clean(text: str | None, most: int) -> str | None:
        return (
            None if text is None else _cut(text, most).encode("utf-8", "backslashreplace").decode()
        )

    return replace(
        record,
        field=clean(record.field, _MAX_VALUE_CHARACTERS),
        # Values are cut where they are made texts; what is said about their length stays.
        value=clean(record.value, _MAX_MESSAGE_CHARACTERS),
        message=clean(record.message, _MAX_MESSAGE_CHARACTERS) or "",
    )


# ---- Rules between rows of a load: ids, uniqueness, ends of edges, edges per source, over the image that it would
#      make
#
# Written once over `Joins`; which side of a comparison is large is the business of the joins.


KEY_CONFLICT = "key_conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One table as it would be after the load."""

    table: Table
    #: Fragments that the load adds; none for a table that it does not touch.
    new: tuple[int, ...] = ()
    #: Whether some ids of the new rows are given or derived; generated ones are distinct.
    has_given_ids: bool = True
    #: Sources of edges that the load replaces: they may have lost one.
    old_sources: Sequence[str] = ()

    @property
    def old(self) -> list[int]:
        """Fragments that were there before."""
        from omnigraph.storage.datasets.fragments import fragment_sizes

        new = set(self.new)
        return [number for number in fragment_sizes(self.table) if number not in new]

    def scans(self, column: str, *, is_new: bool) -> list[KeyScan]:
        """The texts of a column, of the new rows or of the old ones."""
        return key_scans(self.table, self.new if is_new else self.old, text_key(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationChecker:
    """Checks one load. Tables that it looks at are added to `read`."""

    mode: LoadMode
    images: Mapping[TableKey, Image]
    rules: Mapping[TableKey, TableRules]
    joins: Joins
    #: The image of a table that the load does not touch.
    untouched: Callable[[TableKey], Image]
    #: Where a new row came from.
    locate: Callable[[TableKey, int], Place]
    problems: Problems
    #: Hears what is checked next.
    tell: Callable[[str], None]

    def check_all(self) -> None:
        """Check every rule; violations are counted in `problems`."""
        self.check_ids()
        for key, image in self.images.items():
            for unique in self.rules[key].uniques:
                with self._step(f"{unique} is unique"):
                    self._check_unique(unique, key, image)
        for key, rules in self.rules.items():
            name = key.partition(":")[2]
            if rules.endpoints is not None:
                with self._step(f"ends of {name}"):
                    self._check_ends(rules.endpoints, key)
            if rules.per_source is not None and key in self.images:
                with self._step(f"edges per source of {name}"):
                    self._check_cardinality(rules.per_source, key, self.images[key])

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Name a check where people follow the load, and its jobs in Spark."""
        self.tell(what)
        with detail(what):
            yield

    # ---- ids

    def check_ids(self) -> None:
        """Check that ids are distinct, and in an append that they are new."""
        for key, image in self.images.items():
            with self._step(f"ids of {key.partition(':')[2]}"):
                self._check_ids(key, image)

    def _check_ids(self, key: TableKey, image: Image) -> None:
        if not image.new or not image.has_given_ids:
            return
        name = key.partition(":")[2]
        new = image.scans("id", is_new=True)
        found = self.joins.duplicated(new)

        def twice(item: Example) -> str:
            return f"the id {item.key!r} of {name} is given {item.count:,} times"

        self._report(found, key, "id", f"duplicate id of {name}", twice)
        old = image.scans("id", is_new=False) if self.mode is LoadMode.APPEND else []
        if old:
            found = self.joins.shared(new, old)
            self._report(
                found,
                key,
                "id",
                f"{KEY_CONFLICT} of {name}",
                lambda item: (
                    f"a {key.partition(':')[0]} of type {name} with id {item.key!r} exists already"
                ),
            )

    # ---- uniqueness

    def _check_unique(self, rule: Unique, key: TableKey, image: Image) -> None:
        if not image.new:
            return
        members = list(zip(rule.members, rule.bases, strict=True))
        new = key_scans(image.table, image.new, members)
        old = key_scans(image.table, image.old, members)
        field = rule.members[0] if len(rule.members) == 1 else ", ".join(rule.members)
        name = f"@unique violation on {rule}"

        def message(item: Example) -> str:
            ids = _ids_at(image.table, item.addresses[:2])
            value = item.key if len(rule.members) == 1 else joined_text(item.key)
            return f"{name}: {value!r} belongs to {ids[0]!r} and to {ids[1]!r}"

        # Rows of one id are one entity: what is wrong with them is told about the id.
        owner = "id" if image.has_given_ids else None
        self._report(self.joins.duplicated(new, owner), key, field, name, message, place=-1)
        if old:
            self._report(self.joins.shared(new, old, owner), key, field, name, message)

    # ---- edges

    def _check_ends(self, rule: Endpoints, key: TableKey) -> None:
        ends = (("src", rule.source, rule.source_type), ("dst", rule.target, rule.target_type))
        for column, node, type_name in ends:
            image = self.images.get(key)
            is_stranding = self.mode is LoadMode.OVERWRITE and node in self.images
            if image is None:
                if not is_stranding:
                    continue
                image = self.untouched(key)
                references = image.scans(column, is_new=False)
            else:
                references = image.scans(column, is_new=True)
            if not references:
                continue
            nodes = self.images.get(node) or self.untouched(node)
            ids = key_scans(nodes.table, None, text_key("id"))
            name = f"{column} of {rule.edge_type} not found in {type_name}"
            found = self.joins.missing(references, ids)

            def message(item: Example, column: str = column, type_name: str = type_name) -> str:
                return f"edge {rule.edge_type}: {column} {item.key!r} not found in {type_name}"

            self._report(found, key, "from" if column == "src" else "to", name, message)

    def _check_cardinality(self, rule: EdgesPerSource, key: TableKey, image: Image) -> None:
        touched = image.scans("src", is_new=True)
        if not touched and not image.old_sources:
            return
        counted = key_scans(image.table, None, text_key("src"))
        found = self.joins.outside(counted, touched, rule.low, rule.high, image.old_sources)
        bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"
        name = f"@card violation on edge {rule.edge_type}"

        def message(item: Example) -> str:
            return f"{name}: {item.key!r} has {item.count} edges, allowed are {bounds}"

        self._report(found, key, "from", name, message)

    # ---- reports

    def _report(
        self,
        found: Found,
        key: TableKey,
        field: str,
        rule: str,
        message: Callable[[Example], str],
        *,
        place: int = 0,
    ) -> None:
        if not found.total:
            return
        records = []
        for item in found.examples:
            where = self._place(key, item.addresses, place)
            record = BadRecord(
                source=where.source,
                line=where.line,
                unit=where.unit,
                type_key=key,
                field=field,
                value=shown(joined_text(item.key) if ", " in field else item.key),
                rule=rule,
                message=message(item),
            )
            records.append(record)
        records.sort(key=lambda record: (record.source, record.line or 0))
        self.problems.add_found(rule, found.total, records)

    def _place(self, key: TableKey, addresses: Sequence[int], place: int) -> Place:
        """Where the row of an example came from; rows that the graph had before are in the graph."""
        image = self.images.get(key)
        new = set(image.new) if image is not None else set()
        mine = [address for address in addresses if address >> 32 in new]
        if not mine:
            return Place("graph")
        return self.locate(key, mine[place])


def _ids_at(table: Table, addresses: Sequence[int]) -> list[str]:
    from omnigraph.storage.datasets.fragments import read_addresses

    return read_addresses(table, "id", addresses)


# ---- Holding the rows of a table against rules that are new to them: exact totals, and some examples of each


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
