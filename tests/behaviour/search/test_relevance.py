"""`bm25`: which rows, in which order, and what a match, a traversal and a limit do to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.engine.ranking import ranked_rows as ranking
from omnigraph.engine.tables import text_search, wanted_indexes
from omnigraph.errors import CompilerError
from support.search_graphs import (
    WORDS,
    Document,
    Library,
    Model,
    Ranked,
    State,
    append,
    ask,
    cites,
    close_to,
    doc,
    doc_row,
    found,
    in_each_state,
    in_states,
    new_graph,
    ranked,
    rows,
    scored,
    set_body,
    table,
    tag,
    tagged,
    write,
)
from support.subtests import each_case

LIBRARY = Library(
    before={"a": "fox in the snow with a dog", "b": "fox fox fox", "c": "dog and fox", "d": "snow", "n": None},
    after={"e": "a dog, a dog, a fox", "f": "", "g": "foxes dream of snow and snow and snow"},
    outdated={"h": ("fox fox", "dog dog dog"), "i": ("cat", "fox"), "j": ("snow snow", None)},
    doomed={"x": "fox", "y": "snow snow"},
)
QUERIES = {"fox": "abcegi", "snow": "adg", "dog fox": "abceghi", "FOXES": "abcegi", "unicorn": ""}


def bm25(query: str, field: str = "$d.body") -> str:
    return f'bm25({field}, "{query}")'


# ---- which rows, which order


@each_case("query", QUERIES)
def test_only_rows_with_a_word_of_the_query_are_ranked(library: Graph, query: str):
    assert sorted(ranked(library, bm25(query), limit=None)) == list(QUERIES[query])


@each_case("query", QUERIES)
def test_scores_descend_and_equal_scores_are_ordered_by_id(library: Graph, query: str):
    got = scored(library, bm25(query), limit=None)
    assert got == sorted(got, key=lambda item: (-item[1], item[0]))
    assert all(score > 0 for _, score in got)


@each_case("query", QUERIES)
@each_case("limit", [1, 2, 3, 5, 100])
def test_a_limit_cuts_the_unlimited_ranking(library: Graph, query: str, limit: int):
    everything = scored(library, bm25(query), limit=None)
    assert scored(library, bm25(query), limit=limit) == close_to(everything[:limit])


def test_limit_zero_is_no_row(library: Graph):
    assert ranked(library, bm25("fox"), limit=0) == []


@each_case("query", QUERIES)
def test_no_state_of_the_indexes_changes_a_score(libraries: dict[State, Graph], query: str):
    first, *others = (scored(library, bm25(query), limit=None) for library in libraries.values())
    assert others == [first] * len(others)


def test_more_of_the_word_and_less_of_the_rest_ranks_higher(library: Graph):
    order = ranked(library, bm25("fox"), limit=None)
    assert order.index("b") < order.index("i") < order.index("c") < order.index("g")


def test_a_rare_word_weighs_more_than_a_frequent_one(tmp_path: Path):
    texts = {f"f{n}": "frequent word" for n in range(8)} | {"r": "rare word"}
    with new_graph(tmp_path, *(doc(s, body) for s, body in texts.items())) as graph:
        for _ in range(2):
            assert ranked(graph, bm25("rare frequent"), limit=2) == ["r", "f0"]
            graph.ensure_indices()


def test_an_index_that_caught_up_with_updates_ranks_every_row_once(tmp_path: Path):
    with LIBRARY.build(tmp_path, State.GROWN, catches_up=True) as library:
        got = {q: sorted(ranked(library, bm25(q), limit=None)) for q in QUERIES}
        assert got == {q: list(expected) for q, expected in QUERIES.items()}


@each_case("query", ["", "the and of", "?!"])
def test_a_query_without_words_ranks_nothing(library: Graph, query: str):
    assert ranked(library, bm25(query), limit=None) == []
    assert ranked(library, bm25(query), limit=3) == []


def test_a_null_query_ranks_nothing(library: Graph):
    for params in ({}, {"q": None}):
        for limit in (None, 3):
            got = ranked(library, "bm25($d.body, $q)", limit=limit, declared="$q: String?", **params)
            assert got == []


def test_a_direction_after_bm25_is_accepted_and_means_nothing(library: Graph):
    texts = [
        f"match {{ $d: Doc }} return {{ $d.slug as s }} order {{ {bm25('fox')} {way} }} limit 4"
        for way in ("", "asc", "desc")
    ]
    first, *others = (rows(library, text) for text in texts)
    assert others == [first, first]


def test_the_score_may_be_returned_and_ordered_by_its_name(library: Graph):
    by_name = rows(library, f"match {{ $d: Doc }} return {{ {bm25('fox')} as score, $d.slug as s }} order {{ score }}")
    expected = close_to(scored(library, bm25("fox"), limit=None))
    assert [(row["s"], row["score"]) for row in by_name] == expected


def test_a_property_without_an_index_is_ranked_alike(libraries: dict[State, Graph]):
    for library in libraries.values():
        everybody = sorted(ranked(library, bm25("fox", "$d.plain"), limit=None))
        # `plain` keeps the words of the insert.
        assert [slug for slug in everybody if slug not in LIBRARY.outdated] == list("abceg")


def test_a_property_that_nobody_has_ranks_nobody(library: Graph):
    assert ranked(library, bm25("fox", "$d.title"), limit=None) == []


def test_a_text_condition_and_a_ranking_on_one_variable_both_apply(library: Graph):
    order = ranked(library, bm25("fox"), limit=None)
    with_dogs = set(found(library, 'search($d.body, "dog")'))
    got = ranked(library, bm25("fox"), 'search($d.body, "dog")', limit=None)
    assert got == [slug for slug in order if slug in with_dogs]
    assert sorted(got) == ["a", "c", "e"]
    got = ranked(library, bm25("fox"), 'not { search($d.body, "dog") }', limit=None)
    assert got == [slug for slug in order if slug not in with_dogs]


# ---- filters come first


def filtered(graph: Graph, rank: str, limit: int) -> dict[str, list[str]]:
    """The same condition in every spelling."""
    body = f"return {{ $d.slug as s }} order {{ {rank} }} limit {limit}"
    texts = {
        "inline": f"match {{ $d: Doc {{ year: 7 }} }} {body}",
        "standalone": f"match {{ $d: Doc  $d.year = 7 }} {body}",
        "range": f"match {{ $d: Doc  $d.year > 6  $d.year <= 7 }} {body}",
        "mirrored": f"match {{ $d: Doc  7 = $d.year }} {body}",
    }
    return {name: [row["s"] for row in rows(graph, text)] for name, text in texts.items()}


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[State, Graph]]:
    """400 documents that rank high, behind them 20 that satisfy a filter, a traversal and a condition."""
    high = [doc_row(f"h{n:03}", body="fox fox", year=1, plain="no") for n in range(400)]
    low = [
        doc_row(f"l{n:02}", body="fox" + " filler" * (n + 1), year=7, plain="chosen", vec=[n + 1.0] * 4)
        for n in range(20)
    ]
    for row in high:
        row["vec"] = [0.0] * 4

    def first(graph: Graph) -> None:
        write(graph, tag("t"))
        append(graph, Doc=[*high[:200], *low[:10]])

    def then(graph: Graph) -> None:
        append(graph, Doc=[*high[200:], *low[10:]])
        append(graph, Tagged=[{"id": f"e{row['id']}", "src": row["id"], "dst": "t"} for row in low])

    yield from in_states(tmp_path_factory.mktemp("crowds"), first, then)


crowd = in_each_state("crowds")


RANKS = {"bm25": bm25("fox"), "nearest": "nearest($d.vec, [0.0, 0.0, 0.0, 0.0])"}
LOW = [f"l{n:02}" for n in range(20)]


def check_order(got: list[str]) -> None:
    assert got == LOW[: len(got)]


@each_case("rank", RANKS)
@each_case("limit", [1, 5, 20, 50])
def test_the_limit_takes_the_best_among_rows_that_satisfy_the_filter(crowd: Graph, rank: str, limit: int):
    got = filtered(crowd, RANKS[rank], limit)
    assert got == dict.fromkeys(got, got["inline"]), "spellings agree"
    assert len(got["inline"]) == min(limit, 20)
    check_order(got["inline"])


@each_case("rank", RANKS)
@each_case(
    "clauses",
    [
        "$d tagged $t",
        '$d tagged $t  $t.name = "t"',
        'search($d.plain, "chosen")',
        'fuzzy($d.plain, "chosem", 1)',
        "not { $e: Doc { year: 1 }  $e.slug = $d.slug }",
        'not { match_text($d.plain, "no") }',
        '$d.plain != "no"',
    ],
)
def test_entities_that_satisfy_the_whole_match_are_ranked(crowd: Graph, rank: str, clauses: str):
    got = ranked(crowd, RANKS[rank], clauses, limit=5)
    assert len(got) == 5
    check_order(got)


@pytest.mark.parametrize("rank", RANKS)
def test_a_match_that_drops_nearly_every_candidate_is_run_as_a_whole_with_the_same_rows(
    crowd: Graph, rank: str, monkeypatch: pytest.MonkeyPatch
):
    expected = ranked(crowd, RANKS[rank], "$d tagged $t", limit=5)
    monkeypatch.setattr(ranking, "_MAX_CANDIDATES", 64)
    assert ranked(crowd, RANKS[rank], "$d tagged $t", limit=5) == expected


def test_a_filter_that_nothing_satisfies_gives_no_row(crowd: Graph):
    for rank in RANKS.values():
        assert ranked(crowd, rank, "$d.year = 8") == []


# ---- traversals


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[State, Graph]]:

    def first(graph: Graph) -> None:
        write(
            graph,
            doc("a", "fox", vec=[3.0, 0.0, 0.0, 0.0]),
            doc("b", "fox fox fox", vec=[1.0, 0.0, 0.0, 0.0]),
            doc("c", "no match", vec=[0.0, 0.0, 0.0, 0.0]),
            tag("t1", "fox"),
            tag("t2", "a fox among others"),
            tag("t3"),
        )

    def then(graph: Graph) -> None:
        write(
            graph,
            doc("d", "fox and many other words", vec=[2.0, 0.0, 0.0, 0.0]),
            cites("a", "b", "x"),
            cites("a", "b", "y"),
            cites("a", "b", "w"),
            cites("b", "a"),
            cites("b", "d"),
            cites("c", "d"),
            cites("d", "c"),
            tagged("a", "t2"),
            tagged("a", "t1"),
            tagged("b", "t3"),
            tagged("b", "t2"),
            tagged("c", "t1"),
        )

    yield from in_states(tmp_path_factory.mktemp("linked"), first, then)


links = in_each_state("linked")


#: What is matched and returned, the property that is ranked, and the rows in their order.
FANNED = {
    "the start": ("$d: Doc  $d tagged $t", "$d.slug as d, $t.name as t", "$d.body", ["b t2", "b t3", "a t1", "a t2"]),
    "the end": ("$d: Doc  $d tagged $t", "$t.name as t, $d.slug as d", "$t.about", ["t1 a", "t1 c", "t2 a", "t2 b"]),
    "the end, of one type": (
        "$d: Doc  $d cites $e",
        "$e.slug as e, $d.slug as d",
        "$e.body",
        ["b a", "a b", "d b", "d c"],
    ),
    "bound by the traversal alone": ("$x cites $y", "$x.slug as x", "$x.body", ["b", "b", "a", "d"]),
    "only in the order": ("$d: Doc  $d tagged $t", "$d.slug as d", "$t.about", ["a", "c", "a", "b"]),
}


@each_case("name", FANNED)
def test_rows_fanned_out_keep_the_rank_of_their_entity_and_the_limit_cuts_rows(links: Graph, name: str):
    clauses, returned, field, expected = FANNED[name]
    text = f"match {{ {clauses} }} return {{ {returned} }} order {{ {bm25('fox', field)} }}"
    for limit in (None, *range(6)):
        got = table(links, text if limit is None else f"{text} limit {limit}")
        assert [" ".join(map(str, row)) for row in got] == expected[:limit]


def test_parallel_edges_stay_distinct_when_the_edge_has_a_name(links: Graph):
    body = f"return {{ $d.slug as d, $e.slug as e }} order {{ {bm25('fox')} }} limit 10"
    named = table(links, f"match {{ $d: Doc  $d $c:cites $e }} {body}")
    assert named == [("b", "a"), ("b", "d"), ("a", "b"), ("a", "b"), ("a", "b"), ("d", "c")]
    nameless = table(links, f"match {{ $d: Doc  $d cites $e }} {body}")
    assert nameless == [("b", "a"), ("b", "d"), ("a", "b"), ("d", "c")]


def test_further_order_keys_order_the_rows_of_one_entity(links: Graph):
    body = "match { $d: Doc  $d $c:cites $e } return { $d.slug as d, $c.why as w }"
    up = table(links, f"{body} order {{ {bm25('fox')}, $c.why }} limit 10")
    assert up == [("b", None), ("b", None), ("a", "w"), ("a", "x"), ("a", "y"), ("d", None)]
    down = table(links, f"{body} order {{ {bm25('fox')}, $c.why desc }} limit 10")
    assert down == [("b", None), ("b", None), ("a", "y"), ("a", "x"), ("a", "w"), ("d", None)]
    assert table(links, f"{body} order {{ {bm25('fox')}, $c.why desc }} limit 3") == down[:3]


def test_the_returned_score_is_the_one_that_orders_fanned_out_rows(links: Graph):
    rank = bm25("fox")
    got = table(links, f"match {{ $d: Doc  $d tagged $t }} return {{ $d.slug as d, {rank} as s }} order {{ {rank} }}")
    scores = dict(close_to(scored(links, rank, limit=None)))
    assert got == [(d, scores[d]) for d in ("b", "b", "a", "a")]


def test_negations_and_hops_behind_the_ranking_restrict_it(links: Graph):
    order = ranked(links, bm25("fox"), limit=None)
    assert order == ["b", "a", "d"]
    assert ranked(links, bm25("fox"), "not { $d tagged $_ }") == ["d"]
    assert ranked(links, bm25("fox"), '$d cites{2,2} $e  $e.slug = "c"') == ["b"]
    assert ranked(links, bm25("fox"), '$e cites $d  $e.slug = "b"') == ["a", "d"]


# ---- freshness


def test_rows_written_after_the_index_are_ranked_at_once(tmp_path: Path):
    with new_graph(tmp_path, doc("a", "fox and filler")) as graph:
        graph.ensure_indices()
        write(graph, doc("b", "fox"))
        assert sorted(ranked(graph, bm25("fox"))) == ["a", "b"]
        set_body(graph, "a", "nothing")
        assert ranked(graph, bm25("fox")) == ["b"]
        write(graph, 'delete Doc where slug = "b"')
        assert ranked(graph, bm25("fox")) == []
        set_body(graph, "a", "fox again here")
        assert ranked(graph, bm25("fox")) == ["a"]


def test_a_long_ranking_is_in_order_across_fragments_and_segments(tmp_path: Path):
    rng = random.Random(7)
    with new_graph(tmp_path) as graph:
        for part in range(4):
            append(
                graph,
                Doc=[
                    doc_row(f"{part}-{n:03}", body="fox " * rng.randrange(1, 5) + "x " * rng.randrange(9))
                    for n in range(150)
                ],
            )
            if part < 3:
                graph.ensure_indices()
        everything = scored(graph, bm25("fox"), limit=None)
        assert len({slug for slug, _ in everything}) == len(everything) == 600
        assert everything == sorted(everything, key=lambda item: (-item[1], item[0]))
        for limit in (1, 64, 65, 300, 599, 601):
            assert scored(graph, bm25("fox"), limit=limit) == close_to(everything[:limit])


# ---- refusals


@each_case(
    ("text", "code"),
    [
        ('match { $d: Doc } return { $d } order { bm25($d.year, "x") }', "T20"),
        ("match { $d: Doc } return { $d } order { bm25($d.body, 3) }", "T20"),
        ('match { $d: Doc  $d $c:cites $e } return { $d } order { bm25($c.why, "x") }', "T23"),
        ('match { $d: Doc } return { bm25($d.body, "x") as s }', "Q112"),
        ('match { $d: Doc } return { bm25($d.body, "x") as s } order { bm25($d.body, "y") }', "Q112"),
        ('match { $d: Doc } return { search($d.body, "x") as s }', "Q111"),
    ],
)
def test_a_ranking_that_makes_no_sense_is_a_compile_error(linked: dict[State, Graph], text: str, code: str):
    with pytest.raises(CompilerError) as caught:
        ask(linked[State.NONE], f"query q() {{ {text} }}")
    assert code in [item.code for item in caught.value.diagnostics]


# ---- Searches of random graphs against plain Python: ties, updates, deletions, branches, every state of the indexes


SCHEMA = """
node Doc { slug: String @key  body: String? @index  year: I32? @index  vec: Vector(2)? @index }
edge Cites: Doc -> Doc
"""
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 200))]


class World:
    """A graph and what it holds, changed together."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.graph = Graph.init(folder / "g.omni", SCHEMA)
        self.models = {"main": Model()}
        #: Commits of main, with what they hold.
        self.past: list[tuple[str, Model]] = []
        self.made = 0

    # ---- values

    def text(self, low: int = 0, high: int = 5) -> str:
        return " ".join(self.chance.choices(list(WORDS), k=self.chance.randint(low, high)))

    def body(self) -> str | None:
        return None if self.chance.random() < 0.1 else self.text()

    def vector(self) -> list[float]:
        return [float(self.chance.randint(0, 3)) for _ in range(2)]

    def document(self) -> Document:
        self.made += 1
        # Names do not follow the order of writing.
        slug = f"d{(self.made * 7919) % 1000:03}"
        vec = None if self.chance.random() < 0.2 else self.vector()
        return Document(slug, self.body(), self.chance.choice([None, 1, 2, 3]), vec)

    # ---- changes

    def change(self) -> None:
        branch = self.chance.choice(list(self.models))
        model = self.models[branch]
        kinds = [self.insert, self.insert, self.update, self.delete, self.cite]
        if len(model.documents) < 5:
            kinds = [self.insert]
        self.chance.choice(kinds)(branch, model)
        if branch == "main":
            self.past.append((self.graph.snapshot().commit_id, model.copy()))

    def insert(self, branch: str, model: Model) -> None:
        added = [self.document() for _ in range(self.chance.choice([1, 4, 30]))]
        statements, params, declared = [], {}, []
        for number, item in enumerate(added):
            declared.append(f"$b{number}: String?, $y{number}: I32?, $v{number}: Vector(2)?")
            params |= {f"b{number}": item.body, f"y{number}": item.year, f"v{number}": item.vec}
            statements.append(
                f'insert Doc {{ slug: "{item.slug}", body: $b{number}, year: $y{number}, vec: $v{number} }}'
            )
        text = f"query w({', '.join(declared)}) {{ {' '.join(statements)} }}"
        self.graph.mutate(text, params, branch=branch)
        model.documents |= {item.slug: item for item in added}

    def update(self, branch: str, model: Model) -> None:
        old = model.documents[self.chance.choice(sorted(model.documents))]
        new = Document(old.slug, self.body(), self.chance.choice([None, 1, 2, 3]), old.vec)
        text = "query w($s: String, $b: String?, $y: I32?) { update Doc set { body: $b, year: $y } where slug = $s }"
        self.graph.mutate(text, {"s": new.slug, "b": new.body, "y": new.year}, branch=branch)
        model.documents[new.slug] = new

    def delete(self, branch: str, model: Model) -> None:
        slug = self.chance.choice(sorted(model.documents))
        text = "query w($s: String) { delete Doc where slug = $s }"
        self.graph.mutate(text, {"s": slug}, branch=branch)
        del model.documents[slug]
        model.cites = {pair for pair in model.cites if slug not in pair}

    def cite(self, branch: str, model: Model) -> None:
        slugs = sorted(model.documents)
        pairs = {tuple(self.chance.sample(slugs, 2)) for _ in range(8)} - model.cites
        statements = [f'insert Cites {{ from: "{a}", to: "{b}" }}' for a, b in sorted(pairs)]
        if statements:
            self.graph.mutate(f"query w() {{ {' '.join(statements)} }}", branch=branch)
            model.cites |= {(a, b) for a, b in pairs}

    def maintain(self) -> None:
        match self.chance.randrange(4):
            case 0:
                self.graph.ensure_indices(self.chance.choice(list(self.models)))
            case 1:
                self.graph.optimize()
            case 2 if "dev" not in self.models:
                self.graph.create_branch("dev")
                self.models["dev"] = self.models["main"].copy()
            case _:
                location = self.graph.uri
                self.graph.close()
                self.graph = Graph.open(location)

    # ---- questions

    def question(self) -> Ranked:
        chance = self.chance
        rank = chance.choice(["bm25", "bm25", "nearest", "rrf", "rrf2"])
        follows = chance.random() < 0.4
        names = ["year", "slug", *(["other"] if follows else [])]
        keys = [(name, chance.random() < 0.5) for name in chance.sample(names, chance.randint(0, 2))]
        limit = chance.choice([1, 2, 3, 5, 8, 20, 60])
        return Ranked(
            rank=rank,
            text=self.text(0, 4),
            vector=self.vector(),
            keys=keys,
            follows=follows,
            year=chance.choice([None, None, 1, 2]),
            condition=chance.choice([None, None, self.text(1, 2)]),
            limit=None if rank == "bm25" and chance.random() < 0.3 else limit,
        )

    def check(self) -> None:
        targets: list[tuple[dict[str, Any], Model]] = [
            ({"branch": branch}, model) for branch, model in self.models.items()
        ]
        if self.past:
            commit, model = self.chance.choice(self.past)
            targets.append(({"snapshot": commit}, model))
        for target, model in targets:
            asked = self.question()
            params = {"q": asked.text, "v": asked.vector, "c": asked.condition}
            got = self.graph.query(asked.to_text(), params, **target).to_pylist()
            expected = asked.expected(model)
            shown = f"{asked.to_text()}\n{params}\n{target}"
            assert [(r["d"], r.get("e")) for r in got] == [(r["d"], r.get("e")) for r in expected], shown
            assert [r["score"] for r in got] == pytest.approx([r["score"] for r in expected]), shown
            self.check_conditions(target, model)

    def check_conditions(self, target: dict[str, Any], model: Model) -> None:
        query = self.text(1, 3)
        for function, holds in (("search", model.searches), ("match_text", model.matches_text)):
            text = f"query q($q: String) {{ match {{ $d: Doc  {function}($d.body, $q) }} return {{ $d.slug as d }} }}"
            got = sorted(row["d"] for row in self.graph.query(text, {"q": query}, **target).to_pylist())
            assert got == sorted(slug for slug in model.documents if holds(slug, query)), (function, query, target)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_searches_answer_as_plain_python_does(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    if seed % 2:
        # Terms of the smallest fragments lie on disk, and segments have borders.
        monkeypatch.setattr(text_search, "PERSIST_MIN_ROWS", 1)
        monkeypatch.setattr(text_search, "SEGMENT_ROWS", 7)
    if seed % 3 == 0:
        # So few partitions that a search looks at all of them.
        monkeypatch.setattr(wanted_indexes, "VECTOR_INDEX_MIN_ROWS", 8)
    world = World(tmp_path, seed)
    try:
        for _ in range(14):
            world.change()
            if world.chance.random() < 0.4:
                world.maintain()
            for _ in range(3):
                world.check()
    finally:
        world.graph.close()
