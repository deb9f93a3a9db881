"""Texts of every shape that could be depth or size elsewhere: always a typed error or an answer, never a crash.

A crash would take the tests with it, so the texts are tried in a child process with little memory. What they cost is
bounded by counts, not by a clock: findings that are listed, bytes of an error, comparisons that reach storage.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.core.types import Scalar, ScalarType
from omnigraph.engine.pushdown import push_down
from omnigraph.errors import MAX_DIAGNOSTICS
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.storage.datasets.filters import AllOf, AnyOf, Compare, to_sql

SCHEMA = "node P { slug: String @key  n: I64?  s: String?  l: [I64]? }\nedge K: P -> P"
#: Far beyond what any of these texts may take.
MEMORY_BYTES = 6 * 1024**3
#: An error is something that a person reads.
MAX_ERROR_BYTES = 512 * 1024

CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (%d, %d))
from omnigraph import Graph
from omnigraph.errors import OmniError

def read(match, result="$p.slug"):
    return f"query q() {{ match {{ {match} }} return {{ {result} }} }}"

def each(form, count, joint=" "):
    return joint.join(form.replace("#", str(i)) for i in range(count))

READS = {
    "filters on one variable": read("$p: P " + each("$p.n != #", 4_000)),
    "filters with texts": read("$p: P " + each('$p.s != "#"', 1_500)),
    "more filters than a query may have": read("$p: P " + each("$p.n != #", 32_000)),
    "inline matches": read("$p: P { " + each("n: #", 3_000, ", ") + " }"),
    "joins": read("$p: P $q: P " + each("$p.n != $q.n", 1_000)),
    "chained traversals": read("$p0: P " + " ".join(f"$p{i} k $p{i + 1}" for i in range(250)), "$p0.slug"),
    "more chained traversals than allowed": read("$p0: P " + each("$p# k $q#", 1_000), "$p0.slug"),
    "bindings": read(each("$p#: P", 250), "count($p0) as n"),
    "nested blocks": read("$p: P " + "not { $p k $_ " * 61 + "}" * 61),
    "blocks beside each other": read("$p: P " + "not { $p k $_ } " * 250),
    "nested too deep": read("$p: P " + "not { $p k $_ " * 5_000 + "}" * 1_000),
    "nested calls": read("$p: P", "f(" * 60 + "$p" + ")" * 60),
    "list literal": read("$p: P [" + each("#", 20_000, ", ") + "] contains $p.n"),
    "list literal of texts": read("$p: P [" + each('"#"', 10_000, ", ") + "] contains $p.s"),
    "nested lists": read("$p: P " + "[" * 60 + "]" * 60 + " contains $p.n"),
    "columns": read("$p: P", each("$p.n as c#", 1_500)),
    "order keys": read("$p: P") [:-2] + " order { " + each("$p.n", 3_000, ", ") + " } }",
    "wrong properties": read("$p: P " + each("$p.nn# != 1", 4_000)),
    "unbound variables": read("$p: P " + each("$z#.n != 1", 4_000)),
    "unknown types": read(each("$p#: Pp#", 250), "$p0.n"),
    "names without end": read("$p: P " + each("$p." + "n" * 2_000 + "# != 1", 200)),
    "broken queries": each("query q#() { match { $p: P } retur { $p.n } }", 1_000),
    "queries": each("query q#() { match { $p: P } return { $p.n } }", 1_000),
    "parameters": "query q(" + each("$x#: I64", 5_000, ", ") + ") { match { $p: P } return { $p.n } }",
    "one long word": "x" * 500_000,
    "one long text": read('$p: P $p.s = "' + "x" * 500_000 + '"'),
    "one long number": read("$p: P $p.n = " + "9" * 500_000),
    "open brackets": "{" * 100_000,
    "open comment": "/*" * 100_000,
    "quotes": '"' * 99_999,
    "words to search": read('$p: P search($p.s, "' + each("w#", 20_000) + '")'),
    "words to search nearly": read('$p: P fuzzy($p.s, "' + each("w#", 20_000) + '")'),
    "hops": read("$p: P $p k{1,9223372036854775807} $q", "$q.slug"),
}
MUTATIONS = {
    "inserts": "query q() { " + each('insert P { slug: "x#" }', 500) + " }",
    "more inserts than allowed": "query q() { " + each('insert P { slug: "x#" }', 11_000) + " }",
    "wrong inserts": "query q() { " + each("insert P { sulg: # }", 2_000) + " }",
}
SCHEMAS = {
    "types": each("node N# { slug: String @key }", 1_000),
    "wrong types": each("node N# { slug: Strin @key }", 1_000),
    "properties": "node N { slug: String @key " + each("p#: I64?", 2_000) + " }",
    "broken types": each("node N# { slug String }", 1_000),
    "enum values": "node N { e: enum(" + each("v#", 20_000, ", ") + ") }",
    "brackets": "node N { e: " + "[" * 10_000,
}

def outcome(work):
    try:
        work()
    except OmniError as error:
        body = error.to_json()
        return [type(error).__name__, len(body.get("diagnostics", ())), len(json.dumps(body))]
    return ["answer", 0, 0]

graph = Graph.init(sys.argv[1] + "/g.omni", "%s")
graph.mutate('query a() { insert P { slug: "a", n: 1, s: "x" } insert P { slug: "b", n: 2 } }')
found = {}
for name, text in READS.items():
    found[name] = outcome(lambda: graph.query(text).to_arrow())
    found["lint " + name] = outcome(lambda: graph.explain(text))
for name, text in MUTATIONS.items():
    found[name] = outcome(lambda: graph.mutate(text))
for name, text in SCHEMAS.items():
    from omnigraph.lang.schema.compiler import compile_schema
    found["schema of " + name] = outcome(lambda: compile_schema(text))
long = "query q($l: [I64], $t: [String]) { match { $p: P $p.n = 1 } return { $p.slug } }"
found["list parameters"] = outcome(lambda: graph.query(long, {"l": list(range(50_000)), "t": ["x"] * 50_000}))
deep = []
for _ in range(50_000):
    deep = [deep]
found["nested parameters"] = outcome(lambda: graph.query(long, {"l": deep, "t": []}))
print(json.dumps(found))
"""


