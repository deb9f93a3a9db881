"""Tests and product mean the same on every machine, whatever its processor and its locale."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import omnigraph

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
        if isinstance(node, ast.Constant) and node.value in COMPUTED
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
