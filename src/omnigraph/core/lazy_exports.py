"""Names that are imported when they are first used, or when an annotation with them is resolved.

A command that only reads pays for what reading needs: used in the `__init__` of rooms whose other half is large, and
beside the imports that only type checkers see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ForwardRef


def late_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package; `homes` says in which of its modules a name lives."""

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home}"), name)

    return find


# ---- Names of annotations
#
# `typing.get_type_hints` looks names up in the module of a function, where those under `TYPE_CHECKING` are missing.
# Public modules define them in the `else` of that block, as what stands for the name until hints are asked for.


def late_types(homes: Mapping[str, str]) -> dict[str, object]:
    """Stand-ins for types, by name; `homes` has the names of each module, with spaces between them.

    >>> from typing import get_type_hints
    >>> globals().update(late_types({"fractions": "Fraction"}))
    >>> def half() -> "Fraction": ...
    >>> get_type_hints(half)
    {'return': <class 'fractions.Fraction'>}
    """
    return {
        name: ForwardRef(f"_found({module!r}, {name!r})", module=__name__)
        for module, names in homes.items()
        for name in names.split()
    }


class LateModule:
    """A stand-in for a module: its types are found when hints are asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return _found(self._name, name)


def _found(module: str, name: str) -> object:
    """A type, or Any where its package is not installed: the hints of other parameters are of use without it."""
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and module.partition(".")[0] == missing.name.partition(".")[0] != "omnigraph":
            return Any
        raise
