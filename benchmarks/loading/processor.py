"""Processor time of this process and everything below it: what a job costs, also on a machine that others use."""

from __future__ import annotations

import os
from pathlib import Path

from loading.memory import processes

_TICKS = os.sysconf("SC_CLK_TCK")
#: Where `/proc/<pid>/stat` has user and system time, counted behind the name of the process.
_TIMES = slice(11, 13)


def tree_seconds() -> float:
    """Seconds that the living processes of the tree have used so far."""
    return sum(map(_seconds, processes()))


def _seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_TIMES])) / _TICKS
