"""Where an export goes: built in a hidden directory beside the target, which then appears all at once."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError
from omnigraph.ids import new_ulid
from omnigraph.storage.durability import sync_files
from omnigraph.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The hidden directory of one export."""

    target: Path
    #: What will be the target: a file, or a directory.
    result: Path
    #: Files of tasks. What is not moved from here into the result goes away, as what a task wrote in vain.
    scratch: Path

    def place(self, path: str, name: str) -> Path:
        """Move a file that a task wrote into the resulting directory."""
        place = self.result / name
        place.parent.mkdir(parents=True, exist_ok=True)
        check_shared(path)
        os.rename(path, place)
        return place

    def publish(self, *, durable: bool) -> None:
        """Make the result visible under the name of the target.

        Raises:
            BadRequestError: something has that name meanwhile.
        """
        is_folder = self.result.is_dir()
        if durable:
            files = [path for path in self.result.rglob("*") if path.is_file()]
            sync_files(files if is_folder else [self.result])
        try:
            if is_folder or not self._link():
                refuse_existing(self.target)
                os.rename(self.result, self.target)
        except FileExistsError as error:
            raise _existing(self.target) from error
        if durable:
            sync_files([self.target])

    def _link(self) -> bool:
        """Name the file by a link, which replaces nothing that somebody made meanwhile; False where there are none."""
        try:
            os.link(self.result, self.target)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True


def local_target(target: str | os.PathLike[str], graph_uri: str) -> Path:
    """The path that a user means.

    Raises:
        BadRequestError: it is in use, inside the graph, not on a local disk, or in a directory that does not exist.
    """
    location = parse_location(target)
    if not location.is_local:
        raise BadRequestError(
            f"an export goes to a local path, and {location} is none: export there, then copy it"
        )
    path = location.path
    refuse_existing(path)
    if path.is_relative_to(graph_uri):
        raise BadRequestError(f"{path} is inside the graph: choose a place outside of it")
    if not path.parent.is_dir():
        raise BadRequestError(f"{path.parent} is no directory: create it first")
    return path


def refuse_existing(path: Path) -> None:
    """An export replaces nothing."""
    if os.path.lexists(path):
        raise _existing(path)


def _existing(path: Path) -> BadRequestError:
    return BadRequestError(
        f"{path} exists, and an export replaces nothing: remove it or choose another name"
    )


def check_shared(path: str) -> None:
    """A file that a task wrote has to be visible here.

    Raises:
        BadRequestError: executors and driver do not share the file system of the target.
    """
    if not os.path.exists(path):
        raise BadRequestError(
            f"a task wrote {path}, and it is not visible here: executors and driver have to share the file system of "
            "the target"
        )


@contextmanager
def staging(target: Path) -> Iterator[Staging]:
    """The hidden directory of an export; it is gone at the end, whatever happens."""
    folder = target.parent / f".export-{new_ulid()}"
    scratch = folder / "scratch"
    try:
        scratch.mkdir(parents=True)
        yield Staging(target=target, result=folder / "result", scratch=scratch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
