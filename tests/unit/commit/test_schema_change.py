"""What a schema change does beside moving tables: decided, prepared, finished and withdrawn, as often as it takes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.commit.environment import GraphEnvironment, NewCommit, open_environment
from omnigraph.commit.rows import Head, TablePin, Tombstone
from omnigraph.commit.schema_change import SchemaChange, find_prepared, finish, prepare, schema_changes, withdraw
from omnigraph.commit.sidecar import SidecarSchema
from omnigraph.core.ids import TableKey
from omnigraph.errors import StorageError
from omnigraph.storage.datasets.staged import commit_staged, create_table, plan_table, stage_append
from omnigraph.storage.lease import Tenure
from omnigraph.storage.location import SCHEMA_CONTRACT, SCHEMA_FILES, SCHEMA_SOURCE, parse_location

PAPER, NOTE, TAG = TableKey("node:Paper"), TableKey("node:Note"), TableKey("node:Tag")
COLUMNS = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
FILES = {name: f'{{"new": "{name}"}}'.encode() for name in SCHEMA_FILES}


def pin(key: TableKey, incarnation: int, version: int = 4, rows: int = 3) -> TablePin:
    return TablePin(
        table_key=key,
        incarnation=incarnation,
        location=f"nodes/{incarnation:016x}",
        branch=None,
        version=version,
        row_count=rows,
    )


def head(*pins: TablePin) -> Head:
    return Head(
        branch="main",
        incarnation=1,
        graph_version=9,
        commit_id="01M7GZR22DMJRCCDNMW6R919VM",
        schema_hash="sha256:old",
        pins={item.table_key: item for item in pins},
    )


def change(**changed) -> SchemaChange:
    values = {"schema_hash": "sha256:new", "files": FILES, "renamed": {}}
    return SchemaChange(**(values | changed))


def stone(item: TablePin) -> Tombstone:
    return Tombstone(table_key=item.table_key, incarnation=item.incarnation, version=item.version, graph_version=0)


# ---- what becomes visible


def test_moved_and_new_tables_become_visible_under_the_new_schema():
    before, after, new = pin(PAPER, 1), pin(PAPER, 1, version=5), pin(TAG, 7, version=1, rows=0)
    at = head(before, pin(NOTE, 2))
    found = schema_changes(at, change().describe(at), [after], [new])
    assert found.pins == (after, new)
    assert found.new_tables == (new,)
    assert found.tombstones == ()
    assert found.schema_hash == "sha256:new"


@pytest.mark.parametrize("version", [4, 6], ids=["as it is", "moved"])
def test_a_renamed_table_goes_on_under_its_new_name_with_its_identity(version: int):
    before = pin(PAPER, 1)
    at = head(before)
    moved = [] if version == 4 else [pin(PAPER, 1, version=version)]
    found = schema_changes(at, change(renamed={PAPER: NOTE}).describe(at), moved, [])
    assert found.pins == found.new_tables == (pin(NOTE, 1, version=version),)
    assert found.tombstones == (stone(before),)


def test_two_tables_may_swap_their_names():
    one, two = pin(PAPER, 1), pin(NOTE, 2)
    at = head(one, two)
    found = schema_changes(at, change(renamed={PAPER: NOTE, NOTE: PAPER}).describe(at), [], [])
    assert {(item.table_key, item.incarnation) for item in found.pins} == {(NOTE, 1), (PAPER, 2)}
    assert found.tombstones == (stone(one), stone(two))


def test_a_dropped_table_is_hidden_and_its_name_may_be_taken():
    one, two = pin(PAPER, 1), pin(NOTE, 2)
    at = head(one, two)
    described = change(renamed={PAPER: NOTE}, dropped=(NOTE,)).describe(at)
    found = schema_changes(at, described, [], [])
    assert found.pins == (pin(NOTE, 1),)
    assert set(found.tombstones) == {stone(one), stone(two)}


def test_only_what_is_destroyed_is_named_by_its_path():
    at = head(pin(PAPER, 1), pin(NOTE, 2), pin(TAG, 3))
    soft = change(dropped=(NOTE,)).describe(at)
    assert (soft.purged_paths, soft.removed_paths) == ((), ())
    hard = change(dropped=(NOTE,), purged=(PAPER, NOTE)).describe(at)
    assert (hard.purged_paths, hard.removed_paths) == (("nodes/0000000000000001",), ("nodes/0000000000000002",))


def test_a_commit_carries_the_source_and_the_contract():
    files = {**FILES, SCHEMA_SOURCE: "node Ü {}".encode(), SCHEMA_CONTRACT: b'{"b": 1, "a": 2}'}
    commit = NewCommit(commit_id="c", kind="schema_apply", operation_id="o", actor=None, schema_files=files)
    assert commit.schema_texts == ("node Ü {}", '{"a": 2, "b": 1}')


# ---- what is prepared, and taken away again


@pytest.fixture
def environment(tmp_path: Path) -> GraphEnvironment:
    """A root with the schema files of before."""
    opened = open_environment(parse_location(tmp_path / "graph"), durable=False)
    for name in SCHEMA_FILES:
        opened.objects.write(name, b"old")
    return replace(opened, held_tenure=Tenure())


@pytest.fixture
def prepared(environment: GraphEnvironment) -> SidecarSchema:
    """A change with a new table that was prepared completely."""
    new = change(new_tables=((TAG, 7, plan_table("nodes/00000000000007a6", COLUMNS)),))
    pins = prepare(environment, new)
    assert [(item.table_key, item.version, item.row_count) for item in pins] == [(TAG, 1, 0)]
    return new.describe(head())


def files_of(environment: GraphEnvironment) -> list[bytes]:
    found = [environment.objects.read(name) for name in SCHEMA_FILES]
    return [stored.data for stored in found if stored is not None]


def staged_of(environment: GraphEnvironment) -> list[str]:
    return [name for name in environment.objects.names("") if name.endswith(".staging")]


def test_what_was_prepared_is_found(environment: GraphEnvironment, prepared: SidecarSchema):
    found = find_prepared(environment, prepared)
    assert found is not None
    files, pins = found
    assert files == FILES
    assert [(item.table_key, item.incarnation, item.location) for item in pins] == [(TAG, 7, "nodes/00000000000007a6")]
    assert files_of(environment) == [b"old"] * 3


@pytest.mark.parametrize("name", SCHEMA_FILES)
def test_a_change_whose_file_is_missing_or_another_one_is_not_prepared(
    environment: GraphEnvironment, prepared: SidecarSchema, name: str
):
    environment.objects.write(f"{name}.staging", b"something else")
    assert find_prepared(environment, prepared) is None
    environment.objects.delete(f"{name}.staging")
    assert find_prepared(environment, prepared) is None


def test_a_change_whose_table_is_missing_or_another_one_is_not_prepared(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    root = environment.location.path / "nodes/00000000000007a6"
    shutil.rmtree(root)
    environment.tables.forget("nodes/00000000000007a6")
    assert find_prepared(environment, prepared) is None
    create_table(environment.location, "nodes/00000000000007a6", COLUMNS)
    assert find_prepared(environment, prepared) is None


def test_a_change_whose_table_is_damaged_is_not_taken_for_one_that_was_not_prepared(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    for file in (environment.location.path / "nodes/00000000000007a6/_versions").iterdir():
        file.write_bytes(b"damage")
    with pytest.raises(StorageError):
        find_prepared(environment, prepared)


@pytest.mark.parametrize("times", [1, 2])
def test_finishing_gives_the_files_their_names_as_often_as_it_takes(
    environment: GraphEnvironment, prepared: SidecarSchema, times: int
):
    for _ in range(times):
        finish(environment, prepared, {})
    assert files_of(environment) == [FILES[name] for name in SCHEMA_FILES]
    assert staged_of(environment) == []
    assert environment.tables.open("nodes/00000000000007a6").count_rows() == 0


def test_finishing_neither_takes_nor_removes_a_staged_file_of_another_change(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    environment.objects.write(f"{SCHEMA_SOURCE}.staging", b"something else")
    finish(environment, prepared, {})
    assert files_of(environment) == [FILES[name] for name in SCHEMA_FILES]
    assert staged_of(environment) == [f"{SCHEMA_SOURCE}.staging"]


@pytest.mark.parametrize("times", [1, 2])
def test_withdrawing_leaves_nothing_of_a_change_as_often_as_it_takes(
    environment: GraphEnvironment, prepared: SidecarSchema, times: int
):
    for _ in range(times):
        withdraw(environment, prepared)
    assert files_of(environment) == [b"old"] * 3
    assert staged_of(environment) == []
    assert not (environment.location.path / "nodes/00000000000007a6").exists()


def test_withdrawing_takes_away_what_an_interrupted_withdrawal_left_of_a_table(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    shutil.rmtree(environment.location.path / "nodes/00000000000007a6/_versions")
    withdraw(environment, prepared)
    assert not (environment.location.path / "nodes/00000000000007a6").exists()


def test_withdrawing_leaves_a_table_that_somebody_else_made_at_the_same_place(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    shutil.rmtree(environment.location.path / "nodes/00000000000007a6")
    other = create_table(environment.location, "nodes/00000000000007a6", COLUMNS)
    commit_staged(stage_append(other, pa.table({"id": ["kept"]}, schema=COLUMNS)))
    withdraw(environment, prepared)
    environment.tables.forget("nodes/00000000000007a6")
    assert environment.tables.open("nodes/00000000000007a6").count_rows() == 1


def test_a_change_that_is_not_the_newest_any_more_leaves_the_files_alone(
    environment: GraphEnvironment, prepared: SidecarSchema
):
    finish(environment, prepared, {}, is_current=False)
    assert files_of(environment) == [b"old"] * 3
    assert staged_of(environment) == []


# ---- what is destroyed


@pytest.fixture
def doomed(environment: GraphEnvironment) -> TablePin:
    """A table with one row, at its second version."""
    table = create_table(environment.location, "nodes/0000000000000002", COLUMNS)
    commit_staged(stage_append(table, pa.table({"id": ["secret"]}, schema=COLUMNS)))
    return pin(NOTE, 2, version=2, rows=1)


@pytest.mark.parametrize("is_half_gone", [False, True])
def test_a_table_that_is_destroyed_leaves_a_mark_and_nothing_else(
    environment: GraphEnvironment, doomed: TablePin, is_half_gone: bool
):
    environment.tables.open(doomed.location, version=doomed.version)
    described = change(dropped=(NOTE,), purged=(NOTE,)).describe(head(doomed))
    root = environment.location.path / doomed.location
    if is_half_gone:
        shutil.rmtree(root / "_versions")
    for _ in range(2):
        finish(environment, described, {})
        assert [item.name for item in root.rglob("*")] == ["_reclaimed"]
    with pytest.raises(StorageError, match="does not exist"):
        environment.tables.open(doomed.location, version=doomed.version)


def test_the_past_of_a_table_is_destroyed_and_its_present_stays(environment: GraphEnvironment, doomed: TablePin):
    described = change(purged=(NOTE,)).describe(head(doomed))
    environment.tables.open(doomed.location, version=1)
    for _ in range(2):
        finish(environment, described, {doomed.location: doomed.version})
        assert environment.tables.open(doomed.location).count_rows() == 1
        with pytest.raises(StorageError, match="does not exist"):
            environment.tables.open(doomed.location, version=1)
