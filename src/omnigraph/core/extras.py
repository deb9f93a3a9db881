"""Packages that only an extra of OmniGraph installs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

from omnigraph.errors import MissingPackageError

#: The extra that installs a package, by the name under which the package is imported.
EXTRAS = MappingProxyType(
    {
        "anyio": "server",
        "boto3": "aws",
        "cedarpy": "server",
        "networkx": "networkx",
        "pandas": "pandas",
        "polars": "polars",
        "prometheus_client": "server",
        "pyspark": "spark",
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
    try:
        import_module(package)
    except ModuleNotFoundError as missing:
        # A package that is there and lacks something itself says so better.
        if missing.name != package:
            raise
        raise MissingPackageError(package, EXTRAS[package], purpose) from None
