"""Stores, locks, turns of writers and settings of one open graph."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from omnigraph.commit.audit import RecoveryAudit
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.notes import NO_NOTE, Note
from omnigraph.commit.publisher import Changes, Manifest, Position
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.snapshot import ManifestState
from omnigraph.commit.tags import Tag, TagEvent
from omnigraph.core.env_settings import Variable, WholeNumber
from omnigraph.core.ids import fnv1a64
from omnigraph.errors import BadRequestError, LeaseLostError, RetryableCommitConflictError
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.external import DENY_ALL, ExternalPolicy, policy_of
from omnigraph.storage.lease import LEASE_S, LEASE_VARIABLE, LONGEST_LEASE_S, SHORTEST_LEASE_S, Tenure, request_limit_s
from omnigraph.storage.location import BRANCH_CLAIM, COMMIT_LOCK, SCHEMA_CONTRACT, SCHEMA_SOURCE, GraphLocation
from omnigraph.storage.locks import CommitLock, FileCommitLock, LeaseCommitLock, ReadingLock, StagingLock, held_file
from omnigraph.storage.objects import ControlObjects, replace_content

# ---- The environment of a writer


DEFAULT_LOCK_TIMEOUT_S = 60.0


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@frozen(kw_only=True)
class NewCommit:
    """The facts of a commit that its writer decides; the rest follows from its changes and the head."""

    commit_id: str
    kind: str
    operation_id: str
    actor: str | None
    merged_parent_id: str | None = None
    merge_strategy: str | None = None
    note: Note = NO_NOTE
    #: Set by recovery only: for whom it published, and when that writer wrote.
    recovery_for_actor: str | None = None
    written_at: int | None = None
    #: Set by schema changes only: the files that are accepted from now on. Later commits are decoded with them, too.
    schema_files: Mapping[str, bytes] | None = None

    @property
    def schema_texts(self) -> tuple[str | None, str | None]:
        """Source and contract out of the schema files."""
        if self.schema_files is None:
            return None, None
        contract = json.loads(self.schema_files[SCHEMA_CONTRACT])
        return self.schema_files[SCHEMA_SOURCE].decode(), json.dumps(contract, sort_keys=True)


@frozen(kw_only=True)
class GraphEnvironment:
    """The stores, the manifest and the lock of one graph. Thread-safe."""

    location: GraphLocation
    objects: ControlObjects
    tables: TableStore
    manifest: Manifest
    audit: RecoveryAudit
    lock: CommitLock
    staging: StagingLock
    reading: ReadingLock
    durable: bool
    lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S
    #: The length of the leases that this process takes on an object store.
    lease_s: float = LEASE_S
    clock: Callable[[], int] = field(default=now_us)
    #: The time with the commit lock, inside the window only.
    held_tenure: Tenure | None = None

    @contextmanager
    def window(self) -> Iterator[GraphEnvironment]:
        """Hold the commit lock; the environment inside knows that it is held, and enters no second window.

        A holder whose predecessor may still be alive first lets it publish no more: what is read inside the window
        stays true until this holder changes it, or is itself taken over.

        Raises:
            RetryableCommitConflictError: the lock stayed busy.
        """
        if self.held_tenure is not None:
            yield self
            return
        with self.lock.held(self.lock_timeout_s) as tenure:
            held = replace(self, held_tenure=tenure)
            if tenure.needs_fence:
                held.raise_fence()
            yield held

    @contextmanager
    def new_window(self) -> Iterator[GraphEnvironment]:
        """A window of its own for a writer whose tenure is lost, as in the middle of another window."""
        with replace(self, held_tenure=None).window() as held:
            yield held

    @property
    def tenure(self) -> Tenure:
        """The time with the commit lock."""
        assert self.held_tenure is not None, "only inside the window"
        return self.held_tenure

    def raise_fence(self) -> None:
        """Keep earlier holders of the lock from publishing; one look when the fence is up."""
        tenure = self.tenure
        if tenure.epoch is not None:
            fence = self.manifest.state().fence
            if tenure.needs_fence:
                # Equal is not enough: after the loss of the lock object two holders may have the same epoch.
                tenure.rise_above(fence)
            if fence != tenure.epoch:
                self.manifest.raise_fence(tenure)
        tenure.needs_fence = False

    def publish(
        self, expectations: Expectations, changes: Changes, commit: NewCommit, seen: Position | None = None
    ) -> GraphCommit:
        """As `Manifest.publish`, under the tenure of this window: the commit follows the head of its branch."""
        source, contract = commit.schema_texts

        def make_commit(head: Head, graph_version: int) -> GraphCommit:
            return GraphCommit(
                commit_id=commit.commit_id,
                graph_version=graph_version,
                branch=head.branch,
                parent_id=head.commit_id,
                merged_parent_id=commit.merged_parent_id,
                merge_strategy=commit.merge_strategy,
                # The moment from which on it is visible, which is not that of a writer that was interrupted.
                created_at=self.clock(),
                written_at=commit.written_at,
                message=commit.note.message,
                metadata=commit.note.metadata,
                kind=commit.kind,
                operation_id=commit.operation_id,
                schema_hash=changes.schema_hash or head.schema_hash,
                actor=commit.actor,
                recovery_for_actor=commit.recovery_for_actor,
                tables=tuple(pin.table_key for pin in changes.pins),
                schema_source=source,
                schema_contract=contract,
            )

        self.tenure.check()
        return self.manifest.publish(expectations, changes, make_commit, tenure=self.tenure, seen=seen)

    def publish_branch(self, make_head: Callable[[ManifestState, int], Head]) -> Head:
        """As `Manifest.publish_branch`, under the tenure of this window."""
        self.tenure.check()
        return self.manifest.publish_branch(make_head, tenure=self.tenure)

    def publish_tag(self, make_event: Callable[[ManifestState, Mapping[str, Tag], int], TagEvent]) -> Tag:
        """As `Manifest.publish_tag`, under the tenure of this window."""
        self.tenure.check()
        return self.manifest.publish_tag(make_event, tenure=self.tenure)

    def write_object(self, name: str, data: bytes) -> None:
        """Write a control object as the holder of the lock: what a successor wrote meanwhile is not replaced.

        Raises:
            LeaseLostError: another writer has the lock.
        """
        if self.tenure.epoch is None:
            self.objects.write(name, data)
            return
        current = self.objects.read(name)
        # After the look: a successor that writes later than this changes the tag.
        self.tenure.check()
        if not replace_content(self.objects, name, data, None if current is None else current.tag):
            self.tenure.lose()
            raise LeaseLostError

    def claim_remotely(self, name: str) -> AbstractContextManager[Tenure]:
        """Claim a name on an object store; a claim whose owner died is taken over.

        Raises:
            RetryableCommitConflictError: a living process has the claim.
        """
        return _lease_lock(self.location, name, self.lease_s).claimed()

    @contextmanager
    def claim_branch(self, name: str) -> Iterator[None]:
        """Be the only writer that makes a branch together with its data: their forks would share directories.

        Raises:
            RetryableCommitConflictError: another writer is creating it.
        """
        name_on_disk = f"{BRANCH_CLAIM}{fnv1a64(name.encode()):016x}"
        with ExitStack() as stack:
            try:
                if self.location.is_local:
                    stack.enter_context(held_file(self.location.path / name_on_disk))
                else:
                    stack.enter_context(self.claim_remotely(name_on_disk))
            except RetryableCommitConflictError as error:
                raise RetryableCommitConflictError(
                    f"another writer is making branch {name!r} now; nothing happened, try again"
                ) from error
            yield


def _lease_lock(location: GraphLocation, name: str, lease_s: float) -> LeaseCommitLock:
    # Connections of its own: a request that hangs for longer than the lease would lose it.
    objects = ControlObjects(location, durable=False, request_limit_s=request_limit_s(lease_s))
    return LeaseCommitLock(objects, name, lease_s=lease_s)


def open_environment(
    location: GraphLocation, *, durable: bool, lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S, lease_s: float = LEASE_S
) -> GraphEnvironment:
    """The environment of a graph; nothing is read yet."""
    lock: CommitLock = (
        FileCommitLock(location.path) if location.is_local else _lease_lock(location, COMMIT_LOCK, lease_s)
    )
    return GraphEnvironment(
        location=location,
        objects=ControlObjects(location, durable=durable),
        tables=TableStore(location),
        manifest=Manifest(location, durable=durable),
        audit=RecoveryAudit(location, durable=durable),
        lock=lock,
        staging=StagingLock(location),
        reading=ReadingLock(location),
        durable=durable,
        lock_timeout_s=lock_timeout_s,
        lease_s=lease_s,
    )


# ---- Settings of an open graph, from the environment


_log = logging.getLogger(__name__)
EXTERNAL_BLOB_BASES = Variable(
    "OMNIGRAPH_EXTERNAL_BLOB_BASES",
    "The folders, `s3://` and `https://` addresses below which external blobs may lie.",
    default="none",
    values="a JSON list",
)
LOCAL_LOAD_MAX_BYTES = WholeNumber(
    "OMNIGRAPH_LOCAL_LOAD_MAX_BYTES",
    64 * 1024 * 1024,
    "The largest input of a load that runs in process, without Spark.",
)
_DURABILITY = Variable(
    "OMNIGRAPH_DURABILITY",
    "`full` flushes every commit to disk. `process` does not: commits survive a killed process, not a power cut.",
    default="`full`",
    values="`full`, `process`",
)
_LOCK_TIMEOUT = WholeNumber("OMNIGRAPH_LOCK_TIMEOUT_MS", 60_000, "Milliseconds that a write waits for the commit lock.")
_MUTATION_BYTES = WholeNumber(
    "OMNIGRAPH_MUTATION_MAX_BYTES", 256 * 1024 * 1024, "Memory for the pending rows of one mutation."
)
_FOLD = Variable(
    "OMNIGRAPH_FOLD",
    "Makes one fragment of many small ones right after the write that notices them.",
    default="`on`",
    values="`on`, `off`",
)
_FOLD_FRAGMENTS = WholeNumber("OMNIGRAPH_FOLD_FRAGMENTS", 64, "Small fragments beyond this many are folded.", lowest=1)
_MILLISECONDS = re.compile(r"[0-9]{1,9}")


@frozen(kw_only=True)
class GraphSettings:
    """Settings of an open graph."""

    #: Flush every commit to disk before it is acknowledged.
    durable: bool = True
    lock_timeout_s: float = _LOCK_TIMEOUT.default / 1000
    #: How long the commit lock of an object store stays with a writer that is dead or stands still.
    lease_s: float = LEASE_S
    mutation_max_bytes: int = _MUTATION_BYTES.default
    folds: bool = True
    fold_fragments: int = _FOLD_FRAGMENTS.default
    #: Which external blobs its writers may refer to or copy; none by default, and never stored in the graph.
    external_blobs: ExternalPolicy = DENY_ALL

    @staticmethod
    def from_environment() -> GraphSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default.

        Raises:
            BadRequestError: the length of a lease is not usable. Other writers wait for it, so it is not guessed.
        """
        return GraphSettings(
            durable=_DURABILITY.text() != "process",
            lock_timeout_s=_LOCK_TIMEOUT.read() / 1000,
            lease_s=_lease_s(),
            mutation_max_bytes=_MUTATION_BYTES.read(),
            folds=_FOLD.text() != "off",
            fold_fragments=_FOLD_FRAGMENTS.read(),
            external_blobs=_external_policy(),
        )


