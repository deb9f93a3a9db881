"""What the driver of a load pays for scale: per fragment that tasks wrote, and per row that a merge replaces.

* appends of 1, 10 and 61 billion rows: tasks are left out, and their fragments of a million rows each are made up, so
  that only the driver works. Every step that it does between the last answer and the receipt, its memory, the manifest
* a million rows of which some are replaced, in order and at random: bytes of manifest per replaced row, the commit, and
  the answer of the task, as earlier releases did it and as it is done now; then after a compaction
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.pipeline.keys import key_scans, text_key
from omnigraph.storage.datasets.compaction import plan_compaction, run_compaction_task, stage_compaction
from omnigraph.storage.datasets.fragments import (
    KeptIds,
    delete_offsets,
    fragment_sizes,
    stage_replacement,
    write_replacing,
    write_rows,
)
from omnigraph.storage.datasets.staged import (
    check_written,
    close_private,
    commit_staged,
    create_table,
    open_private,
    stage_append,
    stage_fragments,
    with_checksums,
)
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.location import manifest_name, parse_location
from omnigraph.storage.objects import ControlObjects

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "edges/00000000000000aa"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.utf8(), nullable=False),
        pa.field("src", pa.utf8(), nullable=False),
        pa.field("dst", pa.utf8(), nullable=False),
        pa.field("since", pa.int32()),
    ]
)
FRAGMENT_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--fragments", default="1000,10000,61000", help="sizes of the appends")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the merged table")
    parser.add_argument("--append", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.append is not None:
        print(json.dumps(append_many(options.append)))
        return
    figures: dict[str, Any] = {"appends": [], "merges": []}
    for count in map(int, options.fragments.split(",")):
        figures["appends"].append(in_a_process_of_its_own(count))
        show(f"append of {count:,} fragments", figures["appends"][-1])
    for name, wanted in replaced_rows(options.rows).items():
        figures["merges"].append({"rows": name, **merge_many(options.rows, wanted)})
        show(f"merge of {name}", figures["merges"][-1])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def show(title: str, figures: dict[str, Any]) -> None:
    print(title)
    for name, value in figures.items():
        shown = value if isinstance(value, str) else f"{value:,.4g}" if value < 1 else f"{value:,.1f}"
        print(f"  {name:<44} {shown:>16}")


# ---- appends


def in_a_process_of_its_own(count: int) -> dict[str, Any]:
    """Memory is that of a whole process."""
    done = subprocess.run(
        [sys.executable, __file__, "--append", str(count)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def made_up(table: Table, count: int) -> list[str]:
    """Answers of tasks about fragments that nobody wrote, with the metadata of one that somebody did."""
    (text,) = write_rows(table, edges([0]).to_batches())
    body = json.loads(text)
    found = []
    for _ in range(count):
        name = f"{uuid4().hex}.lance"
        body["files"][0] |= {"path": name, "file_size_bytes": 40_000_000}
        body |= {"physical_rows": FRAGMENT_ROWS, "checksums": {f"data/{name}": [40_000_000, 1]}}
        found.append(json.dumps(body))
    return found


def append_many(count: int) -> dict[str, float]:
    """Every step of the driver, in its order."""
    figures: dict[str, float] = {"rows (millions)": count * FRAGMENT_ROWS / 1e6}
    with tempfile.TemporaryDirectory() as folder:
        location = parse_location(folder)
        objects = ControlObjects(location, durable=False)
        table = create_table(location, PATH, SCHEMA)
        before = peak_mb()
        answers = made_up(table, count)
        figures["answers (MB)"] = sum(map(len, answers)) / 1e6
        with timed(figures, "stage"):
            staged = stage_fragments(table, answers)
        with timed(figures, "private version"):
            private = open_private(staged)
        with timed(figures, "fragment sizes"):
            fragment_sizes(private.table)
        with timed(figures, "plan scans of keys"):
            key_scans(private.table, private.new_fragments, text_key("id"))
        close_private(private, objects)
        with timed(figures, "complete the checksums"):
            staged = with_checksums(staged)
        with timed(figures, "look whether files are whole"):
            check_written(location, staged)
        with timed(figures, "commit"):
            table = commit_staged(staged)
        figures["manifest (MB)"] = manifest_bytes(table) / 1e6
        record = Path(table._dataset.uri) / "_checksums" / f"{table.version}.json"
        figures["checksum record (MB)"] = record.stat().st_size / 1e6
        with timed(figures, "open again"):
            again = TableStore(location).open(PATH)
        with timed(figures, "list fragments"):
            fragment_sizes(again)
        with timed(figures, "commit of one more row"):
            commit_staged(stage_append(again, edges([1])))
        figures["driver memory above start (MB)"] = peak_mb() - before
    return figures


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- merges


def replaced_rows(rows: int) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    chance = np.random.default_rng(1)
    return {
        "30 %, neighbours": np.arange(rows * 3 // 10),
        "30 %, at random": chance.permutation(rows)[: rows * 3 // 10],
        "1 %, at random": chance.permutation(rows)[: rows // 100],
        "all, at random": chance.permutation(rows),
    }


def edges(numbers: Any) -> pa.Table:
    ids = pa.array(np.char.add("e", np.asarray(numbers).astype(str)))
    since = pa.array(np.zeros(len(ids), np.int32))
    return pa.table([ids, ids, ids, since], schema=SCHEMA)


def merge_many(rows: int, wanted: Any) -> dict[str, float]:
    """The same merge twice, into tables that were filled alike."""
    figures: dict[str, float] = {"replaced rows": len(wanted)}
    for way, write in (("before", write_as_before), ("now", write_now)):
        with tempfile.TemporaryDirectory() as folder:
            table = create_table(parse_location(folder), PATH, SCHEMA)
            table = commit_staged(stage_append(table, edges(np.arange(rows))))
            size = manifest_bytes(table)
            texts = write(table, wanted)
            figures[f"{way}: answer of the task (KB)"] = sum(map(len, texts)) / 1e3
            shrunk = {0: delete_offsets(table, 0, np.sort(wanted))}
            with timed(figures, f"{way}: commit"):
                table = commit_staged(stage_replacement(table, texts, shrunk))
            figures[f"{way}: manifest, bytes per row"] = (manifest_bytes(table) - size) / len(wanted)
            table = commit_staged(stage_append(table, edges([rows])))
            figures[f"{way}: manifest of the next version (KB)"] = manifest_bytes(table) / 1e3
            group = [item.fragment_id for item in table._dataset.get_fragments()]
            results = [run_compaction_task(task) for task in plan_compaction(table, [group])]
            exchange = stage_compaction(table, results)
            assert exchange is not None
            table = commit_staged(exchange)
            table = commit_staged(stage_append(table, edges([rows + 1])))
            figures[f"{way}: after a compaction as of now (KB)"] = manifest_bytes(table) / 1e3
    return figures


def write_as_before(table: Table, wanted: Any) -> list[str]:
    """In the order of the input, and all ids in the metadata."""
    (text,) = write_rows(table, edges(wanted).to_batches())
    metadata = FragmentMetadata.from_json(text)
    ids = RowIdSequence(pa.array(wanted.astype(np.uint64)))
    metadata.row_id_meta = ids.to_inline_metadata()
    return [json.dumps(metadata.to_json() | {"checksums": json.loads(text)["checksums"]})]


def write_now(table: Table, wanted: Any) -> list[str]:
    ordered = np.sort(wanted)
    created = np.full(len(ordered), table.version, np.uint64)
    kept = KeptIds(ordered.astype(np.uint64), created)
    return write_replacing(table, edges(ordered), edges(ordered[:0]), kept)


def manifest_bytes(table: Table) -> int:
    return (Path(table._dataset.uri) / manifest_name(table.version)).stat().st_size


@contextmanager
def timed(figures: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    figures[f"{name} (s)"] = time.perf_counter() - began


if __name__ == "__main__":
    main()
