"""Exports of a graph: what they say, in which order, and that they appear whole or not at all."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from omnigraph.errors import BadRequestError, NotFoundError, StorageError
from omnigraph.graph import open_graph
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.export import files
from omnigraph.pipeline.export import files as export_runs
from omnigraph.pipeline.export import files as export_target
from omnigraph.pipeline.export import job as export_module
from omnigraph.pipeline.export.files import line_bytes, merged_blocks, sorted_blocks, write_runs
from omnigraph.pipeline.export.formats import LINES
from omnigraph.storage.datasets import partitions
from omnigraph.storage.datasets.partitions import list_fragment_groups, table_address
from support.exports import EMPTY, FULL, LARGE, NULLS, exported_thing, key_of, lines_of, world
from support.graphs import SCALAR_TYPES, UTC_MS
from support.subtests import each_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = ["edge:Near", "edge:Same", "node:Empty", "node:Slot", "node:Thing"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The world; tests only read it."""
    return world(tmp_path_factory.mktemp("world"))


def streamed(graph: Graph, **options: Any) -> list[dict[str, Any]]:
    sink = io.StringIO()
    result = graph.export(sink, **options)
    assert result.target == "-"
    assert result.files == ()
    return lines_of(sink.getvalue())


def names(lines: list[dict[str, Any]]) -> list[str]:
    return [line["data"]["id"] for line in lines]


# ---- lines


def test_every_value_is_there(graph: Graph) -> None:
    things = streamed(graph, types=["Thing"])
    assert things == [exported_thing(row) for row in (EMPTY, FULL, NULLS)]
    near = streamed(graph, types=["Near"])
    assert [line | {"data": line["data"] | {"id": "?"}} for line in near] == [
        {"edge": "Near", "from": FULL["name"], "to": '["1","a"]', "data": {"id": "?", "weight": 0.25, "since": 1}}
    ]


def test_types_come_by_key_and_rows_by_id(graph: Graph) -> None:
    order = [key_of(line) for line in streamed(graph)]
    assert order == sorted(order)
    assert len(order) == 1 + 2 + 12 + 3
    assert {key for key, _ in order} == set(KEYS) - {"node:Empty"}


def test_a_file_holds_what_a_stream_gets(graph: Graph, tmp_path: Path) -> None:
    sink = io.StringIO()
    graph.export(sink)
    target = tmp_path / "all.jsonl"
    result = graph.export(target, engine="local")
    assert target.read_bytes().decode() == sink.getvalue()
    assert result.files == (str(target),)
    assert result.to_json() == {
        "target": str(target),
        "format": "jsonl",
        "files": [str(target)],
        "nodes": {"Empty": 0, "Slot": 12, "Thing": 3},
        "edges": {"Near": 1, "Same": 2},
        "total_entities": 18,
        "graph_commit_id": graph.snapshot().commit_id,
        "engine": {"name": "local", "reason": "as asked"},
    }
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("merged", [2, 64])
def test_sorting_through_files_changes_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: int
) -> None:
    whole = io.StringIO()
    graph.export(whole)
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "MAX_MERGED_RUNS", merged)
    monkeypatch.setattr(export_runs.sorted_blocks, "__defaults__", (1,))
    monkeypatch.setattr(export_runs.write_runs, "__defaults__", (1,))
    again = io.StringIO()
    graph.export(again)
    assert again.getvalue() == whole.getvalue()
    graph.export(tmp_path / "all.jsonl", engine="local")
    assert (tmp_path / "all.jsonl").read_bytes().decode() == whole.getvalue()


