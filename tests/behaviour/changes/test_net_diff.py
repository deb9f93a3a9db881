"""Net differences between two states: what one would have to do to the first to get the second."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph.branches.deltas import Operation
from omnigraph.errors import BadRequestError, BranchNotFoundError, LoadRejectedError, NotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.pipeline import deltas, engine_choice
from omnigraph.pipeline.exchange import SCRATCH, Scratch, ScratchPlace
from omnigraph.pipeline.workers import Silent
from omnigraph.spark import worker_choice
from omnigraph.spark.workers import SparkWorkers
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.location import parse_location
from support.change_feeds import (
    SCHEMA,
    NothingToCompact,
    Rows,
    apply,
    compact,
    compared,
    drop,
    images_of,
    knows,
    load,
    merge,
    person,
    poll,
    rows_of,
    run,
    set_age,
    told,
)
from support.subtests import each_case


@pytest.fixture
def seeded(graph: Graph) -> Graph:
    """Three people who know each other, on main."""
    run(graph, person("ann", 30) + person("bob", 40) + person("cid") + knows("ann", "bob", 1))
    return graph


@pytest.fixture
def moved(seeded: Graph) -> tuple[Graph, str, str]:
    """One insert, one update and one delete of nodes, and the edge that went with its node."""
    before = seeded.snapshot().commit_id
    run(seeded, person("dan", 1))
    run(seeded, set_age("ann", 31))
    return seeded, before, run(seeded, drop("bob"))


def edge_id(graph: Graph, branch: str = "main") -> str:
    (only,) = rows_of(graph, branch)["edge:Knows"]
    return only


# ---- changes


def test_inserts_updates_and_deletes_are_told_by_type_key_with_edges_first(seeded: Graph):
    edge, before = edge_id(seeded), seeded.snapshot().commit_id
    for text in (person("dan", 1), set_age("ann", 31), drop("bob")):
        run(seeded, text)
    assert told(seeded.diff(before, "main")) == [
        ("edge:Knows", edge, "delete"),
        ("node:Person", "ann", "update"),
        ("node:Person", "bob", "delete"),
        ("node:Person", "dan", "insert"),
    ]


def test_types_are_in_the_order_of_their_keys(graph: Graph):
    before = graph.snapshot().commit_id
    living = 'insert City { name: "oslo" } insert LivesIn { from: "ann", to: "oslo" } '
    run(graph, person("ann") + living + knows("ann", "ann"))
    keys = [key for key, _, _ in told(graph.diff(before, "main"))]
    assert keys == ["edge:Knows", "edge:LivesIn", "node:City", "node:Person"]


def test_the_way_back_is_the_opposite(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    opposite = {"insert": "delete", "delete": "insert", "update": "update"}
    forth, back = told(graph.diff(before, after)), told(graph.diff(after, before))
    assert back == [(key, entity, opposite[op]) for key, entity, op in forth]


def test_an_edge_tells_its_endpoints_also_when_it_is_gone(seeded: Graph):
    before = seeded.snapshot().commit_id
    run(seeded, "delete Knows where since = 1")
    run(seeded, knows("cid", "ann", 2))
    gone, come = sorted(seeded.diff(before, "main", kinds=["edge"]), key=lambda item: item.op)
    assert (gone.op, gone.endpoints) == ("delete", {"from": "ann", "to": "bob"})
    assert (come.op, come.endpoints) == ("insert", {"from": "cid", "to": "ann"})


def test_an_edge_that_moved_tells_its_new_endpoints(seeded: Graph, tmp_path: Path):
    before = seeded.snapshot().commit_id
    line = {"edge": "Knows", "from": "cid", "to": "bob", "data": {"id": edge_id(seeded)}}
    load(seeded, tmp_path, [line], mode="merge")
    (change,) = seeded.diff(before, "main")
    assert (change.op, change.endpoints) == ("update", {"from": "cid", "to": "bob"})


def test_every_change_names_the_published_version_of_the_newer_state(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    pins = graph.snapshot().pins
    for change in graph.diff(before, after):
        assert change.published_dataset_version == pins[f"{change.kind}:{change.type_name}"].version
        assert (change.endpoints is None) is (change.kind == "node")


# ---- what is no change


def test_a_state_does_not_differ_from_itself(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    for name in (before, after, "main"):
        diff = graph.diff(name, name)
        assert (len(diff), list(diff), diff.changes) == (0, [], [])
        assert diff.stats.types_affected == ()


def test_a_rewrite_with_equal_values_is_no_change(seeded: Graph):
    before = seeded.snapshot()
    run(seeded, person("ann", 30))
    assert seeded.snapshot().pins["node:Person"] != before.pins["node:Person"]
    assert told(seeded.diff(before.commit_id, "main")) == []


@each_case(
    ("texts", "wanted"),
    [
        pytest.param([set_age("ann", 31), set_age("ann", 30)], [], id="a value that went and came back"),
        pytest.param([drop("cid"), person("cid")], [], id="an entity that was deleted and inserted again as it was"),
        pytest.param([person("eve"), drop("eve")], [], id="an entity that came and went"),
        pytest.param([drop("cid"), person("cid", 5)], ["cid"], id="an entity that came back with another value"),
    ],
)
def test_what_went_and_came_is_a_change_only_with_another_value(seeded: Graph, texts: list[str], wanted: list[str]):
    before = seeded.snapshot().commit_id
    for text in texts:
        run(seeded, text)
    assert told(seeded.diff(before, "main")) == [("node:Person", name, "update") for name in wanted]


def test_an_overwrite_with_the_same_rows_is_no_change(graph: Graph, tmp_path: Path):
    lines = [{"type": "City", "data": {"name": "oslo", "size": 1}}]
    before = load(graph, tmp_path, lines)
    load(graph, tmp_path, lines, mode="overwrite")
    assert graph.snapshot().commit_id != before
    assert told(graph.diff(before, "main")) == []


def test_compaction_is_no_change(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    wanted = told(graph.diff(before, after))
    compact(graph)
    assert told(graph.diff(after, "main")) == told(graph.diff("main", after)) == []
    assert told(graph.diff(before, "main")) == wanted


def test_changes_of_a_merge_are_told_across_a_compaction(seeded: Graph):
    before, rows = seeded.snapshot().commit_id, rows_of(seeded)
    seeded.create_branch("work")
    run(seeded, set_age("ann", 99) + " " + set_age("cid", 7), branch="work")
    run(seeded, person("zoe"))
    merge(seeded, "work")
    compact(seeded)
    wanted = compared(rows, rows_of(seeded))
    assert {op for _, _, op in wanted} == {"insert", "update"}
    assert set(told(seeded.diff(before, "main"))) == wanted


def test_an_index_is_no_change(seeded: Graph):
    before = seeded.snapshot().commit_id
    assert seeded.ensure_indices().commit is not None
    assert told(seeded.diff(before, "main")) == []


def test_nothing_of_equal_datasets_is_opened(seeded: Graph, monkeypatch: pytest.MonkeyPatch):
    before = seeded.snapshot().commit_id
    run(seeded, 'insert City { name: "oslo" }')
    opened: list[str] = []
    real = TableStore.open

    def counted(self: TableStore, path: str, *given: Any, **named: Any) -> Any:
        opened.append(path)
        return real(self, path, *given, **named)

    with Graph.open(seeded.uri, read_only=True) as reader:
        monkeypatch.setattr(TableStore, "open", counted)
        assert len(reader.diff(before, "main")) == 1
    location = seeded.snapshot().pins["node:City"].location
    assert set(opened) == {location}


# ---- filters


FILTERS: list[dict[str, list[str]]] = [
    {"kinds": ["node"]},
    {"kinds": ["edge"]},
    {"kinds": ["node", "edge"]},
    {"types": ["Person"]},
    {"types": ["node:Person"]},
    {"types": ["Knows", "City"]},
    {"ops": ["insert"]},
    {"ops": ["update"]},
    {"ops": ["delete"]},
    {"ops": ["insert", "delete"]},
    {"kinds": ["node"], "types": ["Knows"]},
    {"kinds": ["node"], "types": ["Person"], "ops": ["update"]},
]


def test_a_filter_leaves_out_and_never_reclassifies(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    every = told(graph.diff(before, after))
    for filters in FILTERS:
        names = filters.get("types", [])
        wanted = [
            (key, entity, op)
            for key, entity, op in every
            if key.partition(":")[0] in filters.get("kinds", ["node", "edge"])
            and (not names or key in names or key.partition(":")[2] in names)
            and op in filters.get("ops", ["insert", "update", "delete"])
        ]
        assert told(graph.diff(before, after, **filters)) == wanted, filters


@pytest.mark.parametrize(
    ("filters", "sentence"),
    [
        ({"kinds": ["table"]}, "there is no kind 'table'"),
        ({"types": ["Robot"]}, "there is no type 'Robot'"),
        ({"ops": ["upsert"]}, "there is no operation 'upsert'"),
        ({"types": "Person"}, "a filter takes a list of types"),
    ],
)
def test_a_filter_that_names_nothing_is_refused(graph: Graph, filters: Any, sentence: str):
    with pytest.raises(BadRequestError, match=sentence):
        graph.diff("main", "main", **filters)


# ---- scope


def test_two_branches_are_compared_row_by_row(seeded: Graph):
    """A new branch and its base, and rows that both wrote alike, do not differ."""
    for name in ("one", "two"):
        seeded.create_branch(name)
        assert told(seeded.diff("main", name)) == []
        run(seeded, person("fay", 1), branch=name)
    assert told(seeded.diff("one", "two")) == []
    run(seeded, set_age("ann", 1) + " " + set_age("bob", 1), branch="one")
    run(seeded, set_age("ann", 1) + " " + set_age("bob", 2), branch="two")
    run(seeded, person("eve"), branch="two")
    assert told(seeded.diff("one", "two")) == [("node:Person", "bob", "update"), ("node:Person", "eve", "insert")]


def test_a_branch_and_a_commit_of_another_one_can_be_compared(seeded: Graph):
    seeded.create_branch("work")
    middle = run(seeded, person("eve"), branch="work")
    run(seeded, person("fay"), branch="work")
    assert told(seeded.diff("main", middle)) == [("node:Person", "eve", "insert")]
    assert told(seeded.diff(middle, "work")) == [("node:Person", "fay", "insert")]


def test_a_merged_branch_does_not_differ_from_its_target(seeded: Graph):
    seeded.create_branch("work")
    run(seeded, person("eve") + knows("eve", "ann"), branch="work")
    run(seeded, set_age("bob", 1), branch="work")
    merge(seeded, "work")
    assert told(seeded.diff("work", "main")) == []


def test_every_handle_gives_the_same_answer(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    wanted = graph.diff(before, after).to_json()
    for read_only in (False, True):
        with Graph.open(graph.uri, read_only=read_only) as other:
            assert other.diff(before, after).to_json() == wanted


def test_a_handle_sees_what_another_one_wrote(seeded: Graph):
    before = seeded.snapshot().commit_id
    with Graph.open(seeded.uri) as other:
        run(other, person("eve"))
    assert told(seeded.diff(before, "main")) == [("node:Person", "eve", "insert")]


def test_what_is_not_there_is_not_found(seeded: Graph):
    seeded.create_branch("work")
    gone = run(seeded, person("eve"), branch="work")
    seeded.delete_branch("work")
    with pytest.raises(BranchNotFoundError):
        seeded.diff("main", "nowhere")
    with pytest.raises(NotFoundError, match="there is no commit"):
        seeded.diff("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main")
    with pytest.raises(NotFoundError, match="was deleted"):
        seeded.diff("main", gone)


# ---- the result


def test_a_diff_names_versions_commits_and_the_branch_of_both_states(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    diff = graph.diff(before, "main")
    assert (diff.from_commit_id, diff.to_commit_id) == (before, after)
    assert diff.from_graph_manifest_version == graph.commit(before).graph_version
    assert diff.to_graph_manifest_version == graph.commit(after).graph_version
    assert diff.graph_branch == "main"
    graph.create_branch("work")
    run(graph, person("eve"), branch="work")
    between = graph.diff("main", "work")
    assert between.graph_branch is None
    assert "graph_branch" not in between.to_json()


def test_the_json_of_a_diff_holds_every_change_and_counts_them(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    diff = graph.diff(before, after)
    counted = {"inserts": 1, "updates": 1, "deletes": 2, "types_affected": ["edge:Knows", "node:Person"]}
    assert (diff.stats.to_json(), len(diff)) == (counted, 4)
    body = diff.to_json()
    assert body["changes"] == [change.to_json() for change in diff]
    assert body["stats"] == counted
    assert (body["from_graph_commit_id"], body["to_graph_commit_id"]) == (before, after)
    assert diff.changes == diff.changes == list(diff), "it can be read more than once"


def test_a_table_of_all_changes_says_what_iteration_says(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    names = ("kind", "type_name", "id", "op", "published_dataset_version")
    for filters in ({}, {"kinds": ["edge"]}, {"ops": ["insert"]}, {"types": ["City"]}):
        diff = graph.diff(before, after, **filters)
        assert diff.to_arrow().to_pylist() == [
            {name: getattr(change, name) for name in names} | (change.endpoints or {"from": None, "to": None})
            for change in diff
        ]


# ---- Differences too many for memory: they are in files, read like the others, and leave nothing behind


MANY = 40


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> pytest.MonkeyPatch:
    """Nothing fits into memory, and few rows into a file."""
    monkeypatch.setattr(worker_choice, "ELASTIC_ROWS", 0)
    monkeypatch.setattr(deltas, "_BUCKET_ROWS", 7)
    return monkeypatch


@pytest.fixture
def states(graph: Graph, tmp_path: Path) -> tuple[Graph, str, str]:
    """Many people before and after: some came, some changed, some went with their edges, and all were compacted."""
    people = [{"type": "Person", "data": {"name": f"p{n:02d}", "age": n, "city": "x"}} for n in range(MANY)]
    ends = [(f"p{n:02d}", f"p{n * 7 % MANY:02d}") for n in range(MANY)]
    edges = [{"edge": "Knows", "from": one, "to": other, "data": {}} for one, other in ends]
    before = load(graph, tmp_path, people + edges)
    changed = [{"type": "Person", "data": {"name": f"p{n:02d}", "age": -n, "city": "y"}} for n in range(0, MANY, 2)]
    load(graph, tmp_path, changed, mode="merge")
    run(graph, drop("p03"))
    run(graph, drop("p31"))
    load(graph, tmp_path, [{"type": "Person", "data": {"name": f"q{n}"}} for n in range(9)])
    compact(graph)
    return graph, before, run(graph, set_age("p05", 500))


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_they_are_those_of_memory(states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path) -> None:
    graph, before, after = states
    with small.context() as patch:
        patch.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
        held = graph.diff(before, after, engine="local")
        expected, table = held.to_json(), held.to_arrow()
    assert not held.is_in_files
    assert files(scratch) == []
    # Another graph: this one remembers what it compared.
    with Graph.open(graph.uri, read_only=True) as other:
        found = other.diff(before, after, engine="local")
        assert found.is_in_files
        assert found.to_json() == expected
        assert found.to_arrow().equals(table.combine_chunks())
        assert (len(found), found.stats) == (len(held), held.stats)
        for begin in range(0, len(held) + 2, 5):
            for end in (begin, begin + 1, begin + 6, len(held) + 3):
                assert list(found.between(begin, end)) == list(held.between(begin, end))
        for ops in ([Operation.UPDATE], [Operation.INSERT, Operation.DELETE]):
            some = other.diff(before, after, ops=ops, engine="local")
            assert some.changes == [item for item in held if item.op in ops]
            assert list(some.between(3, 9)) == some.changes[3:9]
            assert len(some) == some.stats.inserts + some.stats.updates + some.stats.deletes
        backwards = other.diff(after, before, engine="local")
        assert len(backwards) == len(held)


def test_files_go_with_the_diff(states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path) -> None:
    graph, before, after = states
    with graph.diff(before, after, engine="local") as found:
        assert len(files(scratch)) == len(found.deltas) == 2
        first = next(iter(found))
    assert files(scratch) == []
    assert found.stats.inserts == 9
    with pytest.raises(BadRequestError, match="closed"):
        next(iter(found))
    found.close()
    again = graph.diff(before, after, engine="local")
    assert next(iter(again)) == first
    del again
    gc.collect()
    assert files(scratch) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ArithmeticError, MemoryError])
@pytest.mark.parametrize("place", ["_ReadSide", "_Match"])
def test_nothing_is_left_when_it_fails(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path, place: str, error: type[BaseException]
) -> None:
    graph, before, after = states

    def fail(*_: object) -> Any:
        assert files(scratch), "the work has begun"
        raise error

    small.setattr(getattr(deltas, place), "__call__", fail)
    with pytest.raises(error):
        graph.diff(before, after, engine="local")
    gc.collect()
    assert files(scratch) == []
    assert not (graph._core.environment.location.path / "__staging").exists()


def test_few_differences_among_many_rows_are_in_memory(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, _, after = states
    compact(graph)
    last = run(graph, set_age("p07", 700))
    # So few may be named that tasks look for them; then they turn out to be few.
    small.setattr(worker_choice, "ELASTIC_ROWS", 3)
    found = graph.diff(after, last, engine="local")
    assert told(found) == [("node:Person", "p07", "update")]
    assert not found.is_in_files
    assert files(scratch) == []


def test_a_setting_says_where_they_lie(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path, tmp_path: Path
) -> None:
    graph, before, after = states
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    small.setenv(SCRATCH, str(chosen))
    with graph.diff(before, after, engine="local"):
        assert len(files(chosen / "__staging")) == 2
        assert files(scratch) == []
    assert files(chosen) == []


def test_a_cleanup_leaves_files_in_the_graph_that_are_still_read(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch
) -> None:
    """Executors of a cluster keep them in the graph when nothing else is said."""
    graph, before, after = states
    small.setattr(ScratchPlace, "location", lambda place, _: (place.root, False))
    found = graph.diff(before, after, engine="local")
    assert found.is_in_files
    with Graph.open(graph.uri) as other:
        other.cleanup(keep=1_000, confirm=True)
        assert len(found.changes) == len(found)
        found.close()
        other.cleanup(keep=1_000, confirm=True)
    assert not (graph._core.environment.location.path / "__staging").exists()


def test_pages_of_changes_compare_once(
    states: tuple[Graph, str, str], small: pytest.MonkeyPatch, scratch: Path
) -> None:
    graph, before, _ = states
    with Graph.open(graph.uri, read_only=True) as calm:
        small.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
        expected, _ = poll(calm, start="beginning", limit=1_000)
    small.setattr(worker_choice, "ELASTIC_ROWS", 0)
    small.setattr(engine_choice, "is_installed", lambda _: False)  # so that `auto` means this process
    calls: list[int] = []
    real = deltas.filed_deltas

    def counted(pairs: Any, *rest: Any) -> Any:
        calls.append(len(pairs))
        return real(pairs, *rest)

    small.setattr(deltas, "filed_deltas", counted)
    with Graph.open(graph.uri, read_only=True) as other:
        page, changes = other.changes(before, limit=3), []
        changes += page.changes
        while page.next_page_token is not None:
            page = other.changes(before, limit=3, page_token=page.next_page_token)
            changes += page.changes
        assert len(changes) == 2 * MANY
        assert sum(calls) == 2, "a table of nodes and one of edges"
        # A diff of the same states reads the same files, and may be closed without taking them from the pages.
        parent = page.cause.parent_commit_id
        with other.diff(parent, before, engine="local") as found:
            assert len(found) == 2 * MANY
        assert other.changes(before, limit=3).changes == tuple(changes[:3])
        assert sum(calls) == 2
        assert poll(other, start="beginning", limit=4)[0][0].cause == expected[0].cause
    del found
    gc.collect()
    assert files(scratch) == []


def test_blocks_of_a_feed_are_those_of_memory(states: tuple[Graph, str, str], small: pytest.MonkeyPatch) -> None:
    graph, _, _ = states
    small.setattr(worker_choice, "ELASTIC_ROWS", 1_000)
    with Graph.open(graph.uri, read_only=True) as other:
        expected, _ = poll(other, start="beginning", limit=1_000)
    small.setattr(worker_choice, "ELASTIC_ROWS", 0)
    small.setattr(engine_choice, "is_installed", lambda _: False)
    with Graph.open(graph.uri, read_only=True) as other:
        found, _ = poll(other, start="beginning", limit=1_000)
    assert found == expected


def test_long_ids_keep_their_place(graph: Graph, small: pytest.MonkeyPatch) -> None:
    """A page token holds a part of a long id, so the place behind it is looked for."""
    names = [f"{'long ' * 80}{n}" for n in range(6)]
    commit = run(graph, "".join(map(person, names)) + knows(names[0], names[1]))
    small.setattr(engine_choice, "is_installed", lambda _: False)
    page = graph.changes(commit, limit=2, kinds=["node"])
    seen = [change.id for change in page.changes]
    while page.next_page_token is not None:
        page = graph.changes(commit, limit=2, kinds=["node"], page_token=page.next_page_token)
        seen += [change.id for change in page.changes]
    assert seen == sorted(names)


# ---- where files lie


class _Session:
    """As much of a Spark session as tells where its executors are."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}


