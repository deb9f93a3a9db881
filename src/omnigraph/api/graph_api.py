"""`GraphApi`: what every graph offers, embedded or behind a server. Signatures and docstrings live here, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.api.results import (
        BaselineResult,
        BlobInfo,
        BlobStream,
        BranchReceipt,
        ExportResult,
        ExportTarget,
        LoadResult,
        MergeResult,
        MutationResult,
        SchemaApplyResult,
    )
    from omnigraph.api.rows import Result
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.diffs import Diff
    from omnigraph.branches.feed import FeedPage
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.core.budget import CancelSignal
    from omnigraph.core.source import SourceText
    from omnigraph.errors.writes import RowImage
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.lang.schema.compiler import CompiledSchema
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session

#: Methods of an embedded graph that work beside its storage; a graph behind a server refuses them.
DIRECT_ONLY = (
    "cleanup",
    "diff_schema",
    "doctor",
    "embed",
    "ensure_indices",
    "optimize",
    "pending_indexes",
    "pending_recoveries",
    "plan_schema",
    "recoveries",
    "repair",
    "verify",
)


class GraphApi:
    """A graph: `Graph` beside its storage, `RemoteGraph` behind a server. Results and errors are the same.

    Behind a server the actor of every write is that of the token, Spark sessions, frames and mappings cannot be sent,
    and every method may raise `ServerUnreachableError`, whose `outcome_unknown` says whether a write may have happened.
    The server stops work after `timeout_s` or its own limit, and as soon as the connection is closed.
    """

    # ---- reads

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        raise NotImplementedError

    def query(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> Result:
        """Run one read on one snapshot: a branch head, a commit, a graph version or a moment.

        It never waits for a writer, and nothing that is written meanwhile changes it. `timeout_s` bounds the time that
        it works, over all batches; `cancel` is a `threading.Event` that another thread sets to stop it. Either stops it
        within about a tenth of a second. Its intermediate results take at most `OMNIGRAPH_QUERY_MEMORY_BYTES`.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.query("query all() { match { $p: Paper } return { $p.doi as doi } }").to_pylist()
        [{'doi': '10.1'}]

        Raises:
            CompilerError: the query is wrong.
            ParameterError: the parameters do not fit it.
            QuerySelectionError: the text holds no such read.
            NotFoundError: there is no such branch, commit, version or moment.
            EmbeddingError: a text had to be embedded, and the provider failed.
            QueryTimeoutError: it took longer than `timeout_s`; batches raise it as well.
            QueryCancelledError: `cancel` was set.
            ResourceLimitError: it needs more memory than a read may have.
        """
        raise NotImplementedError

    def explain(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        analyze: bool = False,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> str:
        """Explain a query: its meaning and its plan here; `analyze` runs it and adds rows and times per operator.

        `timeout_s` and `cancel` stop an analysis as they stop a query.
        """
        raise NotImplementedError

    def snapshot(
        self,
        branch: str = "main",
        *,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> Snapshot:
        """The dataset versions that are visible together: at the head of a branch, or at a point of the past.

        Raises:
            BranchNotFoundError: there is no such branch.
            NotFoundError: there is no such commit, version or moment.
        """
        raise NotImplementedError

    def entity_at(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> RowImage | None:
        """One entity at the head of a branch, at a commit, a graph version or a moment; None if it is not there.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.entity_at("node:Paper", "10.1")
        {'id': '10.1', 'properties': {'doi': '10.1'}}

        Raises:
            NotFoundError: there is no such type, branch, commit, version or moment.
            HistoricalVersionReclaimedError: the version was cleaned up.
        """
        raise NotImplementedError

    def export(
        self,
        target: ExportTarget,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        types: Sequence[str] | None = None,
        format: str = "jsonl",
        parts: bool = False,
        engine: str = "spark",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> ExportResult:
        """Write every entity of one snapshot, or those of some types, so that a load reads it back.

        `-` or a stream of text gets sorted JSON lines from this process, without Spark. A path appears when it is
        complete: one sorted file, with `parts` a directory of sorted files, as `parquet` a directory per type and a
        mapping. `engine="local"` writes it without Spark too. Memory stays bounded whatever the size of the graph.
        `timeout_s` and `cancel` stop it as they stop a query; a path does not appear then.

        >>> import sys, tempfile
        >>> from omnigraph import Graph
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.export(sys.stdout).nodes
        {"type":"Paper","data":{"id":"10.1","doi":"10.1"}}
        {'Paper': 1}

        Raises:
            BadRequestError: the target exists, a type is unknown, or a value cannot be expressed; nothing was written.
            NotFoundError: there is no such branch, commit, version or moment.
            SparkError: Spark cannot run; nothing was written.
            QueryTimeoutError: it took longer than `timeout_s`.
            QueryCancelledError: `cancel` was set.
        """
        raise NotImplementedError

    def read_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes:
        """The bytes of one blob cell, or a range of them; only these are read from storage.

        An end behind the value is moved to it. Without a length everything behind the offset comes, whatever its
        size; `open_blob` gives it in pieces.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key  scan: Blob? }")
        >>> add = 'query add() { insert Paper { doi: "10.1", scan: "base64:SGVsbG8=" } }'
        >>> receipt = graph.mutate(add)
        >>> graph.read_blob("node:Paper", "10.1", "scan", offset=1, length=3)
        b'ell'

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BlobRangeError: the range begins behind the value.
            BadRequestError: the range is malformed, the property is not a Blob, or the value is external.
            ResourceLimitError: the range is larger than one call reads.
            BlobIntegrityError: the stored value is damaged.
        """
        raise NotImplementedError

    def stat_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> BlobInfo:
        """Describe one blob cell: its size and strong tag, or the address of an external value.

        Reads one range at most. The tag is never equal for different bytes; up to `BLOB_RANGE_BYTES` it follows from
        the bytes alone, above it changes also when the value is written again or its file is compacted.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BadRequestError: the property is not a Blob.
        """
        raise NotImplementedError

    def open_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> BlobStream:
        """One blob cell for several reads: `info`, `size`, `read(offset, length)`, and `chunks()` in bounded memory.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BadRequestError: the property is not a Blob.
        """
        raise NotImplementedError

    # ---- writes

    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run one mutation query; all of it becomes visible at once, or nothing does.

        With `if_commit` it runs only while the branch head is that commit.

        Raises:
            CompilerError: the query is wrong.
            BadRequestError: a value or a rule of the schema is violated; nothing was written.
            ConflictError: a concurrent write changed what this mutation read; nothing was written.
            PreconditionFailedError: the head is another commit.
        """
        raise NotImplementedError

    def load(
        self,
        source: str | PathLike[str] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        mapping: str | PathLike[str] | Mapping[str, object] | None = None,
        mode: str,
        branch: str = "main",
        base: str | None = None,
        actor: str | None = None,
        engine: str = "spark",
        spark: Session | None = None,
        dry_run: bool = False,
        grammar: str = "strict",
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> LoadResult:
        """Load files, mapped tables or frames of any size; all of it becomes visible at once, or nothing does.

        `source` is a file, directory or pattern of graph records (JSON lines, packed or not); `mapping` says which
        tables feed which types, and how their columns are read; `frames` maps type names to Spark, Arrow or pandas
        frames, which a mapping beside them may describe as well.

        `append` inserts and refuses ids that exist, `merge` replaces whole rows by id, `overwrite` replaces every type
        that is present. With `base` a missing branch is created in the same commit. `dry_run` does everything but the
        commit. `engine="local"` runs the same stages in this process, for small inputs. `timeout_s` and `cancel` stop
        it before its commit begins, as Ctrl-C does: jobs end, and what they wrote is removed.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> lines = Path(folder, "papers.jsonl")
        >>> written = lines.write_text('{"type": "Paper", "data": {"doi": "10.1"}}')
        >>> graph = Graph.init(folder + "/papers.omni", "node Paper { doi: String @key }")
        >>> graph.load(lines, mode="append", engine="local").nodes_loaded
        {'Paper': 1}

        Raises:
            LoadRejectedError: records are wrong; `report` names them with exact totals. Nothing was written.
            LoadKeyConflictError: an append met ids that exist. Nothing was written.
            InputFileError: a file cannot be read. Nothing was written.
            ConflictError: writers kept changing the tables; nothing was written.
            SparkError: Spark cannot run; the message says whether something was written.
            QueryTimeoutError: it took longer than `timeout_s`. Nothing was written.
            QueryCancelledError: `cancel` was set. Nothing was written.
        """
        raise NotImplementedError

    def apply_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        validate: Callable[[Catalog], None] | None = None,
    ) -> SchemaApplyResult:
        """Make another schema the accepted one, with all of its tables, in one commit; or nothing happens.

        `schema` is the path of a `.pg` file, schema text, or a compiled schema.

        Data stays: renamed types and properties go on with their rows and history, dropped ones can be read at earlier
        commits, unless `allow_data_loss` destroys them. Rules that are new are held against existing rows first. Large
        tables are written and checked on Spark. `validate` gets the new catalog before anything happens and may raise.

        >>> import tempfile
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> wanted = "node Paper { doi: String @key  lang: String }"
        >>> graph.apply_schema(wanted, backfill={"Paper.lang": '"en"'}).applied
        True
        >>> graph.query("query all() { match { $p: Paper } return { $p.lang as lang } }").to_pylist()
        [{'lang': 'en'}]

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            UnsupportedSchemaError: a difference has no step; nothing happened.
            SchemaViolationsError: existing rows violate the new schema; `report` counts them. Nothing happened.
            BranchesExistError: other branches than main exist; nothing happened.
            ConflictError: writers kept changing the tables, or the schema changed meanwhile; nothing happened.
        """
        raise NotImplementedError

    # ---- branches

    def branches(self) -> list[str]:
        """The names of all branches, sorted."""
        raise NotImplementedError

    def create_branch(self, name: str, base: str = "main", actor: str | None = None) -> BranchReceipt:
        """Create a branch at the head of another one, or at any commit; no data is copied.

        Raises:
            BranchNotFoundError: there is no such base.
            NotFoundError: there is no such commit.
            BadRequestError: the name is taken or not allowed.
        """
        raise NotImplementedError

    def delete_branch(self, name: str, actor: str | None = None) -> BranchReceipt:
        """Delete a branch, with all of its commits that were not merged.

        Raises:
            BranchNotFoundError: there is no such branch.
            BadRequestError: it is main, or other branches began at it or read its tables.
        """
        raise NotImplementedError

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        strategy: str | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> MergeResult:
        """Merge what happened on one branch into another, row by row; all of it becomes visible at once.

        Rows that both sides changed to different values, and results that violate the schema, are conflicts: they are
        collected, and nothing happens. `strategy` decides conflicts about rows, `ours` for the target and `theirs` for
        the source. `dry_run` returns outcome and conflicts. Large merges run on Spark by themselves; `engine` can say
        `local` or `spark`. `timeout_s` and `cancel` stop it before its commit begins, as they stop a load.

        Raises:
            MergeConflictsError: `conflicts` holds them, with the row on both sides and at the base.
            BranchNotFoundError: there is no such branch.
            ConflictError: too many concurrent writes to the target; nothing was merged.
            HistoricalVersionReclaimedError: the state where the branches last agreed was cleaned up.
            QueryTimeoutError: it took longer than `timeout_s`; nothing was written.
            QueryCancelledError: `cancel` was set; nothing was written.
        """
        raise NotImplementedError

    # ---- history

    def commits(self, branch: str = "main", actor: str | None = None) -> list[GraphCommit]:
        """The history of a branch, newest first: its own commits and those it inherited."""
        raise NotImplementedError

    def commit(self, commit_id: str) -> GraphCommit:
        """One commit, of any branch.

        Raises:
            NotFoundError: there is no such commit, or its branch was deleted.
        """
        raise NotImplementedError

    def log(self, branch: str | None = None) -> list[GraphCommit]:
        """Everything that one branch, or all of them, build on over both parents; newest first."""
        raise NotImplementedError

    def diff(
        self,
        one: str,
        other: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> Diff | ReportedDiff:
        """The changes between two branches or commits: those that turn the first into the second.

        Cost follows the rows that changed; large differences are compared on Spark by themselves. Of a type that got or
        lost properties in between, all rows are compared; a property that a state does not have counts as null there.
        Many differences are in files that go with the result: close it, or use it in a `with` statement. `timeout_s`
        and `cancel` stop the comparison.

        Raises:
            NotFoundError: there is no such branch or commit.
            BadRequestError: a filter names something that does not exist, or executors of a cluster have no place for
                the files of many differences (`OMNIGRAPH_SCRATCH`).
            HistoricalVersionReclaimedError: a version was cleaned up.
            QueryTimeoutError: it took longer than `timeout_s`.
            QueryCancelledError: `cancel` was set.
        """
        raise NotImplementedError

    def changes(
        self,
        commit_id: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = 1_000,
        max_bytes: int = 4 * 1024 * 1024,
        page_token: str | None = None,
    ) -> ChangesPage:
        """One page of what a commit did, against its first parent, with every entity before and after.

        A page ends after `limit` changes or `max_bytes` of JSON; one change that is larger travels alone.

        Raises:
            NotFoundError: there is no such commit, or its branch was deleted.
            CommitHasNoParentError: it is the first commit of the graph.
            ChangeSchemaBoundaryError: it changed the schema of a type with data.
            ChangeCursorRejectedError: the page token belongs to something else.
            HistoricalVersionReclaimedError: a version was cleaned up.
        """
        raise NotImplementedError

    def feed(
        self,
        branch: str = "main",
        cursor: str | None = None,
        start: str | None = None,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = 1_000,
        max_bytes: int = 4 * 1024 * 1024,
        max_commits: int = 128,
        page_token: str | None = None,
    ) -> FeedPage:
        """One page of the commits of a branch, oldest first, each with its changes.

        Begin with `start` (`now`, the default, `beginning` or `after:<commit id>`), go on with the `page_token` of a
        page until one has a `cursor`, keep that with your data, and poll with it later.

        Raises:
            ChangeCursorRejectedError: the cursor belongs to another graph, branch or filter.
            ChangeFeedGapError: history behind the cursor was cleaned up; take a new baseline.
        """
        raise NotImplementedError

    def baseline(
        self,
        branch: str = "main",
        *,
        out: ExportTarget,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> BaselineResult:
        """Write every entity of a branch as `export` does, and return the cursor from which its feed goes on.

        `timeout_s` and `cancel` stop it as they stop an export.

        Raises:
            BadRequestError: the target exists, or a filter names something that does not exist.
            QueryTimeoutError: it took longer than `timeout_s`.
            QueryCancelledError: `cancel` was set.
        """
        raise NotImplementedError

    # ---- the handle

    def refresh(self) -> None:
        """Look at the current state again, and settle what dead writers left."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the graph holds in memory, and files of large differences that it remembers."""
        raise NotImplementedError

    @property
    def uri(self) -> str:
        """The address of the graph."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
