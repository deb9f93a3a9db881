"""Moments: a commit is later than its parents, and the state at a moment that a branch has passed never changes."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes, Manifest
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.snapshot import branch_at, snapshot_of
from omnigraph.commit.targets import Target, resolve_target
from omnigraph.errors import BadRequestError, NotFoundError
from support.manifests import HASH, commit, create_manifest, open_manifest
from support.subtests import each_case

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def publish_at(
    manifest: Manifest, branch: str, commit_id: str, clock: int, **more: object
) -> GraphCommit:
    """A commit by a writer whose clock says `clock`."""
    expectations = Expectations(
        branch=branch, incarnation=manifest.state().head(branch).incarnation, schema_hash=HASH
    )

    def make(before: Head, version: int) -> GraphCommit:
        return commit(commit_id, version, before.commit_id, branch, created_at=clock, **more)

    return manifest.publish(expectations, Changes(), make)


def fork(manifest: Manifest, name: str, base: str) -> None:
    origin = snapshot_of(manifest.state().head(base))
    manifest.publish_branch(lambda _, version: branch_at(origin, name, version, name))


def seen_at(manifest: Manifest, branch: str, moment: int) -> str | None:
    """The commit that a read of a branch at a moment sees."""
    target = Target(branch=branch, as_of=EPOCH + timedelta(microseconds=moment))
    try:
        return resolve_target(manifest, manifest.state(), target).commit_id
    except NotFoundError:
        return None


@pytest.mark.parametrize("clock", [4, 5])
def test_a_commit_of_a_slow_clock_is_later_than_its_parent(tmp_path: Path, clock: int) -> None:
    manifest = create_manifest(tmp_path)
    made = publish_at(manifest, "main", "c2", clock)
    assert (made.created_at, made.written_at) == (6, clock)
    assert manifest.commit("c2") == made
    # Also for a view that has nothing in memory.
    again = publish_at(open_manifest(tmp_path), "main", "c3", 1)
    assert (again.created_at, again.written_at) == (7, 1)


def test_the_time_of_a_right_clock_is_kept(tmp_path: Path) -> None:
    made = publish_at(create_manifest(tmp_path), "main", "c2", 900)
    assert (made.created_at, made.written_at) == (900, None)


def test_a_merge_is_later_than_both_parents(tmp_path: Path) -> None:
    manifest = create_manifest(tmp_path)
    fork(manifest, "work", "main")
    publish_at(manifest, "work", "w1", 5_000)
    made = publish_at(manifest, "main", "m", 10, merged_parent_id="w1")
    assert (made.created_at, made.written_at) == (5_001, 10)


def test_a_first_commit_on_a_branch_is_later_than_where_it_began(tmp_path: Path) -> None:
    manifest = create_manifest(tmp_path)
    publish_at(manifest, "main", "c2", 5_000)
    fork(manifest, "work", "main")
    assert publish_at(manifest, "work", "w1", 10).created_at == 5_001


def test_a_recovered_commit_keeps_the_time_of_its_writer_beside_its_own(tmp_path: Path) -> None:
    made = publish_at(create_manifest(tmp_path), "main", "c2", 900, written_at=20)
    assert (made.created_at, made.written_at) == (900, 20)


@pytest.mark.parametrize("seed", range(6))
def test_a_moment_that_was_read_is_read_again_whatever_clocks_say(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    manifest = create_manifest(tmp_path)
    known: dict[tuple[str, int], str | None] = {}
    now = 10
    for number in range(25):
        now += chance.randrange(20)
        branches = sorted(manifest.state().heads)
        branch = chance.choice(branches)
        skewed = max(0, now + chance.choice((0, 0, -50, 30, -5)))
        if chance.random() < 0.1:
            fork(manifest, f"b{number}", branch)
        else:
            more: dict[str, object] = {}
            if chance.random() < 0.2:
                # Recovery publishes what a writer of long ago had begun.
                more["written_at"] = max(0, now - 300)
            if chance.random() < 0.2 and len(branches) > 1:
                other = chance.choice([name for name in branches if name != branch])
                more["merged_parent_id"] = manifest.state().head(other).commit_id
            publish_at(manifest, branch, f"n{number}", skewed, **more)
        for (name, moment), expected in known.items():
            assert seen_at(manifest, name, moment) == expected
        for name, head in manifest.state().heads.items():
            newest = manifest.commits()[head.commit_id].created_at
            for moment in (newest, chance.randrange(newest + 1)):
                known[name, moment] = seen_at(manifest, name, moment)


@each_case(
    "target",
    [
        {"as_of": 123},
        {"as_of": 1.5},
        {"as_of": True},
        {"as_of": date(2026, 5, 1)},
        {"as_of": "yesterday"},
        {"as_of": ""},
        {"as_of": b"2026-05-01"},
        {"version": True},
        {"version": False},
        {"version": 1.0},
        {"version": "1"},
        {"snapshot": 5},
        {"branch": None},
        {"branch": 7},
    ],
    ids=str,
)
def test_what_names_no_state_is_refused(target: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        Target(**target)  # type: ignore[arg-type]  # as a caller without a type checker


@each_case(
    "moment",
    [
        "2026-05-01",
        "2026-05-01T12:00:00Z",
        datetime(2026, 5, 1),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    ids=str,
)
def test_a_moment_without_a_zone_is_utc(moment: str | datetime) -> None:
    assert not Target(as_of=moment).is_head
