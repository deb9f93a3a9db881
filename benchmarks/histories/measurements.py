"""What is measured. The systems take turns, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from histories.contract import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from histories.session import Session

#: Commits of the history that a long one is compared with.
FEW_COMMITS = 10
#: Edges that a merge or diff is about.
CHANGED = (1_000, 10_000)
#: Calls of each kind that come before the measured ones.
_WARM_UP = 3
_LOG_CALLS = 10

CREATE_BRANCH = "create a branch"
INSERT_PERSON = "commit one node"
INSERT_EDGE = "commit one edge"
FIRST_COMMIT = "first commit on a branch"
MERGE = "merge, both sides changed"
FAST_FORWARD = "merge, fast-forward"
DIFF = "diff of two branches"
LOG_WARM = "log, warm handle"
LOG_FRESH = "log, open and read"
COMMIT_AFTER = "commit one node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured, and where."""

    data: Path
    scratch: Path
    persons: int
    edges: int
    rounds: int
    merges: int
    commits: int

    @property
    def fewer_edges(self) -> int:
        """Of the graph that shows whether a cost follows the size."""
        return self.edges // 10


class Figures:
    """Seconds by operation, condition and system."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, operation: str, condition: str, system: str, seconds: float) -> None:
        """One more call."""
        self.times[operation, condition][system].append(seconds)

    def median(self, operation: str, condition: str, system: str) -> float | None:
        """Seconds of a typical call, if there was one."""
        found = self.times.get((operation, condition), {}).get(system)
        return statistics.median(found) if found else None


def in_edges(edges: int) -> str:
    """The condition of a graph of a size."""
    return f"in {edges:,} edges" if edges else "in an empty graph"


def changed_edges(changed: int, edges: int) -> str:
    """The condition of a change of a size, in a graph of a size."""
    return f"{changed:,} changed {in_edges(edges)}"


def after_commits(commits: int) -> str:
    """The condition of a history of a length."""
    return f"after {commits:,} commits"


def measure_small_writes(sessions: Sequence[Session], plan: Plan, figures: Figures) -> None:
    """Branches and commits of one row, in a large graph and in an empty one."""
    sizes = (0, plan.edges)
    for session in sessions:
        for edges in sizes:
            _open(session, f"small-{edges}", plan, edges)
    for number in range(-_WARM_UP, plan.rounds):
        for session in sessions:
            for edges in _in_turns(sizes, number):
                for operation, seconds in _small_writes(session, f"small-{edges}", number):
                    if number >= 0:
                        figures.add(operation, in_edges(edges), session.system, seconds)


def _small_writes(session: Session, store: str, number: int) -> Iterator[tuple[str, float]]:
    branch, key = f"b{number + _WARM_UP}", 900_000_000 + 2 * number
    calls: tuple[tuple[str, str, dict[str, str]], ...] = (
        (CREATE_BRANCH, "create_branch", {"name": branch}),
        (FIRST_COMMIT, "insert_person", {"key": f"p{key}", "branch": branch}),
        (INSERT_PERSON, "insert_person", {"key": f"p{key + 1}"}),
        (INSERT_EDGE, "insert_edge", {}),
    )
    for operation, method, arguments in calls:
        yield operation, session.call(store, method, **arguments)[0]


def measure_merges(sessions: Sequence[Session], plan: Plan, figures: Figures) -> None:
    """Merges and diffs by the number of changed rows, and by the number of all rows."""
    cases = [(changed, plan.edges) for changed in CHANGED] + [(min(CHANGED), plan.fewer_edges)]
    for session in sessions:
        for edges in (plan.edges, plan.fewer_edges):
            _open(session, f"merge-{edges}", plan, edges)
    numbers = count()
    for _ in range(plan.merges):
        for changed, edges in cases:
            number = next(numbers)
            for session in sessions:
                turn = _Merging(session, f"merge-{edges}", changed, number)
                condition = changed_edges(changed, edges)
                for operation, seconds in turn.run():
                    figures.add(operation, condition, session.system, seconds)


class _Merging:
    """One merge of each kind in one store. Every change takes other edges, so there is no conflict."""

    def __init__(self, session: Session, store: str, changed: int, number: int) -> None:
        self._session = session
        self._store = store
        self._changed = changed
        self._number = number

    def run(self) -> Iterator[tuple[str, float]]:
        """What is measured, with the differences checked that it leaves."""
        both, ahead = f"both-{self._number}", f"ahead-{self._number}"
        self._call("create_branch", name=both)
        self._change(both, 3 * self._number)
        self._change(MAIN, 3 * self._number + 1)
        seconds, found = self._call("diff", old=MAIN, new=both)
        self._check(found, 2 * self._changed)
        yield DIFF, seconds
        yield MERGE, self._call("merge", source=both)[0]
        self._check(self._call("diff", old=both, new=MAIN)[1], self._changed)
        self._call("create_branch", name=ahead)
        self._change(ahead, 3 * self._number + 2)
        yield FAST_FORWARD, self._call("merge", source=ahead)[0]
        self._check(self._call("diff", old=ahead, new=MAIN)[1], 0)

    def _change(self, branch: str, number: int) -> None:
        weight = float(number + 1)
        arguments = {"count": self._changed, "offset": number, "weight": weight}
        self._call("change_edges", branch=branch, **arguments)

    def _check(self, found: int, expected: int) -> None:
        if found != expected:
            sys.exit(f"{self._session.system}: a diff has {found:,} rows, not {expected:,}")

    def _call(self, method: str, **arguments: object) -> tuple[float, int]:
        return self._session.call(self._store, method, **arguments)


def measure_log(sessions: Sequence[Session], plan: Plan, figures: Figures) -> None:
    """A long history: what it costs to read, and what it costs those who only add to it."""
    lengths = (FEW_COMMITS, plan.commits)
    for session in sessions:
        for commits in lengths:
            store = f"log-{commits}"
            _open(session, store, plan, 0)
            for number in range(commits - 1):
                session.call(store, "change_person", score=float(number))
    for _ in range(_LOG_CALLS):
        for session in sessions:
            _read_log(session, f"log-{plan.commits}", plan, figures)
    for number in range(-_WARM_UP, plan.rounds):
        for session in sessions:
            for commits in _in_turns(lengths, number):
                key = f"p{900_000_000 + number}"
                seconds, _ = session.call(f"log-{commits}", "insert_person", key=key)
                if number >= 0:
                    figures.add(COMMIT_AFTER, after_commits(commits), session.system, seconds)


def _read_log(session: Session, store: str, plan: Plan, figures: Figures) -> None:
    opening, _ = session.call(store, "reopen")
    reading, found = session.call(store, "log")
    if found < plan.commits:
        sys.exit(f"{session.system}: the log has {found:,} commits, not {plan.commits:,}")
    again, _ = session.call(store, "log")
    figures.add(LOG_FRESH, after_commits(plan.commits), session.system, opening + reading)
    figures.add(LOG_WARM, after_commits(plan.commits), session.system, again)


def _in_turns(conditions: tuple[int, int], number: int) -> tuple[int, ...]:
    """Each of them first in every second round: who comes first finds caches of the machine filled by others."""
    return conditions[::-1] if number % 2 else conditions


def _open(session: Session, store: str, plan: Plan, edges: int) -> None:
    session.open(store, str(plan.scratch), str(plan.data), plan.persons, edges)
