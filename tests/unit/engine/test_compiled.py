"""When loops become machine code, and what happens where they cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from omnigraph.engine.kernels import compiled, machine_code
from omnigraph.engine.kernels.compiled import LOAD_AFTER_STEPS, machine_loop
from support.kernels import kernels

TARGETS = np.zeros(0, np.uint32)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[compiled._Machine]:
    """A process that has loaded nothing yet."""
    monkeypatch.delenv("OMNIGRAPH_KERNELS", raising=False)
    fresh = compiled._Machine()
    monkeypatch.setattr(compiled, "_MACHINE", fresh)
    yield fresh
    fresh.stop()


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Lets a compiler go on that gives every loop as it is."""
    go_on = Event()

    def slowly(plain: compiled.Loop, _signature: str) -> compiled.Loop:
        assert go_on.wait(30)
        return plain

    monkeypatch.setattr(compiled, "_compiled", slowly)
    return go_on


def test_small_reads_load_nothing(machine: compiled._Machine) -> None:
    for _ in range(1000):
        assert machine_loop(machine_code.reached, 1000, TARGETS) is None
    assert machine._thread is None


def test_much_work_loads_in_the_background_and_goes_on_meanwhile(machine, compiling) -> None:
    assert machine_loop(machine_code.reached, LOAD_AFTER_STEPS - 1, TARGETS) is None
    assert machine._thread is None, "not yet"
    assert machine_loop(machine_code.reached, LOAD_AFTER_STEPS, TARGETS) is None
    assert machine._thread is not None
    assert machine_loop(machine_code.reached, 1, TARGETS) is None, "still numpy"
    compiling.set()
    machine._thread.join()
    assert machine_loop(machine_code.reached, 1, TARGETS) is machine_code.reached


def test_the_end_of_the_process_waits_for_one_loop_only(machine, compiling) -> None:
    machine.begin()
    machine._stops = True
    compiling.set()
    machine.stop()
    assert len(machine._loops) <= 1


def test_numpy_is_taken_where_it_is_asked_for_or_numbers_are_wide(machine, compiling) -> None:
    compiling.set()
    machine.load()
    with kernels("numpy"):
        assert machine_loop(machine_code.reached, 1, TARGETS) is None
    with kernels("no such word"):
        assert machine_loop(machine_code.reached, 1, TARGETS) is machine_code.reached
    assert machine_loop(machine_code.reached, 1, TARGETS.astype(np.int64)) is None


def test_without_the_extra_numpy_does_it(machine, monkeypatch) -> None:
    monkeypatch.setattr(compiled, "is_installed", lambda _package: False)
    with kernels("compiled"):
        assert machine_loop(machine_code.reached, 1, TARGETS) is None
    assert machine._thread is None


def test_a_compiler_that_fails_is_said_once(machine, monkeypatch, caplog) -> None:
    def broken(_plain: compiled.Loop, _signature: str) -> compiled.Loop:
        raise OSError("no compiler")

    monkeypatch.setattr(compiled, "_compiled", broken)
    with kernels("compiled"):
        assert machine_loop(machine_code.reached, 1, TARGETS) is None
        assert machine_loop(machine_code.reached, 1, TARGETS) is None
    assert [record.getMessage() for record in caplog.records] == [
        "the extra `fast` does not work here; reads go on with numpy"
    ]


def test_a_child_does_not_wait_for_a_compiler_that_is_not_there(machine, compiling) -> None:
    machine.begin()
    machine.after_fork()
    with kernels("compiled"):
        assert machine_loop(machine_code.reached, 1, TARGETS) is None
    compiling.set()


#: Counts the neighbours that are reached, here and in a forked child.
STORY = """
import json, os, sys, time
import numpy as np
from omnigraph.engine.kernels import compiled, lists, intersections
from omnigraph.core.budget import Budget

starts = np.arange(0, 3000, 3)
targets = np.sort(np.arange(3000).reshape(1000, 3) * 7 % 1000, axis=1).astype(np.uint32).ravel()
some = lists.Lists(starts, starts + 3, targets, 1000)
nodes = np.repeat(np.arange(1000), 1000)
pair = intersections.Pair(some, nodes, some, np.tile(np.arange(1000), 1000))
counts = [int(intersections.common_counts(pair, None, Budget()).sum())]
read, write = os.pipe()
child = os.fork()
if not child:
    os.write(write, str(int(intersections.common_counts(pair, None, Budget()).sum())).encode())
    os._exit(0)
os.waitpid(child, 0)
counts.append(int(os.read(read, 20)))
print(json.dumps([counts, sorted(compiled._MACHINE._loops)]))
"""


def run(mode: str, **environment: str) -> list[object]:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", STORY],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "OMNIGRAPH_KERNELS": mode},
    )
    assert found.stderr == ""
    loops: list[object] = json.loads(found.stdout)
    return loops


def test_both_forms_count_the_same_in_a_process_and_its_children(tmp_path: Path) -> None:
    (plain, nothing), (fast, loops) = run("numpy"), run("compiled")
    assert plain == fast
    assert plain[0] == plain[1] > 0
    assert nothing == []
    assert len(loops) == len(compiled._SIGNATURES)


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, loops = run("compiled", NUMBA_CACHE_DIR=str(tmp_path / "file" / "folder"))
    assert len(loops) == len(compiled._SIGNATURES)
