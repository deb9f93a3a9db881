"""Packages that only an extra of OmniGraph installs, and those that a process leaves out until they are needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import MappingProxyType, ModuleType

from omnigraph.errors import MissingPackageError

#: The extra that installs a package, by the name under which the package is imported.
EXTRAS = MappingProxyType(
    {
        "anyio": "server",
        "boto3": "aws",
        "cedarpy": "server",
        "networkx": "networkx",
        "numba": "fast",
        "pandas": "pandas",
        "polars": "polars",
        "prometheus_client": "server",
        "pyspark": "spark",
        "scipy": "scipy",
        "starlette": "server",
        "structlog": "server",
        "uvicorn": "server",
    }
)


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return find_spec(package) is not None


def need_extra(extra: str, purpose: str) -> None:
    """As `need`, for everything that an extra installs.

    Raises:
        MissingPackageError: a package of the extra is not installed.
    """
    for package, home in EXTRAS.items():
        if home == extra:
            need(package, purpose)


def need(package: str, purpose: str) -> None:
    """Import a package of an extra, or say which extra it is; called before the import statement that uses it.

    `purpose` begins the sentence: "Spark", "`to_pandas`".

    Raises:
        MissingPackageError: the package is not installed.
    """
    _bring_back(package)
    try:
        import_module(package)
    except ModuleNotFoundError as missing:
        # A package that is there and lacks something itself says so better.
        if missing.name != package:
            raise
        raise MissingPackageError(package, EXTRAS[package], purpose) from None


# ---- Packages that a process leaves out


def leave_out(package: str) -> None:
    """Make this process find a package only when it is needed: for the process of a command, not of a caller.

    pyarrow imports pandas, if it is installed, to see whether a list is one of its columns. That takes longer than a
    query.
    """
    if package not in sys.modules:
        sys.meta_path.insert(0, _LeftOut(package))


class _LeftOut:
    """A finder of modules that finds one package nowhere."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Say that the package does not exist; other finders know the others."""
        if name == self.package:
            raise ModuleNotFoundError(f"this process leaves {name} out", name=name)
        return None


def _bring_back(package: str) -> None:
    """Find a package again, and what Spark needs with it."""
    needed = {package, "pandas"} if package == "pyspark" else {package}
    for finder in [item for item in sys.meta_path if isinstance(item, _LeftOut) and item.package in needed]:
        sys.meta_path.remove(finder)
        known = sys.modules.get("pyarrow.lib")
        if known is not None:
            # It remembers that there was none; its next look finds out anew.
            known._pandas_api.__init__()
