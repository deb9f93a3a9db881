"""Writes of a remote graph: mutations, loads, schema changes, branches. Each is sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from omnigraph.api.protocol import IF_GRAPH_COMMIT, NDJSON
from omnigraph.api.results import (
    BranchReceipt,
    LoadResult,
    MergeResult,
    MutationResult,
    SchemaApplyResult,
)
from omnigraph.client.connection import (
    OpenRemoteGraph,
    in_terms_of,
    refuse_actor,
    refuse_session,
    text_of,
    understood,
)
from omnigraph.client.reads import timed
from omnigraph.commit.rows import MAIN
from omnigraph.core.ids import check_branch_name, is_ulid
from omnigraph.core.source import SourceText, read_source
from omnigraph.errors import (
    CompilerError,
    DirectOnlyError,
    OmniError,
    PreconditionFailedError,
    ResourceLimitError,
)
from omnigraph.lang.schema.compiler import CompiledSchema
from omnigraph.lang.schema.parser import SYNTAX_ERROR

if TYPE_CHECKING:
    from omnigraph.core.budget import CancelSignal
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark.worker_choice import Session

_BODY_LIMIT = "http_request_bytes"


class RemoteWriting(OpenRemoteGraph):
    """What a remote graph writes. The actor of every write is that of the token."""

    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run one mutation query; all of it becomes visible at once, or nothing does.

        With `if_commit` it runs only while the branch head is that commit.

        Raises:
            CompilerError: the query is wrong.
            BadRequestError: a value or a rule of the schema is violated; nothing was written.
            ConflictError: somebody else changed what this mutation read; nothing was written.
            PreconditionFailedError: the head is another commit.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        refuse_actor(actor)
        body = {
            "query": text_of(text),
            "name": name,
            "params": None if params is None else dict(params),
            "branch": branch,
        }
        if if_commit is not None and not is_ulid(if_commit):
            # No branch can be at it; the server would call it a malformed header.
            head = self._connection.ask("GET", f"{self._path}/snapshot", params={"branch": branch})
            raise PreconditionFailedError(branch, if_commit, head.get("graph_commit_id"))
        path, headers = conditional(f"{self._path}/mutate", if_commit)
        try:
            answer = self._connection.write("POST", path, body=body, headers=headers)
        except CompilerError as error:
            raise in_terms_of(text, error) from None
        with understood("a receipt"):
            return MutationResult.from_json(answer)

    def load(
        self,
        source: str | PathLike[str] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        mapping: str | PathLike[str] | Mapping[str, object] | None = None,
        mode: str,
        branch: str = MAIN,
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
        """Load files of graph records; all of it becomes visible at once, or nothing does.

        The files are read here, unpacked, and sent as one body, of which a server takes 32 MiB unless it is told
        otherwise. Mappings and frames are loaded beside the storage. The server stops the load after `timeout_s`, or
        after its own limit, and as soon as the connection is closed, as at the end of this process; it takes no signal.

        Raises:
            LoadRejectedError: records are wrong; `report` names them with exact totals. Nothing was written.
            LoadKeyConflictError: an append met ids that exist. Nothing was written.
            InputFileError: a file cannot be read. Nothing was written.
            ResourceLimitError: it is more than the server takes at once. Nothing was written.
            QueryTimeoutError: it took longer than `timeout_s`, or than the server allows. Nothing was written.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        from omnigraph.client.record_files import BODY_NAME, RecordFiles
        from omnigraph.pipeline.load.inputs import check_one_input

        refuse_actor(actor)
        refuse_session(spark)
        if cancel is not None:
            raise DirectOnlyError("a cancel signal for load")
        check_one_input(source, mapping, frames)
        if source is None:
            raise DirectOnlyError("load with a mapping" if frames is None else "load of frames")
        files = RecordFiles(source, are_lines=grammar != "compatible")
        params = {
            "branch": branch,
            "from": base,
            "mode": str(mode),
            "grammar": str(grammar),
            "dry_run": dry_run,
            "source": BODY_NAME,
            "timeout_s": None if timeout_s is None else str(timeout_s),
        }
        headers = {"Content-Type": NDJSON}
        if files.size is not None:
            # Of a body that does not say how large it is, a server has to assume the largest.
            headers["Content-Length"] = str(files.size)
        try:
            answer = self._connection.write(
                "POST",
                f"{self._path}/load/ndjson",
                params=params,
                body=files.body(),
                headers=headers,
            )
        except ResourceLimitError as error:
            raise _with_advice(error) from None
        except OmniError as error:
            raise files.renamed(error) from None
        with understood("a receipt"):
            return LoadResult.from_json(answer | {"uri": self.uri})

    # ---- the schema

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

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            UnsupportedSchemaError: a difference has no step; nothing happened.
            SchemaViolationsError: existing rows violate the new schema; `report` counts them. Nothing happened.
            BranchesExistError: other branches than main exist; nothing happened.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        refuse_actor(actor)
        refuse_session(spark)
        if validate is not None:
            raise DirectOnlyError("apply_schema with validate")
        source = _schema_source(schema)
        body = {
            "schema_source": source.text,
            "allow_data_loss": allow_data_loss,
            "backfill": dict(backfill) if backfill else None,
        }
        try:
            answer = self._connection.write("POST", f"{self._path}/schema/apply", body=body)
        except CompilerError as error:
            raise in_terms_of(source, error) from None
        warnings = answer.get("warnings", [])
        with understood("a receipt"):
            named = [warning | {"file": source.name} for warning in warnings]
            return SchemaApplyResult.from_json(answer | {"warnings": named, "uri": self.uri})

    # ---- branches

    def branches(self) -> list[str]:
        """The names of all branches, sorted."""
        body = self._connection.ask("GET", f"{self._path}/branches")
        with understood("a list of branches"):
            return list(body["branches"])

    def create_branch(self, name: str, base: str = MAIN, actor: str | None = None) -> BranchReceipt:
        """Create a branch at the head of another one, or at any commit; no data is copied.

        Raises:
            BranchNotFoundError: there is no such base.
            NotFoundError: there is no such commit.
            BadRequestError: the name is taken or not allowed.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        refuse_actor(actor)
        body = {"name": name, "from": base}
        answer = self._connection.write("POST", f"{self._path}/branches", body=body)
        with understood("a receipt"):
            return BranchReceipt.from_json(answer | {"uri": self.uri})

    def delete_branch(self, name: str, actor: str | None = None) -> BranchReceipt:
        """Delete a branch; what it did and nobody merged is gone.

        Raises:
            BranchNotFoundError: there is no such branch.
            BadRequestError: it is main, or other branches began at it or read its tables.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        refuse_actor(actor)
        segment = quote(check_branch_name(name), safe="")
        answer = self._connection.write("DELETE", f"{self._path}/branches/{segment}")
        with understood("a receipt"):
            return BranchReceipt.from_json(answer | {"uri": self.uri})

    def merge(
        self,
        source: str,
        into: str = MAIN,
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

        The server stops it after `timeout_s`, or after its own limit, and as soon as the connection is closed; it takes
        no signal.

        Raises:
            MergeConflictsError: `conflicts` holds them, with the row on both sides and at the base.
            BranchNotFoundError: there is no such branch.
            ConflictError: the target kept moving; nothing happened.
            QueryTimeoutError: it took longer than `timeout_s`, or than the server allows; nothing was written.
            ServerUnreachableError: `outcome_unknown` says whether it may have happened.
        """
        refuse_actor(actor)
        refuse_session(spark)
        if cancel is not None:
            raise DirectOnlyError("a cancel signal for merge")
        body = {
            "source": source,
            "target": into,
            "strategy": None if strategy is None else str(strategy),
            "dry_run": dry_run,
            "delete_branch": delete_branch,
            **timed(timeout_s),
        }
        answer = self._connection.write("POST", f"{self._path}/branches/merge", body=body)
        with understood("a receipt"):
            return MergeResult.from_json(answer)


def conditional(path: str, if_commit: str | None) -> tuple[str, dict[str, str] | None]:
    """The path and the headers of a write that may have a condition; a path of its own, so that it is not overseen."""
    if if_commit is None:
        return path, None
    return f"{path}/if-graph-commit", {IF_GRAPH_COMMIT: quote(if_commit.strip())}


def _schema_source(schema: str | Path | CompiledSchema) -> SourceText:
    if isinstance(schema, CompiledSchema):
        return schema.source
    if isinstance(schema, Path) or "{" not in schema:
        return read_source(schema, code=SYNTAX_ERROR)
    return SourceText(schema, "<schema>")


def _with_advice(error: ResourceLimitError) -> ResourceLimitError:
    if error.resource != _BODY_LIMIT:
        return error
    advice = (
        "load several smaller files, let the server take more (OMNIGRAPH_LOAD_BODY_MAX_BYTES), or open the storage of "
        "the graph, where a load has no limit"
    )
    return ResourceLimitError(error.resource, error.limit, error.actual, advice)
