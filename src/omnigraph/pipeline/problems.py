"""Counting what is wrong with the records of a load: exact totals per rule, and some examples of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from omnigraph.errors import MAX_EXAMPLES, BadRecord, LoadReport
from omnigraph.errors.loads import LINE

if TYPE_CHECKING:
    from collections.abc import Callable

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
