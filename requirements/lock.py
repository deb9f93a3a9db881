"""Resolve the ranges of pyproject.toml into exact pins, one file per purpose.

Run by `make lock`, which takes the newest versions; with `--keep` what is pinned stays, and only new packages are
resolved. Each file is what pip installs into an empty environment for that purpose, as plain `name==version` lines;
where the packages come from is left to the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
_OWN_EXTRAS = re.compile(rf"{PROJECT['name']}\[([\w,-]+)\]")


def ranges_of(*extras: str) -> list[str]:
    """The ranges of the package with some of its extras, which may name others."""
    return [*PROJECT["dependencies"], *(item for extra in extras for item in _expanded(extra))]


def _expanded(extra: str) -> Iterator[str]:
    for item in EXTRAS[extra]:
        own = _OWN_EXTRAS.fullmatch(item)
        if own is None:
            yield item
        else:
            for name in own[1].split(","):
                yield from _expanded(name)


#: The largest set first: what it settles on holds for the others, so that all of them fit into one environment.
PURPOSES: dict[str, list[str]] = {
    "dev": ranges_of("all", "spark-connect", "dev"),
    "build": ["hatchling>=1.27", "editables>=0.5"],
    "runtime": ranges_of("all"),
    "docs": ranges_of("all", "docs"),
    "audit": ["pip-audit>=2.10"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the versions that are pinned")
    keep = parser.parse_args().keep
    settled: list[str] = []
    for purpose, ranges in PURPOSES.items():
        file = HERE / f"{purpose}.txt"
        pinned = file.read_text(encoding="utf-8").split() if keep and file.exists() else []
        pins = resolve(ranges, sorted({*settled, *pinned}))
        settled = settled or pins
        file.write_text("\n".join(pins) + "\n", encoding="utf-8")
        print(f"requirements/{purpose}.txt: {len(pins)} packages")


def resolve(ranges: list[str], settled: list[str]) -> list[str]:
    """What pip would install into an empty environment, at settled versions where there are any."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(settled), encoding="utf-8")
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        asked = [*pip, "--dry-run", "--report", "-", "-c", str(constraints), *ranges]
        report = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    found = [item["metadata"] for item in report["install"]]
    return sorted((f"{item['name']}=={item['version']}" for item in found), key=str.lower)


if __name__ == "__main__":
    sys.exit(main())
