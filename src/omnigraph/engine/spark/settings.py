"""Settings of the Spark session: from the environment, and as Spark understands them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DEFAULT_MASTER = (
    "local[*,4]"  # four tries of a task: without them a local session would never repeat one
)
#: Below this much input the start of the JVM is most of the work.
SMALL_INPUT_BYTES = 64 * 1024 * 1024
LOG_LEVEL = "spark.log.level"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_MASTER = "OMNIGRAPH_SPARK_MASTER"
_MEMORY = "OMNIGRAPH_SPARK_DRIVER_MEMORY"
_CONF = "OMNIGRAPH_SPARK_CONF"
_ARCHIVE = "OMNIGRAPH_SPARK_ARCHIVE"
_MEMORY_FORM = re.compile(r"[1-9][0-9]*[kmgt]b?", re.IGNORECASE)
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """What can be configured about the session that we make; a session of the caller is left as it is."""

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
            BadRequestError: a variable cannot be read. A wrong master or too little memory is no matter for a guess.
        """
        memory = os.environ.get(_MEMORY, "").strip() or default_memory(_machine_bytes())
        if not _MEMORY_FORM.fullmatch(memory):
            raise BadRequestError(f"{_MEMORY}={memory} is no amount of memory: write 2g or 512m")
        return SparkSettings(
            master=os.environ.get(_MASTER, "").strip() or DEFAULT_MASTER,
            driver_memory=memory,
            conf=parse_conf(os.environ.get(_CONF, "")),
            use_archive=os.environ.get(_ARCHIVE, "").strip().lower() != "off",
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
    settings: SparkSettings,
    *,
    scratch: Path,
    cores: int,
    input_bytes: int | None,
    java_options: Sequence[str] = (),
) -> dict[str, str]:
    """Every Spark setting of a new session; those of the caller win.

    Args:
        settings: what was configured.
        scratch: a directory for temporary files of Spark.
        cores: how many this machine has.
        input_bytes: how much is going to be read; None when nobody knows, which counts as much.
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
