from __future__ import annotations

import pytest

from omnigraph.core.source import did_you_mean, one_of
from support.subtests import each_case


@each_case(
    ("name", "known", "hint"),
    [
        pytest.param("Papr", ["Paper", "Venue"], "did you mean `Paper`?", id="near"),
        pytest.param("paper", ["Paper", "Venue"], "did you mean `Paper`?", id="other case"),
        pytest.param("PAPER", ["Paper"], "did you mean `Paper`?", id="all capitals"),
        pytest.param(
            "X", ["Paper", "Author"], "known here: `Author`, `Paper`", id="far, few known"
        ),
        pytest.param("X", ["b", "a", "b"], "known here: `a`, `b`", id="repeated names"),
        pytest.param(
            "X",
            [f"name{i}" for i in range(8)],
            "known here: " + ", ".join(f"`name{i}`" for i in range(8)),
            id="eight known",
        ),
        pytest.param("X", [f"name{i}" for i in range(9)], None, id="nine known"),
        pytest.param("X", [], None, id="none known"),
        pytest.param("", ["Paper"], "known here: `Paper`", id="empty name"),
    ],
)
def test_a_hint_names_the_nearest_word_or_the_few_known(
    name: str, known: list[str], hint: str | None
) -> None:
    assert did_you_mean(name, known) == hint


def test_the_known_words_may_come_from_a_generator() -> None:
    assert did_you_mean("title2", (word for word in ("title",))) == "did you mean `title`?"


@each_case(
    ("phrases", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a or b"),
        (["a", "b", "c"], "a, b or c"),
        (["a", "b", "a"], "a or b"),
        (["a", "a"], "a"),
    ],
)
def test_an_enumeration_is_plain_english(phrases: list[str], text: str) -> None:
    assert one_of(phrases) == text
