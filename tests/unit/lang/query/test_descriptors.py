from __future__ import annotations

import pytest

from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.signature import describe_field
from support.subtests import each_case


def read(clauses: str, reading, returned: str = "1 as one", params: str = ""):
    return compile_query(
        f"query q({params}) {{ match {{ {clauses} }} return {{ {returned} }} }}", reading
    )


def names(refs) -> list[str]:
    return [f"{ref.kind}:{ref.type_name}" for ref in refs]


READS = {
    "a binding": ("$p: Paper", ["node:Paper"]),
    "a cross product": ("$p: Paper $v: Venue", ["node:Paper", "node:Venue"]),
    "a type bound twice": ("$p: Paper $q: Paper", ["node:Paper"]),
    "an edge and both ends": (
        "$p: Paper $p appearsAt $v",
        ["edge:AppearsAt", "node:Paper", "node:Venue"],
    ),
    "an anonymous end": ("$a: Author $a wrote $_", ["edge:Wrote", "node:Author", "node:Paper"]),
    "an edge followed backward": (
        "$v: Venue $p appearsAt $v",
        ["edge:AppearsAt", "node:Paper", "node:Venue"],
    ),
    "neither end bound": ("$a wrote $p", ["edge:Wrote", "node:Author", "node:Paper"]),
    "inside not": (
        "$p: Paper not { $p appearsAt $_ }",
        ["edge:AppearsAt", "node:Paper", "node:Venue"],
    ),
    "a scan inside not": (
        "$p: Paper not { $a: Author $a.full_name = $p.title }",
        ["node:Author", "node:Paper"],
    ),
    "inside nested not": (
        "$p: Paper not { $p cites $q not { $a wrote $q } }",
        ["edge:Cites", "edge:Wrote", "node:Author", "node:Paper"],
    ),
}


@each_case(("clauses", "expected"), READS.values(), ids=READS.keys())
def test_a_read_lists_every_type_it_touches_sorted(clauses, expected, reading):
    operation = read(clauses, reading).operation

    assert (names(operation.reads), operation.writes) == (expected, ())


MUTATIONS = {
    "insert node": (
        'insert Author { full_name: "x" }',
        ["node:Author"],
        ["node:Author"],
    ),
    "insert edge reads its endpoints": (
        'insert Wrote { from: "a", to: "b", position: 1 }',
        ["edge:Wrote", "node:Author", "node:Paper"],
        ["edge:Wrote"],
    ),
    "insert edge of one type": (
        'insert Cites { from: "a", to: "b" }',
        ["edge:Cites", "node:Paper"],
        ["edge:Cites"],
    ),
    "update node": (
        'update Author set { orcid: "x" } where full_name = "y"',
        ["node:Author"],
        ["node:Author"],
    ),
    "delete node cascades": (
        'delete Paper where doi = "x"',
        ["edge:AppearsAt", "edge:Cites", "edge:Wrote", "node:Paper"],
        ["edge:AppearsAt", "edge:Cites", "edge:Wrote", "node:Paper"],
    ),
    "delete node of one edge": (
        'delete Venue where city = "x"',
        ["edge:AppearsAt", "node:Venue"],
        ["edge:AppearsAt", "node:Venue"],
    ),
    "delete edge": (
        'delete Cites where from = "x"',
        ["edge:Cites"],
        ["edge:Cites"],
    ),
    "several statements": (
        'insert Author { full_name: "x" } insert AppearsAt { from: "a", to: "b" }',
        ["edge:AppearsAt", "node:Author", "node:Paper", "node:Venue"],
        ["edge:AppearsAt", "node:Author"],
    ),
}


