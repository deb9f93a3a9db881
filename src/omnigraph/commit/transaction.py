"""One write from its snapshot to its commit: prepared without the lock, and again when it lost a race.

    with Transaction(environment, branch, kind=WriterKind.LOAD, actor=actor, policy=POLICY) as transaction:
        return transaction.run(prepare)

`prepare` gets the transaction. It reads `snapshot`, opens tables for writing, stages writes and calls `commit`, which
runs phases A to D of an attempt. What was staged is discarded unless versions may refer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeVar

from omnigraph.commit.attempt import Attempt, Intent, StagedTable, discard_staged, run_phases
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.expectations import Expectations, NewBranch, Requirement
from omnigraph.commit.leftovers import UNCLEAR, may_leave_files, tidy_up, unharmed
from omnigraph.commit.notes import NO_NOTE, Note
from omnigraph.commit.rows import MAIN, GraphCommit, TablePin
from omnigraph.commit.schema_change import SchemaChange
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import ManifestState, Snapshot, snapshot_of
from omnigraph.commit.sweep import heal, settled_window
from omnigraph.commit.targets import open_pin
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    ExpectedVersionMismatchError,
    OmniError,
    ReadSetConflictError,
    RecoveryRequiredError,
    RetryableCommitConflictError,
    StorageError,
)
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.staged import StagedWrite
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import create_fork, refuse_forks

_Outcome = TypeVar("_Outcome")

#: How often work is prepared before the conflict surfaces.
MAX_TRIES = 33
#: Lost races after which it is prepared inside the commit window, so that it cannot lose again.
OPTIMISTIC_TRIES = 3
#: What a write that was prepared against an old state fails with, before any effect.
LOST_RACES = (ExpectedVersionMismatchError, ReadSetConflictError)
#: Failures that are the same whatever dead writers left.
_UNRELATED = (StorageError, RecoveryRequiredError, RetryableCommitConflictError)


@frozen(kw_only=True)
class RetryPolicy:
    """The handling of a write that lost a race before any effect, and of its leftovers when it fails."""

    tries: int = MAX_TRIES
    #: Tries after which it is prepared inside the commit window; None when other writers must never wait for it.
    outside: int | None = OPTIMISTIC_TRIES
    lost: tuple[type[Exception], ...] = LOST_RACES
    #: Whether the schema has to stay as it was in the beginning.
    keeps_schema: bool = False
    #: Whether the writer itself removes staged files, because they serve several tries.
    keeps_files: bool = False
    #: Whether its forks and the files of tasks that died are removed when it fails.
    is_bulk: bool = False
    #: Whether the caller has not settled what dead writers left: no outcome counts before that was done.
    heals: bool = False


ONCE = RetryPolicy(tries=1)
#: What an interrupted write says about itself.
NOTHING_WRITTEN = "nothing was written"
_STARTED = "while its commit was under way: `omnigraph log` shows whether it happened"


class Transaction(AbstractContextManager["Transaction"]):
    """One write: what it saw, where it writes, what it staged. Not thread-safe; used once."""

    def __init__(
        self,
        environment: GraphEnvironment,
        branch: str = MAIN,
        *,
        kind: WriterKind,
        actor: str | None = None,
        note: Note = NO_NOTE,
        policy: RetryPolicy = ONCE,
        new_branch: NewBranch | None = None,
    ) -> None:
        self._outside = environment
        #: The same, inside the commit window where a try is prepared there.
        self.environment = environment
        self.branch = branch
        self.new_branch = new_branch
        self._kind = kind
        self._actor = actor
        self._note = note
        self._policy = policy
        self._forks: dict[TableKey, Table] = {}
        self._schema_hash: str | None = None
        self._has_looked = not policy.heals
        self._has_healed = False
        #: Whether a try may have become visible.
        self.has_effect = False
        #: Whether preparing it inside the window would keep other writers waiting for too long.
        self.is_large = False
        self._forget()

    def _forget(self) -> None:
        """Begin a try with nothing."""
        self._state: ManifestState | None = None
        self._snapshot: Snapshot | None = None
        self._staged: dict[TableKey, StagedTable] = {}
        #: Writes that another one to the same table took the place of.
        self._superseded: list[StagedTable] = []
        self._is_declared = False
        #: Versions of tables that the write changes, and of those that were only looked at.
        self.touched: dict[TableKey, int | None] = {}
        self.read: dict[TableKey, int] = {}
        self._requires: list[Requirement] = []
        #: Tables in which no row may have changed since a snapshot when the write is prepared again.
        self.guarded: tuple[Snapshot, Collection[TableKey]] | None = None
        #: What was published.
        self.receipt: GraphCommit | None = None

    # ---- Reads

    def begin(self) -> Snapshot:
        """Look at the branch as it is now, or at the position that a new one begins at.

        Raises:
            BranchNotFoundError: there is no such branch.
            ReadSetConflictError: the new branch was created meanwhile, or the schema changed.
        """
        self._forget()
        state = self.environment.manifest.state()
        if self.new_branch is None:
            head = state.head(self.branch)
        else:
            self.new_branch.check_free(state)
            head = self.new_branch.origin
        first = self._schema_hash or head.schema_hash
        if self._policy.keeps_schema and head.schema_hash != first:
            raise ReadSetConflictError("the schema", first, head.schema_hash)
        self._schema_hash, self._state = first, state
        self._snapshot = snapshot_of(head)
        return self._snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the write is prepared against."""
        return self._snapshot or self.begin()

    @snapshot.setter
    def snapshot(self, earlier: Snapshot) -> None:
        self._snapshot = earlier

    @property
    def state(self) -> ManifestState:
        """Every branch at the moment of the snapshot."""
        assert self._state is not None, "a try has begun"
        return self._state

    def require(self, requirement: Requirement) -> None:
        """Expect something more, now and when the write is published.

        Raises:
            ConflictError: it does not hold at the snapshot.
            PreconditionFailedError: the caller's expected head differs.
        """
        head = self.state.head(self.branch)
        requirement.check(head, self.state, self.environment.manifest.commit)
        self._requires.append(requirement)

    @property
    def is_alone(self) -> bool:
        """Whether the try is prepared inside the commit window."""
        return self.environment.held_tenure is not None

    def check(self) -> None:
        """Make sure that everything still holds.

        Raises:
            ConflictError: something does not hold any more.
            PreconditionFailedError: the caller's expected head differs.
        """
        self.environment.manifest.locate(self._expectations())

    def _expectations(self) -> Expectations:
        seen = self.snapshot
        return Expectations(
            branch=self.branch,
            incarnation=seen.incarnation,
            schema_hash=seen.schema_hash,
            touched=self.touched,
            read=self.read,
            requires=tuple(self._requires),
            new_branch=self.new_branch,
        )

    # ---- Target tables

    def open(self, pin: TablePin) -> Table:
        """The table as the snapshot reads it."""
        return open_pin(self.environment.tables, pin)

    @property
    def fork_name(self) -> str | None:
        """The Lance branch that the branch writes to; None for main."""
        new = self.new_branch
        return self.snapshot.fork_name if new is None else new.fork_name

    def open_for_writing(self, pin: TablePin) -> Table:
        """The table where the branch writes: its own fork, made at the first write to the type.

        Raises:
            ConflictError: the branch does not read this version any more.
        """
        new, fork_name = self.new_branch, self.fork_name
        if pin.branch == fork_name:
            if fork_name is not None:
                refuse_forks(self.environment.location)
            return self.open(pin)
        assert fork_name is not None, "main owns its tables"
        with settled_window(self.environment) as held:
            state = held.manifest.state()
            if new is None:
                head = Expectations.of(self.snapshot).check(state, held.manifest.commit)
                if (actual := head.pins.get(pin.table_key)) != pin:
                    found = None if actual is None else actual.version
                    raise ExpectedVersionMismatchError(pin.table_key, pin.version, found)
            else:
                new.check_free(state)
            check_lock = held.tenure.check
            table = create_fork(held.location, self.open(pin), fork_name, check_lock=check_lock)
        self._forks[pin.table_key] = table
        return table

    # ---- Staged writes

    def stage(self, pin: TablePin, write: StagedWrite | None) -> None:
        """Add a staged write to a table that the snapshot reads at this pin, if there is one; the last one counts."""
        if write is not None:
            key = pin.table_key
            if key in self._staged:
                self._superseded.append(self._staged[key])
            self.touched[key] = pin.version
            self._staged[key] = StagedTable(table_key=key, incarnation=pin.incarnation, staged=write)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return not self._staged

    def commit(
        self,
        *,
        merged_parent_id: str | None = None,
        merge_strategy: str | None = None,
        schema_change: SchemaChange | None = None,
    ) -> GraphCommit:
        """Publish everything that was staged, at once.

        Raises:
            ConflictError: something that it was prepared against moved; nothing happened.
            PreconditionFailedError: the caller's expected head differs; nothing happened.
            RecoveryRequiredError: it failed after its first effect and could not be settled.
        """
        intent = Intent(
            kind=self._kind,
            expectations=self._expectations(),
            actor=self._actor,
            merged_parent_id=merged_parent_id,
            merge_strategy=merge_strategy,
            note=self._note,
            schema_change=schema_change,
        )
        attempt = Attempt(self.environment, intent)
        try:
            self.receipt = run_phases(attempt, list(self._staged.values()))
        finally:
            # From the intent on, versions may refer to what was staged, even to that of a write that was undone.
            self._is_declared = attempt.is_declared
            self.has_effect = self.has_effect or attempt.is_declared
            self._has_looked, self._has_healed = True, attempt.has_healed
        return self.receipt

    # ---- Commit and retries

    def run(self, prepare: Callable[[Transaction], _Outcome]) -> _Outcome:
        """Prepare and commit; again after a lost race, in the end inside the window, where no other writer can win."""
        for number in range(self._policy.tries):
            is_last = number + 1 == self._policy.tries
            with self._place(number):
                try:
                    outcome = self._try(prepare)
                except KeyboardInterrupt as interrupt:
                    # Bulk writes have more to tidy up, and say it when they are left.
                    if not self._policy.is_bulk:
                        interrupt.add_note(_STARTED if self.has_effect else NOTHING_WRITTEN)
                    raise
                except Exception as error:  # raised again unless repeated
                    if is_last or not self._may_repeat(error):
                        raise
                else:
                    if self.receipt is not None or is_last or not self._finds_dead_writers():
                        return outcome
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _place(self, number: int) -> Iterator[None]:
        """Enter the place where an attempt is prepared."""
        outside = self._policy.outside
        if outside is None or number < outside or self.is_large:
            yield
            return
        with settled_window(self._outside) as held:
            self.environment = held
            try:
                yield
            finally:
                self.environment = self._outside

    def _try(self, prepare: Callable[[Transaction], _Outcome]) -> _Outcome:
        self.begin()
        try:
            return prepare(self)
        finally:
            # Also after an interrupt: before the intent is on disk nothing but this try knows the staged files.
            if not self._is_declared and not self._policy.keeps_files:
                discard_staged(self.environment, [*self._superseded, *self._staged.values()])

    def _may_repeat(self, error: Exception) -> bool:
        """Whether preparing it again is invisible."""
        if self.receipt is not None:
            return False
        is_told = isinstance(error, OmniError) and not isinstance(error, _UNRELATED)
        if is_told and self._finds_dead_writers():
            return True
        if self._snapshot is None or not isinstance(error, self._policy.lost):
            return False
        return self.is_unharmed()

    def is_unharmed(self) -> bool:
        """Whether no row of the guarded tables has changed."""
        return self.guarded is None or self.environment.manifest.is_same_data(*self.guarded)

    def _finds_dead_writers(self) -> bool:
        """Whether what dead writers left was settled since the try began: it counts as if that had happened before.

        A try that came to its commit has looked there; any other looks now, once.
        """
        if not self._has_looked:
            self._has_looked, self._has_healed = True, heal(self.environment)
        return self._policy.heals and self._has_healed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._policy.is_bulk:
            return
        has_unknown_files = error is not None and may_leave_files(error)
        forks = () if self.receipt else tuple(self._forks.values())
        if forks or has_unknown_files:
            tidy_up(self._outside, forks, has_unknown_files=has_unknown_files)
        if isinstance(error, UNCLEAR) and not self.has_effect:
            promised = unharmed(error, NOTHING_WRITTEN)
            if promised is not error:
                raise promised from error.__cause__
