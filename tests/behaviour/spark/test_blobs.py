"""External blobs in loads on Spark: the policy travels to the tasks, and the tasks read the sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import ExternalBlobSourceError
from omnigraph.graph.graph import Graph
from support.papers_with_blobs import SCHEMA, paper, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_hold_the_policy_and_read_the_sources(tmp_path: Path, spark: SparkSession) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.bin").write_bytes(b"outside")
    uri = (outside / "a.bin").as_uri()
    good = write_lines(tmp_path / "good.jsonl", [paper(f"{n}", scan=uri) for n in range(20)])
    gone = write_lines(tmp_path / "gone.jsonl", [paper("x", scan=f"{uri}-gone")])
    bases = [outside.as_uri()]
    with Graph.init(tmp_path / "g.omni", SCHEMA, external_blobs=bases) as graph:
        graph.load(good, mode="append", spark=spark)
        assert graph.read_blob("node:Paper", "7", "scan") == b"outside"
        with pytest.raises(ExternalBlobSourceError, match="No such file"):
            graph.load(gone, mode="append", spark=spark)
