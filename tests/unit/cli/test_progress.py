"""What progress prints about work that is stopped."""

from __future__ import annotations

import io
import re
import sys

import pytest

from omnigraph.cli.output import terminal_progress
from omnigraph.pipeline.workers import STOPPING, InnerProgress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal], ids=["log", "terminal"])
def test_a_stage_that_is_stopped_says_so_once(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
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
