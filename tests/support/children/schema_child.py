"""As `child.py`, with one more kind of job: processes that change the schema."""

from __future__ import annotations

import os
from typing import Any

import child

import omnigraph.graph.schema_changes
import omnigraph.spark.worker_choice  # noqa: F401  # both imported once, before any fork
from omnigraph.graph.graph import Graph

work_as_before = child.work


def work(job: dict[str, Any]) -> None:
    if job["action"] != "apply_schema":
        work_as_before(job)
        return
    os.environ.update(job["environment"])
    with Graph.open(job["root"]) as graph:
        result = graph.apply_schema(
            job["schema"],
            backfill=job["backfill"],
            allow_data_loss=job["allow_data_loss"],
            actor=job["actor"],
            engine="local",
        )
        assert result.commit is not None
        print(result.commit.commit_id)


if __name__ == "__main__":
    child.work = work
    child.main()
