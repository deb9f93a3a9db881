"""Rebuildable arrays beside a graph: written once, memory-mapped by every later process.

Nothing here is needed to read the graph, so nothing here fails: what cannot be written is not kept, what cannot be read
or differs from what was written is built again. Local graphs only; on an object store arrays live in memory alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from omnigraph.core.ids import new_ulid
from omnigraph.errors import OutsideRootError
from omnigraph.storage.location import GraphLocation, inside
from omnigraph.storage.objects import list_folders

#: An array whose element type its file tells.
AnyArray: TypeAlias = NDArray[Any]

DERIVED_FOLDER = "__derived"
#: The group of vectors that are not in the graph yet. They were paid for: only the job that made them removes them.
EMBEDDINGS_GROUP = "embeddings"
#: Ends the names of groups with terms of texts.
_TEXT_SUFFIX = ".text"
_CONTENTS = "contents.json"
#: Bytes whose checksum is computed at once, which bounds how long an interrupt waits.
_STEP_BYTES = 16 * 1024 * 1024
#: What `group_name` gives, and the names of arrays.
_GROUP = re.compile(r"(?:nodes|edges)-[0-9a-z-]+(?:\.text)?", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

_log = logging.getLogger(__name__)


class DerivedArrays:
    """Named sets of arrays below `__derived/`. A set appears and disappears as a whole."""

    def __init__(self, location: GraphLocation, *, writable: bool = True) -> None:
        self._location = location if location.is_local else None
        self._writable = writable

    def has(self, group: str, name: str) -> bool:
        """Whether a set is there."""
        folder = self._folder(group, name)
        return folder is not None and folder.is_dir()

    def names(self, group: str) -> list[str]:
        """The sets of a group that are there."""
        folder = self._folder(group)
        return [] if folder is None else sorted(item.name for item in _sets(folder) if not item.name.startswith("."))

    def load(self, group: str, name: str, *, only: Collection[str] | None = None) -> dict[str, AnyArray] | None:
        """The arrays of a set, or some of them, memory-mapped; None when it is not there, or damaged and taken away."""
        folder = self._folder(group, name)
        if folder is None:
            return None
        try:
            if (folder / _CONTENTS).is_symlink():
                raise ValueError(f"{_CONTENTS} is a link")
            contents = json.loads((folder / _CONTENTS).read_bytes())
            return {
                key: _load_array(folder, key, facts, may_lack_sum=group == EMBEDDINGS_GROUP)
                for key, facts in contents.items()
                if only is None or key in only
            }
        except Exception as error:  # noqa: BLE001  # whatever numpy and json make of damaged bytes: it is built again
            if isinstance(error, FileNotFoundError) and not folder.exists():
                return None
            _log.warning("derived state %s cannot be read and is built again: %s", folder, error)
            if self._writable:
                _remove(folder)
            return None

    def forget(self, group: str, name: str) -> None:
        """Take a set away, so that it is built again."""
        folder = self._folder(group, name)
        if folder is not None and self._writable:
            _remove(folder)

    def save(
        self, group: str, name: str, arrays: Mapping[str, AnyArray], *, replaces: Callable[[str], bool] = lambda _: True
    ) -> bool:
        """Keep a set and drop the others of its group that it replaces, by their names; whether it was kept."""
        folder = self._folder(group)
        if folder is None or not self._writable or not folder.parent.parent.is_dir():
            return False
        draft = folder / f".{new_ulid()}"
        try:
            draft.mkdir(parents=True)
            for key, array in arrays.items():
                np.save(draft / f"{key}.npy", array, allow_pickle=False)
            contents = {key: _facts(array) for key, array in arrays.items()}
            (draft / _CONTENTS).write_text(json.dumps(contents), encoding="utf-8")
            os.rename(draft, folder / name)
        except OSError as error:
            _delete_set(draft)
            _log.info("derived state %s/%s is not kept: %s", group, name, error)
            return False
        for other in _sets(folder):
            if other.name != name and not other.name.startswith(".") and replaces(other.name):
                _remove(other)
        return True

    def _folder(self, *parts: str) -> Path | None:
        """A folder of sets; None on an object store, and where a link would lead elsewhere, which is left alone."""
        if self._location is None:
            return None
        try:
            return inside(self._location, "/".join((DERIVED_FOLDER, *parts)))
        except OutsideRootError as error:
            _log.warning("derived state is neither read nor kept: %s", error)
            return None


def group_name(path: str, branch: str | None) -> str:
    """The group of sets that belong to a dataset or to one of its forks."""
    folder = path.replace("/", "-")
    return folder if branch is None else f"{folder}-{sha256(branch.encode()).hexdigest()[:12]}"


def text_group_name(path: str, branch: str | None) -> str:
    """The group of the terms of texts that belong to a dataset or to one of its forks."""
    return f"{group_name(path, branch)}{_TEXT_SUFFIX}"


def remove_texts(location: GraphLocation, path: str) -> None:
    """Remove the terms of all texts of a dataset and of its forks."""
    own = group_name(path, None)
    for folder in _groups(location):
        name = folder.removesuffix(_TEXT_SUFFIX)
        if name != folder and (name == own or name.rpartition("-")[0] == own):
            remove_groups(location, [folder])


def list_unused_groups(location: GraphLocation, used: Collection[str]) -> list[str]:
    """Groups that belong to nothing any more, by the names of those that do; folders of other names are not groups."""
    return [name for name in _groups(location) if name not in used]


def _groups(location: GraphLocation) -> list[str]:
    """The groups that are there; what a link in their place leads to is not ours."""
    if not location.is_local:
        return []
    with suppress(OutsideRootError):
        return [name for name in list_folders(location, DERIVED_FOLDER) if _GROUP.fullmatch(name)]
    return []


def remove_groups(location: GraphLocation, groups: Iterable[str]) -> None:
    """Remove groups of sets; a process that has mapped one keeps it until it ends."""
    for group in groups:
        folder = inside(location, f"{DERIVED_FOLDER}/{group}")
        for found in _sets(folder):
            _remove(found)
        with suppress(OSError):
            folder.rmdir()


def _load_array(folder: Path, key: str, facts: dict[str, object], *, may_lack_sum: bool) -> AnyArray:
    file = folder / f"{key}.npy"
    if not _KEY.fullmatch(key) or file.is_symlink():
        raise ValueError(f"{key!r} is not an array of the set")
    array = np.load(file, mmap_mode="r")
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{key} is not an array")
    if isinstance(array, np.memmap) and array.offset + array.nbytes != file.stat().st_size:
        raise ValueError(f"{key} has more bytes than were written")
    found = _facts(array)
    if may_lack_sum and "crc32" not in facts:
        # Earlier releases recorded another checksum. What was paid for is not thrown away because of that.
        facts = facts | {"crc32": found["crc32"]}
    if any(facts.get(name) != value for name, value in found.items()):
        raise ValueError(f"{key} is not what was written")
    return array


def _facts(array: AnyArray) -> dict[str, object]:
    """What an array is recognised by: its type, its shape and a checksum of all of its bytes."""
    flat: AnyArray = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    checksum = 0
    for start in range(0, flat.size, _STEP_BYTES):
        checksum = crc32(flat[start : start + _STEP_BYTES].data, checksum)
    return {"type": str(array.dtype), "shape": list(array.shape), "crc32": checksum}


def _remove(folder: Path) -> None:
    """Take a set away at once, then delete it; a process that has mapped it keeps it until it ends."""
    dead = folder.with_name(f".{new_ulid()}")
    try:
        os.rename(folder, dead)
    except OSError as error:
        _log.info("derived state %s stays: %s", folder, error)
        return
    _delete_set(dead)


def _sets(folder: Path) -> list[Path]:
    """The folders in a group; links and files are not sets."""
    try:
        with os.scandir(folder) as entries:
            return [folder / item.name for item in entries if item.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _delete_set(folder: Path) -> None:
    """Delete the files of a set and its folder; a folder with anything else stays."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name == _CONTENTS or name.endswith(".npy"):
                (folder / name).unlink(missing_ok=True)
        folder.rmdir()
