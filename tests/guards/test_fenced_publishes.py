"""Nothing reaches the door of the catalog without the tenure of its window, which is what the fence asks for."""

from __future__ import annotations

import ast
from pathlib import Path

import omnigraph

SOURCE = Path(omnigraph.__file__).parent
#: What makes a version of the catalog.
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
        and (
            node.func.value.attr
            if isinstance(node.func.value, ast.Attribute)
            else node.func.value.id
        )
        == "manifest"
        and "tenure" not in {keyword.arg for keyword in node.keywords}
    ]


def test_every_version_of_the_catalog_is_made_under_a_tenure():
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := unfenced(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_the_guard_sees_what_it_guards():
    text = "held.manifest.publish(a, b, c)\nmanifest.forget([])\nheld.manifest.fold(tenure=t)\nheld.publish(a)"
    assert unfenced(ast.parse(text)) == [1, 2]
