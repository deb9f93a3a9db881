"""Settings of execution, and the choice of a path for a traversal from numbers. Pure."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from omnigraph.core.env_settings import Variable, WholeNumber, available_memory
from omnigraph.frozen import frozen

# ---- Settings of the query engine, from the environment


#: What a read may take on the smallest machine.
_LEAST_MEMORY = 64 * 1024 * 1024
_log = logging.getLogger(__name__)


class TraversalMode(StrEnum):
    """The path of a traversal: the cheapest one, or always the same one."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"
    SCAN = "scan"


_MODE = Variable(
    "OMNIGRAPH_TRAVERSAL_MODE",
    "The path that every traversal takes; `auto` chooses the cheapest one.",
    default="`auto`",
    values="`auto`, `indexed`, `csr`, `scan`",
)
_MAX_FRONTIER = WholeNumber(
    "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER",
    1024,
    "The largest number of nodes that a traversal looks up through indexes at once.",
)
_MAX_HOPS = WholeNumber(
    "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", 6, "The largest number of hops that a traversal looks up through indexes."
)
_COLUMN_CACHE = WholeNumber(
    "OMNIGRAPH_COLUMN_CACHE_BYTES", 256 * 1024 * 1024, "Property columns that are kept in memory between queries."
)
_QUERY_MEMORY = WholeNumber(
    "OMNIGRAPH_QUERY_MEMORY_BYTES",
    2 * 1024**3,
    "Memory that the intermediate results of one read may take.",
    lowest=1,
    shown="2 GiB, at most a quarter of the memory",
)

_PLAN_ORDER = Variable(
    "OMNIGRAPH_PLAN_ORDER",
    "The order in which the parts of a read run: the cheapest one, as they stand in the text, or any one by a number. "
    "For comparisons and tests.",
    default="`cost`",
    values="`cost`, `text`, `random:7`",
)

_PATH_LIMIT = WholeNumber(
    "OMNIGRAPH_PATH_LIMIT", 1_000_000, "Paths that `path $w = all …` may find in one read.", lowest=1
)
_EXACT_VALUES = WholeNumber(
    "OMNIGRAPH_EXACT_VECTOR_VALUES",
    8_000_000,
    "Numbers of vectors, rows times dimensions, that `nearest` compares one by one instead of asking an index.",
)
_RECALL = Variable(
    "OMNIGRAPH_VECTOR_RECALL",
    "The share of the nearest vectors that `nearest` finds on average through an index; `1` compares all vectors. "
    "Single properties may have their own.",
    default="`0.95`",
    values="above 0 to 1, as in `0.95` or `0.95, Note.embedding=0.99`",
)
_DEFAULT_RECALL = 0.95


class PlanOrder(StrEnum):
    """Who decides the order of operators."""

    COST = "cost"
    #: As the clauses stand in the text: for comparisons.
    TEXT = "text"
    #: Any order that is right: for tests.
    RANDOM = "random"


@frozen(kw_only=True)
class PlanSettings:
    """Settings of the planner."""

    order: PlanOrder = PlanOrder.COST
    #: Which random order.
    seed: int = 0


BY_COST = PlanSettings()


