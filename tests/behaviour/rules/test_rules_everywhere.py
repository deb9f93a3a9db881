"""Every rule of a schema, held against every writer: each of them refuses, in the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import (
    BadRequestError,
    ConflictKind,
    LoadRejectedError,
    MergeConflictsError,
    SchemaViolationsError,
)
from omnigraph.graph.graph import Graph

#: A schema whose rules are off, and what each rule adds to it.
SCHEMA = """
node Book {
    name: String @key  stage: enum(draft, final)?  year: I32?  ratio: F32?  code: String?  room: String?
    slot: I32?  pages: I32?
}
node Author { name: String @key }
edge Wrote: Author -> Book { note: String? }
edge Cites: Book -> Book
"""
BASE = " ".join(
    [
        *(f'insert Book {{ name: "b{number}" }}' for number in range(1, 5)),
        *(f'insert Author {{ name: "a{number}" }}' for number in range(1, 4)),
    ]
)
MUTATE, APPEND, UPSERT, MERGE, SCHEMA_APPLY = "mutate", "append", "upsert", "merge", "schema apply"
LOADS = (APPEND, UPSERT)
EVERYWHERE = (MUTATE, *LOADS, MERGE, SCHEMA_APPLY)


@dataclass(frozen=True)
class Rule:
    """One rule, a write that breaks it, and the sentence about it."""

    #: The records that break the rule.
    records: tuple[dict[str, Any], ...]
    #: `{of}` stands for the entity, which a load does not know yet; `…` for a generated id.
    text: str
    #: What the schema says with the rule, instead of what.
    edit: tuple[str, str] = ("", "")
    #: Rows that are there before, as statements.
    there: str = ""
    conflict: ConflictKind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    writers: tuple[str, ...] = EVERYWHERE
    #: The stable name that reports count by, unless it begins the sentence.
    named: str = ""
    #: The type of the value that is not there.
    nothing: str = "I32?"

    @property
    def name(self) -> str:
        return self.named or self.text.partition(":")[0].replace("{of}", "")


def book(name: str, **data: object) -> dict[str, Any]:
    return {"type": "Book", "data": {"name": name, **data}}


def edge(name: str, source: str | None, target: str) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": {}}


def on_pages(rule: str) -> tuple[str, str]:
    return "pages: I32?", f"pages: I32? {rule}"


def on_wrote(cardinality: str) -> tuple[str, str]:
    return "-> Book {", f"-> Book {cardinality} {{"


UNIQUE, CARD = ConflictKind.UNIQUE_VIOLATION, ConflictKind.CARDINALITY_VIOLATION
ORPHAN = ConflictKind.ORPHAN_EDGE
#: Writers that no stored rows can surprise.
WRITING = (MUTATE, *LOADS)
RULES = {
    "required": Rule(
        (book("x", pages=None),),
        "missing value for Book.pages{of}: it may not be null",
        ("pages: I32?", "pages: I32"),
        # No table holds a row without it.
        writers=(*WRITING, SCHEMA_APPLY),
    ),
    "end of an edge": Rule(
        (edge("Wrote", None, "b1"),),
        "missing `from` of Wrote: an edge needs the id of a Author",
        writers=WRITING,
        nothing="String?",
    ),
    "enum": Rule(
        (book("x", stage="gone"),),
        "invalid enum value for Book.stage: 'gone' is not one of draft, final",
        writers=WRITING,
    ),
    "range": Rule(
        (book("x", year=1599),),
        "@range violation on Book.year: 1599{of} is outside 1600..2100",
        on_pages("@range(year, 1600..2100)"),
    ),
    "range without an upper bound": Rule(
        (book("x", ratio=0.1),),
        "@range violation on Book.ratio: 0.1{of} is outside 0.5..",
        on_pages("@range(ratio, 0.5..)"),
    ),
    "check": Rule(
        (book("x", code="low"),),
        "@check violation on Book.code: 'low'{of} does not match ^[A-Z]+$",
        on_pages('@check(code, "^[A-Z]+$")'),
    ),
    "unique": Rule(
        (book("x", code="c"),),
        "@unique violation on Book.code: 'c' belongs to 'x' and to 'y'",
        on_pages("@unique(code)"),
        'insert Book { name: "y", code: "c" }',
        UNIQUE,
    ),
    "unique within the write": Rule(
        (book("x", slot=7), book("y", slot=7)),
        "@unique violation on Book.slot: '7' belongs to 'x' and to 'y'",
        on_pages("@unique(slot)"),
        conflict=UNIQUE,
    ),
    "unique over two": Rule(
        (book("x", room="r", slot=1),),
        "@unique violation on Book.(room, slot): '(r, 1)' belongs to 'x' and to 'y'",
        on_pages("@unique(room, slot)"),
        'insert Book { name: "y", room: "r", slot: 1 }',
        UNIQUE,
    ),
    "unique over the ends": Rule(
        (edge("Wrote", "a1", "b1"),),
        "@unique violation on Wrote.(src, dst): '(a1, b1)' belongs to '…' and to '…'",
        ("note: String?", "note: String? @unique(src, dst)"),
        'insert Wrote { from: "a1", to: "b1" }',
        UNIQUE,
    ),
    **{
        end: Rule(
            (edge(kind, source, target),),
            f"edge {kind}{{edge}}: {column} 'b3' not found in Book",
            there='delete Book where name = "b3"',
            conflict=ORPHAN,
            writers=(*WRITING, MERGE),
            named=f"{column} of {kind} not found in Book",
        )
        for end, column, kind, source, target in (
            ("source", "src", "Cites", "b3", "b1"),
            ("target", "dst", "Wrote", "a1", "b3"),
        )
    },
    "too many edges": Rule(
        (edge("Wrote", "a1", "b2"),),
        "@card violation on edge Wrote: 'a1' has 2 edges, allowed are 0..1",
        on_wrote("@card(0..1)"),
        'insert Wrote { from: "a1", to: "b1" }',
        CARD,
    ),
    "too few edges": Rule(
        (edge("Wrote", "a1", "b1"),),
        "@card violation on edge Wrote: 'a1' has 1 edges, allowed are 2..",
        on_wrote("@card(2..)"),
        conflict=CARD,
    ),
    "edges of a source that does not exist": Rule(
        (edge("Wrote", "ghost", "b1"),),
        "edge Wrote{edge}: src 'ghost' not found in Author",
        on_wrote("@card(2..)"),
        conflict=ORPHAN,
        writers=(*WRITING, MERGE),
        named="src of Wrote not found in Author",
    ),
}

Told = tuple[str | None, str]


def strict_schema(rule: Rule) -> str:
    assert not rule.edit[0] or SCHEMA.count(rule.edit[0]) == 1
    return SCHEMA.replace(*rule.edit) if rule.edit[0] else SCHEMA


def statement(record: dict[str, Any], nothing: str | None = None) -> str:
    """The record as a statement; what is not there is left out, or given as a parameter."""
    values = dict(record["data"])
    if "edge" in record:
        values |= {"from": record["from"], "to": record["to"]}
    inner = ", ".join(
        f"{name}: {nothing if value is None else json.dumps(value)}"
        for name, value in values.items()
        if value is not None or nothing
    )
    return f"insert {record.get('type', record.get('edge'))} {{ {inner} }}"


def run(graph: Graph, statements: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {statements} }}", branch=branch)


def mutated(graph: Graph, rule: Rule, _: Path) -> list[Told]:
    """A parameter is a value that the compiler of the mutation does not see."""
    statements = " ".join(statement(record, "$nothing") for record in rule.records)
    text = statements.replace('"gone"', "$stage")
    params = {"stage": "gone", "nothing": None}
    with pytest.raises(BadRequestError) as caught:
        graph.mutate(f"query q($stage: String?, $nothing: {rule.nothing}) {{ {text} }}", params)
    return [(None, str(caught.value))]


def loaded(mode: str) -> Callable[[Graph, Rule, Path], list[Told]]:
    def load(graph: Graph, rule: Rule, folder: Path) -> list[Told]:
        path = folder / "in.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in rule.records))
        with pytest.raises(LoadRejectedError) as caught:
            graph.load(path, mode=mode, engine="local")
        report = caught.value.report
        assert report.total == 1
        assert [item.line for item in report.examples] == [len(rule.records)]
        return [(item.rule, item.message) for item in report.examples]

    return load


def merged(graph: Graph, rule: Rule, _: Path) -> list[Told]:
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("feature")
    assert caught.value.total == 1
    assert [item.kind for item in caught.value.conflicts] == [rule.conflict]
    return [(None, item.message) for item in caught.value.conflicts]


def applied(graph: Graph, rule: Rule, _: Path) -> list[Told]:
    with pytest.raises(SchemaViolationsError) as caught:
        graph.apply_schema(strict_schema(rule))
    report = caught.value.report
    assert report.total == len(report.examples)
    assert {item.source for item in report.examples} == {"graph"}
    return [(item.rule, item.message) for item in report.examples]


WRITERS = {MUTATE: mutated, APPEND: loaded("append"), UPSERT: loaded("merge"), MERGE: merged, SCHEMA_APPLY: applied}


def prepared(folder: Path, rule: Rule, writer: str, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The graph before the write; a merge finds the records on a branch that checked nothing."""
    graph = Graph.init(folder / "g.omni", SCHEMA if writer == SCHEMA_APPLY else strict_schema(rule))
    if not rule.name.startswith("missing value"):
        # The rows that are there have no value either.
        run(graph, BASE)
    if writer == MERGE:
        graph.create_branch("feature")
        with monkeypatch.context() as patch:
            patch.setattr("omnigraph.writes.mutation.validate", lambda *_: None)
            run(graph, " ".join(map(statement, rule.records)), "feature")
    if writer == SCHEMA_APPLY:
        run(graph, " ".join(map(statement, rule.records)))
    if rule.there:
        run(graph, rule.there)
    return graph


@pytest.mark.parametrize(
    ("name", "writer"), [(name, writer) for name, rule in RULES.items() for writer in rule.writers]
)
def test_a_rule_is_refused_in_the_same_words_by_every_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, writer: str
) -> None:
    rule = RULES[name]
    with prepared(tmp_path, rule, writer, monkeypatch) as graph:
        before = {branch: graph.commits(branch) for branch in graph.branches()}
        told = WRITERS[writer](graph, rule, tmp_path)
        assert {branch: graph.commits(branch) for branch in graph.branches()} == before
    is_load = writer in LOADS
    expected = rule.text.format(
        of="" if is_load or (name, writer) == ("required", MUTATE) else " of 'x'",
        edge=" '…'" if writer == MERGE else "",
    )
    for rule_name, message in told:
        assert re.sub(r"'[0-9A-Z]{26}'", "'…'", message.removeprefix("[OG-MF-104] ")) == expected
        assert rule_name is None or rule_name.removeprefix("[OG-MF-104] ") == rule.name
    assert len(told) == 1
