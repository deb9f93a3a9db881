"""`omnigraph shell`: at a prompt and from a pipe, beside storage and against a server."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from omnigraph.cli.rows import RowForm
from omnigraph.cli.shell.commands import COMMANDS, run_command
from omnigraph.cli.shell.prompt import EntryHistory, ShellCompleter, TextColors, converse, history_file
from omnigraph.cli.shell.session import Session
from omnigraph.graph.graph import Graph
from support.cli_graphs import Outcome, Run
from support.cli_twins import ACTOR, TOKEN, Twins, alike, twins
from support.graphs import PEOPLE

ADA = 'insert Person { name: "ada", age: 41 }'
NAMES = "match { $p: Person } return { $p.name } order { $p.name }"
Typed = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def store(tmp_path: Path) -> str:
    with Graph.init(tmp_path / "people.omni", PEOPLE) as graph:
        graph.mutate(ADA)
        graph.create_branch("review")
        return graph.uri


@pytest.fixture
def piped(og: Run, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run the shell with a script as standard input."""

    def run(script: str | bytes, *words: str) -> Outcome:
        content = script if isinstance(script, bytes) else script.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return og("shell", *words)

    return run


# ---- from a pipe


def test_a_script_runs_commands_and_texts_one_after_the_other(piped: Typed, store: str) -> None:
    script = f"""
    // two people more
    insert Person {{ name: "bo" }}
    insert Person {{ name: "cy" }}
    .mode csv
    {NAMES}
    limit 2
    .use review
    match {{ $p: Person }}

    return {{ $p.name }}
    """
    found = piped(script.replace("}\n\n    return", "}\n    return"), store)
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert [line[:15] for line in lines[:2]] == ["1 node, 0 edges"] * 2
    assert lines[2:5] == ["p.name", "ada", "bo"]
    assert lines[5].startswith("branch review at commit")
    assert lines[6:] == ["p.name", "ada"]


def test_a_script_ends_at_the_first_failure_with_its_exit_code(piped: Typed, store: str) -> None:
    script = f"{NAMES}\nmatch {{ $p: Persn }} return {{ $p }}\ninsert Person {{ name: 'x' }}"
    found = piped(script, store)
    assert (found.code, found.out.splitlines()[-1]) == (1, "ada")
    assert "error T1" in found.err
    assert "did you mean `Person`?" in found.err
    assert found.err.splitlines()[-1] == "in line 2 of <stdin>"


def test_with_keep_going_a_script_runs_to_its_end(piped: Typed, store: str) -> None:
    found = piped(f".use nowhere\n.mode jsonl\n{NAMES}\n.nothing", store, "--keep-going", "--quiet")
    assert (found.code, found.out) == (1, '{"p.name": "ada"}\n')
    assert "there is neither a branch nor a commit `nowhere`" in found.err
    assert "there is no command `.nothing`" in found.err


def test_quit_ends_a_script(piped: Typed, store: str) -> None:
    assert piped(f".quit\n{ADA}", store) == Outcome(0, "", "")


def test_input_that_is_not_text_is_refused(piped: Typed, store: str) -> None:
    found = piped(b".branches\n\xff\n", store)
    assert (found.code, found.err) == (1, "line 2 of standard input is not UTF-8\n")


