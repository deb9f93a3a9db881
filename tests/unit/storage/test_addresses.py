"""Addresses inside manifests: what counts of them, and how they are changed without touching anything else."""

from __future__ import annotations

import ast
import errno
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph
from omnigraph.errors import OutsideRootError, StorageError, StorageFailure
from omnigraph.pipeline.sources import inputs
from omnigraph.storage._failures import translated
from omnigraph.storage.answers import (
    abandoned_answers,
    attempt_name,
    new_answer_folder,
    read_answer,
    remove_answers,
    write_answer,
)
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import IndexSpec, PhysicalIndex, stage_indices
from omnigraph.storage.datasets.opening import dataset_of, open_dataset, rebased, with_bases, with_bases_in_file
from omnigraph.storage.datasets.staged import (
    commit_staged,
    create_table,
    stage_append,
    stage_overwrite,
    stage_restore,
    stage_upsert,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.datasets.versions import create_fork
from omnigraph.storage.location import GraphLocation, parse_location
from omnigraph.storage.store_variables import store_endpoint, store_region
from support.subtests import each_case, named_cases
from support.tables import answer_folder

D = "nodes/da89d00e1b71df59"


@each_case(
    ("uri", "dataset"),
    [
        (f"/g/{D}", f"/g/{D}"),
        (f"/g/{D}/tree/draft", f"/g/{D}"),
        (f"/tree/g/{D}", f"/tree/g/{D}"),
        (f"/tree/g/{D}/tree/a/b", f"/tree/g/{D}"),
        (f"/g/{D}/tree/{D}", f"/g/{D}"),
        (f"s3://b/g/{D}-7/tree/a", f"s3://b/g/{D}-7"),
    ],
)
def test_a_fork_belongs_to_its_dataset(uri: str, dataset: str) -> None:
    assert dataset_of(uri) == dataset


@each_case("old", ["/old", "s3://b/old", "file:///old", "/with space/ü", ""])
@each_case("end", ["", "/tree/draft", "/tree/a/b.2", f"/tree/{D}"])
def test_a_base_lies_in_the_dataset_whatever_root_was_recorded(old: str, end: str) -> None:
    for root in ("/new", "s3://bucket/new"):
        assert rebased(f"{old}/{D}{end}", f"{root}/{D}/tree/x") == f"{root}/{D}{end}"


@each_case(
    "recorded",
    [
        *("", "/", "/etc", "/old/nodes/0000000000000000", f"/old/{D}-2", f"/old/{D}/data", f"/old/{D}/tree/"),
        *(f"/old/{D}/tree/../../..", f"/old/{D}/tree/a/../b", f"/old/{D}/../../etc", f"/old/{D}/", f"/old/x{D}"),
    ],
)
def test_another_address_is_refused_and_named(recorded: str) -> None:
    with pytest.raises(OutsideRootError) as failure:
        rebased(recorded, f"/new/{D}/tree/x")
    assert recorded in failure.value.message


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A fork of a dataset, by Lance alone."""
    root = tmp_path / "g" / D
    dataset = lance.write_dataset(pa.table({"id": ["a", "b"]}), str(root))
    dataset.create_branch("draft", 1)
    lance.write_dataset(pa.table({"id": ["c"]}), str(root / "tree" / "draft"), mode="append")
    return root / "tree" / "draft"


def test_a_manifest_is_changed_as_lance_reads_it(fork: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "g", moved)
    line = moved / D / "tree" / "draft"
    # In memory, and nothing is written.
    assert open_dataset(str(line)).to_table()["id"].to_pylist() == ["a", "b", "c"]
    for path in (line / "_versions").glob("*.manifest"):
        data = path.read_bytes()
        assert with_bases_in_file(data, lambda base: base) == data, "the layout is as it was"
        path.write_bytes(with_bases_in_file(data, lambda base: rebased(base, str(line))))
    for version in (1, 2):
        dataset = lance.dataset(str(line), version=version)
        assert [base.path for base in dataset.base_paths().values()] == [str(moved / D)]
        assert dataset.to_table()["id"].to_pylist()[:2] == ["a", "b"]


def test_a_commit_on_a_moved_fork_holds_the_new_address(fork: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(tmp_path / "g", tmp_path / "copy")
    shutil.rmtree(tmp_path / "g")
    line = str(moved / D / "tree" / "draft")
    open_dataset(line).delete("id = 'a'")
    assert [base.path for base in lance.dataset(line).base_paths().values()] == [str(moved / D)]
    assert lance.dataset(line).to_table()["id"].to_pylist() == ["b", "c"]


@given(st.data())
def test_damaged_bytes_are_refused_or_stay_as_they_are(data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200))
    for change in (with_bases, with_bases_in_file):
        try:
            assert change(raw, lambda base: base) == raw
        except StorageError:
            continue


def test_every_cut_of_a_manifest_is_refused(fork: Path) -> None:
    whole = next((fork / "_versions").glob("*.manifest")).read_bytes()
    for end in range(len(whole)):
        with pytest.raises(StorageError):
            with_bases_in_file(whole[:end], lambda base: base)


ROWS = pa.RecordBatch.from_pydict({"id": ["a", "b", "c"], "row": [1, None, 3]})


def test_an_answer_is_read_as_it_was_written(tmp_path):
    with answer_folder(parse_location(tmp_path)) as folder:
        name = attempt_name("delta", 3)
        answer = write_answer(folder, name, ROWS.schema, [ROWS, ROWS.slice(1)])
        assert (answer.name, answer.rows) == (name, 5)
        assert answer.size_bytes == (tmp_path / folder.file(name)).stat().st_size
        other_process = pickle.loads(pickle.dumps(folder))
        batches = list(read_answer(other_process, name))
    assert [batch.num_rows for batch in batches] == [3, 2]
    assert batches[0].equals(ROWS)
    assert list(tmp_path.iterdir()) == []


def test_an_answer_without_rows_has_its_columns(tmp_path):
    with answer_folder(parse_location(tmp_path)) as folder:
        answer = write_answer(folder, "none", ROWS.schema, [])
        assert answer.rows == 0
        assert list(read_answer(folder, "none")) == []


def test_a_failed_answer_leaves_no_file(tmp_path):
    def batches():
        yield ROWS
        raise ArithmeticError("the task fails")

    folder = new_answer_folder(parse_location(tmp_path))
    with pytest.raises(ArithmeticError):
        write_answer(folder, "part", ROWS.schema, batches())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_a_dead_operation_left_is_found_and_removed(tmp_path):
    root = parse_location(tmp_path)
    folder = new_answer_folder(root)
    write_answer(folder, "part-1", ROWS.schema, [ROWS])
    (tmp_path / "__staging" / "notes").mkdir()
    (tmp_path / "__staging" / "notes" / "mine.txt").write_text("not ours")
    found = abandoned_answers(root, None)
    assert [file.name for file in found] == [folder.file("part-1")]
    assert abandoned_answers(root, found[0].modified_s) == []
    remove_answers(folder)
    assert abandoned_answers(root, None) == []
    assert (tmp_path / "__staging" / "notes" / "mine.txt").exists()


def test_a_linked_folder_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "part.arrow").write_bytes(b"precious")
    root = tmp_path / "graph"
    folder = new_answer_folder(parse_location(root))
    (root / "__staging").mkdir(parents=True)
    (root / folder.name).symlink_to(victim)
    assert abandoned_answers(parse_location(root), None) == []
    with pytest.raises(OutsideRootError):
        write_answer(folder, "part", ROWS.schema, [ROWS])
    with pytest.raises(OutsideRootError):
        remove_answers(folder)
    assert (victim / "part.arrow").read_bytes() == b"precious"


# ---- What foreign failures become: their kind, and what people read


FULL = {
    "Python": OSError(errno.ENOSPC, "No space left on device"),
    "Lance": OSError("LanceError(IO): No space left on device (os error 28), /x/rust/io.rs:7:5"),
    "obstore": RuntimeError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    "a quota": RuntimeError("Disk quota exceeded (os error 122)"),
}


@named_cases("raised", FULL)
def test_a_full_disk_is_named_and_is_no_damage(raised: Exception) -> None:
    with pytest.raises(StorageError) as caught, translated("writing rows"):
        raise raised
    assert caught.value.failure is StorageFailure.CONFIGURATION
    assert caught.value.message.startswith("writing rows failed: ")
    assert caught.value.message.endswith("free some space on the disk")
    assert "damaged" not in caught.value.message
    assert ".rs" not in caught.value.message


# ---- The variables of an object store


def test_the_endpoint_and_the_region_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_REGION")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert (store_endpoint(), store_region()) == (None, None)
    for name in names[:3]:
        monkeypatch.setenv(name, f"http://{name.lower()}")
        assert store_endpoint() == f"http://{name.lower()}"
    for name in names[3:]:
        monkeypatch.setenv(name, name.lower())
        assert store_region() == name.lower()


def test_inputs_of_loads_are_asked_where_graphs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT", "http://store.internal:9000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    asked: dict[str, object] = {}
    monkeypatch.setattr(inputs.fs, "S3FileSystem", lambda **options: asked.update(options))
    assert inputs._system("s3://bucket/rows.csv") == (None, "bucket/rows.csv")
    assert asked == {"endpoint_override": "store.internal:9000", "scheme": "http", "region": "eu-north-1"}


# ---- The sources keep to the one door: who may import Lance, and which calls may move a dataset


ROOT = Path(omnigraph.__file__).parent


class Call(NamedTuple):
    """A call in the sources: the module, what is called, and with what."""

    module: str
    name: str
    node: ast.Call


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    """The modules of storage, and all that name Lance or obstore."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    wanted = re.compile("lance|obstore", re.IGNORECASE)
    return {name: ast.parse(text) for name, text in texts.items() if name.startswith("storage/") or wanted.search(text)}


@pytest.fixture(scope="module")
def calls(sources: dict[str, ast.Module]) -> list[Call]:
    return [
        Call(module, ast.unparse(node.func), node)
        for module, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_only_storage_imports_lance_and_obstore(sources: dict[str, ast.Module]) -> None:
    users = {name for name, tree in sources.items() if imported(tree) & {"lance", "obstore"}}
    assert users, "the walk sees imports"
    assert {name for name in users if not name.startswith("storage/")} == set()


def test_datasets_are_committed_in_two_modules_only(calls: list[Call]) -> None:
    users = {call.module for call in calls if call.name.endswith("LanceDataset.commit")}
    assert users == {"storage/datasets/staged.py", "storage/manifest_table.py"}


def test_lance_commits_no_compaction_by_itself(calls: list[Call]) -> None:
    of_compactions = ("Compaction.commit", "Compaction.execute")
    assert {call.module for call in calls if call.name.endswith(of_compactions)} == set()


def test_every_commit_is_made_without_retries_or_aside(calls: list[Call]) -> None:
    asides = 0
    for call in calls:
        if call.name.endswith("LanceDataset.commit"):
            given = {item.arg: ast.unparse(item.value) for item in call.node.keywords}
            is_aside = given.get("detached") == "True"
            asides += is_aside
            assert is_aside or given.get("max_retries") == "0", call.module
    assert asides == 1, "private versions"


def test_rows_are_written_directly_to_memory_only(calls: list[Call]) -> None:
    written = [call for call in calls if call.name.split(".")[-1] == "write_dataset"]
    assert len(written) == 1
    for call in written:
        target = ast.unparse(call.node.args[1])
        assert target.startswith(("f'memory://", "'memory://")), f"{call.module}: {target}"


def test_no_dataset_is_changed_in_place(calls: list[Call]) -> None:
    """`.delete`, `.update`, `.execute` and the like of a dataset commit on their own."""
    forbidden = {"execute", "add_columns", "drop_columns", "alter_columns", "insert", "restore"}
    forbidden |= {"create_index", "create_scalar_index", "update_config", "cleanup_old_versions"}
    allowed = {
        ("storage/datasets/reads.py", "create_scalar_index"),  # of a private dataset without files
        # Removes versions that nobody may read any more, and makes none.
        ("storage/datasets/versions.py", "cleanup_old_versions"),
        # Of a task of a plan, which writes files and moves nothing.
        ("storage/datasets/compaction.py", "execute"),
        # Rows carry the history of the catalog, not its versions.
        ("storage/manifest_table.py", "cleanup_old_versions"),
    }
    found = []
    for module, name, _ in calls:
        owner, _, method = name.rpartition(".")
        if not module.startswith("storage/") or (module, method) in allowed:
            continue
        on_dataset = owner.split(".")[-1] in {"dataset", "_dataset", "root", "_handle", "table"}
        if method in forbidden or (method in {"delete", "update"} and on_dataset):
            found.append(f"{module}: {name}")
    assert found == []


# ---- The fingerprint of a table: equal exactly when the same rows are read


SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("size", pa.int32())])
PATH = "nodes/thing"


