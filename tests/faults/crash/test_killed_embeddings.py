"""A run that embeds dies by SIGKILL anywhere: the graph has all vectors or none, and none is computed twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from support.embedded_notes import kept_files, note, notes_graph, of, put, vectors
from support.killed_writers import (
    Children,
    sidecars,
)

TEXTS = {"a": "x", "b": "y", "c": "z"}
#: Place → vectors that were kept when the run died there; None when they are in the graph by then.
PLACES = {
    f"{F.EMBED_VECTORS_KEPT}@2": 2,
    F.EMBED_STAGED: 3,
    F.AFTER_SIDECAR: 3,
    F.AFTER_TABLE_COMMIT: None,
    F.AFTER_PUBLISH: None,
}


@pytest.mark.parametrize(("place", "kept"), PLACES.items())
def test_the_next_run_goes_on_where_a_killed_one_stopped(
    tmp_path: Path,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    kept: int | None,
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    made = notes_graph(tmp_path)
    put(made, tmp_path, *[note(slug, text) for slug, text in TEXTS.items()])
    job = {"action": "embed", "root": made.uri, "engine": "local", "batch_size": 1}
    children.kill_at(place, job, OMNIGRAPH_EMBEDDINGS_MOCK="1")
    with Graph.open(made.uri) as graph:
        assert sidecars(Path(made.uri)) == []
        is_done = vectors(graph)["a"] is not None
        assert is_done == (kept is None)
        result = graph.embed(engine="local")
        assert (result.commit is None) == is_done
        if kept is not None:
            assert (result.embedded, result.reused) == (3 - kept, kept)
            assert kept_files(graph) == []
        wanted = {slug: pytest.approx(of(text)) for slug, text in TEXTS.items()}
        assert vectors(graph) == wanted
