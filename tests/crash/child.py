"""One writer in a process of its own: reads a job from its input, does it, prints the commit it made.

The imports come first, so that a waiting child starts its job at once.
"""

from __future__ import annotations

import json
import os
import sys

from omnigraph.graph import Graph


def main() -> None:
    job = json.loads(sys.stdin.readline())
    os.environ.update(job["environment"])
    if job["action"] == "init":
        Graph.init(job["root"], job["schema"])
        return
    with Graph.open(job["root"]) as graph:
        if job["action"] == "mutate":
            result = graph.mutate(job["query"], branch=job["branch"], actor=job["actor"])
            assert result.commit is not None
            print(result.commit.commit_id)


if __name__ == "__main__":
    main()