def rows(ids: str, size: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "size": [size] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    """Two fragments with three rows."""
    empty = create_table(location, PATH, SCHEMA)
    return append(append(empty, "ab"), "c")


def append(table: Table, ids: str) -> Table:
    return commit_staged(stage_append(table, rows(ids)))


def delete(table: Table, *ids: str) -> Table:
    addresses = table.read(["_rowaddr"], OneOf("id", ids))["_rowaddr"].to_pylist()
    staged = stage_delete(table, addresses)
    assert staged is not None
    return commit_staged(staged)


def index(table: Table) -> Table:
    spec = IndexSpec(name="id_btree", column="id", kind=PhysicalIndex.BTREE)
    staged = stage_indices(table, [spec])
    assert staged is not None
    return commit_staged(staged)


def ids(table: Table) -> str:
    return "".join(sorted(table.read(["id"])["id"].to_pylist()))


def test_another_handle_of_the_same_version_has_the_same(location: GraphLocation, table: Table) -> None:
    again = TableStore(location).open(PATH, version=table.version)
    assert again is not table
    assert again.fingerprint == table.fingerprint
    assert TableStore(location).open(PATH).fingerprint == table.fingerprint


def test_an_index_leaves_it_alone(table: Table) -> None:
    indexed = index(table)
    assert indexed.version == table.version + 1
    assert indexed.fingerprint == table.fingerprint


@pytest.mark.parametrize(
    "write",
    [
        lambda table: append(table, "d"),
        lambda table: delete(table, "a"),
        lambda table: delete(table, "c"),
        lambda table: commit_staged(stage_upsert(table, rows("a", size=7))),
        lambda table: commit_staged(stage_upsert(table, rows("z"))),
        lambda table: commit_staged(stage_overwrite(table, rows("abc"))),
        lambda table: commit_staged(stage_overwrite(table, rows(""))),
    ],
    ids=["append", "delete", "delete a fragment", "update", "insert", "overwrite", "truncate"],
)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_write_changes_it(table: Table, write: Callable[[Table], Table], is_indexed) -> None:
    before = index(table) if is_indexed else table
    after = write(before)
    assert after.fingerprint != before.fingerprint
    assert before.fingerprint == table.fingerprint, "the state before is as it was"


def test_states_of_a_history_share_one_only_when_they_share_their_rows(table: Table) -> None:
    without_a = delete(table, "a")
    only_c = delete(without_a, "b")
    first_a = append(only_c, "a")
    only_c_again = delete(first_a, "a")
    second_a = append(only_c_again, "a")
    states = [table, without_a, only_c, first_a, second_a]
    assert len({state.fingerprint for state in states}) == len(states)
    assert only_c_again.fingerprint == only_c.fingerprint, "a fragment that came and went"


def test_a_restored_state_has_the_one_it_had(table: Table) -> None:
    deleted = delete(table, "a")
    restored = commit_staged(stage_restore(deleted, table.version))
    assert ids(restored) == "abc"
    assert restored.fingerprint == table.fingerprint != deleted.fingerprint


def test_equal_rows_of_two_tables_are_told_apart(location: GraphLocation, table: Table) -> None:
    other = append(append(create_table(location, "nodes/other", SCHEMA), "ab"), "c")
    assert other.read().equals(table.read())
    assert other.fingerprint != table.fingerprint


def test_a_table_made_again_at_the_same_place_is_another(location: GraphLocation, table: Table) -> None:
    before = table.fingerprint
    again = append(append(create_table(location, PATH, SCHEMA), "ab"), "c")
    assert (again.path, again.version) == (table.path, table.version)
    assert again.fingerprint != before


def test_a_renamed_column_is_another_state(location: GraphLocation, table: Table) -> None:
    before = table.fingerprint
    TableStore(location).open(PATH)._dataset.alter_columns({"path": "size", "name": "weight"})
    renamed = TableStore(location).open(PATH)
    assert renamed.schema.names == ["id", "weight"]
    assert renamed.fingerprint != before


# ---- branches


def test_a_fork_without_writes_shares_it(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "side")
    assert fork.branch == "side"
    assert fork.fingerprint == table.fingerprint
    opened = TableStore(location).open(PATH, "side")
    assert opened.fingerprint == table.fingerprint


def test_a_fork_of_rows_with_deletions_shares_it(location: GraphLocation, table: Table) -> None:
    deleted = delete(table, "b")
    assert create_fork(location, deleted, "side").fingerprint == deleted.fingerprint


def test_an_index_on_a_fork_keeps_what_is_shared(location: GraphLocation, table: Table) -> None:
    assert index(create_fork(location, table, "side")).fingerprint == table.fingerprint


def test_the_first_write_of_either_side_parts_them(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "side")
    written, moved = append(fork, "x"), append(table, "x")
    found = {table.fingerprint, written.fingerprint, moved.fingerprint}
    assert len(found) == 3, "equal rows in two places are still two states"
    assert fork.fingerprint == table.fingerprint


def test_different_deletions_at_the_same_version_are_told_apart(location: GraphLocation, table: Table) -> None:
    fork = create_fork(location, table, "side")
    here, there = delete(table, "a"), delete(fork, "b")
    assert (ids(here), ids(there)) == ("bc", "ac")
    assert here.version == there.version
    assert here.fingerprint != there.fingerprint


def test_a_branch_made_again_with_other_rows_never_repeats_one(location: GraphLocation, table: Table) -> None:
    """Path, branch and version are all the same; only the files tell the difference."""
    first = append(create_fork(location, table, "side"), "x")
    name, version, seen = first.branch, first.version, first.fingerprint
    second = append(create_fork(location, table, "side"), "y")
    assert (second.path, second.branch, second.version) == (PATH, name, version)
    assert ids(second) == "abcy"
    assert second.fingerprint != seen
