"""The sources keep to the one door: who may import Lance, and which calls may move a dataset."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import omnigraph

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(omnigraph.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_only_storage_imports_lance_and_obstore() -> None:
    users = {name for name, tree in SOURCES.items() if imported(tree) & {"lance", "obstore"}}
    assert users, "the walk sees imports"
    assert {name for name in users if not name.startswith("storage/")} == set()


def test_datasets_are_committed_in_three_modules_only() -> None:
    users = {
        name
        for name, tree in SOURCES.items()
        for call in calls(tree)
        if name_of(call).endswith("LanceDataset.commit")
    }
    assert users == {"storage/staged.py", "storage/catalog.py", "storage/private.py"}


def test_lance_commits_no_compaction_by_itself() -> None:
    users = {
        name
        for name, tree in SOURCES.items()
        for call in calls(tree)
        if name_of(call).endswith(("Compaction.commit", "Compaction.execute"))
    }
    assert users == set()


def test_every_commit_is_made_without_retries_or_aside() -> None:
    for name, tree in SOURCES.items():
        for call in calls(tree):
            if name_of(call).endswith("LanceDataset.commit"):
                given = {item.arg: ast.unparse(item.value) for item in call.keywords}
                is_aside = name == "storage/private.py" and given.get("detached") == "True"
                assert is_aside or given.get("max_retries") == "0", name


def test_rows_are_written_directly_to_memory_only() -> None:
    seen = 0
    for name, tree in SOURCES.items():
        for call in calls(tree):
            if name_of(call).split(".")[-1] == "write_dataset":
                seen += 1
                target = ast.unparse(call.args[1])
                assert target.startswith(("f'memory://", "'memory://")), f"{name}: {target}"
    assert seen == 1


def test_no_dataset_is_changed_in_place() -> None:
    """`.delete`, `.update`, `.execute` and the like of a dataset commit on their own."""
    forbidden = {"execute", "add_columns", "drop_columns", "alter_columns", "insert", "restore"}
    forbidden |= {"create_index", "create_scalar_index", "update_config", "cleanup_old_versions"}
    found = []
    for name, tree in SOURCES.items():
        if not name.startswith("storage/"):
            continue
        for call in calls(tree):
            owner, _, method = name_of(call).rpartition(".")
            if name == "storage/memory.py" and method == "create_scalar_index":
                continue  # of a private dataset that no file belongs to
            if name == "storage/purging.py" and method == "cleanup_old_versions":
                continue  # removes versions that nobody may read any more, and makes none
            if name == "storage/compaction.py" and method == "execute":
                continue  # of a task of a plan, which writes files and moves nothing
            if name == "storage/catalog.py" and method == "cleanup_old_versions":
                continue  # rows carry the history of the catalog, not its versions
            on_dataset = owner.split(".")[-1] in {"dataset", "_dataset", "root", "_handle", "table"}
            if method in forbidden or (method in {"delete", "update"} and on_dataset):
                found.append(f"{name}: {name_of(call)}")
    assert found == []
