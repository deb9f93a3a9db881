"""The server under measurement, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANNOUNCEMENT = "OMNIGRAPH_LISTEN_ADDR="


class ServerProcess:
    """`python -m omnigraph.server` on a free port of this machine."""

    def __init__(self, store: Path, log: Path, environment: Mapping[str, str]) -> None:
        flags = ["--store", str(store), "--bind", "127.0.0.1:0", "--unauthenticated"]
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "omnigraph.server", *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line.startswith(_ANNOUNCEMENT):
            sys.exit(f"the server did not start:\n{log.read_text(encoding='utf-8')}")
        host, _, port = line.removeprefix(_ANNOUNCEMENT).rpartition(":")
        self.address = host, int(port)
        self.url = f"http://{host}:{port}"

    def resident_bytes(self) -> int:
        """The memory that it holds now."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """The processor time that it has used."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if code:
            sys.exit(f"the server ended with {code}")
