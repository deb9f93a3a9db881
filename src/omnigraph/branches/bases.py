"""Where two branches last agreed, also when that is more than one commit.

Two branches that both took over a third one have two bases, and neither of them alone knows the work that is common
through the other. Their own merge is the base then: a virtual one, decided id by id and never written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.branches.truth_table import virtual_base
from omnigraph.manifest.lineage import base_commits, base_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.manifest.lineage import BaseStep
    from omnigraph.manifest.rows import GraphCommit


@dataclass(frozen=True)
class Base:
    """The base of a merge, and how it is put together."""

    steps: tuple[BaseStep, ...]

    @cached_property
    def commits(self) -> tuple[str, ...]:
        """Every commit that takes part, the best one first."""
        return base_commits(self.steps)


def find_base(commits: Mapping[str, GraphCommit], source: str, target: str) -> Base:
    """The base of a merge. The commits of one graph have a common beginning, so there is one."""
    return Base(tuple(base_steps(commits, source, target)))


def base_rows(base: Base, states: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows of a base, from those of every commit that takes part."""
    known: dict[object, NDArray[np.int64]] = {}
    for step in base.steps:
        rows = states[step.bases[0]]
        for commit_id, common in zip(step.bases[1:], step.common, strict=True):
            rows = virtual_base(known[common], rows, states[commit_id])
        known[step.pair] = rows
    return known[base.steps[-1].pair]
