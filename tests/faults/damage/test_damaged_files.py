"""Files that are damaged on purpose: what `verify` finds, and how reads of them fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pytest

from omnigraph import Graph
from omnigraph.errors import OmniError
from support.damaged_graphs import KINDS, ask, harm, make_graph

TESTS = Path(__file__).parents[2]
#: As many as the default run tries; the others are behind the marker.
CASES = 24


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "g.omni"
    make_graph(folder)
    return folder


def kind_of(name: str) -> str:
    """What a file is, without the random parts of its name."""
    parts = name.split("/")
    folder = next((part for part in reversed(parts[:-1]) if part.startswith("_")), parts[0])
    return f"{folder}/{Path(name).suffix}"


def stored_names(source: Path) -> list[str]:
    """Every file that `verify` lists; a set of arrays stands for its files."""
    names: list[str] = []
    for item in Graph.verify_at(source).files:
        path = source / item.name
        if path.is_dir():
            names += [str(file.relative_to(source)) for file in path.iterdir()]
        elif not item.name.endswith(("latest_version_hint.json", "__root.json", ".pg")):
            # A smaller number in the hint or another root is harmless, and comments of the schema may be edited.
            names.append(item.name)
    return sorted(names)


def make_cases(names: list[str], count: int, seed: int) -> list[dict[str, Any]]:
    """So many cases, evenly over kinds of files and of damage."""
    random = Random(seed)
    kinds = sorted({kind_of(name) for name in names})
    cases = []
    for number in range(count):
        wanted = kinds[number % len(kinds)]
        file = random.choice([name for name in names if kind_of(name) == wanted])
        # Without its record a file is one of an earlier release.
        kinds_here = [it for it in KINDS if it != "gone" or "_checksums/" not in file]
        cases.append({"file": file, "kind": random.choice(kinds_here), "seed": random.random()})
    return cases


def run_cases(source: Path, folder: Path, cases: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What every case gave; a case that ended its process gave nothing."""
    plan = folder / "plan.json"
    body = {"source": str(source), "folder": str(folder), "cases": cases, "names": stored_names(source)}
    found: dict[int, dict[str, Any]] = {}
    start = 0
    while start < len(cases):
        plan.write_text(json.dumps(body | {"start": start}), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "support.children.damaged_reads", str(plan)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(TESTS), "OMNIGRAPH_DURABILITY": "process"},
        )
        for line in done.stdout.splitlines():
            number, result = json.loads(line)
            found[number] = result
            start = number + 1
        if done.returncode != 0:
            assert "Traceback" not in done.stderr, done.stderr
            # The damage ended the process.
            found[start] = {}
            start += 1
    return found


def check_cases(source: Path, folder: Path, cases: list[dict[str, Any]]) -> None:
    missed, untyped, ended = [], [], []
    for number, result in run_cases(source, folder, cases).items():
        if not result:
            ended.append(cases[number])
        elif result["changed"]:
            kind, problems = result["verify"]
            if (kind != "answer" or not problems) and not is_harmless(source, cases[number]):
                missed.append((cases[number], result["verify"]))
            untyped += [
                (cases[number], name, value)
                for name, value in result.items()
                if name != "changed" and value[0] == "untyped"
            ]
    assert not missed
    assert not untyped
    for case in ended:
        # Whatever an ordinary read does: `verify` reads in a process of its own, and finds it.
        copy = folder / "ended" / "g.omni"
        run_case_alone(source, copy, case)


def is_harmless(source: Path, case: dict[str, Any]) -> bool:
    """Whether nothing depends on the bytes that a case changed."""
    file = source / case["file"]
    if case["kind"] == "gone" and file.parent == source / "__manifest" / "_versions":
        # History is in the rows of the newest version; cleanup removes the others.
        return file.name != min(path.name for path in file.parent.glob("*.manifest"))
    if file.name != "__schema_state.json":
        return False
    with TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        shutil.copy(file, copy)
        harm(copy, case["kind"], Random(case["seed"]), [])
        try:
            before, after = json.loads(file.read_bytes()), json.loads(copy.read_bytes())
        except ValueError:
            return False
    # The hash of a source whose comments were edited is as good as any other.
    plain = re.fullmatch(r"sha256:[0-9a-f]{64}", str(after.pop("source_hash", None)))
    del before["source_hash"]
    return plain is not None and after == before


