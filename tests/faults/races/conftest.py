"""Crews of writers: threads on one graph object, threads with one each, and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from omnigraph.graph.graph import Graph
from support.races.jobs import JOBS, SCHEMA, Outcome, run_job

THREADS = 8
PROCESSES = 6
WORKER = Path(__file__).parents[2] / "support" / "races" / "worker.py"

#: The name of a job and its arguments.
Part = tuple[str, dict[str, Any]]


@dataclass
class Crew:
    """Several writers that begin together."""

    size: int
    #: Does what a writer with a number does, and answers with its outcomes.
    _job: Callable[[str, str, int, dict[str, Any]], list[Outcome]]

    def play(self, root: Path, *parts: Part) -> list[Future[list[Outcome]]]:
        """Start one writer for every part; they wait for each other before the first one moves."""
        barrier = Barrier(len(parts))
        pool = ThreadPoolExecutor(len(parts))

        def one(who: int) -> list[Outcome]:
            name, arguments = parts[who]
            barrier.wait()
            return self._job(name, str(root), who, arguments)

        futures = [pool.submit(one, who) for who in range(len(parts))]
        pool.shutdown(wait=False)
        return futures

    def start(self, job: str, root: Path, **arguments: Any) -> list[Future[list[Outcome]]]:
        """Let all writers begin the same job."""
        return self.play(root, *[(job, arguments)] * self.size)

    def run(self, job: str, root: Path, **arguments: Any) -> list[list[Outcome]]:
        """What each writer of one job reports."""
        return [future.result() for future in self.start(job, root, **arguments)]

    def run_parts(self, root: Path, *parts: Part) -> list[list[Outcome]]:
        """What each writer of a job of its own reports."""
        return [future.result() for future in self.play(root, *parts)]


def sharing_threads() -> Crew:
    """Threads that share one graph object."""
    graphs: dict[str, Graph] = {}

    def job(name: str, root: str, who: int, arguments: dict[str, Any]) -> list[Outcome]:
        if name == "initialize":
            return run_job(name, root, who, arguments)
        return JOBS[name](graphs.setdefault(root, Graph.open(root)), who, **arguments)

    return Crew(THREADS, job)


class WorkerProcess:
    """One process that runs jobs."""

    def __init__(self) -> None:
        environment = os.environ | {"OMNIGRAPH_DURABILITY": "process"}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def wait_ready(self) -> None:
        assert self._answer() == {"ready": True}

    def run(self, name: str, root: str, who: int, arguments: dict[str, Any]) -> list[Outcome]:
        assert self._process.stdin is not None
        request = {"name": name, "root": root, "who": who, "arguments": arguments}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "failure" not in answer, answer["failure"]
        outcomes: list[Outcome] = answer["outcomes"]
        return outcomes

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the worker ended with {self._process.poll()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="session")
def worker_processes() -> Iterator[list[WorkerProcess]]:
    """Processes are started once: importing Lance takes longer than a race."""
    workers = [WorkerProcess() for _ in range(PROCESSES)]
    for worker in workers:
        worker.wait_ready()
    yield workers
    for worker in workers:
        worker.stop()


#: All three kinds of concurrency. Threads with a graph each meet what processes meet; the default run tries them where
#: a test asks for it, since a lock of files must keep out threads of its own process, too.
ALL_KINDS = ["threads on one graph", "threads with a graph each", "processes"]
KINDS = [ALL_KINDS[0], pytest.param(ALL_KINDS[1], marks=pytest.mark.slow), ALL_KINDS[2]]


@pytest.fixture(params=KINDS)
def crew(request: pytest.FixtureRequest) -> Crew:
    if request.param == "threads on one graph":
        return sharing_threads()
    if request.param == "threads with a graph each":
        return Crew(THREADS, run_job)
    workers = request.getfixturevalue("worker_processes")
    return Crew(PROCESSES, lambda name, root, who, arguments: workers[who].run(name, root, who, arguments))


@pytest.fixture(autouse=True)
def _quick_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races are about order, not about power cuts: without fsync there are more of them per second."""
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty graph."""
    path = tmp_path / "race.omni"
    Graph.init(path, SCHEMA).close()
    return path
