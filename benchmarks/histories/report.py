"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from histories.contract import OURS, PEER
from histories.measurements import (
    CHANGED,
    COMMIT_AFTER,
    CREATE_BRANCH,
    DIFF,
    FAST_FORWARD,
    FEW_COMMITS,
    FIRST_COMMIT,
    INSERT_EDGE,
    INSERT_PERSON,
    MERGE,
    after_commits,
    changed_edges,
    in_edges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from histories.measurements import Figures, Plan

#: A cost that does not follow the size of the graph, or the length of its history.
_STEADY = 1.3
#: Width of the columns with figures.
_CELL = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One operation under two conditions, and how many times the second it may cost under the first."""

    operation: str
    above: str
    below: str
    target: float

    def of(self, figures: Figures, system: str) -> float | None:
        """For one system, if both were measured."""
        above = figures.median(self.operation, self.above, system)
        below = figures.median(self.operation, self.below, system)
        return None if above is None or below is None else above / below


def ratios(plan: Plan) -> Iterator[Ratio]:
    """What must not grow, and what may grow with the change only."""
    for operation in (CREATE_BRANCH, FIRST_COMMIT, INSERT_PERSON, INSERT_EDGE):
        above, below = in_edges(plan.edges), in_edges(0)
        yield Ratio(operation=operation, above=above, below=below, target=_STEADY)
    few, many = CHANGED
    for operation in (MERGE, FAST_FORWARD, DIFF):
        small = changed_edges(few, plan.edges)
        large = changed_edges(many, plan.edges)
        # At most in proportion to the change.
        yield Ratio(operation=operation, above=large, below=small, target=many / few)
        other = changed_edges(few, plan.fewer_edges)
        yield Ratio(operation=operation, above=small, below=other, target=_STEADY)
    above, below = after_commits(plan.commits), after_commits(FEW_COMMITS)
    yield Ratio(operation=COMMIT_AFTER, above=above, below=below, target=_STEADY)


def medians(figures: Figures) -> Iterator[str]:
    """One line per operation and condition."""
    yield from _table(
        f"median, ms|{OURS}|{PEER}|ratio",
        (
            (f"{operation}, {condition}", *_cells(figures, operation, condition))
            for operation, condition in figures.times
        ),
    )


def _cells(figures: Figures, operation: str, condition: str) -> tuple[str, str, str]:
    ours, peer = (figures.median(operation, condition, system) for system in (OURS, PEER))
    return (_number(ours and ours * 1e3), _number(peer and peer * 1e3), _number(ours / peer) if ours and peer else "")


def comparisons(figures: Figures, plan: Plan) -> Iterator[str]:
    """One line per ratio, with the verdict about ours."""
    lines = []
    for ratio in ratios(plan):
        ours, peer = (ratio.of(figures, system) for system in (OURS, PEER))
        if ours is None:
            continue
        name = f"{ratio.operation}: {ratio.above} / {ratio.below}"
        target = f"≤ {ratio.target:g} {'ok' if ours <= ratio.target else 'MISSED'}"
        lines.append((name, _number(ours), _number(peer), target))
    yield from _table(f"ratio within a system|{OURS}|{PEER}|target", lines)


def _table(heading: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The first column as wide as it must be, the others alike."""
    lines = [tuple(heading.split("|")), *rows]
    width = max(len(name) for name, *_ in lines)
    for name, *cells in lines:
        yield (f"{name:<{width}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)).rstrip()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def json_body(figures: Figures, plan: Plan, systems: dict[str, str]) -> dict[str, object]:
    """Everything that was measured."""
    measured = [
        {"operation": operation, "condition": condition, "seconds": dict(by_system)}
        for (operation, condition), by_system in figures.times.items()
    ]
    compared = [
        {
            "operation": ratio.operation,
            "above": ratio.above,
            "below": ratio.below,
            "target": ratio.target,
            "ratio": {system: ratio.of(figures, system) for system in systems},
        }
        for ratio in ratios(plan)
    ]
    return {"systems": systems, "figures": measured, "ratios": compared}
