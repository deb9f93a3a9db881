"""Sessions of Spark Connect: the same story as with a classic session, in a process of its own.

The same file is the program of that process: a process has sessions of one kind only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 600


@pytest.mark.timeout(900)  # two JVMs, one of them new; a busy machine takes minutes
def test_a_session_of_spark_connect_does_what_a_classic_one_does(spark: SparkSession, tmp_path: Path) -> None:
    from support.bulk_story import PAPERS, bulk_story

    for kind in ("classic", "connect"):
        (tmp_path / kind).mkdir()
    classic = bulk_story(spark, tmp_path / "classic")
    connected = run_connected(tmp_path / "connect")
    assert connected.pop("parallelism") == 2
    secret = connected.pop("secret")
    assert connected.pop("carried") == "not_found: it is gone"
    check_sessions(connected.pop("sessions"))
    assert connected.pop("large_items") == [700_000, 0, 700_001]
    assert connected == json.loads(json.dumps(classic))
    assert classic["appended"] == {"node:Paper": PAPERS, "edge:Cites": PAPERS - 1}
    assert "to 'nowhere' not found in Paper" in classic["refused"].replace("dst", "to")
    assert classic["same_lines"]
    assert classic["left"] == []
    assert classic["rubbish"] == []
    assert classic["titles"] == {"d0": "reviewed", "d1": "reviewed", "d5": "title 5", "new": "new"}
    assert secret == {"opened": "hush", "gone": True}


def check_sessions(found: object) -> None:
    assert isinstance(found, dict)
    assert found["is_same"], "the session of the process serves all of its threads"
    assert found["loaded"] == {"node:Note": 1}
    assert found["said"].startswith("SparkError: the Spark session was stopped")


def run_connected(folder: Path) -> dict[str, object]:
    from omnigraph.spark.jvm import find_java, launcher_home

    tests = Path(__file__).parents[2]
    environ = dict(os.environ) | {
        "JAVA_HOME": str(launcher_home(find_java(), folder / "java")),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for seconds
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, object] = json.loads((folder / "report.json").read_text("utf-8"))
    return report


def secrets(spark: SparkSession) -> dict[str, object]:
    """A sealed secret reaches tasks through the settings of the session, and does not stay there."""
    from omnigraph.pipeline.workers import Silent
    from omnigraph.spark.workers import SparkWorkers

    workers = SparkWorkers(spark, Silent())
    with workers.sealing("hush") as sealed:
        (answer,) = workers.run("open", open_secret, [sealed])
    return {"opened": answer["secret"], "gone": spark.conf.get(sealed._property, None) is None}


def open_secret(sealed: object) -> dict[str, object]:
    return {"secret": sealed.open()}  # type: ignore[attr-defined]


def large_items(spark: SparkSession) -> list[object]:
    """Items that are too many for the plan of a job travel as a file."""
    from omnigraph.pipeline.workers import Silent
    from omnigraph.spark.workers import SparkWorkers

    items = ["x" * 700_000, "", "y" * 700_001]
    return [answer["size"] for answer in SparkWorkers(spark, Silent()).run("ship", size_of, items)]


def size_of(item: str) -> dict[str, object]:
    return {"size": len(item)}


def carried(spark: SparkSession) -> str:
    """A typed failure of a task that gives rows is the same failure in the driver."""
    from omnigraph.errors import StorageError
    from omnigraph.pipeline.workers import Silent
    from omnigraph.spark.tasks import carrying
    from omnigraph.spark.workers import SparkWorkers

    def lost(batches: Iterator[object]) -> Iterator[object]:
        from omnigraph.errors import StorageError, StorageFailure

        raise StorageError("it is gone", StorageFailure.NOT_FOUND)

    try:
        SparkWorkers(spark, Silent()).collect("read", lambda: spark.range(1).mapInArrow(carrying(lost), "id long"))
    except StorageError as error:
        return f"{error.failure}: {error.message}"
    return "nothing was raised"


def sessions(spark: SparkSession, folder: Path) -> dict[str, object]:
    """Which session a call uses that names none, and what it says about one that was stopped."""
    from threading import Thread

    from omnigraph import Graph
    from omnigraph.errors import OmniError
    from omnigraph.spark import spark_session

    found: list[object] = []
    thread = Thread(target=lambda: found.append(spark_session()))
    thread.start()
    thread.join()
    frame = spark.createDataFrame([("a",)], "key string")
    with Graph.init(folder / "notes.omni", "node Note { key: String @key }") as graph:
        loaded = dict(graph.load(frames={"Note": frame}, mode="append").rows)
        spark.stop()
        said = ""
        try:
            graph.load(frames={"Note": frame}, mode="append")
        except OmniError as error:
            said = f"{type(error).__name__}: {error.message}"
    return {"is_same": found == [spark], "loaded": loaded, "said": said}


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    from omnigraph.spark.kinds import parallelism_of
    from support.bulk_story import bulk_story

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A local server is asked at the default port, which another run on the same machine may have taken.
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.connect.grpc.binding.port", str(port))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        report = bulk_story(spark, folder)
        report |= {
            "parallelism": parallelism_of(spark),
            "secret": secrets(spark),
            "large_items": large_items(spark),
            "carried": carried(spark),
            "sessions": sessions(spark, folder),
        }
    finally:
        spark.stop()
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
