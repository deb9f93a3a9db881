"""Vectors of rows are kept, committed and found again on a disk and on S3 alike."""

from __future__ import annotations

import pytest

from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE, Failpoint, FailpointError
from omnigraph.embedding import vector_writes
from omnigraph.embedding.client import EmbeddingSettings, ProviderName
from omnigraph.embedding.vector_tasks import KeptVectors, kept_address
from omnigraph.graph.graph import Graph

SCHEMA = 'node Note { slug: String @key  body: String?  vec: Vector(4)? @embed("body") }'


def test_a_run_that_failed_goes_on_and_leaves_nothing(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failpoints.reset()
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setattr(vector_writes, "FEW_ROWS", 0)
    monkeypatch.setattr(vector_writes, "SMALL_PART", 1000)
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(
            'query add() { insert Note { slug: "a", body: "x" } insert Note { slug: "b", body: "y" } }'
        )
        monkeypatch.setenv(VARIABLE, f"{Failpoint.EMBED_STAGED}=raise")
        with pytest.raises(FailpointError):
            graph.embed(engine="local")
        monkeypatch.delenv(VARIABLE)
        result = graph.embed(engine="local")
        assert (result.embedded, result.reused) == (0, 2)
        assert graph.embed(engine="local").commit is None
    settings = EmbeddingSettings(provider=ProviderName.MOCK)
    assert KeptVectors(kept_address(root, settings, 4)).parts() == ()
