"""The border of a graph: which names below its root are of our own making, and that no link leads out of it.

A folder that was copied from elsewhere is input. Paths in sidecars, in the catalog and in Lance's manifests are taken
only in the exact form in which this system writes them, and a link below the root is never followed, listed or deleted.
The root itself may be reached through links: that is the choice of the person who names it.
"""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache
from typing import TYPE_CHECKING

from omnigraph.errors import OutsideRootError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from omnigraph.storage.location import GraphLocation

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
