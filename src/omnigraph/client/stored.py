"""Stored queries of a server: which there are, and running them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from omnigraph.client.connection import understood
from omnigraph.client.reading import ROWS, RemoteReading, timed
from omnigraph.client.writing import conditional
from omnigraph.errors import NotFoundError, UnexpectedAnswerError
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.targets import Target
from omnigraph.wire.protocol import ARROW_STREAM
from omnigraph.wire.receipts import MutationResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.wire.answer import Result


class RemoteStoredQueries(RemoteReading):
    """What only a server offers."""

    def queries(self) -> list[dict[str, Any]]:
        """The stored queries that the token may run: `name`, `tool_name`, `mutation`, `params`, and descriptions."""
        body = self._connection.ask("GET", f"{self._path}/queries")
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
    ) -> Result | MutationResult:
        """Run a stored query: rows of a read, the receipt of a mutation.

        `expect_mutation` refuses one of the other kind; `timeout_s` bounds a read. With `if_commit` a
        mutation runs only while the branch head is that commit.

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
            "params": None if params is None else dict(params),
            "expect_mutation": expect_mutation,
            **timed(timeout_s),
        }
        body |= {"branch": branch} if snapshot is None else {"snapshot": snapshot}
        path, condition = conditional(f"{self._path}/queries/{name}", if_commit)
        response = self._connection.open(
            "POST",
            path,
            body=body,
            headers={**ROWS, **(condition or {})},
            is_write=expect_mutation is not False,
        )
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
