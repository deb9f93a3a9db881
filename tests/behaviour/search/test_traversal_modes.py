"""Every forced traversal path returns the same rows, and they are the ones that the rules of traversal name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from omnigraph import Graph
from support.search_graphs import cites, doc, new_graph, set_body, tag, tagged, write
from support.subtests import each_case

MODES = ("indexed", "csr", "scan")
CITED = ["aa", "ab", "ab", "ac", "bc", "cd", "da", "de", "ee", "fg", "gf", "bc", "ce"]
TAGGED = ["aa", "ab", "ab", "bc", "ca", "ec", "gb"]
NODES = "abcdefgh"
TAGS = "abcz"


@pytest.fixture(scope="module", params=["unindexed", "half indexed", "indexed"])
def graphs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Graph]]:
    """Loops, parallel edges, cycles, a component of its own, a lonely node, ids that two types share."""
    folder = tmp_path_factory.mktemp("modes")
    with new_graph(folder, *(doc(name, f"text of {name}") for name in NODES)) as graph:
        write(graph, *(tag(name) for name in TAGS), *(cites(*pair, "x") for pair in CITED[:7]))
        if request.param == "half indexed":
            graph.ensure_indices()
        write(graph, doc("gone"), cites("a", "gone"), cites("gone", "b"), tagged("gone", "z"))
        write(
            graph, *(cites(*pair, "y") for pair in CITED[7:]), *(tagged(*pair) for pair in TAGGED)
        )
        set_body(graph, "c", "another text")
        write(graph, 'delete Doc where slug = "gone"')
        if request.param == "indexed":
            graph.ensure_indices()
    opened = {}
    with pytest.MonkeyPatch.context() as patch:
        for mode in MODES:
            patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
            opened[mode] = Graph.open(folder / "g.omni", read_only=True)
        patch.delenv("OMNIGRAPH_TRAVERSAL_MODE")
        opened["auto"] = Graph.open(folder / "g.omni", read_only=True)
    yield opened
    for graph in opened.values():
        graph.close()


def agreed(graphs: dict[str, Graph], match: str, result: str) -> Counter[tuple[object, ...]]:
    """The rows of a query, which every mode returns alike; asked twice, so that caches are used."""
    text = f"query q() {{ match {{ {match} }} return {{ {result} }} }}"
    got = [
        Counter(tuple(row.values()) for row in graph.query(text).to_pylist())
        for graph in graphs.values()
        for _ in range(2)
    ]
    assert all(rows == got[0] for rows in got)
    return got[0]


# ---- what the rules say


def neighbours(node: str, *, forward: bool = True, backward: bool = False) -> set[str]:
    ahead = {dst for src, dst in CITED if src == node and forward}
    return ahead | {src for src, dst in CITED if dst == node and backward}


def reached(node: str, low: int, high: int, **ways: bool) -> set[str]:
    """Breadth first; a loop of the start counts at the first hop only."""
    found = {node} if low == 1 and node in neighbours(node, **ways) else set()
    visited, frontier = {node}, {node}
    for hop in range(1, high + 1):
        frontier = {n for f in frontier for n in neighbours(f, **ways)} - visited
        visited |= frontier
        if hop >= low:
            found |= frontier
    return found


BOUNDS = [(1, 1), (1, 2), (2, 2), (2, 3), (1, 4), (3, 3), (1, 9), (4, 9)]


@each_case(("low", "high"), BOUNDS)
def test_bounded_reachability_forward(graphs: dict[str, Graph], low: int, high: int):
    got = agreed(graphs, f"$d: Doc  $d cites{{{low},{high}}} $e", "$d.slug as d, $e.slug as e")
    assert got == Counter((d, e) for d in NODES for e in reached(d, low, high))


@each_case(("low", "high"), BOUNDS)
def test_bounded_reachability_backward(graphs: dict[str, Graph], low: int, high: int):
    match = f'$e: Doc  $e.slug >= "a"  $d cites{{{low},{high}}} $e'
    got = agreed(graphs, match, "$e.slug as e, $d.slug as d")
    ways = {"forward": False, "backward": True}
    assert got == Counter((e, d) for e in NODES for d in reached(e, low, high, **ways))


@each_case(("low", "high"), BOUNDS)
def test_bounded_reachability_in_either_direction(graphs: dict[str, Graph], low: int, high: int):
    got = agreed(graphs, f"$d: Doc  $d <cites>{{{low},{high}}} $e", "$d.slug as d, $e.slug as e")
    assert got == Counter((d, e) for d in NODES for e in reached(d, low, high, backward=True))


def test_parallel_edges_collapse_without_a_name_and_stay_with_one(graphs: dict[str, Graph]):
    plain = agreed(graphs, "$d: Doc  $d cites $e", "$d.slug as d, $e.slug as e")
    assert plain == Counter({tuple(pair): 1 for pair in set(CITED)})
    named = agreed(graphs, "$d: Doc  $d $c:cites $e", "$d.slug as d, $e.slug as e")
    assert named == Counter(tuple(pair) for pair in CITED)


def test_properties_of_bound_edges_are_those_of_their_edges(graphs: dict[str, Graph]):
    got = agreed(graphs, "$d: Doc  $d $c:cites $e", "$d.slug as d, $e.slug as e, $c.why as w")
    assert got == Counter((*pair, "x" if n < 7 else "y") for n, pair in enumerate(CITED))
    some = agreed(graphs, '$d: Doc  $d $c:cites $e  $c.why = "y"', "$d.slug as d, $e.slug as e")
    assert some == Counter(tuple(pair) for pair in CITED[7:])


def test_ids_that_two_types_share_are_not_mixed(graphs: dict[str, Graph]):
    forward = agreed(graphs, "$d: Doc  $d tagged $t", "$d.slug as d, $t.name as t")
    assert forward == Counter({tuple(pair): 1 for pair in set(TAGGED)})
    backward = agreed(graphs, "$t: Tag  $d tagged $t", "$d.slug as d, $t.name as t")
    assert backward == forward
    both = agreed(graphs, "$d: Doc  $d tagged $t  $e tagged $t", "$d.slug as d, $e.slug as e")
    pairs = set(TAGGED)
    assert both == Counter((d, e) for (d, t), (e, u) in itertools.product(pairs, pairs) if t == u)


def test_several_hops_over_an_edge_between_two_types_are_one(graphs: dict[str, Graph]):
    once = agreed(graphs, "$d: Doc  $d tagged $t", "$d.slug as d, $t.name as t")
    assert agreed(graphs, "$d: Doc  $d tagged{1,3} $t", "$d.slug as d, $t.name as t") == once
    assert not agreed(graphs, "$d: Doc  $d tagged{2,3} $t", "$d.slug as d, $t.name as t")


def test_cycles_of_a_pattern_close(graphs: dict[str, Graph]):
    pairs = set(CITED)
    two = agreed(graphs, "$d: Doc  $d cites $e  $e cites $d", "$d.slug as d, $e.slug as e")
    assert two == Counter((d, e) for d, e in pairs if e + d in pairs)
    three = agreed(
        graphs,
        "$a: Doc  $a cites $b  $b cites $c  $c cites $a",
        "$a.slug as a, $b.slug as b, $c.slug as c",
    )
    triples = itertools.product(NODES, repeat=3)
    assert three == Counter(t for t in triples if all(t[i] + t[i - 2] in pairs for i in range(3)))
    loops = agreed(graphs, "$d: Doc  $d cites $d", "$d.slug as d")
    assert loops == Counter({("a",): 1, ("e",): 1})


def test_anti_joins_see_loops_and_parallel_edges(graphs: dict[str, Graph]):
    uncited = agreed(graphs, "$d: Doc  not { $e cites $d }", "$d.slug as d")
    assert uncited == Counter((d,) for d in NODES if d not in {dst for _, dst in CITED})
    leaves = agreed(graphs, "$d: Doc  not { $d cites $_ }", "$d.slug as d")
    assert leaves == Counter((d,) for d in NODES if not neighbours(d))
    far = agreed(graphs, '$d: Doc  not { $d cites{1,3} $e  $e.slug = "e" }', "$d.slug as d")
    assert far == Counter((d,) for d in NODES if "e" not in reached(d, 1, 3))
    untagged = agreed(graphs, "$d: Doc  not { $d tagged $t  not { $e cites $d } }", "$d.slug as d")
    cited = {dst for _, dst in CITED}
    tagged_docs = {src for src, _ in TAGGED}
    assert untagged == Counter((d,) for d in NODES if not (d in tagged_docs and d not in cited))


def test_filters_on_both_ends_and_far_away(graphs: dict[str, Graph]):
    got = agreed(
        graphs,
        '$d: Doc { slug: "a" }  $d cites{1,3} $e  $e.slug != "c"  $e tagged $t  $t.name > "a"',
        "$e.slug as e, $t.name as t",
    )
    near = reached("a", 1, 3) - {"c"}
    assert got == Counter((d, t) for d, t in set(TAGGED) if d in near and t > "a")


def test_counts_are_the_same(graphs: dict[str, Graph]):
    got = agreed(graphs, "$d: Doc  $d cites{1,2} $e", "$d.slug as d, count($e) as n")
    assert got == Counter((d, len(reached(d, 1, 2))) for d in NODES if reached(d, 1, 2))
    (total,) = agreed(graphs, "$d: Doc  $d $c:cites $e  $e tagged $t", "count($t) as n")
    assert total == (sum(len({t for d, t in TAGGED if d == dst}) for _, dst in CITED),)


def test_traversals_from_nowhere_reach_nobody(graphs: dict[str, Graph]):
    for match in (
        '$d: Doc { slug: "nobody" }  $d cites $e',
        '$d: Doc { slug: "h" }  $d cites{1,5} $e',
        '$d: Doc { slug: "h" }  $e cites $d',
        '$d: Doc { slug: "h" }  $d <cites> $e',
        '$d: Doc  $d cites $e  $e.slug = "gone"',
    ):
        assert not agreed(graphs, match, "$d.slug as d, $e.slug as e")


def test_the_mode_is_read_when_the_graph_is_opened(graphs: dict[str, Graph]):
    text = "query q() { match { $d: Doc  $d cites{1,2} $e } return { $d.slug as d } }"
    words = {"indexed": "indexed", "csr": "adjacency", "scan": "edge scan"}
    for mode, word in words.items():
        assert f"Expand $d Cites: {word}" in graphs[mode].explain(text)
        assert word in graphs[mode].explain(text, analyze=True)


def test_an_unknown_mode_is_ignored_with_a_warning(
    graphs: dict[str, Graph],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "teleport")
    with Graph.open(graphs["auto"].uri, read_only=True) as graph:
        assert "teleport" in caplog.text
        text = "query q() { match { $d: Doc  $d cites $e } return { $d.slug as d } }"
        assert len(graph.query(text)) == len(set(CITED))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "0"), ("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "0")],
)
def test_ceilings_change_the_path_and_not_the_rows(
    graphs: dict[str, Graph], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    monkeypatch.setenv(variable, value)
    with Graph.open(graphs["auto"].uri, read_only=True) as graph:
        agreed(
            {**graphs, "ceiling": graph}, "$d: Doc  $d cites{1,3} $e", "$d.slug as d, $e.slug as e"
        )
        text = "query q() { match { $d: Doc  $d cites{1,3} $e } return { $d.slug as d } }"
        assert "indexed" not in graph.explain(text)
