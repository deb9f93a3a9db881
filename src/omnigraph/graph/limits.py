"""The bounds that a caller gives a read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.budget import Budget, MemoryAccount
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.budget import CancelSignal, Turns

#: The longest time that is counted; more is as good as none.
_LONGEST_S = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How long a read may take, what stops it, and what its answer may be.

    Raises:
        BadRequestError: the time is not a positive number, or the signal is none.
    """

    timeout_s: float | None = None
    cancel: CancelSignal | None = None
    max_rows: int | None = None
    #: An account that several reads share, beside the one of each.
    memory: MemoryAccount | None = None
    #: Where several reads take turns once they take long.
    turns: Turns | None = None

    def __post_init__(self) -> None:
        given = self.timeout_s
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and 0 < given < math.inf):
            raise BadRequestError(f"timeout_s is {given!r}: give seconds above zero, or None")
        if self.cancel is not None and not callable(getattr(self.cancel, "is_set", None)):
            raise BadRequestError(
                f"cancel is {self.cancel!r}: give a threading.Event, and set it to stop the read"
            )

    def during(self, timeout_s: float | None, cancel: CancelSignal | None) -> ReadLimits:
        """These limits for one call that gives a time or a signal of its own."""
        if timeout_s is None and cancel is None:
            return self
        return replace(
            self,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            cancel=self.cancel if cancel is None else cancel,
        )

    def budget(self, memory_bytes: int | None = None) -> Budget:
        """What one read may use; its time begins now. `memory_bytes` is what its intermediate results may take."""
        return Budget(
            timeout_s=None if self.timeout_s is None else min(self.timeout_s, _LONGEST_S),
            cancel=self.cancel,
            memory=MemoryAccount(memory_bytes, shared=self.memory),
            max_rows=self.max_rows,
            turns=self.turns,
        )


NO_LIMITS = ReadLimits()
