"""Names of a room that are imported when they are first used.

A command that only reads pays for what reading needs. Used in the `__init__` of rooms whose other half is large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def late_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package; `homes` says in which of its modules a name lives."""

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home}"), name)

    return find
