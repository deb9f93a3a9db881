"""What a cleanup keeps, and which rows the history needs: rules over small catalogs."""

from __future__ import annotations

from omnigraph.commit.rows import PublishedVersion, Tombstone, commit_row, version_row
from omnigraph.commit.snapshot import History, snapshot_at
from omnigraph.core.ids import TableKey
from omnigraph.maintenance.retention import Reason, RetentionPolicy, forgettable_rows, known_commits, reachable
from support.manifests import CITES, PAPER, commit, head, pin
from support.subtests import each_case

SECOND = 1_000_000


def version(item, graph_version: int, branch_key: str = "main") -> PublishedVersion:
    return PublishedVersion(pin=item, branch_key=branch_key, graph_version=graph_version)


def line(count: int) -> History:
    """Commits c1 to cN of main, one second apart; papers move with each, citations never."""
    commits = [commit(f"c{n}", n, f"c{n - 1}" if n > 1 else None, created_at=n * SECOND) for n in range(1, count + 1)]
    rows = [version(pin(PAPER, n), n) for n in range(1, count + 1)]
    rows.append(version(pin(CITES, 1, incarnation=2), 1))
    pins = {PAPER: pin(PAPER, count), CITES: pin(CITES, 1, incarnation=2)}
    return History(
        commits={item.commit_id: item for item in commits},
        versions=tuple(rows),
        tombstones=(),
        heads=(head("main", 1, count, f"c{count}", pins=pins),),
    )


def kept(past: History, keep: int | None = None, age_s: float | None = None, **more):
    age_us = None if age_s is None else int(age_s * SECOND)
    now = more.pop("now", max(c.created_at for c in past.commits.values()))
    return reachable(past, RetentionPolicy(keep=keep, age_us=age_us), now, **more)


@each_case(
    ("keep", "age_s", "expected"),
    [
        (1, None, {"c6"}),
        (3, None, {"c6", "c5", "c4"}),
        (99, None, {"c6", "c5", "c4", "c3", "c2", "c1"}),
        # The state of a moment is the commit before it.
        (None, 0, {"c6"}),
        (None, 0.5, {"c6", "c5"}),
        (None, 2.5, {"c6", "c5", "c4", "c3"}),
        (None, 99, {"c6", "c5", "c4", "c3", "c2", "c1"}),
        # With both, what either keeps.
        (4, 0.5, {"c6", "c5", "c4", "c3"}),
        (1, 1.5, {"c6", "c5", "c4"}),
    ],
)
def test_number_and_age_keep_the_newest_states(keep, age_s, expected):
    found = kept(line(6), keep, age_s)
    assert found.commits.keys() == expected
    versions = {int(item[1:]) for item in expected}
    assert found.versions["nodes/0000000000000001", None] == versions
    assert found.versions["nodes/0000000000000002", None] == {1}, "what never moves is needed by all"


def test_readers_keep_what_was_at_a_head_lately():
    found = kept(line(6), 1, reader_grace_us=2 * SECOND)
    assert found.commits.keys() == {"c6", "c5", "c4"}
    assert found.commits["c5"] == {Reason.READER}
    assert found.counts()["reader"] == 3


def test_a_clock_that_went_back_hides_no_young_commit():
    past = line(4)
    commits = dict(past.commits)
    commits["c3"] = commit("c3", 3, "c2", created_at=1)
    past = History(commits=commits, versions=past.versions, tombstones=(), heads=past.heads)
    assert kept(past, age_s=2.5).commits.keys() == {"c4", "c3", "c2"}


def test_what_interrupted_writes_name_stays():
    found = kept(line(6), 1, named=[("nodes/0000000000000001", None, 2), ("nodes/0000000000000007", "dev", 3)])
    assert found.versions["nodes/0000000000000001", None] == {6, 2}
    assert found.versions["nodes/0000000000000007", "dev"] == {3}


def with_branch(*, deleted: bool = False, merged: bool = False) -> History:
    """Main c1..c6; dev began at c2 (graph version 10) with d1 and d2; merged means that c6 took over d1."""
    past = line(6)
    commits = dict(past.commits)
    commits["d1"] = commit("d1", 11, "c2", "dev", created_at=7 * SECOND)
    commits["d2"] = commit("d2", 12, "d1", "dev", created_at=8 * SECOND)
    if merged:
        commits["c6"] = commit("c6", 13, "c5", created_at=9 * SECOND, merged_parent_id="d1")
    rows = [*past.versions]
    rows += [version(pin(PAPER, n, branch="dev"), n + 8, "dev~10") for n in (3, 4)]
    pins = {PAPER: pin(PAPER, 4, branch="dev"), CITES: pin(CITES, 1, incarnation=2)}
    dev = head(
        "dev",
        10,
        14 if deleted else 12,
        "d2",
        fork_commit_id="c2",
        fork_name="dev",
        base_key="main",
        pins={} if deleted else pins,
        deleted=deleted,
    )
    return History(commits=commits, versions=tuple(rows), tombstones=(), heads=(*past.heads, dev))


