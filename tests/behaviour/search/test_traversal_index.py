"""The traversal index on disk: used by later processes, never believed when it is stale or damaged."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.tables import traversal_index
from omnigraph.graph import reads
from support.search_graphs import SCHEMA, cites, doc, new_graph, tag, tagged, write

#: A loop, parallel edges, a cycle, a node without edges, and keys that documents and tags share.
SEED = (
    *(doc(name) for name in "abcdef"),
    *(tag(name) for name in "abx"),
    *(cites(*pair) for pair in ("ab", "ab", "bc", "cd", "da", "bb", "be")),
    *(tagged(*pair) for pair in ("ab", "ax", "bb", "ca", "eb")),
)
QUERIES = {
    "one hop": "match { $d: Doc  $d cites $e } return { $d.slug as d, $e.slug as e }",
    "backward": 'match { $e: Doc { slug: "b" }  $d cites $e } return { $d.slug as d }',
    "several hops": 'match { $d: Doc { slug: "a" }  $d cites{1,3} $e } return { $e.slug as e }',
    "exactly two hops": "match { $d: Doc  $d cites{2,2} $e } return { $d.slug as d, $e.slug as e }",
    "either direction": 'match { $d: Doc { slug: "a" }  $d <cites>{1,2} $e } return { $e.slug as e }',
    "every edge": "match { $d: Doc  $d $c:cites $e } return { $d.slug as d, $e.slug as e }",
    "across types": "match { $d: Doc  $d tagged $t } return { $d.slug as d, $t.name as t }",
    "across types backward": 'match { $t: Tag { name: "b" }  $d tagged $t } return { $d.slug as d }',
    "two edge types": "match { $d: Doc  $d cites $e  $e tagged $t } return { $d.slug as d, $t.name as t }",
    "nobody cites it": "match { $d: Doc  not { $e cites $d } } return { $d.slug as d }",
    "no tag": "match { $d: Doc  not { $d tagged $_ } } return { $d.slug as d }",
    "a cycle": "match { $d: Doc  $d cites{1,3} $e  $e cites $d } return { $d.slug as d, $e.slug as e }",
    "how many": "match { $d: Doc  $d cites $e } return { $d.slug as d, count($e) as n }",
}


@pytest.fixture(autouse=True)
def _keep_small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few edges are worth an index on disk, and every traversal takes it."""
    for module in (traversal_index, reads):
        monkeypatch.setattr(module, "PERSIST_MIN_EDGES", 2)
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with new_graph(tmp_path_factory.mktemp("template"), *SEED) as graph:
        return Path(graph.uri)


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "graph"))


@pytest.fixture
def no_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> Iterator[Any]:
        raise AssertionError("the edges were scanned")

    monkeypatch.setattr(traversal_index, "scan_rows", refuse)


def answers(graph: Graph, **target: Any) -> dict[str, list[tuple[object, ...]]]:
    """All queries; the rows sorted."""
    return {
        name: sorted(tuple(row.values()) for row in graph.query(f"query q() {{ {text} }}", **target).to_pylist())
        for name, text in QUERIES.items()
    }


def fresh_answers(root: Path, **target: Any) -> dict[str, list[tuple[object, ...]]]:
    with Graph.open(root) as graph:
        return answers(graph, **target)


