"""The questions that begin at one person, asked through prepared reads.

OmniGraph answers them by `graph.prepare(text)`, which parses and plans once. What Ladybug does is the same as without:
its plans of texts that it has met before are faster than its prepared statements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from comparison.workloads import WORKLOADS, Target, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from comparison.contract import Call

_PREFIX = "prepared-"
_POINT = Target(factor=2.0, baselines=("ladybug",))
_NEAR = Target(factor=1.0, baselines=("ladybug",))


def _prepared(workload: Workload) -> Workload:
    target = _POINT if workload.name == "point" else _NEAR
    return replace(workload, name=f"{_PREFIX}{workload.name}", target=target)


PREPARED = tuple(_prepared(workload) for workload in WORKLOADS if workload.takes == ("pid",))
#: The names of the same questions without the prefix.
ASKED = tuple(workload.name.removeprefix(_PREFIX) for workload in PREPARED)


def with_prepared(calls: Mapping[str, Call], prepared: Mapping[str, Call]) -> dict[str, Call]:
    """All calls of an engine, with those of prepared reads under names of their own."""
    return {**calls, **{f"{_PREFIX}{name}": prepared[name] for name in ASKED if name in prepared}}
