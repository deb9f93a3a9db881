"""Why rows of a load are left out: what the tasks that find them tell, with the records that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from omnigraph.core.arrow import Batch, Column, Rows, pa, pc
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import EdgesPerSource, Example, Rule
from omnigraph.pipeline.rejects import REJECTS, located_rejects, matched_examples, reason_columns
from omnigraph.pipeline.sources.provenance import RowSource
from omnigraph.pipeline.tally import TALLY
from omnigraph.pipeline.violations import ViolationCounts
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.writes.rules import Violation

_ADDRESSES = pa.schema([("address", pa.int64())])


@frozen
class Moving:
    """The rule of counts, for rows that took an edge from another source; their keys are ids."""

    rule: EdgesPerSource


#: The rule that a row violates, as it is told.
Reason: TypeAlias = Rule | Moving


@frozen
class TellRows:
    """Tells which rows there are, or some of them."""

    folder: AnswerFolder
    chosen: Callable[[Rows], Column] | None = None

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        """Write the addresses of some matched rows; their file."""
        some = tables if self.chosen is None else (table.filter(self.chosen(table)) for table in tables)
        return _write_addresses(self.folder, number, some)


@frozen
class TellReasons:
    """Tells which rows there are, and why they are left out; the first of them with their places.

    Of bad rows everything goes into a file.
    """

    folder: AnswerFolder
    reason: Reason
    source: RowSource
    keeps_bad: bool = False

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        """Write the addresses of matched rows with why they are left out; their files and counts."""
        counts = ViolationCounts()
        rejects: list[str] = []

        def told() -> Iterator[Rows]:
            for table in tables:
                pieces, numbers = self.source.numbers(np.asarray(table["address"]))
                found = self._violation(table if self.keeps_bad else table.slice(0, MAX_EXAMPLES), table.num_rows)
                shown = slice(0, min(len(found.examples), MAX_EXAMPLES))
                few = replace(found, examples=found.examples[shown])
                counts.add_all(few, self.source.places(pieces[shown], numbers[shown]))
                if self.keeps_bad and table.num_rows:
                    rows = located_rejects(reason_columns(found), pieces, numbers)
                    rejects.append(attempt_name("rejects", number))
                    write_answer(self.folder, rejects[-1], REJECTS, [rows])
                yield table

        answer = _write_addresses(self.folder, number, told())
        return answer | {"violations": counts.to_message(), "rejects": rejects}

    def _violation(self, rows: Rows, total: int) -> Violation:
        if isinstance(self.reason, Moving):
            examples = [Example(row["low"], count=row["new"]) for row in rows.select(["low", "new"]).to_pylist()]
            return Violation(self.source.key, self.reason.rule, total, examples)
        return Violation(self.source.key, self.reason, total, matched_examples(self.reason, rows))


@frozen
class TellMoved:
    """Gives the ids of replaced edges as keys, with their sources and how many edges these have left."""

    folder: AnswerFolder

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        """Write the keys of matched rows; their file."""
        name = attempt_name("moved", number)
        written = write_answer(self.folder, name, TALLY, (batch for table in tables for batch in self._keys(table)))
        return {"name": name, "rows": written.rows}

    @staticmethod
    def _keys(rows: Rows) -> Iterator[Batch]:
        known = {"key": rows["owner"], "low": rows["key"], "new": pc.add(rows["new"], rows["old"])}
        columns = [known.get(item.name, pa.nulls(rows.num_rows, item.type)) for item in TALLY]
        yield from pa.Table.from_arrays(columns, schema=TALLY).combine_chunks().to_batches()


def _write_addresses(folder: AnswerFolder, number: int, tables: Iterator[Rows]) -> Message:
    name = attempt_name("rows", number)
    batches = (pa.RecordBatch.from_arrays([table["address"].combine_chunks()], schema=_ADDRESSES) for table in tables)
    return {"name": name, "rows": write_answer(folder, name, _ADDRESSES, batches).rows}
