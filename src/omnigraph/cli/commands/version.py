"""`omnigraph version`."""

from __future__ import annotations

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.cli.output import print_text
from omnigraph.cli.scoped import scoped


@scoped("version")
def version() -> None:
    """Print the release and the storage format it reads and writes."""
    show_version()


def show_version() -> None:
    """Print them; `--version` does the same."""
    print_text(f"omnigraph {__version__}\ninternal-schema {INTERNAL_SCHEMA_VERSION}")
