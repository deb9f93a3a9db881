"""Writes of a remote graph: mutations, loads, schema changes, branches. Each is sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from typing_extensions import override

from omnigraph.api.protocol import IF_GRAPH_COMMIT, NDJSON
from omnigraph.api.results import LoadResult, MutationResult, SchemaApplyResult
from omnigraph.client.connection import OpenRemoteGraph, in_terms_of, refuse_actor, refuse_session, text_of, understood
from omnigraph.commit.rows import MAIN
from omnigraph.core.ids import is_ulid
from omnigraph.core.source import SourceText, read_source
from omnigraph.errors import CompilerError, DirectOnlyError, OmniError, PreconditionFailedError, ResourceLimitError
from omnigraph.lang.schema.compiler import CompiledSchema
from omnigraph.lang.schema.parser import SYNTAX_ERROR

if TYPE_CHECKING:
    from omnigraph.core.budget import CancelSignal
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session

_BODY_LIMIT = "http_request_bytes"


class RemoteWriting(OpenRemoteGraph):
    """Writing methods of a remote graph. The actor of every write is that of the token."""

    @override
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

    @override
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
                "POST", f"{self._path}/load/ndjson", params=params, body=files.body(), headers=headers
            )
        except ResourceLimitError as error:
            raise _with_advice(error) from None
        except OmniError as error:
            raise files.renamed(error) from None
        with understood("a receipt"):
            return LoadResult.from_json(answer | {"uri": self.uri})

    # ---- the schema

    @override
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
