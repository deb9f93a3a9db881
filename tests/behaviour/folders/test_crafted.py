"""A graph folder from elsewhere may break itself, but nothing beside it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.commit.environment import open_environment
from omnigraph.commit.rows import Head
from omnigraph.errors import OmniError, OutsideRootError, RecoveryRequiredError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.findings import Finding, Health
from omnigraph.storage.datasets.opening import with_bases_in_file
from omnigraph.storage.derived import DERIVED_FOLDER, DerivedArrays, group_name
from omnigraph.storage.location import is_fork_name, parse_location
from support import hostile_folders as hostile
from support.histories import NAMES, PERSON, SCHEMA, add, remove
from support.portable_folders import as_recorded_elsewhere, build, tree

SWEPT = "query all() { match { $p: Person  $p knows $q } return { $p.name as one, $q.name as two } }"


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph with a branch, old versions, deletions and edges; tests copy it."""
    root = tmp_path_factory.mktemp("plain") / "g.omni"
    with Graph.init(root, SCHEMA) as graph:
        for name in "abc":
            add(graph, name)
        graph.mutate('query k() { insert Knows { from: "a", to: "b" } }')
        graph.create_branch("draft")
        add(graph, "d", "draft")
        remove(graph, "a", "draft")
        remove(graph, "c")
    return root


@pytest.fixture
def victim(plain: Path, tmp_path: Path) -> Path:
    """What lies beside the crafted graph: another graph, and files of a person."""
    shutil.copytree(plain, tmp_path / "victim.omni")
    (tmp_path / "victim.omni" / "letters").mkdir()
    (tmp_path / "victim.omni" / "letters" / "0101.lance").write_bytes(b"dear")
    (tmp_path / "victim.omni" / "notes.txt").write_bytes(b"mine")
    return tmp_path / "victim.omni"


@pytest.fixture
def evil(plain: Path, tmp_path: Path) -> Path:
    return shutil.copytree(plain, tmp_path / "evil.omni")


def head_of(root: Path) -> Head:
    return open_environment(parse_location(root), durable=False).manifest.state().head("main")


def dataset_of(root: Path) -> str:
    return head_of(root).pins[PERSON].location


