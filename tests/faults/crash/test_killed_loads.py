"""What a load that died by SIGKILL staged is invisible, told, and removed; the matrix is in `test_killed_writes`."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.crash.conftest import Worlds
from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.core.failpoints import VARIABLE
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.load import job as stages
from support.killed_writers import Children, check_sound, contents, reclaim, sidecars, table_files
from support.killed_writes import APPEND, NEW_BRANCH, NOTHING, UPSERT_LOAD, Load, check_settled


@pytest.mark.parametrize("place", [F.LOAD_FRAGMENTS_WRITTEN, F.LOAD_CHECKED])
def test_what_a_dead_load_staged_is_invisible_and_reclaimed_at_once(
    base: Path, root: Path, children: Children, place: F
):
    children.kill_at(place, UPSERT_LOAD.job(root))
    staged = table_files(root) - table_files(base)
    assert staged, "a load stages before it commits"
    assert contents(root) == contents(base)
    assert sidecars(root) == []
    assert reclaim(root) == staged
    assert table_files(root) == table_files(base)


@pytest.mark.parametrize("load", [UPSERT_LOAD, NEW_BRANCH], ids=str)
def test_doctor_names_what_a_dead_load_left_and_cleanup_removes_it(
    base: Path, root: Path, children: Children, load: Load
):
    with Graph.open(root) as graph:
        graph.cleanup(keep=100, confirm=True)
        before = table_files(root)
    children.kill_at(F.LOAD_CHECKED, load.job(root))
    assert table_files(root) - before
    assert list((root / "__staging").iterdir())
    with Graph.open(root) as graph:
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
        assert found.severity == "warning"
        assert found.action is not None
        assert "cleanup" in found.action
        graph.cleanup(keep=100, confirm=True)
        (found,) = [item for item in graph.doctor().findings if item.check == "leftovers"]
    assert found.severity == "ok"
    assert table_files(root) == before
    assert not (root / "__staging").exists()
    assert contents(root) == contents(base)


def test_a_load_that_runs_keeps_its_files_while_those_of_a_dead_one_are_reclaimed(
    root: Path, children: Children, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
):
    _, after = worlds(APPEND)
    children.kill_at(F.LOAD_CHECKED, UPSERT_LOAD.job(root))

    def look(place: F) -> None:
        if place is F.LOAD_CHECKED:
            with Graph.open(root) as other:
                paths = [pin.location for pin in other.snapshot().pins.values()]
                found = reclaim_staged_files(other._core.environment, paths, 3600.0)
            assert not found.is_complete
            assert found.file_count == 0, "all of them are young"

    monkeypatch.setattr(stages, "reach", look)
    with Graph.open(root) as graph:
        APPEND.run(graph)
    assert contents(root) == after
    assert reclaim(root), "those of the dead load"
    assert contents(root) == after
    check_sound(root)


#: Loads on Spark, and says which JVM it uses before it dies.
DRIVER = """
import sys
from omnigraph.spark import spark_session
from omnigraph.graph.graph import Graph
spark = spark_session(input_bytes=0)
print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
with Graph.open(sys.argv[1]) as graph:
    graph.load(sys.argv[2], mode="append", spark=spark)
"""


@pytest.mark.slow
def test_the_jvm_ends_with_a_killed_driver_and_the_load_did_not_happen(root: Path, tmp_path: Path, worlds: Worlds):
    before, after = worlds(APPEND)
    settings = {
        VARIABLE: f"{F.LOAD_FRAGMENTS_WRITTEN}=kill",
        "OMNIGRAPH_SPARK_ARCHIVE": "off",
        "OMNIGRAPH_SPARK_DRIVER_MEMORY": "512m",
        "OMNIGRAPH_SPARK_MASTER": "local[1]",
        "TMPDIR": str(tmp_path),
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(root), APPEND.options(root)["source"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | settings,
    )
    assert driver.stdout is not None
    jvm = driver.stdout.readline()
    assert jvm, driver.communicate()[1]
    handle = os.pidfd_open(int(jvm))
    try:
        _, errors = driver.communicate(timeout=120)
        assert driver.returncode == -signal.SIGKILL, errors
        # The handle becomes readable when the process ends.
        assert select.select([handle], [], [], 60)[0], "the JVM outlived its driver"
    finally:
        os.close(handle)
    check_settled(root, before, APPEND, NOTHING, after)
    APPEND.check_goes_on(root, NOTHING, after)


@pytest.mark.parametrize(
    ("place", "is_committed"),
    [
        (F.QUARANTINE_WRITTEN, False),
        (F.QUARANTINE_PUBLISHED, False),
        (F.AFTER_SIDECAR, False),
        ("after_table_commit@1", True),
        (F.AFTER_PUBLISH, True),
    ],
)
def test_a_commit_never_stands_without_its_whole_quarantine(
    root: Path, tmp_path: Path, children: Children, place: str, is_committed: bool
):
    source, bad = tmp_path / "in.jsonl", tmp_path / "bad"
    lines = ['{"type": "Person", "data": {"name": "new"}}', *('{"type": "Person", "data": {"name": 1}}',) * 3]
    source.write_text("\n".join(lines), encoding="utf-8")
    job = {"source": str(source), "mode": "append", "engine": "local", "quarantine": str(bad)}
    children.kill_at(place, {"action": "load", "root": str(root), "actor": "act-writer", **job})
    with Graph.open(root) as graph:
        rows = graph.query('query q() { match { $p: Person { name: "new" } } return { $p.name } }').to_pylist()
    assert bool(rows) is is_committed
    if bad.exists():
        assert (bad / "in.jsonl").read_text("utf-8").splitlines() == lines[1:]
        assert len((bad / "_reasons" / "in.jsonl.jsonl").read_text("utf-8").splitlines()) == 3
        assert (bad / "_README.md").exists()
    assert bad.exists() is (place != F.QUARANTINE_WRITTEN)