@pytest.mark.parametrize(
    ("script", "out"),
    [
        (".branches", "* main\n  review\n"),
        (".use review\n.branches", None),
        (".mode", "table\n"),
        (".mode json\n.mode", "json\n"),
        (".param b=2\n.param $a=x y\n.param", "$a = x y\n$b = 2\n"),
        (".param b=2\n.param a=1\n.param clear b\n.param\n.param clear\n.param", "$a = 1\n"),
        (".schema Knows", None),
        (".help quit", ".quit\n  Leave\n"),
        (".exit\n.branches", ""),
    ],
)
def test_commands_show_and_change_what_they_say(piped: Typed, store: str, script: str, out: str | None) -> None:
    found = piped(script, store)
    assert (found.code, found.err) == (0, "")
    if out is not None:
        assert found.out == out
    elif "Knows" in script:
        assert found.out.splitlines()[0] == "edge Knows: Person -> Person"
        assert "  since     I32?" in found.out.splitlines()
    else:
        assert found.out.splitlines()[1:] == ["  main", "* review"]


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (".use", None),
        (".mode xml", "`.mode` is one of table, kv, csv, jsonl, json, not `xml`"),
        (".timing", "`.timing` is one of on, off, not ``"),
        (".limit x", "`.limit` takes a whole number, not `x`"),
        (".param x", "--param takes NAME=VALUE, not `x`"),
        (".param clear x", "the parameter `x` is not set"),
        (".diff a b c", "`.diff` takes two branches or commits at most"),
        (".explain", "there was no query yet: give one behind `.explain`"),
        (".explain --fast match", "`.explain` takes --analyze, not --fast"),
        (".schema Persn", "there is no type `Persn`: did you mean `Person`?"),
        (".help bronches", "there is no command `bronches`: did you mean `branches`?"),
        (".bronches", "there is no command `.bronches`: did you mean `.branches`?; `.help` lists them"),
        ("quit", "commands begin with a dot: `.quit`"),
        ("\\d", "commands begin with a dot: `.schema`"),
        (".read", "give a file behind `.read`"),
        ("match { $p: Person { name: $who } } return { $p }", "set parameters with `.param NAME=VALUE`"),
    ],
)
def test_wrong_commands_say_what_to_do(piped: Typed, store: str, script: str, sentence: str | None) -> None:
    found = piped(script, store)
    if sentence is None:
        assert found.out.startswith("branch main at commit")
        return
    assert found.code != 0
    assert sentence in found.err
    assert found.err.endswith("in line 1 of <stdin>\n")


def test_help_lists_every_command(piped: Typed, store: str) -> None:
    listed = piped(".help", store).out
    assert [name for name in COMMANDS if f"\n.{name}" not in f"\n{listed}"] == []


def test_a_commit_is_read_and_never_changed(piped: Typed, store: str) -> None:
    with Graph.open(store) as graph:
        commit = graph.commits()[0].commit_id
        graph.mutate('insert Person { name: "bo" }')
    script = f".mode csv\n.use {commit}\n{NAMES}\n.schema Person\n.log\n.diff main\n{ADA}"
    found = piped(script, store)
    assert found.code == 1
    assert "a commit never changes: go to a branch with `.use BRANCH`" in found.err
    lines = found.out.splitlines()
    assert lines[:3] == [f"commit {commit}, graph version 2", "p.name", "ada"]
    assert next(line.split()[0] for line in lines if line.startswith("01")) == commit, "the log begins at the commit"
    assert lines[-1].startswith("0 inserted, 0 updated, 1 deleted in 1 type from main to")


def test_parameters_are_those_that_a_query_declares(piped: Typed, store: str) -> None:
    script = ".mode csv\nmatch { $p: Person { name: $who } } return { $p.age }\nmatch { $p: Person } return { $p.name }"
    assert piped(script, store, "--param", "who=ada").out == "p.age\n41\np.name\nada\n"


def test_a_text_with_several_queries_runs_all_of_them(piped: Typed, store: str) -> None:
    both = "query a() { match { $p: Person } return { $p.name } } query b() { match { $p: Person } return { $p.age } }"
    assert piped(f".mode csv\n{both}", store).out == "p.name\nada\np.age\n41\n"


def test_the_plan_of_a_text_or_of_the_last_one_is_shown(piped: Typed, store: str) -> None:
    given = piped(f".explain {NAMES}", store)
    last = piped(f".mode csv\n{NAMES}\n.explain", store)
    assert given.out.startswith("read query()")
    assert last.out.endswith(given.out)
    assert "1 row in" in piped(f".explain --analyze {NAMES}", store).out


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "table"])
def test_a_receipt_suits_the_mode(piped: Typed, store: str, form: str) -> None:
    found = piped('insert Person { name: "bo" }', store, "--format", form)
    assert found.code == 0
    if form.startswith("json"):
        assert '"affected_nodes": 1' in found.out
        assert (len(found.out.splitlines()) == 1) is (form == "jsonl")
    else:
        assert (found.err if form == "csv" else found.out).startswith("1 node, 0 edges in commit")


def test_timing_is_told_beside_the_rows(piped: Typed, store: str) -> None:
    found = piped(f".timing on\n.mode csv\n{NAMES}\n.timing off", store)
    assert found.out == "p.name\nada\n"
    assert all(line.startswith("time: ") and line.endswith(" ms") for line in found.err.splitlines())
    assert len(found.err.splitlines()) == 3


