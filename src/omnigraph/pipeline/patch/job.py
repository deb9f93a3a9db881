"""A patch from its files of records to staged writes: rows are found, their new values written, and rules checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import LoadRejectedError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import TableRules, Unique
from omnigraph.pipeline.minimum import find_outside, without_minimum
from omnigraph.pipeline.patch.files import PatchFile, addresses_of_ids
from omnigraph.pipeline.patch.matching import Judge, MatchedPatch, match_patch
from omnigraph.pipeline.patch.refusals import Refusals, more_refusals
from omnigraph.pipeline.patch.writing import Patched, PatchWork, write_patch_rows
from omnigraph.pipeline.shape.leniency import Leniency
from omnigraph.pipeline.shape.plan import LoadPlan
from omnigraph.pipeline.sources.provenance import RowSource
from omnigraph.pipeline.tally import Tally
from omnigraph.pipeline.violations import GRAPH, Image, Place, TableChanges, ViolationCounts
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.storage.answers import AnswerFolder
from omnigraph.storage.datasets.fragments import read_addresses, remove_written
from omnigraph.storage.datasets.staged import PrivateVersion, StagedWrite, close_private, open_private
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.rules import Violation, check


@frozen(kw_only=True)
class PatchCounts:
    """The records of a patch in one type, by what they did."""

    #: Rows that existed.
    patched: int
    #: Rows that came.
    inserted: int


@frozen(kw_only=True)
class PreparedPatch:
    """A patch that may be committed, and what it was checked against."""

    writes: Mapping[TableKey, StagedWrite]
    read: frozenset[TableKey]
    matched: Mapping[TableKey, MatchedPatch]
    changes: Mapping[TableKey, Patched]

    @property
    def counts(self) -> dict[TableKey, PatchCounts]:
        """The records that change something, by type."""
        return {key: PatchCounts(patched=item.known, inserted=item.new) for key, item in self.matched.items()}

    @property
    def superseded(self) -> Counter[TableKey]:
        """The records that others of the same id replace, by type."""
        return Counter({key: item.superseded for key, item in self.matched.items()})

    @property
    def bad(self) -> Counter[TableKey]:
        """The bad records that are right by themselves, by type."""
        return Counter({key: item.bad for key, item in self.matched.items()})

    @property
    def violations(self) -> ViolationCounts:
        """What is wrong with these."""
        return _merged(item.counts for item in self.matched.values())


@dataclass(slots=True, kw_only=True)
class PatchJob:
    """Prepares one patch; again when the graph has moved."""

    files: Mapping[TableKey, Sequence[PatchFile]]
    #: Where records come from, by their addresses.
    sources: Mapping[TableKey, RowSource]
    plan: LoadPlan
    rules: Mapping[TableKey, TableRules]
    leniency: Leniency
    engine: WorkerSet
    objects: ControlObjects
    folder: AnswerFolder
    #: What is wrong with single records.
    violations: ViolationCounts
    checks_minimum: bool = False
    #: What is wrong between rows, and the kinds of rules of types that this is about.
    _counts: ViolationCounts = field(default_factory=ViolationCounts)
    _broken: list[tuple[TableKey, type]] = field(default_factory=list)

    def prepare(self, tables: Mapping[TableKey, Table], open_pinned: Callable[[TableKey], Table]) -> PreparedPatch:
        """Decide what the patch does to the tables as they are now, and check every rule on the result.

        Raises:
            LoadRejectedError: records are bad and not kept, or rows of the graph would violate a rule.
        """
        refusals: dict[TableKey, list[str]] = {}
        bad = -1
        while True:
            prepared, more = self._attempt(tables, open_pinned, refusals)
            try:
                wrong = _merged([self.violations, prepared.violations, self._counts])
                if not (self._counts if self.leniency.quarantines else wrong):
                    reach(Failpoint.LOAD_CHECKED)
                    return prepared
                if not self.leniency.quarantines:
                    raise LoadRejectedError(wrong.report())
                if prepared.bad.total() == bad:
                    # No record is to blame for what is left.
                    raise LoadRejectedError(self._counts.report())
            except BaseException:
                # Also after an interrupt: nothing else knows these files.
                self.remove(tables, prepared.changes)
                raise
            self.remove(tables, prepared.changes)
            refusals, bad = more_refusals(refusals, more), prepared.bad.total()

    def _attempt(
        self,
        tables: Mapping[TableKey, Table],
        open_pinned: Callable[[TableKey], Table],
        refusals: Mapping[TableKey, Sequence[str]],
    ) -> tuple[PreparedPatch, dict[TableKey, list[str]]]:
        """The patch without some records, held against the rules, and more records that should not be in it."""
        self._counts, self._broken = ViolationCounts(), []
        changes: dict[TableKey, Patched] = {}
        privates: list[PrivateVersion] = []
        read: set[TableKey] = set()
        more: dict[TableKey, list[str]] = {}

        def untouched(key: TableKey) -> Image:
            if key not in changes:
                read.add(key)
            return Image(table=open_pinned(key))

        try:
            with self.engine.progress.stage("identify", 1) as stage, self.engine.inner.inside(stage):
                matched = {key: self._match(key, tables[key], refusals.get(key, ())) for key in self.files}
                stage.update(1, sum(item.total for item in matched.values()))
            reach(Failpoint.LOAD_IDENTIFIED)
            with self.engine.progress.stage("write values", 1) as stage, self.engine.inner.inside(stage):
                for key, found in matched.items():
                    changes[key] = self._write(key, tables[key], found)
                stage.update(1, sum(item.total for item in matched.values()))
            reach(Failpoint.PATCH_VALUES_WRITTEN)
            images = self._images(matched, changes, privates)
            with self.engine.progress.stage("check relations", 1) as stage, self.engine.inner.inside(stage):
                self._check(images, untouched)
                if self._counts and self.leniency.quarantines:
                    tally = Tally(self.engine.quiet, self.folder, small_rows=self.engine.small_rows)
                    finder = Refusals(
                        images=images, untouched=untouched, rules=self.rules, tally=tally, folder=self.folder
                    )
                    more = finder.find(self._broken)
                stage.update(1, sum(item.total for item in matched.values()))
        except BaseException:
            # Also after an interrupt: nothing else knows these files.
            self.remove(tables, changes)
            raise
        finally:
            for private in privates:
                close_private(private, self.objects)
        writes = {key: item.write for key, item in changes.items() if item.write is not None}
        return PreparedPatch(writes=writes, read=frozenset(read), matched=matched, changes=changes), more

    def _match(self, key: TableKey, table: Table, refusals: Sequence[str]) -> MatchedPatch:
        self.engine.inner.tell(key.name)
        judge = Judge(
            definition=self.plan.shapes[key].definition,
            source=self.sources[key],
            folder=self.folder,
            inserts=self.plan.inserts_unknown,
            duplicates=self.leniency.duplicates_of(key),
            keeps_bad=self.leniency.quarantines,
        )
        quiet, small_rows = self.engine.quiet, self.engine.small_rows
        return match_patch(table, self.files[key], judge, quiet, refusals=refusals, small_rows=small_rows)

    def _write(self, key: TableKey, table: Table, matched: MatchedPatch) -> Patched:
        self.engine.inner.tell(key.name)
        members = frozenset(self.plan.shapes[key].key_members)
        work = PatchWork(
            table=table, files=tuple(self.files[key]), key_members=members, matched=matched, folder=self.folder
        )
        return write_patch_rows(work, self.engine.quiet)

    # ---- rules on the result

    def _images(
        self,
        matched: Mapping[TableKey, MatchedPatch],
        changes: Mapping[TableKey, Patched],
        privates: list[PrivateVersion],
    ) -> dict[TableKey, Image]:
        """The tables that a rule between rows could mind, as the patch leaves them."""
        images: dict[TableKey, Image] = {}
        for key, item in changes.items():
            is_minded = any(not item.changed.isdisjoint(rule.members) for rule in self.rules[key].uniques)
            if item.write is None or not (matched[key].new or is_minded):
                continue
            private = open_private(item.write)
            privates.append(private)
            fresh = [number for number in private.new_fragments if number not in item.updated]
            images[key] = Image(
                table=private.table,
                new=tuple(fresh[item.rewritten :]),
                # The ids of what comes were compared already.
                has_given_ids=False,
                touched=(*item.updated, *fresh[: item.rewritten]),
                changed=item.changed,
            )
        return images

    def _check(self, images: Mapping[TableKey, Image], untouched: Callable[[TableKey], Image]) -> None:
        rows = TableChanges(images=images, joins=self.engine.joins, untouched=untouched, tell=self.engine.inner.tell)
        rules = without_minimum(self.rules) if self.checks_minimum else self.rules
        for violation in check(rules, rows):
            self._add(violation, images)
        if not self.checks_minimum:
            return

        def table_of(key: TableKey) -> Table:
            return (images.get(key) or untouched(key)).table

        for violation in find_outside(self.rules, table_of, self.engine, self.folder):
            self._add(violation, images)

    def _add(self, violation: Violation, images: Mapping[TableKey, Image]) -> None:
        self._broken.append((violation.key, type(violation.rule)))
        image = images.get(violation.key)
        mine = () if image is None else {*image.new, *image.touched}
        addresses = [
            [address for address in example.addresses if address >> 32 in mine] for example in violation.examples
        ]
        flat = [address for some in addresses for address in some]
        ids = dict(zip(flat, read_addresses(image.table, "id", flat), strict=True)) if image and flat else {}
        records = addresses_of_ids(self.folder, self.files.get(violation.key, ()), [*ids.values()]) if ids else {}
        known = {}
        for number, some in enumerate(addresses):
            mine_of = [records[ids[address]] for address in some if ids[address] in records]
            if mine_of:
                # Of rows that share a value, the last one.
                known[number] = mine_of[-1 if isinstance(violation.rule, Unique) else 0]
        places = [Place(GRAPH)] * len(violation.examples)
        if known:
            source = self.sources[violation.key]
            located = source.places(*source.numbers(np.array([*known.values()], np.int64)))
            for number, place in zip(known, located, strict=True):
                places[number] = place
        self._counts.add_all(violation, places)

    # ---- leaving nothing behind

    def remove(self, tables: Mapping[TableKey, Table], changes: Mapping[TableKey, Patched]) -> None:
        """Remove what a preparation wrote that is not committed."""
        for key, item in changes.items():
            remove_written(tables[key], item.texts)


def _merged(some: Iterable[ViolationCounts]) -> ViolationCounts:
    found = ViolationCounts()
    for one in some:
        found.merge(one)
    return found
