"""Who else is there when a schema change dies or fails; its places are in `test_killed_writes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.snapshot import branch_at, snapshot_of
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.core.failpoints import FailpointError
from omnigraph.graph.graph import Graph
from support.killed_writers import Children, check_sound, recovery_kinds
from support.killed_writes import NEXT_NEW, NEXT_OLD, OLD, READ_NEW, SOFT, check_whole


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return SOFT.make(tmp_path / "graph")


def test_a_writer_that_was_open_all_the_time_settles_the_change_and_goes_on_under_its_schema(
    root: Path, children: Children
):
    with Graph.open(root) as graph, Graph.open(root, read_only=True) as reader:
        check_whole(graph, is_new=False)
        check_whole(reader, is_new=False)
        children.kill_at(F.BEFORE_PUBLISH, SOFT.job(root))
        check_whole(reader, is_new=False)
        assert graph.mutate(NEXT_NEW).commit is not None
        assert recovery_kinds(graph) == ["RolledForward"]
        assert reader.schema == graph.schema
    check_sound(root)


def test_an_undone_change_leaves_a_graph_that_is_written_under_its_old_schema_and_changed_later(
    root: Path, children: Children
):
    children.kill_at("after_table_commit@2", SOFT.job(root))
    with Graph.open(root) as graph:
        assert graph.mutate(NEXT_OLD).commit is not None
        assert SOFT.run(graph).applied
        people = graph.query(READ_NEW).to_pylist()
    assert [(row["name"], row["years"]) for row in people] == [("ann", 31), ("bob", 0), ("zoe", 1)]
    check_sound(root)


def test_a_change_is_not_completed_beside_a_branch_that_came_without_settling_it(root: Path, children: Children):
    with Graph.open(root) as graph:
        children.kill_at(F.BEFORE_PUBLISH, SOFT.job(root))
        # As a writer does that lost its lease on S3 and publishes all the same.
        manifest = graph._core.environment.manifest
        manifest.publish_branch(
            lambda state, version: branch_at(snapshot_of(state.head("main")), "dev", version, "dev")
        )
        graph.refresh()
        assert recovery_kinds(graph) == ["RolledBack"]
        check_whole(graph, is_new=False)
        assert graph.snapshot("dev").schema_hash == graph.snapshot().schema_hash
        graph.delete_branch("dev")
        assert SOFT.run(graph).applied
    check_sound(root)


def test_a_table_that_was_withdrawn_is_made_again_with_other_columns_in_the_same_process(
    root: Path, failing: Callable[[str], Any]
):
    with Graph.open(root) as graph:
        with failing(F.AFTER_NEW_TABLES), pytest.raises(FailpointError):
            graph.apply_schema(f"{OLD} node Tag {{ name: String @key }}", engine="local")
        graph.apply_schema(f"{OLD} node Tag {{ name: String @key  size: I32? }}", engine="local")
        graph.mutate('query add() { insert Tag { name: "new", size: 3 } }')
        found = graph.query("query all() { match { $t: Tag } return { $t.size as size } }")
        assert found.to_pylist() == [{"size": 3}]
    check_sound(root)
