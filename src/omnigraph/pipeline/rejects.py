"""Bad records with everything that is wrong with them, in files of a load: what a quarantine is made of.

A task notes them on the way, so that no process holds more than a few at once, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.core.arrow import Array, Batch, Rows, Schema, pa
from omnigraph.errors import BadRecord
from omnigraph.lang.schema.rules import DistinctIds, EdgesPerSource, Example, Rule, Unique, rule_field, rule_name
from omnigraph.pipeline.keys import joined_text
from omnigraph.pipeline.violations import shown
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.writes.rules import Violation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: What a report says of one thing that is wrong with a record.
REASON = [(name, pa.utf8()) for name in ("type_key", "field", "value", "rule", "message")]
#: The same with the piece of the input that the record is in, and its number there.
REJECTS: Schema = pa.schema([("piece", pa.int32()), ("number", pa.int64()), *REASON])
#: What is noted before it goes into a file.
_HELD = 20_000


class RejectNotes:
    """Notes what is wrong with records of one piece; its number is filled in by those who know it."""

    def __init__(self, folder: AnswerFolder, part: int) -> None:
        self._folder = folder
        self._part = part
        self._held: list[BadRecord] = []
        self._files: list[str] = []

    def add(self, record: BadRecord) -> None:
        """Note one thing."""
        self._held.append(record)
        if len(self._held) >= _HELD:
            self._write()

    def _write(self) -> None:
        name = attempt_name("rejects", self._part)
        write_answer(self._folder, name, REJECTS, [reject_rows(self._held)])
        self._files.append(name)
        self._held = []

    def files(self) -> list[str]:
        """The files with everything that was noted."""
        if self._held:
            self._write()
        return self._files


def reject_rows(records: Iterable[BadRecord]) -> Batch:
    """What is wrong with records of one piece as rows; their lines are numbers within the piece."""
    rows = [
        {
            "number": record.line,
            "type_key": record.type_key,
            "field": record.field,
            "value": record.value,
            "rule": record.rule,
            "message": record.message,
        }
        for record in records
    ]
    found: Batch = pa.RecordBatch.from_pylist(rows, schema=REJECTS)
    return found


def reason_columns(found: Violation) -> dict[str, Array]:
    """What is wrong with rows that violate a rule between rows, with an example for each, as columns."""
    count = len(found.examples)
    return {
        "type_key": pa.repeat(pa.scalar(str(found.key)), count),
        "field": pa.repeat(pa.scalar(rule_field(found.rule)), count),
        "value": pa.array([shown(example.value) for example in found.examples], pa.utf8()),
        "rule": pa.repeat(pa.scalar(rule_name(found.rule)), count),
        "message": pa.array(found.texts, pa.utf8()),
    }


def located_rejects(reasons: Mapping[str, Array], pieces: NDArray[np.int64], numbers: NDArray[np.int64]) -> Batch:
    """The same with the records that the rows come from."""
    columns = {"piece": pa.array(pieces, pa.int32()), "number": pa.array(numbers, pa.int64()), **reasons}
    rows: Batch = pa.RecordBatch.from_arrays([columns[item.name] for item in REJECTS], schema=REJECTS)
    return rows


def matched_examples(rule: Rule, rows: Rows) -> list[Example]:
    """An example for each row that has a key which violates a rule, with the tally of the key."""
    return [_matched_example(rule, row) for row in rows.to_pylist()]


def _matched_example(rule: Rule, row: Mapping[str, Any]) -> Example:
    key, owner = row["key"], row["owner"]
    match rule:
        case DistinctIds():
            return Example(key, count=row["new"])
        case Unique():
            other = row["low"] if row["low"] != owner else row["high"]
            return Example(joined_text(key) if len(rule.members) > 1 else key, ids=(owner, other))
        case EdgesPerSource():
            return Example(key, count=row["new"] + row["old"])
    return Example(key, ids=() if owner is None else (owner,))