def scanned_answers(root: Path, **target: Any) -> dict[str, list[tuple[object, ...]]]:
    """Without any traversal index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "scan")
        with Graph.open(root, read_only=True) as graph:
            return answers(graph, **target)


def sets(root: Path) -> dict[str, list[str]]:
    """The kept sets of arrays per edge type and branch."""
    derived = root / "__derived"
    if not derived.exists():
        return {}
    return {group.name: sorted(item.name for item in group.iterdir()) for group in derived.iterdir()}


# ---- kept and used


def test_a_traversal_keeps_its_index_on_disk(root: Path):
    assert sets(root) == {}
    got = fresh_answers(root)
    assert got == scanned_answers(root)
    assert len(sets(root)) == 2, "one group per edge type"
    assert all(len(names) == 1 for names in sets(root).values())


def test_a_maintenance_run_keeps_the_index_of_every_large_edge_type(root: Path):
    with Graph.open(root) as graph:
        graph.ensure_indices()
        assert len(sets(root)) == 2
        before = sets(root)
        graph.ensure_indices()
        assert sets(root) == before


def test_a_small_edge_type_is_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch):
    for module in (traversal_index, reads):
        monkeypatch.setattr(module, "PERSIST_MIN_EDGES", 6)
    with Graph.open(root) as graph:
        graph.ensure_indices()
        answers(graph)
    assert len(sets(root)) == 1, "seven citations, but only five tags"


def test_nothing_is_kept_for_few_edges_by_default(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    with Graph.open(root) as graph:
        graph.ensure_indices()
        answers(graph)
    assert not (root / "__derived").exists()


def test_a_later_process_does_not_scan_the_edges(root: Path, request: pytest.FixtureRequest):
    expected = scanned_answers(root)
    fresh_answers(root)
    request.getfixturevalue("no_scan")
    assert fresh_answers(root) == expected
    with Graph.open(root, read_only=True) as reader:
        assert answers(reader) == expected


def test_the_index_of_a_maintenance_run_serves_every_direction(root: Path, request: pytest.FixtureRequest):
    expected = scanned_answers(root)
    with Graph.open(root) as graph:
        graph.ensure_indices()
    request.getfixturevalue("no_scan")
    assert fresh_answers(root) == expected


def test_one_process_builds_an_index_once(root: Path, request: pytest.FixtureRequest):
    with Graph.open(root) as graph:
        expected = answers(graph)
        shutil.rmtree(root / "__derived")
        request.getfixturevalue("no_scan")
        assert answers(graph) == expected


def test_an_index_build_keeps_the_traversal_index_valid(root: Path, request: pytest.FixtureRequest):
    expected = fresh_answers(root)
    kept = sets(root)
    with Graph.open(root) as graph:
        graph.ensure_indices()
    assert sets(root) == kept, "no row changed"
    request.getfixturevalue("no_scan")
    assert fresh_answers(root) == expected


def test_explain_says_that_the_index_is_ready(root: Path):
    text = f"query q() {{ {QUERIES['several hops']} }}"
    with Graph.open(root) as graph:
        assert "ready" not in graph.explain(text)
        answers(graph)
    with Graph.open(root) as graph:
        assert "ready" in graph.explain(text)


# ---- stale

WRITES = {
    "an edge": (cites("f", "a"),),
    "a parallel edge": (cites("a", "b"),),
    "a loop": (cites("f", "f"),),
    "an edge of another type": (tagged("f", "x"),),
    "a node between others": (doc("aa"),),
    "a node with edges": (doc("g"), cites("g", "a"), cites("e", "g")),
    "a node of the other type": (tag("aa"), tagged("a", "aa")),
    "a deleted node with its edges": ('delete Doc where slug = "b"',),
    "a deleted node without edges": ('delete Doc where slug = "f"',),
    "a deleted node of the other type": ('delete Tag where name = "b"',),
    "every edge deleted": ('delete Cites where from >= "a"',),
    "an updated node": ('update Doc set { year: 3 } where slug = "b"',),
}


@pytest.mark.parametrize("change", WRITES)
def test_whatever_is_written_is_seen_at_once(root: Path, change: str):
    with Graph.open(root) as graph:
        before = answers(graph)
        write(graph, *WRITES[change])
        expected = scanned_answers(root)
        assert answers(graph) == expected
        assert fresh_answers(root) == expected
        if change not in ("an updated node", "a node between others"):
            assert expected != before
    assert all(len(names) <= 1 for names in sets(root).values()), "older sets are dropped"


def test_a_writer_in_another_process_makes_an_index_in_memory_stale_too(root: Path):
    with Graph.open(root) as reader, Graph.open(root) as writer:
        answers(reader)
        for change in ("an edge", "a node between others", "a deleted node with its edges"):
            write(writer, *WRITES[change])
            assert answers(reader) == scanned_answers(root)


def test_a_name_that_is_used_again_does_not_bring_an_old_index_back(root: Path):
    with Graph.open(root) as graph:
        answers(graph)
        write(graph, 'delete Doc where slug = "b"')
        answers(graph)
        write(graph, doc("b"), cites("b", "f"))
        assert answers(graph) == fresh_answers(root) == scanned_answers(root)


# ---- branches and history


def test_branches_and_commits_get_their_own_answers(root: Path):
    with Graph.open(root) as graph:
        first = graph.snapshot().commit_id
        before = answers(graph)
        graph.create_branch("dev")
        write(graph, cites("f", "a"), doc("g"), cites("a", "g"), branch="dev")
        write(graph, 'delete Doc where slug = "b"')
        main, dev = answers(graph), answers(graph, branch="dev")
        assert len({str(item) for item in (before, main, dev)}) == 3
        for _ in range(2):
            assert answers(graph, snapshot=first) == before
            assert answers(graph, branch="dev") == dev == scanned_answers(root, branch="dev")
            assert answers(graph) == main == scanned_answers(root)
    for _ in range(2):
        assert fresh_answers(root, snapshot=first) == before
        assert fresh_answers(root, branch="dev") == dev
        assert fresh_answers(root) == main


def test_a_branch_that_wrote_nothing_shares_the_index(root: Path, request: pytest.FixtureRequest):
    with Graph.open(root) as graph:
        expected = answers(graph)
        graph.create_branch("dev")
    request.getfixturevalue("no_scan")
    assert fresh_answers(root, branch="dev") == expected


def test_a_branch_reads_the_index_of_the_main_line_and_what_it_changed(root: Path, request: pytest.FixtureRequest):
    with Graph.open(root) as graph:
        graph.create_branch("dev")
        write(graph, cites("f", "a"), branch="dev")
        main, dev = answers(graph), answers(graph, branch="dev")
    assert len(sets(root)) == 2, "what the branch changed is read above the index of the main line"
    cited = "match { $d: Doc  $d cites $e } return { $d.slug as d, $e.slug as e }"
    request.getfixturevalue("no_scan")
    for branch, expected in (("main", main), ("dev", dev)):
        with Graph.open(root) as graph:
            rows = graph.query(f"query q() {{ {cited} }}", branch=branch).to_pylist()
            assert sorted((row["d"], row["e"]) for row in rows) == expected["one hop"]


def test_maintaining_a_branch_prepares_its_own_index(root: Path, request: pytest.FixtureRequest):
    with Graph.open(root) as graph:
        graph.create_branch("dev")
        write(graph, cites("f", "a"), branch="dev")
        graph.ensure_indices("dev")
    expected = scanned_answers(root, branch="dev")
    request.getfixturevalue("no_scan")
    assert fresh_answers(root, branch="dev") == expected


# ---- damage


def arrays(root: Path) -> list[Path]:
    return sorted((root / "__derived").rglob("*.npy"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def cut_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def filled_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 40)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeros_behind_the_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:128] + bytes(len(content) - 128))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Any] = [
    cut_short,
    cut_in_the_header,
    filled_with_zeros,
    garbage,
    Path.unlink,
    a_folder,
    emptied,
    zeros_behind_the_header,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_not_believed(root: Path, damage: Callable[[Path], None]):
    expected = fresh_answers(root)
    for path in arrays(root):
        damage(path)
    assert fresh_answers(root) == expected


FILES = ["counts", "states"] + [
    f"{way}-{part}"
    for way in ("out", "in")
    for part in ("offsets", "targets", "edges", "distinct_offsets", "distinct_targets")
]


@pytest.mark.parametrize(
    ("damage", "name"), [(damage, name) for damage in (cut_short, garbage, Path.unlink) for name in FILES]
)
def test_one_damaged_file_spoils_its_set_and_no_answer(root: Path, damage: Callable[[Path], None], name: str):
    expected = fresh_answers(root)
    damaged = [path for path in arrays(root) if path.stem == name]
    assert damaged
    for path in damaged:
        damage(path)
    assert fresh_answers(root) == expected


def test_a_damaged_file_is_reported_in_the_log(root: Path, caplog: pytest.LogCaptureFixture):
    fresh_answers(root)
    for path in arrays(root):
        garbage(path)
    with caplog.at_level(logging.WARNING):
        fresh_answers(root)
    assert any("cannot be read" in record.message for record in caplog.records)


def test_a_damaged_set_is_replaced(root: Path, request: pytest.FixtureRequest):
    expected = fresh_answers(root)
    for path in arrays(root):
        garbage(path)
    with Graph.open(root) as graph:
        graph.ensure_indices()
        answers(graph)
    request.getfixturevalue("no_scan")
    assert fresh_answers(root) == expected


def test_an_unfinished_set_is_not_believed(root: Path):
    """A process that died while it wrote leaves a draft, or nothing but a folder."""
    expected = fresh_answers(root)
    for group in (root / "__derived").iterdir():
        (whole,) = group.iterdir()
        shutil.copytree(whole, group / ".01ARZ3NDEKTSV4RRFFQ69G5FAV")
        shutil.rmtree(whole)
        whole.mkdir()
    assert fresh_answers(root) == expected


def test_the_folder_may_be_removed_at_any_time(root: Path):
    with Graph.open(root) as graph:
        expected = answers(graph)
        shutil.rmtree(root / "__derived")
        assert answers(graph) == expected
    assert fresh_answers(root) == expected


def test_a_mapped_index_survives_the_removal_of_its_files(root: Path):
    fresh_answers(root)
    with Graph.open(root) as graph:
        expected = answers(graph)
        shutil.rmtree(root / "__derived")
        assert answers(graph) == expected


# ---- nowhere to write


def test_a_graph_whose_folder_takes_no_derived_state_is_read_all_the_same(root: Path):
    # A file in its place refuses everybody, root included.
    (root / "__derived").write_text("not a folder")
    expected = scanned_answers(root)
    with Graph.open(root) as graph:
        assert answers(graph) == expected
        graph.ensure_indices()
        write(graph, cites("f", "a"))
        assert answers(graph) == scanned_answers(root)
    assert fresh_answers(root) == scanned_answers(root)


def test_a_full_disk_costs_the_index_and_no_answer(root: Path, monkeypatch: pytest.MonkeyPatch):
    def no_space(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    expected = scanned_answers(root)
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", no_space)
        assert fresh_answers(root) == expected
        with Graph.open(root) as graph:
            graph.ensure_indices()
    assert not [name for names in sets(root).values() for name in names], "no draft stays"
    assert fresh_answers(root) == expected
    assert len(sets(root)) == 2


def test_the_schema_of_these_tests_has_two_edge_types():
    assert SCHEMA.count("edge ") == 2
