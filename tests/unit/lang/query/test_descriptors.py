from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.core.source import SourceText
from omnigraph.core.types import ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import QueryCompiler, compile_query
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.query.signature import describe_field
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case, named_cases


def read(clauses: str, reading, returned: str = "1 as one", params: str = ""):
    return compile_query(f"query q({params}) {{ match {{ {clauses} }} return {{ {returned} }} }}", reading)


def names(refs) -> list[str]:
    return [f"{ref.kind}:{ref.type_name}" for ref in refs]


READS = {
    "a binding": ("$p: Paper", ["node:Paper"]),
    "a cross product": ("$p: Paper $v: Venue", ["node:Paper", "node:Venue"]),
    "a type bound twice": ("$p: Paper $q: Paper", ["node:Paper"]),
    "an edge and both ends": ("$p: Paper $p appearsAt $v", ["edge:AppearsAt", "node:Paper", "node:Venue"]),
    "an anonymous end": ("$a: Author $a wrote $_", ["edge:Wrote", "node:Author", "node:Paper"]),
    "an edge followed backward": ("$v: Venue $p appearsAt $v", ["edge:AppearsAt", "node:Paper", "node:Venue"]),
    "neither end bound": ("$a wrote $p", ["edge:Wrote", "node:Author", "node:Paper"]),
    "inside not": ("$p: Paper not { $p appearsAt $_ }", ["edge:AppearsAt", "node:Paper", "node:Venue"]),
    "a scan inside not": ("$p: Paper not { $a: Author $a.full_name = $p.title }", ["node:Author", "node:Paper"]),
    "inside nested not": (
        "$p: Paper not { $p cites $q not { $a wrote $q } }",
        ["edge:Cites", "edge:Wrote", "node:Author", "node:Paper"],
    ),
}


@named_cases(("clauses", "expected"), READS)
def test_a_read_lists_every_type_it_touches_sorted(clauses, expected, reading):
    operation = read(clauses, reading).operation

    assert (names(operation.reads), operation.writes) == (expected, ())


MUTATIONS = {
    "insert node": ('insert Author { full_name: "x" }', ["node:Author"], ["node:Author"]),
    "insert edge reads its endpoints": (
        'insert Wrote { from: "a", to: "b", position: 1 }',
        ["edge:Wrote", "node:Author", "node:Paper"],
        ["edge:Wrote"],
    ),
    "insert edge of one type": ('insert Cites { from: "a", to: "b" }', ["edge:Cites", "node:Paper"], ["edge:Cites"]),
    "update node": ('update Author set { orcid: "x" } where full_name = "y"', ["node:Author"], ["node:Author"]),
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
    "delete edge": ('delete Cites where from = "x"', ["edge:Cites"], ["edge:Cites"]),
    "several statements": (
        'insert Author { full_name: "x" } insert AppearsAt { from: "a", to: "b" }',
        ["edge:AppearsAt", "node:Author", "node:Paper", "node:Venue"],
        ["edge:AppearsAt", "node:Author"],
    ),
}


@named_cases(("body", "reads", "writes"), MUTATIONS)
def test_a_mutation_lists_what_it_reads_and_writes_sorted(body, reads, writes, reading):
    operation = compile_query(f"query q() {{ {body} }}", reading).operation

    assert (names(operation.reads), names(operation.writes)) == (reads, writes)


@named_cases(
    ("text", "is_mutation", "fields"),
    {
        "read": ("query q() { match { $p: Paper } return { $p } }", False, 1),
        "mutation": ('query q() { delete Paper where doi = "x" }', True, 0),
    },
)
def test_the_body_decides_the_kind_of_a_query_and_whether_it_has_results(text, is_mutation, fields, reading):
    query = compile_query(text, reading)

    assert query.is_mutation is is_mutation
    assert len(query.operation.to_json()["result"]) == fields
    assert {"kind": "node", "type_name": "Paper"} in query.operation.to_json()["reads"]


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
        ("$p.topics", {"name": "p.topics", "kind": "list", "item_kind": "string", "nullable": True}),
        ("$p.counts", {"name": "p.counts", "kind": "list", "item_kind": "bigint", "nullable": True}),
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
    ("base", "described"),
    [
        (ScalarType(Scalar.STRING), {"kind": "string"}),
        (ScalarType(Scalar.BLOB), {"kind": "blob"}),
        (ScalarType(Scalar.BOOL), {"kind": "bool"}),
        (ScalarType(Scalar.I32), {"kind": "int"}),
        (ScalarType(Scalar.U32), {"kind": "int"}),
        (ScalarType(Scalar.I64), {"kind": "bigint"}),
        (ScalarType(Scalar.U64), {"kind": "bigint"}),
        (ScalarType(Scalar.F32), {"kind": "float"}),
        (ScalarType(Scalar.F64), {"kind": "float"}),
        (ScalarType(Scalar.DATE), {"kind": "date"}),
        (ScalarType(Scalar.DATETIME), {"kind": "datetime"}),
        (ListType(Scalar.DATE), {"kind": "list", "item_kind": "date"}),
        (VectorType(3), {"kind": "vector", "vector_dim": 3}),
    ],
    ids=str,
)
def test_every_type_has_a_wire_kind_and_its_inner_shape(base, described):
    field = describe_field("x", PropertyType(base, True))

    assert field.to_json() == {"name": "x", "nullable": True, **described}


