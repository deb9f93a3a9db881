"""Queries, plans, entities and exports over HTTP; streams of lines."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from omnigraph.api.protocol import ARROW_STREAM, EXPORTED_TYPES, JSON, NDJSON, SNAPSHOT_ID
from omnigraph.api.results import STDOUT, ExportResult, ExportTarget, line_writer
from omnigraph.api.rows import decode_result
from omnigraph.client.connection import (
    OpenRemoteGraph,
    in_terms_of,
    refuse_session,
    target_members,
    target_of,
    text_of,
    understood,
)
from omnigraph.commit.rows import MAIN
from omnigraph.core.budget import Budget
from omnigraph.errors import BadRequestError, CompilerError, DirectOnlyError, UnexpectedAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import httpx

    from omnigraph.api.rows import Result
    from omnigraph.commit.targets import Target
    from omnigraph.core.budget import CancelSignal
    from omnigraph.core.source import SourceText
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


# ---- Streams of JSON lines


if TYPE_CHECKING:
    Write = Callable[[bytes], object]

_TYPE = re.compile(rb'^\{"(type|edge)":"([^"]+)"', re.MULTILINE)
_KINDS = {b"type": "node", b"edge": "edge"}


class LineCount:
    """Counts of the entities that passed, by type."""

    def __init__(self) -> None:
        self.entities: Counter[str] = Counter()

    def whole_lines(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes, cut behind lines.

        Raises:
            UnexpectedAnswerError: the last line is not complete.
        """
        # Joined once per line: one with a large blob comes in thousands of pieces.
        begun: list[bytes] = []
        for piece in pieces:
            end, newline, rest = piece.rpartition(b"\n")
            if newline:
                yield self._counted(b"".join((*begun, end, newline)))
                begun.clear()
            begun.append(rest)
        if any(begun):
            raise UnexpectedAnswerError("the last line of the server is not complete: ask again")

    def _counted(self, block: bytes) -> bytes:
        self.entities.update(f"{_KINDS[kind]}:{name.decode()}" for kind, name in _TYPE.findall(block))
        return block

    def of_kind(self, kind: str, known: Iterable[str]) -> dict[str, int]:
        """Entities per type of one kind, also of known types without any, in the order of their names."""
        keys = sorted({*known, *self.entities})
        pairs = (key.partition(":") for key in keys)
        return {name: self.entities[f"{k}:{name}"] for k, _, name in pairs if k == kind}


@contextmanager
def opened_target(target: ExportTarget, graph_uri: str) -> Iterator[tuple[str, Write]]:
    """The name of a target, and how it takes lines. A path appears when all went well, or not at all.

    Raises:
        BadRequestError: the path is in use, or not one that an export can go to; or the sink is not a stream.
    """
    if not isinstance(target, str | os.PathLike) or os.fspath(target) == STDOUT:
        yield STDOUT, line_writer(target)
        return
    from omnigraph.pipeline.export.files import local_target, staging

    path = local_target(target, graph_uri)
    with staging(path) as place:
        with open(place.result, "wb") as file:
            yield str(path), file.write
        place.publish(durable=True)


def held_back(blocks: Iterable[bytes], last: list[bytes]) -> Iterator[bytes]:
    """All lines but the last one, which is put into `last`."""
    line = b""
    for block in blocks:
        body, _, tail = block.removesuffix(b"\n").rpartition(b"\n")
        before = line + (body + b"\n" if body else b"")
        if before:
            yield before
        line = tail + b"\n"
    last.append(line)


# ---- Reads of a remote graph


ROWS = {"Accept": f"{ARROW_STREAM}, {JSON}"}


class RemoteReading(OpenRemoteGraph):
    """Reading methods of a remote graph."""

    @property
    @override
    def schema(self) -> str:
        body = self._connection.ask("GET", f"{self._path}/schema")
        with understood("a schema"):
            return str(body["schema_source"])

    @override
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

    def _rows(self, response: httpx.Response, target: Target, budget: Budget | None = None) -> Result:
        with understood("rows"):
            pieces = self._connection.pieces(response)
            if budget is not None:
                pieces = budget.steps(pieces)
            return decode_result(pieces, target=target, close=response.close)

    @override
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

    @override
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
        refuse_session(spark)
        if format != "jsonl" or parts:
            raise DirectOnlyError("export as Parquet" if format == "parquet" else "export in parts")
        if isinstance(types, str):
            raise BadRequestError(f"types is a list of names: give [{types!r}]")
        wanted = target_of(branch, snapshot, version, as_of)
        body = {**target_members(wanted), "type_names": list(types) if types else None, **timed(timeout_s)}
        budget = Budget(cancel=cancel)
        count = LineCount()
        connection = self._connection
        with opened_target(target, self.uri) as (name, write):
            headers = {"Accept": NDJSON}
            with connection.streaming("POST", f"{self._path}/export", body=body, headers=headers) as response:
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
