"""The façade: one object per open graph. The functions of the modules beside it do the work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.graph_api import GraphApi
from omnigraph.commit.environment import GraphSettings, open_environment
from omnigraph.commit.rows import MAIN
from omnigraph.core.budget import NO_LIMITS, ReadLimits
from omnigraph.core.lazy_exports import late_types
from omnigraph.graph import reads
from omnigraph.graph.open_graph import OpenGraph, late_method
from omnigraph.lang.schema.compiler import CompiledSchema, as_compiled
from omnigraph.policy.policy import Policy, PolicyGate
from omnigraph.policy.rules import Action
from omnigraph.storage.external import policy_of
from omnigraph.storage.location import parse_location

if TYPE_CHECKING:
    from omnigraph.client.remote_graph import RemoteGraph
    from omnigraph.maintenance.findings import DoctorReport
    from omnigraph.maintenance.verify import VerifyReport
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
else:
    globals().update(
        late_types(
            {
                "omnigraph.client.remote_graph": "RemoteGraph",
                "omnigraph.maintenance.findings": "DoctorReport",
                "omnigraph.maintenance.verify": "VerifyReport",
                "omnigraph.pipeline.workers": "Progress",
                "omnigraph.spark": "Session",
            }
        )
    )


class Graph(GraphApi):
    """An open graph. Thread-safe; close it, or use it in a `with` statement.

    >>> import tempfile
    >>> root = tempfile.mkdtemp() + "/papers.omni"
    >>> with Graph.init(root, "node Paper { doi: String @key }") as graph:
    ...     result = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
    >>> result.affected_nodes
    1
    """

    def __init__(self, core: OpenGraph) -> None:
        if isinstance(core, str | PathLike):
            raise TypeError(f"open a graph with Graph.open({str(core)!r}), or create one with Graph.init")
        self._core = core

    # ---- opening

    @classmethod
    def init(
        cls,
        uri: str | PathLike[str],
        schema: str | Path | CompiledSchema,
        *,
        actor: str | None = None,
        force: bool = False,
        external_blobs: Sequence[str] | None = None,
        policy: Policy | PolicyGate | str | PathLike[str] | None = None,
    ) -> Graph:
        """Create a graph; `schema` is the path of a `.pg` file, schema text, or a compiled schema.

        The rest is as in `open`.

        Raises:
            CompilerError: the schema is wrong.
            PolicyDeniedError: the actor may not apply a schema to main. Nothing happened.
            AlreadyInitializedError: the root is in use.
        """
        from omnigraph.graph.initialize import initialize

        compiled = as_compiled(schema)
        core = _core(uri, read_only=False, external_blobs=external_blobs, policy=policy)
        core.authorize(Action.SCHEMA_APPLY, actor, target=MAIN)
        created = initialize(core.environment, compiled, actor=actor, force=force)
        core.schemas[created.hash] = created
        return cls(core)

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        read_only: bool = False,
        *,
        external_blobs: Sequence[str] | None = None,
        policy: Policy | PolicyGate | str | PathLike[str] | None = None,
        limits: ReadLimits = NO_LIMITS,
    ) -> Graph:
        """Open a graph. A writable open first settles what dead writers left, and that the graph was moved.

        Writes may bring blobs from below the bases in `external_blobs` (`file:///scans`, `s3://bucket/prefix`,
        `https://host/path`); without it from those in `OMNIGRAPH_EXTERNAL_BLOB_BASES`, and by default from nowhere.

        With a `policy`, or the path of a policy file, every write names its actor and has to be allowed; a
        `PolicyDeniedError` says that nothing happened. Reads are not checked. A
        `PolicyGate` can be given another policy while the graph is open. `limits` bound every read that gives none of
        its own.

        Raises:
            BadRequestError: a base is malformed, or the policy is about a server.
            ConfigurationError: the policy is wrong.
            NotFoundError: there is no graph.
            StorageFormatError: another release wrote it.
        """
        core = _core(uri, read_only=read_only, external_blobs=external_blobs, policy=policy, limits=limits)
        state = core.state()
        if not read_only:
            from omnigraph.commit.rebasing import rebase_forks

            # Forks hold the address of the root that the graph has now; one small read when it did not move.
            rebase_forks(core.environment, state)
            core.heal()
        core.catalog_of(core.state().head(MAIN))
        return cls(core)

    @classmethod
    def from_frames(
        cls,
        uri: str | PathLike[str],
        frames: Mapping[str, object],
        *,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        edges: Mapping[str, Mapping[str, str] | None] | None = None,
        quarantine: str | PathLike[str] | None = None,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
    ) -> Graph:
        """Create a graph from frames by the names of their types: `infer` proposes a schema, and the frames are loaded.

        Frames are those of `load`: pandas, polars, Arrow, Spark, lists of dictionaries. `keys` and `edges` say what
        is known better, as in `infer`; `graph.schema` has a comment about every guess. When the load fails, a graph on
        disk is removed again. With `quarantine=FOLDER` bad rows do not refuse the load: they are kept there, as `load`
        does, and without any there is no folder.

        >>> import tempfile
        >>> people = [{"id": 1, "name": "Ada", "boss_id": None}, {"id": 2, "name": "Bo", "boss_id": 1}]
        >>> graph = Graph.from_frames(tempfile.mkdtemp() + "/people.omni", {"Person": people})
        >>> graph.query("query q() { match { $p: Person  $p hasBoss $b } return { $p.name, $b.name } }").to_pylist()
        [{'p.name': 'Bo', 'b.name': 'Ada'}]

        Raises:
            BadRequestError: a frame is not one, or a wish names something that is not there.
            LoadRejectedError: rows are wrong; `report` names them.
            AlreadyInitializedError: the root is in use.
        """
        from omnigraph.graph.starting import create_from_frames

        return create_from_frames(
            cls.init,
            uri,
            frames,
            keys=keys,
            edges=edges,
            quarantine=quarantine,
            actor=actor,
            engine=engine,
            spark=spark,
            progress=progress,
        )

    @classmethod
    def connect(
        cls, url: str, token: str | None = None, graph: str | None = None, *, timeout_s: float | None = None
    ) -> RemoteGraph:
        """A graph behind a server, with the same methods, results and errors.

        The address may name the graph (`https://host/graphs/papers`), or `graph` does; otherwise the only graph of the
        server is meant. The token is that of `OMNIGRAPH_BEARER_TOKEN` unless one is given.

        Raises:
            BadRequestError: the address or the token is malformed, or the server has several graphs.
            UnauthorizedError: the server does not know the token.
            ServerUnreachableError: no response from the server.
        """
        from omnigraph.client.remote_graph import RemoteGraph

        return RemoteGraph.connect(url, token, graph, timeout_s=timeout_s)

    @classmethod
    def examine(
        cls, uri: str | PathLike[str], *, deep: bool = False, rules: bool = False, progress: Progress | None = None
    ) -> DoctorReport:
        """As `doctor`, also for a graph that is too broken to be opened."""
        return cls(_core(uri, read_only=True)).doctor(deep=deep, rules=rules, progress=progress)

    @classmethod
    def verify_at(
        cls,
        uri: str | PathLike[str],
        *,
        branches: Collection[str] | None = None,
        record: bool = False,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """As `verify`, also for a graph that is too broken to be opened."""
        graph = cls(_core(uri, read_only=not record))
        return graph.verify(branches=branches, record=record, progress=progress)

    # ---- operations: `GraphApi` documents them

    query = reads.query
    prepare = reads.prepare
    explain = reads.explain
    snapshot = reads.snapshot
    catalog = reads.catalog

    export = late_method(GraphApi.export, "exports")
    baseline = late_method(GraphApi.baseline, "exports")

    read_blob = late_method(GraphApi.read_blob, "blobs")
    stat_blob = late_method(GraphApi.stat_blob, "blobs")
    open_blob = late_method(GraphApi.open_blob, "blobs")

    mutate = late_method(GraphApi.mutate, "mutations")
    load = late_method(GraphApi.load, "mutations")

    plan_schema = late_method(GraphApi.plan_schema, "schema_changes")
    apply_schema = late_method(GraphApi.apply_schema, "schema_changes")
    diff_schema = late_method(GraphApi.diff_schema, "schema_changes")

    create_branch = late_method(GraphApi.create_branch, "branches")
    delete_branch = late_method(GraphApi.delete_branch, "branches")
    merge = late_method(GraphApi.merge, "branches")
    branches = late_method(GraphApi.branches, "branches")

    tags = late_method(GraphApi.tags, "tags")
    create_tag = late_method(GraphApi.create_tag, "tags")
    delete_tag = late_method(GraphApi.delete_tag, "tags")

    commits = late_method(GraphApi.commits, "history")
    commit = late_method(GraphApi.commit, "history")
    log = late_method(GraphApi.log, "history")
    entity_at = late_method(GraphApi.entity_at, "history")
    diff = late_method(GraphApi.diff, "history")
    changes = late_method(GraphApi.changes, "history")
    feed = late_method(GraphApi.feed, "history")
    refresh = late_method(GraphApi.refresh, "history")
    recoveries = late_method(GraphApi.recoveries, "history")
    pending_recoveries = late_method(GraphApi.pending_recoveries, "history")

    ensure_indices = late_method(GraphApi.ensure_indices, "maintenance")
    optimize = late_method(GraphApi.optimize, "maintenance")
    pending_indexes = late_method(GraphApi.pending_indexes, "maintenance")
    embed = late_method(GraphApi.embed, "maintenance")
    cleanup = late_method(GraphApi.cleanup, "maintenance")
    verify = late_method(GraphApi.verify, "maintenance")
    doctor = late_method(GraphApi.doctor, "maintenance")
    repair = late_method(GraphApi.repair, "maintenance")

    @property
    @override
    def schema(self) -> str:
        return self._core.schema_of(self._core.state().head(MAIN).schema_hash).source

    @property
    @override
    def uri(self) -> str:
        return self._core.uri

    @property
    def read_only(self) -> bool:
        """Whether writes are refused."""
        return self._core.read_only

    @override
    def close(self) -> None:
        self._core.close()

    def __repr__(self) -> str:
        return f"<Graph {self.uri}>"


def _core(
    uri: str | PathLike[str],
    *,
    read_only: bool,
    external_blobs: Sequence[str] | None = None,
    policy: Policy | PolicyGate | str | PathLike[str] | None = None,
    limits: ReadLimits = NO_LIMITS,
) -> OpenGraph:
    gate = None if policy is None else PolicyGate.for_graph(policy)
    settings = GraphSettings.from_environment()
    if external_blobs is not None:
        settings = replace(settings, external_blobs=policy_of(external_blobs))
    environment = open_environment(
        parse_location(uri), durable=settings.durable, lock_timeout_s=settings.lock_timeout_s, lease_s=settings.lease_s
    )
    return OpenGraph(environment, settings, read_only=read_only, gate=gate, limits=limits)
