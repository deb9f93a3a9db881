"""`omnigraph version`."""

from __future__ import annotations

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.cli.output import print_text


def show_version() -> None:
    """Print the release and the storage format it reads and writes."""
    print_text(f"omnigraph {__version__}\ninternal-schema {INTERNAL_SCHEMA_VERSION}")
