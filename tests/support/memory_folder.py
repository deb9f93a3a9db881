"""A folder in memory for the temporary files of a run: it makes hundreds of thousands of small ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: Where Linux keeps files in memory.
MEMORY = Path("/dev/shm")
#: A whole run leaves about half of that behind.
ROOM_BYTES = 6 * 1024**3
#: What has to be left for the processes of a run as well, several JVMs among them.
FREE_BYTES = 12 * 1024**3
_PREFIX = "omnigraph-tests-"


def make_memory_folder() -> Path | None:
    """A new folder in memory; None where there is no room for a run, or where programs cannot be started from."""
    try:
        place = os.statvfs(MEMORY)
        has_room = place.f_bavail * place.f_frsize >= ROOM_BYTES and _available_bytes() >= FREE_BYTES
        if not has_room or place.f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
            return None
        _remove_abandoned()
        folder = MEMORY / f"{_PREFIX}{os.getpid()}"
        folder.mkdir(mode=0o700)
    except OSError:
        return None  # another system, or no right to write there
    return folder


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(found) * 1024


def _remove_abandoned() -> None:
    """Remove the folders of runs that were killed."""
    for folder in MEMORY.glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(folder, ignore_errors=True)
