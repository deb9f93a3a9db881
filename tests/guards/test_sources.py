"""Regular expressions take memory for what they may have to go back to: none of ours does per repetition of a group."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants, _parser
from typing import Any

import omnigraph
from support.subtests import each_case

#: What one repetition of is a step along the text, without a memory of its own.
SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)
BACKTRACKING = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


def _patterns() -> dict[str, re.Pattern[Any]]:
    root = Path(omnigraph.__file__).parents[1]
    found: dict[str, re.Pattern[Any]] = {}
    for path in sorted(root.glob("omnigraph/**/*.py")):
        if "re.compile(" not in path.read_text(encoding="utf-8"):
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for name, value in vars(importlib.import_module(module)).items():
            members = value if isinstance(value, tuple) else (value,)
            for number, member in enumerate(members):
                if isinstance(member, re.Pattern):
                    found[f"{module}.{name}[{number}]"] = member
    return found


def _remembering(parsed: Any) -> Iterator[Any]:
    """Unbounded repetitions of groups that may go back into each repetition."""
    for operation, argument in parsed:
        if operation in BACKTRACKING:
            _, most, body = argument
            if most is _constants.MAXREPEAT and not (len(body) == 1 and body[0][0] in SINGLE):
                yield body
        yield from (item for part in _parts(argument) for item in _remembering(part))


def _parts(argument: Any) -> Iterator[Any]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _parts(item)


@each_case(
    ("pattern", "count"),
    [
        (r'"(?:[^"\\]|\\.)*"', 1),
        (r'"(?:[^"\\]++|\\.)*+"', 0),
        (r"[a-z]*[0-9]+", 0),
        (r"(?:a+)+", 1),
        (r"(?:ab){0,3}", 0),
    ],
)
def test_the_search_finds_them(pattern: str, count: int) -> None:
    assert len(list(_remembering(_parser.parse(pattern)))) == count


def test_no_pattern_remembers_every_repetition_of_a_group() -> None:
    """A text of 30 MB took 3.9 GB, and nested repetitions may take for ever: write `(?:…)*+`, which never goes back."""
    wrong = {
        name: pattern.pattern
        for name, pattern in _patterns().items()
        if any(_remembering(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)))
    }
    assert wrong == {}


# ---- Tests and product mean the same on every machine, whatever its processor and its locale


TESTS = Path(__file__).parents[1]
SOURCES = Path(omnigraph.__file__).parent
#: The columns whose values Lance computes with the vector instructions of the processor.
COMPUTED = frozenset({"_distance", "_score"})
#: The module whose functions read them and return values that compare with a tolerance.
TOLERANT = TESTS / "support" / "tables.py"
TEXT_FILES = frozenset({"read_text", "write_text"})


def _trees(folder: Path, words: frozenset[str]) -> Iterator[tuple[Path, ast.Module]]:
    """The modules that mention one of the words at all."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield path, ast.parse(text)


def _place(path: Path, node: ast.expr) -> str:
    return f"{path}:{node.lineno}"


def test_values_that_lance_computes_are_compared_with_a_tolerance() -> None:
    raw = [
        _place(path, node)
        for path, tree in _trees(TESTS, COMPUTED)
        if path not in (TOLERANT, Path(__file__))
        for node in ast.walk(tree)
        # A name with a variable before it is a column of a query, which is another thing.
        if isinstance(node, ast.Constant) and node.value in COMPUTED and "oracle" not in path.parts
    ]
    assert raw == [], "use vector_hits or text_hits of support.tables"


def test_text_files_name_their_encoding() -> None:
    """The default follows the locale, and not every locale has every character."""
    unnamed = [
        _place(path, node)
        for path, tree in _trees(SOURCES, TEXT_FILES | {"open("})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _opens_text(node) and not _names_encoding(node)
    ]
    assert unnamed == []


def _opens_text(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=name) if name in TEXT_FILES:
            return True
        case ast.Name(id="open"):
            modes = [*call.args[1:2], *(it.value for it in call.keywords if it.arg == "mode")]
            return not any(isinstance(it, ast.Constant) and "b" in str(it.value) for it in modes)
        case _:
            return False


def _names_encoding(call: ast.Call) -> bool:
    given = 1 if isinstance(call.func, ast.Attribute) else 3
    given += isinstance(call.func, ast.Attribute) and call.func.attr == "write_text"
    return len(call.args) >= given or any(it.arg in ("encoding", None) for it in call.keywords)


# ---- Nothing reaches the door of the manifest without the tenure of its window, which is what the fence asks for


SOURCE = Path(omnigraph.__file__).parent
#: What makes a version of the manifest.
DOORS = {"publish", "publish_branch", "forget", "fold", "restore_commits"}


def unfenced(tree: ast.AST) -> list[int]:
    """Lines that call a door of a manifest without a tenure."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in DOORS
        and isinstance(node.func.value, ast.Attribute | ast.Name)
        and (node.func.value.attr if isinstance(node.func.value, ast.Attribute) else node.func.value.id) == "manifest"
        and "tenure" not in {keyword.arg for keyword in node.keywords}
    ]


def test_every_version_of_the_manifest_is_made_under_a_tenure():
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := unfenced(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_the_guard_sees_what_it_guards():
    text = "held.manifest.publish(a, b, c)\nmanifest.forget([])\nheld.manifest.fold(tenure=t)\nheld.publish(a)"
    assert unfenced(ast.parse(text)) == [1, 2]


# ---- Every Spark action goes through the door that names it, watches it and can stop it


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
