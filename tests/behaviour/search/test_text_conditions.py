"""`search`, `match_text` and `fuzzy`: what they match, and that no state of the text index changes it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import CompilerError
from support.search_graphs import (
    Library,
    State,
    cites,
    doc,
    found,
    in_each_state,
    in_states,
    new_graph,
    rows,
    set_body,
    tag,
    tagged,
    write,
)
from support.subtests import each_case

#: The old words of outdated and doomed documents occur in no final text.
LIBRARY = Library(
    before={
        "a": "The quick brown fox jumps over the lazy dog",
        "c": "Introduction to graph databases",
        "d": "Brown foxes, quick dogs",
        "n": None,
    },
    after={
        "f": "",
        "g": "Über Straßen; Ελληνικά Привет мир 東京 café",
        "h": "quick fox quick brown",
        "j": "the and of",
        "k": "fox",
        "m": "quick\nbrown\tFOX!",
        "o": "e-mail me: well-known, don't; 3.14",
        "p": "it is not",
    },
    outdated={
        "b": ("quick zebra graph", "A lazy dog sleeps; foxes run."),
        "e": ("brown fox zebra", None),
        "i": (None, "graph graph graph theory"),
    },
    doomed={"x": "fox fox brown", "y": "zebra introduction"},
)

SEARCH = {
    "any word of the query": ("fox theory", "abdhikm"),
    "words that are not there do no harm": ("fox unicorn", "abdhkm"),
    "the stem of a word": ("foxes", "abdhkm"),
    "another form of a word": ("running", "b"),
    "case": ("QUICK", "adhm"),
    "a part of a word is not a word": ("gra", ""),
    "punctuation separates words": ("mail, known!", "o"),
    "a number": ("3.14", "o"),
    "operators of other query languages are punctuation": ('+fox -quick "brown AND', "abdhkm"),
    "a wildcard is punctuation": ("gra* fo?", ""),
    "stop words beside a word": ("the graph of", "ci"),
    "only stop words": ("the and of", ""),
    "an empty query": ("", ""),
    "a query of blanks": ("  \n ", ""),
    "a query of punctuation": ("!?", ""),
    "words that a document had before": ("zebra", ""),
    "Latin letters with marks": ("über", "g"),
    "Latin letters without their marks": ("uber CAFE", "g"),
    "upper case beyond ASCII": ("STRASSEN ΕΛΛΗΝΙΚΆ", "g"),
    "another alphabet": ("привет", "g"),
    "a pair of characters in a script without blanks": ("東京", "g"),
    "one character of such a script": ("東", "g"),
    "a pair that nothing has": ("京東", ""),
}
MATCH_TEXT = {
    "adjacent and in order": ("quick brown", "ahm"),
    "a longer phrase": ("quick brown fox", "am"),
    "the wrong order": ("fox brown", ""),
    "words that are not adjacent": ("brown jumps", ""),
    "one word": ("fox", "abdhkm"),
    "case, stems and punctuation are the same as for search": ("Brown, FOXES!", "adm"),
    "over a line break": ("quick brown fox", "am"),
    "a repeated word": ("graph graph", "i"),
    "a word repeated too often": ("graph graph graph graph", ""),
    "all words, not some of them": ("lazy fox", ""),
    "a phrase with its stop words": ("introduction to graph", "c"),
    "a hyphen separates words": ("well known", "o"),
    "a phrase beyond ASCII": ("über straßen", "g"),
    "an empty query": ("", ""),
    "only stop words": ("the", ""),
    "a phrase that a document had before": ("zebra graph", ""),
}
FUZZY = {
    "two edits by default": ("Introductio", 2, "c"),
    "an exchange of letters is two edits": ("Introductoin", 2, "c"),
    "one edit": ("fix", 1, "ahkm"),
    "no edit": ("fix", 0, ""),
    "raw words, not stems": ("foxes", 0, "bd"),
    "case": ("FOX", 0, "ahkm"),
    "any word of the query": ("thery lazi", 1, "abi"),
    "further than the edits": ("graphical", 2, ""),
    "stop words are words": ("the", 0, "aj"),
    "words that a document had before": ("zebrs", 2, ""),
    "letters without their marks": ("cafe", 0, "g"),
    "another alphabet": ("пивет", 1, "g"),
    "a script without blanks": ("東亰", 1, "g"),
    "an empty query": ("", 2, ""),
    "only punctuation": ("?!", 2, ""),
    "more edits than letters": ("qq", 2, "bcgjop"),
}
#: Conditions, and who satisfies all of them.
CONJUNCTIONS = {
    'search($d.body, "fox")  search($d.body, "dog")': "abd",
    'search($d.body, "dog")  search($d.body, "fox")': "abd",
    'search($d.body, "fox")  search($d.plain, "quick")': "adhm",
    'search($d.body, "fox")  match_text($d.body, "quick brown")': "ahm",
    'search($d.body, "fox")  fuzzy($d.body, "lazi", 1)': "ab",
    'match_text($d.body, "lazy dog")  match_text($d.body, "brown fox")': "a",
    'fuzzy($d.body, "fix", 1)  fuzzy($d.body, "quik", 1)  search($d.body, "dogs")': "a",
    'search($d.body, "fox")  search($d.body, "graph")': "",
    'search($d.body, "fox")  search($d.body, "")': "",
    'search($d.body, "fox")  $d.slug > "b"': "dhkm",
    '$d.slug > "b"  search($d.body, "fox")  $d.body contains "rown"': "dhm",
    'search($d.body, "fox")  $d.body starts_with "quick"': "hm",
    'not { search($d.body, "fox") }': "cefgijnop",
    'not { match_text($d.body, "quick brown") }': "bcdefgijknop",
    'not { fuzzy($d.body, "fix", 1) }': "bcdefgijnop",
    'search($d.body, "dog")  not { search($d.body, "lazy") }': "d",
    'not { search($d.body, "dog") }  not { search($d.body, "quick") }': "cefgijknop",
    'not { search($d.body, "fox")  search($d.body, "dog") }': "cefghijkmnop",
}


# ---- what matches, in every state of the index


@each_case("case", SEARCH)
def test_search_finds_any_word_after_the_analyzer(library: Graph, case: str):
    query, expected = SEARCH[case]
    assert found(library, "search($d.body, $q)", "$q: String", q=query) == list(expected)


@each_case("case", MATCH_TEXT)
def test_match_text_finds_words_that_are_adjacent_and_in_order(library: Graph, case: str):
    query, expected = MATCH_TEXT[case]
    assert found(library, "match_text($d.body, $q)", "$q: String", q=query) == list(expected)


@each_case("case", FUZZY)
def test_fuzzy_finds_raw_words_within_some_edits(library: Graph, case: str):
    query, edits, expected = FUZZY[case]
    clauses, declared = "fuzzy($d.body, $q, $n)", "$q: String, $n: I32"
    assert found(library, clauses, declared, q=query, n=edits) == list(expected)
    if edits == 2:
        assert found(library, "fuzzy($d.body, $q)", "$q: String", q=query) == list(expected)


@each_case("clauses", CONJUNCTIONS)
def test_all_text_conditions_on_one_variable_apply(library: Graph, clauses: str):
    assert found(library, clauses.replace("$d.plain", "$d.body")) == list(CONJUNCTIONS[clauses])


def test_an_index_that_caught_up_with_updates_matches_as_no_index_does(tmp_path: Path):
    with LIBRARY.build(tmp_path, State.GROWN, catches_up=True) as library:
        got = {q: found(library, "search($d.body, $q)", "$q: String", q=q) for q, _ in SEARCH.values()}
        assert got == {q: list(expected) for q, expected in SEARCH.values()}
        got = {q: found(library, "match_text($d.body, $q)", "$q: String", q=q) for q, _ in MATCH_TEXT.values()}
        assert got == {q: list(expected) for q, expected in MATCH_TEXT.values()}


def test_a_document_whose_words_changed_is_found_once_and_by_its_new_words_only(tmp_path: Path):
    with new_graph(tmp_path, doc("a", "old word"), doc("b", "other")) as graph:
        graph.ensure_indices()
        set_body(graph, "a", "new word")
        graph.ensure_indices()
        assert found(graph, 'search($d.body, "new")') == ["a"]
        assert found(graph, 'search($d.body, "word")') == ["a"]
        assert found(graph, 'search($d.body, "old")') == []


def test_a_document_that_changes_often_is_found_by_its_last_words_only(tmp_path: Path):
    words = ["apple", "pear", "plum", "fig"]
    with new_graph(tmp_path, doc("a", "nut"), doc("b", "nut")) as graph:
        graph.ensure_indices()
        for number, word in enumerate(words):
            set_body(graph, "a", f"fresh {word}")
            for _ in range(2):
                assert found(graph, 'search($d.body, "nut")') == ["b"]
                for other in words:
                    expected = ["a"] if other == word else []
                    assert found(graph, "search($d.body, $w)", "$w: String", w=other) == expected
                if number % 2:
                    graph.ensure_indices()


def test_a_branch_that_caught_up_forgets_old_words_and_its_base_does_not(tmp_path: Path):
    with new_graph(tmp_path, doc("a", "old word"), doc("b", "other")) as graph:
        graph.ensure_indices()
        graph.create_branch("dev")
        set_body(graph, "a", "new word", branch="dev")
        for _ in range(2):
            for word, dev, main in (("old", [], ["a"]), ("new", ["a"], []), ("word", ["a"], ["a"])):
                clauses = f'search($d.body, "{word}")'
                assert found(graph, clauses, target={"branch": "dev"}) == dev
                assert found(graph, clauses) == main
            graph.ensure_indices("dev")


@each_case("function", ["search", "match_text", "fuzzy"])
def test_a_property_without_an_index_is_searched_alike(library: Graph, function: str):
    for query in ("quick", "brown fox", "graph", "lazy dog", "the"):
        declared = "$q: String"
        expected = found(library, f"{function}($d.body, $q)", declared, q=query)
        got = found(library, f"{function}($d.plain, $q)", declared, q=query)
        # `plain` keeps the text with which a document was inserted.
        unchanged = set(LIBRARY.before) | set(LIBRARY.after)
        assert [s for s in got if s in unchanged] == [s for s in expected if s in unchanged]


@each_case("function", ["search", "match_text", "fuzzy"])
def test_a_null_query_matches_nothing(library: Graph, function: str):
    clauses = f"{function}($d.body, $q)"
    assert found(library, clauses, "$q: String?") == []
    assert found(library, clauses, "$q: String?", q=None) == []
    everybody = sorted(LIBRARY.bodies)
    assert found(library, f"not {{ {clauses} }}", "$q: String?") == everybody


def test_null_edits_match_nothing(library: Graph):
    assert found(library, 'fuzzy($d.body, "fox", $n)', "$n: I32?") == []


@each_case("function", ["search", "match_text", "fuzzy"])
def test_a_null_text_never_matches(library: Graph, function: str):
    words = {word for body in LIBRARY.bodies.values() if body for word in re.findall(r"\w+", body)}
    got = {slug for word in words for slug in found(library, f"{function}($d.body, $q)", "$q: String", q=word)}
    assert got <= {slug for slug, body in LIBRARY.bodies.items() if body}


def test_the_query_may_be_a_literal_with_quotes_and_escapes(library: Graph):
    assert found(library, r'search($d.body, "\"fox\" \\ theory")') == list("abdhikm")


def test_matches_are_exact_while_contains_and_starts_with_are_not_about_words(library: Graph):
    assert found(library, '$d.body contains "rown f"') == list("ad")
    assert found(library, '$d.body contains "brown"') == list("ahm")
    assert found(library, '$d.body starts_with "quick"') == list("hm")
    assert found(library, '$d.body starts_with "Quick"') == []
    assert found(library, '$d.body contains "%"') == []
    assert found(library, '$d.body contains "q_ick"') == []


# ---- where the variable comes from


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[State, Graph]]:
    """`a` cites `b` twice and `c`; tags share words and keys with documents."""

    def first(graph: Graph) -> None:
        write(
            graph,
            doc("a", "red apple"),
            doc("b", "old words"),
            doc("c", "green pear"),
            tag("a", "fruit of trees"),
            tag("t"),
        )

    def then(graph: Graph) -> None:
        write(
            graph,
            doc("d", "red wine"),
            tag("u", "drinks"),
            cites("a", "b", "x"),
            cites("a", "b", "y"),
            cites("a", "c"),
            cites("d", "a"),
            cites("c", "c"),
            tagged("a", "a"),
            tagged("c", "a"),
            tagged("d", "u"),
            tagged("b", "t"),
        )
        set_body(graph, "b", "red cherries")

    yield from in_states(tmp_path_factory.mktemp("linked"), first, then)


links = in_each_state("linked")


@each_case(
    ("clauses", "expected"),
    [
        ('$d cites $e  search($e.body, "red")', "ad"),
        ('$d cites $e  search($e.body, "old")', ""),
        ('$d $w:cites $e  search($e.body, "red")', "aad"),
        ('$d cites $e  search($e.body, "red")  search($d.body, "apple")', "a"),
        ('$d cites{1,2} $e  match_text($e.body, "red cherries")', "ad"),
        ('$d cites $e  fuzzy($e.body, "peer", 1)', "ac"),
        ('$d tagged $t  search($t.about, "fruits tree")', "ac"),
        ('$e cites $d  search($e.body, "red")', "abc"),
        ('$e cites $d  search($e.body, "red")  search($d.body, "red")', "ab"),
        ('not { $d cites $e  search($e.body, "red") }', "bc"),
        ('not { $d tagged $t  search($t.about, "fruit") }', "bd"),
        ('not { $d tagged $t  not { search($t.about, "fruit") } }', "ac"),
        ('$d cites $e  not { search($e.body, "red") }', "ac"),
        ('$d <cites> $e  search($e.body, "wine")', "a"),
    ],
)
def test_a_text_condition_applies_wherever_its_variable_was_introduced(links: Graph, clauses: str, expected: str):
    assert found(links, clauses) == list(expected)


def test_text_conditions_on_two_unconnected_variables_form_a_product(links: Graph):
    pairs = rows(
        links,
        'match { $d: Doc  $t: Tag  search($d.body, "red")  search($t.about, "fruit drinks") }'
        " return { $d.slug as d, $t.name as t }",
    )
    expected = [(d, t) for d in "abd" for t in "au"]
    assert sorted((row["d"], row["t"]) for row in pairs) == expected


def test_matches_can_be_counted(links: Graph):
    (row,) = rows(links, 'match { $d: Doc  search($d.body, "red") } return { count($d) as n }')
    assert row == {"n": 3}


def test_a_limit_without_an_order_cuts_matches(links: Graph):
    got = rows(links, 'match { $d: Doc  search($d.body, "red") } return { $d.slug as s } limit 2')
    assert len(got) == 2
    assert {row["s"] for row in got} < set("abd")


# ---- refusals


@each_case(
    ("clauses", "code"),
    [
        ("search($d.body, 3)", "T19"),
        ('search($d.year, "3")', "T19"),
        ('search($d.lang, "en")', "T19"),
        ('search($d.vec, "en")', "T19"),
        ('fuzzy($d.body, "x", 1.5)', "T19"),
        ('fuzzy($d.body, "x", "1")', "T19"),
        ('match_text($d.year, "3")', "T20"),
        ("match_text($d.body, 3)", "T20"),
        ('$d $c:cites $e  search($c.why, "x")', "T23"),
        ('$d $c:cites $e  fuzzy($c.why, "x")', "T23"),
        ('bm25($d.body, "x")', "Q112"),
    ],
)
def test_a_text_condition_that_makes_no_sense_is_a_compile_error(linked: dict[State, Graph], clauses: str, code: str):
    with pytest.raises(CompilerError) as caught:
        found(linked[State.NONE], clauses)
    assert [item.code for item in caught.value.diagnostics] == [code]


# ---- random histories

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen")


def random_library(rng: random.Random) -> Library:
    def text() -> str | None:
        length = rng.choice((0, 1, 1, 2, 3, 4, 6, None))
        return None if length is None else " ".join(rng.choices(WORDS, k=length))

    groups = {part: rng.randrange(1, 7) for part in ("before", "after", "outdated", "doomed")}
    names = {part: [f"{part[0]}{n}" for n in range(size)] for part, size in groups.items()}
    return Library(
        before={name: text() for name in names["before"]},
        after={name: text() for name in names["after"]},
        outdated={name: (text(), text()) for name in names["outdated"]},
        doomed={name: text() for name in names["doomed"]},
    )


def check_random_history(folder: Path, seed: int, *, catches_up: bool = False) -> None:
    rng = random.Random(seed)
    library = random_library(rng)
    words = {slug: (body or "").split() for slug, body in library.bodies.items()}
    queries = [" ".join(rng.choices(WORDS, k=rng.choice((1, 1, 2, 3)))) for _ in range(6)]
    for state in [State.GROWN] if catches_up else State:
        with library.build(folder / str(seed), state, catches_up=catches_up) as graph:
            for query in queries:
                wanted = query.split()
                any_word = sorted(s for s, body in words.items() if set(wanted) & set(body))
                phrase = sorted(s for s, body in words.items() if f" {query} " in f" {' '.join(body)} ")
                declared = "$q: String"
                assert found(graph, "search($d.body, $q)", declared, q=query) == any_word
                assert found(graph, "match_text($d.body, $q)", declared, q=query) == phrase
                assert found(graph, "fuzzy($d.body, $q, 0)", declared, q=query) == any_word
                rest = sorted(set(words) - set(any_word))
                assert found(graph, "not { search($d.body, $q) }", declared, q=query) == rest


@pytest.mark.parametrize("seed", range(2))
def test_no_history_and_no_state_of_the_index_changes_the_matches(tmp_path: Path, seed: int):
    check_random_history(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 60))
def test_no_history_and_no_state_of_the_index_changes_the_matches_of_many(tmp_path: Path, seed: int):
    check_random_history(tmp_path, seed)


def test_no_history_changes_the_matches_of_an_index_that_caught_up(tmp_path: Path):
    for seed in range(3):
        check_random_history(tmp_path, seed, catches_up=True)