@each_case(("body", "reads", "writes"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_mutation_lists_what_it_reads_and_writes_sorted(body, reads, writes, reading):
    operation = compile_query(f"query q() {{ {body} }}", reading).operation

    assert (names(operation.reads), names(operation.writes)) == (reads, writes)


def test_a_mutation_has_no_result_fields(reading):
    operation = compile_query('query q() { delete Paper where doi = "x" }', reading).operation

    assert operation.to_json()["result"] == []


@each_case(
    ("returned", "expected"),
    [
        ("$p.title", {"name": "p.title", "kind": "string", "nullable": False}),
        ("$p.stage", {"name": "p.stage", "kind": "string", "nullable": False}),
        ("$p.open", {"name": "p.open", "kind": "bool", "nullable": True}),
        ("$p.year", {"name": "p.year", "kind": "int", "nullable": False}),
        ("$p.pages", {"name": "p.pages", "kind": "int", "nullable": True}),
        ("5 as n", {"name": "n", "kind": "bigint", "nullable": False}),
        ("$u", {"name": "u", "kind": "bigint", "nullable": False}),
        ("$p.score", {"name": "p.score", "kind": "float", "nullable": True}),
        ("$p.released", {"name": "p.released", "kind": "date", "nullable": True}),
        ("$p.submitted", {"name": "p.submitted", "kind": "datetime", "nullable": True}),
        (
            "$p.topics",
            {"name": "p.topics", "kind": "list", "item_kind": "string", "nullable": True},
        ),
        (
            "$p.counts",
            {"name": "p.counts", "kind": "list", "item_kind": "bigint", "nullable": True},
        ),
        ("$p.vec", {"name": "p.vec", "kind": "vector", "vector_dim": 8, "nullable": True}),
        ("$p", {"name": "p", "kind": "string", "nullable": False}),
        ("now() as at", {"name": "at", "kind": "datetime", "nullable": False}),
        ("count($p)", {"name": "count", "kind": "bigint", "nullable": True}),
        ("sum($p.year)", {"name": "sum", "kind": "float", "nullable": True}),
        ("min($p.year) as low", {"name": "low", "kind": "int", "nullable": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_field_is_described_in_wire_kinds(returned, expected, reading):
    operation = read("$p: Paper", reading, returned, "$u: U64").operation

    assert operation.to_json()["result"] == [expected]


@each_case(
    ("scalar", "kind"),
    [
        (Scalar.STRING, "string"), (Scalar.BLOB, "blob"), (Scalar.BOOL, "bool"), (Scalar.I32, "int"),
        (Scalar.U32, "int"), (Scalar.I64, "bigint"), (Scalar.U64, "bigint"), (Scalar.F32, "float"),
        (Scalar.F64, "float"), (Scalar.DATE, "date"), (Scalar.DATETIME, "datetime"),
    ],
    ids=str,
)  # fmt: skip
def test_every_scalar_has_a_wire_kind(scalar, kind):
    field = describe_field("x", PropertyType(ScalarType(scalar), True))

    assert field.to_json() == {"name": "x", "kind": kind, "nullable": True}


def test_lists_and_vectors_carry_their_inner_shape():
    fields = [
        describe_field("l", PropertyType(ListType(Scalar.DATE))).to_json(),
        describe_field("v", PropertyType(VectorType(3))).to_json(),
    ]

    assert fields == [
        {"name": "l", "kind": "list", "nullable": False, "item_kind": "date"},
        {"name": "v", "kind": "vector", "nullable": False, "vector_dim": 3},
    ]


def test_a_type_reference_is_a_kind_and_a_name(reading):
    operation = read("$p: Paper", reading).operation

    assert operation.to_json()["reads"] == [{"kind": "node", "type_name": "Paper"}]


@pytest.mark.parametrize(
    ("text", "is_mutation"),
    [
        ("query q() { match { $p: Paper } return { $p } }", False),
        ('query q() { delete Paper where doi = "x" }', True),
    ],
    ids=["read", "mutation"],
)
def test_the_body_decides_the_kind_of_a_query(text, is_mutation, reading):
    assert compile_query(text, reading).is_mutation is is_mutation