def local_load_max_bytes() -> int:
    """The largest input of a load that runs in this process, in bytes."""
    return LOCAL_LOAD_MAX_BYTES.read()


def _lease_s() -> float:
    text = os.environ.get(LEASE_VARIABLE)
    if text is None:
        return LEASE_S
    lowest_ms, highest_ms = int(SHORTEST_LEASE_S * 1000), int(LONGEST_LEASE_S * 1000)
    if not _MILLISECONDS.fullmatch(text.strip()) or not lowest_ms <= int(text) <= highest_ms:
        raise BadRequestError(
            f"{LEASE_VARIABLE}={text[:40]} is not usable: give a whole number of milliseconds from {lowest_ms} to "
            f"{highest_ms}, or unset it for {LEASE_S * 1000:.0f}"
        )
    return int(text) / 1000


def _external_policy() -> ExternalPolicy:
    """The bases of the environment; nothing is allowed when they cannot be read."""
    text = os.environ.get(EXTERNAL_BLOB_BASES)
    if text is None:
        return DENY_ALL
    try:
        bases = json.loads(text)
        if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
            raise ValueError("it is not a list of strings")
        return policy_of(bases)
    except (ValueError, RecursionError, BadRequestError) as problem:
        # The text is not repeated: it may hold credentials.
        _log.warning("%s allows nothing: %s", EXTERNAL_BLOB_BASES, problem)
        return DENY_ALL


