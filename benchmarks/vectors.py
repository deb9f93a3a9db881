"""What the nearest vectors cost, and how many of them are found: beside LanceDB at the same recall.

Three shapes of vectors, without a filter and with filters that let 10, 1 and 0.1 % of the rows through. OmniGraph runs
with its settings as they come; of LanceDB the least effort is taken that finds 95 % of the ten nearest. `--rows 500000`
asks more of both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from comparison.contract import TOP
from comparison.peers import peers_python
from comparison.report import machine
from comparison.session import LocalSession, WorkerSession
from neighbours.points import PARTS, SHAPES, Points, Truth, ensure

if TYPE_CHECKING:
    from comparison.contract import Inputs
    from comparison.session import Session
    from graphs.folder import Dataset

HERE = Path(__file__).parent
OURS = "omnigraph/points"
#: The peers, and the efforts that are tried, least first.
PEERS = {
    "lancedb/hnsw": (50, 75, 100, 150, 200, 300, 400, 600, 800, 1200),
    "lancedb/ivf": (1, 2, 4, 8, 16, 24, 36, 54, 80, 120, 180, 270, 400, 600, 800),
}
WANTED = 0.95
#: The parts that a filter lets through, of a thousand.
FILTERS = {"all": PARTS, "10 %": PARTS // 10, "1 %": PARTS // 100, "0.1 %": PARTS // 1000}
#: Rows that a load in this process may have, in bytes.
_LOAD_LIMIT = "OMNIGRAPH_LOCAL_LOAD_MAX_BYTES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One system at one question."""

    system: str
    shape: str
    filter: str
    #: What it was asked to do; None where it decides itself.
    effort: int | None
    recall: float
    #: The recall of the worst query.
    worst: float
    p50_ms: float

    @property
    def is_enough(self) -> bool:
        """Whether it finds as much as is wanted."""
        return self.recall >= WANTED


def main() -> None:
    options = parse_options()
    os.environ.setdefault(_LOAD_LIMIT, str(1 << 40))
    figures: list[Measured] = []
    print(f"{'vectors':<10}{'filter':<8}{'system':<15}{'effort':>7}{'recall':>8}{'worst':>7}{'p50 ms':>9}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        stores = (options.stores or Path(scratch)).resolve()
        for shape in options.shapes:
            points = Points(shape=shape, rows=options.rows, dimension=options.dimension)
            dataset = ensure(points, options.data / f"neighbours-{shape}-{points.rows}x{points.dimension}")
            figures += measure_shape(points, dataset, stores / dataset.path.name, options)
    missed = [item for item in figures if item.system == OURS and not item.is_enough]
    for item in missed:
        print(f"MISSED: {item.shape}, {item.filter}: recall {item.recall:.3f}, {WANTED} are wanted")
    if options.json:
        body = {"machine": machine(), "rows": options.rows, "figures": [asdict(item) for item in figures]}
        options.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if missed:
        sys.exit("OmniGraph finds too few")


def measure_shape(points: Points, dataset: Dataset, stores: Path, options: argparse.Namespace) -> list[Measured]:
    """All systems at all filters."""
    found: list[Measured] = []
    truth = Truth.of(dataset)
    queries = points.vectors(options.queries, points.seed + 3)
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        for name in (OURS, *options.systems):
            session = open_session(name, dataset.path.resolve(), stores / name.replace("/", "-"), options.peers)
            sessions[name] = stack.enter_context(closing(session))
            if session.build_s is not None:
                print(f"{points.shape}: {name} {session.version}: loaded and indexed in {session.build_s:.1f} s")
        for label, below in FILTERS.items():
            expected = [truth.nearest(query, below, min(TOP, points.rows * below // PARTS)) for query in queries]
            inputs = [{"vector": query.tolist(), "below": below} for query in queries]
            chosen = {name: choose(session, name, inputs, expected) for name, session in sessions.items()}
            times = timed(
                sessions, {name: with_effort(inputs, item[0]) for name, item in chosen.items()}, options.sweeps
            )
            rows = [
                Measured(
                    system=name,
                    shape=points.shape,
                    filter=label,
                    effort=effort,
                    recall=sum(shares) / len(shares),
                    worst=min(shares),
                    p50_ms=times[name],
                )
                for name, (effort, shares) in chosen.items()
            ]
            show(rows)
            found += rows
        print(f"{points.shape}: {sessions[OURS].facts()}")
    return found


def choose(
    session: Session, name: str, inputs: list[Inputs], expected: list[set[int]]
) -> tuple[int | None, list[float]]:
    """The least effort that finds as much as is wanted, or the largest, with what it finds."""
    efforts: tuple[int | None, ...] = PEERS.get(name, (None,))
    shares: list[float] = []
    for effort in efforts:
        answers = session.answers("nearest", with_effort(inputs, effort))
        shares = [
            len({row[0] for row in rows} & wanted) / len(wanted) for rows, wanted in zip(answers, expected, strict=True)
        ]
        if sum(shares) / len(shares) >= WANTED:
            break
    return effort, shares


def with_effort(inputs: list[Inputs], effort: int | None) -> list[Inputs]:
    return inputs if effort is None else [{**item, "effort": effort} for item in inputs]


def timed(sessions: dict[str, Session], inputs: dict[str, list[Inputs]], sweeps: int) -> dict[str, float]:
    """The warm p50 in milliseconds; the systems take turns."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(sweeps):
        for name, session in sessions.items():
            columns = session.timings("nearest", inputs[name], 1)
            times[name] += [seconds for column in columns for seconds in column]
    return {name: median(values) * 1000 for name, values in times.items()}


def show(rows: list[Measured]) -> None:
    """The systems, ours with its ratio to the best peer that finds as much as is wanted."""
    peers = [item.p50_ms for item in rows if item.system != OURS and item.is_enough]
    for item in rows:
        ratio = f"{item.p50_ms / min(peers):.2f}" if item.system == OURS and peers else ""
        effort = "" if item.effort is None else str(item.effort)
        figures = f"{item.recall:>8.3f}{item.worst:>7.1f}{item.p50_ms:>9.2f}{ratio:>7}"
        print(f"{item.shape:<10}{item.filter:<8}{item.system:<15}{effort:>7}{figures}".rstrip(), flush=True)


def open_session(name: str, data: Path, store: Path, peers: Path) -> Session:
    """A system with its store filled: ours here, a peer in its worker."""
    print(f"opening {name}", file=sys.stderr)
    if name in PEERS:
        return WorkerSession(name, data, store, python=peers_python(peers.absolute()))
    return LocalSession(name, data, store)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rows", type=int, default=Points(shape="").rows, help="vectors of each shape")
    parser.add_argument("--dimension", type=int, default=Points(shape="").dimension, help="numbers of each vector")
    parser.add_argument("--queries", type=int, default=50, help="vectors that are searched for")
    parser.add_argument("--sweeps", type=int, default=5, help="how often each is searched for while time is measured")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--systems", nargs="*", choices=tuple(PEERS), default=tuple(PEERS), help="the peers")
    parser.add_argument("--data", type=Path, default=HERE / ".data", help="keeps the vectors")
    parser.add_argument("--stores", type=Path, help="keeps the filled stores; default: removed at the end")
    parser.add_argument("--peers", type=Path, default=HERE / ".peers", help="their environment")
    return parser.parse_args()


if __name__ == "__main__":
    main()
