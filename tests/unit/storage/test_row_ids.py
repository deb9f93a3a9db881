"""Row ids that replacing rows keep: many of them are hidden columns beside the rows, and everything works with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.core.ids import TableKey
from omnigraph.errors import StorageError
from omnigraph.pipeline import compare
from omnigraph.pipeline.compare import find_parts, listed_parts
from omnigraph.pipeline.copying import PLAN, Action, CopyItem, HeldRows, copy_rows
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.upsert import RewriteItem, ShrinkItem, rewrite_fragment, shrink_fragment
from omnigraph.pipeline.workers import Silent
from omnigraph.spark.worker_choice import make_engine
from omnigraph.storage.datasets import fragments as room
from omnigraph.storage.datasets.compaction import (
    choose_rewrites,
    fragment_facts,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
)
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.fragments import (
    KeptIds,
    delete_offsets,
    fragment_rows,
    stage_delete,
    stage_replaced_rows,
    stage_replacement,
    stage_updates,
    update_fragment,
    write_replacing,
    write_rows,
)
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.partitions import table_address
from omnigraph.storage.datasets.row_changes import (
    RowSet,
    _RowIdSet,
    differing_rows,
    follows,
    kept_ids,
    scan_row_set,
    take_by_row_id,
)
from omnigraph.storage.datasets.staged import (
    close_private,
    commit_staged,
    create_table,
    open_private,
    stage_append,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import create_fork, find_orphans, list_dataset
from omnigraph.storage.location import GraphLocation, manifest_name, parse_location
from support.tables import compact, delete, make_table
from support.tables import rows as sample_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omnigraph.storage.datasets.tables import Table

    Differing = Callable[[Table, Table], tuple[list[str], list[str]]]

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])
ROWS = 6_000
LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows(numbers: Iterable[int], n: int = 0) -> pa.Table:
    ids = [f"k{number}" for number in numbers]
    return pa.table({"id": ids, "n": [n] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def plain(location: GraphLocation) -> Table:
    """Three versions with a third of the rows each."""
    table = create_table(location, "nodes/00000000000000aa", SCHEMA)
    for begin in range(0, ROWS, ROWS // 3):
        table = commit_staged(stage_append(table, rows(range(begin, begin + ROWS // 3))))
    return table


def some(count: int) -> list[int]:
    """Rows in no order, from all over the table."""
    return np.random.default_rng(7).permutation(ROWS)[:count].tolist()


def replaced(table: Table, numbers: list[int], new: Iterable[int] = (), n: int = 1) -> Table:
    """The table after a merge of these rows."""
    return commit_staged(stage_replaced_rows(table, pa.concat_tables([rows(numbers, n), rows(new, n)])))


@pytest.fixture
def table(plain: Table) -> Table:
    """Half of the rows were replaced, in one fragment whose ids are a column."""
    return replaced(plain, some(ROWS // 2))


def lineage(table: Table) -> dict[str, tuple[int, ...]]:
    """What Lance knows about every row, read by a handle of its own."""
    found = lance.dataset(table._dataset.uri, version=table.version).to_table(columns=["id", *LINEAGE])
    columns = [found[name].to_pylist() for name in LINEAGE]
    return dict(zip(found["id"].to_pylist(), zip(*columns, strict=True), strict=True))


def manifest_bytes(table: Table) -> int:
    return os.path.getsize(f"{table._dataset.uri}/{manifest_name(table.version)}")


def hidden_files(table: Table) -> list[list[int]]:
    """The hidden fields of every fragment."""
    return [
        [field for file in item.metadata.files for field in file.fields if field < -2]
        for item in table._dataset.get_fragments()
    ]


# ---- what is written


def test_rows_that_replace_many_keep_ids_and_creation_and_the_manifest_stays_small(plain: Table):
    before, size = lineage(plain), manifest_bytes(plain)
    wanted = some(ROWS // 2)
    table = replaced(plain, wanted, new=range(ROWS, ROWS + 10))
    assert hidden_files(table)[-2:] == [[-3, -4], []], "new rows have a fragment of their own"
    after = lineage(table)
    changed = {f"k{number}" for number in wanted}
    for key, (row_id, created, updated) in before.items():
        expected = (row_id, created, table.version if key in changed else updated)
        assert after[key] == expected
    new = {after[f"k{number}"] for number in range(ROWS, ROWS + 10)}
    assert {row_id for row_id, _, _ in new} == set(range(ROWS, ROWS + 10))
    assert {created for _, created, _ in new} == {table.version}
    later = commit_staged(stage_append(table, rows([10**6])))
    # Eight bytes for every replaced row would be 24,000; a fragment alone takes some hundred.
    assert manifest_bytes(later) - size < 2_000


def test_few_ids_are_part_of_the_manifest(plain: Table):
    before = lineage(plain)
    table = replaced(plain, some(100), new=range(ROWS, ROWS + 10))
    assert hidden_files(table) == [[], [], [], []]
    after = lineage(table)
    assert all(after[key][:2] == before[key][:2] for key in before)
    assert after[f"k{ROWS}"][0] >= ROWS


def test_replacing_rows_lie_in_the_order_of_their_ids(table: Table):
    fragment = table._dataset.get_fragments()[-1]
    ids = table._dataset.scanner(columns=["_rowid"], fragments=[fragment], scan_in_order=True).to_table()
    numbers = ids["_rowid"].to_pylist()
    assert len(numbers) == ROWS // 2
    assert numbers == sorted(numbers)


def test_a_file_that_cannot_be_written_leaves_nothing(
    plain: Table, location: GraphLocation, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(room, "_write_columns", refuse)
    with pytest.raises(StorageError, match="no room"):
        replaced(plain, some(ROWS // 2))
    assert find_orphans(location, list_dataset(location, plain.path)).files == ()


# ---- messages


def test_answers_of_tasks_do_not_grow_with_the_ids(table: Table):
    """Also those about a fragment that has many ids itself."""
    wanted = np.arange(ROWS, dtype=np.uint64)
    found = take_by_row_id(table, wanted, ["_rowaddr", "_row_created_at_version", "id"])
    kept = KeptIds(wanted, np.asarray(found["_row_created_at_version"]))
    private = open_private(commit_free(table, found["id"].to_pylist()))
    item = RewriteItem(
        staged=table_address(private.table),
        target=table_address(table),
        fragment=private.new_fragments[0],
        matched=np.arange(ROWS),
        kept=kept,
        dropped=np.empty(0, np.int64),
    )
    answer = json.dumps(rewrite_fragment(item))
    assert len(answer) < 2_000
    addresses = np.asarray(found["_rowaddr"])
    spilled = int(addresses.max() >> 32)
    offsets = addresses[addresses >> 32 == spilled] & 0xFFFFFFFF
    mark = ShrinkItem(target=table_address(table), fragment=spilled, offsets=offsets[1:])
    assert len(json.dumps(shrink_fragment(mark))) < 1_000


def commit_free(table: Table, ids: list[str]) -> Any:
    from omnigraph.storage.datasets.staged import stage_fragments

    same = pa.table({"id": ids, "n": [3] * len(ids)}, schema=SCHEMA)
    return stage_fragments(table, write_rows(table, same.to_batches()))


def test_a_mark_on_a_fragment_with_many_ids_in_the_manifest_is_small(plain: Table):
    table = commit_staged(stage_append(replaced_as_before(plain, some(ROWS)), rows([10**6])))
    assert manifest_bytes(table) > 20_000
    number = table._dataset.get_fragments()[0].fragment_id
    before = lineage(table)
    left = delete_offsets(table, number, np.array([0, 2, 4]))
    assert left is not None
    assert len(left) < 1_000
    gone = commit_staged(stage_replacement(table, [], {number: left}))
    after = lineage(gone)
    assert len(before) - len(after) == 3
    assert all(before[key] == found for key, found in after.items())


def replaced_as_before(table: Table, numbers: list[int], n: int = 1) -> Table:
    """The table after a merge of an earlier release: in the order of the input, with all ids in the manifest."""
    (text,) = write_rows(table, rows(numbers, n).to_batches())
    metadata = FragmentMetadata.from_json(text)
    old = table._dataset.to_table(columns=["id", "_rowid", "_rowaddr"])
    places = {key: place for place, key in enumerate(old["id"].to_pylist())}
    wanted = np.array([places[f"k{number}"] for number in numbers])
    row_ids = np.asarray(old["_rowid"])[wanted]
    metadata.row_id_meta = RowIdSequence(pa.array(row_ids)).to_inline_metadata()
    addresses = np.asarray(old["_rowaddr"])[wanted]
    shrunk = {
        int(number): delete_offsets(table, int(number), addresses[addresses >> 32 == number] & 0xFFFFFFFF)
        for number in np.unique(addresses >> 32)
    }
    return commit_staged(stage_replacement(table, [json.dumps(metadata.to_json())], shrunk))


# ---- what comes afterwards


def check_kept(before: dict[str, tuple[int, ...]], table: Table) -> None:
    """Rows have the ids and the creation that they had."""
    after = lineage(table)
    assert after
    assert all(found[:2] == before[key][:2] for key, found in after.items() if key in before)
    assert len({row_id for row_id, _, _ in after.values()}) == len(after)


def test_rows_are_found_by_their_ids(table: Table):
    before = lineage(table)
    wanted = np.array([before[f"k{number}"][0] for number in some(50)], dtype=np.uint64)
    found = take_by_row_id(table, wanted, ["id"])
    assert found["id"].to_pylist() == [f"k{number}" for number in some(50)]
    some_created = kept_ids(table, np.sort(np.unique(np.arange(2_000, dtype=np.uint64))))
    assert len(some_created) == 2_000


def test_rows_are_replaced_again(table: Table):
    before = lineage(table)
    again = replaced(table, some(ROWS * 3 // 4), n=2)
    check_kept(before, again)
    assert hidden_files(again)[-1] == [-3, -4]
    assert again.read(["n"])["n"].to_pylist().count(2) == ROWS * 3 // 4


def test_rows_are_deleted_and_added_and_updated_in_place(table: Table):
    before = lineage(table)
    addresses = table._dataset.to_table(columns=["_rowaddr"])["_rowaddr"].to_pylist()[-3:]
    staged = stage_delete(table, addresses)
    assert staged is not None
    table = commit_staged(staged)
    check_kept(before, table)
    table = commit_staged(stage_upsert(table, rows([*some(20), 10**6], 9)))
    check_kept(before, table)
    number = next(
        item.fragment_id for item in table._dataset.get_fragments() if item.metadata.row_id_meta.json() == '"Column"'
    )
    fragment = table._dataset.get_fragment(number)
    ids = table._dataset.scanner(columns=["_rowid"], fragments=[fragment]).to_table()
    values = ids.slice(0, 5).append_column("n", pa.array([77] * 5, pa.int64()))
    table = commit_staged(stage_updates(table, [update_fragment(table, number, values)]))
    check_kept(before, table)
    assert table.read(["n"])["n"].to_pylist().count(77) == 5
    assert [updated for _, _, updated in lineage(table).values()].count(table.version) == 5


def test_an_index_finds_them(table: Table):
    before = lineage(table)
    spec = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)
    staged = stage_indices(table, [spec])
    assert staged is not None
    table = commit_staged(staged)
    key = f"k{some(1)[0]}"
    (found,) = table.read(["id", "_rowid"], OneOf("id", [key])).to_pylist()
    assert found["_rowid"] == before[key][0]


def test_a_restored_version_has_them(table: Table):
    before = lineage(table)
    later = commit_staged(stage_append(table, rows([10**6])))
    again = commit_staged(stage_restore(later, table.version))
    assert lineage(again) == before


def test_a_fork_and_a_fork_of_it_read_and_replace_them(table: Table, location: GraphLocation):
    before = lineage(table)
    fork = create_fork(location, table, "dev")
    assert lineage(fork) == before
    fork = replaced(fork, some(ROWS * 2 // 3), n=2)
    check_kept(before, fork)
    inner = replaced(create_fork(location, fork, "inner"), some(ROWS // 2), n=3)
    check_kept(before, inner)
    assert lineage(table) == before
    assert find_orphans(location, list_dataset(location, table.path)).files == ()


def test_rows_that_changed_are_found_by_their_history(plain: Table, table: Table):
    found = differing_rows(plain, table, 2 * ROWS)
    assert found is not None
    old, new = found
    assert old.row_count == new.row_count == ROWS // 2


def test_a_private_version_reads_them(table: Table, location: GraphLocation):
    from omnigraph.storage.objects import ControlObjects

    private = open_private(commit_free(table, ["x"]))
    assert private.table.read(["_rowid"]).num_rows == ROWS + 1
    close_private(private, ControlObjects(location, durable=False))


def test_rows_are_copied_with_the_ids_of_those_they_replace(table: Table):
    wanted = np.sort(np.array(some(3_000), dtype=np.uint64))
    rows = pa.array(wanted.astype(np.int64))
    ids = pa.nulls(len(rows), pa.utf8())
    batch = pa.RecordBatch.from_arrays([ids, rows, rows], schema=PLAN)
    item = CopyItem(
        key=TableKey("node:N"),
        number=0,
        source=table_address(table),
        target=table_address(table),
        parts=(HeldRows(action=Action.UPDATE, rows=batch),),
        rules=(),
    )
    (text,) = copy_rows(item)["fragments"]
    assert json.loads(text)["row_id_meta"] == "Column"


# ---- compaction


def compacted(table: Table) -> Table:
    groups = [[item.fragment_id for item in table._dataset.get_fragments()]]
    results = [run_compaction_task(task) for task in plan_compaction(table, groups)]
    assert all(len(text) < 40_000 for text in results), "8 KB of a sequence at most"
    staged = stage_compaction(table, results)
    assert staged is not None
    return commit_staged(staged)


@pytest.mark.parametrize("inline_bytes", [8_192, 0])
def test_a_compaction_makes_the_manifest_of_a_worn_table_small_again(
    plain: Table, monkeypatch: pytest.MonkeyPatch, inline_bytes: int
):
    """Also where an earlier release wrote it, with all ids in it."""
    worn = plain
    for n in range(3):
        worn = replaced_as_before(worn, some(ROWS), n)
    worn = replaced(worn, some(ROWS // 2), n=9)
    assert manifest_bytes(worn) > 20_000
    before = lineage(worn)
    monkeypatch.setattr(room, "_INLINE_BYTES", inline_bytes)
    table = compacted(worn)
    # The versions of rows in no order take most room here; ids of so few rows fit into two bytes each.
    assert hidden_files(table) == [[-4] if inline_bytes else [-3, -4, -5]]
    assert lineage(table) == before
    later = commit_staged(stage_append(table, rows([10**6])))
    assert manifest_bytes(later) < 2_000 + inline_bytes
    assert {key: found for key, found in lineage(later).items() if key in before} == before


def test_a_large_fragment_with_many_ids_in_the_manifest_is_worth_a_compaction(
    plain: Table, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(room, "_INLINE_BYTES", 512)
    monkeypatch.setattr(room, "_LONG_TEXT", 4 * 512 * 4)
    worn = replaced_as_before(plain, some(ROWS))
    # As large as compaction wants fragments, so that nothing else makes it one to be written anew.
    assert choose_rewrites(fragment_facts(worn), target_rows=ROWS) == [(3,)]
    assert choose_rewrites(fragment_facts(compacted(worn)), target_rows=ROWS) == []


def test_a_compaction_of_appended_rows_needs_no_column(plain: Table):
    assert hidden_files(compacted(plain)) == [[]]


# ---- writing


def test_replacing_and_new_rows_share_a_fragment_only_when_few_are_replaced(plain: Table):
    for count, expected in ((10, [15]), (2_000, [2_000, 5])):
        ids = np.arange(count, dtype=np.uint64)
        found = take_by_row_id(plain, ids, ["_rowaddr", "_row_created_at_version"])
        kept = KeptIds(ids, np.asarray(found["_row_created_at_version"]))
        texts = write_replacing(plain, rows(range(count)), rows(range(ROWS, ROWS + 5)), kept)
        assert [fragment_rows(text) for text in texts] == expected


# ---- Which rows two states do not share: never too few, and few where little changed


#: More rows than any table here has.
MANY = 1_000_000


@pytest.fixture
def base(location: GraphLocation) -> Table:
    return make_table(location, specs=())


@pytest.fixture(params=["named", "by tasks"])
def differing(request: pytest.FixtureRequest, location: GraphLocation) -> Differing:
    """The ids of the rows that may differ, of the old and of the new state."""

    def by_name(old: Table, new: Table) -> tuple[list[str], list[str]]:
        named = differing_rows(old, new, MANY)
        assert named is not None
        return ids(named[0]), ids(named[1])

    def by_tasks(old: Table, new: Table) -> tuple[list[str], list[str]]:
        engine = make_engine("local", None, Silent(), 0)
        with closing(Scratch(ScratchPlace(root=location, is_writer=True))) as scratch:
            both = find_parts(old, new, engine, scratch)
            gone, come = (sorted(text for part in parts for text in ids(part.resolved())) for parts in both)
        assert not (location.path / "__staging").exists()
        return gone, come

    return by_name if request.param == "named" else by_tasks


def ids(found: RowSet) -> list[str]:
    read = [text for batch in scan_row_set(found, ["id"]) for text in batch.column(0).to_pylist()]
    assert len(read) == found.row_count
    return sorted(map(str, read))


def update(base: Table, first: int, count: int) -> Table:
    return commit_staged(stage_upsert(base, sample_rows(first, count)))


def names(first: int, count: int) -> list[str]:
    return sorted(map(str, sample_rows(first, count)["id"].to_pylist()))


def every(base: Table) -> list[str]:
    return sorted(map(str, base._dataset.to_table(columns=["id"])["id"].to_pylist()))


#: What was done, and which rows of the old and of the new state differ then; None stands for all of them.
CHANGES: dict[str, tuple[Callable[[Table], Table], list[str] | None, list[str]]] = {
    "nothing": (lambda base: base, [], []),
    "an append": (lambda base: commit_staged(stage_append(base, sample_rows(5000, 3))), [], names(5000, 3)),
    "an update": (lambda base: update(base, 14, 4), names(14, 4), names(14, 4)),
    "a deletion": (lambda base: delete(base, *names(20, 2)), names(20, 2), []),
    "an update and a deletion": (
        lambda base: delete(update(base, 14, 4), *names(20, 2)),
        sorted([*names(14, 4), *names(20, 2)]),
        names(14, 4),
    ),
    # It writes every row again; row lineage tells which of them changed.
    "a compaction after them": (
        lambda base: compact(delete(update(base, 14, 4), *names(20, 2))),
        sorted([*names(14, 4), *names(20, 2)]),
        names(14, 4),
    ),
    "an overwrite": (lambda base: commit_staged(stage_overwrite(base, sample_rows(0, 5))), None, names(0, 5)),
    "what was undone": (lambda base: commit_staged(stage_restore(update(base, 14, 4), base.version)), [], []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_the_rows_that_it_touched_also_the_other_way_round(
    base: Table, differing: Differing, name: str
) -> None:
    change, old, new = CHANGES[name]
    later = change(base)
    old = every(base) if old is None else old
    assert differing(base, later) == (old, new)
    assert differing(later, base) == (new, old)
    assert "compaction" not in name or later.fragment_count() < base.fragment_count()


def test_states_on_two_forks_share_what_they_have_in_common(
    location: GraphLocation, base: Table, differing: Differing
) -> None:
    one = update(create_fork(location, base, "one"), 14, 2)
    other = delete(create_fork(location, base, "other"), *names(30, 1))
    old, new = differing(one, other)
    assert old == sorted([*names(14, 2), *names(30, 1)])
    assert new == names(14, 2)


def test_too_many_rows_are_not_named(base: Table) -> None:
    hidden = delete(base, *names(20, 5))
    assert differing_rows(base, hidden, 4) is None
    named = differing_rows(base, hidden, 5)
    assert named is not None
    assert named[0].row_count == 5
    compacted = compact(update(hidden, 14, 4))
    rows_of_both = base.row_count + compacted.row_count
    # Few differ, and all rows have to be looked at to find them.
    assert differing_rows(hidden, compacted, rows_of_both // 8 - 1) is None
    assert differing_rows(hidden, compacted, rows_of_both) is not None


def test_row_ids_that_leave_many_numbers_out_are_told_apart() -> None:
    known = _RowIdSet(most=100)
    known.add(np.array([3, 99, 2**60], dtype=np.uint64))
    known.add(np.array([100, 2**50], dtype=np.uint64))
    asked = np.array([3, 4, 99, 100, 101, 2**50, 2**60, 2**61], dtype=np.uint64)
    assert known.has(asked).tolist() == [True, False, True, True, False, True, True, False]


def test_rows_are_listed_in_parts_without_loss(
    base: Table, location: GraphLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "TASK_ROWS", 2)
    named = differing_rows(base, delete(base, *names(20, 5)), MANY)
    assert named is not None
    with closing(Scratch(ScratchPlace(root=location, is_writer=True))) as scratch:
        parts = listed_parts(named[0], scratch.folder(None))
        assert [part.row_count for part in parts] == [2, 2, 1]
        assert sorted(text for part in parts for text in ids(part.resolved())) == names(20, 5)


def test_a_state_follows_those_below_it_on_its_branch_and_below_its_fork(location: GraphLocation, base: Table) -> None:
    later = update(base, 10, 1)
    fork = update(create_fork(location, later, "one"), 10, 1)
    nested = update(create_fork(location, fork, "two"), 10, 1)
    after = update(later, 11, 1)
    assert follows(nested, base)
    assert follows(nested, fork)
    assert follows(later, base)
    assert not follows(base, later)
    assert not follows(nested, after)
    assert not follows(fork, nested)
