"""What a writer costs the readers beside it: four threads read while another one commits, in one process.

The readers take turns through a look-up by key, one hop, two hops and a count by condition, for a while without a
writer and for a while with one that commits an edge, a node, an update and a delete in turns, as fast as it can.
Each figure of the second phase is a ratio to the median of the first.

Before that, alone: what the first read after a commit of one row takes, as a ratio to the same read before it. A read
that follows another one finds its code and data in the caches of the processor; one after a pause does not, whether or
not there was a commit. So the commit is measured against a pause, and the reads without one are shown beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from comparison.engines.omnigraph_load import fill
from comparison.report import machine
from graphs.social import SocialGraph, ensure
from omnigraph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
_HOPS = "match {{ $a: Person {{ pid: $pid }} {clauses} }} return {{ count($b) as n }}"
_READS = {
    "point": "match { $a: Person { pid: $pid } } return { $a.first_name, $a.score }",
    "one hop": _HOPS.format(clauses="$a knows $b"),
    "two hops": _HOPS.format(clauses="$a knows $m $m knows $b"),
    "condition": 'match { $b: Person { gender: "x" } $b.score > 50.0 } return { count($b) as n }',
}
#: With the writer, the slowest percent of reads takes at most so many medians without it.
_TARGET = 5.0
#: The first read after a commit takes at most so many times the read before it.
_FIRST_TARGET = 2.0
#: Commits of each kind that are read after.
_ROUNDS = 15
#: Reads in a row before each of them: the fastest counts.
_READS_BEFORE = 5
#: A pause about as long as a commit.
_PAUSE_S = 0.05
#: What the commits of a round do, in this order.
_KINDS = ("node", "edge", "update", "delete")
#: When a read is measured.
_MOMENTS = ("in a row", "after a pause", "after a commit")
#: Milliseconds by kind of commit, read and moment.
FirstReads: TypeAlias = dict[str, dict[str, dict[str, float]]]
#: New persons have keys from here on.
_FIRST_NEW = 1_000_000_000


@dataclass(slots=True)
class Phase:
    """What one while brought."""

    reads: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _READS})
    commits: list[float] = field(default_factory=list)


def main() -> None:
    options = parse_options()
    dataset = ensure(SocialGraph(persons=options.persons), options.data / f"social-{options.persons}")
    with ExitStack() as stack:
        stores = options.stores or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        uri = stores / f"mixed-{options.persons}.omni"
        if not uri.exists():
            with Graph.init(uri, dataset.schema_path) as made:
                fill(made, dataset)
                made.ensure_indices()
        graph = stack.enter_context(Graph.open(uri))
        first = first_reads(graph, options.persons)
        alone = run(graph, options, writes=False)
        beside = run(graph, options, writes=True)
    report_first(first)
    report(alone, beside)
    if options.json:
        options.json.write_text(json.dumps(json_body(first, alone, beside), indent=2) + "\n", encoding="utf-8")


def first_reads(graph: Graph, persons: int) -> FirstReads:
    """Per kind of commit and read, the median milliseconds of a read in a row, after a pause, and after the commit."""
    choice = random.Random(7)
    times: dict[str, dict[str, list[tuple[float, float, float]]]] = {
        kind: {name: [] for name in _READS} for kind in _KINDS
    }
    warm_up(graph, persons)
    number = _FIRST_NEW
    for _ in range(_ROUNDS):
        for name, text in _READS.items():
            number += 1
            for kind, statement in zip(_KINDS, statements(number, choice, persons), strict=True):
                pid = choice.randrange(persons)
                row = min(timed(graph, text, pid) for _ in range(_READS_BEFORE))
                time.sleep(_PAUSE_S)
                pause = timed(graph, text, pid)
                graph.mutate(statement)
                times[kind][name].append((row, pause, timed(graph, text, pid)))
    return {
        kind: {
            name: dict(zip(_MOMENTS, (statistics.median(item) * 1e3 for item in zip(*found, strict=True)), strict=True))
            for name, found in reads.items()
        }
        for kind, reads in times.items()
    }


def warm_up(graph: Graph, persons: int) -> None:
    """Ask until everything that is worth being kept is kept."""
    for number in range(40):
        for text in _READS.values():
            timed(graph, text, number % persons)


def timed(graph: Graph, text: str, pid: int) -> float:
    """The seconds of a read; one that asks for no person asks the same every time."""
    params = {"pid": pid} if "$pid" in text else {}
    begin = time.perf_counter()
    graph.query(text, params).to_pylist()
    return time.perf_counter() - begin


def run(graph: Graph, options: argparse.Namespace, *, writes: bool) -> Phase:
    """Read for a while from several threads, with or without a writer."""
    phase, stop = Phase(), threading.Event()
    failures: list[Exception] = []

    def guarded(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)
            stop.set()

    jobs = [(read, graph, phase, stop, number, options.persons) for number in range(options.readers)]
    if writes:
        jobs.append((write, graph, phase, stop, options.persons))
    threads = [threading.Thread(target=guarded, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    stop.wait(options.seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return phase


def read(graph: Graph, phase: Phase, stop: threading.Event, seed: int, persons: int) -> None:
    """One reader, until it is told to stop."""
    choice = random.Random(seed)
    for name, text in cycle(_READS.items()):
        if stop.is_set():
            return
        phase.reads[name].append(timed(graph, text, choice.randrange(persons)))


def write(graph: Graph, phase: Phase, stop: threading.Event, persons: int) -> None:
    """The writer, until it is told to stop: every commit changes one row."""
    choice = random.Random(99)
    number = _FIRST_NEW
    while not stop.is_set():
        number += 1
        for text in statements(number, choice, persons):
            begin = time.perf_counter()
            graph.mutate(text)
            phase.commits.append(time.perf_counter() - begin)
            if stop.is_set():
                return


def statements(number: int, choice: random.Random, persons: int) -> list[str]:
    """A new person, an edge to it, an update of another one, and the person's end."""
    other, third = (choice.randrange(persons) for _ in range(2))
    person = (
        f'insert Person {{ pid: {number}, first_name: "New", last_name: "Person", gender: "x",'
        ' birthday: date("2000-01-01"), created: datetime("2026-01-01T00:00:00Z"), score: 60.0 }'
    )
    edge = f'insert Knows {{ from: "{other}", to: "{number}", since: date("2026-01-01"), weight: 0.5 }}'
    update = f"update Person set {{ score: {choice.random() * 100:.3f} }} where pid = {third}"
    return [person, edge, update, f"delete Person where pid = {number}"]


