"""What reading every file of a graph found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class FileStatus(StrEnum):
    """What is known about one file."""

    #: It holds what its writer recorded, and can be decoded.
    OK = "ok"
    #: It can be decoded; an earlier release wrote it and recorded no checksum.
    UNRECORDED = "no_checksum"
    #: It holds something else than its writer recorded.
    MISMATCH = "mismatch"
    #: A version refers to it, and it is not there.
    MISSING = "missing"
    #: It cannot be decoded, or it contradicts what refers to it.
    UNREADABLE = "unreadable"

    @property
    def is_damage(self) -> bool:
        """Whether something has to be restored."""
        return self not in (FileStatus.OK, FileStatus.UNRECORDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """One file, or the part of a table that several files make up."""

    #: The name below the root of the graph.
    name: str
    status: FileStatus
    #: What is wrong; empty when nothing is.
    message: str = ""
    #: The type whose rows the file belongs to, such as `node:Paper`.
    type_key: str | None = None

    def __str__(self) -> str:
        owner = "" if self.type_key is None else f" ({self.type_key})"
        return f"{self.name}{owner}: {self.status}{': ' if self.message else ''}{self.message}"

    def to_json(self) -> dict[str, object]:
        """The file as a JSON object."""
        return {
            "file": self.name,
            "status": str(self.status),
            "type_key": self.type_key,
            "message": self.message or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Every file that a readable state of the graph needs, in the order of their names."""

    uri: str
    files: tuple[VerifiedFile, ...]
    read_bytes: int = 0
    #: Files that got a checksum in this run.
    recorded: int = 0

    @property
    def problems(self) -> tuple[VerifiedFile, ...]:
        """The files that are damaged."""
        return tuple(item for item in self.files if item.status.is_damage)

    @property
    def is_sound(self) -> bool:
        """Whether no file is damaged."""
        return not self.problems

    def counts(self) -> dict[FileStatus, int]:
        """How many files have each status."""
        found = Counter(item.status for item in self.files)
        return {status: found[status] for status in FileStatus}

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "uri": self.uri,
            "sound": self.is_sound,
            "counts": {str(status): count for status, count in self.counts().items()},
            "read_bytes": self.read_bytes,
            "recorded": self.recorded,
            "files": [item.to_json() for item in self.files],
        }
