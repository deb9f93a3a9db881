"""What counts of labelled subgraphs cost: the nine LSQB queries, beside Ladybug and DuckDB on the same network.

Long chains, triangles, stars, several types of messages, optional parts and parts that are missing. Every count is
compared between the systems before it is timed. `--only q3,q6 --persons 2000` repeats a part quickly.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.contract import PEERS
from comparison.figures import measure
from comparison.peers import peers_python
from comparison.report import heading, json_body, notes, table_row
from comparison.session import LocalSession, WorkerSession
from comparison.workloads import Sameness, Target, Workload
from subgraphs.network import Network, ensure

if TYPE_CHECKING:
    from collections.abc import Callable

    from comparison.contract import Inputs
    from comparison.session import Session
    from comparison.workloads import Rows

HERE = Path(__file__).parent
ENGINES = ("omnigraph", "ladybug", "duckdb")
_BEST = Target(factor=0.7, baselines=("ladybug", "duckdb"))
_TITLES = {
    "q1": "chain of eight edges",
    "q2": "replies between acquaintances",
    "q3": "triangles within a country",
    "q4": "stars around messages",
    "q5": "other tags of replies",
    "q6": "two steps to an interest",
    "q7": "stars with optional arms",
    "q8": "other tags, own ones missing",
    "q9": "two steps, no direct one",
}
WORKLOADS = {
    name: Workload(name=name, title=title, takes=(), sameness=Sameness.SET, target=_BEST)
    for name, title in _TITLES.items()
}


class NoInputs:
    """Every question is about the whole network."""

    def of(self, _workload: Workload) -> list[Inputs]:
        """One empty input."""
        return [{}]

    def exact(self, _workload: Workload) -> list[Rows] | None:
        """The systems judge each other."""
        return None


def main() -> None:
    options = parse_options()
    dataset = ensure(Network(persons=options.persons), options.data / f"subgraphs-{options.persons}")
    figures = []
    with ExitStack() as stack:
        stores = options.stores or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = stores.resolve() / dataset.path.name
        sessions: list[Session] = []
        for name in options.engines:
            session = open_session(name, dataset.path.resolve(), stores / name, options.peers)
            sessions.append(stack.enter_context(closing(session)))
        print(heading(options.engines))
        for name in options.only:
            figures.append(measure(WORKLOADS[name], sessions, NoInputs(), options.repeat))
            print(table_row(figures[-1], options.engines), flush=True)
        engines = {session.name: {"version": session.version, "build_s": session.build_s} for session in sessions}
    print("", *notes(figures, engines), sep="\n")
    if options.json:
        body = json_body(figures, engines, dataset, options.repeat)
        options.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if not all(figure.is_sound for figure in figures):
        sys.exit("an engine failed or contradicted the others")


def open_session(name: str, data: Path, store: Path, peers: Path) -> Session:
    """A system with its store filled: ours here, a peer in its worker."""
    print(f"opening {name}", file=sys.stderr)
    family = f"{name}/subgraphs"
    if name in PEERS:
        return WorkerSession(family, data, store, python=peers_python(peers.absolute()))
    return LocalSession(family, data, store)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--persons", type=int, default=Network().persons, help="size of the network")
    parser.add_argument("--repeat", type=int, default=1, help="a third of the measured runs")
    parser.add_argument("--only", type=_names(tuple(WORKLOADS)), default=list(WORKLOADS), help="such as q3,q6")
    parser.add_argument("--engines", type=_names(ENGINES), default=list(ENGINES), help="such as omnigraph,duckdb")
    parser.add_argument("--data", type=Path, default=HERE / ".data", help="keeps the networks")
    parser.add_argument("--stores", type=Path, help="keeps the filled stores; default: removed at the end")
    parser.add_argument("--peers", type=Path, default=HERE / ".peers", help="their environment")
    return parser.parse_args()


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A converter of lists of names."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; known: {', '.join(known)}")
        return names

    return chosen


if __name__ == "__main__":
    main()