def use(root: Path) -> list[OmniError]:
    """Everything that a person may do with a graph, as far as it goes; how it failed."""
    failures: list[OmniError] = []

    def attempt(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OmniError as error:
            failures.append(error)
            return None

    reader = attempt(lambda: Graph.open(root, read_only=True))
    if reader is not None:
        attempt(lambda: reader.query(NAMES).to_pylist())
        attempt(lambda: reader.query(NAMES, branch="draft").to_pylist())
        reader.close()
    attempt(lambda: Graph.examine(root))
    graph = attempt(lambda: Graph.open(root))
    if graph is None:
        return failures
    steps: tuple[Callable[[], Any], ...] = (
        lambda: graph.query(SWEPT).to_pylist(),
        lambda: add(graph, "new"),
        lambda: add(graph, "new", "draft"),
        graph.doctor,
        graph.optimize,
        lambda: graph.repair(confirm=True),
        lambda: graph.create_branch("other", base="draft"),
        lambda: add(graph, "x", "other"),
        lambda: graph.merge("draft", "main"),
        lambda: graph.delete_branch("other"),
        lambda: graph.delete_branch("draft"),
        lambda: graph.cleanup(keep=3, confirm=True),
        lambda: graph.apply_schema("node Place { name: String @key }", allow_data_loss=True),
        lambda: graph.cleanup(keep=3, confirm=True, commits=True),
        graph.refresh,
    )
    for step in steps:
        attempt(step)
    graph.close()
    return failures


# ---- links


LINKS = (
    *("nodes", "nodes/evil", "nodes/0000000000000bad"),
    *("{person}", "{person}/data", "{person}/_versions", "{person}/_refs", "{person}/_refs/branches"),
    *("{person}/_indices", "{person}/_checksums", "{person}/tree", "{person}/tree/draft"),
    *("{person}/tree/draft/data", "{person}/data/folder", "{person}/tree/other"),
    *("__manifest/_checksums", "__manifest", "__manifest/data", "__manifest/data/more", "__recovery"),
    *("__derived", "__derived/nodes-0000000000000bad"),
    *("__lock", "__staging.lock", "__reading.lock", "__root.json", "_schema.pg", "_schema.pg.staging"),
    *("__claim-00000000000000ff", "_graph_commit_recoveries.lance"),
)


@pytest.mark.parametrize("name", LINKS)
def test_nothing_happens_where_a_link_leads(evil: Path, victim: Path, name: str) -> None:
    name = name.format(person=dataset_of(evil))
    place, target = evil / name, victim / name
    before = tree(victim)
    if not target.exists():
        target = victim / "notes.txt" if name.startswith("__claim") else victim / "letters"
    _replace_by_link(place, target)
    use(evil)
    assert tree(victim) == before
    assert place.is_symlink(), "a link is not deleted either"


@pytest.mark.parametrize("name", ["__lock", "__root.json", "_schema.pg.staging", "__created"])
def test_nothing_is_made_where_a_dangling_link_leads(evil: Path, victim: Path, name: str) -> None:
    before = tree(victim)
    _replace_by_link(evil / name, victim / "made-by-a-graph")
    use(evil)
    assert tree(victim) == before


def test_a_link_is_told_with_its_path_and_what_to_do(evil: Path, victim: Path) -> None:
    person = dataset_of(evil)
    _replace_by_link(evil / person / "data", victim / person / "data")
    with Graph.open(evil, read_only=True) as graph, pytest.raises(OutsideRootError) as failure:
        graph.query(NAMES)
    assert failure.value.path == f"{person}/data"
    assert "is a link" in failure.value.message
    assert str(evil) not in failure.value.message, "the address of a server stays on the server"


def test_the_root_itself_may_be_reached_through_a_link(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "real.omni")
    (tmp_path / "link.omni").symlink_to(tmp_path / "real.omni")
    with Graph.open(tmp_path / "link.omni") as graph:
        add(graph, "z", "draft")
    with Graph.open(tmp_path / "real.omni", read_only=True) as graph:
        assert {row["name"] for row in graph.query(NAMES, branch="draft").to_pylist()} == set("bcdz")


def test_a_query_leaves_derived_state_behind_a_link_alone(evil: Path, victim: Path) -> None:
    group = group_name(head_of(evil).pins[PERSON].location, None)
    derived = DerivedArrays(parse_location(victim))
    derived.save(group, "one", {"counts": pa.array([1, 2]).to_numpy()})
    before = tree(victim)
    _replace_by_link(evil / DERIVED_FOLDER / group, victim / DERIVED_FOLDER / group)
    crafted = DerivedArrays(parse_location(evil))
    assert not crafted.has(group, "one")
    assert crafted.load(group, "one") is None
    assert not crafted.save(group, "two", {"counts": pa.array([3]).to_numpy()})
    assert tree(victim) == before


# ---- sidecars


def hostile_bodies(head: Head, path: str) -> dict[str, dict[str, Any]]:
    change = hostile.change_of
    new = {"table_key": "node:X", "incarnation": 9, "table_path": path, "transaction_uuid": "x"}
    unpublished = {"commit": {"commit_id": "01M7GZR22DMJRCCDNMW6R919VM", "parent_id": None, "created_at": 1}}
    return {
        "removed": hostile.sidecar_of(head, schema_change=change(head, removed_paths=[path])),
        "purged": hostile.sidecar_of(
            head, tables=[hostile.table_of(path)], schema_change=change(head, purged_paths=[path])
        ),
        "new": hostile.sidecar_of(head, schema_change=change(head, new_tables=[new]), **unpublished),
        "table": hostile.sidecar_of(head, tables=[hostile.table_of(path)], **unpublished),
        "fork": hostile.sidecar_of(head, tables=[hostile.table_of(head.pins[PERSON].location, path)], **unpublished),
        "file": hostile.sidecar_of(head, schema_change=change(head, files={path or "x": "{}"}), **unpublished),
    }


@pytest.mark.parametrize("part", ["removed", "purged", "new", "table", "fork", "file"])
def test_a_sidecar_with_a_path_of_elsewhere_is_kept_and_touches_nothing(evil: Path, victim: Path, part: str) -> None:
    Graph.open(evil).close()
    _replace_by_link(evil / "nodes" / "evil", victim / dataset_of(victim))
    before, own = tree(victim), tree(evil)
    for path in (*hostile.ELSEWHERE, hostile.absolute(victim)):
        if part == "fork" and is_fork_name(path):
            continue
        written = hostile.write_sidecar(evil, hostile_bodies(head_of(evil), path)[part])
        with pytest.raises(RecoveryRequiredError, match="nothing was touched"):
            Graph.open(evil)
        with Graph.open(evil, read_only=True) as graph, pytest.raises(RecoveryRequiredError):
            graph.cleanup(keep=3)
        assert written.exists()
        written.unlink()
        assert tree(victim) == before
    found = {name: data for name, data in tree(evil).items() if name in own}
    assert found == own


def test_a_sidecar_without_end_is_refused_before_it_is_read(evil: Path) -> None:
    sidecar = evil / "__recovery" / "01M7NSJ5VTVN2E9488ZWW0PSZX.json"
    sidecar.parent.mkdir(exist_ok=True)
    with sidecar.open("wb") as file:
        # Sparse: it takes no room on disk.
        file.truncate(1 << 40)
    with pytest.raises(StorageError, match="at most 256 MiB are read"):
        Graph.open(evil)
    assert sidecar.exists()
    with Graph.open(evil, read_only=True) as graph:
        assert graph.query(NAMES).to_pylist()


def test_a_sidecar_cannot_remove_what_a_branch_reads(evil: Path) -> None:
    Graph.open(evil).close()
    head = head_of(evil)
    path = head.pins[PERSON].location
    before = tree(evil / path)
    for part in ("removed", "new"):
        written = hostile.write_sidecar(evil, hostile_bodies(head, path)[part])
        with pytest.raises(RecoveryRequiredError, match="which a branch reads"):
            Graph.open(evil)
        written.unlink()
    assert tree(evil / path) == before


# ---- the catalog, and Lance's own manifests


@pytest.mark.parametrize("path", hostile.ELSEWHERE)
def test_a_catalog_with_a_path_of_elsewhere_is_refused(evil: Path, victim: Path, path: str) -> None:
    before = tree(victim)
    _rewrite_catalog(evil, dataset_of(evil), path)
    failures = use(evil)
    assert tree(victim) == before
    assert any(isinstance(error, OutsideRootError) for error in failures)


def test_a_fork_with_a_base_elsewhere_is_refused(evil: Path, victim: Path) -> None:
    before = tree(victim)
    for manifest in evil.glob("nodes/*/tree/draft/_versions/*.manifest"):
        path = f"{victim}/letters"
        manifest.write_bytes(with_bases_in_file(manifest.read_bytes(), lambda _, to=path: to))
    failures = use(evil)
    assert tree(victim) == before
    assert {type(error) for error in failures} == {OutsideRootError}
    assert any(str(victim) in error.message for error in failures), "the address is named"


def test_a_fork_with_the_base_of_another_graph_reads_its_own(evil: Path, victim: Path) -> None:
    person = dataset_of(evil)
    for manifest in evil.glob("nodes/*/tree/draft/_versions/*.manifest"):
        path = f"{victim}/{person}"
        manifest.write_bytes(with_bases_in_file(manifest.read_bytes(), lambda _, to=path: to))
    shutil.rmtree(victim)
    with Graph.open(evil, read_only=True) as graph:
        names = {row["name"] for row in graph.query(NAMES, branch="draft").to_pylist()}
    assert names == set("bcd")


# ---- everything together


def _spoil(root: Path, victim: Path, chance: random.Random) -> None:
    """Change one thing about a graph so that it leads to its victim."""
    head = head_of(root)
    match chance.randrange(6):
        case 0:
            places = [path for path in root.rglob("*") if not path.is_symlink()]
            place = chance.choice(places)
            _replace_by_link(place, victim / place.relative_to(root))
        case 1:
            folder = chance.choice([path for path in root.rglob("*") if path.is_dir()])
            name = chance.choice(["0101", "nodes-bad", "x.lance", "0000000000000bad", "7.manifest"])
            _replace_by_link(folder / name, chance.choice([victim / "letters", victim / "notes.txt"]))
        case 2:
            path = chance.choice([*hostile.ELSEWHERE, hostile.absolute(victim)])
            bodies = hostile_bodies(head, path)
            hostile.write_sidecar(root, bodies[chance.choice(sorted(bodies))])
        case 3:
            _rewrite_catalog(root, head.pins[PERSON].location, chance.choice(hostile.ELSEWHERE))
        case 4:
            manifests = [*root.glob("nodes/*/tree/*/_versions/*.manifest")]
            manifest = chance.choice(manifests)
            base = chance.choice([str(victim), f"{victim}/letters", hostile.absolute(victim)])
            data = with_bases_in_file(manifest.read_bytes(), lambda _: base)
            manifest.write_bytes(data)
        case _:
            place = chance.choice([path for path in root.rglob("*") if path.is_file()])
            other = victim / place.relative_to(root)
            if other.is_file():
                place.unlink()
                place.hardlink_to(other)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 150))])
