"""Where two branches last agreed, also when that is more than one commit.

Two branches that both took over a third one have two bases, and neither of them alone knows the work that is common
through the other. Their own merge is the base then: a virtual one, decided id by id and never written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.branches.truth_table import virtual_base
from omnigraph.manifest import merge_bases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.manifest import GraphCommit


@dataclass(frozen=True, slots=True)
class CommitBase:
    """One commit."""

    commit_id: str

    def commits(self) -> Iterator[str]:
        """Every commit that takes part."""
        yield self.commit_id

    def rows(self, states: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """The rows of the base, from those of every commit that takes part."""
        return states[self.commit_id]


@dataclass(frozen=True, slots=True)
class MergedBase:
    """The merge of two bases, over what they have in common themselves."""

    one: Base
    other: Base
    base: Base

    def commits(self) -> Iterator[str]:
        """Every commit that takes part."""
        for part in (self.one, self.other, self.base):
            yield from part.commits()

    def rows(self, states: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """The rows of the base, from those of every commit that takes part."""
        return virtual_base(self.base.rows(states), self.one.rows(states), self.other.rows(states))


Base = CommitBase | MergedBase


def find_base(commits: Mapping[str, GraphCommit], source: str, target: str) -> Base:
    """The base of a merge. The commits of one graph have a common beginning, so there is one."""
    return _base(commits, (source,), (target,))


def _base(commits: Mapping[str, GraphCommit], one: tuple[str, ...], other: tuple[str, ...]) -> Base:
    found = merge_bases(commits, one, other)
    merged: Base = CommitBase(found[0])
    for count, commit_id in enumerate(found[1:], start=1):
        common = _base(commits, tuple(found[:count]), (commit_id,))
        merged = MergedBase(merged, CommitBase(commit_id), common)
    return merged
