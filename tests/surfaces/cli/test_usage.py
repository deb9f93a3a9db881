"""Command lines that cannot be meant: exit code 2 and what to do, before any graph is opened."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support.cli_graphs import History, Run

ROOT = Path(__file__).parents[3]
#: Words that stand for something that exists.
QUERY = "query q() { match { $i: Item } return { $i.k } }"
READING = "tests/unit/lang/golden/reading.pg"
MORE = "docs/guide/people/more.jsonl"
CASES: dict[str, dict[str, str]] = {
    "the whole program": {
        "nonsense": "No such command",
        "snapshot": "no graph is addressed",
        "snapshot a --store b": "give the graph once",
        "doctor http://127.0.0.1:1": "works on the storage",
        "commit list x --filter branch=y": "actor",
        "lint": "--query",
        "lint --schema READING": "--query",
        "lint --schema READING --query x.gq --frobnicate": "No such option",
        "schema plan --schema READING": "no graph is addressed",
    },
    "branch": {
        "branch create a": "no graph is addressed",
        "branch list": "no graph is addressed",
        "branch list some.omni": "give it with --store",
        "branch merge": "Missing argument",
        "branch merge a --store g --strategy mine": "mine",
        "branch merge a --store g --engine cloud": "cloud",
        "branch delete a --store http://127.0.0.1:1": "is a server: give --server",
    },
    "diff": {
        "diff main --uri GRAPH": "Missing argument",
        "diff main next extra --uri GRAPH": "unexpected extra argument",
        "diff main next --kind thing --uri GRAPH": "thing",
        "diff main next --op upsert --uri GRAPH": "upsert",
        "diff main next --engine cloud --uri GRAPH": "cloud",
    },
    "changes": {
        "changes poll": "no graph is addressed",
        "changes poll --store g --cursor c --start now": "--start",
        "changes poll --store g --op upsert": "upsert",
        "changes baseline --store g": "--out",
        "changes baseline --store g --out -": "a baseline is a file",
        "commit changes --store g": "Missing argument",
        "commit changes c": "no graph is addressed",
        "commit changes c --store g --kind thing": "thing",
    },
    "export": {
        "export GRAPH --json": "--out",
        "export GRAPH --parts": "--out",
        "export GRAPH --format parquet": "--out",
        "export GRAPH --format csv --out x": "csv",
        "export GRAPH --format parquet --parts --out x": "--parts",
        "export GRAPH --branch main --snapshot c": "--branch",
    },
    "load": {
        "load GRAPH --data MORE": "give --mode append, merge or overwrite",
        "load GRAPH --mode append": "give one of --data PATH and --mapping FILE",
        "load GRAPH --data MORE --mapping m.yaml --mode append": "give one of --data PATH",
        "load GRAPH --data MORE --mode upsert": "'upsert' is not one of",
    },
    "queries": {
        "queries list": "no server is addressed",
        "queries list --server http://127.0.0.1:1 --queries b": "give one of --server",
        "queries list --store papers.omni": "does not take --store",
        "queries validate": "exactly one of --config FILE and --queries PATH",
        "queries list --config a --queries b": "exactly one of --config",
        "queries list --queries docs/tutorial --graph g": "--graph chooses among",
        "queries validate --queries docs/tutorial": "nothing to check against",
        "queries validate --queries docs/tutorial --store a --schema b": "give one of",
    },
    "embed": {
        "embed --clean --reembed-all": "one of --clean and --reembed-all",
        "embed --seed s.yaml --input i": "--seed, or --input",
        "embed --input i": "all of --input, --output and --spec",
        "embed notes.omni": "give --graph",
        "embed --seed s.yaml --branch b": "--branch does not go with files",
        "embed --seed s.yaml --dry-run": "--dry-run does not go with files",
        "embed --graph g.omni --clean": "--clean does not go with --graph",
        "embed --graph g.omni --select a=b": "--select does not go with --graph",
        "embed --graph": "no graph is addressed",
        **{
            f"embed --graph GRAPH --rate {rate}": "--rate takes texts per second above zero"
            for rate in ("0", "-1", "nan", "inf")
        },
    },
    "explain": {
        "explain --schema READING": "exactly one of",
        "explain --schema READING --query a.gq -e query": "exactly one of",
        "explain --schema READING -e '   '": "the query text is empty",
        "explain -e QUERY": "no graph is addressed",
        "explain --store GRAPH --schema READING -e QUERY": "not both",
        "explain --schema READING --analyze -e QUERY": "need a graph",
        "explain --schema READING --branch main -e QUERY": "need a graph",
        "explain --schema READING --params '{\"x\": 1}' -e QUERY": "need a graph",
        "explain --store GRAPH -e QUERY --query x": "exactly one of",
        "explain --store GRAPH -e ' '": "the query text is empty",
    },
    "optimize": {
        "optimize GRAPH --branch b": "give --indexes-only",
        "optimize --indexes-only": "no graph is addressed",
        "optimize GRAPH --store x --indexes-only": "give the graph once",
    },
    "query": {
        "query -e QUERY": "no graph is addressed",
        "query --store http://127.0.0.1:1 -e QUERY": "is a server: give --server",
        "query --store GRAPH": "exactly one of --query FILE and -e GQ",
        "query --store GRAPH -e QUERY --query x": "exactly one of --query",
        "query --store GRAPH -e ''": "the query text is empty",
        "query --store GRAPH -e ' \n\t'": "the query text is empty",
        "query --store GRAPH -e QUERY --json --format csv": "--format and --json",
        "query --store GRAPH -e QUERY --json --format json": "--format and --json",
        "query --store GRAPH -e QUERY --branch main --snapshot x": "--branch and --snapshot",
        "query --store GRAPH -e QUERY --snapshot x --graph-version 1": "one of --snapshot",
        "query --store GRAPH -e QUERY --snapshot x --as-of 2026-01-01": "one of --snapshot",
        "query --store GRAPH -e QUERY --graph-version 1 --as-of 2026-01-01": "one of",
        "query --store GRAPH -e QUERY --params {} --params-file x": "--params-file",
        "query --store GRAPH -e QUERY --format xml": "'table', 'kv', 'csv'",
        "query --store GRAPH -e QUERY --graph-version one": "--graph-version",
        "query --store GRAPH -e QUERY --frobnicate": "No such option",
        "query --store GRAPH -e QUERY --as ada": "it records no actor",
        "query --store GRAPH -e QUERY some other": "unexpected extra argument",
        **{
            f"query --store GRAPH -e QUERY --timeout {seconds}": "--timeout takes seconds above zero"
            for seconds in ("0", "-1", "nan", "inf", "1e999")
        },
    },
    "consent": {
        "branch delete a --store s3://bucket/graph": "this deletes branch a of s3://bucket/graph: give --yes",
        "branch delete a --store s3://bucket/graph --json": "this deletes branch a of s3://bucket/graph: give --yes",
        "load s3://bucket/graph --data MORE --mode overwrite --json": "give --yes",
        "cleanup s3://nowhere/g.omni --keep 3 --confirm --json": "--yes",
        **{
            f"schema apply s3://nowhere/g --schema READING --allow-data-loss {flag}": (
                "this destroys what the schema drops in s3://nowhere/g: give --yes"
            )
            for flag in ("", "--json")
        },
    },
}


@pytest.mark.parametrize("command", CASES)
def test_a_wrong_command_line_exits_with_2_and_says_what_to_do(
    og: Run, past: History, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests, command: str
) -> None:
    monkeypatch.chdir(ROOT)
    things = {"GRAPH": past.uri, "QUERY": QUERY, "READING": READING, "MORE": MORE}
    for line, text in CASES[command].items():
        words = [things.get(word, word) for word in shlex.split(line)]
        with subtests.test(line):
            outcome = og(*words)
            assert outcome.code == 2
            if "--json" in words:
                assert (outcome.json()["kind"], outcome.err) == ("usage", "")
                assert text in outcome.json()["error"]
            else:
                assert outcome.out == ""
                assert text in " ".join(outcome.err.split())
