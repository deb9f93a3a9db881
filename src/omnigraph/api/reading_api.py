"""`ReadingApi`: what every graph offers to read its states and its past. Signatures and docstrings live here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from omnigraph.core.lazy_exports import late_types
from omnigraph.core.source import SourceText
from omnigraph.errors.writes import RowImage

if TYPE_CHECKING:
    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.api.prepared import PreparedRead
    from omnigraph.api.results import BaselineResult, BlobInfo, BlobStream, ExportResult, ExportTarget
    from omnigraph.api.rows import Result
    from omnigraph.branches.changes import ChangesPage
    from omnigraph.branches.diffs import Diff
    from omnigraph.branches.feed import FeedPage
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.tags import Tag
    from omnigraph.core.budget import CancelSignal
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
else:
    globals().update(
        late_types(
            {
                "omnigraph.api.diffs": "ReportedDiff",
                "omnigraph.api.prepared": "PreparedRead",
                "omnigraph.api.results": "BaselineResult BlobInfo BlobStream ExportResult ExportTarget",
                "omnigraph.api.rows": "Result",
                "omnigraph.branches.changes": "ChangesPage",
                "omnigraph.branches.diffs": "Diff",
                "omnigraph.branches.feed": "FeedPage",
                "omnigraph.commit.rows": "GraphCommit",
                "omnigraph.commit.snapshot": "Snapshot",
                "omnigraph.commit.tags": "Tag",
                "omnigraph.core.budget": "CancelSignal",
                "omnigraph.lang.schema.catalog": "Catalog",
                "omnigraph.pipeline.workers": "Progress",
                "omnigraph.spark": "Session",
            }
        )
    )


class PastKeywords(TypedDict, total=False):
    """The state of the past that a read means, as its keywords."""

    snapshot: str | None
    version: int | None
    as_of: str | datetime | None


class TargetKeywords(PastKeywords, total=False):
    """The state that a read means, as its keywords."""

    branch: str


class FilterKeywords(TypedDict, total=False):
    """The changes that a read means, as its keywords."""

    kinds: Sequence[str] | None
    types: Sequence[str] | None
    ops: Sequence[str] | None


class ReadingApi:
    """Reads of a graph: queries, entities, exports, blobs and history."""

    # ---- states

    @property
    def uri(self) -> str:
        """The address of the graph."""
        raise NotImplementedError

    def branches(self) -> list[str]:
        """The names of all branches, sorted."""
        raise NotImplementedError

    def tags(self) -> list[Tag]:
        """All tags, sorted by name: names of commits that never move.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> tag = graph.create_tag("v1", message="nothing yet")
        >>> [tag.name for tag in graph.tags()]
        ['v1']
        >>> graph.snapshot(snapshot="v1").commit_id == tag.commit_id
        True
        """
        raise NotImplementedError

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        raise NotImplementedError

    def catalog(
        self,
        branch: str = "main",
        *,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> Catalog:
        """The resolved schema: node and edge types with their properties, keys and constraints. Immutable.

        Of the head of a branch, or of the commit, graph version or moment that is read. Behind a server it is made from
        the accepted schema text, so that a state with an earlier schema is refused there.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key  year: I32? }")
        >>> paper = graph.catalog().nodes["Paper"]
        >>> paper.key.name, [str(item.type) for item in paper.properties.values()]
        ('doi', ['String', 'I32?'])

        Raises:
            BranchNotFoundError: there is no such branch.
            NotFoundError: there is no such commit, version or moment.
            DirectOnlyError: a server has another schema now than at that state.
        """
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

        The text is one query, with or without `query name(…) { … }` around it, or several with the `name` of one. It
        never waits for a writer, and nothing that is written meanwhile changes it. `timeout_s` bounds the time that it
        works, over all batches; `cancel` is a `threading.Event` that another thread sets to stop it. Either stops it
        within about a tenth of a second. Its intermediate results take at most `OMNIGRAPH_QUERY_MEMORY_BYTES`.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key }")
        >>> receipt = graph.mutate("insert Paper { doi: $doi }", {"doi": "10.1"})
        >>> graph.query("match { $p: Paper } return { $p.doi as doi }").to_pylist()
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

    def prepare(
        self,
        text: str | SourceText,
        *,
        name: str | None = None,
        branch: str = "main",
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> PreparedRead:
        """Check one read, to run it often with other parameters: a call of what is returned parses and plans nothing.

        Text, name and state are those of `query`. A state that is a branch means its newest commit at every call; a
        commit, a version of the graph or a moment stays what it is. Behind a server the text is checked here, and sent
        with every call: the server keeps what it compiled.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key  year: I32? }")
        >>> add = 'insert Paper { doi: "10.1", year: 2020 } insert Paper { doi: "10.2", year: 2021 }'
        >>> receipt = graph.mutate(add)
        >>> year_of = graph.prepare("match { $p: Paper { doi: $doi } } return { $p.year as year }")
        >>> year_of
        <PreparedRead query($doi: String) on branch main: year>
        >>> [year_of({"doi": doi}).to_pylist() for doi in ("10.1", "10.2")]
        [[{'year': 2020}], [{'year': 2021}]]

        Raises:
            CompilerError: the query is wrong.
            QuerySelectionError: the text holds no such read.
            NotFoundError: there is no such branch, commit, version or moment.
            DirectOnlyError: a server has another schema now than at that state.
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

        `type_key` is the name of a type, or `node:Paper` and `edge:Paper` where a node and an edge type have one name.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.entity_at("Paper", "10.1")
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
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> ExportResult:
        """Write every entity of one snapshot, or those of some types, so that a load reads it back.

        `-` or a stream of text gets sorted JSON lines from this process, without Spark. A path appears when it is
        complete: one sorted file, with `parts` a directory of sorted files, as `parquet` a directory per type and a
        mapping. Tables up to 32 MiB are written by this process, larger ones by Spark, which `spark=` forces as well;
        `engine` can say `local` or `spark`. Memory stays bounded whatever the size of the graph.
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

    # ---- history

    def commits(
        self, branch: str = "main", actor: str | None = None, *, all_branches: bool = False
    ) -> list[GraphCommit]:
        """The history of a branch, newest first: its own commits and those it inherited.

        With `all_branches`, everything that any branch builds on, also what was merged into it. `actor` chooses the
        commits of one actor.

        Raises:
            BranchNotFoundError: there is no such branch.
            BadRequestError: a branch is named beside `all_branches`.
        """
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
