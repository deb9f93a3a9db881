"""The environment of the peers: they never enter that of the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PINS = Path(__file__).parents[1] / "peers.txt"


def peers_python(environment: Path) -> Path:
    """The interpreter of the peers' environment, which is made at the first run and when its pins change."""
    installed = environment / "installed.txt"
    python = environment / "bin" / "python"
    if not installed.exists() or installed.read_bytes() != _PINS.read_bytes():
        print(f"installing the pinned peers into {environment}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "-r", _PINS], check=True)
        installed.write_bytes(_PINS.read_bytes())
    return python