def report_first(first: FirstReads) -> None:
    print(f"{'milliseconds':<14}{'read':<12}" + "".join(f"{moment:>16}" for moment in _MOMENTS) + f"{'ratio':>8}")
    for kind, reads in first.items():
        for name, moments in reads.items():
            _, pause, commit = moments.values()
            verdict = "ok" if commit <= _FIRST_TARGET * pause else "MISSED"
            print(
                f"one {kind:<10}{name:<12}"
                + "".join(f"{moments[moment]:>16.3f}" for moment in _MOMENTS)
                + f"{commit / pause:>8.1f}  target ≤ {_FIRST_TARGET:.0f}: {verdict}"
            )


def report(alone: Phase, beside: Phase) -> None:
    print(f"{'milliseconds':<12}{'alone p50':>11}{'p99':>9}{'beside p50':>12}{'p99':>9}{'p99 / p50 alone':>18}")
    for name in _READS:
        before, after = alone.reads[name], beside.reads[name]
        middle = statistics.median(before)
        ratio = percentile(after, 0.99) / middle
        verdict = "ok" if ratio <= _TARGET else "MISSED"
        print(
            f"{name:<12}{middle * 1e3:>11.3f}{percentile(before, 0.99) * 1e3:>9.3f}"
            f"{statistics.median(after) * 1e3:>12.3f}{percentile(after, 0.99) * 1e3:>9.3f}{ratio:>18.1f}"
            f"  target ≤ {_TARGET:.0f}: {verdict}"
        )
    print(f"reads: {count(alone):,} alone, {count(beside):,} beside {len(beside.commits):,} commits")


def count(phase: Phase) -> int:
    return sum(map(len, phase.reads.values()))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def json_body(first: dict[str, dict[str, tuple[float, float]]], alone: Phase, beside: Phase) -> dict[str, object]:
    """Everything that was measured."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        "machine": machine(),
        "first read after a commit": first,
        "commits": len(beside.commits),
        "milliseconds": {
            phase: {
                name: {word: percentile(times, share) * 1e3 for word, share in shares.items()}
                for name, times in measured.reads.items()
            }
            for phase, measured in (("alone", alone), ("beside", beside))
        },
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--persons", type=int, default=100_000, help="size of the social graph")
    parser.add_argument("--readers", type=int, default=4, help="threads that read")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each of the two phases takes")
    parser.add_argument("--data", type=Path, default=HERE / ".data", help="keeps the graphs")
    parser.add_argument("--stores", type=Path, help="keeps the filled store; default: removed at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
