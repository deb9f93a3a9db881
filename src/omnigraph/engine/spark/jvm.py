"""The JVM process behind a session: started quietly, its last words kept, ended with a bound."""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.engine.spark.archive import Archive, discard_archive, keep_archive
from omnigraph.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark import SparkConf

_LOG = "jvm.log"
_END_TIMEOUT_S = 20
#: Tokens by which servers and clients of this project know each other. No task needs them, and foreign code in a task,
#: or anybody who may look at the processes of the cluster, would find them.
_SECRETS = re.compile(
    r"OMNIGRAPH_(?:SERVER_BEARER_TOKENS?(?:_JSON|_FILE|_AWS_SECRET)?|BEARER_TOKEN|TOKEN_.+)"
)
#: A JVM that records an archive writes it when it ends: about ten seconds on a small machine.
_RECORD_TIMEOUT_S = 120
_SHOWN_CHARACTERS = 400
_LOGGED_ERROR = re.compile(r"^[0-9/]+ [0-9:]+ ERROR [^:\s]+: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
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


def launch_jvm(
    conf: SparkConf,
    environ: Mapping[str, str],
    *,
    archive: Archive,
    log_folder: Path | None,
) -> Jvm:
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


class _LaunchOptions(dict[str, Any]):
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
    """What the JVM printed so far; empty when it went to the terminal."""
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
        line
        for line in lines
        if line and not line.startswith(("at ", "...", "WARNING:")) and not line.endswith(":")
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
