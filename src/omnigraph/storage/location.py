"""Where a graph lives, and the names of everything below its root."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from omnigraph.errors import BadRequestError
from omnigraph.ids import TableKey, directory_name

MANIFEST = "__manifest"
RECOVERIES = "_graph_commit_recoveries.lance"
RECOVERY_FOLDER = "__recovery"
SCHEMA_SOURCE = "_schema.pg"
SCHEMA_CONTRACT = "_schema.ir.json"
SCHEMA_STATE = "__schema_state.json"
SCHEMA_FILES = (SCHEMA_SOURCE, SCHEMA_CONTRACT, SCHEMA_STATE)
#: Schema files of a change that is not finished have this after their names.
STAGING_SUFFIX = ".staging"
COMMIT_LOCK = "__lock"
STAGING_LOCK = "__staging.lock"
#: Holds a folder for each bulk operation that runs: what its tasks tell each other and the driver.
STAGING_FOLDER = "__staging"
READING_LOCK = "__reading.lock"
BRANCH_CLAIM = "__claim-"
INIT_CLAIM = "__init_claim.json"
#: Stays where a whole dataset was removed: what old commits read there was cleaned up, it is not missing.
RECLAIMED_MARK = "_reclaimed"
#: Names the root that addresses inside the graph were recorded for.
RECORDED_ROOT = "__root.json"

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_SUPPORTED = "a local path, file:// or s3://"


@dataclass(frozen=True, slots=True)
class GraphLocation:
    """The root of a graph: an absolute local path, or an `s3://bucket/prefix`."""

    #: As it was given; a local path may be a link, or lead through one.
    uri: str
    is_local: bool

    def __str__(self) -> str:
        return self.uri

    @property
    def root(self) -> str:
        """The root without links: datasets record it, and every way to reach it has to be the same one for them."""
        return os.path.realpath(self.uri) if self.is_local else self.uri

    def child(self, name: str) -> str:
        """The address of something below the root, as datasets record it."""
        return f"{self.root}/{name}"

    @property
    def path(self) -> Path:
        """The root as a local path.

        Raises:
            ValueError: the graph is not on a local disk.
        """
        if not self.is_local:
            raise ValueError(f"{self.uri} is not a local path")
        return Path(self.uri)


def parse_location(uri: str | os.PathLike[str]) -> GraphLocation:
    """The location that a user means.

    >>> parse_location("s3://bucket/graphs/papers.omni/").uri
    's3://bucket/graphs/papers.omni'

    Raises:
        BadRequestError: the scheme is not supported, or nothing is named.
    """
    text = os.fspath(uri)
    if not text.strip():
        raise BadRequestError(f"no graph is named: give {_SUPPORTED}")
    if not _SCHEME.match(text):
        return GraphLocation(os.path.abspath(os.path.expanduser(text)), is_local=True)
    parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise BadRequestError(f"{text} is not a local file URI: write file:///path")
        return GraphLocation(os.path.abspath(unquote(parts.path)), is_local=True)
    if parts.scheme == "s3":
        bucket, prefix = parts.hostname or "", parts.path.strip("/")
        if parts.username or parts.password:
            raise BadRequestError("credentials belong into the AWS_* variables, not into the URI")
        if not bucket or not prefix:
            raise BadRequestError(f"{text} names no graph: write s3://bucket/prefix")
        return GraphLocation(f"s3://{bucket}/{prefix}", is_local=False)
    raise BadRequestError(f"{parts.scheme}:// is not supported: give {_SUPPORTED}")


def table_location(table_key: TableKey, incarnation: int | None = None) -> str:
    """The directory of a dataset below the root, from the first name of its type.

    >>> table_location(TableKey("node:Paper"))
    'nodes/da89d00e1b71df59'
    """
    kind, _, name = table_key.partition(":")
    return f"{kind}s/{directory_name(name, incarnation)}"