def run_case_alone(source: Path, copy: Path, case: dict[str, Any]) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    names = [copy / name for name in stored_names(source)]
    harm(copy / case["file"], case["kind"], Random(case["seed"]), names)
    assert Graph.verify_at(copy).problems, case


def test_verify_lists_every_file_that_a_state_needs(source: Path) -> None:
    report = Graph.verify_at(source)
    assert report.is_sound, report.problems
    listed = {item.name for item in report.files}
    unlisted = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and not any(name in listed for name in _itself_and_folders(path, source))
    }
    assert unlisted <= {"__lock", "__staging.lock", "__reading.lock"}


def _itself_and_folders(path: Path, root: Path) -> list[str]:
    relative = path.relative_to(root)
    return [str(relative), *(str(parent) for parent in relative.parents)]


def test_damage_is_found_and_every_failure_is_typed(source: Path, tmp_path: Path) -> None:
    check_cases(source, tmp_path, make_cases(stored_names(source), CASES, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_damage_is_found_and_every_failure_is_typed_500_times(source: Path, tmp_path: Path) -> None:
    names = stored_names(source)
    check_cases(source, tmp_path, [*make_cases(names, 40, seed=1)[CASES:], *make_cases(names, 500, seed=2)])


def test_an_old_graph_has_no_checksums_and_is_sound(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "g.omni"
    shutil.copytree(source, copy)
    for folder in copy.rglob("_checksums"):
        shutil.rmtree(folder)
    report = Graph.verify_at(copy)
    assert report.is_sound
    assert report.counts()["no_checksum"] > 20
    with Graph.open(source) as graph, Graph.open(copy) as old:
        assert ask(old) == ask(graph)


# ---- Whatever method of Lance gives up: callers get a typed failure, from every operation


SCHEMA = """
node A { k: String @key  n: I64? @index  t: String? @index  b: Blob? }
edge E: A -> A
"""
QUERY = "query q() { match { $a: A  $a e $b  $b.n > 0 } return { $a.k, $b.t } }"
SEARCH = 'query q() { match { $a: A  search($a.t, "tea") } return { $a.k } }'
METHODS = ("scanner", "get_fragments", "describe_indices", "_take_rows", "commit")
OTHERS = (
    *("to_table", "count_rows", "get_fragment", "read_transaction", "tracked_files", "versions"),
    *("read_blobs", "read_blob_ranges", "merge_insert", "create_branch"),
)


class PanicException(BaseException):  # named as the one that cannot be imported
    """Stands for the class that extension modules make."""


PanicException.__module__ = "pyo3_runtime"


@pytest.fixture(scope="module")
def source_of_panics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("panics") / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(
            'query q() { insert A { k: "x", n: 1, t: "tea", b: "base64:SGVsbG8=" } '
            'insert A { k: "y", n: 2 } insert E { from: "x", to: "y" } }'
        )
        graph.create_branch("side")
        graph.mutate('query q() { update A set { n: 5 } where k = "y" }', branch="side")
        graph.ensure_indices()
    return root


def operations(graph: Graph, folder: Path) -> dict[str, Callable[[], object]]:
    return {
        "query": lambda: list(graph.query(QUERY)),
        "search": lambda: list(graph.query(SEARCH, branch="side")),
        "blob": lambda: graph.read_blob("node:A", "x", "b"),
        "diff": lambda: graph.diff("main", "side").to_json(),
        "export": lambda: graph.export(folder / "out.jsonl", engine="local"),
        "doctor": graph.doctor,
        "insert": lambda: graph.mutate('query q() { insert A { k: "z" } }'),
        "delete": lambda: graph.mutate('query q() { delete A where k = "x" }'),
        "merge": lambda: graph.merge("side", "main"),
        "indexes": graph.ensure_indices,
        "optimize": graph.optimize,
        "cleanup": lambda: graph.cleanup(keep=3, confirm=True),
    }


@pytest.mark.parametrize("method", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_panic_is_a_typed_failure_of_every_operation(
    method: str, source_of_panics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "g.omni"
    shutil.copytree(source_of_panics, root)
    assert hasattr(lance.LanceDataset, method), "Lance has another name for it"

    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    untyped = []
    with Graph.open(root) as graph:
        monkeypatch.setattr(lance.LanceDataset, method, panic)
        for name, run in operations(graph, tmp_path).items():
            try:
                run()
            except OmniError:
                continue
            except BaseException as error:  # noqa: BLE001  # what must not happen is what this looks for
                untyped.append((name, repr(error)))
        monkeypatch.undo()
    assert not untyped
