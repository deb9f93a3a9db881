"""As `child.py`, with one more kind of job: a process that builds indexes."""

from __future__ import annotations

import os
from typing import Any

import child

from omnigraph.graph import Graph

work_as_before = child.work


def work(job: dict[str, Any]) -> None:
    if job["action"] != "ensure_indices":
        work_as_before(job)
        return
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        report = graph.ensure_indices(job["branch"], actor=job["actor"])
        assert report.commit is not None
        print(report.commit.commit_id)


if __name__ == "__main__":
    child.work = work
    child.main()
