"""Net differences between two states: what one would have to do to the first to get the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError, BranchNotFoundError, NotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.tables import TableStore
from support.change_feeds import (
    compact,
    compared,
    drop,
    knows,
    load,
    merge,
    person,
    rows_of,
    run,
    set_age,
    told,
)


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
    edge = edge_id(seeded)
    before = seeded.snapshot().commit_id
    run(seeded, person("dan", 1))
    run(seeded, set_age("ann", 31))
    run(seeded, drop("bob"))
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


def test_a_node_has_no_endpoints(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    assert {change.endpoints is None for change in graph.diff(before, after, kinds=["node"])} == {
        True
    }


def test_every_change_names_the_published_version_of_the_newer_state(
    moved: tuple[Graph, str, str],
):
    graph, before, after = moved
    pins = graph.snapshot().pins
    for change in graph.diff(before, after):
        assert change.published_dataset_version == pins[f"{change.kind}:{change.type_name}"].version


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


def test_a_value_that_went_and_came_back_is_no_change(seeded: Graph):
    before = seeded.snapshot().commit_id
    run(seeded, set_age("ann", 31))
    run(seeded, set_age("ann", 30))
    assert told(seeded.diff(before, "main")) == []


def test_an_entity_that_was_deleted_and_inserted_again_as_it_was_is_no_change(seeded: Graph):
    before = seeded.snapshot().commit_id
    run(seeded, drop("cid"))
    run(seeded, person("cid"))
    assert told(seeded.diff(before, "main")) == []


def test_an_entity_that_came_back_with_another_value_is_an_update(seeded: Graph):
    before = seeded.snapshot().commit_id
    run(seeded, drop("cid"))
    run(seeded, person("cid", 5))
    assert told(seeded.diff(before, "main")) == [("node:Person", "cid", "update")]


def test_an_entity_that_came_and_went_is_no_change(seeded: Graph):
    before = seeded.snapshot().commit_id
    run(seeded, person("eve"))
    run(seeded, drop("eve"))
    assert told(seeded.diff(before, "main")) == []


def test_an_overwrite_with_the_same_rows_is_no_change(graph: Graph, tmp_path: Path):
    lines = [{"type": "City", "data": {"name": "oslo", "size": 1}}]
    before = load(graph, tmp_path, lines)
    load(graph, tmp_path, lines, mode="overwrite")
    assert graph.snapshot().commit_id != before
    assert told(graph.diff(before, "main")) == []


def test_compaction_is_no_change(moved: tuple[Graph, str, str]):
    graph, _, after = moved
    compact(graph)
    assert told(graph.diff(after, "main")) == []
    assert told(graph.diff("main", after)) == []


def test_changes_are_told_across_a_compaction(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    wanted = told(graph.diff(before, after))
    compact(graph)
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
    seeded.create_branch("one")
    seeded.create_branch("two")
    run(seeded, set_age("ann", 1) + " " + set_age("bob", 1), branch="one")
    run(seeded, set_age("ann", 1) + " " + set_age("bob", 2), branch="two")
    run(seeded, person("eve"), branch="two")
    assert told(seeded.diff("one", "two")) == [
        ("node:Person", "bob", "update"),
        ("node:Person", "eve", "insert"),
    ]


def test_equal_rows_that_two_branches_wrote_by_themselves_do_not_differ(seeded: Graph):
    for name in ("one", "two"):
        seeded.create_branch(name)
        run(seeded, person("eve", 1), branch=name)
    assert told(seeded.diff("one", "two")) == []


def test_a_new_branch_does_not_differ_from_its_base(seeded: Graph):
    seeded.create_branch("work")
    assert told(seeded.diff("main", "work")) == []


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


def test_an_unknown_branch_is_not_found(graph: Graph):
    with pytest.raises(BranchNotFoundError):
        graph.diff("main", "nowhere")


def test_an_unknown_commit_is_not_found(graph: Graph):
    with pytest.raises(NotFoundError, match="there is no commit"):
        graph.diff("01ARZ3NDEKTSV4RRFFQ69G5FAV", "main")


def test_a_commit_of_a_deleted_branch_is_not_found(seeded: Graph):
    seeded.create_branch("work")
    gone = run(seeded, person("eve"), branch="work")
    seeded.delete_branch("work")
    with pytest.raises(NotFoundError, match="was deleted"):
        seeded.diff("main", gone)


# ---- the result


def test_a_diff_names_versions_commits_and_the_branch_of_both_states(
    moved: tuple[Graph, str, str],
):
    graph, before, after = moved
    diff = graph.diff(before, "main")
    assert (diff.from_commit_id, diff.to_commit_id) == (before, after)
    assert diff.from_graph_manifest_version == graph.commit(before).graph_version
    assert diff.to_graph_manifest_version == graph.commit(after).graph_version
    assert diff.graph_branch == "main"


def test_a_diff_between_branches_names_no_branch(seeded: Graph):
    seeded.create_branch("work")
    run(seeded, person("eve"), branch="work")
    diff = seeded.diff("main", "work")
    assert diff.graph_branch is None
    assert "graph_branch" not in diff.to_json()


def test_a_diff_counts_what_differs(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    diff = graph.diff(before, after)
    assert diff.stats.to_json() == {
        "inserts": 1,
        "updates": 1,
        "deletes": 2,
        "types_affected": ["edge:Knows", "node:Person"],
    }
    assert len(diff) == 4


def test_a_table_of_all_changes_says_what_iteration_says(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    for filters in ({}, {"kinds": ["edge"]}, {"ops": ["insert"]}, {"types": ["City"]}):
        diff = graph.diff(before, after, **filters)
        rows = diff.to_arrow().to_pylist()
        wanted = [
            {
                "kind": change.kind,
                "type_name": change.type_name,
                "id": change.id,
                "op": str(change.op),
                "published_dataset_version": change.published_dataset_version,
                "from": None if change.endpoints is None else change.endpoints["from"],
                "to": None if change.endpoints is None else change.endpoints["to"],
            }
            for change in diff
        ]
        assert rows == wanted


def test_the_json_of_a_diff_holds_every_change(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    diff = graph.diff(before, after)
    body = diff.to_json()
    assert body["changes"] == [change.to_json() for change in diff]
    assert body["stats"] == diff.stats.to_json()
    assert (body["from_graph_commit_id"], body["to_graph_commit_id"]) == (before, after)


def test_a_diff_can_be_read_more_than_once(moved: tuple[Graph, str, str]):
    graph, before, after = moved
    diff = graph.diff(before, after)
    assert diff.changes == diff.changes == list(diff)
