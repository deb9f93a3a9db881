"""Every forced traversal path returns the same rows, and they are the ones that the rules of traversal name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.engine.tables import traversal_index
from omnigraph.graph import reads
from support.change_feeds import compact
from support.search_graphs import ZERO, cites, doc, new_graph, set_body, tag, tagged, write
from support.subtests import each_case

MODES = ("indexed", "csr", "scan")
CITED = ["aa", "ab", "ab", "ac", "bc", "cd", "da", "de", "ee", "fg", "gf", "bc", "ce"]
TAGGED = ["aa", "ab", "ab", "bc", "ca", "ec", "gb"]
NODES = "abcdefgh"
TAGS = "abcz"


@pytest.fixture(scope="module", params=["unindexed", "half indexed", "indexed"])
def graphs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Graph]]:
    """Loops, parallel edges, cycles, a component of its own, a lonely node, ids that two types share."""
    folder = tmp_path_factory.mktemp("modes")
    with new_graph(folder, *(doc(name, f"text of {name}") for name in NODES)) as graph:
        write(graph, *(tag(name) for name in TAGS), *(cites(*pair, "x") for pair in CITED[:7]))
        if request.param == "half indexed":
            graph.ensure_indices()
        write(graph, doc("gone"), cites("a", "gone"), cites("gone", "b"), tagged("gone", "z"))
        write(graph, *(cites(*pair, "y") for pair in CITED[7:]), *(tagged(*pair) for pair in TAGGED))
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


def agreed(graphs: dict[str, Graph], match: str, result: str, times: int = 2) -> Counter[tuple[object, ...]]:
    """The rows of a query, which every mode returns alike; asked twice unless others like it use the same caches."""
    text = f"query q() {{ match {{ {match} }} return {{ {result} }} }}"
    got = [
        Counter(tuple(row.values()) for row in graph.query(text).to_pylist())
        for graph in graphs.values()
        for _ in range(times)
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
    got = agreed(graphs, f"$d: Doc  $d cites{{{low},{high}}} $e", "$d.slug as d, $e.slug as e", times=1)
    assert got == Counter((d, e) for d in NODES for e in reached(d, low, high))


@each_case(("low", "high"), BOUNDS)
def test_bounded_reachability_backward(graphs: dict[str, Graph], low: int, high: int):
    match = f'$e: Doc  $e.slug >= "a"  $d cites{{{low},{high}}} $e'
    got = agreed(graphs, match, "$e.slug as e, $d.slug as d", times=1)
    ways = {"forward": False, "backward": True}
    assert got == Counter((e, d) for e in NODES for d in reached(e, low, high, **ways))


@each_case(("low", "high"), BOUNDS)
def test_bounded_reachability_in_either_direction(graphs: dict[str, Graph], low: int, high: int):
    got = agreed(graphs, f"$d: Doc  $d <cites>{{{low},{high}}} $e", "$d.slug as d, $e.slug as e", times=1)
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
    three = agreed(graphs, "$a: Doc  $a cites $b  $b cites $c  $c cites $a", "$a.slug as a, $b.slug as b, $c.slug as c")
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
        assert f"Expand $d -Cites{{1,2}}-> $e: {word}" in graphs[mode].explain(text)
        assert word in graphs[mode].explain(text, analyze=True)


def test_an_unknown_mode_is_ignored_with_a_warning(
    graphs: dict[str, Graph], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "teleport")
    with Graph.open(graphs["auto"].uri, read_only=True) as graph:
        assert "teleport" in caplog.text
        text = "query q() { match { $d: Doc  $d cites $e } return { $d.slug as d } }"
        assert len(graph.query(text)) == len(set(CITED))


@pytest.mark.parametrize(
    ("variable", "value"), [("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "0"), ("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "0")]
)
def test_ceilings_change_the_path_and_not_the_rows(
    graphs: dict[str, Graph], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    monkeypatch.setenv(variable, value)
    with Graph.open(graphs["auto"].uri, read_only=True) as graph:
        agreed({**graphs, "ceiling": graph}, "$d: Doc  $d cites{1,3} $e", "$d.slug as d, $e.slug as e")
        text = "query q() { match { $d: Doc  $d cites{1,3} $e } return { $d.slug as d } }"
        assert "indexed" not in graph.explain(text)


# ---- A read of an older commit returns what it returned then, whatever was written, deleted or compacted since


QUERIES = {
    "scan": "match { $d: Doc } return { $d.slug as d, $d.body as b, $d.year as y } order { $d.slug }",
    "key": 'match { $d: Doc { slug: "b" } } return { $d.body as b, $d.year as y }',
    "filter": "match { $d: Doc  $d.year >= 2 } return { $d.slug as d } order { $d.slug }",
    "prefix": 'match { $d: Doc  $d.body starts_with "red" } return { $d.slug as d } order { $d.slug }',
    "traversal": "match { $d: Doc  $d cites $e } return { $d.slug as d, $e.slug as e } order { $d.slug, $e.slug }",
    "hops": 'match { $d: Doc { slug: "a" }  $d cites{1,4} $e } return { $e.slug as e } order { $e.slug }',
    "edges": "match { $d: Doc  $d $c:cites $e } return { $d.slug as d, $c.why as w } order { $d.slug, $c.why }",
    "tags": "match { $t: Tag  $d tagged $t } return { $t.name as t, $d.slug as d } order { $t.name, $d.slug }",
    "anti-join": "match { $d: Doc  not { $d cites $_ } } return { $d.slug as d } order { $d.slug }",
    "anti-join with a condition": (
        'match { $d: Doc  not { $d cites $e  search($e.body, "red") } } return { $d.slug as d } order { $d.slug }'
    ),
    "search": 'match { $d: Doc  search($d.body, "red") } return { $d.slug as d } order { $d.slug }',
    "phrase": 'match { $d: Doc  match_text($d.body, "red hen") } return { $d.slug as d } order { $d.slug }',
    "fuzzy": 'match { $d: Doc  fuzzy($d.body, "foks") } return { $d.slug as d } order { $d.slug }',
    "relevance": 'match { $d: Doc } return { $d.slug as d } order { bm25($d.body, "red fox") }',
    "nearest": f"match {{ $d: Doc }} return {{ $d.slug as d }} order {{ nearest($d.vec, {ZERO}) }} limit 3",
    "fusion": (
        "match { $d: Doc } return { $d.slug as d }"
        f' order {{ rrf(nearest($d.vec, {ZERO}), bm25($d.body, "red")) }} limit 4'
    ),
    "count": "match { $d: Doc  $d cites $e } return { $d.slug as d, count($e) as n } order { n desc, d }",
}

Answers = dict[str, list[dict[str, Any]]]


def answers(graph: Graph, **target: Any) -> Answers:
    return {name: graph.query(f"query q() {{ {text} }}", **target).to_pylist() for name, text in QUERIES.items()}


def at(distance: float) -> list[float]:
    return [distance, 0.0, 0.0, 0.0]


SEED = (
    doc("a", "red fox", year=1, vec=at(4)),
    doc("b", "red hen", year=2, vec=at(3)),
    doc("c", "blue cat", year=3, vec=at(2)),
    doc("d", "green dog", year=4, vec=at(1)),
    tag("t"),
    tag("u"),
    cites("a", "b", "x"),
    cites("a", "b", "y"),
    cites("b", "c"),
    cites("c", "d"),
    cites("d", "d"),
    tagged("a", "t"),
    tagged("b", "t"),
    tagged("b", "u"),
)
ADD = (doc("e", "red owl", year=2, vec=at(0.5)), cites("d", "e"), tagged("e", "u"))


def update(graph: Graph) -> None:
    set_body(graph, "c", "red cat")
    set_body(graph, "a", "grey wolf")
    graph.mutate('query w() { update Doc set { year: 9, vec: [9.0, 9.0, 9.0, 9.0] } where slug = "d" }')


def index(graph: Graph) -> None:
    assert graph.ensure_indices().commit is not None


#: Steps that each make a commit or more; whole histories follow from their order.
STEPS: dict[str, Callable[[Graph], object]] = {
    "add": lambda graph: write(graph, *ADD),
    "index": index,
    "update": update,
    "delete an edge": lambda graph: write(graph, 'delete Cites where from = "c"'),
    "delete with a cascade": lambda graph: write(graph, 'delete Doc where slug = "b"'),
    "add again": lambda graph: write(graph, doc("b", "red hen again", vec=at(0)), cites("b", "a")),
    "delete a tag": lambda graph: write(graph, 'delete Tag where name = "t"'),
    "delete everything": lambda graph: write(graph, 'delete Doc where slug >= ""'),
}
HISTORIES = {
    "never indexed": [name for name in STEPS if name != "index"],
    "indexed before the updates": list(STEPS),
    "indexed at the end": [
        *(name for name in STEPS if name not in ("index", "delete everything")),
        "index",
        "delete everything",
    ],
}
CATCHING_UP = ["index", "update", "index", "add", "delete with a cascade", "index", "add again"]


def run_history(graph: Graph, steps: list[str]) -> dict[str, Answers]:
    """What every commit answered when it was the head."""
    then = {graph.snapshot().commit_id: answers(graph)}
    for step in steps:
        before = {commit.commit_id for commit in graph.commits()}
        STEPS[step](graph)
        assert graph.snapshot().commit_id not in before, step
        then[graph.snapshot().commit_id] = answers(graph)
    return then


def check_history(graph: Graph, then: dict[str, Answers]) -> None:
    for commit_id, expected in then.items():
        got = answers(graph, snapshot=commit_id)
        assert got == expected, graph.commit(commit_id)


@pytest.fixture
def _traversal_indexes_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (traversal_index, reads):
        monkeypatch.setattr(module, "PERSIST_MIN_EDGES", 1)


@pytest.mark.parametrize(
    "history", [pytest.param(name, marks=pytest.mark.slow if name == "never indexed" else ()) for name in HISTORIES]
)
def test_every_commit_answers_as_it_did_when_it_was_the_head(tmp_path: Path, history: str):
    with new_graph(tmp_path, *SEED) as graph:
        then = run_history(graph, HISTORIES[history])
        assert len({str(item) for item in then.values()}) > 5, "the steps change answers"
        check_history(graph, then)


@pytest.mark.usefixtures("_traversal_indexes_on_disk")
def test_another_process_reads_every_commit_as_it_was(tmp_path: Path):
    with new_graph(tmp_path, *SEED) as graph:
        then = run_history(graph, list(STEPS))
    with Graph.open(tmp_path / "g.omni", read_only=True) as reopened:
        check_history(reopened, dict(reversed(then.items())))


def test_every_commit_of_an_index_that_catches_up_answers_as_it_did(tmp_path: Path):
    with new_graph(tmp_path, *SEED) as graph, new_graph(tmp_path, *SEED, name="plain.omni") as plain:
        indexed = list(run_history(graph, CATCHING_UP).values())
        without = list(run_history(plain, [s for s in CATCHING_UP if s != "index"]).values())
        ranked = ("relevance", "fusion")
        for one, other in ((indexed[-1], without[-1]), (indexed[3], without[1])):
            assert {k: v for k, v in one.items() if k not in ranked} == {
                k: v for k, v in other.items() if k not in ranked
            }
            assert len(one["relevance"]) == len(other["relevance"])


# ---- by graph version and by moment


def test_the_first_commit_is_empty(tmp_path: Path):
    with new_graph(tmp_path, *SEED) as graph:
        first = graph.commits()[-1].commit_id
        assert answers(graph, snapshot=first) == {name: [] for name in QUERIES}


# ---- branches


@pytest.mark.usefixtures("_traversal_indexes_on_disk")
def test_branches_keep_their_own_past(tmp_path: Path):
    with new_graph(tmp_path, *SEED) as graph:
        graph.ensure_indices()
        fork = graph.snapshot().commit_id
        before = answers(graph)
        graph.create_branch("dev")
        write(graph, *ADD, branch="dev")
        set_body(graph, "a", "nothing here", branch="dev")
        dev_commit, dev = graph.snapshot("dev").commit_id, answers(graph, branch="dev")
        write(graph, 'delete Doc where slug = "b"')
        main_commit, main = graph.snapshot().commit_id, answers(graph)
        write(graph, 'delete Doc where slug = "c"', branch="dev")
        graph.ensure_indices("dev")
        then = {fork: before, dev_commit: dev, main_commit: main}
        assert len({str(item) for item in then.values()}) == 3
        check_history(graph, then)
        assert answers(graph) == main
    with Graph.open(tmp_path / "g.omni") as reopened:
        check_history(reopened, then)


# ---- compaction


@pytest.mark.parametrize("is_indexed", [False, True])
def test_compaction_changes_no_answer_of_the_present_or_the_past(tmp_path: Path, is_indexed: bool):
    steps = ["add", "update", "delete an edge", "delete with a cascade", "add again"]
    with new_graph(tmp_path, *SEED) as graph:
        then = run_history(graph, [*steps, "index"] if is_indexed else steps)
        write(graph, doc("z", "red ape", year=5, vec=at(2.5)), cites("z", "a"))
        then[graph.snapshot().commit_id] = answers(graph)
        now = answers(graph)
        compact(graph)
        compacted = answers(graph)
        if is_indexed:
            # The rows that the index does not cover may score by other statistics afterwards.
            for name in ("relevance", "fusion"):
                by_slug = [sorted(row["d"] for row in item.pop(name)) for item in (now, compacted)]
                assert by_slug[0] == by_slug[1]
        assert compacted == now
        check_history(graph, then)
        write(graph, doc("zz", "red bee", vec=at(0.1)), cites("zz", "z"))
        after = answers(graph)
        assert {"d": "zz"} in after["search"]
        assert {"d": "zz", "e": "z"} in after["traversal"]
