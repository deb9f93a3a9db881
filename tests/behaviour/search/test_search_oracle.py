"""Searches of random graphs against plain Python: ties, updates, deletions, branches, every state of the indexes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.engine import text_parts, wanted_indexes
from support.search_model import WORDS, Document, Model, Ranked

SCHEMA = """
node Doc { slug: String @key  body: String? @index  year: I32? @index  vec: Vector(2)? @index }
edge Cites: Doc -> Doc
"""
SEEDS = [
    *range(6),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 200)),
]


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
                f'insert Doc {{ slug: "{item.slug}", body: $b{number},'
                f" year: $y{number}, vec: $v{number} }}"
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
        keys = [
            (name, chance.random() < 0.5) for name in chance.sample(names, chance.randint(0, 2))
        ]
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
            assert [(r["d"], r.get("e")) for r in got] == [
                (r["d"], r.get("e")) for r in expected
            ], shown
            assert [r["score"] for r in got] == pytest.approx([r["score"] for r in expected]), shown
            self.check_conditions(target, model)

    def check_conditions(self, target: dict[str, Any], model: Model) -> None:
        query = self.text(1, 3)
        for function, holds in (("search", model.searches), ("match_text", model.matches_text)):
            text = f"query q($q: String) {{ match {{ $d: Doc  {function}($d.body, $q) }} return {{ $d.slug as d }} }}"
            got = sorted(
                row["d"] for row in self.graph.query(text, {"q": query}, **target).to_pylist()
            )
            assert got == sorted(slug for slug in model.documents if holds(slug, query)), (
                function,
                query,
                target,
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_random_searches_answer_as_plain_python_does(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
):
    if seed % 2:
        # Terms of the smallest fragments lie on disk, and segments have borders.
        monkeypatch.setattr(text_parts, "PERSIST_MIN_ROWS", 1)
        monkeypatch.setattr(text_parts, "SEGMENT_ROWS", 7)
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
