"""Records of a patch that break rules between rows once it is done: told by the ids of their rows.

Which record brought a row is not known where the rows of tables are compared. So what is told here is a file of ids
with reasons. Records are matched once more with it, which leaves them out and knows where they come from.

A record that is left out leaves the old values of its row, which others may collide with. So this is repeated until no
rule is broken; every turn leaves out more records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from omnigraph.core.arrow import Rows, pa
from omnigraph.core.ids import TableKey
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import EdgesPerSource, End, Example, Rule, TableRules, Unique
from omnigraph.pipeline.keys import KeyScan, key_scans, text_key
from omnigraph.pipeline.patch.matching import REFUSALS
from omnigraph.pipeline.rejects import matched_examples, reason_columns
from omnigraph.pipeline.tally import BrokenKeys, Counted, Side, Tally, is_missing, is_outside, is_shared
from omnigraph.pipeline.violations import Image
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, write_answer
from omnigraph.writes.rules import Violation


@frozen(kw_only=True)
class Refusals:
    """Finds the rows of a patch that break rules."""

    #: The tables as the patch leaves them, and those that it does not touch.
    images: Mapping[TableKey, Image]
    untouched: Callable[[TableKey], Image]
    rules: Mapping[TableKey, TableRules]
    tally: Tally
    folder: AnswerFolder

    def find(self, broken: Sequence[tuple[TableKey, type]]) -> dict[TableKey, list[str]]:
        """The files of the ids and reasons of all rows that break some kinds of rules."""
        found: dict[TableKey, list[str]] = {}
        for key, image in self.images.items():
            kinds = tuple(kind for other, kind in broken if other == key)
            for rule, scans, keys in self._broken(key, image, kinds):
                answers = self.tally.rows(scans, keys, _TellRefusals(self.folder, key, rule))
                found.setdefault(key, []).extend(str(answer["name"]) for answer in answers if answer["rows"])
        return found

    def _broken(
        self, key: TableKey, image: Image, kinds: tuple[type, ...]
    ) -> Iterator[tuple[Rule, Sequence[KeyScan], BrokenKeys]]:
        rules = self.rules[key]
        for unique in rules.uniques if Unique in kinds else ():
            yield self._shared(image, unique)
        for end in rules.ends if End in kinds else ():
            new = self._new(image, end.column)
            node = self.images.get(end.node) or self.untouched(end.node)
            ids = Counted(side=Side.OLD, scans=tuple(key_scans(node.table, None, text_key("id"))))
            yield end, new, self.tally.find([Counted(side=Side.NEW, scans=new), ids], is_missing)
        if rules.per_source is not None and EdgesPerSource in kinds:
            low, high = rules.per_source.low, rules.per_source.high
            new = self._new(image, "src")
            old = Counted(side=Side.OLD, scans=tuple(image.scans("src", is_new=False)))
            keys = self.tally.find([Counted(side=Side.NEW, scans=new), old], partial(is_outside, low, high))
            yield rules.per_source, new, keys

    def _shared(self, image: Image, rule: Unique) -> tuple[Rule, Sequence[KeyScan], BrokenKeys]:
        members, fresh = list(zip(rule.members, rule.bases, strict=True)), image.fresh(rule)
        new = key_scans(image.table, fresh, members, extra=("id",))
        old = key_scans(image.table, image.outside(fresh), members, extra=("id",))
        counted = [Counted(side=Side.NEW, scans=tuple(new)), Counted(side=Side.OLD, scans=tuple(old))]
        return rule, new, self.tally.find(counted, is_shared, owner="id")

    @staticmethod
    def _new(image: Image, column: str) -> tuple[KeyScan, ...]:
        """Edges that come, with their ids; the others keep their ends."""
        return tuple(key_scans(image.table, image.new, text_key(column), extra=("id",)))


@frozen
class _TellRefusals:
    """Writes the ids of matched rows with the rule that they break. Travels to tasks."""

    folder: AnswerFolder
    key: TableKey
    rule: Rule

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        """The file."""
        name = attempt_name("refusals", number)
        batches = (batch for table in tables for batch in self._told(table).to_batches())
        return {"name": name, "rows": write_answer(self.folder, name, REFUSALS, batches).rows}

    def _told(self, rows: Rows) -> Rows:
        examples = matched_examples(self.rule, rows)
        if isinstance(self.rule, End):
            # An edge that comes has an id that means nothing to people, unless they gave it.
            examples = [Example(example.value) for example in examples]
        found = Violation(self.key, self.rule, len(examples), examples)
        columns = {"key": rows["owner"], **reason_columns(found)}
        told: Rows = pa.Table.from_arrays([columns[item.name] for item in REFUSALS], schema=REFUSALS)
        return told


def more_refusals(
    known: Mapping[TableKey, Sequence[str]], more: Mapping[TableKey, Sequence[str]]
) -> dict[TableKey, list[str]]:
    """The files of several turns."""
    return {key: [*known.get(key, ()), *more.get(key, ())] for key in {**known, **more}}
