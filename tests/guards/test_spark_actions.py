"""Every Spark action goes through the door that names it, watches it and can stop it."""

from __future__ import annotations

import ast
from pathlib import Path

import omnigraph

SOURCE = Path(omnigraph.__file__).parent
#: Methods of a frame that run a job.
ACTIONS = {"collect", "toArrow", "toPandas", "toLocalIterator", "isEmpty", "foreachPartition"}
#: The door itself, and the questions about a session that come before it.
DOOR = {"spark/workers.py", "spark/jobs.py", "spark/executors.py"}


def stray_actions(tree: ast.AST) -> list[int]:
    """Lines that run an action outside of a function handed to the door."""
    handed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"act", "collect", "run"}
        for argument in node.args
        for inner in ast.walk(argument)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ACTIONS
        and not node.args
        and node not in handed
    ]


def test_no_action_runs_beside_the_door():
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        if "pyspark" not in text or name in DOOR:
            continue
        if lines := stray_actions(ast.parse(text)):
            found[name] = lines
    assert found == {}


def test_the_guard_sees_a_stray_action():
    assert stray_actions(ast.parse("rows = frame.collect()")) == [1]
    assert stray_actions(ast.parse("workers.act('x', lambda: frame.isEmpty())")) == []
