"""The rule that chooses how edges are followed, branch by branch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.path_choice import (
    ADJACENCY_COST_FACTOR,
    EngineSettings,
    TraversalFacts,
    TraversalMode,
    TraversalPath,
    choose_path,
    followed_edges,
)
from support.subtests import each_case

INDEXED, ADJACENCY, SCAN = (
    TraversalPath.INDEXED,
    TraversalPath.ADJACENCY,
    TraversalPath.EDGE_SCAN,
)
SETTINGS = EngineSettings()

#: One node asked about one hop in a table of 10,000 edges, ten per node, everything indexed, nothing built.
SMALL = TraversalFacts(
    frontier=1, hops=1, edges=10_000, sources=1_000, is_indexed=True, is_ready=False, debt=0.0
)


@each_case(
    ("changes", "expected"),
    [
        # An index that exists is always taken, however small or large the walk is.
        ({"is_ready": True}, ADJACENCY),
        ({"is_ready": True, "is_indexed": False}, ADJACENCY),
        ({"is_ready": True, "frontier": 1_000, "hops": 9, "debt": 1e9}, ADJACENCY),
        # A small walk probes.
        ({}, INDEXED),
        ({"hops": 2}, INDEXED),
        ({"frontier": 1_000}, INDEXED),
        # The largest frontier and number of hops that are probed, and one more.
        ({"frontier": 1_024, "sources": 10**9}, INDEXED),
        ({"frontier": 1_025, "sources": 10**9}, ADJACENCY),
        ({"hops": 6, "sources": 10**9}, INDEXED),
        ({"hops": 7, "sources": 10**9}, ADJACENCY),
        # A walk may follow as many edges as building has left, and no more: 15,000 = 1.5 × 15,000 - 7,500.
        ({"frontier": 1_000, "edges": 15_000, "debt": 7_500.0}, INDEXED),
        ({"frontier": 1_000, "edges": 15_000, "debt": 7_501.0}, ADJACENCY),
        ({"frontier": 2, "hops": 3}, INDEXED),
        ({"frontier": 100, "hops": 3}, ADJACENCY),
        # Debt uses the budget up, until even one probe is too much.
        ({"debt": 14_990.0}, INDEXED),
        ({"debt": 14_991.0}, ADJACENCY),
        ({"debt": 1e9}, ADJACENCY),
        # Too dear to probe, but only one hop and the first question: one scan is cheaper than building.
        ({"edges": 10**6, "sources": 1, "frontier": 2}, SCAN),
        ({"edges": 10**6, "sources": 1, "frontier": 2, "hops": 2}, ADJACENCY),
        ({"edges": 10**6, "sources": 1, "frontier": 2, "debt": 1.0}, ADJACENCY),
        # Without an index on the column, one hop from few nodes is a scan, once.
        ({"is_indexed": False}, SCAN),
        ({"is_indexed": False, "frontier": 1_024}, SCAN),
        ({"is_indexed": False, "frontier": 1_025}, ADJACENCY),
        ({"is_indexed": False, "hops": 2}, ADJACENCY),
        ({"is_indexed": False, "debt": 0.5}, ADJACENCY),
        # Tables without edges or nodes.
        ({"edges": 0}, INDEXED),
        ({"edges": 0, "sources": 0}, INDEXED),
        ({"edges": 0, "is_indexed": False}, SCAN),
        ({"frontier": 0}, INDEXED),
    ],
)
def test_the_cheapest_path_is_chosen(changes: dict, expected: TraversalPath) -> None:
    assert choose_path(replace(SMALL, **changes), SETTINGS) is expected


@each_case(
    ("mode", "expected"),
    [
        (TraversalMode.INDEXED, INDEXED),
        (TraversalMode.CSR, ADJACENCY),
        (TraversalMode.SCAN, SCAN),
    ],
)
@each_case("is_ready", [False, True])
@each_case("is_indexed", [False, True])
@each_case("frontier", [1, 10**6])
@each_case("debt", [0.0, 1e12])
def test_a_forced_mode_wins_over_every_fact(
    mode, expected, is_ready, is_indexed, frontier, debt
) -> None:
    facts = replace(
        SMALL, is_ready=is_ready, is_indexed=is_indexed, frontier=frontier, hops=9, debt=debt
    )
    assert choose_path(facts, EngineSettings(traversal_mode=mode)) is expected


def test_the_ceilings_come_from_the_settings() -> None:
    tight = EngineSettings(indexed_max_frontier=3, indexed_max_hops=2)
    assert choose_path(replace(SMALL, frontier=3, hops=2), tight) is INDEXED
    assert choose_path(replace(SMALL, frontier=4, hops=2), tight) is ADJACENCY
    assert choose_path(replace(SMALL, frontier=3, hops=3), tight) is ADJACENCY
    assert choose_path(replace(SMALL, frontier=3, is_indexed=False), tight) is SCAN
    assert choose_path(replace(SMALL, frontier=4, is_indexed=False), tight) is ADJACENCY


@each_case(
    ("frontier", "hops", "edges", "sources", "expected"),
    [
        (1, 1, 10_000, 1_000, 10),
        (3, 1, 10_000, 1_000, 30),
        (1, 2, 10_000, 1_000, 10 + 100),
        (1, 3, 10_000, 1_000, 10 + 100 + 1_000),
        # One walk follows every edge at most once.
        (1, 4, 10_000, 1_000, 10_000),
        (1, 9, 10_000, 1_000, 10_000),
        (1, 2**63 - 1, 10_000, 1_000, 10_000),
        (2, 9, 10_000, 1_000, 20_000),
        # Half an edge per node: the walk dies out.
        (1, 2, 500, 1_000, 0.5 + 0.25),
        (5, 3, 0, 1_000, 0),
        (0, 3, 10_000, 1_000, 0),
        (4, 1, 7, 0, 28),
    ],
)
def test_the_estimate_is_the_mean_degree_hop_by_hop(
    frontier, hops, edges, sources, expected
) -> None:
    facts = replace(SMALL, frontier=frontier, hops=hops, edges=edges, sources=sources)
    assert followed_edges(facts) == pytest.approx(expected)


FACTS = st.builds(
    TraversalFacts,
    frontier=st.integers(0, 5_000),
    hops=st.integers(1, 12) | st.sampled_from([33, 10**6, 2**63 - 1]),
    edges=st.integers(0, 10**7),
    sources=st.integers(0, 10**6),
    is_indexed=st.booleans(),
    is_ready=st.booleans(),
    debt=st.floats(0, 1e9),
)


@pytest.mark.parametrize("field", ["frontier", "hops", "edges"])
@given(facts=FACTS, more=st.integers(1, 3_000))
def test_more_to_do_is_never_estimated_as_less(field: str, facts, more: int) -> None:
    more = min(more, 5) if field == "hops" else more
    larger = replace(facts, **{field: getattr(facts, field) + more})
    before, after = followed_edges(facts), followed_edges(larger)
    assert after >= before * (1 - 1e-9)


@given(FACTS)
def test_a_walk_follows_no_edge_twice_per_node_of_the_frontier(facts) -> None:
    assert 0 <= followed_edges(facts) <= facts.edges * facts.frontier


@given(FACTS, st.floats(0, 1e9))
def test_debt_never_leads_back_from_the_index(facts, more: float) -> None:
    """Work that was done without the index only ever speaks for building it."""
    indebted = replace(facts, debt=facts.debt + more)
    if choose_path(facts, SETTINGS) is ADJACENCY:
        assert choose_path(indebted, SETTINGS) is ADJACENCY
    enough = replace(facts, debt=facts.edges * ADJACENCY_COST_FACTOR + 1)
    assert choose_path(enough, SETTINGS) is ADJACENCY
