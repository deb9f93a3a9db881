"""Blobs of a graph on S3, and external ones that lie there."""

from __future__ import annotations

import json
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from omnigraph.api.results import BlobKind
from omnigraph.errors import ExternalBlobPolicyError, ExternalBlobSourceError
from omnigraph.graph.graph import Graph

SCHEMA = "node Paper { doi: String @key  scan: Blob? }"
ADD = "query q($d: String, $s: Blob) { insert Paper { doi: $d, scan: $s } }"
DATA = bytes(range(256)) * 1_000


def test_blobs_are_copied_from_s3_or_referred_to(s3_root: str, tmp_path: Path) -> None:
    bucket = s3_root.rpartition("/")[0]
    key = "out side/a+b.bin"
    obstore.put(from_url(bucket), key, DATA)
    uri = f"{bucket}/{key.replace(' ', '%20')}"
    bases = [f"{bucket}/out%20side"]
    with Graph.init(s3_root, SCHEMA, external_blobs=bases) as graph:
        graph.mutate(ADD, {"d": "copied", "s": uri})
        assert graph.read_blob("node:Paper", "copied", "scan", offset=255, length=2) == b"\xff\x00"
        tag = graph.stat_blob("node:Paper", "copied", "scan").etag
        assert graph.read_blob("node:Paper", "copied", "scan") == DATA
        with pytest.raises(ExternalBlobSourceError):
            graph.mutate(ADD, {"d": "x", "s": f"{uri}-missing"})
        with pytest.raises(ExternalBlobPolicyError):
            graph.mutate(ADD, {"d": "x", "s": f"{bucket}/elsewhere"})
        lines = tmp_path / "in.jsonl"
        lines.write_text(json.dumps({"type": "Paper", "data": {"doi": "kept", "scan": uri}}))
        graph.load(lines, mode="overwrite", engine="local")
        info = graph.stat_blob("node:Paper", "kept", "scan")
        assert (info.kind, info.uri) == (BlobKind.EXTERNAL, uri)
        graph.load(lines, mode="merge", engine="local")
        assert graph.stat_blob("node:Paper", "kept", "scan").etag == tag
