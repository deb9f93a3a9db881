"""Exports and baselines: where lines go, and what is known about them afterwards."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

#: The target that means standard output.
STDOUT = "-"


class TextSink(Protocol):
    """Something that takes text, as an open file does."""

    def write(self, text: str, /) -> object:
        """Take a piece of text."""
        ...


ExportTarget = str | os.PathLike[str] | TextSink


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote. `files` is empty when it went to a stream."""

    target: str
    format: str
    files: tuple[str, ...]
    #: Rows per type, also of types without rows.
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit_id: str

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "target": self.target,
            "format": self.format,
            "files": list(self.files),
            "nodes": dict(self.nodes),
            "edges": dict(self.edges),
            "total_entities": sum(self.nodes.values()) + sum(self.edges.values()),
            "graph_commit_id": self.commit_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineResult:
    """Where a baseline went, and how to go on from it."""

    target: str
    entities: int
    snapshot_commit_id: str
    resume_cursor: str

    def to_json(self) -> dict[str, object]:
        """The handshake as a JSON object."""
        return {
            "target": self.target,
            "entities": self.entities,
            "snapshot_commit_id": self.snapshot_commit_id,
            "resume_cursor": self.resume_cursor,
        }


def line_writer(target: object) -> Callable[[pa.Buffer | bytes], object]:
    """How a stream takes the bytes of lines.

    Raises:
        BadRequestError: it is no stream.
    """
    if target in (STDOUT, sys.stdout) and hasattr(sys.stdout, "buffer"):
        # JSON lines are UTF-8 with bare line feeds, whatever the terminal is set to.
        sys.stdout.flush()
        binary = sys.stdout.buffer
        return lambda text: binary.write(memoryview(text))
    write = getattr(sys.stdout if target == STDOUT else target, "write", None)
    if write is None:
        raise BadRequestError(f"{target!r} is neither a path nor a stream of text")
    return lambda text: write(bytes(text).decode())