@frozen(kw_only=True)
class EngineSettings:
    """Settings of the execution of reads."""

    traversal_mode: TraversalMode = TraversalMode.AUTO
    indexed_max_frontier: int = _MAX_FRONTIER.default
    indexed_max_hops: int = _MAX_HOPS.default
    column_cache_bytes: int = _COLUMN_CACHE.default
    query_memory_bytes: int = _QUERY_MEMORY.default
    path_limit: int = _PATH_LIMIT.default
    plan: PlanSettings = BY_COST
    exact_vector_values: int = _EXACT_VALUES.default
    vector_recall: float = _DEFAULT_RECALL
    #: The recall of single properties, by `Type.property`.
    property_recalls: Mapping[str, float] = field(default_factory=dict)
    #: Traversal indexes that are kept in memory between queries.
    adjacency_entries: int = 8

    def recall_of(self, node_type: str, name: str) -> float:
        """The wanted recall of a vector property."""
        return self.property_recalls.get(f"{node_type}.{name}", self.vector_recall)

    @staticmethod
    def from_environment() -> EngineSettings:
        """The settings of the `OMNIGRAPH_*` variables; what cannot be read falls back to its default."""
        recalls = _recalls()
        return EngineSettings(
            traversal_mode=_traversal_mode(),
            indexed_max_frontier=_MAX_FRONTIER.read(),
            indexed_max_hops=_MAX_HOPS.read(),
            column_cache_bytes=_COLUMN_CACHE.read(),
            path_limit=_PATH_LIMIT.read(),
            plan=_plan_settings(),
            exact_vector_values=_EXACT_VALUES.read(),
            vector_recall=recalls.pop("", _DEFAULT_RECALL),
            property_recalls=recalls,
            query_memory_bytes=_QUERY_MEMORY.read(
                max(min(_QUERY_MEMORY.default, available_memory() // 4), _LEAST_MEMORY)
            ),
        )


def _traversal_mode() -> TraversalMode:
    text = os.environ.get(_MODE)
    if text is None:
        return TraversalMode.AUTO
    try:
        return TraversalMode(text.strip().lower())
    except ValueError:
        known = ", ".join(mode.value for mode in TraversalMode)
        _log.warning("%s=%s is not one of %s; using %s", _MODE, text, known, TraversalMode.AUTO)
        return TraversalMode.AUTO


def _plan_settings() -> PlanSettings:
    text = _PLAN_ORDER.text(PlanOrder.COST.value).lower()
    name, _, seed = text.partition(":")
    try:
        order = PlanOrder(name)
        if bool(seed) and order is not PlanOrder.RANDOM:
            raise ValueError("only a random order has a number")
        return PlanSettings(order=order, seed=int(seed or 0))
    except ValueError:
        _log.warning("%s=%s is not `cost`, `text` or `random:NUMBER`; using %s", _PLAN_ORDER, text, PlanOrder.COST)
        return BY_COST


def _recalls() -> dict[str, float]:
    """The wanted recalls by `Type.property`; that of all others has no name."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in _RECALL.text().split(","))):
        name, _, number = part.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if 0 < share <= 1:
            found[name.strip()] = share
        else:
            _log.warning("%s: %s is not a recall above 0 and up to 1; it is left out", _RECALL, part)
    return found


# ---- The choice of a traversal path


#: Building the traversal index costs as much as following so many edges per edge.
ADJACENCY_COST_FACTOR = 1.5


#: Hops that an estimate looks at; further ones add little or have reached everything.
_ESTIMATED_HOPS = 32


class TraversalPath(StrEnum):
    """The three paths; all return the same rows."""

    INDEXED = "indexed"
    ADJACENCY = "adjacency"
    EDGE_SCAN = "edge scan"


@frozen(kw_only=True)
class TraversalFacts:
    """The facts that the choice depends on."""

    #: Distinct nodes to start from.
    frontier: int
    hops: int
    edges: int
    #: Nodes of the type that the traversal starts from.
    sources: int
    #: Whether the column that is probed has an index that covers every edge.
    is_indexed: bool
    #: Whether the traversal index is in memory or on disk already.
    is_ready: bool
    #: Edges that were followed on this state of the table without the traversal index.
    debt: float


def followed_edges(facts: TraversalFacts) -> float:
    """Estimate of the edges that a breadth-first walk follows: the mean degree, hop by hop, at most all of them."""
    degree = facts.edges / max(facts.sources, 1)
    nodes, followed = float(facts.frontier), 0.0
    for _ in range(min(facts.hops, _ESTIMATED_HOPS)):
        step = nodes * degree
        followed += step
        if followed >= facts.edges * facts.frontier or step == 0:
            break
        nodes = min(step, float(facts.sources) * facts.frontier)
    return min(followed, float(facts.edges) * max(facts.frontier, 1))


def choose_path(facts: TraversalFacts, settings: EngineSettings) -> TraversalPath:
    """The cheapest path.

    A traversal index that exists is always taken. Otherwise small walks probe the table, as long as all of them
    together have cost less than building the index would.
    """
    match settings.traversal_mode:
        case TraversalMode.INDEXED:
            return TraversalPath.INDEXED
        case TraversalMode.CSR:
            return TraversalPath.ADJACENCY
        case TraversalMode.SCAN:
            return TraversalPath.EDGE_SCAN
        case TraversalMode.AUTO:
            pass
    if facts.is_ready:
        return TraversalPath.ADJACENCY
    budget = facts.edges * ADJACENCY_COST_FACTOR - facts.debt
    if (
        facts.is_indexed
        and facts.frontier <= settings.indexed_max_frontier
        and facts.hops <= settings.indexed_max_hops
        and followed_edges(facts) <= budget
    ):
        return TraversalPath.INDEXED
    if facts.hops == 1 and facts.debt == 0 and facts.frontier <= settings.indexed_max_frontier:
        return TraversalPath.EDGE_SCAN
    return TraversalPath.ADJACENCY
