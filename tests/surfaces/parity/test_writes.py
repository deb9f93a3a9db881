"""Writes to twin graphs, directly and through a server, give the same receipts and leave the same graphs.

The calls of a story build on each other, on both twins alike.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from support.parity import ADD, SCHEMA, exported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.parity import Pair

    Story = dict[str, Callable[[Any], object]]

SET_AGE = (
    "query set_age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
)
WROTE = "query wrote($who: String, $what: String) { insert Wrote { from: $who, to: $what } }"


def person(name: str, **values: object) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **values}})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    (root / "good.jsonl").write_text(f"{person('kurt', age=71)}\n\n{person('ada', age=38)}")
    (root / "bad.jsonl").write_text(
        "\n".join([person("x", agee=1), "{", '{"type": "Persn", "data": {}}', person("y", age="z")])
    )
    many = root / "many"
    many.mkdir()
    (many / "a.jsonl").write_text(person("a1"))
    (many / "b.jsonl.gz").write_bytes(gzip.compress(f"{person('b1')}\n{person('b2')}".encode()))
    (many / "c.ndjson").write_text(f"\ufeff{person('c1')}\n")
    wrong = root / "wrong"
    wrong.mkdir()
    (wrong / "a.jsonl").write_text(person("a2"))
    (wrong / "b.jsonl").write_text(f"{person('b3')}\n{person('b4', age='x')}\n")
    (wrong / "c.jsonl").write_text(json.dumps({"edge": "Wrote", "from": "z", "to": "10.1"}))
    (root / "old.json").write_text(f"// old\n{person('old', age=1)} {person('older', age='x')}")
    (root / "new.pg").write_text(SCHEMA.replace("year: I32?", "year: I32?  title: String"))
    (root / "bad.pg").write_text("node Person {\n  name: Strin @key\n}")
    return root


def play(twins: Pair, story: Story) -> None:
    for name, call in story.items():
        remote, embedded = twins.neutral_outcomes(call)
        assert remote == embedded, name
    remote, embedded = twins.neutral_outcomes(exported)
    assert remote == embedded, "what the story left on main"
    remote, embedded = twins.neutral_outcomes(lambda graph: graph.log())
    assert remote == embedded, "the history that the story made"


def test_mutations(twins: Pair) -> None:
    def conditional(graph: Any) -> object:
        head = graph.snapshot().commit_id
        return graph.mutate(SET_AGE, {"name": "alan", "age": 1}, if_commit=head)

    story: Story = {
        "insert": lambda g: g.mutate(ADD, {"name": "new", "age": 3}),
        "update": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 4}, branch="draft/one"),
        "nothing matches": lambda g: g.mutate(SET_AGE, {"name": "nobody", "age": 4}),
        "one of several": lambda g: g.mutate(ADD + SET_AGE, {"name": "two"}, name="add"),
        "a condition that holds": conditional,
        "a condition that does not": lambda g: g.mutate(
            ADD, {"name": "never"}, if_commit=g.commits()[-1].commit_id
        ),
        "a condition that is no commit": lambda g: g.mutate(ADD, {"name": "no"}, if_commit="no"),
        "an end that is missing": lambda g: g.mutate(WROTE, {"who": "ada", "what": "10.9"}),
        "reads and writes mixed": lambda g: g.mutate(
            'query m() { insert Person { name: "m" } delete Person where name = "m" }'
        ),
        "a read": lambda g: g.mutate("query r() { match { $p: Person } return { $p.name } }"),
        "wrong": lambda g: g.mutate("query w() { insert Persn { name: 1 } }"),
        "a wrong value": lambda g: g.mutate(ADD, {"name": "x", "age": "old"}),
        "no branch": lambda g: g.mutate(ADD, {"name": "x"}, branch="nowhere"),
        "delete": lambda g: g.mutate('query d() { delete Person where name = "new" }'),
    }
    play(twins, story)


def test_loads(twins: Pair, files: Path) -> None:
    def load(source: object, **options: Any) -> Callable[[Any], object]:
        return lambda graph: graph.load(source, engine="local", **options)

    story: Story = {
        "a dry run": load(files / "good.jsonl", mode="merge", dry_run=True),
        "merge": load(files / "good.jsonl", mode="merge"),
        "append what exists": load(files / "good.jsonl", mode="append"),
        "wrong records": load(files / "bad.jsonl", mode="merge"),
        "many files": load(files / "many", mode="append"),
        "a pattern": load(str(files / "many" / "*.jsonl"), mode="merge"),
        "many wrong files": load(files / "wrong", mode="merge"),
        "old files": load(files / "old.json", mode="merge", grammar="compatible"),
        "a missing branch": load(files / "good.jsonl", mode="merge", branch="fresh"),
        "a new branch": load(files / "good.jsonl", mode="overwrite", branch="fresh", base="main"),
        "no base": load(files / "good.jsonl", mode="merge", branch="other", base="nowhere"),
        "no file": load(files / "nothing.jsonl", mode="merge"),
        "no mode": load(files / "good.jsonl", mode="replace"),
        "no grammar": load(files / "good.jsonl", mode="merge", grammar="loose"),
        "no input": lambda graph: graph.load(mode="merge"),
    }
    play(twins, story)


def test_branches(twins: Pair) -> None:
    story: Story = {
        "create": lambda g: g.create_branch("left"),
        "create from a branch": lambda g: g.create_branch("right/hand", "left"),
        "create from a commit": lambda g: g.create_branch("past", g.commits()[0].commit_id),
        "taken": lambda g: g.create_branch("left"),
        "no base": lambda g: g.create_branch("x", "nowhere"),
        "no commit": lambda g: g.create_branch("x", "01K0000000000000000000000A"),
        "no name": lambda g: g.create_branch("a b"),
        "list": lambda g: g.branches(),
        "up to date": lambda g: g.merge("left"),
        "change left": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 100}, branch="left"),
        "preview": lambda g: g.merge("left", dry_run=True),
        "fast": lambda g: g.merge("left"),
        "change right": lambda g: g.mutate(SET_AGE, {"name": "ada", "age": 7}, branch="right/hand"),
        "conflicts": lambda g: g.merge("right/hand"),
        "a preview of conflicts": lambda g: g.merge("right/hand", dry_run=True),
        "no strategy": lambda g: g.merge("right/hand", strategy="mine"),
        "into itself": lambda g: g.merge("left", "left"),
        "from nowhere": lambda g: g.merge("nowhere"),
        "decided": lambda g: g.merge("right/hand", strategy="theirs", delete_branch=True),
        "delete": lambda g: g.delete_branch("past"),
        "delete main": lambda g: g.delete_branch("main"),
        "delete nothing": lambda g: g.delete_branch("nowhere"),
        "list again": lambda g: g.branches(),
    }
    play(twins, story)


def test_schema_changes(twins: Pair, files: Path) -> None:
    def without_branches(graph: Any) -> None:
        for name in reversed(graph.branches()):
            if name != "main":
                graph.delete_branch(name)

    fill = {"Paper.title": "doi"}
    story: Story = {
        "a wrong schema": lambda g: g.apply_schema(files / "bad.pg"),
        "a wrong text": lambda g: g.apply_schema("node Person { name: Strin }"),
        "no file": lambda g: g.apply_schema(files / "nothing.pg"),
        "branches": lambda g: g.apply_schema(files / "new.pg", backfill=fill),
        "delete the branches": without_branches,
        "unsupported": lambda g: g.apply_schema(files / "new.pg"),
        "a wrong backfill": lambda g: g.apply_schema(files / "new.pg", backfill={"A.b": "1"}),
        "violations": lambda g: g.apply_schema(SCHEMA.replace("year: I32?", "year: I32")),
        "applied": lambda g: g.apply_schema(files / "new.pg", backfill=fill, engine="local"),
        "applied again": lambda g: g.apply_schema(files / "new.pg"),
        "a hint without effect": lambda g: [
            warning.render()
            for warning in g.apply_schema(
                (files / "new.pg")
                .read_text()
                .replace("node Paper", 'node Paper @rename_from("Old")')
            ).plan.warnings
        ],
        "the schema": lambda g: g.schema,
    }
    play(twins, story)


def test_stored_mutations_are_mutations(twins: Pair) -> None:
    receipt = twins.remote.run("add_person", {"name": "stored"}, expect_mutation=True)
    assert (receipt.affected_nodes, receipt.commit.kind) == (1, "mutation")
    assert receipt.commit == twins.remote.commits()[0]
