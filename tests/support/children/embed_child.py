"""As `child.py`, with one more kind of job: a process that embeds."""

from __future__ import annotations

import os
from typing import Any

import child

import omnigraph.embedding.row_job  # noqa: F401  # imported once, before any fork
from omnigraph.graph.graph import Graph

work_as_before = child.work


def work(job: dict[str, Any]) -> None:
    if job["action"] != "embed":
        work_as_before(job)
        return
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        result = graph.embed(engine="local", batch_size=1)
        assert result.commit is not None
        print(result.commit.commit_id)


if __name__ == "__main__":
    child.work = work
    child.main()
