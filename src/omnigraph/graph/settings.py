"""Settings of an open graph, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omnigraph.environ import whole_number

#: How often insert-only work that lost a race is prepared again before the conflict surfaces.
REPREPARATION_BUDGET = 32
#: Lost races after which it is prepared inside the commit window, so that it cannot lose again.
OPTIMISTIC_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """What can be configured about a graph in use."""

    #: Flush every commit to disk before it is acknowledged.
    durable: bool = True
    lock_timeout_s: float = 60.0
    mutation_max_bytes: int = 256 * 1024 * 1024
    #: Make one fragment of many small ones right after the write that notices them.
    folds: bool = True
    #: Small fragments beyond this many are folded.
    fold_fragments: int = 64

    @staticmethod
    def from_environment() -> GraphSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default."""
        defaults = GraphSettings()
        timeout_ms = whole_number("OMNIGRAPH_LOCK_TIMEOUT_MS", int(defaults.lock_timeout_s * 1000))
        return GraphSettings(
            durable=os.environ.get("OMNIGRAPH_DURABILITY", "full") != "process",
            lock_timeout_s=timeout_ms / 1000,
            mutation_max_bytes=whole_number(
                "OMNIGRAPH_MUTATION_MAX_BYTES", defaults.mutation_max_bytes
            ),
            folds=os.environ.get("OMNIGRAPH_FOLD", "on") != "off",
            fold_fragments=whole_number(
                "OMNIGRAPH_FOLD_FRAGMENTS", defaults.fold_fragments, lowest=1
            ),
        )
