"""Where files that make later starts shorter are kept: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLE = "OMNIGRAPH_CACHE_DIR"
_OFF = "off"


def cache_folder(name: str) -> Path | None:
    """A folder of the user alone, made when it is missing; None when there is no place.

    `OMNIGRAPH_CACHE_DIR` names another parent folder, or `off`.
    """
    chosen = os.environ.get(_VARIABLE)
    if chosen == _OFF:
        return None
    try:
        folder = (Path(chosen) if chosen else _user_folder()) / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):
        return None
    return folder.resolve() if usable else None


def _user_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "omnigraph"
