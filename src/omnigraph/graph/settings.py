"""Settings of an open graph, from the environment."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass

from omnigraph.environ import whole_number
from omnigraph.errors import BadRequestError
from omnigraph.recovery.lease import LEASE_S, LEASE_VARIABLE, LONGEST_LEASE_S, SHORTEST_LEASE_S
from omnigraph.storage.external_policy import DENY_ALL, ExternalPolicy, policy_of

_log = logging.getLogger(__name__)
#: A JSON list of the bases below which external blobs may lie.
EXTERNAL_BLOB_BASES = "OMNIGRAPH_EXTERNAL_BLOB_BASES"
#: Bytes of input up to which a load may run in this process.
LOCAL_LOAD_MAX_BYTES = "OMNIGRAPH_LOCAL_LOAD_MAX_BYTES"
_DEFAULT_LOCAL_MAX_BYTES = 64 * 1024 * 1024
_MILLISECONDS = re.compile(r"[0-9]{1,9}")
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
    #: How long the commit lock of an object store stays with a writer that is dead or stands still.
    lease_s: float = LEASE_S
    mutation_max_bytes: int = 256 * 1024 * 1024
    #: Make one fragment of many small ones right after the write that notices them.
    folds: bool = True
    #: Small fragments beyond this many are folded.
    fold_fragments: int = 64
    #: Which external blobs its writers may refer to or copy; none by default, and never stored in the graph.
    external_blobs: ExternalPolicy = DENY_ALL

    @staticmethod
    def from_environment() -> GraphSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default.

        Raises:
            BadRequestError: the length of a lease is not usable. Other writers wait for it, so it is not guessed.
        """
        defaults = GraphSettings()
        timeout_ms = whole_number("OMNIGRAPH_LOCK_TIMEOUT_MS", int(defaults.lock_timeout_s * 1000))
        return GraphSettings(
            durable=os.environ.get("OMNIGRAPH_DURABILITY", "full") != "process",
            lock_timeout_s=timeout_ms / 1000,
            lease_s=_lease_s(),
            mutation_max_bytes=whole_number(
                "OMNIGRAPH_MUTATION_MAX_BYTES", defaults.mutation_max_bytes
            ),
            folds=os.environ.get("OMNIGRAPH_FOLD", "on") != "off",
            fold_fragments=whole_number(
                "OMNIGRAPH_FOLD_FRAGMENTS", defaults.fold_fragments, lowest=1
            ),
            external_blobs=_external_policy(),
        )


def local_load_max_bytes() -> int:
    """How large the input of a load may be that runs in this process."""
    return whole_number(LOCAL_LOAD_MAX_BYTES, _DEFAULT_LOCAL_MAX_BYTES)


def _lease_s() -> float:
    text = os.environ.get(LEASE_VARIABLE)
    if text is None:
        return LEASE_S
    lowest_ms, highest_ms = int(SHORTEST_LEASE_S * 1000), int(LONGEST_LEASE_S * 1000)
    if not _MILLISECONDS.fullmatch(text.strip()) or not lowest_ms <= int(text) <= highest_ms:
        raise BadRequestError(
            f"{LEASE_VARIABLE}={text[:40]} is not usable: give a whole number of milliseconds from {lowest_ms} to "
            f"{highest_ms}, or unset it for {LEASE_S * 1000:.0f}"
        )
    return int(text) / 1000


def _external_policy() -> ExternalPolicy:
    """The bases of the environment; nothing is allowed when they cannot be read."""
    text = os.environ.get(EXTERNAL_BLOB_BASES)
    if text is None:
        return DENY_ALL
    try:
        bases = json.loads(text)
        if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
            raise ValueError("it is no list of texts")
        return policy_of(bases)
    except (ValueError, RecursionError, BadRequestError) as problem:
        # The text is not repeated: it may hold credentials.
        _log.warning("%s allows nothing: %s", EXTERNAL_BLOB_BASES, problem)
        return DENY_ALL
