"""What reads cost, beside other systems on the same graph in the same run.

The social graph is loaded into OmniGraph, into bare Lance and, in an environment of their own, into ladybug, duckdb
and lancedb. Each workload is put to all of them with the same inputs: their answers are compared, then they take turns
under the clock. A figure is the warm p50, the median over the inputs of each input's median.

`--only reach --engines omnigraph,ladybug --stores /tmp/stores` repeats a part quickly: stores are filled once. A store
of OmniGraph holds what its code wrote then; remove it after a change to storage or indexes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.contract import ENGINES, PEERS
from comparison.figures import measure
from comparison.peers import peers_python
from comparison.prepared import PREPARED
from comparison.report import heading, json_body, notes, table_row
from comparison.session import LocalSession, WorkerSession
from comparison.workloads import WORKLOADS as ASKED
from comparison.workloads import SocialInputs
from graphs.social import SocialGraph, ensure

if TYPE_CHECKING:
    from comparison.session import Session
    from comparison.workloads import Workload

HERE = Path(__file__).parent
WORKLOADS = (*ASKED, *PREPARED)


def main() -> None:
    options = parse_options()
    dataset = ensure(SocialGraph(persons=options.persons), options.data / f"social-{options.persons}")
    inputs = SocialInputs(dataset)
    figures = []
    with ExitStack() as stack:
        stores = options.stores or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = stores.resolve() / dataset.path.name
        sessions = []
        for name in options.engines:
            session = open_session(name, dataset.path.resolve(), stores / name, options.peers)
            sessions.append(stack.enter_context(closing(session)))
        print(heading(options.engines))
        for workload in options.only:
            figures.append(measure(workload, sessions, inputs, options.repeat))
            print(table_row(figures[-1], options.engines), flush=True)
        engines = {
            session.name: {"version": session.version, "build_s": session.build_s} | session.facts()
            for session in sessions
        }
    print("", *notes(figures, engines), sep="\n")
    if options.json:
        body = json_body(figures, engines, dataset, options.repeat)
        options.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if not all(figure.is_sound for figure in figures):
        sys.exit("an engine failed or contradicted the others")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--persons", type=int, default=100_000, help="size of the social graph")
    parser.add_argument("--repeat", type=int, default=10, help="measured sweeps over the inputs")
    parser.add_argument(
        "--only",
        type=chosen_workloads,
        default=list(WORKLOADS),
        help="workloads by name or beginning of a name, such as reach,bm25",
    )
    parser.add_argument("--engines", type=chosen_engines, default=list(ENGINES), help="such as omnigraph,ladybug")
    parser.add_argument("--data", type=Path, default=HERE / ".data", help="keeps the graphs")
    parser.add_argument("--stores", type=Path, help="keeps the filled stores; default: nobody does")
    parser.add_argument("--peers", type=Path, default=HERE / ".peers", help="their environment")
    return parser.parse_args()


def chosen_workloads(text: str) -> list[Workload]:
    """The workloads that a list of beginnings names."""
    found = [workload for workload in WORKLOADS if workload.name.startswith(tuple(text.split(",")))]
    if not found:
        known = ", ".join(workload.name for workload in WORKLOADS)
        raise argparse.ArgumentTypeError(f"no such workload; known: {known}")
    return found


def chosen_engines(text: str) -> list[str]:
    """The engines that a list names."""
    names = text.split(",")
    if unknown := sorted(set(names) - set(ENGINES)):
        raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; known: {', '.join(ENGINES)}")
    return names


def open_session(name: str, data: Path, store: Path, peers: Path) -> Session:
    """An engine with its store filled: ours and bare Lance here, a peer in its worker."""
    print(f"opening {name}", file=sys.stderr)
    if name in PEERS:
        return WorkerSession(name, data, store, python=peers_python(peers.absolute()))
    return LocalSession(name, data, store)


if __name__ == "__main__":
    main()
