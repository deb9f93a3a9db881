"""Checks of `doctor` about where a graph lies: addresses of another root, and links that lead out of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omnigraph.graph.diagnosis import Finding, Health
from omnigraph.recovery.rebasing import find_foreign_versions, recorded_root
from omnigraph.storage.boundary import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.recovery.environment import GraphEnvironment

_SHOWN_LINKS = 3


def check_place(environment: GraphEnvironment) -> Iterator[Finding]:
    """Whether everything that the graph refers to lies below its root.

    Raises:
        OutsideRootError: a version of a fork reads files outside of its dataset.
    """
    foreign = find_foreign_versions(environment)
    if foreign:
        message = (
            f"the graph was copied or moved: {len(foreign):,} versions of branches hold the address of another "
            f"root, such as {foreign[0]}; they are read here all the same"
        )
        if recorded_root(environment.objects) != environment.location.root:
            message += ", and the next open for writing corrects them"
        yield Finding(check="place", severity=Health.INFO, message=message)
    links = find_links(environment)
    if links:
        yield Finding(
            check="place",
            severity=Health.WARNING,
            message=(
                f"{len(links):,} links below the root, such as {', '.join(links[:_SHOWN_LINKS])}, are not followed: "
                "put what they lead to in their place, or remove them"
            ),
        )
    if not foreign and not links:
        yield Finding(
            check="place",
            severity=Health.OK,
            message="every address lies below the root, and no link leads out of it",
        )


def find_links(environment: GraphEnvironment) -> list[str]:
    """The links below the root, sorted; empty on an object store, which has none."""
    location = environment.location
    if not location.is_local:
        return []
    found = (entry.path for entry in walk(location, "") if entry.is_symlink())
    return sorted(os.path.relpath(path, location.uri) for path in found)
