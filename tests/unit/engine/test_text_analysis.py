"""What texts become: folding, words, pairs of characters, stems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.text_analysis import (
    MAX_QUERY_TERMS,
    STOP_WORDS,
    Term,
    analyse_query,
    analyse_run,
    query_terms,
    stem,
    words_of,
)
from omnigraph.errors import BadRequestError
from support.subtests import each_case

SAME = {
    "accents": ("résumé", "resume"),
    "accents that are characters of their own": ("re\u0301sume\u0301", "résumé"),
    "case": ("ΕΛΛΗΝΙΚΆ", "ελληνικα"),
    "a final letter of another form": ("ΟΔΟΣ", "οδος"),
    "letters that become two": ("Straße", "STRASSE"),
    "letters that have no accent to lose": ("Łódź Ærø", "lodz aero"),
    "a letter with a dot in upper case": ("İstanbul", "istanbul"),
    "wide letters and digits": ("ＡＢＣ１２３", "abc123"),
    "narrow katakana": ("ﾃﾞｰﾀ", "データ"),
    "voiced kana in two characters": ("か\u3099", "が"),
    "ligatures": ("ﬁle", "file"),
    "Hangul in single letters": ("\u1112\u1161\u11ab", "한"),
    "Cyrillic": ("ёлка", "ЕЛКА"),
}


@each_case(("left", "right"), SAME.values(), ids=SAME)
def test_spellings_of_one_word_are_the_same_words(left: str, right: str):
    assert words_of(left) == words_of(right) != []
    assert analyse_query(left) == analyse_query(right)


@each_case(
    ("text", "expected"),
    [
        ("e-mail me: don't; 3.14", ["e", "mail", "me", "don", "t", "3", "14"]),
        ("snake_case/path\\x", ["snake", "case", "path", "x"]),
        ("tower東京2024", ["tower", "東京", "2024"]),
        ("—“quoted”…", ["quoted"]),
        ("❤️ ok \u0301", ["ok"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("", []),
        ("?! \n\t", []),
    ],
)
def test_words_are_runs_of_letters_digits_and_marks(text: str, expected: list[str]):
    assert words_of(text) == expected


def test_scripts_without_blanks_become_overlapping_pairs_and_single_characters():
    stored = analyse_run("東京都")
    assert stored.terms == (
        Term("東京", 0),
        Term("京都", 1),
        Term("東", 0, is_counted=False),
        Term("京", 1, is_counted=False),
        Term("都", 2, is_counted=False),
    )
    assert stored.width == 3
    assert analyse_query("東京都").terms == stored.terms[:2]
    assert analyse_query("東 京").terms == (Term("東", 0), Term("京", 1))
    assert analyse_run("東").terms == (Term("東", 0),)


@each_case("length", [1, 39, 40, 41, 64, 65, 500])
def test_a_word_of_any_length_is_a_term(length: int):
    assert query_terms("x" * length) == ["x" * length]
    assert len(query_terms("東京" * length)) == (1 if length == 1 else 2)


def test_stop_words_take_a_position_and_are_no_terms():
    assert analyse_query("the art of war").terms == (Term("art", 1), Term("war", 3))
    assert analyse_query("the art of war").width == 4
    assert query_terms(" ".join(STOP_WORDS)) == []


def test_a_query_has_a_bounded_number_of_terms():
    assert len(analyse_query("x " * MAX_QUERY_TERMS).terms) == MAX_QUERY_TERMS
    with pytest.raises(BadRequestError, match="fewer words"):
        query_terms("x " * (MAX_QUERY_TERMS + 1))


def test_terms_of_a_query_are_distinct_and_in_a_fixed_order():
    assert query_terms("Graphs of graph, vector graphing") == ["graph", "vector"]


STEMS = {
    "caresses": "caress", "ponies": "poni", "ties": "tie", "cries": "cri", "gas": "gas", "gaps": "gap",
    "agreed": "agre", "feed": "feed", "hopping": "hop", "hoping": "hope", "added": "add",
    "luxuriated": "luxuri", "happy": "happi", "say": "say", "by": "by", "generation": "generat",
    "generous": "generous", "relational": "relat", "rationalize": "ration", "databases": "databas",
    "database": "databas", "hopefulness": "hope", "controlling": "control", "running": "run",
    "skies": "sky", "news": "news", "dying": "die", "inning": "inning", "proceeds": "proceed",
    "knightly": "knight", "analogies": "analog", "quickly": "quick", "yes": "yes", "a1b": "a1b",
    "naïve": "naïve", "be": "be", "rate": "rate", "controll": "control",
}  # fmt: skip


@each_case(("word", "expected"), STEMS.items())
def test_forms_of_an_english_word_have_one_stem(word: str, expected: str):
    assert stem(word) == expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_what_stands_in_a_text_is_found_there(left: str, right: str):
    """The terms of a text are those of its runs, so a query finds every text that begins or ends with it."""
    both = analyse_query(f"{left} {right}")
    first = analyse_query(left)
    assert both.terms[: len(first.terms)] == first.terms
    assert both.width == first.width + analyse_query(right).width


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_folding_again_changes_nothing(text: str):
    words = words_of(text)
    assert words_of(" ".join(words)) == words
