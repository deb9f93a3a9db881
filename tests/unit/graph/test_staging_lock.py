"""The lock of writers that stage: shared among them, exclusive for whoever removes unreferenced files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.transaction import Transaction
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import STAGING_LOCK, parse_location
from omnigraph.storage.locks import StagingLock


def _try_exclusive(root: Path) -> bool:
    descriptor = os.open(root / STAGING_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def test_writers_share_it_and_keep_others_out(tmp_path: Path) -> None:
    lock = StagingLock(parse_location(tmp_path))
    with lock.shared(), lock.shared():
        assert not _try_exclusive(tmp_path)
    assert _try_exclusive(tmp_path)


def test_an_object_store_has_none() -> None:
    with StagingLock(parse_location("s3://bucket/graph")).shared():
        pass


def test_a_mutation_holds_it_until_its_commit(tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "g.omni"
    seen: list[bool] = []
    commit = Transaction.commit

    def watched(transaction: Transaction) -> GraphCommit:
        seen.append(_try_exclusive(root))
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit", watched)
    with Graph.init(root, "node A { k: String @key }") as graph:
        graph.mutate('query q() { insert A { k: "x" } }')
    assert seen == [False]
    assert _try_exclusive(root)


@pytest.mark.parametrize("name", ["__lock", "__staging.lock"])
def test_lock_files_lie_beside_the_data(tmp_path: Path, name: str) -> None:
    root = tmp_path / "g.omni"
    with Graph.init(root, "node A { k: String @key }") as graph:
        graph.mutate('query q() { insert A { k: "x" } }')
    assert (root / name).exists()
