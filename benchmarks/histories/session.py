"""The open stores of one system, called by name and timed: here, or in a worker of the peers' environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comparison.processes import stop_worker
from histories.contract import OURS, PEER
from histories.data import ensure

if TYPE_CHECKING:
    from histories.contract import Store

_STORES = {OURS: "histories.omnigraph_store:OmnigraphStore", PEER: "histories.doltlite_store:DoltliteStore"}
#: A worker that has not ended by itself after this time is killed.


class Session(Protocol):
    """One system. Paths and all other arguments are plain JSON values."""

    system: str

    def version(self) -> str:
        """Of the software."""

    def fill(self, data: str, persons: int, edges: int, *, rebuild: bool) -> float | None:
        """Fill the store of one size, unless it is there already; the seconds that took."""

    def open(self, store: str, scratch: str, data: str, persons: int, edges: int) -> None:
        """Open a copy of the filled store of one size under a name; without edges, a store with one person."""

    def call(self, store: str, method: str, **arguments: object) -> tuple[float, Any]:
        """Call a method of a store: the seconds it took, and what it returned."""

    def close(self) -> None:
        """Close all stores."""


class LocalSession:
    """A system whose library is in this interpreter."""

    def __init__(self, system: str) -> None:
        self.system = system
        module, _, attribute = _STORES[system].partition(":")
        self._kind: type[Store] = getattr(import_module(module), attribute)
        self._stores: dict[str, Store] = {}

    def version(self) -> str:
        """Of the software."""
        return self._kind.version()

    def fill(self, data: str, persons: int, edges: int, *, rebuild: bool) -> float | None:
        """Fill the store of one size. A run that is cut off leaves none, because the name comes last."""
        files = ensure(Path(data), persons, edges)
        filled = self._filled(files.folder)
        if filled.exists() and not rebuild:
            return None
        unfinished = filled.with_name(f"{filled.name}.unfinished")
        for path in (filled, unfinished):
            _remove(path)
        begin = time.perf_counter()
        self._kind.build(files, unfinished)
        seconds = time.perf_counter() - begin
        unfinished.rename(filled)
        return seconds

    def open(self, store: str, scratch: str, data: str, persons: int, edges: int) -> None:
        """Open a store under a name. Filled stores have no branch, so a copy of their files is a store too."""
        path = Path(scratch) / f"{store}-{self.system}"
        if edges == 0:
            self._kind.create(path)
            self._stores[store] = self._kind(path)
            return
        files = ensure(Path(data), persons, edges)
        filled = self._filled(files.folder)
        copy = shutil.copytree if filled.is_dir() else shutil.copyfile
        copy(filled, path)
        self._stores[store] = self._kind(path, files)

    def call(self, store: str, method: str, **arguments: object) -> tuple[float, Any]:
        """Call a method of a store."""
        function = getattr(self._stores[store], method)
        begin = time.perf_counter()
        value = function(**arguments)
        return time.perf_counter() - begin, value

    def close(self) -> None:
        """Close all stores."""
        while self._stores:
            self._stores.popitem()[1].close()

    def _filled(self, folder: Path) -> Path:
        return folder / f"{self.system}-{self.version()}"


class WorkerSession:
    """A system in a process of another interpreter, asked with one line of JSON at a time over its pipes."""

    def __init__(self, system: str, *, python: Path) -> None:
        self.system = system
        self._process = subprocess.Popen(
            [str(python), "-m", "histories.worker", system],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )

    def version(self) -> str:
        """Of the software."""
        return self._ask("version")

    def fill(self, data: str, persons: int, edges: int, *, rebuild: bool) -> float | None:
        """Fill the store of one size."""
        return self._ask("fill", data=data, persons=persons, edges=edges, rebuild=rebuild)

    def open(self, store: str, scratch: str, data: str, persons: int, edges: int) -> None:
        """Open a store under a name."""
        place = {"scratch": scratch, "data": data, "persons": persons, "edges": edges}
        self._ask("open", store=store, **place)

    def call(self, store: str, method: str, **arguments: object) -> tuple[float, Any]:
        """Call a method of a store; timed inside the worker."""
        seconds, value = self._ask("call", store=store, method=method, **arguments)
        return seconds, value

    def close(self) -> None:
        """End the worker: it stops when its input ends."""
        stop_worker(self._process)

    def _ask(self, request: str, **arguments: object) -> Any:
        assert self._process.stdin is not None, "opened with a pipe"
        assert self._process.stdout is not None, "opened with a pipe"
        self._process.stdin.write(json.dumps({"request": request, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.system} ended with {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.system}: {reply['error']}")
        return reply["result"]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
