"""One Spark session for all tests of a run; other folders of tests import the fixture from here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def tasks_of_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send functions of a test module to workers as code: whether they find the module depends on where Spark began."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session of the process, made as users get it: two partitions, three tries, little memory."""
    from omnigraph.spark import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_SPARK_ARCHIVE", "off")
        patch.setenv("OMNIGRAPH_SPARK_DRIVER_MEMORY", "1g")
        patch.setenv("OMNIGRAPH_SPARK_MASTER", "local[2,3]")
        # Tasks of tests that are ended by force wait for a pipe: nothing is gained by waiting for them.
        conf = {"spark.sql.shuffle.partitions": 2, "spark.python.task.killTimeout": "100ms"}
        patch.setenv("OMNIGRAPH_SPARK_CONF", json.dumps(conf))
        return spark_session(input_bytes=0)
