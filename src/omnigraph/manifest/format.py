"""The storage-format stamp: one strict version, checked before anything else is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import StorageFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Storage format that this release reads and writes.
INTERNAL_SCHEMA_VERSION = 4
STAMP = "omnigraph:internal_schema_version"


def stamp() -> dict[str, str]:
    """The metadata that a new catalog carries."""
    return {STAMP: str(INTERNAL_SCHEMA_VERSION)}


def check_stamp(metadata: Mapping[str, str]) -> None:
    """Refuse a graph of another storage format.

    Raises:
        StorageFormatError: tells to upgrade, or to export with the old release and load with this one.
    """
    found = metadata.get(STAMP, "none")
    if found != str(INTERNAL_SCHEMA_VERSION):
        raise StorageFormatError(found, INTERNAL_SCHEMA_VERSION)
