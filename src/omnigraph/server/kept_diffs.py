"""Large differences that a server keeps for the pages to come: comparing again for every page would take too long."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.branches.diffs import Diff

#: Each of them takes space on a disk.
_KEPT = 2


class KeptDiffs:
    """The last differences of a graph that are in files. Thread-safe; files go when no page is read from them."""

    def __init__(self) -> None:
        #: By the commits that are compared, and the filter.
        self._known: OrderedDict[tuple[str, str, str], Diff] = OrderedDict()
        self._lock = Lock()

    def get(self, one: str, other: str, filter_digest: str, compare: Callable[[], Diff]) -> Diff:
        """The diff of two commits that is kept, or else what a comparison gives.

        Names of branches, which move, never find one: the pages behind the first ask with its commits.
        """
        with self._lock:
            known = self._known.get((one, other, filter_digest))
            if known is not None:
                self._known.move_to_end((one, other, filter_digest))
                return known
        found = compare()
        if found.is_in_files:
            with self._lock:
                self._known[found.from_commit_id, found.to_commit_id, filter_digest] = found
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return found

    def clear(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._known.clear()
