"""As `child.py`, with more kinds of jobs: processes that merge, and that make and delete branches."""

from __future__ import annotations

import os
from typing import Any

import child

from omnigraph.graph.graph import Graph

work_as_before = child.work


def work(job: dict[str, Any]) -> None:
    if job["action"] not in ("merge", "create_branch", "delete_branch"):
        work_as_before(job)
        return
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        if job["action"] == "create_branch":
            graph.create_branch(job["name"], job["base"], actor=job["actor"])
            print(job["name"])
        elif job["action"] == "delete_branch":
            graph.delete_branch(job["name"], actor=job["actor"])
            print(job["name"])
        else:
            result = graph.merge(
                job["source"],
                job["target"],
                delete_branch=job["delete_branch"],
                actor=job["actor"],
                engine="local",
            )
            assert result.commit is not None
            print(result.commit.commit_id)


if __name__ == "__main__":
    child.work = work
    child.main()
