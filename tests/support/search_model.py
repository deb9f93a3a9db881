"""What a search has to answer, in plain Python: terms, statistics over the rows that are there, ranks and ties.

Shares no code with the product. Texts are made of words whose terms are written down here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key
from math import fsum, isclose, log, sqrt
from typing import Any

#: Words, and the terms that they become with their places; the second number is how many places the word takes.
WORDS: dict[str, tuple[list[tuple[str, int]], int]] = {
    "graph": ([("graph", 0)], 1),
    "Graphs": ([("graph", 0)], 1),
    "graphing": ([("graph", 0)], 1),
    "lake": ([("lake", 0)], 1),
    "river": ([("river", 0)], 1),
    "résumé": ([("resum", 0)], 1),
    "Resume": ([("resum", 0)], 1),
    "re\u0301sume\u0301s": ([("resum", 0)], 1),
    "CAFÉ": ([("cafe", 0)], 1),
    "cafe": ([("cafe", 0)], 1),
    "the": ([], 1),
    "of": ([], 1),
    "x" * 50: ([("x" * 50, 0)], 1),
    "Łódź": ([("lodz", 0)], 1),
    "東京": ([("東京", 0)], 2),
    "東京都": ([("東京", 0), ("京都", 1)], 3),
    "京": ([("京", 0)], 1),
    "データベース": (
        [("デー", 0), ("ータ", 1), ("タベ", 2), ("ベー", 3), ("ース", 4)],
        6,
    ),
    "검색": ([("검색", 0)], 2),
}
#: Single characters that a stored word has beside its pairs.
SINGLES = {
    word: [(letter, at) for at, letter in enumerate(word)]
    for word in ("東京", "東京都", "データベース", "검색")
}
K1, B = 1.2, 0.75


def terms_of(text: str) -> list[tuple[str, int]]:
    """The terms of a text with their places."""
    found, at = [], 0
    for word in text.split():
        terms, width = WORDS[word]
        found += [(term, at + place) for term, place in terms]
        at += width
    return found


def singles_of(text: str) -> list[tuple[str, int]]:
    """The single characters of a stored text with their places."""
    found, at = [], 0
    for word in text.split():
        found += [(letter, at + place) for letter, place in SINGLES.get(word, [])]
        at += WORDS[word][1]
    return found


@dataclass
class Document:
    slug: str
    body: str | None
    year: int | None
    vec: list[float] | None


@dataclass
class Model:
    """The documents of a snapshot, and which cites which."""

    documents: dict[str, Document] = field(default_factory=dict)
    cites: set[tuple[str, str]] = field(default_factory=set)

    def copy(self) -> Model:
        return Model(dict(self.documents), set(self.cites))

    # ---- conditions

    def searches(self, slug: str, query: str) -> bool:
        body = self.documents[slug].body
        if body is None:
            return False
        stored = {term for term, _ in terms_of(body) + singles_of(body)}
        return any(term in stored for term, _ in terms_of(query))

    def matches_text(self, slug: str, query: str) -> bool:
        body = self.documents[slug].body
        wanted = terms_of(query)
        if body is None or not wanted:
            return False
        stored = set(terms_of(body) + singles_of(body))
        starts = [place - wanted[0][1] for term, place in stored if term == wanted[0][0]]
        return any(all((term, start + at) in stored for term, at in wanted) for start in starts)

    # ---- scores

    def bm25(self, query: str) -> dict[str, float]:
        texts = {slug: item.body for slug, item in self.documents.items() if item.body is not None}
        lengths = {slug: len(terms_of(text)) for slug, text in texts.items()}
        lengths = {slug: length for slug, length in lengths.items() if length}
        shares: dict[str, list[float]] = {}
        for term in {term for term, _ in terms_of(query)}:
            counts = {
                slug: sum(stored == term for stored, _ in terms_of(text) + singles_of(text))
                for slug, text in texts.items()
            }
            counts = {slug: count for slug, count in counts.items() if count}
            weight = log(1 + (len(lengths) - len(counts) + 0.5) / (len(counts) + 0.5))
            average = sum(lengths.values()) / len(lengths) if lengths else 1.0
            for slug, count in counts.items():
                norm = K1 * (1 - B + B * lengths[slug] / average)
                shares.setdefault(slug, []).append(weight * count * (K1 + 1) / (count + norm))
        return {slug: fsum(parts) for slug, parts in shares.items()}

    def nearest(self, query: list[float]) -> dict[str, float]:
        return {
            slug: sqrt(sum((a - b) ** 2 for a, b in zip(item.vec, query, strict=True)))
            for slug, item in self.documents.items()
            if item.vec is not None
        }


def in_order(scores: dict[str, float], *, ascending: bool) -> list[list[str]]:
    """Slugs best first; those of one score stand together, by name."""
    ordered = sorted(scores, key=lambda slug: (scores[slug] if ascending else -scores[slug], slug))
    classes: list[list[str]] = []
    for slug in ordered:
        if classes and isclose(scores[classes[-1][0]], scores[slug], rel_tol=1e-11, abs_tol=1e-15):
            classes[-1].append(slug)
        else:
            classes.append([slug])
    return [sorted(members) for members in classes]


def places_in(scores: dict[str, float], *, ascending: bool, depth: int) -> dict[str, int]:
    """The place of each of the best `depth` slugs; ties by name."""
    flat = [slug for members in in_order(scores, ascending=ascending) for slug in members]
    return {slug: place for place, slug in enumerate(flat[:depth])}


def compare_keys(left: Any, right: Any) -> int:
    """Null before everything."""
    if left == right:
        return 0
    if left is None or right is None:
        return -1 if left is None else 1
    return -1 if left < right else 1


@dataclass(frozen=True)
class Ranked:
    """A ranked query."""

    rank: str
    text: str
    vector: list[float]
    #: Keys behind the rank: `year`, `slug` or `other`, and whether they descend.
    keys: list[tuple[str, bool]]
    follows: bool
    year: int | None
    condition: str | None
    limit: int | None

    def to_text(self) -> str:
        parts = {
            "bm25": "bm25($d.body, $q)",
            "nearest": "nearest($d.vec, $v)",
            "rrf": "rrf(nearest($d.vec, $v), bm25($d.body, $q), 7)",
            "rrf2": "rrf(bm25($d.body, $q), nearest($d.vec, $v))",
        }
        columns = {"year": "$d.year", "slug": "$d.slug", "other": "$e.year"}
        clauses = ["$d: Doc"]
        if self.year is not None:
            clauses.append(f"$d.year = {self.year}")
        if self.condition is not None:
            clauses.append("search($d.body, $c)")
        if self.follows:
            clauses.append("$d cites $e")
        order = [parts[self.rank]]
        order += [f"{columns[key]} {'desc' if down else 'asc'}" for key, down in self.keys]
        other = ", $e.slug as e" if self.follows else ""
        limit = "" if self.limit is None else f" limit {self.limit}"
        return (
            "query q($q: String, $v: Vector(2), $c: String?) {"
            f" match {{ {'  '.join(clauses)} }}"
            f" return {{ $d.slug as d{other}, {parts[self.rank]} as score }}"
            f" order {{ {', '.join(order)} }}{limit} }}"
        )

    def expected(self, model: Model) -> list[dict[str, Any]]:
        rows = self._matches(model)
        scores, first, second = self._scores(model, {slug for slug, _ in rows})
        classes = in_order(scores, ascending=self.rank == "nearest")
        rank_of = {slug: number for number, members in enumerate(classes) for slug in members}
        rows = [row for row in rows if row[0] in rank_of]

        def value(row: tuple[str, str | None], key: str) -> Any:
            slug, other = row
            if key == "slug":
                return slug
            return model.documents[slug if key == "year" else str(other)].year

        def compare(left: tuple[str, str | None], right: tuple[str, str | None]) -> int:
            if rank_of[left[0]] != rank_of[right[0]]:
                return rank_of[left[0]] - rank_of[right[0]]
            for key, down in self.keys:
                found = compare_keys(value(left, key), value(right, key))
                if found:
                    return -found if down else found
            for places in (first, second):
                a, b = places.get(left[0], 1 << 30), places.get(right[0], 1 << 30)
                if a != b:
                    return a - b
            return -1 if left < right else int(left > right)

        rows.sort(key=cmp_to_key(compare))
        answer = []
        for slug, other in rows[: self.limit]:
            row: dict[str, Any] = {"d": slug, "score": scores[slug]}
            answer.append(row | ({"e": other} if self.follows else {}))
        return answer

    def _matches(self, model: Model) -> list[tuple[str, str | None]]:
        slugs = [
            slug
            for slug, item in model.documents.items()
            if (self.year is None or item.year == self.year)
            and (self.condition is None or model.searches(slug, self.condition))
        ]
        if not self.follows:
            return [(slug, None) for slug in slugs]
        return [(a, b) for a, b in model.cites if a in slugs and a != b]

    def _scores(
        self, model: Model, matched: set[str]
    ) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
        text = {slug: score for slug, score in model.bm25(self.text).items() if slug in matched}
        near = {
            slug: score for slug, score in model.nearest(self.vector).items() if slug in matched
        }
        if self.rank == "bm25":
            return text, {}, {}
        if self.rank == "nearest":
            return near, {}, {}
        depth = max(5 * (self.limit or 0), 50)
        by_text = places_in(text, ascending=False, depth=depth)
        by_vector = places_in(near, ascending=True, depth=depth)
        k, first, second = (
            (7, by_vector, by_text) if self.rank == "rrf" else (60, by_text, by_vector)
        )
        sums = {
            slug: sum(Fraction(1, k + p[slug] + 1) for p in (first, second) if slug in p)
            for slug in first.keys() | second.keys()
        }
        return {slug: float(total) for slug, total in sums.items()}, first, second
