"""Executors that lack something, or have another version of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.errors import SparkError
from omnigraph.spark import check_executors, executors
from omnigraph.spark.executors import PACKAGES, find_mismatch, local_versions, probe_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cluster:
    """A session as far as its master matters."""

    def __init__(self) -> None:
        self.conf = {"spark.master": "spark://host:7077"}

    class sparkContext:  # the name of pyspark
        defaultParallelism = 100


def test_executors_answer_with_what_they_have(spark: SparkSession) -> None:
    answers = probe_executors(spark, 2)
    assert len(answers) == 2
    assert find_mismatch(local_versions(), answers) is None


def test_a_package_that_executors_lack_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PACKAGES, "absent", "absent_package")
    (answer,) = probe_executors(spark, 1)
    problem = find_mismatch(local_versions_with("absent"), [answer])
    assert problem is not None
    assert "cannot import absent: No module named 'absent_package'" in problem
    assert problem.endswith(f"(its Python is {sys.executable})")


def test_a_python_without_arrow_is_named_with_its_path(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(packages: dict[str, str]) -> Any:
        def probe(batches: Any) -> Any:
            raise ModuleNotFoundError("No module named 'pyarrow'")

        return probe

    monkeypatch.setattr(executors, "_probe_function", failing)
    with pytest.raises(SparkError) as caught:
        probe_executors(spark, 1)
    assert f"No module named 'pyarrow' in {sys.executable} on " in caught.value.message
    assert "PYSPARK_PYTHON or spark.pyspark.python" in caught.value.message


def local_versions_with(name: str) -> dict[str, str]:
    return {"python": local_versions_of_python(), name: "1"}


def local_versions_of_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def test_nothing_runs_on_a_local_master(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "probe_executors", lambda *_: pytest.fail("a job ran"))
    check_executors(spark)


def test_a_server_of_spark_connect_is_looked_at_also_on_a_local_master(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = local_versions() | {"host": "far", "path": "/usr/bin/python3", "python": "3.8"}
    monkeypatch.setattr(executors, "is_connect", lambda _: True)
    monkeypatch.setattr(executors, "probe_executors", lambda *_: [answer])
    with pytest.raises(SparkError) as caught:
        check_executors(spark)
    assert "(its Python is /usr/bin/python3)" in caught.value.message
    assert "set PYSPARK_PYTHON where the server of Spark Connect is started" in caught.value.message


def test_a_local_session_with_another_python_is_looked_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other))
    looked: list[int] = []
    monkeypatch.setattr(executors, "probe_executors", lambda _, tasks: looked.append(tasks) or [])
    check_executors(spark)
    assert looked == [2]


@pytest.mark.parametrize(
    ("name", "actual", "said"),
    [
        ("omnigraph", "0.0.1", "the executor on far has omnigraph 0.0.1, the driver has"),
        ("pylance", "1.0", "has pylance 1.0"),
        ("python", "3.8", "has python 3.8"),
        ("pylance", None, "cannot import pylance: gone"),
    ],
)
def test_a_difference_on_a_cluster_is_an_error_with_advice(
    name: str, actual: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = local_versions() | {"host": "far", "reason": "gone", name: actual}
    asked: list[int] = []

    def probe(spark: Any, tasks: int) -> list[dict[str, str | None]]:
        asked.append(tasks)
        return [dict(local_versions()), answer]

    monkeypatch.setattr(executors, "probe_executors", probe)
    with pytest.raises(SparkError, match=r"spark\.archives") as caught:
        check_executors(Cluster())  # type: ignore[arg-type]  # a stand-in
    assert said in caught.value.message
    assert asked == [32]


def test_equal_executors_on_a_cluster_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "probe_executors", lambda *_: [dict(local_versions())])
    check_executors(Cluster())  # type: ignore[arg-type]  # a stand-in
