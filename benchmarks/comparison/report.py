"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING

from comparison.contract import ADJACENCY_BYTES, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from comparison.figures import Figure
    from graphs.folder import Dataset

    #: Version, time to build and further figures, per engine.
    EngineFacts = Mapping[str, Mapping[str, object]]

#: The memory of the adjacency index may be at most this, per edge and direction.
_ADJACENCY_TARGET_BYTES = 12.0


def heading(engines: Sequence[str]) -> str:
    columns = "".join(f"{name:>11}" for name in engines)
    return f"{'warm p50, ms':<54}{columns}{'ratio':>8}  target"


def table_row(figure: Figure, engines: Sequence[str]) -> str:
    columns = "".join(f"{_cell(figure, name):>11}" for name in engines)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    target = ""
    if figure.target is not None:
        among = figure.target.baselines
        baseline = among[0] if len(among) == 1 else "best peer"
        target = f"≤ {figure.target.factor} × {baseline}"
    row = f"{figure.workload:<21} {figure.title:<32}{columns}{ratio:>8}  {target:<17} {figure.verdict}"
    return row.rstrip()


def notes(figures: Sequence[Figure], engines: EngineFacts) -> Iterator[str]:
    """What the table does not show: agreement, failures, time to load, memory."""
    for figure in figures:
        agreement = figure.agreement
        if agreement.overlap:
            shares = ", ".join(f"{name} {share:.2f}" for name, share in agreement.overlap.items())
            yield f"{figure.workload}: rows in common with {agreement.reference}: {shares}"
        for name in agreement.wrong:
            yield f"{figure.workload}: {name} contradicts the others"
        for name, failure in figure.failures.items():
            yield f"{figure.workload}: {name} failed: {failure}"
    for name, facts in engines.items():
        if facts["build_s"] is not None:
            yield f"{name} {facts['version']}: loaded and indexed in {facts['build_s']:.1f} s"
    used = engines.get(OURS, {}).get(ADJACENCY_BYTES)
    if used is not None:
        verdict = "ok" if used <= _ADJACENCY_TARGET_BYTES else "MISSED"
        target = f"target ≤ {_ADJACENCY_TARGET_BYTES:.0f}"
        yield f"adjacency index: {used:.1f} bytes per edge and direction, {target}: {verdict}"


def json_body(figures: Sequence[Figure], engines: EngineFacts, dataset: Dataset, sweeps: int) -> dict[str, object]:
    """Everything that was measured."""
    return {
        "machine": machine(),
        "dataset": {"stamp": dataset.stamp, "nodes": dataset.nodes, "edges": dataset.edges},
        "sweeps": sweeps,
        "engines": engines,
        "figures": [asdict(figure) | {"verdict": figure.verdict} for figure in figures],
    }


def machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "load_average": os.getloadavg(),
    }


def _cell(figure: Figure, engine: str) -> str:
    if engine in figure.failures:
        return "failed"
    return f"{figure.p50_ms[engine]:.3f}" if engine in figure.p50_ms else "–"
