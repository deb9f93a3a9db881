"""Segments of texts: cut, analysed, packed, and asked."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.engine.text_analysis import analyse_query, analyse_run, query_terms
from omnigraph.engine.text_columns import LiveSegment, TextColumn
from omnigraph.engine.text_segments import build_segment, pack_segments, split_runs, unpack_segments
from support.subtests import each_case

TEXTS = st.lists(
    st.one_of(
        st.none(),
        st.text(alphabet="ab B-é東京 1", max_size=12),
        st.text(alphabet=st.characters(codec="utf-8"), max_size=8),
    ),
    max_size=12,
)


def lowered(run: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in run)


@given(TEXTS, st.integers(0, 3))
def test_runs_are_cut_at_ascii_separators_and_belong_to_their_text(
    texts: list[str | None], skipped: int
):
    runs = split_runs(pa.array(texts, pa.string()).slice(skipped))
    got = [
        (int(text), runs.distinct[code]) for text, code in zip(runs.texts, runs.codes, strict=True)
    ]
    expected = [
        (number, lowered(run))
        for number, text in enumerate(texts[skipped:])
        for run in re.findall("[0-9A-Za-z\x80-\U0010ffff]+", text or "")
    ]
    assert got == expected
    assert len(set(runs.distinct)) == len(runs.distinct)


@given(TEXTS)
def test_postings_are_the_terms_of_each_text(texts: list[str | None]):
    segment = build_segment(pa.array(texts, pa.string()))
    expected: dict[str, list[tuple[int, int]]] = {}
    for number, text in enumerate(texts):
        at = 0
        length = 0
        for run in re.findall("[0-9A-Za-z\x80-\U0010ffff]+", text or ""):
            analysed = analyse_run(lowered(run))
            for term in analysed.terms:
                expected.setdefault(term.text, []).append((number, at + term.position))
                length += term.is_counted
            at += analysed.width
        assert segment.lengths[number] == length
    assert len(segment.term_ends) == len(expected)
    for term, occurrences in expected.items():
        postings = segment.postings(term.encode())
        owners, positions = segment.occurrences(postings)
        assert list(zip(owners.tolist(), positions.tolist(), strict=True)) == occurrences
        assert segment.texts[postings].tolist() == sorted({number for number, _ in occurrences})
        counts = segment.frequencies(postings).tolist()
        assert sum(counts) == len(occurrences)
        assert all(counts)
    for absent in (b"", b"zzz", "\U0010ffff".encode()):
        if absent.decode() not in expected:
            assert segment.postings(absent) == slice(0, 0)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_packed_segments_are_the_same_segments(groups: list[list[str | None]]):
    segments = [build_segment(pa.array(texts, pa.string())) for texts in groups]
    again = unpack_segments(pack_segments(segments))
    assert again is not None
    assert len(again) == len(segments)
    for one, other in zip(segments, again, strict=True):
        for name in one.__slots__:
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_arrays_of_something_else_are_no_segments():
    packed = pack_segments([build_segment(pa.array(["a b", "c"]))])
    for name in packed:
        assert unpack_segments({key: packed[key] for key in packed if key != name}) is None
    assert unpack_segments(packed | {"texts-ends": np.array([1, 2, 3])}) is None


@each_case(
    "name",
    ["term_ends", "posting_ends", "texts", "position_ends", "lengths", "texts-ends"],
)
@each_case("value", [-1, 1 << 30])
def test_numbers_that_lead_nowhere_are_no_segments(name: str, value: int):
    packed = pack_segments([build_segment(pa.array(["a b", "c d"]))])
    forged = packed[name].copy()
    forged[-1] = value
    if (name, value) != ("lengths", 1 << 30):
        assert unpack_segments(packed | {name: forged}) is None
    assert unpack_segments(packed | {name: packed[name].astype(np.float64)}) is None


def column(texts: list[str | None], width: int, dead: frozenset[int] = frozenset()) -> TextColumn:
    """Texts in segments of a width; the row id of a text is 100 minus its number."""
    segments = []
    for start in range(0, len(texts), width):
        part = texts[start : start + width]
        row_ids = [-1 if start + at in dead else 100 - start - at for at in range(len(part))]
        segments.append(LiveSegment(build_segment(pa.array(part, pa.string())), np.array(row_ids)))
    return TextColumn(segments)


@each_case("query", ["red", "red fox", "red fox lake", "the", "nothing", "fox 東"])
def test_borders_of_segments_and_deleted_texts_change_no_score(query: str):
    alive = ["red fox", "red red lake", None, "", "fox", "the red", "東京 fox lake", "red fox"]
    texts: list[str | None] = []
    dead = set()
    for text in alive:
        texts += [text, "red fox lake 東京 dead"]
        dead.add(len(texts) - 1)
    terms = query_terms(query)
    expected = column(alive, 100).relevance(terms, Budget())
    by_text = {
        100 - int(row): score for row, score in zip(expected.row_ids, expected.scores, strict=True)
    }
    for width in (1, 3, 100):
        got = column(texts, width, frozenset(dead)).relevance(terms, Budget())
        found = {
            (100 - int(row)) // 2: score for row, score in zip(got.row_ids, got.scores, strict=True)
        }
        assert found == by_text, "to the last bit"
    assert by_text.get(0) == by_text.get(7)


def test_the_same_parts_make_the_same_sum_whatever_their_terms():
    texts: list[str | None] = ["one two three x", "three one two x", "two three one x", "y"]
    texts += [
        "one one one two two three",
        "two two two three three one",
        "three three three one one two",
    ]
    scores = column(texts, 2).relevance(query_terms("one two three"), Budget()).scores
    assert len(set(scores[:3].tolist())) == 1
    assert len(set(scores[3:].tolist())) == 1


def test_a_phrase_is_found_at_any_place_and_over_stop_words():
    texts: list[str | None] = [
        "art of war",
        "war of art",
        "the art and a war",
        "art art of war",
        "東京都庁",
    ]
    asked = column(texts, 2)
    assert asked.rows_with_phrase(analyse_query("art of war"), Budget()).tolist() == [97, 100]
    assert asked.rows_with_phrase(analyse_query("of the war of"), Budget()).tolist() == [
        97,
        98,
        99,
        100,
    ]
    assert asked.rows_with_phrase(analyse_query("京都"), Budget()).tolist() == [96]
    assert asked.rows_with_phrase(analyse_query("東都"), Budget()).tolist() == []
    assert asked.rows_with_phrase(analyse_query("of"), Budget()).tolist() == []
