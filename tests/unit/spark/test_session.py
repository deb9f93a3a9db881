"""The session of a process, seen from outside: each test runs a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

QUIET = """
import json, os, signal, threading
import lance  # a process that works with graphs has it
handler = signal.getsignal(signal.SIGINT)  # a process in the background may ignore it
from omnigraph.spark import spark_session
from omnigraph.errors import OmniError
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.worker_choice import choose_workers

missing = []
is_over = threading.Event()


def look():
    while not is_over.wait(0.05):
        if "OMNIGRAPH_SERVER_BEARER_TOKEN" not in os.environ:
            missing.append(True)


looking = threading.Thread(target=look)
looking.start()
found = []
threads = [threading.Thread(target=lambda: found.append(spark_session(0))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
is_over.set()
looking.join()
spark = spark_session()
conf = spark.sparkContext.getConf()
report = {
    "contexts": len({id(item.sparkContext) for item in [*found, spark]}),
    "rows": spark.range(10).mapInArrow(lambda batches: batches, "id long").count(),
    "scratch": conf.get("spark.local.dir"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
}
spark.stop()
try:
    choose_workers("spark", spark, Silent(), 0)
except OmniError as error:
    report["stopped"] = f"{type(error).__name__}: {error.message}"
again = spark_session(0)
report["again"] = again.range(3).count()
report["interrupt"] = signal.getsignal(signal.SIGINT) is handler


def variables(batches):
    import os
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"name": list(os.environ)})


names = {row["name"] for row in again.range(1).mapInArrow(variables, "name string").collect()}
jvm = again.sparkContext._jvm.System.getenv()
report["seen"] = sorted(name for name in names | set(jvm) if "TOKEN" in name or name == "AWS_REGION")
report["kept"] = [os.environ["OMNIGRAPH_SERVER_BEARER_TOKEN"], not missing]
report["authenticated"] = conf.get("spark.authenticate")
print(json.dumps(report))
"""

FOREIGN = """
import json, os, threading
from pyspark.sql import SparkSession
from omnigraph.spark import session, spark_session

os.environ["JAVA_HOME"] = {java_home!r}
mine = (
    SparkSession.builder.master("local[1]").appName("mine").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m").config("spark.log.level", "OFF")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
before = sorted(mine.sparkContext.getConf().getAll())
found = []
thread = threading.Thread(target=lambda: found.append(spark_session(0)))
thread.start()
thread.join()
report = {{
    "same": spark_session() is mine,
    "from_a_thread": found[0].sparkContext is mine.sparkContext,
    "untouched": sorted(mine.sparkContext.getConf().getAll()) == before,
    "zone": spark_session().conf.get("spark.sql.session.timeZone") == mine.conf.get("spark.sql.session.timeZone"),
}}
session._OWNER.close()
report["alive"] = mine.range(2).count()
print(json.dumps(report))
mine.stop()
"""

KILLED = """
import json, os, signal, sys
from contextlib import contextmanager
from omnigraph.spark import spark_session
from omnigraph.errors import OmniError
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.workers import SparkWorkers

pipe = sys.argv[1]
os.mkfifo(pipe)
spark = spark_session(0)
process = spark.sparkContext._gateway.proc


class Killing:
    @contextmanager
    def stage(self, name, tasks):
        yield self

    def update(self, tasks, rows, total=None):
        if os.path.exists(pipe + ".begun"):
            process.kill()
            process.wait()

    def tell(self, detail):
        pass


def wait(item):
    open(item + ".begun", "a").close()
    return {"read": open(item).read()}


def attempt(call):
    try:
        return call()
    except OmniError as error:
        return f"{type(error).__name__}: {error.message}"


said = [
    attempt(lambda: SparkWorkers(spark, Killing()).run("wait", wait, [pipe])),
    attempt(lambda: SparkWorkers(spark, Silent()).run("wait", wait, [pipe])),
    attempt(lambda: spark_session(0).range(3).count()),
    attempt(lambda: spark_session(0).range(3).count()),
]
print(json.dumps(said))
"""

#: Spark lets unknown flags pass, so a wrong start needs flags that contradict each other.
TWO_COLLECTORS = "-XX:+UseSerialGC -XX:+UseParallelGC"
START = "from omnigraph.spark import spark_session; spark_session(0)"
FAILING = f"""
from omnigraph.errors import OmniError
try:
    {START}
except OmniError as error:
    print(type(error).__name__, error.message)
"""


def run(
    code: str, tmp_path: Path, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    import os

    (tmp_path / "tmp").mkdir(exist_ok=True)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_SPARK")
    }
    ours = {
        "TMPDIR": str(tmp_path / "tmp"),
        "OMNIGRAPH_CACHE_DIR": str(tmp_path / "cache"),
        "OMNIGRAPH_SPARK_ARCHIVE": "off",
        "OMNIGRAPH_SPARK_DRIVER_MEMORY": "512m",
        "OMNIGRAPH_SPARK_MASTER": "local[2,4]",
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=inherited | ours | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_one_quiet_session_that_leaves_nothing_behind(tmp_path: Path) -> None:
    # With the Java of the package: no other one is on the path of this process.
    tokens = {
        "OMNIGRAPH_SERVER_BEARER_TOKEN": "hush",
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": "{}",
        "OMNIGRAPH_BEARER_TOKEN": "hush",
        "OMNIGRAPH_TOKEN_LAB": "hush",
        "AWS_REGION": "nowhere",
    }
    done = run(QUIET, tmp_path, PATH=str(tools(tmp_path)), JAVA_HOME="", **tokens)
    report = report_of(done)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1, "nothing but the report of the test itself"
    assert report["contexts"] == 1
    assert (report["rows"], report["again"], report["zone"]) == (10, 3, "UTC")
    assert report["scratch"].startswith(str(tmp_path))
    assert report["stopped"].startswith("SparkError: the Spark session was stopped")
    # Credentials of the storage reach tasks, tokens of servers do not, and this process has both all the time.
    assert report["seen"] == ["AWS_REGION"]
    assert report["kept"] == ["hush", True]
    assert report["authenticated"] == "true"
    assert report["interrupt"], "Ctrl-C does what it did before"
    assert list((tmp_path / "tmp").glob("omnigraph-spark-*")) == []


def test_a_jvm_that_was_killed_is_told_in_a_sentence_and_replaced(tmp_path: Path) -> None:
    done = run(KILLED, tmp_path, str(tmp_path / "pipe"))
    *said, rows = report_of(done)
    assert [text.partition(":")[0] for text in said] == ["SparkError"] * 3
    assert "Spark has ended" in said[2]
    assert rows == 3
    assert "Exception in thread" not in done.stderr


def tools(tmp_path: Path) -> Path:
    """What Spark's launcher needs, and no Java."""
    import shutil

    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("bash", "sh", "env", "dirname", "head", "ps", "uname", "nice"):
        if path := shutil.which(name):
            (folder / name).symlink_to(path)
    return folder


@pytest.mark.slow  # one more JVM; every other test with Spark brings a session of its own, too
def test_a_session_of_the_caller_is_used_and_left_alone(tmp_path: Path) -> None:
    from omnigraph.spark.jvm import find_java, launcher_home

    home = launcher_home(find_java(), tmp_path / "java")
    report = report_of(run(FOREIGN.format(java_home=str(home)), tmp_path))
    assert report == {
        "same": True,
        "from_a_thread": True,
        "untouched": True,
        "zone": True,
        "alive": 2,
    }


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (
            {"OMNIGRAPH_SPARK_DRIVER_MEMORY": "900000t"},
            ["SparkError", "object heap", "it was given 900000t", "OMNIGRAPH_SPARK_DRIVER_MEMORY"],
        ),
        (
            {"OMNIGRAPH_SPARK_CONF": json.dumps({"spark.driver.extraJavaOptions": TWO_COLLECTORS})},
            ["SparkError", "Multiple garbage collectors selected", "OMNIGRAPH_SPARK_CONF"],
        ),
        (
            {"OMNIGRAPH_SPARK_MASTER": "nowhere"},
            ["SparkError", "Master must", "OMNIGRAPH_SPARK_MASTER"],
        ),
    ],
    ids=["memory", "flag", "master"],
)
def test_a_jvm_that_does_not_start_says_why(
    tmp_path: Path, environ: dict[str, str], said: list[str]
) -> None:
    done = run(FAILING, tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in said), done.stdout
    assert done.stderr == ""
    assert list((tmp_path / "tmp").glob("omnigraph-spark-*")) == []
