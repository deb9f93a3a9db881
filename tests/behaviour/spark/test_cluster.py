"""A real Spark cluster on this machine: a standalone master, two workers, and drivers in processes of their own.

The same file is the program of the drivers: this process may own a local session, and a process has one at most.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import SparkError
from omnigraph.spark.jvm import find_java, launcher_home
from omnigraph.spark.session import check_master
from support.subtests import each_case

LOOPBACK = "127.0.0.1"
#: JVMs that live for seconds; the heap of a master or worker holds next to nothing.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 200
END_TIMEOUT_S = 30
FILES = 6
PAPERS = 24
PEOPLE = 8

SCHEMA = """
node Paper { doi: String @key  title: String  year: I32? }
node Person { name: String @key }
edge Cites: Paper -> Paper { context: String? }
edge Wrote: Person -> Paper @card(1..3)
"""


# ---- the cluster


@dataclass(kw_only=True)
class Cluster:
    """A master and two workers with one core each; all their sockets are on the loopback address."""

    folder: Path
    java_home: Path
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def environ(self) -> dict[str, str]:
        """Variables for every process of the cluster."""
        import pyspark

        home = Path(pyspark.__file__).parent
        (core,) = (home / "jars").glob("spark-core_*.jar")
        # Nothing of the test run goes to executors: they may be killed while they write.
        foreign = ("OMNIGRAPH_", "SPARK_", "PYSPARK_", "COVERAGE_", "PYTEST_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        return kept | {
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(home),
            # Spark's own scripts set it; a worker does not find the classes of executors without it.
            "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
            "SPARK_LOCAL_IP": LOOPBACK,
            "OMNIGRAPH_DURABILITY": "process",
            "TMPDIR": str(self.folder),
        }

    def start(self) -> None:
        """Start the master, then both workers at once; returns when they know each other."""
        master = self._launch("master", "master.Master", "--port", "0")
        found = self._await(master, r"Starting Spark master at (spark://\S+)")
        self.master = found[1]
        workers = [self._launch_worker(number) for number in (1, 2)]
        for log in workers:
            self._await(log, "Successfully registered with master")

    def _launch_worker(self, number: int) -> Path:
        place = str(self.folder / "work" / str(number))
        limits = ("--cores", "1", "--memory", "1g", "--port", "0")
        return self._launch(f"worker-{number}", "worker.Worker", *limits, "--work-dir", place, self.master)

    def _launch(self, name: str, program: str, *arguments: str) -> Path:
        environ = self.environ()
        log = self.folder / f"{name}.log"
        command = [
            str(self.java_home / "bin" / "java"),
            *QUICK,
            "-Xmx128m",
            # It would listen at a fixed port.
            "-Dspark.master.rest.enabled=false",
            "-cp",
            str(Path(environ["SPARK_HOME"]) / "jars" / "*"),
            f"org.apache.spark.deploy.{program}",
            *("--host", LOOPBACK, "--webui-port", "0"),
            *arguments,
        ]
        with log.open("wb") as output:
            # A session of its own: executors are children of a worker, and go with its group.
            process = subprocess.Popen(
                command,
                env=environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return log

    def _await(self, log: Path, pattern: str) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            said = log.read_text("utf-8", errors="replace")
            ended = [process for process in self.processes if process.poll() is not None]
            assert not ended, f"{log.name}: {said}"
            return re.search(pattern, said)

        return eventually(look, START_TIMEOUT_S, f"{log.name} says {pattern}")

    def stop(self) -> None:
        """End all processes, whatever state they are in."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)

    def executors(self) -> list[str]:
        """Commands of the JVMs and Pythons that run inside the folders of the workers."""
        work = str(self.folder / "work")
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(process / "cwd").startswith(work):
                    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(words)
        return found


def eventually(look: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + timeout_s
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)  # Spark tells nobody when it is ready; bounded by the deadline
    return answer


def java_home(folder: Path) -> Path:
    """The Java that the session factory would choose, also when it is the one of the package."""
    return launcher_home(find_java(), folder / "java")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    found = Cluster(folder=folder, java_home=java_home(folder))
    try:
        found.start()
        yield found
    finally:
        found.stop()
    # Python workers have groups of their own, and end when their executor does.
    eventually(lambda: not found.executors(), END_TIMEOUT_S, "no process of the cluster is left")


