"""As `child.py`, for one kind of job: a process that cleans up."""

from __future__ import annotations

import os
from typing import Any

import child

from omnigraph.graph.graph import Graph


def work(job: dict[str, Any]) -> None:
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        graph.cleanup(keep=3, commits=True, confirm=True)


if __name__ == "__main__":
    child.work = work
    child.main()
