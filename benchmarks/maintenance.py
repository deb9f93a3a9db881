"""What thousands of tiny commits leave behind, and what maintenance makes of it, as ratios within one run.

    python benchmarks/maintenance.py                   5,000 commits; a few minutes
    python benchmarks/maintenance.py --commits 300     a quick look

* a commit of one row, the last hundred against the first: writers fold small fragments by themselves, nobody runs a
  command meanwhile
* reads, the opening of the graph and the disk it takes: as the commits left it, and after `optimize` and `cleanup`,
  each against a copy that was exported, loaded at once and indexed

Every graph holds the same rows, and the answers are compared before anything is timed. Graphs take turns; a figure is a
median. Commits are flushed to disk only with `--durable`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.report import machine
from omnigraph.graph.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = """
node Paper { doi: String @key  title: String @index  year: I32 @index }
edge Cites: Paper -> Paper
"""
WRITES = """
query paper($doi: String, $title: String, $year: I32) {
  insert Paper { doi: $doi, title: $title, year: $year }
}
query cite($doi: String, $to: String) { insert Cites { from: $doi, to: $to } }
query date($doi: String, $year: I32) { update Paper set { year: $year } where doi = $doi }
"""
READS: dict[str, tuple[str, Mapping[str, object]]] = {
    "by key": ("query q($d: String) { match { $p: Paper { doi: $d } } return { $p.title as t } }", {"d": "p8"}),
    "by range": ("query q() { match { $p: Paper  $p.year >= 2015 } return { count($p) as n } }", {}),
    "by text": ('query q() { match { $p: Paper  search($p.title, "heap") } return { count($p) as n } }', {}),
    "neighbours": (
        "query q($d: String) { match { $p: Paper { doi: $d }  $p cites $q } return { $q.doi as d } }",
        {"d": "p8"},
    ),
    "two hops": ("query q() { match { $p: Paper  $p cites{2,2} $q } return { count($q) as n } }", {}),
}
WORDS = ("heap", "tree", "graph", "index", "join", "scan", "page")
#: Commits at either end that are compared.
WINDOW = 100
#: What maintained graphs may cost in terms of a fresh copy.
FRESH_TARGET = 1.2
COMMIT_TARGET = 1.5


@dataclass
class Figures:
    """Seconds and bytes by what was measured and in which graph."""

    values: dict[tuple[str, str], float] = field(default_factory=dict)

    def ratio(self, what: str, above: str, below: str) -> float:
        """One graph in terms of another."""
        return self.values[what, above] / self.values[what, below]


def main() -> None:
    options = parse_options()
    if not options.durable:
        os.environ["OMNIGRAPH_DURABILITY"] = "process"
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        commits = write_many(root / "graph.omni", options.commits)
        print("copying", file=sys.stderr)
        make_fresh(root)
        measure(figures, {"worn": root / "graph.omni", "fresh": root / "fresh.omni"})
        print("maintaining", file=sys.stderr)
        steps = maintain(root / "graph.omni")
        measure(figures, {"maintained": root / "graph.omni", "again": root / "fresh.omni"})
    report(commits, steps, figures, options)


def write_many(path: Path, count: int) -> list[float]:
    """So many commits of one row each; how long each of them took."""
    times = []
    with Graph.init(path, SCHEMA) as graph:
        for number in range(count):
            name, params = one_write(number)
            begin = time.perf_counter()
            graph.mutate(WRITES, params, name=name)
            times.append(time.perf_counter() - begin)
            if (number + 1) % 1000 == 0:
                print(f"{number + 1:,} commits", file=sys.stderr)
    return times


def one_write(number: int) -> tuple[str, dict[str, object]]:
    """Half of the commits insert a paper, a quarter cites one, a quarter changes one."""
    newest = number // 4 * 2
    match number % 4:
        case 0 | 1:
            paper = newest + number % 4
            title = " ".join(WORDS[(paper * step) % len(WORDS)] for step in (1, 2, 3))
            year = 1990 + paper % 30
            return "paper", {"doi": f"p{paper}", "title": title, "year": year}
        case 2:
            return "cite", {"doi": f"p{newest // 2}", "to": f"p{newest}"}
        case _:
            return "date", {"doi": f"p{newest // 3}", "year": 1990 + number % 30}


def make_fresh(root: Path) -> None:
    """The same rows, loaded at once."""
    lines = root / "rows.jsonl"
    with Graph.open(root / "graph.omni", read_only=True) as graph:
        graph.export(lines, engine="local")
    with Graph.init(root / "fresh.omni", SCHEMA) as fresh:
        fresh.load(lines, mode="append", engine="local")
        fresh.ensure_indices()


def maintain(path: Path) -> dict[str, float]:
    """What the commands take."""
    with Graph.open(path) as graph:
        seconds = {"optimize": timed(graph.optimize)}
        seconds["cleanup"] = timed(lambda: graph.cleanup(older_than="0s", commits=True, confirm=True))
    return seconds


def measure(figures: Figures, paths: Mapping[str, Path]) -> None:
    """Reads in turns, openings in turns, and the disk that each graph takes."""
    for name, path in paths.items():
        figures.values["disk", name] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    opened = in_turns({name: lambda p=path: open_and_look(p) for name, path in paths.items()}, 15)
    for name, seconds in opened.items():
        figures.values["open", name] = seconds
    with ExitStack() as stack:
        graphs = {name: stack.enter_context(Graph.open(path, read_only=True)) for name, path in paths.items()}
        for what, (text, params) in READS.items():
            rows = [sorted(map(str, g.query(text, params).to_pylist())) for g in graphs.values()]
            if any(other != rows[0] for other in rows):
                sys.exit(f"the graphs do not agree about {what}")
            calls = {name: lambda g=graph, t=text, p=params: g.query(t, p).to_arrow() for name, graph in graphs.items()}
            for name, seconds in in_turns(calls, 40).items():
                figures.values[what, name] = seconds


def open_and_look(path: Path) -> None:
    with Graph.open(path, read_only=True) as graph:
        graph.snapshot()


def in_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of each call, after a few that do not count."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 3):
        for name, call in calls.items():
            seconds = timed(call)
            if number >= 3:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def report(commits: list[float], steps: Mapping[str, float], figures: Figures, options: argparse.Namespace) -> None:
    window = min(WINDOW, len(commits) // 2)
    early, late = commits[:window], commits[-window:]
    body: dict[str, object] = {"commits": len(commits)}
    print(f"{'a commit of one row, ms':<26}{'median':>10}{'mean':>10}")
    for name, times in ((f"first {window}", early), (f"last {window}", late)):
        median, mean = statistics.median(times), statistics.mean(times)
        print(f"{name:<26}{median * 1e3:>10.2f}{mean * 1e3:>10.2f}")
        body[f"commit, {name}"] = {"median_s": median, "mean_s": mean}
    medians = statistics.median(late) / statistics.median(early)
    means = statistics.mean(late) / statistics.mean(early)
    print(f"{'ratio':<26}{medians:>10.2f}{means:>10.2f}   target {COMMIT_TARGET}")
    body["commit ratio"] = {"median": medians, "mean": means, "target": COMMIT_TARGET}
    print()
    print(*(f"{name} took {seconds:.1f} s" for name, seconds in steps.items()), sep=", ")
    print(f"\n{'':<14}{'fresh':>10}{'worn':>12}{'maintained':>12}   target {FRESH_TARGET}")
    for what in ("open", *READS, "disk"):
        scale, unit = (1e-3, "kB") if what == "disk" else (1e3, "ms")
        worn = figures.ratio(what, "worn", "fresh")
        maintained = figures.ratio(what, "maintained", "again")
        fresh = figures.values[what, "again"] * scale
        print(f"{what:<14}{fresh:>8.2f} {unit}{worn:>11.2f}x{maintained:>11.2f}x")
        body[what] = {"fresh": fresh, "unit": unit, "worn": worn, "maintained": maintained}
    print(f"\nload of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.json:
        document = body | {"steps_s": dict(steps), "machine": machine()}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--commits", type=int, default=5_000, help="commits of one row")
    parser.add_argument("--durable", action="store_true", help="flush every commit to disk")
    return parser.parse_args()


if __name__ == "__main__":
    main()
