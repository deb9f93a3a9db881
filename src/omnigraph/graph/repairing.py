"""Repair: datasets that moved behind the back of the catalog, which no sidecar explains.

What only rearranged a dataset may be published. What changed rows never went through the rules of the schema, and is
published only by force.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid
from omnigraph.manifest import Changes, Expectations, GraphCommit, TablePin, open_pin
from omnigraph.recovery import WriterKind, settle_all
from omnigraph.storage.drift import Movement, has_same_rows, movements
from omnigraph.wire import commit_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.manifest import Head
    from omnigraph.recovery import GraphEnvironment
    from omnigraph.storage import Table

#: The kind of a commit that published changed rows by force.
REPAIR_KIND = "repair"


class Drift(StrEnum):
    """Why the HEAD of a dataset is not where the catalog says."""

    NO_DRIFT = "no_drift"
    #: Every version since rearranged fragments or indexes, and every row is as it was.
    VERIFIED_MAINTENANCE = "verified_maintenance"
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
    """The outcome of a run: every dataset that some branch writes to, and the commits, one per branch at most."""

    tables: tuple[RepairedTable, ...]
    commits: tuple[GraphCommit, ...]

    @property
    def has_refused(self) -> bool:
        """Whether drift was left although a repair was asked for."""
        return any(table.action is RepairAction.REFUSED for table in self.tables)

    def to_json(self) -> dict[str, object]:
        """The report as `repair --json` prints it."""
        return {
            "datasets": [table.to_json() for table in self.tables],
            "commits": [commit_json(commit) for commit in self.commits],
        }


# ---- decisions


def classify_drift(
    pin: int, head: int | None, moved: Sequence[Movement], *, has_same_rows: bool
) -> Drift:
    """Why a dataset is where it is, from what every version since the published one did."""
    if head == pin:
        return Drift.NO_DRIFT
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
    if drift is Drift.VERIFIED_MAINTENANCE:
        return RepairAction.HEALED
    return RepairAction.FORCED if force and can_publish else RepairAction.REFUSED


# ---- the shell


@dataclass(frozen=True, slots=True)
class _Found:
    report: RepairedTable
    pin: TablePin
    head: Table | None


def repair_graph(
    environment: GraphEnvironment, *, confirm: bool, force: bool, actor: str | None
) -> RepairReport:
    """Look at every dataset that a branch writes to, and publish what may be published.

    Everything happens inside the commit window: outside of it a HEAD ahead of the catalog may be a living writer.

    Raises:
        RecoveryRequiredError: a sidecar cannot be settled; it has to go first.
    """
    with environment.window() as held:
        settle_all(held)
        tables: list[RepairedTable] = []
        commits = []
        for _, head in sorted(held.manifest.state().heads.items()):
            own = [pin for _, pin in sorted(head.pins.items()) if pin.branch == head.fork_name]
            found = [_look(held, head, pin, confirm=confirm, force=force) for pin in own]
            tables += [item.report for item in found]
            commit = _publish(held, head, found, actor)
            if commit is not None:
                commits.append(commit)
    return RepairReport(tables=tuple(tables), commits=tuple(commits))


def _look(
    environment: GraphEnvironment, head: Head, pin: TablePin, *, confirm: bool, force: bool
) -> _Found:
    table = _open_head(environment, pin)
    version = None if table is None else table.version
    moved: list[Movement] = []
    same = False
    if table is not None and table.version > pin.version:
        moved = movements(table, pin.version)
        same = Movement.UNKNOWN not in moved and _same(environment, pin, table)
    drift = classify_drift(pin.version, version, moved, has_same_rows=same)
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
    kind = REPAIR_KIND if is_forced else str(WriterKind.OPTIMIZE)
    pins = tuple(_pin(item) for item in chosen)

    def make_commit(current: Head, graph_version: int) -> GraphCommit:
        return GraphCommit(
            commit_id=new_ulid(),
            graph_version=graph_version,
            branch=current.branch,
            parent_id=current.commit_id,
            created_at=environment.clock(),
            kind=kind,
            operation_id=new_ulid(),
            schema_hash=current.schema_hash,
            actor=actor,
            tables=tuple(pin.table_key for pin in pins),
        )

    expectations = Expectations(
        branch=head.branch,
        incarnation=head.incarnation,
        schema_hash=head.schema_hash,
        touched={item.pin.table_key: item.pin.version for item in chosen},
    )
    return environment.manifest.publish(expectations, Changes(pins=pins), make_commit)


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
