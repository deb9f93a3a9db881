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
    LoadKeyConflictError,
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


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, a write that breaks it, and the sentence about it."""

    #: What the schema says with the rule, instead of what.
    edit: tuple[str, str] = ("", "")
    #: Rows that are there before, as statements.
    there: str = ""
    #: The records that break the rule.
    records: tuple[dict[str, Any], ...]
    #: The stable name that reports count by.
    name: str
    #: `{of}` stands for the entity, which a load does not know yet; `…` for a generated id.
    text: str
    writers: tuple[str, ...] = EVERYWHERE
    conflict: ConflictKind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    #: The type of the value that is not there.
    nothing: str = "I32?"


def book(name: str, **data: object) -> dict[str, Any]:
    return {"type": "Book", "data": {"name": name, **data}}


def edge(name: str, source: str | None, target: str) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": {}}


PAGES = "pages: I32?"
RULES = {
    "required": Rule(
        edit=(PAGES, "pages: I32"),
        records=(book("x", pages=None),),
        name="missing value for Book.pages",
        text="missing value for Book.pages{of}: it may not be null",
        # No table holds a row without it.
        writers=(MUTATE, *LOADS, SCHEMA_APPLY),
    ),
    "end of an edge": Rule(
        records=(edge("Wrote", None, "b1"),),
        name="missing `from` of Wrote",
        text="missing `from` of Wrote: an edge needs the id of a Author",
        writers=(MUTATE, *LOADS),
        nothing="String?",
    ),
    "enum": Rule(
        records=(book("x", stage="gone"),),
        name="invalid enum value for Book.stage",
        text="invalid enum value for Book.stage: 'gone' is not one of draft, final",
        writers=(MUTATE, *LOADS),
    ),
    "range": Rule(
        edit=(PAGES, f"{PAGES} @range(year, 1600..2100)"),
        records=(book("x", year=1599),),
        name="@range violation on Book.year",
        text="@range violation on Book.year: 1599{of} is outside 1600..2100",
    ),
    "range without an upper bound": Rule(
        edit=(PAGES, f"{PAGES} @range(ratio, 0.5..)"),
        records=(book("x", ratio=0.1),),
        name="@range violation on Book.ratio",
        text="@range violation on Book.ratio: 0.1{of} is outside 0.5..",
    ),
    "check": Rule(
        edit=(PAGES, f'{PAGES} @check(code, "^[A-Z]+$")'),
        records=(book("x", code="low"),),
        name="@check violation on Book.code",
        text="@check violation on Book.code: 'low'{of} does not match ^[A-Z]+$",
    ),
    "unique": Rule(
        edit=(PAGES, f"{PAGES} @unique(code)"),
        there='insert Book { name: "y", code: "c" }',
        records=(book("x", code="c"),),
        name="@unique violation on Book.code",
        text="@unique violation on Book.code: 'c' belongs to 'x' and to 'y'",
        conflict=ConflictKind.UNIQUE_VIOLATION,
    ),
    "unique within the write": Rule(
        edit=(PAGES, f"{PAGES} @unique(slot)"),
        records=(book("x", slot=7), book("y", slot=7)),
        name="@unique violation on Book.slot",
        text="@unique violation on Book.slot: '7' belongs to 'x' and to 'y'",
        conflict=ConflictKind.UNIQUE_VIOLATION,
    ),
    "unique over two": Rule(
        edit=(PAGES, f"{PAGES} @unique(room, slot)"),
        there='insert Book { name: "y", room: "r", slot: 1 }',
        records=(book("x", room="r", slot=1),),
        name="@unique violation on Book.(room, slot)",
        text="@unique violation on Book.(room, slot): '(r, 1)' belongs to 'x' and to 'y'",
        conflict=ConflictKind.UNIQUE_VIOLATION,
    ),
    "unique over the ends": Rule(
        edit=("note: String?", "note: String? @unique(src, dst)"),
        there='insert Wrote { from: "a1", to: "b1" }',
        records=(edge("Wrote", "a1", "b1"),),
        name="@unique violation on Wrote.(src, dst)",
        text="@unique violation on Wrote.(src, dst): '(a1, b1)' belongs to '…' and to '…'",
        conflict=ConflictKind.UNIQUE_VIOLATION,
    ),
    "source": Rule(
        there='delete Book where name = "b3"',
        records=(edge("Cites", "b3", "b1"),),
        name="src of Cites not found in Book",
        text="edge Cites{edge}: src 'b3' not found in Book",
        writers=(MUTATE, *LOADS, MERGE),
        conflict=ConflictKind.ORPHAN_EDGE,
    ),
    "target": Rule(
        there='delete Book where name = "b3"',
        records=(edge("Wrote", "a1", "b3"),),
        name="dst of Wrote not found in Book",
        text="edge Wrote{edge}: dst 'b3' not found in Book",
        writers=(MUTATE, *LOADS, MERGE),
        conflict=ConflictKind.ORPHAN_EDGE,
    ),
    "too many edges": Rule(
        edit=("-> Book {", "-> Book @card(0..1) {"),
        there='insert Wrote { from: "a1", to: "b1" }',
        records=(edge("Wrote", "a1", "b2"),),
        name="@card violation on edge Wrote",
        text="@card violation on edge Wrote: 'a1' has 2 edges, allowed are 0..1",
        conflict=ConflictKind.CARDINALITY_VIOLATION,
    ),
    "too few edges": Rule(
        edit=("-> Book {", "-> Book @card(2..) {"),
        records=(edge("Wrote", "a1", "b1"),),
        name="@card violation on edge Wrote",
        text="@card violation on edge Wrote: 'a1' has 1 edges, allowed are 2..",
        conflict=ConflictKind.CARDINALITY_VIOLATION,
    ),
    "edges of a source that does not exist": Rule(
        edit=("-> Book {", "-> Book @card(2..) {"),
        records=(edge("Wrote", "ghost", "b1"),),
        name="src of Wrote not found in Author",
        text="edge Wrote{edge}: src 'ghost' not found in Author",
        writers=(MUTATE, *LOADS, MERGE),
        conflict=ConflictKind.ORPHAN_EDGE,
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


# ---- ids, which only loads bring


def load_error(graph: Graph, folder: Path, mode: str, *records: dict[str, Any]) -> Any:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises((LoadRejectedError, LoadKeyConflictError)) as caught:
        graph.load(path, mode=mode, engine="local")
    return caught.value


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA)
    run(graph, BASE)
    return graph


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_id_is_given_once(graph: Graph, tmp_path: Path, mode: str) -> None:
    report = load_error(graph, tmp_path, mode, book("x"), book("x"), book("x")).report
    assert report.totals == {"duplicate id of Book": 2}
    assert [item.message for item in report.examples] == ["the id 'x' of Book is given 3 times"]


def test_an_append_brings_new_ids(graph: Graph, tmp_path: Path) -> None:
    error = load_error(graph, tmp_path, "append", book("x"), book("b2"), book("b1"))
    assert type(error) is LoadKeyConflictError
    assert error.report.totals == {"key_conflict of Book": 2}
    assert [item.message for item in error.report.examples] == [
        "a node of type Book with id 'b2' exists already",
        "a node of type Book with id 'b1' exists already",
    ]
    assert error.message.startswith("a node of type Book with id 'b2' exists already\n")


def test_an_overwrite_of_nodes_names_the_edges_that_it_would_leave_behind(graph: Graph, tmp_path: Path) -> None:
    run(graph, 'insert Wrote { from: "a1", to: "b1" } insert Wrote { from: "a1", to: "b2" }')
    report = load_error(graph, tmp_path, "overwrite", book("b1")).report
    assert report.totals == {"dst of Wrote not found in Book": 1}
    (example,) = report.examples
    assert example.location == "graph"
    assert re.fullmatch(r"edge Wrote '[0-9A-Z]{26}': dst 'b2' not found in Book", example.message)
