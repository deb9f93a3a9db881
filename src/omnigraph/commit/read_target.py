"""The target of a read, as callers name it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from omnigraph.commit.rows import MAIN
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@frozen(kw_only=True)
class Target:
    """The target of a read. `snapshot` excludes everything else; `version` and `as_of` each other."""

    branch: str = MAIN
    snapshot: str | None = None
    version: int | None = None
    as_of: str | datetime | None = None

    def __post_init__(self) -> None:
        self._check_types()
        given = [item is not None for item in (self.snapshot, self.version, self.as_of)]
        if sum(given) > 1:
            raise BadRequestError("give one of snapshot, version and as_of")
        if self.snapshot is not None and self.branch != MAIN:
            raise BadRequestError("a snapshot is a commit of the whole graph: give no branch with it")

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """The target that keywords of a call name.

        Raises:
            TypeError: a keyword means no state, such as a parameter of a query that was given by its name.
        """
        for name in keywords:
            if name not in cls.__dataclass_fields__:
                raise TypeError(
                    f"unexpected keyword argument {name!r}: a state is given by {', '.join(cls.__dataclass_fields__)}; "
                    f"parameters of a query are one dictionary: query(text, {{{name!r}: …}})"
                )
        return cls(**keywords)

    def _check_types(self) -> None:
        """Values come from callers without a type checker: each has to be what it is taken for.

        Raises:
            BadRequestError: one is something else.
        """
        for name in ("branch", "snapshot"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name == "snapshot"):
                raise BadRequestError(f"{name} is a text, not {_shown(value)}")
        if self.version is not None and (isinstance(self.version, bool) or not isinstance(self.version, int)):
            raise BadRequestError(
                f"version is a whole number, the graph version of a commit, not {_shown(self.version)}"
            )
        if self.as_of is not None:
            microseconds(self.as_of)

    @property
    def is_head(self) -> bool:
        """Whether the newest state of a branch is meant."""
        return self.snapshot is None and self.version is None and self.as_of is None

    def to_json(self) -> dict[str, object]:
        """The target as an envelope shows it."""
        if self.snapshot is not None:
            return {"snapshot": self.snapshot}
        shown: dict[str, object] = {"branch": self.branch}
        if self.version is not None:
            shown["graph_version"] = self.version
        if self.as_of is not None:
            shown["as_of"] = str(self.as_of)
        return shown

    def __str__(self) -> str:
        """The target as people read it."""
        if self.snapshot is not None:
            return f"snapshot {self.snapshot}"
        if self.version is not None:
            return f"branch {self.branch} at graph version {self.version}"
        if self.as_of is not None:
            return f"branch {self.branch} as of {self.as_of}"
        return f"branch {self.branch}"


def microseconds(moment: object) -> int:
    """A moment as microseconds since the epoch; without a zone it is UTC.

    Raises:
        BadRequestError: it is not a moment.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as error:
            raise BadRequestError(f"{moment!r} is not a time of the form 2026-05-01T12:00:00Z") from error
    if not isinstance(moment, datetime):
        raise BadRequestError(f"as_of is a datetime, or a text of the form 2026-05-01T12:00:00Z, not {_shown(moment)}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _shown(value: object) -> str:
    return f"{value!r}, which is a {type(value).__name__}"
