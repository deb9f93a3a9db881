"""What branches, commits, merges, diffs and the log cost, as ratios within one run and beside doltlite.

    python benchmarks/history.py                    100 k persons and 2 M edges; a few minutes
    python benchmarks/history.py --edges 200000     a quick look

* a branch, its first commit and a commit of one row, in the large graph against an empty one
* a three-way merge (so many rows changed on each side), a fast-forward and a diff: of 10,000 rows against 1,000 in the
  same graph, and of 1,000 rows in a graph against a tenth of it
* the log of 2,000 commits, and a commit of one row after them against one after 10

Doltlite, a versioned SQL database in one file, does the same with a table of persons and one of edges in the same run:
the systems take turns, and both flush what they commit. A figure is a median. Stores are filled once, under `.data`,
and copied for each run; `--rebuild` fills them again, as a change to storage or indexes asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.peers import peers_python
from comparison.report import machine
from histories.contract import OURS, PEER
from histories.measurements import CHANGED, Figures, Plan, measure_log, measure_merges, measure_small_writes
from histories.report import comparisons, json_body, medians
from histories.session import LocalSession, WorkerSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from histories.session import Session

HERE = Path(__file__).parent
_PARTS = {"writes": measure_small_writes, "merges": measure_merges, "log": measure_log}


def main() -> None:
    options = parse_options()
    options.data.mkdir(parents=True, exist_ok=True)
    figures = Figures()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.data)))
        plan = Plan(
            data=options.data.resolve(),
            scratch=scratch.resolve(),
            persons=options.persons,
            edges=options.edges,
            rounds=options.rounds,
            merges=options.merges,
            commits=options.commits,
        )
        sessions = [
            stack.enter_context(closing(open_session(name, options.peers.absolute()))) for name in options.systems
        ]
        fill(sessions, plan, rebuild=options.rebuild)
        for part in options.only:
            print(f"measuring {part}", file=sys.stderr)
            _PARTS[part](sessions, plan, figures)
        systems = {session.system: session.version() for session in sessions}
    print(*medians(figures), "", *comparisons(figures, plan), sep="\n")
    print(f"\nload of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.json:
        body = json_body(figures, plan, systems) | {"machine": machine()}
        options.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def open_session(system: str, peers: Path) -> Session:
    """Ours in this process, the peer in its worker."""
    if system == OURS:
        return LocalSession(system)
    return WorkerSession(system, python=peers_python(peers))


def fill(sessions: Sequence[Session], plan: Plan, *, rebuild: bool) -> None:
    """Fill the stores that are missing."""
    for session in sessions:
        for edges in (plan.edges, plan.fewer_edges):
            seconds = session.fill(str(plan.data), plan.persons, edges, rebuild=rebuild)
            if seconds is not None:
                done = f"filled {session.system} with {edges:,} edges in {seconds:.1f} s"
                print(done, file=sys.stderr)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=40, help="calls of each small write")
    parser.add_argument("--merges", type=int, default=5, help="merges of each kind and size")
    parser.add_argument("--commits", type=int, default=2_000, help="commits of the long history")
    parser.add_argument("--only", type=chosen(_PARTS), default=list(_PARTS), help=", ".join(_PARTS))
    parser.add_argument("--systems", type=chosen((OURS, PEER)), default=[OURS, PEER], help=f"{OURS}, {PEER}")
    parser.add_argument("--data", type=Path, default=HERE / ".data", help="keeps the filled stores")
    parser.add_argument("--peers", type=Path, default=HERE / ".peers", help="their environment")
    parser.add_argument("--rebuild", action="store_true", help="fill the stores again")
    options = parser.parse_args()
    if options.edges < 2 * max(CHANGED):
        parser.error(f"there must be at least {2 * max(CHANGED):,} edges to change")
    return options


def chosen(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A reader of names with commas between them."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return names

    return read


if __name__ == "__main__":
    main()
