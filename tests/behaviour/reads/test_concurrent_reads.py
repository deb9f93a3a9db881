"""Readers beside a writer: every answer is the truth of one commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest

from omnigraph.graph.graph import Graph
from support.graphs import new_graph

SCHEMA = """
node Left { k: I32 @key  round: I32 @index }
node Right { k: I32 @key  round: I32 }
edge Pair: Left -> Right
"""
#: Every write adds a pair and moves both sides to the next round, in two types and an edge type, as one commit.
WRITE = """
query next($k: I32) {
  insert Left { k: $k, round: $k }
  insert Right { k: $k, round: $k }
  insert Pair { from: $id, to: $id }
  update Left set { round: $k } where k >= 0
  update Right set { round: $k } where k >= 0
}
""".replace("($k: I32)", "($k: I32, $id: String)")
ROUNDS = 12
READERS = 8

#: Each query with its answer in round n.
QUERIES: list[tuple[str, Callable[[int], list[dict[str, Any]]]]] = [
    (
        "query counts() { match { $l: Left } return { count($l) as n } }",
        lambda n: [{"n": n}],
    ),
    (
        "query both() { match { $l: Left $r: Right $l.round = $r.round } return { count($l) as n } }",
        lambda n: [{"n": n * n}],
    ),
    (
        "query torn() { match { $l: Left $r: Right $l.round != $r.round } return { $l.k, $r.k } }",
        lambda _: [],
    ),
    (
        "query pairs() { match { $l: Left $l pair $r } return { $l.k as a, $r.k as b } order { a } }",
        lambda n: [{"a": k, "b": k} for k in range(1, n + 1)],
    ),
    (
        "query single() { match { $l: Left not { $l pair $_ } } return { $l.k } }",
        lambda _: [],
    ),
    (
        "query current() { match { $l: Left } return { max($l.round) as m, min($l.round) as n } }",
        lambda n: [{"m": n, "n": n} if n else {"m": None, "n": None}],
    ),
    (
        "query one() { match { $l: Left { k: 1 } } return { $l.round as r } }",
        lambda n: [{"r": n}] if n else [],
    ),
    (
        "query filtered() { match { $r: Right $r.round > 0 } return { $r.k as k } order { k } }",
        lambda n: [{"k": k} for k in range(1, n + 1)],
    ),
]


@pytest.mark.parametrize(
    "own_handle",
    [
        pytest.param(False, id="one handle", marks=pytest.mark.slow),
        pytest.param(True, id="two handles"),
    ],
)
def test_every_answer_belongs_to_one_commit(tmp_path, own_handle: bool) -> None:
    graph = new_graph(tmp_path, SCHEMA)
    readers = Graph.open(graph.uri, read_only=True) if own_handle else graph
    round_of = {graph.snapshot().commit_id: 0}
    start, done = Barrier(READERS + 1), Event()

    def write() -> None:
        start.wait()
        try:
            for number in range(1, ROUNDS + 1):
                receipt = graph.mutate(WRITE, {"k": number, "id": str(number)})
                round_of[receipt.commit.commit_id] = number
                if number % 5 == 0:
                    indexed = graph.ensure_indices()
                    round_of[indexed.commit.commit_id] = number
        finally:
            done.set()

    def read(first: int) -> list[tuple[int, str, list[dict[str, Any]]]]:
        answers = []
        start.wait()
        turn = first
        finished = False
        while not finished or turn < first + len(QUERIES):
            finished = done.is_set()
            place = turn % len(QUERIES)
            result = readers.query(QUERIES[place][0])
            answers.append((place, result.commit_id, result.to_pylist()))
            turn += 1
        return answers

    with ThreadPoolExecutor(READERS + 1) as pool:
        writer = pool.submit(write)
        reading = [pool.submit(read, number) for number in range(READERS)]
        writer.result()
        answers = [answer for future in reading for answer in future.result()]
    seen = set()
    for place, commit_id, rows in answers:
        text, expected = QUERIES[place]
        number = round_of[commit_id]
        assert rows == expected(number), (text, number)
        seen.add(number)
    assert ROUNDS in seen, "everybody read on until after the last write"
    assert len(seen) > 1, "reads and writes overlapped"
    readers.close()


def test_readers_of_one_old_commit_agree(tmp_path) -> None:
    """Eight threads fill the same caches of the same snapshot at once."""
    graph = new_graph(tmp_path, SCHEMA)
    for number in range(1, 4):
        receipt = graph.mutate(WRITE, {"k": number, "id": str(number)})
        if number == 2:
            commit_id = receipt.commit.commit_id
    start = Barrier(READERS)

    def read(first: int) -> list[list[dict[str, Any]]]:
        start.wait()
        order = [(first + step) % len(QUERIES) for step in range(len(QUERIES))]
        found = {place: graph.query(QUERIES[place][0], snapshot=commit_id) for place in order}
        return [found[place].to_pylist() for place in range(len(QUERIES))]

    with ThreadPoolExecutor(READERS) as pool:
        answers = list(pool.map(read, range(READERS)))
    expected = [expect(2) for _, expect in QUERIES]
    assert answers == [expected] * READERS
