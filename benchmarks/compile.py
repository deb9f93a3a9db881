"""What the query compiler costs: parse + check + lower, as a ratio to lark's bare parse of the same text.

Two texts: one typical ten-line query, and a file with 600 queries. Target: at most 3 times the bare parse. The cached
compile of the same text is shown beside it. Baseline and compiler take turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lark import Token, Transformer

from omnigraph.core.source import SourceText
from omnigraph.lang.query.compiler import QueryCompiler, compile_file
from omnigraph.lang.query.syntax.parser import grammar_with
from omnigraph.lang.schema.compiler import compile_schema_file

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
TARGET = 3.0

QUERY = """
query influential_{n}($since: I32, $stage: String) @description("papers that others build on") {{
  match {{
    $p: Paper {{ stage: $stage }}
    $p.year >= $since
    $citing $c:cites $p
    not {{ $p appearsAt $_ }}
  }}
  return {{ $p.title, $p.year, count($citing) as citations }}
  order {{ citations desc, $p.year }}
  limit 10
}}
"""


class Bare(Transformer[Token, object]):
    """Makes nothing of a text but the trees of lark."""

    def file(self, declarations: list[object]) -> list[object]:
        """All declarations."""
        return declarations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--queries", type=int, default=600, help="queries in the large file")
    options = parser.parse_args()

    catalog = compile_schema_file(HERE.parent / "examples" / "bibliography" / "schema.pg").catalog
    grammar = grammar_with(Bare())
    one = QUERY.format(n=0)
    many = "".join(QUERY.format(n=n) for n in range(options.queries))

    def bare(text: str) -> object:
        return grammar.parse(SourceText(text))

    cached = QueryCompiler()
    cached.compile(one, catalog)

    figures = [
        measure("one query", one, bare, lambda text: compile_file(text, catalog), rounds=300),
        measure(f"{options.queries} queries", many, bare, lambda text: compile_file(text, catalog), rounds=7),
        measure("one query, cached", one, bare, lambda text: cached.compile(text, catalog), rounds=300),
    ]
    print(f"{'text':<20} {'bare parse':>12} {'compile':>12} {'ratio':>7}   target ≤ {TARGET}")
    for figure in figures:
        print(
            f"{figure['text']:<20} {figure['bare_ms']:>9.3f} ms {figure['compile_ms']:>9.3f} ms {figure['ratio']:>7.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def measure(
    name: str, text: str, baseline: Callable[[str], object], subject: Callable[[str], object], *, rounds: int
) -> dict[str, object]:
    """Median times of both, measured in turns."""
    base_times: list[float] = []
    subject_times: list[float] = []
    for _ in range(rounds):
        base_times.append(timed(baseline, text))
        subject_times.append(timed(subject, text))
    base, ours = statistics.median(base_times), statistics.median(subject_times)
    return {"text": name, "bare_ms": base * 1e3, "compile_ms": ours * 1e3, "ratio": ours / base}


def timed(function: Callable[[str], object], text: str) -> float:
    begin = time.perf_counter()
    function(text)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
