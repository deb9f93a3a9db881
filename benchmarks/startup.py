"""What it costs to start: processor time of short commands, as a ratio to `import lance`.

No read beside the storage does without that import. Each figure is the least of several processes, in an order that
changes from round to round. Modules are compiled, as those of an installed package are. Target: 1.6 for a read beside
the storage. Where pandas is installed, pyarrow imports it with Lance; it is left out here, as commands leave it out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from omnigraph import Graph

WITHOUT_PANDAS = """
import sys

class WithoutPandas:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, WithoutPandas())
"""
TARGET = 1.6


def processor_s(words: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "g.omni"
        Graph.init(store, "node Person { name: String @key }").close()
        server = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.server", "--store", store, "--unauthenticated", "--bind", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ,
        )
        with server:
            assert server.stdout is not None
            address = server.stdout.readline().strip().partition("=")[2]
            try:
                figures = measured(folder, str(store), f"http://{address}", options.rounds)
            finally:
                server.terminate()
    print(json.dumps(figures) if options.json else "\n".join(lines(figures)))


def measured(folder: str, store: str, server: str, rounds: int) -> dict[str, float]:
    """The least processor time of each command; compiled modules are kept in the folder from the first round on."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    text = "match { $p: Person } return { $p.name }"
    commands = {
        "python": ["-c", "pass"],
        "import lance": ["-c", f"{WITHOUT_PANDAS}import lance"],
        "import omnigraph": ["-c", "import omnigraph"],
        "omnigraph version": ["-m", "omnigraph", "version"],
        "omnigraph --help": ["-m", "omnigraph", "--help"],
        "local read": ["-m", "omnigraph", "query", store, "-e", text],
        "remote read": ["-m", "omnigraph", "query", "--server", server, "-e", text],
    }
    seconds: dict[str, float] = {}
    for number in range(rounds):
        order = sorted(commands)
        random.Random(number).shuffle(order)
        for name in order:
            seconds[name] = min(seconds.get(name, 1e9), processor_s(commands[name], environment))
    return {name: seconds[name] for name in commands}


def lines(figures: dict[str, float]) -> list[str]:
    base = figures["import lance"]
    found = [
        f"{name:<18} {seconds * 1000:6.0f} ms  {seconds / base:5.2f} × import lance"
        for name, seconds in figures.items()
    ]
    return [*found, f"target of a local read: {TARGET} ×"]


if __name__ == "__main__":
    main()
