"""Where analysed grammars are kept between processes: the analysis takes longer than most commands."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

_VARIABLE = "OMNIGRAPH_CACHE_DIR"
_OFF = "off"


def grammar_cache(grammar: str) -> str | None:
    """The file that keeps the analysis of a grammar, in a folder of the user alone; None when there is no place.

    `OMNIGRAPH_CACHE_DIR` names another folder, or `off`.
    """
    chosen = os.environ.get(_VARIABLE)
    if chosen == _OFF:
        return None
    try:
        folder = (Path(chosen) if chosen else _user_folder()) / "grammars"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return None
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    return str(folder / f"{sha256(grammar.encode()).hexdigest()[:24]}-{python}.bin")


def _user_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "omnigraph"
