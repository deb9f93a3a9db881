"""Every way to write to a branch, on the graph and on its model at once: both accept it, or both refuse."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.api.results import MergeResult
from omnigraph.branches.changes import Change
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import (
    BadRequestError,
    ConflictKind,
    LoadKeyConflictError,
    LoadRejectedError,
    MergeConflict,
    MergeConflictsError,
    NotFoundError,
)
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.optimize import compact_tables
from omnigraph.pipeline.workers import LocalWorkers, Silent
from omnigraph.storage.datasets.compaction import choose_rewrites, fragment_facts
from omnigraph.storage.datasets.staged import commit_staged
from support.branch_model.model import (
    KNOWS,
    NODES,
    PERSON,
    PROPERTIES,
    RATES,
    TEAM,
    UNDECIDED,
    Commit,
    Difference,
    GraphModel,
    MergePlan,
    Operation,
    Place,
    Record,
    Row,
    State,
    as_line,
    copy_state,
    count_changes,
    differences,
    from_lines,
    is_legal,
    is_ordered,
    key_of,
    make_row,
    source_of,
    target_of,
    without_nodes,
)
from support.graphs import fork


class BranchWrites:
    """A graph and its model."""

    root: str
    graph: Graph
    model: GraphModel

    def accept(self, branch: str, commit: GraphCommit, state: State, merged_parent: str | None = None) -> None:
        """A commit that the graph made; its place in the history is what the model expects."""
        known = self.model.add(branch, commit.commit_id, state, merged_parent)
        assert (commit.graph_version, commit.parent_id) == (known.version, known.parent)
        assert (commit.branch, commit.merged_parent_id) == (branch, merged_parent)

    def mutate(
        self,
        branch: str,
        text: str,
        params: dict[str, Any],
        after: State,
        new_edges: dict[str, list[Row]] | None = None,
    ) -> None:
        """The graph accepts what is legal and refuses the rest; edges get their ids from it."""
        new_edges = new_edges or {}
        wanted = copy_state(after)
        for key, rows in new_edges.items():
            wanted[key] |= {f"new {number}": row for number, row in enumerate(rows)}
        if not is_legal(wanted):
            with pytest.raises(BadRequestError):
                self.graph.mutate(text, params, branch=branch)
            return
        commit = self.graph.mutate(text, params, branch=branch).commit
        if commit is None:
            assert wanted == self.model.state(branch)
            return
        after = copy_state(after)
        if new_edges:
            old = self.model.state(branch)
            told = self.graph.changes(commit.commit_id, kinds=["edge"], ops=["insert"]).changes
            for it in told:
                key = f"edge:{it.type_name}"
                assert it.after is not None
                assert it.id not in old[key]
                after[key][it.id] = it.after
            made = {key: len(after[key]) - len(old[key]) for key in new_edges}
            assert made == {key: len(rows) for key, rows in new_edges.items()}
            for key, rows in new_edges.items():
                mine = [after[key][entity_id] for entity_id in after[key].keys() - old[key].keys()]
                assert sorted(map(str, mine)) == sorted(map(str, rows))
        self.accept(branch, commit, after)

    def insert_person(self, where: str, **values: Any) -> None:
        after = copy_state(self.model.state(where))
        after[PERSON][values["name"]] = make_row(PERSON, **values)
        text = (
            "query q($name: String, $age: I32?, $note: String?, $tags: [String]?, $badge: I32?) "
            "{ insert Person { name: $name, age: $age, note: $note, tags: $tags, badge: $badge } }"
        )
        self.mutate(where, text, values, after)

    def insert_team(self, where: str, **values: Any) -> None:
        after = copy_state(self.model.state(where))
        after[TEAM][values["name"]] = make_row(TEAM, **values)
        text = (
            "query q($name: String, $city: String?, $size: I32?) "
            "{ insert Team { name: $name, city: $city, size: $size } }"
        )
        self.mutate(where, text, values, after)

    def meet(self, where: str, name: str, friend: str, since: int | None) -> None:
        """A new version of a person, and an edge to somebody who may be missing."""
        after = copy_state(self.model.state(where))
        after[PERSON][name] = make_row(PERSON, name=name, age=since)
        text = (
            "query q($n: String, $f: String, $s: I32?) { insert Person { name: $n, age: $s } "
            "insert Knows { from: $n, to: $f, since: $s } }"
        )
        edges = {KNOWS: [make_row(KNOWS, (name, friend), since=since)]}
        self.mutate(where, text, {"n": name, "f": friend, "s": since}, after, edges)

    def join(self, where: str, key: str, name: str, teams: list[str]) -> None:
        """Edges of a type that has bounds per source."""
        edge = key.partition(":")[2]
        statements = [f"insert {edge} {{ from: $n, to: {json.dumps(team)} }}" for team in teams]
        text = f"query q($n: String) {{ {' '.join(statements)} }}"
        edges = {key: [make_row(key, (name, team)) for team in teams]}
        self.mutate(where, text, {"n": name}, self.model.state(where), edges)

    def rate(self, where: str, name: str, teams: list[str], stars: int | None) -> None:
        """Edges that have a key: of what one names twice, and of what is there, the last one stays."""
        after = copy_state(self.model.state(where))
        after[RATES] |= {key_of((name, team)): make_row(RATES, (name, team), stars=stars) for team in teams}
        statements = [f"insert Rates {{ from: $n, to: {json.dumps(team)}, stars: $s }}" for team in teams]
        text = f"query q($n: String, $s: I32?) {{ {' '.join(statements)} }}"
        self.mutate(where, text, {"n": name, "s": stars}, after)

    def update_people(self, where: str, age: int | None, note: str | None, badge: int | None) -> None:
        after = copy_state(self.model.state(where))
        for name, row in after[PERSON].items():
            if age is not None and row["properties"]["age"] == age:
                new = {**row["properties"], "note": note, "badge": badge}
                after[PERSON][name] = {"properties": new}
        text = "query q($a: I32?, $n: String?, $b: I32?) { update Person set { note: $n, badge: $b } where age = $a }"
        self.mutate(where, text, {"a": age, "n": note, "b": badge}, after)

    def delete_people(self, where: str, name: str, badge: int | None) -> None:
        """People with a name or a badge, and every edge at them."""
        state = self.model.state(where)
        gone = {
            it
            for it, row in state[PERSON].items()
            if it == name or (badge is not None and row["properties"]["badge"] == badge)
        }
        text = "query q($n: String, $b: I32?) { delete Person where name = $n delete Person where badge = $b }"
        self.mutate(where, text, {"n": name, "b": badge}, without_nodes(state, PERSON, gone))

    def delete_team(self, where: str, name: str) -> None:
        after = without_nodes(self.model.state(where), TEAM, {name})
        text = "query q($n: String) { delete Team where name = $n }"
        self.mutate(where, text, {"n": name}, after)

    def delete_edges(self, where: str, key: str, end: str, name: str) -> None:
        after = copy_state(self.model.state(where))
        after[key] = {it: row for it, row in after[key].items() if row["endpoints"][end] != name}
        text = f"query q($n: String) {{ delete {key.partition(':')[2]} where {end} = $n }}"
        self.mutate(where, text, {"n": name}, after)

    # ---- loading

    def load(self, where: str, mode: str, rows: list[Record], base: str | None = None) -> None:
        """A load does what its mode says, or nothing at all."""
        before = self.model.state(where if base is None else base)
        after = copy_state(before)
        if mode == "overwrite":
            after |= {key: {} for key, _, _ in rows}
        is_allowed = True
        for key, entity_id, row in rows:
            is_allowed &= mode == "merge" or entity_id not in after[key]
            after[key][entity_id] = row
        source = Path(self.root, "rows.jsonl")
        source.write_text("\n".join(as_line(*it) for it in rows), encoding="utf-8")

        def run() -> GraphCommit:
            result = self.graph.load(source, mode=mode, branch=where, base=base, engine="local")
            assert result.branch_created == (base is not None)
            assert result.commit is not None
            return result.commit

        if not is_allowed or not is_legal(after):
            with pytest.raises((LoadRejectedError, LoadKeyConflictError)):
                run()
            return
        commit = run()
        if base is not None:
            # The branch and its first commit are one publish.
            origin = self.model.branches[base]
            self.model.create(where, origin.head, origin.incarnation)
            self.model.version -= 1
        self.accept(where, commit, after)

    def load_a_changed_copy(self, where: str, drop: int, rows: list[Record]) -> None:
        """An overwrite with nearly the same rows, most of which are thereby written again unchanged."""
        state = copy_state(self.model.state(where))
        for key, entity_id, row in rows:
            state[key][entity_id] = row
        lines = [(key, it, row) for key, some in state.items() for it, row in some.items()]
        if lines:
            lines.pop(drop % len(lines))
        self.load(where, "overwrite", lines)

    def run(self, where: str, operations: list[Operation]) -> None:
        for name, values in operations:
            getattr(self, name)(where, **values)

    # ---- branches and tables

    def create_branch(self, name: str, where: str) -> None:
        self.graph.create_branch(name, where)
        origin = self.model.branches[where]
        self.model.create(name, origin.head, origin.incarnation)

    def ensure_indices(self, where: str) -> None:
        commit = self.graph.ensure_indices(where).commit
        if commit is not None:
            self.accept(where, commit, self.model.state(where))

    def compact(self, where: str, key: TableKey) -> None:
        """One table with fewer fragments, published as the commit protocol would."""
        graph, snapshot = self.graph, self.graph.snapshot(where)
        environment, pin = graph._core.environment, snapshot.pins[key]
        table = fork(graph, where, key)
        groups = choose_rewrites(fragment_facts(table))
        rewritten = compact_tables(LocalWorkers(Silent()), [(table, groups)])
        if not rewritten:
            return
        (item,) = rewritten
        table = commit_staged(item)
        moved = TablePin(
            table_key=pin.table_key,
            incarnation=pin.incarnation,
            location=table.path,
            branch=table.branch,
            version=table.version,
            row_count=table.count_rows(),
        )

        def make_commit(head: Head, graph_version: int) -> GraphCommit:
            return GraphCommit(
                commit_id=new_ulid(),
                graph_version=graph_version,
                branch=head.branch,
                parent_id=head.commit_id,
                created_at=environment.clock(),
                kind="optimize",
                operation_id=new_ulid(),
                schema_hash=head.schema_hash,
                tables=(pin.table_key,),
            )

        expectations = Expectations(branch=where, incarnation=snapshot.incarnation, schema_hash=snapshot.schema_hash)
        commit = environment.manifest.publish(expectations, Changes(pins=(moved,)), make_commit)
        self.accept(where, commit, self.model.state(where))


# ---- Questions about branches and their past that a graph has to answer as its model does


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

    def check_conflicts(self, plan: MergePlan, source: str, target: str, found: tuple[MergeConflict, ...]) -> None:
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
        others = [it for it in found if not it.kind.is_about_a_row]
        if not plan.decided:
            assert {it.with_strategy for it in others} <= {None}
            self.check_violations(plan, others)
        for strategy, decided in plan.decided.items():
            # Nothing comes up later: the decision leads to these conflicts and to no others.
            told = [it for it in others if it.with_strategy in (None, strategy)]
            self.check_violations(decided, told)
            preview = self.graph.merge(source, target, strategy=strategy, dry_run=True, engine="local")
            assert self.subjects(preview.conflicts) == self.subjects(told)

    def subjects(self, found: Iterable[MergeConflict]) -> set[tuple[str, ...]]:
        """What conflicts are about: the entities and values that their messages quote.

        An edge that lacks both ends is one conflict, and its message names either of them.
        """
        return {
            (it.kind, it.type_key, str(it.entity_id))
            if it.kind is ConflictKind.ORPHAN_EDGE
            else (it.kind, it.type_key, *sorted(re.findall(r"'[^']*'", it.message)))
            for it in found
        }

    def check_violations(self, plan: MergePlan, found: Iterable[MergeConflict]) -> None:
        """The conflicts are the violations of rules in the merged result."""
        others: dict[str, list[MergeConflict]] = {}
        for it in found:
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

    def run_merge(self, source: str, target: str, strategy: str | None, delete: bool = False) -> None:
        """A merge does what the model expects; on conflicts the target stays (the invariant looks at it)."""
        plan = self.model.plan_merge(source, target, strategy)
        head = self.graph.snapshot(target)

        def merge() -> MergeResult:
            return self.graph.merge(source, target, strategy=strategy, delete_branch=delete, engine="local")

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
        text = "query q() { match { $p: Person $p knows $q } return { $p.name as p, $q.name as q, $q.age as age } }"
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

    def follow(self, branch: str, told: Commit, limit: int, max_commits: int, **start: str) -> tuple[str, Commit]:
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
            page = self.graph.feed(branch, page_token=page.next_page_token, limit=limit, max_commits=max_commits)
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