def workers_of(master: str) -> SparkWorkers:
    return SparkWorkers(_Session(master), Silent())  # type: ignore[arg-type]  # enough of one


@pytest.mark.parametrize("master", ["local", "local[4]", "local-cluster[2,1,1024]"])
def test_executors_of_this_machine_use_its_folder(tmp_path: Path, scratch: Path, master: str) -> None:
    place = ScratchPlace(root=parse_location(tmp_path / "g.omni"), is_read_only=True)
    location, is_own = place.location(workers_of(master))
    assert is_own
    assert location.path.parent == scratch


def test_executors_of_a_cluster_use_the_graph_or_what_is_named(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cluster = parse_location(tmp_path / "g.omni"), workers_of("spark://host:7077")
    reader = ScratchPlace(root=root, is_read_only=True)
    assert ScratchPlace(root=root).location(cluster) == (root, False)
    with pytest.raises(BadRequestError, match=SCRATCH):
        reader.location(cluster)
    monkeypatch.setenv(SCRATCH, "s3://bucket/scratch")
    named = parse_location("s3://bucket/scratch")
    assert reader.location(cluster) == (named, False)
    assert reader.location(None) == (named, False)
    # A writer keeps its files where it writes anyway.
    assert ScratchPlace(root=root, is_writer=True).location(cluster) == (root, False)
    assert files(scratch) == []


def test_a_fork_of_the_process_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parse_location(tmp_path)
    mine = Scratch(ScratchPlace(root=root, is_writer=True))
    place = tmp_path / mine.folder(None).name
    place.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 0)
        mine.close()
    assert place.exists()


