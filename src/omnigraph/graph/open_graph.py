"""The base of the method groups of `Graph`: an open graph, its state and its schemas."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.graph_api import GraphApi
from omnigraph.commit.lineage import first_parents
from omnigraph.commit.rows import MAIN, TablePin
from omnigraph.commit.schemas import GraphSchema, find_schema
from omnigraph.commit.targets import Target, open_pin, resolve_target
from omnigraph.core.budget import NO_LIMITS
from omnigraph.errors import BadRequestError, NotFoundError, StorageError, StorageFailure
from omnigraph.graph.reads import GraphReader
from omnigraph.lang.query.compiler import QueryCompiler
from omnigraph.policy.rules import Action, PolicyRequest

if TYPE_CHECKING:
    from omnigraph.branches.history import GraphHistory
    from omnigraph.commit.environment import GraphEnvironment, GraphSettings
    from omnigraph.commit.snapshot import ManifestState, Snapshot
    from omnigraph.graph.mutations import GraphWriter
    from omnigraph.policy.policy import PolicyGate
    from omnigraph.storage.datasets.tables import Table


class OpenGraph(GraphApi):
    """The inside of an open graph. Thread-safe."""

    def __init__(
        self, environment: GraphEnvironment, *, read_only: bool, settings: GraphSettings, gate: PolicyGate | None = None
    ) -> None:
        self._environment = environment
        self._settings = settings
        #: What bounds reads that give no limits of their own.
        self._limits = NO_LIMITS
        self._gate = gate
        self._compiler = QueryCompiler()
        self._schemas: dict[str, GraphSchema] = {}
        self._reader = GraphReader(environment, self._compiler, self._schema_of, read_only=read_only)
        self.read_only = read_only

    @property
    @override
    def uri(self) -> str:
        return self._environment.location.uri

    @override
    def snapshot(
        self,
        branch: str = MAIN,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> Snapshot:
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        return resolve_target(self._environment.manifest, self._state(), target)

    # ---- inside

    def _state(self) -> ManifestState:
        try:
            return self._environment.manifest.state()
        except StorageError as error:
            if error.failure is StorageFailure.NOT_FOUND:
                raise NotFoundError(f"{error.message}: create one with `omnigraph init`") from error
            raise

    def _reading(self) -> AbstractContextManager[None]:
        """Hold what a cleanup would take away under a read. Before the target is looked up, until all is read."""
        return self._environment.reading.held()

    def _heal(self) -> None:
        """Settle sidecars of dead writers; one listing when there are none."""
        from omnigraph.commit.sweep import heal

        heal(self._environment)

    def _settle_root(self) -> None:
        """Let forks hold the address of the root that the graph has now; one small read when it did not move."""
        from omnigraph.commit.rebasing import rebase_forks

        rebase_forks(self._environment, self._state())

    @cached_property
    def _writer(self) -> GraphWriter:
        # A graph that is only read never pays for the writing half.
        from omnigraph.graph.mutations import GraphWriter

        return GraphWriter(self._environment, self._settings, self._compiler, self._schema_of)

    def _require_writable(self) -> None:
        if self.read_only:
            raise BadRequestError("the graph is open for reading only")

    def _authorize(
        self, action: Action, actor: str | None, *, branch: str | None = None, target: str | None = None
    ) -> None:
        """Ask the policy, where the graph has one. Before healing: a refused write touches nothing at all.

        Raises:
            PolicyDeniedError: the policy does not allow it, or there is no actor.
        """
        if self._gate is not None:
            self._gate.authorize(PolicyRequest(actor, action, branch, target))

    def _authorize_reading(self, name: str, actor: str | None) -> None:
        """Ask the policy about reading what a new branch or a merge carries on: a branch, or a commit in its past.

        Raises:
            PolicyDeniedError: the actor may read neither the branch nor another one that the commit belongs to.
        """
        gate, name = self._gate, name.strip()
        if gate is None:
            return
        heads = self._state().heads
        commits = {} if name in heads else self._environment.manifest.commits()
        branch = name
        if name in commits:
            branch = commits[name].branch
            for readable, head in heads.items():
                if gate.decide(PolicyRequest(actor, Action.READ, readable)).allowed and any(
                    commit.commit_id == name for commit in first_parents(commits, head.commit_id)
                ):
                    return
        gate.authorize(PolicyRequest(actor, Action.READ, branch))

    def _authorize_new_branch(self, name: str, base: str | None, actor: str | None) -> ManifestState:
        """Ask the policy about a branch that a write creates with its data, if it does; the state that says so.

        Raises:
            PolicyDeniedError: the actor may not create the branch, or may not read what it begins with.
        """
        state = self._state()
        if base is not None and name not in state.heads:
            self._authorize(Action.BRANCH_CREATE, actor, branch=base, target=name)
            self._authorize(Action.READ, actor, branch=base)
        return state

    def _schema_of(self, schema_hash: str) -> GraphSchema:
        known = self._schemas.get(schema_hash)
        if known is None:
            known = find_schema(self._environment.objects, self._environment.manifest, schema_hash)
            self._schemas[schema_hash] = known
        return known

    def _open(self, pin: TablePin) -> Table:
        return open_pin(self._environment.tables, pin)

    @cached_property
    def _history(self) -> GraphHistory:
        from omnigraph.branches.history import GraphHistory

        return GraphHistory(self._environment, self._schema_of, is_read_only=self.read_only)
