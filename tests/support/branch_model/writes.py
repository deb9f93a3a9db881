"""Every way to write to a branch, on the graph and on its model at once: both accept it, or both refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, TablePin
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import BadRequestError, LoadKeyConflictError, LoadRejectedError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.optimize import compact_tables
from omnigraph.pipeline.workers import LocalWorkers, Silent
from omnigraph.storage.datasets.compaction import choose_rewrites, fragment_facts
from omnigraph.storage.datasets.staged import commit_staged
from support.branch_model.model import (
    KNOWS,
    PERSON,
    TEAM,
    GraphModel,
    Row,
    State,
    copy_state,
    is_legal,
    make_row,
    without_nodes,
)
from support.branch_model.operations import Operation, Record, as_line
from support.graphs import fork


class BranchWrites:
    """A graph and its model."""

    root: str
    graph: Graph
    model: GraphModel

    def accept(
        self, branch: str, commit: GraphCommit, state: State, merged_parent: str | None = None
    ) -> None:
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

    def update_people(
        self, where: str, age: int | None, note: str | None, badge: int | None
    ) -> None:
        after = copy_state(self.model.state(where))
        for name, row in after[PERSON].items():
            if age is not None and row["properties"]["age"] == age:
                new = {**row["properties"], "note": note, "badge": badge}
                after[PERSON][name] = {"properties": new}
        text = (
            "query q($a: I32?, $n: String?, $b: I32?) "
            "{ update Person set { note: $n, badge: $b } where age = $a }"
        )
        self.mutate(where, text, {"a": age, "n": note, "b": badge}, after)

    def delete_people(self, where: str, name: str, badge: int | None) -> None:
        """People with a name or a badge, and every edge at them."""
        state = self.model.state(where)
        gone = {
            it
            for it, row in state[PERSON].items()
            if it == name or (badge is not None and row["properties"]["badge"] == badge)
        }
        text = (
            "query q($n: String, $b: I32?) "
            "{ delete Person where name = $n delete Person where badge = $b }"
        )
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
        environment, pin = graph._environment, snapshot.pins[key]
        table = fork(graph, where, key)
        groups = choose_rewrites(fragment_facts(table))
        rewritten = compact_tables(LocalWorkers(Silent()), [(table, groups)])
        if not rewritten:
            return
        (item,) = rewritten
        table = commit_staged(item.staged)
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

        expectations = Expectations(
            branch=where, incarnation=snapshot.incarnation, schema_hash=snapshot.schema_hash
        )
        commit = environment.manifest.publish(expectations, Changes(pins=(moved,)), make_commit)
        self.accept(where, commit, self.model.state(where))
