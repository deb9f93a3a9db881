"""The sources keep to the one door: who may import Lance, and which calls may move a dataset."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

import omnigraph

ROOT = Path(omnigraph.__file__).parent


class Call(NamedTuple):
    """A call in the sources: the module, what is called, and with what."""

    module: str
    name: str
    node: ast.Call


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


@pytest.fixture(scope="module")
def calls(sources: dict[str, ast.Module]) -> list[Call]:
    return [
        Call(module, ast.unparse(node.func), node)
        for module, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_only_storage_imports_lance_and_obstore(sources: dict[str, ast.Module]) -> None:
    users = {name for name, tree in sources.items() if imported(tree) & {"lance", "obstore"}}
    assert users, "the walk sees imports"
    assert {name for name in users if not name.startswith("storage/")} == set()


def test_datasets_are_committed_in_two_modules_only(calls: list[Call]) -> None:
    users = {call.module for call in calls if call.name.endswith("LanceDataset.commit")}
    assert users == {"storage/datasets/staged.py", "storage/manifest_table.py"}


def test_lance_commits_no_compaction_by_itself(calls: list[Call]) -> None:
    of_compactions = ("Compaction.commit", "Compaction.execute")
    assert {call.module for call in calls if call.name.endswith(of_compactions)} == set()


def test_every_commit_is_made_without_retries_or_aside(calls: list[Call]) -> None:
    asides = 0
    for call in calls:
        if call.name.endswith("LanceDataset.commit"):
            given = {item.arg: ast.unparse(item.value) for item in call.node.keywords}
            is_aside = given.get("detached") == "True"
            asides += is_aside
            assert is_aside or given.get("max_retries") == "0", call.module
    assert asides == 1, "private versions"


def test_rows_are_written_directly_to_memory_only(calls: list[Call]) -> None:
    written = [call for call in calls if call.name.split(".")[-1] == "write_dataset"]
    assert len(written) == 1
    for call in written:
        target = ast.unparse(call.node.args[1])
        assert target.startswith(("f'memory://", "'memory://")), f"{call.module}: {target}"


def test_no_dataset_is_changed_in_place(calls: list[Call]) -> None:
    """`.delete`, `.update`, `.execute` and the like of a dataset commit on their own."""
    forbidden = {"execute", "add_columns", "drop_columns", "alter_columns", "insert", "restore"}
    forbidden |= {"create_index", "create_scalar_index", "update_config", "cleanup_old_versions"}
    allowed = {
        ("storage/datasets/reads.py", "create_scalar_index"),  # of a private dataset without files
        # Removes versions that nobody may read any more, and makes none.
        ("storage/datasets/versions.py", "cleanup_old_versions"),
        # Of a task of a plan, which writes files and moves nothing.
        ("storage/datasets/compaction.py", "execute"),
        # Rows carry the history of the catalog, not its versions.
        ("storage/manifest_table.py", "cleanup_old_versions"),
    }
    found = []
    for module, name, _ in calls:
        owner, _, method = name.rpartition(".")
        if not module.startswith("storage/") or (module, method) in allowed:
            continue
        on_dataset = owner.split(".")[-1] in {"dataset", "_dataset", "root", "_handle", "table"}
        if method in forbidden or (method in {"delete", "update"} and on_dataset):
            found.append(f"{module}: {name}")
    assert found == []
