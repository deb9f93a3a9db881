"""Command lines that cannot be meant exit with 2, and what does not exist with 1; both say what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support.cli_graphs import History, Run

ROOT = Path(__file__).parents[3]
#: Words that stand for something that exists.
QUERY = "query q() { match { $i: Item } return { $i.k } }"
ADD = "query add($k: String) { insert Item { k: $k } }"
READING = "tests/unit/lang/golden/reading.pg"
MORE = "docs/guide/people/more.jsonl"
CASES: dict[str, dict[str, str]] = {
    "the whole program": {
        "nonsense": "No such command",
        "snapshot": "no graph is addressed",
        "snapshot a --store b": "give the graph once",
        "doctor http://127.0.0.1:1": "works on the storage",
        "commit list x --filter branch=y": "actor",
        "commit list x --branch y --all-branches": "--branch or --all-branches",
        "mutate --store g -e q --params {} --params-file x": "one of",
        "lint": "give a query with --query FILE or -e GQ, --schema FILE, or both",
        "lint --schema READING --query x.gq --frobnicate": "No such option",
        "schema plan --schema READING": "no graph is addressed",
    },
    "branch": {
        "branch create a": "no graph is addressed",
        "branch list": "no graph is addressed",
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
        "load GRAPH --data MORE": "give --mode append, merge, overwrite or patch",
        "load GRAPH --mode append": "give one of --data PATH and --mapping FILE",
        "load GRAPH --data MORE --mapping m.yaml --mode append": "give one of --data PATH",
        "load GRAPH --data MORE --mode upsert": "'upsert' is not one of",
    },
    "queries": {
        "queries list": "no server is addressed",
        "queries list --server http://127.0.0.1:1 --queries b": "give one of a server",
        "queries list --store papers.omni": "does not take --store",
        "queries validate": "exactly one of --config FILE and --queries PATH",
        "queries list --config a --queries b": "exactly one of --config",
        "queries list --queries docs/start --graph g": "--graph chooses among",
        "queries validate --queries docs/start": "nothing to check against",
        "queries validate --queries docs/start --store a --schema b": "give one of",
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


# ---- what does not exist


NO_COMMIT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#: Of a graph with the branches `main` and `side` and six versions. COMMIT is one of its commits.
MISSING: dict[str, dict[str, tuple[str, str]]] = {
    "query": {
        "query --store GRAPH -e QUERY --branch nope": ("branch_not_found", "no branch `nope`"),
        "query --store GRAPH -e QUERY --branch 'a b'": ("bad_request", "is not a branch name"),
        "query --store GRAPH -e QUERY --snapshot nope": ("commit_not_found", "no commit nope"),
        "query --store GRAPH -e QUERY --graph-version 7": ("not_found", "graph versions 1 to 6, not 7"),
        "query --store GRAPH -e QUERY --graph-version 0": ("not_found", "graph versions 1 to 6, not 0"),
        "query --store GRAPH -e QUERY --graph-version -1": ("not_found", "graph versions 1 to 6, not -1"),
        "query --store GRAPH -e QUERY --branch side --graph-version 3": (
            "not_found",
            "branch side has graph versions 4 to 6, not 3",
        ),
        "query --store GRAPH -e QUERY --as-of 1999-12-31T23:59:59Z": (
            "not_found",
            "no commit at or before 1999-12-31T23:59:59Z",
        ),
        "query --store GRAPH -e QUERY --as-of yesterday": ("bad_request", "is not a time"),
        "query --store GRAPH -e QUERY --as-of ''": ("bad_request", "is not a time"),
        "query --store GRAPH -e QUERY --as-of 2026-13-01": ("bad_request", "is not a time"),
        "query --store GRAPH -e QUERY --params {": ("bad_request", "the parameters are not JSON"),
        "query --store GRAPH -e QUERY --params []": ("bad_request", "not a JSON object"),
        "query --store GRAPH -e QUERY --params-file no/such.json": ("io", "cannot read no/such.json"),
        "query --store no/such.omni -e QUERY": ("not_found", "there is no graph at"),
        "explain --store GRAPH -e QUERY --branch nope": ("branch_not_found", "there is no branch `nope`"),
    },
    "mutate": {
        "mutate --store GRAPH -e ADD --params {": ("bad_request", "not JSON"),
        "mutate --store GRAPH -e ADD --params [1]": ("bad_request", "not a JSON object"),
        "mutate --store GRAPH -e ADD --params-file no/such": ("io", "cannot read no/such"),
        "mutate --store GRAPH -e ADD --params {}": ("bad_request", "`k` is missing"),
        "optimize GRAPH --indexes-only --branch nope": ("branch_not_found", "no branch `nope`"),
        "optimize nowhere --indexes-only": ("not_found", "there is no graph at"),
    },
    "branch": {
        "branch create side --store GRAPH": ("branch_exists", "branch 'side' exists already"),
        "branch create side/a --store GRAPH": ("bad_request", "conflicts with branch"),
        "branch create a..b --store GRAPH": ("bad_request", "a..b"),
        "branch create a --from nope --store GRAPH": ("branch_not_found", "there is no branch `nope`"),
        f"branch create a --from {NO_COMMIT} --store GRAPH": ("commit_not_found", "there is no commit"),
        "branch delete main --store GRAPH": ("bad_request", "main cannot be deleted"),
        "branch delete nope --store GRAPH": ("branch_not_found", "there is no branch `nope`"),
        "branch merge nope --store GRAPH": ("branch_not_found", "there is no branch `nope`"),
        "branch merge side --into nope --store GRAPH": ("branch_not_found", "there is no branch `nope`"),
        "branch merge main --store GRAPH": ("bad_request", "cannot be merged into itself"),
    },
    "history": {
        "snapshot GRAPH --branch nope": ("branch_not_found", "there is no branch `nope`"),
        "log GRAPH --branch nope": ("branch_not_found", "there is no branch `nope`"),
        "log GRAPH --branch nope --graph": ("branch_not_found", "there is no branch `nope`"),
        f"commit show {NO_COMMIT} --store GRAPH": ("commit_not_found", "there is no commit"),
        "diff main nope --uri GRAPH": ("branch_not_found", "there is no branch `nope`"),
        f"diff {NO_COMMIT} main --uri GRAPH": ("commit_not_found", "there is no commit"),
        "diff main side --type Animal --uri GRAPH": ("bad_request", "there is no type 'Animal'"),
        "commit changes COMMIT --store GRAPH --limit 0": ("bad_request", "a page holds at least one change"),
        "commit changes COMMIT --store GRAPH --limit 10000": ("resource_limit", "10,000, above the limit of 8,192"),
        "commit changes COMMIT --store GRAPH --page-token xyz": ("change_cursor_rejected", "change cursor rejected"),
        "commit changes COMMIT --store GRAPH --type Animal": ("bad_request", "there is no type 'Animal'"),
        "changes poll --uri GRAPH --cursor xyz": ("change_cursor_rejected", "change cursor rejected: "),
        "changes poll --uri GRAPH --start yesterday": ("bad_request", "a feed starts at"),
        f"changes poll --uri GRAPH --start after:{NO_COMMIT}": ("bad_request", "is not on the line of branch main"),
        "changes poll --uri GRAPH --branch nope": ("branch_not_found", "there is no branch `nope`"),
    },
}


@pytest.mark.parametrize("command", MISSING)
def test_what_does_not_exist_exits_with_1_and_is_told_in_one_line_or_document(
    og: Run, past: History, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = og("log", past.uri, "--graph", "--json").json()
    things = {"GRAPH": past.uri, "QUERY": QUERY, "ADD": ADD, "COMMIT": past.commits[3]}
    for line, (kind, text) in MISSING[command].items():
        words = [things.get(word, word) for word in shlex.split(line)]
        with subtests.test(line):
            plain, as_json = og(*words, "--quiet"), og(*words, "--quiet", "--json")
            assert (plain.code, plain.out, as_json.code, as_json.err) == (1, "", 1, "")
            assert len(plain.err.splitlines()) == 1
            assert text in plain.err
            body = as_json.json()
            assert (body["kind"], body["error"]) == (kind, plain.err.strip())
    assert og("log", past.uri, "--graph", "--json").json() == before
    assert list(tmp_path.iterdir()) == []
