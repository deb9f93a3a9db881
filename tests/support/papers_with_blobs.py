"""A graph whose nodes and edges have blobs of every size, and ways to write and load them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omnigraph.api.results import BLOB_RANGE_BYTES
from omnigraph.graph.graph import Graph

SCHEMA = """
node Paper { doi: String @key  title: String?  scan: Blob?  extra: Blob? }
edge Cites: Paper -> Paper { page: Blob? }
"""

#: Bytes in the data file, in a file that several share, in a file of their own, and more than one range.
SIZES = {"small": 5, "packed": 100_000, "large": BLOB_RANGE_BYTES + 1_000}


def content(size: int) -> bytes:
    """Bytes that differ at every place."""
    return np.arange(size // 4 + 1, dtype=">u4").tobytes()[:size]


def text_of(data: bytes) -> str:
    return f"base64:{b64encode(data).decode()}"


def add_paper(graph: Graph, doi: str, scan: str | None, branch: str = "main") -> str:
    """Write a paper with this blob; the commit."""
    receipt = graph.mutate(
        "query add($doi: String, $scan: Blob?) { insert Paper { doi: $doi, scan: $scan } }",
        {"doi": doi, "scan": scan},
        branch=branch,
    )
    assert receipt.commit is not None
    return receipt.commit.commit_id


def paper(doi: str, **data: object) -> dict[str, object]:
    return {"type": "Paper", "data": {"doi": doi, **data}}


def citation(name: str, source: str, target: str, page: str | None) -> dict[str, object]:
    return {"edge": "Cites", "from": source, "to": target, "data": {"id": name, "page": page}}


def write_lines(path: Path, records: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path
