"""Rows of a load that are left out: superseded ones, edges without an end, and bad ones, to a fixed point.

Records are read once. Each good one is staged as a row, with its address, before rows are compared; so the rows that a
rule leaves out are addresses, which a bit each remembers, and everything else of a record is found again through them.
Reading the input a second time to write only what stays would cost a second parse of everything for the sake of a few
records, and could meet another state of it. Marks on staged fragments are not possible: the names of such marks
contain the number that a fragment gets when it is committed. Instead those fragments that lose rows, and no others, are
written again.

Which record of an id counts is decided first, among the records that are right by themselves. Then the rules run in an
order in which a record never suffers for one that an earlier rule leaves out: nodes before edges, of each equal ids,
ends, `@unique`, counts. Of rows that violate a rule together all are left out, because nothing says which of them is
right. So what is left out fails alike when it is loaded again, and what stays does not depend on the order of records.

One pass is enough, except for an upsert: where its row is left out, the row that it would have replaced stays, and may
collide with others. The same holds for an entry with `each`: a record is kept as a whole, and takes its other rows with
it. Rows are only ever added to what is left out, so that ends too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from omnigraph.core.arrow import Column, Rows, pc
from omnigraph.core.budget import check_work
from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType
from omnigraph.lang.schema.rules import DistinctIds, EdgesPerSource, End, EndRefused, NewIds, Rule, TableRules, Unique
from omnigraph.pipeline.exchange import key_files
from omnigraph.pipeline.keys import KeyScan, key_scans, text_key
from omnigraph.pipeline.load.prepared import LeftOut
from omnigraph.pipeline.load.reasons import Moving, Reason, TellMoved, TellReasons, TellRows
from omnigraph.pipeline.load.relations import Staged, appended
from omnigraph.pipeline.row_sets import RowSet
from omnigraph.pipeline.shape.leniency import Duplicates, Leniency
from omnigraph.pipeline.sources.provenance import RowSource
from omnigraph.pipeline.tally import BrokenKeys, Counted, Side, Tally, is_missing, is_outside, is_shared, joined_keys
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.violations import Image, ViolationCounts
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, read_answer
from omnigraph.storage.datasets.fragments import fragment_rows
from omnigraph.storage.datasets.staged import PrivateVersion
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.objects import ControlObjects

_OFFSET_MASK = 0xFFFFFFFF

#: A rule, the rows that are held against it, and the keys of those that violate it.
_Finding = tuple[Reason, Sequence[KeyScan], BrokenKeys]


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
    #: The rules that rows violate while none of them is left out. What satisfies one of the others goes on to do so,
    #: unless something is left out.
    violated: Collection[tuple[TableKey, Rule]]
    _found: LeftOut = field(default_factory=LeftOut)
    _bad: dict[TableKey, RowSet] = field(default_factory=dict)
    #: The pieces of each type whose records may be several rows, and how many more bad rows than records they have.
    _shared: dict[TableKey, set[int]] = field(default_factory=dict)
    _siblings: dict[tuple[TableKey, int], int] = field(default_factory=dict)
    #: Rules by their kinds and type, and how many rows they depended on were left out when they were checked.
    _checked: dict[tuple[TableKey, tuple[type[Rule], ...]], int] = field(default_factory=dict)
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
            pieces = self.staged.provenance.pieces
            self._shared = {
                key: {origin.piece for origin in types[key].origins if pieces[origin.piece].shares_records}
                for key in self._new
            }
            # What edges suffer from is known before they are looked at.
            keys = sorted(self._new, key=lambda key: key.kind != "node")
            for key in keys:
                self._supersede(key)
            while True:
                before = len(self._found)
                for key in keys:
                    self._check(key)
                is_one_pass = self.mode is not LoadMode.UPSERT and not any(self._shared.values())
                if is_one_pass or len(self._found) == before:
                    self._found.counts.sort()
                    self._found.bad.update({key: len(rows) for key, rows in self._bad.items()})
                    self._found.bad_records = self._found.bad.total() - sum(self._siblings.values())
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
        others = TellRows(self.folder, partial(_is_other, kept))
        self._add(rows, self._tally.rows(ids, repeated, others))
        self._found.superseded[key] = len(rows)

    # ---- the rules, one after the other

    def _check(self, key: TableKey) -> None:
        rules, quarantines = self.rules[key], self.leniency.quarantines
        if quarantines and self._is_due(key, DistinctIds, NewIds):
            self._check_ids(key)
        if rules.ends:
            self._check_ends(key)
        # A row stays that an upsert would have replaced.
        stays = len(self._found.of(key)) if self.mode is LoadMode.UPSERT else 0
        if quarantines and rules.uniques and self._is_due(key, Unique, grown=stays):
            for unique in rules.uniques:
                self._check_unique(key, unique)
        # A source may keep too few of its edges.
        per_source, gone = rules.per_source, len(self._found.of(key))
        if quarantines and per_source is not None and self._is_due(key, EdgesPerSource, grown=gone):
            self._check_counts(key, per_source)

    def _is_due(self, key: TableKey, *rules: type[Rule], grown: int = 0) -> bool:
        """Whether rows may violate rules of some kinds by now: they did, or what that depends on has grown.

        To count keys for nothing would be most of the work.
        """
        before = self._checked.get((key, rules))
        self._checked[key, rules] = grown
        if before is None:
            return grown > 0 or any(other == key and isinstance(rule, rules) for other, rule in self.violated)
        return grown > before

    def _check_ids(self, key: TableKey) -> None:
        if not self.staged.types[key].has_given_ids:
            return
        ids = self._new_scans(key, text_key("id"))
        new = Counted(side=Side.NEW, scans=ids)
        repeated = self._tally.find([new], _is_repeated)
        found: list[_Finding] = [(DistinctIds(type_name=key.name), ids, repeated)]
        if self.mode is LoadMode.APPEND:
            old = Counted(side=Side.OLD, scans=self._old_scans(key, text_key("id")))
            taken = self._tally.find([new, old], _is_on_both_sides)
            found.append((NewIds(kind=key.kind, type_name=key.name), ids, taken))
        self._refuse(key, found)

    def _check_ends(self, key: TableKey) -> None:
        """Drop or refuse edges whose ends are nowhere, and refuse those whose ends are bad records."""
        drops, quarantines = self.leniency.drops(key), self.leniency.quarantines
        if not drops and not quarantines:
            return
        # Both ends are looked at before anything is left out: an edge may have neither.
        nowhere: list[_Finding] = []
        if self._is_due(key, End):
            nowhere = [(rule, self._references(key, rule), self._missing(key, rule)) for rule in self.rules[key].ends]
        if drops:
            rows = self._found.of(key)
            before = len(rows)
            # An end that is nowhere may be a bad record that has no readable id: such edges are kept with it.
            kept: list[_Finding] = []
            for rule, found in zip(self.rules[key].ends, nowhere, strict=False):
                if quarantines and not self.staged.unnamed.isdisjoint((rule.node, "")):
                    kept.append(found)
                else:
                    tell = TellReasons(self.folder, rule, self._source(key))
                    self._add_told(rows, self._tally.rows(found[1], found[2], tell))
            self._found.dropped[key] += len(rows) - before
            nowhere = kept
        refused: list[_Finding] = []
        ends = self.rules[key].ends
        if quarantines and self._is_due(key, EndRefused, grown=sum(self._bad_nodes(rule.node) for rule in ends)):
            refused = [
                (_refused_end(rule), self._references(key, rule), self._missing(key, rule, of_refused=True))
                for rule in ends
                if self._bad_nodes(rule.node)
            ]
        self._refuse(key, [*nowhere, *refused])

    def _bad_nodes(self, key: TableKey) -> int:
        """A number that grows with the bad records of a node type."""
        return len(self.staged.bad_ids.get(key, ())) + len(self._bad.get(key, ()))

    def _references(self, key: TableKey, rule: End) -> tuple[KeyScan, ...]:
        extra = ("id",) if self.staged.types[key].has_given_ids else ()
        return self._new_scans(key, text_key(rule.column), extra=extra)

    def _missing(self, key: TableKey, rule: End, *, of_refused: bool = False) -> BrokenKeys:
        """Ends that no node has: those of bad records, or all others."""
        node, ids = rule.node, text_key("id")
        counted = [
            Counted(side=Side.NEW, scans=self._references(key, rule)),
            Counted(side=Side.OLD, scans=self._new_scans(node, ids)),
            Counted(side=Side.OLD, scans=self._old_scans(node, ids)),
        ]
        if files := self.staged.bad_ids.get(node):
            counted.append(Counted(side=Side.REFUSED, keys=key_files(self.folder, files)))
        refused = self._bad.get(node)
        if refused is not None and node in self._new:
            private = self._new[node]
            scans = key_scans(private.table, private.new_fragments, ids)
            counted.append(Counted(side=Side.REFUSED, scans=_only(scans, refused)))
        return self._tally.find(counted, _is_refused if of_refused else _is_nowhere)

    def _check_unique(self, key: TableKey, rule: Unique) -> None:
        members = list(zip(rule.members, rule.bases, strict=True))
        new = self._new_scans(key, members, extra=("id",))
        counted = [Counted(side=Side.NEW, scans=new), Counted(side=Side.OLD, scans=self._old_scans(key, members))]
        self._refuse(key, [(rule, new, self._tally.find(counted, is_shared, owner="id"))])

    def _check_counts(self, key: TableKey, rule: EdgesPerSource) -> None:
        sources = text_key("src")
        new = self._new_scans(key, sources)
        gone = _only(key_scans(self.tables[key], None, sources, extra=("id",)), self._replaced_rows(key))
        counted = [
            Counted(side=Side.NEW, scans=new),
            Counted(side=Side.OLD, scans=self._old_scans(key, sources)),
            Counted(side=Side.GONE, scans=gone),
        ]
        keys = self._tally.find(counted, partial(is_outside, rule.low, rule.high))
        found: list[_Finding] = [(rule, new, keys)]
        if gone and keys.total:
            # A source that lost an edge suffers from the record that gave it to another one.
            moved = self._tally.rows(gone, keys, TellMoved(self.folder))
            ids = self._new_scans(key, text_key("id"))
            found.append((Moving(rule), ids, joined_keys(self.folder, moved)))
        self._refuse(key, found)

    def _refuse(self, key: TableKey, found: Sequence[_Finding]) -> None:
        """Leave out the rows that violate some rules together."""
        rows = self._found.of(key)
        for reason, scans, keys in found:
            answers = self._tally.rows(scans, keys, TellReasons(self.folder, reason, self._source(key), keeps_bad=True))
            self._add_told(rows, answers)
            if answers:
                self._add(self._bad.setdefault(key, RowSet()), answers)
            self._found.rejects += [str(name) for answer in answers for name in answer["rejects"]]
        for piece in self._shared[key] if key in self._bad else ():
            self._leave_out_siblings(key, piece)

    def _leave_out_siblings(self, key: TableKey, number: int) -> None:
        """Leave out all rows of the records of a piece that have a bad one: a record is kept as a whole."""
        rows, bad, piece = self._found.of(key), self._bad[key], self.staged.provenance.pieces[number]
        origins, texts = self._source(key).origins, self.staged.types[key].fragments
        sizes = dict(zip(self._new[key].new_fragments, map(fragment_rows, texts), strict=True))
        begins = {fragment: origin.row for fragment, origin in origins.items() if origin.piece == number}
        numbers = piece.numbers[key].all()
        is_bad = np.zeros(len(numbers), dtype=bool)
        for fragment, begin in begins.items():
            is_bad[begin + bad.offsets(fragment)] = True
        records = np.unique(numbers[is_bad])
        of_records = np.isin(numbers, records)
        for fragment, begin in begins.items():
            offsets = np.flatnonzero(of_records[begin : begin + sizes[fragment]])
            addresses = (fragment << 32) | offsets
            # What another record replaces is counted already.
            addresses = addresses[~rows.has(addresses)]
            rows.add(addresses)
            bad.add(addresses)
            is_bad[begin + (addresses & _OFFSET_MASK)] = True
        self._siblings[key, number] = int(np.count_nonzero(is_bad)) - len(records)

    def _add_told(self, rows: RowSet, answers: Sequence[Message]) -> None:
        self._add(rows, answers)
        for answer in answers:
            self._found.counts.merge(ViolationCounts.from_message(answer["violations"]))

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
            self._add(replaced, self._tally.rows(old, keys, TellRows(self.folder)))
            self._replaced[key] = count, replaced
        return replaced

    def _add(self, rows: RowSet, answers: Sequence[Message]) -> None:
        """Add the rows that tasks have found; they stream by."""
        for answer in answers:
            for batch in read_answer(self.folder, answer["name"]):
                check_work()
                rows.add(np.asarray(batch.column(0)))

    def _source(self, key: TableKey) -> RowSource:
        origins = zip(self._new[key].new_fragments, self.staged.types[key].origins, strict=True)
        return self.staged.provenance.of_rows(key, dict(origins))


def _only(scans: Sequence[KeyScan], rows: RowSet) -> tuple[KeyScan, ...]:
    """Scans of some rows alone."""
    if not len(rows):
        return ()
    return tuple(replace(scan, only=rows.within(scan.fragments)) for scan in scans)


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


def _is_refused(tallies: Rows) -> Column:
    found: Column = pc.and_(is_missing(tallies), pc.greater(tallies["refused"], 0))
    return found


def _is_nowhere(tallies: Rows) -> Column:
    found: Column = pc.and_(is_missing(tallies), pc.equal(tallies["refused"], 0))
    return found


def _is_other(kept: str, matched: Rows) -> Column:
    """Rows that are not the first or the last one of their key."""
    found: Column = pc.not_equal(matched["address"], matched[kept])
    return found


def _refused_end(rule: End) -> EndRefused:
    return EndRefused(edge_type=rule.edge_type, column=rule.column, node_type=rule.node_type)
