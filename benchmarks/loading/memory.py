"""Peak memory of this process and everything below it: the driver, the JVM, its Python workers."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PERIOD_S = 0.25


class Peak:
    """The highest sum of proportional set sizes seen, in bytes; pages that processes share count once."""

    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    peak, stop = Peak(), Event()

    def watch() -> None:
        while not stop.wait(_PERIOD_S):
            peak.bytes = max(peak.bytes, tree_bytes())

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()
        peak.bytes = max(peak.bytes, tree_bytes())


def tree_bytes() -> int:
    return sum(map(proportional_bytes, processes()))


def processes() -> list[int]:
    """This process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [os.getpid()]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def proportional_bytes(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
