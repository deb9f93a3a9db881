"""The one Spark session of a process: settings, check of the master, start and stop."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.core.env_settings import Variable, cache_folder
from omnigraph.core.lazy_exports import late_types
from omnigraph.errors import BadRequestError, SparkError
from omnigraph.frozen import frozen
from omnigraph.spark.jvm import (
    Archive,
    Java,
    Jvm,
    discard_archive,
    find_java,
    last_error,
    launch_jvm,
    launcher_home,
    plan_archive,
    read_log,
    telling_line,
    variables,
)

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
else:
    globals().update(late_types({"pyspark.sql": "SparkSession"}))


# ---- Settings of the Spark session


DEFAULT_MASTER = "local[*,4]"  # four tries of a task: without them a local session would never repeat one
#: Below this much input the start of the JVM is most of the work.
SMALL_INPUT_BYTES = 64 * 1024 * 1024
LOG_LEVEL = "spark.log.level"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_MASTER = Variable(
    "OMNIGRAPH_SPARK_MASTER",
    "The master of the Spark session that OmniGraph starts.",
    default=f"`{DEFAULT_MASTER}`",
    values="`local[…]`, `spark://host:7077`, `yarn`, `k8s://…`",
)
_MEMORY = Variable(
    "OMNIGRAPH_SPARK_DRIVER_MEMORY",
    "The heap of the JVM of the driver.",
    default="a quarter of the memory, 1 to 4 GiB",
    values="`2g`, `512m`",
)
_CONF = Variable("OMNIGRAPH_SPARK_CONF", "Settings of Spark that win over those of OmniGraph.", values="a JSON object")
_ARCHIVE = Variable(
    "OMNIGRAPH_SPARK_ARCHIVE",
    "Keeps an archive of Java classes in the cache folder, which makes later starts shorter.",
    default="`on`",
    values="`on`, `off`",
)
_MEMORY_FORM = re.compile(r"[1-9][0-9]*[kmgt]b?", re.IGNORECASE)
_GIB = 1024**3


@frozen(kw_only=True)
class SparkSettings:
    """Settings of the session that OmniGraph starts; a session of the caller is left as it is."""

    master: str = DEFAULT_MASTER
    driver_memory: str = "2g"
    #: Spark settings that win over ours.
    conf: Mapping[str, str] = field(default_factory=dict)
    use_archive: bool = True

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def shows_log(self) -> bool:
        """Whether the caller asked for Spark's log: then it goes to the terminal."""
        return LOG_LEVEL in self.conf

    @staticmethod
    def from_environment() -> SparkSettings:
        """The settings of the `OMNIGRAPH_SPARK_*` variables.

        Raises:
            BadRequestError: a variable cannot be read. A wrong master or memory is never guessed.
        """
        memory = _MEMORY.text() or default_memory(_machine_bytes())
        if not _MEMORY_FORM.fullmatch(memory):
            raise BadRequestError(f"{_MEMORY}={memory} is not a memory size: write 2g or 512m")
        return SparkSettings(
            master=_MASTER.text(DEFAULT_MASTER),
            driver_memory=memory,
            conf=parse_conf(_CONF.text()),
            use_archive=_ARCHIVE.text().lower() != "off",
        )


