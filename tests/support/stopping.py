"""Signals that stop work at a certain point, and a way to stop it at each of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from omnigraph.core.budget import CancelSignal
from omnigraph.errors import QueryCancelledError
from support.loads import files_of

#: More looks than work on a few rows has.
_MANY = 500
#: Vectors that were paid for stay for the next run.
_KEPT = "__derived"


class AtLook:
    """A signal that is set from the n-th look at it on."""

    def __init__(self, number: int) -> None:
        self._left = number

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def stored(root: str) -> dict[str, str]:
    """Every file of a graph that stopped work must not have touched."""
    files = files_of(Path(root))
    return {name: digest for name, digest in files.items() if not name.startswith(_KEPT)}


def stopped_everywhere(root: str, work: Callable[[CancelSignal], object]) -> int:
    """Stop some work at each of its looks, until none is left to stop it at; how many there are."""
    before = stored(root)
    for number in count():
        assert number < _MANY, "work that never ends"
        try:
            work(AtLook(number))
        except QueryCancelledError:
            assert stored(root) == before
        else:
            return number
    raise AssertionError("there is an end")
