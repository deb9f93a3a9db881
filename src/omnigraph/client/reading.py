"""Reads of a remote graph: queries, plans, entities, snapshots, exports, the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph.budget import Budget
from omnigraph.client.connection import understood
from omnigraph.client.lines import LineCount, opened_target
from omnigraph.client.opened import (
    OpenRemoteGraph,
    in_terms_of,
    refuse_session,
    target_members,
    target_of,
    text_of,
)
from omnigraph.errors import BadRequestError, CompilerError, DirectOnlyError
from omnigraph.manifest.rows import MAIN
from omnigraph.wire.arrow_results import decode_result
from omnigraph.wire.commits import snapshot_from_json
from omnigraph.wire.exports import ExportResult
from omnigraph.wire.protocol import ARROW_STREAM, EXPORTED_TYPES, JSON, NDJSON, SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import httpx

    from omnigraph.branches.images import RowImage
    from omnigraph.budget import CancelSignal
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.manifest.targets import Target
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session
    from omnigraph.syntax.source import SourceText
    from omnigraph.wire.answer import Result
    from omnigraph.wire.exports import ExportTarget

ROWS = {"Accept": f"{ARROW_STREAM}, {JSON}"}


class RemoteReading(OpenRemoteGraph):
    """What a remote graph reads."""

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        body = self._connection.ask("GET", f"{self._path}/schema")
        with understood("a schema"):
            return str(body["schema_source"])

    def query(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> Result:
        """Run one read on one snapshot: a branch head, a commit, a graph version or a moment.

        Rows arrive as they are asked for. Parameters are values of JSON; dates and times are texts. The server stops
        the read after `timeout_s`, or after its own default, and as soon as the connection is closed: setting `cancel`
        ends the waiting at once, and the connection with the next piece of the answer.

        Raises:
            CompilerError: the query is wrong.
            ParameterError: the parameters do not fit it.
            NotFoundError: there is no such branch, commit, version or moment.
            ServerUnreachableError: nobody answered.
            QueryTimeoutError: it took longer than it may; batches raise it as well.
            QueryCancelledError: `cancel` was set.
            ResourceLimitError: it needs more memory, or has more rows, than the server allows.
        """
        target = target_of(branch, snapshot, version, as_of)
        body = {
            "query": text_of(text),
            "name": name,
            "params": _plain(params),
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

    def _rows(
        self, response: httpx.Response, target: Target, budget: Budget | None = None
    ) -> Result:
        with understood("rows"):
            pieces = self._connection.pieces(response)
            if budget is not None:
                pieces = budget.steps(pieces)
            return decode_result(pieces, target=target, close=response.close)

    def explain(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        analyze: bool = False,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> str:
        """What a query means and how it would run there; `analyze` runs it and adds rows and times per operator."""
        body = {
            "query": text_of(text),
            "name": name,
            "params": _plain(params),
            "branch": branch,
            "analyze": analyze,
            **timed(timeout_s),
        }

        def ask() -> dict[str, Any]:
            return self._connection.ask("POST", f"{self._path}/explain", body=body)

        try:
            answer = ask() if cancel is None else Budget(cancel=cancel).patiently(ask)
        except CompilerError as error:
            raise in_terms_of(text, error) from None
        with understood("a plan"):
            return str(answer["text"])

    def snapshot(
        self,
        branch: str = MAIN,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> Snapshot:
        """The dataset versions that are visible together: at the head of a branch, or at a point of the past."""
        target = target_of(branch, snapshot, version, as_of)
        params = target_members(target)
        body = self._connection.ask("GET", f"{self._path}/snapshot", params=params)
        with understood("a snapshot"):
            return snapshot_from_json(body)

    def entity_at(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> RowImage | None:
        """One entity at the head of a branch, at a commit, a graph version or a moment; None if it is not there."""
        target = target_of(branch, snapshot, version, as_of)
        params = {"type": type_key, "id": entity_id, **target_members(target)}
        body = self._connection.ask("GET", f"{self._path}/entity", params=params)
        with understood("an entity"):
            found: RowImage | None = body["entity"]
            return found

    def export(
        self,
        target: ExportTarget,
        *,
        branch: str = MAIN,
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
        """Write every entity of one snapshot, or those of some types, as sorted JSON lines to a path or a stream.

        A path appears when it is complete. A stream keeps what it got when the connection breaks; discard it then.

        Raises:
            BadRequestError: the target exists, or a type is unknown; nothing was written.
            NotFoundError: there is no such branch, commit, version or moment.
            DirectOnlyError: Parquet and parts are written beside the storage.
        """
        refuse_session(spark)
        if format != "jsonl" or parts:
            raise DirectOnlyError("export as Parquet" if format == "parquet" else "export in parts")
        if isinstance(types, str):
            raise BadRequestError(f"types is a list of names: give [{types!r}]")
        wanted = target_of(branch, snapshot, version, as_of)
        body = {
            **target_members(wanted),
            "type_names": list(types) if types else None,
            **timed(timeout_s),
        }
        budget = Budget(cancel=cancel)
        count = LineCount()
        connection = self._connection
        with opened_target(target, self.uri) as (name, write):
            headers = {"Accept": NDJSON}
            with connection.streaming(
                "POST", f"{self._path}/export", body=body, headers=headers
            ) as response:
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


def timed(timeout_s: float | None) -> dict[str, object]:
    """The time of a read as a member of a body; left out where the server decides."""
    return {} if timeout_s is None else {"timeout_s": timeout_s}


def _plain(params: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if params is None else dict(params)
