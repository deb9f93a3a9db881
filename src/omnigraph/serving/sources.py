"""Where stored queries are written: files, and which queries of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import InputFileError

if TYPE_CHECKING:
    from os import PathLike

_ENDING = ".gq"


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A file of queries. All of them are stored, or with `name` that one alone, maybe under another tool name."""

    path: Path
    name: str | None = None
    tool_name: str | None = None


def query_sources(path: str | PathLike[str]) -> tuple[QuerySource, ...]:
    """The sources at a path: a `.gq` file, or a directory with all of its own `.gq` files.

    Raises:
        InputFileError: there is no such file or directory.
    """
    found = Path(path)
    try:
        if found.is_dir():
            files = sorted(item for item in found.iterdir() if item.suffix == _ENDING)
            return tuple(QuerySource(item) for item in files if item.is_file())
        if found.is_file():
            return (QuerySource(found),)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputFileError(str(path), reason or str(error)) from error
    raise InputFileError(str(path), "there is no such file or directory")
