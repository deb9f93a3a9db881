"""Questions about branches and their past that a graph has to answer as its model does."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from typing import Any

import lance
import pytest

from omnigraph.api.results import MergeResult
from omnigraph.branches.changes import Change
from omnigraph.commit.rows import TablePin
from omnigraph.errors import MergeConflict, MergeConflictsError, NotFoundError
from support.branch_model.model import (
    KNOWS,
    NODES,
    PERSON,
    PROPERTIES,
    UNDECIDED,
    Commit,
    Difference,
    MergePlan,
    Place,
    Row,
    State,
    copy_state,
    count_changes,
    differences,
    is_ordered,
    make_row,
    source_of,
    target_of,
)
from support.branch_model.operations import from_lines
from support.branch_model.writes import BranchWrites


def as_differences(changes: Iterable[Change]) -> dict[Place, Difference]:
    """Changes as the model has them; their operation, number and order are checked on the way."""
    told = list(changes)
    found = {(f"{it.kind}:{it.type_name}", it.id): Difference(it.before, it.after) for it in told}
    assert len(found) == len(told)
    assert [str(it.op) for it in told] == [it.op for it in found.values()]
    assert is_ordered([(it.kind == "edge", int(it.type_id), it.id) for it in told])
    return found


def apply(state: State, changed: dict[Place, Difference]) -> State:
    """The state after some changes, each of which has to fit."""
    state = copy_state(state)
    for (key, entity_id), change in changed.items():
        assert state[key].pop(entity_id, None) == change.before
        if change.after is not None:
            state[key][entity_id] = change.after
    return state


class BranchChecks(BranchWrites):
    """Asks the graph, and compares."""

    # ---- merging

    def check_conflicts(
        self, plan: MergePlan, source: str, target: str, found: tuple[MergeConflict, ...]
    ) -> None:
        """The conflicts are those that the model found."""
        rows = [it for it in found if it.kind.is_about_a_row]
        assert {(str(it.kind), it.type_key, it.entity_id) for it in rows} == plan.rows
        assert len(rows) == len(plan.rows)
        ours, theirs = self.model.state(target), self.model.state(source)
        for it in rows:
            assert it.entity_id is not None
            assert it.ours == ours[it.type_key].get(it.entity_id)
            assert it.theirs == theirs[it.type_key].get(it.entity_id)
            base = plan.base[it.type_key].get(it.entity_id)
            assert it.base == (None if base is UNDECIDED else base)
        others: dict[str, list[MergeConflict]] = {}
        for it in found:
            if not it.kind.is_about_a_row:
                others.setdefault(str(it.kind), []).append(it)
        orphans = others.pop("orphan_edge", [])
        assert Counter((it.type_key, it.entity_id) for it in orphans) == Counter(plan.orphans)
        # One of the holders is named, and every tuple at least once.
        uniques = {(it.type_key, it.entity_id) for it in others.pop("unique_violation", [])}
        assert uniques <= {(key, it) for key, ids in plan.shared for it in ids}
        assert all(uniques & {(key, it) for it in ids} for key, ids in plan.shared)
        crowded = others.pop("cardinality_violation", [])
        assert len(crowded) == len(plan.crowded)
        for key, name in plan.crowded:
            assert any(it.type_key == key and repr(name) in it.message for it in crowded)
        assert not others

    def check_outcome(self, plan: MergePlan, target: str, result: MergeResult) -> None:
        assert result.outcome == plan.outcome
        changed = count_changes(differences(self.model.state(target), plan.result))
        told = {it.type_key: (it.inserted, it.updated, it.deleted) for it in result.changes}
        assert told == changed

    def run_merge(
        self, source: str, target: str, strategy: str | None, delete: bool = False
    ) -> None:
        """A merge does what the model expects; on conflicts the target stays (the invariant looks at it)."""
        plan = self.model.plan_merge(source, target, strategy)
        head = self.graph.snapshot(target)

        def merge() -> MergeResult:
            return self.graph.merge(
                source, target, strategy=strategy, delete_branch=delete, engine="local"
            )

        if not plan.is_possible:
            with pytest.raises(MergeConflictsError) as caught:
                merge()
            self.check_conflicts(plan, source, target, caught.value.conflicts)
            assert caught.value.total == len(caught.value.conflicts)
            assert self.graph.snapshot(target) == head
            return
        result = merge()
        self.check_outcome(plan, target, result)
        if plan.outcome == "already_up_to_date":
            assert result.commit is None
        else:
            if plan.outcome == "fast_forward":
                assert plan.result == self.model.state(source)
            assert result.commit is not None
            assert result.commit.merge_strategy == strategy
            merged_parent = self.model.branches[source].head
            self.accept(target, result.commit, plan.result, merged_parent)
        assert result.branch_deleted == (self.model.can_delete(source) if delete else None)
        if result.branch_deleted:
            self.model.delete(source)
            return
        again = self.graph.merge(source, target, strategy=strategy, engine="local")
        assert (again.outcome, again.commit, again.changes) == ("already_up_to_date", None, ())

    # ---- looking back

    def export(self, **target: Any) -> State:
        out = io.StringIO()
        self.graph.export(out, **target)
        return from_lines(out.getvalue())

    def check_snapshot(self, commit: Commit) -> None:
        assert self.export(snapshot=commit.id) == commit.state

    def check_entities(self, commit: Commit, name: str) -> None:
        text = (
            "query q() { match { $p: Person $p knows $q } "
            "return { $p.name as p, $q.name as q, $q.age as age } }"
        )
        people, knows = commit.state[PERSON], commit.state[KNOWS].values()
        pairs = {(source_of(row), target_of(row)) for row in knows}
        found = self.graph.query(text, snapshot=commit.id).to_pylist()
        assert {(it["p"], it["q"], it["age"]) for it in found} == {
            (p, q, people[q]["properties"]["age"]) for p, q in pairs
        }
        one = self.graph.entity_at(PERSON, name, snapshot=commit.id)
        assert one == ({"id": name, **people[name]} if name in people else None)

    def check_version(self, where: str, version: int) -> None:
        """A branch right after any publish of the graph; the future and the time before it are errors."""
        commit = self.model.at_version(where, version)
        if commit is None:
            with pytest.raises(NotFoundError):
                self.export(branch=where, version=version)
        else:
            assert self.export(branch=where, version=version) == commit.state

    def check_diff(self, one: str, other: str) -> None:
        def state(name: str) -> State:
            branch = self.model.branches.get(name)
            return self.model.commits[name if branch is None else branch.head].state

        wanted = differences(state(one), state(other))
        diff = self.graph.diff(one, other, engine="local")
        told = {(f"{it.kind}:{it.type_name}", it.id): it for it in diff}
        assert len(told) == len(diff) == len(diff.changes)
        assert {place: (str(it.op), it.endpoints) for place, it in told.items()} == {
            place: (it.op, it.ends) for place, it in wanted.items()
        }
        assert apply(state(one), {place: wanted[place] for place in told}) == state(other)
        keys = [key for key, _ in told]
        assert keys == sorted(keys)
        stats = diff.stats
        counts = Counter(it.op for it in wanted.values())
        assert stats.inserts == counts["insert"]
        assert stats.updates == counts["update"]
        assert stats.deletes == counts["delete"]
        assert sorted(stats.types_affected) == sorted({key for key, _ in wanted})

    def check_changes(self, commit: Commit, limit: int) -> None:
        """The pages of what a commit did."""
        if commit.parent is None:
            return
        changes: list[Change] = []
        token = None
        while True:
            page = self.graph.changes(commit.id, limit=limit, page_token=token)
            assert page.cause.graph_commit_id == commit.id
            assert page.cause.parent_commit_id == commit.parent
            assert page.cause.merged_parent_commit_id == commit.merged_parent
            assert len(page.changes) <= limit
            changes += page.changes
            token = page.next_page_token
            if token is None:
                break
        assert as_differences(changes) == self.model.changes(commit)

    # ---- following

    def follow(
        self, branch: str, told: Commit, limit: int, max_commits: int, **start: str
    ) -> tuple[str, Commit]:
        """One poll tells what happened after a commit; its cursor, and the last commit that it told."""
        line = self.model.line(branch)
        place = next(number for number, it in enumerate(line) if it.id == told.id)
        expected = line[place + 1 : place + 1 + max_commits]
        blocks: dict[str, list[Change]] = {}
        state = told.state
        page = self.graph.feed(branch, limit=limit, max_commits=max_commits, **start)
        while True:
            for block in page.blocks:
                blocks.setdefault(block.cause.graph_commit_id, []).extend(block.changes)
            if page.next_page_token is None:
                break
            assert page.cursor is None
            page = self.graph.feed(
                branch, page_token=page.next_page_token, limit=limit, max_commits=max_commits
            )
        assert list(blocks) == [it.id for it in expected]
        for commit in expected:
            changes = as_differences(blocks[commit.id])
            assert changes == self.model.changes(commit)
            state = apply(state, changes)
            assert state == commit.state
        last = expected[-1] if expected else told
        assert page.caught_up == (last.id == line[-1].id)
        assert page.cursor is not None
        return page.cursor, last

    def replay(self, branch: str) -> None:
        """From the beginning of the graph to the head of a branch."""
        first, *_, newest = self.model.line(branch)
        _, last = self.follow(branch, first, 1000, 128, start="beginning")
        assert last == newest

    # ---- branches

    def rows(self, pin: TablePin) -> dict[str, Row]:
        """The rows of a table, read without the code under test."""
        uri = f"{self.graph.uri}/{pin.location}"
        uri = uri if pin.branch is None else f"{uri}/tree/{pin.branch}"
        found = lance.dataset(uri, version=pin.version).to_table().to_pylist()
        assert len(found) == pin.row_count
        names = PROPERTIES[pin.table_key]
        rows: dict[str, Row] = {}
        for row in found:
            ends = None if pin.table_key in NODES else (row["src"], row["dst"])
            rows[row["id"]] = make_row(pin.table_key, ends, **{it: row[it] for it in names})
        assert len(rows) == len(found)
        return rows

    def check_branch(self, name: str) -> None:
        pins = self.graph.snapshot(name).pins
        assert {str(key): self.rows(pin) for key, pin in pins.items()} == self.model.state(name)
        line = [commit.id for commit in self.model.line(name)]
        assert [commit.commit_id for commit in self.graph.commits(name)] == line[::-1]