# ---- Random histories: every diff says what a slow comparison says, and every replay is its branch


NAMES = [f"p{number}" for number in range(7)]
STEPS = 14
#: Few, so that they meet.
MOST_BRANCHES = 4


class Story:
    """One graph with a random past; keeps what every commit looked like."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.graph = Graph.init(folder / "g.omni", SCHEMA)
        self.states: dict[str, Rows] = {}
        self._folder = folder
        self._random = Random(seed)

    def go_on(self) -> None:
        random, graph = self._random, self.graph
        branch = random.choice(graph.branches())
        step = random.choice(
            [
                *(self._insert, self._update, self._delete, self._connect),
                *(self._load, self._load, self._compact, self._branch, self._merge, self._merge),
            ]
        )
        # An end that is not there, an overwrite that would orphan edges: refusals are part of the past too.
        with suppress(BadRequestError, LoadRejectedError):
            step(branch)
        for name in graph.branches():
            commit = graph.snapshot(name).commit_id
            if commit not in self.states:
                self.states[commit] = rows_of(graph, name)

    def _insert(self, branch: str) -> None:
        age = self._random.randrange(3)
        run(self.graph, person(self._random.choice(NAMES), age), branch)

    def _update(self, branch: str) -> None:
        age, bound = self._random.randrange(3), self._random.randrange(3)
        self.graph.mutate(f"query q() {{ update Person set {{ age: {age} }} where age >= {bound} }}", branch=branch)

    def _delete(self, branch: str) -> None:
        text = drop(self._random.choice(NAMES))
        self.graph.mutate(f"query q() {{ {text} }}", branch=branch)

    def _connect(self, branch: str) -> None:
        run(self.graph, knows(*self._random.sample(NAMES, 2)), branch)

    def _load(self, branch: str) -> None:
        mode = self._random.choice(["merge", "merge", "overwrite"])
        lines = [
            {"type": "Person", "data": {"name": name, "age": self._random.randrange(3)}}
            for name in self._random.sample(NAMES, 4)
        ]
        load(self.graph, self._folder, lines, mode, branch=branch)

    def _compact(self, branch: str) -> None:
        with suppress(NothingToCompact):
            compact(self.graph, branch)

    def _branch(self, branch: str) -> None:
        if len(self.graph.branches()) < MOST_BRANCHES:
            self.graph.create_branch(f"b{len(self.states)}", branch)

    def _merge(self, branch: str) -> None:
        others = [name for name in self.graph.branches() if name != branch]
        if others:
            strategy = self._random.choice(["ours", "theirs"])
            self.graph.merge(self._random.choice(others), branch, strategy=strategy)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 30))])
def test_diffs_and_replays_of_a_random_past_are_exact(tmp_path: Path, seed: int):
    story = Story(tmp_path, seed)
    for _ in range(STEPS):
        story.go_on()
    graph, states = story.graph, story.states
    for one, before in states.items():
        for other, after in states.items():
            diff = told(graph.diff(one, other))
            assert len(diff) == len(set(diff))
            assert set(diff) == compared(before, after)
    for branch in graph.branches():
        replayed: dict[str, dict[str, Any]] = {}
        blocks, _ = poll(graph, branch, start="beginning", limit=3)
        apply(blocks, replayed)
        assert {key: rows for key, rows in replayed.items() if rows} == images_of(graph, branch)