def drive(cluster: Cluster, scenario: str, folder: Path, conf: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Run one of the programs below as the driver of an application."""
    ours: dict[str, object] = {
        "spark.cores.max": 2,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(QUICK),
        # Tasks wait for both executors: otherwise the first one may have done all of them.
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_S}s",
        "spark.sql.shuffle.partitions": 2,
    }
    kept = {name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")}
    environ = {
        "OMNIGRAPH_SPARK_MASTER": cluster.master,
        "OMNIGRAPH_SPARK_DRIVER_MEMORY": "512m",
        "OMNIGRAPH_SPARK_CONF": json.dumps(ours | conf),
        "OMNIGRAPH_SPARK_ARCHIVE": "off",
        # The driver runs this file as a script, which does not find the helpers of the tests by itself.
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.run(
        [sys.executable, __file__, scenario, str(folder)],
        env=cluster.environ() | kept | environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a driver found; it says nothing else."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---- load, export and reading on executors


def test_executors_load_merge_export_and_read(cluster: Cluster, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": False,
        "spark.eventLog.rolling.enabled": False,
    }
    done = drive(cluster, "work", tmp_path, conf)

    report = report_of(done)
    assert report["master"] == cluster.master
    people = {"node:Person": PEOPLE, "edge:Wrote": PEOPLE}
    assert report["appended"] == {"node:Paper": PAPERS, "edge:Cites": PAPERS - 1} | people
    assert report["merged"] == {"rows": {"node:Paper": 4}, "superseded": 1}
    assert "bad.jsonl:2: edge Cites: dst 'nobody' not found in Paper" in report["refused"]
    assert report["titles"] == {"d0": "last", "d1": "again", "d2": "title 2", "new": "new"}
    assert report["exported"] == {"Paper": PAPERS + 1, "Person": PEOPLE, "Cites": PAPERS - 1, "Wrote": PEOPLE}
    assert report["same_lines"]
    assert report["parquet_papers"] == report["frame_papers"] == PAPERS + 1
    assert report["frame_late"] == report["function_late"] == 10
    # Both executors worked, and nothing else did.
    ran = tasks_per_executor(events)
    assert set(ran) == {"0", "1"}
    assert min(ran.values()) > FILES
    # The application ended with its driver.
    eventually(lambda: not cluster.executors(), END_TIMEOUT_S, "executors end with their driver")
    assert list(tmp_path.glob("omnigraph-spark-*")) == []


def tasks_per_executor(events: Path) -> dict[str, int]:
    (log,) = events.iterdir()
    ran: dict[str, int] = {}
    for line in log.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            executor = event["Task Info"]["Executor ID"]
            ran[executor] = ran.get(executor, 0) + 1
    return ran


def work(folder: Path) -> dict[str, object]:
    """Everything that moves data in bulk, on the cluster that the environment names."""
    from functools import partial

    import pyarrow.parquet as pq

    from omnigraph import Graph, OmniGraphDataSource, spark_frame
    from omnigraph.errors import LoadRejectedError
    from omnigraph.pipeline.export import job
    from omnigraph.spark import joins as spark_joins
    from omnigraph.spark import spark_session

    write_inputs(folder)
    report: dict[str, Any] = {}
    job._MIN_TASK_ROWS = job._MAX_TASK_ROWS = 1
    with Graph.init(folder / "papers.omni", SCHEMA) as graph:
        with pytest.MonkeyPatch.context() as patch:
            # Little data goes the way of much data: relations are joined on executors.
            joins = partial(spark_joins.SparkJoins, small_rows=0, small_ids=0)
            patch.setattr(spark_joins, "SparkJoins", joins)
            appended = dict(graph.load(folder / "lines", mode="append", engine="spark").rows)
        appended |= graph.load(mapping=folder / "people.yaml", mode="append", engine="spark").rows
        report["appended"] = appended
        merged = graph.load(folder / "changes.jsonl", mode="merge", engine="spark")
        report["merged"] = {"rows": dict(merged.rows), "superseded": merged.superseded}
        try:
            graph.load(folder / "bad.jsonl", mode="append", engine="spark")
        except LoadRejectedError as error:
            report["refused"] = error.message
        out = folder / "out"
        out.mkdir()
        lines = graph.export(out / "all.jsonl", engine="spark")
        graph.export(out / "local.jsonl", engine="local")
        graph.export(out / "tables", format="parquet", engine="spark")
        report["exported"] = {**lines.nodes, **lines.edges}
        report["titles"] = titles(out / "all.jsonl", ["d0", "d1", "d2", "new"])
        report["same_lines"] = (out / "all.jsonl").read_bytes() == (out / "local.jsonl").read_bytes()
        report["parquet_papers"] = pq.read_table(out / "tables" / "nodes" / "Paper").num_rows

        spark = spark_session()
        spark.dataSource.register(OmniGraphDataSource)
        papers = spark.read.format("omnigraph").option("type", "Paper").load(graph.uri)
        report["frame_papers"] = papers.count()
        report["frame_late"] = papers.where("year >= 2014").count()
        late = spark_frame(spark, graph.uri, "Paper", columns=["doi"], where="year >= 2014")
        report["function_late"] = late.count()
        report["master"] = spark.sparkContext.master
    return report


def titles(lines: Path, names: list[str]) -> dict[str, str]:
    """The titles of some papers in an export."""
    data = [json.loads(line).get("data", {}) for line in lines.read_text("utf-8").splitlines()]
    return {paper["doi"]: paper["title"] for paper in data if paper.get("doi") in names}


def write_inputs(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "lines").mkdir()
    for number in range(FILES):
        records: list[dict[str, object]] = []
        for paper in range(number, PAPERS, FILES):
            doi = f"d{paper}"
            title = {"doi": doi, "title": f"title {paper}", "year": 2000 + paper}
            records.append({"type": "Paper", "data": title})
            if paper:
                # Ends in other files: each reference crosses from one task to another.
                records.append({"edge": "Cites", "from": doi, "to": f"d{paper - 1}"})
        write_lines(folder / "lines" / f"{number}.jsonl", records)

    names = [f"p{number}" for number in range(PEOPLE)]
    pq.write_table(pa.table({"who": names}), folder / "people.parquet", row_group_size=2)
    rows = [f"{name},d{number}" for number, name in enumerate(names)]
    (folder / "wrote.csv").write_text("\n".join(["author,paper", *rows]), encoding="utf-8")
    (folder / "people.yaml").write_text(
        "nodes:\n"
        "  Person: {source: people.parquet, columns: {who: name}}\n"
        "edges:\n"
        "  Wrote: {source: wrote.csv, from: author, to: paper}\n",
        encoding="utf-8",
    )
    changes = [("d0", "first"), ("new", "new"), ("d1", "again"), ("d0", "last")]
    write_lines(
        folder / "changes.jsonl", [{"type": "Paper", "data": {"doi": doi, "title": title}} for doi, title in changes]
    )
    ends = [("d0", "d2"), ("d0", "nobody")]
    write_lines(folder / "bad.jsonl", [{"edge": "Cites", "from": a, "to": b} for a, b in ends])


def write_lines(path: Path, records: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


# ---- what the guide shows


@pytest.mark.slow
def test_an_environment_travels_with_the_job(cluster: Cluster, tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "environment", arcname=".")
    conf = {"spark.archives": "env.tar.gz#environment", "spark.pyspark.python": "./environment/bin/python"}
    report = report_of(drive(cluster, "travel", tmp_path, conf))
    assert report["rows"] == 1
    assert all(place.startswith(str(cluster.folder / "work")) for place in report["places"])


def travel(folder: Path) -> dict[str, object]:
    """Load one record and read it back as a frame; where do tasks run?"""
    from omnigraph import Graph, OmniGraphDataSource
    from omnigraph.spark import spark_session

    write_lines(folder / "one.jsonl", [{"type": "Paper", "data": {"doi": "d", "title": "t"}}])
    with Graph.init(folder / "papers.omni", SCHEMA) as graph:
        graph.load(folder / "one.jsonl", mode="append", engine="spark")
        spark = spark_session()
        spark.dataSource.register(OmniGraphDataSource)
        frame = spark.read.format("omnigraph").option("type", "Paper").load(graph.uri)
        places = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getcwd())
        return {"rows": frame.count(), "places": places.collect()}


@pytest.mark.slow
def test_the_cluster_of_the_guide_starts_works_and_stops(cluster: Cluster, tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guide" / "spark.md"
    section = guide.read_text("utf-8").partition("## A cluster on one machine")[2]
    script = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    folder = Path(sys.executable).parent
    environ = cluster.environ() | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script.replace("7077", str(free_port()))],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '{"type":"Paper","data":{"id":"10.1/a"' in done.stdout
    assert len(list(tmp_path.glob("work-*/app-*"))) == 4, "both workers ran both applications"
    # The script ended what it had started.
    for name in ("master.log", "worker-1.log", "worker-2.log"):
        eventually(lambda log=tmp_path / name: "RECEIVED SIGNAL TERM" in log.read_text("utf-8"), END_TIMEOUT_S, name)


# ---- executors that cannot work, and masters that do not answer


def bare_python(folder: Path, *, has_packages: bool) -> Path:
    """An interpreter without this package and pylance; on request with everything else, as on a usual cluster."""
    import pyspark

    folder.mkdir()
    if has_packages:
        for item in Path(pyspark.__file__).parents[1].iterdir():
            ours = ("omnigraph", "_editable", "lance", "pylance")
            if not item.name.startswith(ours) and item.suffix != ".pth":
                (folder / item.name).symlink_to(item)
    script = folder / "bare-python"
    base = getattr(sys, "_base_executable", sys.executable)
    # Without `site` nothing that is installed beside the interpreter is found.
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{base}" -S "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("has_packages", "lacking"),
    [
        pytest.param(True, "omnigraph", id="without_us", marks=pytest.mark.slow),
        pytest.param(False, "pyspark", id="without_anything", marks=pytest.mark.slow),
    ],
)
def test_executors_without_the_package_are_named(
    cluster: Cluster, tmp_path: Path, has_packages: bool, lacking: str
) -> None:
    python = bare_python(tmp_path / "bare", has_packages=has_packages)
    conf = {
        "spark.cores.max": 1,  # one executor is enough, and starts sooner
        "spark.pyspark.python": str(python),
        "spark.task.maxFailures": 1,
    }
    report = report_of(drive(cluster, "fail", tmp_path, conf))

    assert f"No module named '{lacking}'" in report["load"]
    assert "spark.archives" in report["load"]
    assert f"No module named '{lacking}'" in report["export"]
    assert report["papers"] == 0
    assert list(tmp_path.glob(".export-*")) == []


def fail(folder: Path) -> dict[str, object]:
    """Bulk work that executors cannot do."""
    from omnigraph import Graph

    write_lines(folder / "one.jsonl", [{"type": "Paper", "data": {"doi": "d", "title": "t"}}])
    report: dict[str, object] = {}
    with Graph.init(folder / "papers.omni", SCHEMA) as graph:
        calls: dict[str, Callable[[], object]] = {
            "load": lambda: graph.load(folder / "one.jsonl", mode="append", engine="spark"),
            "export": lambda: graph.export(folder / "out.jsonl", engine="spark"),
        }
        for name, call in calls.items():
            with pytest.raises(SparkError) as caught:
                call()
            report[name] = caught.value.message
        found = graph.query("query q() { match { $p: Paper } return { $p.doi } }").to_pylist()
    return report | {"papers": len(found)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_master_that_nobody_runs_is_reported_at_once() -> None:
    nowhere = f"spark://{LOOPBACK}:{free_port()},{LOOPBACK}:{free_port()}"
    begin = time.monotonic()
    with pytest.raises(SparkError) as caught:
        check_master(nowhere)
    assert time.monotonic() - begin < 20
    assert nowhere in caught.value.message
    assert caught.value.message.count("Connection refused") == 2
    assert "OMNIGRAPH_SPARK_MASTER" in caught.value.message


def test_one_of_several_masters_is_enough(cluster: Cluster) -> None:
    address = cluster.master.removeprefix("spark://")
    check_master(f"spark://{LOOPBACK}:{free_port()},{address}")


@each_case("master", ["yarn", "k8s://https://none.invalid", "local[2]", "spark://:x"])
def test_masters_of_other_kinds_are_not_asked(master: str) -> None:
    check_master(master)


@pytest.mark.slow  # Spark tries for a minute
def test_a_master_that_listens_and_never_answers_ends_with_an_error(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        cluster = Cluster(folder=tmp_path, java_home=java_home(tmp_path))
        cluster.master = f"spark://{LOOPBACK}:{port}"
        report = report_of(drive(cluster, "start", tmp_path, {}))
    assert "Spark has ended" in report["first"]
    assert "All masters are unresponsive" in report["first"]
    # The next call begins anew instead of meeting the remains of the first.
    assert "no Spark master answers" in report["second"]


def start(folder: Path) -> dict[str, object]:
    """Two tries to get a session; the second one with a master that is gone."""
    from omnigraph.spark import spark_session

    with pytest.raises(SparkError) as first:
        spark_session(0)
    os.environ["OMNIGRAPH_SPARK_MASTER"] = f"spark://{LOOPBACK}:{free_port()}"
    with pytest.raises(SparkError) as second:
        spark_session(0)
    return {"first": first.value.message, "second": second.value.message}


if __name__ == "__main__":
    program = {"work": work, "travel": travel, "fail": fail, "start": start}[sys.argv[1]]
    print(json.dumps(program(Path(sys.argv[2]))))
