"""Violations counted exactly, with examples; tables as the checker of rules sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from typing_extensions import override

from omnigraph.core.arrow import Array, pa
from omnigraph.core.ids import TableKey
from omnigraph.errors import MAX_EXAMPLES, BadRecord, LoadReport
from omnigraph.errors.writes import LINE
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import (
    DistinctIds,
    EdgesPerSource,
    End,
    NewIds,
    Required,
    RowRule,
    TableRules,
    Unique,
    ValueRule,
    rule_field,
    rule_name,
    rule_topic,
)
from omnigraph.pipeline.keys import Joins, KeyScan, find_keys, joined_text, key_scans, text_key
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message, Workers, detail
from omnigraph.storage.datasets.fragments import fragment_sizes, read_addresses
from omnigraph.storage.datasets.partitions import TableAddress, list_fragment_groups, scan_fragments, table_address
from omnigraph.storage.datasets.tables import Table
from omnigraph.writes.columns import texts
from omnigraph.writes.rules import ChangedRows, Found, Violation, check, check_values

# ---- Counts and examples of violations


#: Longer values are cut in reports.
_MAX_VALUE_CHARACTERS = 200
#: The same for messages, which may repeat names and values.
_MAX_MESSAGE_CHARACTERS = 1000


#: Takes every violation, not only examples.
Sink: TypeAlias = "Callable[[BadRecord], None] | None"


@dataclass(slots=True)
class ViolationCounts:
    """Violations found so far. Travels in messages, so it stays small whatever the data is."""

    totals: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[BadRecord]] = field(default_factory=dict)
    #: Records that are wrong by themselves; one may violate several rules.
    records: int = 0
    #: Hears of every violation, where all of them are kept. Does not travel.
    sink: Sink = None

    def __bool__(self) -> bool:
        return bool(self.totals)

    def add(
        self,
        place: Place,
        rule: str,
        message: str,
        *,
        type_key: str | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        """Count one violation."""
        self.count(rule, 1)
        if not self.wants_example(rule):
            return
        record = _record(place, rule, message, type_key=type_key, field=field, value=value)
        if self.sink is not None:
            self.sink(record)
        if self.missing_examples(rule):
            self.examples.setdefault(rule, []).append(record)

    def add_all(self, violation: Violation, places: Sequence[Place] | None = None) -> None:
        """Count the violations of one rule between rows; without the places of its examples they are in the graph."""
        name, about = rule_name(violation.rule), rule_field(violation.rule)
        records = []
        places = [Place(GRAPH)] * len(violation.examples) if places is None else places
        for example, text, place in zip(violation.examples, violation.texts, places, strict=True):
            record = _record(place, name, text, type_key=violation.key, field=about, value=example.value)
            records.append(record)
        records.sort(key=lambda record: (record.source, record.line or 0))
        self.count(name, violation.total)
        kept = self.examples.setdefault(name, [])
        kept.extend(records[: MAX_EXAMPLES - len(kept)])

    def add_rows(self, reasons: Mapping[str, Array], places: Sequence[Place]) -> None:
        """Count violations that were told before their places were known, one for each row of some columns."""
        for number, rule in enumerate(texts(reasons["rule"])):
            self.count(rule, 1)
            if self.missing_examples(rule) > 0:
                place, told = places[number], {name: column[number].as_py() for name, column in reasons.items()}
                record = BadRecord(source=place.source, line=place.line, unit=place.unit, **told)
                self.examples.setdefault(rule, []).append(record)

    def count(self, rule: str, number: int) -> None:
        """Count violations whose examples are added elsewhere."""
        self.totals[rule] = self.totals.get(rule, 0) + number

    def wants_example(self, rule: str) -> bool:
        """Whether another violation of a rule is of interest beyond its number."""
        return self.sink is not None or self.missing_examples(rule) > 0

    def missing_examples(self, rule: str) -> int:
        """How many more examples of a rule would be kept."""
        return MAX_EXAMPLES - len(self.examples.get(rule, ()))

    def merge(self, other: ViolationCounts) -> None:
        """Add what was found elsewhere; examples that came first stay first."""
        self.records += other.records
        for rule, total in other.totals.items():
            self.count(rule, total)
        for rule, records in other.examples.items():
            kept = self.examples.setdefault(rule, [])
            kept.extend(records[: MAX_EXAMPLES - len(kept)])

    def sort(self) -> None:
        """Bring the examples of each rule into the order of their places."""
        for records in self.examples.values():
            records.sort(key=lambda record: (record.source, record.line or 0))

    def relocate(self, move: Callable[[BadRecord], BadRecord]) -> None:
        """Replace the examples, when their places are known better."""
        for records in self.examples.values():
            records[:] = [move(record) for record in records]

    def report(self, *, relations_checked: bool = True) -> LoadReport:
        """Everything that was found."""
        found = [record for records in self.examples.values() for record in records]
        return LoadReport(
            totals=dict(self.totals),
            examples=tuple(found),
            relations_checked=relations_checked,
            not_compared=self.records,
        )

    def to_message(self) -> Message:
        """The counts as plain JSON values."""
        records = [record.to_json() for kept in self.examples.values() for record in kept]
        return {"totals": self.totals, "examples": records, "records": self.records}

    @staticmethod
    def from_message(message: Message) -> ViolationCounts:
        """The inverse of `to_message`."""
        counts = ViolationCounts(totals=dict(message["totals"]), records=int(message["records"]))
        for body in message["examples"]:
            counts.examples.setdefault(body["rule"], []).append(BadRecord(**body))
        return counts


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


#: Where rows are that no file brought.
GRAPH = "graph"


@frozen
class Place:
    """The origin of a record: source, number, and what is counted."""

    source: str
    line: int | None = None
    unit: str = LINE


def _record(
    place: Place, rule: str, message: str, *, type_key: str | None, field: str | None, value: object
) -> BadRecord:
    """One example. Half a surrogate pair, which no output takes, is shown as its number; long texts are cut."""

    def clean(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    return BadRecord(
        source=place.source,
        line=place.line,
        unit=place.unit,
        type_key=type_key,
        field=None if field is None else clean(shown(field)),
        value=None if value is None else clean(shown(value)),
        rule=rule,
        message=clean(_cut(message, _MAX_MESSAGE_CHARACTERS)),
    )


# ---- Tables before and after a write
#
# Written once over `Joins`; which side of a comparison is large is the business of the joins.


@frozen(kw_only=True)
class Image:
    """One table as it would be after the write."""

    table: Table
    #: Fragments that the write adds; none for a table that it does not touch.
    new: tuple[int, ...] = ()
    #: Whether some ids of the new rows are given or derived; generated ones are distinct, and mean nothing to people.
    has_given_ids: bool = True
    #: Whether all old rows go.
    is_replaced: bool = False
    #: Ids of old rows that go, where not all of them do.
    removed_ids: Sequence[str] = ()
    #: Sources of edges that go or are replaced: they may have lost one.
    old_sources: Sequence[str] = ()
    #: Fragments with rows that were there before, some of whose values are new, and the properties of these values.
    touched: tuple[int, ...] = ()
    changed: frozenset[str] = frozenset()

    def scans(self, column: str, *, is_new: bool) -> list[KeyScan]:
        """The texts of a column, of the new rows or of the old ones."""
        return key_scans(self.table, self.new if is_new else self.outside(self.new), text_key(column))

    def fresh(self, rule: Unique) -> tuple[int, ...]:
        """Fragments whose rows may have other values of the members than before."""
        return self.new if self.changed.isdisjoint(rule.members) else (*self.new, *self.touched)

    @property
    def loses_rows(self) -> bool:
        """Whether ids that were there before are gone."""
        return self.is_replaced or bool(self.removed_ids)

    def outside(self, fragments: Collection[int]) -> list[int]:
        """The other fragments of the table."""
        known = set(fragments)
        return [number for number in fragment_sizes(self.table) if number not in known]


@frozen(kw_only=True)
class TableChanges(ChangedRows):
    """The tables of one write, as the checker sees them."""

    images: Mapping[TableKey, Image]
    joins: Joins
    #: The image of a table that the write does not touch.
    untouched: Callable[[TableKey], Image]
    #: Hears what is checked next.
    tell: Callable[[str], None] = lambda _: None

    @override
    def find(self, key: TableKey, rule: RowRule) -> list[Found]:
        if not self._is_affected(key, rule):
            return []
        topic = rule_topic(rule)
        self.tell(topic)
        # Jobs in Spark are named as well.
        with detail(topic):
            image = self._image(key)
            return [named_examples(rule, image, found) for found in self._find(rule, image)]

    @override
    def existing(self, key: TableKey, ids: Collection[str]) -> set[str]:
        keys = pa.array(list(ids), pa.utf8())
        pieces = find_keys(key_scans(self._image(key).table, None, text_key("id")), keys, keys)
        return {str(entity_id) for piece in pieces for entity_id in piece["key"].to_pylist()}

    def _image(self, key: TableKey) -> Image:
        return self.images.get(key) or self.untouched(key)

    def _is_affected(self, key: TableKey, rule: RowRule) -> bool:
        image = self.images.get(key)
        if isinstance(rule, End):
            nodes = self.images.get(rule.node)
            if nodes is not None and nodes.loses_rows:
                return True
        if image is None:
            return False
        if isinstance(rule, DistinctIds | NewIds):
            return bool(image.new) and image.has_given_ids
        if isinstance(rule, Unique):
            return bool(image.fresh(rule))
        return bool(image.new) or (isinstance(rule, EdgesPerSource) and bool(image.old_sources))

    def _find(self, rule: RowRule, image: Image) -> Iterator[Found]:
        joins = self.joins
        match rule:
            case DistinctIds():
                yield joins.duplicated(image.scans("id", is_new=True))
            case NewIds():
                if old := image.scans("id", is_new=False):
                    yield joins.shared(image.scans("id", is_new=True), old)
            case Unique():
                members = list(zip(rule.members, rule.bases, strict=True))
                fresh = image.fresh(rule)
                new = key_scans(image.table, fresh, members)
                # Rows of one id are one entity: what is wrong with them is reported about the id.
                owner = "id" if image.has_given_ids else None
                yield joins.duplicated(new, owner)
                if old := key_scans(image.table, image.outside(fresh), members):
                    yield joins.shared(new, old, owner)
            case End():
                nodes = self._image(rule.node)
                ids = key_scans(nodes.table, None, text_key("id"))
                if new := image.scans(rule.column, is_new=True):
                    yield joins.missing(new, ids)
                old = image.scans(rule.column, is_new=False) if nodes.loses_rows else []
                if old and nodes.removed_ids:
                    yield joins.named(old, nodes.removed_ids)
                elif old:
                    yield joins.missing(old, ids)
            case EdgesPerSource():
                counted = key_scans(image.table, None, text_key("src"))
                touched = image.scans("src", is_new=True)
                yield joins.outside(counted, touched, rule.low, rule.high, image.old_sources)


def named_examples(rule: RowRule, image: Image, found: Found) -> Found:
    """The same examples with the ids of their entities, and keys of several members as people read them."""
    wanted = 2 if isinstance(rule, Unique) else int(isinstance(rule, End) and image.has_given_ids)
    addresses = [place for example in found.examples for place in example.addresses[:wanted]]
    if not addresses:
        return found
    id_of = dict(zip(addresses, read_addresses(image.table, "id", addresses), strict=True))
    is_joined = isinstance(rule, Unique) and len(rule.members) > 1
    examples = [
        replace(
            example,
            value=joined_text(str(example.value)) if is_joined else example.value,
            ids=tuple(id_of[place] for place in example.addresses[:wanted]),
        )
        for example in found.examples
    ]
    return Found(found.total, examples)


# ---- Rows of a table against rules that are new to them


def check_rows(table: Table, key: TableKey, rules: TableRules, engine: WorkerSet) -> ViolationCounts:
    """Find the violations in the rows of a table: rules of values, uniqueness, edges per source."""
    counts = check_columns(table, key, rules.values, engine.workers)
    image = Image(table=table, new=tuple(fragment_sizes(table)), has_given_ids=False)
    changes = TableChanges(images={key: image}, joins=engine.joins, untouched=lambda _: image)
    for violation in check({key: rules}, changes):
        counts.add_all(violation)
    return counts


def required(key: TableKey, column: str) -> Required:
    """The rule of a column that becomes required."""
    return Required(type_name=key.name, property=column, code="OG-MF-104")


@frozen(kw_only=True)
class _ValueItem:
    address: TableAddress
    fragments: tuple[int, ...]
    key: TableKey
    rules: tuple[ValueRule, ...]
    names: Mapping[str, str]


def check_columns(
    table: Table, key: TableKey, rules: Sequence[ValueRule], workers: Workers, names: Mapping[str, str] | None = None
) -> ViolationCounts:
    """Find the violations in the values of a table; `names` gives the present names of renamed columns."""
    address = table_address(table)
    items = [
        _ValueItem(address=address, fragments=group.fragment_ids, key=key, rules=tuple(rules), names=names or {})
        for group in (list_fragment_groups(table) if rules else ())
    ]
    counts = ViolationCounts()
    for answer in workers.run("check rows", _check_fragments, items):
        counts.merge(ViolationCounts.from_message(answer["violations"]))
    return counts


def _check_fragments(item: _ValueItem) -> Message:
    columns = list(dict.fromkeys(["id", *(rule.property for rule in item.rules)]))
    present = [item.names.get(name, name) for name in columns]
    counts, rows = ViolationCounts(), 0
    for batch in scan_fragments(item.address, item.fragments, present):
        rows += batch.num_rows
        named = pa.table([batch[name] for name in present], names=columns)
        for violation in check_values(item.key, item.rules, named):
            counts.add_all(violation)
    return {"violations": counts.to_message(), "rows": rows}
