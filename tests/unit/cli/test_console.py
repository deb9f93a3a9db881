"""Ctrl-C and SIGTERM, again and again: one trace of them is raised, the others are sentences."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli import console
from omnigraph.cli.console import Interrupts, StreamedList, print_json, terminal_progress
from omnigraph.pipeline.workers import STOPPING, InnerProgress


def test_only_the_first_interrupt_is_raised(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts(2, None)
    assert capfd.readouterr().err == ""
    interrupts(2, None)
    assert capfd.readouterr().err.startswith("already stopping")
    assert codes == []
    interrupts(2, None)
    assert "omnigraph cleanup" in capfd.readouterr().err
    assert codes == [130]


def test_an_interrupt_while_spark_ends_raises_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the command is printed: there is nothing to stop, and a trace would look like a failure."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    interrupts.end_command()
    interrupts(2, None)
    assert capfd.readouterr().err == "the command is done, and Spark ends; Ctrl-C once more does not wait for it\n"
    assert codes == []
    interrupts(2, None)
    assert codes == [130]


def test_a_terminated_command_is_stopped_like_an_interrupted_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts(signal.SIGTERM, None)
    assert (interrupts.exit_code, interrupts.sentence) == (143, "ended by SIGTERM")
    for _ in range(2):
        interrupts(signal.SIGTERM, None)
    told = capfd.readouterr().err
    assert told.startswith("already stopping")
    assert "SIGTERM once more ends at once" in told
    assert "Ctrl-C" not in told
    assert codes == [143]
    interrupts.end_command()
    interrupts(signal.SIGTERM, None)
    assert capfd.readouterr().err == "the command is done, and Spark ends; SIGTERM once more does not wait for it\n"


_TERMINATED = """
import os, signal
from omnigraph.core import failpoints
from omnigraph.cli.main import main

def end(place):
    if place == "load_fragments_written":
        os.kill(os.getpid(), signal.SIGTERM)

with failpoints.watched(end):
    main()
"""


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_terminated_load_ends_with_143_and_leaves_nothing(tmp_path: Path, as_json: bool) -> None:
    root, lines = tmp_path / "g.omni", tmp_path / "notes.jsonl"
    Graph.init(root, "node Note { key: String @key }").close()
    lines.write_text('{"type": "Note", "data": {"key": "a"}}', encoding="utf-8")
    before = files(root)
    command = ["load", str(root), "--data", str(lines), "--mode", "append", "--engine", "local"]
    done = subprocess.run(
        [sys.executable, "-c", _TERMINATED, *command, *(["--json"] if as_json else [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 143, done.stderr
    sentence = "ended by SIGTERM, nothing was written"
    if as_json:
        assert json.loads(done.stdout) == {"error": sentence, "kind": "interrupted", "code": "cancelled"}
    else:
        assert sentence in done.stderr.splitlines()
    assert files(root) == before


def files(root: Path) -> set[str]:
    """Everything in the graph but its locks."""
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.name.endswith("lock")
    }


# ---- What progress prints about work that is stopped


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal], ids=["log", "terminal"])
def test_a_stage_that_is_stopped_says_so_once(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    err = stream()
    monkeypatch.setattr(sys, "stderr", err)
    inner = InnerProgress()
    with (
        terminal_progress().stage("check relations", 1) as stage,
        inner.inside(stage),
        inner.stage("ends of Cites", 4) as job,
    ):
        stage.tell("ends of Cites")
        job.tell(STOPPING)
    # Without the codes that move the bar.
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.getvalue())
    lines = [line.strip() for line in re.split(r"[\r\n]", printed)]
    assert lines.count(f"ends of Cites: {STOPPING}") == 1, lines


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("pieces", [1, 5, 10_000])
def test_a_streamed_list_is_printed_like_any_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: int, pieces: int
) -> None:
    monkeypatch.setattr(console, "_PIECES", pieces)
    numbers = list(range(count))

    def shown(number: int) -> dict[str, object]:
        return {"number": number, "text": "é\n", "none": None, "more": {"list": [number]}}

    print_json({"first": True, "items": StreamedList(numbers, shown), "last": {"a": []}})
    whole = {"first": True, "items": [shown(n) for n in numbers], "last": {"a": []}}
    assert capsys.readouterr().out == json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def test_items_are_printed_before_the_next_ones_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PIECES", 1)
    seen: list[str] = []

    def shown(number: int) -> int:
        seen.append(capsys.readouterr().out)
        return number

    print_json({"items": StreamedList([1, 2, 3], shown)})
    assert "1" in seen[1]
    assert "2" in seen[2]


# ---- interrupts where Python cannot raise


def in_a_finaliser(act: Callable[[], None]) -> None:
    class Dropped:
        def __del__(self) -> None:
            act()

    Dropped()


def in_a_generator_that_ends(act: Callable[[], None]) -> None:
    def steps() -> Iterator[int]:
        try:
            yield 1
        finally:
            act()

    next(steps())


def in_a_callback_of_a_weak_reference(act: Callable[[], None]) -> None:
    class Used:
        pass

    used = Used()
    watch = weakref.ref(used, lambda _: act())
    del used
    assert watch() is None


def in_a_finaliser_within_another(act: Callable[[], None]) -> None:
    in_a_finaliser(lambda: in_a_finaliser(act))


@pytest.mark.parametrize(
    "place",
    [in_a_finaliser, in_a_generator_that_ends, in_a_callback_of_a_weak_reference, in_a_finaliser_within_another],
)
def test_an_interrupt_that_python_cannot_raise_is_raised_behind_it(place: Callable[[Callable[[], None]], None]) -> None:
    interrupts, steps = Interrupts(), list[str]()

    def work() -> None:
        place(lambda: interrupts(signal.SIGINT, None))
        steps.append("went on")

    with pytest.raises(KeyboardInterrupt) as caught, interrupts.raising_lost():
        work()
    assert steps == []
    assert caught.value is interrupts._raised
    assert sys.getprofile() is None
    assert interrupts.exit_code == 130


def test_other_failures_that_python_cannot_raise_are_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_value))
    failure = ValueError("odd")

    def fail() -> None:
        raise failure

    with Interrupts().raising_lost():
        in_a_finaliser(fail)
    assert told == [failure]


#: Interrupts a command at the first import that has a name in it, within a finaliser.
_INTERRUPTED_IMPORT = """
import signal, sys

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            Dropped()

sys.meta_path.insert(0, Finder())
sys.argv = ["omnigraph", "export", {graph!r}, "--out", {out!r}]
from omnigraph.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["omnigraph.cli.main", "omnigraph.cli.commands.data", "omnigraph.pipeline.export.job"])
def test_an_interrupt_within_an_import_ends_the_command(tmp_path: Path, name: str) -> None:
    graph, out = str(tmp_path / "g.omni"), tmp_path / "out.jsonl"
    Graph.init(graph, "node A { k: String @key }").close()
    code = _INTERRUPTED_IMPORT.format(name=name, graph=graph, out=str(out))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.splitlines()[-1] == "cancelled, nothing was written"
    assert "Traceback" not in ended.stderr
    assert not out.exists()
