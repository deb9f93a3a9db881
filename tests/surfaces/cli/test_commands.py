"""The executable as a black box: exit codes, stdout, stderr, JSON."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from omnigraph import __version__
from omnigraph.cli.commands.demo import free_place
from omnigraph.cli.main import main
from omnigraph.graph.graph import Graph
from support.cli_graphs import History
from support.spark import spark

__all__ = ["spark"]

ROOT = Path(__file__).parents[3]
READING = "tests/unit/lang/golden/reading.pg"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in this process, which saves the start of another one."""
    printed, told = io.StringIO(), io.StringIO()
    with chdir(ROOT), redirect_stdout(printed), redirect_stderr(told), pytest.raises(SystemExit) as ended:
        main(list(words))
    code = int(ended.value.code or 0)
    return subprocess.CompletedProcess(words, code, printed.getvalue(), told.getvalue())


def start(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "omnigraph", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def write(tmp_path: Path):
    def make(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return make


GOOD = "query titles() { match { $p: Paper } return { $p.title } }\n"
BAD = "query titles() { match { $p: Papr } return { $p.title } }\n"


def test_version_prints_release_and_storage_format() -> None:
    for result in (start("version"), run("--version"), run("-v")):
        assert (result.returncode, result.stdout) == (0, f"omnigraph {__version__}\ninternal-schema 4\n")


def test_no_command_shows_the_help() -> None:
    result = run()
    assert "Usage: omnigraph" in result.stdout + result.stderr


def test_lint_of_good_queries_exits_with_0(write) -> None:
    result = run("lint", "--schema", READING, "--query", write("q.gq", GOOD))
    assert result.returncode == 0
    assert result.stdout == "OK    read titles\n1 query, 0 errors, 0 warnings\n"


def test_lint_of_a_bad_query_exits_with_1_and_shows_the_place_or_one_document(write) -> None:
    path = write("q.gq", BAD)
    result = run("lint", "--schema", READING, "--query", path)
    assert result.returncode == 1
    for words in ("ERROR read titles", f"{path}:1:30: error T1", "did you mean `Paper`?"):
        assert words in result.stdout
    result = run("lint", "--schema", READING, "--query", path, "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (1, "")
    assert (report["status"], report["errors"], report["queries_processed"]) == ("error", 1, 1)
    assert (report["query_path"], report["schema_source"]) == (path, READING)


def test_lint_warnings_do_not_fail_the_command(write) -> None:
    text = 'query wipe() { delete Paper where doi = "10.1" }\n'
    path = write("q.gq", text)
    result = run("lint", "--schema", READING, "--query", path)
    assert result.returncode == 0
    assert "WARN  mutation `wipe` declares no parameters" in result.stdout
    assert f"      at {path}:1:7\n" in result.stdout


def test_lint_counts_the_errors_that_it_does_not_list(write) -> None:
    path = write("q.gq", "query q() { match }\n" * 103)
    result = run("lint", "--schema", READING, "--query", path)
    assert result.stdout.count("error Q000") == 100
    assert result.stdout.endswith("… and 3 more errors\n0 queries, 103 errors, 0 warnings\n")


@pytest.mark.parametrize("words", [("check",), ("query", "lint"), ("query", "check")], ids=" ".join)
def test_an_old_spelling_of_lint_still_works_with_a_warning(words: tuple[str, ...], write) -> None:
    result = run(*words, "--schema", READING, "--query", write("q.gq", GOOD))
    assert result.returncode == 0
    assert "deprecated" in result.stderr
    assert "OK    read titles" in result.stdout


def test_a_broken_schema_is_explained_on_stderr_or_in_a_json_document(write) -> None:
    schema = write("s.pg", "node Paper { doi: Strng @key }")
    result = run("lint", "--schema", schema, "--query", write("q.gq", GOOD))
    assert (result.returncode, result.stdout) == (1, "")
    assert "error S-01" in result.stderr
    assert "did you mean `String`?" in result.stderr
    result = run("explain", "--schema", schema, "-e", GOOD, "--json")
    body = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (1, "")
    assert (body["kind"], body["code"], body["diagnostics"][0]["line"]) == ("compiler", "bad_request", 1)


@pytest.mark.parametrize("missing", ["schema", "query"])
def test_a_missing_file_is_named(missing: str, write) -> None:
    files = {"schema": READING, "query": write("q.gq", GOOD)} | {missing: "no/such/file"}
    result = run("lint", "--schema", files["schema"], "--query", files["query"])
    assert result.returncode == 1
    assert "cannot read no/such/file" in result.stderr
    assert "Traceback" not in result.stderr


def test_explain_prints_the_plan_and_its_json_carries_the_operation() -> None:
    result = run("explain", "--schema", READING, "-e", GOOD)
    assert result.returncode == 0
    assert result.stdout.startswith("read titles()\n  NodeScan $p: Paper\n")
    body = json.loads(run("explain", "--schema", READING, "-e", GOOD, "--json").stdout)
    assert (body["query_name"], body["kind"], body["plan"][0]) == ("titles", "read", "read titles()")
    assert body["operation"]["reads"] == [{"kind": "node", "type_name": "Paper"}]


def test_explain_selects_a_query_by_name(write) -> None:
    path = write("q.gq", GOOD + GOOD.replace("titles", "others"))
    named = run("explain", "--schema", READING, "--query", path, "others")
    unnamed = run("explain", "--schema", READING, "--query", path)
    assert named.stdout.startswith("read others()")
    assert unnamed.returncode == 1
    assert "holds 2 queries" in unnamed.stderr


def test_explain_refuses_a_mixed_mutation_with_advice() -> None:
    text = 'query m($d: String) { delete Paper where doi = $d insert Author { full_name: "A" } }'
    result = run("explain", "--schema", READING, "-e", text)
    assert result.returncode == 1
    assert "split it into two queries" in result.stderr


def test_schema_plan_shows_steps_and_verdict(write) -> None:
    old = write("old.pg", "node Paper { doi: String @key }")
    for text, shown in (
        ("node Paper { doi: String @key year: I32? }", "+ node Paper.year: I32?\n1 step, supported\n"),
        ("node Paper { doi: String @key }", "no changes\n"),
    ):
        result = run("schema", "plan", "--from", old, "--schema", write("new.pg", text))
        assert (result.returncode, result.stdout) == (0, shown)
    unsupported = write("new.pg", "node Paper { doi: String @key year: I32 }")
    result = run("schema", "plan", "--from", old, "--schema", unsupported)
    assert (result.returncode, "[OG-MF-103]" in result.stdout, "not supported" in result.stdout) == (4, True, True)


def test_schema_plan_json_has_the_contract_keys(write) -> None:
    old = write("old.pg", "node Paper { doi: String @key gone: I32? }")
    new = write("new.pg", "node Paper { doi: String @key }")
    soft = json.loads(run("schema", "plan", "--from", old, "--schema", new, "--json").stdout)
    hard = json.loads(run("schema", "plan", "--from", old, "--schema", new, "--allow-data-loss", "--json").stdout)
    assert {"uri", "supported", "step_count", "steps"} <= set(soft)
    assert soft["steps"][0]["kind"] == "drop_property"
    assert (soft["steps"][0]["mode"], hard["steps"][0]["mode"]) == ("soft", "hard")


def shown_steps() -> str:
    """The output of all steps, as the page of the tour shows it."""
    page = (ROOT / "docs/start/tour.md").read_text(encoding="utf-8")
    return "".join(f"\n{block}" for block in re.findall(r"^```text\n(── .*?)^```$", page, re.MULTILINE | re.DOTALL))


@pytest.mark.usefixtures("spark")
def test_the_demo_tells_the_whole_story(tmp_path) -> None:
    result = run("demo", str(tmp_path / "kept"))
    assert result.returncode == 0, result.stdout + result.stderr
    steps, _, _ = result.stdout.partition("\nall of it took")
    pattern = ".*".join(map(re.escape, shown_steps().split("…")))
    assert re.fullmatch(pattern, steps), f"docs/start/tour.md shows something else than the demo prints:\n{steps}"
    assert "write fragments: 385 rows" in result.stderr
    graph = tmp_path / "kept" / "demo.omni"
    assert f"the graph stays at {graph}" in result.stdout
    query, shell, show, server = [shlex.split(line, comments=True) for line in result.stdout.splitlines()[-4:]]
    assert (shell[1:], show[1:], server[1:]) == (
        ["shell", str(graph)],
        ["show", str(graph), "--out", "demo.html"],
        ["--store", str(graph), "--unauthenticated"],
    )
    assert "2 rows from branch main" in run(*query[1:]).stdout
    # Another run leaves it as it is.
    assert free_place(graph.parent) == graph.with_name("demo-2.omni")


def test_an_internal_error_shows_no_stack_trace_unless_asked(monkeypatch, capsys) -> None:
    from omnigraph.cli import main as cli

    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(cli, "app_with", explode)
    with pytest.raises(SystemExit) as quiet:
        cli.main(["version"])
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    first = capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["version"])
    second = capsys.readouterr().err
    assert quiet.value.code == 1
    assert "boom" in first
    assert "Traceback" not in first
    assert "Traceback" in second


# ---- What a command loads: no JVM for a read, and next to nothing for a help text


#: Runs a command and reports the modules it loaded, what it asked for in vain, and who asked for pandas.
PROBE = """
import json, sys

asked, pandas_importers = [], []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            asked.append(name)
        if name == "pandas":
            frame = sys._getframe(1)
            while "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            pandas_importers.append(frame.f_globals.get("__name__", "?"))
        return None

sys.meta_path.insert(0, Watch())
from omnigraph.cli.main import main
loaded, codes = [], []
for words in {lines!r}:
    try:
        main(words)
    except SystemExit as ended:
        codes.append(ended.code or 0)
    loaded.append(sorted(sys.modules))
report = {{
    "codes": codes, "modules": loaded[-1], "loaded": loaded, "asked": asked, "pandas": pandas_importers,
}}
print("\\n@@" + json.dumps(report))
"""


def probe_all(lines: list[list[str]], piped: str = "") -> dict[str, Any]:
    """What several command lines load in one process, one after the other; the first that asks gets the piped text."""
    program = [sys.executable, "-c", PROBE.format(lines=lines)]
    run = subprocess.run(program, input=piped, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.rpartition("@@")[2])


def test_reads_exports_and_small_merges_start_no_jvm(past: History, tmp_path: Path) -> None:
    text = "query keys() { match { $i: Item } return { $i.k as k } order { k } }"
    with Graph.init(tmp_path / "g.omni", "node Item { k: String @key }") as graph:
        graph.create_branch("review")
        for branch in ("main", "review"):
            graph.mutate(f'query q() {{ insert Item {{ k: "{branch}" }} }}', branch=branch)
    report = probe_all(
        [
            ["query", "--store", past.uri, "-e", text],
            ["explain", "--analyze", "--store", past.uri, "-e", text],
            ["export", past.uri],
            ["branch", "merge", "review", "--store", graph.uri],
            ["shell", graph.uri],
        ],
        piped='match { $i: Item } return { $i.k }\ninsert Item { k: "shell" }\n.log\n.diff main review\n',
    )
    assert report["codes"] == [0] * 5
    assert {"lance", "omnigraph.pipeline.export.job", "omnigraph.graph.branches"} <= set(report["modules"])
    assert report["asked"] == []
    assert not {"pyspark", "py4j", "prompt_toolkit"} & set(report["modules"])
    assert [name for name in report["pandas"] if not name.startswith("pyarrow")] == []


def test_a_remote_read_starts_no_jvm_and_loads_no_server() -> None:
    report = probe_all([["branch", "list", "--server", "http://127.0.0.1:1/graphs/papers"]])
    assert report["codes"] == [1], "no server answers there"
    assert "omnigraph.client" in report["modules"]
    assert report["asked"] == []
    assert not {"starlette", "uvicorn", "omnigraph.server", "omnigraph.graph"} & set(report["modules"])


HEAVY = {"lance", "pyarrow", "numpy", "pandas", "lark", "httpx", "obstore", "pyspark", "yaml"}


#: Starting a process takes longer than any of them.
LIGHT = [
    "--help",
    "version",
    "query --help",
    "explain --help",
    "optimize --help",
    "export --help",
    "export --parts",
    "query --format csv --json",
    "query --as ann -e q",
    "profile list",
    "branch --help",
    "branch merge --help",
    "branch delete a --store s3://bucket/graph",
    "changes poll --help",
    "changes poll --store g --cursor c --start now",
    "commit changes --help",
    "diff --help",
    "log --help",
]


def test_help_and_wrong_command_lines_load_no_graph() -> None:
    rooms = {"omnigraph.graph", "omnigraph.engine", "omnigraph.storage", "omnigraph.commit"}
    report = probe_all([line.split() for line in LIGHT])
    for line, modules in zip(LIGHT, report["loaded"], strict=True):
        assert "omnigraph.cli.main" in modules
        assert set(modules) & (HEAVY | rooms) == set(), line
