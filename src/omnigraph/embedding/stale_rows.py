"""Rows that need a vector, and the reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.commit.expectations import PHYSICAL_KINDS
from omnigraph.commit.lineage import first_parents
from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.commit.snapshot import History, Snapshot, branch_of
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.core.arrow import Batch, has_text, pc
from omnigraph.core.ids import TableKey
from omnigraph.core.types import VectorType
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.accepted import Identities
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, TypeKind
from omnigraph.pipeline.compare import DELETED, UPDATED, RowShape
from omnigraph.pipeline.deltas import Delta, delta_between
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.storage.datasets.filters import ROW_ID, Filter, IsNull, OneOf
from omnigraph.storage.datasets.reads import scan_rows
from omnigraph.storage.datasets.row_changes import differing_rows
from omnigraph.storage.datasets.tables import Table, TableStore

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- Rows whose text changed after their vector
#
# The commits of a branch are looked at from its head backwards, until one that embedded. Per commit only rows that
# differ from the state before are compared. An id whose vector changed in a later commit is decided; so is one that
# was deleted, because whatever came before belongs to another entity. An id whose text changed while its vector did
# not, and that is not decided, is outdated. Inserts decide nothing: an older entity of the same id was deleted in
# between.


EMBED_KIND = "embed"
#: Changes of the schema rename, add and drop columns; texts and vectors that go on keep their values.
UNCHANGING_KINDS = PHYSICAL_KINDS | {"schema_apply"}


@frozen(kw_only=True)
class VectorColumn:
    """A vector and the text that it stands for, in a table at the head of a branch."""

    pin: TablePin
    #: The names of text and vector under a schema, by its hash; None when it does not have both.
    names_at: Callable[[str], tuple[str, str] | None]


@dataclass(slots=True)
class Outdated:
    """The outdated rows that the history shows."""

    ids: set[str] = field(default_factory=set)
    #: The commit before which nothing could be checked, because its versions were cleaned up.
    checked_since: str | None = None


@frozen
class CommitDelta:
    """The changes of one commit in the rows of a type. Ids are of rows in both states, unless it says so."""

    changed_texts: frozenset[str]
    changed_vectors: frozenset[str]
    deleted: frozenset[str]


def decide(deltas: Iterable[CommitDelta], within: frozenset[str] | None = None) -> set[str]:
    """Outdated ids, or those of them `within` some, from the deltas of commits, newest first.

    >>> newest = CommitDelta(frozenset({"a"}), frozenset({"b"}), frozenset())
    >>> older = CommitDelta(frozenset({"a", "b", "c"}), frozenset({"c"}), frozenset())
    >>> decide([newest, older])
    {'a'}
    """
    outdated: set[str] = set()
    decided: set[str] = set()
    for delta in deltas:
        found = delta.changed_texts - delta.changed_vectors - decided
        outdated |= found if within is None else found & within
        decided |= delta.changed_vectors | delta.deleted | found
        if within is not None and within <= decided:
            break
    return outdated


class OutdatedRows:
    """Finds outdated rows of one column."""

    def __init__(self, history: History, store: TableStore, engine: WorkerChoice, column: VectorColumn) -> None:
        self._history = history
        self._store = store
        self._engine = engine
        self._column = column
        self._place = ScratchPlace(root=store.location, is_writer=True)
        self._pins: dict[str, tuple[list[int], list[TablePin]]] = {}

    def find(self, head: str) -> Outdated:
        """Outdated ids at a commit."""
        found = Outdated()
        found.ids = self._walk(head, None, found)
        return found

    def _walk(self, head: str, within: frozenset[str] | None, found: Outdated) -> set[str]:
        merged: set[str] = set()
        seen: set[str] = set()

        def deltas() -> Iterable[CommitDelta]:
            for commit, before, after, names in self._commits(head, found):
                try:
                    delta = self._delta(before, after, names)
                except HistoricalVersionReclaimedError:
                    found.checked_since = commit.commit_id
                    return
                if commit.merged_parent_id is not None:
                    # A vector that came with a merge is as good as it was on the branch that it came from.
                    both = delta.changed_texts & delta.changed_vectors
                    wanted = both if within is None else both & within
                    if wanted and commit.merged_parent_id in self._history.commits:
                        merged.update(self._walk(commit.merged_parent_id, wanted, found) - seen)
                    elif wanted:
                        found.checked_since = commit.commit_id
                seen.update(delta.changed_texts, delta.changed_vectors, delta.deleted)
                yield delta

        return decide(deltas(), within) | merged

    def _commits(self, head: str, found: Outdated) -> Iterable[tuple[GraphCommit, TablePin, TablePin, tuple[str, str]]]:
        """Commits that may have changed rows, newest first, down to the one that embedded last.

        With the versions of the table before and after, and the names of text and vector then.
        """
        commits = self._history.commits
        for commit in first_parents(commits, head):
            names = self._column.names_at(commit.schema_hash)
            after = self._pin_at(commit)
            if names is None or after is None or commit.parent_id is None:
                # There was no such property yet: it began without any value.
                return
            if commit.kind == EMBED_KIND and after.table_key in commit.tables:
                return
            if commit.parent_id not in commits:
                found.checked_since = commit.commit_id
                return
            before = self._pin_at(commits[commit.parent_id])
            if before is None:
                return
            if before != after and commit.kind not in UNCHANGING_KINDS:
                yield commit, before, after, names

    def _delta(self, before: TablePin, after: TablePin, names: tuple[str, str]) -> CommitDelta:
        """The changes of a commit."""
        old, new = open_pin(self._store, before), open_pin(self._store, after)
        with reading_pins(self._store, [before, after]):
            named = differing_rows(old, new, self._engine.small_rows)
            if named is not None and not named[0].row_count:
                return CommitDelta(frozenset(), frozenset(), frozenset())
            with closing(Scratch(self._place)) as scratch:
                texts, vectors = (self._differing(old, new, name, scratch) for name in names)
                return CommitDelta(
                    changed_texts=_ids(texts, UPDATED),
                    changed_vectors=_ids(vectors, UPDATED),
                    deleted=_ids(vectors, DELETED),
                )

    def _differing(self, old: Table, new: Table, column: str, scratch: Scratch) -> Delta:
        shape = RowShape(columns=("id", column), is_edge=False)
        return delta_between(old, new, shape, self._engine, scratch)

    # ---- versions of the table, without a snapshot per commit

    def _pin_at(self, commit: GraphCommit) -> TablePin | None:
        """The version of the table right after a commit; None when there was no table."""
        branch = branch_of(self._history.heads, commit)
        graph_version = commit.graph_version
        while True:
            numbers, pins = self._versions_of(branch.branch_key)
            place = bisect_right(numbers, graph_version)
            if place:
                return pins[place - 1]
            origin = self._history.commits.get(branch.fork_commit_id or "")
            if origin is None:
                return None
            branch, graph_version = branch_of(self._history.heads, origin), origin.graph_version

    def _versions_of(self, branch_key: str) -> tuple[list[int], list[TablePin]]:
        """Versions of the table that a branch published, under whatever name the type had."""
        if branch_key not in self._pins:
            pin = self._column.pin
            published = [
                item
                for item in self._history.versions_by_branch.get(branch_key, ())
                if (item.pin.incarnation, item.pin.location) == (pin.incarnation, pin.location)
            ]
            self._pins[branch_key] = ([item.graph_version for item in published], [item.pin for item in published])
        return self._pins[branch_key]


def _ids(delta: Delta, code: int) -> frozenset[str]:
    """Ids of the rows of one operation."""
    return frozenset(str(text) for rows in delta.only([code]).batches() for text in rows["id"].to_pylist())


# ---- The rows that need a vector


#: Ids that one filter names, and rows of a scan that are in memory.
_PROBED_IDS = 4_096
_SCANNED_ROWS = 8_192


@frozen(kw_only=True)
class EmbedTarget:
    """A `Vector(N) @embed("source")` property."""

    table_key: TableKey
    type_name: str
    property: str
    source: str
    dimension: int
    #: The model that the schema records, if it does.
    model: str | None
    is_nullable: bool
    #: What identifies the type, the text and the vector, whatever they are called.
    type_id: int
    source_id: int
    vector_id: int

    def __str__(self) -> str:
        return f"{self.type_name}.{self.property}"


@frozen(kw_only=True)
class TargetWork:
    """The rows of one property that need a vector at one state. Row ids are sorted."""

    target: EmbedTarget
    missing: NDArray[np.uint64]
    outdated: NDArray[np.uint64]
    #: Rows whose text is gone since their vector was made: it stands for nothing.
    cleared: NDArray[np.uint64]
    #: Such rows of a property that cannot be null.
    kept: int
    #: The commit before which texts that changed could not be recognised; None when all of them were.
    checked_since: str | None

    @property
    def embedded(self) -> NDArray[np.uint64]:
        """Rows that get a vector."""
        return np.union1d(self.missing, self.outdated)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (len(self.missing) or len(self.outdated) or len(self.cleared))


def embed_targets(catalog: Catalog, identities: Identities, types: Iterable[str] | None) -> list[EmbedTarget]:
    """Every property that vectors are made for, of some types or of all."""
    wanted = None if types is None else set(types)
    definitions: list[tuple[TypeKind, NodeDef | EdgeDef]] = [
        *((TypeKind.NODE, item) for item in catalog.nodes.values()),
        *((TypeKind.EDGE, item) for item in catalog.edges.values()),
    ]
    found = []
    for kind, definition in definitions:
        if wanted is not None and definition.name not in wanted:
            continue
        identity = identities.types[kind, definition.name]
        for name, item in definition.properties.items():
            if item.embedding is None or not isinstance(item.type.base, VectorType):
                continue
            found.append(
                EmbedTarget(
                    table_key=definition.table_key,
                    type_name=definition.name,
                    property=name,
                    source=item.embedding.source,
                    dimension=item.type.base.dimension,
                    model=item.embedding.model,
                    is_nullable=item.type.nullable,
                    type_id=identity.type_id,
                    source_id=identity.properties[item.embedding.source],
                    vector_id=identity.properties[name],
                )
            )
    return found


def names_in(identities: Identities, target: EmbedTarget) -> tuple[str, str] | None:
    """The names that the text and the vector of a target have in a schema; None when it does not have both."""
    for identity in identities.types.values():
        if identity.type_id == target.type_id:
            names = {number: name for name, number in identity.properties.items()}
            source, vector = names.get(target.source_id), names.get(target.vector_id)
            return None if source is None or vector is None else (source, vector)
    return None


class WorkFinder:
    """Finds what targets need at one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        history: History,
        store: TableStore,
        engine: WorkerChoice,
        identities_of: Callable[[str], Identities],
    ) -> None:
        self._identities_of = identities_of
        self._snapshot = snapshot
        self._history = history
        self._store = store
        self._engine = engine

    def find(self, target: EmbedTarget, table: Table, pin: TablePin, *, reembed: bool) -> TargetWork:
        """Find the rows that one target needs; with `reembed` every row that has a text."""
        column = VectorColumn(pin=pin, names_at=cache(lambda name: names_in(self._identities_of(name), target)))
        rows = OutdatedRows(self._history, self._store, self._engine, column)
        outdated = rows.find(self._snapshot.commit_id)
        missing, _ = _by_text(_scan(table, target, IsNull(target.property)), target.source)
        stale, gone = _by_text(_of_ids(table, target, outdated), target.source)
        if reembed:
            every, _ = _by_text(_scan(table, target, None), target.source)
            stale = np.setdiff1d(every, missing, assume_unique=True)
        return TargetWork(
            target=target,
            missing=missing,
            outdated=stale,
            cleared=gone if target.is_nullable else gone[:0],
            kept=0 if target.is_nullable else len(gone),
            checked_since=outdated.checked_since,
        )


def _scan(table: Table, target: EmbedTarget, filter_: Filter | None) -> Iterator[Batch]:
    return scan_rows(table, [target.source], filter_, batch_rows=_SCANNED_ROWS)


def _of_ids(table: Table, target: EmbedTarget, outdated: Outdated) -> Iterator[Batch]:
    """The rows of outdated ids that still have a vector."""
    ids = sorted(outdated.ids)
    columns = [target.source, target.property]
    for begin in range(0, len(ids), _PROBED_IDS):
        wanted = OneOf("id", ids[begin : begin + _PROBED_IDS])
        for batch in scan_rows(table, columns, wanted):
            yield batch.filter(pc.is_valid(batch.column(target.property)))


def _by_text(batches: Iterable[Batch], source: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sorted ids of rows that have a text, and of those whose text is null or blank. Holds ids only."""
    nothing = np.empty(0, np.uint64)
    found, blank = [nothing], [nothing]
    for batch in batches:
        is_text = np.asarray(has_text(batch.column(source)))
        row_ids = np.asarray(batch.column(ROW_ID), dtype=np.uint64)
        found.append(row_ids[is_text])
        blank.append(row_ids[~is_text])
    return np.sort(np.concatenate(found)), np.sort(np.concatenate(blank))
