"""Resolve the ranges of pyproject.toml into exact pins, one file per purpose.

Run by `make lock`. Each file is what pip installs into an empty environment for that purpose, as plain
`name==version` lines; where the packages come from is left to the machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

#: The largest set first: what it settles on holds for the others, so that all of them fit into one environment.
PURPOSES: dict[str, list[str]] = {
    "dev": [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["spark-connect"]],
    "build": ["hatchling>=1.27", "editables>=0.5"],
    "runtime": PROJECT["dependencies"],
    "docs": [*PROJECT["dependencies"], *EXTRAS["docs"]],
    "audit": ["pip-audit>=2.10"],
}


def main() -> None:
    settled: list[str] = []
    for purpose, ranges in PURPOSES.items():
        pins = resolve(ranges, settled)
        settled = settled or pins
        (HERE / f"{purpose}.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
        print(f"requirements/{purpose}.txt: {len(pins)} packages")


def resolve(ranges: list[str], settled: list[str]) -> list[str]:
    """Install the ranges into an empty environment, at settled versions where there are any, and read what is there."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(settled), encoding="utf-8")
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "-c", str(constraints), *ranges], check=True)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    return [line for line in frozen.splitlines() if "==" in line]


if __name__ == "__main__":
    sys.exit(main())
