"""Writers in processes of their own, so that they can be killed.

The program imports everything once, before any thread of Lance runs, and then forks one fresh process per job: it reads
jobs as lines of JSON and answers each with the exit status of its process, its output and its error output.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import tempfile
import traceback
import warnings
from importlib import import_module
from typing import Any

import omnigraph.spark.worker_choice  # noqa: F401  # imported once, before any fork
from omnigraph.graph.graph import Graph
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema

#: Rooms that import much of themselves when it is first used: each child would do so after its fork.
LATE = (
    *("graph", "commit", "embedding", "maintenance", "storage", "storage.datasets", "writes"),
    *("branches", "pipeline", "pipeline.load"),
)


def prepare() -> None:
    """Import what is imported late, and build the parsers; neither starts a thread."""
    for room in LATE:
        for module in pkgutil.iter_modules(import_module(f"omnigraph.{room}").__path__):
            import_module(f"omnigraph.{room}.{module.name}")
    catalog = compile_schema("node A { name: String @key }").catalog
    compile_query('query q() { insert A { name: "a" } }', catalog)


def work(job: dict[str, Any]) -> None:
    """Do one job and acknowledge it with what it made."""
    action, root, options = job.pop("action"), job.pop("root"), job
    os.environ.update(options.pop("environment"))
    if action == "init":
        Graph.init(root, options["schema"])
        return
    with Graph.open(root) as graph:
        if action == "open":
            return
        made = getattr(graph, action)(**options)
        if action == "cleanup":
            return
        if action in ("create_branch", "delete_branch"):
            print(options["name"])
            return
        assert made.commit is not None
        print(made.commit.commit_id)


def run_forked(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            try:
                work(job)
                code = 0
            except BaseException:  # noqa: BLE001  # reported to the test, as an interpreter would report it
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "out": out.read().decode(), "err": err.read().decode()}


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # allocators own a thread; none of ours runs
    prepare()
    for line in sys.stdin:
        print(json.dumps(run_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
