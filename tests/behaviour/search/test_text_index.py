"""Kept terms of texts: where they lie, who uses them, and that nothing depends on them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from omnigraph.engine.tables import text_search
from omnigraph.storage.datasets.reads import column_parts
from support.search_graphs import SCHEMA, append, dataset_of, doc, doc_row, found, new_graph, ranked, scored, write

FOX = 'bm25($d.body, "fox lake")'
ROWS = 40


@pytest.fixture(autouse=True)
def small_fragments_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "PERSIST_MIN_ROWS", 10)
    monkeypatch.setattr(text_search, "SEGMENT_ROWS", 16)


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were analysed, per segment."""
    counts: list[int] = []
    build = text_search.build_segment

    def counting(texts: object) -> object:
        counts.append(len(texts))  # type: ignore[arg-type]  # an Arrow array
        return build(texts)

    monkeypatch.setattr(text_search, "build_segment", counting)
    return counts


def bodies(first: int, count: int) -> list[dict[str, object]]:
    words = ["fox", "lake fox", "red", "fox fox lake", ""]
    return [doc_row(f"d{n:03}", body=f"{words[n % 5]} w{n}") for n in range(first, first + count)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with new_graph(tmp_path) as graph:
        append(graph, Doc=bodies(0, ROWS))
        yield graph


def kept(graph: Graph) -> list[Path]:
    root = Path(graph.uri) / "__derived"
    return sorted(root.glob("*.text/*")) if root.is_dir() else []


def reopened(graph: Graph, **options: object) -> Graph:
    graph.close()
    return Graph.open(graph.uri, **options)  # type: ignore[arg-type]  # options of the test


def test_an_index_run_keeps_the_terms_of_indexed_texts(graph: Graph, analysed: list[int]):
    graph.ensure_indices()
    # `title` and `body` have an index, `plain` and the key `slug` have none.
    assert len(kept(graph)) == 2
    assert analysed == [16, 16, 8] * 2
    expected = scored(graph, FOX, limit=None)
    with reopened(graph) as again:
        assert scored(again, FOX, limit=None) == expected
    assert len(analysed) == 6, "nothing is analysed again"


def test_a_commit_costs_the_analysis_of_its_rows(graph: Graph, analysed: list[int]):
    graph.ensure_indices()
    ranked(graph, FOX)
    analysed.clear()
    append(graph, Doc=bodies(ROWS, 3))
    write(graph, 'delete Doc where slug = "d001"')
    assert "d001" not in ranked(graph, FOX, limit=None)
    assert analysed == [3]
    with reopened(graph) as again:
        assert "d041" in ranked(again, FOX, limit=None)
    assert analysed == [3, 3], "small fragments are not kept"


def test_branches_and_old_commits_use_the_terms_of_their_fragments(graph: Graph, analysed: list[int]):
    graph.ensure_indices()
    before = graph.snapshot().commit_id
    graph.create_branch("dev")
    expected = scored(graph, FOX, limit=None)
    write(graph, 'delete Doc where slug = "d001"', branch="dev")
    write(graph, 'delete Doc where slug = "d003"')
    analysed.clear()
    with reopened(graph) as again:
        on_dev = found(again, 'search($d.body, "fox")', target={"branch": "dev"})
        assert "d001" not in on_dev
        assert "d003" in on_dev
        text = f"query q() {{ match {{ $d: Doc }} return {{ $d.slug as s, {FOX} as score }} order {{ {FOX} }} }}"
        old = again.query(text, snapshot=before).to_pylist()
        assert [(row["s"], row["score"]) for row in old] == expected
    assert analysed == []


@pytest.mark.parametrize("damage", ["removed", "cut", "emptied", "changed"])
def test_damaged_terms_are_made_again(graph: Graph, damage: str):
    graph.ensure_indices()
    expected = scored(graph, FOX, limit=None)
    for folder in kept(graph):
        for file in folder.glob("*.npy"):
            content = file.read_bytes()
            match damage:
                case "removed":
                    file.unlink()
                case "cut":
                    file.write_bytes(content[:-1])
                case "emptied":
                    file.write_bytes(b"")
                case "changed":
                    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with reopened(graph) as again:
        assert scored(again, FOX, limit=None) == expected
        again.ensure_indices()
        assert len(kept(again)) == 2


def test_a_graph_that_is_only_read_keeps_nothing(graph: Graph):
    expected = scored(graph, FOX, limit=None)
    shutil.rmtree(kept(graph)[0].parent)
    with reopened(graph, read_only=True) as again:
        assert scored(again, FOX, limit=None) == expected
        assert kept(again) == []


def test_compaction_changes_no_score_and_replaces_the_terms(graph: Graph):
    for part in range(1, 4):
        append(graph, Doc=bodies(part * ROWS, ROWS))
    write(graph, *(f'delete Doc where slug = "d{n:03}"' for n in range(0, 100, 3)))
    expected = scored(graph, FOX, limit=None)
    names = {path.name for path in kept(graph)}
    graph.optimize()
    assert scored(graph, FOX, limit=None) == expected
    assert names.isdisjoint(path.name for path in kept(graph))
    graph.cleanup(keep=1, confirm=True)
    with reopened(graph) as again:
        assert scored(again, FOX, limit=None) == expected


def test_a_graph_of_an_earlier_release_is_searched_as_it_is(graph: Graph):
    """Its tables have inverted indexes of Lance, which know neither folding nor pairs of characters."""
    append(graph, Doc=[doc_row("r", body="Résumé 東京都"), doc_row("x", body="x" * 60)])
    expected = scored(graph, FOX, limit=None)
    dataset = dataset_of(graph, graph.snapshot(), "node:Doc")
    before = dataset.version
    dataset.create_scalar_index("body", "INVERTED", name="body_text", with_position=True)
    pin = graph.snapshot().pins["node:Doc"]
    assert lance.dataset(dataset.uri).version == before + 1
    # The catalog of such a graph names the version with the index; here a table is opened at it.
    indexed = graph._core.environment.tables.open(pin.location, pin.branch, before + 1)
    assert "body_text" in {item.name for item in indexed._dataset.describe_indices()}
    assert column_parts(indexed, "body") == column_parts(graph._core.open_table(pin), "body")
    assert scored(graph, FOX, limit=None) == expected
    for query in ("resume", "京都", "京", "x" * 60):
        assert len(found(graph, "search($d.body, $q)", "$q: String", q=query)) == 1


def test_a_purged_property_leaves_no_terms_behind(graph: Graph):
    graph.ensure_indices()
    assert any(b"lake" in file.read_bytes() for folder in kept(graph) for file in folder.iterdir())
    graph.apply_schema(SCHEMA.replace("body: String? @index", ""), allow_data_loss=True)
    assert kept(graph) == []


def test_terms_of_a_removed_branch_go_with_a_cleanup(graph: Graph):
    graph.create_branch("dev")
    write(graph, *(doc(f"n{n}", "fox") for n in range(12)), branch="dev")
    found(graph, 'search($d.body, "fox")', target={"branch": "dev"})
    assert len({folder.parent for folder in kept(graph)}) == 1
    graph.delete_branch("dev")
    graph.cleanup(keep=1, confirm=True)
    assert kept(graph) == []