def parse_conf(text: str) -> dict[str, str]:
    """Spark settings out of a JSON object.

    >>> parse_conf('{"spark.sql.shuffle.partitions": 16, "spark.eventLog.enabled": false}')
    {'spark.sql.shuffle.partitions': '16', 'spark.eventLog.enabled': 'false'}

    Raises:
        BadRequestError: the text is something else.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadRequestError(f"{_CONF} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequestError(f'{_CONF} has to be a JSON object: {{"spark.some.setting": "value"}}')
    settings: dict[str, str] = {}
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise BadRequestError(f"{_CONF}: the value of {name} has to be a text, number or bool")
        settings[name] = value if isinstance(value, str) else json.dumps(value)
    return settings


def session_conf(
    settings: SparkSettings, *, scratch: Path, cores: int, input_bytes: int | None, java_options: Sequence[str] = ()
) -> dict[str, str]:
    """Every Spark setting of a new session; those of the caller win.

    Args:
        settings: what was configured.
        scratch: a directory for temporary files of Spark.
        cores: how many this machine has.
        input_bytes: how much is going to be read; None when unknown, which counts as much.
        java_options: more flags for the JVM of the driver.
    """
    is_small = input_bytes is not None and input_bytes < SMALL_INPUT_BYTES
    flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if is_small else ("-XX:+UseParallelGC",)
    conf = {
        "spark.app.name": "omnigraph",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        JAVA_OPTIONS: " ".join(_quoted(flag) for flag in (*flags, *java_options)),
        LOG_LEVEL: "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if settings.is_local:
        # On a cluster the number of partitions, the address and the disks are the cluster's business.
        conf |= {
            # Other users of the machine reach the ports as well. A cluster has a secret of its own, or none.
            "spark.authenticate": "true",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.shuffle.partitions": str(max(8, 2 * cores)),
        }
    return conf | dict(settings.conf)


def default_memory(machine_bytes: int | None) -> str:
    """A quarter of the machine's memory, at least 1 and at most 4 GiB.

    >>> default_memory(16 * 1024**3), default_memory(2 * 1024**3), default_memory(None)
    ('4g', '1g', '2g')
    """
    if machine_bytes is None:
        return "2g"
    return f"{min(4, max(1, round(machine_bytes / 4 / _GIB)))}g"


def _machine_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None  # this system does not tell


def _quoted(flag: str) -> str:
    # Spark's launcher splits the text at spaces and knows double quotes.
    return f'"{flag}"' if " " in flag else flag


# ---- Reachability of a standalone master


_SCHEME = "spark://"
_TIMEOUT_S = 5.0


def check_master(master: str) -> None:
    """Make sure that a standalone master is reachable. Other kinds of masters are not asked.

    Of several masters one is enough: the others are on standby. Opens one connection per address.

    Raises:
        SparkError: no address of the master is reachable.
    """
    if not master.startswith(_SCHEME):
        return
    reasons = []
    for host, port in addresses(master):
        try:
            with socket.create_connection((host, port), timeout=_TIMEOUT_S):
                return
        except OSError as error:
            reasons.append(f"{host}:{port} {error.strerror or error}")
    if reasons:
        raise SparkError(
            f"no Spark master answers at {master} ({'; '.join(reasons)}): check OMNIGRAPH_SPARK_MASTER, and that the "
            "master runs"
        )


def addresses(master: str) -> Iterator[tuple[str, int]]:
    """The hosts and ports of a standalone master. Invalid addresses are left to Spark to refuse.

    >>> list(addresses("spark://one:7077,two:7078,three"))
    [('one', 7077), ('two', 7078)]
    """
    for part in master.removeprefix(_SCHEME).split(","):
        host, _, port = part.strip().rpartition(":")
        if host and port.isascii() and port.isdigit() and int(port) < 65536:
            yield host.strip("[]"), int(port)


# ---- The Spark session of the process


def spark_session(input_bytes: int | None = None) -> SparkSession:
    """The session of this process. Thread-safe; the first call starts a JVM, which takes some seconds.

    A session that the caller's own code made, classic or of Spark Connect, is used as it is, and never reconfigured or
    stopped. Ours is quiet, is stopped at exit, and its scratch directory goes with it.

    Args:
        input_bytes: how much is going to be read, if known: a JVM for little data starts faster. Without effect on a
            session that exists.

    Raises:
        BadRequestError: an `OMNIGRAPH_SPARK_*` variable cannot be read.
        SparkError: there is no usable Java, Spark does not start, or the process works with Spark Connect and has no
            session.
    """
    return _OWNER.session(input_bytes)


class _Owner:
    """Makes, keeps and stops the session that is ours."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._context: SparkContext | None = None
        self._jvm: Jvm | None = None
        self._scratch: Path | None = None
        self._process_id = os.getpid()

    def session(self, input_bytes: int | None) -> SparkSession:
        from py4j.protocol import Py4JError
        from pyspark.sql import SparkSession

        with self._lock:
            if _is_for_connect():
                return _connect_session()
            if _active_context() is None:
                self._start(input_bytes)
            try:
                # The first knows sessions with settings of their own, but only those of this thread.
                return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
            except (Py4JError, OSError) as error:
                raise self._ended(error) from error

    def _start(self, input_bytes: int | None) -> None:
        settings = SparkSettings.from_environment()
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
            self._process_id = os.getpid()
            atexit.register(self.close)
        check_master(settings.master)
        environ = _worker_variables(settings)
        if _gateway() is None:
            self._jvm, conf = _launch(settings, self._scratch, input_bytes, environ)
        else:
            # The JVM of an earlier session in this process: its flags cannot change any more.
            conf = _spark_conf(settings, self._scratch, input_bytes, Archive())
        self._context = self._connect(conf, environ)

    def _connect(self, conf: SparkConf, environ: dict[str, str]) -> SparkContext:
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.errors import PySparkException

        gateway = None if self._jvm is None else self._jvm.gateway
        try:
            with variables(environ), _kept_interrupt():
                return SparkContext(conf=conf, gateway=gateway)
        except (Py4JError, PySparkException, OSError) as error:
            said = self._reason(error)
            self._end_jvm()
            raise SparkError(
                f"Spark did not start: {said}; check OMNIGRAPH_SPARK_MASTER and OMNIGRAPH_SPARK_CONF"
            ) from error

    def _ended(self, error: Exception) -> SparkError:
        """The error of a context that Spark stopped by itself; ours is dropped, so that the next call starts one.

        A master that does not register the application, or throws it out, ends the context without an exception.
        """
        if _active_context() is not self._context:
            return SparkError(
                f"the Spark session of this process has ended: {telling_line(str(error))}; stop it and make another"
            )
        said = self._reason(error)
        self._stop_context()
        self._end_jvm()
        return SparkError(f"Spark has ended: {said}; check OMNIGRAPH_SPARK_MASTER and the log of the cluster")

    def _reason(self, error: Exception) -> str:
        """Why Spark is not there. Asked before its JVM ends, which has the text of the error."""
        said = telling_line(str(error))
        # A context that was stopped from outside says only that; the log says by whom.
        logged = last_error(read_log(self._scratch))
        return f"{said} ({logged})" if logged else said

    def close(self) -> None:
        """Stop the session, end its JVM and remove its scratch directory. Leaves sessions of others alone."""
        if os.getpid() != self._process_id:
            return  # a fork of the process: the session is its parent's
        with self._lock:
            if _active_context() in (None, self._context):
                self._stop_context()
                self._end_jvm()
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
                self._scratch = None
                atexit.unregister(self.close)

    def _stop_context(self) -> None:
        from py4j.protocol import Py4JError

        context, self._context = self._context, None
        if context is None:
            return
        # A JVM that died is as good as one that was stopped; pyspark would warn about it.
        with warnings.catch_warnings(), suppress(Py4JError, OSError):
            warnings.simplefilter("ignore")
            try:
                context.stop()
            except OSError:
                # Nothing listens any more, and pyspark gave up half-way; the second time it does the rest.
                context.stop()

    def _end_jvm(self) -> None:
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.end()
            _forget_gateway(jvm)


