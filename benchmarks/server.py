"""What it costs that a graph is behind a server, as ratios to the same operations embedded, in the same run.

* point read, two hops, 1,000 rows, one-row insert, export; with 1, 8 and 64 connections, and as many threads embedded
* through a plain socket with JSON, and through `Graph.connect`, which reads rows as Arrow
* memory of the server: idle, after all operations, and after all of them once more

Only this machine is involved: the server listens on a free port of the loopback interface and is stopped at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from comparison.figures import percentile
from comparison.report import machine
from omnigraph import Graph
from serving.operations import make_graph, operations
from serving.process import ServerProcess
from serving.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from serving.operations import Operation

_Handle = TypeVar("_Handle")
_WAYS = ("embedded", "http", "client")
#: The ways take turns, so that all see the same machine.
_TURNS = 3
#: Enough for all connections of one actor: what is measured is work, not refusals.
_LIMITS = {"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "1000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One operation, one way, one number of connections."""

    operation: str
    way: str
    connections: int
    p50_ms: float
    p99_ms: float
    per_s: float


def main() -> None:
    options = parse_options()
    if options.durable:
        os.environ.pop("OMNIGRAPH_DURABILITY", None)
    else:
        os.environ["OMNIGRAPH_DURABILITY"] = "process"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_graph(root / "embedded.omni", options.persons)
        shutil.copytree(root / "embedded.omni", root / "served.omni")
        wanted = [o for o in operations(options.persons) if options.only in o.name]
        begun = time.perf_counter()
        with (
            Graph.open(root / "embedded.omni") as graph,
            ServerProcess(root / "served.omni", root / "log", _LIMITS) as server,
        ):
            memory = {"start_s": time.perf_counter() - begun, "idle": server.resident_bytes()}
            figures = measure_all(wanted, graph, server, options.scale)
            memory["after all"] = server.resident_bytes()
            measure_all(wanted, graph, server, options.scale)
            memory["after all, twice"] = server.resident_bytes()
    report(wanted, figures, memory)
    if options.json:
        body = {"machine": machine(), "figures": [asdict(figure) for figure in figures], "memory": memory}
        options.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def measure_all(wanted: Sequence[Operation], graph: Graph, server: ServerProcess, scale: float) -> list[Figure]:
    return [
        figure
        for operation in wanted
        for connections in operation.connections
        for figure in measure(operation, connections, graph, server, scale)
    ]


def measure(operation: Operation, connections: int, graph: Graph, server: ServerProcess, scale: float) -> list[Figure]:
    """All ways of one operation, in turns."""
    calls = max(1, round(operation.calls * scale / connections / _TURNS))
    times: dict[str, list[float]] = {way: [] for way in _WAYS}
    spent: dict[str, float] = dict.fromkeys(_WAYS, 0.0)
    with Graph.connect(server.url) as remote:

        def through_wires() -> tuple[list[float], float]:
            # New ones in every turn: a server closes what was idle for some seconds.
            with ExitStack() as stack:
                wires = [stack.enter_context(Wire(server.address)) for _ in range(connections)]
                return run(operation.http, wires, calls)

        runs: dict[str, Callable[[], tuple[list[float], float]]] = {
            "embedded": lambda: run(operation.embedded, [graph] * connections, calls),
            "http": through_wires,
            "client": lambda: run(operation.client, [remote] * connections, calls),
        }
        for turn in range(_TURNS + 1):
            for way, call in runs.items():
                found, seconds = call()
                # The first turn fills caches and does not count.
                if turn:
                    times[way] += found
                    spent[way] += seconds
    return [
        Figure(
            operation=operation.name,
            way=way,
            connections=connections,
            p50_ms=percentile(times[way], 0.5) * 1e3,
            p99_ms=percentile(times[way], 0.99) * 1e3,
            per_s=len(times[way]) / spent[way],
        )
        for way in _WAYS
    ]


def run(call: Callable[[_Handle, int], object], handles: Sequence[_Handle], calls: int) -> tuple[list[float], float]:
    """The times of all calls, each handle in a thread of its own, and how long all took together."""
    start = Barrier(len(handles))

    def work(place: int) -> list[float]:
        found = []
        start.wait()
        for number in range(calls):
            begin = time.perf_counter()
            call(handles[place], place * calls + number)
            found.append(time.perf_counter() - begin)
        return found

    begin = time.perf_counter()
    with ThreadPoolExecutor(len(handles)) as pool:
        times = [seconds for part in pool.map(work, range(len(handles))) for seconds in part]
    return times, time.perf_counter() - begin


def report(wanted: Sequence[Operation], figures: Sequence[Figure], memory: dict[str, float]) -> None:
    by_key = {(f.operation, f.connections, f.way): f for f in figures}
    print(f"{'':<22}{'embedded':>24}{'HTTP, JSON, ratios':>33}{'client, ratios':>24}")
    print(f"{'':<22}{'p50 ms':>8}{'p99 ms':>8}{'1/s':>8}", end="")
    print(f"{'1/s':>9}" + f"{'p50':>8}{'p99':>8}{'rate':>8}" * 2 + "   target")
    for operation in wanted:
        for connections in operation.connections:
            ways = [by_key[operation.name, connections, way] for way in _WAYS]
            print(table_row(operation, *ways))
    print(f"\nthe server listened after {memory['start_s']:.1f} s")
    sizes = {name: size for name, size in memory.items() if name != "start_s"}
    print("memory of the server:", *(f"{n} {s / 2**20:.0f} MiB," for n, s in sizes.items()))
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def table_row(operation: Operation, embedded: Figure, http: Figure, client: Figure) -> str:
    line = f"{operation.name:<16}{embedded.connections:>6}"
    line += f"{embedded.p50_ms:>8.2f}{embedded.p99_ms:>8.1f}{embedded.per_s:>8.0f}{http.per_s:>9.0f}"
    for figure in (http, client):
        line += f"{figure.p50_ms / embedded.p50_ms:>8.2f}{figure.p99_ms / embedded.p99_ms:>8.2f}"
        line += f"{figure.per_s / embedded.per_s:>8.2f}"
    if embedded.connections == 1 and operation.target is not None:
        is_met = http.p50_ms <= operation.target * embedded.p50_ms
        line += f"   p50 ≤ {operation.target} {'ok' if is_met else 'MISSED'}"
    return line


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--persons", type=int, default=5_000, help="nodes; each knows ten others")
    parser.add_argument("--only", default="", help="operations whose name holds this text")
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer calls")
    parser.add_argument("--durable", action="store_true", help="flush every commit to disk")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
