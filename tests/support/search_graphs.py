"""Documents to search: their schema, short ways to write and to ask, and graphs in every state of the indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cmp_to_key
from math import fsum, isclose, log, sqrt
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph import Graph
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.transaction import Transaction
from omnigraph.core.ids import edge_table_key, node_table_key
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.writes.columns import rows_table

#: `body` is indexed as text, `plain` never is; the keys of the two types may be equal.
SCHEMA = """
node Doc {
    slug: String @key
    title: String? @index
    body: String? @index
    plain: String?
    lang: enum(de, en)? @index
    year: I32? @index
    vec: Vector(4)? @index
    far: Vector(4)?
}
node Tag {
    name: String @key
    about: String? @index
}
edge Cites: Doc -> Doc { why: String? }
edge Tagged: Doc -> Tag
"""

ZERO = "[0.0, 0.0, 0.0, 0.0]"

# ---- writing


def literal(value: object) -> str:
    """A value as the query language writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(literal(part) for part in value)}]"
    return str(value)


def insert(type_: str, **values: object) -> str:
    """An insert statement; what is None is left out."""
    given = ", ".join(f"{k}: {literal(v)}" for k, v in values.items() if v is not None)
    return f"insert {type_} {{ {given} }}"


def doc(slug: str, body: str | None = None, **values: object) -> str:
    return insert("Doc", slug=slug, body=body, **values)


def tag(name: str, about: str | None = None) -> str:
    return insert("Tag", name=name, about=about)


def cites(source: str, target: str, why: str | None = None) -> str:
    return f"insert Cites {{ from: {literal(source)}, to: {literal(target)}" + (
        " }" if why is None else f", why: {literal(why)} }}"
    )


def tagged(source: str, target: str) -> str:
    return f"insert Tagged {{ from: {literal(source)}, to: {literal(target)} }}"


def write(graph: Graph, *statements: str, branch: str = "main", **options: Any) -> Any:
    """All statements as one mutation."""
    text = "query write() {\n" + "\n".join(statements) + "\n}"
    return graph.mutate(text, branch=branch, **options)


def set_body(graph: Graph, slug: str, body: str | None, branch: str = "main") -> Any:
    text = "query w($s: String, $b: String?) { update Doc set { body: $b } where slug = $s }"
    return graph.mutate(text, {"s": slug, "b": body}, branch=branch)


def new_graph(folder: Path, *statements: str, name: str = "g.omni", schema: str = SCHEMA) -> Graph:
    graph = Graph.init(folder / name, schema)
    if statements:
        write(graph, *statements)
    return graph


def append(graph: Graph, branch: str = "main", **rows: Sequence[dict[str, Any]]) -> None:
    """Many rows in one commit, past the mutation language: nothing is validated, missing values are null."""
    transaction = Transaction(graph._core.environment, branch, kind=WriterKind.LOAD)
    snapshot = transaction.snapshot
    catalog = graph._core.schema_of(snapshot.schema_hash).catalog
    for name, given in rows.items():
        is_node = name in catalog.nodes
        definition = catalog.nodes[name] if is_node else catalog.edges[name]
        pin = snapshot.pins[(node_table_key if is_node else edge_table_key)(name)]
        empty = dict.fromkeys(definition.properties)
        full = [{**empty, **row} for row in given]
        transaction.stage(pin, stage_append(graph._core.open_table(pin), rows_table(definition, full)))
    transaction.commit()


def doc_row(slug: str, **values: Any) -> dict[str, Any]:
    """A document as `append` takes it."""
    return {"id": slug, "slug": slug, **values}


# ---- asking


def rows(graph: Graph, body: str, declared: str = "", /, **params: Any) -> list[dict[str, Any]]:
    """The rows of a read, given without its head."""
    return ask(graph, f"query q({declared}) {{ {body} }}", params)


def ask(graph: Graph, text: str, params: Any = None, **target: Any) -> list[dict[str, Any]]:
    return graph.query(text, params or {}, **target).to_pylist()


def table(graph: Graph, body: str) -> list[tuple[object, ...]]:
    """The values of the rows of a read, given without its head."""
    return [tuple(row.values()) for row in rows(graph, body)]


def found(graph: Graph, clauses: str, declared: str = "", /, target: Any = None, **params: Any) -> list[str]:
    """The slugs of all documents that satisfy clauses about `$d`, sorted; a repeated row shows twice."""
    text = f"query q({declared}) {{ match {{ $d: Doc  {clauses} }} return {{ $d.slug as s }} }}"
    return sorted(row["s"] for row in ask(graph, text, params, **(target or {})))


def ranked(
    graph: Graph, rank: str, clauses: str = "", *, limit: int | None = 10, declared: str = "", **params: Any
) -> list[str]:
    """The slugs of the documents in the order of a rank function; its score is not asked for."""
    cut = "" if limit is None else f"limit {limit}"
    text = f"""query q({declared}) {{
        match {{ $d: Doc  {clauses} }} return {{ $d.slug as s }} order {{ {rank} }} {cut}
    }}"""
    return [row["s"] for row in ask(graph, text, params)]


def scored(
    graph: Graph, rank: str, clauses: str = "", limit: int | None = 10, declared: str = "", **params: Any
) -> list[tuple[str, float]]:
    """Slugs and scores in the order of a rank function."""
    cut = "" if limit is None else f"limit {limit}"
    text = f"""query q({declared}) {{
        match {{ $d: Doc  {clauses} }} return {{ $d.slug as s, {rank} as score }} order {{ {rank} }} {cut}
    }}"""
    return [(row["s"], row["score"]) for row in ask(graph, text, params)]


