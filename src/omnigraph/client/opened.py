"""What every part of a remote graph has in common: its connection, and how arguments become requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, CompilerError
from omnigraph.manifest.targets import Target

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.client.connection import Connection
    from omnigraph.syntax.source import SourceText


class OpenRemoteGraph:
    """The inside of a remote graph. Thread-safe."""

    #: What a policy allows is decided for every request.
    read_only = False

    def __init__(self, connection: Connection, graph_id: str) -> None:
        self._connection = connection
        self._path = f"/graphs/{graph_id}"
        self.graph_id = graph_id

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return f"{self._connection.base}{self._path}"

    def close(self) -> None:
        """Give the connections back."""
        self._connection.close()

    def __repr__(self) -> str:
        return f"<RemoteGraph {self.uri}>"


def refuse_actor(actor: str | None) -> None:
    """The token decides who writes.

    Raises:
        BadRequestError: somebody was named.
    """
    if actor is not None:
        raise BadRequestError(
            "a server takes the actor from the token: leave out actor (--as), or connect with the token of that actor"
        )


def refuse_session(spark: object) -> None:
    """A server works where it decides to; the name of an engine changes no result, a session cannot be sent.

    Raises:
        BadRequestError: a session was given.
    """
    if spark is not None:
        raise BadRequestError("a Spark session cannot be sent to a server: leave out spark")


def target_members(target: Target) -> dict[str, str | int | None]:
    """A target as requests carry it."""
    if target.snapshot is not None:
        return {"snapshot": target.snapshot}
    return {
        "branch": target.branch,
        "version": target.version,
        "as_of": None if target.as_of is None else str(target.as_of),
    }


def target_of(
    branch: str, snapshot: str | None, version: int | None, as_of: str | datetime | None
) -> Target:
    """What a read was asked to look at.

    Raises:
        BadRequestError: it was asked for two things.
    """
    return Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)


def text_of(source: str | SourceText) -> str:
    """The text of a source."""
    return source if isinstance(source, str) else source.text


def in_terms_of(source: str | SourceText, error: CompilerError) -> CompilerError:
    """Findings under the name that the caller has for the text."""
    if isinstance(source, str):
        return error
    found = tuple(replace(item, file=source.name) for item in error.diagnostics)
    return CompilerError(found, total=error.total)
