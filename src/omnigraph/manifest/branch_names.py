"""What a branch may be called."""

from __future__ import annotations

import re

from omnigraph.errors import BadRequestError

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