def close_to(scores: Iterable[tuple[str, float]]) -> list[tuple[str, Any]]:
    """A ranking to compare others with: the same slugs in the same order, scores but for their last bits."""
    return [(slug, pytest.approx(score)) for slug, score in scores]


def index_names(graph: Graph, key: str, branch: str = "main") -> set[str]:
    return set(segments(graph, key, branch))


def segments(graph: Graph, key: str, branch: str = "main") -> dict[str, list[set[int]]]:
    """The fragments that each segment of each index covers, straight from Lance."""
    dataset = dataset_of(graph, graph.snapshot(branch), key)
    return {
        index.name: [set(segment.fragment_ids) for segment in index.segments] for index in dataset.describe_indices()
    }


def dataset_of(graph: Graph, snapshot: Snapshot, key: str) -> lance.LanceDataset:
    pin = snapshot.pins[key]
    uri = f"{graph.uri}/{pin.location}"
    if pin.branch is not None:
        uri = f"{uri}/tree/{pin.branch}"
    return lance.dataset(uri, version=pin.version)


# ---- the states of the indexes


class State(StrEnum):
    """How much of the data the indexes cover when it is searched."""

    NONE = "none"
    FULL = "full"
    #: Rows were added, updated and deleted after the indexes were built.
    HALF = "half"
    #: Rows were added and deleted, and the indexes caught up: they have two segments.
    GROWN = "grown"


#: Without indexes, with all of them, and with rows that came after them.
STATES = (State.NONE, State.FULL, State.HALF)


def in_states(
    folder: Path, first: Callable[[Graph], object], then: Callable[[Graph], object]
) -> Iterator[dict[State, Graph]]:
    """One content in these states, for a fixture: what a half covered graph has in its indexes, and what comes then."""
    graphs = {}
    for state in STATES:
        graph = graphs[state] = new_graph(folder, name=f"{state}.omni")
        first(graph)
        if state is State.HALF:
            graph.ensure_indices()
        then(graph)
        if state is State.FULL:
            graph.ensure_indices()
    yield graphs
    for graph in graphs.values():
        graph.close()


def in_each_state(fixture: str, states: Iterable[State] = STATES) -> Any:
    """A fixture that gives the graphs of another one, which has them by their states, one after the other."""

    @pytest.fixture(params=states)
    def graph(request: pytest.FixtureRequest) -> Graph:
        return request.getfixturevalue(fixture)[request.param]

    return graph


class Library:
    """One content in every state of the indexes.

    `before` is there when an index is built first, `outdated` too, but its bodies change afterwards; `doomed` is
    deleted afterwards, `after` is added. Whatever the state, the content is the same in the end.
    """

    def __init__(
        self,
        *,
        before: dict[str, str | None],
        after: dict[str, str | None],
        outdated: dict[str, tuple[str | None, str | None]],
        doomed: dict[str, str | None],
    ) -> None:
        self.before = before
        self.after = after
        self.outdated = outdated
        self.doomed = doomed
        #: The final content.
        self.bodies = before | after | {slug: new for slug, (_, new) in outdated.items()}

    def build(self, folder: Path, state: State | str, *, catches_up: bool = False) -> Graph:
        """A graph with the final content; `catches_up` builds the indexes twice, with updates in between."""
        updates_first = state == State.GROWN and not catches_up
        olds = {slug: new if updates_first else old for slug, (old, new) in self.outdated.items()}
        graph = new_graph(folder, *_docs(self.before | olds | self.doomed), name=f"{state}.omni")
        if state in (State.HALF, State.GROWN):
            graph.ensure_indices()
        if self.after:
            write(graph, *_docs(self.after))
        if not updates_first:
            for slug, (_, new) in self.outdated.items():
                set_body(graph, slug, new)
        if self.doomed:
            write(graph, *(f'delete Doc where slug = "{slug}"' for slug in self.doomed))
        if state in (State.FULL, State.GROWN):
            graph.ensure_indices()
        return graph


def _docs(bodies: dict[str, str | None]) -> Iterable[str]:
    return (doc(slug, body, plain=body) for slug, body in bodies.items())


# ---- What a search has to answer, in plain Python: terms, statistics over the rows that are there, ranks and ties


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
    "データベース": ([("デー", 0), ("ータ", 1), ("タベ", 2), ("ベー", 3), ("ース", 4)], 6),
    "검색": ([("검색", 0)], 2),
}
#: Single characters that a stored word has beside its pairs.
SINGLES = {
    word: [(letter, at) for at, letter in enumerate(word)] for word in ("東京", "東京都", "データベース", "검색")
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

    def _scores(self, model: Model, matched: set[str]) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
        text = {slug: score for slug, score in model.bm25(self.text).items() if slug in matched}
        near = {slug: score for slug, score in model.nearest(self.vector).items() if slug in matched}
        if self.rank == "bm25":
            return text, {}, {}
        if self.rank == "nearest":
            return near, {}, {}
        depth = max(5 * (self.limit or 0), 50)
        by_text = places_in(text, ascending=False, depth=depth)
        by_vector = places_in(near, ascending=True, depth=depth)
        k, first, second = (7, by_vector, by_text) if self.rank == "rrf" else (60, by_text, by_vector)
        sums = {
            slug: sum(Fraction(1, k + p[slug] + 1) for p in (first, second) if slug in p)
            for slug in first.keys() | second.keys()
        }
        return {slug: float(total) for slug, total in sums.items()}, first, second