def test_parts_hold_the_same_lines_each_sorted(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    target = tmp_path / "parts"
    result = graph.export(str(target), parts=True, engine="local")
    files = sorted(target.iterdir())
    assert result.files == tuple(map(str, files))
    assert [file.name for file in files if "Slot" in file.name] == [
        f"node-Slot-{number:05d}.jsonl" for number in range(3)
    ]
    assert not any("Empty" in file.name for file in files)
    parts = [lines_of(file.read_text(encoding="utf-8")) for file in files]
    for part in parts:
        assert names(part) == sorted(names(part))
    lines = sorted((line for part in parts for line in part), key=key_of)
    assert lines == streamed(graph)


def test_a_graph_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node Paper { doi: String @key }")
    assert graph.export(tmp_path / "all.jsonl", engine="local").nodes == {"Paper": 0}
    assert (tmp_path / "all.jsonl").read_bytes() == b""
    assert graph.export(tmp_path / "parts", parts=True, engine="local").files == ()
    assert list((tmp_path / "parts").iterdir()) == []


# ---- Parquet


def test_parquet_has_natural_types(graph: Graph, tmp_path: Path) -> None:
    result = graph.export(tmp_path / "out", format="parquet", engine="local")
    things = pq.read_table(tmp_path / "out/nodes/Thing/part-00000.parquet")
    more = {"floats": pa.list_(pa.float32()), "ats": pa.list_(UTC_MS), "flags": pa.list_(pa.bool_())}
    more |= {"id": pa.utf8(), "vec": pa.list_(pa.float32()), "data": pa.binary()}
    assert dict(zip(things.schema.names, things.schema.types, strict=True)) == SCALAR_TYPES | more
    assert [field.name for field in things.schema if not field.nullable] == ["id", "name"]
    rows = {row["id"]: row for row in things.to_pylist()}
    full = rows[FULL["name"]]
    assert full["u64"] == 2**63 - 1
    assert full["data"] == LARGE
    assert full["at"].isoformat() == "2024-02-29T12:34:56.789000+00:00"
    assert full["ats"][0].isoformat() == "1969-12-31T23:59:59.999000+00:00"
    assert full["vec"] == [0.5, pytest.approx(0.1), -3.25]
    assert rows[""]["data"] == b""
    assert rows["nulls"] == {"id": "nulls", **dict.fromkeys(things.column_names[1:]), "name": "nulls"}
    near = pq.read_table(tmp_path / "out/edges/Near/part-00000.parquet")
    assert near.column_names == ["id", "from", "to", "weight", "since"]
    assert near["from"].to_pylist() == [FULL["name"]]
    assert result.nodes == {"Empty": 0, "Slot": 12, "Thing": 3}


def test_the_mapping_names_every_type_also_one_without_rows(graph: Graph, tmp_path: Path) -> None:
    result = graph.export(tmp_path / "out", format="parquet", engine="local")
    assert yaml.safe_load((tmp_path / "out/mapping.yaml").read_text(encoding="utf-8")) == {
        "nodes": {
            name: {"source": f"nodes/{name}", "format": "parquet", "id": "id"} for name in ("Empty", "Slot", "Thing")
        },
        "edges": {
            name: {"source": f"edges/{name}", "format": "parquet", "id": "id", "from": "from", "to": "to"}
            for name in ("Near", "Same")
        },
    }
    empty = pq.read_table(tmp_path / "out/nodes/Empty")
    assert (empty.num_rows, empty.column_names) == (0, ["id", "k"])
    assert all(Path(file).is_file() for file in result.files)
    assert len(result.files) == 6


def test_a_type_may_be_called_like_a_word_of_yaml(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node No { k: String @key }\nnode Null { k: String @key }")
    graph.export(tmp_path / "out", format="parquet", engine="local")
    mapping = yaml.safe_load((tmp_path / "out/mapping.yaml").read_text(encoding="utf-8"))
    assert list(mapping["nodes"]) == ["No", "Null"]
    assert "edges" not in mapping


def test_parquet_parts_are_numbered_within_a_type(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    graph.export(tmp_path / "out", format="parquet", types=["Slot"], engine="local")
    files = sorted(path.name for path in (tmp_path / "out/nodes/Slot").iterdir())
    assert files == [f"part-{number:05d}.parquet" for number in range(3)]
    assert pq.read_table(tmp_path / "out/nodes/Slot").num_rows == 12


# ---- which rows


@each_case(
    ("types", "keys"),
    [
        (None, KEYS),
        ([], KEYS),
        (["Slot"], ["node:Slot"]),
        (["node:Slot", "edge:Same"], ["edge:Same", "node:Slot"]),
        (("Thing", "Thing", "Near"), ["edge:Near", "node:Thing"]),
    ],
)
def test_only_the_types_that_were_named(graph: Graph, types: Any, keys: list[str]) -> None:
    result = graph.export(io.StringIO(), types=types)
    assert [f"edge:{n}" for n in result.edges] + [f"node:{n}" for n in result.nodes] == keys


@pytest.mark.parametrize("types", [["Nope"], ["edge:Thing"], ["thing"], "Thing", [""]])
def test_an_unknown_type_is_refused_before_anything(graph: Graph, tmp_path: Path, types: Any) -> None:
    sink = io.StringIO()
    with pytest.raises(BadRequestError):
        graph.export(sink, types=types)
    with pytest.raises(BadRequestError):
        graph.export(tmp_path / "out", types=types, engine="local")
    assert sink.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_the_refusal_lists_the_types(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match=r"no type Nope: .*edge:Near.*node:Thing"):
        graph.export(io.StringIO(), types=["Thing", "Nope"])


def test_one_name_may_mean_a_node_and_an_edge(tmp_path: Path) -> None:
    schema = "node Link { k: String @key }\nedge Link: Link -> Link"
    graph = Graph.init(tmp_path / "g.omni", schema)
    result = graph.export(io.StringIO(), types=["Link"])
    assert (result.nodes, result.edges) == ({"Link": 0}, {"Link": 0})
    assert graph.export(io.StringIO(), types=["edge:Link"]).nodes == {}


def test_a_branch_a_commit_a_version_and_a_moment(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node Item { k: String @key }")
    first = graph.mutate('query q() { insert Item { k: "a" } }').commit
    graph.create_branch("side")
    graph.mutate('query q() { insert Item { k: "c" } }', branch="side")
    graph.mutate('query q() { delete Item where k = "a" }')
    graph.mutate('query q() { insert Item { k: "b" } }')
    assert names(streamed(graph)) == ["b"]
    assert names(streamed(graph, branch="side")) == ["a", "c"]
    assert names(streamed(graph, snapshot=first.commit_id)) == ["a"]
    assert names(streamed(graph, version=first.graph_version)) == ["a"]
    assert names(streamed(graph, version=1)) == []
    assert names(streamed(graph, as_of="2100-01-01T00:00:00Z")) == ["b"]
    graph.export(tmp_path / "side.jsonl", branch="side", engine="local")
    assert names(lines_of((tmp_path / "side.jsonl").read_text())) == ["a", "c"]
    result = graph.export(tmp_path / "old.jsonl", snapshot=first.commit_id, engine="local")
    assert result.commit_id == first.commit_id
    assert names(lines_of((tmp_path / "old.jsonl").read_text())) == ["a"]
    with pytest.raises(NotFoundError):
        graph.export(io.StringIO(), branch="nowhere")
    with pytest.raises(NotFoundError):
        graph.export(tmp_path / "x", snapshot="nothing", engine="local")
    with pytest.raises(BadRequestError):
        graph.export(io.StringIO(), snapshot=first.commit_id, version=1)


def test_what_is_written_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node A { k: String @key }\nnode Z { k: String @key }")
    graph.mutate('query q() { insert A { k: "1" } insert Z { k: "1" } }')

    class WritesOnce(io.StringIO):
        done = False

        def write(self, text: str, /) -> int:
            if not self.done:
                self.done = True
                graph.mutate('query q() { insert A { k: "2" } insert Z { k: "2" } }')
                graph.mutate('query q() { delete Z where k = "1" }')
            return super().write(text)

    sink = WritesOnce()
    head = graph.snapshot().commit_id
    assert graph.export(sink).commit_id == head
    assert [key_of(line) for line in lines_of(sink.getvalue())] == [("node:A", "1"), ("node:Z", "1")]


def test_a_graph_open_for_reading_can_be_exported(graph: Graph) -> None:
    with Graph.open(graph.uri, read_only=True) as other:
        assert len(streamed(other)) == 18


# ---- targets


def test_a_target_that_exists_stays_as_it_is(graph: Graph, tmp_path: Path) -> None:
    file, folder, link = tmp_path / "f", tmp_path / "d", tmp_path / "l"
    file.write_text("mine")
    folder.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    for target in (file, folder, link):
        for options in ({}, {"parts": True}, {"format": "parquet"}):
            with pytest.raises(BadRequestError, match="an export replaces nothing"):
                graph.export(target, engine="local", **options)
    assert file.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [folder, file, link]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "give one of jsonl, parquet"),
        ({"format": "parquet", "parts": True}, "always written in parts"),
        ({"engine": "magic"}, "give auto, local, spark"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    graph: Graph, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        graph.export(tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_places_where_nothing_can_be_written_are_refused(graph: Graph, tmp_path: Path) -> None:
    for target, message in [
        ("gs://bucket/out.jsonl", "local path"),
        (tmp_path / "no/such/place", "create it first"),
        (f"{graph.uri}/out.jsonl", "inside the graph"),
        ("", "named"),
    ]:
        with pytest.raises(BadRequestError, match=message):
            graph.export(target, engine="local")
    with pytest.raises(BadRequestError, match="neither a path nor a stream"):
        graph.export(17, engine="local")  # type: ignore[arg-type]  # what is refused
    for options in ({"parts": True}, {"format": "parquet"}):
        with pytest.raises(BadRequestError, match="a stream takes JSON lines"):
            graph.export("-", **options)


def test_a_file_uri_is_a_path(graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "with space.jsonl"
    graph.export(target.as_uri(), engine="local")
    assert target.is_file()


@pytest.mark.parametrize("options", [{}, {"parts": True}])
def test_a_number_that_is_not_finite_ends_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """No writer of ours lets such a number in, so it comes by the back door."""
    graph = Graph.init(tmp_path / "g.omni", "node P { k: String @key x: F64 }")
    snapshot = graph.snapshot()
    pin = snapshot.pins["node:P"]
    dataset = lance.dataset(f"{graph.uri}/{pin.location}")
    rows = pa.table({"id": ["a"], "k": ["a"], "x": [float("nan")]}).cast(dataset.schema)
    lance.write_dataset(rows, dataset, mode="append")
    spoiled = replace(snapshot, pins={"node:P": replace(pin, version=pin.version + 1)})
    monkeypatch.setattr(open_graph, "resolve_target", lambda *_: spoiled)
    # Another one: a graph keeps the snapshots that it resolved.
    graph = Graph.open(graph.uri)
    with pytest.raises(BadRequestError, match=r"node:P\.x of 'a'"):
        graph.export(tmp_path / "out", engine="local", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["g.omni"]
    with pytest.raises(BadRequestError, match=r"node:P\.x of 'a'"):
        graph.export(io.StringIO())


def test_a_failure_leaves_nothing_behind(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for place, options in [
        ("write_task_runs", {}),
        ("merged_blocks", {}),
        ("write_line_part", {"parts": True}),
        ("write_parquet_part", {"format": "parquet"}),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(export_module, place, fail)
            with pytest.raises(StorageError, match="No space left"):
                graph.export(tmp_path / "out", engine="local", **options)
        assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export_module, "line_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        graph.export(tmp_path / "out", engine="local")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"parts": True}, {"format": "parquet"}])
def test_a_target_made_meanwhile_is_not_replaced(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    target = tmp_path / "out"
    publish = export_target.Staging.publish

    def publish_late(self: export_target.Staging, files: Sequence[Path], *, durable: bool) -> None:
        target.write_text("mine")
        publish(self, files, durable=durable)

    monkeypatch.setattr(export_target.Staging, "publish", publish_late)
    with pytest.raises(BadRequestError, match="an export replaces nothing"):
        graph.export(target, engine="local", **options)
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_system_without_links_takes_an_export_too(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(export_target.os, "link", no_links)
    graph.export(tmp_path / "out.jsonl", engine="local")
    assert len(lines_of((tmp_path / "out.jsonl").read_text(encoding="utf-8"))) == 18
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_flushed_export_is_the_same(graph: Graph, tmp_path: Path) -> None:
    object.__setattr__(graph._core.environment, "durable", True)
    try:
        graph.export(tmp_path / "a.jsonl", engine="local")
        graph.export(tmp_path / "b", format="parquet", engine="local")
    finally:
        object.__setattr__(graph._core.environment, "durable", False)
    assert len(lines_of((tmp_path / "a.jsonl").read_text(encoding="utf-8"))) == 18


def test_files_that_the_driver_cannot_see_are_reported(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "write_parquet_part", lambda _: {"rows": 1, "file": "/nowhere/part"})
    with pytest.raises(BadRequestError, match="have to share the file system"):
        graph.export(tmp_path / "out", format="parquet", engine="local")
    assert list(tmp_path.iterdir()) == []


# ---- streams


def test_standard_output_gets_utf8(graph: Graph, capfdbinary: Any) -> None:
    graph.export("-", types=["Thing"])
    sys.stdout.flush()
    lines = capfdbinary.readouterr().out.decode("utf-8").split("\n")
    assert json.loads(lines[1])["data"]["id"] == FULL["name"]


def test_progress_counts_types_and_rows(graph: Graph, tmp_path: Path) -> None:
    from contextlib import contextmanager

    seen: list[Any] = []

    class Watch:
        @contextmanager
        def stage(self, name: str, tasks: int) -> Any:
            seen.append((name, tasks))

            class Stage:
                def update(self, tasks: int, rows: int, *, total: int | None = None) -> None:
                    seen.append((tasks, rows))

                def note(self, fact: str) -> None:
                    seen.append(fact)

            yield Stage()

    graph.export(io.StringIO(), progress=Watch())
    assert seen[0] == ("export", 5)
    assert seen[-1] == (5, 18)
    seen.clear()
    graph.export(tmp_path / "out", progress=Watch(), engine="local")
    assert seen[:2] == [("look at the tables", 1), "in process: as asked"]
    assert ("sort rows", 5) in seen
    assert seen[-1] == (5, 18)


def test_large_blobs_come_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.init(tmp_path / "g.omni", "node Doc { k: String @key a: Blob? b: Blob? }")
    statements = " ".join(f'insert Doc {{ k: "{n}", a: $x, b: $x }}' for n in range(9))
    graph.mutate(f'query q($x: Blob) {{ {statements} insert Doc {{ k: "z" }} }}', {"x": "base64:" + "QUJD" * 100})
    monkeypatch.setattr(partitions, "BATCH_BYTES", 2 * 600)
    table = graph._core.open_table(graph.snapshot().pins["node:Doc"])
    (group,) = list_fragment_groups(table)
    address = table_address(table)
    batches = list(partitions.scan_group(address, group.fragment_ids, ["id", "a", "b"]))
    assert sum(batch.num_rows for batch in batches) == 10
    assert max(batch.num_rows for batch in batches) <= 2
    assert partitions.stored_bytes(table) > 0
    assert len(streamed(graph)) == 10


# ---- Sorting more lines than memory takes: whatever the sizes, the order is that of the ids


def batches(ids: list[str], size: int) -> list[pa.RecordBatch]:
    lines = [f"line of {name}\n" for name in ids]
    table = pa.table({"id": ids, "line": lines}).cast(LINES)
    return table.to_batches(max_chunksize=size)


def text(blocks: list[pa.RecordBatch]) -> str:
    return b"".join(bytes(line_bytes(block)) for block in blocks).decode()


IDS = [f"{number}{tail}" for number in range(50) for tail in ("", "é", "🦊", "\uffff")]


def shuffled() -> list[str]:
    ids = list(IDS)
    random.Random(7).shuffle(ids)
    return ids


@pytest.mark.parametrize("run_bytes", [1, 500, 20_000, 10**9])
@pytest.mark.parametrize("block_bytes", [1, 300, 10**6])
def test_lines_come_by_ascending_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int, block_bytes: int
) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(files, "MAX_MERGED_RUNS", 3)
    found = list(sorted_blocks(batches(shuffled(), 20), str(tmp_path), run_bytes))
    assert text(found) == "".join(f"line of {name}\n" for name in sorted(IDS))
    assert list(tmp_path.iterdir()) == []


def test_runs_stay_until_they_are_removed(tmp_path: Path) -> None:
    runs = write_runs(batches(shuffled(), 20), str(tmp_path), 1500)
    assert len(runs) > 3
    once, again = text(list(merged_blocks(runs))), text(list(merged_blocks(runs)))
    assert once == again == "".join(f"line of {name}\n" for name in sorted(IDS))


def test_nothing_to_sort_is_nothing(tmp_path: Path) -> None:
    assert list(sorted_blocks([], str(tmp_path))) == []
    assert list(sorted_blocks(batches(["a"], 1)[:0], str(tmp_path))) == []
    assert write_runs([], str(tmp_path)) == []
    assert list(merged_blocks([])) == []


# ---- Exports through Spark give what exports in process give


def test_an_export_on_spark_is_the_one_of_this_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = world(tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.setattr(export_module, "_MIN_TASK_ROWS", 1)
    monkeypatch.setattr(export_module, "_MAX_TASK_ROWS", 1)
    whole = io.StringIO()
    graph.export(whole)
    expected = graph.export(folder / "local", format="parquet", engine="local")

    one = graph.export(folder / "all.jsonl", spark=spark)
    parts = graph.export(folder / "parts", parts=True, spark=spark)
    files = graph.export(folder / "parquet", format="parquet", engine="spark")

    assert (folder / "all.jsonl").read_bytes().decode() == whole.getvalue()
    lines = [line for path in parts.files for line in lines_of(Path(path).read_text("utf-8"))]
    assert sorted(lines, key=key_of) == lines_of(whole.getvalue())
    for result in (one, parts, files):
        assert (result.nodes, result.edges) == (expected.nodes, expected.edges)
    for name in ("nodes/Thing", "nodes/Slot", "nodes/Empty", "edges/Near"):
        local, there = (pq.read_table(folder / "local" / name), pq.read_table(folder / "parquet" / name))
        assert there.sort_by("id").equals(local.sort_by("id"))
    assert sorted(path.name for path in folder.iterdir()) == ["all.jsonl", "local", "parquet", "parts"]
    with pytest.raises(BadRequestError, match="replaces nothing"):
        graph.export(folder / "parts", spark=spark)
