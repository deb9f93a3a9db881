"""What a store must do to be measured, and the names that cross from one file to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from histories.data import Files

OURS = "omnigraph"
PEER = "doltlite"
MAIN = "main"
#: Both ends of every edge that is inserted; even an almost empty store has it.
ANCHOR = "p0"


class Store(Protocol):
    """Persons and who knows whom, under version control. Every method that writes makes one commit."""

    def __init__(self, path: Path, files: Files | None = None) -> None: ...

    @staticmethod
    def build(files: Files, path: Path) -> None:
        """Fill a store with everything from files."""

    @staticmethod
    def create(path: Path) -> None:
        """Make a store with nobody in it but the anchor."""

    @staticmethod
    def version() -> str:
        """Of the software and of what it writes: part of the name of a filled store."""

    def create_branch(self, name: str) -> None:
        """Create a branch at the head of main."""

    def insert_person(self, key: str, branch: str = MAIN) -> None:
        """Insert one person."""

    def insert_edge(self, branch: str = MAIN) -> None:
        """Insert one edge."""

    def change_person(self, score: float) -> None:
        """Give the anchor another score: a commit that leaves its table as small as it was."""

    def change_edges(self, branch: str, count: int, offset: int, weight: float) -> None:
        """Give another weight to a number of edges that lie evenly over the table."""

    def diff(self, old: str, new: str) -> int:
        """How many rows differ between two branches; each of them is fetched, without its properties."""

    def merge(self, source: str) -> None:
        """Merge a branch into main."""

    def log(self) -> int:
        """How many commits main has; each of them is fetched."""

    def reopen(self) -> None:
        """Forget everything that is in memory."""

    def close(self) -> None:
        """Let go of the files."""
