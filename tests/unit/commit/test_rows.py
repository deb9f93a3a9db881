from __future__ import annotations

import pytest

from omnigraph.commit import rows
from omnigraph.commit.rows import PublishedVersion, Tombstone
from support.manifests import CITES, PAPER, commit, head, pin
from support.subtests import each_case

STONE = Tombstone(table_key=PAPER, incarnation=2, version=9, graph_version=4)
FULL_COMMIT = commit(
    "01AAA",
    7,
    "01PPP",
    "dev",
    merged_parent_id="01MMM",
    actor="act-ü",
    tables=(PAPER, CITES),
    recovery_for_actor="act-dead",
    schema_source='node Ünï { name: String @key } // "quoted"',
    schema_contract='{"a": 1}',
)
FULL_HEAD = head(
    "team/dev",
    3,
    8,
    "01AAA",
    fork_commit_id="01FFF",
    deleted=True,
    pins={PAPER: pin(PAPER, 4, branch="team/dev"), CITES: pin(CITES, 2, incarnation=6)},
)


def through_arrow(row: dict) -> dict:
    (read,) = rows.to_arrow([row]).to_pylist()
    return read


@pytest.mark.parametrize("item", [FULL_COMMIT, commit("01AAA", 1)])
def test_a_commit_comes_back_from_its_row(item):
    assert rows.read_commit(through_arrow(rows.commit_row(item))) == item


@pytest.mark.parametrize("item", [FULL_HEAD, head("main", 1, 1)])
def test_a_head_comes_back_from_its_row(item):
    assert rows.read_head(through_arrow(rows.head_row(item))) == item


@pytest.mark.parametrize("branch", [None, "dev"])
def test_a_published_version_comes_back_from_its_row(branch):
    item = PublishedVersion(pin=pin(PAPER, 7, branch=branch), branch_key="dev~4", graph_version=9)
    row = rows.version_row(item.pin, item.branch_key, item.graph_version)
    assert rows.read_version(through_arrow(row)) == item


def test_a_tombstone_comes_back_from_its_row():
    assert rows.read_tombstone(through_arrow(rows.tombstone_row(STONE))) == STONE


def test_a_table_row_keeps_location_key_and_graph_version():
    row = through_arrow(rows.table_row(pin(PAPER, incarnation=3), 5))
    assert (row["location"], row["table_key"], row["graph_version"]) == (
        "nodes/0000000000000003",
        PAPER,
        5,
    )
    assert row["object_type"] == "table"


@each_case(
    ("row", "object_type", "object_id"),
    [
        (rows.table_row(pin(incarnation=3), 5), "table", "table:node:Paper#3"),
        (
            rows.version_row(pin(version=4), "main", 5),
            "table_version",
            "version:node:Paper#1@main@v=4",
        ),
        (
            rows.version_row(pin(version=4, branch="dev"), "dev~7", 9),
            "table_version",
            "version:node:Paper#1@dev~7@v=4",
        ),
        (rows.tombstone_row(STONE), "table_tombstone", "tombstone:node:Paper#2@v=9"),
        (rows.commit_row(FULL_COMMIT), "graph_commit", "commit:01AAA"),
        (rows.head_row(head("main", 1, 6)), "graph_head", "head:main@6"),
        (rows.head_row(FULL_HEAD), "graph_head", "head:team/dev~3@8"),
    ],
)
def test_object_ids_are_those_of_the_format(row, object_type, object_id):
    assert (row["object_type"], row["object_id"]) == (object_type, object_id)


def test_the_plain_branch_name_is_kept_beside_the_object_id():
    assert rows.version_row(pin(branch="dev"), "dev~7", 9)["table_branch"] == "dev"
    assert rows.version_row(pin(), "main", 9)["table_branch"] is None


def test_a_commit_names_its_parents_as_base_objects():
    assert rows.commit_row(FULL_COMMIT)["base_objects"] == ["commit:01PPP", "commit:01MMM"]
    assert rows.commit_row(commit("01AAA", 1))["base_objects"] == []


def test_the_object_id_is_marked_as_the_primary_key():
    field = rows.MANIFEST_SCHEMA.field("object_id")
    assert not field.nullable
    assert field.metadata == {b"lance-schema:unenforced-primary-key": b"true"}
