from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from omnigraph.lang.query.compiler import compile_file, compile_query
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.schema.compiler import compile_schema_file
from support.subtests import each_case

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = sorted((GOLDEN / "plans").glob("*.gq"))

PROGRAM = """
import sys
from pathlib import Path
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.explain import explain_ir
from omnigraph.lang.schema.compiler import compile_schema_file
golden = Path(sys.argv[1])
catalog = compile_schema_file(golden / "reading.pg").catalog
for path in sorted((golden / "plans").glob("*.gq")):
    for query in compile_file(path.read_text(encoding="utf-8"), catalog):
        sys.stdout.write(explain_ir(query.ir))
"""


def explain_all(catalog) -> str:
    return "".join(
        explain_ir(query.ir)
        for path in PLANS
        for query in compile_file(path.read_text(encoding="utf-8"), catalog)
    )


@each_case("path", PLANS, ids=lambda path: path.stem)
def test_two_compilations_give_the_same_plan(path, reading):
    text = path.read_text(encoding="utf-8")
    fresh = compile_schema_file(GOLDEN / "reading.pg").catalog

    first = [explain_ir(query.ir) for query in compile_file(text, reading)]
    second = [explain_ir(query.ir) for query in compile_file(text, fresh)]

    assert first == second


def test_plans_do_not_depend_on_the_hash_seed_of_the_process(reading):
    def run(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(GOLDEN)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=120,
        ).stdout

    assert run("1") == run("2") == explain_all(reading)


def test_a_plan_names_the_depth_of_fusion(reading):
    def plan(limit: int) -> str:
        text = f"""
        query q($t: String) {{
          match {{ $p: Paper }}
          return {{ $p.title }}
          order {{ rrf(bm25($p.title, $t), bm25($p.abstract, $t)) }}
          limit {limit}
        }}
        """
        return explain_ir(compile_query(text, reading).ir)

    assert ["depth 50" in plan(10), "depth 55" in plan(11), "depth 5000" in plan(1000)] == [
        True
    ] * 3


def test_the_default_k_of_fusion_is_60(reading):
    text = """
    query q($t: String) {
      match { $p: Paper } return { $p }
      order { rrf(bm25($p.title, $t), bm25($p.abstract, $t)) } limit 3
    }
    """

    assert "k=60" in explain_ir(compile_query(text, reading).ir)


def test_a_plan_ends_with_one_line_break(reading):
    plan = explain_ir(compile_query("query q() { match { $p: Paper } return { $p } }", reading).ir)

    assert plan.endswith("\n")
    assert not plan.endswith("\n\n")


def test_values_in_a_plan_are_spelled_as_literals_of_the_language(reading):
    text = 'query q() { match { $p: Paper { title: "a\\"\\n\\\\b" } } return { $p } }'

    assert '"a\\"\\n\\\\b"' in explain_ir(compile_query(text, reading).ir)


def test_two_queries_that_differ_have_different_plans(reading):
    one, two = (
        explain_ir(
            compile_query(
                f"query q() {{ match {{ $p: Paper $p {hop} $q }} return {{ $q }} }}", reading
            ).ir
        )
        for hop in ("cites", "<cites>")
    )

    assert one != two


@each_case(
    ("written", "shown"),
    [("0.1", "0.1"), ("16777217", "16777216"), ("$x", "param(x)"), ("0.5", "0.5")],
)
def test_a_number_beside_an_f32_is_shown_as_it_is_compared(reading, written, shown):
    text = (
        f"query q($x: F64) {{ match {{ $a $c:cites $b  $c.weight = {written} }} return {{ $a }} }}"
    )
    plan = explain_ir(compile_query(text, reading).ir)
    assert f"$c.weight = {shown}" in plan
