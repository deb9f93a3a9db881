"""One engine with its store open: here, or in a worker process of the peers' environment."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comparison.contract import engine_class
from comparison.processes import stop_worker
from graphs.folder import read_dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from comparison.contract import Engine, Inputs

#: Written into a store when it is filled: what with, and by which version.
_COMPLETE = "complete.txt"
#: A worker that has not ended by itself after this time is killed.


class Session(Protocol):
    """An engine that can be asked and timed."""

    name: str
    version: str
    #: Seconds to fill the store and build its indexes; None when it was there already.
    build_s: float | None
    workloads: frozenset[str]

    def answers(self, workload: str, inputs: Sequence[Inputs]) -> list[list[list[object]]]:
        """The rows of one call per input. Runs before any timing and so warms the caches."""

    def timings(self, workload: str, inputs: Sequence[Inputs], sweeps: int) -> list[list[float]]:
        """Seconds per input and sweep, after one call that is not counted."""

    def facts(self) -> dict[str, object]:
        """Further figures that the engine can tell about itself."""

    def close(self) -> None:
        """Release the engine."""


def ensure_store(kind: type[Engine], data: Path, store: Path) -> float | None:
    """Fill a store, unless it holds just this dataset already; the seconds that took."""
    dataset = read_dataset(data)
    if dataset is None:
        raise FileNotFoundError(f"there is no complete dataset in {data}")
    mark, content = store / _COMPLETE, f"{dataset.stamp}\n{kind.version}\n"
    if mark.exists() and mark.read_text(encoding="utf-8") == content:
        return None
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    begin = time.perf_counter()
    kind.build(dataset, store)
    seconds = time.perf_counter() - begin
    mark.write_text(content, encoding="utf-8")
    return seconds


class LocalSession:
    """An engine in this process."""

    def __init__(self, name: str, data: Path, store: Path) -> None:
        kind = engine_class(name)
        self.name, self.version = name.partition("/")[0], kind.version
        self.build_s = ensure_store(kind, data, store)
        self._engine = kind(store)
        self.workloads = frozenset(self._engine.calls)

    def answers(self, workload: str, inputs: Sequence[Inputs]) -> list[list[list[object]]]:
        """The rows of one call per input."""
        call = self._engine.calls[workload]
        return [self._engine.rows(call(item)) for item in inputs]

    def timings(self, workload: str, inputs: Sequence[Inputs], sweeps: int) -> list[list[float]]:
        """Seconds per input and sweep; the garbage collector rests, as in `timeit`."""
        call, clock = self._engine.calls[workload], time.perf_counter
        times: list[list[float]] = [[] for _ in inputs]
        gc.collect()
        gc.disable()
        try:
            call(inputs[0])
            for _ in range(sweeps):
                for item, column in zip(inputs, times, strict=True):
                    begin = clock()
                    call(item)
                    column.append(clock() - begin)
        finally:
            gc.enable()
        return times

    def facts(self) -> dict[str, object]:
        """What the engine tells about itself."""
        return self._engine.facts()

    def close(self) -> None:
        """The process ends soon after: nothing to do."""


class WorkerSession:
    """An engine in a process of another interpreter, asked with one line of JSON at a time over its pipes."""

    def __init__(self, name: str, data: Path, store: Path, *, python: Path) -> None:
        self.name = name.partition("/")[0]
        command = [str(python), "-m", "comparison.worker", name, str(data), str(store)]
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # LanceDB's own hybrid query trips over a deprecation; writing that to the log would cost it time.
            env={**os.environ, "LANCEDB_LOG": "error"},
        )
        hello = self._receive()
        self.version: str = hello["version"]
        self.build_s: float | None = hello["build_s"]
        self.workloads = frozenset(hello["workloads"])

    def answers(self, workload: str, inputs: Sequence[Inputs]) -> list[list[list[object]]]:
        """The rows of one call per input."""
        return self._ask("answers", workload=workload, inputs=inputs)

    def timings(self, workload: str, inputs: Sequence[Inputs], sweeps: int) -> list[list[float]]:
        """Seconds per input and sweep, measured inside the worker."""
        return self._ask("timings", workload=workload, inputs=inputs, sweeps=sweeps)

    def facts(self) -> dict[str, object]:
        """What the engine tells about itself."""
        return self._ask("facts")

    def close(self) -> None:
        """End the worker: it stops when its input ends."""
        stop_worker(self._process)

    def _ask(self, method: str, **arguments: object) -> Any:
        assert self._process.stdin is not None, "opened with a pipe"
        self._process.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None, "opened with a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.name} ended with {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.name}: {reply['error']}")
        return reply["result"]
