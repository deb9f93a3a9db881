"""Making files survive a power cut: Lance and obstore issue no fsync.

Only local disks need it; an object store acknowledges durable writes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def sync_files(paths: Iterable[Path]) -> None:
    """Flush files that were just written, and the directory entries that name them.

    A path that is a directory stands for all files directly in it. A path that does not exist is passed over: a commit
    may write fewer files than it could.
    """
    folders: set[Path] = set()
    for path in paths:
        if path.is_dir():
            folders.add(path.parent)
            files: Iterable[Path] = path.iterdir()
        else:
            files = (path,)
        for file in files:
            if _sync(file, os.O_RDONLY):
                folders.add(file.parent)
    for folder in folders:
        # A new directory is itself an entry of its parent.
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
        _sync(folder.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> bool:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