def test_a_branch_keeps_where_it_began_and_its_own_newest():
    found = kept(with_branch(), 1)
    assert found.commits["c2"] >= {Reason.FORK, Reason.MERGE_BASE}
    assert found.commits.keys() == {"c6", "d2", "c2"}
    assert found.versions["nodes/0000000000000001", None] == {6, 2}
    assert found.versions["nodes/0000000000000001", "dev"] == {4}


def test_the_number_counts_what_a_branch_inherited_too():
    assert kept(with_branch(), 3).commits.keys() == {"c6", "c5", "c4", "d2", "d1", "c2"}


def test_after_a_merge_the_merged_commit_is_the_base():
    found = kept(with_branch(merged=True), 1)
    assert found.commits["d1"] == {Reason.MERGE_BASE}
    assert found.versions["nodes/0000000000000001", "dev"] == {4, 3}


def test_a_deleted_branch_keeps_nothing():
    found = kept(with_branch(deleted=True), 1)
    assert found.commits.keys() == {"c6"}
    assert ("nodes/0000000000000001", "dev") not in found.versions


def test_a_dropped_type_stays_as_long_as_a_kept_commit_shows_it():
    past = line(6)
    stone = Tombstone(table_key=PAPER, incarnation=1, version=3, graph_version=4)
    rows = [row for row in past.versions if row.graph_version < 4]
    past = History(
        commits=past.commits,
        versions=tuple(rows),
        tombstones=(stone,),
        heads=(head("main", 1, 6, "c6", pins={CITES: pin(CITES, 1, incarnation=2)}),),
    )
    assert kept(past, 4).versions["nodes/0000000000000001", None] == {3}
    assert ("nodes/0000000000000001", None) not in kept(past, 3).versions


def test_many_branches_keep_every_commit_from_which_lines_part():
    commits = [commit("c0", 1, created_at=1)]
    heads = []
    for n in range(1, 130):
        commits.append(commit(f"c{n}", 2 * n, f"c{n - 1}", created_at=1))
        heads.append(head(f"b{n}", 2 * n + 1, 2 * n + 1, f"c{n // 2}", fork_commit_id=f"c{n // 2}"))
    heads.append(head("main", 1, 300, "c129"))
    past = History(commits={item.commit_id: item for item in commits}, versions=(), tombstones=(), heads=tuple(heads))
    found = kept(past, 1)
    assert found.commits.keys() == {f"c{n // 2}" for n in range(1, 130)} | {"c129"}


# ---- forgetting commits


def forgotten(past: History, keep: int) -> History:
    """The history after commits that are not needed were forgotten."""
    known = known_commits(past, kept(past, keep))
    gone = set(forgettable_rows(past, known))

    def row_id(item: PublishedVersion) -> str:
        return version_row(item.pin, item.branch_key, item.graph_version)["object_id"]

    left = History(
        commits={c: item for c, item in past.commits.items() if commit_row(item)["object_id"] not in gone},
        versions=tuple(item for item in past.versions if row_id(item) not in gone),
        tombstones=tuple(
            item
            for item in past.tombstones
            if f"tombstone:{item.table_key}#{item.incarnation}@v={item.version}" not in gone
        ),
        heads=past.heads,
    )
    for c in left.commits:
        assert snapshot_at(left, c) == snapshot_at(past, c), "what stays means what it meant"
    return left


@each_case(
    ("past", "keep", "expected"),
    [
        (line(6), 2, {"c1", "c5", "c6"}),
        (with_branch(), 1, {"c1", "c2", "c3", "c4", "c5", "c6", "d1", "d2"}),
        # The way from the base to both heads, and where the branch began.
        (with_branch(merged=True), 1, {"c1", "c2", "c6", "d1", "d2"}),
        (with_branch(deleted=True), 1, {"c1", "c6"}),
    ],
    ids=["line", "branch", "merged", "deleted"],
)
def test_history_begins_at_the_oldest_commit_that_is_needed(past, keep, expected):
    assert forgotten(past, keep).commits.keys() == expected


def test_the_schema_of_a_kept_commit_is_never_forgotten():
    past = line(6)
    commits = {
        c: commit(c, item.graph_version, item.parent_id, created_at=1, schema_hash=f"h{n // 3}")
        for n, (c, item) in enumerate(past.commits.items())
    }
    commits["c4"] = commit("c4", 4, "c3", created_at=1, schema_hash="h1", schema_source="text")
    past = History(commits=commits, versions=past.versions, tombstones=(), heads=past.heads)
    assert forgotten(past, 1).commits.keys() == {"c1", "c4", "c6"}


def test_a_dropped_type_keeps_one_row_so_that_its_directory_is_not_used_again():
    article = TableKey("node:Article")
    past = line(6)
    rows = (*past.versions, *(version(pin(article, n, incarnation=9), n) for n in (1, 2)))
    stone = Tombstone(table_key=article, incarnation=9, version=2, graph_version=3)
    past = History(commits=past.commits, versions=rows, tombstones=(stone,), heads=past.heads)
    gone = forgettable_rows(past, known_commits(past, kept(past, 2)))
    assert not [item for item in gone if item.startswith(("table:", "tombstone:"))]
    assert "version:node:Article#9@main@v=2" not in gone
    assert "commit:c2" in gone
    assert "version:node:Paper#1@main@v=2" in gone