@pytest.mark.timeout(300)
def test_no_text_hurts_the_process(tmp_path: Path) -> None:
    script = CHILD % (MEMORY_BYTES, MEMORY_BYTES, SCHEMA.replace("\n", "\\n"))
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert child.returncode == 0, child.stderr[-2_000:]
    found = json.loads(child.stdout)
    assert {name for name, (_, listed, _) in found.items() if listed > MAX_DIAGNOSTICS} == set()
    assert {name: size for name, (_, _, size) in found.items() if size > MAX_ERROR_BYTES} == {}
    answered = {name for name, (kind, _, _) in found.items() if kind == "answer"}
    assert answered >= {"filters on one variable", "joins", "chained traversals", "nested blocks"}
    assert not answered & {"more chained traversals than allowed", "wrong properties"}


def test_what_is_beyond_the_filter_of_storage_stays_with_the_engine() -> None:
    conditions = " ".join(f"$p.n != {i}" for i in range(5_000))
    text = f"query q() {{ match {{ $p: P {conditions} }} return {{ $p.slug }} }}"
    scan = compile_query(text, compile_schema(SCHEMA).catalog).ir.pipeline[0]  # type: ignore[union-attr]  # a read

    pushed = push_down(scan.filters, {})  # type: ignore[union-attr]  # a scan comes first

    assert isinstance(pushed.filter, AllOf)
    assert len(pushed.filter.filters) + len(pushed.rest) == 5_000
    assert len(pushed.filter.filters) <= 2_000


def test_texts_beyond_the_filter_of_storage_stay_with_the_engine() -> None:
    conditions = " ".join(f'$p.s != "{"x" * 300_000}{i}"' for i in range(5))
    text = f"query q() {{ match {{ $p: P {conditions} }} return {{ $p.slug }} }}"
    scan = compile_query(text, compile_schema(SCHEMA).catalog).ir.pipeline[0]  # type: ignore[union-attr]  # a read

    pushed = push_down(scan.filters, {})  # type: ignore[union-attr]  # a scan comes first

    assert len(pushed.rest) == 2


@pytest.mark.parametrize("join", [AllOf, AnyOf])
def test_a_filter_is_only_as_deep_as_the_logarithm_of_its_length(join: type) -> None:
    parts = tuple(Compare("n", ScalarType(Scalar.I64), "=", i) for i in range(1_000))
    depth = deepest = 0
    for sign in to_sql(join(parts)):
        depth += (sign == "(") - (sign == ")")
        deepest = max(deepest, depth)
    assert deepest <= 10
