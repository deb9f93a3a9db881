"""Addresses of graphs, names of files below a root, and the border that no name or link leaves."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from omnigraph.core.ids import TableKey, directory_name
from omnigraph.errors import BadRequestError, OutsideRootError
from omnigraph.frozen import frozen

# ---- Where a graph lives, and the names of everything below its root


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


@frozen
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
    return f"{table_key.kind}s/{directory_name(table_key.name, incarnation)}"


# ---- The border of a graph: which names below its root are of our own making, and that no link leads out of it
#
# A folder that was copied from elsewhere is input. Paths in sidecars, in the manifest and in Lance's manifests are
# taken only in the exact form in which this system writes them, and a link below the root is never followed, listed
# or deleted. The root itself may be reached through links: that is the choice of the person who names it.


#: The directory of a dataset: the hash of a name, then its incarnation, then what makes it unique on object stores.
_DATASET = re.compile(r"(?:nodes|edges)/[0-9a-f]{16}(?:-[0-9]+)?(?:-[0-9a-z]{26})?", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


@lru_cache(maxsize=4096)
def is_dataset_path(path: str) -> bool:
    """Whether a path below the root is one that this system gives to datasets of types.

    >>> is_dataset_path("nodes/da89d00e1b71df59"), is_dataset_path("../other.omni/nodes/da89d00e1b71df59")
    (True, False)
    """
    return _DATASET.fullmatch(path) is not None


@lru_cache(maxsize=4096)
def is_fork_name(name: str) -> bool:
    """Whether a name is one that this system gives to forks of datasets.

    >>> is_fork_name("drafts/july.2"), is_fork_name("../main")
    (True, False)
    """
    parts = name.split("/")
    return all(_SEGMENT.fullmatch(part) and part != "." and ".." not in part for part in parts)


def check_dataset_path(path: str) -> str:
    """The path of a dataset as it is.

    Raises:
        ValueError: it does not have the form of our own paths.
    """
    if not is_dataset_path(path):
        raise ValueError(f"{path!r} is not a path that omnigraph gives to a dataset")
    return path


def check_fork_name(name: str | None) -> str | None:
    """The name of a fork as it is; None is the main line.

    Raises:
        ValueError: it does not have the form of our own names.
    """
    if name is not None and not is_fork_name(name):
        raise ValueError(f"{name!r} is not a name that omnigraph gives to a fork")
    return name


def inside(location: GraphLocation, name: str) -> Path:
    """The local path of a name below the root, no part of which is a link.

    Raises:
        OutsideRootError: the name leads out of the root, or through a link.
    """
    parts = name.split("/") if name else []
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise OutsideRootError(name, "it is not a plain path below the root")
    place = location.uri
    for part in parts:
        place = f"{place}/{part}"
        try:
            mode = os.lstat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            # What does not exist leads nowhere.
            break
        if stat.S_ISLNK(mode):
            raise _link(location, place)
    return location.path.joinpath(*parts)


def refuse_links(location: GraphLocation, folder: str) -> None:
    """Make sure that there is no link in a folder, at any depth. Looks at names only; nothing on an object store.

    Raises:
        OutsideRootError: there is one.
    """
    if location.is_local:
        for entry in walk(location, folder):
            if entry.is_symlink():
                raise _link(location, entry.path)


def walk(location: GraphLocation, folder: str) -> Iterator[os.DirEntry[str]]:
    """Everything in a local folder, at any depth, folders before their content; links are given and not followed.

    What disappears meanwhile is passed over.

    Raises:
        OutsideRootError: the folder itself leads out of the root, or through a link.
    """
    waiting = [str(inside(location, folder))]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _link(location: GraphLocation, place: str) -> OutsideRootError:
    name = os.path.relpath(place, location.uri)
    return OutsideRootError(name, "it is a link, and a graph holds no links")


# ---- The names that Lance gives to the files of a dataset, and how its versions refer to them
#
# A fork refers to files of its base by the address of the base. All names are random, so they are compared without
# it: however the address is spelled, a file that a fork reads is recognised.


#: The file names of Lance below a dataset or a branch of it; the group is what a version refers to.
_SHAPES = (
    re.compile(r"(data/[^/.]+)(?:\.lance|/.+)"),
    re.compile(r"(_deletions/[^/.][^/]*\.(?:arrow|bin))"),
    re.compile(r"(_indices/[^/]+)/.+"),
    re.compile(r"(_transactions/[^/.][^/]*\.txn)"),
)
_ATTACHED = re.compile(r"(?:(.+)/)?_versions/([0-9]+)\.manifest")
_DETACHED = re.compile(r"_versions/d([0-9]+)\.manifest")
#: What a killed process leaves of a file that it was writing.
_TEMPORARY = re.compile(
    r"(?:data|_deletions|_transactions|_versions|_indices/[^/]+)/\.tmp[^/]*|_versions/[0-9]+\.manifest#[0-9]+"
)
#: Every file that Lance or this system puts into the folder of a dataset, or of a fork of it.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    rf"data/[0-9A-Za-z-]+(?:\.lance|/[0-9A-Za-z-]+\.blob)|_deletions/[0-9-]+\.(?:arrow|bin)"
    rf"|_indices/{_UUID}/[^/]+|_transactions/[0-9]+-{_UUID}\.txn"
    r"|_versions/(?:d?[0-9]+\.manifest|latest_version_hint\.json)|_refs/(?:branches|tags)/[^/]+\.json"
    rf"|_checksums/\.?[0-9]+\.json|_latest\.manifest|{RECLAIMED_MARK}|{_TEMPORARY.pattern}"
)
_CONTROL = "|".join(
    re.escape(name)
    for name in (*SCHEMA_FILES, *(f"{name}{STAGING_SUFFIX}" for name in SCHEMA_FILES), INIT_CLAIM, RECORDED_ROOT)
)
_UNFINISHED = re.compile(rf"(?:{_CONTROL}|{RECOVERY_FOLDER}/[0-9A-Z]{{26}}\.json)#[0-9]+")
#: Answers of tasks; a name that begins with a dot belongs to one that is being written.
_ANSWER = re.compile(rf"{STAGING_FOLDER}/[0-9A-Z]{{26}}/\.?[0-9a-z-]+\.arrow")
#: Files of datasets and of forks of them.
_DELETABLE = re.compile(
    rf"(?:(?:(?:nodes|edges)/[^/]+|{MANIFEST}|{re.escape(RECOVERIES)})/)?(?:tree/.+?/)?(?:{_OWN.pattern})"
)
_TREE = "tree/"
_U64_MAX = 2**64 - 1
#: Names from here on count backwards, so that the newest version is listed first.
_COUNTS_BACKWARDS = 2**63


def manifest_name(version: int) -> str:
    """The manifest of a version, as a name below its line.

    >>> manifest_name(7)
    '_versions/18446744073709551608.manifest'
    """
    return f"_versions/{_U64_MAX - version}.manifest"


def manifest_names(version: int) -> tuple[str, str]:
    """The manifest of a version as Lance names it now, and as earlier releases of it did."""
    return manifest_name(version), f"_versions/{version}.manifest"


def registration_name(fork: str) -> str:
    """The file by which a dataset knows one of its forks, as a name below the dataset.

    >>> registration_name("review/ada")
    '_refs/branches/review%2Fada.json'
    """
    return f"_refs/branches/{fork.replace('/', '%2F')}.json"


def is_deletable(name: str) -> bool:
    """Whether a file below the root has a name under which this system, or Lance for it, writes files of datasets.

    >>> is_deletable("nodes/da89d00e1b71df59/data/01af.lance"), is_deletable("nodes/da89d00e1b71df59/notes.txt")
    (True, False)
    """
    return _DELETABLE.fullmatch(name) is not None or _ANSWER.fullmatch(name) is not None or is_unfinished(name)


def is_unfinished(name: str) -> bool:
    """Whether a file below the root is what a killed process leaves of a control file.

    >>> is_unfinished("__schema_state.json#1"), is_unfinished("notes#1")
    (True, False)
    """
    return _UNFINISHED.fullmatch(name) is not None


def attached_version(name: str) -> tuple[str, int] | None:
    """The folder of the line and the version, when a file is the manifest of a version that is not detached.

    >>> attached_version("tree/draft/_versions/18446744073709551608.manifest")
    ('tree/draft', 7)
    """
    match = _ATTACHED.fullmatch(name)
    if match is None:
        return None
    number = int(match[2])
    return match[1] or "", _U64_MAX - number if number >= _COUNTS_BACKWARDS else number


def detached_version(name: str) -> int | None:
    """The number of a detached version, when a file below a line is its manifest."""
    match = _DETACHED.fullmatch(name)
    return None if match is None else int(match[1])


def line_folders(names: Iterable[str]) -> list[str]:
    """The folders of a dataset that hold versions: its own, and those of its forks."""
    found = (attached_version(name) for name in names)
    # The longest first: the name of one fork may continue that of another.
    return sorted({item[0] for item in found if item}, key=lambda it: (-len(it), it))


def line_folder(fork: str | None) -> str:
    """The folder of a line, relative to its dataset."""
    return "" if fork is None else f"{_TREE}{fork}"


def line_address(location: GraphLocation, path: str, folder: str) -> str:
    """The address of a dataset or of one of its forks, by its folder."""
    return location.child(f"{path}/{folder}" if folder else path)


def fork_of(folder: str) -> str | None:
    """The inverse of `line_folder`."""
    return folder.removeprefix(_TREE) if folder else None


def placed(name: str, folders: Iterable[str]) -> tuple[str, str] | None:
    """The folder that a file belongs to and its name there; None when no version could refer to it."""
    for folder in folders:
        start = f"{folder}/" if folder else ""
        inner = name.removeprefix(start)
        is_private = _TEMPORARY.fullmatch(inner) or _DETACHED.fullmatch(inner)
        if name.startswith(start) and (is_private or reference(inner) is not None):
            return folder, inner
    return None


def reference(name: str) -> str | None:
    """The name by which versions refer to a file; None when they never do."""
    if _TEMPORARY.fullmatch(name):
        return None
    matches = (shape.fullmatch(name) for shape in _SHAPES)
    return next((match[1] for match in matches if match), None)
