"""What the parts of one open graph share: storage, schemas, caches, policy and limits; and how they become methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, Unpack

from omnigraph.api.graph_api import GraphApi
from omnigraph.api.reading_api import TargetKeywords
from omnigraph.commit.environment import BranchQueue, GraphEnvironment, GraphSettings
from omnigraph.commit.lineage import first_parents
from omnigraph.commit.read_target import Target
from omnigraph.commit.references import read_reference
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.commit.schemas import GraphSchema, find_schema
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.commit.targets import (
    full_commit_id,
    named_commit_id,
    near_commits,
    newest_first,
    open_pin,
    resolve_target,
)
from omnigraph.core.budget import NO_LIMITS, ReadLimits
from omnigraph.core.source import did_you_mean, nearest
from omnigraph.engine.tables.context import EngineCaches
from omnigraph.engine.tables.settings import EngineSettings
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    CommitNotFoundError,
    NotFoundError,
    StorageError,
    StorageFailure,
    TagNotFoundError,
)
from omnigraph.lang.query.compiler import QueryCompiler
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.policy.rules import Action, PolicyRequest
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.derived import DerivedArrays
from omnigraph.storage.locks import Reading

if TYPE_CHECKING:
    from omnigraph.branches.history import GraphHistory
    from omnigraph.embedding.client import EmbeddingClient
    from omnigraph.policy.policy import PolicyGate


class OpenGraph:
    """An open graph as the functions see it that do its operations. Thread-safe."""

    def __init__(
        self,
        environment: GraphEnvironment,
        settings: GraphSettings,
        *,
        read_only: bool,
        gate: PolicyGate | None = None,
        limits: ReadLimits = NO_LIMITS,
    ) -> None:
        self.environment = environment
        self.settings = settings
        self.read_only = read_only
        #: What bounds reads that give no limits of their own.
        self.limits = limits
        self.compiler = QueryCompiler()
        self.caches = EngineCaches(
            EngineSettings.from_environment(), DerivedArrays(environment.location, writable=not read_only)
        )
        #: Mutations and folds of one branch take turns.
        self.queue = BranchQueue()
        #: Schemas that were accepted, by hash; as many as were read.
        self.schemas: dict[str, GraphSchema] = {}
        self._gate = gate
        self._embedder: EmbeddingClient | None = None
        self._lock = Lock()

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self.environment.location.uri

    @cached_property
    def history(self) -> GraphHistory:
        """The past of the graph."""
        from omnigraph.branches.history import GraphHistory

        return GraphHistory(self.environment, self.schema_of, is_read_only=self.read_only)

    def embedder(self) -> EmbeddingClient:
        """The provider that embeds texts of queries."""
        from omnigraph.embedding.client import EmbeddingSettings, create_embedder

        with self._lock:
            if self._embedder is None:
                self._embedder = create_embedder(EmbeddingSettings.from_environment())
            return self._embedder

    def close(self) -> None:
        """Release connections, memory, and files of differences."""
        with self._lock:
            embedder, self._embedder = self._embedder, None
        if embedder is not None:
            embedder.close()
        self.caches.close()
        if "history" in self.__dict__:
            self.history.close()
        self.schemas.clear()

    # ---- states and schemas

    def state(self) -> ManifestState:
        """The heads of all branches now.

        Raises:
            NotFoundError: there is no graph.
        """
        try:
            return self.environment.manifest.state()
        except StorageError as error:
            if error.failure is StorageFailure.NOT_FOUND:
                raise NotFoundError(f"{error.message}: create one with `omnigraph init`") from error
            raise

    def target(self, **state: Unpack[TargetKeywords]) -> Target:
        """The target of a read, its commit spelled in full."""
        target = Target.of(state)
        return target if target.snapshot is None else replace(target, snapshot=self.commit_id(target.snapshot))

    def commit_id(self, name: str) -> str:
        """The id of the commit that a text means: by its beginning or its end too; a text that means none as it is.

        With a policy only in full: which commits a caller may meet is not known here, and one may name another one.
        Branches and tags, and ways from them such as `main~3`, mean the same everywhere.

        Raises:
            AmbiguousCommitError: several commits are meant.
        """
        if self._gate is not None:
            reference = read_reference(name)
            start = name if reference is None else reference.base
            if start not in self.state().heads and start not in self.environment.manifest.tags():
                return name
        return named_commit_id(self.environment.manifest, name)

    def full_commit_id(self, name: str) -> str:
        """As `commit_id`, of a commit by its id alone."""
        return name if self._gate is not None else full_commit_id(self.environment.manifest, name)

    def state_name(self, name: str) -> str:
        """The name of a state, without surrounding blanks: a branch as it is, a commit in full."""
        name = name.strip()
        return name if name in self.state().heads else self.commit_id(name)

    def advised(self, error: NotFoundError) -> NotFoundError:
        """The same failure, with what is there under a similar name. With a policy names are not told."""
        if self._gate is not None:
            return error
        if isinstance(error, BranchNotFoundError):
            hint = did_you_mean(error.branch, self.state().heads)
            return BranchNotFoundError(error.branch, "; ".join(text for text in (error.hint, hint) if text) or None)
        if isinstance(error, CommitNotFoundError):
            if (near_tag := nearest(error.commit, self.environment.manifest.tags())) is not None:
                return TagNotFoundError(error.commit, f"did you mean `{near_tag}`?")
            commits = newest_first(self.environment.manifest.commits().values())
            near = near_commits(error.commit, [commit.commit_id for commit in commits])
            return CommitNotFoundError(error.commit, near)
        return error

    def resolve(self, target: Target) -> Snapshot:
        """The snapshot that a read of a target sees now."""
        return resolve_target(self.environment.manifest, self.state(), target)

    def schema_of(self, schema_hash: str) -> GraphSchema:
        """The accepted schema with a hash."""
        known = self.schemas.get(schema_hash)
        if known is None:
            known = self.schemas[schema_hash] = find_schema(
                self.environment.objects, self.environment.manifest, schema_hash
            )
        return known

    def catalog_of(self, state: Snapshot | Head) -> Catalog:
        """The resolved schema of a state."""
        return self.schema_of(state.schema_hash).catalog

    def open_table(self, pin: TablePin) -> Table:
        """The table at the version that a snapshot reads."""
        return open_pin(self.environment.tables, pin)

    # ---- beside other readers and writers

    def reading(self) -> Reading:
        """Hold what a cleanup would take away under a read. Before the target is looked up, until all is read."""
        return self.environment.reading.held()

    def heal(self) -> None:
        """Settle sidecars of dead writers; one listing when there are none."""
        from omnigraph.commit.sweep import heal

        heal(self.environment)

    def fold_after(self, commit: GraphCommit | None) -> None:
        """Fold small fragments of the tables that a commit touched, where it is time to. Never fails."""
        from omnigraph.maintenance.optimize import fold_after

        if commit is not None:
            with self.queue.turn(commit.branch):
                fold_after(self.environment, self.settings, commit)

    # ---- what is allowed

    def require_writable(self) -> None:
        """Refuse a write.

        Raises:
            BadRequestError: the graph is open for reading only.
        """
        if self.read_only:
            raise BadRequestError("the graph is open for reading only")

    def authorize(
        self, action: Action, actor: str | None, *, branch: str | None = None, target: str | None = None
    ) -> None:
        """Ask the policy, where the graph has one. Before healing: a refused write touches nothing at all.

        Raises:
            PolicyDeniedError: the policy does not allow it, or there is no actor.
        """
        if self._gate is not None:
            self._gate.authorize(PolicyRequest(actor, action, branch, target))

    def authorize_reading(self, name: str, actor: str | None) -> None:
        """Ask the policy about reading what a new branch or a merge carries on: a branch, or a commit in its past.

        Raises:
            PolicyDeniedError: the actor may read neither the branch nor another one that the commit belongs to.
        """
        gate, name = self._gate, name.strip()
        if gate is None:
            return
        heads = self.state().heads
        commits = {} if name in heads else self.environment.manifest.commits()
        branch = name
        if name in commits:
            branch = commits[name].branch
            for readable, head in heads.items():
                if gate.decide(PolicyRequest(actor, Action.READ, readable)).allowed and any(
                    commit.commit_id == name for commit in first_parents(commits, head.commit_id)
                ):
                    return
        gate.authorize(PolicyRequest(actor, Action.READ, branch))

    def authorize_new_branch(self, name: str, base: str | None, actor: str | None) -> ManifestState:
        """Ask the policy about a branch that a write creates with its data, if it does; the state that says so.

        Raises:
            PolicyDeniedError: the actor may not create the branch, or may not read what it begins with.
        """
        state = self.state()
        if base is not None and name not in state.heads:
            self.authorize(Action.BRANCH_CREATE, actor, branch=base, target=name)
            self.authorize(Action.READ, actor, branch=base)
        return state


# ---- Methods of `Graph`


_P = ParamSpec("_P")
_Result = TypeVar("_Result")


class _Opened(Protocol):
    _core: OpenGraph


@dataclass(slots=True)
class MethodsOf:
    """An open graph as the functions take it that are methods of `Graph`, for those of them that call each other."""

    _core: OpenGraph


def graph_method(
    function: Callable[Concatenate[OpenGraph, _P], _Result],
) -> Callable[Concatenate[_Opened, _P], _Result]:
    """The method of `Graph` that a function does, under the signature and docstring that `GraphApi` has for it."""

    @wraps(getattr(GraphApi, function.__name__))
    def method(self: _Opened, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        try:
            return function(self._core, *args, **kwargs)
        except (BranchNotFoundError, CommitNotFoundError) as error:
            raise self._core.advised(error) from error.__cause__

    return method


def late_method(declared: Callable[_P, _Result], module: str) -> Callable[_P, _Result]:
    """The method of `Graph` that the function of its name does, in a module that the first call loads.

    So a read loads no writer. The types are those that `GraphApi` declares.
    """

    @wraps(declared)
    def method(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
        function: Callable[_P, _Result] = getattr(import_module(f"{__package__}.{module}"), declared.__name__)
        return function(*args, **kwargs)

    return method
