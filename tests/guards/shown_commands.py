"""Runs the commands that a page shows, one after the other, as a reader would type them."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from omnigraph.cli.main import main
from support.server_processes import Newborn, Nursery

#: Where a page says that its server listens; a test takes a free port instead.
SHOWN_ADDRESS = "127.0.0.1:8080"


class Shell:
    """Knows what a page needs: `omnigraph`, `omnigraph-server … &`, `export NAME=VALUE`, `curl`, `mv`, `echo … > FILE`.

    `echo TEXT | omnigraph …` gives a command its input.
    """

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        start_spark: Callable[[], object],
        nursery: Callable[[], Nursery],
    ) -> None:
        self._folder = folder
        #: Makes the session of all tests of this process, which commands then find instead of starting one.
        self._start_spark = start_spark
        self._nursery = nursery
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self._stack = ExitStack()
        self._address = SHOWN_ADDRESS
        # Long work says more than pages show, and everything takes long on a busy machine.
        for limit in ("_TABLE_S", "HEARTBEAT_S"):
            monkeypatch.setattr(f"omnigraph.cli.console.{limit}", 3600.0)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, line: str, redirect: str = "") -> tuple[int, str]:
        """The exit code of a command, and what it prints, with a dot for the folder; nothing if it goes to a file."""
        words = shlex.split(line.replace(SHOWN_ADDRESS, self._address))
        if words[0] == "echo" and "|" in words:
            piped = words.index("|")
            self._monkeypatch.setattr("sys.stdin", io.StringIO(" ".join(words[1:piped]) + "\n"))
            words = words[piped + 1 :]
        match words[0]:
            case "omnigraph":
                code, printed = self._omnigraph(words[1:])
            case "omnigraph-server":
                code, printed = 0, self._serve(words[1:])
            case "export":
                name, _, value = words[1].partition("=")
                self._monkeypatch.setenv(name, value)
                code, printed = 0, ""
            case "echo":
                code, printed = 0, " ".join(words[1:]) + "\n"
            case "mv":
                (self._folder / words[1]).rename(self._folder / words[2])
                code, printed = 0, ""
            case "curl":
                code, printed = 0, _fetched(words[1:])
            case other:
                raise AssertionError(f"no page runs {other}")
        if redirect:
            (self._folder / redirect).write_text(printed, encoding="utf-8")
            printed = ""
        shown = printed.replace(str(self._folder), ".").replace(self._address, SHOWN_ADDRESS)
        return code, shown

    def _omnigraph(self, words: list[str]) -> tuple[int, str]:
        """In this process: a page has many commands, and starting one costs more than most of them."""
        if "spark" in words:
            self._start_spark()
        with pytest.raises(SystemExit) as ended:
            main(words)
        seen = self._capfd.readouterr()
        return int(ended.value.code or 0), seen.out + seen.err

    def _serve(self, words: list[str]) -> str:
        """Start a server that lives until the page ends; gives what it says when it listens."""
        assert words[-1] == "&", "a server that nothing puts into the background never ends"
        settings = {name: value for name, value in os.environ.items() if name.startswith("OMNIGRAPH_")}
        server = self._nursery().serve(words[:-1], settings | {"OMNIGRAPH_BIND": "127.0.0.1:0"}, self._folder)
        self._stack.callback(_stop, server)
        self._address = "{}:{}".format(*server.address)
        return server.said


def commands_of(blocks: Iterator[re.Match[str]]) -> list[tuple[str, str]]:
    """Each `$ command` of the console blocks of a page, with the output shown below it."""
    found: list[tuple[str, str]] = []
    for block in blocks:
        if block["language"] == "console":
            parts = re.split(r"^\$ (.*)\n", block["body"], flags=re.MULTILINE)[1:]
            found += zip(parts[::2], parts[1::2], strict=True)
    return found


def _fetched(words: list[str]) -> str:
    """What `curl -s [-H HEADER] [-d BODY] URL` prints."""
    headers, body, url = {}, None, ""
    given = iter(words)
    for word in given:
        match word:
            case "-s":
                pass
            case "-H":
                name, _, value = next(given).partition(":")
                headers[name] = value.strip()
            case "-d":
                body = next(given)
            case _:
                url = word
    method = "GET" if body is None else "POST"
    text = httpx.request(method, url, headers=headers, content=body, trust_env=False).text
    return text if text.endswith("\n") else f"{text}\n"


def _stop(server: Newborn) -> None:
    server.send(signal.SIGTERM)
    assert server.wait() == 0
