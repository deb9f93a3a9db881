"""Rows of a load that are left out: superseded ones, edges without an end, and bad ones, to a fixed point.

Records are read once. Each good one is staged as a row, with its address, before rows are compared; so the rows that a
rule leaves out are addresses, which a bit each remembers, and everything else of a record is found again through them.
Reading the input a second time to write only what stays would cost a second parse of everything for the sake of a few
records, and could meet another state of it. Marks on staged fragments are not possible: the names of such marks
contain the number that a fragment gets when it is committed. Instead those fragments that lose rows, and no others, are
written again.

Which record of an id counts is decided first, among the records that are right by themselves. Then edges whose ends are
nowhere go. Rows are only ever added to what is left out, so that an upsert, where a row that is left out lets the old
one stay, comes to an end as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from omnigraph.core.arrow import Column, Rows, pa, pc
from omnigraph.core.budget import check_work
from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType
from omnigraph.lang.schema.rules import End, Example, TableRules, rule_name
from omnigraph.pipeline.exchange import key_files
from omnigraph.pipeline.keys import KeyScan, key_scans, text_key
from omnigraph.pipeline.load.leniency import Duplicates, Leniency
from omnigraph.pipeline.load.provenance import Origin, Piece, places_of
from omnigraph.pipeline.load.relations import Staged, appended, is_missing
from omnigraph.pipeline.row_sets import RowSet
from omnigraph.pipeline.tally import BrokenKeys, Counted, Side, Tally
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.violations import Image, Place, ViolationCounts
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer
from omnigraph.storage.datasets.staged import PrivateVersion
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.rules import Violation

_OFFSET_MASK = 0xFFFFFFFF


@dataclass(kw_only=True)
class LeftOut:
    """The rows that a load leaves out, by type and why."""

    rows: dict[TableKey, RowSet] = field(default_factory=dict)
    superseded: Counter[TableKey] = field(default_factory=Counter)
    dropped: Counter[TableKey] = field(default_factory=Counter)
    #: What is wrong with edges that were dropped.
    counts: ViolationCounts = field(default_factory=ViolationCounts)

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def of(self, key: TableKey) -> RowSet:
        """The rows of a type that are left out."""
        return self.rows.setdefault(key, RowSet())


@dataclass(kw_only=True)
class Exclusions:
    """Finds what a load leaves out, against its tables as they are now. Used once."""

    staged: Staged
    #: The tables of the staged types.
    tables: Mapping[TableKey, Table]
    #: The image of a table that the load does not touch.
    untouched: Callable[[TableKey], Image]
    mode: LoadMode
    rules: Mapping[TableKey, TableRules]
    leniency: Leniency
    engine: WorkerSet
    objects: ControlObjects
    folder: AnswerFolder
    _found: LeftOut = field(default_factory=LeftOut)
    _new: dict[TableKey, PrivateVersion] = field(default_factory=dict)
    #: Rows that an upsert replaces, and how many rows were left out when that was found.
    _replaced: dict[TableKey, tuple[int, RowSet]] = field(default_factory=dict)

    def find(self) -> LeftOut:
        """All rows that are left out."""
        types = self.staged.types
        with ExitStack() as stack:
            for key, staged in types.items():
                if staged.fragments:
                    self._new[key] = stack.enter_context(appended(staged, self.tables[key], self.objects))
            for key in self._new:
                self._supersede(key)
            while True:
                before = len(self._found)
                for key in self._new:
                    self._drop(key)
                if self.mode is not LoadMode.UPSERT or len(self._found) == before:
                    self._found.counts.sort()
                    return self._found

    # ---- equal ids

    def _supersede(self, key: TableKey) -> None:
        """Leave out all records of an id but the first or the last one."""
        rule = self.leniency.duplicates_of(key)
        if rule is Duplicates.ERROR or not self.staged.types[key].has_given_ids:
            return
        rows = self._found.of(key)
        ids = self._new_scans(key, text_key("id"))
        kept = "first" if rule is Duplicates.FIRST else "last"
        repeated = self._tally.find([Counted(side=Side.NEW, scans=ids)], _is_repeated)
        others = _Rows(self.folder, partial(_is_other, kept))
        self._add(rows, self._tally.rows(ids, repeated, others))
        self._found.superseded[key] = len(rows)

    # ---- ends

    def _drop(self, key: TableKey) -> None:
        """Leave out edges whose ends are nowhere."""
        if not self.leniency.drops(key):
            return
        rows = self._found.of(key)
        before = len(rows)
        # Both ends are looked at before anything is left out: an edge may have neither.
        found = [(rule, self._references(key, rule), self._nowhere(key, rule)) for rule in self.rules[key].ends]
        for rule, scans, keys in found:
            told = _Told(self.folder, rule, self._source(key))
            answers = self._tally.rows(scans, keys, told)
            self._add(rows, answers)
            for answer in answers:
                self._found.counts.merge(ViolationCounts.from_message(answer["violations"]))
        self._found.dropped[key] += len(rows) - before

    def _references(self, key: TableKey, rule: End) -> tuple[KeyScan, ...]:
        extra = ("id",) if self.staged.types[key].has_given_ids else ()
        return self._new_scans(key, text_key(rule.column), extra=extra)

    def _nowhere(self, key: TableKey, rule: End) -> BrokenKeys:
        """Ends that are neither nodes nor bad records of nodes."""
        counted = [
            Counted(side=Side.NEW, scans=self._references(key, rule)),
            Counted(side=Side.OLD, scans=self._new_scans(rule.node, text_key("id"))),
            Counted(side=Side.OLD, scans=self._old_scans(rule.node, text_key("id"))),
        ]
        if files := self.staged.bad_ids.get(rule.node):
            counted.append(Counted(side=Side.REFUSED, keys=key_files(self.folder, files)))
        return self._tally.find(counted, _is_nowhere)

    # ---- rows of the load and of its tables

    @property
    def _tally(self) -> Tally:
        return Tally(self.engine.quiet, self.folder, small_rows=self.engine.small_rows)

    def _new_scans(
        self, key: TableKey, members: Sequence[tuple[str, BaseType]], extra: tuple[str, ...] = ()
    ) -> tuple[KeyScan, ...]:
        """The rows of the load that are not left out."""
        private = self._new.get(key)
        if private is None:
            return ()
        scans = key_scans(private.table, private.new_fragments, members, extra=extra)
        return _without(scans, self._found.of(key))

    def _old_scans(self, key: TableKey, members: Sequence[tuple[str, BaseType]]) -> tuple[KeyScan, ...]:
        """The rows of a table that stay."""
        if key not in self.staged.types:
            return tuple(key_scans(self.untouched(key).table, None, members))
        if self.mode is LoadMode.OVERWRITE:
            return ()
        return _without(key_scans(self.tables[key], None, members), self._replaced_rows(key))

    def _replaced_rows(self, key: TableKey) -> RowSet:
        """The rows that an upsert replaces."""
        if self.mode is not LoadMode.UPSERT or key not in self._new or not self.staged.types[key].has_given_ids:
            return RowSet()
        count, replaced = self._replaced.get(key, (-1, RowSet()))
        if count != len(self._found.of(key)):
            count, replaced = len(self._found.of(key)), RowSet()
            old = tuple(key_scans(self.tables[key], None, text_key("id")))
            counted = [
                Counted(side=Side.NEW, scans=self._new_scans(key, text_key("id"))),
                Counted(side=Side.OLD, scans=old),
            ]
            keys = self._tally.find(counted, _is_on_both_sides)
            self._add(replaced, self._tally.rows(old, keys, _Rows(self.folder)))
            self._replaced[key] = count, replaced
        return replaced

    def _add(self, rows: RowSet, answers: Sequence[Message]) -> None:
        """Add the rows that tasks have found; they stream by."""
        for answer in answers:
            for batch in read_answer(self.folder, answer["name"]):
                check_work()
                rows.add(np.asarray(batch.column(0)))

    def _source(self, key: TableKey) -> _Source:
        """Where the rows of a type come from."""
        types, pieces = self.staged.types, self.staged.provenance.pieces
        origins = dict(zip(self._new[key].new_fragments, types[key].origins, strict=True))
        return _Source(key, origins, {origin.piece: pieces[origin.piece] for origin in origins.values()})


def _without(scans: Sequence[KeyScan], rows: RowSet) -> tuple[KeyScan, ...]:
    """The same scans as if some rows were not there. Each knows the rows of its own fragments only."""
    if not len(rows):
        return tuple(scans)
    return tuple(replace(scan, without=rows.within(scan.fragments)) for scan in scans)


# ---- which keys


def _is_repeated(tallies: Rows) -> Column:
    found: Column = pc.greater(tallies["new"], 1)
    return found


def _is_on_both_sides(tallies: Rows) -> Column:
    found: Column = pc.and_(pc.greater(tallies["new"], 0), pc.greater(tallies["old"], 0))
    return found


def _is_nowhere(tallies: Rows) -> Column:
    found: Column = pc.and_(is_missing(tallies), pc.equal(tallies["refused"], 0))
    return found


def _is_other(kept: str, matched: Rows) -> Column:
    """Rows that are not the first or the last one of their key."""
    found: Column = pc.not_equal(matched["address"], matched[kept])
    return found


# ---- what tasks say about the rows of such keys


_ADDRESSES = pa.schema([("address", pa.int64())])


def _write_addresses(folder: AnswerFolder, number: int, tables: Iterator[Rows]) -> Message:
    name = attempt_name("rows", number)
    batches = (pa.RecordBatch.from_arrays([table["address"].combine_chunks()], schema=_ADDRESSES) for table in tables)
    return {"name": name, "rows": write_answer(folder, name, _ADDRESSES, batches).rows}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Tells which rows there are, or some of them."""

    folder: AnswerFolder
    chosen: Callable[[Rows], Column] | None = None

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        some = tables if self.chosen is None else (table.filter(self.chosen(table)) for table in tables)
        return _write_addresses(self.folder, number, some)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of a type come from. Travels to tasks."""

    key: TableKey
    #: By fragment.
    origins: Mapping[int, Origin]
    pieces: Mapping[int, Piece]

    def places(self, addresses: Sequence[int]) -> list[Place]:
        """The places of some rows."""
        rows = [self.origins[address >> 32].behind(address & _OFFSET_MASK) for address in addresses]
        return places_of(self.pieces, self.key, rows)


@dataclass(frozen=True, slots=True)
class _Told:
    """Tells which rows there are, and why they are left out; the first of them with their places."""

    folder: AnswerFolder
    rule: End
    source: _Source

    def __call__(self, number: int, tables: Iterator[Rows]) -> Message:
        counts = ViolationCounts()

        def counted() -> Iterator[Rows]:
            for table in tables:
                self._count(table, counts)
                yield table

        return _write_addresses(self.folder, number, counted()) | {"violations": counts.to_message()}

    def _count(self, rows: Rows, counts: ViolationCounts) -> None:
        name = rule_name(self.rule)
        shown = rows.slice(0, counts.missing_examples(name))
        keys, owners = (shown[column].to_pylist() for column in ("key", "owner"))
        examples = [
            Example(key, ids=() if owner is None else (owner,)) for key, owner in zip(keys, owners, strict=True)
        ]
        violation = Violation(self.source.key, self.rule, rows.num_rows, examples)
        counts.add_all(violation, self.source.places(np.asarray(shown["address"]).tolist()))
