"""Repair: datasets that moved without a commit and without a sidecar that explains it, damaged history, torn edges.

What only rearranged a dataset may be published. What changed rows never went through the rules of the schema, and is
published only by force. What a writer of omnigraph did after it had lost the commit lock is undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.graph.healing import dangling_edges, heal_history, remove_dangling
from omnigraph.ids import new_ulid
from omnigraph.manifest.expectations import Expectations
from omnigraph.manifest.pins import open_pin
from omnigraph.manifest.publisher import Changes
from omnigraph.manifest.rows import GraphCommit, TablePin
from omnigraph.recovery.environment import NewCommit
from omnigraph.recovery.late_writers import is_late_movement, undo_late_writers
from omnigraph.recovery.sidecar import WriterKind
from omnigraph.recovery.sweep import settle_all
from omnigraph.storage.drift import Movement, has_same_rows, movements
from omnigraph.wire.commits import commit_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omnigraph.graph.dangling import DanglingEdges
    from omnigraph.graph.schemas import GraphSchema
    from omnigraph.manifest.rows import Head
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.tables import Table

#: The kind of a commit that published changed rows by force.
REPAIR_KIND = "repair"


class Drift(StrEnum):
    """Why the HEAD of a dataset is not where the catalog says."""

    NO_DRIFT = "no_drift"
    #: Every version since rearranged fragments or indexes, and every row is as it was.
    VERIFIED_MAINTENANCE = "verified_maintenance"
    #: A writer that had lost the commit lock moved it; the next write to the type undoes it as well.
    LATE_WRITER = "late_writer"
    #: Something changed rows, or may have.
    SUSPICIOUS = "suspicious"
    #: The history that would tell is gone, or HEAD is behind the catalog.
    UNVERIFIABLE = "unverifiable"


class RepairAction(StrEnum):
    """What a run did about one dataset."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedTable:
    """One dataset: where the catalog says it is, where it is, why, and what was done."""

    type_key: str
    branch: str
    published_dataset_version: int
    #: None when the dataset cannot be opened.
    lance_head_version: int | None
    classification: Drift
    action: RepairAction
    #: What a person should know or do; empty when all is well.
    advice: str = ""

    def to_json(self) -> dict[str, object]:
        """The dataset as `repair --json` prints it."""
        return {
            "type_key": self.type_key,
            "branch": self.branch,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "classification": str(self.classification),
            "action": str(self.action),
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The outcome of a run: every dataset that some branch writes to, other damage, and the commits that healed it."""

    tables: tuple[RepairedTable, ...]
    commits: tuple[GraphCommit, ...]
    #: Commits that are, or were, in the catalog more than once.
    doubled_commits: tuple[str, ...] = ()
    #: Edges that lack, or lacked, an end.
    dangling_edges: tuple[DanglingEdges, ...] = ()
    #: Whether damage was healed rather than only looked at.
    is_confirmed: bool = False

    @property
    def has_refused(self) -> bool:
        """Whether drift was left although a repair was asked for."""
        return any(table.action is RepairAction.REFUSED for table in self.tables)

    def to_json(self) -> dict[str, object]:
        """The report as `repair --json` prints it."""
        return {
            "datasets": [table.to_json() for table in self.tables],
            "doubled_commits": list(self.doubled_commits),
            "dangling_edges": [item.to_json() for item in self.dangling_edges],
            "commits": [commit_json(commit) for commit in self.commits],
        }


# ---- decisions


def classify_drift(
    pin: int,
    head: int | None,
    moved: Sequence[Movement],
    *,
    has_same_rows: bool,
    is_own: bool = False,
) -> Drift:
    """Why a dataset is where it is, from what every version since the published one did, and who made them."""
    if head == pin:
        return Drift.NO_DRIFT
    if is_own:
        return Drift.LATE_WRITER
    if head is None or head < pin or Movement.UNKNOWN in moved:
        return Drift.UNVERIFIABLE
    if Movement.OTHER in moved or not has_same_rows:
        return Drift.SUSPICIOUS
    return Drift.VERIFIED_MAINTENANCE


def decide_repair(drift: Drift, *, can_publish: bool, confirm: bool, force: bool) -> RepairAction:
    """What to do about a dataset; `can_publish` says that its HEAD is ahead of the catalog."""
    if drift is Drift.NO_DRIFT:
        return RepairAction.NO_OP
    if not confirm:
        return RepairAction.PREVIEW
    if drift in (Drift.VERIFIED_MAINTENANCE, Drift.LATE_WRITER):
        return RepairAction.HEALED
    return RepairAction.FORCED if force and can_publish else RepairAction.REFUSED


# ---- the shell


@dataclass(frozen=True, slots=True)
class _Found:
    report: RepairedTable
    pin: TablePin
    head: Table | None


def repair_graph(
    environment: GraphEnvironment,
    schema_of: Callable[[str], GraphSchema],
    *,
    confirm: bool,
    force: bool,
    actor: str | None,
) -> RepairReport:
    """Look at every dataset that a branch writes to, and publish what may be published; then at history and edges.

    Datasets are looked at inside the commit window: outside of it a HEAD ahead of the catalog may be a living writer.

    Raises:
        RecoveryRequiredError: a sidecar cannot be settled; it has to go first.
    """
    with environment.window() as held:
        settle_all(held)
        # First: what follows looks at the history.
        twice = heal_history(held, confirm=confirm)
        tables: list[RepairedTable] = []
        commits = []
        for _, head in sorted(held.manifest.state().heads.items()):
            own = [pin for _, pin in sorted(head.pins.items()) if pin.branch == head.fork_name]
            found = [_look(held, head, pin, confirm=confirm, force=force) for pin in own]
            tables += [item.report for item in found]
            late = [item for item in found if item.report.classification is Drift.LATE_WRITER]
            rest = [item for item in found if item not in late]
            healed = [_publish(held, head, rest, actor)]
            if confirm and late:
                keys = [item.pin.table_key for item in late]
                healed.append(undo_late_writers(held, head.branch, keys))
            commits += [commit for commit in healed if commit is not None]
    # Outside of the window: it reads every edge.
    dangling, _ = dangling_edges(environment, schema_of)
    if dangling and confirm:
        commits += remove_dangling(environment, schema_of, actor)
    return RepairReport(
        tables=tuple(tables),
        commits=tuple(commits),
        doubled_commits=twice,
        dangling_edges=dangling,
        is_confirmed=confirm,
    )


def _look(
    environment: GraphEnvironment, head: Head, pin: TablePin, *, confirm: bool, force: bool
) -> _Found:
    table = _open_head(environment, pin)
    version = None if table is None else table.version
    moved: list[Movement] = []
    same = False
    is_own = table is not None and is_late_movement(table, pin)
    if table is not None and table.version > pin.version and not is_own:
        moved = movements(table, pin.version)
        same = Movement.UNKNOWN not in moved and _same(environment, pin, table)
    drift = classify_drift(pin.version, version, moved, has_same_rows=same, is_own=is_own)
    can_publish = version is not None and version > pin.version
    action = decide_repair(drift, can_publish=can_publish, confirm=confirm, force=force)
    report = RepairedTable(
        type_key=pin.table_key,
        branch=head.branch,
        published_dataset_version=pin.version,
        lance_head_version=version,
        classification=drift,
        action=action,
        advice=_advice(drift, action, can_publish=can_publish),
    )
    return _Found(report, pin, table)


def _open_head(environment: GraphEnvironment, pin: TablePin) -> Table | None:
    try:
        return environment.tables.open(pin.location, pin.branch)
    except StorageError:
        # A dataset that cannot be opened is a finding, not a failure of the search.
        return None


def _same(environment: GraphEnvironment, pin: TablePin, table: Table) -> bool:
    try:
        return has_same_rows(open_pin(environment.tables, pin), table)
    except StorageError:
        # What cannot be compared is not known to be the same.
        return False


def _advice(drift: Drift, action: RepairAction, *, can_publish: bool) -> str:
    if drift is Drift.NO_DRIFT or action in (RepairAction.HEALED, RepairAction.FORCED):
        return ""
    if not can_publish:
        return "HEAD is behind the catalog: the dataset is damaged, restore it from a copy"
    if drift is Drift.VERIFIED_MAINTENANCE:
        return "no row changed: publish it with --confirm"
    if drift is Drift.LATE_WRITER:
        return "a writer that had lost the commit lock moved it: undo it with --confirm, or with the next write to it"
    what = "rows may have changed" if drift is Drift.SUSPICIOUS else "its history is incomplete"
    return f"{what} outside of omnigraph: look at it, then publish it with --confirm --force"


def _publish(
    environment: GraphEnvironment, head: Head, found: Sequence[_Found], actor: str | None
) -> GraphCommit | None:
    """Publish the HEADs of one branch that may be; one commit, or none."""
    published = (RepairAction.HEALED, RepairAction.FORCED)
    chosen = [item for item in found if item.report.action in published]
    if not chosen:
        return None
    is_forced = any(item.report.action is RepairAction.FORCED for item in chosen)
    pins = tuple(_pin(item) for item in chosen)
    expectations = Expectations(
        branch=head.branch,
        incarnation=head.incarnation,
        schema_hash=head.schema_hash,
        touched={item.pin.table_key: item.pin.version for item in chosen},
    )
    commit = NewCommit(
        commit_id=new_ulid(),
        kind=REPAIR_KIND if is_forced else str(WriterKind.OPTIMIZE),
        operation_id=new_ulid(),
        actor=actor,
    )
    return environment.publish(expectations, Changes(pins=pins), commit)


def _pin(item: _Found) -> TablePin:
    assert item.head is not None, "only what can be opened is published"
    return TablePin(
        table_key=item.pin.table_key,
        incarnation=item.pin.incarnation,
        location=item.pin.location,
        branch=item.pin.branch,
        version=item.head.version,
        row_count=item.head.count_rows(),
    )
