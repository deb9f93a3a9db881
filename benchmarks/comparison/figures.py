"""One workload over all engines: answers compared, times taken in turns, ratios formed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from comparison.contract import OURS
from comparison.workloads import Sameness, is_same, overlap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from comparison.contract import Inputs
    from comparison.session import Session
    from comparison.workloads import Rows, SocialInputs, Target, Workload

    #: Seconds per input and sweep.
    Times = list[list[float]]

#: Engines alternate this often within one workload, so that all see the same machine.
_TURNS = 5
#: A workload without inputs gives one sample per sweep, so it sweeps more often.
_SINGLE_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the answers of the engines relate."""

    #: Engines that contradict the others.
    wrong: tuple[str, ...] = ()
    #: For an approximate ranking, the share of rows in common with the reference.
    reference: str | None = None
    overlap: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table."""

    workload: str
    title: str
    #: Warm p50 per engine: the median over the inputs of each input's median.
    p50_ms: dict[str, float]
    p95_ms: dict[str, float]
    #: The medians of the single inputs.
    by_input_ms: dict[str, list[float]]
    #: Ours against the baseline of the target; None when one of them was not measured.
    ratio: float | None
    target: Target | None
    agreement: Agreement
    #: What engines raised.
    failures: dict[str, str]

    @property
    def is_sound(self) -> bool:
        """Whether every engine answered, and no one contradicted the others."""
        return not (self.failures or self.agreement.wrong)

    @property
    def verdict(self) -> str:
        """One word about the target; empty without one."""
        if not self.is_sound:
            return "WRONG" if self.agreement.wrong else "FAILED"
        if self.target is None or self.ratio is None:
            return ""
        return "ok" if self.ratio <= self.target.factor else "MISSED"


def measure(workload: Workload, sessions: Sequence[Session], known: SocialInputs, sweeps: int) -> Figure:
    """Compare the answers of all engines that know the workload, then time them in turns."""
    inputs = known.of(workload)
    answers: dict[str, list[Rows]] = {}
    failures: dict[str, str] = {}
    able = [session for session in sessions if workload.name in session.workloads]
    for session in able:
        try:
            answers[session.name] = session.answers(workload.name, inputs)
        except Exception as error:  # noqa: BLE001 - one engine's failure is a result of the comparison
            failures[session.name] = f"{type(error).__name__}: {error}"
    able = [session for session in able if session.name in answers]
    sweeps = sweeps if workload.takes else _SINGLE_FACTOR * sweeps
    times = time_in_turns(workload.name, able, inputs, sweeps)
    medians = {name: [statistics.median(c) * 1e3 for c in times[name]] for name in times}
    p50 = {name: statistics.median(values) for name, values in medians.items()}
    return Figure(
        workload=workload.name,
        title=workload.title,
        p50_ms=p50,
        p95_ms={name: percentile(list(chain(*times[name])), 0.95) * 1e3 for name in times},
        by_input_ms=medians,
        ratio=ratio_to_target(p50, workload.target),
        target=workload.target,
        agreement=compare_answers(workload, answers, known),
        failures=failures,
    )


def time_in_turns(
    workload: str, sessions: Sequence[Session], inputs: Sequence[Inputs], sweeps: int
) -> dict[str, Times]:
    """The times of every engine."""
    times: dict[str, Times] = {session.name: [[] for _ in inputs] for session in sessions}
    turns = min(_TURNS, sweeps)
    for turn in range(turns):
        share = sweeps * (turn + 1) // turns - sweeps * turn // turns
        for session in sessions:
            measured = session.timings(workload, inputs, share)
            for column, more in zip(times[session.name], measured, strict=True):
                column.extend(more)
    return times


def compare_answers(workload: Workload, answers: Mapping[str, list[Rows]], known: SocialInputs) -> Agreement:
    """Who contradicts the others; for an approximate ranking, how much each agrees with the reference."""
    if not answers:
        return Agreement()
    if workload.sameness is not Sameness.RANKED:
        return Agreement(wrong=dissenters(workload.sameness, answers))
    exact = known.exact(workload)
    if exact is not None:
        reference, right = "exact search", exact
    else:
        reference = "lancedb" if "lancedb" in answers else next(iter(answers))
        right = answers[reference]
    shares = {name: overlap(answer, right) for name, answer in answers.items()}
    return Agreement(reference=reference, overlap=shares)


def dissenters(sameness: Sameness, answers: Mapping[str, list[Rows]]) -> tuple[str, ...]:
    """Every engine outside the largest group that agrees; no engine is the judge by its name."""
    groups: list[list[str]] = []
    for name, answer in answers.items():
        for group in groups:
            if is_same(sameness, answers[group[0]], answer):
                group.append(name)
                break
        else:
            groups.append([name])
    groups.sort(key=len, reverse=True)
    return tuple(chain(*groups[1:]))


def ratio_to_target(p50: Mapping[str, float], target: Target | None) -> float | None:
    """Ours against the fastest baseline."""
    if target is None or OURS not in p50:
        return None
    baselines = [p50[name] for name in target.baselines if name in p50]
    return p50[OURS] / min(baselines) if baselines else None


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
