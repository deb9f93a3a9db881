"""Rebuildable arrays beside a graph: written once, memory-mapped by every later process.

Nothing here is needed to read the graph, so nothing here fails: what cannot be written is not kept, what cannot be read
is built again. Local graphs only; on an object store arrays live in memory alone.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.ids import new_ulid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from omnigraph.storage.location import GraphLocation

DERIVED_FOLDER = "__derived"

_log = logging.getLogger(__name__)


class DerivedArrays:
    """Named sets of arrays below `__derived/`. A set appears whole or not at all."""

    def __init__(self, location: GraphLocation, *, enabled: bool = True) -> None:
        self._root = location.path / DERIVED_FOLDER if location.is_local and enabled else None

    def has(self, group: str, name: str) -> bool:
        """Whether a set is there."""
        return self._root is not None and (self._root / group / name).is_dir()

    def load(self, group: str, name: str) -> dict[str, npt.NDArray[Any]] | None:
        """The arrays of a set, memory-mapped; None when it is not there or cannot be read."""
        if self._root is None:
            return None
        folder = self._root / group / name
        try:
            files = sorted(folder.iterdir())
            return {file.stem: np.load(file, mmap_mode="r") for file in files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("derived state %s cannot be read and is built again: %s", folder, error)
            return None

    def save(self, group: str, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
        """Keep a set and drop the older sets of its group; whether it was kept."""
        if self._root is None or not self._root.parent.is_dir():
            return False
        folder = self._root / group
        draft = folder / f".{new_ulid()}"
        try:
            draft.mkdir(parents=True)
            for key, array in arrays.items():
                np.save(draft / f"{key}.npy", array, allow_pickle=False)
            os.rename(draft, folder / name)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            _log.info("derived state %s/%s is not kept: %s", group, name, error)
            return False
        _drop_older(folder, name)
        return True


def _drop_older(folder: Path, kept: str) -> None:
    """Older states of the same thing; a process that has mapped them keeps them until it ends."""
    for other in folder.iterdir():
        if other.name != kept and not other.name.startswith("."):
            shutil.rmtree(other, ignore_errors=True)
