"""Merges two heads into staged writes, and checks the rules on the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.branches.deltas import row_images
from omnigraph.branches.three_way import SOURCE, TARGET, find_row_ids, plan_rows
from omnigraph.branches.truth_table import CONFLICTS, Base, Choice
from omnigraph.commit.documents import TypeChanges
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.core.arrow import pa
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
from omnigraph.pipeline.compare import row_shape
from omnigraph.pipeline.copying import CopyPlan, PlannedConflict, RowPlan, lost_sources, stage_copy
from omnigraph.pipeline.keys import find_keys, joined_text, key_scans, text_key
from omnigraph.pipeline.scratch import Scratch, ScratchPlace
from omnigraph.pipeline.violations import Image
from omnigraph.storage.datasets.fragments import read_addresses
from omnigraph.storage.datasets.staged import (
    PrivateVersion,
    StagedWrite,
    close_private,
    open_private,
    stage_fragments,
)

if TYPE_CHECKING:
    from omnigraph.commit.rows import TablePin
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
    from omnigraph.lang.schema.rules import EdgesPerSource, Endpoints, TableRules, Unique
    from omnigraph.pipeline.joins import Found, Joins
    from omnigraph.pipeline.worker_set import WorkerChoice
    from omnigraph.storage.datasets.tables import Table, TableStore
    from omnigraph.storage.objects import ControlObjects


# ---- Rules of the schema on the result of a merge: two branches that are valid alone may not be valid together
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """One table that the merge writes."""

    image: Image
    #: Ids of the rows that go.
    deleted_ids: Sequence[str] = ()
    #: Sources of edges that go or are replaced.
    old_sources: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChecker:
    """Checks the result of one merge."""

    tables: Mapping[TableKey, MergedTable]
    rules: Mapping[TableKey, TableRules]
    joins: Joins
    #: A table of the target that the merge does not write.
    untouched: Callable[[TableKey], Image]
    conflicts: Conflicts

    def check_all(self) -> None:
        """Check every rule between rows; violations are added to `conflicts`."""
        for key, merged in self.tables.items():
            for unique in self.rules[key].uniques:
                self._check_unique(unique, key, merged.image)
        for key, rules in self.rules.items():
            if rules.endpoints is not None:
                self._check_ends(rules.endpoints, key)
                if rules.per_source is not None and key in self.tables:
                    self._check_cardinality(rules.per_source, rules.endpoints, key)

    # ---- uniqueness

    def _check_unique(self, rule: Unique, key: TableKey, image: Image) -> None:
        if not image.new:
            return
        members = list(zip(rule.members, rule.bases, strict=True))
        new = key_scans(image.table, image.new, members)
        found = [self.joins.duplicated(new)]
        old = key_scans(image.table, image.old, members)
        if old:
            found.append(self.joins.shared(new, old))
        for part in found:
            conflicts = []
            for item in part.examples:
                ids = read_addresses(image.table, "id", item.addresses[:2])
                value = item.key if len(rule.members) == 1 else joined_text(item.key)
                message = f"@unique violation on {rule}: {value!r} belongs to {ids[0]!r} and to {ids[1]!r}"
                conflicts.append(_conflict(ConflictKind.UNIQUE_VIOLATION, key, message, ids[0]))
            self.conflicts.add(conflicts, part.total)

    # ---- edges

    def _check_ends(self, rule: Endpoints, key: TableKey) -> None:
        """Edges that the merge brings need both ends; nodes that it removes must leave no edge behind."""
        broken: dict[str, str] = {}
        unseen = 0
        ends = (("src", rule.source, rule.source_type), ("dst", rule.target, rule.target_type))
        for column, node, type_name in ends:
            if key in self.tables:
                unseen += self._add_dangling(broken, key, column, node, type_name)
            if node in self.tables and self.tables[node].deleted_ids:
                unseen += self._add_left_behind(broken, key, column, node, type_name)
        conflicts = [
            _conflict(
                ConflictKind.ORPHAN_EDGE,
                key,
                f"edge {rule.edge_type} {edge_id!r}: {sentence}",
                edge_id,
            )
            for edge_id, sentence in sorted(broken.items())
        ]
        self.conflicts.add(conflicts, len(conflicts) + unseen)

    def _add_dangling(
        self, broken: dict[str, str], key: TableKey, column: str, node: TableKey, type_name: str
    ) -> int:
        """Add new edges without an end; how many more there are than can be shown."""
        image = self.tables[key].image
        references = image.scans(column, is_new=True)
        if not references:
            return 0
        nodes = self.tables[node].image if node in self.tables else self.untouched(node)
        found = self.joins.missing(references, key_scans(nodes.table, None, text_key("id")))
        return _add_broken(broken, image, found, column, type_name)

    def _add_left_behind(
        self, broken: dict[str, str], key: TableKey, column: str, node: TableKey, type_name: str
    ) -> int:
        """Add edges of the merged result whose end the merge removes; how many more there are than can be shown."""
        image = self.tables[key].image if key in self.tables else self.untouched(key)
        edges = key_scans(image.table, None, text_key(column))
        if not edges:
            return 0
        found = self.joins.named(edges, self.tables[node].deleted_ids)
        return _add_broken(broken, image, found, column, type_name)

    def _check_cardinality(self, rule: EdgesPerSource, ends: Endpoints, key: TableKey) -> None:
        merged = self.tables[key]
        touched = merged.image.scans("src", is_new=True)
        if not touched and not merged.old_sources:
            return
        counted = key_scans(merged.image.table, None, text_key("src"))
        found = self.joins.outside(counted, touched, rule.low, rule.high, merged.old_sources)
        # Edges of a source that does not exist are orphans, and told as such.
        existing = self._existing(ends.source, [item.key for item in found.examples])
        bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"
        conflicts = [
            _conflict(
                ConflictKind.CARDINALITY_VIOLATION,
                key,
                f"@card violation on edge {rule.edge_type}: {item.key!r} has {item.count} edges, "
                f"allowed are {bounds}",
            )
            for item in found.examples
            if item.key in existing
        ]
        hidden = len(found.examples) - len(conflicts)
        self.conflicts.add(conflicts, found.total - hidden)

    def _existing(self, node: TableKey, ids: list[str]) -> set[str]:
        if not ids:
            return set()
        image = self.tables[node].image if node in self.tables else self.untouched(node)
        keys = pa.array(ids, pa.utf8())
        pieces = find_keys(key_scans(image.table, None, text_key("id")), keys, keys)
        return {entity_id for piece in pieces for entity_id in piece["key"].to_pylist()}


def _add_broken(
    broken: dict[str, str], image: Image, found: Found, column: str, type_name: str
) -> int:
    addresses = [item.addresses[0] for item in found.examples]
    ids = read_addresses(image.table, "id", addresses) if addresses else []
    for edge_id, item in zip(ids, found.examples, strict=True):
        broken.setdefault(edge_id, f"{column} {item.key!r} not found in {type_name}")
    return found.total - len(found.examples)


def _conflict(
    kind: ConflictKind, key: TableKey, message: str, entity_id: str | None = None
) -> MergeConflict:
    return MergeConflict(kind=kind, type_key=key, message=message, entity_id=entity_id)


# ---- One merge from two heads to staged writes: plan every type, stage, check the result
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
        """What happens to every type that changes."""
        return tuple(
            TypeChanges(
                type_key=key,
                inserted=plan.inserted,
                updated=plan.updated,
                deleted=plan.deleted,
            )
            for key, plan in sorted(self.plans.items())
            if plan.row_count
        )

    @property
    def changed_rows(self) -> int:
        """How many rows of the target change."""
        return sum(plan.row_count for plan in self.plans.values())

    # ---- planning

    def plan(self) -> None:
        """Decide about every row of every type; row conflicts are added to `conflicts`.

        Raises:
            ReadSetConflictError: a name means different types on the two sides.
            HistoricalVersionReclaimedError: the state where the branches last agreed was cleaned up.
        """
        for definition in self._definitions():
            key = definition.table_key
            states = self._states(key)
            if states is None:
                continue
            shape = row_shape(definition)
            with self._bases_readable(key):
                plan = plan_rows(
                    states,
                    self.given.base,
                    shape,
                    self.engine,
                    strategy=self.given.strategy,
                    scratch=self._scratch,
                )
            self.plans[key] = plan
            self.read.add(key)
            self._add_row_conflicts(definition, plan, states)
        reach(Failpoint.MERGE_PLANNED)

    def _definitions(self) -> Iterator[NodeDef | EdgeDef]:
        yield from self.given.catalog.nodes.values()
        yield from self.given.catalog.edges.values()

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
            commit_id, pin = next(
                item for item in pins.items() if (item[1].table_key, item[1].version) == gone
            )
            message = f"the commit {commit_id} where the branches last agreed cannot be read"
            raise HistoricalVersionReclaimedError(pin.table_key, pin.version, message) from error

    def _add_row_conflicts(
        self, definition: NodeDef | EdgeDef, plan: RowPlan, states: Mapping[str, Table]
    ) -> None:
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
        self,
        definition: NodeDef | EdgeDef,
        shown: Sequence[PlannedConflict],
        states: Mapping[str, Table],
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
            if not plan.row_count:
                continue
            copy = CopyPlan(
                source=self._open(self.given.source.pins[key]),
                # The fork of a target that writes to a type for the first time has the same rows and row ids.
                target=open_for_writing(self.given.target.pins[key]),
                rows=plan,
                rules=self.given.rules[key].values,
            )
            engine = self.engine.for_rows(plan.row_count)
            copied = stage_copy(copy, engine, self._scratch, self.store.location)
            self.writes[key] = copied.staged
            self._fragments[key] = copied.fragments
            violations = [
                MergeConflict(
                    kind=ConflictKind.VALUE_CONSTRAINT_VIOLATION, type_key=key, message=text
                )
                for _, text in copied.violations
            ]
            self.conflicts.add(violations, copied.violation_total)
        reach(Failpoint.MERGE_STAGED)

    # ---- checking

    def check(self) -> None:
        """Check the rules between rows on the merged result; violations are added to `conflicts`."""
        privates: list[PrivateVersion] = []
        try:
            tables: dict[TableKey, MergedTable] = {}
            for key, write in self.writes.items():
                private = open_private(self._simple_image(key) or write)
                privates.append(private)
                tables[key] = MergedTable(
                    image=Image(table=private.table, new=private.new_fragments),
                    deleted_ids=self.plans[key].deleted_ids,
                    old_sources=self._old_sources(key),
                )
            ResultChecker(
                tables=tables,
                rules=self.given.rules,
                joins=self.engine.for_rows(self.changed_rows).joins,
                untouched=self._untouched,
                conflicts=self.conflicts,
            ).check_all()
        finally:
            for private in privates:
                close_private(private, self.objects)
        reach(Failpoint.MERGE_CHECKED)

    def _untouched(self, key: TableKey) -> Image:
        self.read.add(key)
        return Image(table=self._open(self.given.target.pins[key]))

    def _simple_image(self, key: TableKey) -> StagedWrite | None:
        """The new rows behind the old ones, where no rule would notice that replaced rows are still there.

        Lance needs about a second per twenty million rows to make a version in which rows keep their ids; once, for
        the commit, is enough.
        """
        rules = self.given.rules[key]
        ends = () if rules.endpoints is None else (rules.endpoints.source, rules.endpoints.target)
        loses_rows = (self.plans[k].deleted for k in (key, *ends) if k in self.plans)
        if rules.uniques or rules.per_source is not None or any(loses_rows):
            return None
        return stage_fragments(self.writes[key].table, self._fragments[key])

    def _old_sources(self, key: TableKey) -> Sequence[str]:
        if self.given.rules[key].per_source is None:
            return ()
        plan = self.plans[key]
        target = self._open(self.given.target.pins[key])
        return lost_sources(target, plan, self.engine.for_rows(plan.row_count), self._scratch)


def _images_of(table: Table, definition: NodeDef | EdgeDef, ids: list[str]) -> dict[str, RowImage]:
    row_ids = find_row_ids(table, ids)
    images = row_images(table, definition, list(row_ids.values()))
    return {entity_id: images[row] for entity_id, row in row_ids.items() if row in images}


def _sentence(
    kind: ConflictKind,
    type_name: str,
    entity_id: str,
    images: Mapping[str, Mapping[str, RowImage]],
) -> str:
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
