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
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.manifest import GraphCommit


@dataclass(frozen=True, eq=False)
class CommitBase:
    """One commit."""

    commit_id: str

    @property
    def commits(self) -> tuple[str, ...]:
        """Every commit that takes part, the best one first."""
        return (self.commit_id,)


@dataclass(frozen=True, eq=False)
class MergedBase:
    """The merge of two bases, over what they have in common themselves."""

    one: Base
    other: Base
    base: Base
    commits: tuple[str, ...]


Base = CommitBase | MergedBase


def find_base(commits: Mapping[str, GraphCommit], source: str, target: str) -> Base:
    """The base of a merge. The commits of one graph have a common beginning, so there is one.

    Bases of bases come again and again in a history of many mutual merges; each is found once.
    """
    known: dict[tuple[frozenset[str], str], Base] = {}

    def base_of(one: tuple[str, ...], other: str) -> Base:
        key = frozenset(one), other
        if key not in known:
            known[key] = merged(merge_bases(commits, one, [other]))
        return known[key]

    def merged(found: list[str]) -> Base:
        result: Base = CommitBase(found[0])
        for count, commit_id in enumerate(found[1:], start=1):
            other = CommitBase(commit_id)
            common = base_of(tuple(found[:count]), commit_id)
            parts = dict.fromkeys([*result.commits, *other.commits, *common.commits])
            result = MergedBase(result, other, common, tuple(parts))
        return result

    return base_of((source,), target)


def base_rows(base: Base, states: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows of a base, from those of every commit that takes part."""
    known: dict[int, NDArray[np.int64]] = {}

    def rows(part: Base) -> NDArray[np.int64]:
        if isinstance(part, CommitBase):
            return states[part.commit_id]
        if id(part) not in known:
            known[id(part)] = virtual_base(rows(part.base), rows(part.one), rows(part.other))
        return known[id(part)]

    return rows(base)