def text(name: str = "q", limit: int = 1) -> str:
    return f"query {name}() {{ match {{ $p: Paper }} return {{ $p.title }} limit {limit} }}"


TITLED = "node Paper { title: String }"


@named_cases(
    ("first", "second", "hits"),
    {
        "the same text": ((text(), TITLED), (text(), TITLED), 1),
        "another text": ((text(limit=1), TITLED), (text(limit=2), TITLED), 0),
        "another schema": ((text(), TITLED), (text(), "node Paper { title: String? }"), 0),
        "another name of the source": (
            (SourceText(text(), "one.gq"), TITLED),
            (SourceText(text(), "two.gq"), TITLED),
            1,
        ),
    },
)
def test_an_equal_text_is_compiled_once_for_an_equal_schema(first, second, hits):
    compiler = QueryCompiler()

    one, two = (compiler.compile(given, compile_schema(schema).catalog) for given, schema in (first, second))

    assert (one is two, compiler.cache.hits, compiler.cache.puts) == (bool(hits), hits, 2 - hits)


def test_a_query_is_compiled_against_the_schema_of_the_moment():
    compiler = QueryCompiler()

    schemas = (TITLED, "node Paper { title: String? }")
    found = [compiler.compile(text(), compile_schema(schema).catalog) for schema in schemas]
    with pytest.raises(CompilerError) as failure:
        compiler.compile(text(), compile_schema("node Paper { name: String }").catalog)

    assert [str(query.ir.projections[0].type) for query in found] == ["String", "String?"]
    assert failure.value.codes == ("T6",)


def test_two_queries_of_one_text_are_kept_apart(reading):
    compiler = QueryCompiler()
    both = text("a", 1) + text("b", 2)

    names = [compiler.compile(both, reading, name).name for name in ("a", "b", "a")]

    assert names == ["a", "b", "a"]
    assert (compiler.cache.hits, compiler.cache.puts) == (1, 2)


def test_failures_are_not_kept(reading):
    compiler = QueryCompiler()

    for _ in range(2):
        with pytest.raises(CompilerError):
            compiler.compile("query q() { match { $p: Papr } return { $p } }", reading)

    assert compiler.cache.hits == 0


def test_the_least_recently_used_query_leaves_first(reading):
    compiler = QueryCompiler(entries=2)
    compiler.compile(text(limit=1), reading)
    compiler.compile(text(limit=2), reading)
    compiler.compile(text(limit=1), reading)

    compiler.compile(text(limit=3), reading)
    compiler.compile(text(limit=1), reading)
    assert (compiler.cache.hits, compiler.cache.puts) == (2, 3)
    compiler.compile(text(limit=2), reading)

    assert (compiler.cache.hits, compiler.cache.puts) == (2, 4)


def test_the_cache_never_grows_beyond_its_entries(reading):
    compiler = QueryCompiler(entries=3)
    for limit in range(10):
        compiler.compile(text(limit=limit), reading)
    before = compiler.cache.puts

    for limit in range(10):
        compiler.compile(text(limit=limit), reading)

    assert compiler.cache.puts - before == 10


def test_threads_share_one_cache_and_get_equal_queries(reading):
    compiler = QueryCompiler(entries=4)
    limits = [index % 8 for index in range(200)]

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(lambda limit: compiler.compile(text(limit=limit), reading), limits))

    assert [query.ir.limit.value for query in found] == limits
    assert compiler.cache.hits + compiler.cache.puts == len(limits)
    assert len({explain_ir(query.ir) for query in found}) == 8