def test_no_crafted_folder_touches_what_lies_beside_it(evil: Path, victim: Path, seed: int) -> None:
    chance = random.Random(seed)
    before = tree(victim)
    for _ in range(chance.randint(1, 3)):
        try:
            _spoil(evil, victim, chance)
        except OmniError:
            # It is spoilt enough.
            break
    use(evil)
    assert tree(victim) == before


def _replace_by_link(place: Path, target: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def _rewrite_catalog(root: Path, old: str, new: str) -> None:
    """Name another path wherever the catalog names one."""
    uri = str(root / "__manifest")
    rows = lance.dataset(uri).to_table()
    changed = [
        {
            key: value.replace(old, new.replace("\0", "\\u0000").replace("\n", "\\n"))
            if isinstance(value, str)
            else value
            for key, value in row.items()
        }
        for row in rows.to_pylist()
    ]
    lance.write_dataset(pa.Table.from_pylist(changed, schema=rows.schema), uri, mode="overwrite")


# ---- `doctor` looks at every file of every branch where it has to be, and tells what leads out of the graph


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


def test_a_root_that_is_a_link_to_the_recorded_place_is_not_called_moved(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.omni"
    link.symlink_to(root, target_is_directory=True)
    with Graph.open(link) as graph:
        graph.mutate('query add() { insert Paper { doi: "through-a-link" } }', branch="draft")
        graph.create_branch("made-through-a-link", base="draft")
        graph.mutate('query add() { insert Paper { doi: "another" } }', branch="made-through-a-link")
    for way in (root, link):
        assert [item.severity for item in findings(way, "place")] == [Health.OK]


def test_addresses_that_lead_through_a_link_to_the_same_place_are_not_called_moved(root: Path, tmp_path: Path) -> None:
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
