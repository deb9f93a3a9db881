"""A graph behind a server: `RemoteGraph`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import update_wrapper
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from typing_extensions import override

from omnigraph.api.graph_api import DIRECT_ONLY, GraphApi
from omnigraph.api.listings import branch_list, commit_list, tag_list
from omnigraph.api.operation import EXPORTED_TYPES, NDJSON, SNAPSHOT_ID, Operation
from omnigraph.api.operations import OPERATIONS
from omnigraph.api.prepared import PreparedRead, read_of, refuse_command
from omnigraph.api.reading_api import FilterKeywords, PastKeywords, TargetKeywords
from omnigraph.api.results import (
    BLOB_RANGE_BYTES,
    BaselineResult,
    BlobCell,
    BlobInfo,
    ExportResult,
    ExportTarget,
    LoadResult,
    MutationResult,
    SchemaApplyResult,
    check_range,
)
from omnigraph.client.addresses import check_graph_id, find_token, parse_address
from omnigraph.client.connection import (
    Connection,
    condition,
    filter_members,
    in_terms_of,
    mutation_bounds,
    named_after,
    note_members,
    only_graph,
    perform,
    refuse_actor,
    refuse_session,
    refused_method,
    schema_source,
    target_members,
    timed,
    understood,
    with_advice,
)
from omnigraph.client.stored_queries import ROWS, StoredQueries
from omnigraph.client.streams import LineCount, RemoteBlob, RemoteCell, held_back, opened_target
from omnigraph.commit.notes import note_of
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, GraphCommit
from omnigraph.commit.tags import Tag
from omnigraph.core.budget import Budget, CancelSignal
from omnigraph.core.ids import is_ulid_part
from omnigraph.core.lazy_exports import LateModule, late_types
from omnigraph.core.parameters import json_params
from omnigraph.core.source import SourceText
from omnigraph.errors import (
    BadRequestError,
    CompilerError,
    DirectOnlyError,
    OmniError,
    PreconditionFailedError,
    ResourceLimitError,
)
from omnigraph.lang.schema.steps import SchemaSteps

if TYPE_CHECKING:
    import httpx

    from omnigraph.api.diffs import ReportedDiff
    from omnigraph.api.rows import Result
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.lang.schema.compiler import CompiledSchema
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
else:
    httpx = LateModule("httpx")
    globals().update(late_types({"omnigraph.api.rows": "Result"}))


class RemoteGraph(StoredQueries, GraphApi):
    """A graph behind a server, with the methods, results and errors of `Graph`: see `GraphApi`.

    What the catalogue answers alone has no method here. Thread-safe; close it, or use it in a `with` statement.
    """

    #: What a policy allows is decided for every request.
    read_only = False

    def __init__(self, connection: Connection, graph_id: str) -> None:
        super().__init__(connection, f"/graphs/{graph_id}")
        self.graph_id = graph_id

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        graph: str | None = None,
        *,
        timeout_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> RemoteGraph:
        """A graph of a server. The address may name it (`https://host/graphs/papers`), or `graph` does.

        Without a name the server is asked: its only graph is meant, or `default` where it does not tell. Otherwise
        nothing is sent before the first call. The token is `OMNIGRAPH_BEARER_TOKEN` unless one is given. `timeout_s`
        bounds how long an answer may take.

        Raises:
            BadRequestError: the address or the token is malformed, or the server has several graphs.
            UnauthorizedError: the server was asked, and does not know the token.
            ServerUnreachableError: the server was asked, and did not respond.
        """
        address = parse_address(url)
        if address.graph is not None and graph not in (None, address.graph):
            raise BadRequestError(f"the address names the graph {address.graph}, and {graph} is asked for: give one")
        name = graph or address.graph
        if name is not None:
            check_graph_id(name)
        connection = Connection(address, find_token(token), timeout_s=timeout_s, transport=transport)
        try:
            return cls(connection, name or only_graph(connection))
        except BaseException:  # also after an interrupt: only this closes it
            connection.close()
            raise

    @property
    @override
    def uri(self) -> str:
        return f"{self._connection.base}{self._path}"

    @override
    def refresh(self) -> None:
        self._connection.request("GET", f"{self._path}/snapshot")

    @override
    def close(self) -> None:
        self._connection.close()

    def __repr__(self) -> str:
        return f"<RemoteGraph {self.uri}>"

    # ---- reads

    @property
    @override
    def schema(self) -> str:
        body = self._connection.request("GET", f"{self._path}/schema")
        with understood("a schema"):
            return str(body["schema_source"])

    @override
    def catalog(self, branch: str = MAIN, **past: Unpack[PastKeywords]) -> Catalog:
        from omnigraph.lang.schema.compiler import compile_schema

        is_of_main = branch == MAIN and all(value is None for value in past.values())
        if not is_of_main and self.snapshot(branch, **past).schema_hash != self.snapshot().schema_hash:
            # The text of the accepted schema travels, and none of the past.
            raise DirectOnlyError("catalog of an earlier schema")
        return compile_schema(self.schema).catalog

    @override
    def query(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
        **state: Unpack[TargetKeywords],
    ) -> Result:
        target = Target.of(state)
        body = {
            "query": text if isinstance(text, str) else text.text,
            "name": name,
            "params": json_params(params),
            **target_members(target),
            **timed(timeout_s),
        }
        budget = Budget(cancel=cancel)

        def ask() -> httpx.Response:
            response = self._connection.open("POST", f"{self._path}/query", body=body, headers=ROWS)
            if cancel is not None and cancel.is_set():
                # Its reader stopped waiting, so it is closed here.
                response.close()
            return response

        try:
            response = ask() if cancel is None else budget.patiently(ask)
        except CompilerError as error:
            raise in_terms_of(text, error) from None
        return self._rows(response, target, budget)

    @override
    def prepare(
        self, text: str | SourceText, *, name: str | None = None, **state: Unpack[TargetKeywords]
    ) -> PreparedRead:
        from omnigraph.lang.query.compiler import compile_query

        refuse_command(text)
        target = Target.of(state)
        if target.snapshot is not None:
            # A commit may be named by a branch, which goes on: here it stays what it is.
            target = Target(snapshot=self.snapshot(snapshot=target.snapshot).commit_id)
        pinned: TargetKeywords = {"branch": target.branch, "snapshot": target.snapshot}
        pinned |= {"version": target.version, "as_of": target.as_of}
        # Checked against the schema that is asked for once, and sent with every call.
        query = read_of(compile_query(text, self.catalog(**pinned), name))

        def run(params: Mapping[str, object] | None, timeout_s: float | None, cancel: CancelSignal | None) -> Result:
            return self.query(text, params, name=name, timeout_s=timeout_s, cancel=cancel, **pinned)

        return PreparedRead(run, query, target)

    def _rows(self, response: httpx.Response, target: Target, budget: Budget | None = None) -> Result:
        from omnigraph.api.row_streams import decode_result

        with understood("rows"):
            pieces = (budget or Budget()).steps(self._connection.pieces(response))
            return decode_result(pieces, target=target, close=response.close)

    @override
    def export(
        self,
        target: ExportTarget,
        *,
        types: Sequence[str] | None = None,
        format: str = "jsonl",
        parts: bool = False,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
        **state: Unpack[TargetKeywords],
    ) -> ExportResult:
        refuse_session(spark)
        if format != "jsonl" or parts:
            raise DirectOnlyError("export as Parquet" if format == "parquet" else "export in parts")
        if isinstance(types, str):
            raise BadRequestError(f"types is a list of names: give [{types!r}]")
        body = {**target_members(Target.of(state)), "type_names": list(types) if types else None, **timed(timeout_s)}
        budget, count, connection = Budget(cancel=cancel), LineCount(), self._connection
        with opened_target(target, self.uri) as (name, write):
            headers = {"Accept": NDJSON}
            with closing(connection.open("POST", f"{self._path}/export", body=body, headers=headers)) as response:
                known = response.headers.get(EXPORTED_TYPES, "").split()
                commit_id = response.headers.get(SNAPSHOT_ID, "")
                for block in count.whole_lines(budget.steps(connection.pieces(response))):
                    write(block)
        return ExportResult(
            target=name,
            format=format,
            files=() if name == "-" else (name,),
            nodes=count.of_kind("node", known),
            edges=count.of_kind("edge", known),
            commit_id=commit_id,
        )

    @override
    def baseline(
        self,
        branch: str = MAIN,
        *,
        out: ExportTarget,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
        **chosen: Unpack[FilterKeywords],
    ) -> BaselineResult:
        body = {"branch": branch, **filter_members(chosen), **timed(timeout_s)}
        budget, count, last = Budget(cancel=cancel), LineCount(), [b""]
        connection, path = self._connection, f"{self._path}/changes/baseline"
        with opened_target(out, self.uri) as (name, write):
            with closing(connection.open("POST", path, body=body, headers={"Accept": NDJSON})) as response:
                lines = count.whole_lines(budget.steps(connection.pieces(response)))
                for block in held_back(lines, last):
                    write(block)
            with understood("a baseline"):
                handshake = json.loads(last[-1])["baseline"]
                return BaselineResult(
                    target=name,
                    entities=count.entities.total(),
                    snapshot_commit_id=handshake["snapshot_commit_id"],
                    resume_cursor=handshake["resume_cursor"],
                )

    @override
    def diff(
        self,
        one: str,
        other: str,
        *,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
        **chosen: Unpack[FilterKeywords],
    ) -> ReportedDiff:
        # Lazy: only changes need `branches`.
        from omnigraph.api.diffs import ReportedDiff
        from omnigraph.branches.changes import MAX_PAGE_CHANGES
        from omnigraph.branches.diffs import DiffPage

        refuse_session(spark)
        pages: list[DiffPage] = []
        asked = {**filter_members(chosen), "limit": MAX_PAGE_CHANGES, "timeout_s": timeout_s, "cancel": cancel}
        states, token = {"from": one, "to": other}, None
        while not pages or token is not None:
            page = perform(
                self._connection, self._path, OPERATIONS["get_diff"], {**states, **asked, "page_token": token}
            )
            pages.append(page)
            token = page.next_page_token
            # The other pages belong to the same two commits, also when a branch moves meanwhile.
            states = {"from": page.from_graph_commit_id, "to": page.to_graph_commit_id}
        return ReportedDiff.from_pages(pages, self)

    @override
    def log(self, branch: str | None = None) -> list[GraphCommit]:
        body = self._connection.request("GET", f"{self._path}/log", params={"branch": branch})
        with understood("commits"):
            return commit_list(GraphCommit.from_json(commit) for commit in body["commits"])

    @override
    def commits(self, branch: str = MAIN, actor: str | None = None, *, all_branches: bool = False) -> list[GraphCommit]:
        asked = {"branch": branch, "actor": actor, "all_branches": all_branches or None}
        return commit_list(perform(self._connection, self._path, OPERATIONS["list_commits"], asked))

    @override
    def branches(self) -> list[str]:
        return branch_list(perform(self._connection, self._path, OPERATIONS["list_branches"], {}))

    @override
    def tags(self) -> list[Tag]:
        return tag_list(perform(self._connection, self._path, OPERATIONS["list_tags"], {}))

    # ---- blob cells

    @override
    def read_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        offset: int = 0,
        length: int | None = None,
        **state: Unpack[TargetKeywords],
    ) -> bytes:
        check_range(offset, length, limit=BLOB_RANGE_BYTES)
        target = Target.of(state)
        cell = self._cell(type_key, entity_id, property_name)
        return b"".join(cell.stream(target_members(target), offset, length))

    @override
    def stat_blob(self, type_key: str, entity_id: str, property_name: str, **state: Unpack[TargetKeywords]) -> BlobInfo:
        return self.open_blob(type_key, entity_id, property_name, **state).info

    @override
    def open_blob(
        self, type_key: str, entity_id: str, property_name: str, **state: Unpack[TargetKeywords]
    ) -> RemoteBlob:
        target = Target.of(state)
        found = self._cell(type_key, entity_id, property_name)
        return RemoteBlob(found, found.info(target, target_members(target)))

    def _cell(self, type_key: str, entity_id: str, property_name: str) -> RemoteCell:
        cell = BlobCell(type_key=type_key, entity_id=entity_id, property=property_name)
        return RemoteCell(self._connection, f"{self._path}/blob", cell)

    # ---- writes: each is sent once, and its actor is that of the token

    @override
    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
        if_commit: str | None = None,
        max_affected: int | None = None,
        dry_run: bool = False,
    ) -> MutationResult:
        refuse_actor(actor)
        if if_commit is not None and not is_ulid_part(if_commit):
            # No branch can be at it; the server would call it a malformed header.
            head = self._connection.request("GET", f"{self._path}/snapshot", params={"branch": branch})
            raise PreconditionFailedError(branch, if_commit, head.get("graph_commit_id"))
        operation = OPERATIONS["mutate" if if_commit is None else "mutate_if_graph_commit"]
        given = {"text": text, "name": name, "params": params, "branch": branch, **note_members(message, metadata)}
        arguments = {**given, **mutation_bounds(max_affected, dry_run)}
        result: MutationResult = perform(self._connection, self._path, operation, arguments, condition(if_commit))
        return result

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
        from omnigraph.client.record_files import BODY_NAME, NO_QUARANTINE, RecordFiles
        from omnigraph.pipeline.sources.inputs import check_one_input

        refuse_actor(actor)
        refuse_session(spark)
        if cancel is not None:
            raise DirectOnlyError("a cancel signal for load")
        check_one_input(source, mapping, frames)
        if source is None:
            raise DirectOnlyError("load with a mapping" if frames is None else "load of frames")
        if quarantine is not None:
            raise DirectOnlyError("load with a quarantine", NO_QUARANTINE)
        note = note_of(message, metadata)
        files = RecordFiles(source, are_lines=grammar != "compatible")
        params = {
            "branch": branch,
            "from": base,
            "mode": str(mode),
            "grammar": str(grammar),
            "upsert": upsert,
            "check_minimum": check_minimum,
            "on_duplicate": None if on_duplicate is None else str(on_duplicate),
            "dangling": None if dangling is None else str(dangling),
            "dry_run": dry_run,
            "source": BODY_NAME,
            "timeout_s": timeout_s,
            "message": note.message,
            "metadata": None if note.metadata is None else json.dumps(note.metadata),
        }
        headers = {"Content-Type": NDJSON}
        if files.size is not None:
            # Of a body that does not say how large it is, a server has to assume the largest.
            headers["Content-Length"] = str(files.size)
        try:
            answer = self._connection.request(
                "POST", f"{self._path}/load/ndjson", params=params, body=files.body(), headers=headers, is_write=True
            )
        except ResourceLimitError as error:
            raise with_advice(error) from None
        except OmniError as error:
            raise files.renamed(error) from None
        with understood("a receipt"):
            receipt = LoadResult.from_json(answer | {"uri": self.uri})
        return receipt if receipt.report is None else replace(receipt, report=files.placed(receipt.report))

    @override
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
        refuse_actor(actor)
        refuse_session(spark)
        if validate is not None:
            raise DirectOnlyError("apply_schema with validate")
        source = schema_source(schema)
        arguments = {"schema": source, "allow_data_loss": allow_data_loss, "backfill": dict(backfill or {}) or None}
        arguments |= note_members(message, metadata)
        result: SchemaApplyResult = perform(self._connection, self._path, OPERATIONS["apply_schema"], arguments)
        plan = SchemaSteps(steps=result.plan.steps, warnings=named_after(source, result.plan.warnings))
        return replace(result, plan=plan)


# ---- Methods without code of their own


def _derived(operation: Operation) -> Callable[..., Any]:
    """The method of a remote graph that only asks the server."""
    signature = inspect.signature(getattr(GraphApi, operation.call or ""))

    def method(self: RemoteGraph, *args: object, **kwargs: object) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        return perform(self._connection, self._path, operation, {name: given[name] for name in given if name != "self"})

    return method


for _operation in OPERATIONS.values():
    if _operation.call is not None and _operation.call not in vars(RemoteGraph):
        setattr(RemoteGraph, _operation.call, _derived(_operation))
for _name in DIRECT_ONLY:
    setattr(RemoteGraph, _name, refused_method(_name))
for _name, _method in vars(RemoteGraph).items():
    if inspect.isfunction(_method) and not _name.startswith("_") and hasattr(GraphApi, _name):
        # Signature and docstring are those of `GraphApi`.
        update_wrapper(_method, getattr(GraphApi, _name))
