"""A dataset as a folder of Parquet files: writing one, and finding a complete one again."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

_STATS = "stats.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A complete dataset on disk."""

    path: Path
    #: Names the generator and its arguments; equal stamps mean equal content.
    stamp: str
    #: Rows per type.
    nodes: dict[str, int]
    edges: dict[str, int]

    @property
    def schema_path(self) -> Path:
        """The schema of the graph."""
        return self.path / "schema.pg"

    def node_path(self, type_name: str) -> Path:
        """The rows of a node type."""
        return self.path / "nodes" / f"{type_name}.parquet"

    def edge_path(self, type_name: str) -> Path:
        """The rows of an edge type."""
        return self.path / "edges" / f"{type_name}.parquet"


def read_dataset(path: Path) -> Dataset | None:
    """The dataset in a folder, or None when there is no complete one."""
    stats = path / _STATS
    if not stats.exists():
        return None
    body = json.loads(stats.read_text(encoding="utf-8"))
    nodes, edges = ({name: table["rows"] for name, table in body[kind].items()} for kind in ("nodes", "edges"))
    return Dataset(path=path, stamp=body["stamp"], nodes=nodes, edges=edges)


@dataclass(slots=True)
class DatasetWriter:
    """Writes one dataset, replacing what the folder held. Refuses repeated keys and dangling edges."""

    path: Path
    stamp: str
    schema: str
    _keys: dict[str, pa.Array] = field(default_factory=dict)
    _tables: dict[str, dict[str, dict[str, object]]] = field(default_factory=lambda: {"nodes": {}, "edges": {}})

    def __post_init__(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        for kind in self._tables:
            (self.path / kind).mkdir(parents=True)
        (self.path / "schema.pg").write_text(self.schema.strip() + "\n", encoding="utf-8")

    def node(self, type_name: str, table: pa.Table) -> None:
        """Write the nodes of a type."""
        keys = table.column(0).combine_chunks()
        if pc.count_distinct(keys).as_py() != table.num_rows:
            raise ValueError(f"{type_name}: repeated keys")
        self._keys[type_name] = keys
        self._write("nodes", type_name, table)

    def edge(self, type_name: str, source: str, target: str, table: pa.Table) -> None:
        """Write the edges of a type, which lead from one written node type to another."""
        for column, end in (("from", source), ("to", target)):
            if not pc.all(pc.is_in(table[column], value_set=self._keys[end]), min_count=0).as_py():
                raise ValueError(f"{type_name}.{column}: no such {end}")
        self._write("edges", type_name, table)

    def close(self) -> Dataset:
        """Mark the folder complete."""
        text = json.dumps({"stamp": self.stamp, **self._tables}, indent=1)
        (self.path / _STATS).write_text(text + "\n", encoding="utf-8")
        dataset = read_dataset(self.path)
        assert dataset is not None, "its mark was written a line ago"
        return dataset

    def _write(self, kind: str, type_name: str, table: pa.Table) -> None:
        path = self.path / kind / f"{type_name}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 18)
        self._tables[kind][type_name] = {"rows": table.num_rows, "content_sha256": content_hash(table)}


def content_hash(table: pa.Table) -> str:
    """A hash of the rows, independent of the pyarrow release that writes the Parquet file."""
    plain = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain.schema) as stream:
        stream.write_table(plain, max_chunksize=1 << 16)
    digest = hashlib.sha256(str(plain.schema).encode())
    digest.update(sink.getvalue())
    return digest.hexdigest()
