"""Merges two heads into staged writes, and checks the rules on the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

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
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
from omnigraph.lang.schema.rules import EdgesPerSource, End, TableRules, Unique, rule_name
from omnigraph.pipeline.compare import row_shape
from omnigraph.pipeline.copying import Action, Copied, CopyPlan, PlannedConflict, RowPlan, lost_sources, stage_copy
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.minimum import find_outside, without_minimum
from omnigraph.pipeline.violations import Image, TableChanges
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.storage.datasets.staged import PrivateVersion, StagedWrite, close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.rules import Violation, check

# ---- Conflicts of a merge
#
# A report shows a limited number of them, but never only those of one kind or type.


@dataclass(slots=True)
class _Group:
    """The conflicts of one kind in one type: the first ones by what they are about, and how many there are."""

    found: dict[object, MergeConflict] = field(default_factory=dict)
    total: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether no conflict is only counted."""
        return len(self.found) == self.total


class Conflicts:
    """The conflicts of a merge in groups: those about rows of one type, those of one rule in one type."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}

    @property
    def total(self) -> int:
        """The number of conflicts."""
        return sum(group.total for group in self._groups.values())

    @property
    def shown(self) -> tuple[MergeConflict, ...]:
        """The conflicts in full, or as many of every group as a report holds."""
        groups = list(self._groups.values())
        shares = fair_shares([len(group.found) for group in groups], MAX_CONFLICTS)
        return tuple(
            conflict
            for group, share in zip(groups, shares, strict=True)
            for conflict in islice(group.found.values(), share)
        )

    def add(self, place: tuple[str, str], found: Mapping[object, MergeConflict], total: int) -> None:
        """Add conflicts to a group by what they are about; one that it has already counts once."""
        if not total:
            return
        group = self._groups.setdefault(place, _Group())
        group.total += total - len(group.found.keys() & found.keys())
        new = (item for item in found.items() if item[0] not in group.found)
        group.found.update(islice(new, MAX_CONFLICTS - len(group.found)))

    def add_either(self, ours: Conflicts, theirs: Conflicts) -> None:
        """Add what the two strategies lead to; a conflict that only one of them leads to names it."""
        for place in dict.fromkeys([*ours._groups, *theirs._groups]):
            one, other = (side._groups.get(place, _Group()) for side in (ours, theirs))
            found: dict[object, MergeConflict] = {}
            for strategy, group, opposite in (("ours", one, other), ("theirs", other, one)):
                for what, conflict in group.found.items():
                    is_certain = what not in opposite.found and opposite.is_complete
                    told = replace(conflict, with_strategy=strategy) if is_certain else conflict
                    found.setdefault(what, told)
            are_all = one.is_complete and other.is_complete
            self.add(place, found, len(found) if are_all else max(one.total, other.total, len(found)))


def fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much of each size has a place in a limited room, where small ones are not crowded out by large ones.

    >>> fair_shares([900, 2, 400], 1_000)
    [598, 2, 400]
    """
    shares = [0] * len(sizes)
    for waiting, place in zip(range(len(sizes), 0, -1), sorted(range(len(sizes)), key=sizes.__getitem__), strict=True):
        shares[place] = min(sizes[place], room // waiting)
        room -= shares[place]
    return shares


# ---- Schema rules on the result of a merge
#
# Only what the merge changes is checked, against the target as it would be: its changed rows, the edges that a
# deleted node leaves behind, and the sources that gained or lost an edge. Violations are conflicts; all of them are
# collected.


#: The group of conflicts about rows, whatever their kind.
_ROWS = "rows"
_KINDS = {
    Unique: ConflictKind.UNIQUE_VIOLATION,
    End: ConflictKind.ORPHAN_EDGE,
    EdgesPerSource: ConflictKind.CARDINALITY_VIOLATION,
}


# ---- Planning and staging a merge
#
# Nothing here moves a table: what comes out is committed by the protocol of every write, or thrown away.


@frozen(kw_only=True)
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
class _Image:
    """The target as one way to decide the conflicts about rows leaves it."""

    plans: dict[TableKey, RowPlan]
    copied: dict[TableKey, Copied] = field(default_factory=dict)


@dataclass(slots=True)
class MergeJob:
    """One merge. Not thread-safe; used once."""

    given: MergeInput
    engine: WorkerChoice
    store: TableStore
    objects: ControlObjects
    #: Called with every write when it is staged: of two to one table, the second takes the place of the first.
    on_staged: Callable[[TablePin, StagedWrite], None]
    #: Whether every node needs the edges that the schema asks for, also where it never had one.
    checks_minimum: bool = False
    conflicts: Conflicts = field(default_factory=Conflicts)
    plans: dict[TableKey, RowPlan] = field(default_factory=dict)
    #: Tables of the target that the result depends on; those that are written are among them.
    read: set[TableKey] = field(default_factory=set)
    _scratch: Scratch = field(init=False)
    _result: _Image = field(init=False)

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
        undecided: list[tuple[NodeDef | EdgeDef, RowPlan, dict[str, Table]]] = []
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
            if plan.conflict_total:
                undecided.append((definition, plan, states))
        shares = fair_shares([len(plan.conflicts) for _, plan, _ in undecided], MAX_CONFLICTS)
        for (definition, plan, states), share in zip(undecided, shares, strict=True):
            self._add_row_conflicts(definition, plan, states, share)
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

    def _add_row_conflicts(
        self, definition: NodeDef | EdgeDef, plan: RowPlan, states: Mapping[str, Table], share: int
    ) -> None:
        shown = plan.conflicts[:share]
        ids = [item.entity_id for item in shown]
        images = {
            "base": self._base_images(definition, shown, states),
            "ours": _images_of(states[TARGET], definition, ids),
            "theirs": _images_of(states[SOURCE], definition, ids),
        }
        found: dict[object, MergeConflict] = {}
        for item in shown:
            kind, entity_id = CONFLICTS[Choice(item.choice)], item.entity_id
            found[entity_id] = MergeConflict(
                kind=kind,
                type_key=definition.table_key,
                entity_id=entity_id,
                message=_sentence(kind, definition.name, entity_id, images),
                base=images["base"].get(entity_id),
                ours=images["ours"].get(entity_id),
                theirs=images["theirs"].get(entity_id),
            )
        self.conflicts.add((definition.table_key, _ROWS), found, plan.conflict_total)

    def _base_images(
        self, definition: NodeDef | EdgeDef, shown: Sequence[PlannedConflict], states: Mapping[str, Table]
    ) -> dict[str, RowImage]:
        images: dict[str, RowImage] = {}
        for place, commit in enumerate(self.given.base.commits):
            held = [item.entity_id for item in shown if item.holder == place]
            if held:
                images |= _images_of(states[commit], definition, held)
        return images

    # ---- the result: staged, then checked

    def stage(self, open_table: Callable[[TablePin], Table]) -> None:
        """Write the rows that the target takes over; `check` looks at them."""
        self._result = _Image(self.plans)
        self._stage(self._result, open_table)

    def check(self) -> None:
        """Check the rules of the schema on the merged result; violations are added to `conflicts`."""
        self._check(self._result, self.conflicts)

    def check_both(self, open_table: Callable[[TablePin], Table]) -> None:
        """Check the rules on what either strategy would make of the conflicts about rows, which hide nothing this way.

        What both copy is copied once.
        """
        ours = _Image(self.plans)
        theirs = _Image({key: plan.with_contested() for key, plan in self.plans.items()})
        found = Conflicts(), Conflicts()
        for image, conflicts, before in ((ours, found[0], {}), (theirs, found[1], ours.copied)):
            self._stage(image, open_table, before)
            self._check(image, conflicts)
        self.conflicts.add_either(*found)

    def _stage(
        self, image: _Image, open_table: Callable[[TablePin], Table], before: Mapping[TableKey, Copied] | None = None
    ) -> None:
        for key, plan in image.plans.items():
            if not plan.parts:
                continue
            known = None if before is None else before.get(key)
            if known is not None and plan.contested is None:
                image.copied[key] = known
                continue
            pin = self.given.target.pins[key]
            copy = CopyPlan(
                key=key,
                source=self._open(self.given.source.pins[key]),
                # The fork of a target that writes to a type for the first time has the same rows and row ids.
                target=open_table(pin),
                rows=plan,
                rules=self.given.rules[key].values,
                before=known,
            )
            engine = self.engine.for_rows(plan.count())
            copied = stage_copy(copy, engine, self._scratch, self.store.location)
            image.copied[key] = copied
            self.on_staged(pin, copied.staged)
        reach(Failpoint.MERGE_STAGED)

    def _check(self, image: _Image, conflicts: Conflicts) -> None:
        kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
        for key, copied in image.copied.items():
            found: dict[object, MergeConflict] = {
                text: MergeConflict(kind=kind, type_key=key, message=text) for text in copied.violations
            }
            conflicts.add((key, kind), found, copied.violation_total)
        privates: list[PrivateVersion] = []
        try:
            images: dict[TableKey, Image] = {}
            for key, copied in image.copied.items():
                private = open_private(self._simple_image(image, key) or copied.staged)
                privates.append(private)
                images[key] = Image(
                    table=private.table,
                    new=private.new_fragments,
                    removed_ids=image.plans[key].deleted_ids,
                    old_sources=self._old_sources(image.plans[key], key),
                )
            engine = self.engine.for_rows(sum(plan.count() for plan in image.plans.values()))
            changes = TableChanges(images=images, joins=engine.joins, untouched=self._untouched)
            rules = without_minimum(self.given.rules) if self.checks_minimum else self.given.rules
            found_violations = [*check(rules, changes)]
            if self.checks_minimum:

                def table_of(key: TableKey) -> Table:
                    return (images.get(key) or self._untouched(key)).table

                folder = self._scratch.folder(engine.workers)
                found_violations += find_outside(self.given.rules, table_of, engine, folder)
            for violation in found_violations:
                conflicts.add((violation.key, _group_of(violation)), _conflicts_of(violation), violation.total)
        finally:
            for private in privates:
                close_private(private, self.objects)
        reach(Failpoint.MERGE_CHECKED)

    def _untouched(self, key: TableKey) -> Image:
        self.read.add(key)
        return Image(table=self._open(self.given.target.pins[key]))

    def _simple_image(self, image: _Image, key: TableKey) -> StagedWrite | None:
        """The new rows behind the old ones, where no rule would notice that replaced rows are still there.

        Lance needs about a second per twenty million rows to make a version in which rows keep their ids; once, for
        the commit, is enough.
        """
        rules = self.given.rules[key]
        tables = (key, *(end.node for end in rules.ends))
        loses_rows = (image.plans[k].count(Action.DELETE) for k in tables if k in image.plans)
        if rules.uniques or rules.per_source is not None or any(loses_rows):
            return None
        copied = image.copied[key]
        return stage_fragments(copied.staged.table, copied.fragments)

    def _old_sources(self, plan: RowPlan, key: TableKey) -> Sequence[str]:
        if self.given.rules[key].per_source is None:
            return ()
        target = self._open(self.given.target.pins[key])
        return lost_sources(target, plan, self.engine.for_rows(plan.count()), self._scratch)


def _group_of(violation: Violation) -> str:
    # An edge that lacks both ends is one conflict.
    return ConflictKind.ORPHAN_EDGE if isinstance(violation.rule, End) else rule_name(violation.rule)


def _conflicts_of(violation: Violation) -> dict[object, MergeConflict]:
    """The examples of a violation as conflicts, by what they are about."""
    found: dict[object, MergeConflict] = {}
    for example, text in zip(violation.examples, violation.texts, strict=True):
        # Which of two rows with the same value is new depends on how conflicts about rows are decided.
        what = example.ids[0] if isinstance(violation.rule, End) else (str(example.value), frozenset(example.ids))
        found[what] = MergeConflict(
            kind=_KINDS[type(violation.rule)],
            type_key=violation.key,
            message=text,
            entity_id=example.ids[0] if example.ids else None,
        )
    return found


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
