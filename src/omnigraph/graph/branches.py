"""Branch names, and the first position of a new branch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.manifest import MAIN, Head

if TYPE_CHECKING:
    from omnigraph.manifest import ManifestState

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def check_branch_name(name: str) -> str:
    """The name without surrounding spaces.

    Raises:
        BadRequestError: it is empty, reserved, or not a path of plain segments.
    """
    name = name.strip()
    segments = name.split("/")
    is_plain = all(
        _SEGMENT.fullmatch(segment)
        and segment != "."
        and ".." not in segment
        and not segment.endswith(".lock")
        for segment in segments
    )
    if not is_plain:
        raise BadRequestError(
            f"{name!r} is not a branch name: use letters, digits, `.`, `-`, `_`, joined by `/`"
        )
    if name.startswith("__"):
        raise BadRequestError(f"branch names that begin with `__` are reserved: {name!r}")
    return name


def new_branch_head(state: ManifestState, name: str, base: str, graph_version: int) -> Head:
    """The head row of a new branch.

    Raises:
        BadRequestError: the name, or a prefix of it, is taken.
        BranchNotFoundError: there is no such base.
    """
    if name == MAIN or name in state.heads:
        raise BadRequestError(f"branch {name!r} exists already")
    for other in state.heads:
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise BadRequestError(f"branch {name!r} cannot stand beside branch {other!r}")
    origin = state.head(base)
    return Head(
        branch=name,
        incarnation=graph_version,
        graph_version=graph_version,
        commit_id=origin.commit_id,
        fork_commit_id=origin.commit_id,
        schema_hash=origin.schema_hash,
        pins=origin.pins,
    )
