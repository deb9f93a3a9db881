"""Where every branch is: the newest head rows, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import BranchNotFoundError, DamageError
from omnigraph.manifest.snapshot import newest_heads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.manifest.rows import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestState:
    """The current position of every branch. Immutable."""

    #: Lance version of the catalog that this was read from.
    catalog_version: int
    graph_version: int
    heads: Mapping[str, Head]
    #: Newest head row of every branch incarnation, deleted ones included.
    all_heads: tuple[Head, ...]
    #: The epoch below which no publish is accepted; see `fencing`.
    fence: int = 0

    def head(self, branch: str) -> Head:
        """The position of a live branch.

        Raises:
            BranchNotFoundError: there is none of that name.
        """
        try:
            return self.heads[branch]
        except KeyError:
            raise BranchNotFoundError(branch) from None


def newest_per_incarnation(heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """The newest head row of each branch incarnation."""
    newest: dict[tuple[str, int], Head] = {}
    for head in heads:
        key = (head.branch, head.incarnation)
        if key not in newest or head.graph_version > newest[key].graph_version:
            newest[key] = head
    return tuple(newest.values())


def state_of(
    heads: list[Head] | tuple[Head, ...], catalog_version: int, fence: int = 0
) -> ManifestState:
    """The state that some head rows make.

    Raises:
        DamageError: there are none.
    """
    newest = newest_per_incarnation(tuple(heads))
    if not newest:
        raise DamageError("reading the catalog", "it has no row of any branch")
    return ManifestState(
        catalog_version=catalog_version,
        graph_version=max(head.graph_version for head in newest),
        heads=newest_heads(newest),
        all_heads=newest,
        fence=fence,
    )