def test_files_are_read_and_not_without_end(piped: Typed, store: str, tmp_path: Path) -> None:
    good, bad, endless = (tmp_path / name for name in ("good.txt", "bad.txt", "endless.txt"))
    good.write_text(f".mode csv\n{NAMES}\n", encoding="utf-8")
    bad.write_text(f"{NAMES}\n.nothing\n{NAMES}\n", encoding="utf-8")
    endless.write_text(f".read {endless}\n", encoding="utf-8")
    assert piped(f".read {good}", store).out == "p.name\nada\n"
    failed = piped(f".read {good}\n.read {bad}", store)
    assert failed.err.splitlines()[-2:] == [f"in line 2 of {bad}", "in line 2 of <stdin>"]
    assert "it would read itself without end" in piped(f".read {endless}", store).err
    assert piped(".read nowhere.txt", store).code == 1


def test_a_shell_that_only_reads_refuses_to_write(piped: Typed, store: str) -> None:
    assert piped(NAMES, store, "--read-only").code == 0
    assert piped(ADA.replace("ada", "bo"), store, "--read-only").code == 1
    with Graph.open(store) as graph:
        assert graph.query(NAMES).to_pylist() == [{"p.name": "ada"}]


def test_the_actor_is_recorded(piped: Typed, store: str) -> None:
    assert piped('insert Person { name: "bo" }', store, "--as", "nadia").code == 0
    with Graph.open(store) as graph:
        assert graph.commits()[0].actor == "nadia"


def test_flags_say_where_it_begins(piped: Typed, store: str) -> None:
    with Graph.open(store) as graph:
        commit = graph.commits()[0].commit_id
    assert piped(".use", store, "--branch", "review").out.startswith("branch review at commit")
    assert piped(".use", store, "--snapshot", commit).out.startswith(f"commit {commit}")
    assert piped(".use", store, "--branch", "review", "--snapshot", commit).code == 2
    assert piped(".use", store, "--branch", "nowhere").code == 1


# ---- against a server


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_DURABILITY", "process")
        with twins(tmp_path_factory.mktemp("twins")) as found:
            yield found


def test_a_server_answers_as_the_storage_does(
    piped: Typed, pair: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKEN)
    address = f"{pair.url}/graphs/people"
    script = f"""
    {NAMES}
    .param who=shell
    insert Person {{ name: $who }}
    .branches
    .log 1
    .schema Person
    .explain {NAMES}
    .mode jsonl
    {NAMES}
    match {{ $p: Nobody }} return {{ $p }}
    """
    beside = piped(script, pair.store, "--as", ACTOR)
    served = piped(script, address)
    assert served.code == beside.code == 1
    assert "error T1" in served.err
    assert alike(served.out, address) == alike(beside.out, pair.store)
    assert alike(served.err, address) == alike(beside.err, pair.store)
    named = piped(".branches", "--server", pair.url, "--graph", "people")
    assert named.out == "* main\n"


# ---- at the prompt


