"""Repairs datasets that moved without the manifest, doubled commits, and edges without their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from omnigraph.codec import HIDDEN, Document, Key
from omnigraph.commit.environment import GraphEnvironment, NewCommit
from omnigraph.commit.expectations import Expectations, NothingFollows
from omnigraph.commit.lineage import doubled
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.sweep import is_late_movement, settled_window, undo_late_writers
from omnigraph.commit.targets import open_pin, pin_of
from omnigraph.commit.transaction import Transaction
from omnigraph.core.arrow import Array
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import StorageError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog, EdgeDef
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.row_changes import Movement, has_same_rows, movements
from omnigraph.storage.datasets.tables import Table

# ---- Edges whose ends do not exist: found in two streams per type, in memory that follows the nodes of one part
#      at a time
#
# No write makes such an edge. Damage does, and releases that let a writer publish after it had lost the commit lock.


#: Nodes whose ids are in memory at once, at eight bytes each.
NODES_AT_ONCE = 32_000_000
MAX_EXAMPLES = 5


@frozen(kw_only=True)
class DanglingEdges(Document):
    """The edges of one type on one branch that lack an end."""

    branch: str
    type_key: TableKey
    count: int
    #: Ids of some of them.
    examples: tuple[str, ...]
    #: Where their rows are in the published version of the type; read only.
    addresses: Annotated[NDArray[np.uint64], HIDDEN]


@frozen(kw_only=True)
class UncheckedEdges:
    """A type of edges that cannot be read, or whose nodes cannot."""

    branch: str
    type_key: TableKey
    error: StorageError


def find_dangling(
    head: Head, catalog: Catalog, open_pin: Callable[[TablePin], Table], passed: set[tuple[object, ...]] | None = None
) -> Iterator[DanglingEdges | UncheckedEdges]:
    """The dangling edges of a branch, type by type; what is in `passed` was looked at on another branch."""
    passed = set() if passed is None else passed
    for edge in catalog.edges.values():
        pin = head.pins.get(TableKey(edge.table_key))
        sources, targets = (head.pins.get(TableKey(f"node:{end}")) for end in (edge.source, edge.target))
        if pin is None or sources is None or targets is None or not pin.row_count:
            continue
        key = tuple((item.location, item.branch, item.version) for item in (pin, sources, targets))
        if key in passed:
            continue
        try:
            found = _dangling_of(edge, head.branch, open_pin(pin), open_pin(sources), open_pin(targets))
        except StorageError as error:
            yield UncheckedEdges(branch=head.branch, type_key=TableKey(edge.table_key), error=error)
            continue
        if found is None:
            passed.add(key)
        else:
            yield found


def _dangling_of(edge: EdgeDef, branch: str, edges: Table, sources: Table, targets: Table) -> DanglingEdges | None:
    addresses = np.unique(np.concatenate([_without_end(edges, "src", sources), _without_end(edges, "dst", targets)]))
    if not len(addresses):
        return None
    return DanglingEdges(
        branch=branch,
        type_key=TableKey(edge.table_key),
        count=len(addresses),
        examples=_ids_at(edges, addresses[:MAX_EXAMPLES]),
        addresses=addresses,
    )


def _without_end(edges: Table, column: str, nodes: Table) -> NDArray[np.uint64]:
    """The addresses of the edges whose end is not among the nodes."""
    parts = -(-nodes.row_count // NODES_AT_ONCE) or 1
    found = [np.empty(0, np.uint64)]
    for part in range(parts):
        known = _hashes_of(nodes, part, parts)
        for batch in edges.scan([column, "_rowaddr"]):
            ends = _hashes(batch.column(column))
            own = ends % parts == part
            missing = own & ~_contains(known, ends)
            found.append(batch.column("_rowaddr").to_numpy()[missing])
    return np.concatenate(found)


def _hashes_of(nodes: Table, part: int, parts: int) -> NDArray[np.int64]:
    found = [np.empty(0, np.int64)]
    for batch in nodes.scan(["id"]):
        hashes = _hashes(batch.column("id"))
        found.append(hashes[hashes % parts == part])
    return np.sort(np.concatenate(found))


def _hashes(ids: Array) -> NDArray[np.int64]:
    # Python's own hash of texts: 64 bits that nothing outside of this process can aim at. An id without its hash is
    # missing; that a missing one is taken for another happens once in 10^12 looks at a million nodes.
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


def _contains(known: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.equal(known[places], wanted)


def _ids_at(edges: Table, addresses: NDArray[np.uint64]) -> tuple[str, ...]:
    found: list[str] = []
    for batch in edges.scan(["id", "_rowaddr"]):
        chosen = np.isin(batch.column("_rowaddr").to_numpy(), addresses)
        if chosen.any():
            found += np.array(batch.column("id").to_pylist(), object)[chosen].tolist()
        if len(found) >= len(addresses):
            break
    return tuple(sorted(found))


# ---- Healing what no interrupted write explains: commits that are in the manifest twice, and edges without their
#      ends
#
# Both were possible on object stores in releases that let a writer publish after it had lost the commit lock.


def heal_history(environment: GraphEnvironment, *, confirm: bool) -> tuple[str, ...]:
    """Keep of every doubled commit the row that was published first; the ids. Runs inside the window."""
    found = doubled(environment.manifest.commit_rows())
    if found and confirm:
        environment.manifest.restore_commits(found.values(), tenure=environment.tenure)
    return tuple(sorted(found))


def dangling_edges(
    environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema]
) -> tuple[tuple[DanglingEdges, ...], tuple[UncheckedEdges, ...]]:
    """The edges without their ends at the heads of all branches, and types that cannot be read. Takes no lock."""
    passed: set[tuple[object, ...]] = set()
    found: list[DanglingEdges | UncheckedEdges] = []
    for _, head in sorted(environment.manifest.state().heads.items()):
        catalog = schema_of(head.schema_hash).catalog
        found += find_dangling(head, catalog, lambda pin: open_pin(environment.tables, pin), passed)
    return (
        tuple(item for item in found if isinstance(item, DanglingEdges)),
        tuple(item for item in found if isinstance(item, UncheckedEdges)),
    )


def remove_dangling(
    environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema], actor: str | None
) -> list[GraphCommit]:
    """Remove edges without their ends, in one commit per branch."""
    commits = []
    with settled_window(environment) as held:
        for _, head in sorted(held.manifest.state().heads.items()):
            catalog = schema_of(head.schema_hash).catalog
            looked = find_dangling(head, catalog, lambda pin: open_pin(held.tables, pin))
            found = [item for item in looked if isinstance(item, DanglingEdges)]
            if found:
                commits.append(_remove(held, head, found, actor))
    return commits


def _remove(environment: GraphEnvironment, head: Head, found: list[DanglingEdges], actor: str | None) -> GraphCommit:
    def prepare(transaction: Transaction) -> GraphCommit:
        transaction.require(NothingFollows(head.commit_id))
        with environment.staging.shared():
            for item in found:
                pin = head.pins[item.type_key]
                table = transaction.open_for_writing(pin)
                transaction.stage(pin, stage_delete(table, item.addresses.tolist()))
            return transaction.commit()

    return Transaction(environment, head.branch, kind=WriterKind.REPAIR, actor=actor).run(prepare)


# ---- Repair: datasets that moved without a commit and without a sidecar that explains it, damaged history, torn
#      edges
#
# What only rearranged a dataset may be published. What changed rows never went through the rules of the schema, and
# is published only by force. What a writer of omnigraph did after it had lost the commit lock is undone.


#: The kind of a commit that published changed rows by force.
REPAIR_KIND = "repair"


class Drift(StrEnum):
    """Why the HEAD of a dataset is not where the manifest says."""

    NO_DRIFT = "no_drift"
    #: Every version since rearranged fragments or indexes, and every row is as it was.
    VERIFIED_MAINTENANCE = "verified_maintenance"
    #: A writer that had lost the commit lock moved it; the next write to the type undoes it as well.
    LATE_WRITER = "late_writer"
    #: Something changed rows, or may have.
    SUSPICIOUS = "suspicious"
    #: The history that would tell is gone, or HEAD is behind the manifest.
    UNVERIFIABLE = "unverifiable"


class RepairAction(StrEnum):
    """What a run did about one dataset."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@frozen(kw_only=True)
