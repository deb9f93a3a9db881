"""What a command loads: no JVM for a read, and next to nothing for a help text."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from support.cli_graphs import History
from support.subtests import each_case

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
try:
    main({words!r})
except SystemExit as ended:
    code = ended.code or 0
report = {{
    "code": code, "modules": sorted(sys.modules), "asked": asked, "pandas": pandas_importers,
}}
print("\\n@@" + json.dumps(report))
"""


def probe(*words: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=list(words))],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.rpartition("@@")[2])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("query",), id="query"),
        pytest.param(("explain", "--analyze"), id="explain"),
    ],
)
def test_a_read_starts_no_jvm(past: History, words: tuple[str, ...]) -> None:
    text = "query keys() { match { $i: Item } return { $i.k as k } order { k } }"
    report = probe(*words, "--store", past.uri, "-e", text)
    assert report["code"] == 0
    assert "lance" in report["modules"], "the probe sees what is loaded"
    assert report["asked"] == []
    assert not {"pyspark", "py4j"} & set(report["modules"])
    assert [name for name in report["pandas"] if not name.startswith("pyarrow")] == []


def test_an_export_to_stdout_starts_no_jvm(past: History) -> None:
    report = probe("export", past.uri)
    assert report["code"] == 0
    assert "omnigraph.pipeline.export.job" in report["modules"]
    assert report["asked"] == []
    assert [name for name in report["pandas"] if not name.startswith("pyarrow")] == []


def test_a_remote_read_starts_no_jvm_and_loads_no_server() -> None:
    report = probe("branch", "list", "--server", "http://127.0.0.1:1/graphs/papers")
    assert report["code"] == 1, "nobody answers there"
    assert "omnigraph.client" in report["modules"]
    assert report["asked"] == []
    assert not {"starlette", "uvicorn", "omnigraph.server", "omnigraph.graph"} & set(
        report["modules"]
    )


HEAVY = {"lance", "pyarrow", "numpy", "pandas", "lark", "httpx", "obstore", "pyspark", "yaml"}


@each_case(
    "words",
    [
        ("--help",),
        ("version",),
        ("query", "--help"),
        ("explain", "--help"),
        ("optimize", "--help"),
        ("export", "--help"),
        ("export", "--parts"),
        ("query", "--format", "csv", "--json"),
        ("query", "--as", "ann", "-e", "q"),
        ("profile", "list"),
    ],
    ids=" ".join,
)
def test_help_and_wrong_command_lines_load_no_graph(words: tuple[str, ...]) -> None:
    modules = set(probe(*words)["modules"])
    assert "omnigraph.cli.main" in modules
    assert modules & HEAVY == set()
    rooms = {"omnigraph.graph", "omnigraph.engine", "omnigraph.storage", "omnigraph.commit"}
    assert modules & rooms == set()
