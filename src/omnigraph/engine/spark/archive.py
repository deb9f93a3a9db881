"""An archive of Spark's parsed classes, made once per user: with it a JVM starts in about a third less time.

The first session records it while it runs, and the JVM writes it when it ends. Nothing here can fail a session: any
problem means that there is no archive.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.engine.spark.java import Java

_log = logging.getLogger(__name__)
#: What the JVM says about archives is of no use to anybody here; it would go to the standard output.
_SILENCE = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_RECORDING = ".recording"
#: A recording this old belongs to a process that was killed.
_ABANDONED_S = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What a session does about the archive: use it, record it, or neither."""

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