class RepairedTable(Document):
    """One dataset: where the manifest says it is, where it is, why, and what was done."""

    type_key: str
    branch: str
    published_dataset_version: int
    #: None when the dataset cannot be opened.
    lance_head_version: int | None
    classification: Drift
    action: RepairAction
    #: What a person should know or do; empty when all is well.
    advice: str = ""


@frozen(kw_only=True)
class RepairReport(Document):
    """The outcome of a run: every dataset that some branch writes to, other damage, and the commits that healed it."""

    tables: Annotated[tuple[RepairedTable, ...], Key("datasets")]
    #: Commits that are, or were, in the manifest more than once.
    doubled_commits: tuple[str, ...] = ()
    #: Edges that lack, or lacked, an end.
    dangling_edges: tuple[DanglingEdges, ...] = ()
    commits: tuple[GraphCommit, ...]
    #: Whether damage was healed rather than only looked at.
    is_confirmed: Annotated[bool, HIDDEN] = False

    @property
    def has_refused(self) -> bool:
        """Whether drift was left although a repair was asked for."""
        return any(table.action is RepairAction.REFUSED for table in self.tables)


# ---- decisions


def classify_drift(
    pin: int, head: int | None, moved: Sequence[Movement], *, has_same_rows: bool, is_own: bool = False
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
    """What to do about a dataset; `can_publish` says that its HEAD is ahead of the manifest."""
    if drift is Drift.NO_DRIFT:
        return RepairAction.NO_OP
    if not confirm:
        return RepairAction.PREVIEW
    if drift in (Drift.VERIFIED_MAINTENANCE, Drift.LATE_WRITER):
        return RepairAction.HEALED
    return RepairAction.FORCED if force and can_publish else RepairAction.REFUSED


# ---- the shell


@frozen
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

    Datasets are looked at inside the commit window: outside of it a HEAD ahead of the manifest may be a living writer.

    Raises:
        RecoveryRequiredError: a sidecar cannot be settled; it has to go first.
    """
    with settled_window(environment) as held:
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


def _look(environment: GraphEnvironment, head: Head, pin: TablePin, *, confirm: bool, force: bool) -> _Found:
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
        return "HEAD is behind the manifest: the dataset is damaged, restore it from a copy"
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
    # What cannot be opened is neither healed nor forced.
    pins = tuple(
        pin_of(item.head, item.pin.table_key, item.pin.incarnation) for item in chosen if item.head is not None
    )
    expectations = Expectations.of(head, touched={item.pin.table_key: item.pin.version for item in chosen})
    commit = NewCommit(
        commit_id=new_ulid(),
        kind=REPAIR_KIND if is_forced else str(WriterKind.OPTIMIZE),
        operation_id=new_ulid(),
        actor=actor,
    )
    return environment.publish(expectations, Changes(pins=pins), commit)
