"""Compare the pinned packages with known advisories, by pip-audit in an environment of its own.

Run by `make audit`. Exits with 0 when every package was checked and none has an advisory, with 1 when one has, and with
3 when not every package could be checked: that there are no advisories is never said without having looked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
ENVIRONMENT = ROOT / ".venv" / "audit"
FOUND, UNCHECKED = 1, 3
_SHOWN_LINES = 3


class CannotCheckError(Exception):
    """There is no answer about some packages; the message says why."""


def main() -> int:
    try:
        tool = installed()
        results = {file.stem: audited(tool, file) for file in sorted(REQUIREMENTS.glob("*.txt"))}
    except CannotCheckError as reason:
        print(f"nothing was checked: {reason}")
        return UNCHECKED
    return report(results)


def installed() -> Path:
    """The executable of pip-audit, installed at its pinned version."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pins = REQUIREMENTS / "audit.txt"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run([*pip, "install", "-r", str(pins)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotCheckError(f"pip-audit cannot be installed: {last_lines(done.stderr)}")
    return ENVIRONMENT / "bin" / "pip-audit"


def audited(tool: Path, file: Path) -> list[dict[str, object]]:
    """What pip-audit says about each package of a file."""
    flags = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command = [str(tool), "--requirement", str(file), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        raise CannotCheckError(f"the advisories cannot be reached: {last_lines(done.stderr)}") from None
    return list(packages)


def report(results: dict[str, list[dict[str, object]]]) -> int:
    """Print what was found; gives the exit code."""
    packages = {
        (str(item["name"]), str(item.get("version", ""))): item for listed in results.values() for item in listed
    }
    skipped = [item for item in packages.values() if "skip_reason" in item]
    affected = 0
    for (name, version), item in sorted(packages.items()):
        for advisory in item.get("vulns", ()):  # type: ignore[attr-defined]
            affected += 1
            fixed = ", ".join(advisory["fix_versions"]) or "no release yet"
            print(f"{name} {version}: {advisory['id']}, fixed in {fixed}")
    checked = len(packages) - len(skipped)
    print(f"{checked} of {len(packages)} pinned packages were checked: {affected} advisories")
    if affected:
        return FOUND
    if skipped or not packages:
        reason = skipped[0]["skip_reason"] if skipped else "no package is pinned"
        print(f"{len(skipped)} could not be checked, such as: {reason}")
        return UNCHECKED
    return 0


def last_lines(text: str) -> str:
    return " ".join(text.strip().splitlines()[-_SHOWN_LINES:]) or "it says nothing"


if __name__ == "__main__":
    sys.exit(main())
