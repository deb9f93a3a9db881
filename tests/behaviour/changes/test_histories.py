"""Random histories: every diff says what a slow comparison says, and every replay is its branch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, LoadRejectedError
from omnigraph.graph.graph import Graph
from support.change_feeds import (
    SCHEMA,
    NothingToCompact,
    Rows,
    apply,
    compact,
    compared,
    drop,
    images_of,
    knows,
    load,
    person,
    poll,
    rows_of,
    run,
    told,
)

NAMES = [f"p{number}" for number in range(7)]
STEPS = 14
#: Few, so that they meet.
MOST_BRANCHES = 4


class Story:
    """One graph with a random past; keeps what every commit looked like."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.graph = Graph.init(folder / "g.omni", SCHEMA)
        self.states: dict[str, Rows] = {}
        self._folder = folder
        self._random = Random(seed)

    def go_on(self) -> None:
        random, graph = self._random, self.graph
        branch = random.choice(graph.branches())
        step = random.choice(
            [
                *(self._insert, self._update, self._delete, self._connect),
                *(self._load, self._load, self._compact, self._branch, self._merge, self._merge),
            ]
        )
        # An end that is not there, an overwrite that would orphan edges: refusals are part of the past too.
        with suppress(BadRequestError, LoadRejectedError):
            step(branch)
        for name in graph.branches():
            commit = graph.snapshot(name).commit_id
            if commit not in self.states:
                self.states[commit] = rows_of(graph, name)

    def _insert(self, branch: str) -> None:
        age = self._random.randrange(3)
        run(self.graph, person(self._random.choice(NAMES), age), branch)

    def _update(self, branch: str) -> None:
        age, bound = self._random.randrange(3), self._random.randrange(3)
        self.graph.mutate(
            f"query q() {{ update Person set {{ age: {age} }} where age >= {bound} }}",
            branch=branch,
        )

    def _delete(self, branch: str) -> None:
        text = drop(self._random.choice(NAMES))
        self.graph.mutate(f"query q() {{ {text} }}", branch=branch)

    def _connect(self, branch: str) -> None:
        run(self.graph, knows(*self._random.sample(NAMES, 2)), branch)

    def _load(self, branch: str) -> None:
        mode = self._random.choice(["merge", "merge", "overwrite"])
        lines = [
            {"type": "Person", "data": {"name": name, "age": self._random.randrange(3)}}
            for name in self._random.sample(NAMES, 4)
        ]
        load(self.graph, self._folder, lines, mode, branch=branch)

    def _compact(self, branch: str) -> None:
        with suppress(NothingToCompact):
            compact(self.graph, branch)

    def _branch(self, branch: str) -> None:
        if len(self.graph.branches()) < MOST_BRANCHES:
            self.graph.create_branch(f"b{len(self.states)}", branch)

    def _merge(self, branch: str) -> None:
        others = [name for name in self.graph.branches() if name != branch]
        if others:
            strategy = self._random.choice(["ours", "theirs"])
            self.graph.merge(self._random.choice(others), branch, strategy=strategy)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 30))]
)
def test_diffs_and_replays_of_a_random_past_are_exact(tmp_path: Path, seed: int):
    story = Story(tmp_path, seed)
    for _ in range(STEPS):
        story.go_on()
    graph, states = story.graph, story.states
    for one, before in states.items():
        for other, after in states.items():
            diff = told(graph.diff(one, other))
            assert len(diff) == len(set(diff))
            assert set(diff) == compared(before, after)
    for branch in graph.branches():
        replayed: dict[str, dict[str, Any]] = {}
        blocks, _ = poll(graph, branch, start="beginning", limit=3)
        apply(blocks, replayed)
        assert {key: rows for key, rows in replayed.items() if rows} == images_of(graph, branch)
