"""Stored queries of a server: which there are, and running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from omnigraph.api.operation import ARROW_STREAM, JSON
from omnigraph.api.results import MutationResult
from omnigraph.client.connection import Connection, condition, mutation_bounds, note_members, timed, understood
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN
from omnigraph.core.lazy_exports import LateModule, late_types
from omnigraph.core.parameters import json_params
from omnigraph.errors import NotFoundError, UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

    from omnigraph.api.rows import Result
else:
    httpx = LateModule("httpx")
    globals().update(late_types({"omnigraph.api.rows": "Result"}))

#: Rows come as Arrow, receipts as JSON.
ROWS = {"Accept": f"{ARROW_STREAM}, {JSON}"}


class StoredQueries:
    """The part of a remote graph that only a server has."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    def _rows(self, response: httpx.Response, target: Target) -> Result:
        """The rows of a response."""
        raise NotImplementedError

    def queries(self) -> list[dict[str, Any]]:
        """The stored queries that the token may run: `name`, `tool_name`, `mutation`, `params`, and descriptions."""
        body = self._connection.request("GET", f"{self._path}/queries")
        with understood("stored queries"):
            return list(body["queries"])

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: Literal[False],
        if_commit: None = None,
        timeout_s: float | None = None,
    ) -> Result: ...

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: None = None,
        expect_mutation: Literal[True],
        if_commit: str | None = None,
        timeout_s: None = None,
        max_affected: int | None = None,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> MutationResult: ...

    @overload
    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: bool | None = None,
        if_commit: str | None = None,
        timeout_s: float | None = None,
        max_affected: int | None = None,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> Result | MutationResult: ...

    def run(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        expect_mutation: bool | None = None,
        if_commit: str | None = None,
        timeout_s: float | None = None,
        max_affected: int | None = None,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> Result | MutationResult:
        """Run a stored query: rows of a read, the receipt of a mutation.

        `expect_mutation` refuses one of the other kind; `timeout_s` bounds a read. `if_commit`, `max_affected`,
        `dry_run`, `message` and `metadata` are those of `mutate`.

        Raises:
            NotFoundError: there is no such stored query, or the token may not run it.
            ParameterError: the parameters do not fit it.
            BadRequestError: it is of the other kind.
            ServerUnreachableError: `outcome_unknown` says whether a mutation may have happened.
        """
        if not name.isidentifier():
            raise NotFoundError("there is no stored query of that name")
        target = Target(branch=branch, snapshot=snapshot)
        body: dict[str, object] = {
            "params": json_params(params),
            "expect_mutation": expect_mutation,
            **timed(timeout_s),
            **mutation_bounds(max_affected, dry_run),
            **note_members(message, metadata),
        }
        body |= {"branch": branch} if snapshot is None else {"snapshot": snapshot}
        path = f"{self._path}/queries/{name}" + ("" if if_commit is None else "/if-graph-commit")
        headers = {**ROWS, **(condition(if_commit) or {})}
        is_write = expect_mutation is not False
        response = self._connection.open("POST", path, body=body, headers=headers, is_write=is_write)
        if response.headers.get("content-type", "").startswith(ARROW_STREAM):
            if expect_mutation:
                response.close()
                raise UnexpectedAnswerError("the server sent rows for a mutation")
            return self._rows(response, target)
        answer = self._connection.body_of(response, is_write=True)
        if expect_mutation is False:
            raise UnexpectedAnswerError("the server sent no rows for a read")
        with understood("a receipt"):
            return MutationResult.from_json(answer)
