"""Where analysed grammars are kept between processes: the analysis takes longer than most commands."""

from __future__ import annotations

import sys
from hashlib import sha256

from omnigraph.environ import cache_folder


def grammar_cache(grammar: str) -> str | None:
    """The file that keeps the analysis of a grammar; None when there is no place for it."""
    folder = cache_folder("grammars")
    if folder is None:
        return None
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    return str(folder / f"{sha256(grammar.encode()).hexdigest()[:24]}-{python}.bin")
