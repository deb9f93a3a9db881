"""Environments that hold the wheel and what pip would install with it, and nothing else of this one."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.server_processes import announced

ROOT = Path(__file__).parents[2]


class Environment:
    """A Python of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def run(self, *words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script of the environment, or code."""
        command = [str(self.python), "-c", code] if code is not None else [str(self.folder / "bin" / words[0])]
        arguments = words if code is not None else words[1:]
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, env=self._settings, cwd=self.folder, check=False
        )

    @contextmanager
    def serving(self, store: str) -> Iterator[str]:
        """The address of a server of the environment, which ends with the block."""
        command = [str(self.folder / "bin" / "omnigraph-server"), "--store", store, "--unauthenticated"]
        command += ["--bind", "127.0.0.1:0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._settings, cwd=self.folder)
        with server:
            assert server.stdout is not None
            try:
                host, port = announced(server.stdout)
                yield f"http://{host}:{port}"
            finally:
                server.terminate()
        assert server.returncode == 0

    @property
    def _settings(self) -> dict[str, str]:
        """The settings of this process, without what would make the environment find its packages."""
        return {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def linked_environment(folder: Path, wheel: Path, extra: str | None) -> Environment:
    """The wheel with the packages that its metadata asks for, as links to those of this environment: needs no index.

    Raises:
        AssertionError: one of them is missing here, or has a version that the wheel does not accept.
    """
    venv.create(folder, symlinks=True)
    environment = Environment(folder)
    (site,) = folder.glob("lib/*/site-packages")
    unpacked = wheel.with_suffix("")
    if not unpacked.exists():
        # Once for all environments: its modules are compiled once too.
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    (own,) = importlib.metadata.distributions(path=[str(unpacked)])
    for distribution in (own, *_needed_by(own, extra)):
        for name in {Path(str(file)).parts[0] for file in distribution.files or ()} - {".."}:
            target = Path(str(distribution.locate_file(name)))
            if target.exists() and not (site / name).exists():
                (site / name).symlink_to(target)
    for entry in own.entry_points.select(group="console_scripts"):
        script = folder / "bin" / entry.name
        script.write_text(f"#!{environment.python}\nfrom {entry.module} import {entry.attr}\n{entry.attr}()\n")
        script.chmod(0o755)
    return environment


def installed_environment(folder: Path, wheel: Path, extra: str | None) -> Environment:
    """The wheel as pip installs it, from the index of this machine."""
    venv.create(folder, with_pip=True, symlinks=True)
    environment = Environment(folder)
    wanted = str(wheel) if extra is None else f"{wheel}[{extra}]"
    done = environment.run("pip", "install", "--quiet", wanted)
    assert done.returncode == 0, done.stderr
    return environment


def _needed_by(own: importlib.metadata.Distribution, extra: str | None) -> Iterator[importlib.metadata.Distribution]:
    """Every distribution that an installation of one needs, with those that they need."""
    found: dict[str, importlib.metadata.Distribution] = {}
    wanted = _requirements(own, [extra] if extra else [])
    done: set[str] = set()
    while wanted:
        item = wanted.pop()
        if str(item) in done:
            continue
        done.add(str(item))
        distribution = importlib.metadata.distribution(item.name)
        assert item.specifier.contains(distribution.version, prereleases=True), (item, distribution.version)
        found[canonicalize_name(item.name)] = distribution
        wanted += _requirements(distribution, item.extras)
    yield from found.values()


def _requirements(distribution: importlib.metadata.Distribution, extras: Iterable[str]) -> list[Requirement]:
    """The requirements of a distribution on this machine, with those of some of its extras."""
    found = map(Requirement, distribution.requires or ())
    names = ("", *extras)
    return [item for item in found if not item.marker or any(item.marker.evaluate({"extra": name}) for name in names)]
