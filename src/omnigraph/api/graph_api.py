"""`GraphApi`: what every graph offers, embedded or behind a server. Signatures and docstrings live here, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from omnigraph.api.maintenance_api import MaintenanceApi
from omnigraph.api.showing_api import ShowingApi
from omnigraph.core.lazy_exports import late_types
from omnigraph.core.source import SourceText

if TYPE_CHECKING:
    from omnigraph.api.results import BranchReceipt, LoadResult, MergeResult, MutationResult, SchemaApplyResult
    from omnigraph.commit.tags import Tag
    from omnigraph.core.budget import CancelSignal
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.lang.schema.compiler import CompiledSchema
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
else:
    globals().update(
        late_types(
            {
                "omnigraph.api.results": "BranchReceipt LoadResult MergeResult MutationResult SchemaApplyResult",
                "omnigraph.commit.tags": "Tag",
                "omnigraph.core.budget": "CancelSignal",
                "omnigraph.lang.schema.catalog": "Catalog",
                "omnigraph.lang.schema.compiler": "CompiledSchema",
                "omnigraph.pipeline.workers": "Progress",
                "omnigraph.spark": "Session",
            }
        )
    )

#: Methods of an embedded graph that work beside its storage; a graph behind a server refuses them.
DIRECT_ONLY = tuple(sorted(name for name in vars(MaintenanceApi) if not name.startswith("_")))


class GraphApi(ShowingApi, MaintenanceApi):
    """A graph: `Graph` beside its storage, `RemoteGraph` behind a server. Results and errors are the same.

    Behind a server the actor of every write is that of the token, Spark sessions, frames and mappings cannot be sent,
    and every method may raise `ServerUnreachableError`, whose `outcome_unknown` says whether a write may have happened.
    The server stops work after `timeout_s` or its own limit, and as soon as the connection is closed.
    """

    # ---- writes

    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
        if_commit: str | None = None,
        max_affected: int | None = None,
        dry_run: bool = False,
    ) -> MutationResult:
        """Run one mutation query; all of it becomes visible at once, or nothing does.

        With `if_commit` it runs only while the branch head is that commit, with `max_affected` only if it changes no
        more nodes and edges than that. `dry_run` writes nothing: the receipt counts the rows that would change per
        type, and shows a few of them before and after. `message` says why, and `metadata` (texts, numbers, truth values
        and nulls by name) what programs want to know about it: the commit keeps both, as it does for every write.

        >>> import tempfile
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key  year: I32? }")
        >>> graph.mutate('insert Paper { doi: "10.1", year: 2020 }').affected_nodes
        1
        >>> (change,) = graph.mutate("update Paper set { year: 2021 } where year = 2020", dry_run=True).examples
        >>> change.before["properties"]["year"], change.after["properties"]["year"]
        (2020, 2021)
        >>> receipt = graph.mutate("delete Paper where true", message="retracted", metadata={"ticket": 17})
        >>> receipt.commit.message, receipt.commit.metadata
        ('retracted', {'ticket': 17})

        Raises:
            CompilerError: the query is wrong.
            BadRequestError: a value or a rule of the schema is violated; nothing was written.
            ConflictError: a concurrent write changed what this mutation read; nothing was written.
            PreconditionFailedError: the head is another commit.
            ResourceLimitError: more than `max_affected` would change, or its rows need too much memory.
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
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        on_duplicate: str | None = None,
        dangling: str | None = None,
        quarantine: str | PathLike[str] | None = None,
        dry_run: bool = False,
        grammar: str = "strict",
        upsert: bool = False,
        check_minimum: bool = False,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> LoadResult:
        """Load files, mapped tables or frames of any size; all of it becomes visible at once, or nothing does.

        `source` is a file, directory or pattern of graph records (JSON lines, packed or not); `mapping` says which
        tables feed which types, and how their columns are read; `frames` maps type names to frames, which a mapping
        beside them may describe as well: of Spark, pandas and polars, Arrow tables and everything with the Arrow stream
        protocol, lists of dictionaries.

        `append` inserts and refuses ids that exist, `merge` replaces whole rows by id, `overwrite` replaces every type
        that is present. `patch` sets only the properties that a record brings, of the row that its key or its `id`
        names; a record of an unknown row is an error, or with `upsert` a new row. With `base` a missing branch is
        created in the same commit. `dry_run` does everything but the commit. `timeout_s` and `cancel` stop it before
        its commit begins, as Ctrl-C does: jobs end, and what they wrote is removed. With `check_minimum` every node
        needs the edges that `@card(1..)` asks for, also where it never had one.

        `on_duplicate` decides about records of the input with equal ids: `"first"` or `"last"` counts, `"error"`
        refuses them. `dangling="drop"` leaves out edges whose ends do not exist; the receipt counts them, and its
        `report` shows some. A mapping may say both per type. Without either, `merge` takes the last record of files,
        and everything else is refused.

        With `quarantine=FOLDER` bad records do not refuse the load: the others are loaded in one commit, and the folder
        gets every bad record as its source has it, with its reasons and the command that loads it again. Rows of frames
        become Parquet files. The folder is complete before the commit, and gone when the load fails.

        Inputs up to 32 MiB run in this process, larger ones on Spark, and so do frames and tables of Spark and loads
        with `spark=`; `engine` of the receipt says which it was, and why. `engine="local"` and `engine="spark"` force
        one of them: stages and results are the same.

        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> lines = Path(folder, "papers.jsonl")
        >>> written = lines.write_text('{"type": "Paper", "data": {"doi": "10.1"}}')
        >>> graph = Graph.init(folder + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.load(lines, mode="append")
        >>> receipt.nodes_loaded
        {'Paper': 1}
        >>> print(receipt.engine)
        in process: 39 B of input, Spark starts above 32 MiB

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
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
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

    def create_tag(
        self,
        name: str,
        commit: str = "main",
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> Tag:
        """Name a commit: the head of a branch, or any other one (`main~3`). A tag never moves.

        Wherever a commit is named, its tag can be given. What it shows stays readable through every cleanup; a branch
        that it was made on cannot be deleted, and no schema change destroys data.

        Raises:
            TagExistsError: there is such a tag.
            NotFoundError: there is no such commit.
            HistoricalVersionReclaimedError: its data was cleaned up.
            BadRequestError: a branch has the name, or no tag can have it.
        """
        raise NotImplementedError

    def delete_tag(self, name: str, actor: str | None = None) -> Tag:
        """Delete a tag; the commit stays, as long as something else keeps it.

        Raises:
            TagNotFoundError: there is no such tag.
        """
        raise NotImplementedError

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        strategy: str | None = None,
        dry_run: bool = False,
        check_minimum: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> MergeResult:
        """Merge what happened on one branch into another, row by row; all of it becomes visible at once.

        Rows that both sides changed to different values, and results that violate the schema, are conflicts: they are
        collected, and nothing happens. `strategy` decides conflicts about rows, `ours` for the target and `theirs` for
        the source. `dry_run` returns outcome and conflicts. With `check_minimum` nodes of the result that lack edges
        which `@card(1..)` asks for are conflicts, also where they never had one. Large merges run on Spark by
        themselves; `engine` can say `local` or `spark`. `timeout_s` and `cancel` stop it before its commit begins, as
        they stop a load.

        Raises:
            MergeConflictsError: `conflicts` holds them, with the row on both sides and at the base.
            BranchNotFoundError: there is no such branch.
            ConflictError: too many concurrent writes to the target; nothing was merged.
            HistoricalVersionReclaimedError: the state where the branches last agreed was cleaned up.
            QueryTimeoutError: it took longer than `timeout_s`; nothing was written.
            QueryCancelledError: `cancel` was set; nothing was written.
        """
        raise NotImplementedError

    # ---- the handle

    def refresh(self) -> None:
        """Look at the current state again, and settle what dead writers left."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the graph holds in memory, its connections, and files of large differences that it remembers.

        Results, differences and blobs that it gave out can be read to their end: what they use goes with them. A graph
        that is used after `close` takes what it needs anew.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
