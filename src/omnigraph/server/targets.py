"""Which state of a graph a request reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import BadRequestError
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.targets import Target

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypedDict

    class TargetArguments(TypedDict):
        """How the methods of a graph take a target."""

        branch: str
        snapshot: str | None
        version: int | None
        as_of: str | datetime | None


#: More than any graph has; larger numbers do not fit the columns that they would be compared with.
_MAX_VERSION = 2**53


class _Targeted(Protocol):
    @property
    def branch(self) -> str | None: ...
    @property
    def snapshot(self) -> str | None: ...


def target_of(request: _Targeted) -> Target:
    """The target that a body or query string names.

    Raises:
        BadRequestError: it names two.
    """
    if request.branch is not None and request.snapshot is not None:
        raise BadRequestError("give one of branch and snapshot")
    version: int | None = getattr(request, "version", None)
    if version is not None and not 0 <= version <= _MAX_VERSION:
        raise BadRequestError(f"{version} is no graph version")
    return Target(
        branch=MAIN if request.branch is None else request.branch,
        snapshot=request.snapshot,
        version=version,
        as_of=getattr(request, "as_of", None),
    )


def arguments_of(target: Target) -> TargetArguments:
    """A target as the methods of a graph take it."""
    return {
        "branch": target.branch,
        "snapshot": target.snapshot,
        "version": target.version,
        "as_of": target.as_of,
    }
