"""The fence: a number in the catalog below which no holder of the lock publishes any more.

Every holder of a commit lock that can be lost has an epoch, higher than those of all holders before it. A publish
carries the epoch of its holder into the metadata of the catalog, and a holder that takes the lock over from one that
may still be alive raises the number before it looks at anything. Both happen in the strict commit that decides every
publish: so a holder that was overtaken has either published before its successor looked, or never will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "omnigraph:fence"


class Tenure(Protocol):
    """The time for which one writer holds the commit lock."""

    @property
    def epoch(self) -> int | None:
        """Its number; None when the lock cannot be lost while its holder lives."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the lock may belong to another writer."""
        ...

    def lose(self) -> None:
        """Take note that another writer took over."""
        ...

    def rise_above(self, fence: int) -> None:
        """Get an epoch above a fence that is higher, if the lock is still held: its object is older than the catalog.

        Raises:
            LeaseLostError: another writer has the lock.
        """
        ...


class Lifelong:
    """The tenure of a lock that only the end of its holder ends."""

    epoch = None
    is_lost = False

    def lose(self) -> None:
        """Such a lock is never lost."""

    def rise_above(self, fence: int) -> None:
        """Without an epoch there is nothing to raise."""
        del fence


def read_fence(metadata: Mapping[str, str]) -> int:
    """The fence of a catalog; zero for one that was never written under a lock that can be lost."""
    text = metadata.get(_KEY, "")
    return int(text) if text.isdecimal() else 0


def fence_metadata(epoch: int) -> dict[str, str]:
    """The metadata that raises the fence."""
    return {_KEY: str(epoch)}
