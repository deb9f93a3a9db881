"""Settings of a session, from the environment to Spark; no JVM runs here."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.spark.jvm import telling_line
from omnigraph.spark.session import JAVA_OPTIONS, SMALL_INPUT_BYTES, SparkSettings, session_conf
from support.subtests import each_case

SCRATCH = Path("/scratch")


def conf_of(settings: SparkSettings, input_bytes: int | None = None, *options: str) -> dict[str, str]:
    return session_conf(settings, scratch=SCRATCH, cores=2, input_bytes=input_bytes, java_options=options)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER", "DRIVER_MEMORY", "CONF", "ARCHIVE"):
        monkeypatch.delenv(f"OMNIGRAPH_SPARK_{name}", raising=False)


def test_the_defaults_are_local_with_retries() -> None:
    settings = SparkSettings.from_environment()
    assert settings.master == "local[*,4]"
    assert settings.is_local
    assert settings.use_archive
    assert not settings.shows_log
    assert settings.driver_memory in {"1g", "2g", "3g", "4g"}


def test_a_local_session_is_quiet_and_stays_on_this_machine() -> None:
    conf = conf_of(SparkSettings())
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.ui.enabled"] == conf["spark.ui.showConsoleProgress"] == "false"
    assert conf["spark.log.level"] == "ERROR"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.execution.arrow.maxRecordsPerBatch"] == "65536"
    assert conf["spark.sql.adaptive.enabled"] == "true"
    assert conf["spark.sql.shuffle.partitions"] == "8"
    assert conf["spark.local.dir"] == "/scratch/local"
    assert conf["spark.sql.warehouse.dir"] == "/scratch/warehouse"


@each_case("cores", [1, 4, 5, 16])
def test_shuffles_have_two_parts_per_core_and_at_least_eight(cores: int) -> None:
    conf = session_conf(SparkSettings(), scratch=SCRATCH, cores=cores, input_bytes=None)
    assert conf["spark.sql.shuffle.partitions"] == str(max(8, 2 * cores))


@pytest.mark.parametrize("size", [0, SMALL_INPUT_BYTES - 1])
def test_little_input_means_a_fast_start(size: int) -> None:
    flags = conf_of(SparkSettings(), size)[JAVA_OPTIONS].split()
    assert flags == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@pytest.mark.parametrize("size", [None, SMALL_INPUT_BYTES])
def test_much_or_unknown_input_means_throughput(size: int | None) -> None:
    assert conf_of(SparkSettings(), size)[JAVA_OPTIONS] == "-XX:+UseParallelGC"


def test_flags_with_spaces_are_quoted() -> None:
    options = conf_of(SparkSettings(), None, "-XX:SharedArchiveFile=/a b/c.jsa")[JAVA_OPTIONS]
    assert options == '-XX:+UseParallelGC "-XX:SharedArchiveFile=/a b/c.jsa"'


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_keeps_its_own_address_disks_and_partitions(master: str) -> None:
    settings = SparkSettings(master=master)
    conf = conf_of(settings)
    assert not settings.is_local
    assert conf["spark.master"] == master
    for name in ("driver.host", "driver.bindAddress", "local.dir", "sql.shuffle.partitions"):
        assert f"spark.{name}" not in conf


def test_settings_of_the_caller_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_MASTER", " local[3] ")
    monkeypatch.setenv("OMNIGRAPH_SPARK_DRIVER_MEMORY", "512m")
    monkeypatch.setenv("OMNIGRAPH_SPARK_ARCHIVE", "OFF")
    monkeypatch.setenv(
        "OMNIGRAPH_SPARK_CONF",
        '{"spark.log.level": "INFO", "spark.ui.enabled": true, "spark.sql.shuffle.partitions": 3}',
    )
    settings = SparkSettings.from_environment()
    conf = conf_of(settings)
    assert (conf["spark.master"], conf["spark.driver.memory"]) == ("local[3]", "512m")
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert settings.shows_log
    assert not settings.use_archive


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"a": null}', '{"a": {"b": 1}}'])
def test_a_conf_that_is_no_object_of_values_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_CONF", text)
    with pytest.raises(BadRequestError, match="OMNIGRAPH_SPARK_CONF"):
        SparkSettings.from_environment()


@pytest.mark.parametrize("text", ["0g", "much", "-1g", "4", "1.5g"])
def test_an_amount_of_memory_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_DRIVER_MEMORY", text)
    with pytest.raises(BadRequestError, match="write 2g or 512m"):
        SparkSettings.from_environment()


TRACE = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'
\tat org.apache.spark.SparkContext.apply(SparkContext.scala)
"""
PYTHON = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'lance'

\tat org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.IOException: late
"""
CAUSED = f"{TRACE}Caused by: java.net.BindException: in use\n\tat x\n\t... 3 more\n"


@each_case(
    ("text", "said"),
    [
        (CAUSED, "java.net.BindException: in use"),
        (PYTHON, "ModuleNotFoundError: No module named 'lance'"),
        ("plain words\nmore", "plain words"),
        ("Error: Could not create the Java Virtual Machine.", "Error: Could not create the"),
        ("Unrecognized VM option 'Y'\nError: Could not create the", "Unrecognized VM option 'Y'"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_went_wrong(text: str, said: str) -> None:
    assert telling_line(text).startswith(said)
    assert bool(telling_line(text)) == bool(said)


def test_a_java_trace_gives_its_exception() -> None:
    assert "Could not parse Master URL" in telling_line(TRACE)
