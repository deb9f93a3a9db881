"""Forks servers from a process that has imported everything and runs no thread yet.

It reads jobs as lines of JSON and answers each with one number: the process id of a new server, or the exit code of one
that is waited for.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

import omnigraph.graph.branches
import omnigraph.graph.loads  # noqa: F401  # what a server imports late, imported once, before any fork
from omnigraph.server.main import main as serve


def start(job: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    # Only the job that is being done has its descriptors: a kill must close every pipe.
    for target, path in ((1, job["out"]), (2, job["errors"])):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.close(0)
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    code = 1
    try:
        serve(job["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # reported as an interpreter would report it
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # allocators own a thread; none of ours runs
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            _, status = os.waitpid(job["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
        else:
            print(start(job), flush=True)


if __name__ == "__main__":
    main()
