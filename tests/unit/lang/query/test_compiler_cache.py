from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import QueryCompiler
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.schema.compiler import compile_schema


def text(name: str = "q", limit: int = 1) -> str:
    return f"query {name}() {{ match {{ $p: Paper }} return {{ $p.title }} limit {limit} }}"


def test_the_same_text_is_compiled_once(reading):
    compiler = QueryCompiler()

    first = compiler.compile(text(), reading)
    second = compiler.compile(text(), reading)

    assert second is first
    assert (compiler.cache.hits, compiler.cache.puts) == (1, 1)


def test_an_equal_schema_hits_although_it_is_another_object():
    schema = "node Paper { title: String }"
    compiler = QueryCompiler()

    compiler.compile(text(), compile_schema(schema).catalog)
    compiler.compile(text(), compile_schema(schema).catalog)

    assert (compiler.cache.hits, compiler.cache.puts) == (1, 1)


def test_another_schema_misses():
    compiler = QueryCompiler()

    first = compiler.compile(text(), compile_schema("node Paper { title: String }").catalog)
    second = compiler.compile(text(), compile_schema("node Paper { title: String? }").catalog)

    assert (compiler.cache.hits, compiler.cache.puts) == (0, 2)
    assert str(first.ir.projections[0].type) == "String"
    assert str(second.ir.projections[0].type) == "String?"


def test_a_query_that_fitted_the_old_schema_fails_on_the_new_one():
    compiler = QueryCompiler()
    compiler.compile(text(), compile_schema("node Paper { title: String }").catalog)

    with pytest.raises(CompilerError) as failure:
        compiler.compile(text(), compile_schema("node Paper { name: String }").catalog)

    assert failure.value.codes == ("T6",)


def test_another_text_misses(reading):
    compiler = QueryCompiler()

    compiler.compile(text(limit=1), reading)
    compiler.compile(text(limit=2), reading)

    assert (compiler.cache.hits, compiler.cache.puts) == (0, 2)


def test_two_queries_of_one_text_are_kept_apart(reading):
    compiler = QueryCompiler()
    both = text("a", 1) + text("b", 2)

    names = [compiler.compile(both, reading, name).name for name in ("a", "b", "a")]

    assert names == ["a", "b", "a"]
    assert (compiler.cache.hits, compiler.cache.puts) == (1, 2)


def test_the_name_of_the_source_does_not_matter(reading):
    compiler = QueryCompiler()

    compiler.compile(SourceText(text(), "one.gq"), reading)
    compiler.compile(SourceText(text(), "two.gq"), reading)

    assert (compiler.cache.hits, compiler.cache.puts) == (1, 1)


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

    assert [query.ir.limit for query in found] == limits
    assert compiler.cache.hits + compiler.cache.puts == len(limits)
    assert len({explain_ir(query.ir) for query in found}) == 8
