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
    """The highest proportional set sizes seen, in bytes; pages that processes share count once."""

    #: Of all processes together.
    bytes: int = 0
    #: Of this process, of the JVM, and of the largest Python worker.
    driver: int = 0
    jvm: int = 0
    worker: int = 0

    def look(self) -> None:
        """Raise the figures to what is used now."""
        used = {process: proportional_bytes(process) for process in processes()}
        own = used.pop(os.getpid(), 0)
        jvms = {process for process in used if is_jvm(process)}
        self.bytes = max(self.bytes, own + sum(used.values()))
        self.driver = max(self.driver, own)
        self.jvm = max([self.jvm, *(used[process] for process in jvms)])
        self.worker = max([self.worker, *(used[process] for process in used.keys() - jvms)])


@contextmanager
def peak_memory() -> Iterator[Peak]:
    peak, stop = Peak(), Event()

    def watch() -> None:
        while not stop.wait(_PERIOD_S):
            peak.look()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()
        peak.look()


def is_jvm(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip() == "java"
    except OSError:
        return False


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
