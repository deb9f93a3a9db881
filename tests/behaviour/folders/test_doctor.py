"""`doctor` looks at every file of every branch where it has to be, and tells what leads out of the graph."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.graph.graph import Graph
from omnigraph.maintenance.findings import Finding, Health
from omnigraph.storage.datasets.opening import with_bases_in_file
from support.portable_folders import as_recorded_elsewhere, build


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    build(folder / "g.omni", folder / "outside.bin")
    return folder / "g.omni"


@pytest.fixture
def root(healthy: Path, tmp_path: Path) -> Path:
    shutil.copytree(healthy, tmp_path / "g.omni")
    Graph.open(tmp_path / "g.omni").close()
    return tmp_path / "g.omni"


def findings(root: Path, check: str) -> list[Finding]:
    return [item for item in Graph.examine(root).findings if item.check == check]


def test_a_whole_graph_is_healthy_and_lies_in_its_place(root: Path) -> None:
    assert [item.severity for item in findings(root, "heads")] == [Health.OK]
    assert [item.severity for item in findings(root, "place")] == [Health.OK]


@pytest.mark.parametrize(
    "pattern",
    [
        "nodes/*/tree/draft/data/*.lance",
        "nodes/*/tree/draft/_deletions/*",
        "nodes/*/tree/draft-2/deep/_indices/*/*",
        "nodes/*/data/*.lance",
    ],
)
def test_every_file_that_a_branch_needs_is_missed(root: Path, pattern: str) -> None:
    # Each file with the same name stays in a copy of its folder: only the place where it is needed counts.
    for path in root.glob(pattern):
        elsewhere = path.parent.with_name("elsewhere")
        elsewhere.mkdir(exist_ok=True)
        path.rename(elsewhere / path.name)
    found = findings(root, "heads")
    assert {item.severity for item in found} == {Health.ERROR}
    assert all("is missing" in item.message or "bytes" in item.message for item in found)
    assert any("branch draft" in item.message for item in found)


def test_a_file_that_is_cut_short_is_told(root: Path) -> None:
    path = max(root.glob("nodes/*/tree/draft/data/*.lance"))
    path.write_bytes(path.read_bytes()[:-1])
    assert any(path.name in item.message for item in findings(root, "heads"))


def test_versions_of_another_root_are_told_and_are_no_reason_to_act(root: Path) -> None:
    as_recorded_elsewhere(root, "/other/place.omni")
    (found,) = findings(root, "place")
    assert found.severity is Health.INFO
    assert "hold the address of another root" in found.message
    assert Graph.examine(root).is_healthy


def test_a_root_that_is_a_link_to_the_recorded_place_is_not_called_moved(
    root: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.omni"
    link.symlink_to(root, target_is_directory=True)
    with Graph.open(link) as graph:
        graph.mutate('query add() { insert Paper { doi: "through-a-link" } }', branch="draft")
        graph.create_branch("made-through-a-link", base="draft")
        graph.mutate(
            'query add() { insert Paper { doi: "another" } }', branch="made-through-a-link"
        )
    for way in (root, link):
        assert [item.severity for item in findings(way, "place")] == [Health.OK]


def test_addresses_that_lead_through_a_link_to_the_same_place_are_not_called_moved(
    root: Path, tmp_path: Path
) -> None:
    # As releases before recorded them.
    link = tmp_path / "link.omni"
    link.symlink_to(root, target_is_directory=True)
    as_recorded_elsewhere(root, str(link))
    for way in (root, link):
        assert [item.severity for item in findings(way, "place")] == [Health.OK]
    link.unlink()
    assert [item.severity for item in findings(root, "place")] == [Health.INFO]


def test_a_base_outside_of_the_graph_is_told_with_its_address(root: Path) -> None:
    for manifest in root.glob("nodes/*/tree/draft/_versions/*.manifest"):
        data = with_bases_in_file(manifest.read_bytes(), lambda _: "/other/nodes/elsewhere")
        manifest.write_bytes(data)
    report = Graph.examine(root)
    assert not report.is_healthy
    for check in ("heads", "place"):
        found = [item for item in report.findings if item.check == check]
        assert {item.severity for item in found} == {Health.ERROR}
        assert any("/other/nodes/elsewhere" in item.message for item in found)


def test_links_are_told(root: Path, tmp_path: Path) -> None:
    (root / "more").symlink_to(tmp_path)
    (found,) = findings(root, "place")
    assert found.severity is Health.WARNING
    assert "more" in found.message
