"""As `child.py`, with two more kinds of jobs: a process that builds indexes, and one that optimizes."""

from __future__ import annotations

import os
from typing import Any

import child

from omnigraph.graph.graph import Graph

work_as_before = child.work


def work(job: dict[str, Any]) -> None:
    if job["action"] not in ("ensure_indices", "optimize"):
        work_as_before(job)
        return
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        if job["action"] == "optimize":
            report = graph.optimize(actor=job["actor"])
        else:
            report = graph.ensure_indices(job["branch"], actor=job["actor"])
        assert report.commit is not None
        print(report.commit.commit_id)


if __name__ == "__main__":
    child.work = work
    child.main()
