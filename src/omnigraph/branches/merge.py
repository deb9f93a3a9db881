"""Merges two heads into staged writes, and checks the rules on the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.branches.deltas import row_images
from omnigraph.branches.three_way import SOURCE, TARGET, find_row_ids, plan_rows
from omnigraph.branches.truth_table import CONFLICTS, Base, Choice
from omnigraph.commit.rows import TablePin, TypeChanges
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    MAX_CONFLICTS,
    ConflictKind,
    HistoricalVersionReclaimedError,
    MergeConflict,
    ReadSetConflictError,
)
from omnigraph.errors.writes import RowImage
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
from omnigraph.lang.schema.rules import EdgesPerSource, End, TableRules, Unique
from omnigraph.pipeline.compare import row_shape
from omnigraph.pipeline.copying import Action, CopyPlan, PlannedConflict, RowPlan, lost_sources, stage_copy
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.violations import Image, TableChanges
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.storage.datasets.staged import PrivateVersion, StagedWrite, close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.rules import Violation, check

# ---- Schema rules on the result of a merge
#
# Only what the merge changes is checked, against the target as it would be: its changed rows, the edges that a
# deleted node leaves behind, and the sources that gained or lost an edge. Violations are conflicts; all of them are
# collected.


@dataclass(slots=True)
class Conflicts:
    """The first conflicts in full, and how many there are."""

    found: list[MergeConflict] = field(default_factory=list)
    total: int = 0

    def add(self, conflicts: Sequence[MergeConflict], total: int | None = None) -> None:
        """Add some conflicts, of which there may be more than are shown."""
        self.total += len(conflicts) if total is None else total
        self.found += conflicts[: max(0, MAX_CONFLICTS - len(self.found))]


_KINDS = {
    Unique: ConflictKind.UNIQUE_VIOLATION,
    End: ConflictKind.ORPHAN_EDGE,
    EdgesPerSource: ConflictKind.CARDINALITY_VIOLATION,
}


# ---- Planning and staging a merge
#
# Nothing here moves a table: what comes out is committed by the protocol of every write, or thrown away.


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeInput:
    """Everything that a merge is a function of."""

    source: Snapshot
    target: Snapshot
    base: Base
    #: The snapshots of all commits that take part in the base.
    bases: Mapping[str, Snapshot]
    catalog: Catalog
    rules: Mapping[TableKey, TableRules]
    strategy: str | None


@dataclass(slots=True)
class MergeJob:
    """One merge. Not thread-safe; used once."""

    given: MergeInput
    engine: WorkerChoice
    store: TableStore
    objects: ControlObjects
    conflicts: Conflicts = field(default_factory=Conflicts)
    plans: dict[TableKey, RowPlan] = field(default_factory=dict)
    writes: dict[TableKey, StagedWrite] = field(default_factory=dict)
    #: Tables of the target that the result depends on, beside those that are written.
    read: set[TableKey] = field(default_factory=set)
    _fragments: dict[TableKey, tuple[str, ...]] = field(default_factory=dict)
    _scratch: Scratch = field(init=False)

    def __post_init__(self) -> None:
        self._scratch = Scratch(ScratchPlace(root=self.store.location, is_writer=True))

    def close(self) -> None:
        """Remove the files that planning left for the later steps."""
        self._scratch.close()

    @property
    def changes(self) -> tuple[TypeChanges, ...]:
        """The changes of every type that changes."""
        return tuple(
            TypeChanges(
                type_key=key,
                inserted=plan.count(Action.INSERT),
                updated=plan.count(Action.UPDATE),
                deleted=plan.count(Action.DELETE),
            )
            for key, plan in sorted(self.plans.items())
            if plan.parts
        )

    @property
    def changed_rows(self) -> int:
        """The number of changed rows of the target."""
        return sum(plan.count() for plan in self.plans.values())

    # ---- planning

    def plan(self) -> None:
        """Decide about every row of every type; row conflicts are added to `conflicts`.

        Raises:
            ReadSetConflictError: a name means different types on the two sides.
            HistoricalVersionReclaimedError: the state where the branches last agreed was cleaned up.
        """
        for key, definition in self.given.catalog.types.items():
            states = self._states(key)
            if states is None:
                continue
            shape = row_shape(definition)
            with self._bases_readable(key):
                plan = plan_rows(
                    states, self.given.base, shape, self.engine, strategy=self.given.strategy, scratch=self._scratch
                )
            self.plans[key] = plan
            self.read.add(key)
            self._add_row_conflicts(definition, plan, states)
        reach(Failpoint.MERGE_PLANNED)

    def _states(self, key: TableKey) -> dict[str, Table] | None:
        """The states of a type that the merge compares; None when there is nothing to do."""
        given = self.given
        source, target = given.source.pins[key], given.target.pins[key]
        if source.incarnation != target.incarnation:
            raise ReadSetConflictError(key, source.incarnation, target.incarnation)
        bases = {commit: snapshot.pins[key] for commit, snapshot in given.bases.items()}
        is_unchanged = len(bases) == 1 and source in bases.values()
        if source == target or is_unchanged:
            return None
        with self._bases_readable(key):
            states = {commit: self._open(pin) for commit, pin in bases.items()}
        return {**states, SOURCE: self._open(source), TARGET: self._open(target)}

    def _open(self, pin: TablePin) -> Table:
        return open_pin(self.store, pin)

    @contextmanager
    def _bases_readable(self, key: TableKey) -> Iterator[None]:
        """Tell a base that was cleaned up as such, and which commit it is."""
        pins = {commit: snapshot.pins[key] for commit, snapshot in self.given.bases.items()}
        try:
            with reading_pins(self.store, pins.values()):
                yield
        except HistoricalVersionReclaimedError as error:
            gone = (error.table_key, error.version)
            commit_id, pin = next(item for item in pins.items() if (item[1].table_key, item[1].version) == gone)
            message = f"the commit {commit_id} where the branches last agreed cannot be read"
            raise HistoricalVersionReclaimedError(pin.table_key, pin.version, message) from error

    def _add_row_conflicts(self, definition: NodeDef | EdgeDef, plan: RowPlan, states: Mapping[str, Table]) -> None:
        if not plan.conflict_total:
            return
        shown = plan.conflicts[: max(0, MAX_CONFLICTS - len(self.conflicts.found))]
        ids = [item.entity_id for item in shown]
        images = {
            "base": self._base_images(definition, shown, states),
            "ours": _images_of(states[TARGET], definition, ids),
            "theirs": _images_of(states[SOURCE], definition, ids),
        }
        found = []
        for item in shown:
            kind, entity_id = CONFLICTS[Choice(item.choice)], item.entity_id
            conflict = MergeConflict(
                kind=kind,
                type_key=definition.table_key,
                entity_id=entity_id,
                message=_sentence(kind, definition.name, entity_id, images),
                base=images["base"].get(entity_id),
                ours=images["ours"].get(entity_id),
                theirs=images["theirs"].get(entity_id),
            )
            found.append(conflict)
        self.conflicts.add(found, plan.conflict_total)

    def _base_images(
        self, definition: NodeDef | EdgeDef, shown: Sequence[PlannedConflict], states: Mapping[str, Table]
    ) -> dict[str, RowImage]:
        images: dict[str, RowImage] = {}
        for place, commit in enumerate(self.given.base.commits):
            held = [item.entity_id for item in shown if item.holder == place]
            if held:
                images |= _images_of(states[commit], definition, held)
        return images

    # ---- staging

    def stage(self, open_for_writing: Callable[[TablePin], Table]) -> None:
        """Write the rows that the target takes over. What was written is in `writes` also when it fails."""
        for key, plan in self.plans.items():
            if not plan.parts:
                continue
            copy = CopyPlan(
                key=key,
                source=self._open(self.given.source.pins[key]),
                # The fork of a target that writes to a type for the first time has the same rows and row ids.
                target=open_for_writing(self.given.target.pins[key]),
                rows=plan,
                rules=self.given.rules[key].values,
            )
            engine = self.engine.for_rows(plan.count())
            copied = stage_copy(copy, engine, self._scratch, self.store.location)
            self.writes[key] = copied.staged
            self._fragments[key] = copied.fragments
            violations = [
                MergeConflict(kind=ConflictKind.VALUE_CONSTRAINT_VIOLATION, type_key=key, message=text)
                for text in copied.violations
            ]
            self.conflicts.add(violations, copied.violation_total)
        reach(Failpoint.MERGE_STAGED)

    # ---- checking

    def check(self) -> None:
        """Check the rules between rows on the merged result; violations are added to `conflicts`."""
        privates: list[PrivateVersion] = []
        try:
            images: dict[TableKey, Image] = {}
            for key, write in self.writes.items():
                private = open_private(self._simple_image(key) or write)
                privates.append(private)
                images[key] = Image(
                    table=private.table,
                    new=private.new_fragments,
                    removed_ids=self.plans[key].deleted_ids,
                    old_sources=self._old_sources(key),
                )
            joins = self.engine.for_rows(self.changed_rows).joins
            changes = TableChanges(images=images, joins=joins, untouched=self._untouched)
            orphans: set[tuple[str, str | None]] = set()
            for violation in check(self.given.rules, changes):
                self._add_violation(violation, orphans)
        finally:
            for private in privates:
                close_private(private, self.objects)
        reach(Failpoint.MERGE_CHECKED)

    def _add_violation(self, violation: Violation, orphans: set[tuple[str, str | None]]) -> None:
        conflicts = [
            MergeConflict(
                kind=_KINDS[type(violation.rule)],
                type_key=violation.key,
                message=text,
                entity_id=example.ids[0] if example.ids else None,
            )
            for example, text in zip(violation.examples, violation.texts, strict=True)
        ]
        if isinstance(violation.rule, End):
            # An edge that lacks both ends is one conflict.
            conflicts = [c for c in conflicts if (c.type_key, c.entity_id) not in orphans]
            orphans |= {(conflict.type_key, conflict.entity_id) for conflict in conflicts}
        told_before = len(violation.examples) - len(conflicts)
        self.conflicts.add(conflicts, violation.total - told_before)

    def _untouched(self, key: TableKey) -> Image:
        self.read.add(key)
        return Image(table=self._open(self.given.target.pins[key]))

    def _simple_image(self, key: TableKey) -> StagedWrite | None:
        """The new rows behind the old ones, where no rule would notice that replaced rows are still there.

        Lance needs about a second per twenty million rows to make a version in which rows keep their ids; once, for
        the commit, is enough.
        """
        rules = self.given.rules[key]
        tables = (key, *(end.node for end in rules.ends))
        loses_rows = (self.plans[k].count(Action.DELETE) for k in tables if k in self.plans)
        if rules.uniques or rules.per_source is not None or any(loses_rows):
            return None
        return stage_fragments(self.writes[key].table, self._fragments[key])

    def _old_sources(self, key: TableKey) -> Sequence[str]:
        if self.given.rules[key].per_source is None:
            return ()
        plan = self.plans[key]
        target = self._open(self.given.target.pins[key])
        return lost_sources(target, plan, self.engine.for_rows(plan.count()), self._scratch)


def _images_of(table: Table, definition: NodeDef | EdgeDef, ids: list[str]) -> dict[str, RowImage]:
    row_ids = find_row_ids(table, ids)
    images = row_images(table, definition, list(row_ids.values()))
    return {entity_id: images[row] for entity_id, row in row_ids.items() if row in images}


def _sentence(kind: ConflictKind, type_name: str, entity_id: str, images: Mapping[str, Mapping[str, RowImage]]) -> str:
    what = f"{type_name} {entity_id!r}"
    match kind:
        case ConflictKind.DIVERGENT_INSERT:
            return f"{what} was inserted on both sides with different values"
        case ConflictKind.DIVERGENT_UPDATE:
            return f"{what} was changed on both sides to different values"
        case _ if entity_id in images["ours"]:
            return f"{what} was deleted on the source and changed on the target"
        case _:
            return f"{what} was changed on the source and deleted on the target"
