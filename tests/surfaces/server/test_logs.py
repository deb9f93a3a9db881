"""Log entries: on one line, and without power over the terminal that shows them."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from omnigraph.errors.text import one_line
from omnigraph.server.responses import configure_logs, logger

HOSTILE = '/\x1b]0;own\x07\x9b5n\u202e\r\n{"forged": true}'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _own_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_handlers")
@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_what_strangers_send_stays_on_its_line(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs()
    logger("test").info("request", path=HOSTILE, method=HOSTILE)
    logging.getLogger("library").warning("odd: %s", HOSTILE)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    if not stream.isatty():
        assert json.loads(lines[0])["path"] == one_line(HOSTILE)
        assert not any(one_line(line) != line for line in lines)
    for line in lines:
        assert "\x1b]" not in line
        assert "\x9b" not in line
        assert "\u202e" not in line