# ---- Mutations of one branch, one after the other


#: Longer than many small mutations take. Behind one that is slow, because it fetches blobs or waits for another
#: process, the others go on without a turn.
_LONGEST_WAIT_S = 2.0


@dataclass(slots=True)
class _Turn:
    lock: Lock = field(default_factory=Lock)
    users: int = 0


class BranchQueue:
    """Writers of one process that take turns on each branch. Thread-safe.

    A write that is prepared beside another one is prepared in vain, because the first commit outdates the rest: eight
    threads would publish a quarter of what one does. Turns are for speed alone; the commit decides what is right, also
    between processes.
    """

    def __init__(self, longest_wait_s: float = _LONGEST_WAIT_S) -> None:
        self._longest_wait_s = longest_wait_s
        self._guard = Lock()
        #: Only branches that a writer is about to change.
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def turn(self, branch: str) -> Iterator[None]:
        """Wait for the turn, but not for long."""
        with self._guard:
            turn = self._turns.setdefault(branch, _Turn())
            turn.users += 1
        has_turn = turn.lock.acquire(timeout=self._longest_wait_s)
        try:
            yield
        finally:
            if has_turn:
                turn.lock.release()
            with self._guard:
                turn.users -= 1
                if turn.users == 0:
                    del self._turns[branch]
