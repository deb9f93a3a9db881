"""Input that is larger than it looks, or made to hurt: bounded memory, typed refusals that say what to do."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from omnigraph.client.record_files import RecordFiles
from omnigraph.errors import (
    BadRequestError,
    InputFileError,
    LoadRejectedError,
    OmniError,
    ResourceLimitError,
    StorageError,
)
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.optimize import COMPACT_STAGE, build_indexes, compact_tables
from omnigraph.pipeline.sources import inputs, jsonl, parts, reading, records
from omnigraph.pipeline.sources.inputs import UNPACK_ALLOWED_BYTES, UNPACK_MAX_RATIO, find_files
from omnigraph.pipeline.sources.records import MAX_STRUCTURAL_TOKENS, is_too_complex
from omnigraph.pipeline.workers import (
    Item,
    LocalWorkers,
    Message,
    Silent,
    StageProgress,
    Workers,
    failure_message,
    raise_failure,
)
from omnigraph.storage.datasets.compaction import choose_rewrites, fragment_facts, plan_compaction
from omnigraph.storage.datasets.indexes import (
    IndexPartTask,
    IndexSpec,
    list_indexes,
    plan_builds,
    plan_index_parts,
    stage_indices,
)
from omnigraph.storage.datasets.staged import StagedWrite, commit_staged, stage_append, stage_upsert
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.subtests import each_case
from support.tables import (
    DIMENSION,
    ID,
    NUMBER,
    SPECS,
    VECTOR,
    content,
    delete,
    make_table,
    rows,
    vector_hits,
    with_text_index,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "node Doc { slug: String @key  body: String?  tags: [String]?  scan: Blob? }"
#: Bytes that these tests allow a file to hold whatever its size is.
ALLOWED = 300_000


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA)


@pytest.fixture
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNPACK_ALLOWED_BYTES, str(ALLOWED))
    monkeypatch.setenv(UNPACK_MAX_RATIO, "20")


def load(graph: Graph, source: Path, **options: Any) -> dict[str, int]:
    if source.suffix in (".parquet", ".orc", ".csv", ".json"):
        mapping = {"nodes": {"Doc": {"source": str(source), **options}}}
        return graph.load(mapping=mapping, mode="append", engine="local").rows
    return graph.load(source, mode="append", engine="local", **options).rows


def doc(slug: str, body: str) -> bytes:
    record = {"type": "Doc", "data": {"slug": slug, "body": body}}
    return json.dumps(record).encode() + b"\n"


# ---- large records

#: Loads one large record of every form after a small one, and tells by how much the process grew at most.
CHILD = """
import json, resource, sys
from pathlib import Path
from omnigraph.errors import LoadRejectedError
from omnigraph.graph.graph import Graph
folder, size = Path(sys.argv[1]), int(sys.argv[2])
def record(slug, form, size):
    values = {
        "plain": {"body": "x" * size},
        "escaped": {"body": "\\n" * (size // 2)},
        "mixed": {"body": "x" * (size - 4) + "\\U0001f600"},
        "list": {"tags": ["x" * 1000] * (size // 1004)},
        "blob": {"scan": "base64:" + "QUJD" * (size // 4)},
        "unknown": {"nothing": "x" * size},
        "open": {"body": "x" * size},
    }[form]
    text = json.dumps({"type": "Doc", "data": {"slug": slug, **values}}, ensure_ascii=False)
    return text[: len(text) // 2] if form == "open" else text
def load(path):
    try:
        graph.load(path, mode="merge", engine="local")
    except LoadRejectedError:
        return "refused"
    return "loaded"
forms = ["plain", "escaped", "mixed", "list", "blob", "unknown", "open"]
for form in forms:
    (folder / f"{form}.jsonl").write_text(record("b", form, size), encoding="utf-8")
with Graph.init(folder / "g.omni", sys.argv[3]) as graph:
    for form in forms:
        (folder / "small.jsonl").write_text(record("a", form, 2000), encoding="utf-8")
        load(folder / "small.jsonl")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {}
    for form in forms:
        outcome = load(folder / f"{form}.jsonl")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        outcomes[form] = [outcome, grown / size]
print(json.dumps(outcomes))
"""


def test_a_load_takes_a_few_times_its_largest_record(tmp_path: Path) -> None:
    size = 16 * 1024 * 1024
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), str(size), SCHEMA], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    refused = {form for form, (outcome, _) in outcomes.items() if outcome == "refused"}
    assert refused == {"unknown", "open"}
    assert max(growth for _, growth in outcomes.values()) <= 6, outcomes


@each_case(
    "line",
    [
        b'{"a":"' + b"x" * 200_000 + b'"}',
        b'{"a":"' + b'\\"' * 100_000 + b'"}',
        b'{"a":"' + b'\\"' * 100_000,
        b'""' * 100_000,
        b'"' + b"\\" * 200_001,
    ],
    ids=["a text", "escapes", "an open text", "many texts", "an escape at the end"],
)
def test_tokens_are_counted_without_memory(line: bytes) -> None:
    tracemalloc.start()
    try:
        assert not is_too_complex(line)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_tokens_inside_of_texts_do_not_count() -> None:
    assert not is_too_complex(b'{"a":"' + b"[],{}:" * MAX_STRUCTURAL_TOKENS + b'"}')
    assert not is_too_complex(b'["",' * (MAX_STRUCTURAL_TOKENS // 2) + b" " * 400_000)
    assert is_too_complex(b'["",' * (MAX_STRUCTURAL_TOKENS // 2) + b"[" + b" " * 400_000)


# ---- files that hold more than they should


def packed(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, content: bytes) -> Path:
        path = folder / f"in.jsonl.{name}"
        if name == "zst":
            with pa.CompressedOutputStream(str(path), "zstd") as stream:
                stream.write(content)
        else:
            path.write_bytes({"gz": gzip, "bz2": bz2}[name].compress(content))
        return path

    return write


@pytest.mark.usefixtures("_small_limits")
@pytest.mark.parametrize("grammar", ["strict", "compatible"])
@pytest.mark.parametrize("name", ["gz", "bz2", "zst"])
def test_a_packed_file_is_read_up_to_a_limit(graph: Graph, tmp_path: Path, name: str, grammar: str) -> None:
    write = packed(name)
    assert load(graph, write(tmp_path, doc("a", "x" * (ALLOWED - 1000))), grammar=grammar)
    path = write(tmp_path, b"".join(doc(str(n), "x" * 1000) for n in range(400)))
    with pytest.raises(ResourceLimitError) as caught:
        load(graph, path, grammar=grammar)
    assert caught.value.resource == "unpacked_bytes"
    for words in (str(path), UNPACK_MAX_RATIO, UNPACK_ALLOWED_BYTES):
        assert words in str(caught.value)


@pytest.mark.usefixtures("_small_limits")
def test_the_ratio_counts_for_larger_files(graph: Graph, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).bytes(60_000).hex()
    path = packed("gz")(tmp_path, doc("a", noise) + doc("b", "x" * ALLOWED))
    assert path.stat().st_size * 20 > ALLOWED
    assert load(graph, path) == {"node:Doc": 2}


@pytest.mark.usefixtures("_small_limits")
def test_a_client_sends_no_more_of_a_packed_file_either(tmp_path: Path) -> None:
    path = packed("gz")(tmp_path, doc("a", "x" * 2 * ALLOWED))
    with pytest.raises(ResourceLimitError, match=UNPACK_MAX_RATIO):
        list(RecordFiles(path, are_lines=True).body())


def test_the_limit_travels_to_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNPACK_ALLOWED_BYTES, "7")
    (tmp_path / "x.jsonl").write_bytes(b"")
    (file,) = find_files(str(tmp_path / "x.jsonl"))
    monkeypatch.delenv(UNPACK_ALLOWED_BYTES)
    with pytest.raises(ResourceLimitError) as caught:
        file.check_content(8)
    with pytest.raises(ResourceLimitError) as again:
        raise_failure(failure_message(caught.value))
    assert str(again.value) == str(caught.value)


def repeated(count: int, length: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["x" * length]))


def slugs(count: int) -> pa.Array:
    return pa.array([str(number) for number in range(count)])


def one_value_for_all(path: Path) -> None:
    pq.write_table(pa.table({"slug": slugs(1000), "body": repeated(1000, 10_000)}), path)


def one_list_of_equal_values(path: Path) -> None:
    tags = pa.ListArray.from_arrays(pa.array([0, 50_000], pa.int32()), repeated(50_000, 1000))
    pq.write_table(pa.table({"slug": ["a"], "tags": tags}), path)


def declared_as_large(path: Path) -> None:
    body = pa.array(["x" * 1000] * 1000)
    table = pa.table({"slug": slugs(1000), "body": body})
    pq.write_table(table, path, use_dictionary=False, compression="zstd")


def stripes(path: Path) -> None:
    orc.write_table(pa.table({"slug": ["x" * 1000] * 1000}), str(path), compression="zstd")


@pytest.mark.usefixtures("_small_limits")
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", one_value_for_all),
        ("b.parquet", one_list_of_equal_values),
        ("c.parquet", declared_as_large),
        ("d.orc", stripes),
    ],
)
def test_a_columnar_file_is_read_up_to_a_limit(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(parts, "_BATCH_BYTES", 100_000)
    path = tmp_path / name
    write(path)
    with pytest.raises(ResourceLimitError) as caught:
        load(graph, path)
    assert str(path) in str(caught.value)
    assert UNPACK_MAX_RATIO in str(caught.value)


def test_batches_of_long_values_have_few_rows(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    mapped = reading.PartReader.mapped_records

    def note(self: Any, batch: Any, *given: Any, **named: Any) -> Any:
        sizes.append(batch.nbytes)
        return mapped(self, batch, *given, **named)

    monkeypatch.setattr(reading.PartReader, "mapped_records", note)
    monkeypatch.setattr(parts, "_BATCH_BYTES", 100_000)
    path = tmp_path / "in.parquet"
    one_value_for_all(path)
    assert load(graph, path) == {"node:Doc": 1000}
    assert len(sizes) >= 100
    assert max(sizes) <= 110_000


def test_columns_nested_too_deeply_are_refused(graph: Graph, tmp_path: Path) -> None:
    kind: pa.DataType = pa.int32()
    for _ in range(100):
        kind = pa.struct([("a", kind)])
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"slug": pa.nulls(1, kind)}), path)
    with pytest.raises(InputFileError, match="nested"):
        load(graph, path)


def test_a_damaged_columnar_file_is_named(graph: Graph, tmp_path: Path) -> None:
    """Any damage is a typed error, or values that are checked like all others."""
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"slug": slugs(50), "tags": [["a", "b"]] * 50}), path)
    content, chance = path.read_bytes(), random.Random(5)
    files = [content.replace(b"element", b"elEment")]
    for _ in range(40):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 2, 8])):
            damaged[chance.randrange(len(content))] = chance.randrange(256)
        files.append(bytes(damaged))
    refused = 0
    for file in files:
        path.write_bytes(file)
        try:
            mapping = {"nodes": {"Doc": {"source": str(path)}}}
            graph.load(mapping=mapping, mode="append", engine="local", dry_run=True)
        except OmniError:
            refused += 1
    assert refused > 10


def test_lists_of_what_is_not_a_text_are_bad_records(graph: Graph, tmp_path: Path) -> None:
    wrong = pa.array([[b"\x8f", b"a"]], pa.list_(pa.binary()))
    texts = pa.Array.from_buffers(pa.list_(pa.utf8()), 1, wrong.buffers()[:2], children=[wrong.values.view(pa.utf8())])
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"slug": ["a"], "tags": texts}), path)
    with pytest.raises(LoadRejectedError, match=r"invalid value for Doc\.tags"):
        load(graph, path)


# ---- texts without an end


@pytest.fixture
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inputs, records, reading, jsonl):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 50_000)
    for module in (inputs, jsonl):
        monkeypatch.setattr(module, "_BLOCK_BYTES", 16_384)


ENDLESS = b"x" * 500_000


@pytest.mark.usefixtures("_short_lines")
@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("in.jsonl", b'{"type":"Doc","data":{"slug":"' + ENDLESS, {}, "line too long"),
        ("in.jsonl", b"//" + ENDLESS, {"grammar": "compatible"}, "50,000 characters"),
        ("in.jsonl", b'{"type":"' + ENDLESS, {"grammar": "compatible"}, "50,000 characters"),
        ("in.csv", b"slug,body\na," + ENDLESS + b"\n", {}, "line too long"),
        ("in.csv", b'slug,body\na,"' + b"x\n" * 2000, {}, "invalid CSV"),
        ("in.json", b'{"slug":"' + ENDLESS, {}, "line too long"),
        ("in.json", b'[{"slug":"' + ENDLESS, {}, "50,000 characters"),
        ("in.json", b'[{"slug":"a"} {"slug":"b"}]', {}, "Expecting ',' or ']' at character 15"),
        ("in.json", b'[{"slug":"a"}] 7', {}, "Extra data at character 16"),
    ],
)
def test_a_text_without_an_end_is_a_bad_record(
    graph: Graph, tmp_path: Path, name: str, content: bytes, options: dict[str, Any], said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LoadRejectedError, match=said) as caught:
        load(graph, path, **options)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"x" * 2_000_000, "its first line"), (b'slug,body\na,"' + b"x\n" * 10_000_000, "it is damaged")],
    ids=["names", "a quote"],
)
def test_a_table_without_an_end_cannot_be_read(graph: Graph, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=said):
        load(graph, path, multiline=True)


def test_a_quote_that_is_never_closed_does_not_swallow_records(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'slug,body\na,"x\n\ny"\nb,"z\nc,d\n')
    with pytest.raises(LoadRejectedError, match="a quote is never closed"):
        load(graph, path, multiline=True)


def test_a_list_of_any_length_is_read_item_by_item(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK_BYTES", 1000)
    path = tmp_path / "in.json"
    items = [{"slug": f"é{number}", "body": "😀" * (number % 300)} for number in range(300)]
    path.write_text("\ufeff " + json.dumps(items, ensure_ascii=False, indent=1), encoding="utf-8")
    assert load(graph, path) == {"node:Doc": 300}
    rows = graph.query("query q() { match { $d: Doc } return { $d.slug as slug, $d.body as body } }")
    assert sorted(rows.to_pylist(), key=str) == sorted(items, key=str)
    path.write_text(" [ ] ", encoding="utf-8")
    assert load(graph, path) == {"node:Doc": 0}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", b"slug," + b"x" * 900_000 + b"\na,b\n"),
        ("in.csv", b"slug," + b",".join(b"c%d" % number for number in range(50_000)) + b"\n"),
        ("in.csv", b"slug,body\na,b,c" + b"x" * 900_000 + b"\n"),
        ("in.jsonl", b'{"type":"Doc","data":{"slug":"a","' + b"x" * 900_000 + b'":1}}'),
        ("in.jsonl", b'{"type":"' + b"x" * 900_000 + b'","data":{"slug":"a"}}'),
        ("in.jsonl", b'{"type":"Doc","data":{"slug":"a","scan":"' + b"x" * 900_000 + b'"}}'),
    ],
    ids=["a name", "names", "a line", "a member", "a type", "a blob"],
)
def test_a_message_does_not_repeat_a_large_input(graph: Graph, tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadRequestError) as caught:
        load(graph, path)
    assert len(str(caught.value)) < 5000
    assert len(json.dumps(caught.value.details())) < 5000


# ---- An index built by many tasks is the index that one task would have built


class ManyWorkers(LocalWorkers):
    """Cuts stages as if tasks ran side by side, and remembers them."""

    parallelism = 4

    def __init__(self) -> None:
        super().__init__(Silent())
        self.tasks: list[object] = []

    def run(self, stage: str, task: Callable[[Item], Message], items: Sequence[Item]) -> list[Message]:
        self.tasks += items
        return super().run(stage, task, items)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def build(table: Table, specs: Sequence[IndexSpec], workers: Workers | None = None) -> StagedWrite:
    (staged,) = build_indexes(workers or ManyWorkers(), [(table, specs)], min_part_rows=1)
    assert staged is not None
    return staged


def answers(table: Table) -> dict[str, object]:
    """What queries through the indexes give: by value, by distance over all partitions."""
    dataset = table._dataset
    conditions = ["id = 'k77'", "id = 'k11'", "n = 3", "n in (1, 5)", "n is null", "id >= 'k5'"]
    found: dict[str, object] = {
        text: sorted(dataset.to_table(columns=["id"], filter=text)["id"].to_pylist()) for text in conditions
    }
    chance = random.Random(5)
    for number in range(5):
        point = [chance.random() for _ in range(DIMENSION)]
        found[f"near {number}"] = vector_hits(dataset, point, k=7)
    return found


def coverage(table: Table) -> dict[str, tuple[frozenset[int], int]]:
    return {known.name: (known.covered_fragments, known.missing_rows) for known in list_indexes(table).values()}


def check_same(location: GraphLocation, workers: Workers | None = None) -> None:
    usual = make_table(location, path="nodes/a", rows_each=40)
    spread = make_table(location, path="nodes/b", rows_each=40)
    staged = stage_indices(usual, SPECS)
    assert staged is not None
    usual = commit_staged(staged)
    spread = commit_staged(build(spread, SPECS, workers))
    assert spread.version == usual.version
    assert coverage(spread) == coverage(usual)
    plan = spread._dataset.scanner(columns=["id"], filter="id = 'k77'").explain_plan()
    assert "ScalarIndexQuery" in plan, "the answers below come from the index"
    assert answers(spread) == answers(usual)


def test_all_kinds_answer_as_if_built_at_once(location: GraphLocation) -> None:
    check_same(location)


def test_all_kinds_answer_the_same_when_built_on_spark(location: GraphLocation, spark: SparkSession) -> None:
    from omnigraph.spark.workers import SparkWorkers

    check_same(location, SparkWorkers(spark, Silent()))


def test_a_stage_is_cut_by_rows_and_every_fragment_is_in_one_part(location: GraphLocation) -> None:
    table = make_table(location, fragments=8, rows_each=10)
    workers = ManyWorkers()
    build(table, [ID], workers)
    tasks = [task for task in workers.tasks if isinstance(task, IndexPartTask)]
    assert 4 <= len(tasks) <= 5
    assert sorted(number for task in tasks for number in task.fragments) == list(range(8))
    assert sum(task.rows for task in tasks) == table.row_count


def test_small_tables_are_one_task(location: GraphLocation) -> None:
    table = make_table(location)
    workers = ManyWorkers()
    build_indexes(workers, [(table, [ID, NUMBER])])
    assert len(workers.tasks) == 2


def test_the_inputs_of_a_merge_are_removed(location: GraphLocation) -> None:
    table = make_table(location, rows_each=40)
    staged = build(table, SPECS)
    stored = {it.name for it in (location.path / table.path / "_indices").iterdir()}
    named = {str(index.uuid) for index in staged._transaction.operation.new_indices}
    assert stored == named
    assert len(named) == len(SPECS)


def test_appended_rows_get_a_further_segment(location: GraphLocation) -> None:
    table = commit_staged(build(make_table(location, lost=()), [NUMBER]))
    table = commit_staged(stage_append(table, rows(500, 10)))
    table = commit_staged(stage_append(table, rows(600, 10)))
    (planned,) = plan_builds(table, [NUMBER])
    assert (planned.fragments, planned.replaces) == ((6, 7), False)
    staged = build(table, [NUMBER])
    assert not staged._transaction.operation.removed_indices
    table = commit_staged(staged)
    assert coverage(table)["n_btree"] == (frozenset(range(8)), 0)
    assert build_indexes(ManyWorkers(), [(table, [NUMBER])]) == [None]


@pytest.mark.parametrize("spec", [ID, NUMBER], ids=lambda spec: spec.name)
def test_an_index_whose_rows_moved_is_replaced(location: GraphLocation, spec: IndexSpec) -> None:
    table = commit_staged(build(make_table(location), [spec]))
    table = commit_staged(stage_upsert(table, rows(0, 15).set_column(1, "n", rows(7, 15)["n"])))
    (planned,) = plan_builds(table, [spec])
    assert planned.replaces
    staged = build(table, [spec])
    assert len(staged._transaction.operation.removed_indices) == 1
    table = commit_staged(staged)
    (index,) = table._dataset.describe_indices()
    assert len(index.segments) == 1
    assert coverage(table)[spec.name][1] == 0
    assert table._dataset.to_table(filter="id = 'k3'").num_rows == 1


def test_a_vector_index_is_always_built_anew(location: GraphLocation) -> None:
    table = commit_staged(build(make_table(location, rows_each=40), [VECTOR]))
    table = commit_staged(stage_append(table, rows(500, 100)))
    (planned,) = plan_builds(table, [VECTOR])
    assert planned.replaces
    assert planned.fragments == tuple(range(7))


def test_parts_of_a_vector_index_share_what_was_trained(location: GraphLocation) -> None:
    table = make_table(location, rows_each=40)
    (planned,) = plan_builds(table, [VECTOR])
    tasks = plan_index_parts(table, planned, parts=4, min_rows=1)
    assert len(tasks) > 1
    assert len({id(task.centroids) for task in tasks}) == 1, "pickled once for all"
    (whole,) = plan_index_parts(table, planned, parts=4, min_rows=10_000)
    assert whole.centroids is None, "one task trains by itself"


def test_tables_with_nothing_missing_give_nothing(location: GraphLocation) -> None:
    done = commit_staged(build(make_table(location, path="nodes/a"), [ID]))
    other = make_table(location, path="nodes/b")
    first, second = build_indexes(ManyWorkers(), [(done, [ID]), (other, [ID])])
    assert first is None
    assert second is not None
    assert second.table is other
    assert done.latest_version == done.version
    assert delete(other, "k3").row_count == other.row_count - 1, "nothing has moved"


# ---- The rewrites of all tables run as one stage; each table is committed on its own


def groups(table: Table, target_rows: int = 1000) -> list[tuple[int, ...]]:
    return choose_rewrites(fragment_facts(table), target_rows=target_rows)


def check(workers: Workers, location: GraphLocation) -> None:
    first = with_text_index(make_table(location, path="nodes/a", specs=(ID,)))
    idle = make_table(location, path="nodes/b", fragments=1, rows_each=20, lost=())
    last = make_table(location, path="edges/c", fragments=9, specs=(ID,))
    before = {table.path: content(table._dataset) for table in (first, last)}
    work = [(table, groups(table, 50)) for table in (first, idle, last)]
    rewritten = compact_tables(workers, work)
    assert [item.table for item in rewritten] == [first, last], "what needs nothing is left out"
    planned = [sum(task.rows for task in plan_compaction(*item)) for item in work]
    assert planned == [48, 0, 88], "the last fragment of the first stays alone"
    assert first.latest_version == first.version, "nothing has moved yet"
    for item in rewritten:
        table = commit_staged(item)
        assert table.fragment_count() == 2
        assert content(table._dataset) == before[table.path]
    assert compact_tables(workers, []) == []


def test_tables_are_rewritten_together_in_this_process(location: GraphLocation) -> None:
    check(LocalWorkers(Silent()), location)


def test_tables_are_rewritten_together_on_spark(location: GraphLocation, spark: SparkSession) -> None:
    from omnigraph.spark.workers import SparkWorkers

    check(SparkWorkers(spark, Silent()), location)


def test_rows_count_as_progress(location: GraphLocation) -> None:
    seen: list[tuple[int, int]] = []

    class Watcher:
        def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
            seen.append((tasks, rows))

    class Watched:
        @contextmanager
        def stage(self, name: str, tasks: int) -> Iterator[StageProgress]:
            assert (name, tasks) == (COMPACT_STAGE, 1)
            yield Watcher()

    table = make_table(location)
    compact_tables(LocalWorkers(Watched()), [(table, groups(table))])
    assert seen == [(1, 58)]


def test_a_failed_task_is_a_storage_error_and_moves_nothing(location: GraphLocation) -> None:
    table = make_table(location)
    for file in (location.path / table.path / "data").glob("*.lance"):
        file.unlink()
    with pytest.raises(StorageError):
        compact_tables(LocalWorkers(Silent()), [(table, groups(table))])
    assert table.latest_version == table.version