_OWNER = _Owner()


def _is_for_connect() -> bool:
    """Whether the process works with Spark Connect: it cannot have a classic session beside that."""
    from pyspark.sql.utils import is_remote

    return is_remote() or ("SPARK_REMOTE" in os.environ and _active_context() is None)


def _connect_session() -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException as error:
        raise SparkError(
            "this process works with Spark Connect and has no session: make one with "
            "SparkSession.builder.remote(ADDRESS).getOrCreate(), and give it with spark="
        ) from error


def _launch(
    settings: SparkSettings, scratch: Path, input_bytes: int | None, environ: dict[str, str]
) -> tuple[Jvm, SparkConf]:
    java = find_java()
    home = launcher_home(java, cache_folder("java") or scratch / "java")
    log_folder = None if settings.shows_log else scratch

    def launch(archive: Archive) -> tuple[Jvm, SparkConf]:
        conf = _spark_conf(settings, scratch, input_bytes, archive)
        everything = environ | {"JAVA_HOME": str(home)}
        return launch_jvm(conf, everything, archive=archive, log_folder=log_folder), conf

    archive = _archive(settings, java)
    try:
        return launch(archive)
    except SparkError:
        if not archive.options:
            raise
    # The archive may be what is wrong: it is, if the JVM starts without it.
    started = launch(Archive())
    discard_archive(archive)
    return started


def _archive(settings: SparkSettings, java: Java) -> Archive:
    import pyspark

    # Flags of the caller replace ours, so the JVM would not know of the archive.
    if not settings.use_archive or JAVA_OPTIONS in settings.conf:
        return Archive()
    jars = Path(pyspark.__file__).parent / "jars"
    return plan_archive(java, pyspark.__version__, jars, cache_folder("spark"))


def _spark_conf(settings: SparkSettings, scratch: Path, input_bytes: int | None, archive: Archive) -> SparkConf:
    from pyspark import SparkConf

    found = session_conf(
        settings, scratch=scratch, cores=os.cpu_count() or 1, input_bytes=input_bytes, java_options=archive.options
    )
    # Without defaults: reading them would start a JVM before its settings are known.
    return SparkConf(loadDefaults=False).setAll(list(found.items()))


def _worker_variables(settings: SparkSettings) -> dict[str, str]:
    """Workers run the Python of this process; on a cluster the caller may know a better one."""
    chosen = {name: sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    if settings.is_local:
        return chosen
    found = {name: os.environ.get(name) or python for name, python in chosen.items()}
    # pyspark reads the variable only: the setting counts in jobs that spark-submit starts.
    if python := settings.conf.get("spark.pyspark.python"):
        found["PYSPARK_PYTHON"] = python
    return found


@contextmanager
def _kept_interrupt() -> Iterator[None]:
    """Keep what Ctrl-C does: pyspark's handler calls into the JVM, which fails when the interrupted code just did so.

    Jobs of this project run in threads of their own and end by their tags.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


# The three questions below have no public answer in pyspark 4.3: whether the process has a context (the public one
# knows the current thread only), whether it has a JVM, and how to let go of a JVM that has ended.


def _active_context() -> SparkContext | None:
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _gateway() -> object | None:
    from pyspark import SparkContext

    return SparkContext._gateway


def _forget_gateway(jvm: Jvm) -> None:
    from pyspark import SparkContext

    if SparkContext._gateway is jvm.gateway:
        SparkContext._gateway = None
        # The next settings would be sent there.
        SparkContext._jvm = None
