"""Reads and bulk work that were stopped before their end; nothing was changed by them."""

from __future__ import annotations

from typing import NamedTuple

from omnigraph.errors.base import OmniError

#: What bulk operations call themselves where a read names its operator.
LOAD = "Load"
MERGE = "Merge"
OPTIMIZE = "Optimize"
INDEXES = "Indexes"
EMBED = "Embed"
DIFF = "Diff"


class _Bulk(NamedTuple):
    """How a bulk operation is spoken of."""

    name: str
    #: What is true after it was stopped.
    left: str
    #: What else helps when it takes too long.
    advice: str = ""


_BULK = {
    LOAD: _Bulk("load", "nothing was written", ", or load less at once"),
    MERGE: _Bulk("merge", "nothing was written"),
    OPTIMIZE: _Bulk("optimization", "nothing was written"),
    INDEXES: _Bulk("index build", "nothing was written"),
    EMBED: _Bulk(
        "embedding",
        "nothing was written to the graph",
        "; vectors that were computed are kept for the next run",
    ),
    DIFF: _Bulk("diff", "nothing was changed", ", or compare fewer types"),
}


class QueryTimeoutError(OmniError):
    """A read or bulk work took longer than it may. Nothing happened; `operator` is where its time ended."""

    kind = "query_timeout"
    code = None
    http_status = 504

    def __init__(self, timeout_s: float, operator: str) -> None:
        self.timeout_s = timeout_s
        self.operator = operator
        bulk = _BULK.get(operator)
        if bulk is not None:
            message = (
                f"the {bulk.name} took longer than {timeout_s:g} s and was stopped, {bulk.left}: allow more time "
                f"(timeout_s, --timeout){bulk.advice}"
            )
        else:
            message = (
                f"the read took longer than {timeout_s:g} s, its time ended in {operator}: add a filter or a limit, "
                "look at the plan with `explain`, or allow more time (timeout_s, --timeout, on a server up to "
                "OMNIGRAPH_QUERY_TIMEOUT_MAX)"
            )
        super().__init__(message)

    def details(self) -> dict[str, object]:
        """`query_timeout` with the time and the operator."""
        return {"query_timeout": {"timeout_s": self.timeout_s, "operator": self.operator}}


class QueryCancelledError(OmniError):
    """A read or bulk work was cancelled: by its caller, because the client went away, or because the server stops."""

    kind = "cancelled"
    code = None
    http_status = 503

    def __init__(self, operator: str) -> None:
        self.operator = operator
        bulk = _BULK.get(operator)
        what = (
            f"the read was cancelled in {operator}"
            if bulk is None
            else f"the {bulk.name} was cancelled"
        )
        left = "nothing happened" if bulk is None else bulk.left
        super().__init__(f"{what}, by its caller or because the server stops; {left}")

    def details(self) -> dict[str, object]:
        """`cancelled` with the operator."""
        return {"cancelled": {"operator": self.operator}}
