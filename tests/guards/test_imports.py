"""The command line starts fast because it imports little."""

from __future__ import annotations

import json
import subprocess
import sys

from support.subtests import each_case

PROBE = """
import json, sys
from omnigraph.cli.main import main
try:
    main({words!r})
except SystemExit:
    pass
heavy = ("pyspark", "lance", "starlette", "pyarrow", "numpy", "pandas", "lark")
print("\\n@" + json.dumps([name for name in heavy if name in sys.modules]))
"""


def _imported(*words: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=list(words))],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.rpartition("@")[2])


@each_case("words", [("--help",), ("version",), ("schema", "--help"), ("mutate", "--help")])
def test_help_imports_no_heavy_library(words: tuple[str, ...]) -> None:
    assert _imported(*words) == []


def test_explain_needs_only_the_parser() -> None:
    imported = _imported(
        "explain",
        "--schema",
        "tests/unit/lang/golden/reading.pg",
        "-e",
        "query q() { match { $p: Paper } return { $p } }",
    )
    # pyarrow imports pandas by itself when it is installed.
    assert set(imported) <= {"lark", "pyarrow", "numpy", "pandas"}


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, omnigraph; print(sorted(m for m in sys.modules if m.startswith('omnigraph.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
