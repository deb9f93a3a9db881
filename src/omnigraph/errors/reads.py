"""Reads and loads that were stopped before their end; nothing was changed by them."""

from __future__ import annotations

from omnigraph.errors.base import OmniError

#: What a bulk operation calls itself where a read names its operator.
LOAD = "Load"


class QueryTimeoutError(OmniError):
    """A read or a load took longer than it may. Nothing happened; `operator` is where its time ended."""

    kind = "query_timeout"
    code = None
    http_status = 504

    def __init__(self, timeout_s: float, operator: str) -> None:
        self.timeout_s = timeout_s
        self.operator = operator
        if operator == LOAD:
            message = (
                f"the load took longer than {timeout_s:g} s and was stopped, nothing was written: allow more time "
                "(timeout_s, --timeout), or load less at once"
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
    """A read or a load was cancelled: by its caller, because the client went away, or because the server stops."""

    kind = "cancelled"
    code = None
    http_status = 503

    def __init__(self, operator: str) -> None:
        self.operator = operator
        super().__init__(
            f"the {'load' if operator == LOAD else 'read'} was cancelled in {operator}, by its caller or because the "
            "server stops; nothing happened"
        )

    def details(self) -> dict[str, object]:
        """`cancelled` with the operator."""
        return {"cancelled": {"operator": self.operator}}