class Keyboard:
    """A person at a prompt: what is typed, and what a session looks like behind it."""

    def __init__(self, graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
        self.session = Session(graph=graph, form=RowForm(), commands=run_command)
        self._capsys = capsys

    def types(self, text: str) -> tuple[str, str]:
        """Type a text and leave; gives what was printed."""
        self.session.is_over = False
        with create_pipe_input() as keys:
            keys.send_text(f"{text}\x04")
            converse(self.session, "people", terminal_input=keys, output=DummyOutput())
        printed = self._capsys.readouterr()
        return printed.out, printed.err

    def is_offered(self, text: str) -> list[str]:
        """The completions at the end of a text."""
        found = ShellCompleter(self.session).get_completions(Document(text), CompleteEvent(completion_requested=True))
        return [item.text for item in found]


@pytest.fixture
def keyboard(store: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Keyboard]:
    with Graph.open(store) as graph:
        yield Keyboard(graph, capsys)


def test_enter_begins_a_new_line_until_a_text_is_complete(keyboard: Keyboard) -> None:
    out, err = keyboard.types("match { $p: Person }\rreturn { $p.name }\r")
    assert (out.splitlines()[-1], err) == ("ada", "")


def test_tab_completes_before_the_next_key_is_read(keyboard: Keyboard) -> None:
    out, _ = keyboard.types(".mo\t csv\rmat\t { $p: Per\t } ret\t { $p.n\t }\r")
    assert out == "p.name\nada\n"


def test_alt_enter_begins_a_new_line_behind_a_complete_text(keyboard: Keyboard) -> None:
    keyboard.types(".mode csv\r")
    out, _ = keyboard.types("match { $p: Person } return { $p.name }\x1b\rlimit 0\r")
    assert out == "p.name\n"


def test_the_rest_of_a_text_that_ran_already_is_told_how_to_be_typed(keyboard: Keyboard) -> None:
    _, err = keyboard.types(f"{NAMES}\rlimit 1\r")
    assert err.startswith("this goes on with the text before it: bring that back with ↑")
    assert "error Q000" in keyboard.types(f"{NAMES}\rnonsense 1\r")[1]


def test_an_empty_line_shows_what_is_wrong_with_an_open_text(keyboard: Keyboard) -> None:
    _, err = keyboard.types("match {\r\r")
    assert "error Q000" in err


def test_a_failure_does_not_leave_the_shell(keyboard: Keyboard) -> None:
    out, err = keyboard.types(f"match {{ $p: Persn }} return {{ $p }}\r.nothing\r{NAMES}\r")
    assert "error T1" in err
    assert ".nothing" in err
    assert out.splitlines()[-1] == "ada"


def test_a_defect_ends_the_text_and_not_the_shell(keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("omnigraph.graph.reads.execute", broken)
    out, err = keyboard.types(f"{NAMES}\r.mode\r")
    assert err.startswith("internal error: ZeroDivisionError()")
    assert out == "table\n"


def test_ctrl_c_at_the_prompt_drops_what_was_typed(keyboard: Keyboard) -> None:
    out, err = keyboard.types(f"match {{\r\x03{NAMES}\r")
    assert (out.splitlines()[-1], err) == ("ada", "")


def test_ctrl_c_cancels_a_read_and_gives_the_prompt_back(keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.graph.reads.execute", interrupted)
        out, err = keyboard.types(f"{NAMES}\r.mode\r")
    assert (out, err) == ("table\n", "cancelled\n")
    assert keyboard.types(f"{NAMES}\r")[0].splitlines()[-1] == "ada"


def test_ctrl_c_says_what_became_of_a_mutation(keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.graph.mutations.prepare_mutation", interrupted)
        _, err = keyboard.types('insert Person { name: "bo" }\r')
    assert err == "cancelled, nothing was written\n"
    assert keyboard.types(f".mode csv\r{NAMES}\r")[0] == "p.name\nada\n"


@pytest.mark.parametrize("answer", ["no", "yes"])
def test_a_mutation_that_changes_much_asks(keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    keyboard.session.asks = True
    monkeypatch.setattr("omnigraph.cli.input.ASK_ABOVE", 1)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    out, err = keyboard.types('insert Person { name: "bo" } insert Person { name: "cy" }\r')
    assert "nodes and edges. Go on? [yes/no]" in err
    assert ("nothing was written" in err) is (answer == "no")
    assert ("in commit" in out) is (answer == "yes")


def test_ctrl_c_at_the_question_writes_nothing(keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard.session.asks = True
    monkeypatch.setattr("omnigraph.cli.input.ASK_ABOVE", 1)
    monkeypatch.setattr("omnigraph.cli.input.is_confirmed", lambda _: signal.raise_signal(signal.SIGINT))
    _, err = keyboard.types('insert Person { name: "bo" } insert Person { name: "cy" }\r')
    assert err == "cancelled, nothing was written\n"


def test_what_was_typed_is_kept_for_the_user_alone(keyboard: Keyboard, state_folder: Path) -> None:
    keyboard.types(".mode csv\r.mode csv\r .mode jsonl\rmatch { $p: Person }\rreturn { $p.name }\r")
    file = state_folder / "omnigraph" / "history"
    assert history_file() == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = list(EntryHistory(file).load_history_strings())
    assert found == ["match { $p: Person }\nreturn { $p.name }", ".mode csv"]
    out, _ = keyboard.types("\x1b[A\r")
    assert out == '{"p.name": "ada"}\n'


def test_a_history_that_cannot_be_kept_is_said_once(
    keyboard: Keyboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("OMNIGRAPH_HISTORY", str(tmp_path / "file" / "below"))
    _, err = keyboard.types(".mode\r.mode csv\r")
    assert err.count("the history is not kept") == 1
    monkeypatch.setenv("OMNIGRAPH_HISTORY", "off")
    assert history_file() is None
    assert keyboard.types(".mode\r") == ("csv\n", "")


def test_a_long_history_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.cli.shell.prompt._KEPT", 2)
    file = tmp_path / "history"
    history = EntryHistory(file)
    for number in range(5):
        history.store_string(f"entry {number}")
    assert list(EntryHistory(file).load_history_strings()) == ["entry 4", "entry 3"]
    assert file.read_text(encoding="utf-8") == "entry 3\0entry 4\0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".b", [".branches"]),
        (".use r", ["review"]),
        (".diff main r", ["review"]),
        (".mode j", ["jsonl", "json"]),
        (".timing o", ["on", "off"]),
        (".help br", ["branches"]),
        (".schema Kn", ["Knows"]),
        (".explain mat", ["match"]),
        (".explain --analyze match { $p: Per", ["Person"]),
        ("match { $p: Per", ["Person"]),
        (f"{NAMES}\nmatch {{ $p: Per", ["Person"]),
        (".mode csv\nmatch { $p: Person  $p.a", ["age"]),
        ("match {\n  $p: Person\n  $p.a", ["age"]),
        (".nothing x", []),
    ],
)
def test_commands_and_texts_are_completed(keyboard: Keyboard, text: str, expected: list[str]) -> None:
    assert keyboard.is_offered(text) == expected


def test_files_are_completed(keyboard: Keyboard, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "one.txt").write_text("", encoding="utf-8")
    assert keyboard.is_offered(f".read {tmp_path}/scr") == [f"{tmp_path}/scripts/"]
    assert keyboard.is_offered(f".read {tmp_path}/scripts/") == [f"{tmp_path}/scripts/one.txt"]


def test_a_graph_that_is_gone_is_completed_by_the_grammar(
    keyboard: Keyboard, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(store).rename(f"{store}.away")
    keyboard.session.forget()
    assert keyboard.is_offered("mat") == ["match"]
    assert keyboard.is_offered(".use r") == []


def test_parts_of_a_text_have_their_styles() -> None:
    text = '.use x\nmatch { $p: Person { name: "a // b" } } // so\nreturn { $p }\n"open'
    shown = TextColors().lex_document(Document(text))
    lines = [shown(number) for number in range(5)]
    assert ["".join(part for _, part in line) for line in lines] == [*text.split("\n"), ""]
    styled = [(style, part) for line in lines for style, part in line if style]
    assert styled == [
        ("bold", ".use"),
        ("bold", "match"),
        ("ansicyan", "$p"),
        ("ansigreen", '"a // b"'),
        ("ansibrightblack", "// so"),
        ("bold", "return"),
        ("ansicyan", "$p"),
        ("ansigreen", '"open'),
    ]


# ---- a terminal


@pytest.fixture
def terminal(store: str) -> Iterator[Screen]:
    """The whole program at a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "omnigraph", "shell", store]
    environment = os.environ | {"TERM": "xterm", "PAGER": "cat"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        try:
            yield Screen(master, process)
        finally:
            process.kill()
            os.close(master)


def test_a_terminal_shows_the_prompt_and_gets_it_back(terminal: Screen) -> None:
    terminal.wait_for("main>")
    terminal.types("match { $p: Per\t }\r")
    terminal.wait_for("...>")
    terminal.types("return { $p.name }\r")
    terminal.wait_for("1 row from branch main")
    terminal.wait_for("main>")
    terminal.types(".nothing\r")
    terminal.wait_for("there is no command")
    terminal.wait_for("main>")
    terminal.types("\x04")
    assert terminal.exit_code() == 0
    assert "ada" in terminal.seen


def test_sigterm_ends_the_shell_at_its_prompt(terminal: Screen) -> None:
    terminal.wait_for("main>")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.wait_for("ended by SIGTERM")
    assert terminal.exit_code() == 128 + signal.SIGTERM


class Screen:
    """The other side of a terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self._read = ""
        self.seen = ""

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def exit_code(self) -> int:
        """Wait for the end of the program."""
        return self.process.wait(timeout=60)

    def wait_for(self, text: str) -> None:
        """Read until a text appears, and answer where the cursor is when asked."""
        while text not in self._read:
            ready, _, _ = select.select([self._master], [], [], 20)
            assert ready, f"{text!r} did not come: {self.seen[-500:]!r}"
            found = os.read(self._master, 65_536).decode(errors="replace")
            if "\x1b[6n" in found:
                self.types("\x1b[1;1R")
            self._read += found
            self.seen += found
        self._read = self._read.partition(text)[2]
