"""Settings of the query engine, from the environment."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.environ import available_memory, whole_number

#: What a read may take on the smallest machine.
_LEAST_MEMORY = 64 * 1024 * 1024
_log = logging.getLogger(__name__)


class TraversalMode(StrEnum):
    """Which path a traversal takes: the cheapest one, or always the same one."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"
    SCAN = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What can be configured about the execution of reads."""

    traversal_mode: TraversalMode = TraversalMode.AUTO
    #: Largest frontier and number of hops that are probed through indexes.
    indexed_max_frontier: int = 1024
    indexed_max_hops: int = 6
    #: Bytes of property columns that are kept in memory between queries.
    column_cache_bytes: int = 256 * 1024 * 1024
    #: Bytes that the intermediate results of one read may take.
    query_memory_bytes: int = 2 * 1024**3
    #: Traversal indexes that are kept in memory between queries.
    adjacency_entries: int = 8

    @staticmethod
    def from_environment() -> EngineSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default."""
        defaults = EngineSettings()
        return EngineSettings(
            traversal_mode=_mode("OMNIGRAPH_TRAVERSAL_MODE", defaults.traversal_mode),
            indexed_max_frontier=whole_number(
                "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", defaults.indexed_max_frontier
            ),
            indexed_max_hops=whole_number(
                "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", defaults.indexed_max_hops
            ),
            column_cache_bytes=whole_number(
                "OMNIGRAPH_COLUMN_CACHE_BYTES", defaults.column_cache_bytes
            ),
            query_memory_bytes=whole_number(
                "OMNIGRAPH_QUERY_MEMORY_BYTES",
                max(min(defaults.query_memory_bytes, available_memory() // 4), _LEAST_MEMORY),
                lowest=1,
            ),
        )


def _mode(name: str, default: TraversalMode) -> TraversalMode:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return TraversalMode(text.strip().lower())
    except ValueError:
        known = ", ".join(mode.value for mode in TraversalMode)
        _log.warning("%s=%s is not one of %s; using %s", name, text, known, default)
        return default
